"""`cloud.clock`: the time of the emulator, and turning it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from forewarn.core.errors import Conflict, Invalid, Refusal
from forewarn.core.model import SECOND_MS
from forewarn.emulator.pacer import Instant
from forewarn.testing.background import Background
from forewarn.testing.tracebacks import cut, for_refusals
from forewarn.testing.values import Due, time_of
from forewarn.text.durations import parse_duration_ms
from forewarn.wiring.simulate import Emulator

__tracebackhide__ = for_refusals


class CloudClock:
    """The clock of a cloud. Everything that is due on the way happens while the caller turns it."""

    def __init__(self, background: Background) -> None:
        self._background = background

    @property
    def now(self) -> datetime:
        """What the clock shows, in UTC."""

        async def work(emulator: Emulator) -> int:
            return emulator.clock.now_ms()

        return time_of(self._background.call(work))

    def advance(
        self,
        by: str | float | timedelta = 0,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
    ) -> tuple[Due, ...]:
        """Turn the clock ahead, through everything that is due on the way, and say what was.

        `by` is seconds, a text like 15m or 1h30m, or a timedelta; the other words add to it. All
        that happens at an instant has happened before the clock moves on, and before this returns.
        Raises Invalid for a time that is negative or longer than ten years.
        """
        try:
            more = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
            if isinstance(by, timedelta):
                more += by
                by = 0
            ms = parse_duration_ms(by) + round(more.total_seconds() * SECOND_MS)
        except Refusal as refusal:
            raise cut(refusal) from None
        except (ValueError, OverflowError):  # not a number, or more than a timedelta can hold
            raise Invalid(
                "The clock cannot be advanced by that.", "By at most ten years at once."
            ) from None
        return _due(self._background.call(lambda emulator: emulator.pacer.advance(ms)))

    def next(self) -> tuple[Due, ...]:
        """Turn the clock to the next instant at which something is due, and say what was.

        Raises Conflict if nothing is: then no test should wait for it.
        """
        reached = self._background.call(lambda emulator: emulator.pacer.next())
        if not reached:
            raise Conflict(
                "Nothing is due: the clock has nowhere to go.",
                "Order something first, or turn it with cloud.clock.advance(minutes=15).",
            )
        return _due(reached)

    def upcoming(self) -> tuple[Due, ...]:
        """What is due later, as known now, soonest first."""
        return _due(self._background.call(lambda emulator: emulator.pacer.upcoming()))


def _due(instants: Iterable[Instant]) -> tuple[Due, ...]:
    return tuple(Due(at=time_of(instant.at_ms), what=instant.what) for instant in instants)
