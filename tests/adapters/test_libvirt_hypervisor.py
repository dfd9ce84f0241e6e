"""What libvirt is told to do to domains and hosts, on its own test driver (no machines)."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TypeVar

import pytest
from msgspec.structs import replace

from forewarn.adapters.libvirt.connection import LibvirtConnection, LibvirtLost, Why
from forewarn.adapters.libvirt.domain_xml import read_traits, traits_element
from forewarn.adapters.libvirt.next_steps import mark_of
from forewarn.adapters.libvirt.vm_actions import GIVE_UP_AFTER_MS
from forewarn.core.deadlines import DEADLINE_MS
from forewarn.core.inventory.host_report import Power, Traits
from forewarn.core.model import ActionKind, EventType
from forewarn.ports import HypervisorFailed, Sight, SightKind
from support.libvirt_world import (
    DELETE,
    DONE,
    FREEZE,
    FREEZE_S,
    MOVE,
    REBOOT,
    REBOOT_HOST,
    SHUTDOWN_S,
    START,
    LibvirtWorld,
    acts,
    domain_xml,
    frozen,
    refusal,
    run,
)
from support.waiting import wait_until

T = TypeVar("T")

TRAITS = '<forewarn:vm xmlns:forewarn="urn:forewarn:vm:1" {}/>'


# One VM.


def test_a_restart_shuts_a_vm_down_and_starts_it(world: LibvirtWorld) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    assert run(world, REBOOT) == DONE
    assert acts(world) == ["press the power button of vm", "start vm"]
    assert world.seen("h1").power is Power.RUNNING


def test_a_vm_that_its_owner_switched_off_stays_off(world: LibvirtWorld) -> None:
    world.define("h1", domain_xml("vm"), start=False)
    sight = run(world, REBOOT)
    assert sight == Sight(SightKind.DONE, "it was off, and stays off")
    assert not world.seen("h1").active


def test_a_guest_that_ignores_the_button_is_pressed_twice_and_then_reset(
    world: LibvirtWorld,
) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    world.libvirts["h1"].refuse["press"] = refusal("the guest does not care")
    world.begin(REBOOT)
    pressed = "press the power button of vm"
    wait_until(lambda: acts(world) == [pressed], "the button is pressed")
    world.clock.pass_ms(SHUTDOWN_S * 500)
    wait_until(lambda: acts(world) == [pressed] * 2, "it is pressed again")
    assert world.seen("h1").active
    world.clock.pass_ms(SHUTDOWN_S * 500)
    sight = world.end_of(REBOOT)
    assert sight.kind is SightKind.DONE
    assert f"did not react to the power button within {SHUTDOWN_S} s" in sight.detail
    assert acts(world)[2:] == ["destroy vm", "start vm"]


def test_what_was_said_of_a_reset_is_said_by_the_next_daemon_too(world: LibvirtWorld) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    world.libvirts["h1"].refuse["press"] = refusal("the guest does not care")
    world.begin(REBOOT)
    wait_until(lambda: bool(acts(world)), "the button is pressed")
    world.clock.pass_ms(SHUTDOWN_S * 1_000)
    first = world.end_of(REBOOT)
    world.kill_daemon("h1")
    assert world.look(REBOOT) == first


def test_a_paused_vm_cannot_press_its_button_and_is_reset(world: LibvirtWorld) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    world.on("h1", lambda s: s.suspend("vm"))
    sight = run(world, REBOOT)
    assert "it was paused" in sight.detail
    assert acts(world) == ["destroy vm", "start vm"]
    assert world.seen("h1").power is Power.RUNNING


def test_a_domain_that_only_exists_while_it_runs_is_defined_before_it_is_restarted(
    world: LibvirtWorld,
) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    world.on("h1", lambda s: s.undefine("vm"))
    element = traits_element(Traits(scope="web"))
    world.on("h1", lambda s: s.set_traits("vm", element, live=True, config=False))
    assert not world.seen("h1").persistent
    assert run(world, REBOOT) == DONE
    assert world.seen("h1").persistent
    assert world.seen("h1").active
    assert read_traits(world.seen("h1").live_xml) == Traits(scope="web")


def test_a_start_that_libvirt_refuses_is_tried_again_and_then_fails_with_its_words(
    world: LibvirtWorld,
) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    world.libvirts["h1"].refuse["start"] = refusal("no memory left")
    assert run(world, REBOOT) == Sight(SightKind.FAILED, "no memory left")
    assert acts(world).count("start vm") > 1


def test_a_vm_that_goes_off_right_after_its_start_is_started_again(world: LibvirtWorld) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    world.libvirts["h1"].undo_starts = 1
    assert run(world, REBOOT) == DONE
    assert acts(world).count("start vm") == 2
    assert world.seen("h1").power is Power.RUNNING


def test_a_vm_that_goes_off_after_every_start_fails_and_is_let_be(world: LibvirtWorld) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    world.libvirts["h1"].undo_starts = 100
    sight = run(world, REBOOT)
    assert sight == Sight(SightKind.FAILED, "vm went off right after it was started, 3 times")
    assert acts(world).count("start vm") == 3


def test_a_vm_is_started_from_what_was_last_known_of_it(world: LibvirtWorld) -> None:
    world.elsewhere.definitions["vm"] = domain_xml("vm")
    assert run(world, START) == DONE
    assert world.seen("h1").power is Power.RUNNING


def test_a_vm_that_nobody_knows_a_definition_of_cannot_be_started(world: LibvirtWorld) -> None:
    sight = run(world, START)
    assert sight.kind is SightKind.FAILED
    assert "virsh define" in sight.detail


def test_a_definition_that_came_only_to_be_started_goes_when_it_cannot_be(
    world: LibvirtWorld,
) -> None:
    world.elsewhere.definitions["vm"] = domain_xml("vm")
    world.libvirts["h1"].refuse["start"] = refusal("no such disk")
    assert run(world, START) == Sight(SightKind.FAILED, "no such disk")
    assert world.view("h1") is None


def test_a_start_waits_for_a_control_plane_that_is_away(world: LibvirtWorld) -> None:
    world.elsewhere.definitions["vm"] = domain_xml("vm")
    world.elsewhere.away = True
    world.begin(START)
    wait_until(lambda: world.elsewhere.asked > 0, "control is asked")
    world.elsewhere.away = False
    assert world.end_of(START) == DONE


def test_a_vm_that_is_gone_already_is_deleted(world: LibvirtWorld) -> None:
    assert world.look(DELETE).kind is SightKind.DONE


def test_deleting_a_domain_that_is_not_defined_ends_with_its_shutdown(world: LibvirtWorld) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    world.on("h1", lambda s: s.undefine("vm"))
    assert run(world, DELETE) == DONE
    assert world.view("h1") is None


# Moves. The test driver cannot migrate: it says so, as libvirt does of storage that is not shared.


def test_what_cannot_be_moved_while_it_runs_is_shut_down_and_started_there(
    world: LibvirtWorld,
) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    sight = run(world, MOVE)
    assert sight.kind is SightKind.DONE
    assert "could not be moved while it ran" in sight.detail
    assert world.view("h1") is None
    there = world.seen("h2")
    assert there.power is Power.RUNNING
    assert acts(world, "h2") == ["define vm on h2", "start vm on h2"]


def test_a_vm_that_starts_with_its_host_starts_with_its_new_host(world: LibvirtWorld) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    world.on("h1", lambda s: s.set_autostart("vm"))
    assert run(world, MOVE).kind is SightKind.DONE
    assert world.on("h2", lambda s: s.autostart("vm"))


def test_a_vm_that_is_off_is_moved_without_a_start(world: LibvirtWorld) -> None:
    world.define("h1", domain_xml("vm"), start=False)
    assert run(world, MOVE) == DONE
    assert world.view("h1") is None
    assert not world.seen("h2").active


def test_a_move_that_does_not_succeed_leaves_the_vm_running_with_libvirts_words(
    world: LibvirtWorld,
) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    world.libvirts["h1"].refuse["move"] = refusal("no route to host")
    assert run(world, MOVE) == Sight(SightKind.FAILED, "no route to host")
    assert world.seen("h1").power is Power.RUNNING
    assert world.view("h2") is None
    assert acts(world) == ["move vm to h2"]


def test_a_vm_that_cannot_start_there_is_started_here_again(world: LibvirtWorld) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    world.libvirts["h2"].refuse["start"] = refusal("no such disk")
    sight = run(world, MOVE)
    assert sight.kind is SightKind.FAILED
    assert "no such disk; it was started here again" in sight.detail
    assert world.seen("h1").power is Power.RUNNING
    assert world.view("h2") is None


def test_a_target_that_goes_away_before_it_was_told_anything_costs_a_restart(
    world: LibvirtWorld,
) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    world.hold()
    world.begin(MOVE)
    world.libvirts["h1"].refuse["move"] = refusal("unsafe", Why.CANNOT_LIVE)
    wait_until(lambda: acts(world) == ["move vm to h2"], "it is moved")
    world.libvirts["h2"].off = True
    world.release()
    sight = world.end_of(MOVE)
    assert "h2 does not answer" in sight.detail
    assert sight.kind is SightKind.FAILED
    assert world.seen("h1").power is Power.RUNNING


def test_a_target_with_another_domain_of_that_name_is_refused_before_anything(
    world: LibvirtWorld,
) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    other = domain_xml("vm").replace("6695eb01", "7795eb01")
    world.define("h2", other, start=True)
    with pytest.raises(HypervisorFailed, match=r"another domain vm on h2.*virsh domrename"):
        world.begin(MOVE)
    assert acts(world) == []


def test_a_move_to_the_same_host_is_a_restart(world: LibvirtWorld) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    assert run(world, replace(MOVE, target_host="h1")) == DONE
    assert acts(world) == ["press the power button of vm", "start vm"]


# Hosts.


def test_a_freeze_pauses_what_runs_and_resumes_exactly_that(world: LibvirtWorld) -> None:
    for name in ("vm", "off", "paused"):
        world.define("h1", domain_xml(name), start=name != "off")
    world.on("h1", lambda s: s.suspend("paused"))
    frozen(world)
    assert world.seen("h1").power is Power.PAUSED
    assert world.look(FREEZE).kind is SightKind.UNDER_WAY
    world.clock.pass_ms(FREEZE_S * 1_000)
    assert world.end_of(FREEZE) == DONE
    powers = {name: world.seen("h1", name).power for name in ("vm", "off", "paused")}
    assert powers == {"vm": Power.RUNNING, "off": Power.OFF, "paused": Power.PAUSED}


def test_a_guard_stands_ready_before_the_first_vm_is_paused(world: LibvirtWorld) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    world.hold()
    world.begin(FREEZE)
    wait_until(lambda: "pause vm" in acts(world), "it is about to be paused")
    thaw_at = world.clock.monotonic + FREEZE_S * 1_000
    assert world.guard_told == ["ready", f"thaw at {thaw_at}"]
    assert world.seen("h1").power is Power.RUNNING


def test_without_a_guard_nobody_is_paused(world: LibvirtWorld) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    world.no_guard = "no processes left"
    sight = run(world, FREEZE)
    assert sight.kind is SightKind.FAILED
    assert "no processes left" in sight.detail
    assert acts(world) == []


def test_a_freeze_whose_daemon_died_is_ended_by_the_next_and_pauses_nobody_again(
    world: LibvirtWorld,
) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    frozen(world)
    world.kill_daemon("h1")
    assert world.look(FREEZE).kind is SightKind.UNDER_WAY
    assert world.seen("h1").power is Power.PAUSED
    world.clock.pass_ms(FREEZE_S * 1_000)
    sight = world.end_of(FREEZE)
    assert sight == Sight(SightKind.DONE, "it was interrupted; no VM was paused again")
    assert world.seen("h1").power is Power.RUNNING
    assert acts(world).count("pause vm") == 1


@pytest.mark.parametrize(("target", "moves"), [("h2", ["move vm to h2"]), (None, [])])
def test_a_vm_that_wants_to_be_moved_instead_of_paused_is_paused_if_it_cannot_be(
    world: LibvirtWorld, target: str | None, moves: list[str]
) -> None:
    world.define("h1", domain_xml("vm", metadata=TRAITS.format('freeze="move"')), start=True)
    world.elsewhere.targets_of["vm"] = target
    frozen(world)
    assert acts(world) == [*moves, "pause vm"]
    world.clock.pass_ms(FREEZE_S * 1_000)
    said = "vm could not be moved away and was paused"
    assert world.end_of(FREEZE) == Sight(SightKind.DONE, said)
    assert world.seen("h1").power is Power.RUNNING


def test_a_host_without_a_command_to_reboot_refuses_and_names_the_setting(
    world: LibvirtWorld,
) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    world.reboot_command = ()
    world.start_daemon("h1")
    with pytest.raises(HypervisorFailed, match="reboot_command"):
        world.begin(REBOOT_HOST)
    assert world.seen("h1").active


def test_a_host_reboots_when_its_vms_are_off_and_they_come_back_as_they_were(
    world: LibvirtWorld, tmp_path: Path
) -> None:
    for name in ("vm", "off", "paused"):
        world.define("h1", domain_xml(name), start=name != "off")
    world.on("h1", lambda s: s.suspend("paused"))
    commanded = tmp_path / "commanded"
    world.reboot_command = ("touch", str(commanded))
    world.start_daemon("h1")
    world.begin(REBOOT_HOST)
    wait_until(commanded.exists, "the command is run")
    assert not any(world.seen("h1", name).active for name in ("vm", "off", "paused"))
    world.kill_daemon("h1")
    world.boot_file("h1").write_text("h1-boot-2\n")
    assert world.end_of(REBOOT_HOST) == DONE
    powers = {name: world.seen("h1", name).power for name in ("vm", "off", "paused")}
    assert powers == {"vm": Power.RUNNING, "off": Power.OFF, "paused": Power.PAUSED}


def test_a_reboot_command_that_fails_has_its_vms_started_again(world: LibvirtWorld) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    world.reboot_command = ("false",)
    world.start_daemon("h1")
    sight = run(world, REBOOT_HOST)
    assert sight == Sight(SightKind.FAILED, "false failed with 1: ")
    assert world.seen("h1").power is Power.RUNNING
    world.kill_daemon("h1")
    assert world.look(REBOOT_HOST) == sight


# Other things that go wrong.


@pytest.mark.parametrize(
    ("kind", "types"),
    [
        (ActionKind.FREEZE_HOST, (EventType.FREEZE,)),
        (ActionKind.REBOOT_HOST, (EventType.REBOOT,)),
        (ActionKind.REBOOT_VM, (EventType.REBOOT,)),
        (ActionKind.MOVE_VM, (EventType.REDEPLOY,)),
        (ActionKind.DELETE_VM, (EventType.TERMINATE, EventType.PREEMPT)),
    ],
)
def test_a_work_is_over_before_its_event_is_given_up(
    kind: ActionKind, types: tuple[EventType, ...]
) -> None:
    assert all(GIVE_UP_AFTER_MS[kind] < DEADLINE_MS[event_type] for event_type in types)


def test_a_call_that_hangs_is_given_up_and_keeps_nobody_else_waiting(tmp_path: Path) -> None:
    world = LibvirtWorld(tmp_path)
    stuck = threading.Event()
    try:
        connection: LibvirtConnection = world.libvirts["h1"]
        with pytest.raises(LibvirtLost, match=r"more than 0\.05 s to hang"):
            world.run(connection.call(lambda _: stuck.wait(60), what="hang", seconds=0.05))
        assert world.run(connection.call(lambda s: len(s.domains()), what="look")) == 0
    finally:
        stuck.set()
        world.close()


def test_a_boot_id_that_cannot_be_read_is_named_with_its_setting(world: LibvirtWorld) -> None:
    world.boot_file("h1").unlink()
    with pytest.raises(HypervisorFailed, match="boot_id_file"):
        world.run(world.hypervisors["h1"].boot_id("h1"))


def test_another_host_is_nobody_to_act_for(world: LibvirtWorld) -> None:
    with pytest.raises(HypervisorFailed, match="hypervisor of host h1, not of h2"):
        world.run(world.hypervisors["h1"].look("h2", REBOOT))


def test_the_mark_of_an_action_is_on_the_domain_and_not_in_what_other_hosts_get(
    world: LibvirtWorld,
) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    assert run(world, REBOOT) == DONE
    mark = mark_of(world.seen("h1"), REBOOT.action_id)
    assert mark is not None
    assert mark.ended == "done"
