"""What the tests of built-in steps share: running a step as the agent does, and small servers."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import forewarn_guest

SOURCES = str(Path(forewarn_guest.__file__).parent.parent)
PATIENCE_S = 100.0  # ends a hang; steps that nothing ends go on for longer

EVENT: dict[str, Any] = {
    "EventId": "0F1E2D3C-4B5A-6978-8796-A5B4C3D2E1F0",
    "EventStatus": "Scheduled",
    "EventType": "Reboot",
    "ResourceType": "VirtualMachine",
    "Resources": ["web_0", "web_1"],
    "NotBefore": "Tue, 03 Mar 2026 10:15:00 GMT",
    "Description": "Host is being updated.",
    "EventSource": "Platform",
    "DurationInSeconds": 9,
}
# What could end a line, a header, a field or a command in one of the languages that steps speak.
HOSTILE = 'x\r\nBcc: evil@example.org\r\n\r\n.\r\n\nPRIORITY=0\n;\u2028\x00 $(reboot) `reboot` "'


def told(options: dict[str, Any], **more: Any) -> bytes:
    """The JSON object on a step's standard input."""
    whole = {"event": EVENT, "step": options, "vm": "web_0", "part": "prepare", "first_named": True}
    return json.dumps({**whole, "seconds_left": 20.0, **more}).encode()


def environment(**more: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return {**kept, "PYTHONPATH": SOURCES, **more}


def start(kind: str, **more: str) -> subprocess.Popen[bytes]:
    """A step's process, in a session of its own as under the agent."""
    return subprocess.Popen(
        [sys.executable, "-m", "forewarn_guest.steps", kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(**more),
        cwd="/",
        start_new_session=True,
    )


def run(kind: str, given: bytes, **more: str) -> tuple[int, str, str]:
    """The code, standard output and standard error of a step."""
    with start(kind, **more) as process:
        out, problems = process.communicate(given, timeout=PATIENCE_S)
        return process.returncode, out.decode(), problems.decode()


def is_one_line(said: str) -> bool:
    """True for exactly one line that says something."""
    return said.endswith("\n") and said.count("\n") == 1 and len(said) > 10


@contextlib.contextmanager
def serving(talk: Callable[[socket.socket], None], path: str = "") -> Iterator[tuple[str, int]]:
    """A server that gives each connection, one after the other, to `talk`; yields where it is."""
    family = socket.AF_UNIX if path else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.bind(path or ("127.0.0.1", 0))
    listener.listen(8)
    ending = threading.Event()

    def serve() -> None:
        while True:
            channel, _peer = listener.accept()
            with channel:
                if ending.is_set():
                    return
                channel.settimeout(PATIENCE_S)
                with contextlib.suppress(OSError):  # the step has gone; the test says if it may
                    talk(channel)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        place = listener.getsockname()
        yield (path, 0) if path else place
    finally:
        ending.set()
        with socket.socket(family, socket.SOCK_STREAM) as last:
            last.connect(listener.getsockname())
        thread.join(PATIENCE_S)
        listener.close()
        assert not thread.is_alive()
