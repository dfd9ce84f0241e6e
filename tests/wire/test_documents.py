"""What a guest reads, byte for byte, at every api-version.

The golden files are `golden/<api-version>/<name>.json`. After a change that is meant, write them
anew with `FOREWARN_WRITE_GOLDEN=1 python -m pytest tests/wire/test_documents.py` and read the
difference before committing it. With CI set this is refused: CI compares, it never writes.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from forewarn.core.model import EventType, Scope, ScopeKind
from forewarn.wire.api_versions import API_VERSIONS, NEWEST, ApiVersion
from forewarn.wire.documents import http_date, not_before_text
from support.shown_scopes import render, shown_event_ids
from support.wire_samples import FREEZE, GOLDEN_SCOPES, STARTED, scope

GOLDEN = Path(__file__).parent / "golden"
WRITE = "FOREWARN_WRITE_GOLDEN"
PREVIEW = API_VERSIONS["2017-03-01"]

every_version = pytest.mark.parametrize("version", API_VERSIONS.values(), ids=lambda v: v.name)


@pytest.fixture
def writing() -> bool:
    """Whether golden files are to be written rather than compared."""
    if not os.environ.get(WRITE):
        return False
    if os.environ.get("CI"):
        pytest.fail(f"{WRITE} is set in CI; golden files are written by people and reviewed")
    return True


@every_version
@pytest.mark.parametrize("name", GOLDEN_SCOPES)
def test_a_document_is_byte_for_byte_its_golden_file(
    name: str, version: ApiVersion, *, writing: bool
) -> None:
    path = GOLDEN / version.name / f"{name}.json"
    rendered = render(GOLDEN_SCOPES[name], version)
    if writing:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(rendered)
    assert rendered == path.read_bytes()


def test_every_golden_file_is_compared() -> None:
    on_disk = {path.relative_to(GOLDEN).as_posix() for path in GOLDEN.rglob("*") if path.is_file()}
    assert on_disk == {f"{v}/{name}.json" for v in API_VERSIONS for name in GOLDEN_SCOPES}


def test_the_newest_document_has_the_field_order_of_the_real_service() -> None:
    """Written out by hand from contract 1.5, so that the golden files are not their own judge."""
    assert render(scope(FREEZE), NEWEST) == (
        b'{"DocumentIncarnation":7,"Events":[{'
        b'"EventId":"0F1E2D3C-4B5A-6978-8796-A5B4C3D2E1F0",'
        b'"EventStatus":"Scheduled",'
        b'"EventType":"Freeze",'
        b'"ResourceType":"VirtualMachine",'
        b'"Resources":["web_0","web_1"],'
        b'"NotBefore":"Tue, 03 Mar 2026 10:15:00 GMT",'
        b'"Description":"Host server is undergoing maintenance.",'
        b'"EventSource":"Platform",'
        b'"DurationInSeconds":5}]}'
    )


def test_the_preview_document_has_an_iso_time_and_underscores() -> None:
    assert render(scope(FREEZE), PREVIEW) == (
        b'{"DocumentIncarnation":7,"Events":[{'
        b'"EventId":"0F1E2D3C-4B5A-6978-8796-A5B4C3D2E1F0",'
        b'"EventStatus":"Scheduled",'
        b'"EventType":"Freeze",'
        b'"ResourceType":"VirtualMachine",'
        b'"Resources":["_web_0","_web_1"],'
        b'"NotBefore":"2026-03-03T10:15:00Z"}]}'
    )


@every_version
def test_an_empty_document_holds_an_empty_array(version: ApiVersion) -> None:
    assert render(GOLDEN_SCOPES["empty"], version) == b'{"DocumentIncarnation":1,"Events":[]}'


@every_version
def test_not_before_is_blank_but_present_once_started(version: ApiVersion) -> None:
    (event,) = json.loads(render(scope(STARTED), version))["Events"]
    assert event["EventStatus"] == "Started"
    assert event["NotBefore"] == ""


@every_version
def test_newer_fields_are_absent_not_null(version: ApiVersion) -> None:
    (event,) = json.loads(render(scope(FREEZE), version))["Events"]
    assert ("Description" in event) is version.shows_description
    assert ("EventSource" in event) is version.shows_event_source
    assert ("DurationInSeconds" in event) is version.shows_duration
    assert None not in event.values()


@every_version
def test_types_a_version_does_not_know_are_hidden_and_the_incarnation_is_the_same(
    version: ApiVersion,
) -> None:
    document = json.loads(render(GOLDEN_SCOPES["all-types"], version))
    shown = [event["EventType"] for event in document["Events"]]
    assert shown == [kind.value for kind in EventType if kind in version.event_types]
    assert document["DocumentIncarnation"] == 7


@pytest.mark.parametrize("kind", ScopeKind)
@every_version
def test_the_underscore_is_for_the_preview_and_not_for_cloud_services(
    kind: ScopeKind, version: ApiVersion
) -> None:
    (event,) = json.loads(render(scope(FREEZE, kind=kind), version))["Events"]
    marked = version is PREVIEW and kind is not ScopeKind.CLOUD_SERVICE
    assert event["Resources"] == (["_web_0", "_web_1"] if marked else ["web_0", "web_1"])


def test_an_event_id_is_shown_in_upper_case() -> None:
    lower = replace(FREEZE, event_id=FREEZE.event_id.lower())
    (event,) = json.loads(render(scope(lower), NEWEST))["Events"]
    assert event["EventId"] == FREEZE.event_id
    assert shown_event_ids(scope(lower), NEWEST) == {FREEZE.event_id}


@every_version
@pytest.mark.parametrize("name", GOLDEN_SCOPES)
def test_the_shown_ids_are_exactly_those_in_the_document(name: str, version: ApiVersion) -> None:
    shown: Scope = GOLDEN_SCOPES[name]
    events = json.loads(render(shown, version))["Events"]
    assert shown_event_ids(shown, version) == {event["EventId"] for event in events}


def test_names_survive_json_escaping() -> None:
    (event,) = json.loads(render(GOLDEN_SCOPES["json-escapes"], NEWEST))["Events"]
    assert tuple(event["Resources"]) == GOLDEN_SCOPES["json-escapes"].events[0].resources


def test_fractions_of_a_second_are_cut_so_nothing_starts_before_its_text() -> None:
    assert not_before_text(1_474_309_787_999, NEWEST) == "Mon, 19 Sep 2016 18:29:47 GMT"
    assert not_before_text(1_474_309_787_999, PREVIEW) == "2016-09-19T18:29:47Z"


def test_every_day_of_four_years_has_its_right_week_day() -> None:
    """Against the standard library's own RFC 1123 writer, leap year included."""
    for day in range(4 * 366):
        at = datetime(2023, 1, 1, 23, 59, 59, tzinfo=UTC) + timedelta(days=day)
        assert http_date(int(at.timestamp())) == format_datetime(at, usegmt=True)
