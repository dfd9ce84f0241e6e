"""Notices when the wall clock is stepped, by comparing it with time that cannot be."""

from __future__ import annotations

from dataclasses import dataclass

from forewarn.ports import Clock

STEP_NOTICED_FROM_MS = 2_000


@dataclass(frozen=True, slots=True)
class Reading:
    """The time, and by how much the wall clock was stepped since the reading before."""

    now_ms: int
    monotonic_ms: int
    stepped_ms: int


class Timekeeper:
    """Reads the clock for the writer, once per batch of commands.

    The offset between wall and monotonic time is compared with the one last accounted for, so
    many small steps are noticed as surely as a large one.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset_ms = clock.now_ms() - clock.monotonic_ms()

    def read(self) -> Reading:
        """The time now. A step is told again until it was `accounted` for."""
        now_ms, monotonic_ms = self._clock.now_ms(), self._clock.monotonic_ms()
        moved_ms = now_ms - monotonic_ms - self._offset_ms
        stepped_ms = moved_ms if abs(moved_ms) > STEP_NOTICED_FROM_MS else 0
        return Reading(now_ms, monotonic_ms, stepped_ms)

    def accounted(self, reading: Reading) -> None:
        """What the reading told of a step is durable now."""
        self._offset_ms += reading.stepped_ms
