"""What a document should look like at each api-version, and reading those that come.

The table is this kit's own, written from the contract: it must not agree with a server because
both read the same file. Reading is tolerant; whether something is right is for the checks to say.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from forewarn.verify.checks import Failed
from forewarn.verify.connection import Answer

HOST_TYPES = frozenset({"Freeze", "Reboot", "Redeploy"})
EVENT_TYPES = HOST_TYPES | {"Preempt", "Terminate"}
_BASE = ("EventId", "EventStatus", "EventType", "ResourceType", "Resources", "NotBefore")

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_WEEK_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_RFC_1123 = re.compile(r"(\w{3}), (\d{2}) (\w{3}) (\d{4}) (\d{2}):(\d{2}):(\d{2}) GMT", re.ASCII)
_ISO = re.compile(r"(\d{4})-(\d{2})-(\d{2})T(\d{2}):(\d{2}):(\d{2})Z", re.ASCII)

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
class Event:
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
        """NotBefore in seconds since 1970, in whichever of the two forms; None if blank or odd."""
        text = self.text("NotBefore")
        return read_rfc_1123(text) if read_rfc_1123(text) is not None else read_iso(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """One document that was read: at which api-version, and what time it was there (Date)."""

    version: str
    content: dict[str, Any]
    events: tuple[Event, ...]
    now_s: int | None
    tag: str = ""  # the ETag as it came

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

    def event(self, event_id: str) -> Event | None:
        """The event with that id, compared without case."""
        wanted = event_id.upper()
        return next((e for e in self.events if e.event_id.upper() == wanted), None)


def read(answer: Answer, version: str) -> Sighting:
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
    return Sighting(
        version=version,
        content=content,
        events=tuple(Event(event) for event in events or ()),
        now_s=read_rfc_1123(answer.header("Date") or ""),
        tag=answer.header("ETag") or "",
    )


def read_rfc_1123(text: str) -> int | None:
    """Seconds since 1970 of `Mon, 19 Sep 2016 18:29:47 GMT`; None if it is not of that form.

    The week day has to be the right one.
    """
    found = _RFC_1123.fullmatch(text)
    if found is None or found[3] not in _MONTHS or found[1] not in _WEEK_DAYS:
        return None
    month = _MONTHS.index(found[3]) + 1
    at = _instant(int(found[4]), month, *(int(found[i]) for i in (2, 5, 6, 7)))
    if at is None or _WEEK_DAYS[at.weekday()] != found[1]:
        return None
    return int(at.timestamp())


def read_iso(text: str) -> int | None:
    """Seconds since 1970 of `2016-09-19T18:29:47Z`; None if it is not of that form."""
    found = _ISO.fullmatch(text)
    at = None if found is None else _instant(*map(int, found.groups()))
    return None if at is None else int(at.timestamp())


def _instant(*parts: int) -> datetime | None:
    year, month, day, hour, minute, second = parts
    try:
        return datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
