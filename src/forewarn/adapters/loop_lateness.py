"""How late the event loop is: a timer of 10 ms, and by how much each of its ticks came too late.

Whatever keeps the loop from turning makes every guest, host and operator wait as long as it does.
Measured against the machine's own clock, because a loop that stands still is a poor witness.
A hundred wake-ups a second cost up to a hundredth of a core, so the timer has 10 ms only while a
scraper reads the numbers. Otherwise it has one second, which sees long delays only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from forewarn.adapters.system import monotonic_s
from forewarn.metrics import Family, Times

TICK_S = 0.01
UNWATCHED_TICK_S = 1.0
WATCHED_S = 120.0  # after each look at the numbers
# A tick that comes late has kept later ones from coming at all: they count too, up to a minute.
TICKS_MISSED_MAX = 6_000
LATENESS_BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class LoopLateness:
    """Run it beside everything else of a process, and ask it for its numbers at a scrape."""

    def __init__(self, now_s: Callable[[], float] = monotonic_s) -> None:
        self._now_s = now_s
        self._times = Times(
            "forewarn_loop_lateness_seconds",
            "By how much a timer of 10 ms was late: how long anything has to wait for its turn.",
            limits_s=LATENESS_BUCKETS_S,
        )
        self._due_s = 0.0
        self._watched_until_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Tick until canceled."""
        loop = asyncio.get_running_loop()
        self._next(loop, self._now_s())
        try:
            await loop.create_future()
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def _next(self, loop: asyncio.AbstractEventLoop, now_s: float) -> None:
        after_s = TICK_S if now_s < self._watched_until_s else UNWATCHED_TICK_S
        self._due_s = now_s + after_s
        self._timer = loop.call_later(after_s, self._tick, loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        now_s = self._now_s()
        self.ticked(now_s - self._due_s)
        self._next(loop, now_s)

    def ticked(self, late_s: float) -> None:
        """Count a tick that was so late, and those that were due since and did not come."""
        self._times.observe(max(0.0, late_s))
        for _ in range(min(int(late_s / TICK_S), TICKS_MISSED_MAX)):
            late_s -= TICK_S
            self._times.observe(late_s)

    def collect(self) -> Iterator[Family]:
        self._watched_until_s = self._now_s() + WATCHED_S
        yield from self._times.collect()
