"""`forewarn host invite` and `forewarn host revoke`: who may be a host of a control plane."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from forewarn.cli.client import Client, Reply, Stop
from forewarn.cli.fleet import Name, host
from forewarn.cli.session import AsJson, flag, session_of
from forewarn.core.errors import Invalid
from forewarn.core.membership import VALID_MS_MAX, VALID_MS_MIN
from forewarn.core.model import SECOND_MS
from forewarn.text.durations import duration_text, parse_duration_ms

__all__ = ["host"]

VALID_DEFAULT = "1h"


@host.command("invite")
def invite(
    context: typer.Context,
    *,
    name: Name,
    valid: Annotated[
        str, typer.Option(metavar="TIME", help="How long the token is valid: 10m, 1h, 2d.")
    ] = VALID_DEFAULT,
    replace: Annotated[
        bool, flag("--replace", help="The machine takes the name from the one that has it.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make a one-time token with which a host may join, and print what to say there."""
    session = session_of(context)
    body: dict[str, object] = {"valid_seconds": _valid_seconds(valid), "replace": replace}
    reply = _of_a_control(session.client(), name, "invite", body)
    session.show(reply, lambda shown, _: _invited(shown), as_json=as_json)


@host.command("revoke")
def revoke(context: typer.Context, *, name: Name, as_json: AsJson = False) -> None:
    """Shut a host out: nothing it says is heard any more. Its VMs go on running."""
    session = session_of(context)
    reply = _of_a_control(session.client(), name, "revoke", {})
    session.show(reply, lambda shown, _: _revoked(shown), as_json=as_json)


def _valid_seconds(valid: str) -> int:
    try:
        valid_ms = parse_duration_ms(valid)
    except Invalid as wrong:
        raise Stop(2, wrong.refused, wrong.accepted) from None
    if not VALID_MS_MIN <= valid_ms <= VALID_MS_MAX:
        accepted = f"{duration_text(VALID_MS_MIN)} to {duration_text(VALID_MS_MAX)}"
        raise Stop(2, f"A token cannot be valid for {valid}.", f"Accepted: {accepted}.")
    return -(-valid_ms // SECOND_MS)


def _of_a_control(client: Client, name: str, verb: str, body: dict[str, object]) -> Reply:
    """Give an order that only a control takes; say so if the service is not a control."""
    try:
        return client.order("hosts", name, verb, body=body)
    except Stop as stop:
        if not isinstance(stop.problem, dict) or stop.problem.get("code") != "unknown-path":
            raise
        raise Stop(
            1,
            "This service has its hosts in its own process; none can join or leave.",
            "Hosts join a `forewarn control`; name its data folder with --data.",
        ) from None


def _invited(shown: dict[str, Any]) -> str:
    valid = duration_text(shown["valid_seconds"] * SECOND_MS)
    return (
        f"On the machine that is to be {shown['name']}, once and within {valid}:\n"
        f"  {shown['command']}\n"
        "It reads this token, which only that machine may know:\n"
        f"  {shown['token']}\n"
        "Where systemd runs it: as user forewarn-host, with --join-only and --data"
        " /var/lib/forewarn-host; then start the unit."
    )


def _revoked(shown: dict[str, Any]) -> str:
    name = shown["name"]
    if not shown["stays"]:
        return f"Host {name} is revoked, and no longer in the list: nothing was on it."
    return (
        f"Host {name} is revoked: control no longer listens to it. Its VMs keep running.\n"
        f"If it is gone for good and surely off: `forewarn host fail {name} --fenced`.\n"
        f"When no VM, event or operation is left on it, run `forewarn host revoke {name}` again."
    )
