"""What becomes of actions whose daemon dies, loses its libvirt, or never gets its claim back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from forewarn.adapters.libvirt.blocking_calls import LibvirtSession
from forewarn.adapters.libvirt.domain_xml import DomainMark
from forewarn.adapters.libvirt.interrupted_actions import UNCLAIMED_FOR_MS
from forewarn.adapters.libvirt.next_steps import mark_of
from forewarn.core.inventory.host_report import Power
from forewarn.core.model import ActionKind
from forewarn.ports import SightKind, WorkOrder
from support.libvirt_world import (
    DELETE,
    DONE,
    FREEZE,
    FREEZE_S,
    MOVE,
    REBOOT,
    REBOOT_HOST,
    START,
    FakeLibvirt,
    LibvirtWorld,
    acts,
    domain_xml,
    frozen,
    run,
)
from support.waiting import wait_until

T = TypeVar("T")


class Mortal(FakeLibvirt):
    """Lets the daemon die at its nth call to libvirt, before or after it had its effect."""

    calls_left: int | None = None
    after = False

    async def call(
        self, work: Callable[[LibvirtSession], T], *, what: str, seconds: float = 15.0
    ) -> T:
        if self.calls_left is None:
            return await super().call(work, what=what, seconds=seconds)
        self.calls_left -= 1
        if self.calls_left < 0:
            await asyncio.Event().wait()  # the dead make no calls
        dies = self.calls_left == 0
        if dies and not self.after:
            await asyncio.Event().wait()
        value = await super().call(work, what=what, seconds=seconds)
        if dies:
            await asyncio.Event().wait()
        return value


CALLS_MAX = 40


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("action", "end"),
    [
        (REBOOT, ("h1", Power.RUNNING)),
        (MOVE, ("h2", Power.RUNNING)),
        (DELETE, None),
        (START, ("h1", Power.RUNNING)),
        (FREEZE, ("h1", Power.RUNNING)),
    ],
    ids=["reboot", "move", "delete", "start", "freeze"],
)
def test_a_daemon_may_die_at_any_call_and_the_next_one_ends_the_action(
    tmp_path: Path, action: WorkOrder, end: tuple[str, Power] | None, *, after: bool
) -> None:
    for number in range(1, CALLS_MAX):
        folder = tmp_path / str(number)
        folder.mkdir()
        if not dies_at(folder, number, action, end, after=after):
            assert number > 3, "hardly anything was done"
            return
    raise AssertionError(f"more than {CALLS_MAX} calls")


def dies_at(
    folder: Path, number: int, action: WorkOrder, end: tuple[str, Power] | None, *, after: bool
) -> bool:
    """Run an action whose daemon dies at its nth call. False if it has fewer."""
    world = LibvirtWorld(folder, libvirt=Mortal)
    try:
        world.define("h1", domain_xml("vm"), start=action is not START)
        mortal = world.libvirts["h1"]
        assert isinstance(mortal, Mortal)
        mortal.calls_left, mortal.after = number, after
        world.post(action)

        def over() -> bool:
            world.clock.pass_ms(FREEZE_S * 10)
            return (mortal.calls_left or 0) <= 0 or (
                world.posted is not None and world.posted.done()
            )

        wait_until(over, "death or the end")
        died = (mortal.calls_left or 0) <= 0
        world.kill_daemon("h1")
        mortal.calls_left = None
        world.clock.pass_ms(FREEZE_S * 1_000)
        if world.look(action).kind is SightKind.NOT_BEGUN:
            world.post(action)
        sight = world.end_turning(action, by_ms=FREEZE_S * 1_000)
        assert sight.kind is SightKind.DONE, (number, sight)
        places = {h: v.power for h in ("h1", "h2") if (v := world.view(h)) is not None}
        assert places == ({end[0]: end[1]} if end else {}), number
        return died
    finally:
        world.close()


@pytest.mark.parametrize("action", [REBOOT, MOVE, DELETE, FREEZE])
def test_libvirt_may_be_lost_in_the_middle_of_every_act(
    world: LibvirtWorld, action: WorkOrder
) -> None:
    """Each act is lost once, after it had its effect."""
    world.define("h1", domain_xml("vm"), start=True)
    lost: set[str] = set()
    for libvirt in world.libvirts.values():
        libvirt.lose_once = lost
    world.begin(action)
    sight = world.end_turning(action, by_ms=FREEZE_S * 1_000)
    assert sight.kind is SightKind.DONE
    assert lost


def test_an_action_that_is_begun_while_libvirt_restarts_is_done_when_it_is_back(
    world: LibvirtWorld,
) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    world.libvirts["h1"].off = True
    world.begin(REBOOT)
    assert world.look(REBOOT).kind is SightKind.UNDER_WAY
    world.libvirts["h1"].off = False
    assert world.end_of(REBOOT) == DONE


# Nobody claims it again.


def test_a_vm_that_a_dead_daemon_had_shut_down_for_a_restart_is_started_at_once(
    world: LibvirtWorld,
) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    world.hold()
    world.begin(REBOOT)
    wait_until(lambda: bool(acts(world)), "it is about to be pressed")
    world.kill_daemon("h1")
    world.release()
    world.on("h1", lambda s: s.press("vm"))
    world.run(world.hypervisors["h1"].mend())
    assert world.seen("h1").power is Power.RUNNING
    assert world.look(REBOOT) == DONE


def test_a_vm_that_its_owner_switches_off_after_a_restart_is_not_started(
    world: LibvirtWorld,
) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    assert run(world, REBOOT) == DONE
    world.on("h1", lambda s: s.destroy("vm"))
    world.kill_daemon("h1")
    world.run(world.hypervisors["h1"].mend())
    assert not world.seen("h1").active


def test_a_frozen_vm_is_thawed_when_its_time_is_over_though_nobody_claims_the_freeze(
    world: LibvirtWorld,
) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    frozen(world)
    world.kill_daemon("h1")
    world.run(world.hypervisors["h1"].mend())
    assert world.seen("h1").power is Power.PAUSED
    world.clock.pass_ms(FREEZE_S * 1_000)
    world.run(world.hypervisors["h1"].mend())
    assert world.seen("h1").power is Power.RUNNING


def test_a_move_that_nobody_claims_again_ends_here_with_a_vm_that_runs(world: LibvirtWorld) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    world.libvirts["h1"].stop_at = "read the definition of vm"
    world.begin(MOVE)
    wait_until(lambda: world.libvirts["h1"].stopped, "it is off and about to be defined there")
    world.kill_daemon("h1")
    world.libvirts["h1"].stop_at = ""
    mend = world.hypervisors["h1"].mend
    world.run(mend())
    assert not world.seen("h1").active
    world.clock.pass_ms(UNCLAIMED_FOR_MS)
    world.run(mend())
    wait_until(lambda: not world.hypervisors["h1"].works_on(), "it is ended")
    places = [host for host in ("h1", "h2") if (v := world.view(host)) is not None and v.active]
    assert len(places) == 1


def test_what_an_old_host_was_doing_has_ended_for_a_vm_that_runs_here(world: LibvirtWorld) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    mark = DomainMark(action_id="E9", kind=ActionKind.REBOOT_HOST, host="h2", boot_id="h2-boot-1")
    world.on("h1", lambda s: s.set_mark("vm", mark, live=True, config=True))
    world.run(world.hypervisors["h1"].mend())
    world.clock.pass_ms(UNCLAIMED_FOR_MS)
    world.run(world.hypervisors["h1"].mend())
    found = mark_of(world.seen("h1"), "E9")
    assert found is not None
    assert found.ended == "done"


def test_vms_of_a_host_reboot_that_did_not_happen_are_started_again_after_a_while(
    world: LibvirtWorld,
) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    world.reboot_command = ("sleep", "60")
    world.start_daemon("h1")
    world.begin(REBOOT_HOST)
    wait_until(lambda: not world.seen("h1").active, "it is off")
    world.kill_daemon("h1")
    world.run(world.hypervisors["h1"].mend())
    world.clock.pass_ms(UNCLAIMED_FOR_MS)
    assert not world.seen("h1").active
    world.run(world.hypervisors["h1"].mend())
    assert world.seen("h1").power is Power.RUNNING
    sight = world.look(REBOOT_HOST)
    assert sight.kind is SightKind.FAILED
    assert "interrupted" in sight.detail
