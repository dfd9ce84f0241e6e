"""`cloud.clock`: the time of the emulator, and turning it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from forewarn.core import notice
from forewarn.core.errors import Conflict, Invalid, Refusal
from forewarn.core.model import SECOND_MS, Phase, ScheduledEvent
from forewarn.emulator.pacer import Instant
from forewarn.testing.background import Background
from forewarn.testing.expectations import holding, need_event
from forewarn.testing.tracebacks import cut, for_refusals
from forewarn.testing.values import Due, EventLike, event_of, ids_of, ms_of, time_of
from forewarn.text.durations import parse_duration_ms
from forewarn.wire.instants import time_text
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

    def advance_to(self, until: datetime | EventLike) -> tuple[Due, ...]:
        """Turn the clock until an event, or each of several, starts; or to a time that is known.

        Without effect for what has started. `until` may also be an aware datetime, like
        `event.not_before`. Returns what was due on the way. Raises Conflict for an event that has
        ended without a start, and for one that does not start when it is due, with what holds it;
        Invalid for a time that has passed.
        """
        if isinstance(until, datetime):
            at_ms = _at_ms(until)
            return _due(self._background.call(lambda emulator: _to_time(emulator, at_ms)))
        event_ids = ids_of(until)
        return _due(self._background.call(lambda emulator: _to_start(emulator, event_ids)))

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


def _at_ms(until: datetime) -> int:
    if until.tzinfo is None:
        raise Invalid(f"The time {until} names no zone.", "Give a datetime with one.")
    return ms_of(until)


async def _to_time(emulator: Emulator, at_ms: int) -> list[Instant]:
    by_ms = at_ms - emulator.clock.now_ms()
    if by_ms < 0:
        raise Invalid(
            f"The clock shows {time_text(emulator.clock.now_ms())}, and it goes ahead only.",
            "Give a later time.",
        )
    return await emulator.pacer.advance(by_ms)


async def _to_start(emulator: Emulator, event_ids: Sequence[str]) -> list[Instant]:
    passed: list[Instant] = []
    for event_id in event_ids:
        event = await _event(emulator, event_id)
        if event.phase is Phase.SCHEDULED:
            due_ms = notice.due_from_ms(event)
            at_ms = event.not_before_ms if due_ms is None else due_ms
            passed += await emulator.pacer.advance(max(0, at_ms - emulator.clock.now_ms()))
            event = await _event(emulator, event_id)
        if event.started_ms is None:
            raise _not_started(emulator, event)
    return passed


async def _event(emulator: Emulator, event_id: str) -> ScheduledEvent:
    return await emulator.control.read(lambda store: need_event(store, event_id))


def _not_started(emulator: Emulator, event: ScheduledEvent) -> Conflict:
    said = f"{event_of(event)} is {event.phase.value} and has not started."
    waits = " ".join(holding(emulator.control.fleet.look(), event))
    return Conflict(f"{said} {waits}".rstrip(), "To go to a time, give event.not_before.")


def _due(instants: Iterable[Instant]) -> tuple[Due, ...]:
    return tuple(Due(at=time_of(instant.at_ms), what=instant.what) for instant in instants)
