"""How much notice an event promises, and when it has been given.

The promises are a table. Whether an event is due is one function, used by the rules that start
events, by `explain`, and by the invariants.

Readable time is what counts as notice: wall time since the host confirmed that it shows the event
(`shown_ms`), less `unreadable_ms`, which is signed. A clock that jumps ahead adds the jump to it, a
clock that is set back subtracts it. While the service or the host is down nothing is shown:
`shown_ms` is None and `-unreadable_ms` keeps the notice given so far, which runs on when the host
confirms again.
"""

from __future__ import annotations

from enum import StrEnum

from forewarn.core.model import (
    DAY_MS,
    MINUTE_MS,
    SECOND_MS,
    EventSource,
    EventType,
    Phase,
    ScheduledEvent,
    Scope,
)


class NoticeVerdict(StrEnum):
    """Whether the promised notice was given, and read."""

    YES = "yes"
    UNREAD = "unread"  # it could be read for as long as was promised, and not all its VMs did
    OVERRIDDEN = "overridden"  # an operator approved it in place of a VM
    NO = "no"
    NOT_YET = "not-yet"
    NOT_APPLICABLE = "not-applicable"


# Contract 3.3. Terminate is set per scope, within TERMINATE_NOTICE_MS.
MINIMUM_NOTICE_MS: dict[EventType, int] = {
    EventType.FREEZE: 15 * MINUTE_MS,
    EventType.REBOOT: 15 * MINUTE_MS,
    EventType.REDEPLOY: 10 * MINUTE_MS,
    EventType.PREEMPT: 30 * SECOND_MS,
}
TERMINATE_NOTICE_MS = (5 * MINUTE_MS, 15 * MINUTE_MS)
DEGRADED_NOTICE_MS = 7 * DAY_MS

ENABLED_FOR_MS = DAY_MS

# A host says every five seconds that it is there. A second later it is late: what passes beyond
# the five seconds is no notice, since its daemon may be down.
HEARTBEAT_EVERY_MS = 5 * SECOND_MS
HEARTBEAT_LATE_MS = 6 * SECOND_MS
HOST_SILENT_AFTER_MS = 15 * SECOND_MS  # then it is not heard any more: nothing starts on it


def minimum_notice_ms(scope: Scope, event_type: EventType) -> int:
    """The least time between an event's appearance and its start without approval."""
    if event_type is EventType.TERMINATE:
        return scope.terminate_notice_ms
    return MINIMUM_NOTICE_MS[event_type]


def readable_ms(event: ScheduledEvent, now_ms: int, *, lost_ms: int = 0) -> int:
    """For how long guests could have read the event by now, the last `lost_ms` left out.

    `lost_ms` may be negative: a clock may have been set back during an outage.
    """
    if event.shown_ms is None:
        return max(0, -event.unreadable_ms)
    return max(0, now_ms - event.shown_ms - event.unreadable_ms - lost_ms)


def due_from_ms(event: ScheduledEvent, *, unasked: bool = False) -> int | None:
    """The instant from which the event may start, as known now; None while it cannot be known.

    An approval makes it due at once. If no VM is asked, because it is silent or (`unasked`) its
    VMs are off, a user event is due at once, a platform event at the time its order named (or at
    once; its operation waits for the others). Everything else is due at NotBefore, or later if it
    was not readable for its minimum notice by then.
    """
    if event.approved_ms is not None:
        return event.approved_ms
    if event.silent or unasked:
        return event.scheduled_ms if _waits_for_no_time(event) else event.ordered_not_before_ms
    if event.shown_ms is None:
        return None
    return max(event.not_before_ms, event.shown_ms + event.unreadable_ms + event.minimum_notice_ms)


def earliest_start_ms(event: ScheduledEvent) -> int | None:
    """When a scheduled event may start without approval, as known now; else None.

    Later than NotBefore, which stays, if it could not be read for its minimum notice by then. One
    that is approved waits for its window alone.
    """
    if event.phase is not Phase.SCHEDULED:
        return None
    opens_ms = event.window.start_ms if event.window else None
    if event.approved_ms is not None:
        return opens_ms
    from_ms = due_from_ms(event)
    return from_ms if from_ms is None or opens_ms is None else max(from_ms, opens_ms)


def _waits_for_no_time(event: ScheduledEvent) -> bool:
    """True for events that start at once where no VM is asked."""
    return event.event_source is EventSource.USER or event.ordered_not_before_ms is None


def due(event: ScheduledEvent, now_ms: int, *, unasked: bool = False) -> bool:
    """True once the event may start: approved, or its notice has been given in full.

    `unasked` is as in `due_from_ms`.
    """
    at_once = (event.silent or unasked) and _waits_for_no_time(event)
    if event.approved_ms is not None or at_once:
        return True  # neither lapses when the clock is set back
    due_from = due_from_ms(event, unasked=unasked)
    return due_from is not None and now_ms >= due_from
