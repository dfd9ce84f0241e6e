"""The process of one built-in step: 0 is done, 1 failed with one line that says why, 2 misused."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
from types import FrameType
from typing import Callable, NoReturn

from forewarn_guest.errors import StepError
from forewarn_guest.steps.children import end_children
from forewarn_guest.steps.kinds import KINDS
from forewarn_guest.steps.step_context import (
    INPUT_MAX,
    Deadline,
    Misused,
    StepContext,
    one_line,
    read_occasion,
)

DONE, FAILED, MISUSED = 0, 1, 2
LINE_MAX = 1000  # characters of the one line
LATE_S = 0.2  # a step that does not end by itself is ended so long after its time


def _say(line: str) -> None:
    os.write(2, (one_line(line, LINE_MAX) + "\n").encode("utf-8", "replace"))


def _end_when_time_is_up(deadline: Deadline) -> None:
    """End the process soon after the deadline, whatever it hangs in.

    Each wait of a step has a time of its own; but looking up a name has none, and an answer may
    trickle in byte by byte. A thread ends those too, where a signal would have to wait for them.
    """

    def end() -> None:
        _say(deadline.time_is_up())
        end_children()
        os._exit(FAILED)

    timer = threading.Timer(deadline.seconds + LATE_S, end)
    timer.daemon = True
    timer.start()


def _terminated(_number: int, _frame: FrameType | None) -> NoReturn:
    """Told to end: what was started ends too."""
    _say("The step was told to end before it was done.")
    end_children()
    os._exit(FAILED)


def main(arguments: list[str]) -> int:
    """Run the step that the arguments name, with what standard input tells."""
    if len(arguments) != 1 or arguments[0] not in KINDS:
        _say(f"usage: python -m forewarn_guest.steps {'|'.join(KINDS)} < JSON")
        return MISUSED
    kind = KINDS[arguments[0]]
    name = os.environ.get("FOREWARN_STEP", "")
    try:
        occasion = read_occasion(kind, sys.stdin.buffer.read(INPUT_MAX + 1), name)
    except Misused as error:
        _say(f"{kind.name}: {error}")
        return MISUSED
    signal.signal(signal.SIGTERM, _terminated)
    _end_when_time_is_up(occasion.deadline)
    run: Callable[[StepContext], str] = importlib.import_module(
        f"forewarn_guest.steps.{kind.module}"
    ).run
    try:
        said = run(occasion)
    except StepError as error:
        _say(f"{kind.name}: {error}")
        return FAILED
    finally:
        end_children()
    os.write(1, f"{kind.name}: {one_line(said, LINE_MAX)}\n".encode("utf-8", "replace"))
    return DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
