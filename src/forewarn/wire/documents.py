"""The document of a scope as bytes, per api-version, and the two date formats of the wire.

Rendering only. Which events a scope shows at all is decided by control; what a version adds or
hides is `api_versions`. Nothing here knows HTTP.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

import msgspec

from forewarn.core.model import SECOND_MS, Phase, ScopeKind
from forewarn.wire.api_versions import API_VERSIONS, INSTANCE_VERSIONS, ApiVersion
from forewarn.wire.link import ShownEvent, ShownScope

# Written out, because strftime would ask the locale for these names.
_WEEK_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

# Contract 1.5: nothing else ever appears here.
_RESOURCE_TYPE = "VirtualMachine"
_EVENT_STATUS: dict[str, str] = {Phase.SCHEDULED: "Scheduled", Phase.STARTED: "Started"}

# A document is rendered again for each of its events that changes; the dates of the others stay.
DATES_KEPT = 1_024

_encode = msgspec.json.Encoder().encode

# The answer to `/metadata/versions` (I3).
VERSIONS_BODY: bytes = _encode({"apiVersions": INSTANCE_VERSIONS})


def render(scope: ShownScope, version: ApiVersion) -> bytes:
    """The scope's document as a guest of that api-version reads it: compact JSON in UTF-8.

    Equal scopes give equal bytes. Keys are exactly those of the version, in the order the real
    service emits them (contract 1.5): some clients fail for good on one key more or less.
    """
    return Renderer().render(scope)[version.name][0]


def shown_event_ids(scope: ShownScope, version: ApiVersion) -> frozenset[str]:
    """The ids, in upper case, of the events that `render` puts into this document."""
    return Renderer().render(scope)[version.name][1]


class Renderer:
    """Renders the documents of one scope, over and over as it changes.

    An event that is the same value as the last time is not rendered again: of sixty, most changes
    touch one.
    """

    def __init__(self) -> None:
        self._kind = ""
        self._pieces: dict[str, _Piece] = {}

    def render(self, scope: ShownScope) -> dict[str, tuple[bytes, frozenset[str]]]:
        """What `render` and `shown_event_ids` say, by the name of the api-version."""
        known = self._pieces if self._kind == scope.kind else {}
        self._kind, self._pieces = scope.kind, {}
        for event in scope.events:
            piece = known.get(event.event_id)
            if piece is None or piece.event is not event:
                piece = _piece(event, scope.kind)
            self._pieces[event.event_id] = piece
        if not self._pieces:  # what most scopes show most of the time
            nothing = _encode({"DocumentIncarnation": scope.incarnation, "Events": ()})
            return dict.fromkeys(API_VERSIONS, (nothing, frozenset()))
        pieces = list(self._pieces.values())
        all_ids = frozenset([piece.upper_id for piece in pieces])
        made: dict[str, tuple[bytes, frozenset[str]]] = {}
        for name in API_VERSIONS:
            texts = [piece.texts[name] for piece in pieces if name in piece.texts]
            ids = all_ids
            if len(texts) < len(pieces):
                ids = frozenset([piece.upper_id for piece in pieces if name in piece.texts])
            made[name] = _encode({"DocumentIncarnation": scope.incarnation, "Events": texts}), ids
        return made


class _Piece(NamedTuple):
    """A visible event as those api-versions show it that know its type."""

    event: ShownEvent
    upper_id: str
    texts: dict[str, msgspec.Raw]


def _piece(event: ShownEvent, kind: str) -> _Piece:
    texts: dict[str, msgspec.Raw] = {}
    for name, version in API_VERSIONS.items():
        if event.event_type in version.event_types:
            underscore = version.underscore and kind != ScopeKind.CLOUD_SERVICE  # S4, C8
            texts[name] = msgspec.Raw(_encode(_event(event, version, underscore=underscore)))
    return _Piece(event, event.event_id.upper(), texts)


def not_before_text(ms: int, version: ApiVersion) -> str:
    """An instant as NotBefore shows it in this api-version, in whole seconds (N7).

    Fractions are cut, never rounded up: what starts at `ms` never starts before its text.
    """
    seconds = ms // SECOND_MS
    if version.iso_not_before:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return http_date(seconds)


@lru_cache(maxsize=DATES_KEPT)
def http_date(seconds: int) -> str:
    """Seconds since 1970 in RFC 1123 form, in English whatever the locale."""
    at = datetime.fromtimestamp(seconds, UTC)
    return (
        f"{_WEEK_DAYS[at.weekday()]}, {at.day:02d} {_MONTHS[at.month - 1]} {at.year:04d}"
        f" {at.hour:02d}:{at.minute:02d}:{at.second:02d} GMT"
    )


def _event(
    event: ShownEvent, version: ApiVersion, *, underscore: bool
) -> dict[str, str | int | list[str]]:
    """One event object; fields newer than the version are absent, not null (S1)."""
    prefix = "_" if underscore else ""
    started = event.phase == Phase.STARTED
    shown: dict[str, str | int | list[str]] = {
        "EventId": event.event_id.upper(),
        "EventStatus": _EVENT_STATUS[event.phase],
        "EventType": event.event_type,
        "ResourceType": _RESOURCE_TYPE,
        "Resources": [prefix + name for name in event.resources],
        # Blank, not absent, once the event has started (N4).
        "NotBefore": "" if started else not_before_text(event.not_before_ms, version),
    }
    if version.shows_description:
        shown["Description"] = event.description
    if version.shows_event_source:
        shown["EventSource"] = event.event_source
    if version.shows_duration:
        shown["DurationInSeconds"] = event.duration_s
    return shown
