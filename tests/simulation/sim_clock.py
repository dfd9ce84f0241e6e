"""Virtual time for the simulation: one course of real time, and a wall clock that can step."""

from __future__ import annotations

BEGIN_MS = 1_750_000_000_000


class SimClock:
    """`ports.Clock` that moves only when told to."""

    def __init__(self) -> None:
        self.real_ms = 0
        self.wall_offset_ms = BEGIN_MS

    def now_ms(self) -> int:
        return self.real_ms + self.wall_offset_ms

    def monotonic_ms(self) -> int:
        return self.real_ms + 77_000

    def advance(self, ms: int) -> None:
        self.real_ms += ms

    def step_wall(self, ms: int) -> None:
        self.wall_offset_ms += ms


class SimIds:
    """`ports.Ids` that counts, so that a seed gives the same names every time."""

    def __init__(self) -> None:
        self._count = 0

    def number(self) -> int:
        """One that was never given before."""
        self._count += 1
        return self._count

    def event_id(self) -> str:
        self._count += 1
        return f"00000000-0000-4000-8000-{self._count:012X}"
