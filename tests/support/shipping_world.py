"""Forewarn as those get it who have no checkout: one file, an image, commands in a shell script."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from programs import missing

ROOT = Path(__file__).parent.parent.parent
RUN_LIMIT_S = 60.0
PROGRAMS = ("unshare", "nsenter", "setpriv", "ip", "curl")


@dataclass(frozen=True, slots=True)
class Emulator:
    """A process that emulates, and what it has said of itself."""

    pid: int
    said: dict[str, Any]

    @property
    def vm_urls(self) -> dict[str, str]:
        found: dict[str, str] = self.said["vm_urls"]
        return found


@dataclass(frozen=True, slots=True)
class Place:
    """A folder to work in and an environment that has nothing of ours, unless it is added."""

    folder: Path
    environment: Mapping[str, str]
    limit_s: float = RUN_LIMIT_S

    def run(self, command: Sequence[str], **more: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, with more in its environment if wanted."""
        return subprocess.run(
            list(command),
            cwd=self.folder,
            env={**self.environment, **more},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=self.limit_s,
        )

    @contextmanager
    def running(self, command: Sequence[str], **more: str) -> Iterator[Emulator]:
        """Run an emulator that says in JSON where it is, for the length of the block.

        At the end it is asked to stop, and must do so without complaint.
        """
        process = subprocess.Popen(
            list(command),
            cwd=self.folder,
            env={**self.environment, **more},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            if not said:
                raise AssertionError(f"it did not start: {process.communicate()[1]}")
            yield Emulator(process.pid, json.loads(said))
            process.terminate()
            _, complaints = process.communicate(timeout=RUN_LIMIT_S)
            assert (process.returncode, complaints) == (0, "")
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate(timeout=RUN_LIMIT_S)


def empty_place(folder: Path, **more: str) -> Place:
    """An empty folder, a home of its own, and the system's programs."""
    home, temporary, work = folder / "home", folder / "tmp", folder / "work"
    for one in (home, temporary, work):
        one.mkdir(parents=True)
    environment = {"PATH": os.defpath, "HOME": str(home), "TMPDIR": str(temporary)}
    return Place(work, {**environment, "COLUMNS": "200", **more})


@cache
def why_no_namespace() -> str:
    """What keeps this machine from making a network namespace; empty if nothing does."""
    if missing(*PROGRAMS):
        return missing(*PROGRAMS)
    made = subprocess.run(
        ["unshare", "--map-root-user", "--net", "true"], capture_output=True, text=True, check=False
    )
    return made.stderr.strip()
