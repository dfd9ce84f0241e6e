"""The time of the simulation: real time from its beginning, and a wall clock that can step."""

from __future__ import annotations

from support.clock import ManualClock

BEGIN_MS = 1_750_000_000_000
BOOTED_MS = 77_000  # the monotonic clock begins elsewhere than real time, as on a machine


class SimClock(ManualClock):
    """`ManualClock` that also says how much real time has passed: the judge goes by that."""

    def __init__(self) -> None:
        super().__init__(wall=BEGIN_MS, monotonic=BOOTED_MS)

    @property
    def real_ms(self) -> int:
        return self.monotonic - BOOTED_MS
