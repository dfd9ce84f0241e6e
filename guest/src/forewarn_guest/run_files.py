"""The file of one run of a step: what an agent finds that was not there when the run ended.

Four lines at most, each added in one write. A line counts only with its newline.

    begun 9d0c...                     the boot id, by the agent, before there is a process
    running 4711 (sh) S 1 4711 ...    /proc/PID/stat, by the process, before the step itself
    stopped                           by the agent, before it asks the step to end
    ended 0                           the exit status, by the process

The first line takes the room on the disk, so that the others can be written when it is full. The
second writer decides: an agent that finds `begun` alone adds `abandoned`, and a process that finds
itself abandoned does not run its step. So a run that is not begun never begins later. The same
holds for `stopped`; a process that finds it later, before its step begins, ends without it.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Union

FILE_MAX_B = 8192  # a line of /proc/PID/stat has some 300 bytes
BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")
PROC = Path("/proc")

_ENDED = re.compile(rb"^ended (\d{1,3})\n", re.MULTILINE)
_DEAD = ("Z", "X")
_GROUP, _SESSION, _START = 2, 3, 19  # fields of stat, counted from the one after the name


@dataclass(frozen=True)
class ProcessIdentity:
    """A process that cannot be mistaken for a later one with the same pid."""

    pid: int
    start_ticks: int
    boot_id: str


@dataclass(frozen=True)
class Alive:
    """It runs, or something that it has started does and its end was not recorded."""

    identity: ProcessIdentity


@dataclass(frozen=True)
class ExitStatus:
    """It has ended with this exit status; 128 and the number of a signal for a signal."""

    code: int


@dataclass(frozen=True)
class NotBegun:
    """It was never run and never will be."""


@dataclass(frozen=True)
class Unknown:
    """No record says how it ended, or whether it did anything."""

    why: str


Found = Union[Alive, ExitStatus, NotBegun, Unknown]


def boot_id() -> str:
    """What is different after every boot; empty where the system has no such thing."""
    try:
        return BOOT_ID_FILE.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def write_begun(path: Path) -> None:
    """Make the file of a run anew. OSError when there is no room for it."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    _add(path, f"begun {boot_id()}\n", os.O_CREAT | os.O_EXCL)


def write_ended(path: Path, code: int) -> None:
    """Note the end of a run whose process was killed before it could."""
    _add(path, f"ended {code}\n")


def write_stopped(path: Path) -> None:
    """Note that a run is asked to end. Its process does not begin the step after this."""
    _add(path, "stopped\n")


def reserved(path: Path) -> bool:
    """True for the file of a run of this boot that no process has begun or abandoned."""
    here = boot_id()
    return bool(here) and _read(path) == f"begun {here}\n".encode("ascii")


def look(path: Path, known: ProcessIdentity | None = None) -> Found:
    """What has become of a run. `known` helps where its file could not be written.

    Another process is never taken for this run: pid, start time and boot must all be the same.
    This call abandons, for good, a run that no process has begun.
    """
    text = _read(path)
    ended = _ended(text)
    if ended is not None:
        return ended
    here = boot_id()
    if not here:
        return Unknown("this system does not tell one boot from another")
    begun = f"begun {here}\n".encode("ascii")
    if text == begun and known is not None and _is_there(known, here):
        return Alive(known)  # it is about to say so itself
    if text == begun:
        with contextlib.suppress(OSError):  # then it is not abandoned, which the file says below
            _add(path, "abandoned\n")
        text = _read(path)
    if text.startswith((begun + b"abandoned\n", begun + b"stopped\n")):
        return NotBegun()
    who = _identity(text) or known
    if who is None:
        return Unknown("whether it was begun was not recorded")
    return _look_for(who, path, here)


def _look_for(who: ProcessIdentity, path: Path, here: str) -> Found:
    if who.boot_id != here:
        return Unknown("the VM was booted while it ran")
    if _is_there(who, here):
        return Alive(who)
    ended = _ended(_read(path))  # it may have ended since the file was read
    if ended is not None:
        return ended
    return Alive(who) if _has_left_something(who) else Unknown("its end was not recorded")


def _is_there(who: ProcessIdentity, here: str) -> bool:
    return who.boot_id == here and start_ticks(who.pid) == who.start_ticks


def start_ticks(pid: int) -> int | None:
    """When a process was started, in clock ticks since the boot; None if there is none alive."""
    found = _stat_of(pid)
    return None if found is None or found[0] in _DEAD else int(found[_START])


def identity_of(child: int) -> ProcessIdentity:
    """Who a child is; one that has ended is there until it is reaped, so it can be asked."""
    found = _stat_of(child)
    return ProcessIdentity(child, 0 if found is None else int(found[_START]), boot_id())


def age_s(who: ProcessIdentity) -> float:
    """How long ago a process of this boot was started."""
    ticks_in_a_second = os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - who.start_ticks / ticks_in_a_second


def group_alive(pid: int) -> bool:
    """True if a process of this group is alive; a zombie that no parent reaps is not."""
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it has members, which run as another user
        return True
    return _any_alive(_GROUP, pid)


def _ended(text: bytes) -> ExitStatus | None:
    found = _ENDED.search(text)
    return None if found is None else ExitStatus(int(found.group(1)))


def _has_left_something(who: ProcessIdentity) -> bool:
    """True if the process is gone and processes of its session are not.

    The kernel gives its pid to no other process as long as there is such a process. So a pid that
    is in use again proves that no such process is left.
    """
    return start_ticks(who.pid) is None and _any_alive(_SESSION, who.pid)


def _any_alive(field: int, number: int) -> bool:
    """True if a process is alive that has this number in this field of its stat."""
    pids = (int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit())
    found = (_stat_of(pid) for pid in pids)
    return any(
        one is not None and one[0] not in _DEAD and int(one[field]) == number for one in found
    )


def _stat_of(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the third on (proc(5)); None if there is no process."""
    try:
        text = (PROC / str(pid) / "stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def _identity(text: bytes) -> ProcessIdentity | None:
    """Who said that it runs, from the lines of the file."""
    lines = text.decode("ascii", "replace").split("\n")
    if len(lines) < 3 or not lines[0].startswith("begun ") or not lines[1].startswith("running "):
        return None
    before, _, after = lines[1].rpartition(")")
    try:
        return ProcessIdentity(
            int(before.split()[1]), int(after.split()[_START]), lines[0].split()[1]
        )
    except (IndexError, ValueError):
        return None


def _read(path: Path) -> bytes:
    """What the file holds; nothing if it is not there or cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(FILE_MAX_B)
    except OSError:
        return b""


def _add(path: Path, line: str, create: int = 0) -> None:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    file = os.open(path, flags | create, 0o600)
    try:
        os.write(file, line.encode("ascii"))
    finally:
        os.close(file)
