"""Inventories that are applied slice by slice: what is between two slices, and what comes of it."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import pytest
from msgspec.structs import replace

from forewarn.api.operator_routes import Keyed
from forewarn.control.commands import Answer, FindAnswer
from forewarn.control.inventory import apply_at_once
from forewarn.control.inventory.apply_runner import Inventories
from forewarn.control.writer import Wanted
from forewarn.core import placement
from forewarn.core.errors import BadInventory, InventoryConflict, Unavailable
from forewarn.core.inventory.entries import Applied
from forewarn.core.inventory.host_report import Power
from forewarn.core.model import EventType
from forewarn.core.principal import OPERATOR
from support import ordered
from support.fleets import HOSTS, alone, vm
from support.inventory_fleet import InventoryFleet
from support.inventory_slices import (
    SLICE_VMS,
    Applying,
    Killed,
    applied,
    at_once,
    at_random,
    content,
    facts,
    groups,
    order_after,
    refuse_what_may_not_be_between_commits,
    scope,
)
from support.reporting_fleet import ReportingFleet, seen
from support.waiting import until

T = TypeVar("T")


@pytest.fixture
def fleet(tmp_path: Path) -> InventoryFleet:
    return InventoryFleet(tmp_path)


# One file.


def test_a_large_file_is_applied_in_slices_and_answered_as_in_one_commit(
    fleet: InventoryFleet,
) -> None:
    first, second = groups(5), groups(5, tag="b")
    reference = InventoryFleet()
    for text in (first, second):
        assert applied(fleet, text) == (reference.apply(text), ())
        assert content(fleet) == content(reference)
    assert len(fleet.commits) == 2 * (1 + 5 + 1)  # decided, its slices, finished
    assert facts(fleet) == facts(reference)


def test_the_text_and_hosts_that_come_are_durable_first_and_hosts_that_go_leave_last(
    fleet: InventoryFleet,
) -> None:
    fleet.apply(HOSTS + groups(2).removeprefix(HOSTS))
    fleet.commits.clear()
    text = '[[host]]\nname = "h4"\n' + scope("s9") + vm("a", scope="s9", host="h4")
    text += alone("b", host="h4") + alone("c", host="h4", address="192.0.2.77")
    applied(fleet, text)
    first, *between, last = fleet.commits
    assert (first.inventory, bool(first.unfinished), first.scopes) == (text, True, ())
    assert [after.name for _, after in first.hosts] == ["h4"]
    assert last.unfinished == ""
    assert last.removed_hosts == ("h1", "h2", "h3")
    assert not any(change.hosts or change.removed_hosts for change in between)


def test_every_commit_has_whole_scopes_of_few_vms(fleet: InventoryFleet) -> None:
    applied(fleet, groups(6))
    sizes = [sum(len(after.vms) for _, after in change.scopes) for change in fleet.commits]
    assert sizes == [0, *([SLICE_VMS] * 6), 0]


def test_a_small_file_stays_one_commit(fleet: InventoryFleet) -> None:
    text = HOSTS + alone("a")
    assert applied(fleet, text)[0].vms.added == ("a",)
    assert len(fleet.commits) == 1
    assert fleet.published.unfinished == ""


def test_a_small_change_of_a_large_fleet_is_one_commit(fleet: InventoryFleet) -> None:
    before = groups(5)
    fleet.apply(before)
    fleet.commits.clear()
    after = before.replace('name = "s3-0"', 'name = "s3-9"')
    changed, waiting = applied(fleet, after)
    assert (changed.vms.added, changed.vms.removed, waiting) == (("s3-9",), ("s3-0",), ())
    assert len(fleet.commits) == 1
    assert content(fleet) == content(at_once(before, after))
    assert len(facts(fleet)) == 2


@pytest.mark.parametrize("text", [groups(4), "# a comment\n" + groups(4)])
def test_the_same_content_writes_nothing(fleet: InventoryFleet, text: str) -> None:
    fleet.apply(groups(4))
    fleet.commits.clear()
    assert applied(fleet, text) == (Applied(), ())
    assert fleet.commits == []


def test_a_change_that_no_scope_sees_is_kept_too(fleet: InventoryFleet) -> None:
    fleet.apply(groups(4))
    text = groups(4).replace('name = "h3"', 'name = "h3"\ncapacity = 50')
    assert applied(fleet, text)[0].hosts.changed == ("h3",)
    assert fleet.host("h3").capacity == 50
    assert fleet.index.inventory == text


# Refused whole.


def test_a_file_that_is_wrong_is_refused_whole(fleet: InventoryFleet) -> None:
    fleet.apply(groups(4))
    before = fleet.everything()
    with pytest.raises(BadInventory, match=r"line \d+: \[\[vm\]\] bad"):
        applied(fleet, groups(4, tag="b") + alone("bad", priority="high"))
    assert fleet.everything() == before


def test_one_visible_event_refuses_the_whole_file_with_every_clash_and_line(
    fleet: InventoryFleet,
) -> None:
    fleet.apply(groups(5))
    fleet.order("s1-0", EventType.REBOOT)
    fleet.order("s4-1", EventType.REBOOT)
    before, commits = fleet.everything(), len(fleet.commits)
    text = groups(5, tag="b").replace("198.51.1.1", "203.0.113.1")
    text = text.replace("198.51.4.2", "203.0.113.2")
    with pytest.raises(InventoryConflict) as sliced:
        applied(fleet, text)
    with pytest.raises(InventoryConflict) as whole:
        fleet.apply(text)
    assert str(sliced.value) == str(whole.value)
    assert str(sliced.value).count("line ") == 2
    assert (fleet.everything(), len(fleet.commits)) == (before, commits)
    assert fleet.published.unfinished == ""


def test_a_listener_that_cannot_be_opened_refuses_the_whole_file(fleet: InventoryFleet) -> None:
    applying = Applying(fleet)
    applying.inventories = Inventories(
        fleet.control,
        slice_vms=SLICE_VMS,
        cannot_listen=lambda where: "it is taken" if where.endswith(":81") else None,
    )
    with pytest.raises(InventoryConflict, match=r"nothing can listen on 127.0.0.1:81 for VM deaf"):
        applying.applied(groups(4) + alone("deaf", listen="127.0.0.1:81"))
    assert fleet.commits == []


# Cut off.


BEFORE = groups(4)
# s0 goes, s1 and s2 swap a VM, s3 changes, s4 is new, h2 goes with its VMs and h4 comes.
AFTER = (
    '[[host]]\nname = "h1"\n[[host]]\nname = "h3"\n[[host]]\nname = "h4"\n'
    + scope("s2")
    + vm("s1-0", scope="s2", host="h4", address="198.51.0.1")
    + vm("s2-0", scope="s2", host="h3", address="198.51.2.1")
    + scope("s3")
    + vm("s3-0", scope="s3", host="h1", address="198.51.3.1", zone="b")
    + "".join(
        scope(f"s{n}") + vm(f"s{n}-0", scope=f"s{n}", host="h4", address=f"198.51.{n}.1")
        for n in range(4, 8)
    )
)
BEFORE = BEFORE.replace(
    'name = "s1-0"\nscope = "s1"\nupdate_domain = 0\nhost = "h2"',
    'name = "s1-0"\nscope = "s1"\nupdate_domain = 0\nhost = "h1"',
)


def commits_of(first: str, second: str) -> int:
    fleet = at_once(first)
    fleet.commits.clear()
    applied(fleet, second)
    return len(fleet.commits)


@pytest.mark.parametrize("commits", range(commits_of(BEFORE, AFTER) + 1))
def test_after_a_kill_between_any_two_commits_the_next_start_goes_on(
    fleet: InventoryFleet, commits: int
) -> None:
    fleet.apply(BEFORE)
    with contextlib.suppress(Killed, Unavailable):
        Applying(fleet, commits=commits).applied(AFTER)
    fleet.restart()
    Applying(fleet).finished()
    assert content(fleet) == content(at_once(BEFORE) if commits == 0 else at_once(BEFORE, AFTER))
    assert len(facts(fleet)) == (1 if commits == 0 else 2)
    assert fleet.store.load().unfinished == ""


def test_killed_again_and_again_it_is_applied_at_last(fleet: InventoryFleet) -> None:
    fleet.apply(BEFORE)
    lives = 0
    with contextlib.suppress(Killed, Unavailable):
        Applying(fleet, commits=1).applied(AFTER)
    while True:
        fleet.restart()
        if not fleet.published.unfinished:
            break
        lives += 1
        one = Applying(fleet, commits=1)

        async def until_dead(one: Applying = one) -> None:
            await asyncio.gather(one.inventories.go_on(), return_exceptions=True)

        try:
            asyncio.run(until_dead())
        except Killed:
            continue
    assert lives >= commits_of(BEFORE, AFTER) - 1  # one commit in each life
    assert content(fleet) == content(at_once(BEFORE, AFTER))


def test_what_the_disk_had_no_room_for_is_gone_on_with(fleet: InventoryFleet) -> None:
    applying, failures = Applying(fleet), [1, 0]

    def fail() -> None:
        if fleet.published.unfinished and len(fleet.commits) == 3 and failures:
            failures.pop()
            raise Unavailable("the disk is full")

    applying.writer.before = fail

    async def work() -> None:
        with pytest.raises(Unavailable, match="the disk is full"):
            await applying.apply(groups(5))
        applying.inventories._ring.set()
        await until(lambda: not fleet.published.unfinished, "it is finished")

    applying.run(work)
    assert content(fleet) == content(at_once(groups(5)))


def test_what_waits_is_not_forgotten_when_the_disk_is_full_right_after(
    fleet: InventoryFleet,
) -> None:
    fleet.apply(groups(5))
    fleet.commits.clear()
    applying, text = Applying(fleet), groups(5, tag="b").replace("198.51.0.1", "203.0.113.9")
    failures = [0]

    def meet() -> None:
        if len(fleet.commits) == 1:
            fleet.order("s0-0", EventType.REBOOT)  # the first slice has to wait
        elif len(fleet.commits) == 3 and failures:
            failures.pop()
            raise Unavailable("the disk is full")  # to the third

    applying.writer.before = meet

    async def work() -> None:
        with pytest.raises(Unavailable, match="goes on later"):
            await applying.apply(text)
        applying.inventories._ring.set()
        await until(
            lambda: fleet.scope("s4").vms[0].profile.zone == "b", "the last slice is applied"
        )

    applying.run(work)
    assert fleet.published.unfinished
    assert fleet.vm("s0-0").profile.address == "198.51.0.1"
    (event,) = fleet.scope("s0").events
    fleet.approve(event)
    fleet.tick()
    fleet.hosts_do_their_work()
    fleet.tick()
    applying.writer.before = lambda: None
    applying.finished()
    assert fleet.vm("s0-0").profile.address == "203.0.113.9"


def test_a_service_that_stops_tells_the_caller_that_it_goes_on(fleet: InventoryFleet) -> None:
    applying = Applying(fleet)

    async def main() -> None:
        running = asyncio.ensure_future(applying.inventories.run())
        asked = asyncio.ensure_future(applying.apply(groups(5)))
        while len(fleet.commits) < 3:  # noqa: ASYNC110 - nobody rings for it
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(Unavailable, match="The next start goes on"):
            await asked

    asyncio.run(main())
    fleet.restart()
    Applying(fleet).finished()
    assert content(fleet) == content(at_once(groups(5)))


def test_a_file_is_applied_though_its_sender_left_before_the_answer(fleet: InventoryFleet) -> None:
    """What is decided is looked for; it needs no ring."""
    applying = Applying(fleet)
    submit = applying.writer.submit
    asked: list[asyncio.Task[object]] = []

    async def submit_and_leave(command: Wanted[T]) -> T:
        found = await submit(command)
        if fleet.published.unfinished and asked[0].cancel():
            await asyncio.sleep(0)
        return found

    async def main() -> None:
        applying.writer.submit = submit_and_leave  # type: ignore[method-assign]
        asked.append(asyncio.create_task(applying.apply(groups(5))))
        await asyncio.gather(*asked, return_exceptions=True)
        assert asked[0].cancelled()
        await until(lambda: not fleet.published.unfinished, "it is applied")

    applying.run(main)
    assert content(fleet) == content(at_once(groups(5)))


# What begins meanwhile.


def test_what_an_event_that_began_meanwhile_forbids_waits_and_the_rest_does_not(
    fleet: InventoryFleet,
) -> None:
    fleet.apply(groups(5))
    text = groups(4, tag="b")  # without s4
    applying = Applying(fleet)
    order_after(fleet, applying, 2, "s4-0")
    changed, waiting = applying.applied(text)
    assert changed.scopes.removed == ("s4",)
    assert len(waiting) == 1
    assert "VM s4-0 is not in the file, but the scheduled Reboot event" in waiting[0]
    assert {vm.profile.zone for n in range(4) for vm in fleet.scope(f"s{n}").vms} == {"b"}
    assert len(fleet.scope("s4").vms) == 2  # whole, as it was
    assert len(facts(fleet)) == 1
    (event,) = fleet.scope("s4").events

    fleet.approve(event)
    fleet.tick()
    fleet.hosts_do_their_work()
    fleet.tick()
    applying.finished()
    assert "s4" not in fleet.index.scopes or fleet.scope("s4").vms == ()
    assert len(facts(fleet)) == 2


MANY = 20  # VMs: ten scopes of two are one slice


def zones(fleet: InventoryFleet) -> dict[str, set[str | None]]:
    return {name: {vm.profile.zone for vm in one.vms} for name, one in fleet.index.scopes.items()}


@pytest.mark.parametrize("waiting_scopes", [("s3",), ("s0", "s3", "s9"), ("s12", "s13")])
def test_of_many_scopes_in_one_slice_only_those_that_clash_wait(
    fleet: InventoryFleet, waiting_scopes: Sequence[str]
) -> None:
    fleet.apply(groups(30))
    text = groups(30, tag="b")
    for name in waiting_scopes:
        text = text.replace(f"198.51.{name[1:]}.1", f"203.0.113.{name[1:]}")
    applying = Applying(fleet, slice_vms=MANY)
    made = len(fleet.commits) + 1

    def order() -> None:
        if len(fleet.commits) == made:
            for name in waiting_scopes:
                fleet.order(f"{name}-0", EventType.REBOOT)

    applying.writer.before = order
    _, waiting = applying.applied(text)
    assert len(waiting) == len(waiting_scopes)
    assert {name for name, found in zones(fleet).items() if found == {"a"}} == set(waiting_scopes)
    assert all(any(f"{name}-0" in words for words in waiting) for name in waiting_scopes)

    applying.writer.before = lambda: None
    for name in waiting_scopes:
        fleet.approve(fleet.scope(name).events[0])
    fleet.tick()
    fleet.hosts_do_their_work()
    fleet.tick()
    applying.finished()
    assert set().union(*zones(fleet).values()) == {"b"}


def test_scopes_between_which_a_vm_moves_wait_together_and_the_rest_of_the_slice_does_not(
    fleet: InventoryFleet,
) -> None:
    fleet.apply(groups(30))
    text = groups(30, tag="b").replace('name = "s3-0"\nscope = "s3"', 'name = "s3-0"\nscope = "s4"')
    assert text.count('scope = "s4"') == 3
    applying = Applying(fleet, slice_vms=MANY)
    order_after(fleet, applying, 1, "s3-0")
    _, waiting = applying.applied(text)
    assert len(waiting) == 1
    assert {name for name, found in zones(fleet).items() if found == {"a"}} == {"s3", "s4"}


def test_what_waits_is_gone_on_with_after_a_restart_too(fleet: InventoryFleet) -> None:
    fleet.apply(groups(5))
    applying = Applying(fleet)
    order_after(fleet, applying, 2, "s4-0")
    applying.applied(groups(4, tag="b"))
    fleet.restart()
    (event,) = fleet.scope("s4").events
    again = Applying(fleet)

    async def passes() -> None:
        await again.inventories.go_on()
        assert fleet.published.unfinished  # still waits
        assert len(fleet.scope("s4").vms) == 2
        fleet.approve(event)
        fleet.tick()
        fleet.hosts_do_their_work()
        fleet.tick()
        await again.inventories.go_on()

    asyncio.run(passes())
    assert fleet.published.unfinished == ""
    assert fleet.index.scope_of_vm.get("s4-0") is None


def test_a_new_vm_is_not_put_on_a_host_that_has_an_operation_by_then(
    fleet: InventoryFleet,
) -> None:
    fleet.apply(groups(3))
    text = groups(3) + scope("s7") + vm("n1", scope="s7", host="h2") + alone("n2", host="h3")
    text += alone("n3", host="h3") + alone("n4", host="h1")
    applying = Applying(fleet)
    made = len(fleet.commits) + 1

    def maintain() -> None:
        if len(fleet.commits) == made:
            fleet.run(
                inventory_maintenance("h2"),
            )

    applying.writer.before = maintain
    _, waiting = applying.applied(text)
    assert [
        "VM n1 cannot be placed on host h2, which has an open" in waits for waits in waiting
    ] == [True]
    assert fleet.index.scope_of_vm.get("n1") is None
    assert fleet.index.scope_of_vm.get("n2") == "n2"


def test_a_new_vm_is_not_put_on_a_host_that_an_order_has_filled_by_then(
    fleet: InventoryFleet,
) -> None:
    first = '[[host]]\nname = "h1"\n[[host]]\nname = "h2"\ncapacity = 1\n'
    first += "".join(alone(f"v{n}", address=f"192.0.2.{n + 1}") for n in range(5))
    fleet.apply(first)
    applying = Applying(fleet)
    made = len(fleet.commits) + 1

    def move() -> None:
        if len(fleet.commits) == made:
            fleet.approve(fleet.order("v0", EventType.REDEPLOY))
            fleet.tick()
            fleet.hosts_do_their_work()

    applying.writer.before = move
    second = first.replace("v4", "v5") + alone("z", host="h2", address="192.0.2.99")
    _, waiting = applying.applied(second)
    assert waiting == ("host h2 takes 1 VMs; it has 1 and the file adds 1.",)
    assert fleet.vm("v0").host == "h2"
    assert "z" not in fleet.index.scope_of_vm


def test_vms_of_two_slices_that_change_places_on_full_hosts_wait_for_nothing(
    fleet: InventoryFleet,
) -> None:
    hosts = '[[host]]\nname = "h1"\ncapacity = 1\n[[host]]\nname = "h2"\ncapacity = 1\n'
    hosts += '[[host]]\nname = "h3"\n'
    two = "".join(scope(f"s{n}") + "%s" for n in range(2))
    rest = "".join(alone(f"v{n}", host="h3", address=f"192.0.2.{n + 1}") for n in range(5))
    old = [vm(f"a{n}", scope=f"s{n}", host=f"h{n + 1}", address=f"192.0.2.{n + 8}") for n in (0, 1)]
    new = [
        vm(f"b{n}", scope=f"s{n}", host=f"h{2 - n}", address=f"192.0.2.{n + 18}") for n in (0, 1)
    ]
    fleet.apply(hosts + two % tuple(old) + rest)
    applying = Applying(fleet)
    applying.inventories = Inventories(fleet.control, slice_vms=1)
    assert applying.applied(hosts + two % tuple(new) + rest)[1] == ()
    assert (fleet.vm("b0").host, fleet.vm("b1").host) == ("h2", "h1")


def inventory_maintenance(host: str) -> Wanted[object]:
    return ordered.maintain_host(host, EventType.FREEZE, by="operator")


def test_a_host_that_a_vm_came_to_meanwhile_stays_until_it_is_empty(fleet: InventoryFleet) -> None:
    first = HOSTS + "".join(alone(f"v{n}", host="h1", address=f"192.0.2.{n + 1}") for n in range(5))
    second = first.replace('[[host]]\nname = "h3"\n', "").replace("v4", "v5")
    fleet.apply(first)
    applying = Applying(fleet)
    made = len(fleet.commits) + 1
    second += alone("v6", address="192.0.2.60") + alone("v7", address="192.0.2.70")

    def occupy() -> None:
        if len(fleet.commits) == made:
            fleet.run(inventory_maintenance("h3"))

    applying.writer.before = occupy
    _, waiting = applying.applied(second)
    assert len(waiting) == 1
    assert "host h3 is not in the file, but its Freeze operation" in waiting[0]
    assert fleet.index.scope_of_vm.get("v7") == "v7"
    assert fleet.published.unfinished


@pytest.mark.parametrize("needed", [False, True])
def test_a_host_that_goes_does_not_wait_for_a_scope_unless_it_is_needed_and_is_named_then(
    fleet: InventoryFleet, *, needed: bool
) -> None:
    last = scope("s4") + "".join(
        vm(f"s4-{n}", scope="s4", host="h4" if needed else "h1", address=f"198.51.4.{n}")
        for n in (1, 2)
    )
    fleet.apply(groups(4) + '[[host]]\nname = "h4"\n' + last)
    applying = Applying(fleet)
    order_after(fleet, applying, 1, "s4-1")
    changed, (*hosts_wait, scope_waits) = applying.applied(groups(4, tag="b"))
    assert changed.hosts.removed == ("h4",)
    assert "VM s4-1 is not in the file, but the scheduled Reboot" in scope_waits
    words = "host h4 is not in the file, but VMs are there: s4-1, s4-2."
    assert hosts_wait == ([words] if needed else [])
    assert ("h4" in fleet.index.hosts) is needed
    if needed:  # and no Redeploy brings another VM there, or it would never leave
        assert placement.placement(fleet.host("h4"), fleet.published.look()) == "unlisted"

    (event,) = fleet.scope("s4").events
    fleet.approve(event)
    fleet.tick()
    fleet.hosts_do_their_work()
    fleet.tick()
    applying.finished()
    assert "h4" not in fleet.index.hosts


def test_a_host_that_was_to_go_takes_vms_again_once_a_file_lists_it(
    fleet: InventoryFleet,
) -> None:
    last = scope("s4") + vm("s4-1", scope="s4", host="h4", address="198.51.4.1")
    with_h4 = groups(4, tag="b") + '[[host]]\nname = "h4"\n' + last
    fleet.apply(groups(4) + '[[host]]\nname = "h4"\n' + last)
    applying = Applying(fleet)
    order_after(fleet, applying, 1, "s4-1")
    applying.applied(groups(4, tag="b"))
    assert not fleet.host("h4").listed
    applying.applied(with_h4)
    assert fleet.host("h4").listed


# Two files.


def test_two_files_at_once_are_applied_one_after_the_other(fleet: InventoryFleet) -> None:
    applying = Applying(fleet)
    first, second = groups(5), groups(4, tag="b")

    async def work() -> Sequence[tuple[Applied, tuple[str, ...]]]:
        return await asyncio.gather(applying.apply(first), applying.apply(second))

    answers = applying.run(work)
    reference = InventoryFleet()
    assert list(answers) == [(reference.apply(text), ()) for text in (first, second)]
    assert content(fleet) == content(reference)


def test_another_file_takes_the_place_of_one_that_waits(fleet: InventoryFleet) -> None:
    fleet.apply(groups(5))
    applying = Applying(fleet)
    order_after(fleet, applying, 2, "s4-0")
    _, waiting = applying.applied(groups(4, tag="b"))
    assert waiting
    text = groups(5, tag="c")
    again = Applying(fleet)
    assert again.applied(text)[1] == ()
    assert fleet.published.unfinished == ""
    assert fleet.index.inventory == text
    assert {vm.profile.zone for n in range(5) for vm in fleet.scope(f"s{n}").vms} == {"c"}


@pytest.mark.parametrize("at_a_start", [False, True])
@pytest.mark.parametrize("text", [groups(5, tag="c"), groups(5)], ids=["large", "one slice"])
def test_the_journal_keeps_a_file_that_was_applied_in_part(
    fleet: InventoryFleet, text: str, *, at_a_start: bool
) -> None:
    """What it has changed was changed, and by whom must be found."""
    fleet.apply(groups(5))
    applying = Applying(fleet)
    order_after(fleet, applying, 2, "s4-0")
    part = groups(4) + scope("new") + vm("new-0", scope="new") + alone("new-1") + alone("new-2")
    applying.applied(part)
    before = facts(fleet)
    if at_a_start:
        asyncio.run(applying.inventories.apply_at_once(text, by=ordered.operator("inventory")))
    else:
        Applying(fleet).applied(text)
    cut_short, last = facts(fleet)[len(before) :]
    assert isinstance(cut_short, dict)
    assert cut_short["vms_added"] == ["new-0", "new-1", "new-2"]
    assert cut_short["applied"] == "in part, then another took its place"
    assert isinstance(last, dict)
    assert "applied" not in last


def test_a_file_that_is_refused_leaves_the_one_that_waits(fleet: InventoryFleet) -> None:
    fleet.apply(groups(5))
    applying = Applying(fleet)
    order_after(fleet, applying, 2, "s4-0")
    waits = groups(4, tag="b")
    applying.applied(waits)
    with pytest.raises(InventoryConflict, match="s4-0 is not in the file"):
        Applying(fleet).applied(groups(3))
    assert (fleet.index.inventory, bool(fleet.published.unfinished)) == (waits, True)


def test_the_same_order_sent_again_gets_its_answer_and_is_not_carried_out_again(
    fleet: InventoryFleet,
) -> None:
    applying = Applying(fleet)

    async def send() -> tuple[Answer, tuple[str, ...]]:
        return await applying.inventories.apply(
            groups(4),
            by=OPERATOR,
            guard=Keyed("k1", "f", ordered.full_access(OPERATOR)).once,
            before=FindAnswer(by=OPERATOR, key="k1", fingerprint="f"),
        )

    async def work() -> Sequence[tuple[Answer, tuple[str, ...]]]:
        return await asyncio.gather(send(), send())

    (first, _), (second, _) = applying.run(work)
    assert (first.repeated, second.repeated) == (False, True)
    assert first.text == second.text
    assert len(fleet.commits) == 1 + 4 + 1


# Anything at all.


@pytest.mark.parametrize("seed", range(40))
def test_slices_come_to_the_same_as_one_commit_whatever_the_files_are(seed: int) -> None:
    chance = random.Random(seed)
    sliced, whole = InventoryFleet(), InventoryFleet()
    refuse_what_may_not_be_between_commits(sliced)
    for turn in range(6):
        text = at_random(chance)
        answers: list[object] = []
        for apply in (lambda text: applied(sliced, text)[0], whole.apply):
            try:
                answers.append(apply(text))
            except InventoryConflict as refused:
                answers.append(str(refused))
        assert answers[0] == answers[1]
        assert content(sliced) == content(whole)
        for name in chance.sample(sorted(whole.index.scope_of_vm), 1):
            kind = chance.choice([EventType.REBOOT, EventType.TERMINATE])
            for one in (sliced, whole):
                one._ids.count = (turn + 1) * 1_000  # the same for both
                event = one.order(name, kind)
                if seed % 2:
                    one.approve(event)
                    one.tick()
                    one.hosts_do_their_work()
                    one.tick()


def test_what_is_applied_at_a_start_is_one_commit_whatever_its_size(fleet: InventoryFleet) -> None:
    applying = Applying(fleet)
    asyncio.run(applying.inventories.apply_at_once(groups(6), by=ordered.operator("inventory")))
    assert len(fleet.commits) == 1
    assert content(fleet) == content(at_once(groups(6)))


def test_what_is_applied_at_a_start_takes_the_place_of_what_waits(fleet: InventoryFleet) -> None:
    with contextlib.suppress(Killed, Unavailable):
        Applying(fleet, commits=3).applied(groups(5))
    fleet.restart()
    assert fleet.published.unfinished
    fleet.run(apply_at_once.apply(groups(4, tag="z"), by=ordered.operator("inventory")))
    assert fleet.published.unfinished == ""
    assert fleet.index.scope_of_vm == at_once(groups(4, tag="z")).index.scope_of_vm
    assert {one.profile.zone for found in fleet.index.scopes.values() for one in found.vms} == {"z"}


# Beside what hosts show.


@pytest.mark.parametrize("commits", range(6))
def test_what_hosts_report_between_two_slices_is_compared_with_the_new_file(commits: int) -> None:
    """Else a report would undo a slice by what the file before has said."""
    shown = [
        seen(f"s{n}-{m}", scope=f"own{n}", update_domain=m) for n in range(3) for m in range(2)
    ]
    first = groups(3)
    second = first.replace('"s0"', '"t0"').replace('"s1"', '"t1"').replace('"s2"', '"t2"')

    def world() -> ReportingFleet:
        fleet = ReportingFleet("h1", "h2", "h3")
        fleet.apply(first)
        for number, host in enumerate(("h1", "h2", "h3")):
            fleet.shows(host, *shown[2 * number : 2 * number + 2])
        return fleet

    def report(fleet: ReportingFleet) -> None:
        for number, host in enumerate(("h1", "h2", "h3")):
            off = [replace(one, power=Power.PAUSED) for one in shown[2 * number : 2 * number + 2]]
            fleet.shows(host, *off)

    sliced, whole = world(), world()
    applying = Applying(sliced)
    made = len(sliced.commits) + commits
    due = [True]

    def meanwhile() -> None:
        if len(sliced.commits) >= made and due:
            due.pop()
            report(sliced)

    applying.writer.before = meanwhile
    assert applying.applied(second)[1] == ()
    whole.apply(second)
    for fleet in (sliced, whole):
        report(fleet)
    assert sliced.index.scope_of_vm == whole.index.scope_of_vm
    assert set(sliced.index.scope_of_vm.values()) == {"t0", "t1", "t2"}
    assert sliced.published.unfinished == ""
    assert {one.vm_id for found in sliced.index.scopes.values() for one in found.vms} == {
        one.vm_id for one in shown
    }
