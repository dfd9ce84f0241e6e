"""Promised, readable and read notice of the last seven days, by type of event and by day."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median

from msgspec import Struct

from forewarn.control import receipt
from forewarn.control.receipt import Reads
from forewarn.core import document
from forewarn.core.model import DAY_MS, EventType, ScheduledEvent
from forewarn.core.notice import NoticeVerdict
from forewarn.ports import Change, ListFilter, Store

WEEK_MS = 7 * DAY_MS
DAYS = 7
EVENTS_READ_MAX = 5_000  # when it begins; a fleet that starts more in a week is shown its newest
PENDING_READ_MAX = 500  # at once
_PAGE = 500
_ORDERED_BEFORE_MS = 8 * DAY_MS  # what starts in the week was scheduled by then: a week of notice


class EventNotice(Struct, frozen=True, kw_only=True):
    """The notice of one event that has started."""

    event_id: str
    at_ms: int
    event_type: EventType
    promised_ms: int
    readable_ms: int
    read_ms: int | None
    kept: NoticeVerdict
    approved: bool


class NoticeRow(Struct, frozen=True, kw_only=True):
    """One type of event. Lengths of time are medians; `read_ms` of those that all VMs read."""

    event_type: EventType
    starts: int
    promised_ms: int
    readable_ms: int
    read_ms: int | None
    kept: int
    unread: int
    overridden: int
    early: int  # approved before their notice was over
    short: int


class NoticeDay(Struct, frozen=True, kw_only=True):
    """A day of UTC: how many starts there were, and how many of them with what verdict."""

    from_ms: int
    kept: int
    unread: int
    other: int
    short: int

    @property
    def starts(self) -> int:
        return self.kept + self.unread + self.other + self.short


class NoticeWeek(Struct, frozen=True, kw_only=True):
    rows: tuple[NoticeRow, ...]
    days: tuple[NoticeDay, ...]
    starts: int
    short: int
    known: bool  # False while it is being read


NOT_READ_YET = NoticeWeek(rows=(), days=(), starts=0, short=0, known=False)


def given(event: ScheduledEvent, reads: Reads) -> EventNotice | None:
    """The notice of an event; None if it has not started."""
    if event.started_ms is None:
        return None
    return EventNotice(
        event_id=event.event_id,
        at_ms=event.started_ms,
        event_type=event.event_type,
        promised_ms=receipt.promised_ms(event),
        readable_ms=receipt.readable_ms(event, event.started_ms),
        read_ms=receipt.read_ms(event, reads),
        kept=receipt.judge(event, reads).kept,
        approved=event.approved_ms is not None,
    )


class NoticeLedger:
    """What was given in the last week. Belongs to the event loop; tell it of every commit.

    Who has read an event is in the store, so what has just started is read there: `pending`.
    """

    def __init__(self) -> None:
        self._given: dict[str, EventNotice] = {}
        self._pending: dict[str, ScheduledEvent] = {}
        self.known = False

    def committed(self, changes: Sequence[Change]) -> None:
        for change in changes:
            for before, after in change.scopes:
                for old, event in document.moved(before, after).pairs:
                    if event.started_ms is not None and (old is None or old.started_ms is None):
                        self._pending[event.event_id] = event

    def pending(self) -> tuple[ScheduledEvent, ...]:
        """What has started and is not counted yet, at most so many at once."""
        return tuple(self._pending.values())[:PENDING_READ_MAX]

    def add(self, found: Iterable[EventNotice]) -> None:
        for one in found:
            self._pending.pop(one.event_id, None)
            self._given[one.event_id] = one

    def week(self, now_ms: int) -> NoticeWeek:
        """The last seven days. Forgets what is older."""
        if not self.known:
            return NOT_READ_YET
        since_ms = now_ms - WEEK_MS
        for event_id in [key for key, one in self._given.items() if one.at_ms < since_ms]:
            del self._given[event_id]
        return summed(self._given.values(), now_ms)


def read_week(store: Store, now_ms: int) -> list[EventNotice]:
    """What has started in the last seven days, as committed. Takes a while."""
    since_ms = now_ms - WEEK_MS
    where = ListFilter(since_ms=since_ms - _ORDERED_BEFORE_MS)
    found: list[EventNotice] = []
    below: int | None = None
    for _ in range(EVENTS_READ_MAX // _PAGE):
        page = store.events(where, open_only=False, below=below, limit=_PAGE)
        started = [one.event for one in page if (one.event.started_ms or 0) >= since_ms]
        found += read_given(store, started)
        if len(page) < _PAGE:
            break
        below = page[-1].number
    return found


def read_given(store: Store, events: Iterable[ScheduledEvent]) -> list[EventNotice]:
    """The notice of these events, with who has read them."""
    found = []
    for event in events:
        reads = {one.vm: one.read_ms for one in store.first_reads(event.event_id)}
        one = given(event, reads)
        if one is not None:
            found.append(one)
    return found


def summed(found: Iterable[EventNotice], now_ms: int) -> NoticeWeek:
    by_type: dict[EventType, list[EventNotice]] = {}
    for one in found:
        by_type.setdefault(one.event_type, []).append(one)
    everything = [one for of_type in by_type.values() for one in of_type]
    return NoticeWeek(
        rows=tuple(_row(kind, by_type[kind]) for kind in EventType if kind in by_type),
        days=tuple(_days(everything, now_ms)),
        starts=len(everything),
        short=sum(one.kept is NoticeVerdict.NO for one in everything),
        known=True,
    )


def _row(event_type: EventType, found: Sequence[EventNotice]) -> NoticeRow:
    verdicts = Counter(one.kept for one in found)
    read = [one.read_ms for one in found if one.read_ms is not None]
    told = [one for one in found if one.promised_ms] or found  # of others there is no notice
    early = [one for one in found if one.approved and one.kept is NoticeVerdict.NOT_APPLICABLE]
    return NoticeRow(
        event_type=event_type,
        starts=len(found),
        promised_ms=round(median(one.promised_ms for one in told)),
        readable_ms=round(median(one.readable_ms for one in told)),
        read_ms=round(median(read)) if read else None,
        kept=verdicts[NoticeVerdict.YES],
        unread=verdicts[NoticeVerdict.UNREAD],
        overridden=verdicts[NoticeVerdict.OVERRIDDEN],
        early=len(early),
        short=verdicts[NoticeVerdict.NO],
    )


def _days(found: Sequence[EventNotice], now_ms: int) -> list[NoticeDay]:
    today_ms = now_ms // DAY_MS * DAY_MS
    counted: dict[int, Counter[NoticeVerdict]] = {}
    for one in found:
        counted.setdefault(one.at_ms // DAY_MS * DAY_MS, Counter())[one.kept] += 1
    days = []
    for back in range(DAYS - 1, -1, -1):
        from_ms = today_ms - back * DAY_MS
        verdicts = counted.get(from_ms, Counter())
        other = verdicts[NoticeVerdict.OVERRIDDEN] + verdicts[NoticeVerdict.NOT_APPLICABLE]
        days.append(
            NoticeDay(
                from_ms=from_ms,
                kept=verdicts[NoticeVerdict.YES],
                unread=verdicts[NoticeVerdict.UNREAD],
                other=other,
                short=verdicts[NoticeVerdict.NO],
            )
        )
    return days
