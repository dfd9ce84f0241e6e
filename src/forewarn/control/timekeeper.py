"""Notices time that was not what it seemed: a stepped wall clock, a process that stood still.

Steps show by comparing the wall clock with time that cannot step; a standstill shows by the pulse
of the event loop, which serves the guests: while it does not beat, no guest can read.
"""

from __future__ import annotations

from msgspec import Struct

from forewarn.ports import Clock

STEP_NOTICED_FROM_MS = 2_000
STALL_NOTICED_FROM_MS = 2_000
PULSE_EVERY_S = 0.25
READINGS_MAX = 10


class ClockReading(Struct, frozen=True):
    """The time, and what of the time since the reading before does not count.

    `stepped_ms` is by how much the wall clock was stepped, `stalled_ms` for how long the event
    loop has served no guest.
    """

    now_ms: int
    monotonic_ms: int
    stepped_ms: int
    stalled_ms: int = 0


class Timekeeper:
    """Reads the clock for the writer, once per batch of commands.

    The offset between wall and monotonic time is compared with the one last accounted for, so
    many small steps are noticed as surely as a large one. `pulse_clock` is what decides whether
    the event loop stood still: the time it beats in, where `clock` runs faster than that.
    """

    def __init__(self, clock: Clock, *, pulse_clock: Clock | None = None) -> None:
        self._clock = clock
        self._pulse_clock = clock if pulse_clock is None else pulse_clock
        now_ms, monotonic_ms = self._both_ms()
        self._offset_ms = now_ms - monotonic_ms
        # Monotonic, by `clock` and by `pulse_clock`; None while the loop does not beat it.
        self._served_ms: tuple[int, int] | None = None
        self._stalled_ms = 0  # noticed by the pulse itself, not yet accounted for

    def pulse(self) -> None:
        """The event loop runs. Called from its thread, every PULSE_EVERY_S."""
        now_ms = self._clock.monotonic_ms()
        pulse_ms = self._pulse_clock.monotonic_ms()
        self._stalled_ms += self._stood_still_ms(now_ms, pulse_ms)
        self._served_ms = now_ms, pulse_ms

    def read(self) -> ClockReading:
        """The time now. A step or a standstill is told again until it was `accounted` for."""
        now_ms, monotonic_ms = self._both_ms()
        moved_ms = now_ms - monotonic_ms - self._offset_ms
        stepped_ms = moved_ms if abs(moved_ms) > STEP_NOTICED_FROM_MS else 0
        open_ms = self._stood_still_ms(monotonic_ms, self._pulse_clock.monotonic_ms())
        return ClockReading(now_ms, monotonic_ms, stepped_ms, self._stalled_ms + open_ms)

    def _stood_still_ms(self, now_ms: int, pulse_ms: int) -> int:
        """For how long no guest has been served by now; 0 if that is less than what is noticed."""
        if self._served_ms is None:
            return 0
        served_ms, served_pulse_ms = self._served_ms
        return now_ms - served_ms if pulse_ms - served_pulse_ms > STALL_NOTICED_FROM_MS else 0

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

    def accounted(self, reading: ClockReading) -> None:
        """What the reading told of steps and standstills is durable now."""
        self._offset_ms += reading.stepped_ms
        if reading.stalled_ms:
            self._stalled_ms = 0
            now = reading.monotonic_ms, self._pulse_clock.monotonic_ms()
            self._served_ms = max(self._served_ms or now, now)
