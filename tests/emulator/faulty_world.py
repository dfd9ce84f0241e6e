"""The world of the endpoint's tests, with the endpoint that misbehaves when told to."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from forewarn.core.model import Scope
from forewarn.emulator.faults.book import Fault, FaultBook
from forewarn.emulator.faults.endpoint import FaultyEndpoint
from forewarn.emulator.faults.orders import read_order
from forewarn.endpoint.limits import Limits, Timeouts
from forewarn.endpoint.routes import RequestRules
from forewarn.host.listeners import Listeners
from forewarn.wire.instance import ResourceLocation
from support.endpoint_world import DB, WEB, EndpointWorld
from support.shown_scopes import as_shown

# Small timers make the sweep look often; nothing of a fault may fall to them.
TIMEOUTS = Timeouts(sweep_s=0.01)


class FaultyWorld(EndpointWorld):
    """A world whose faults a test adds and clears."""

    def __init__(self, *, seed: int, limits: Limits, timeouts: Timeouts) -> None:
        super().__init__(requests_per_s=0, rules=RequestRules(), limits=limits, timeouts=timeouts)
        self.book = FaultBook(lambda: self.now_ms, seed, vms=self.documents.vms)
        self.endpoint = FaultyEndpoint(
            self.service,
            faults=self.book,
            now_ms=lambda: self.now_ms,
            place=ResourceLocation("here", "group", "subscription"),
            limits=limits,
            timeouts=timeouts,
        )
        self.listeners = Listeners(self.endpoint, self.identity)

    def show(self, scope: Scope) -> None:
        self.call(lambda: self._show(scope))

    def _show(self, scope: Scope) -> None:
        number = self.book.renumbered(scope)
        self.documents.show(as_shown(replace(scope, incarnation=number)))

    def fault(self, kind: str, **words: Any) -> Fault:
        return self.call(lambda: self.book.add(read_order({"kind": kind, **words})))

    def clear(self) -> None:
        self.call(self.book.clear)

    def statuses(self, count: int, request: bytes, source: str = "127.0.0.1") -> list[int]:
        """The statuses of so many equal requests on one connection."""
        client = self.client(source)
        return [client.ask(request).status for _ in range(count)]

    def pass_s(self, seconds: float) -> None:
        """Turn the emulator's clock."""
        self.now_ms += round(seconds * 1_000)

    def everything(self, request: bytes, source: str = "127.0.0.1") -> tuple[bytes, str]:
        """All the bytes of the answer to a request, and how the connection ended."""
        client = self.client(source)
        client.send(request)
        found = b""
        while True:
            try:
                data = client.socket.recv(65_536)
            except ConnectionResetError:
                return found, "reset"
            if not data:
                return found, "closed"
            found += data


@contextlib.contextmanager
def faulty(
    *scopes: Scope,
    seed: int = 1,
    limits: Limits | None = None,
    timeouts: Timeouts = TIMEOUTS,
) -> Iterator[FaultyWorld]:
    """A world with these scopes (web and db if none), without a fault to begin with."""
    world = FaultyWorld(seed=seed, limits=limits or Limits(), timeouts=timeouts)
    world.start(*(scopes or (WEB, DB)))
    try:
        yield world
    finally:
        world.stop()
