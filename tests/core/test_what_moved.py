"""What changed between two values of a scope, which every reader of a commit asks."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from forewarn.control.fleet_index import FleetIndex
from forewarn.core import document, scope_edits
from forewarn.core.model import Action, ActionPhase, EventType, Outcome, ScheduledEvent, Scope
from forewarn.core.unfinished_moves import mention_the_same
from forewarn.ports import Snapshot
from support.core_fleet import Cloud, scope


@pytest.fixture
def cloud() -> Cloud:
    return Cloud(scope("one", {"a": (0, "h1"), "b": (1, "h2")}))


def waiting(cloud: Cloud) -> Scope:
    cloud.order("a", EventType.REBOOT)
    cloud.order("b", EventType.REBOOT)
    return cloud.scope("one")


def moving(cloud: Cloud) -> tuple[ScheduledEvent, Action]:
    event = cloud.order("a", EventType.REDEPLOY)
    cloud.start(event)
    [move] = cloud.claim("h1")
    return cloud.event(event), move


def indexed(of: Scope) -> FleetIndex:
    return FleetIndex(
        Snapshot(hosts=(), scopes=(of,), operations=(), heartbeat_ms=None, inventory=None)
    )


def test_only_the_events_that_are_another_value_are_named(cloud: Cloud) -> None:
    before = waiting(cloud)
    approved = replace(before.events[1], approved_ms=5)
    after = scope_edits.with_event(before, approved)
    assert document.in_place(before.events, after.events) == ((before.events[1], approved),)
    assert document.in_place(after.events, before.events) == ((approved, before.events[1]),)
    assert document.in_place(before.events, before.events) == ()
    assert document.in_place(before.events, before.events[:1]) is None
    assert document.in_place(before.events, before.events[::-1]) is None


def test_an_answer_is_never_that_of_other_values_which_are_gone(cloud: Cloud) -> None:
    # Values that nobody holds any more give their place in memory to others.
    before = waiting(cloud)
    for number in range(3 * document.LOOKED_AT_MAX):
        changed = replace(before.events[number % 2], approved_ms=number)
        pairs = document.in_place(before.events, scope_edits.with_event(before, changed).events)
        assert pairs == ((before.events[number % 2], changed),)


def test_a_claim_changes_no_place_of_anything(cloud: Cloud) -> None:
    event, move = moving(cloud)
    now = cloud.scope("one")
    pending = replace(move, phase=ActionPhase.PENDING, epoch=move.epoch - 1)
    before = scope_edits.with_event(now, scope_edits.with_action(event, pending))
    assert mention_the_same(before, now)
    assert mention_the_same(now, before)


@pytest.mark.parametrize(
    "other",
    [
        {"target_host": "h9"},
        {"host": "h3"},
        {"vm": "b"},
        {"phase": ActionPhase.ENDED, "outcome": Outcome.DONE},
    ],
    ids=["target", "host", "vm", "ended"],
)
def test_what_an_index_finds_by_actions_is_found_anew_when_one_is_another(
    cloud: Cloud, other: dict[str, object]
) -> None:
    event, move = moving(cloud)
    before = cloud.scope("one")
    after = scope_edits.with_event(before, scope_edits.with_action(event, replace(move, **other)))  # type: ignore[arg-type]
    assert not mention_the_same(before, after)
    index = indexed(before)
    index.put_scope("one", after)
    fresh = indexed(after)
    for host in ("h1", "h2", "h3", "h9"):
        assert index.arriving(host) == fresh.arriving(host)
        assert index.scopes_acting(host) == fresh.scopes_acting(host)
        assert index.scopes_on(host) == fresh.scopes_on(host)
