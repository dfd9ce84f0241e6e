"""What a document should look like at each api-version, and reading those that come.

The table is this kit's own, written from the contract: it must not agree with a server because
both read the same file. Reading is tolerant; whether something is right is for the checks to say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from forewarn.verify.check import Failed
from forewarn.verify.connection import Answer
from forewarn.verify.timestamps import read_iso, read_rfc_1123

HOST_TYPES = frozenset({"Freeze", "Reboot", "Redeploy"})
EVENT_TYPES = HOST_TYPES | {"Preempt", "Terminate"}
_BASE = ("EventId", "EventStatus", "EventType", "ResourceType", "Resources", "NotBefore")


# Preempt and Terminate are hidden from older versions (contract 1.6).
SHOWN_SINCE = {"Preempt": "2017-11-01", "Terminate": "2019-01-01"}

# The fields of an event by api-version, in the order of the wire (contract 1.5, 1.6).
FIELDS: dict[str, tuple[str, ...]] = {
    "2017-03-01": _BASE,
    "2017-08-01": _BASE,
    "2017-11-01": _BASE,
    "2019-01-01": _BASE,
    "2019-04-01": (*_BASE, "Description"),
    "2019-08-01": (*_BASE, "Description", "EventSource"),
    "2020-07-01": (*_BASE, "Description", "EventSource", "DurationInSeconds"),
}
VERSIONS = tuple(FIELDS)
OLDEST, NEWEST = VERSIONS[0], VERSIONS[-1]


@dataclass(frozen=True, slots=True)
class EventElement:
    """One element of Events as it came."""

    fields: dict[str, Any]

    def text(self, name: str) -> str:
        """A field that should be text; blank if it is not."""
        value = self.fields.get(name)
        return value if isinstance(value, str) else ""

    @property
    def event_id(self) -> str:
        return self.text("EventId")

    @property
    def started(self) -> bool:
        return self.text("EventStatus") == "Started"

    @property
    def resources(self) -> tuple[str, ...]:
        names = self.fields.get("Resources")
        if not isinstance(names, list):
            return ()
        return tuple(name for name in names if isinstance(name, str))

    @property
    def not_before_s(self) -> int | None:
        """NotBefore in seconds since 1970, in whichever of the two forms; None if blank or odd.

        The week day may be wrong (N3): what follows an event reads on; not-before-form does not.
        """
        text = self.text("NotBefore")
        at_s = read_rfc_1123(text, any_day=True)
        return at_s if at_s is not None else read_iso(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentRead:
    """One document that was read: at which api-version, and what time it was there (Date)."""

    version: str
    content: dict[str, Any]
    events: tuple[EventElement, ...]
    now_s: int | None
    tag: str = ""  # the ETag as it came
    content_type: str = ""  # the Content-Type as it came

    @property
    def incarnation(self) -> int | None:
        """The incarnation, also where it came as text, as tolerant clients read it (S2)."""
        value = self.content.get("DocumentIncarnation")
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
            return int(value)
        return value if type(value) is int else None

    @property
    def event_ids(self) -> tuple[str, ...]:
        return tuple(event.event_id for event in self.events)

    def event(self, event_id: str) -> EventElement | None:
        """The event with that id, compared without case."""
        wanted = event_id.upper()
        return next((e for e in self.events if e.event_id.upper() == wanted), None)


def read(answer: Answer, version: str) -> DocumentRead:
    """The document in an answer. Raises Failed if the answer holds none."""
    content = answer.json
    expected = f"200 with a document of api-version {version}"
    if answer.status != 200 or not isinstance(content, dict):
        raise Failed(answer, expected)
    events = content.get("Events", ())
    if "DocumentIncarnation" not in content or "Events" not in content:
        raise Failed(answer, f"{expected}: DocumentIncarnation and Events")
    if events is not None and not isinstance(events, list):
        raise Failed(answer, f"{expected}: Events is an array")
    if not all(isinstance(event, dict) for event in events or ()):
        raise Failed(answer, f"{expected}: each event is an object")
    return DocumentRead(
        version=version,
        content=content,
        events=tuple(EventElement(event) for event in events or ()),
        now_s=read_rfc_1123(answer.header("Date") or ""),
        tag=answer.header("ETag") or "",
        content_type=answer.header("Content-Type") or "",
    )
