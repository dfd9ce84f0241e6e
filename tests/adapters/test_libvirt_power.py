"""VMs that their owners switched off, on libvirt: defined where they are to be, and left off."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from forewarn.core.inventory.host_report import Power
from forewarn.core.model import ActionKind
from forewarn.ports import SightKind, SwitchedOn
from support.libvirt_world import (
    DONE,
    MOVE,
    LibvirtWorld,
    acts,
    an_action,
    domain_xml,
    run,
)
from support.waiting import wait_until

DEFINE = an_action(ActionKind.DEFINE_VM, target_host="h1")


def test_a_vm_of_a_failed_host_is_defined_and_not_started(world: LibvirtWorld) -> None:
    world.elsewhere.definitions["vm"] = domain_xml("vm")
    assert world.look(DEFINE).kind is SightKind.NOT_BEGUN
    assert run(world, DEFINE) == DONE
    assert world.seen("h1").power is Power.OFF
    assert acts(world) == ["define vm"]
    world.kill_daemon("h1")
    assert world.look(DEFINE) == DONE


def test_a_daemon_that_dies_after_it_was_defined_has_done_enough(world: LibvirtWorld) -> None:
    world.elsewhere.definitions["vm"] = domain_xml("vm")
    world.libvirts["h1"].stop_at = "define vm"
    world.post(DEFINE)
    wait_until(lambda: world.libvirts["h1"].stopped, "it is to be defined")
    world.kill_daemon("h1")
    world.libvirts["h1"].stop_at = ""
    assert world.look(DEFINE).kind is SightKind.NOT_BEGUN
    world.define("h1", domain_xml("vm"), start=False)  # the call had its effect
    assert world.look(DEFINE) == DONE
    assert not world.seen("h1").active


def test_what_nobody_has_seen_cannot_be_defined(world: LibvirtWorld) -> None:
    sight = run(world, DEFINE)
    assert sight.kind is SightKind.FAILED
    assert "No host has seen a definition of vm" in sight.detail


def test_one_that_runs_here_is_let_be(world: LibvirtWorld) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    assert world.look(DEFINE) == DONE
    assert world.seen("h1").power is Power.RUNNING


def test_a_move_defines_it_there_and_leaves_it_off(world: LibvirtWorld) -> None:
    world.define("h1", domain_xml("vm"), start=False)
    assert run(world, MOVE).kind is SightKind.DONE
    assert world.view("h1") is None
    assert world.seen("h2").power is Power.OFF
    assert "start vm on h2" not in acts(world, "h2")


# One that is switched on before it is moved, though nobody was asked because it was off.

ONLY_OFF = replace(MOVE, only_off=True)


def test_nothing_is_done_to_one_that_runs_though_it_was_to_be_off(world: LibvirtWorld) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    with pytest.raises(SwitchedOn):
        world.begin(ONLY_OFF)
    assert acts(world) == acts(world, "h2") == []


def test_a_move_that_had_defined_it_there_takes_that_back_when_it_is_switched_on(
    world: LibvirtWorld,
) -> None:
    """Also by the next daemon: the first is killed between two steps."""
    world.define("h1", domain_xml("vm"), start=False)
    world.libvirts["h1"].stop_at = "undefine vm"
    world.begin(ONLY_OFF)
    wait_until(lambda: world.libvirts["h1"].stopped, "it is defined there")
    world.kill_daemon("h1")
    world.libvirts["h1"].stop_at = ""
    assert world.view("h2") is not None
    world.on("h1", lambda s: s.create("vm"))
    assert world.end_of(ONLY_OFF).kind is SightKind.SPARED
    assert world.view("h2") is None
    assert world.seen("h1").power is Power.RUNNING
    world.kill_daemon("h1")
    assert world.look(ONLY_OFF).kind is SightKind.SPARED


@pytest.mark.parametrize("kind", [ActionKind.MOVE_VM, ActionKind.REBOOT_VM])
def test_what_could_not_be_looked_at_when_it_began_is_looked_at_before_anything_is_done(
    world: LibvirtWorld, kind: ActionKind
) -> None:
    """Libvirt was just being restarted."""
    world.define("h1", domain_xml("vm"), start=True)
    action = replace(an_action(kind), only_off=True)
    world.libvirts["h1"].off = True
    world.begin(action)
    world.libvirts["h1"].off = False
    assert world.end_of(action).kind is SightKind.SPARED
    assert acts(world) == acts(world, "h2") == []
