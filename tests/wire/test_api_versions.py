"""The table of api-versions holds what the contract says, and the two lists stay apart."""

from __future__ import annotations

import json

import pytest

from forewarn.core.model import EventType
from forewarn.wire import api_versions, documents

HOST_TYPES = {EventType.FREEZE, EventType.REBOOT, EventType.REDEPLOY}


def test_the_seven_versions_are_those_of_the_contract_oldest_first() -> None:
    assert list(api_versions.API_VERSIONS) == [
        "2017-03-01",
        "2017-08-01",
        "2017-11-01",
        "2019-01-01",
        "2019-04-01",
        "2019-08-01",
        "2020-07-01",
    ]
    assert all(name == version.name for name, version in api_versions.API_VERSIONS.items())


def test_the_version_that_clients_probe_for_is_not_answered() -> None:
    assert "2024-07-09" not in api_versions.API_VERSIONS
    assert "latest" not in api_versions.API_VERSIONS


@pytest.mark.parametrize(
    ("name", "types", "fields"),
    [
        ("2017-03-01", HOST_TYPES, (False, False, False)),
        ("2017-08-01", HOST_TYPES, (False, False, False)),
        ("2017-11-01", HOST_TYPES | {EventType.PREEMPT}, (False, False, False)),
        ("2019-01-01", set(EventType), (False, False, False)),
        ("2019-04-01", set(EventType), (True, False, False)),
        ("2019-08-01", set(EventType), (True, True, False)),
        ("2020-07-01", set(EventType), (True, True, True)),
    ],
)
def test_each_version_shows_the_types_and_fields_of_contract_1_6(
    name: str, types: set[EventType], fields: tuple[bool, bool, bool]
) -> None:
    version = api_versions.API_VERSIONS[name]
    assert version.event_types == types
    assert (version.shows_description, version.shows_event_source, version.shows_duration) == fields


def test_only_the_preview_has_the_ways_of_the_preview() -> None:
    for name, version in api_versions.API_VERSIONS.items():
        preview = name == "2017-03-01"
        assert version.header_required is not preview
        assert version.underscore is preview
        assert version.iso_not_before is preview


def test_the_newest_versions_are_named_newest_first() -> None:
    assert api_versions.NEWEST.name == "2020-07-01"
    assert api_versions.NEWEST_THREE == ("2020-07-01", "2019-08-01", "2019-04-01")
    assert api_versions.INSTANCE_NEWEST_THREE == ("2025-04-07", "2024-07-17", "2024-03-15")


def test_the_instance_list_is_a_different_one_and_ascends() -> None:
    instance = api_versions.INSTANCE_VERSIONS
    assert len(instance) == 35
    assert list(instance) == sorted(set(instance))
    both = set(instance) & set(api_versions.API_VERSIONS)
    assert both == {"2017-03-01", "2017-08-01", "2019-08-01"}


def test_metadata_versions_lists_the_instance_versions_ascending() -> None:
    answer = json.loads(documents.VERSIONS_BODY)
    assert answer == {"apiVersions": list(api_versions.INSTANCE_VERSIONS)}
