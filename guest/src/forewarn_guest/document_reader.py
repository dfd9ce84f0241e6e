"""Reads the bytes of an endpoint into a Document, tolerantly. No I/O here, and no clock.

Bytes that are not a document are refused by name (BadAnswer). A document is read as far as it
makes sense: fields that its version lacks are empty (S1), fields and event types that this package
does not know are kept, and entries that are not events are left out and counted.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from forewarn_guest.document import SCHEDULED, STARTED, Document, Event
from forewarn_guest.errors import BadAnswer

EVENTS_MAX = 1000
RESOURCES_MAX = 10_000
EVENT_ID_CHARS_MAX = 200
# The journal keeps an event twice on a line, as it was read and as it was sent: both must fit.
ENTRY_CHARS_MAX = 300_000
ENTRY_DEPTH_MAX = 16
DESCRIPTION_CHARS_MAX = 1_000  # of an entry that is too long otherwise
QUOTED_CHARS_MAX = 60

_FIELDS = (
    "EventId", "EventType", "ResourceType", "Resources", "EventStatus", "NotBefore",
    "Description", "EventSource", "DurationInSeconds",
)  # fmt: skip

# The one version in which names of VMs carry a leading underscore (S4).
UNDERSCORE_VERSION = "2017-03-01"

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
# The day of the week is read over: samples of the real documentation have a wrong one (N3).
_RFC_1123 = re.compile(
    r"(?:[A-Za-z]+,?\s+)?(\d{1,2})[ -]([A-Za-z]{3})[a-z]*[ -](\d{4})\s+"
    r"(\d{1,2}):(\d{2}):(\d{2})(?:\s+(GMT|UTC|UT|Z|[+-]\d{2}:?\d{2}))?",
    re.ASCII | re.IGNORECASE,
)
_ISO_8601 = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})[T ](\d{2}):(\d{2}):(\d{2})(?:[.,]\d+)?\s*"
    r"(Z|UTC|GMT|[+-]\d{2}:?\d{2})?",
    re.ASCII | re.IGNORECASE,
)
# A lone surrogate cannot be written anywhere and a NUL not be handed to a process.
_UNWRITABLE = re.compile("[\ud800-\udfff\0]")


def read_document(
    body: bytes, *, api_version: str, received_s: float, headers: Mapping[str, str]
) -> Document | None:
    """The document of a 200, or None for an empty body: that is no news, never no events (G8).

    `headers` have lower-case names. BadAnswer if the body is something else than a document.
    """
    if not body.strip():
        return None
    content = _json(body, headers.get("content-type", ""))
    if not isinstance(content, dict):
        raise BadAnswer(f"The endpoint answered with a JSON {_named(content)}, not an object.")
    entries = content.get("Events")
    if not isinstance(entries, list):
        raise BadAnswer(f"The answer has {_named(entries)} for Events, not a list.")
    if len(entries) > EVENTS_MAX:
        raise BadAnswer(f"The answer has {len(entries)} events; {EVENTS_MAX} are read at most.")
    etag = headers.get("etag", "")
    events: dict[str, Event] = {}
    for entry in entries:
        event = _event(entry, underscore=api_version == UNDERSCORE_VERSION)
        if event is not None:
            events.setdefault(event.key, event)  # if two have the same id, the first counts
    return Document(
        incarnation=_incarnation(content, etag),
        events=tuple(events.values()),
        date=read_time(headers.get("date", "")),
        received_s=received_s,
        etag=etag,
        left_out=len(entries) - len(events),
    )


def read_time(text: str) -> datetime | None:
    """A time in RFC 1123 or ISO 8601 (N1, N2, N6), in UTC; None if it is empty or neither."""
    text = text.strip()
    match = _RFC_1123.fullmatch(text)
    if match:
        day, name, year, hour, minute, second, zone = match.groups()
        if name.lower() not in _MONTHS:
            return None
        month = str(_MONTHS.index(name.lower()) + 1)
    else:
        match = _ISO_8601.fullmatch(text)
        if not match:
            return None
        year, month, day, hour, minute, second, zone = match.groups()
    try:
        read = datetime(
            int(year), int(month), int(day), int(hour), int(minute), min(int(second), 59),
            tzinfo=timezone.utc,
        )  # fmt: skip
        return read - _offset(zone)
    except (ValueError, OverflowError):  # the 31st of February, or a time before all times
        return None


def error_text(body: bytes) -> str:
    """What a refusal says about itself, cut short; empty if it says nothing readable."""
    content = _object(body)
    said = content.get("error")
    if isinstance(said, dict):
        said = said.get("message")
    return _text(said)[: QUOTED_CHARS_MAX * 4]


def newest_versions(body: bytes) -> tuple[str, ...]:
    """The versions that a refusal names as those it knows (2.1), in its order."""
    named = _object(body).get("newest-versions")
    if not isinstance(named, list):
        return ()
    return tuple(version for version in named if isinstance(version, str))


def vm_name(body: bytes) -> str:
    """`name` of the answer of /metadata/instance/compute (I5), or empty."""
    return _text(_object(body).get("name")).strip()


def _object(body: bytes) -> dict[str, Any]:
    try:
        content = _json(body, "")
    except BadAnswer:
        return {}  # a refusal may be of any form; it is refused either way
    return content if isinstance(content, dict) else {}


def _json(body: bytes, content_type: str) -> Any:
    try:
        # What is no number that can be written again stays the text that was sent.
        return json.loads(body, parse_constant=str, parse_float=_float)
    except (ValueError, RecursionError) as error:
        begin = body[:QUOTED_CHARS_MAX].decode("ascii", "replace")
        said = f" ({content_type[:QUOTED_CHARS_MAX]})" if content_type else ""
        raise BadAnswer(
            f"The endpoint answered with what is no JSON{said}: {begin!r}.",
            "Is it the address of a Scheduled Events endpoint?",
        ) from error


def _incarnation(content: dict[str, Any], etag: str) -> str:
    """A number or a string on the wire (S2); where it is missing, the tag stands for it (G5)."""
    value = content.get("DocumentIncarnation")
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(int(value)) if abs(value) < 2**63 else str(value)
    if value is None:
        return etag.strip().removeprefix("W/").strip('"')
    raise BadAnswer(f"The answer has {_named(value)} for DocumentIncarnation, not a number.")


def _event(entry: Any, *, underscore: bool) -> Event | None:
    """The event, or None if the entry is not one: an event has at least an id that can be sent."""
    entry = _bounded(entry) if isinstance(entry, dict) else None
    if entry is None:
        return None
    event_id = entry.get("EventId")
    if not isinstance(event_id, str) or not 0 < len(event_id) <= EVENT_ID_CHARS_MAX:
        return None
    if not event_id.isprintable() or event_id.strip() != event_id:
        return None
    status = _text(entry.get("EventStatus"))
    duration = entry.get("DurationInSeconds")
    whole = isinstance(duration, int) and not isinstance(duration, bool)
    return Event(
        event_id=event_id,
        event_type=_text(entry.get("EventType")),
        status=next((s for s in (SCHEDULED, STARTED) if s.lower() == status.lower()), status),
        resources=_resources(entry.get("Resources"), underscore=underscore),
        not_before=read_time(_text(entry.get("NotBefore"))),
        source=_text(entry.get("EventSource")),
        description=_text(entry.get("Description")),
        duration_s=duration if whole else None,
        raw=entry,
    )


def _bounded(entry: dict[str, Any]) -> dict[str, Any] | None:
    """The entry. One that is too long or nested too deep loses the fields that we do not know.

    None if it is still too long.
    """
    if _fits(entry):
        return entry
    found = {name: entry[name] for name in _FIELDS if name in entry and not _nested(entry[name], 1)}
    if isinstance(found.get("Description"), str):
        found["Description"] = found["Description"][:DESCRIPTION_CHARS_MAX]
    return found if _fits(found) else None


def _fits(entry: dict[str, Any]) -> bool:
    return not _nested(entry, ENTRY_DEPTH_MAX) and len(json.dumps(entry)) <= ENTRY_CHARS_MAX


def _nested(value: Any, deeper_than: int) -> bool:
    """True if lists and objects are in each other to more than this depth."""
    if not isinstance(value, (dict, list)):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return deeper_than == 0 or any(_nested(one, deeper_than - 1) for one in inner)


def _float(text: str) -> float | str:
    number = float(text)
    return number if math.isfinite(number) else text


def _resources(value: Any, *, underscore: bool) -> tuple[str, ...]:
    listed = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    names = [_text(name) for name in listed[:RESOURCES_MAX] if isinstance(name, str) and name]
    return tuple(name[1:] if underscore and name.startswith("_") else name for name in names)


def _text(value: Any) -> str:
    """A string as it was sent, except for characters that no file and no process takes."""
    return _UNWRITABLE.sub("\ufffd", value) if isinstance(value, str) else ""


def _offset(zone: str | None) -> timedelta:
    """How far a zone is ahead of UTC; a time without a zone is in UTC."""
    if not zone or zone[0] not in "+-":
        return timedelta(0)
    ahead = timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:]))
    return ahead if zone[0] == "+" else -ahead


def _named(value: Any) -> str:
    return "nothing" if value is None else type(value).__name__
