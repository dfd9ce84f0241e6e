"""An event as tests of several rooms begin with it. No test lives here."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from forewarn.core.model import (
    MINUTE_MS,
    Cause,
    EventSource,
    EventType,
    Phase,
    ScheduledEvent,
)
from support.clock import START_MS

NOTICE_MS = 15 * MINUTE_MS
# What an operator is shown of each event, whatever has become of it.
KEYS_OF_AN_EVENT = {
    "event_id",
    "event_type",
    "event_source",
    "phase",
    "not_before",
    "resources",
    "scope",
    "update_domain",
    "host",
}


def an_event(event_id: str, **changes: Any) -> ScheduledEvent:
    """A Freeze of web_0 on h1, scheduled when the clock starts, with its notice ahead."""
    event = ScheduledEvent(
        event_id=event_id,
        scope="web",
        event_type=EventType.FREEZE,
        event_source=EventSource.PLATFORM,
        cause=Cause.MAINTENANCE,
        phase=Phase.SCHEDULED,
        update_domain=0,
        host="h1",
        resources=("web_0",),
        not_before_ms=START_MS + NOTICE_MS,
        minimum_notice_ms=NOTICE_MS,
        scheduled_ms=START_MS,
    )
    return replace(event, **changes)
