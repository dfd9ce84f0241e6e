"""A real `forewarn simulate` as a child process, told by its one line of JSON where it is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from support.system_world import EXIT_LIMIT_S, FOREWARN, START_LIMIT_S, Guest
from support.waiting import wait_until

FREE_PORTS = ("--guest", "127.0.0.1:0", "--operator", "127.0.0.1:0")


@dataclass(frozen=True, slots=True)
class Simulation:
    """A running emulator, and a person at the command line beside it."""

    process: subprocess.Popen[bytes]
    home: Path
    where: Any

    def guest(self, vm: str) -> Guest:
        parts = urlsplit(self.where["vm_urls"][vm])
        return Guest((parts.hostname or "", parts.port or 0))

    def cli(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return forewarn(self.home, *arguments)

    def said(self, *arguments: str) -> str:
        """What a command prints that must work."""
        ran = self.cli(*arguments)
        assert ran.returncode == 0, ran
        return ran.stdout

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(EXIT_LIMIT_S)

    def err(self) -> str:
        return (self.home / "err").read_text(encoding="utf-8")


def environment_of(home: Path) -> dict[str, str]:
    """Nothing of the caller's environment but the path to programs."""
    path = f"{FOREWARN.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    return {"PATH": path, "HOME": str(home), "COLUMNS": "200"}


def forewarn(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line as the person whose home this is, to its end."""
    return subprocess.run(
        [str(FOREWARN), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=START_LIMIT_S,
        stdin=subprocess.DEVNULL,
        env=environment_of(home),
    )


@contextmanager
def simulating(
    home: Path,
    *options: str,
    under: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Iterator[Simulation]:
    """An emulator for the length of the block; on free ports unless options say which."""
    ports = () if "--guest" in options or "--operator" in options else FREE_PORTS
    command = [*under, str(FOREWARN), "simulate", *ports, *options, "--json"]
    out, err = home / "out", home / "err"
    with out.open("wb") as out_file, err.open("wb") as err_file:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out_file,
            stderr=err_file,
            env=environment_of(home) | dict(environment or {}),
            start_new_session=True,
        )

    def has_said_where() -> bool:
        if process.poll() is not None:
            pytest.fail(f"the emulator ended: {out.read_text()}{err.read_text()}")
        return out.read_text(encoding="utf-8").endswith("\n")

    try:
        wait_until(has_said_where, "the emulator starts", limit_s=START_LIMIT_S)
        yield Simulation(process, home, json.loads(out.read_text(encoding="utf-8")))
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(EXIT_LIMIT_S)
