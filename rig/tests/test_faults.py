"""What dies, fails or is cut in the middle: at most the announced impact, an end, and an account.

Each test first stands exactly between two durable steps of an action. A stopped libvirtd keeps a
claimed action from beginning, a stopped host daemon keeps a started one from being claimed, a cut
link keeps a done one from being reported.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from itertools import count
from typing import Any

import pytest
from rig.consoles import Line
from rig.domains import Guest
from rig.lifecycles import FREEZE_S, Lifecycle, Lifecycles, Opened
from rig.service import SHUTDOWN_SECONDS, Service
from rig.waiting import wait_for

STEP_LIMIT_S = 30.0
THAW_SLACK_S = 3.0
POLL_EVERY_S = 1.0
DATE_SLACK_MS = 3_000  # whole seconds on the wire, and a guest that speaks a little later

_NUMBERS = count(100)

pytestmark = pytest.mark.timeout(240)


class Stage:
    """One guest on h1 that does not approve, an order for it, and hands that break things."""

    def __init__(self, service: Service, lifecycles: Lifecycles, fault: list[str]) -> None:
        self.service = service
        self.rig = service.rig
        self.lifecycles = lifecycles
        self.fault = fault
        self.h1 = self.rig.hypervisors["h1"]
        # Of its own for each test: what the last one's guest said is no evidence here.
        self.number = next(_NUMBERS)
        self.vm = f"stage-{self.number}"

    def guest(self, *, ignores_acpi: bool = False, approves: bool = False) -> None:
        guest = Guest(
            name=self.vm, number=self.number, ignores_acpi=ignores_acpi, approves=approves
        )
        self.lifecycles.define(guest, "h1")

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

    def finish_failed(self, opened: Opened) -> Lifecycle:
        """It fails, with a reason, and nothing has happened to the guest: it runs where it ran."""
        done = self.lifecycles.finish([opened], judged=False)[0]
        lines = [line for line in self.rig.consoles.lines(self.vm) if line.at_s > opened.ordered_s]
        assert done.event["phase"] == "failed"
        assert self.rig.where(self.vm) == opened.before
        assert len({line.boot for line in lines}) == 1
        assert lines[-1].answered
        detail = done.event["actions"][0]["detail"]
        assert detail
        self.fault.append(f"{opened.kind} failed, the guest runs on: {detail}")
        return done

    def finish_anyhow(self, opened: Opened) -> None:
        """It is done as announced, or it fails and nothing has happened."""
        done = self.lifecycles.finish([opened], judged=False)[0]
        if done.event["phase"] == "completed":
            assert done.complaints == ()
            self.fault.append(f"{opened.kind} completed, as announced.")
        else:
            self.finish_failed(opened)

    def polls(self, since_s: float) -> list[Line]:
        """The guest's answered polls since an instant."""
        lines = self.rig.consoles.lines(self.vm)
        return [line for line in lines if line.at_s > since_s and line.answered]

    def approvals(self) -> list[str]:
        """How the guest's approvals were answered."""
        lines = self.rig.consoles.lines(self.vm)
        return [line.words["status"] for line in lines if line.kind == "approve"]

    def hurry(self) -> None:
        """Let a migration that was slowed down be quick again."""
        self.h1.virsh("migrate-setspeed", self.vm, "1000")

    # Standing between two steps, each left by what the test does next.

    def until_approved(self, opened: Opened) -> None:
        """Approved, and not started: nothing starts on a host that is silent."""
        self.service.hosts["h1"].signal(signal.SIGSTOP)
        wait_for(
            "control misses the host",
            lambda: "h1" in self.service.operator.get("/v1/health")["hosts_silent"],
            within_s=STEP_LIMIT_S,
        )
        self.lifecycles.approve([opened])
        self.lifecycles.wait_for_fact("approved", opened)

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


def milliseconds_of_date(text: str) -> int:
    """The Date of an answer."""
    return int(parsedate_to_datetime(text).timestamp() * 1000)


@pytest.fixture
def stage(service: Service, lifecycles: Lifecycles, fault: list[str]) -> Stage:
    return Stage(service, lifecycles, fault)


def long(*values: object) -> list[Any]:
    """Parameters that are only for the long run."""
    return [pytest.param(value, marks=pytest.mark.long) for value in values]


@pytest.mark.parametrize("step", ["started", *long("claimed", "begun", "done")])
def test_host_daemon_is_killed_when_a_reboot_is(stage: Stage, step: str) -> None:
    stage.guest(ignores_acpi=step in ("begun", "done"))
    opened = stage.order("Reboot")
    getattr(stage, f"until_{step}")(opened)
    stage.kill_host()
    stage.service.heal()
    stage.finish(opened)


@pytest.mark.parametrize(
    "step", ["claimed", *long("shown", "approved", "started", "begun", "done")]
)
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


@pytest.mark.parametrize("step", ["claimed", *long("begun", "done")])
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


@pytest.mark.long
def test_libvirtd_is_killed_while_vms_stand_still(stage: Stage) -> None:
    stage.guest()
    opened = stage.order("Freeze")
    stage.until_begun(opened)
    stage.kill_libvirtd()
    stage.service.heal()
    stage.finish(opened)


@pytest.mark.long
def test_control_is_killed_while_vms_stand_still(stage: Stage) -> None:
    stage.guest()
    opened = stage.order("Freeze")
    stage.until_begun(opened)
    stage.kill_control()
    stage.service.heal()
    stage.finish(opened)


@pytest.mark.parametrize("victim", long("host", "control"))
def test_in_the_middle_of_a_live_migration_dies(stage: Stage, victim: str) -> None:
    stage.guest()
    opened = stage.order("Redeploy")
    stage.until_begun(opened)
    getattr(stage, f"kill_{victim}")()
    stage.service.heal()
    stage.hurry()
    stage.finish(opened)


@pytest.mark.long
def test_libvirtd_of_the_source_is_killed_in_the_middle_of_a_live_migration(stage: Stage) -> None:
    stage.guest()
    opened = stage.order("Redeploy")
    stage.until_begun(opened)
    stage.kill_libvirtd()
    stage.service.heal()
    stage.hurry()
    stage.finish_anyhow(opened)


def test_the_target_loses_its_power_in_the_middle_of_a_live_migration(stage: Stage) -> None:
    stage.guest()
    opened = stage.order("Redeploy")
    stage.until_begun(opened)
    stage.service.fail_host("h2")
    done = stage.finish_failed(opened)
    assert "h2" in done.event["actions"][0]["detail"]


def test_a_migration_that_cannot_reach_its_target_leaves_the_vm_where_it_is(stage: Stage) -> None:
    stage.guest()
    opened = stage.order("Redeploy")
    stage.h1.forbid_migrations()
    stage.lifecycles.approve([opened])
    stage.finish_failed(opened)
    stage.h1.allow_migrations()
    again = stage.order("Redeploy")
    stage.lifecycles.approve([again])
    stage.finish(again)


def test_a_guest_that_ignores_its_button_is_reset_and_the_report_says_so(stage: Stage) -> None:
    stage.guest(ignores_acpi=True)
    opened = stage.order("Reboot")
    stage.lifecycles.approve([opened])
    done = stage.finish(opened)
    assert f"within {SHUTDOWN_SECONDS} s" in done.event["actions"][0]["detail"]


@pytest.mark.long
def test_a_guest_that_ignores_its_button_is_terminated_all_the_same(stage: Stage) -> None:
    stage.guest(ignores_acpi=True)
    opened = stage.order("Terminate")
    stage.lifecycles.approve([opened])
    stage.finish(opened)


@pytest.mark.parametrize("seconds", [1, *long(60)])
def test_the_link_is_cut_for(stage: Stage, seconds: int) -> None:
    stage.guest()
    opened = stage.order("Reboot")
    stage.rig.wire.cut("control", "h1")
    cut_s = time.monotonic()
    stage.lifecycles.approve([opened])
    wait_for(
        "the link has been cut for long enough",
        lambda: time.monotonic() - cut_s >= seconds,
        within_s=seconds + 5,
    )
    line = stage.rig.consoles.last_poll(stage.vm, since_s=cut_s)
    assert line is not None or seconds < POLL_EVERY_S * 2
    assert line is None or opened.event_id in line.events(), "its last document stays"
    stage.rig.wire.mend_all()
    stage.finish(opened)


@pytest.mark.long
def test_an_approval_while_the_link_is_cut_is_put_off_and_nothing_starts(stage: Stage) -> None:
    stage.guest(approves=True)
    stage.h1.virsh("suspend", stage.vm)
    opened = stage.lifecycles.begin("Reboot", [stage.vm])[0]
    stage.rig.wire.cut("control", "h1")
    stage.h1.virsh("resume", stage.vm)
    opened.before = stage.rig.where(stage.vm)
    wait_for("the guest is put off", lambda: "503" in stage.approvals(), within_s=STEP_LIMIT_S)
    assert "200" not in stage.approvals()
    stage.rig.wire.mend_all()
    stage.finish(opened)
    stage.fault.append("The approval was answered 503 while the link was cut.")


@pytest.mark.parametrize("hours", long(1, -1))
def test_the_clock_of_one_host_is_stepped(stage: Stage, hours: int) -> None:
    stage.service.hosts["h1"].stop()
    stage.service.start_host("h1", steppable=True)
    stage.guest()
    opened = stage.order("Reboot")
    stage.service.step_clock("h1", hours * 3600)
    stepped_s = time.monotonic()
    wait_for(
        "three polls since",
        lambda: len(stage.polls(stepped_s)) >= 3,
        within_s=STEP_LIMIT_S,
    )
    for line in stage.polls(stepped_s):
        shown_ms = milliseconds_of_date(line.words["date"].replace("_", " "))
        assert abs(shown_ms - stage.service.clock.at_ms(line.at_s)) < DATE_SLACK_MS
    stage.lifecycles.let_notice_pass([opened])
    stage.finish(opened)
    stage.fault.append("Guests saw no step; the notice was whole.")
