"""What is different between two documents, as changes. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from forewarn_guest.document import Document, Event


class What(str, Enum):
    """What has happened to an event. Compares equal to its word: `change.what == "gone"`."""

    APPEARED = "appeared"
    STARTED = "started"
    CHANGED = "changed"
    GONE = "gone"


@dataclass(frozen=True)
class Change:
    """One thing that happened to one event.

    `event` is the event now, or as it was last if it is `gone`; `before` is the event in the
    document before, or None. An event that is gone without `before.started` was canceled, or was
    over before the client looked (G10): the document does not say which. `document` is the answer
    in which the change was seen.
    """

    what: What
    event: Event
    before: Event | None
    document: Document

    @property
    def seconds_left(self) -> float | None:
        """Seconds from when the document came to NotBefore; None if not known."""
        return self.document.seconds_left(self.event)


def changes(before: Document | None, after: Document) -> tuple[Change, ...]:
    """Every change from one document to the next; events that are gone come first.

    An event that is Started when it is first seen has `appeared` and then `started` (L30), so what
    waits for a start never misses one.
    """
    old = {event.key: event for event in before.events} if before else {}
    new = {event.key for event in after.events}
    found = [Change(What.GONE, event, event, after) for key, event in old.items() if key not in new]
    for event in after.events:
        was = old.get(event.key)
        found += [Change(what, event, was, after) for what in _whats(was, event)]
    return tuple(found)


def _whats(was: Event | None, now: Event) -> list[What]:
    if was is None:
        return [What.APPEARED, What.STARTED] if now.started else [What.APPEARED]
    whats = []
    if now.started and not was.started:
        whats.append(What.STARTED)
        # NotBefore becomes empty with the start (N4): that is the start and no other change.
        was = replace(was, status=now.status, not_before=now.not_before)
    if was != now:
        whats.append(What.CHANGED)
    return whats
