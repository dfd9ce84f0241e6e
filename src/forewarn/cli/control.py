"""`forewarn control`: the control plane on one machine, its hosts on others."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forewarn.cli.client import Stop
from forewarn.cli.logs import log_to_stderr
from forewarn.cli.serve import (
    LINK_IS_GOOD,
    NEW_DATABASE,
    BehindProxy,
    DataFolder,
    OperatorListen,
    SettingsFile,
    authority_line,
    chosen_settings,
    program,
    run_to_end,
    said_authority,
)
from forewarn.cli.session import AsJson, Session, session_of
from forewarn.settings import CONTROL_DEFAULTS, OPERATOR_TOKEN_FILE, Settings
from forewarn.wiring.process import EXIT_CONFIG, CannotStart, exit_status

if TYPE_CHECKING:
    from forewarn.wiring.control import ControlWhere


def control(
    context: typer.Context,
    *,
    data: DataFolder = None,
    settings: SettingsFile = None,
    inventory: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="An inventory, in addition to what hosts report."),
    ] = None,
    operator: OperatorListen = None,
    hosts: Annotated[
        str | None, typer.Option(metavar="ADDR:PORT", help="Where hosts connect.")
    ] = None,
    hosts_url: Annotated[
        str | None, typer.Option(metavar="URL", help="How hosts reach that, as an https URL.")
    ] = None,
    behind_proxy: BehindProxy = False,
    new: Annotated[bool, NEW_DATABASE] = False,
    as_json: AsJson = False,
) -> None:
    """Run the control plane: operator API, rules and journal here, a host daemon elsewhere.

    With --json it prints one line, once everything listens: where.
    """
    chosen = chosen_settings(
        session_of(context),
        file=settings,
        data=data,
        inventory=inventory,
        operator=operator,
        hosts=hosts,
        hosts_url=hosts_url,
        behind_proxy="true" if behind_proxy else None,
        defaults=CONTROL_DEFAULTS,
    )
    log_to_stderr()
    _run(chosen, new=new, as_json=as_json)


def _run(chosen: Settings, *, new: bool, as_json: bool) -> None:
    try:
        # Certificates need a library that only control and hosts have.
        from forewarn.wiring.control import open_control  # noqa: PLC0415 - see above
    except ModuleNotFoundError as missing:
        raise Stop(
            EXIT_CONFIG,
            f"cannot start without {missing.name}.",
            "Install it: pip install 'forewarn[hosts]'",
        ) from None

    async def everything() -> None:
        service = open_control(chosen, new=new)
        await service.run(_say_where_in_json if as_json else _say_where)

    try:
        run_to_end(everything())
    except CannotStart as why:
        raise Stop(exit_status(why), f"cannot start. {why}") from None


def _say_where_in_json(where: ControlWhere) -> None:
    """The same for a program: one JSON document on one line."""
    Session.show_json_line(
        {
            "operator_url": where.operator_url,
            "operator_token_file": str(where.data / OPERATOR_TOKEN_FILE),
            "operator_socket": str(where.operator_socket),
            **said_authority(where.operator_authority),
            "hosts_url": where.hosts_url,
            "hosts_listen": where.hosts_listen,
            "members": where.members,
            "data": str(where.data),
            "console_link": where.console_link,
        }
    )


def _say_where(where: ControlWhere) -> None:
    """Tell a person where to go on, with lines that work when pasted."""
    sys.stdout.write("\n".join(_lines(where)) + "\n")
    sys.stdout.flush()


def _lines(where: ControlWhere) -> Iterator[str]:
    token = where.data / OPERATOR_TOKEN_FILE
    this, data = program(), shlex.quote(str(where.data))
    yield "forewarn control is running; Ctrl-C stops it."
    yield f"  data folder     {where.data}"
    yield f"  console         {where.console_link}"
    yield f"                  {LINK_IS_GOOD}"
    yield f"  operator API    {where.operator_url}   (token in {token})"
    yield f"  its socket      {where.operator_socket}   (for this machine, without the token)"
    yield from authority_line(where.operator_authority)
    yield f"  hosts connect   {where.hosts_url}   (listening on {where.hosts_listen})"
    if where.members:
        yield f"  hosts joined    {where.members}: `{this} --data {data} host list`"
        return
    yield ""
    yield "No host has joined yet. For each, this makes a one-time token and says how to join:"
    yield f"  {this} --data {data} host invite NAME"
