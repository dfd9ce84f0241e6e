"""By when what was started must have ended, and until when a host may still begin it."""

from __future__ import annotations

from forewarn.core.model import (
    DAY_MS,
    MINUTE_MS,
    SECOND_MS,
    Cause,
    EventType,
    Operation,
    ScheduledEvent,
)

# How long a started event may go without all its reports before it fails as lost.
DEADLINE_MS: dict[EventType, int] = {
    EventType.FREEZE: 15 * MINUTE_MS,
    EventType.REBOOT: 30 * MINUTE_MS,
    EventType.REDEPLOY: 60 * MINUTE_MS,
    EventType.PREEMPT: 10 * MINUTE_MS,
    EventType.TERMINATE: 10 * MINUTE_MS,
}
# VMs of a failed host wait this long for fencing, a free place or the host's return.
FAILURE_DEADLINE_MS = DAY_MS

# A host begins what control has said to be its own within that time; later it asks once more.
CLAIM_FRESH_MS = 5 * SECOND_MS


def deadline_after_ms(event_type: EventType, cause: Cause) -> int:
    """How long after its start an event fails if reports are still missing."""
    return FAILURE_DEADLINE_MS if cause is Cause.FAILURE else DEADLINE_MS[event_type]


def may_begin(owner: ScheduledEvent | Operation, now_ms: int) -> bool:
    """Whether a host may still be told to begin what belongs to a started event or operation.

    The host begins within `CLAIM_FRESH_MS`. What began after the deadline would hit VMs whose
    event has failed and is no longer shown.
    """
    deadline_ms = owner.deadline_ms
    return deadline_ms is None or now_ms + CLAIM_FRESH_MS <= deadline_ms
