"""What the tests of built-in steps against real programs share: running a step, and programs."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import forewarn_guest

SOURCES = str(Path(forewarn_guest.__file__).parent.parent)
PATIENCE_S = 60.0
EVENT: dict[str, Any] = {
    "EventId": "0F1E2D3C-4B5A-6978-8796-A5B4C3D2E1F0",
    "EventStatus": "Scheduled",
    "EventType": "Reboot",
    "ResourceType": "VirtualMachine",
    "Resources": ["web-0", "web-1"],
    "NotBefore": "Tue, 03 Mar 2026 10:15:00 GMT",
    "Description": "Host is being updated: f\u00fcr 5 s.",
    "EventSource": "Platform",
    "DurationInSeconds": 9,
}


def step_command(kind: str) -> list[str]:
    return [sys.executable, "-m", "forewarn_guest.steps", kind]


def start_step(
    kind: str,
    options: Mapping[str, Any],
    *,
    inside: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    **more: Any,
) -> subprocess.Popen[str]:
    """A step as the agent starts it. `inside` is a command that runs it in another place."""
    told = {"event": EVENT, "step": options, "vm": "web-0", "part": "prepare", "leader": True}
    process = subprocess.Popen(
        [*inside, *step_command(kind)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": SOURCES, **(environment or {})},
        cwd="/",
        start_new_session=True,
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps({**told, "seconds_left": 20.0, **more}))
    process.stdin.close()  # a step reads to the end of what it is told
    process.stdin = None
    return process


def end_of(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """The code, standard output and standard error of a step."""
    with process:
        out, problems = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, problems


def run_step(kind: str, options: Mapping[str, Any], **more: Any) -> tuple[int, str, str]:
    return end_of(start_step(kind, options, **more))


@contextlib.contextmanager
def running(command: Sequence[str], **more: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A program for the time of a test: told to end, and ended if it does not."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, **more)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE_S / 3)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
