"""What the run has made happen at the endpoint: the lives of the events it followed."""

from __future__ import annotations

from dataclasses import dataclass, field

from forewarn.verify.connection import Answer
from forewarn.verify.documents import DocumentRead, EventElement


@dataclass(slots=True, kw_only=True)
class Life:
    """One event that is followed.

    `before` is the document from before the order, `without` the last that did not have it yet, if
    there were such. `by_version` is the document at every api-version when it was Scheduled.
    `approval` is the answer to its approval, `waited` the last document in which it was Scheduled
    after that; `after_approval` the first one in which it is not, at a time before its NotBefore;
    `last` the last one with it, `gone` the first without it. `event_id` is the one that it has now.
    """

    event_id: str
    before: DocumentRead | None
    first: DocumentRead
    without: DocumentRead | None = None
    by_version: dict[str, DocumentRead] = field(default_factory=dict)
    approval: Answer | None = None
    waited: DocumentRead | None = None
    after_approval: DocumentRead | None = None
    last: DocumentRead | None = None
    gone: DocumentRead | None = None
    first_id: str = ""  # the EventId as it was first seen, if it has another one now

    @property
    def event(self) -> EventElement:
        """The event as it was first seen."""
        found = self.first.event(self.first_id or self.event_id)
        return found if found is not None else EventElement({})

    @property
    def not_before_s(self) -> int | None:
        return self.event.not_before_s

    def twins(self, document: DocumentRead) -> tuple[str, ...]:
        """Events that are there instead of this one: new, of its type, for one of its VMs."""
        known = {event_id.upper() for event_id in (*self.first.event_ids, self.event_id)}
        if document.event(self.event_id) is not None:
            return ()
        return tuple(
            event.event_id
            for event in document.events
            if event.event_id.upper() not in known
            and event.text("EventType") == self.event.text("EventType")
            and set(event.resources) & set(self.event.resources)
        )


@dataclass(slots=True, kw_only=True)
class Observations:
    """Filled by the checks that do something, read by the checks that only judge."""

    begun: bool = False  # the first event was asked for
    approved: Life | None = None
    woken: Answer | None = None
    alone: Life | None = None
    by_type: dict[str, Life] = field(default_factory=dict)
    both: tuple[Life, Life] | None = None
    throttled: Answer | None = None
    left: list[str] = field(default_factory=list)  # scheduled for the run and not yet seen gone
    stuck: set[str] = field(default_factory=set)  # of those, what was tried to end once
    not_scheduled: dict[str, list[str]] = field(default_factory=dict)  # types, and why, each time
    started_ids: set[str] = field(default_factory=set)  # events that surely have started
    # The document at every api-version at one moment: nothing changed while they were read.
    moments: list[dict[str, DocumentRead]] = field(default_factory=list)
