"""`forewarn host accept-control`: the way out for a host that refuses the right control."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from forewarn.cli.client import EXIT_REFUSED, EXIT_USAGE, Stop
from forewarn.cli.host_network import host
from forewarn.cli.session import AsJson, Session, flag, session_of
from forewarn.core.errors import Refusal

if TYPE_CHECKING:
    from forewarn.wiring.accept_control import Standing

__all__ = ["host"]


@host.command("accept-control")
def accept_control(
    context: typer.Context,
    *,
    yes: Annotated[bool, flag("--yes", help="Do not ask whether it is meant.")] = False,
    as_json: AsJson = False,
) -> None:
    """On a hypervisor: let its guests be shown what control sends, even lower incarnations.

    A host refuses a control that would take a document back, and claims nothing from it. If that
    control is the right one all the same, this makes the host forget what its guests have read.
    `forewarn restore` of a backup on the control machine is the better way where there is one.
    """
    from forewarn.adapters.sqlite.data_folder import DatabaseRefused  # noqa: PLC0415 - as below
    from forewarn.host_settings import BadSettings, load  # noqa: PLC0415 - as below
    from forewarn.wiring import accept_control as accepting  # noqa: PLC0415 - not for every other command

    session = session_of(context)
    data = None if session.data is None else str(session.data)
    try:
        chosen = load(file=session.settings, environment=os.environ, options={"data": data})
        folder = chosen.data
        standing = accepting.standing(folder, control=chosen.control)
        if not yes:
            _ask(standing)
        taken = accepting.accept_control(folder)
    except BadSettings as bad:
        raise Stop(EXIT_USAGE, f"the settings are wrong.\n{bad}") from None
    except (Refusal, DatabaseRefused) as why:
        raise Stop(EXIT_REFUSED, why.refused, why.accepted) from None
    if as_json:
        Session.show_json(
            {
                "name": standing.name,
                "control": standing.control,
                "vms": standing.vms,
                "highest_incarnation": standing.highest,
                "taken": taken,
            }
        )
    else:
        sys.stdout.write(_done(standing, taken=taken))


def _ask(standing: Standing) -> None:
    """Say what it means, and stop unless the operator says yes."""
    sys.stderr.write(_meaning(standing))
    if not sys.stdin.isatty():
        raise Stop(
            EXIT_USAGE, "Nothing was done: there is no terminal to say yes on.", "Give --yes."
        )
    if not typer.confirm("Forget what guests have read?", err=True):
        raise Stop(EXIT_REFUSED, "Nothing was done.")


def _meaning(standing: Standing) -> str:
    lost = f"What was known is not whole: {standing.lost}.\n" if standing.lost else ""
    return (
        f"{lost}Host {standing.name} forgets what {standing.vms} VMs have read (incarnations up to"
        f" {standing.highest}) and takes\n"
        f"what {standing.control} sends as it is, from the next answer on.\n"
        "Guests may read a lower incarnation than before. Software in them that only looks at\n"
        "higher ones, or that sends the old number as If-None-Match, may miss events until it is\n"
        "started again. If there is a backup of the right control, `forewarn restore` it there\n"
        "instead: that takes no number back, and the host obeys again by itself.\n"
    )


def _done(standing: Standing, *, taken: bool) -> str:
    if taken:
        return f"Host {standing.name} has forgotten it, and takes what {standing.control} sends.\n"
    if standing.daemon is None:
        return f"No daemon runs here; the next one of host {standing.name} begins with it.\n"
    return (
        f"The daemon (process {standing.daemon}) has not taken it up yet; its log says why. It does"
        " when it can, at the latest when it is started again.\n"
    )
