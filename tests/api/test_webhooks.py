"""Webhooks by the operator API: an admin's alone, a secret shown once, refusals in words."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest

from forewarn.core import webhooks
from forewarn.core.model import FactKind
from support.operator_world import OperatorWorld, running
from support.waiting import wait_until
from support.webhook_world import Receiver, receiving, says

URL = "https://hooks.example.com/services/SECRET/PATH"


@pytest.fixture
def world() -> Iterator[OperatorWorld]:
    with running() as made:
        yield made


def added(world: OperatorWorld, name: str = "ops", **more: Any) -> Any:
    return world.order("/v1/webhooks", {"name": name, "url": URL, **more})


def refused(world: OperatorWorld, path: str, body: dict[str, Any], status: int) -> str:
    answer = world.call("POST", path, body)
    assert answer.status == status, answer.body
    return f"{answer.json['detail']} {answer.json.get('remedy', '')}"


def journal(world: OperatorWorld) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = world.get("/v1/journal?limit=1000")["items"]
    return lines


def test_a_secret_is_shown_once_and_is_nowhere_else(world: OperatorWorld) -> None:
    body = {"name": "ops", "url": URL}
    made = world.order("/v1/webhooks", body, key="k")
    assert re.fullmatch(r"whsec_[A-Za-z0-9+/]{43}=", made["secret"])
    again = world.order("/v1/webhooks", body, key="k")
    assert again["secret"] is None
    assert "rotate ops" in again["note"]
    assert len(world.get("/v1/webhooks")["items"]) == 1
    shown = world.call("GET", "/v1/webhooks/ops").body
    said = world.call("GET", "/v1/journal?limit=1000").body
    for text in (shown, said):
        assert made["secret"].encode() not in text
    # The path of a URL may be a secret as well: journal and feed are for more people.
    assert b"SECRET" in shown
    assert b"SECRET" not in said


def test_everything_that_is_done_to_it_is_a_line_of_the_journal(world: OperatorWorld) -> None:
    added(world, kinds=["started"], scopes=["web"])
    world.order("/v1/webhooks/ops/change", {"batch": 5})
    world.order("/v1/webhooks/ops/rotate", {"overlap_seconds": 60})
    world.order("/v1/webhooks/ops/replay", {"after": "oldest"})
    world.order("/v1/webhooks/ops/disable")
    world.order("/v1/webhooks/ops/enable")
    world.order("/v1/webhooks/ops/remove")
    lines = [one for one in journal(world) if one["kind"].startswith("webhook-")]
    assert [one["kind"] for one in lines] == [
        FactKind.WEBHOOK_MADE,
        FactKind.WEBHOOK_CHANGED,
        FactKind.WEBHOOK_ROTATED,
        FactKind.WEBHOOK_REPLAYED,
        FactKind.WEBHOOK_DISABLED,
        FactKind.WEBHOOK_ENABLED,
        FactKind.WEBHOOK_REMOVED,
    ]
    assert {one["by"] for one in lines} == {"operator"}
    assert {one["detail"]["to"] for one in lines} == {"https://hooks.example.com"}
    assert lines[1]["detail"]["changed"] == ["batch"]


def test_an_order_that_changes_nothing_leaves_no_line(world: OperatorWorld) -> None:
    added(world)
    before = len(journal(world))
    world.order("/v1/webhooks/ops/enable")
    world.order("/v1/webhooks/ops/change", {"batch": 1})
    assert len(journal(world)) == before


def test_two_admins_at_once_do_not_undo_each_other(world: OperatorWorld) -> None:
    turn = added(world)["turn"]
    world.order("/v1/webhooks/ops/change", {"batch": 5, "turn": turn})
    said = refused(world, "/v1/webhooks/ops/change", {"batch": 7, "turn": turn}, 409)
    assert "changed by another order" in said
    assert world.get("/v1/webhooks/ops")["batch"] == 5


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"url": "http://hooks.example.com/"}, "not https"),
        ({"url": "https://169.254.169.254/"}, "link-local"),
        ({"url": "https://[::ffff:10.0.0.1]/"}, "private"),
        ({"url": "https://me@hooks.example.com/"}, "user name"),
        ({"url": "nonsense"}, "no URL"),
        ({"scopes": ["weg"]}, "Did you mean web"),
        ({"scopes": ["web", "web"]}, "named twice"),
        ({"kinds": ["started", "started"]}, "named twice"),
        ({"name": "webhooks"}, "Control uses this name"),
        ({"name": "a\nb"}, "not a name"),
        ({"after": "9999"}, "no line"),
        ({"after": "soon"}, "no place"),
        ({"batch": 101}, "batch"),
        ({"format": "xml"}, "xml"),
    ],
)
def test_what_cannot_be_a_webhook_is_refused_in_words(
    world: OperatorWorld, body: dict[str, Any], words: str
) -> None:
    answer = world.call("POST", "/v1/webhooks", {"name": "ops", "url": URL, **body})
    assert answer.status == 400, answer.body
    assert words in f"{answer.json['detail']} {answer.json.get('remedy', '')}"
    assert world.get("/v1/webhooks")["items"] == []


def test_names_are_unique_and_there_is_a_most(world: OperatorWorld) -> None:
    added(world)
    assert "already" in refused(world, "/v1/webhooks", {"name": "ops", "url": URL}, 409)
    for number in range(1, webhooks.WEBHOOKS_MAX):
        added(world, f"ops-{number}")
    said = refused(world, "/v1/webhooks", {"name": "more", "url": URL}, 409)
    assert f"There are {webhooks.WEBHOOKS_MAX} webhooks" in said


def test_one_that_is_not_there_is_not_found_with_the_name_that_was_meant(
    world: OperatorWorld,
) -> None:
    added(world)
    answer = world.call("POST", "/v1/webhooks/opps/remove")
    assert answer.status == 404
    assert "Did you mean ops?" in answer.json["detail"]


def test_a_removal_that_is_sent_twice_is_answered_twice(world: OperatorWorld) -> None:
    added(world)
    one = world.order("/v1/webhooks/ops/remove", key="gone")
    assert world.order("/v1/webhooks/ops/remove", key="gone") == one


@pytest.mark.parametrize("role", ["viewer", "operator", "owner"])
def test_webhooks_are_an_admins_alone(world: OperatorWorld, role: str) -> None:
    added(world)
    scopes = ["web"] if role == "owner" else []
    token = world.order("/v1/tokens", {"name": role, "role": role, "scopes": scopes})["token"]
    for method, path in (
        ("GET", "/v1/webhooks"),
        ("GET", "/v1/webhooks/ops"),
        ("POST", "/v1/webhooks"),
        ("POST", "/v1/webhooks/ops/test"),
        ("POST", "/v1/webhooks/ops/remove"),
    ):
        answer = world.call(method, path, token=token)
        assert answer.status == 403, path
        assert "administer" in answer.json["detail"]


def test_what_a_test_brings_back_is_shown_and_kept_nowhere(world: OperatorWorld) -> None:
    async def story() -> tuple[Any, Receiver]:
        async with receiving() as receiver:
            receiver.then = says(418, body="no coffee")
            body = {"name": "ops", "url": receiver.url, "format": "text", "kinds": ["started"]}
            await asyncio.to_thread(world.order, "/v1/webhooks", body)
            before = await asyncio.to_thread(journal, world)
            answer = await asyncio.to_thread(world.order, "/v1/webhooks/ops/test")
            assert await asyncio.to_thread(journal, world) == before
            return answer, receiver

    answer, receiver = asyncio.run(story())
    assert (answer["status"], answer["said"], answer["taken"]) == (418, "no coffee", False)
    assert receiver.received[0].json["text"].startswith("Test:")


def test_what_its_receiver_said_last_and_when_it_is_tried_again_is_shown(
    world: OperatorWorld,
) -> None:
    async def story() -> Any:
        async with receiving() as receiver:
            receiver.then = says(503, body="not now")
            body = {"name": "ops", "url": receiver.url}
            await asyncio.to_thread(world.order, "/v1/webhooks", body)

            def failing() -> Any:
                shown = world.get("/v1/webhooks/ops")
                return shown if shown["condition"] == "failing" and shown["last"] else None

            return await asyncio.to_thread(wait_until, failing)

    shown = asyncio.run(story())
    assert shown["failure"] == "answered 503"
    assert shown["last"]["said"] == "not now"
    assert shown["next_try"] is not None
    assert shown["behind"] == 1
