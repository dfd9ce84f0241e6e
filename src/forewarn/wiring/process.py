"""What belongs to the process as a whole: why it cannot start, its signals, limits, sudden end."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from forewarn.adapters.sqlite.data_folder import DatabaseRefused
from forewarn.core.errors import Invalid, Refusal, Unavailable
from forewarn.host.listeners import ListenFailed
from forewarn.logs import Log
from forewarn.ports import StoreFailed

log = Log(__name__)

DESCRIPTORS_MAX = 262_144  # a listener and some connections for each guest of a large host
EXIT_CANNOT_START = 1  # yet: the next start may work
EXIT_STORE_FAILED = 70
EXIT_CONFIG = 78  # of sysexits.h: a person has to mend something first, and no restart helps
# Objects that come before garbage is looked for among them, and how many such looks come before one
# at all that has come since the start. Python's own numbers are for small programs: a change that
# two hundred hosts are shown makes ten thousand values that stay, and no garbage.
LOOK_AFTER_OBJECTS, LOOKS_BETWEEN = 10_000, (20, 20)
GROWN_MIN = 100_000  # objects; to look at fewer takes some ten milliseconds

# What stops a start, each with a sentence for the person who started it.
CannotStart = (DatabaseRefused, ListenFailed, Refusal, StoreFailed, Unavailable)


class NotJoined(Invalid):
    """A host daemon was started before its machine joined; once it has, the daemon starts."""


def exit_status(why: BaseException) -> int:
    """With what a process ends that cannot start: units start it again unless EXIT_CONFIG."""
    if isinstance(why, DatabaseRefused):
        return EXIT_CANNOT_START if why.may_pass else EXIT_CONFIG
    lasting = isinstance(why, Refusal) and not isinstance(why, NotJoined)
    return EXIT_CONFIG if lasting else EXIT_CANNOT_START


@contextmanager
def stop_signals(told: Callable[[], None]) -> Iterator[None]:
    """Call `told` when the process is asked to end, from now to the end of the block."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, told)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


@contextmanager
def reload_signal(told: Callable[[], None] | None) -> Iterator[None]:
    """Call `told`, if there is something to tell, at SIGHUP, from now to the end of the block.

    Not for a process that a person started at a terminal: when that is closed, it ends.
    """
    if told is None or (sys.stdin is not None and sys.stdin.isatty()):
        yield
        return
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, told)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)


def raise_descriptor_limit() -> int:
    """Let the process open as many files as it is allowed to, up to DESCRIPTORS_MAX; how many.

    Shells give 1,024; each guest listener and each connection needs one.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft == resource.RLIM_INFINITY:
        return DESCRIPTORS_MAX
    if soft >= allowed:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    except (OSError, ValueError) as error:  # some systems allow less than they say
        log.warning("descriptor_limit_kept", limit=soft, why=str(error))
        return soft
    return allowed


def load_quietly() -> None:
    """Call it before everything is loaded: nothing of that is garbage, so none is looked for.

    `settle_memory` ends it, or `end_loading` where it comes to nothing.
    """
    gc.disable()


def end_loading() -> None:
    """Garbage is looked for as ever. Without effect if it is already."""
    gc.enable()


def settle_memory() -> None:
    """Call it once everything is loaded: what is here by now stays, and is not garbage.

    A collection of everything stops the event loop, for longer the more there is. From now on one
    looks only at what has come since, and seldom; what is no longer used is freed all the same,
    unless it holds itself.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(LOOK_AFTER_OBJECTS, *LOOKS_BETWEEN)
    end_loading()


@contextmanager
def without_collections() -> Iterator[None]:
    """Look for no garbage meanwhile, in a process that is not ours alone: nothing is frozen."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class Growing:
    """Enter it while much comes to be in memory that stays, as at a start. May be nested.

    No garbage is looked for meanwhile. If much has come, what is here by then counts as what stays.
    """

    def __init__(self) -> None:
        self._entered = 0

    def __enter__(self) -> None:
        self._entered += 1
        gc.disable()

    def __exit__(self, *_: object) -> None:
        self._entered -= 1
        if not self._entered:
            if gc.get_count()[0] >= GROWN_MIN:
                gc.freeze()
            gc.enable()


def die(reason: str) -> None:
    """After a failed fsync the content of the disk is unknown: end at once, answer nothing more."""
    try:
        sys.stderr.write(f"forewarn: stopped at once, nothing unkept was answered: {reason}\n")
        sys.stderr.flush()
    finally:  # also when standard error has no reader any more
        os._exit(EXIT_STORE_FAILED)
