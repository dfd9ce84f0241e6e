"""Lists of events, operations and lines: pages that go on, and what can be asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from support import fleets
from support.operator_world import FLEET, OperatorWorld, running

MANY = 1_100  # more than a page may have


@pytest.fixture
def world() -> Iterator[OperatorWorld]:
    with running() as world:
        yield world


def crowded(world: OperatorWorld) -> str:
    """A host that is going to be rebooted, with more VMs than a page has; its operation."""
    many = "".join(
        fleets.alone(f"m{n:04}", host="h3", address=f"10.1.{n // 200}.{n % 200}")
        for n in range(MANY)
    )
    assert world.call("POST", "/v1/inventory", FLEET + many).status == 200
    operation: str = world.order("/v1/hosts/h3/maintain", {"event_type": "Reboot"})["operation_id"]
    return operation


def ids(page: dict[str, Any]) -> list[str]:
    return [one.get("event_id") or one.get("operation_id") for one in page["items"]]


def test_a_list_of_events_goes_on_after_a_thousand(world: OperatorWorld) -> None:
    crowded(world)

    first = world.get("/v1/events?limit=1000")
    rest = world.get(f"/v1/events?limit=1000&after={first['next']}")

    found = [*ids(first), *ids(rest)]
    assert len(found) == len(set(found)) == MANY + 1  # and the spot VM of h3
    assert (first["more"], rest["more"], rest["next"]) == (True, False, None)


def test_what_ends_between_two_pages_is_neither_shown_twice_nor_hides_another(
    world: OperatorWorld,
) -> None:
    events = [world.order(f"/v1/vms/{vm}/restart") for vm in ("web-0", "web-1", "lonely", "spotty")]
    first = world.get("/v1/events?limit=2")
    for event in events[::3]:
        world.order(f"/v1/events/{event['event_id']}/cancel")

    rest = world.get(f"/v1/events?limit=2&after={first['next']}")

    assert ids(first) == [events[3]["event_id"], events[2]["event_id"]]
    assert ids(rest) == [events[1]["event_id"]]


@pytest.mark.parametrize("path", ["/v1/events", "/v1/operations"])
@pytest.mark.parametrize("after", ["web-0", "-1", "9" * 30, "\u0661"])
def test_an_after_that_no_list_has_given_is_refused(
    world: OperatorWorld, path: str, after: str
) -> None:
    answer = world.call("GET", f"{path}?after={quote(after)}")

    assert answer.status == 400
    assert "Send the `next` of the page before." in answer.json["remedy"]


def test_events_operations_and_lines_are_found_by_what_they_are_about(
    world: OperatorWorld,
) -> None:
    tagged = FLEET.replace('name = "web-1"\n', 'name = "web-1"\ntags = { team = "blue" }\n')
    assert world.call("POST", "/v1/inventory", tagged).status == 200
    restart = world.order("/v1/vms/web-0/restart")["event_id"]
    world.pass_minutes(60)
    freeze = world.order("/v1/hosts/h2/maintain", {"event_type": "Freeze"})
    (frozen,) = [one["event_id"] for one in freeze["events"]]
    operation = freeze["operation_id"]

    def events(query: str) -> list[str]:
        return ids(world.get(f"/v1/events?all=true&{query}"))

    for query in ("host=h1", "vm=web-0", "type=Reboot", "cause=order", "until=-30m"):
        assert events(query) == [restart], query
    for query in ("host=h2", "vm=web-1", "tag=team=blue", "type=Freeze", "cause=maintenance"):
        assert events(query) == [frozen], query
        assert ids(world.get(f"/v1/operations?{query}")) == [operation], query
    assert events("since=-30m") == [frozen]
    assert events("since=2026-03-03T10:30:00Z") == [frozen]
    assert events("by=operator&scope=web") == [frozen, restart]
    assert events("by=nobody") == []
    lines = world.get("/v1/journal?tag=team=blue&kind=scheduled")["items"]
    assert [line["event_id"] for line in lines] == [frozen]
    about = world.get("/v1/journal?type=Reboot&by=operator")["items"]
    assert {line["event_id"] for line in about} == {restart}


def test_a_phase_finds_what_has_ended_without_asking_for_all(world: OperatorWorld) -> None:
    event_id = world.order("/v1/vms/web-0/restart")["event_id"]
    world.order("/v1/vms/web-1/restart")
    world.order(f"/v1/events/{event_id}/cancel")

    assert ids(world.get("/v1/events?phase=canceled")) == [event_id]


@pytest.mark.parametrize(
    ("path", "wrong", "accepted"),
    [
        ("/v1/events?type=Reset", "Reset", "Freeze, Reboot, Redeploy, Preempt, Terminate"),
        ("/v1/events?phase=ended", "ended", "scheduled, started, completed"),
        ("/v1/operations?phase=completed", "completed", "waiting, started, ended"),
        ("/v1/journal?kind=begun", "begun", "started"),
        ("/v1/events?tag=team", "team", "KEY=VALUE"),
        ("/v1/events?since=yesterday", "yesterday", "-2h"),
        ("/v1/journal?until=2026-03-03T10:00:00", "no zone", "-2h"),
    ],
)
def test_a_filter_that_is_not_understood_is_refused_with_what_would_be(
    world: OperatorWorld, path: str, wrong: str, accepted: str
) -> None:
    answer = world.call("GET", path)

    assert answer.status == 400
    assert wrong in answer.json["detail"]
    assert accepted in answer.json["remedy"]


def test_an_id_is_found_by_its_beginning_however_much_has_ended_since(
    world: OperatorWorld,
) -> None:
    old = world.order("/v1/vms/web-0/restart")["event_id"]
    world.order(f"/v1/events/{old}/cancel")
    event_id = world.get(f"/v1/operations/{crowded(world)}")["events"][0]["event_id"]
    world.order(f"/v1/events/{event_id}/cancel")  # and its operation, with all its events

    assert world.get(f"/v1/events/{old[:8]}")["event_id"] == old
