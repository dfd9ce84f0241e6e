"""A running `forewarn control`, and what hosts need to join it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.guests import Operator
from bench.processes import (
    SERVER_CORE,
    Failed,
    clean_environment,
    forewarn_program,
    running,
    wait,
)


@dataclass(frozen=True, slots=True)
class Control:
    """A running `forewarn control`."""

    pid: int
    operator_port: int
    token: str
    hosts_url: str

    def invite(self, host: str) -> str:
        """A token with which the host may join."""
        answer = Operator(self).ask("POST", f"/v1/hosts/{host}/invite", {"valid_seconds": 3_600})
        if answer.status != 200:
            raise Failed(f"host {host} was not invited: {answer.body!r}")
        return str(json.loads(answer.body)["token"])


@contextmanager
def control(folder: Path, *, core: int = SERVER_CORE, yielding: bool = False) -> Iterator[Control]:
    """Run `forewarn control` on a data folder inside `folder`; every scope is told of events.

    `yielding`: it shares a core with whoever measures, and must not be what is measured.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command = [forewarn_program(), "control", "--json", "--data", str(folder / "data")]
    command += ["--operator", "127.0.0.1:0", "--hosts", "127.0.0.1:0"]
    if yielding:
        command = ["nice", "-n", "19", *command]
    environment = {**clean_environment(), "FOREWARN_ENABLEMENT": "always"}
    log = folder / "control.log"
    with running(command, log, environment, core=core) as process:
        wait(process, log, lambda: _where(log) is not None)
        where = _where(log) or {}
        yield Control(
            pid=process.pid,
            operator_port=urlsplit(where["operator_url"]).port or 0,
            token=(folder / "data" / "operator.token").read_text(encoding="ascii").strip(),
            hosts_url=where["hosts_url"],
        )


def _where(log: Path) -> dict[str, Any] | None:
    """Where control listens, once it has said so on a line of JSON."""
    for line in log.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.startswith("{") and '"hosts_url"' in line and line.endswith("\n"):
            return dict(json.loads(line))
    return None
