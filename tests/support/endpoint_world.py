"""A real endpoint on loopback with a fake service behind it, and a client that sends raw bytes.

The endpoint runs on its own thread and loop; tests talk to it over sockets only, and use `call` to
change what it shows.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import uvloop

from forewarn.core.errors import UnknownEventIds
from forewarn.core.model import (
    ScheduledEvent,
    Scope,
    ScopeKind,
    Vm,
)
from forewarn.endpoint.endpoint import Endpoint
from forewarn.endpoint.limits import Limits, Timeouts
from forewarn.endpoint.routes import RequestRules
from forewarn.host.identity import Identity
from forewarn.host.listeners import Listeners
from forewarn.host.served_documents import Documents
from forewarn.wire.instance import ResourceLocation
from support import events
from support.clock import START_MS
from support.profiles import described
from support.shown_scopes import as_shown
from support.waiting import until

T = TypeVar("T")

NOW_MS = START_MS
EVENT_ID = "0F1E2D3C-4B5A-6978-8796-A5B4C3D2E1F0"
OTHER_ID = "F020BA2E-3BC0-4C40-A10B-86575A9EABD5"
URL = "/metadata/scheduledevents?api-version=2020-07-01"
PATIENCE_S = 60.0


def an_event(event_id: str = EVENT_ID, **changes: Any) -> ScheduledEvent:
    return events.an_event(event_id, **{"duration_s": 5, **changes})


def a_vm(name: str, address: str | None, **changes: Any) -> Vm:
    vm = Vm(name=name, vm_id=f"id-{name}", update_domain=0, host="h1")
    return described(vm, address=address, **changes)


WEB = Scope(
    name="web",
    kind=ScopeKind.AVAILABILITY_SET,
    incarnation=2,
    enabled=True,
    vms=(a_vm("web_0", "127.0.0.1"), a_vm("web_1", "127.0.0.2")),
    events=(an_event(),),
)
DB = Scope(
    name="db",
    kind=ScopeKind.STANDALONE,
    incarnation=7,
    enabled=True,
    vms=(a_vm("db_0", "127.0.0.3"),),
)


@dataclass
class FakeService:
    """Remembers what it was asked; `known` ids can be approved, others are unknown."""

    known: set[str] = field(default_factory=lambda: {EVENT_ID, OTHER_ID})
    fails_with: Exception | None = None
    held: asyncio.Event | None = None
    approved: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    enabled: list[tuple[str, str]] = field(default_factory=list)
    read: list[tuple[str, str, frozenset[str]]] = field(default_factory=list)
    back: list[str] = field(default_factory=list)

    async def approve(self, vm: str, event_ids: tuple[str, ...]) -> None:
        if self.held is not None:
            await self.held.wait()
        if self.fails_with is not None:
            raise self.fails_with
        if set(event_ids) - self.known:
            raise UnknownEventIds("Unknown EventId.", "Send ids of your own document.")
        self.approved.append((vm, event_ids))

    async def enable(self, scope: str, vm: str) -> None:
        self.enabled.append((scope, vm))
        if self.held is not None:
            await self.held.wait()
        if self.fails_with is not None:
            raise self.fails_with

    def first_read(self, vm: str, scope: str, event_ids: frozenset[str]) -> None:
        self.read.append((vm, scope, event_ids))

    def returned(self, vm: str) -> None:
        self.back.append(vm)


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes
    raw_head: bytes


class Closed(Exception):  # noqa: N818 - says what is the case
    """The server closed before a whole answer was there."""


class Client:
    """One TCP connection. Every read has a deadline."""

    def __init__(self, address: tuple[str, int], source: str) -> None:
        self.socket = socket.create_connection(
            address, timeout=PATIENCE_S, source_address=(source, 0)
        )
        self._buffer = b""

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def answer(self, *, to_head: bool = False) -> Answer:
        """The next whole answer; `to_head` if the request was HEAD and no body follows."""
        while b"\r\n\r\n" not in self._buffer:
            self._more()
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(": ")
            assert name.lower() not in headers, f"{name} is said twice"
            headers[name.lower()] = value
        status = int(lines[0].split(" ")[1])
        bodyless = to_head or status in (100, 304)
        length = 0 if bodyless else int(headers["content-length"])
        while len(self._buffer) < length:
            self._more()
        body, self._buffer = self._buffer[:length], self._buffer[length:]
        return Answer(status, headers, body, head)

    def ask(self, data: bytes) -> Answer:
        self.send(data)
        return self.answer()

    def flood(self, data: bytes) -> int:
        """Send it again and again until the server takes no more; return how many bytes went."""
        self.socket.settimeout(0)
        sent = 0
        try:
            while True:
                sent += self.socket.send(data)
        except (BlockingIOError, ConnectionError):
            return sent
        finally:
            self.socket.settimeout(PATIENCE_S)

    def is_closed(self) -> bool:
        """True once the server has closed and nothing more was sent; waits for it."""
        try:
            self._more()
        except Closed:
            return True
        return False

    def is_silent(self, for_s: float) -> bool:
        """True if nothing comes for this long."""
        self.socket.settimeout(for_s)
        try:
            self._more()
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(PATIENCE_S)
        return False

    def close(self) -> None:
        self.socket.close()

    def _more(self) -> None:
        try:
            data = self.socket.recv(65_536)
        except ConnectionError:
            data = b""
        if not data:
            raise Closed(self._buffer)
        self._buffer += data


class EndpointWorld:
    """The endpoint, running."""

    def __init__(
        self,
        *,
        requests_per_s: float,
        rules: RequestRules,
        limits: Limits,
        timeouts: Timeouts,
    ) -> None:
        self.service = FakeService()
        self.now_ms = NOW_MS
        self.errors: list[dict[str, Any]] = []
        self.failures_expected = 0
        self.identity = Identity()
        self.documents = Documents(self.identity, requests_per_s=requests_per_s)
        self.endpoint = Endpoint(
            self.service,
            now_ms=lambda: self.now_ms,
            place=ResourceLocation("here", "group", "subscription"),
            rules=rules,
            limits=limits,
            timeouts=timeouts,
        )
        self.listeners = Listeners(self.endpoint, self.identity)
        self.address = ("", 0)
        self._clients: list[Client] = []
        self._loop = uvloop.new_event_loop()
        self._loop.set_exception_handler(lambda _, context: self.errors.append(context))
        self._thread = threading.Thread(target=self._loop.run_forever)

    def start(self, *scopes: Scope) -> None:
        self._thread.start()
        for scope in scopes:
            self.show(scope)
        self.address = self.wait_for(self.listeners.open_shared("127.0.0.1:0"))

    def stop(self) -> None:
        for client in self._clients:
            client.close()
        self.wait_for(self.listeners.close())
        self.wait_for(self.endpoint.close())
        self.until(lambda: not self.endpoint.connections)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()
        assert not self.errors
        assert self.endpoint.counters.failures == self.failures_expected
        assert self.endpoint.counters.connections == 0
        assert self.endpoint.counters.parked == 0

    def wait_for(self, coroutine: Any, *, limit_s: float = PATIENCE_S) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(limit_s)

    def call(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Run it on the endpoint's thread and return what it returns."""

        async def run() -> T:
            return function(*args, **kwargs)

        result: T = self.wait_for(run())
        return result

    def until(self, condition: Callable[[], bool]) -> None:
        """Return once the condition holds on the endpoint's thread."""
        self.wait_for(until(condition, limit_s=PATIENCE_S), limit_s=2 * PATIENCE_S)

    def show(self, scope: Scope) -> None:
        self.call(self.documents.show, as_shown(scope))

    def hold(self) -> None:
        """Let the service wait until `release`."""
        self.service.held = self.call(asyncio.Event)

    def release(self) -> None:
        held = self.service.held
        assert held is not None
        self.service.held = None
        self.call(held.set)

    def client(self, source: str = "127.0.0.1") -> Client:
        client = Client(self.address, source)
        self._clients.append(client)
        return client

    def get(self, url: str = URL, *headers: str, source: str = "127.0.0.1") -> Answer:
        """One GET with `Metadata: true` on a new connection."""
        client = self.client(source)
        try:
            return client.ask(get(url, "Metadata: true", *headers))
        finally:
            client.close()


@contextlib.contextmanager
def running(
    *scopes: Scope,
    requests_per_s: float = 0,
    rules: RequestRules | None = None,
    limits: Limits | None = None,
    timeouts: Timeouts | None = None,
) -> Iterator[EndpointWorld]:
    """A world with these scopes (web and db if none). The rate limit is off unless asked for."""
    world = EndpointWorld(
        requests_per_s=requests_per_s,
        rules=rules or RequestRules(),
        limits=limits or Limits(),
        timeouts=timeouts or Timeouts(sweep_s=0.01),
    )
    world.start(*(scopes or (WEB, DB)))
    try:
        yield world
    finally:
        world.stop()


def get(url: str = URL, *headers: str, method: str = "GET", version: str = "1.1") -> bytes:
    lines = [f"{method} {url} HTTP/{version}", "Host: 169.254.169.254", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def post(body: bytes, url: str = URL, *headers: str) -> bytes:
    length = f"Content-Length: {len(body)}"
    return get(url, "Metadata: true", length, *headers, method="POST") + body


POLL = get(URL, "Metadata: true")
APPROVAL = b'{"StartRequests":[{"EventId":"%b"}]}' % EVENT_ID.encode()
