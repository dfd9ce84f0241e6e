"""The guard that thaws when the daemon cannot: as a function, and as a process."""

from __future__ import annotations

import time

import pytest
from msgspec.structs import replace

from forewarn.adapters.libvirt.domain_xml import DomainMark
from forewarn.adapters.libvirt.thaw_guard import ProcessGuard, main, thaw
from forewarn.core.inventory.host_report import Power
from forewarn.core.model import ActionKind
from forewarn.ports import HypervisorFailed
from support.libvirt_world import LibvirtWorld, domain_xml, libvirt_is_there

MARK = DomainMark(action_id="F1", kind=ActionKind.FREEZE_HOST, before=True)
WITHIN_S = 60


def test_only_what_carries_the_mark_is_thawed(world: LibvirtWorld) -> None:
    marks = {
        "ours": MARK,
        "other": replace(MARK, action_id="F2"),
        "ended": replace(MARK, ended="done"),
        "reboot": replace(MARK, kind=ActionKind.REBOOT_HOST),
        "owner": None,
    }
    for name, mark in marks.items():
        world.define("h1", domain_xml(name), start=True)
        if mark is not None:
            world.on("h1", lambda s, n=name, m=mark: s.set_mark(n, m, live=True, config=False))  # type: ignore[misc]
        world.on("h1", lambda s, n=name: s.suspend(n))  # type: ignore[misc]
    assert world.on("h1", lambda s: thaw(s, "F1")) is False
    assert world.on("h1", lambda s: thaw(s, "F1")) is True
    running = {name for name in marks if world.seen("h1", name).power is Power.RUNNING}
    assert running == {"ours"}


def ended_with(guard: ProcessGuard) -> int:
    return guard._process.wait(WITHIN_S)


def test_a_guard_waits_for_its_time_and_ends_by_itself() -> None:
    libvirt_is_there()
    guard = ProcessGuard("test:///default", "F1")
    thaw_at_ms = time.monotonic_ns() // 1_000_000 + 300
    guard.thaw_at(thaw_at_ms)
    guard.dismiss()
    assert ended_with(guard) == 0
    assert time.monotonic_ns() // 1_000_000 >= thaw_at_ms


def test_a_guard_whose_daemon_died_before_it_said_when_thaws_at_once() -> None:
    libvirt_is_there()
    guard = ProcessGuard("test:///default", "F1")
    guard.dismiss()
    assert ended_with(guard) == 0


def test_a_guard_is_not_in_the_session_that_a_terminal_ends() -> None:
    libvirt_is_there()
    guard = ProcessGuard("test:///default", "F1")
    with open(f"/proc/{guard._process.pid}/stat", encoding="utf-8") as stat:  # noqa: PTH123
        session = int(stat.read().rpartition(")")[2].split()[3])
    assert session == guard._process.pid
    guard._process.terminate()  # the service is stopped: the guard stays
    guard.thaw_at(time.monotonic_ns() // 1_000_000)
    guard.dismiss()
    assert ended_with(guard) == 0


def test_a_guard_that_cannot_see_the_vms_says_so_before_anything_is_frozen() -> None:
    libvirt_is_there()
    with pytest.raises(HypervisorFailed, match=r"nothing is frozen: .*nonexistent"):
        ProcessGuard("qemu+unix:///system?socket=/nonexistent/libvirt-sock", "F1")


def test_a_guard_needs_to_know_what_it_guards(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["test:///default"]) == 2
    assert "usage" in capsys.readouterr().err
