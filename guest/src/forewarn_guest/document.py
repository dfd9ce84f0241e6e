"""What an endpoint said, as values. `document_reader` reads them from bytes; here nothing is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

SCHEDULED = "Scheduled"
STARTED = "Started"


@dataclass(frozen=True)
class Event:
    """One scheduled event. What this version of the API does not tell is None or empty.

    `event_id` is as it was sent; `key` is what to compare, because ids have no case (A8).
    `not_before` is None once the event has started. `raw` is the event as it was sent, with
    the fields that this package does not know.
    """

    event_id: str
    event_type: str
    status: str
    resources: tuple[str, ...]
    not_before: datetime | None = None
    source: str = ""
    description: str = ""
    duration_s: int | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def key(self) -> str:
        """The id in the one spelling in which ids are compared."""
        return self.event_id.upper()

    @property
    def started(self) -> bool:
        return self.status == STARTED

    def names(self, vm: str) -> bool:
        """True if the VM is among the resources; names have no case (C10)."""
        return vm.casefold() in (name.casefold() for name in self.resources)


@dataclass(frozen=True)
class Document:
    """One answer. Incarnations are compared for being different, never for being greater (L6).

    `date` is the endpoint's time in that answer and `received_s` the monotonic time here when it
    came: time left is counted down from both, so no wall clock of the VM is asked. `left_out` says
    how many entries were no events: those are not among `events`.
    """

    incarnation: str
    events: tuple[Event, ...]
    date: datetime | None = None
    received_s: float = 0.0
    etag: str = ""
    left_out: int = 0

    def event(self, key: str) -> Event | None:
        """The event of that id, in any case."""
        return next((event for event in self.events if event.key == key.upper()), None)

    def seconds_left(self, event: Event) -> float | None:
        """Seconds from when the document came to the event's NotBefore; None if it is unknown."""
        if event.not_before is None or self.date is None:
            return None
        return (event.not_before - self.date).total_seconds()
