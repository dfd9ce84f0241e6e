"""VMs that their owners switched off, on libvirt: defined where they are to be, and left off."""

from __future__ import annotations

from forewarn.core.machines import Power
from forewarn.core.model import ActionKind
from forewarn.ports import SightKind
from libvirt_world import (
    DONE,
    MOVE,
    World,
    acts,
    an_action,
    domain_xml,
    run,
)

DEFINE = an_action(ActionKind.DEFINE_VM, target_host="h1")


def test_a_vm_of_a_failed_host_is_defined_and_not_started(world: World) -> None:
    world.elsewhere.definitions["vm"] = domain_xml("vm")
    assert world.look(DEFINE).kind is SightKind.NOT_BEGUN
    assert run(world, DEFINE) == DONE
    assert world.seen("h1").power is Power.OFF
    assert acts(world) == ["define vm"]
    world.kill_daemon("h1")
    assert world.look(DEFINE) == DONE


def test_a_daemon_that_dies_after_it_was_defined_has_done_enough(world: World) -> None:
    world.elsewhere.definitions["vm"] = domain_xml("vm")
    world.libvirts["h1"].stop_at = "define vm"
    world.post(DEFINE)
    world.wait_for(lambda: world.libvirts["h1"].stopped, "it is to be defined")
    world.kill_daemon("h1")
    world.libvirts["h1"].stop_at = ""
    assert world.look(DEFINE).kind is SightKind.NOT_BEGUN
    world.define("h1", domain_xml("vm"), start=False)  # the call had its effect
    assert world.look(DEFINE) == DONE
    assert not world.seen("h1").active


def test_what_nobody_has_seen_cannot_be_defined(world: World) -> None:
    sight = run(world, DEFINE)
    assert sight.kind is SightKind.FAILED
    assert "Nobody has seen a definition of vm" in sight.detail


def test_one_that_runs_here_is_let_be(world: World) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    assert world.look(DEFINE) == DONE
    assert world.seen("h1").power is Power.RUNNING


def test_a_move_defines_it_there_and_leaves_it_off(world: World) -> None:
    world.define("h1", domain_xml("vm"), start=False)
    assert run(world, MOVE).kind is SightKind.DONE
    assert world.view("h1") is None
    assert world.seen("h2").power is Power.OFF
    assert "start vm on h2" not in acts(world, "h2")
