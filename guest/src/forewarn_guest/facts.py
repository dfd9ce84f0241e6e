"""What the journal holds, and nothing else: facts about events that name this VM.

A fact is written before what follows from it is done. Folded in order (`tracked_event`), facts say
where the agent was when it died.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from enum import Enum
from typing import Any

from forewarn_guest.document import Event

TRACKED_EVENT = "tracked_event"
TRACKED_EVENT_BEFORE = "care"  # in journals that 0.2.0 wrote


class FactKind(Enum):
    """The kinds of facts. The detail of each is described where it is made, in this module."""

    BEGIN = "begin"  # an agent starts
    APPEARED = "appeared"
    STARTED = "started"
    GONE = "gone"
    CHANGED = "changed"  # something of a scheduled event that never should
    INTENDED = "step-intended"  # from here on the step may have been run
    BEGUN = "step-begun"
    NOT_BEGUN = "step-not-begun"  # it was intended, and surely never run
    ENDED = "step-ended"
    RULED = "step-ruled"  # what an unknown end counts as
    LEFT_OUT = "step-left-out"
    BOOTED = "vm-booted"  # since the event appeared, or since this was last said
    SHARED = "already-prepared"  # another event under the same rule has prepared this VM
    HANDED_OVER = "handed-over"  # another event under the same rule will see to the recovery
    APPROVING = "approving"  # from here on the event may have been approved
    APPROVED = "approved"
    WITHHELD = "approval-withheld"
    CLOSED = "closed"
    PAUSE = "pause"  # the VM stood still


class Outcome(Enum):
    """How a step ended."""

    DONE = "done"
    FAILED = "failed"
    TIMED_OUT = "timed-out"
    UNKNOWN = "unknown"  # no record says how it ended


class Gone(Enum):
    """How an event ended, as far as a guest can know."""

    ENDED = "ended"  # it has happened, or must be taken to have
    CANCELED = "canceled"


@dataclass(frozen=True)
class Fact:
    """One line of the journal. `tracked` names the event and which sighting of it this is."""

    kind: FactKind
    at: datetime
    tracked: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The fact as the journal keeps it."""
        found: dict[str, Any] = {"fact": self.kind.value, "at": self.at.isoformat()}
        if self.tracked:
            found[TRACKED_EVENT] = self.tracked
        found.update(self.detail)
        return found


def tracked_in(line: Mapping[str, Any]) -> str:
    """Which tracked event a line of the journal is about, or empty."""
    return str(line.get(TRACKED_EVENT, line.get(TRACKED_EVENT_BEFORE, "")))


def from_json(line: Mapping[str, Any]) -> Fact:
    """The fact of a line. Raises KeyError or ValueError for what no agent of ours has written."""
    detail = {
        key: value
        for key, value in line.items()
        if key not in ("fact", "at", TRACKED_EVENT, TRACKED_EVENT_BEFORE)
    }
    return Fact(
        kind=FactKind(line["fact"]),
        at=datetime.fromisoformat(line["at"]),
        tracked=tracked_in(line),
        detail=detail,
    )


def event_json(event: Event) -> dict[str, Any]:
    """An event as facts keep it: what was read, and beside it everything that was sent."""
    return {
        "event_id": event.event_id,
        "event_type": event.event_type,
        "event_status": event.status,
        "resources": list(event.resources),
        "not_before": None if event.not_before is None else event.not_before.isoformat(),
        "source": event.source,
        "description": event.description,
        "duration_s": event.duration_s,
        "raw": dict(event.raw),
    }


def event_from_json(kept: Mapping[str, Any]) -> Event:
    """The event that a fact keeps."""
    text = kept["not_before"]
    return Event(
        event_id=kept["event_id"],
        event_type=kept["event_type"],
        status=kept["event_status"],
        resources=tuple(kept["resources"]),
        not_before=None if text is None else datetime.fromisoformat(text),
        source=kept["source"],
        description=kept["description"],
        duration_s=kept["duration_s"],
        raw=kept["raw"],
    )


def now() -> datetime:
    """The wall clock, for people who read the journal; no decision is made by it."""
    return datetime.now(timezone.utc)
