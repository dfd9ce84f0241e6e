"""Bytes into documents: what clients trip over, and what no client should take."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any

import pytest

from forewarn_guest.document import Document
from forewarn_guest.document_reader import (
    DESCRIPTION_CHARS_MAX,
    ENTRY_DEPTH_MAX,
    EVENTS_MAX,
    error_text,
    newest_versions,
    read_document,
    read_time,
    vm_name,
)
from forewarn_guest.errors import BadAnswer
from forewarn_guest.facts import event_json
from forewarn_guest.journal import DEPTH_MAX, LINE_MAX_B

HALF_PAST = datetime(2016, 9, 19, 18, 29, 47, tzinfo=timezone.utc)
EVENT = {
    "EventId": "0F1E2D3C-4B5A-6978-8796-A5B4C3D2E1F0",
    "EventStatus": "Scheduled",
    "EventType": "Freeze",
    "ResourceType": "VirtualMachine",
    "Resources": ["web_0", "web_1"],
    "NotBefore": "Tue, 03 Mar 2026 10:15:00 GMT",
    "Description": "Host server is undergoing maintenance.",
    "EventSource": "Platform",
    "DurationInSeconds": 5,
}


def read(content: Any, version: str = "2020-07-01", **headers: str) -> Document:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    read = read_document(body, api_version=version, received_s=7.0, headers=headers)
    assert read is not None
    return read


def one(version: str = "2020-07-01", **fields: Any) -> Any:
    entry = {**EVENT, **fields}
    entry = {name: value for name, value in entry.items() if value is not ...}
    (event,) = read({"DocumentIncarnation": 1, "Events": [entry]}, version).events
    return event


def test_a_document_of_the_newest_version_is_read_whole() -> None:
    document = read(
        {"DocumentIncarnation": 2, "Events": [EVENT]},
        date="Tue, 03 Mar 2026 10:00:00 GMT",
        etag="2",
    )
    assert (document.incarnation, document.etag, document.left_out) == ("2", "2", 0)
    assert document.received_s == 7.0
    (event,) = document.events
    assert event.event_id == EVENT["EventId"]
    assert (event.event_type, event.status, event.started) == ("Freeze", "Scheduled", False)
    assert event.resources == ("web_0", "web_1")
    assert (event.source, event.duration_s) == ("Platform", 5)
    assert event.description == "Host server is undergoing maintenance."
    assert event.raw == EVENT
    assert document.seconds_left(event) == 900.0


@pytest.mark.parametrize(
    "text",
    [
        "Mon, 19 Sep 2016 18:29:47 GMT",
        "Sat, 19 Sep 2016 18:29:47 GMT",  # a wrong day of the week does not matter (N3)
        "19 Sep 2016 18:29:47 GMT",
        "Mon, 19 Sep 2016 20:29:47 +0200",
        "2016-09-19T18:29:47Z",
        "2016-09-19T18:29:47",
        "2016-09-19T18:29:47.123456Z",
        "2016-09-19T20:29:47+02:00",
        "2016-09-19 18:29:47Z",
        "  Mon, 19 Sep 2016 18:29:47 GMT ",
    ],
)
def test_a_time_is_read_in_rfc_1123_and_in_iso_8601(text: str) -> None:
    assert read_time(text) == HALF_PAST


@pytest.mark.parametrize(
    "text",
    ["", " ", "soon", "Mon, 31 Feb 2026 10:00:00 GMT", "2026-13-01T00:00:00Z",
     "Mon, 1 Foo 2026 1:00:00", "0001-01-01T00:00:00+01:00", "99999999999"],
)  # fmt: skip
def test_what_is_no_time_is_none_and_no_error(text: str) -> None:
    assert read_time(text) is None


def test_an_empty_not_before_of_a_started_event_is_none() -> None:
    event = one(EventStatus="Started", NotBefore="")
    assert event.started
    assert event.not_before is None


@pytest.mark.parametrize("status", ["started", "STARTED", "Started"])
def test_the_status_is_understood_in_any_case(status: str) -> None:
    assert one(EventStatus=status).started


@pytest.mark.parametrize(("value", "incarnation"), [(7, "7"), ("7", "7"), (7.0, "7"), ("", "")])
def test_an_incarnation_is_a_number_or_a_string(value: object, incarnation: str) -> None:
    assert read({"DocumentIncarnation": value, "Events": []}).incarnation == incarnation


def test_the_tag_stands_for_an_incarnation_that_is_missing() -> None:
    assert read({"Events": []}, etag='W/"12"').incarnation == "12"


def test_fields_that_a_version_does_not_have_are_empty() -> None:
    event = one("2017-08-01", Description=..., EventSource=..., DurationInSeconds=...)
    assert (event.description, event.source, event.duration_s) == ("", "", None)


def test_an_entry_with_nothing_but_an_id_is_an_event() -> None:
    (event,) = read({"DocumentIncarnation": 1, "Events": [{"EventId": "A"}]}).events
    assert (event.event_type, event.status, event.resources, event.not_before) == ("", "", (), None)


def test_unknown_fields_and_event_types_are_kept() -> None:
    event = one(EventType="SpotRebalanceRecommendation", Mood={"good": [1]})
    assert event.event_type == "SpotRebalanceRecommendation"
    assert event.raw["Mood"] == {"good": [1]}


def test_one_leading_underscore_goes_in_the_preview_version_only() -> None:
    assert one("2017-03-01", Resources=["_vm", "__vm", "vm"]).resources == ("vm", "_vm", "vm")
    assert one("2017-08-01", Resources=["_vm"]).resources == ("_vm",)


@pytest.mark.parametrize("body", [b"", b"  \r\n"])
def test_an_empty_200_is_no_news_and_never_no_events(body: bytes) -> None:
    assert read_document(body, api_version="2020-07-01", received_s=0.0, headers={}) is None


@pytest.mark.parametrize(
    "entry",
    [None, 3, "text", [], {}, {"EventId": ""}, {"EventId": 5}, {"EventId": None},
     {"EventId": "a\nb"}, {"EventId": "a\0b"}, {"EventId": " a"},
     {"EventId": "x" * 201}, {"EventId": "\ud800"}],
)  # fmt: skip
def test_an_entry_that_is_no_event_is_left_out_and_counted(entry: object) -> None:
    document = read({"DocumentIncarnation": 1, "Events": [entry, EVENT]})
    assert [event.event_id for event in document.events] == [EVENT["EventId"]]
    assert document.left_out == 1


def test_of_two_events_with_one_id_the_first_counts() -> None:
    same = {**EVENT, "EventId": EVENT["EventId"].lower(), "EventType": "Reboot"}  # type: ignore[attr-defined]
    document = read({"DocumentIncarnation": 1, "Events": [EVENT, same]})
    assert [event.event_type for event in document.events] == ["Freeze"]
    assert document.left_out == 1


def test_fields_of_a_wrong_type_are_as_if_they_were_missing() -> None:
    event = one(
        EventType=3, EventStatus=[], Resources=["vm0", 4, "", None], NotBefore=7, Description={},
        EventSource=None, DurationInSeconds="long",
    )  # fmt: skip
    assert (event.event_type, event.status, event.resources) == ("", "", ("vm0",))
    assert (event.not_before, event.description, event.source) == (None, "", "")
    assert event.duration_s is None
    assert one(Resources="vm0").resources == ("vm0",)
    assert one(Resources=None).resources == ()
    assert one(DurationInSeconds=True).duration_s is None


def test_text_that_no_process_takes_is_replaced() -> None:
    assert one(Description="a\0b\ud800c").description == "a\ufffdb\ufffdc"


@pytest.mark.parametrize(
    "body",
    [
        b"<html><body>Sign in</body></html>",
        b"{",
        b"\xff\xfe\x00",
        b"null",
        b"[]",
        b'"text"',
        b"7",
        b"{}",
        b'{"DocumentIncarnation":1}',
        b'{"DocumentIncarnation":1,"Events":null}',
        b'{"DocumentIncarnation":1,"Events":{}}',
        b'{"DocumentIncarnation":[1],"Events":[]}',
        b'{"DocumentIncarnation":true,"Events":[]}',
        b"[" * 100_000,
        b'{"DocumentIncarnation":' + b"9" * 100_000 + b',"Events":[]}',
    ],
)
def test_what_is_no_document_is_a_bad_answer(body: bytes) -> None:
    with pytest.raises(BadAnswer):
        read(body)


def test_a_bad_answer_says_what_came_and_shows_little_of_it() -> None:
    with pytest.raises(BadAnswer, match=r"no JSON \(text/html\): '<html>x+'") as caught:
        read(b"<html>" + b"x" * 10_000, **{"content-type": "text/html"})
    assert len(str(caught.value)) < 250


def test_more_events_than_any_scope_has_are_refused() -> None:
    events = [{"EventId": str(n)} for n in range(EVENTS_MAX + 1)]
    with pytest.raises(BadAnswer, match="1001 events"):
        read({"DocumentIncarnation": 1, "Events": events})
    assert len(read({"DocumentIncarnation": 1, "Events": events[1:]}).events) == EVENTS_MAX


def test_a_huge_or_strange_number_is_no_error() -> None:
    assert read(b'{"DocumentIncarnation":NaN,"Events":[]}').incarnation == "NaN"
    assert read(b'{"DocumentIncarnation":1e999,"Events":[]}').incarnation == "1e999"


def test_what_is_no_number_is_kept_as_the_text_that_was_sent() -> None:
    entry = json.dumps({**EVENT, "New": [0]}).replace("[0]", "[NaN, -Infinity, 1e999, 1.5]")
    (event,) = read(b'{"DocumentIncarnation":1,"Events":[%s]}' % entry.encode()).events
    assert event.raw["New"] == ["NaN", "-Infinity", "1e999", 1.5]
    json.dumps(event_json(event), allow_nan=False)


DEEP = json.loads("[" * 100 + "]" * 100)


@pytest.mark.parametrize(
    "fields",
    [{"New": DEEP}, {"New": "x" * 600_000}, {"Description": "\u00e4" * 400_000}],
    ids=["deep", "long", "described at length"],
)
def test_an_event_that_no_journal_would_take_is_kept_without_what_makes_it_so(fields: Any) -> None:
    event = one(**fields)
    assert (event.event_id, event.resources) == (EVENT["EventId"], ("web_0", "web_1"))
    assert len(event.description) <= DESCRIPTION_CHARS_MAX
    assert "New" not in event.raw
    assert len(json.dumps(event_json(event))) < LINE_MAX_B


def test_an_event_of_the_greatest_size_and_depth_fits_into_the_journal() -> None:
    deepest = json.loads("[" * (ENTRY_DEPTH_MAX - 1) + "]" * (ENTRY_DEPTH_MAX - 1))
    names = ["web_0", *(f"vm-{number:020}" for number in range(10_000))]
    event = one(New=deepest, Resources=names)
    assert event.raw["New"] == deepest
    assert len(event.resources) == 10_000
    assert len(json.dumps(event_json(event))) < LINE_MAX_B
    assert ENTRY_DEPTH_MAX + 3 < DEPTH_MAX


def test_an_entry_that_is_too_long_in_what_must_be_known_is_no_event() -> None:
    entry = {**EVENT, "Resources": ["x" * 400_000]}
    document = read({"DocumentIncarnation": 1, "Events": [entry, {**EVENT, "EventId": "2"}]})
    assert ([event.event_id for event in document.events], document.left_out) == (["2"], 1)


def test_refusals_are_read_whatever_their_form() -> None:
    assert error_text(b'{"error":"Bad request. api-version"}') == "Bad request. api-version"
    assert error_text(b'{"error":{"code":"x","message":"No"}}') == "No"
    assert error_text(b"BAD REQUEST") == ""
    assert newest_versions(b'{"error":"x","newest-versions":["2019-08-01",3]}') == ("2019-08-01",)
    assert newest_versions(b"[]") == ()
    assert newest_versions(b'{"newest-versions":"2019-08-01"}') == ()


def test_the_name_of_a_vm_is_read_or_empty() -> None:
    assert vm_name(b'{"name":"web_0"}') == "web_0"
    assert vm_name(b'{"name":3}') == ""
    assert vm_name(b"<html>") == ""
