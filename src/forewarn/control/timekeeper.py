"""Notices time that was not what it seemed: a stepped wall clock, a process that stood still.

Steps show by comparing the wall clock with time that cannot step; a standstill shows by the pulse
of the event loop, which serves the guests: while it does not beat, nobody can read.
"""

from __future__ import annotations

from dataclasses import dataclass

from forewarn.ports import Clock

STEP_NOTICED_FROM_MS = 2_000
STALL_NOTICED_FROM_MS = 2_000
PULSE_EVERY_S = 0.25
READINGS_MAX = 10


@dataclass(frozen=True, slots=True)
class Reading:
    """The time, and what of the time since the reading before does not count.

    `stepped_ms` is by how much the wall clock was stepped, `stalled_ms` for how long the event
    loop has not served anybody.
    """

    now_ms: int
    monotonic_ms: int
    stepped_ms: int
    stalled_ms: int = 0


class Timekeeper:
    """Reads the clock for the writer, once per batch of commands.

    The offset between wall and monotonic time is compared with the one last accounted for, so
    many small steps are noticed as surely as a large one.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        now_ms, monotonic_ms = self._both_ms()
        self._offset_ms = now_ms - monotonic_ms
        self._served_ms: int | None = None  # monotonic; None while nobody beats the pulse
        self._stalled_ms = 0  # noticed by the pulse itself, not yet accounted for

    def pulse(self) -> None:
        """The event loop runs. Called from its thread, every PULSE_EVERY_S."""
        now_ms = self._clock.monotonic_ms()
        if self._served_ms is not None:
            gap_ms = now_ms - self._served_ms
            if gap_ms > STALL_NOTICED_FROM_MS:
                self._stalled_ms += gap_ms
        self._served_ms = now_ms

    def read(self) -> Reading:
        """The time now. A step or a standstill is told again until it was `accounted` for."""
        now_ms, monotonic_ms = self._both_ms()
        moved_ms = now_ms - monotonic_ms - self._offset_ms
        stepped_ms = moved_ms if abs(moved_ms) > STEP_NOTICED_FROM_MS else 0
        served_ms = monotonic_ms if self._served_ms is None else self._served_ms
        gap_ms = monotonic_ms - served_ms
        open_ms = gap_ms if gap_ms > STALL_NOTICED_FROM_MS else 0
        return Reading(now_ms, monotonic_ms, stepped_ms, self._stalled_ms + open_ms)

    def _both_ms(self) -> tuple[int, int]:
        """Wall and monotonic time of one instant.

        Read again if time has passed in between: a thread that lost its turn there, or a clock of
        the emulator that makes an hour of a second, is not a wall clock that was set.
        """
        for _ in range(READINGS_MAX):
            monotonic_ms = self._clock.monotonic_ms()
            now_ms = self._clock.now_ms()
            if self._clock.monotonic_ms() == monotonic_ms:
                break
        return now_ms, monotonic_ms

    def accounted(self, reading: Reading) -> None:
        """What the reading told of steps and standstills is durable now."""
        self._offset_ms += reading.stepped_ms
        if reading.stalled_ms:
            self._stalled_ms = 0
            self._served_ms = max(self._served_ms or 0, reading.monotonic_ms)
