"""What owners order in their own scopes, and what only operators may do, for a reason."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.callers import id_of, token_of
from support.operator_world import OperatorWorld, running


@pytest.fixture
def world() -> Iterator[OperatorWorld]:
    with running() as world:
        world.polls("web", "web-0")
        yield world


def event_of(world: OperatorWorld, scope: str) -> str:
    answer = world.order("/v1/hosts/h1/maintain", {"event_type": "Reboot"})
    found: str = next(one["event_id"] for one in answer["events"] if one["scope"] == scope)
    return found


def test_an_approval_of_the_owner_is_consent_and_overrides_nothing(world: OperatorWorld) -> None:
    token, event = token_of(world, "ann", "owner", "web"), event_of(world, "web")
    assert world.call("POST", f"/v1/events/{event}/approve", token=token).status == 200
    for asker in (token, None):
        shown = (
            world.get(f"/v1/events/{event}")
            if asker is None
            else world.call("GET", f"/v1/events/{event}", token=asker).json
        )
        assert (shown["approved_by"], shown["overridden_by"]) == ("ann", None)
        assert shown["receipt"].get("overridden_by") is None
    (line,) = world.get(f"/v1/journal?kind=approved&event={event}")["items"]
    assert (line["by"], line["by_kind"], line["by_id"]) == ("ann", "owner", f"token:{id_of(token)}")
    assert line["detail"]["by_kind"] == "owner"
    assert "overridden_by" not in line["detail"]


def test_an_approval_of_an_operator_overrides_and_needs_a_reason(world: OperatorWorld) -> None:
    token, event = token_of(world, "olga", "operator"), event_of(world, "web")
    path = f"/v1/events/{event}/approve"
    assert world.call("POST", path, token=token).status == 400
    assert world.call("POST", path, {"reason": " \t"}, token=token).status == 400
    assert world.call("POST", path, {"reason": "agreed by phone"}, token=token).status == 200
    shown = world.get(f"/v1/events/{event}")
    assert (shown["overridden_by"], shown["override_reason"]) == ("olga", "agreed by phone")
    (line,) = world.get(f"/v1/journal?kind=approved&event={event}")["items"]
    assert line["detail"]["overridden_by"] == "olga"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/hosts/h1/maintain", {"event_type": "Reboot", "break_domains": True}),
        ("/v1/hosts/h1/fail", {"force": True}),
        ("/v1/hosts/h1/repair", {"force": True}),
    ],
)
def test_every_other_override_needs_a_reason_too_and_the_role_of_an_operator(
    world: OperatorWorld, path: str, body: dict[str, object]
) -> None:
    refused = world.call("POST", path, body)
    assert (refused.status, refused.json["code"]) == (400, "invalid")
    assert "reason" in refused.json["remedy"]
    for role in ("viewer", "owner"):
        token = token_of(world, role, role, *(["web"] if role == "owner" else []))
        answer = world.call("POST", path, {**body, "reason": "why"}, token=token)
        assert (answer.status, answer.json["code"]) == (403, "forbidden")


@pytest.mark.parametrize("verb", ["restart", "redeploy"])
def test_an_owner_restarts_and_redeploys_his_own_vms_alone(world: OperatorWorld, verb: str) -> None:
    token = token_of(world, "ann", "owner", "web")
    answer = world.call("POST", f"/v1/vms/web-1/{verb}", token=token)
    assert answer.status == 200, answer.body
    assert answer.json["ordered_by"] == "ann"
    other = world.call("POST", f"/v1/vms/lonely/{verb}", token=token)
    assert (other.status, other.json["code"]) == (403, "forbidden")
    assert world.get("/v1/events?all=true&scope=lonely")["items"] == []


def test_a_scope_that_is_not_there_any_more_gives_its_owner_nothing(world: OperatorWorld) -> None:
    token = token_of(world, "ann", "owner", "gone-by-now")
    assert world.call("GET", "/v1/scopes", token=token).json["items"] == []
    assert world.call("GET", "/v1/vms", token=token).json == {
        "items": [],
        "more": False,
        "filtered": True,
    }
    answer = world.call("GET", "/v1/scopes/gone-by-now", token=token)
    assert answer.status == 403
