"""HTTP as guests and an operator speak it: requests as bytes, answers read whole.

Plain blocking sockets, each bound to the source address of its VM; nothing is retried.
"""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from bench.processes import Failed

ANSWER_LIMIT_S = 30.0
RECEIVE_BYTES = 256 * 1_024
ORDERS_AT_ONCE = 64
CONFIRMED_LIMIT_S = 120.0
CONFIRMED_LOOK_S = 0.2
API_VERSION = "2020-07-01"
TARGET = f"/metadata/scheduledevents?api-version={API_VERSION}"

# Linux: choose the port when connecting, so that many sockets may share one.
_IP_BIND_ADDRESS_NO_PORT = 24


def poll_request(*headers: str) -> bytes:
    """A GET of the document."""
    lines = [f"GET {TARGET} HTTP/1.1", "Host: 127.0.0.1", "Metadata: true", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def approve_request(event_id: str) -> bytes:
    """A POST that approves one event."""
    body = json.dumps({"StartRequests": [{"EventId": event_id}]}, separators=(",", ":"))
    head = f"POST {TARGET} HTTP/1.1\r\nHost: 127.0.0.1\r\nMetadata: true\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()


@dataclass(frozen=True, slots=True)
class Answer:
    """One whole answer."""

    status: int
    head: bytes
    body: bytes

    def header(self, name: str) -> str:
        for line in self.head.decode("latin-1").split("\r\n")[1:]:
            key, _, value = line.partition(":")
            if key.lower() == name.lower():
                return value.strip()
        return ""


class Line:
    """One connection to a server, from one source address."""

    __slots__ = ("_left", "sock")

    def __init__(self, port: int, source: str = "127.0.0.1") -> None:
        self._left = b""
        self.sock = socket.socket()
        self.sock.settimeout(ANSWER_LIMIT_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if source != "127.0.0.1":
            self.sock.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)
            self.sock.bind((source, 0))
        self.sock.connect(("127.0.0.1", port))

    def send(self, request: bytes) -> None:
        self.sock.sendall(request)

    def receive(self) -> Answer:
        """The next answer, whole. Raises Failed if the server closes instead."""
        while True:
            answer = self._whole()
            if answer is not None:
                return answer
            data = self.sock.recv(RECEIVE_BYTES)
            if not data:
                raise Failed("the server closed a connection instead of answering")
            self._left += data

    def take(self) -> None:
        """Take what is here without waiting for the rest."""
        self._left += self.sock.recv(RECEIVE_BYTES)

    def _whole(self) -> Answer | None:
        head, separator, rest = self._left.partition(b"\r\n\r\n")
        if not separator:
            return None
        answer = Answer(int(head[9:12]), head, b"")
        length = int(answer.header("content-length") or 0)
        if len(rest) < length:
            return None
        self._left = rest[length:]
        return Answer(answer.status, head, rest[:length])

    def ask(self, request: bytes) -> Answer:
        self.send(request)
        return self.receive()

    def close(self) -> None:
        self.sock.close()


@contextmanager
def lines(port: int, sources: Iterable[str]) -> Iterator[list[Line]]:
    """One open connection from each of the source addresses; one may be given several times."""
    opened: list[Line] = []
    try:
        opened.extend(Line(port, source) for source in sources)
        yield opened
    finally:
        for line in opened:
            line.close()


def in_turns(opened: Sequence[Line], requests: Sequence[bytes]) -> Iterator[Answer]:
    """Ask every request once, one per connection at a time; answers in the order of requests."""
    for first in range(0, len(requests), len(opened)):
        some = requests[first : first + len(opened)]
        for line, request in zip(opened, some, strict=False):
            line.send(request)
        for line, _ in zip(opened, some, strict=False):
            yield line.receive()


class Ordered(Protocol):
    """What an operator can give orders to."""

    @property
    def operator_port(self) -> int: ...

    @property
    def token(self) -> str: ...


class Operator:
    """The operator of a running service."""

    def __init__(self, service: Ordered) -> None:
        self._service = service

    def request(self, method: str, path: str, words: object = None) -> bytes:
        """An operator's request as bytes."""
        body = b"" if words is None else json.dumps(words).encode()
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"Authorization: Bearer {self._service.token}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    def line(self) -> Line:
        return Line(self._service.operator_port)

    def ask(self, method: str, path: str, words: object = None) -> Answer:
        """One request on a connection of its own."""
        line = self.line()
        try:
            return line.ask(self.request(method, path, words))
        finally:
            line.close()

    def restart_all(self, vms: Sequence[str]) -> list[str]:
        """Order a restart of each of the VMs; the ids of the events, in the same order."""
        requests = [self.request("POST", f"/v1/vms/{vm}/restart") for vm in vms]
        sources = ["127.0.0.1"] * ORDERS_AT_ONCE
        with lines(self._service.operator_port, sources) as opened:
            answers = list(in_turns(opened, requests))
        refused = [answer for answer in answers if answer.status >= 300]
        if refused:
            raise Failed(f"an order was refused: {refused[0].body!r}")
        return [json.loads(answer.body)["event_id"] for answer in answers]

    def metrics(self) -> str:
        """All of /metrics."""
        return self.ask("GET", "/metrics").body.decode()

    def metric(self, name: str) -> float:
        """One number of /metrics, added up over its labels."""
        found = self._numbers(f"{name} ", f"{name}{{")
        if not found:
            raise Failed(f"/metrics has no {name}")
        return sum(found)

    def _numbers(self, *beginnings: str) -> list[float]:
        return [
            float(line.rpartition(" ")[2])
            for line in self.metrics().splitlines()
            if line.startswith(beginnings)
        ]

    def wait_until_confirmed(self, events: int) -> None:
        """Wait until hosts have said of so many events, since the service runs, that they show."""
        until_s = time.perf_counter() + CONFIRMED_LIMIT_S
        while sum(self._numbers('forewarn_facts_total{kind="confirmed"}')) < events:
            if time.perf_counter() > until_s:
                raise Failed(f"not all of {events} events were confirmed in {CONFIRMED_LIMIT_S} s")
            time.sleep(CONFIRMED_LOOK_S)


def enable(port: int, sources: Sequence[str]) -> None:
    """Poll once from each source address, so that the scopes of all of them are told of events."""
    with lines(port, sources) as opened:
        for answer in in_turns(opened, [poll_request()] * len(sources)):
            if answer.status != 200:
                raise Failed(f"a first poll was answered {answer.status}")


@dataclass(slots=True)
class Caller:
    """Somebody who asks one thing after the other, each on its connection."""

    todo: list[tuple[Line, bytes]]
    done_s: list[float] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)


def call_all(callers: Sequence[Caller], limit_s: float) -> float:
    """Let all callers work at once, each with one request under way. Seconds until the last."""
    epoll = select.epoll()
    waiting: dict[int, tuple[Caller, Line, float]] = {}

    def next_request(caller: Caller) -> None:
        line, request = caller.todo.pop()
        waiting[line.sock.fileno()] = (caller, line, time.perf_counter())
        epoll.register(line.sock.fileno(), select.EPOLLIN)
        line.send(request)

    began_s = time.perf_counter()
    try:
        for caller in callers:
            next_request(caller)
        while waiting:
            if time.perf_counter() - began_s > limit_s:
                raise Failed(f"{len(waiting)} callers were without an answer after {limit_s} s")
            for number, _ in epoll.poll(1.0):
                caller, line, sent_s = waiting.pop(number)
                epoll.unregister(number)
                caller.statuses.append(line.receive().status)
                caller.done_s.append(time.perf_counter() - sent_s)
                if caller.todo:
                    next_request(caller)
    finally:
        epoll.close()
    return time.perf_counter() - began_s
