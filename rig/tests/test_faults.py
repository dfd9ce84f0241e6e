"""What dies, fails or is cut in the middle: at most the announced impact, an end, and an account.

Each test first stands exactly between two durable steps of an action. A stopped libvirtd keeps a
claimed action from beginning, a stopped host daemon keeps a started one from being claimed, a cut
link keeps a done one from being reported.
"""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
from rig.domains import Guest
from rig.lifecycles import FREEZE_S, Lifecycle, Lifecycles, Opened
from rig.service import Service
from rig.waiting import wait_for

STEP_LIMIT_S = 30.0
THAW_SLACK_S = 3.0

pytestmark = pytest.mark.timeout(240)


class Stage:
    """One guest on h1 that does not approve, an order for it, and hands that break things."""

    def __init__(self, service: Service, lifecycles: Lifecycles, fault: list[str]) -> None:
        self.service = service
        self.rig = service.rig
        self.lifecycles = lifecycles
        self.fault = fault
        self.h1 = self.rig.hypervisors["h1"]
        self.vm = "stage"

    def guest(self, *, ignores_acpi: bool = False) -> None:
        self.lifecycles.define(Guest(name=self.vm, number=60, ignores_acpi=ignores_acpi), "h1")

    def order(self, kind: str) -> Opened:
        if kind == "Freeze":
            opened = self.lifecycles.begin_freeze("h1")[0]
        else:
            opened = self.lifecycles.begin(kind, [self.vm])[0]
        self.lifecycles.wait_until_read(opened)
        return opened

    def finish(self, opened: Opened) -> Lifecycle:
        """Wait for the end; nothing may be wrong with it."""
        done = self.lifecycles.finish([opened])[0]
        assert done.complaints == ()
        self.fault.append(f"{opened.kind} {done.event['phase']}, as announced.")
        return done

    # Standing between two steps, each left by what the test does next.

    def until_started(self, opened: Opened) -> None:
        """Started and written down; nobody has claimed the action yet."""
        self.service.hosts["h1"].signal(signal.SIGSTOP)
        self.lifecycles.approve([opened])
        self.lifecycles.wait_for_fact("started", opened)

    def until_claimed(self, opened: Opened) -> None:
        """Claimed; libvirt does not answer, so that nothing has been begun."""
        assert self.h1.libvirtd is not None
        self.h1.libvirtd.signal(signal.SIGSTOP)
        self.lifecycles.approve([opened])
        self.lifecycles.wait_for_fact("claimed", opened)

    def until_begun(self, opened: Opened) -> None:
        """Something is really being done to the VM, and it takes its time."""
        if opened.kind == "Redeploy":
            self.h1.virsh("migrate-setspeed", self.vm, "1")
        self.lifecycles.approve([opened])
        self.lifecycles.wait_for_fact("claimed", opened)
        begun: dict[str, Callable[[], bool]] = {
            "Reboot": lambda: self._marked(opened),
            "Freeze": lambda: self.h1.power_of(self.vm) == "paused",
            "Redeploy": lambda: "Unbounded" in self.h1.virsh("domjobinfo", self.vm),
            "Terminate": lambda: self._marked(opened),
        }
        wait_for(f"{opened.kind} is under way", begun[opened.kind], within_s=STEP_LIMIT_S)

    def until_done(self, opened: Opened) -> None:
        """Done, and control cannot be told. It takes a guest that ignores its button."""
        boot = self.rig.consoles.lines(self.vm)[-1].boot
        self.until_begun(opened)
        self.rig.wire.cut("control", "h1")
        wait_for(
            "the guest has booted",
            lambda: self.rig.consoles.lines(self.vm)[-1].boot != boot,
            within_s=STEP_LIMIT_S,
        )

    def _marked(self, opened: Opened) -> bool:
        return opened.event_id in self.h1.virsh("dumpxml", "--inactive", self.vm)

    # What dies.

    def kill_host(self) -> None:
        self.service.hosts["h1"].kill()

    def kill_control(self) -> None:
        assert self.service.control is not None
        self.service.control.kill()

    def kill_libvirtd(self) -> None:
        assert self.h1.libvirtd is not None
        self.h1.libvirtd.kill()


@pytest.fixture
def stage(service: Service, lifecycles: Lifecycles, fault: list[str]) -> Stage:
    return Stage(service, lifecycles, fault)


STEPS = ["started", "claimed", "begun", "done"]


@pytest.mark.parametrize("step", STEPS)
def test_host_daemon_is_killed_when_a_reboot_is(stage: Stage, step: str) -> None:
    stage.guest(ignores_acpi=step in ("begun", "done"))
    opened = stage.order("Reboot")
    getattr(stage, f"until_{step}")(opened)
    stage.kill_host()
    stage.service.heal()
    stage.finish(opened)


@pytest.mark.parametrize("step", ["shown", *STEPS])
def test_control_is_killed_when_a_reboot_is(stage: Stage, step: str) -> None:
    stage.guest(ignores_acpi=step in ("begun", "done"))
    opened = stage.order("Reboot")
    if step != "shown":
        getattr(stage, f"until_{step}")(opened)
    stage.kill_control()
    stage.service.heal()
    if step == "shown":
        stage.lifecycles.approve([opened])
    stage.finish(opened)


@pytest.mark.parametrize("step", ["claimed", "begun", "done"])
def test_libvirtd_is_killed_when_a_reboot_is(stage: Stage, step: str) -> None:
    stage.guest(ignores_acpi=step in ("begun", "done"))
    opened = stage.order("Reboot")
    getattr(stage, f"until_{step}")(opened)
    stage.kill_libvirtd()
    stage.service.heal()
    stage.finish(opened)


def test_host_daemon_is_killed_while_vms_stand_still_and_they_run_on_in_time(stage: Stage) -> None:
    stage.guest()
    opened = stage.order("Freeze")
    stage.until_begun(opened)
    stage.kill_host()
    wait_for(
        "the guest runs on although nobody is there",
        lambda: stage.h1.power_of(stage.vm) == "running",
        within_s=FREEZE_S + THAW_SLACK_S,
    )
    stage.service.heal()
    stage.finish(opened)


def test_libvirtd_is_killed_while_vms_stand_still(stage: Stage) -> None:
    stage.guest()
    opened = stage.order("Freeze")
    stage.until_begun(opened)
    stage.kill_libvirtd()
    stage.service.heal()
    stage.finish(opened)


def test_control_is_killed_while_vms_stand_still(stage: Stage) -> None:
    stage.guest()
    opened = stage.order("Freeze")
    stage.until_begun(opened)
    stage.kill_control()
    stage.service.heal()
    stage.finish(opened)


@pytest.mark.parametrize("victim", ["host", "control"])
def test_in_the_middle_of_a_live_migration_dies(stage: Stage, victim: str) -> None:
    stage.guest()
    opened = stage.order("Redeploy")
    stage.until_begun(opened)
    getattr(stage, f"kill_{victim}")()
    stage.service.heal()
    stage.finish(opened)
