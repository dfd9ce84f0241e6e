"""Inventories that are sent again, replaced, or of which a part breaks."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from starlette.requests import Request
from structlog.testing import capture_logs

from forewarn.api.access import ACCESS_KEY
from forewarn.api.doorbell import Doorbell
from forewarn.api.operator_routes import Keyed, OperatorRoutes
from forewarn.control import retries
from forewarn.control.commands import Answer, FindAnswer
from forewarn.control.inventory import apply_in_slices
from forewarn.control.inventory.apply_runner import Inventories
from forewarn.control.inventory.work_left import InventoryWork
from forewarn.control.metrics import ControlMetrics
from forewarn.core.access import Access, Role
from forewarn.core.errors import Unavailable
from forewarn.core.inventory.entries import Applied
from forewarn.core.model import EventType
from forewarn.core.principal import OPERATOR
from forewarn.core.suggestions import MISTAKES_NAMED_MAX
from forewarn.ports import Batch, Fence, TableWrites
from forewarn.wire import packed
from simulation.faulty_store import FaultyStore
from support import ordered
from support.fleets import HOSTS, alone
from support.inventory_fleet import InventoryFleet
from support.inventory_slices import (
    WAIT_S,
    Applying,
    applied,
    at_once,
    at_random,
    content,
    groups,
    order_after,
    refuse_what_may_not_be_between_commits,
)
from support.waiting import until

Sent = tuple[Answer, tuple[str, ...]]


@pytest.fixture
def fleet(tmp_path: Path) -> InventoryFleet:
    return InventoryFleet(tmp_path)


async def send(inventories: Inventories, text: str, key: str = "k1") -> Sent:
    """As the operator API does, under an idempotency key."""
    return await inventories.apply(
        text,
        by=OPERATOR,
        guard=Keyed(key, "f", ordered.full_access(OPERATOR)).once,
        before=FindAnswer(by=OPERATOR, key=key, fingerprint="f"),
    )


# Sent again.


def test_a_replay_is_answered_after_the_last_slice_though_the_first_sender_left(
    fleet: InventoryFleet,
) -> None:
    applying = Applying(fleet)

    async def work() -> tuple[Sent, bool]:
        applying.writer.hold = asyncio.Event()
        first = asyncio.ensure_future(send(applying.inventories, groups(5)))
        await until(lambda: bool(fleet.published.unfinished), "it is decided")
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        assert first.cancelled()
        applying.writer.hold.set()
        again = await send(applying.inventories, groups(5))
        return again, bool(fleet.published.unfinished)

    ((answer, waiting), unfinished) = applying.run(work)
    assert (answer.repeated, waiting, unfinished) == (True, (), False)
    assert content(fleet) == content(at_once(groups(5)))


def test_a_replay_after_a_restart_is_answered_after_the_last_slice(fleet: InventoryFleet) -> None:
    applying = Applying(fleet)

    async def work_and_die() -> str:
        first = asyncio.ensure_future(send(applying.inventories, groups(5)))
        await until(lambda: bool(fleet.published.unfinished), "it is decided")
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        return groups(5)

    text = asyncio.run(work_and_die())  # nobody goes on with its slices
    fleet.restart()
    again = Applying(fleet)
    answer, waiting = again.run(lambda: send(again.inventories, text))
    assert (answer.repeated, waiting, fleet.published.unfinished) == (True, (), "")
    assert content(fleet) == content(at_once(text))


@pytest.mark.parametrize("restarted", [False, True])
def test_a_replay_says_what_waits_for_as_long_as_it_waits(
    fleet: InventoryFleet, *, restarted: bool
) -> None:
    fleet.apply(groups(5))
    applying, text = Applying(fleet), groups(4, tag="b")
    order_after(fleet, applying, 2, "s4-0")
    first, waiting = applying.run(lambda: send(applying.inventories, text))
    assert len(waiting) == 1
    (event,) = fleet.scope("s4").events

    async def go_on(inventories: Inventories) -> tuple[Sent, Sent]:
        still = await send(inventories, text)
        fleet.approve(event)
        fleet.tick()
        fleet.hosts_do_their_work()
        fleet.tick()
        return still, await send(inventories, text)

    if restarted:
        fleet.restart()
    again = Applying(fleet)
    still, last = again.run(lambda: go_on(again.inventories))
    answer = Answer(text=first.text, repeated=True)
    assert (still, last) == ((answer, waiting), (answer, ()))
    assert fleet.published.unfinished == ""


def test_a_replay_after_the_disk_was_full_does_not_repeat_that_it_was(
    fleet: InventoryFleet,
) -> None:
    applying, failures = Applying(fleet), [0]

    def fail() -> None:
        if fleet.published.unfinished and len(fleet.commits) == 3 and failures:
            failures.pop()
            raise Unavailable("the disk is full")

    applying.writer.before = fail

    async def work() -> Sent:
        with pytest.raises(Unavailable, match="the disk is full"):
            await send(applying.inventories, groups(5))
        return await send(applying.inventories, groups(5))

    answer, waiting = applying.run(work)
    assert (answer.repeated, waiting, fleet.published.unfinished) == (True, (), "")


def test_a_replay_of_a_file_that_another_replaced_waits_for_nothing(
    fleet: InventoryFleet,
) -> None:
    fleet.apply(groups(5))
    applying = Applying(fleet)
    order_after(fleet, applying, 2, "s4-0")

    async def work() -> Sent:
        _, waiting = await send(applying.inventories, groups(4, tag="b"), "k1")
        assert waiting
        await send(applying.inventories, groups(5, tag="c"), "k2")
        return await send(applying.inventories, groups(4, tag="b"), "k1")

    answer, waiting = applying.run(work)
    assert (answer.repeated, waiting) == (True, ())
    assert fleet.index.inventory == groups(5, tag="c")


def test_who_sends_while_the_service_stops_is_told_so_and_does_not_hang(
    fleet: InventoryFleet,
) -> None:
    applying = Applying(fleet)

    async def main() -> None:
        running = asyncio.ensure_future(applying.inventories.run())
        await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        async with asyncio.timeout(WAIT_S):
            await send(applying.inventories, groups(5))

    with pytest.raises(Unavailable, match="The next start goes on"):
        asyncio.run(main())


# Replaced.


def test_a_file_that_another_replaced_is_not_said_to_be_applied(fleet: InventoryFleet) -> None:
    """A small one can take the place between any two slices, once the first sender has left."""
    applying = Applying(fleet)
    small = HOSTS + alone("a")

    def replace_it() -> None:
        if len(fleet.commits) == 3:
            applying.writer.before = lambda: None
            fleet.apply(small)

    applying.writer.before = replace_it
    with capture_logs() as said:
        applying.applied(groups(5))
    assert [line["event"] for line in said] == ["inventory_decided", "inventory_replaced"]
    assert (fleet.index.inventory, fleet.published.unfinished) == (small, "")
    assert content(fleet) == content(at_once(small))


def test_a_large_file_that_takes_the_place_of_a_large_one_is_logged(fleet: InventoryFleet) -> None:
    fleet.apply(groups(5))
    applying = Applying(fleet)
    order_after(fleet, applying, 2, "s4-0")

    async def work() -> InventoryWork | None:
        assert (await applying.apply(groups(4, tag="b")))[1]
        old = applying.inventories._work
        assert (await applying.apply(groups(5, tag="c")))[1] == ()
        return old

    with capture_logs() as said:
        old = applying.run(work)
    decided, _, replaced, *rest = said
    assert (replaced["event"], replaced["slices_left"]) == ("inventory_replaced", 1)
    assert [line["event"] for line in (decided, *rest)] == [
        "inventory_decided",
        "inventory_decided",
        "inventory_applied",
    ]
    assert old is not None
    assert not old.wanted.vms  # what was read of it is let go


def test_what_was_read_of_a_file_that_was_replaced_is_let_go(fleet: InventoryFleet) -> None:
    fleet.apply(groups(5))
    applying = Applying(fleet)
    order_after(fleet, applying, 2, "s4-0")
    applying.applied(groups(4, tag="b"))
    work = applying.inventories._work
    assert work is not None
    fleet.apply(groups(5))
    applying.run(lambda: until(lambda: applying.inventories._work is None, "it is let go"))
    assert not work.wanted.vms


# What waits is looked at seldom.


class Waiting:
    """A file of which s4 waits for an event, and when anything of it is tried."""

    def __init__(self, fleet: InventoryFleet) -> None:
        self.fleet = fleet
        fleet.apply(groups(5))
        self.applying = Applying(fleet)
        order_after(fleet, self.applying, 2, "s4-0")
        assert len(self.applying.applied(groups(4, tag="b"))[1]) == 1
        self.tries = 0
        self.applying.writer.before = self._tried

    def _tried(self) -> None:
        self.tries += 1

    def look(self, seconds: int = 0) -> bool:
        """Whether a look tries anything, so much later."""
        self.fleet.clock.pass_ms(seconds * 1_000)
        before = self.tries
        asyncio.run(self.applying.inventories._go_on_safely())
        return self.tries > before

    def end_the_event(self) -> None:
        (event,) = self.fleet.scope("s4").events
        self.fleet.approve(event)
        self.fleet.tick()
        self.fleet.hosts_do_their_work()
        self.fleet.tick()


def test_what_waits_is_tried_later_each_time_while_no_commit_touches_it(
    fleet: InventoryFleet,
) -> None:
    waiting = Waiting(fleet)
    assert [second for second in range(1, 190) if waiting.look(1)] == [2, 6, 14, 30, 62, 122, 182]
    assert "s4-0 is not in the file" in waiting.applying.inventories.waits()[0]


def test_what_waits_is_tried_at_the_next_look_after_a_commit_that_touched_it_and_no_other(
    fleet: InventoryFleet,
) -> None:
    waiting = Waiting(fleet)
    for _ in range(9):
        assert waiting.look(60)
    fleet.order("s1-0", EventType.REBOOT)
    assert not waiting.look()
    waiting.end_the_event()
    assert waiting.look()
    assert fleet.published.unfinished == ""


def test_a_new_vm_that_waits_for_a_host_is_tried_when_its_operation_has_ended(
    fleet: InventoryFleet,
) -> None:
    fleet.apply(groups(3))
    applying, made = Applying(fleet), len(fleet.commits) + 1
    text = groups(3) + "".join(
        alone(f"n{n}", host="h2", address=f"192.0.2.{n}") for n in range(1, 5)
    )

    def maintain() -> None:
        if len(fleet.commits) == made:
            fleet.run(ordered.maintain_host("h2", EventType.FREEZE, by="operator"))

    applying.writer.before = maintain
    assert applying.applied(text)[1]
    applying.writer.before = lambda: None
    (event,) = fleet.scope("s1").events
    fleet.run(ordered.cancel_event(event.event_id, by="operator"))
    asyncio.run(applying.inventories._go_on_safely())  # the clock stands still
    assert (fleet.published.unfinished, fleet.vm("n4").host) == ("", "h2")


def test_what_waits_is_tried_within_a_minute_though_every_ring_is_lost(
    fleet: InventoryFleet,
) -> None:
    waiting = Waiting(fleet)
    for _ in range(9):
        waiting.look(60)
    fleet.published._readers.clear()
    waiting.end_the_event()
    assert not waiting.look()
    assert waiting.look(60)
    assert fleet.published.unfinished == ""


def test_of_much_that_waits_the_first_are_named_and_how_many_more_there_are(
    fleet: InventoryFleet,
) -> None:
    """In the answer, which is what the command line prints, in the health and in the log."""
    fleet.apply(groups(40))
    applying, made = Applying(fleet, slice_vms=20), len(fleet.commits) + 1

    def order() -> None:
        if len(fleet.commits) == made:
            for number in range(40):
                fleet.order(f"s{number}-0", EventType.REBOOT)

    applying.writer.before = order
    with capture_logs() as lines:
        _, waiting = applying.applied(groups(40).replace("198.51.", "198.52."))
    assert len(waiting) == MISTAKES_NAMED_MAX + 1
    assert waiting[-1] == f"... and {40 - MISTAKES_NAMED_MAX} more."
    assert applying.inventories.waits() == waiting
    assert [line["why"] for line in of_kind(lines, "inventory_waits")] == list(waiting)


@pytest.mark.parametrize("seed", range(20))
def test_what_waits_comes_to_the_same_in_the_end_whatever_the_files_are(seed: int) -> None:
    chance = random.Random(seed)
    fleet = InventoryFleet()
    refuse_what_may_not_be_between_commits(fleet)
    fleet.apply(at_random(chance))
    applying, made = Applying(fleet, slice_vms=chance.choice([3, 5, 8])), len(fleet.commits) + 1

    def order() -> None:
        if len(fleet.commits) == made:
            for name in chance.sample(sorted(fleet.index.scope_of_vm), 3):
                fleet.order(name, EventType.REBOOT)

    applying.writer.before = order
    text = at_random(chance)
    _, waiting = applying.applied(text)
    assert bool(fleet.published.unfinished) is bool(waiting)
    applying.writer.before = lambda: None
    for event in [event for one in fleet.index.scopes.values() for event in one.events]:
        fleet.approve(event)
    for _ in range(4):  # events of one scope follow each other
        fleet.tick()
        fleet.hosts_do_their_work()
    fleet.tick()
    applying.finished()

    def members(one: InventoryFleet) -> dict[str, tuple[str, str | None]]:
        found = one.index.scope_of_vm
        return {name: (scope, one.vm(name).profile.address) for name, scope in found.items()}

    assert members(fleet) == members(at_once(text))
    assert fleet.index.hosts.keys() == at_once(text).index.hosts.keys()


# A part that breaks.


class BreakingStore(FaultyStore):
    """Cannot keep changes of some scopes: something that must not happen."""

    def __init__(self, fleet: InventoryFleet, error: Exception, *scopes: str) -> None:
        super().__init__(fleet.store)
        self.error = error
        self.scopes = set(scopes)
        self.met = 0

    def commit(self, batch: Batch, fence: Fence | None = None) -> None:
        written = batch.tables.get("scope", TableWrites())
        if self.scopes & {row["name"] for row in (*written.inserted, *written.updated)}:
            self.met += 1
            raise self.error
        super().commit(batch, fence)


def breaking(fleet: InventoryFleet, error: Exception, *scopes: str) -> BreakingStore:
    store = fleet.writer._store = BreakingStore(fleet, error, *scopes)
    return store


def of_kind(lines: Sequence[object], event: str) -> list[dict[str, object]]:
    return [line for line in lines if isinstance(line, dict) and line["event"] == event]


def test_a_slice_that_breaks_is_said_once_and_holds_no_other_up(fleet: InventoryFleet) -> None:
    store = breaking(fleet, TypeError("unhashable"), "s0")
    applying = Applying(fleet)

    async def work() -> tuple[str, ...]:
        _, waiting = await applying.apply(groups(5))
        for _ in range(3):
            fleet.clock.pass_ms(retries.AGAIN_MS_MAX)
            await applying.inventories.go_on()
        return waiting

    with capture_logs() as lines:
        waiting = applying.run(work)
    words = "the part of the inventory with scope s0 broke, and is tried again: TypeError: "
    assert waiting == (words + "unhashable",)
    assert applying.inventories.waits() == waiting
    assert set(fleet.index.scopes) == {"s1", "s2", "s3", "s4"}
    assert store.met == 4
    (said,) = of_kind(lines, "inventory_slice_broke")
    assert said["why"] == waiting[0]
    assert "forewarn inventory apply FILE" in str(said["remedy"])
    assert of_kind(lines, "command_failed") == of_kind(lines, "inventory_waits") == []

    store.scopes.clear()  # it was mended
    fleet.clock.pass_ms(retries.AGAIN_MS_MAX)
    applying.finished()
    assert applying.inventories.waits() == ()
    assert content(fleet) == content(at_once(groups(5)))


def test_of_many_scopes_in_one_slice_only_the_one_that_breaks_waits(
    fleet: InventoryFleet,
) -> None:
    breaking(fleet, TypeError("unhashable"), "s3")
    applying = Applying(fleet, slice_vms=20)
    with capture_logs() as lines:
        _, waiting = applying.applied(groups(30))
    words = "the part of the inventory with scope s3 broke, and is tried again: TypeError: "
    assert waiting == (words + "unhashable",)
    assert set(fleet.index.scopes) == {f"s{n}" for n in range(30)} - {"s3"}
    assert len(of_kind(lines, "inventory_slice_broke")) == applying.inventories.failures == 1
    assert of_kind(lines, "command_failed") == []


def test_of_many_scopes_that_break_the_first_are_logged(fleet: InventoryFleet) -> None:
    breaking(fleet, TypeError("unhashable"), *(f"s{n}" for n in range(30)))
    applying = Applying(fleet, slice_vms=20)
    with capture_logs() as lines:
        _, waiting = applying.applied(groups(31))
    assert set(fleet.index.scopes) == {"s30"}
    said = [line["why"] for line in of_kind(lines, "inventory_slice_broke")]
    assert said == list(waiting)
    assert said[MISTAKES_NAMED_MAX:] == [f"... and {30 - MISTAKES_NAMED_MAX} more."]
    assert applying.inventories.failures == 30


def test_a_slice_that_breaks_is_tried_again_later_each_time(fleet: InventoryFleet) -> None:
    store = breaking(fleet, TypeError("unhashable"), "s0")
    applying = Applying(fleet)
    applying.applied(groups(5))
    looks = []

    async def look_each_second() -> None:
        for second in range(1, 16):
            fleet.clock.pass_ms(1_000)
            before = store.met
            await applying.inventories.go_on()
            if store.met > before:
                looks.append(second)

    asyncio.run(look_each_second())
    assert looks == [2, 6, 14]


def test_health_says_what_broke_or_waits(fleet: InventoryFleet) -> None:
    breaking(fleet, TypeError("unhashable"), "s0")
    applying = Applying(fleet)
    routes = OperatorRoutes(
        fleet.control,
        measures=ControlMetrics(),
        doorbell=Doorbell(),
        scratch=None,
        version="1",
        inventories=applying.inventories,
    )

    async def health() -> object:
        access = Access(principal=OPERATOR, role=Role.ADMIN)
        asked = Request({"type": "http", "query_string": b"", "headers": [], ACCESS_KEY: access})
        return json.loads(bytes((await routes.health(asked)).body))["inventory_waits"]

    async def work() -> tuple[object, object, tuple[str, ...]]:
        before = await health()
        _, waiting = await applying.apply(groups(5))
        return before, await health(), waiting

    before, after, waiting = applying.run(work)
    assert (before, after) == ([], list(waiting))
    assert applying.inventories.failures == len(waiting) == 1


def test_health_says_that_a_decided_file_is_not_understood_until_another_takes_its_place(
    fleet: InventoryFleet,
) -> None:
    """An earlier version decided it under rules of its own, and was stopped before its end."""
    fleet.apply(groups(5))
    note = apply_in_slices._about(Applied(), by=OPERATOR)
    fleet.run(lambda tx: tx.decide_inventory("[[house]]", packed.pack("[[house]]"), note))
    applying = Applying(fleet)
    inventories = applying.inventories

    async def work() -> tuple[str, ...]:
        await until(lambda: bool(inventories.waits()), "it is said")
        return inventories.waits()

    (words,) = applying.run(work)
    assert "house" in words
    assert words.endswith("with a file that this version reads takes its place.")
    assert applying.applied(groups(4))[1] == ()
    assert inventories.waits() == ()


def test_an_end_that_breaks_is_tried_again(fleet: InventoryFleet) -> None:
    applying = Applying(fleet)

    class Unfinishable(BreakingStore):
        def commit(self, batch: Batch, fence: Fence | None = None) -> None:
            written = batch.tables.get("unfinished_inventory", TableWrites())
            if written.deleted and self.scopes:
                raise self.error
            super().commit(batch, fence)

    store = fleet.writer._store = Unfinishable(fleet, TypeError("unhashable"), "any")
    _, waiting = applying.applied(groups(5))
    assert waiting == ("the end of the inventory broke, and is tried again: TypeError: unhashable",)
    store.scopes.clear()
    fleet.clock.pass_ms(retries.AGAIN_MS_MIN)
    applying.finished()
    assert content(fleet) == content(at_once(groups(5)))


def test_a_slice_that_the_store_refuses_alone_is_not_always_the_first(
    fleet: InventoryFleet,
) -> None:
    """What is no fault of the disk fails each time, and the other slices must get their turn."""
    breaking(fleet, Unavailable("it cannot be kept"), "s0")
    applying = Applying(fleet)

    async def work() -> None:
        with pytest.raises(Unavailable):
            await applying.apply(groups(5))
        applying.inventories._ring.set()
        await until(lambda: len(fleet.index.scopes) == 4, "the others are applied")

    applying.run(work)


def test_another_file_takes_the_place_of_one_that_breaks(fleet: InventoryFleet) -> None:
    store = breaking(fleet, TypeError("unhashable"), "s0")
    applying = Applying(fleet)
    applying.applied(groups(5))
    text = groups(5).replace('"s0"', '"t0"')
    assert applying.applied(text)[1] == ()
    assert store.met == 1
    assert applying.inventories.waits() == ()
    assert content(fleet) == content(at_once(text))


def test_a_start_that_cannot_compare_says_so_once_and_tries_later(fleet: InventoryFleet) -> None:
    text = groups(5)
    fleet.apply(text)
    applying = Applying(fleet)
    order_after(fleet, applying, 2, "s4-0")
    applying.applied(groups(4, tag="b"))
    fleet.restart()
    reads = []

    class Breaking(Inventories):
        """A comparison that breaks, until it is mended."""

        mended = False

        async def _check(self, *args: object, **kwargs: object) -> object:  # type: ignore[override]
            reads.append(1)
            if not self.mended:
                raise TypeError("unhashable")
            return await super()._check(*args, **kwargs)  # type: ignore[arg-type]

    again = Applying(fleet)
    again.inventories = broken = Breaking(fleet.control, slice_vms=2)

    async def looks() -> None:
        for _ in range(3):
            await broken._go_on_safely()
        fleet.clock.pass_ms(retries.AGAIN_MS_MIN)
        await broken._go_on_safely()

    with capture_logs() as lines:
        asyncio.run(looks())
    assert len(reads) == 2
    assert len(of_kind(lines, "inventory_broke")) == 1
    assert broken.waits() == ("the inventory cannot be applied further: TypeError: unhashable",)
    broken.mended = True
    fleet.clock.pass_ms(retries.AGAIN_MS_MAX)
    asyncio.run(broken._go_on_safely())
    assert "s4-0 is not in the file" in broken.waits()[0]


def test_a_file_whose_part_broke_is_gone_on_with_after_a_restart(fleet: InventoryFleet) -> None:
    breaking(fleet, TypeError("unhashable"), "s3")
    applied(fleet, groups(5))
    fleet.restart()
    Applying(fleet).finished()
    assert content(fleet) == content(at_once(groups(5)))
