"""How late the event loop is: a timer of 10 ms, and by how much each of its ticks came too late.

Whatever keeps the loop from turning makes every guest, host and operator wait as long as it does.
Measured against the machine's own clock, because a loop that stands still is a poor witness.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from prometheus_client import Histogram

from forewarn.adapters.system import monotonic_s

TICK_S = 0.01
# A tick that comes late has kept later ones from coming at all: they count too, up to a minute.
TICKS_MISSED_MAX = 6_000
LATENESS_BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class LoopLateness:
    """Run it beside everything else of a process; `histogram` is for its /metrics."""

    def __init__(self, now_s: Callable[[], float] = monotonic_s) -> None:
        self._now_s = now_s
        self.histogram = Histogram(
            "forewarn_loop_lateness_seconds",
            "By how much a timer of 10 ms was late: how long anything has to wait for its turn.",
            buckets=LATENESS_BUCKETS_S,
            registry=None,
        )

    async def run(self) -> None:
        """Tick until canceled."""
        due_s = self._now_s()
        while True:
            due_s += TICK_S
            await asyncio.sleep(max(0.0, due_s - self._now_s()))
            due_s = self.ticked(due_s, self._now_s())

    def ticked(self, due_s: float, now_s: float) -> float:
        """Count the tick that was due then, and those that were due since; when the last was."""
        late_s = max(0.0, now_s - due_s)
        self.histogram.observe(late_s)
        for _ in range(min(int(late_s / TICK_S), TICKS_MISSED_MAX)):
            late_s -= TICK_S
            self.histogram.observe(late_s)
        return now_s - late_s
