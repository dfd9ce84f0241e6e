"""What libvirt is not told to do: nothing that was not announced, and to nobody else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from msgspec.structs import replace

from forewarn.adapters.libvirt.blocking_calls import LibvirtSession
from forewarn.adapters.libvirt.connection import LibvirtLost, Why
from forewarn.adapters.libvirt.next_steps import mark_of
from forewarn.core.inventory.host_report import Power
from forewarn.core.model import MINUTE_MS, ActionKind
from forewarn.ports import HypervisorFailed, Sight, SightKind, WorkOrder
from support.libvirt_world import (
    DELETE,
    FREEZE,
    FREEZE_S,
    MOVE,
    REBOOT,
    REBOOT_HOST,
    SHUTDOWN_S,
    UUIDS,
    FakeLibvirt,
    LibvirtWorld,
    acts,
    domain_xml,
    refusal,
)
from support.waiting import wait_until

T = TypeVar("T")

MOVES = '<forewarn:vm xmlns:forewarn="urn:forewarn:vm:1" when-host-goes-down="move"/>'
PRESSED = "press the power button of vm"


# A plug is not pulled before its owner was asked.


def test_vms_are_asked_to_shut_down_however_long_others_took_to_move_away(
    world: LibvirtWorld,
) -> None:
    world.define("h1", domain_xml("mover", metadata=MOVES), start=True)
    world.define("h1", domain_xml("vm"), start=True)
    world.elsewhere.targets_of["mover"] = "h2"
    world.libvirts["h1"].refuse["press"] = refusal("the guest does not care")
    world.hold()
    world.begin(REBOOT_HOST)
    wait_until(lambda: "move mover to h2" in acts(world), "it is being moved")
    world.clock.pass_ms(2 * SHUTDOWN_S * 1_000)
    world.release()
    wait_until(lambda: PRESSED in acts(world), "the other one is asked")
    world.clock.pass_ms(SHUTDOWN_S * 500)
    wait_until(lambda: acts(world).count(PRESSED) == 2, "it is asked again")
    assert "destroy vm" not in acts(world)
    world.clock.pass_ms(SHUTDOWN_S * 500)
    wait_until(lambda: "destroy vm" in acts(world), "its time is over")


def test_a_daemon_that_comes_late_asks_before_it_pulls_the_plug(world: LibvirtWorld) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    world.libvirts["h1"].refuse["press"] = refusal("the guest does not care")
    world.libvirts["h1"].stop_at = PRESSED
    world.begin(REBOOT)
    wait_until(lambda: PRESSED in acts(world), "it is about to be asked")
    world.kill_daemon("h1")
    world.libvirts["h1"].stop_at = ""
    world.libvirts["h1"].asked.clear()
    world.clock.pass_ms(2 * SHUTDOWN_S * 1_000)
    assert world.look(REBOOT).kind is SightKind.UNDER_WAY
    wait_until(lambda: acts(world).count(PRESSED) == 2, "the next one asks")
    assert "destroy vm" not in acts(world)
    world.clock.pass_ms(SHUTDOWN_S * 500)
    assert world.end_of(REBOOT).kind is SightKind.DONE
    assert acts(world)[-2:] == ["destroy vm", "start vm"]


# Only who was told is touched.

TOLD = (("vm", UUIDS["vm"]),)
ANOTHER = domain_xml("vm").replace(UUIDS["vm"], "00000000-0000-4000-8000-00000000000b")


@pytest.mark.parametrize("action", [REBOOT, DELETE, MOVE], ids=lambda action: action.kind.value)
def test_nothing_is_done_to_another_vm_that_has_the_name_by_now(
    world: LibvirtWorld, action: WorkOrder
) -> None:
    action = replace(action, about=TOLD)
    world.define("h1", ANOTHER, start=True)
    if action.kind is ActionKind.DELETE_VM:
        assert world.look(action) == Sight(SightKind.DONE, "it was gone already")
    else:
        with pytest.raises(HypervisorFailed, match="another VM has the name vm now"):
            world.begin(action)
    assert acts(world) == []
    assert world.seen("h1").power is Power.RUNNING


@pytest.mark.parametrize("action", [REBOOT, DELETE, MOVE], ids=lambda action: action.kind.value)
def test_a_vm_that_is_made_anew_in_the_middle_is_let_be(
    world: LibvirtWorld, action: WorkOrder
) -> None:
    action = replace(action, about=TOLD)
    world.define("h1", domain_xml("vm"), start=True)
    world.hold()
    world.libvirts["h1"].refuse["move"] = refusal("not while it runs", Why.CANNOT_LIVE)
    world.libvirts["h1"].refuse["press"] = refusal("the guest does not care")
    world.begin(action)
    wait_until(lambda: bool(acts(world)), "something is about to be done")
    world.on("h1", lambda s: s.destroy("vm"))
    world.on("h1", lambda s: s.undefine("vm"))
    world.define("h1", ANOTHER, start=True)
    world.release()
    world.end_of(action)
    assert not {"destroy vm", "undefine vm", "start vm"}.intersection(acts(world))
    assert world.seen("h1").power is Power.RUNNING
    assert mark_of(world.seen("h1"), action.action_id) is None


def test_a_freeze_leaves_who_came_since_it_was_announced_alone(world: LibvirtWorld) -> None:
    freeze = replace(FREEZE, about=TOLD)
    world.define("h1", domain_xml("vm"), start=True)
    world.define("h1", domain_xml("new"), start=True)
    world.begin(freeze)
    wait_until(lambda: world.seen("h1").power is Power.PAUSED, "who was told is paused")
    assert world.seen("h1", "new").power is Power.RUNNING
    world.clock.pass_ms(FREEZE_S * 1_000)
    assert world.end_of(freeze) == Sight(SightKind.DONE, "new had no notice and was not paused")
    assert "pause new" not in acts(world)


def test_a_host_is_not_rebooted_under_a_vm_that_came_since_it_was_announced(
    world: LibvirtWorld,
) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    world.define("h1", domain_xml("new"), start=True)
    with pytest.raises(HypervisorFailed, match="new had no notice"):
        world.begin(replace(REBOOT_HOST, about=TOLD))
    assert acts(world) == []
    world.on("h1", lambda s: s.destroy("new"))
    world.begin(replace(REBOOT_HOST, about=TOLD))
    wait_until(lambda: not world.seen("h1").active, "the host goes down")


# A libvirt that hangs.


class LateLibvirt(FakeLibvirt):
    """Hangs when it is asked to pause, says how things were, and then pauses all the same."""

    late = True

    async def call(
        self, work: Callable[[LibvirtSession], T], *, what: str, seconds: float = 15.0
    ) -> T:
        if what == "pause vm":
            self.asked.append(what)
            raise LibvirtLost("took more than 15 s to pause vm")
        value = await super().call(work, what=what, seconds=seconds)
        if self.late and what == "list the domains" and "pause vm" in self.asked:
            self.late = False
            await super().call(lambda s: s.suspend("vm"), what="look", seconds=seconds)
        return value


def test_a_pause_that_libvirt_carries_out_late_is_undone_too(tmp_path: Path) -> None:
    world = LibvirtWorld(tmp_path, LateLibvirt)
    try:
        world.define("h1", domain_xml("vm"), start=True)
        world.begin(FREEZE)
        wait_until(lambda: "pause vm" in acts(world), "it was to be paused")
        world.clock.pass_ms(FREEZE_S * 1_000)
        assert world.end_of(FREEZE).kind is SightKind.DONE
        assert world.seen("h1").power is Power.RUNNING
        assert "resume vm" in acts(world)
    finally:
        world.close()


# Nothing is done after the event that announced it.


@pytest.mark.parametrize(
    "action", [REBOOT, DELETE, MOVE, FREEZE, REBOOT_HOST], ids=lambda action: action.kind.value
)
def test_what_is_claimed_too_late_is_not_begun(world: LibvirtWorld, action: WorkOrder) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    with pytest.raises(HypervisorFailed, match="too late"):
        world.begin(replace(action, left_ms=3 * MINUTE_MS))
    assert acts(world) == []
    assert mark_of(world.seen("h1"), action.action_id) is None


def test_what_was_begun_and_is_gone_on_with_late_ends_before_its_event(world: LibvirtWorld) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    world.libvirts["h1"].stop_at = PRESSED
    world.begin(REBOOT)
    wait_until(lambda: world.libvirts["h1"].stopped, "it is about to be asked")
    world.kill_daemon("h1")
    again = replace(REBOOT, left_ms=10_000)
    assert world.look(again).kind is SightKind.UNDER_WAY
    assert world.end_of(again).kind is SightKind.FAILED
    assert world.seen("h1").power is Power.RUNNING


def test_a_vm_that_stood_still_for_too_long_because_libvirt_hung_is_named(
    world: LibvirtWorld,
) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    world.begin(FREEZE)
    wait_until(lambda: world.seen("h1").power is Power.PAUSED, "it is paused")
    world.libvirts["h1"].off = True
    world.clock.pass_ms((FREEZE_S + 20) * 1_000)
    world.libvirts["h1"].off = False
    sight = world.end_of(FREEZE)
    assert sight.kind is SightKind.DONE
    assert "vm stood still for 20 s longer than announced" in sight.detail
    assert world.seen("h1").power is Power.RUNNING
