"""The agent, with a death of its own: `DIES=WHEN:N` kills it at the N-th append to its journal.

WHEN is `before` (nothing is written), `torn` (half of the line is), or `after` (it is on the
disk, and nothing has followed from it yet). Pauses that a busy machine has are not counted, so
that N means the same every time. `early:N` kills it when its N-th step is a process that has not
come to do anything; that one goes on when the file GATE is there, and GATE.pid says which it is.
Nothing of the product is changed: only how this process writes, and how slow a shell begins.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from forewarn_guest.cli import main

WAIT = 'gate=$1; shift; until [ -e "$gate" ]; do sleep 0.02; done; exec "$@"'


class _Death:
    """Stands in the place of os.write, os.fsync and os.posix_spawn."""

    def __init__(self, when: str, number: int) -> None:
        self._when = when
        self._left = number
        self._due = False
        self._write = os.write
        self._fsync = os.fsync
        self._spawn = os.posix_spawn

    def write(self, fd: int, data: Any) -> int:
        if self._when != "early" and _is_journal(fd) and b'"fact":"pause"' not in bytes(data):
            self._left -= 1
            self._due = self._left == 0
        if self._due and self._when == "torn":
            self._write(fd, bytes(data)[: len(data) // 2])
        if self._due and self._when != "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return self._write(fd, data)

    def fsync(self, fd: Any) -> None:
        self._fsync(fd)
        if self._due and _is_journal(fd):
            os.kill(os.getpid(), signal.SIGKILL)

    def spawn(self, path: str, argv: list[str], *more: Any, **options: Any) -> int:
        if self._when != "early" or "forewarn-step" not in argv:
            return self._spawn(path, argv, *more, **options)
        self._left -= 1
        slow = [path, "-c", WAIT, "sh", os.environ["GATE"]] if self._left == 0 else []
        pid = self._spawn(path, [*slow, *argv], *more, **options)
        if self._left == 0:
            Path(f"{os.environ['GATE']}.pid").write_text(str(pid), encoding="ascii")
            os.kill(os.getpid(), signal.SIGKILL)
        return pid


def _is_journal(file: int) -> bool:
    return os.readlink(f"/proc/self/fd/{file}").endswith("/journal")  # noqa: PTH115 - of a number


if __name__ == "__main__":
    when, _, number = os.environ.pop("DIES").partition(":")
    death = _Death(when, int(number))
    os.write, os.fsync = death.write, death.fsync
    os.posix_spawn = death.spawn  # type: ignore[assignment]
    sys.exit(main())
