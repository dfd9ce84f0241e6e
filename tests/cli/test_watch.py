"""The live view, and times as people read them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from forewarn.cli import times
from forewarn.cli.watch import Picture
from forewarn.text.durations import span
from support.cli_runner import ask
from support.operator_world import OperatorWorld, running

NOW = datetime(2026, 3, 3, 10, 0, tzinfo=UTC)


@pytest.fixture
def world() -> Iterator[OperatorWorld]:
    with running() as world:
        yield world


def test_the_view_shows_open_events_operations_and_the_newest_lines(world: OperatorWorld) -> None:
    world.polls("web", "web-0")
    event_id = world.order("/v1/vms/web-0/restart")["event_id"]
    operation_id = world.order("/v1/hosts/h1/maintain", {"event_type": "Freeze"})["operation_id"]

    ran = ask(world, "watch", "--for", "0")

    assert ran.code == 0
    assert "2026-03-03 10:00:0" in ran.out
    assert event_id[:8] in ran.out
    assert operation_id[:8] in ran.out
    assert "scheduled" in ran.out


def test_countdowns_tick_between_looks() -> None:
    picture = Picture(events=[], operations=[], lines=[], end=0, now=NOW, seen_s=100.0)

    assert picture.time_now(100.0) == NOW
    assert picture.time_now(101.0) == NOW + timedelta(seconds=1)


def test_the_view_as_json_is_one_line_for_each_change(world: OperatorWorld) -> None:
    event_id = world.order("/v1/vms/web-0/restart")["event_id"]

    ran = ask(world, "watch", "--for", "0", "--json")

    assert ran.json["events"][0]["event_id"] == event_id


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.9, "0s"),
        (59, "59s"),
        (60, "1m"),
        (872, "14m 32s"),
        (3_600, "1h"),
        (3_605, "1h"),
        (7_260, "2h 1m"),
        (7 * 86_400, "7d"),
        (7 * 86_400 - 1, "6d 23h"),
    ],
)
def test_a_length_of_time_is_said_by_its_two_largest_units(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_times_are_utc_with_how_far_away_they_are() -> None:
    assert times.both("2026-03-03T10:14:32.000Z", NOW) == "10:14:32, in 14m 32s"
    assert times.both("2026-03-03T09:59:55.000Z", NOW) == "09:59:55, 5s ago"
    assert times.both("2026-03-03T10:00:00.000Z", NOW) == "10:00:00, now"
    assert times.both("2026-03-10T10:00:00.000Z", NOW) == "2026-03-10 10:00:00, in 7d"
