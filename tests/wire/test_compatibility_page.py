"""docs/compatibility.md says what the tables say: no version and no field can be forgotten."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import fields

from forewarn.core.model import EventType
from forewarn.wire.api_versions import API_VERSIONS, INSTANCE_VERSIONS, ApiVersion
from forewarn.wire.approvals import START_REQUESTS_MAX
from forewarn.wire.instance import COMPUTE_SINCE

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"
FACT_ID = re.compile(r"\b[A-Z][0-9]+\b|contract [0-9]")


def yes(*, it_is: bool) -> str:
    return "yes" if it_is else "no"


# Every field of ApiVersion has a column, in the order of the page.
COLUMNS: dict[str, Callable[[ApiVersion], str]] = {
    "name": lambda v: v.name,
    "event_types": lambda v: " ".join(kind.value for kind in EventType if kind in v.event_types),
    "shows_description": lambda v: yes(it_is=v.shows_description),
    "shows_event_source": lambda v: yes(it_is=v.shows_event_source),
    "shows_duration": lambda v: yes(it_is=v.shows_duration),
    "header_required": lambda v: yes(it_is=v.header_required),
    "underscore": lambda v: yes(it_is=v.underscore),
    "iso_not_before": lambda v: "ISO 8601" if v.iso_not_before else "RFC 1123",
}


def rows(after: str) -> list[list[str]]:
    """The cells of the first table after a marker or heading, without its two head lines."""
    _, found, rest = PAGE.read_text(encoding="utf-8").partition(after)
    assert found, f"the page has no {after!r}"
    table = re.search(r"(?:^\|.*\n)+", rest, re.MULTILINE)
    assert table, f"there is no table after {after!r}"
    lines = table[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_field_of_an_api_version_has_a_column() -> None:
    assert list(COLUMNS) == [field.name for field in fields(ApiVersion)]


def test_the_page_has_exactly_the_rows_of_the_table_of_api_versions() -> None:
    expected = [[show(version) for show in COLUMNS.values()] for version in API_VERSIONS.values()]
    assert rows("<!-- scheduledevents:") == expected


def test_the_page_has_exactly_the_instance_versions() -> None:
    paragraph = PAGE.read_text(encoding="utf-8").partition("<!-- instance-versions:")[2]
    listed = re.findall(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", paragraph.split("\n\n")[0])
    assert tuple(listed) == INSTANCE_VERSIONS


def test_the_page_has_every_field_of_compute_with_its_first_version() -> None:
    listed = rows("<!-- compute:")
    assert [(field, since) for field, since, _ in listed] == list(COMPUTE_SINCE.items())
    assert all(meaning for _, _, meaning in listed)


def test_every_extension_says_how_to_detect_it() -> None:
    for extension in rows("## What we add"):
        assert len(extension) == 3, extension
        assert all(extension), extension


@pytest.mark.parametrize("heading", ["## What we add", "## Where we decided"])
def test_every_extension_and_decision_names_its_facts(heading: str) -> None:
    for row in rows(heading):
        assert FACT_ID.search(" ".join(row[1:])), f"{row[0]} names no fact"


def test_the_limit_on_the_page_is_the_limit_in_the_code() -> None:
    assert f"at most {START_REQUESTS_MAX:,} in one body" in PAGE.read_text(encoding="utf-8")
