"""The agent, with a death of its own: `DIES=WHEN:N` kills it at the N-th append to its journal.

WHEN is `before` (nothing is written), `torn` (half of the line is), or `after` (it is on the
disk, and nothing has followed from it yet). Pauses that a busy machine has are not counted, so
that N means the same every time. Nothing of the product is changed: only how this process writes.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from forewarn_guest.cli import main


class _Death:
    """Stands in the place of os.write and os.fsync."""

    def __init__(self, when: str, number: int) -> None:
        self._when = when
        self._left = number
        self._due = False
        self._write = os.write
        self._fsync = os.fsync

    def write(self, fd: int, data: Any) -> int:
        if _is_journal(fd) and b'"fact":"pause"' not in bytes(data):
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


def _is_journal(file: int) -> bool:
    return os.readlink(f"/proc/self/fd/{file}").endswith("/journal")  # noqa: PTH115 - of a number


if __name__ == "__main__":
    when, _, number = os.environ.pop("DIES").partition(":")
    death = _Death(when, int(number))
    os.write, os.fsync = death.write, death.fsync
    sys.exit(main())
