"""Programs that a step runs: without a shell, within its time, and ended with it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from forewarn_guest.errors import StepError
from forewarn_guest.steps.step_context import Deadline, one_line

OUTPUT_MAX = 64 * 1024  # characters kept of what a program says
SAID_MAX = 400  # characters of it that are repeated in a line

_running: set[subprocess.Popen[str]] = set()
_lock = threading.RLock()  # the end of the process may come in a signal or from another thread


class ProgramFailed(Exception):  # noqa: N818 - says what is the case
    """A program ended with another code than 0. `said` is the last of what it said, in a line."""

    def __init__(self, code: int, said: str) -> None:
        super().__init__(said)
        self.code = code
        self.said = said


def run(argv: Sequence[str], deadline: Deadline, environment: Mapping[str, str]) -> str:
    """What the program wrote to standard output. Raises ProgramFailed, or StepError when late.

    Nothing that was started is left: at the deadline the program and what it started are killed.
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
        raise ProgramFailed(child.returncode, last_words(problems or out))
    return out[:OUTPUT_MAX]


def last_words(said: str) -> str:
    """The last lines of what a program said, as one."""
    lines = [line.strip() for line in said[-OUTPUT_MAX:].splitlines() if line.strip()]
    return one_line("; ".join(lines)[-SAID_MAX:]) or "it said nothing"


def end_children() -> None:
    """End every program that still runs, with what it has started, and wait until it has ended.

    One that has begun in this moment ends too: a signal can come before it is noted here, but this
    process has it for a child.
    """
    with _lock:
        left = [child for child in _running if child.poll() is None]
        _running.clear()
    own = os.getpid()
    for pid in {*(child.pid for child in left), *descendants(own)}:
        _send(pid, signal.SIGSTOP)  # so that it starts nothing while we look
    for pid in {*(child.pid for child in left), *descendants(own)}:
        _send(pid, signal.SIGKILL)
    for child in left:
        child.wait()


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended by itself
        os.kill(pid, number)


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, and those that they have.

    The group of the process says nothing of them: under the agent it is not ours alone.
    """
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            line = path.read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # it has ended, or is not ours
        parent = int(line.rpartition(")")[2].split()[1])  # a name may hold blanks and brackets
        children.setdefault(parent, []).append(int(path.parent.name))
    found = list(children.get(pid, ()))
    for each in found:  # grows while it is read
        found += children.get(each, ())
    return found
