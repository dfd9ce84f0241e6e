"""What the pacer of a running clock does by itself, on a loop whose time is not the machine's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, cast

import pytest

from forewarn.control.hosts.liveness import Observed
from forewarn.control.published_fleet import PublishedFleet
from forewarn.core.model import SECOND_MS, Policy
from forewarn.emulator.clock import SPEED_MAX, EmulatedClock
from forewarn.emulator.pacer import LOOK_EVERY_S, Instant, Pacer
from forewarn.ports import Snapshot
from support.clock import START_MS
from support.endpoint_memory import StillLoop


class LoopClock:
    """The machine's clock: what the loop has waited, and what `late_ms` says was worked."""

    late_ms = 0

    def now_ms(self) -> int:
        return self.late_ms + round(asyncio.get_running_loop().time() * SECOND_MS)

    monotonic_ms = now_ms


class Fleet:
    """All that a pacer looks after: one thing that ends, and a host that sees it when it looks.

    `ends_ms` is when it ends, in the emulator's time from the start; `slow_ms` is how long the
    first tick works, in the machine's time.
    """

    def __init__(self, *, ends_ms: int, slow_ms: int) -> None:
        self.seen = asyncio.Event()
        self._real = LoopClock()
        self._clock = EmulatedClock(start_ms=START_MS, speed=SPEED_MAX, real=self._real)
        self._ends_ms = START_MS + ends_ms
        self._slow_ms = slow_ms

    async def nothing(self) -> None:
        """What is of no account here."""

    async def send(self, *, polls: bool) -> None:
        """What guests did is of no account here."""

    @property
    def fleet(self) -> PublishedFleet:
        """Nothing is open."""
        empty = Snapshot(scopes=(), hosts=(), operations=(), heartbeat_ms=None, inventory=None)
        return PublishedFleet(empty, Observed(self._clock), policy=Policy(), clock=self._clock)

    def under_way(self) -> list[tuple[int, Any]]:
        return []

    def instants(self) -> Iterator[Instant]:
        if not self.seen.is_set():
            yield Instant(self._ends_ms, "the restart of vm0 ends")

    async def work_once(self) -> None:
        if self._clock.now_ms() >= self._ends_ms:
            self.seen.set()

    async def tick(self) -> None:
        """It comes after the host has looked."""
        self._real.late_ms += self._slow_ms
        self._slow_ms = 0

    def pacer(self) -> Pacer:
        here = cast("Any", self)
        return Pacer(
            clock=self._clock,
            control=here,
            ticker=here,
            guests=here,
            hosts=here,
            hypervisor=here,
            arrange=self.nothing,
            more_instants=self.instants,
        )


@pytest.mark.parametrize(
    ("ends_ms", "slow_ms", "waited_s"),
    [
        (5 * SECOND_MS, 100, 0.0),  # while the first tick works: it is looked for at once
        (SPEED_MAX * SECOND_MS // 2, 0, LOOK_EVERY_S / 2),  # later: until then is waited, no longer
    ],
)
def test_what_falls_due_while_others_are_settled_is_not_missed(
    ends_ms: int, slow_ms: int, waited_s: float
) -> None:
    """Else it is seen when the pacer looks again by itself: on the fastest clock an hour late."""

    async def story() -> float:
        loop = asyncio.get_running_loop()
        fleet = Fleet(ends_ms=ends_ms, slow_ms=slow_ms)
        began_s = loop.time()
        running = asyncio.ensure_future(fleet.pacer().run())
        await fleet.seen.wait()
        took_s = loop.time() - began_s
        running.cancel()
        await asyncio.wait([running])
        return took_s

    with asyncio.Runner(loop_factory=StillLoop) as runner:
        assert runner.run(story()) == pytest.approx(waited_s, abs=0.01)
