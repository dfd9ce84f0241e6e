"""What an operator can look at: lists, receipts, explanations, the journal, a backup."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from forewarn.api.operator_routes import FOLLOWERS_MAX
from forewarn.core.model import MINUTE_MS
from support.operator_world import OperatorWorld, running
from support.ordered import WHY


@pytest.fixture
def world() -> Iterator[OperatorWorld]:
    with running() as world:
        yield world


def restarted(world: OperatorWorld) -> dict[str, Any]:
    """A visible Reboot of web-0."""
    world.polls("web", "web-0")
    event: dict[str, Any] = world.order("/v1/vms/web-0/restart")
    world.hosts_beat()
    return event


# Lists.


def test_lists_are_pages_in_order_of_names(world: OperatorWorld) -> None:
    first = world.get("/v1/vms?limit=3")
    rest = world.get(f"/v1/vms?limit=3&after={first['items'][-1]['name']}")

    names = [vm["name"] for page in (first, rest) for vm in page["items"]]
    assert names == ["lonely", "spotty", "web-0", "web-1"]
    assert (first["more"], rest["more"]) == (True, False)


def test_vms_of_one_scope_or_host_can_be_asked_for(world: OperatorWorld) -> None:
    of_scope = world.get("/v1/vms?scope=web")["items"]
    on_host = world.get("/v1/vms?host=h1")["items"]

    assert [vm["name"] for vm in of_scope] == ["web-0", "web-1"]
    assert [vm["name"] for vm in on_host] == ["lonely", "web-0"]


def test_ended_events_are_listed_when_asked_for(world: OperatorWorld) -> None:
    event_id = restarted(world)["event_id"]
    world.order(f"/v1/events/{event_id}/cancel")

    assert world.get("/v1/events")["items"] == []
    assert [e["event_id"] for e in world.get("/v1/events?all=true")["items"]] == [event_id]


def test_a_list_of_events_says_when_there_are_more(world: OperatorWorld) -> None:
    world.order("/v1/vms/web-0/restart")
    world.order("/v1/vms/web-1/restart")

    page = world.get("/v1/events?limit=1")

    assert len(page["items"]) == 1
    assert page["more"] is True


def test_a_vm_shows_its_open_events_and_whether_it_is_told(world: OperatorWorld) -> None:
    event = restarted(world)

    shown = world.get("/v1/vms/web-0")

    assert [e["event_id"] for e in shown["events"]] == [event["event_id"]]
    assert (shown["enabled"], world.get("/v1/vms/lonely")["enabled"]) == (True, False)


def test_a_start_that_moved_stands_in_the_list_of_events_as_in_explain(
    world: OperatorWorld,
) -> None:
    world.polls("web", "web-0")
    event_id = world.order("/v1/vms/web-0/restart")["event_id"]
    world.clock.pass_ms(5 * MINUTE_MS)  # the host has not shown it yet
    (unknown,) = world.get("/v1/events")["items"]
    world.hosts_beat()

    (listed,) = world.get("/v1/events")["items"]
    explained = world.get(f"/v1/events/{event_id}/explain")

    assert unknown["earliest_start"] is None
    assert listed["not_before"] == "2026-03-03T10:15:00.000Z"
    assert listed["earliest_start"] == explained["until"] == "2026-03-03T10:20:00.000Z"
    assert world.get(f"/v1/events/{event_id}")["earliest_start"] == listed["earliest_start"]
    world.approves("web-0", event_id)
    assert world.get(f"/v1/events/{event_id}")["earliest_start"] is None


# Receipts.


def test_the_receipt_of_an_event_that_waited_says_kept(world: OperatorWorld) -> None:
    event_id = restarted(world)["event_id"]
    world.pass_minutes(1)
    world.reads("web", event_id, "web-0")
    before = world.get(f"/v1/events/{event_id}")["receipt"]
    world.pass_minutes(14)
    world.hosts_work()

    receipt = world.get(f"/v1/events/{event_id}")["receipt"]

    assert (before["kept"], before["notice_readable_seconds"]) == ("not-yet", 60)
    assert receipt["scheduled"] == "2026-03-03T10:00:00.000Z"
    assert receipt["appeared"] == "2026-03-03T10:00:00.000Z"
    assert receipt["shown"] == "2026-03-03T10:00:00.000Z"
    assert receipt["first_reads"] == [
        {"vm": "web-0", "read": "2026-03-03T10:01:00.000Z", "notice_seconds": 840}
    ]
    assert receipt["approved"] is None
    assert receipt["started"] == receipt["ended"] == "2026-03-03T10:15:00.000Z"
    assert (receipt["notice_promised_seconds"], receipt["notice_readable_seconds"]) == (900, 900)
    assert receipt["kept"] == "yes"


def test_a_receipt_names_impacted_vms_first_and_others_that_read_it_after(
    world: OperatorWorld,
) -> None:
    event_id = restarted(world)["event_id"]
    world.reads("web", event_id, "web-1")

    reads = world.get(f"/v1/events/{event_id}")["receipt"]["first_reads"]

    assert [(read["vm"], read["read"] is not None) for read in reads] == [
        ("web-0", False),
        ("web-1", True),
    ]


def test_the_receipt_of_an_approved_event_names_who_approved_it(world: OperatorWorld) -> None:
    event_id = restarted(world)["event_id"]
    world.pass_minutes(2)
    world.order(f"/v1/events/{event_id}/approve", {"reason": "a test"})
    world.tick()

    receipt = world.get(f"/v1/events/{event_id}")["receipt"]

    assert (receipt["approved"], receipt["approved_by"]) == (
        "2026-03-03T10:02:00.000Z",
        "operator",
    )
    assert receipt["notice_readable_seconds"] == 120
    assert (receipt["kept"], receipt["why"]) == ("overridden", "by operator: a test")
    assert (receipt["overridden_by"], receipt["override_reason"]) == ("operator", "a test")
    assert receipt["first_reads"] == [{"vm": "web-0", "read": None, "notice_seconds": None}]


def test_a_receipt_tells_promised_readable_and_read_apart(world: OperatorWorld) -> None:
    world.polls("web", "web-0")
    unread, read = (world.order(f"/v1/vms/{vm}/restart")["event_id"] for vm in ("web-0", "web-1"))
    world.hosts_beat()
    world.pass_minutes(5)
    world.reads("web", read, "web-1")
    world.pass_minutes(10)
    for _ in range(2):  # one update domain after the other
        world.hosts_work()
        world.pass_minutes(15)
    by_id = {one: world.get(f"/v1/events/{one}")["receipt"] for one in (unread, read)}

    for receipt in by_id.values():
        assert receipt["notice_promised_seconds"] == 900
        assert receipt["notice_readable_seconds"] >= 900
    assert (by_id[unread]["kept"], by_id[read]["kept"]) == ("unread", "yes")
    assert (by_id[unread]["unread_by"], by_id[read]["unread_by"]) == (["web-0"], [])
    assert by_id[unread]["notice_read_seconds"] is None
    assert by_id[read]["notice_read_seconds"] >= 600
    assert "web-0 did not read it" in by_id[unread]["why"]


def test_a_vm_that_approves_without_a_get_before_has_read_the_event(world: OperatorWorld) -> None:
    event_id = restarted(world)["event_id"]
    world.hosts_beat()
    world.approves("web-0", event_id)
    world.tick()
    receipt = world.get(f"/v1/events/{event_id}")["receipt"]
    assert receipt["unread_by"] == []
    assert receipt["first_reads"][0]["read"] == receipt["approved"]


def test_an_operators_approval_is_never_said_to_have_kept_the_promise(
    world: OperatorWorld,
) -> None:
    event_id = restarted(world)["event_id"]
    world.reads("web", event_id, "web-0")
    world.pass_minutes(14)
    world.hosts_beat()
    world.order("/v1/hosts/h1/close")  # it goes on all the same
    world.order(f"/v1/events/{event_id}/approve", {"reason": "a CVE"})
    world.pass_minutes(1)
    world.hosts_work()

    shown = world.get(f"/v1/events/{event_id}")

    assert shown["receipt"]["kept"] == "overridden"
    assert (shown["overridden_by"], shown["override_reason"]) == ("operator", "a CVE")
    (line,) = world.get(f"/v1/journal?event={event_id}&kind=approved")["items"]
    assert line["detail"] == {
        "event_type": "Reboot",
        "resources": ["web-0"],
        "by_kind": "operator",
        "overridden_by": "operator",
        "reason": "a CVE",
    }


@pytest.mark.parametrize("body", [None, {"reason": ""}, {"reason": "  "}, {"reason": "a\nb"}])
def test_an_operator_who_approves_without_a_reason_is_refused(
    world: OperatorWorld, body: dict[str, object] | None
) -> None:
    event_id = restarted(world)["event_id"]

    answer = world.call("POST", f"/v1/events/{event_id}/approve", body)

    assert answer.status == 400
    assert "--reason" in answer.json["remedy"]
    assert world.get(f"/v1/events/{event_id}")["approved"] is None


def test_a_vm_that_approves_overrides_nothing(world: OperatorWorld) -> None:
    event_id = restarted(world)["event_id"]
    world.reads("web", event_id, "web-0")
    world.approves("web-0", event_id)

    shown = world.get(f"/v1/events/{event_id}")

    assert (shown["approved_by"], shown["overridden_by"]) == ("web-0", None)
    (line,) = world.get(f"/v1/journal?event={event_id}&kind=approved")["items"]
    assert line["detail"] == {"event_type": "Reboot", "resources": ["web-0"]}


def test_the_receipt_of_a_silent_event_says_that_nobody_was_told(world: OperatorWorld) -> None:
    event_id = world.order("/v1/vms/lonely/restart")["event_id"]
    world.tick()

    receipt = world.get(f"/v1/events/{event_id}")["receipt"]

    assert (receipt["appeared"], receipt["kept"]) == (None, "not-applicable")
    assert "no VM of scope lonely polled" in receipt["why"]


def test_the_receipt_of_a_failure_promises_nothing(world: OperatorWorld) -> None:
    world.polls("web", "web-0")
    event = world.order("/v1/hosts/h1/fail", {"force": True, "reason": WHY})["events"][0]

    receipt = world.get(f"/v1/events/{event['event_id']}")["receipt"]

    assert receipt["kept"] == "not-applicable"
    assert "failure" in receipt["why"]


def test_the_receipt_of_a_canceled_event_is_not_applicable(world: OperatorWorld) -> None:
    event_id = restarted(world)["event_id"]
    world.order(f"/v1/events/{event_id}/cancel")

    assert world.get(f"/v1/events/{event_id}")["receipt"]["kept"] == "not-applicable"


def test_an_event_that_was_silent_appears_in_its_receipt_when_the_scope_is_enabled(
    world: OperatorWorld,
) -> None:
    answer = world.order("/v1/hosts/h2/maintain", {"event_type": "Reboot", "not_before": "+1h"})
    world.pass_minutes(5)
    world.polls("web", "web-1")
    event_id = answer["events"][0]["event_id"]

    receipt = world.get(f"/v1/events/{event_id}")["receipt"]

    assert receipt["scheduled"] == "2026-03-03T10:00:00.000Z"
    assert receipt["appeared"] == "2026-03-03T10:05:00.000Z"


# Explanations.


def test_an_event_is_explained_by_what_holds_it_until_when_and_what_frees_it(
    world: OperatorWorld,
) -> None:
    event_id = restarted(world)["event_id"]

    explained = world.get(f"/v1/events/{event_id[:6].lower()}/explain")

    (hold,) = explained["holds"]
    assert explained["event_id"] == event_id
    assert explained["phase"] == "scheduled"
    assert hold["reason"] == "consent"
    assert hold["since"] == "2026-03-03T10:00:00.000Z"
    assert hold["until"] == explained["until"] == "2026-03-03T10:15:00.000Z"
    assert f"forewarn event approve {event_id}" in hold["remedy"]


def test_a_started_event_is_explained_by_the_host_at_work(world: OperatorWorld) -> None:
    event_id = restarted(world)["event_id"]
    world.order(f"/v1/events/{event_id}/approve", {"reason": "a test"})
    world.tick()

    explained = world.get(f"/v1/events/{event_id}/explain")

    assert (explained["phase"], explained["holds"][0]["reason"]) == ("started", "unclaimed")


def test_an_ended_event_waits_for_nothing(world: OperatorWorld) -> None:
    event_id = restarted(world)["event_id"]
    world.order(f"/v1/events/{event_id}/cancel")

    explained = world.get(f"/v1/events/{event_id}/explain")

    assert (explained["phase"], explained["holds"], explained["until"]) == ("canceled", [], None)


def test_an_operation_is_explained_by_every_scope_that_has_not_consented(
    world: OperatorWorld,
) -> None:
    world.polls("web", "web-0")
    world.polls("lonely", "lonely")
    operation = world.order("/v1/hosts/h1/maintain", {"event_type": "Reboot"})
    world.hosts_beat()

    explained = world.get(f"/v1/operations/{operation['operation_id']}/explain")

    assert explained["phase"] == "waiting"
    assert [hold["reason"] for hold in explained["holds"]] == ["consent", "consent"]
    assert {"scope lonely", "scope web"} == {
        " ".join(hold["what"].split()[:2]) for hold in explained["holds"]
    }


def test_an_ended_operation_waits_for_nothing(world: OperatorWorld) -> None:
    operation = world.order("/v1/hosts/h1/maintain", {"event_type": "Reboot"})
    world.order(f"/v1/events/{operation['events'][0]['event_id']}/cancel")

    explained = world.get(f"/v1/operations/{operation['operation_id']}/explain")

    assert (explained["phase"], explained["outcome"]) == ("ended", "canceled")


# The journal.


def test_the_journal_tells_the_whole_story_of_an_event(world: OperatorWorld) -> None:
    event_id = restarted(world)["event_id"]
    world.order(f"/v1/events/{event_id}/approve", {"reason": "a test"})
    world.tick()
    world.hosts_work()

    lines = world.get(f"/v1/journal?event={event_id}")["items"]

    assert [line["kind"] for line in lines] == [
        "scheduled",
        "confirmed",
        "approved",
        "started",
        "claimed",
        "reported",
        "completed",
    ]
    assert lines[0]["by"] == lines[2]["by"] == "operator"
    numbers = [line["number"] for line in lines]
    assert numbers == sorted(numbers)


def test_the_journal_is_read_on_from_its_end_without_gap_or_repetition(
    world: OperatorWorld,
) -> None:
    restarted(world)
    whole = world.get("/v1/journal?limit=1000")["items"]
    read: list[dict[str, Any]] = []
    after, more = 0, True
    while more:
        page = world.get(f"/v1/journal?limit=2&after={after}")
        read += page["items"]
        after, more = page["end"], page["more"]

    assert read == whole
    assert world.get(f"/v1/journal?after={after}")["items"] == []


def test_the_journal_of_a_scope_holds_no_other_scopes_lines(world: OperatorWorld) -> None:
    restarted(world)
    world.order("/v1/vms/lonely/restart")

    lines = world.get("/v1/journal?scope=lonely")["items"]

    assert lines
    assert {line["scope"] for line in lines} == {"lonely"}


def test_a_follower_is_answered_as_soon_as_a_line_is_added(world: OperatorWorld) -> None:
    end = world.get("/v1/journal?limit=1000")["end"]
    found: list[Any] = []
    feed_reader = threading.Thread(
        target=lambda: found.append(world.get(f"/v1/journal?after={end}&wait=15"))
    )
    feed_reader.start()
    world.order("/v1/hosts/h1/close")
    feed_reader.join(60)

    assert not feed_reader.is_alive()
    assert [line["kind"] for line in found[0]["items"]] == ["host-closed"]


def test_a_follower_is_answered_empty_when_nothing_happens_in_time(world: OperatorWorld) -> None:
    end = world.get("/v1/journal?limit=1000")["end"]

    page = world.get(f"/v1/journal?after={end}&wait=1")

    assert (page["items"], page["end"]) == ([], end)


def test_a_follower_is_let_go_when_the_service_stops(world: OperatorWorld) -> None:
    end = world.get("/v1/journal?limit=1000")["end"]
    found: list[Any] = []
    feed_reader = threading.Thread(
        target=lambda: found.append(world.get(f"/v1/journal?after={end}&wait=30"))
    )
    feed_reader.start()

    world.loop.call_soon_threadsafe(world.doorbell.close)

    feed_reader.join(25)  # before its wait is over
    assert not feed_reader.is_alive()
    assert found[0]["items"] == []


def test_more_followers_than_the_limit_are_answered_at_once(world: OperatorWorld) -> None:
    end = world.get("/v1/journal?limit=1000")["end"]
    path = f"/v1/journal?after={end}&wait=30"
    answered: list[Any] = []
    threads = [
        threading.Thread(target=lambda: answered.append(world.get(path)))
        for _ in range(FOLLOWERS_MAX + 1)
    ]
    for thread in threads:
        thread.start()
    while not answered:
        threads[0].join(0.01)

    assert answered[0]["items"] == []
    world.order("/v1/hosts/h1/close")
    for thread in threads:
        thread.join(25)  # before its wait is over
    assert len(answered) == FOLLOWERS_MAX + 1


# The service.


def test_a_backup_is_a_whole_database_with_what_was_committed(
    world: OperatorWorld, tmp_path: Path
) -> None:
    world.order("/v1/hosts/h1/close")
    target = tmp_path / "copy.db"

    target.write_bytes(world.call("GET", "/v1/backup").body)

    with closing(sqlite3.connect(target)) as copy:
        assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert copy.execute("SELECT closed FROM host WHERE name = 'h1'").fetchone() == (1,)


def test_health_names_the_hosts_that_are_silent(world: OperatorWorld) -> None:
    assert world.get("/v1/health")["hosts_silent"] == []

    world.clock.pass_ms(60_000)

    assert world.get("/v1/health")["hosts_silent"] == ["h1", "h2", "h3"]
