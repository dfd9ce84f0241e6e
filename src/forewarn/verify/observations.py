"""What the run has made happen at the endpoint: the lives of the events it followed."""

from __future__ import annotations

from dataclasses import dataclass, field

from forewarn.verify.connection import Answer
from forewarn.verify.documents import DocumentRead, EventElement


@dataclass(slots=True, kw_only=True)
class Life:
    """One event that is followed.

    `before` is the document from before the order, `without` the last that did not have it yet, if
    there were such. `views` is the document at every api-version when it was Scheduled; `started`
    the first one after its start, None if the start was not seen; `gone` the first one without it.
    """

    event_id: str
    before: DocumentRead | None
    first: DocumentRead
    without: DocumentRead | None = None
    by_version: dict[str, DocumentRead] = field(default_factory=dict)
    after_approval: DocumentRead | None = None
    started: DocumentRead | None = None
    gone: DocumentRead | None = None

    @property
    def event(self) -> EventElement:
        """The event as it was first seen."""
        found = self.first.event(self.event_id)
        return found if found is not None else EventElement({})

    @property
    def not_before_s(self) -> int | None:
        return self.event.not_before_s


@dataclass(slots=True, kw_only=True)
class Observations:
    """Filled by the checks that do something, read by the checks that only judge."""

    begun: bool = False  # the first event was asked for
    approved: Life | None = None
    approval: Answer | None = None
    woken: Answer | None = None
    alone: Life | None = None
    by_type: dict[str, Life] = field(default_factory=dict)
    both: tuple[Life, Life] | None = None
    throttled: Answer | None = None
    left: list[str] = field(default_factory=list)  # scheduled for the run and not yet seen gone
