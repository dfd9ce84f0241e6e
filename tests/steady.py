"""Repeats tests, with a busy loop on each core if wanted: finds what depends on the machine's load.

`make test-steady TIMES=30 BUSY=1`, or `python tests/steady.py --times 2 --busy -- -n 4` for all.
Every round runs to its end; the exit status is 1 if one failed.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

# It ends by itself if this program is killed.
BUSY_LOOP = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"


@contextmanager
def busy_cores() -> Iterator[None]:
    """A busy loop for each core, for the length of the block."""
    loops: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(os.cpu_count() or 1):
            loops.append(subprocess.Popen([sys.executable, "-c", BUSY_LOOP]))  # noqa: PERF401 - each
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def rounds(times: int, arguments: list[str]) -> list[int]:
    """Run pytest so often; the numbers of the rounds that failed."""
    failed = []
    for number in range(1, times + 1):
        began_s = time.monotonic()
        if _run([sys.executable, "-m", "pytest", *arguments]) != 0:
            failed.append(number)
        took_s = time.monotonic() - began_s
        sys.stdout.write(f"--- round {number} of {times}: {took_s:.0f} s; failed: {failed}\n")
        sys.stdout.flush()
    return failed


def _run(command: list[str]) -> int:
    """How the program ended. If this one is ended first, the tests clear up after themselves."""
    with subprocess.Popen(command) as ran:
        try:
            return ran.wait()
        except BaseException:
            ran.send_signal(signal.SIGINT)
            raise  # once it has ended: that is waited for at the end of the block


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--busy", action="store_true", help="run a busy loop on each core")
    parser.add_argument("pytest", nargs="*", help="arguments for pytest, after --")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started is ended first
    # A shell lets what it starts in the background ignore this one, and pytest would too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if not given.busy:
        return int(bool(rounds(given.times, given.pytest)))
    with busy_cores():
        return int(bool(rounds(given.times, given.pytest)))


if __name__ == "__main__":
    raise SystemExit(main())
