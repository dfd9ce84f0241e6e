"""Orders that are open, and those that have just ended, as rows: how far, and what holds them.

An operation is one row, and so is an event that belongs to none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from heapq import nsmallest
from itertools import chain

from msgspec import Struct

from forewarn.api.console.view_models.explaining import explained_event, explained_operation
from forewarn.api.console.view_models.values import (
    HoldRow,
    Offers,
    OrderLink,
    Ref,
    hold_row,
    of_event,
    of_failed_host,
    of_operation,
)
from forewarn.control.fleet_reader import FleetLook
from forewarn.control.fleet_summary import FleetSummary, starts_ms
from forewarn.control.slices import Walk, at_once
from forewarn.core import ending, notice, placement
from forewarn.core.access import Access
from forewarn.core.model import (
    Cause,
    EndedAs,
    Operation,
    OperationPhase,
    Phase,
    ScheduledEvent,
    Scope,
    Window,
)
from forewarn.core.starting import Hold, HoldReason

ROWS_MAX = 12
ORDERS_IN_SLICE = 20  # each may be explained
# What keeps nothing up: it is being carried out, or its notice runs.
_GOES_ON = (
    HoldReason.CONSENT,
    HoldReason.CLOCK,
    HoldReason.WINDOW_CLOSED,
    HoldReason.NOT_YET_SERVED,
    HoldReason.UNCLAIMED,
    HoldReason.RUNNING,
)


class Going(StrEnum):
    """How it goes with an order."""

    UNDER_WAY = "under way"
    STUCK = "stuck"  # it could go on, and something holds it
    WAITING = "waiting"  # for its notice, an approval or its window
    DONE = "done"
    FAILED = "failed"
    CANCELED = "canceled"


_ENDED = {
    EndedAs.COMPLETED: Going.DONE,
    EndedAs.FAILED: Going.FAILED,
    EndedAs.CANCELED: Going.CANCELED,
    EndedAs.WITHDRAWN: Going.CANCELED,
}
OF_PHASE = {
    Phase.SCHEDULED: Going.WAITING,
    Phase.STARTED: Going.UNDER_WAY,
    Phase.COMPLETED: Going.DONE,
    Phase.FAILED: Going.FAILED,
    Phase.CANCELED: Going.CANCELED,
}


def ended_going(operation: Operation) -> Going:
    """How an operation that has ended went."""
    return _ENDED[ending.ended_as(operation) or EndedAs.COMPLETED]


class WorkRow(Struct, frozen=True, kw_only=True):
    """One order. `at_ms` is when it may start, is given up, or has ended.

    `done` and `approved` count its events of `total`; `holds` is what it waits for.
    """

    ref: Ref
    what: str
    host: str
    going: Going
    at_ms: int | None
    by: str
    done: int = 0
    approved: int = 0
    total: int = 0
    holds: tuple[HoldRow, ...] = ()
    started_ms: int | None = None
    window: Window | None = None
    outcome: str = ""
    cancel: OrderLink | None = None


class OpenOrders(Struct, frozen=True, kw_only=True):
    """All open orders in numbers, and the first of them as rows."""

    rows: tuple[WorkRow, ...]
    under_way: int
    stuck: int
    waiting: int
    more: int


class _Order(Struct, frozen=True, kw_only=True):
    """An open order, before anything of it is explained."""

    going: Going
    at_ms: int
    operation: Operation | None
    scope: Scope | None
    events: tuple[ScheduledEvent, ...]
    holds: tuple[Hold, ...] | None  # None while it was not asked

    @property
    def place(self) -> tuple[int, int]:
        return _FIRST.index(self.going), self.at_ms


_FIRST = (Going.STUCK, Going.UNDER_WAY, Going.WAITING)


def work(
    look: FleetLook, summary: FleetSummary, offers: Offers, *, rows_max: int = ROWS_MAX
) -> OpenOrders:
    """Everything that is open, what is stuck first, then by time."""
    return at_once(work_walk(lambda: look, summary, offers, rows_max=rows_max))


def work_walk(
    look: Callable[[], FleetLook],
    summary: FleetSummary,
    offers: Offers,
    *,
    rows_max: int = ROWS_MAX,
) -> Walk[OpenOrders]:
    """As `work`, in slices. `look` is asked anew after each pause."""
    access = offers.access
    found: list[_Order] = []
    counted: Counter[Going] = Counter()
    orders = chain(_operations(look, access), _alone(look, summary, access))
    for number, one in enumerate(orders, 1):
        if one is not None:
            found.append(one)
            counted[one.going] += 1
        if not number % ORDERS_IN_SLICE:
            yield
    first = nsmallest(rows_max, found, key=lambda one: one.place)
    now = look()
    return OpenOrders(
        rows=tuple(_row(one, now, offers) for one in first),
        under_way=counted[Going.UNDER_WAY],
        stuck=counted[Going.STUCK],
        waiting=counted[Going.WAITING],
        more=max(0, len(found) - rows_max),
    )


def _operations(look: Callable[[], FleetLook], access: Access) -> Iterator[_Order | None]:
    """Every operation; to an owner, with the events of his own scopes, and None for others."""
    for operation_id in list(look().operations):
        now = look()
        operation = now.operation(operation_id)
        if operation is not None:
            yield _operation(now, access, operation)


def _operation(look: FleetLook, access: Access, operation: Operation) -> _Order | None:
    members = tuple(one for one in _members(operation, look) if access.sees(one[0].name))
    if not members and not access.all_scopes:
        return None
    events = tuple(event for _, event in members)
    if operation.phase is OperationPhase.STARTED and operation.deadline_ms is not None:
        return _started(look, access, operation, events)
    due_ms = max((starts_ms(e) for e in events), default=operation.ordered_not_before_ms or 0)
    # A Redeploy starts event by event; anything else when all of them are due.
    enough = all if operation.whole_host else any
    due = enough(_due(scope, event, look.now_ms) for scope, event in members)
    holds = explained_operation(look, access, operation).holds if due else None
    return _Order(
        going=_going(events, holds),
        at_ms=due_ms,
        operation=operation,
        scope=None,
        events=events,
        holds=holds,
    )


def _started(
    look: FleetLook, access: Access, operation: Operation, events: tuple[ScheduledEvent, ...]
) -> _Order:
    holds = explained_operation(look, access, operation).holds
    held = any(hold.reason not in _GOES_ON for hold in holds)
    return _Order(
        going=Going.STUCK if held else Going.UNDER_WAY,
        at_ms=operation.deadline_ms or 0,
        operation=operation,
        scope=None,
        events=events,
        holds=holds,
    )


def _alone(
    look: Callable[[], FleetLook], summary: FleetSummary, access: Access
) -> Iterator[_Order]:
    """Events that belong to no operation: orders of owners, evictions, failures of hosts."""
    failed: dict[str, list[tuple[Scope, ScheduledEvent]]] = {}
    for scope, event in summary.started():
        if not access.sees(scope.name):
            continue
        if event.cause is Cause.FAILURE:
            failed.setdefault(event.host, []).append((scope, event))
        elif event.operation_id is None:
            yield _event(look(), access, scope, event, at_ms=event.deadline_ms or 0)
    for found in failed.values():
        yield _failure(look(), access, found)
    for scope, event in summary.scheduled():
        if event.operation_id is None and access.sees(scope.name):
            yield _event(look(), access, scope, event, at_ms=starts_ms(event))


def _failure(
    look: FleetLook, access: Access, found: Sequence[tuple[Scope, ScheduledEvent]]
) -> _Order:
    """The VMs of one failed host that are not back yet: one row, however many they are."""
    holds = dict.fromkeys(
        hold for scope, event in found for hold in explained_event(look, access, scope, event).holds
    )
    events = tuple(event for _, event in found)
    return _Order(
        going=_going(events, holds),
        at_ms=min(event.deadline_ms or 0 for event in events),
        operation=None,
        scope=None,
        events=events,
        holds=tuple(holds),
    )


def _event(
    look: FleetLook, access: Access, scope: Scope, event: ScheduledEvent, *, at_ms: int
) -> _Order:
    asked = event.phase is Phase.STARTED or _due(scope, event, look.now_ms)
    holds = explained_event(look, access, scope, event).holds if asked else None
    return _Order(
        going=_going((event,), holds),
        at_ms=at_ms,
        operation=None,
        scope=scope,
        events=(event,),
        holds=holds,
    )


def _going(events: Sequence[ScheduledEvent], holds: Iterable[Hold] | None) -> Going:
    if any(hold.reason not in _GOES_ON for hold in holds or ()):
        return Going.STUCK
    started = any(event.phase is Phase.STARTED for event in events)
    return Going.UNDER_WAY if started else Going.WAITING


def _due(scope: Scope, event: ScheduledEvent, now_ms: int) -> bool:
    return notice.due(event, now_ms, unasked=placement.all_off(scope, event))


def _members(operation: Operation, look: FleetLook) -> Iterator[tuple[Scope, ScheduledEvent]]:
    for name, event_id in operation.members:
        scope = look.scope(name)
        event = scope.event(event_id) if scope else None
        if scope is not None and event is not None:
            yield scope, event


def _row(one: _Order, look: FleetLook, offers: Offers) -> WorkRow:
    if one.operation is not None:
        return _operation_row(one, one.operation, look, offers)
    event = one.events[0]
    if event.cause is Cause.FAILURE and one.scope is None:
        return _failure_row(one, event)
    holds = one.holds
    if holds is None and one.scope is not None:
        holds = explained_event(look, offers.access, one.scope, event).holds
    cancel = None
    if event.phase is Phase.SCHEDULED:
        cancel = offers.link("event-cancel", event.event_id, "Cancel", event.scope)
    return WorkRow(
        ref=Ref("event", event.event_id),
        what=of_event(event),
        host=event.host,
        going=one.going,
        at_ms=one.at_ms,
        by=event.ordered_by,
        approved=int(event.approved_ms is not None),
        total=1,
        holds=tuple(map(hold_row, holds or ())),
        started_ms=event.started_ms,
        window=event.window,
        cancel=cancel,
    )


def _failure_row(one: _Order, event: ScheduledEvent) -> WorkRow:
    return WorkRow(
        ref=Ref("host", event.host),
        what=of_failed_host(event.host, one.events),
        host=event.host,
        going=one.going,
        at_ms=one.at_ms,
        by=event.ordered_by,
        holds=tuple(map(hold_row, one.holds or ())),
        started_ms=event.started_ms,
    )


def _operation_row(one: _Order, operation: Operation, look: FleetLook, offers: Offers) -> WorkRow:
    holds = one.holds
    if holds is None:
        holds = explained_operation(look, offers.access, operation).holds
    total = sum(offers.access.sees(name) for name, _ in operation.members)
    left = [event.phase for event in one.events]
    cancel = None
    if not operation.outcome and (Phase.SCHEDULED in left or not left):
        cancel = offers.link("operation-cancel", operation.operation_id, "Cancel")
    return WorkRow(
        ref=Ref("operation", operation.operation_id),
        what=of_operation(operation),
        host=operation.host,
        going=one.going,
        at_ms=one.at_ms,
        by=operation.ordered_by,
        done=total - len(left),
        approved=sum(event.approved_ms is not None for event in one.events),
        total=total,
        holds=tuple(map(hold_row, holds)),
        started_ms=operation.started_ms,
        window=operation.window,
        outcome=operation.outcome,
        cancel=cancel,
    )


def ended_rows(
    operations: Iterable[Operation], events: Iterable[ScheduledEvent], *, whole: bool = True
) -> tuple[WorkRow, ...]:
    """What has ended, the latest first. Of events those that belong to no operation.

    Without `whole` all events: their operations are not shown.
    """
    rows = [
        WorkRow(
            ref=Ref("operation", one.operation_id),
            what=of_operation(one),
            host=one.host,
            going=ended_going(one),
            at_ms=one.ended_ms,
            by=one.ordered_by,
            done=len(one.members),
            total=len(one.members),
            started_ms=one.started_ms,
            outcome=one.outcome,
        )
        for one in operations
        if one.ended_ms is not None
    ]
    rows += [
        WorkRow(
            ref=Ref("event", one.event_id),
            what=of_event(one),
            host=one.host,
            going=OF_PHASE[one.phase],
            at_ms=one.ended_ms,
            by=one.ordered_by,
            done=1,
            total=1,
            started_ms=one.started_ms,
            outcome=one.outcome,
        )
        for one in events
        if (one.operation_id is None or not whole) and one.phase.ended
    ]
    return tuple(sorted(rows, key=lambda row: -(row.at_ms or 0)))
