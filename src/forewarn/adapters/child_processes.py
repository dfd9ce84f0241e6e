"""Work for a process of its own: a module of ours is given bytes and answers in frames.

Long work in Python takes turns from the event loop even on a thread, and leaves memory behind that
Python keeps. Work in a child does neither. A frame has few kilobytes, so the caller takes it over
without keeping other tasks waiting.
"""

from __future__ import annotations

import asyncio
import os
import resource
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import IO, TypeVar

from forewarn.core.errors import Unavailable

T = TypeVar("T")

CHILD_NICENESS = 5  # those who are waited for go first
CHILD_BYTES_MAX = 2_048 * 1_024 * 1_024  # of memory; stands in the sum above MemoryMax= of the unit
ANSWER_S_MAX = 900.0  # the largest inventory takes half a minute of a core, and has to share it
_LENGTH = struct.Struct(">I")
_END = _LENGTH.pack(0)


async def ask(
    module: str,
    question: bytes,
    text: str,
    take: Callable[[Iterable[bytes]], T],
    *,
    what: str,
    within_s: float = ANSWER_S_MAX,
) -> T:
    """Have `module` answer a question about a text; `take` makes of its frames what is returned.

    `take` runs on a thread. Raises Unavailable, which says `what` the child was to do, if it cannot
    be started, dies, or does not answer in time. A caller that stops waiting ends the child.
    """
    child = _Child(module, what)
    asking = asyncio.ensure_future(asyncio.to_thread(child.ask, question, text, take))
    try:
        async with asyncio.timeout(within_s):
            return await asyncio.shield(asking)
    except TimeoutError:
        raise Unavailable(
            f"The process that {what} has not answered within {within_s:.0f} s, and was ended."
        ) from None
    finally:
        child.end()
        await asyncio.wait([asking])
        if not asking.cancelled():
            asking.exception()  # the caller that waited was told


def answer(reply: Callable[[bytes, str], Iterable[bytes]]) -> None:
    """In the child: answer the one question that it is asked."""
    _be_modest()
    question = _frame(sys.stdin.buffer)
    text = sys.stdin.buffer.read().decode()
    for frame in reply(question, text):
        sys.stdout.buffer.write(_LENGTH.pack(len(frame)) + frame)
    sys.stdout.buffer.write(_END)
    sys.stdout.buffer.flush()


def _be_modest() -> None:
    """Let others go first, and take no more memory than was said. Some units allow neither."""
    with suppress(OSError):
        os.nice(CHILD_NICENESS)
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    limit = CHILD_BYTES_MAX if most == resource.RLIM_INFINITY else min(most, CHILD_BYTES_MAX)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (limit, most))


class _Child:
    """One child, asked on a thread and ended from another."""

    def __init__(self, module: str, what: str) -> None:
        self._module = module
        self._what = what
        self._guard = threading.Lock()
        self._ended = False
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, question: bytes, text: str, take: Callable[[Iterable[bytes]], T]) -> T:
        process = self._start()
        try:
            return self._converse(process, question, text, take)
        finally:
            _bury(process)

    def end(self) -> None:
        """Kill the child if it runs. If it has not started yet, it never starts."""
        with self._guard:
            self._ended = True
            if self._process is not None:
                self._process.kill()

    def _start(self) -> subprocess.Popen[bytes]:
        with self._guard:
            if self._ended:
                raise Unavailable(f"The caller no longer waits for the process that {self._what}.")
            try:
                self._process = subprocess.Popen(  # noqa: S603 - our own module, by our own Python
                    [sys.executable, "-m", self._module],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    cwd="/",
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                )
            except OSError as error:
                raise Unavailable(
                    f"No process can be started that {self._what}: {error}"
                ) from error
            return self._process

    def _converse(
        self,
        process: subprocess.Popen[bytes],
        question: bytes,
        text: str,
        take: Callable[[Iterable[bytes]], T],
    ) -> T:
        if process.stdin is None or process.stdout is None:
            raise Unavailable(f"The process that {self._what} has no pipes.")
        try:
            process.stdin.write(_LENGTH.pack(len(question)) + question)
            process.stdin.write(text.encode())
            process.stdin.close()
            of = process.stdout
            return take(iter(lambda: _frame(of), b""))
        except (OSError, EOFError) as error:
            ended = process.wait()
            why = f"by signal {-ended}" if ended < 0 else f"with status {ended}"
            raise Unavailable(
                f"The process that {self._what} has ended ({why}). Perhaps memory is short."
            ) from error


def _frame(of: IO[bytes]) -> bytes:
    """The next frame, empty at the end. Raises EOFError if the other side ended before that."""
    head = of.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    (length,) = _LENGTH.unpack(head)
    frame = of.read(length)
    if len(frame) < length:
        raise EOFError
    return frame


def _bury(process: subprocess.Popen[bytes]) -> None:
    process.kill()  # it has answered, or the caller no longer waits
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except OSError:
                continue  # it died with unread words in the pipe
    process.wait()
