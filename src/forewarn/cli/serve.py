"""`forewarn serve`: everything in one process."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from forewarn.cli.client import Stop
from forewarn.cli.logs import log_to_stderr
from forewarn.cli.session import AsJson, Session, flag, session_of
from forewarn.core.addresses import listen_text
from forewarn.settings import OPERATOR_TOKEN_FILE, BadSettings, Settings, load, need_shelter
from forewarn.wire.api_versions import NEWEST
from forewarn.wiring.process import CannotStart, exit_status
from forewarn.wiring.serve import Where, open_service

LISTENERS_PRINTED_MAX = 20
LINK_IS_GOOD = "(opens it once, within a minute; `forewarn console` prints another)"

BehindProxy = Annotated[
    bool,
    flag("--behind-proxy", help="Allow --operator beyond loopback: a proxy with TLS guards it."),
]
DataFolder = Annotated[Path | None, typer.Option(metavar="DIR", help="Where everything is kept.")]
SettingsFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="A TOML file with settings.")
]
OperatorListen = Annotated[
    str | None, typer.Option(metavar="ADDR:PORT", help="Where the operator API listens.")
]
# Of `serve` and `control`; no setting, so that no file can say it at every start.
NEW_DATABASE = flag(
    "--new", help="Begin with a new database where the old one is lost or refused; it is kept."
)


def serve(
    context: typer.Context,
    *,
    data: DataFolder = None,
    settings: SettingsFile = None,
    inventory: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The fleet; the demo fleet by default.")
    ] = None,
    guest: Annotated[
        str | None, typer.Option(metavar="ADDR:PORT", help="Where VMs known by address ask.")
    ] = None,
    operator: OperatorListen = None,
    behind_proxy: BehindProxy = False,
    new: Annotated[bool, NEW_DATABASE] = False,
    as_json: AsJson = False,
) -> None:
    """Run the service: guest endpoint, operator API and simulated hosts in one process.

    With --json it prints one line, once everything listens: where.
    """
    chosen = chosen_settings(
        session_of(context),
        file=settings,
        data=data,
        inventory=inventory,
        guest=guest,
        operator=operator,
        behind_proxy="true" if behind_proxy else None,
    )
    log_to_stderr()
    try:
        _run(chosen, _say_where_in_json if as_json else say_where, new=new)
    except CannotStart as why:
        raise Stop(exit_status(why), f"cannot start. {why}") from None


def chosen_settings(
    session: Session,
    *,
    file: Path | None,
    data: Path | None,
    defaults: Mapping[str, Any] | None = None,
    **options: Path | str | None,
) -> Settings:
    """The settings that `serve` or `control` runs with. Raises Stop, with what is wrong."""
    given = {"data": data or session.data, **options}
    said = {name: None if value is None else str(value) for name, value in given.items()}
    try:
        chosen = load(
            file=file or session.settings,
            environment=os.environ,
            options=said,
            defaults=defaults,
        )
        need_shelter(chosen)
    except BadSettings as bad:
        raise Stop(2, f"the settings are wrong.\n{bad}") from None
    return chosen


def _run(settings: Settings, started: Callable[[Where], None], *, new: bool) -> None:
    async def everything() -> None:
        service = open_service(settings, new=new)
        await service.run(started)

    run_to_end(everything())


def program() -> str:
    """This program as another terminal can start it: a file that is run by Python needs both."""
    path = Path(sys.argv[0])
    if path.suffix == ".pyz":
        return f"{shlex.quote(sys.executable)} {shlex.quote(str(path.resolve()))}"
    return shlex.quote(str(path))


def run_to_end(everything: Coroutine[object, object, None]) -> None:
    """Run a command that lives in an event loop, on the fastest loop there is."""
    if sys.platform == "win32":
        asyncio.run(everything)
        return
    import uvloop  # noqa: PLC0415 - there is none on Windows

    uvloop.run(everything)


def _say_where_in_json(where: Where) -> None:
    """The same for a program: one JSON document on one line."""
    Session.show_json_line(
        {
            "operator_url": where.operator_url,
            "operator_token_file": str(where.data / OPERATOR_TOKEN_FILE),
            "operator_socket": str(where.operator_socket),
            **said_authority(where.operator_authority),
            "guest_url": url_of(where.guest),
            "vm_urls": {vm: url_of(address) for vm, address in where.listeners.items()},
            "data": str(where.data),
            "console_link": where.console_link,
        }
    )


def said_authority(file: Path | None) -> dict[str, str]:
    """For a program: what callers trust, where the certificate is our own."""
    return {} if file is None else {"operator_authority_file": str(file)}


def authority_line(file: Path | None) -> list[str]:
    """For a person: what callers elsewhere trust, where the certificate is our own."""
    return [] if file is None else [f"  its authority   {file}   (FOREWARN_CA_FILE elsewhere)"]


def url_of(address: tuple[str, int]) -> str:
    """An address as the start of a URL."""
    return f"http://{listen_text(*address)}"


def say_where(where: Where) -> None:
    """Tell a person where to go on, with lines that work when pasted."""
    token = where.data / OPERATOR_TOKEN_FILE
    lines = [
        "forewarn is running; Ctrl-C stops it.",
        f"  data folder     {where.data}   (all is kept there; the next start goes on from it)",
        f"  console         {where.console_link}",
        f"                  {LINK_IS_GOOD}",
        f"  operator API    {where.operator_url}   (token in {token})",
        f"  its socket      {where.operator_socket}   (for this machine, without the token)",
        *authority_line(where.operator_authority),
        f"  guest endpoint  {url_of(where.guest)}   (for VMs known by their address)",
    ]
    if where.listeners:
        lines += _say_listeners(where)
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def _say_listeners(where: Where) -> Iterator[str]:
    yield "  VMs with a listener of their own:"
    width = max(map(len, where.listeners))
    for vm, address in list(where.listeners.items())[:LISTENERS_PRINTED_MAX]:
        yield f"    {vm:<{width}}  {url_of(address)}"
    more = len(where.listeners) - LISTENERS_PRINTED_MAX
    if more > 0:
        yield f"    ... and {more} more: `forewarn vm list`"
    query = f"/metadata/scheduledevents?api-version={NEWEST.name}"
    this, data = program(), shlex.quote(str(where.data))
    yield ""
    yield f"Be {where.example} and read its document:"
    yield f"  curl -H Metadata:true '{url_of(where.listeners[where.example])}{query}'"
    yield "Be the operator and restart it:"
    yield f"  {this} --data {data} vm restart {where.example}"
