"""What `forewarn host` runs: settings, the way to join, and what it prints."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from forewarn.cli.client import Stop
from forewarn.cli.logs import log_to_stderr
from forewarn.cli.serve import run_to_end, url_of
from forewarn.cli.session import Session
from forewarn.cli.tables import count
from forewarn.host_settings import BadSettings, load
from forewarn.wiring.host import HostWhere, join_host, run_host
from forewarn.wiring.libvirt_host import on_libvirt
from forewarn.wiring.process import CannotStart, exit_status

TOKEN_CHARS_MAX = 1_024


def run(
    session: Session,
    options: Mapping[str, str | None],
    *,
    token_file: str | None,
    join_only: bool,
    as_json: bool,
) -> None:
    """Run the daemon until it is told to stop, or only join. Raises Stop if it cannot start."""
    data = None if session.data is None else str(session.data)
    try:
        settings = load(
            file=session.settings, environment=os.environ, options={**options, "data": data}
        )
    except BadSettings as bad:
        raise Stop(2, f"the settings are wrong.\n{bad}") from None
    token = None if token_file is None else _read_token(token_file)
    log_to_stderr()
    said = _say_in_json if as_json else _say
    try:
        if join_only:
            run_to_end(join_host(settings, token=token, joined=_say_joined))
            return
        run_to_end(run_host(settings, token=token, build=on_libvirt, started=said))
    except CannotStart as why:
        raise Stop(exit_status(why), f"cannot start. {why}") from None


def _read_token(file: str) -> str:
    """The token in the first line of a file, or of standard input. Raises Stop."""
    if file == "-":
        if sys.stdin.isatty():
            sys.stderr.write("The token that `forewarn host invite` has printed: ")
            sys.stderr.flush()
        return sys.stdin.readline(TOKEN_CHARS_MAX).strip()
    try:
        with Path(file).open(encoding="ascii", errors="replace") as opened:
            return opened.readline(TOKEN_CHARS_MAX).strip()
    except OSError as error:
        raise Stop(
            2,
            f"The token cannot be read: {file}: {error.strerror or error}.",
            "Name the file that holds it with --token-file FILE; `-` is standard input.",
        ) from None


def _say_joined(name: str, control: str) -> None:
    sys.stdout.write(f"This machine is host {name} of {control}.\n")
    sys.stdout.flush()


def _say_in_json(where: HostWhere) -> None:
    Session.show_json_line(
        {
            "name": where.name,
            "control": where.control,
            "data": str(where.data),
            "metrics_url": None if where.metrics is None else url_of(where.metrics),
            "vms": where.vms,
        }
    )


def _say(where: HostWhere) -> None:
    seen = None if where.vms is None else f"{count(where.vms, 'VM')} seen"
    lines = [
        f"forewarn is host {where.name}; Ctrl-C stops it.",
        f"  control      {where.control}",
        f"  data folder  {where.data}",
        f"  hypervisor   {seen or 'cannot be seen yet'}",
    ]
    if where.metrics is not None:
        lines.append(f"  metrics      {url_of(where.metrics)}/metrics")
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
