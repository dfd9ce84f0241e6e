"""An agent as a process of its own, and waiting for what it does; for tests of it from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable

WITHIN_S = 60.0
LOOK_EVERY_S = 0.02
SOURCE = Path(__file__).resolve().parent.parent / "src"
NOTE = '[[rule]]\nname = "note"\nignore = true\n'


def wait_until(condition: Callable[[], Any], what: str, within_s: float = WITHIN_S) -> Any:
    """What the condition returns, as soon as that is true."""
    until_s = time.monotonic() + within_s
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < until_s, f"not within {within_s} s: {what}"
        threading.Event().wait(LOOK_EVERY_S)


def environment(**more: str) -> dict[str, str]:
    """An environment in which the package is found, and no endpoint or proxy is named."""
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG")}
    return {**kept, "PYTHONPATH": str(SOURCE), **more}


def guest(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """The program, run to its end."""
    return subprocess.run(
        [sys.executable, "-m", "forewarn_guest", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment(**more),
    )


class AgentProcess:
    """`forewarn-guest run`, with its configuration and everything it writes below one folder."""

    def __init__(self, folder: Path, endpoint: str, rules: str = NOTE, vm: str = "vm0") -> None:
        self.folder = folder
        self.config = folder / "agent.toml"
        self.metrics_file = folder / "agent.prom"
        self.status_file = folder / "data" / "status.json"
        self.journal = folder / "data" / "journal"
        self.log_file = folder / "agent.log"
        named = f'vm = "{vm}"\n' if vm else ""
        self.config.write_text(
            f'[agent]\nendpoint = "{endpoint}"\n{named}folder = "{folder / "data"}"\n'
            f'metrics_file = "{self.metrics_file}"\n{rules}'
        )
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @contextmanager
    def running(self, **more: str) -> Iterator[AgentProcess]:
        """The agent while it runs; killed at the end if it still does."""
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "forewarn_guest", "run", "--config", str(self.config)],
                stderr=log,
                env=environment(**more),
            )
        try:
            yield self
        finally:
            self.process.kill()
            self.process.wait(WITHIN_S)

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def ended(self) -> int:
        """Its exit code, once it has ended."""
        assert self.process is not None
        return self.process.wait(WITHIN_S)

    def log(self) -> str:
        return self.log_file.read_text() if self.log_file.exists() else ""

    def await_log(self, text: str, times: int = 1) -> None:
        """Wait until the log of all its runs has the text so often."""
        within = f"{text!r} in {self.log_file}"
        wait_until(lambda: self.log().count(text) >= times, within)

    def status(self) -> Mapping[str, Any]:
        """The status file, once there is one."""
        wait_until(self.status_file.exists, f"a status file; the log:\n{self.log()}")
        found: Mapping[str, Any] = json.loads(self.status_file.read_text())
        return found
