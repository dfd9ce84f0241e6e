"""The endpoint without sockets and without time that passes: one turn of its loop after the other.

`StillLoop` has a clock that moves only when nothing else is to be done, and then at once to the
next timer. `Wire` is a transport with a kernel's manners: what a client sends waits there while
nobody reads, in pieces as large as a read.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import selectors
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from forewarn.core.model import Scope
from forewarn.endpoint.endpoint import Endpoint
from forewarn.endpoint.limits import Limits, Timeouts
from forewarn.endpoint.protocol import Connection
from forewarn.host.identity import Identity
from forewarn.host.served_documents import Documents
from forewarn.wire.instance import ResourceLocation
from support.endpoint_world import DB, NOW_MS, WEB, FakeService
from support.shown_scopes import as_shown

READ_BYTES = 64 * 1_024
TURNS_MAX = 100_000
_STATUS = re.compile(rb"HTTP/1\.1 (\d\d\d) ")


class _StillSelector(selectors.DefaultSelector):
    """Never waits: the time that it should have waited has passed when it returns."""

    passed_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        found = super().select(0)
        if not found:
            assert timeout is not None, "nothing is left to wait for"
            self.passed_s += timeout
        return found


class StillLoop(asyncio.SelectorEventLoop):
    """See the module."""

    def __init__(self) -> None:
        self._selected = _StillSelector()
        super().__init__(self._selected)

    def time(self) -> float:
        return 1_000.0 + self._selected.passed_s


@dataclass(frozen=True)
class Said:
    """One answer as it was written, and when, in seconds of the loop."""

    status: int
    raw: bytes
    at_s: float

    def header(self, name: str) -> str | None:
        found = re.search(rb"\r\n%b: ([^\r]*)" % name.encode(), self.raw)
        return None if found is None else found.group(1).decode()


class Wire:
    """One connection as the endpoint sees it, and what its client does."""

    def __init__(self, loop: StillLoop, connection: Connection, source: str) -> None:
        self._loop = loop
        self._connection: Connection | None = connection
        self._source = source
        self._waiting: deque[bytes | None] = deque()  # None is the end of the stream
        self._reading = True
        self._delivering = False
        self.said: list[Said] = []
        self.closed = False
        self.clogged_after: int | None = None  # answers that the client takes before it stops

    # What the client does.

    def send(self, data: bytes) -> None:
        for start in range(0, len(data), READ_BYTES):
            self._waiting.append(data[start : start + READ_BYTES])
        self._deliver_soon()

    def end(self) -> None:
        self._waiting.append(None)
        self._deliver_soon()

    def take_again(self) -> None:
        """The client reads again."""
        self.clogged_after = None
        if self._connection is not None:
            self._connection.resume_writing()

    def vanish(self) -> None:
        """The connection breaks."""
        self._lose()

    @property
    def statuses(self) -> list[int]:
        return [answer.status for answer in self.said]

    @property
    def unread(self) -> int:
        """Pieces that the endpoint has not read."""
        return len(self._waiting)

    # What the endpoint asks of a transport.

    def write(self, data: bytes) -> None:
        starts = [found.start() for found in _STATUS.finditer(data)]
        assert len(starts) == 1, "one answer is one write"
        found = _STATUS.match(data)
        assert found is not None
        self.said.append(Said(int(found.group(1)), data, self._loop.time()))
        if self.clogged_after is not None and len(self.said) == self.clogged_after:
            assert self._connection is not None
            self._connection.pause_writing()

    def pause_reading(self) -> None:
        assert self._reading
        self._reading = False

    def resume_reading(self) -> None:
        assert not self._reading
        self._reading = True
        self._deliver_soon()

    def is_closing(self) -> bool:
        return self.closed

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """The client sees the end."""

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._loop.call_soon(self._lose)

    abort = close

    def get_extra_info(self, name: str) -> Any:
        return (self._source, 1) if name == "peername" else None

    # Between the two.

    def _deliver_soon(self) -> None:
        if self._waiting and self._reading and not self._delivering and not self.closed:
            self._delivering = True
            self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        self._delivering = False
        if not self._reading or self.closed or self._connection is None:
            return
        data = self._waiting.popleft()
        if data is not None:
            self._connection.data_received(data)
        elif not self._connection.eof_received():
            self.close()
        self._deliver_soon()

    def _lose(self) -> None:
        connection, self._connection = self._connection, None
        self.closed = True
        if connection is not None:
            connection.connection_lost(None)


class MemoryWorld:
    """An endpoint on a StillLoop."""

    def __init__(
        self, service: FakeService, *, requests_per_s: float, limits: Limits, timeouts: Timeouts
    ) -> None:
        self.loop = StillLoop()
        self.errors: list[dict[str, Any]] = []
        self.loop.set_exception_handler(lambda _, context: self.errors.append(context))
        self.service = service
        self.identity = Identity()
        self.documents = Documents(self.identity, requests_per_s=requests_per_s)
        self.endpoint = Endpoint(
            self.service,
            now_ms=lambda: NOW_MS,
            place=ResourceLocation("here", "group", "subscription"),
            limits=limits,
            timeouts=timeouts,
        )
        self.failures_expected = 0
        self._wires: list[Wire] = []

    def turn(self, act: Callable[..., object] | None = None, *args: object) -> None:
        """One turn of the loop; `act` is done in it."""
        if act is not None:
            self.loop.call_soon(act, *args)
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()

    def turns_until(self, condition: Callable[[], bool]) -> int:
        """Turn until it holds; how many turns that took."""
        for count in range(TURNS_MAX):
            if condition():
                return count
            self.turn()
        raise AssertionError("it never came")

    def pass_s(self, seconds: float) -> None:
        """Let so much time pass."""
        self.loop.call_later(seconds, self.loop.stop)
        self.loop.run_forever()

    @property
    def now_s(self) -> float:
        return self.loop.time()

    def connect(self, source: str = "127.0.0.1") -> Wire:
        connection = self.endpoint.connection(self.identity.by_peer)
        wire = Wire(self.loop, connection, source)
        self._wires.append(wire)
        self.turn(connection.connection_made, wire)
        return wire

    def send(self, wire: Wire, data: bytes, *, end: bool = False) -> None:
        """Let a client send this; `end`: it then closes its side."""
        self.loop.call_soon(wire.send, data)
        self.turn(wire.end if end else None)

    def close(self) -> None:
        self.loop.run_until_complete(self.endpoint.close())
        self.turn()
        self.loop.close()
        assert not self.errors
        assert self.endpoint.counters.failures == self.failures_expected
        assert self.endpoint.counters.connections == 0
        assert self.endpoint.counters.parked == 0
        assert len(self.endpoint.turns) == 0


@contextlib.contextmanager
def in_memory(
    *scopes: Scope,
    service: FakeService | None = None,
    requests_per_s: float = 0,
    limits: Limits | None = None,
    timeouts: Timeouts | None = None,
) -> Iterator[MemoryWorld]:
    """A world with these scopes (web and db if none). The rate limit is off unless asked for."""
    world = MemoryWorld(
        service or FakeService(),
        requests_per_s=requests_per_s,
        limits=limits or Limits(),
        timeouts=timeouts or Timeouts(),
    )
    for scope in scopes or (WEB, DB):
        world.turn(world.documents.show, as_shown(scope))
    try:
        yield world
    finally:
        world.close()
