"""`forewarn host` without a command: the daemon of one hypervisor.

Only its options live here; what it runs is imported when it is run, so that `forewarn host list`
stays as light as every other question to the service.
"""

from __future__ import annotations

import os
from typing import Annotated

import typer

from forewarn.cli.accept_control import host
from forewarn.cli.client import Stop
from forewarn.cli.session import AsJson, Session, flag, session_of

__all__ = ["host"]

_PREFIX = "FOREWARN_HOST_"

TokenFile = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Join with the one-time token in it; `-` is standard input."),
]


@host.callback(invoke_without_command=True)
def daemon(
    context: typer.Context,
    *,
    control: Annotated[
        str | None, typer.Option(metavar="URL", help="The control to follow, as it prints it.")
    ] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="The name of this host.")] = None,
    token_file: TokenFile = None,
    token: Annotated[str | None, typer.Option(hidden=True)] = None,
    join_only: Annotated[
        bool, flag("--join-only", help="Join and end; a service manager runs it later.")
    ] = False,
    libvirt: Annotated[
        str | None, typer.Option(metavar="URI", help="The libvirt of this host.")
    ] = None,
    listen: Annotated[
        str | None, typer.Option(metavar="MODE", help="Serve guests on: bridge, tap or none.")
    ] = None,
    bridges: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Only on these bridges, by commas.")
    ] = None,
    metrics: Annotated[
        str | None, typer.Option(metavar="ADDR:PORT", help='Where metrics are; "" for nowhere.')
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Look at hosts, maintain them, say how they are; or, without a command, be one.

    Being one: with --control, --name and --token-file it joins a control and runs; later nothing
    needs to be said again. --data DIR says where its certificate is kept, --settings FILE what
    else is to be set.
    """
    options = {
        "control": control,
        "name": name,
        "libvirt": libvirt,
        "listen": listen,
        "bridges": bridges,
        "metrics": metrics,
    }
    standard_input = _standard_input(token)
    token_file = token_file or standard_input
    given = [key for key, value in options.items() if value is not None]
    given += ["token-file"] if token_file else []
    given += ["join-only"] if join_only else []
    if context.invoked_subcommand is not None:
        _refuse(given, context.invoked_subcommand)
        return
    session = session_of(context)
    meant = given or session.data or session.settings
    if not meant and not any(variable.startswith(_PREFIX) for variable in os.environ):
        from forewarn.host_settings import joined_before  # noqa: PLC0415 - as below

        if not joined_before(os.environ):
            typer.echo(context.get_help())
            raise typer.Exit(2)
    _run_daemon(session, options, token_file=token_file, join_only=join_only, as_json=as_json)


def _standard_input(token: str | None) -> str | None:
    """What of the old option is left: `-`. Raises Stop for a token, which does not belong there."""
    if token in (None, "-"):
        return token
    raise Stop(
        2,
        "A token on the command line can be read by every user of this machine.",
        "Give it in a file with --token-file FILE, or on standard input with --token-file -."
        " If others are on this machine, make a new one: `forewarn host invite NAME`.",
    )


def _run_daemon(
    session: Session,
    options: dict[str, str | None],
    *,
    token_file: str | None,
    join_only: bool,
    as_json: bool,
) -> None:
    try:
        from forewarn.cli.host_daemon import run  # noqa: PLC0415 - it imports the whole daemon
    except ModuleNotFoundError as missing:
        raise Stop(
            1,
            f"cannot start without {missing.name}.",
            "Install it: pip install 'forewarn[hosts,libvirt]'",
        ) from None
    run(session, options, token_file=token_file, join_only=join_only, as_json=as_json)


def _refuse(given: list[str], command: str) -> None:
    """Options of the daemon mean nothing to a command."""
    if given:
        raise Stop(
            2,
            f"--{given[0]} is for the daemon, not for `host {command}`.",
            "Leave the command out to run the daemon, or the option to give the command.",
        )
