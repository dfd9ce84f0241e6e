"""A move on libvirt whose target is gone in the middle, and hosts that are asked for a VM."""

from __future__ import annotations

from msgspec.structs import replace

from forewarn.adapters.libvirt.connection import LibvirtLost, Why
from forewarn.adapters.libvirt.next_steps import MoveStage, mark_of
from forewarn.adapters.libvirt.vm_moves import OVERDUE_MS
from forewarn.core.inventory.host_report import Power
from forewarn.core.model import ActionKind
from forewarn.ports import Sight, SightKind, WorkOrder
from support.libvirt_world import (
    DONE,
    MOVE,
    START,
    LibvirtWorld,
    acts,
    an_action,
    domain_xml,
    refusal,
    run,
)
from support.waiting import wait_until

FIND = an_action(ActionKind.FIND_VM, target_host="h1")


def to_start_there(world: LibvirtWorld, what: str) -> None:
    """`vm` is off on h1 and about to be started on h2, which then goes away."""
    world.define("h1", domain_xml("vm"), start=True)
    world.libvirts["h1"].refuse["move"] = refusal("unsafe", Why.CANNOT_LIVE)
    world.libvirts["h2"].stop_at = what
    world.post(MOVE)
    wait_until(lambda: world.libvirts["h2"].stopped, what)
    world.libvirts["h2"].off = True
    world.kill_daemon("h1")


def unsure(world: LibvirtWorld) -> Sight:
    assert world.look(MOVE).kind is SightKind.UNDER_WAY
    return world.end_turning(MOVE, by_ms=OVERDUE_MS * 2)


def test_a_vm_that_may_have_started_there_is_reported_as_unsure_and_not_started_here(
    world: LibvirtWorld,
) -> None:
    to_start_there(world, "start vm on h2")
    sight = unsure(world)
    assert sight.kind is SightKind.UNSURE
    assert "h2 does not answer; it may run there" in sight.detail
    assert not world.seen("h1").active
    world.kill_daemon("h1")
    assert world.look(MOVE) == sight  # the next daemon says the same


def test_once_the_other_host_is_off_it_is_started_where_it_is(world: LibvirtWorld) -> None:
    """Control orders it when the target is fenced."""
    to_start_there(world, "start vm on h2")
    unsure(world)
    assert world.look(START).kind is SightKind.NOT_BEGUN
    assert run(world, START) == DONE
    assert world.seen("h1").power is Power.RUNNING


def test_a_vm_that_has_gone_to_a_host_that_does_not_answer_is_reported_as_unsure(
    world: LibvirtWorld,
) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    assert run(world, MOVE).kind is SightKind.DONE
    world.libvirts["h2"].off = True
    world.kill_daemon("h1")  # and with it goes what it remembers
    sight = unsure(world)
    assert sight.kind is SightKind.UNSURE
    assert sight.detail == "it is no longer on this host, and h2 does not answer"


def test_a_vm_that_libvirt_left_paused_stays_so_while_its_target_cannot_be_asked(
    world: LibvirtWorld,
) -> None:
    """Its last word was lost: it may have gone on there, and must not run here as well."""
    world.define("h1", domain_xml("vm"), start=True)
    left_paused(world)
    sight = unsure(world)
    assert sight.kind is SightKind.UNSURE
    assert "it may run there, so it stays paused" in sight.detail
    assert world.seen("h1").power is Power.PAUSED
    assert "resume vm" not in acts(world)


def test_it_goes_on_here_if_its_target_does_not_run_it(world: LibvirtWorld) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    left_paused(world)
    world.libvirts["h2"].off = False
    assert world.end_of(MOVE).kind is SightKind.FAILED
    assert world.seen("h1").power is Power.RUNNING


def test_it_goes_on_here_when_control_says_that_its_target_is_off(world: LibvirtWorld) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    left_paused(world)
    unsure(world)
    assert world.look(START).kind is SightKind.NOT_BEGUN
    assert run(world, START) == DONE
    assert world.seen("h1").power is Power.RUNNING
    assert "resume vm" in acts(world)


def test_a_vm_that_its_owner_paused_is_not_resumed_by_a_start(world: LibvirtWorld) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    world.on("h1", lambda s: s.suspend("vm"))
    assert world.look(START) == DONE
    assert world.seen("h1").power is Power.PAUSED


def left_paused(world: LibvirtWorld) -> None:
    """A live move that libvirt gives up without knowing how it ended: the VM is paused."""
    world.libvirts["h1"].refuse["move"] = refusal("lost connection")
    world.hold()
    world.begin(MOVE)
    wait_until(lambda: acts(world) == ["move vm to h2"], "it is moved")
    world.on("h1", lambda s: s.suspend("vm"))
    world.libvirts["h2"].off = True
    world.release()


# Being asked.


def test_a_host_is_not_asked_in_vain_while_a_move_was_interrupted(world: LibvirtWorld) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    world.libvirts["h1"].refuse["move"] = refusal("unsafe", Why.CANNOT_LIVE)
    world.libvirts["h2"].stop_at = "define vm on h2"
    world.post(MOVE)
    wait_until(lambda: world.libvirts["h2"].stopped, "it is to be defined there")
    world.kill_daemon("h1")
    mark = mark_of(world.seen("h1"), MOVE.action_id)
    assert mark is not None
    assert mark.step == MoveStage.THERE.value
    assert world.look(FIND).kind is SightKind.UNDER_WAY


def test_a_paused_vm_is_not_taken_for_one_that_runs(world: LibvirtWorld) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    world.on("h1", lambda s: s.suspend("vm"))
    assert world.look(FIND).kind is SightKind.FAILED


def test_another_vm_of_that_name_is_not_found(world: LibvirtWorld) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    other = replace(FIND, about=(("vm", "another-id"),))
    assert world.look(other).kind is SightKind.FAILED


def test_a_vm_that_is_still_arriving_is_not_taken_for_started(world: LibvirtWorld) -> None:
    """Until it runs it vanishes with the host that it comes from."""
    world.define("h1", domain_xml("vm"), start=True)
    start: WorkOrder = replace(START, host="h1")
    coming = replace(MOVE, host="h2", target_host="h1")
    world.on("h1", lambda s: s.suspend("vm"))
    view = world.seen("h1")
    tools = world.hypervisors["h1"]._tools
    mark = replace(tools.new_mark(coming, view), host="h2")
    world.run(tools.write_mark(view, replace(mark, before=True)))
    assert world.look(start).kind is SightKind.UNDER_WAY
    world.on("h1", lambda s: s.resume("vm"))
    assert world.look(start) == DONE


def test_a_libvirt_that_is_lost_during_the_look_there_is_waited_for(world: LibvirtWorld) -> None:
    world.define("h1", domain_xml("vm"), start=True)
    assert run(world, MOVE).kind is SightKind.DONE
    world.kill_daemon("h1")
    world.libvirts["h2"].refuse["look"] = LibvirtLost("restarting")
    assert world.look(MOVE).kind is SightKind.UNDER_WAY
    del world.libvirts["h2"].refuse["look"]
    assert world.end_of(MOVE).kind is SightKind.DONE
