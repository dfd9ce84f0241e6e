"""What every hypervisor adapter promises: look before, begin once, ends that stay, boot ids.

An adapter joins by a `Bench` in BENCHES: how to make it, and how to let time pass and hosts die.
Libvirt takes part on its own test driver, which has domains but no machines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pytest
from msgspec.structs import replace

from forewarn.adapters.libvirt.hypervisor import LibvirtHypervisor
from forewarn.adapters.simulated.hypervisor import SimulatedHypervisor
from forewarn.core.model import ActionKind
from forewarn.ports import Hypervisor, HypervisorFailed, Sight, SightKind, SwitchedOn, WorkOrder
from support.clock import ManualClock
from support.libvirt_world import LibvirtWorld, domain_xml, refusal
from support.waiting import wait_until

T = TypeVar("T")

DURATION_S = 5
# One of the others only looks, and one is done where the VM is already.
DOING = [kind for kind in ActionKind if kind not in (ActionKind.FIND_VM, ActionKind.DEFINE_VM)]


class Bench(Protocol):
    """An adapter with a VM `vm` on host `h1`, a second host `h2`, and a hand on the world."""

    hypervisor: Hypervisor

    def wait_for_the_end(self) -> None:
        """Let everything that was begun come to its end."""
        ...

    def power_off(self, host: str) -> None: ...

    def power_on(self, host: str) -> None: ...

    def fail_next(self, name: str, reason: str) -> None: ...

    def switch_off(self, vm: str) -> None:
        """As its owner would."""
        ...

    def switch_on(self, vm: str) -> None: ...

    def where(self, vm: str) -> str | None: ...

    def close(self) -> None: ...


class SimulatedBench:
    def __init__(self, folder: Path | None = None) -> None:  # noqa: ARG002 - it needs none
        self._clock = ManualClock()
        self.simulated = SimulatedHypervisor(self._clock)
        self.hypervisor: Hypervisor = self.simulated
        self.simulated.place("vm", "h1")

    def wait_for_the_end(self) -> None:
        self._clock.pass_ms(DURATION_S * 1_000)

    def power_off(self, host: str) -> None:
        self.simulated.kill_host(host)

    def power_on(self, host: str) -> None:
        self.simulated.boot_host(host)

    def fail_next(self, name: str, reason: str) -> None:
        self.simulated.fail_next(name, reason)

    def switch_off(self, vm: str) -> None:
        self.simulated.switch(vm, on=False)

    def switch_on(self, vm: str) -> None:
        self.simulated.switch(vm, on=True)

    def where(self, vm: str) -> str | None:
        return self.simulated.where(vm)

    def close(self) -> None:
        """Nothing is open."""


class LibvirtBench:
    """Libvirt on two test drivers. What it does is held until the test waits for the end."""

    def __init__(self, folder: Path) -> None:
        self.world = LibvirtWorld(folder)
        self.hypervisor: Hypervisor = _OnItsLoop(self.world)
        self.world.define("h1", domain_xml("vm"), start=True)
        self.world.hold()

    def wait_for_the_end(self) -> None:
        self.world.release()
        for host, hypervisor in self.world.hypervisors.items():
            if hypervisor.works_on(ActionKind.REBOOT_HOST):
                self._reboots(host)
                continue
            if hypervisor.works_on(ActionKind.FREEZE_HOST):
                wait_until(
                    lambda: any(told.startswith("thaw") for told in self.world.guard_told),
                    "the guard is told",
                )
            self.world.clock.pass_ms(DURATION_S * 1_000)
            wait_until(partial(self._idle, hypervisor), "the end")
        self.world.hold()

    @staticmethod
    def _idle(hypervisor: LibvirtHypervisor) -> bool:
        return not hypervisor.works_on()

    def _reboots(self, host: str) -> None:
        """The host goes down when its VMs are, and its new daemon brings back what was there."""
        wait_until(lambda: not self.world.seen(host).active, "all is off")
        self.power_off(host)
        self.power_on(host)
        self.world.run(self.world.hypervisors[host].mend())

    def power_off(self, host: str) -> None:
        """Everything on it is off; so is its daemon."""
        view = self.world.view(host, "vm")
        if view is not None and view.active:
            self.world.on(host, lambda s: s.destroy("vm"))
        self.world.libvirts[host].off = True
        self.world.kill_daemon(host)
        self.world.boot_file(host).unlink()

    def power_on(self, host: str) -> None:
        self.world.libvirts[host].off = False
        self.world.boots += 1
        self.world.boot_file(host).write_text(f"{host}-boot-{self.world.boots}\n")

    def fail_next(self, name: str, reason: str) -> None:  # noqa: ARG002 - there is one VM
        for libvirt in self.world.libvirts.values():
            libvirt.refuse["undefine"] = libvirt.refuse["move"] = refusal(reason)

    def switch_off(self, vm: str) -> None:
        self.world.elsewhere.definitions[vm] = domain_xml(vm)
        self.world.on("h1", lambda s: s.destroy(vm))

    def switch_on(self, vm: str) -> None:
        self.world.on("h1", lambda s: s.create(vm))

    def where(self, vm: str) -> str | None:
        places = [host for host in ("h1", "h2") if self.world.view(host, vm) is not None]
        assert len(places) <= 1
        return places[0] if places else None

    def close(self) -> None:
        self.world.close()


class _OnItsLoop:
    """The daemons of a world, each asked on the event loop that its works live on."""

    def __init__(self, world: LibvirtWorld) -> None:
        self._world = world

    async def boot_id(self, host: str) -> str:
        return self._world.run(self._world.hypervisors[host].boot_id(host))

    async def look(self, host: str, action: WorkOrder) -> Sight:
        return self._world.run(self._world.hypervisors[host].look(host, action))

    async def begin(self, host: str, action: WorkOrder) -> None:
        self._world.run(self._world.hypervisors[host].begin(host, action))


BENCHES: dict[str, Callable[[Path], Bench]] = {
    "simulated": SimulatedBench,
    "libvirt": LibvirtBench,
}


@pytest.fixture(params=BENCHES)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    made = BENCHES[request.param](tmp_path)
    try:
        yield made
    finally:
        made.close()


def now(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def an_action(kind: ActionKind, **more: Any) -> WorkOrder:
    of_host = kind in (ActionKind.FREEZE_HOST, ActionKind.REBOOT_HOST)
    values: dict[str, Any] = {
        "action_id": f"E1/{kind}",
        "kind": kind,
        "host": "h1",
        "vm": None if of_host else "vm",
        "duration_s": DURATION_S,
        **more,
    }
    return WorkOrder(**values)


def on_target(kind: ActionKind) -> WorkOrder:
    """An action as its host gets it: with a target where it needs one, and with a boot id."""
    targets = {ActionKind.MOVE_VM: "h2", ActionKind.START_VM: "h1"}
    return an_action(kind, target_host=targets.get(kind))


def claimed(bench: Bench, kind: ActionKind) -> WorkOrder:
    if kind is ActionKind.START_VM:  # a VM that went down with its host
        bench.power_off("h1")
        bench.power_on("h1")
    return replace(on_target(kind), boot_id=now(bench.hypervisor.boot_id("h1")))


def look(bench: Bench, action: WorkOrder) -> SightKind:
    return now(bench.hypervisor.look(action.host or "", action)).kind


@pytest.mark.parametrize("kind", DOING)
def test_an_action_is_seen_from_not_begun_to_done(bench: Bench, kind: ActionKind) -> None:
    action = claimed(bench, kind)
    seen = [look(bench, action)]
    now(bench.hypervisor.begin("h1", action))
    seen.append(look(bench, action))
    bench.wait_for_the_end()
    seen.append(look(bench, action))
    assert seen == [SightKind.NOT_BEGUN, SightKind.UNDER_WAY, SightKind.DONE]


@pytest.mark.parametrize("kind", DOING)
def test_a_look_changes_nothing_and_an_end_stays(bench: Bench, kind: ActionKind) -> None:
    action = claimed(bench, kind)
    assert [look(bench, action) for _ in range(3)] == [SightKind.NOT_BEGUN] * 3
    now(bench.hypervisor.begin("h1", action))
    bench.wait_for_the_end()
    assert [look(bench, action) for _ in range(3)] == [SightKind.DONE] * 3


def test_a_later_claim_of_the_same_action_sees_what_the_first_has_done(bench: Bench) -> None:
    action = claimed(bench, ActionKind.REBOOT_VM)
    now(bench.hypervisor.begin("h1", action))
    bench.wait_for_the_end()
    assert look(bench, replace(action, epoch=action.epoch + 1)) is SightKind.DONE


def test_what_one_action_did_says_nothing_of_another(bench: Bench) -> None:
    first = claimed(bench, ActionKind.REBOOT_VM)
    now(bench.hypervisor.begin("h1", first))
    bench.wait_for_the_end()
    second = an_action(ActionKind.REBOOT_VM, action_id="E2/vm")
    assert look(bench, second) is SightKind.NOT_BEGUN


@pytest.mark.parametrize(
    ("kind", "after"),
    [
        (ActionKind.REBOOT_VM, "h1"),
        (ActionKind.MOVE_VM, "h2"),
        (ActionKind.START_VM, "h1"),
        (ActionKind.DELETE_VM, None),
        (ActionKind.FREEZE_HOST, "h1"),
    ],
)
def test_an_action_that_is_done_has_had_its_effect(
    bench: Bench, kind: ActionKind, after: str | None
) -> None:
    action = claimed(bench, kind)
    now(bench.hypervisor.begin("h1", action))
    bench.wait_for_the_end()
    assert look(bench, action) is SightKind.DONE
    assert bench.where("vm") == after


@pytest.mark.parametrize("kind", [ActionKind.MOVE_VM, ActionKind.DELETE_VM])
def test_an_action_that_failed_says_why_and_has_had_no_effect(
    bench: Bench, kind: ActionKind
) -> None:
    bench.fail_next("vm", "no memory left")
    action = claimed(bench, kind)
    now(bench.hypervisor.begin("h1", action))
    bench.wait_for_the_end()
    sight = now(bench.hypervisor.look("h1", action))
    assert sight.kind is SightKind.FAILED
    assert "no memory left" in sight.detail
    assert bench.where("vm") == "h1"


def found_on(bench: Bench, host: str) -> SightKind:
    find = an_action(ActionKind.FIND_VM, host=host, target_host=host)
    return now(bench.hypervisor.look(host, find)).kind


def test_a_vm_is_found_where_it_runs_and_nowhere_else(bench: Bench) -> None:
    assert (found_on(bench, "h1"), found_on(bench, "h2")) == (SightKind.DONE, SightKind.FAILED)
    bench.power_off("h1")
    bench.power_on("h1")
    assert (found_on(bench, "h1"), found_on(bench, "h2")) == (SightKind.FAILED, SightKind.FAILED)


def test_a_host_does_not_say_where_a_vm_is_while_it_moves_it(bench: Bench) -> None:
    now(bench.hypervisor.begin("h1", claimed(bench, ActionKind.MOVE_VM)))
    assert found_on(bench, "h1") is SightKind.UNDER_WAY
    bench.wait_for_the_end()
    assert (found_on(bench, "h1"), found_on(bench, "h2")) == (SightKind.FAILED, SightKind.DONE)


def test_a_vm_that_is_there_need_not_be_defined_and_is_left_as_it_is(bench: Bench) -> None:
    bench.power_off("h1")
    bench.power_on("h1")
    define = an_action(ActionKind.DEFINE_VM, target_host="h1")
    assert look(bench, define) is SightKind.DONE
    assert found_on(bench, "h1") is SightKind.FAILED


def test_a_vm_that_is_defined_on_another_host_is_left_off_there(bench: Bench) -> None:
    bench.switch_off("vm")
    bench.power_off("h1")
    define = an_action(ActionKind.DEFINE_VM, host="h2", target_host="h2")
    assert look(bench, define) is SightKind.NOT_BEGUN
    now(bench.hypervisor.begin("h2", define))
    bench.wait_for_the_end()
    assert look(bench, define) is SightKind.DONE
    assert found_on(bench, "h2") is SightKind.FAILED


@pytest.mark.parametrize("kind", [ActionKind.MOVE_VM, ActionKind.REBOOT_VM])
def test_what_is_only_for_a_vm_that_is_off_is_not_begun_on_one_that_runs(
    bench: Bench, kind: ActionKind
) -> None:
    action = replace(claimed(bench, kind), only_off=True)
    with pytest.raises(SwitchedOn, match="nothing was done to it"):
        now(bench.hypervisor.begin("h1", action))
    bench.wait_for_the_end()
    assert look(bench, action) is SightKind.NOT_BEGUN
    assert found_on(bench, "h1") is SightKind.DONE


def test_a_move_of_a_vm_that_is_off_is_given_up_when_it_is_switched_on(bench: Bench) -> None:
    bench.switch_off("vm")
    action = replace(claimed(bench, ActionKind.MOVE_VM), only_off=True)
    now(bench.hypervisor.begin("h1", action))
    bench.switch_on("vm")
    bench.wait_for_the_end()
    assert [look(bench, action) for _ in range(2)] == [SightKind.SPARED] * 2
    assert found_on(bench, "h1") is SightKind.DONE
    assert bench.where("vm") == "h1"


@pytest.mark.parametrize("only_off", [False, True])
@pytest.mark.parametrize("kind", [ActionKind.MOVE_VM, ActionKind.REBOOT_VM])
def test_what_is_done_to_a_vm_that_is_off_leaves_it_off(
    bench: Bench, kind: ActionKind, *, only_off: bool
) -> None:
    bench.switch_off("vm")
    action = replace(claimed(bench, kind), only_off=only_off)
    now(bench.hypervisor.begin("h1", action))
    bench.wait_for_the_end()
    assert look(bench, action) is SightKind.DONE
    assert bench.where("vm") == ("h2" if kind is ActionKind.MOVE_VM else "h1")
    assert {found_on(bench, host) for host in ("h1", "h2")} == {SightKind.FAILED}


def test_a_move_whose_target_goes_off_leaves_the_vm_where_it_ran(bench: Bench) -> None:
    move = claimed(bench, ActionKind.MOVE_VM)
    now(bench.hypervisor.begin("h1", move))
    bench.power_off("h2")
    bench.wait_for_the_end()
    sight = now(bench.hypervisor.look("h1", move))
    assert sight.kind is SightKind.FAILED
    assert "h2 does not answer" in sight.detail
    assert found_on(bench, "h1") is SightKind.DONE


def test_a_boot_id_is_the_same_until_the_host_boots(bench: Bench) -> None:
    before = now(bench.hypervisor.boot_id("h1"))
    assert now(bench.hypervisor.boot_id("h1")) == before
    other = now(bench.hypervisor.boot_id("h2"))
    reboot = claimed(bench, ActionKind.REBOOT_HOST)
    now(bench.hypervisor.begin("h1", reboot))
    bench.wait_for_the_end()
    assert look(bench, reboot) is SightKind.DONE
    assert now(bench.hypervisor.boot_id("h1")) != before
    assert now(bench.hypervisor.boot_id("h2")) == other


def test_a_reboot_that_somebody_else_did_is_done(bench: Bench) -> None:
    reboot = claimed(bench, ActionKind.REBOOT_HOST)
    bench.power_off("h1")
    bench.power_on("h1")
    assert look(bench, reboot) is SightKind.DONE


def test_a_host_that_is_off_can_be_asked_nothing(bench: Bench) -> None:
    action = claimed(bench, ActionKind.REBOOT_VM)
    bench.power_off("h1")
    for call in (
        bench.hypervisor.boot_id("h1"),
        bench.hypervisor.look("h1", action),
        bench.hypervisor.begin("h1", action),
    ):
        with pytest.raises(HypervisorFailed):
            now(call)


def test_what_ran_on_a_host_that_went_off_can_be_begun_again_or_goes_on(bench: Bench) -> None:
    action = claimed(bench, ActionKind.REBOOT_VM)
    now(bench.hypervisor.begin("h1", action))
    bench.power_off("h1")
    bench.power_on("h1")
    if look(bench, action) is SightKind.NOT_BEGUN:
        now(bench.hypervisor.begin("h1", action))
    assert look(bench, action) is SightKind.UNDER_WAY
    bench.wait_for_the_end()
    assert look(bench, action) is SightKind.DONE


def test_a_move_to_a_host_that_is_off_is_refused(bench: Bench) -> None:
    bench.power_off("h2")
    with pytest.raises(HypervisorFailed, match="h2"):
        now(bench.hypervisor.begin("h1", on_target(ActionKind.MOVE_VM)))
    assert bench.where("vm") == "h1"


def test_a_vm_that_is_not_there_is_refused(bench: Bench) -> None:
    with pytest.raises(HypervisorFailed, match="nobody"):
        now(bench.hypervisor.begin("h1", an_action(ActionKind.REBOOT_VM, vm="nobody")))


# The simulated one has hands of its own.


def test_the_simulated_hypervisor_can_be_slow() -> None:
    bench = SimulatedBench()
    bench.simulated.slow_next("vm", extra_s=DURATION_S)
    action = claimed(bench, ActionKind.REBOOT_VM)
    now(bench.hypervisor.begin("h1", action))
    bench.wait_for_the_end()
    assert look(bench, action) is SightKind.UNDER_WAY
    bench.wait_for_the_end()
    assert look(bench, action) is SightKind.DONE


@pytest.mark.parametrize("looked", [False, True])
def test_what_has_happened_does_not_depend_on_who_looked(*, looked: bool) -> None:
    """A move that nobody had looked at once landed, alive, on a host that was off by then."""
    bench = SimulatedBench()
    move = claimed(bench, ActionKind.MOVE_VM)
    now(bench.hypervisor.begin("h1", move))
    bench.wait_for_the_end()
    if looked:
        assert look(bench, move) is SightKind.DONE
    bench.power_off("h2")
    assert look(bench, move) is SightKind.DONE
    assert (bench.where("vm"), bench.simulated.runs("vm")) == ("h2", False)


def test_actions_take_effect_in_the_order_in_which_they_end() -> None:
    bench = SimulatedBench()
    bench.simulated.slow_next("vm", extra_s=DURATION_S)
    first = replace(on_target(ActionKind.MOVE_VM), action_id="E1/vm", target_host="h3")
    now(bench.hypervisor.begin("h1", first))
    now(bench.hypervisor.begin("h1", replace(first, action_id="E2/vm", target_host="h2")))
    for _ in range(2):
        bench.wait_for_the_end()
    assert bench.where("vm") == "h3"


def test_a_late_delete_spares_a_vm_that_has_moved_meanwhile() -> None:
    """A host deletes what it has; the VM is another host's by then."""
    bench = SimulatedBench()
    bench.simulated.slow_next("vm", extra_s=DURATION_S)
    delete = an_action(ActionKind.DELETE_VM, action_id="E1/vm")
    now(bench.hypervisor.begin("h1", delete))
    now(bench.hypervisor.begin("h1", replace(on_target(ActionKind.MOVE_VM), action_id="E2/vm")))
    for _ in range(2):
        bench.wait_for_the_end()
    assert look(bench, delete) is SightKind.DONE
    assert bench.where("vm") == "h2"


def test_nothing_is_done_on_a_host_to_a_vm_that_is_elsewhere() -> None:
    bench = SimulatedBench()
    with pytest.raises(HypervisorFailed, match="no VM vm on host h2"):
        now(bench.hypervisor.begin("h2", an_action(ActionKind.REBOOT_VM, host="h2")))


@pytest.mark.parametrize("kind", DOING)
def test_actions_of_a_held_event_take_as_long_as_it_is_held(kind: ActionKind) -> None:
    bench = SimulatedBench()
    bench.simulated.hold("E1", 2 * DURATION_S)
    action = claimed(bench, kind)
    now(bench.hypervisor.begin("h1", action))
    bench.wait_for_the_end()
    assert look(bench, action) is SightKind.UNDER_WAY
    bench.wait_for_the_end()
    assert look(bench, action) is SightKind.DONE


def test_holding_one_event_leaves_the_actions_of_others_alone() -> None:
    bench = SimulatedBench()
    bench.simulated.hold("E", 2 * DURATION_S)
    action = claimed(bench, ActionKind.REBOOT_VM)
    now(bench.hypervisor.begin("h1", action))
    bench.wait_for_the_end()
    assert look(bench, action) is SightKind.DONE


def test_a_held_start_takes_its_time_though_the_vm_runs_already() -> None:
    bench = SimulatedBench()
    bench.simulated.hold("E1", DURATION_S)
    assert look(bench, on_target(ActionKind.START_VM)) is SightKind.NOT_BEGUN


def test_the_simulated_hypervisor_places_a_vm_once() -> None:
    bench = SimulatedBench()
    bench.simulated.place("vm", "h2")
    assert bench.where("vm") == "h1"


def test_a_vm_that_already_runs_is_not_started_again(bench: Bench) -> None:
    action = on_target(ActionKind.START_VM)
    assert look(bench, action) is SightKind.DONE


def test_a_move_that_loses_the_local_disk_does_so_or_is_refused_before_anything_is_done(
    bench: Bench,
) -> None:
    """Of the two only the simulated one does it: libvirt does not say which disks are local."""
    action = replace(claimed(bench, ActionKind.MOVE_VM), lose_disk=True)
    if isinstance(bench, SimulatedBench):
        now(bench.hypervisor.begin("h1", action))
        bench.wait_for_the_end()
        assert look(bench, action) is SightKind.DONE
        assert (bench.where("vm"), bench.simulated.disks_lost("vm")) == ("h2", 1)
    else:
        with pytest.raises(HypervisorFailed, match="keeps every disk"):
            now(bench.hypervisor.begin("h1", action))
        assert (bench.where("vm"), look(bench, action)) == ("h1", SightKind.NOT_BEGUN)


def test_a_move_keeps_the_local_disk_unless_it_is_to_be_lost() -> None:
    bench = SimulatedBench()
    now(bench.hypervisor.begin("h1", claimed(bench, ActionKind.MOVE_VM)))
    bench.wait_for_the_end()
    assert (bench.where("vm"), bench.simulated.disks_lost("vm")) == ("h2", 0)
