"""A function run in a child process that is killed at one of its steps on the file system.

What Python itself opens, renames, makes and removes are the steps; each is tried in turn. What
SQLite does in between is its own affair.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator

STEPS = frozenset({"open", "os.rename", "os.remove", "os.mkdir", "os.chown"})
STEPS_MAX = 200


def killed_at_each_step(do: Callable[[], object]) -> Iterator[int]:
    """Run `do` in a child that is killed at its first step, then its second, until it ends.

    Yields the number of the step after each kill. What was there before is for the caller to put
    back.
    """
    for step in range(1, STEPS_MAX):
        child = os.fork()
        if child == 0:
            _do_and_die(do, step)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0, f"it failed before step {step}"
            return
        assert os.WTERMSIG(status) == signal.SIGKILL
        yield step
    raise AssertionError(f"it took more than {STEPS_MAX} steps")


def _do_and_die(do: Callable[[], object], step: int) -> None:
    taken = 0

    def count(event: str, _: object) -> None:
        nonlocal taken
        if event in STEPS:
            taken += 1
            if taken == step:
                os.kill(os.getpid(), signal.SIGKILL)

    try:
        sys.addaudithook(count)
        do()
    except BaseException as error:  # noqa: BLE001 - of a child: whatever it is, it ends here
        os.write(2, f"{error!r}\n".encode())
        os._exit(1)
    os._exit(0)
