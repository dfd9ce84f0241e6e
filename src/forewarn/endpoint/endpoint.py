"""What all connections of the endpoint share: the service, the clock, the limits, the sweep.

Nothing of HTTP lives here. `host.listeners` opens sockets and gives each connection to
`Endpoint.connection`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from forewarn.core.errors import Unavailable
from forewarn.endpoint.answers import Dates, Throttling
from forewarn.endpoint.fair_turns import FairTurns, Taker
from forewarn.endpoint.limits import CACHED_HEADS, CONNECTS_PER_S, Bucket, Limits, Timeouts
from forewarn.endpoint.protocol import Connection, Identify
from forewarn.endpoint.registry import Guest, GuestConnection, Page
from forewarn.endpoint.routes import Ask, Request, RequestRules
from forewarn.endpoint.service import Counters, Service
from forewarn.endpoint.stages import patience_s
from forewarn.logs import Log
from forewarn.wire.instance import ResourceLocation

_log = Log(__name__)

# How long `close` lets approvals that are under way reach their answer.
CLOSE_GRACE_S = 2.0


class Endpoint:
    """The guest-facing endpoint. Made once; every method belongs to the event loop's thread."""

    def __init__(
        self,
        service: Service,
        *,
        now_ms: Callable[[], int],
        place: ResourceLocation,
        rules: RequestRules | None = None,
        limits: Limits | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        self.service = service
        self.dates = Dates(now_ms)
        self.place = place
        self.rules = rules or RequestRules()
        self.limits = limits or Limits()
        self.timeouts = timeouts or Timeouts()
        self.patience_s = patience_s(self.timeouts)
        self.counters = Counters()
        self.connections: set[Connection] = set()
        self.strangers: set[GuestConnection] = set()
        self.connects_of_strangers = Bucket(CONNECTS_PER_S)
        self.turns = FairTurns(self._turn_broke)
        self.throttling = Throttling()
        self.heads: dict[bytes, Request] = {}
        self._work: set[asyncio.Task[None]] = set()
        self._sweeping: asyncio.TimerHandle | None = None

    def connection(self, identify: Identify) -> Connection:
        """A protocol for one accepted connection; `identify` says whose it is."""
        return Connection(self, identify)

    def opened(self, connection: Connection) -> None:
        """A connection is there; from now on the sweep minds it."""
        self.connections.add(connection)
        self.counters.connections += 1
        if self._sweeping is None:
            self._sweep_later()

    def closed(self, connection: Connection) -> None:
        """A connection has gone."""
        self.connections.discard(connection)
        self.strangers.discard(connection)
        self.counters.connections -= 1

    def remember(self, key: bytes, request: Request) -> None:
        """Keep the parsed form of a poll: the same bytes mean the same request from any guest."""
        if request.ask is not Ask.POLL:
            return  # only polls repeat; everything else would push them out
        if len(self.heads) >= CACHED_HEADS:
            del self.heads[next(iter(self.heads))]
        self.heads[key] = request

    def work(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run it to its end, whatever becomes of the connection that began it."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        return task

    async def enable(self, guest: Guest) -> None:
        """Have the guest's scope enabled; many guests that ask at once cause one commit.

        When the service cannot do it now, the page stays as it is and the next poll asks again.
        """
        page = guest.page
        if page.enabling is None:
            page.enabling = self.work(self._enable(page, guest.name))
        await asyncio.shield(page.enabling)

    async def _enable(self, page: Page, vm: str) -> None:
        try:
            async with asyncio.timeout(self.timeouts.approval_s):
                await self.service.enable(page.name, vm)
            page.enabled = True
        except (Unavailable, TimeoutError):
            self.counters.refusals["enable-unavailable"] += 1
        except Exception:  # noqa: BLE001 - the top of this piece of work: a guest must not wait for ever
            self.failed("enabling a scope failed", scope=page.name)
        finally:
            page.enabling = None

    def _turn_broke(self, taker: Taker) -> None:
        self.failed("a turn of a connection failed")
        if isinstance(taker, Connection):
            taker.abort()

    def failed(self, what: str, **context: str) -> None:
        """Log and count an error of ours, from inside its `except`."""
        self.counters.failures += 1
        _log.exception(what, **context)

    async def close(self) -> None:
        """End every connection. Approvals under way get a short time to be answered."""
        if self._work:
            await asyncio.wait(tuple(self._work), timeout=CLOSE_GRACE_S)
        for task in tuple(self._work):
            task.cancel()
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        for connection in tuple(self.connections):
            connection.cut()
        await asyncio.sleep(0)  # one turn of the loop sends what was written
        for connection in tuple(self.connections):
            connection.abort()
        await asyncio.sleep(0)

    def _sweep_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweeping = loop.call_later(self.timeouts.sweep_s, self._sweep)

    def _sweep(self) -> None:
        """End what has taken too long. One pass over everything is cheaper than many timers."""
        now_s = asyncio.get_running_loop().time()
        for connection in tuple(self.connections):
            connection.check(now_s)
        if self.connections:
            self._sweep_later()
        else:
            self._sweeping = None
