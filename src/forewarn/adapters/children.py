"""Work for a process of its own: a module of ours is given bytes and answers in frames.

What takes long in Python takes the event loop's turns on a thread as well, and leaves memory
behind that Python keeps. A child takes neither. Frames are few kilobytes each, so that taking them
over keeps nobody waiting.
"""

from __future__ import annotations

import asyncio
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import IO, TypeVar

from forewarn.core.errors import Unavailable

T = TypeVar("T")

CHILD_NICENESS = 5  # those who are waited for go first
_LENGTH = struct.Struct(">I")
_END = _LENGTH.pack(0)


async def ask(
    module: str, question: bytes, text: str, take: Callable[[Iterable[bytes]], T], *, what: str
) -> T:
    """Have `module` answer a question about a text; `take` makes of its frames what is returned.

    `take` runs on a thread. Raises Unavailable, which says `what` the child was to do, if it cannot
    be started or dies.
    """
    try:
        child = await asyncio.to_thread(_start, module)
    except OSError as error:
        raise Unavailable(f"No process can be started that {what}: {error}") from error
    try:
        return await asyncio.to_thread(_converse, child, question, text, take, what)
    finally:
        child.kill()  # nobody waits for it any more, if it is not gone
        await asyncio.shield(asyncio.to_thread(_bury, child))


def answer(reply: Callable[[bytes, str], Iterable[bytes]]) -> None:
    """In the child: answer the one question that it is asked."""
    os.nice(CHILD_NICENESS)
    question = _frame(sys.stdin.buffer)
    text = sys.stdin.buffer.read().decode()
    for frame in reply(question, text):
        sys.stdout.buffer.write(_LENGTH.pack(len(frame)) + frame)
    sys.stdout.buffer.write(_END)
    sys.stdout.buffer.flush()


def _start(module: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - our own module, by our own Python
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd="/",
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


def _converse(
    child: subprocess.Popen[bytes],
    question: bytes,
    text: str,
    take: Callable[[Iterable[bytes]], T],
    what: str,
) -> T:
    if child.stdin is None or child.stdout is None:
        raise Unavailable(f"The process that {what} has no pipes.")
    try:
        child.stdin.write(_LENGTH.pack(len(question)) + question)
        child.stdin.write(text.encode())
        child.stdin.close()
        of = child.stdout
        return take(iter(lambda: _frame(of), b""))
    except (OSError, EOFError) as error:
        ended = child.wait()
        why = f"by signal {-ended}" if ended < 0 else f"with status {ended}"
        raise Unavailable(
            f"The process that {what} has ended ({why}). Perhaps memory is short."
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


def _bury(child: subprocess.Popen[bytes]) -> None:
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except OSError:
                continue  # it died with unread words in the pipe
    child.wait()
