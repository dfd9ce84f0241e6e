"""The Timeline: orders as spans over hours or days, with the line of now and windows as bands.

A span has two parts: from its announcement to its start, and from its start to its end. Places are
percents of the width, so that a page can draw them without knowing the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from forewarn.api.console.view_models.open_orders import OF_PHASE, Going, ended_going
from forewarn.api.console.view_models.values import Offers, Ref, of_event, of_operation
from forewarn.control.fleet_reader import FleetLook
from forewarn.control.fleet_summary import FleetSummary, starts_ms
from forewarn.core.model import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    Operation,
    ScheduledEvent,
    Window,
)
from forewarn.ports import ListFilter, Store

ROWS_MAX = 120
ENDED_READ_MAX = 200
PAST_SHARE = 0.4  # of the width: what was; the rest is what comes
# How much is shown, and how far apart the lines of time are.
RANGES: dict[str, tuple[int, int]] = {
    "1h": (HOUR_MS, 10 * MINUTE_MS),
    "6h": (6 * HOUR_MS, HOUR_MS),
    "24h": (DAY_MS, 4 * HOUR_MS),
    "7d": (7 * DAY_MS, DAY_MS),
}


class Span(Struct, frozen=True, kw_only=True):
    """One order. Instants are None where they are not known."""

    ref: Ref
    what: str
    host: str
    scopes: tuple[str, ...]
    going: Going
    from_ms: int
    start_ms: int
    started: bool
    to_ms: int | None
    window: Window | None


class SpanBar(Struct, frozen=True, kw_only=True):
    """A span in its place: percents of the width. A part without a width is not there."""

    span: Span
    notice_x: float
    notice_width: float
    impact_x: float
    impact_width: float
    window_x: float
    window_width: float


class Tick(Struct, frozen=True):
    x: float
    at_ms: int


class Timeline(Struct, frozen=True, kw_only=True):
    range: str
    from_ms: int
    to_ms: int
    now_x: float
    ticks: tuple[Tick, ...]
    rows: tuple[SpanBar, ...]
    more: int


class EndedOrders(Struct, frozen=True, kw_only=True):
    """What has ended of late, as the store has it."""

    operations: tuple[Operation, ...]
    events: tuple[ScheduledEvent, ...]


def read_ended(store: Store, where: ListFilter, limit: int = ENDED_READ_MAX) -> EndedOrders:
    """The newest of what has ended, by a filter that says since when."""
    operations = store.operations(where, open_only=False, limit=limit)
    events = store.events(where, open_only=False, limit=limit)
    return EndedOrders(
        operations=tuple(o.operation for o in operations if o.operation.ended_ms is not None),
        events=tuple(e.event for e in events if e.event.phase.ended),
    )


def timeline(
    look: FleetLook,
    summary: FleetSummary,
    ended: EndedOrders,
    offers: Offers,
    *,
    range_: str,
    scope: str = "",
    host: str = "",
) -> Timeline:
    """What was and what comes, by when it starts. `scope` and `host` leave out the others."""
    length_ms, step_ms = RANGES[range_]
    # Whole minutes: what has not changed is not drawn anew each second.
    now_ms = look.now_ms // MINUTE_MS * MINUTE_MS
    from_ms = now_ms - round(length_ms * PAST_SHARE)
    to_ms = from_ms + length_ms
    whole = offers.access.all_scopes
    spans = [
        span
        for span in (*_open(look, summary, whole=whole), *_ended(ended, whole=whole))
        if _wanted(span, offers, scope, host)
        and span.from_ms < to_ms
        and (span.to_ms or span.start_ms) >= from_ms
    ]
    more = len(spans) - ROWS_MAX
    if more > 0:  # those nearest to now are shown
        spans = sorted(spans, key=lambda span: abs(span.start_ms - now_ms))[:ROWS_MAX]
    spans.sort(key=lambda span: (span.start_ms, span.ref.name))
    width = _Width(from_ms, length_ms)
    return Timeline(
        range=range_,
        from_ms=from_ms,
        to_ms=to_ms,
        now_x=width.x(now_ms),
        ticks=tuple(_ticks(width, from_ms, to_ms, step_ms)),
        rows=tuple(_bar(span, width, now_ms) for span in spans),
        more=max(0, more),
    )


def _wanted(span: Span, offers: Offers, scope: str, host: str) -> bool:
    if scope and scope not in span.scopes:
        return False
    if host and host != span.host:
        return False
    return offers.access.all_scopes or any(map(offers.access.sees, span.scopes))


class _Width(Struct, frozen=True):
    from_ms: int
    length_ms: int

    def x(self, at_ms: int) -> float:
        """The place of an instant, in percent; what is outside is at the edge."""
        return round(min(max((at_ms - self.from_ms) / self.length_ms, 0.0), 1.0) * 100, 2)


def _ticks(width: _Width, from_ms: int, to_ms: int, step_ms: int) -> Iterator[Tick]:
    first_ms = -(-from_ms // step_ms) * step_ms
    for at_ms in range(first_ms, to_ms, step_ms):
        yield Tick(width.x(at_ms), at_ms)


def _bar(span: Span, width: _Width, now_ms: int) -> SpanBar:
    begin = width.x(span.from_ms)
    start = width.x(span.start_ms)
    end = start
    if span.started:
        end = width.x(span.to_ms if span.to_ms is not None else now_ms)
    elif span.to_ms is not None:  # canceled: it never started
        start = end = width.x(min(span.to_ms, span.start_ms))
    window = span.window
    opens = width.x(window.start_ms) if window else 0.0
    closes = width.x(window.end_ms) if window else 0.0
    return SpanBar(
        span=span,
        notice_x=begin,
        notice_width=round(max(start - begin, 0.0), 2),
        impact_x=start,
        impact_width=round(max(end - start, 0.0), 2),
        window_x=opens,
        window_width=round(closes - opens, 2),
    )


def _open(look: FleetLook, summary: FleetSummary, *, whole: bool) -> Iterator[Span]:
    """Operations, and events of none; without `whole` events alone, as an owner sees them."""
    for operation in look.operations.values() if whole else ():
        events = _events_of(look, operation)
        starts = [e.started_ms if e.started_ms is not None else starts_ms(e) for e in events]
        started = operation.started_ms is not None or any(e.started_ms for e in events)
        yield Span(
            ref=Ref("operation", operation.operation_id),
            what=of_operation(operation),
            host=operation.host,
            scopes=tuple(dict.fromkeys(name for name, _ in operation.members)),
            going=Going.UNDER_WAY if started else Going.WAITING,
            from_ms=operation.ordered_ms,
            start_ms=operation.started_ms
            or (min if started else max)(
                starts, default=operation.ordered_not_before_ms or operation.ordered_ms
            ),
            started=started,
            to_ms=None,
            window=operation.window,
        )
    for _, event in (*summary.started(), *summary.scheduled()):
        if event.operation_id is None or not whole:
            yield _of_event(event)


def _events_of(look: FleetLook, operation: Operation) -> Sequence[ScheduledEvent]:
    found = (look.open_event(event_id) for _, event_id in operation.members)
    return [one[1] for one in found if one is not None]


def _ended(ended: EndedOrders, *, whole: bool) -> Iterable[Span]:
    for one in ended.operations if whole else ():
        yield Span(
            ref=Ref("operation", one.operation_id),
            what=of_operation(one),
            host=one.host,
            scopes=tuple(dict.fromkeys(name for name, _ in one.members)),
            going=ended_going(one),
            from_ms=one.ordered_ms,
            start_ms=one.started_ms or one.ended_ms or one.ordered_ms,
            started=one.started_ms is not None,
            to_ms=one.ended_ms,
            window=one.window,
        )
    for event in ended.events:
        if event.operation_id is None or not whole:
            yield _of_event(event)


def _of_event(event: ScheduledEvent) -> Span:
    started = event.started_ms is not None
    return Span(
        ref=Ref("event", event.event_id),
        what=of_event(event),
        host=event.host,
        scopes=(event.scope,),
        going=OF_PHASE[event.phase],
        from_ms=event.scheduled_ms,
        start_ms=event.started_ms if event.started_ms is not None else starts_ms(event),
        started=started,
        to_ms=event.ended_ms,
        window=event.window,
    )
