"""Checks of every document that was read during the run. They come last and ask nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import combinations, pairwise
from typing import Any

from forewarn.verify.check import Failed, Skipped, Topic, expect
from forewarn.verify.checks.ordinary_get import is_json
from forewarn.verify.documents import (
    EVENT_TYPES,
    FIELDS,
    NEWEST,
    OLDEST,
    SHOWN_SINCE,
    VERSIONS,
    DocumentRead,
    EventElement,
)
from forewarn.verify.probe import Probe
from forewarn.verify.timestamps import read_iso, read_rfc_1123

TOPIC = Topic("documents", "Every document that was read", needs=("get-200",))

_GUID = re.compile(r"[0-9A-F]{8}(-[0-9A-F]{4}){3}-[0-9A-F]{12}", re.ASCII)
_ANY_CASE = re.compile(_GUID.pattern, re.ASCII | re.IGNORECASE)


def _events(probe: Probe, since: str = OLDEST) -> Iterator[tuple[DocumentRead, EventElement]]:
    """Every event that was seen, with its document. Skipped if there was none."""
    found = [
        (document, event)
        for document in probe.documents_read
        if document.version >= since
        for event in document.events
    ]
    if not found:
        raise Skipped("no event was seen; --operator would have one scheduled")
    return iter(found)


def _each(
    check_id: str,
    sentence: str,
    source: str,
    *,
    not_checked: str,
    field: str,
    good: Callable[[Any], bool],
    expected: str,
    since: str = OLDEST,
    choice: bool = False,
) -> None:
    """A check that one field of every event is as it should be."""

    @TOPIC.check(check_id, sentence, source, not_checked=not_checked, choice=choice)
    def look(probe: Probe) -> None:
        for document, event in _events(probe, since):
            if field in event.fields:  # the checks of fields mind those that are missing
                value = event.fields[field]
                expect(good(value), f"{field} is {value!r} at {document.version}", expected)


@TOPIC.check(
    "incarnation-number",
    "DocumentIncarnation is a JSON integer, 1 or more.",
    "S2, contract 10",
    not_checked="The numbers of this run; one that outgrows what clients can hold is not seen.",
)
def incarnation_number(probe: Probe) -> None:
    for document in probe.documents_read:
        value = document.content["DocumentIncarnation"]
        expect(type(value) is int and value >= 1, f"{value!r} at {document.version}", "1 or more")


@TOPIC.check(
    "incarnation-forward",
    "The incarnation never goes back.",
    "L14, Forewarn's choice",
    not_checked="Each api-version by itself, within this run; going back at a restart is not seen.",
)
def incarnation_forward(probe: Probe) -> None:
    for version in VERSIONS:
        numbers = [s.incarnation for s in probe.documents_read if s.version == version]
        known = [number for number in numbers if number is not None]
        for earlier, later in pairwise(known):
            expect(earlier <= later, f"{later} after {earlier} at {version}", "no lower number")


@TOPIC.check(
    "incarnation-same-events",
    "The same incarnation means the same events.",
    "S3",
    not_checked="A content that changes and changes back between two looks is not seen.",
)
def incarnation_same_events(probe: Probe) -> None:
    seen: dict[tuple[str, int | None], DocumentRead] = {}
    for document in probe.documents_read:
        known = seen.setdefault((document.version, document.incarnation), document)
        if known.content.get("Events") != document.content.get("Events"):
            raise Failed(
                f"incarnation {document.incarnation} at {document.version} has two contents: "
                f"{_difference(known, document)}",
                "another incarnation with another content",
            )


def _difference(one: DocumentRead, other: DocumentRead) -> str:
    """What the first of two documents says of its events otherwise than the second."""
    for event in one.events:
        twin = other.event(event.event_id)
        if twin is None:
            return f"{event.event_id} is there, then is not"
        for name in (*event.fields, *twin.fields):
            values = [
                repr(e.fields[name]) if name in e.fields else "not there" for e in (event, twin)
            ]
            if values[0] != values[1]:
                return f"{name} of {event.event_id} is {values[0]}, then {values[1]}"
    new = [event.event_id for event in other.events if one.event(event.event_id) is None]
    return f"{new[0]} is not there, then is" if new else "the order of its events or fields"


@TOPIC.check(
    "events-array",
    "Events is an array, also when it is empty.",
    "G1, contract 10",
    not_checked="The empty one is seen only if a document without events was read.",
)
def events_array(probe: Probe) -> None:
    for document in probe.documents_read:
        value = document.content["Events"]
        expect(isinstance(value, list), f"{value!r} at {document.version}", "[]")


@TOPIC.check(
    "document-type",
    "Every document is application/json, whatever stands in it.",
    "G2",
    not_checked="Documents of this run; one with other events than these may have another type.",
    needs=("get-content-type",),
)
def document_type(probe: Probe) -> None:
    for document in probe.documents_read:
        seen = f"Content-Type: {document.content_type} at {document.version}"
        expect(is_json(document.content_type), seen, "application/json; charset=utf-8")


@TOPIC.check(
    "document-etag",
    f"Every document of {NEWEST} has an ETag, whatever stands in it.",
    "G4",
    not_checked="Whether there is one; that it changes with the events is for start-old-tag.",
    needs=("etag-present",),
)
def document_etag(probe: Probe) -> None:
    for document in (s for s in probe.documents_read if s.version == NEWEST):
        status = ", ".join(event.text("EventStatus") for event in document.events) or "none"
        expect(document.tag, f"no ETag; events: {status}", "an ETag header")


def _fields(version: str) -> None:
    @TOPIC.check(
        f"fields-{version}",
        f"An event at {version} has exactly the fields of that version.",
        "contract 1.5, S1",
        not_checked=f"What was seen at {version}, not every event type; a key that stands twice "
        f"passes.",
        needs=() if version == VERSIONS[-1] else (f"version-{version}",),
    )
    def look(probe: Probe) -> None:
        found = [e for s in probe.documents_read if s.version == version for e in s.events]
        if not found:
            raise Skipped(f"no event was seen at {version}; --operator would have one scheduled")
        for event in found:
            missing = [name for name in FIELDS[version] if name not in event.fields]
            surplus = [name for name in event.fields if name not in FIELDS[version]]
            seen = [f"no {name}" for name in missing] + [f"{name} too" for name in surplus]
            expect(not seen, ", ".join(seen), ", ".join(FIELDS[version]))


for _version in VERSIONS:
    _fields(_version)


@TOPIC.check(
    "fields-order",
    "The fields of an event stand in the order of the wire, at every api-version.",
    "Forewarn's choice, contract 1.5 (seen in every capture; JSON has no order)",
    not_checked="Fields that are missing or surplus are left aside; they are for "
    "fields-2020-07-01.",
    choice=True,
)
def fields_order(probe: Probe) -> None:
    for document, event in _events(probe):
        known = FIELDS[document.version]
        seen = [name for name in event.fields if name in known]
        expected = [name for name in known if name in event.fields]
        expect(seen == expected, f"{', '.join(seen)} at {document.version}", ", ".join(expected))


_each(
    "event-id-form",
    "An EventId is a GUID.",
    "contract 1.5",
    not_checked="The form alone; whether an EventId is ever used again is not seen.",
    field="EventId",
    good=lambda value: isinstance(value, str) and _ANY_CASE.fullmatch(value) is not None,
    expected="a GUID like 0F1E2D3C-4B5A-6978-8796-A5B4C3D2E1F0",
)
_each(
    "event-id-upper",
    "An EventId is in upper case.",
    "Forewarn's choice, contract 1.5 (so it is in captures; Event Grid has it in lower case)",
    not_checked="Letters alone; what stands between them is for event-id-form.",
    field="EventId",
    good=lambda value: not isinstance(value, str) or value == value.upper(),
    expected="no letter in lower case",
    choice=True,
)


@TOPIC.check(
    "event-id-kept",
    "An EventId is written in one way in every document, case included.",
    "Q7, contract 10",
    not_checked="Ids that differ in more than case are two events here; life-id-stable looks for "
    "those.",
)
def event_id_kept(probe: Probe) -> None:
    known: dict[str, tuple[str, str]] = {}
    for document, event in _events(probe):
        first, where = known.setdefault(event.event_id.upper(), (event.event_id, document.version))
        seen = f"{event.event_id} at {document.version}, {first} at {where} before"
        expect(event.event_id == first, seen, "the same letters")


@TOPIC.check(
    "event-id-once",
    "No EventId stands twice in a document.",
    "contract 1.5",
    not_checked="Within one document; the same EventId in the documents of other scopes is not "
    "seen.",
)
def event_id_once(probe: Probe) -> None:
    for document, _ in _events(probe):
        ids = document.event_ids
        expect(len(ids) == len(set(ids)), f"{ids} at {document.version}", "each once")


_each(
    "event-status",
    "EventStatus is Scheduled or Started.",
    "contract 1.5",
    not_checked="One of the two words; whether it is true of the VM is not seen.",
    field="EventStatus",
    good=lambda value: value in ("Scheduled", "Started"),
    expected="Scheduled or Started",
)
_each(
    "event-type",
    "EventType is one of the five, as they are written.",
    "contract 1.6",
    not_checked="One of the five words; whether the impact is of that type is not seen.",
    field="EventType",
    good=lambda value: isinstance(value, str) and value in EVENT_TYPES,
    expected=", ".join(sorted(EVENT_TYPES)),
)
_each(
    "event-resource-type",
    "ResourceType is VirtualMachine.",
    "contract 1.5",
    not_checked="The events of this run; types of event that it did not see may say something "
    "else.",
    field="ResourceType",
    good=lambda value: value == "VirtualMachine",
    expected="VirtualMachine",
)
_each(
    "event-resources",
    "Resources is an array of at least one name.",
    "contract 10",
    not_checked="Names that are texts; whether such VMs exist, or stand there twice, is not "
    "checked.",
    field="Resources",
    good=lambda value: (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(name, str) and name for name in value)
    ),
    expected='["name", ...]',
)
_each(
    "event-description",
    "Description is a text, perhaps an empty one.",
    "contract 1.5",
    not_checked="Any text passes; whether it tells the cause is not read.",
    field="Description",
    since="2019-04-01",
    good=lambda value: isinstance(value, str),
    expected="a text",
)
_each(
    "event-source",
    "EventSource is Platform or User.",
    "contract 1.5",
    not_checked="One of the two words; whether it is the right one for who gave the order is not "
    "checked.",
    field="EventSource",
    since="2019-08-01",
    good=lambda value: value in ("Platform", "User"),
    expected="Platform or User",
)
_each(
    "event-duration",
    "DurationInSeconds is a JSON integer, -1 or more.",
    "contract 1.5, contract 10",
    not_checked="A number in range; how long the impact really lasts is not measured.",
    field="DurationInSeconds",
    since="2020-07-01",
    good=lambda value: type(value) is int and value >= -1,
    expected="an integer, -1 or more",
)


@TOPIC.check(
    "not-before-form",
    "From 2017-08-01 on NotBefore of a Scheduled event is a date of RFC 1123, week day included.",
    "N1, N3, N7",
    not_checked="The form alone; whether the time is right is for the checks of notice.",
)
def not_before_form(probe: Probe) -> None:
    for document, event in _events(probe, since=VERSIONS[1]):
        value = event.fields.get("NotBefore")
        if event.text("EventStatus") == "Scheduled":
            good = isinstance(value, str) and read_rfc_1123(value) is not None
            seen = f"{value!r} at {document.version}"
            expect(good, seen, "a date like Mon, 19 Sep 2016 18:29:47 GMT")


@TOPIC.check(
    "not-before-oldest",
    "At 2017-03-01 NotBefore of a Scheduled event is ISO 8601, as its documents show.",
    "Forewarn's choice, N2 (captures of the real service show RFC 1123, N1)",
    not_checked="The form alone; that it is the time of the other api-versions is for "
    "not-before-kept.",
    choice=True,
)
def not_before_oldest(probe: Probe) -> None:
    scheduled = [
        event
        for document, event in _events(probe)
        if document.version == OLDEST and event.text("EventStatus") == "Scheduled"
    ]
    if not scheduled:
        raise Skipped(f"no Scheduled event was seen at {OLDEST}")
    for event in scheduled:
        value = event.text("NotBefore")
        expect(read_iso(value) is not None, repr(value), "a date like 2016-09-19T18:29:47Z")


@TOPIC.check(
    "not-before-blank",
    "NotBefore is there and blank once the event has started.",
    "N4",
    not_checked="What was seen Started; an event that starts and ends between two looks is not "
    "judged.",
)
def not_before_blank(probe: Probe) -> None:
    started = [(s, e) for s, e in _events(probe) if e.started]
    if not started:
        raise Skipped("no event was seen Started")
    for document, event in started:
        value = event.fields.get("NotBefore")
        expect(value == "", f"{value!r} at {document.version}", '""')


@TOPIC.check(
    "not-before-kept",
    "NotBefore of an event never changes while it is Scheduled.",
    "Forewarn's choice, L18 (not known of the real service)",
    not_checked="A time that moves and moves back between two looks is not seen.",
    choice=True,
)
def not_before_kept(probe: Probe) -> None:
    known: dict[str, int] = {}
    for document, event in _events(probe):
        at_s = event.not_before_s
        if at_s is not None and known.setdefault(event.event_id, at_s) != at_s:
            moved_s = at_s - known[event.event_id]
            raise Failed(
                f"NotBefore of {event.event_id} moved by {moved_s} s at {document.version}",
                "the same time in every document",
            )


@TOPIC.check(
    "names-underscore",
    "At 2017-03-01 each name has one underscore before it, role instances excepted.",
    "S4, Forewarn's choice",
    not_checked="A name with _IN_ in it counts as a role instance, whether it is one or not.",
)
def names_underscore(probe: Probe) -> None:
    names = {e.event_id: e.resources for s, e in _events(probe) if s.version == NEWEST}
    pairs = [
        (event, names[event.event_id])
        for document, event in _events(probe)
        if document.version == OLDEST and event.event_id in names
    ]
    if not pairs:
        raise Skipped(f"no event was seen both at {OLDEST} and at {NEWEST}")
    for event, later in pairs:
        # C8: the names of a cloud service's role instances stay as they are.
        expected = tuple(name if "_IN_" in name else f"_{name}" for name in later)
        expect(event.resources == expected, event.resources, str(expected))


def _moments(probe: Probe) -> Iterator[tuple[str, EventElement, EventElement | None]]:
    """Each event at each older api-version that knows its type, beside the newest at that moment.

    Skipped if no event was seen at several api-versions at once.
    """
    found = [
        (version, event, moment[version].event(event.event_id))
        for moment in probe.observed.moments
        for event in moment[NEWEST].events
        for version in VERSIONS[:-1]
        if version in moment and version >= SHOWN_SINCE.get(event.text("EventType"), OLDEST)
    ]
    if not found:
        raise Skipped("no event was seen at several api-versions; --operator would have one")
    return iter(found)


@TOPIC.check(
    "same-events",
    "An event that is there is there at every api-version that knows its type, Started too.",
    "Q7, L10, contract 1.6",
    not_checked="Events of the moments at which this run read all of them; others are not "
    "compared.",
)
def same_events(probe: Probe) -> None:
    for version, event, older in _moments(probe):
        seen = f"{event.event_id}, {event.text('EventStatus')} at {NEWEST}, is not at {version}"
        expect(older is not None, seen, "it is at both")


@TOPIC.check(
    "same-status",
    "An event has one EventStatus at every api-version.",
    "L10, S3",
    not_checked="The status at the same moments; one that is wrong at all of them is the same.",
)
def same_status(probe: Probe) -> None:
    for version, event, older in _moments(probe):
        _expect_same("EventStatus", version, event, older)


def _expect_same(name: str, version: str, event: EventElement, older: EventElement | None) -> None:
    if older is not None:
        newest, value = event.fields.get(name), older.fields.get(name)
        seen = f"{name} of {event.event_id} is {value!r} at {version}"
        expect(value == newest, seen, f"{newest!r}, as at {NEWEST}")


@TOPIC.check(
    "same-type",
    "An event has one EventType at every api-version.",
    "contract 1.6, S3",
    not_checked="The type at the same moments; whether it is the one that was ordered is not "
    "compared.",
)
def same_type(probe: Probe) -> None:
    for version, event, older in _moments(probe):
        _expect_same("EventType", version, event, older)


@TOPIC.check(
    "same-not-before",
    "An event has one NotBefore at every api-version.",
    "S3",
    not_checked="The time, in whichever form; whether it is the right one is for alone-starts.",
)
def same_not_before(probe: Probe) -> None:
    for version, event, older in _moments(probe):
        if older is None or older.not_before_s is None or event.not_before_s is None:
            continue
        seen = f"{older.text('NotBefore')} at {version}, for {event.event_id}"
        good = older.not_before_s == event.not_before_s
        expect(good, seen, f"{event.text('NotBefore')}, as at {NEWEST}")


@TOPIC.check(
    "same-names",
    "From 2017-08-01 on Resources are the same at every api-version.",
    "S4, C6",
    not_checked="The names and their order; those of 2017-03-01 are for names-underscore.",
)
def same_names(probe: Probe) -> None:
    for version, event, older in _moments(probe):
        if version != OLDEST:
            _expect_same("Resources", version, event, older)


@TOPIC.check(
    "started-shown",
    "An event that starts is shown as Started before it goes.",
    "L10, L14",
    not_checked="One event of the run that was seen Started will do; the others may have been "
    "too short.",
)
def started_shown(probe: Probe) -> None:
    if not probe.observed.started_ids:
        raise Skipped("no event has started; --operator would have one scheduled")
    shown = {event.event_id.upper() for _, event in _events(probe) if event.started}
    number = len(probe.observed.started_ids)
    seen = f"{number} started, none of them was seen Started"
    expect(shown, seen, "Started, then gone")


@TOPIC.check(
    "phases-forward",
    "Phases only move forward: Started is never Scheduled again, and what is gone stays gone.",
    "L10",
    not_checked="Each api-version by itself; one that lags behind the others passes.",
)
def phases_forward(probe: Probe) -> None:
    _ = _events(probe)
    for version in VERSIONS:
        reached: dict[str, int] = {}
        for document in (s for s in probe.documents_read if s.version == version):
            now = {e.event_id: 1 if e.started else 0 for e in document.events}
            for event_id in reached.keys() - now.keys():
                reached[event_id] = 2
            for event_id, phase in now.items():
                if phase < reached.get(event_id, 0):
                    raise Failed(f"{event_id} went back at {version}", "no way back")
                reached[event_id] = phase


@TOPIC.check(
    "events-order",
    "Events keep their order from document to document; only one that starts may go to the front.",
    "Forewarn's choice (not known of the real service, L19)",
    not_checked="Pairs that were seen at once in this run; what the order goes by is not checked.",
    choice=True,
)
def events_order(probe: Probe) -> None:
    before: set[tuple[str, str]] = set()
    for document, _ in _events(probe):
        started = {event.event_id: event.started for event in document.events}
        for pair in combinations(started, 2):
            turned = (pair[1], pair[0])
            ahead = started[pair[0]] and not started[pair[1]]
            kept = turned not in before or ahead
            expect(kept, f"{document.event_ids}", "the order of other documents")
            before.discard(turned)
            before.add(pair)
    if not before:
        raise Skipped("no two events were seen at once")
