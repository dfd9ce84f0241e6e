"""Programs that a step runs: without a shell, within its time, and ended with it."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence

from forewarn_guest.errors import StepError
from forewarn_guest.steps.occasion import Deadline, one_line

OUTPUT_MAX = 64 * 1024  # characters kept of what a program says
SAID_MAX = 400  # characters of it that are repeated in a line

_running: set[subprocess.Popen[str]] = set()
_lock = threading.RLock()  # the end of the process may come in a signal or from another thread
_group = {"ours": False, "ending": False}


class Ended(Exception):  # noqa: N818 - says what is the case
    """A program ended with another code than 0. `said` is the last of what it said, in a line."""

    def __init__(self, code: int, said: str) -> None:
        super().__init__(said)
        self.code = code
        self.said = said


def run(argv: Sequence[str], deadline: Deadline, environment: Mapping[str, str]) -> str:
    """What the program wrote to standard output. Raises Ended, or StepError when time is up.

    Nothing that was started is left: at the deadline the program is killed, and where this
    process leads its group, as it does under the agent, the rest of the group is told to end.
    """
    try:
        child = subprocess.Popen(  # noqa: S603 - the step's own words and checked options, no shell
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={**os.environ, **environment},
        )
    except OSError as error:
        raise StepError(f"{argv[0]} cannot be run ({error.strerror}).") from error
    with _lock:
        _running.add(child)
    try:
        out, problems = child.communicate(timeout=deadline.left())
    except subprocess.TimeoutExpired:
        raise StepError(deadline.time_is_up()) from None
    finally:
        end_children()
    if child.returncode != 0:
        raise Ended(child.returncode, last_words(problems or out))
    return out[:OUTPUT_MAX]


def last_words(said: str) -> str:
    """The last lines of what a program said, as one."""
    lines = [line.strip() for line in said[-OUTPUT_MAX:].splitlines() if line.strip()]
    return one_line("; ".join(lines)[-SAID_MAX:]) or "it said nothing"


def lead_group() -> None:
    """Call once in a step's own process: if it leads its group, the group ends with it."""
    _group["ours"] = os.getpgrp() == os.getpid()


def is_ending() -> bool:
    """True once the group was told to end: the signal that follows is our own."""
    return _group["ending"]


def end_children() -> None:
    """End every program that still runs, and wait until it has ended."""
    with _lock:
        left = [child for child in _running if child.poll() is None]
        _running.clear()
    if left and _group["ours"]:  # what our programs started is in our group
        _group["ending"] = True
        os.killpg(0, signal.SIGTERM)
    for child in left:
        child.kill()
        child.wait()
