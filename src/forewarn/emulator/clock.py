"""Time that can be turned. Nothing else lives here."""

from __future__ import annotations

import re

from forewarn.core.errors import Invalid
from forewarn.core.suggestions import shown
from forewarn.ports import Clock

SPEED_MAX = 3_600
# 9000-01-01. Dates end with the year 9999, and what is ordered when the clock ends is due later.
LAST_MS = 221_845_392_000_000

_SPEEDS = {"virtual": 0, "real": 1}
_TIMES = re.compile(r"x([1-9][0-9]{0,4})", re.ASCII)
_ACCEPTED = "Times from 1970-01-01T00:00:00Z to 9000-01-01T00:00:00Z are accepted."


def parse_speed(text: str) -> int:
    """How fast a clock runs, in words: `virtual` (0, it stands), `real` (1) or `x60`.

    Raises Invalid for anything else.
    """
    if text in _SPEEDS:
        return _SPEEDS[text]
    found = _TIMES.fullmatch(text)
    if found is None or int(found[1]) > SPEED_MAX:
        raise Invalid(
            f"There is no clock {shown(text)}.",
            f"Use virtual, real, or x2 to x{SPEED_MAX} for one that runs faster.",
        )
    return int(found[1])


class EmulatedClock:
    """`ports.Clock` for the emulator: starts where it is told and runs `speed` times as fast.

    With speed 0 it stands still until `advance_to`. Wall and monotonic time move together, so
    turning the clock is never taken for a clock that was set wrong. Raises Invalid for a start
    after LAST_MS or before 1970.
    """

    def __init__(self, *, start_ms: int, speed: int, real: Clock) -> None:
        _refuse_speed(speed)
        if not 0 <= start_ms <= LAST_MS:
            raise Invalid("The clock cannot start there.", _ACCEPTED)
        self.speed = speed
        self.start_ms = start_ms
        self._real = real
        self._began_ms = real.monotonic_ms()
        self._turned_ms = 0

    def now_ms(self) -> int:
        """The emulator's UTC wall time in milliseconds."""
        return self.start_ms + self.monotonic_ms()

    def monotonic_ms(self) -> int:
        """Milliseconds of the emulator's time since its start."""
        if not self.speed:
            return self._turned_ms
        return self._turned_ms + (self._real.monotonic_ms() - self._began_ms) * self.speed

    def run_at(self, speed: int) -> None:
        """Run so many times as fast from now on, without a jump; 0 stands. Raises Invalid."""
        _refuse_speed(speed)
        self._turned_ms = self.monotonic_ms()
        self._began_ms = self._real.monotonic_ms()
        self.speed = speed

    def advance_to(self, at_ms: int) -> None:
        """Turn the clock ahead to this instant; without effect if it has passed.

        Raises Invalid beyond LAST_MS.
        """
        if at_ms > LAST_MS:
            raise Invalid("The clock ends with the year 8999.", "Advance by less.")
        self._turned_ms += max(0, at_ms - self.now_ms())


def _refuse_speed(speed: int) -> None:
    if not 0 <= speed <= SPEED_MAX:
        raise Invalid(
            f"A clock cannot run {speed} times as fast.", f"Use 0 to {SPEED_MAX}; 0 stands."
        )


class StillClock:
    """`ports.Clock` for leases and heartbeats: no time passes between hosts and control.

    Both live in one process here and cannot lose each other; a clock that is turned by days, or a
    process that stands at a breakpoint, must not look like hosts that have gone silent.
    """

    def now_ms(self) -> int:
        return 0

    def monotonic_ms(self) -> int:
        return 0
