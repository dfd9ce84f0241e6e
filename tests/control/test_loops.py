"""What runs by itself: the ticker, and saving what guests did in passing. Neither loop may end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from forewarn.control.loops import (
    TickerLoop,
)
from forewarn.control.metrics import ControlMetrics
from forewarn.control.writer import WriterThread
from forewarn.core.model import EventType, Phase
from forewarn.ports import Change, StoreFailed, Unstorable
from support import ordered
from support.core_fleet import WEB, Cloud, scope
from support.waiting import until
from support.watched_store import WatchedStore, disk_full


class Service:
    """A cloud whose writer runs on its thread, with the loops under test."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        writer = cloud.parts.writer(self._committed)
        self.writer = WriterThread(writer, publish=self._published, on_fatal=self._fatal)
        self.control = cloud.parts.control(self.writer)
        self.measures = ControlMetrics(version=lambda: "test")
        self.ticker = TickerLoop(self.control, self.measures)

    def _committed(self, changes: Sequence[Change]) -> None:
        self.writer.committed(changes)

    def _published(self, changes: Sequence[Change]) -> None:
        self.cloud.commits.extend(changes)
        self.cloud.published.publish(changes)

    def _fatal(self, reason: str) -> None:
        raise AssertionError(reason)

    def heartbeats(self) -> int:
        return sum(1 for change in self.cloud.commits if change.heartbeat_ms is not None)


@asynccontextmanager
async def running(cloud: Cloud) -> AsyncIterator[Service]:
    service = Service(cloud)
    service.writer.start()
    try:
        yield service
    finally:
        await service.writer.stop()


@pytest.fixture
def store() -> WatchedStore:
    return WatchedStore()


@pytest.fixture
def cloud(store: WatchedStore) -> Cloud:
    cloud = Cloud(scope("web", WEB), store=store)
    cloud.commits.clear()
    return cloud


def test_a_tick_starts_what_is_due(cloud: Cloud) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.approve(event)

    async def main() -> None:
        async with running(cloud) as service:
            await service.ticker.tick()

    asyncio.run(main())
    assert cloud.event(event).phase is Phase.STARTED


def test_a_heartbeat_row_is_written_every_five_seconds(cloud: Cloud) -> None:
    async def main() -> list[int]:
        counts = []
        async with running(cloud) as service:
            for passed_ms in (0, 1_000, 3_999, 1):
                cloud.clock.pass_ms(passed_ms)
                await service.ticker.tick()
                counts.append(service.heartbeats())
        return counts

    assert asyncio.run(main()) == [1, 1, 1, 2]


def test_a_ring_makes_the_ticker_look_again(cloud: Cloud) -> None:
    async def main() -> Phase:
        async with running(cloud) as service:
            loop = asyncio.ensure_future(service.ticker.run())
            await until(lambda: service.heartbeats() > 0)
            order = ordered.order_vm("web_0", EventType.REBOOT, by="owner")
            event = await service.control.submit(order)
            await service.control.submit(ordered.approve_event(event.event_id, by="owner"))
            service.ticker.ring()
            await until(lambda: cloud.event(event).phase is Phase.STARTED)
            loop.cancel()
            await asyncio.gather(loop, return_exceptions=True)
            return cloud.event(event).phase

    assert asyncio.run(main()) is Phase.STARTED


@pytest.mark.parametrize("failure", [disk_full(), Unstorable("a bug of ours")])
def test_a_tick_that_fails_does_not_end_the_ticker(
    cloud: Cloud, store: WatchedStore, failure: Exception
) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.approve(event)
    store.fails["commit"] = failure

    async def main() -> bytes:
        async with running(cloud) as service:
            loop = asyncio.ensure_future(service.ticker.run())
            await until(lambda: "commit" not in store.fails)
            service.ticker.ring()
            await until(lambda: cloud.event(event).phase is Phase.STARTED)
            assert not loop.done()
            loop.cancel()
            await asyncio.gather(loop, return_exceptions=True)
            return service.measures.exposition()

    counted = b"forewarn_ticker_errors_total 1.0" in asyncio.run(main())
    assert counted is not isinstance(failure, StoreFailed)
