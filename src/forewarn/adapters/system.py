"""The machine we run on: its clocks and its randomness. Nothing else in the service reads either.

Everything that needs the time or a new id is handed a `Clock` or an `Ids` from here. (The command
line, a client, counts down from the service's time.)
"""

from __future__ import annotations

import time
import uuid

NANOSECONDS_PER_MS = 1_000_000


def monotonic_s() -> float:
    """The monotonic clock in seconds and their fractions, for what lasts less than a millisecond.

    It has nothing to do with `Clock`, and no decision may rest on it.
    """
    return time.monotonic()


def boottime_ms() -> int:
    """As `Clock.monotonic_ms`, and the time in which the machine was suspended counts too."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // NANOSECONDS_PER_MS


class SystemClock:
    """`ports.Clock` on the clocks of the machine."""

    def now_ms(self) -> int:
        """UTC wall time in milliseconds. It may step, in both directions."""
        return time.time_ns() // NANOSECONDS_PER_MS

    def monotonic_ms(self) -> int:
        """Time that never goes back and never jumps; says nothing about the date."""
        return time.monotonic_ns() // NANOSECONDS_PER_MS


class RandomIds:
    """`ports.Ids` from the randomness of the operating system."""

    def event_id(self) -> str:
        """A new version 4 GUID, 8-4-4-4-12, in upper case (contract 1.5)."""
        return str(uuid.uuid4()).upper()
