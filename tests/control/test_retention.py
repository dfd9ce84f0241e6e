"""Retention: what ended long ago goes in slices, what is open stays, and the journal says it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forewarn.control.commands import Prune
from forewarn.control.retention import RetentionLoop
from forewarn.core.model import DAY_MS, FactKind
from forewarn.core.principal import CLOCK
from forewarn.core.retention import SLICE_EVENTS_MAX, SLICE_LINES_MAX, Prunable, prune_before_ms
from forewarn.ports import ListFilter
from support.operator_world import OperatorWorld, running
from support.waiting import until


@pytest.fixture
def world() -> Iterator[OperatorWorld]:
    with running() as made:
        yield made


def restarted(world: OperatorWorld, vm: str) -> str:
    """A VM was restarted, from the order to the end."""
    scope = world.get(f"/v1/vms/{vm}")["scope"]
    event_id: str = world.order(f"/v1/vms/{vm}/restart")["event_id"]
    world.hosts_beat()
    world.reads(scope, event_id, vm)
    world.approves(vm, event_id)
    world.tick()
    world.hosts_work()
    assert world.get(f"/v1/events/{event_id}")["phase"] == "completed"
    return event_id


def prune(world: OperatorWorld, days: int = 400) -> Prunable:
    found = world.submit(Prune(by=CLOCK, retention_days=days))
    assert isinstance(found, Prunable)
    return found


def journal(world: OperatorWorld) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = world.get("/v1/journal?limit=1000")["items"]
    return lines


def later(world: OperatorWorld, days: float) -> None:
    world.clock.pass_ms(round(days * DAY_MS))
    world.hosts_beat()


def test_what_ended_long_ago_goes_with_its_receipts_and_the_journal_says_what_went(
    world: OperatorWorld,
) -> None:
    world.polls("lonely", "lonely")
    gone = restarted(world, "lonely")
    later(world, 399)
    kept = restarted(world, "lonely")
    end = journal(world)[-1]["number"]
    later(world, 2)

    went = prune(world)

    assert went.events == (gone,)
    assert went.receipts == 1
    assert world.call("GET", f"/v1/events/{gone}").status == 404
    assert world.get(f"/v1/events/{kept}")["receipt"]
    lines = journal(world)
    assert not [line for line in lines if line["event_id"] == gone]
    assert [line for line in lines if line["event_id"] == kept]
    said = lines[-1]
    assert (said["kind"], said["by"]) == ("pruned", "clock")
    assert said["detail"]["lines"] == len(went.lines)
    assert said["detail"]["last_line"] == went.lines[-1]
    assert (said["detail"]["events"], said["detail"]["receipts"]) == (1, 1)
    assert said["number"] > end
    assert prune(world) == Prunable()


def test_an_approval_that_was_answered_is_kept_while_its_event_is_open(
    world: OperatorWorld,
) -> None:
    world.polls("web", "web-0")
    event_id = world.order("/v1/vms/web-0/restart")["event_id"]
    world.approves("web-0", event_id)  # and no host is there to begin it
    before = [line for line in journal(world) if line["event_id"] == event_id]
    world.clock.pass_ms(1_000 * DAY_MS)

    while prune(world):
        pass

    shown = world.get(f"/v1/events/{event_id}")
    assert shown["approved_by"] == "web-0"
    assert [line for line in journal(world) if line["event_id"] == event_id] == before
    assert not [line for line in journal(world) if line["kind"] == "inventory-applied"]


def test_the_numbers_of_lines_never_come_again_even_if_every_line_goes(tmp_path: Path) -> None:
    with running(tmp_path) as world:
        world.polls("lonely", "lonely")
        restarted(world, "lonely")
        seen = max(line["number"] for line in journal(world))
        later(world, 401)
        assert prune(world)
        (only,) = journal(world)
        assert only["number"] > seen
        later(world, 401)
        assert prune(world)
        (only_one,) = journal(world)
        assert only_one["number"] > only["number"]
        end = only_one["number"]
    with running(tmp_path) as world:
        world.order("/v1/hosts/h1/close")
        assert journal(world)[-1]["number"] > end
        restarted(world, "lonely")


def test_everything_is_kept_with_0_days(world: OperatorWorld) -> None:
    world.polls("lonely", "lonely")
    restarted(world, "lonely")
    later(world, 10_000)
    assert prune(world, days=0) == Prunable()
    assert prune_before_ms(5, 0) is None


def test_a_slice_takes_no_more_than_its_share_and_the_loop_takes_them_all(
    world: OperatorWorld,
) -> None:
    for _ in range(SLICE_LINES_MAX // 2 + 50):
        world.order("/v1/hosts/h1/close")
        world.order("/v1/hosts/h1/open")
    world.polls("lonely", "lonely")
    for _ in range(3):
        restarted(world, "lonely")
    later(world, 401)

    first = prune(world)

    assert len(first.lines) == SLICE_LINES_MAX
    assert len(first.events) <= SLICE_EVENTS_MAX
    loop = RetentionLoop(world.control, 400, first_after_s=0, apart_s=0)

    async def only_prunings_are_left() -> bool:
        left = await world.control.read(
            lambda store: store.journal(ListFilter(), after=0, limit=1_000)
        )
        return all(line.fact.kind is FactKind.PRUNED for line in left)

    async def until_done() -> None:
        task = asyncio.create_task(loop.run())
        try:
            await until(only_prunings_are_left, "everything old went")
        finally:
            task.cancel()

    world.run(until_done())
    # The newest event stays, so that no later one gets its place in the order.
    assert len(world.get("/v1/events?all=true")["items"]) == 1


def test_operations_go_after_their_events_and_not_while_one_is_left(world: OperatorWorld) -> None:
    world.polls("lonely", "lonely")
    ids = []
    for host in ("h1", "h1"):
        ids.append(
            world.order(f"/v1/hosts/{host}/maintain", {"event_type": "Freeze"})["operation_id"]
        )
        world.pass_minutes(20)
        world.hosts_work()
        world.tick()
        assert world.get(f"/v1/operations/{ids[-1]}")["phase"] == "ended"
    later(world, 401)
    went: list[str] = []
    while found := prune(world):
        went += found.operations
    assert went == ids[:1]
    assert world.call("GET", f"/v1/operations/{ids[0]}").status == 404
    assert world.call("GET", f"/v1/operations/{ids[1]}").status == 200
