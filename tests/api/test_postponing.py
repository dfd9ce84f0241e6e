"""Postponing an event over the operator API: the answer, the two events, receipts and explain."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from support.callers import token_of
from support.operator_world import OperatorWorld, running


@pytest.fixture
def world() -> Iterator[OperatorWorld]:
    """Both scopes of h1 poll."""
    with running() as world:
        world.polls("web", "web-0")
        world.polls("lonely", "lonely")
        yield world


def maintained(world: OperatorWorld, event_type: str = "Reboot", **more: object) -> dict[str, Any]:
    """The event of web in the maintenance of h1."""
    said = {"event_type": event_type, **more}
    events = world.order("/v1/hosts/h1/maintain", said)["events"]
    world.hosts_beat()
    (event,) = (one for one in events if one["scope"] == "web")
    found: dict[str, Any] = event
    return found


def postpone(world: OperatorWorld, event: dict[str, Any], until: str, **more: object) -> Any:
    path = f"/v1/events/{event['event_id']}/postpone"
    return world.order(path, {"until": until, **more})


def test_the_answer_is_the_new_event_with_all_that_was_withdrawn_and_announced(
    world: OperatorWorld,
) -> None:
    old = maintained(world)
    answer = postpone(world, old, "+2h", reason="a sale")
    assert answer["not_before"] == "2026-03-03T12:00:00.000Z"
    assert (answer["postponed_from"], answer["postponed_to"]) == (old["event_id"], None)
    assert (answer["postponements"], answer["postponed_seconds"]) == (1, 105 * 60)
    assert answer["approved"] is None
    assert (answer["withdrawn"][0], answer["announced"][0]) == (old["event_id"], answer["event_id"])
    assert len(answer["withdrawn"]) == len(answer["announced"]) == 2
    assert answer["silent_scopes"] == []
    open_ids = {event["event_id"] for event in world.get("/v1/events")["items"]}
    assert open_ids == set(answer["announced"])
    operation = world.get(f"/v1/operations/{answer['operation_id']}")
    assert (operation["postponements"], operation["postponed_seconds"]) == (1, 105 * 60)


def test_the_receipts_of_both_events_have_the_whole_chain(world: OperatorWorld) -> None:
    first = maintained(world, "Redeploy")
    second = postpone(world, first, "+1h", reason="a sale")
    third = postpone(world, second, "+3h")
    ids = [one["event_id"] for one in (first, second, third)]
    for event_id in ids:
        receipt = world.get(f"/v1/events/{event_id}")["receipt"]
        assert [one["event_id"] for one in receipt["chain"]] == ids
        assert [one["outcome"] for one in receipt["chain"]] == [
            "postponed by operator: a sale",
            "postponed by operator",
            "",
        ]
        assert [one["not_before"] for one in receipt["chain"]] == [
            one["not_before"] for one in (first, second, third)
        ]
    gone = world.get(f"/v1/events/{ids[0]}")
    assert (gone["phase"], gone["postponed_to"]) == ("canceled", ids[1])
    assert gone["receipt"]["kept"] == "not-applicable"
    assert gone["receipt"]["why"] == "it was postponed by operator: a sale"
    assert world.get(f"/v1/events/{ids[2]}")["receipt"]["kept"] == "not-yet"


def test_an_event_that_was_not_postponed_has_no_chain(world: OperatorWorld) -> None:
    assert world.get(f"/v1/events/{maintained(world)['event_id']}")["receipt"]["chain"] == []


def test_explain_says_that_it_was_postponed_and_how_often_its_owner_may_again(
    world: OperatorWorld,
) -> None:
    old = maintained(world)
    before = world.get(f"/v1/events/{old['event_id']}/explain")["postponing"]
    assert before == {
        "postponements": 0,
        "postponed_seconds": 0,
        "times_left": 3,
        "latest": "2026-03-04T10:15:00.000Z",
        "why_not": "",
    }
    new = postpone(world, old, "+2h")
    gone = world.get(f"/v1/events/{old['event_id']}/explain")
    assert (gone["postponed_to"], gone["postponing"]) == (new["event_id"], None)
    after = world.get(f"/v1/events/{new['event_id']}/explain")
    assert after["postponed_from"] == old["event_id"]
    assert after["postponing"] == {
        "postponements": 1,
        "postponed_seconds": 105 * 60,
        "times_left": 2,
        "latest": "2026-03-04T10:15:00.000Z",
        "why_not": "",
    }
    restart = world.order("/v1/vms/web-1/restart")
    why = world.get(f"/v1/events/{restart['event_id']}/explain")["postponing"]["why_not"]
    assert "was ordered for the VM itself" in why


def test_what_has_started_says_nothing_of_postponing(world: OperatorWorld) -> None:
    event = maintained(world, "Redeploy")
    world.order(f"/v1/events/{event['event_id']}/approve", {"reason": "a test"})
    world.tick()
    explained = world.get(f"/v1/events/{event['event_id']}/explain")
    assert (explained["phase"], explained["postponing"]) == ("started", None)
    late = world.call("POST", f"/v1/events/{event['event_id']}/postpone", {"until": "+1h"})
    assert (late.status, late.json["code"]) == (409, "already-started")


def test_the_same_key_postpones_once(world: OperatorWorld) -> None:
    event = maintained(world)
    path = f"/v1/events/{event['event_id']}/postpone"
    first = world.order(path, {"until": "+1h"}, key="once")
    assert world.order(path, {"until": "+1h"}, key="once") == first
    assert len(world.get("/v1/events?all=true&scope=web")["items"]) == 2
    other = world.call("POST", path, {"until": "+2h"}, headers={"Idempotency-Key": "once"})
    assert (other.status, other.json["code"]) == (422, "idempotency-mismatch")
    again = world.call("POST", path, {"until": "+2h"})
    assert (again.status, again.json["code"]) == (409, "already-ended")
    assert first["event_id"] in again.json["remedy"]


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"", "until"),
        (b"null", "object"),
        (b"[]", "object"),
        (b'{"until": null}', "until"),
        (b'{"until": 5}', "until"),
        (b'{"until": ""}', "not a time"),
        (b'{"until": "tomorrow"}', "not a time"),
        (b'{"until": "2026-03-03T12:00:00"}', "zone"),
        (b'{"until": "-1h"}', "not a time"),
        (b'{"until": "+999999999999d"}', "not between"),
        (b'{"until": "2026-03-03T09:00:00Z"}', "has passed"),
        (b'{"until": "+1s"}', "would not be postponed"),
        (b'{"until": "+1h", "until": "+2h"}', "twice"),
        (b'{"until": "+1h", "force": true}', "force"),
        (b'{"until": "+1h", "reason": 1}', "reason"),
        (b'{"until": "+1h", "reason": "a\\nb"}', "control characters"),
        (b'{"until": "+1h", "reason": "' + b"x" * 201 + b'"}', "too long"),
        (b'{"until": "' + b"9" * 60_000 + b'"}', "not a time"),
    ],
)
def test_words_that_make_no_sense_are_refused_and_postpone_nothing(
    world: OperatorWorld, body: bytes, word: str
) -> None:
    event = maintained(world)
    answer = world.call("POST", f"/v1/events/{event['event_id']}/postpone", body)
    assert (answer.status, answer.json["code"]) == (400, "invalid")
    assert word in answer.json["detail"]
    assert answer.json["remedy"]
    assert len(answer.body) < 2_000
    assert world.get(f"/v1/events/{event['event_id']}")["phase"] == "scheduled"


def test_a_reason_is_kept_as_it_was_said_whatever_its_characters_mean_elsewhere(
    world: OperatorWorld,
) -> None:
    said = "<script>alert('日本')</script> {vm} %s"
    event = maintained(world)
    postpone(world, event, "+1h", reason=said)
    gone = world.get(f"/v1/events/{event['event_id']}")
    assert gone["outcome"] == f"postponed by operator: {said}"
    lines = world.get(f"/v1/journal?event={event['event_id']}&kind=postponed")["items"]
    assert [line["detail"]["reason"] for line in lines] == [said]


def test_refusals_have_codes(world: OperatorWorld) -> None:
    restart = world.order("/v1/vms/web-0/restart")
    for path, until, status, code in (
        (f"/v1/events/{restart['event_id']}/postpone", "+1h", 409, "not-postponable"),
        (f"/v1/events/{'F' * 36}/postpone", "+1h", 404, "not-found"),
    ):
        answer = world.call("POST", path, {"until": until})
        assert (answer.status, answer.json["code"]) == (status, code)
    windowed = maintained(world, window={"start": "+0s", "end": "+1h"})
    path = f"/v1/events/{windowed['event_id']}/postpone"
    answer = world.call("POST", path, {"until": "+2h"})
    assert (answer.status, answer.json["code"]) == (409, "postponed-too-far")


def test_the_new_event_is_due_at_its_own_time(world: OperatorWorld) -> None:
    new = postpone(world, maintained(world), "+1h")
    world.hosts_beat()
    world.pass_minutes(59)
    assert world.get(f"/v1/events/{new['event_id']}")["phase"] == "scheduled"
    world.pass_minutes(1)
    assert world.get(f"/v1/events/{new['event_id']}")["phase"] == "started"


# Owners.


def test_an_owner_postpones_events_of_his_own_scope_and_learns_of_no_other(
    world: OperatorWorld,
) -> None:
    ann, bo = token_of(world, "ann", "owner", "web"), token_of(world, "bo", "owner", "lonely")
    old = maintained(world)
    path = f"/v1/events/{old['event_id']}/postpone"
    said = {"until": "+2h", "reason": "a sale"}

    other = world.call("POST", path, said, token=bo)
    assert (other.status, other.json["code"]) == (403, "forbidden")

    answer = world.call("POST", path, said, token=ann)
    assert answer.status == 200, answer.body
    new = answer.json
    assert (new["withdrawn"], new["announced"]) == ([old["event_id"]], [new["event_id"]])
    gone = world.call("GET", f"/v1/events/{old['event_id']}", token=ann).json
    assert gone["outcome"] == "postponed by ann: a sale"

    (theirs,) = world.call("GET", "/v1/events", token=bo).json["items"]
    assert theirs["not_before"] == new["not_before"]
    everything = [
        world.call("GET", one, token=bo).body
        for one in (
            "/v1/journal",
            "/v1/events?all=true",
            f"/v1/events/{theirs['event_id']}",
            f"/v1/events/{theirs['postponed_from']}",
            f"/v1/events/{theirs['event_id']}/explain",
            f"/v1/operations/{theirs['operation_id']}",
        )
    ]
    for body in everything:
        assert b"ann" not in body.replace(b"announced", b"").replace(b"planned", b"")
        assert b"a sale" not in body
    lines = world.get("/v1/journal?kind=postponed")["items"]
    (whole,) = (line for line in lines if line["event_id"] is None)
    assert (whole["by"], whole["by_kind"]) == ("ann", "owner")


def test_an_owner_is_bound_by_the_limits_and_an_operator_is_not(world: OperatorWorld) -> None:
    ann = token_of(world, "ann", "owner", "web")
    olga = token_of(world, "olga", "operator")
    event = maintained(world, "Redeploy")
    for hours in (1, 2, 3):
        path = f"/v1/events/{event['event_id']}/postpone"
        event = world.call("POST", path, {"until": f"+{hours}h"}, token=ann).json
    path = f"/v1/events/{event['event_id']}/postpone"
    often = world.call("POST", path, {"until": "+4h"}, token=ann)
    assert (often.status, often.json["code"]) == (409, "postponed-too-often")
    may = world.call("GET", f"/v1/events/{event['event_id']}/explain", token=ann).json["postponing"]
    assert (may["times_left"], "as often as it may be" in may["why_not"]) == (0, True)
    assert world.call("POST", path, {"until": "+4d"}, token=olga).status == 200


def test_a_viewer_postpones_nothing(world: OperatorWorld) -> None:
    vic = token_of(world, "vic", "viewer")
    event = maintained(world)
    path = f"/v1/events/{event['event_id']}/postpone"
    answer = world.call("POST", path, {"until": "+1h"}, token=vic)
    assert (answer.status, answer.json["code"]) == (403, "forbidden")
    assert "order-vm" in answer.json["detail"]
    assert world.get(f"/v1/events/{event['event_id']}")["phase"] == "scheduled"
