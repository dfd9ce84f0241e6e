"""`forewarn serve`: everything in one process."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import structlog
import typer

from forewarn import wiring
from forewarn.cli.client import Stop
from forewarn.cli.session import session_of
from forewarn.settings import BadSettings, Settings, load
from forewarn.wire.api_versions import NEWEST


def serve(
    context: typer.Context,
    *,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where everything is kept.")
    ] = None,
    settings: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A TOML file with settings.")
    ] = None,
    inventory: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The fleet; the demo fleet by default.")
    ] = None,
    guest: Annotated[
        str | None, typer.Option(metavar="ADDR:PORT", help="Where VMs known by address ask.")
    ] = None,
    operator: Annotated[
        str | None, typer.Option(metavar="ADDR:PORT", help="Where the operator API listens.")
    ] = None,
) -> None:
    """Run the service: guest endpoint, operator API and simulated hosts in one process."""
    session = session_of(context)
    options = {
        "data": _text(data or session.data),
        "inventory": _text(inventory),
        "guest": guest,
        "operator": operator,
    }
    try:
        chosen = load(file=settings or session.settings, environment=os.environ, options=options)
    except BadSettings as bad:
        raise Stop(2, f"the settings are wrong.\n{bad}") from None
    _log_to_stderr()
    try:
        _run(chosen)
    except wiring.CannotStart as why:
        raise Stop(1, f"cannot start. {why}") from None


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _log_to_stderr() -> None:
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.LogfmtRenderer(bool_as_flag=False),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def _run(settings: Settings) -> None:
    async def everything() -> None:
        service = wiring.open_service(settings)
        await service.run(_say_where)

    if sys.platform == "win32":
        asyncio.run(everything())
        return
    import uvloop  # noqa: PLC0415 - there is none on Windows

    uvloop.run(everything())


def _say_where(where: wiring.Where) -> None:
    """Tell a person where to go on, with lines that work when pasted."""
    address, port = where.guest
    sys.stdout.write(
        f"forewarn is running; Ctrl-C stops it.\n"
        f"  data folder     {where.data}\n"
        f"  operator API    {where.operator_url}   (token in {where.data}/operator.token)\n"
        f"  guest endpoint  http://{address}:{port}   (for VMs known by their address)\n"
    )
    query = f"/metadata/scheduledevents?api-version={NEWEST.name}"
    if where.listeners:
        sys.stdout.write("  VMs with a listener of their own:\n")
        width = max(map(len, where.listeners))
        for vm, (vm_address, vm_port) in where.listeners.items():
            sys.stdout.write(f"    {vm:<{width}}  http://{vm_address}:{vm_port}\n")
        vm = where.example
        vm_address, vm_port = where.listeners[vm]
        sys.stdout.write(
            f"\nBe {vm} and read its document:\n"
            f"  curl -H Metadata:true 'http://{vm_address}:{vm_port}{query}'\n"
            f"Be the operator and restart it:\n"
            f"  forewarn --data {shlex.quote(str(where.data))} vm restart {vm}\n"
        )
    sys.stdout.flush()
