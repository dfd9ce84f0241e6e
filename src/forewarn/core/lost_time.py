"""Time that does not count: a silent host, a stepped wall clock, a service that was down.

While guests could not read, no notice ran; while hosts could not report, no deadline came nearer.
"""

from __future__ import annotations

from msgspec.structs import replace

from forewarn.core import notice
from forewarn.core.model import Decision, Operation, Phase, ScheduledEvent, Scope


def not_heard(scope: Scope, *, host: str | None, lost_ms: int, now_ms: int) -> Decision:
    """A host (or with None, every host) is silent, and was for `lost_ms` already.

    Control cannot know whether it shows anything. The notice given until then is kept, and it runs
    on when the host confirms again.
    """
    events = tuple(
        replace(
            event,
            shown_ms=None,
            unreadable_ms=-notice.readable_ms(event, now_ms, lost_ms=lost_ms),
        )
        if notice_runs(event) and host in (None, event.host)
        else event
        for event in scope.events
    )
    if events == scope.events:
        return Decision()
    return Decision(scopes=(replace(scope, events=events),))


def heard_late(scope: Scope, *, host: str, lost_ms: int) -> Decision:
    """A host is heard again, `lost_ms` later than it should be, and was not given up meanwhile.

    Its daemon may have been down: what guests there may not have read was no notice.
    """
    events = tuple(
        replace(event, unreadable_ms=event.unreadable_ms + lost_ms)
        if notice_runs(event) and event.host == host
        else event
        for event in scope.events
    )
    return (
        Decision(scopes=(replace(scope, events=events),)) if events != scope.events else Decision()
    )


def notice_runs(event: ScheduledEvent) -> bool:
    """True while a host shows the event and it has not started."""
    return event.phase is Phase.SCHEDULED and event.shown_ms is not None


def clock_stepped(scope: Scope, stepped_ms: int) -> Decision:
    """The wall clock jumped by this much: take the jump out of everything that counts time."""
    events = []
    for event in scope.events:
        if notice_runs(event):
            moved = replace(event, unreadable_ms=event.unreadable_ms + stepped_ms)
        elif event.deadline_ms is not None:
            moved = replace(event, deadline_ms=event.deadline_ms + stepped_ms)
        else:
            moved = event
        events.append(moved)
    recoveries = tuple(replace(r, until_ms=r.until_ms + stepped_ms) for r in scope.recoveries)
    polled_ms = None if scope.polled_ms is None else scope.polled_ms + stepped_ms
    moved_scope = replace(scope, events=tuple(events), recoveries=recoveries, polled_ms=polled_ms)
    return Decision(scopes=(moved_scope,)) if moved_scope != scope else Decision()


def was_down(scope: Scope, down_ms: int) -> Decision:
    """The service was down for this long by the wall clock: no VM could poll, no host report.

    Deadlines, recoveries and the 24 hours of enablement wait for the service. The notice of every
    event stops until its host confirms again (`not_heard`, which the caller applies as well).
    """
    events = tuple(
        replace(event, deadline_ms=event.deadline_ms + down_ms)
        if event.deadline_ms is not None
        else event
        for event in scope.events
    )
    recoveries = tuple(replace(r, until_ms=r.until_ms + down_ms) for r in scope.recoveries)
    polled_ms = None if scope.polled_ms is None else scope.polled_ms + down_ms
    after = replace(scope, events=events, recoveries=recoveries, polled_ms=polled_ms)
    return Decision(scopes=(after,)) if after != scope else Decision()


def operation_loses_time(operation: Operation, lost_ms: int) -> Decision:
    """The deadline of a started operation waits for time that was lost."""
    if operation.deadline_ms is None:
        return Decision()
    return Decision(operations=(replace(operation, deadline_ms=operation.deadline_ms + lost_ms),))
