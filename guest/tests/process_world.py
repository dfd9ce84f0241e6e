"""What tests of processes share: looking at a condition until it is so, and at what is running."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Callable

from forewarn_guest.step_processes import Running, Steps

DEADLINE_S = 60.0
ENVIRONMENT = {"PATH": os.defpath}


def until(condition: Callable[[], bool]) -> None:
    """Look again and again, until it is so."""
    end_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end_s, "it did not become so"
        time.sleep(0.005)


def code_of(running: Running) -> int:
    """The exit status, once it has ended."""
    until(lambda: running.poll() is not None)
    code = running.poll()
    assert code is not None
    return code


def run(steps: Steps, *argv: str, given: bytes = b"") -> tuple[int, str]:
    """Begin a step, wait for its end, and say its exit status and what it said."""
    running = steps.begin("run", argv, environment=ENVIRONMENT, given=given)
    return code_of(running), running.said()


def runs(pid: int) -> bool:
    """True for a process that is there and is no zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:
        return False
    return fields[0] not in "ZX"


def written(path: Path) -> str:
    """What a step has written so far."""
    return path.read_text(encoding="utf-8") if path.exists() else ""
