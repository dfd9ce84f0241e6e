"""Clients in processes of their own: guests that ask by the clock, and readers of streams.

Each is a process so that none waits for another; the times that they note are of one clock. The
readers yield to the guests, whose waiting is what is measured.
"""

from __future__ import annotations

import heapq
import multiprocessing
import os
import re
import select
import socket
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from bench.guests import ANSWER_LIMIT_S, RECEIVE_BYTES, Line, poll_request
from bench.processes import Failed

READERS_NICE = 10
ENDED_LIMIT_S = 60.0
READY_LIMIT_S = 120.0
_HEAD_END = b"\r\n\r\n"


def percentile(values: Sequence[float], share: float) -> float:
    """Of numbers in any order; raises Failed if there are none."""
    if not values:
        raise Failed("nothing was measured")
    return sorted(values)[int(share * (len(values) - 1))]


@contextmanager
def _beside(work: Callable[..., None], *given: object) -> Iterator[Connection]:
    """Run `work` in a process with a pipe to it, once it has said that it is ready."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=work, args=(theirs, *given), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(READY_LIMIT_S):
            raise Failed(f"{work.__name__} was not ready")
        _received(ours)
        yield ours
    finally:
        ours.close()
        process.join(ENDED_LIMIT_S)
        if process.is_alive():
            process.kill()
            process.join()


def _received(pipe: Connection) -> Any:
    try:
        found = pipe.recv()
    except EOFError:
        raise Failed("a client has broken; what it said is above") from None
    if isinstance(found, Exception):
        raise Failed(str(found))
    return found


# Guests.


@dataclass(frozen=True, slots=True)
class Asked:
    """What guests waited: when each question was due, and when its answer was here."""

    due_s: Sequence[float]
    done_s: Sequence[float]

    def waits_ms(self, periods: Sequence[tuple[float, float]]) -> list[float]:
        """Of the questions that were due in one of the periods."""
        return [
            (done - due) * 1_000
            for due, done in zip(self.due_s, self.done_s, strict=True)
            if any(begin <= due < end for begin, end in periods)
        ]


class Guests:
    """Guests that are asking. `asked` ends that."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def asked(self) -> Asked:
        self._pipe.send("end")
        due, done = _received(self._pipe)
        return Asked(due, done)


@contextmanager
def guests_asking(port: int, sources: Sequence[str], per_s: float) -> Iterator[Guests]:
    """A guest at each source address that asks so often, whether it was answered or not."""
    with _beside(_ask, port, list(sources), per_s) as pipe:
        yield Guests(pipe)


def _ask(pipe: Connection, port: int, sources: Sequence[str], per_s: float) -> None:
    lines = [Line(port, source) for source in sources]
    by_number = {line.sock.fileno(): line for line in lines}
    waiting: dict[int, list[float]] = {number: [] for number in by_number}
    poll = select.epoll()
    for number in [*by_number, pipe.fileno()]:
        poll.register(number, select.EPOLLIN)
    due, done = array("d"), array("d")
    request, began_s = poll_request(), time.perf_counter() + 0.1
    agenda = [(began_s + n / per_s / len(lines), number) for n, number in enumerate(by_number)]
    pipe.send("ready")
    while True:
        now_s = time.perf_counter()
        while agenda[0][0] <= now_s:
            due_s, number = agenda[0]
            heapq.heapreplace(agenda, (due_s + 1 / per_s, number))
            waiting[number].append(due_s)
            by_number[number].send(request)
        for number, _ in poll.poll(max(0.0, agenda[0][0] - time.perf_counter())):
            if number == pipe.fileno():
                pipe.send((due, done))
                return
            if by_number[number].receive().status != 200:
                pipe.send(Failed("a guest was not answered 200"))
                return
            due.append(waiting[number].pop(0))
            done.append(time.perf_counter())


# Readers of streams.


@dataclass(slots=True)
class Arrived:
    """What one reader was sent: when something came, and what the pattern found in it."""

    at_s: list[float] = field(default_factory=list)
    found: list[list[tuple[bytes, ...]]] = field(default_factory=list)
    bytes: int = 0


class Readers:
    """Readers that read. `arrived` ends that."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def arrived(self) -> list[Arrived]:
        self._pipe.send("end")
        found: list[Arrived] = _received(self._pipe)
        return found


@contextmanager
def readers_of(port: int, requests: Sequence[bytes], pattern: bytes) -> Iterator[Readers]:
    """A reader for each request, with all their streams open. What `pattern` finds is kept."""
    with _beside(_read, port, list(requests), pattern) as pipe:
        yield Readers(pipe)


class Stream:
    """One stream, of frames that end with an empty line."""

    def __init__(self, port: int, request: bytes) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), ANSWER_LIMIT_S)
        self.sock.sendall(request)
        self.arrived = Arrived()
        self._left = b""
        self.begun = False

    def take(self, pattern: re.Pattern[bytes]) -> bool:
        """Take what is here; False if the stream has ended."""
        data = self.sock.recv(RECEIVE_BYTES)
        at_s = time.perf_counter()
        self.arrived.bytes += len(data)
        self._left += data
        if not self.begun and _HEAD_END in self._left:
            head, _, self._left = self._left.partition(_HEAD_END)
            if not head.startswith(b"HTTP/1.1 200 ") or b"event-stream" not in head:
                raise Failed(f"a stream was answered {head[:200]!r}")
            self.begun = True
        # A frame may be in two chunks; what is before its end is looked at once.
        whole, end, rest = self._left.rpartition(b"\n\n")
        if end and self.begun:
            self._left = rest
            found = pattern.findall(whole + end)
            if found:
                self.arrived.at_s.append(at_s)
                self.arrived.found.append(found)
        return bool(data)


def _read(pipe: Connection, port: int, requests: Sequence[bytes], pattern: bytes) -> None:
    os.nice(READERS_NICE)
    compiled = re.compile(pattern)
    try:
        streams = [Stream(port, request) for request in requests]
        for stream in streams:
            while not stream.begun:
                stream.take(compiled)
        by_number = {stream.sock.fileno(): stream for stream in streams}
        poll = select.epoll()
        for number in [*by_number, pipe.fileno()]:
            poll.register(number, select.EPOLLIN)
        pipe.send("ready")
        while True:
            for number, _ in poll.poll():
                if number == pipe.fileno():
                    pipe.send([stream.arrived for stream in streams])
                    return
                if not by_number[number].take(compiled):
                    raise Failed("the service has ended a stream")
    except (Failed, OSError) as why:
        pipe.send(Failed(str(why)))
