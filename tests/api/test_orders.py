"""Orders: what they do, what they answer, and that a key makes them happen once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from forewarn.adapters.sqlite.database import Database
from forewarn.adapters.sqlite.store import SqliteStore
from forewarn.control.event_ids import only_one
from forewarn.core.errors import Invalid
from forewarn.core.model import Outcome
from forewarn.ports import Batch, Fence, StoreFailed
from support.events import KEYS_OF_AN_EVENT
from support.operator_world import FLEET, OperatorWorld, running
from support.ordered import WHY


@pytest.fixture
def world() -> Iterator[OperatorWorld]:
    with running() as world:
        yield world


@pytest.mark.parametrize(
    ("vm", "verb", "event_type", "source"),
    [
        ("web-0", "restart", "Reboot", "User"),
        ("web-0", "redeploy", "Redeploy", "User"),
        ("web-0", "delete", "Terminate", "User"),
        ("spotty", "evict", "Preempt", "Platform"),
    ],
)
def test_an_order_for_a_vm_answers_its_event(
    world: OperatorWorld, vm: str, verb: str, event_type: str, source: str
) -> None:
    answer = world.order(f"/v1/vms/{vm}/{verb}")

    assert answer.keys() >= KEYS_OF_AN_EVENT
    assert (answer["event_type"], answer["event_source"]) == (event_type, source)
    assert answer["resources"] == [vm]
    assert answer["phase"] == "scheduled"
    assert world.get("/v1/events")["items"][0]["event_id"] == answer["event_id"]


def test_an_order_tells_who_is_silent(world: OperatorWorld) -> None:
    world.polls("web", "web-0")

    assert world.order("/v1/vms/web-0/restart")["silent_scopes"] == []
    assert world.order("/v1/vms/lonely/restart")["silent_scopes"] == ["lonely"]


def test_maintaining_a_host_answers_the_operation_its_events_and_who_is_silent(
    world: OperatorWorld,
) -> None:
    world.polls("web", "web-0")

    answer = world.order("/v1/hosts/h1/maintain", {"event_type": "Freeze", "not_before": "+2h"})

    assert answer["phase"] == "waiting"
    assert {event["scope"] for event in answer["events"]} == {"web", "lonely"}
    assert {event["not_before"] for event in answer["events"]} == {"2026-03-03T12:00:00.000Z"}
    assert answer["silent_scopes"] == ["lonely"]
    shown = world.get(f"/v1/operations/{answer['operation_id'][:8]}")
    assert shown["silent_scopes"] == ["lonely"]
    assert [event["event_id"] for event in shown["events"]] == [
        event["event_id"] for event in answer["events"]
    ]


def test_a_freeze_may_say_its_length_and_its_description(world: OperatorWorld) -> None:
    said = {"event_type": "Freeze", "duration_seconds": 30, "description": "New firmware."}

    answer = world.order("/v1/hosts/h1/maintain", said)

    assert (answer["duration_seconds"], answer["description"]) == (30, "New firmware.")
    assert {(e["duration_seconds"], e["description"]) for e in answer["events"]} == {
        (30, "New firmware.")
    }


def test_only_a_freeze_has_a_length_and_no_description_has_control_characters(
    world: OperatorWorld,
) -> None:
    for said in (
        {"event_type": "Reboot", "duration_seconds": 30},
        {"event_type": "Freeze", "duration_seconds": 601},
        {"event_type": "Freeze", "description": "a\u0007b"},
    ):
        refused = world.call("POST", "/v1/hosts/h1/maintain", said)
        assert (refused.status, refused.json["code"]) == (400, "invalid")
        assert refused.json["remedy"]
    assert world.get("/v1/operations")["items"] == []


@pytest.mark.parametrize("twice", ["Freeze", "Reboot"])
def test_a_body_that_has_a_key_twice_is_refused_with_the_key_and_orders_nothing(
    world: OperatorWorld, twice: str
) -> None:
    body = f'{{"event_type": "Freeze", "event\\u005ftype": "{twice}"}}'  # the same key, escaped

    refused = world.call("POST", "/v1/hosts/h1/maintain", body)

    assert (refused.status, refused.json["code"]) == (400, "invalid")
    assert "'event_type' twice" in refused.json["detail"]
    assert refused.json["remedy"] == "Say each key once."
    assert world.get("/v1/operations")["items"] == []


def test_the_last_second_that_dates_can_hold_is_taken_and_what_follows_is_refused(
    world: OperatorWorld,
) -> None:
    world.polls("web", "web-0")
    last = {"event_type": "Freeze", "not_before": "9999-12-31T23:59:59Z"}
    beyond = {"event_type": "Freeze", "not_before": "9999-12-31T23:59:59.001Z"}

    refused = world.call("POST", "/v1/hosts/h1/maintain", beyond)
    answer = world.order("/v1/hosts/h1/maintain", last)

    assert refused.status == 400
    assert {event["not_before"] for event in answer["events"]} == {"9999-12-31T23:59:59.000Z"}


def test_a_host_that_carries_two_domains_is_refused_unless_the_operator_accepts(
    world: OperatorWorld,
) -> None:
    both = FLEET.replace('host = "h2"', 'host = "h1"')
    with running(fleet=both) as crowded:
        refused = crowded.call("POST", "/v1/hosts/h1/maintain", {"event_type": "Reboot"})
        accepted = crowded.order(
            "/v1/hosts/h1/maintain", {"event_type": "Reboot", "break_domains": True, "reason": WHY}
        )

    assert (refused.status, refused.json["code"]) == (409, "two-domains-on-host")
    assert "web" in refused.json["detail"]
    assert accepted["broke_domains_by"] == "operator"


def test_a_host_is_closed_and_opened_again(world: OperatorWorld) -> None:
    closed = world.order("/v1/hosts/h2/close")

    assert closed["closed"] is True
    assert closed in world.get("/v1/hosts")["items"]
    assert world.get("/v1/hosts/h2")["revision"] == closed["revision"]
    assert world.order("/v1/hosts/h2/open")["closed"] is False


def test_a_failed_host_answers_the_events_of_its_vms(world: OperatorWorld) -> None:
    answer = world.order("/v1/hosts/h1/fail", {"fenced": True, "force": True, "reason": WHY})

    assert (answer["health"], answer["fenced"]) == ("failed", True)
    assert {event["scope"] for event in answer["events"]} == {"web", "lonely"}
    assert {event["phase"] for event in answer["events"]} == {"started"}
    assert answer["silent_scopes"] == ["lonely", "web"]
    assert world.order("/v1/hosts/h1/repair")["health"] == "ok"


def test_degrading_a_host_moves_its_vms_a_week_ahead(world: OperatorWorld) -> None:
    answer = world.order("/v1/hosts/h1/degrade")

    assert (answer["event_type"], answer["cause"]) == ("Redeploy", "degraded")
    assert {event["not_before"] for event in answer["events"]} == {"2026-03-10T10:00:00.000Z"}


def test_approving_and_canceling_answer_the_event_as_it_is_then(world: OperatorWorld) -> None:
    world.polls("web", "web-0")
    event_id = world.order("/v1/vms/web-0/restart")["event_id"]

    approved = world.order(f"/v1/events/{event_id.lower()}/approve", {"reason": "a test"})
    canceled = world.order(f"/v1/events/{event_id[:6]}/cancel")

    assert (approved["phase"], approved["approved_by"]) == ("scheduled", "operator")
    assert canceled["phase"] == "canceled"
    assert world.get(f"/v1/events/{event_id}")["phase"] == "canceled"
    assert world.call("POST", f"/v1/events/{event_id}/cancel").status == 409


def test_an_event_is_named_by_six_characters_in_any_case_and_not_by_fewer(
    world: OperatorWorld,
) -> None:
    event_id = world.order("/v1/vms/web-0/restart")["event_id"]
    world.order("/v1/vms/lonely/restart")

    assert world.get(f"/v1/events/{event_id[:6].lower()}")["event_id"] == event_id
    assert world.call("GET", f"/v1/events/{event_id[:5]}").status == 400


def test_a_beginning_that_several_events_share_is_refused_with_their_ids() -> None:
    with pytest.raises(Invalid, match="2 events begin with ABCDEF: ABCDEF01, ABCDEF02"):
        only_one("ABCDEF", ["ABCDEF01", "ABCDEF02", "0BCDEF03"], noun="event")


def test_a_held_scope_is_released(world: OperatorWorld) -> None:
    world.order("/v1/hosts/h3/maintain", {"event_type": "Redeploy"})
    world.tick()
    world.hosts_work(Outcome.FAILED)
    held = world.get("/v1/scopes/spotty")
    assert held["hold"]

    released = world.order("/v1/scopes/spotty/release")

    assert released["hold"] is None
    assert released == world.get("/v1/scopes/spotty")


# Idempotency.


def test_a_replay_of_an_inventory_that_another_replaced_says_so(world: OperatorWorld) -> None:
    def send(text: str, key: str) -> tuple[dict[str, object], bool]:
        answer = world.call("POST", "/v1/inventory", text, headers={"Idempotency-Key": key})
        assert answer.status == 200
        return answer.json, "idempotency-replayed" in {name.lower() for name in answer.headers}

    def with_host(name: str) -> str:
        return f'{FLEET}\n[[host]]\nname = "{name}"\n'

    first, _ = send(with_host("h8"), "one")
    same, _ = send("# The same in other words\n" + with_host("h8"), "same")
    assert same["differs"] is False
    assert send(with_host("h8"), "one") == (first, True)
    assert send("# The same in other words\n" + with_host("h8"), "same") == (same, True)

    send(with_host("h9"), "two")
    for text, key, before in (
        (with_host("h8"), "one", first),
        ("# The same in other words\n" + with_host("h8"), "same", same),
    ):
        again, replayed = send(text, key)
        note = again.pop("note")
        assert (again, replayed) == ({**before, "replaced": True}, True)
        assert "Another inventory was applied since" in str(note)
    assert "h8" not in {host["name"] for host in world.get("/v1/hosts")["items"]}

    send(with_host("h8"), "three")  # it counts again
    assert send(with_host("h8"), "one") == (first, True)


def test_the_same_key_and_order_get_the_same_answer_and_one_event(world: OperatorWorld) -> None:
    first = world.call("POST", "/v1/vms/spotty/evict", headers={"Idempotency-Key": "k1"})
    world.order(f"/v1/events/{first.json['event_id']}/cancel")
    again = world.call("POST", "/v1/vms/spotty/evict", headers={"Idempotency-Key": "k1"})

    assert again.body == first.body
    assert again.headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in first.headers
    assert len(world.get("/v1/events?all=true")["items"]) == 1


def test_a_key_is_remembered_after_a_restart(tmp_path: Path) -> None:
    order = ("POST", "/v1/hosts/h1/maintain", {"event_type": "Reboot"})
    with running(tmp_path) as before:
        first = before.call(*order, headers={"Idempotency-Key": "over-the-night"})
    with running(tmp_path, fleet="") as after:
        again = after.call(*order, headers={"Idempotency-Key": "over-the-night"})
        operations = after.get("/v1/operations?all=true")["items"]

    assert first.status == 200
    assert again.body == first.body
    assert len(operations) == 1


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/hosts/h2/maintain", {"event_type": "Reboot"}),
        ("/v1/hosts/h1/maintain", {"event_type": "Freeze"}),
        ("/v1/hosts/h1/close", None),
    ],
)
def test_the_same_key_for_another_order_is_refused_and_nothing_is_done(
    world: OperatorWorld, path: str, body: dict[str, object] | None
) -> None:
    world.order("/v1/hosts/h1/maintain", {"event_type": "Reboot"}, key="k")
    before = world.get("/v1/journal")["end"]

    answer = world.call("POST", path, body, headers={"Idempotency-Key": "k"})

    assert (answer.status, answer.json["code"]) == (422, "idempotency-mismatch")
    assert world.get("/v1/journal")["end"] == before


def test_a_refused_order_is_not_remembered(world: OperatorWorld) -> None:
    world.order("/v1/hosts/h1/fail", {"force": True, "reason": WHY})
    headers = {"Idempotency-Key": "k"}
    body = {"event_type": "Reboot"}
    assert world.call("POST", "/v1/hosts/h1/maintain", body, headers=headers).status == 409

    world.order("/v1/hosts/h1/repair")

    assert world.call("POST", "/v1/hosts/h1/maintain", body, headers=headers).status == 200


def test_the_same_order_sent_many_times_at_once_is_carried_out_once(world: OperatorWorld) -> None:
    def send(_: int) -> bytes:
        headers = {"Idempotency-Key": "k"}
        return world.call("POST", "/v1/vms/web-0/restart", headers=headers).body

    with ThreadPoolExecutor(8) as pool:
        answers = set(pool.map(send, range(16)))

    assert len(answers) == 1
    assert len(world.get("/v1/events")["items"]) == 1


class FullStore(SqliteStore):
    """A store on a disk that can become full."""

    full = False

    def commit(self, batch: Batch, fence: Fence | None = None) -> None:
        if self.full:
            raise StoreFailed("no space left on device", fatal=False)
        super().commit(batch, fence)


def test_an_order_that_cannot_be_kept_is_503_and_can_be_sent_again() -> None:
    store = FullStore(Database.in_memory())
    headers = {"Idempotency-Key": "k"}
    with running(store=store) as world:
        store.full = True
        failed = world.call("POST", "/v1/vms/web-0/restart", headers=headers)
        nothing = world.get("/v1/events")["items"]
        store.full = False
        kept = world.call("POST", "/v1/vms/web-0/restart", headers=headers)

    assert (failed.status, failed.json["code"]) == (503, "unavailable")
    assert int(failed.headers["retry-after"]) > 0
    assert nothing == []
    assert kept.status == 200


@pytest.mark.parametrize("key", ["", "two words", "x" * 129, "\xe4"])
def test_a_bad_key_is_refused(world: OperatorWorld, key: str) -> None:
    answer = world.call("POST", "/v1/hosts/h1/close", headers={"Idempotency-Key": key})

    assert (answer.status, answer.json["code"]) == (400, "invalid")
    assert world.get("/v1/hosts/h1")["closed"] is False


# Inventory.


def test_an_inventory_is_applied_once_and_says_what_it_changed(world: OperatorWorld) -> None:
    more = f'{FLEET}\n[[host]]\nname = "h4"\n'

    answer = world.call("POST", "/v1/inventory", more).json
    again = world.call("POST", "/v1/inventory", more).json

    assert (answer["differs"], answer["hosts"]["added"]) == (True, ["h4"])
    assert again["differs"] is False
    assert world.get("/v1/hosts/h4")["name"] == "h4"


def test_a_bad_inventory_is_refused_whole_with_the_line(world: OperatorWorld) -> None:
    bad = f'[[host]]\nname = "h9"\n{FLEET}\n[[vm]]\nname = "x"\nhost = 7\n'

    answer = world.call("POST", "/v1/inventory", bad)

    assert (answer.status, answer.json["code"]) == (400, "bad-inventory")
    assert f"line {bad.count(chr(10))}" in answer.json["detail"]
    assert world.call("GET", "/v1/hosts/h9").status == 404


def test_an_inventory_that_is_not_utf_8_is_refused_with_the_line(world: OperatorWorld) -> None:
    answer = world.call("POST", "/v1/inventory", b"# one\n# \xff\n")

    assert answer.status == 400
    assert "Line 2" in answer.json["detail"]


def test_canceling_one_event_of_an_operation_names_every_event_it_took_along(
    world: OperatorWorld,
) -> None:
    operation = world.order("/v1/hosts/h1/maintain", {"event_type": "Freeze"})
    members = [event["event_id"] for event in operation["events"]]
    assert len(members) > 1
    canceled = world.order(f"/v1/events/{members[0]}/cancel")
    assert sorted(canceled["canceled"]) == sorted(members)


WINDOW = {"start": "+1h", "end": "2026-03-03T13:00:00+01:00"}  # 11:00 to 12:00, and it is 10:00


@pytest.mark.parametrize("path", ["/v1/vms/web-0/restart", "/v1/hosts/h1/maintain"])
def test_an_approval_before_the_window_opens_is_answered_200_and_waits(
    world: OperatorWorld, path: str
) -> None:
    world.polls("web", "web-0")
    body = {"event_type": "Reboot"} if "hosts" in path else {}
    answer = world.order(path, {**body, "window": WINDOW})
    opens, closes = "2026-03-03T11:00:00.000Z", "2026-03-03T12:00:00.000Z"
    assert answer["window"] == {"start": opens, "end": closes}
    events = answer.get("events", [answer])
    assert {event["not_before"] for event in events} == {opens}
    for event in events:
        world.order(f"/v1/events/{event['event_id']}/approve", {"reason": "It is urgent."})
    told = next(event for event in events if event["scope"] == "web")
    holds = world.get(f"/v1/events/{told['event_id']}/explain")["holds"]
    assert [(hold["reason"], hold["until"]) for hold in holds] == [("window-closed", opens)]
    (listed,) = world.get("/v1/events?scope=web")["items"]
    assert (listed["phase"], listed["earliest_start"]) == ("scheduled", opens)


def test_the_receipt_of_what_was_withdrawn_says_so(world: OperatorWorld) -> None:
    world.polls("web", "web-0")
    event_id = world.order("/v1/vms/web-0/restart", {"window": WINDOW})["event_id"]
    world.clock.pass_ms(2 * 3_600_000)
    world.tick()
    shown = world.get(f"/v1/events/{event_id}")
    said = "withdrawn: its window closed before it could start"
    assert (shown["phase"], shown["outcome"]) == ("canceled", said)
    assert shown["earliest_start"] is None
    receipt = shown["receipt"]
    assert (receipt["kept"], receipt["why"]) == ("not-applicable", f"it was {said}")


@pytest.mark.parametrize(
    ("window", "status", "code"),
    [
        ({"start": "+1h", "end": "+1h"}, 400, "invalid"),
        ({"start": "tomorrow", "end": "+1h"}, 400, "invalid"),
        ({"start": "+1h"}, 400, "invalid"),
        ("+1h/+2h", 400, "invalid"),
        ({"start": "+0s", "end": "+5m"}, 409, "window-too-short"),
    ],
)
def test_a_window_that_cannot_be_is_refused(
    world: OperatorWorld, window: object, status: int, code: str
) -> None:
    world.polls("web", "web-0")
    answer = world.call("POST", "/v1/vms/web-0/restart", {"window": window})
    assert (answer.status, answer.json["code"]) == (status, code)
    assert world.get("/v1/events")["items"] == []
