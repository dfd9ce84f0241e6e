"""What the disk does to promises: traces and faults of a real service under strace.

No 200 to an approval leaves before the sync of its commit has returned. When the disk is full or
fails, the answer is 503 or none at all, and a restart finds what was answered.
"""

from __future__ import annotations

import http.client
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from programs import needs
from support.system_world import (
    Guest,
    Service,
    needs_strace,
    running,
    service_in,
    standalone_fleet,
    traced,
)

VMS = 12
WAL = "forewarn.db-wal>"
EXIT_STORE_FAILED = 70
PAGE_SHOWN_BYTES = 4_200  # of each written page, so that the trace shows whose commit it is
SMALL_DISK = "4m"


@dataclass(frozen=True, slots=True)
class Call:
    """A system call: when it was entered and when it returned, as places in the trace."""

    entered: int
    returned: int
    text: str

    def is_a(self, *names: str) -> bool:
        return self.text.startswith(tuple(f"{name}(" for name in names))


def calls_of(trace: Path) -> list[Call]:
    """The calls of a trace by the order in which they returned."""
    begun: dict[str, tuple[int, str]] = {}
    calls = []
    for place, line in enumerate(trace.read_text(errors="replace").splitlines()):
        thread, _, text = line.partition(" ")
        text = text.lstrip()
        if text.endswith("<unfinished ...>"):
            begun[thread] = (place, text.removesuffix("<unfinished ...>"))
        elif text.startswith("<... ") and thread in begun:
            entered, beginning = begun.pop(thread)
            calls.append(Call(entered, place, beginning + text.partition("resumed>")[2]))
        else:
            calls.append(Call(place, place, text))
    return calls


def synced(calls: list[Call], event_id: str) -> Call:
    """The sync of the commit that holds the approval of an event."""
    approval = re.compile(rf"approved.{{1,80}}{event_id}")
    written = next(
        call
        for call in calls
        if call.is_a("pwrite64") and WAL in call.text and approval.search(call.text)
    )
    return next(
        call
        for call in calls
        if call.is_a("fdatasync") and WAL in call.text and call.entered > written.returned
    )


def answered(calls: list[Call], event_id: str) -> Call:
    """The answer on the connection on which an event's approval was read."""
    asked = next(
        call for call in calls if call.is_a("read", "recvfrom", "recvmsg") and event_id in call.text
    )
    connection = re.search(r"<socket:\[\d+\]>|<TCP:\[[^]]*\]>", asked.text)
    assert connection is not None, asked
    return next(
        call
        for call in calls
        if call.is_a("write", "writev", "sendto", "sendmsg")
        and connection[0] in call.text
        and call.entered > asked.entered
    )


def ordered(service: Service, count: int) -> dict[str, str]:
    """Restarts of so many VMs that wait for approval: event id by VM."""
    found = {}
    for number in range(count):
        service.guest(f"vm{number}").document()
        found[f"vm{number}"] = service.order(f"vms/vm{number}/restart")["event_id"]
    return found


def approve(guest: Guest, event_id: str) -> int | None:
    """The status of the answer; None if there was none."""
    try:
        return guest.approve(event_id).status
    except (OSError, http.client.HTTPException):
        return None


@needs_strace
def test_no_200_to_an_approval_leaves_before_the_sync_of_its_commit_returned(
    tmp_path: Path,
) -> None:
    with running(tmp_path, fleet=standalone_fleet(VMS)) as service:
        events = ordered(service, VMS)
        shown = "trace=fdatasync,fsync,pwrite64,read,recvfrom,recvmsg,write,writev,sendto,sendmsg"
        with traced(service, "-s", str(PAGE_SHOWN_BYTES), "-e", shown) as trace:
            guests = {vm: service.guest(vm) for vm in events}
            one_by_one, together = list(events)[: VMS // 2], list(events)[VMS // 2 :]
            for vm in one_by_one:
                assert approve(guests[vm], events[vm]) == 200
            with ThreadPoolExecutor(len(together)) as callers:
                given = callers.map(lambda vm: approve(guests[vm], events[vm]), together)
                assert list(given) == [200] * len(together)

        calls = calls_of(trace)
        for event_id in events.values():
            sync, answer = synced(calls, event_id), answered(calls, event_id)
            assert "HTTP/1.1 200" in answer.text
            assert sync.text.endswith("= 0")
            assert sync.returned < answer.entered


@needs_strace
@pytest.mark.parametrize(
    ("call", "error"), [("fdatasync", "EIO"), ("fdatasync", "ENOSPC"), ("pwrite64", "EIO")]
)
def test_when_the_disk_fails_it_ends_without_a_200_and_keeps_what_it_answered(
    tmp_path: Path, call: str, error: str
) -> None:
    with running(tmp_path, fleet=standalone_fleet(2)) as service:
        events = ordered(service, 2)
        assert approve(service.guest("vm0"), events["vm0"]) == 200
        with traced(service, "-e", f"trace={call}", "-e", f"inject={call}:error={error}"):
            assert approve(service.guest("vm1"), events["vm1"]) in (503, None)
            assert service.exit_code() == EXIT_STORE_FAILED
        assert "stopped at once, nothing unkept was answered" in service.err()

        service.start()

        assert service.look(f"events/{events['vm0']}")["approved_by"] == "vm0"
        assert approve(service.guest("vm1"), events["vm1"]) == 200
        service.wait_for_phase(events["vm1"], "completed")


@needs_strace
def test_on_a_full_disk_approvals_and_orders_get_503_reads_go_on_and_nothing_was_changed(
    tmp_path: Path,
) -> None:
    with running(tmp_path, fleet=standalone_fleet(3)) as service:
        events = ordered(service, 2)
        assert approve(service.guest("vm0"), events["vm0"]) == 200
        service.wait_for_phase(events["vm0"], "completed")
        before = service.guest("vm1").document()
        with traced(service, "-e", "trace=pwrite64", "-e", "inject=pwrite64:error=ENOSPC"):
            refused = service.guest("vm1").approve(events["vm1"])
            assert refused.status == 503
            assert int(refused.headers["retry-after"]) >= 1
            assert service.ask("POST", "vms/vm0/restart").status == 503
            assert service.guest("vm1").document() == before
            # A scope is enabled before its first document is given; that cannot be kept now.
            assert service.guest("vm2").get().status == 503
            service.kill()

        service.start()

        assert service.look(f"events/{events['vm1']}")["approved"] is None
        assert service.guest("vm1").document() == before
        assert service.look("events?scope=vm0")["items"] == []
        assert service.look("scopes/vm2")["enabled"] is False


@needs_strace
def test_when_there_is_room_again_the_same_process_goes_on(tmp_path: Path) -> None:
    with running(tmp_path, fleet=standalone_fleet(1)) as service:
        events = ordered(service, 1)
        with traced(service, "-e", "trace=pwrite64", "-e", "inject=pwrite64:error=ENOSPC"):
            assert approve(service.guest("vm0"), events["vm0"]) == 503

        assert approve(service.guest("vm0"), events["vm0"]) == 200
        service.wait_for_phase(events["vm0"], "completed")
        assert service.stop() == 0


@needs_strace
def test_told_to_stop_on_a_full_disk_it_ends_cleanly_and_keeps_what_it_answered(
    tmp_path: Path,
) -> None:
    with running(tmp_path, fleet=standalone_fleet(2)) as service:
        events = ordered(service, 2)
        assert approve(service.guest("vm0"), events["vm0"]) == 200
        with traced(service, "-e", "trace=pwrite64", "-e", "inject=pwrite64:error=ENOSPC"):
            service.guest("vm1").document()  # a first read that cannot be saved
            assert service.stop() == 0
        assert "Traceback" not in service.err()

        service.start()

        assert service.look(f"events/{events['vm0']}")["approved_by"] == "vm0"
        assert service.look(f"events/{events['vm1']}")["phase"] == "scheduled"


@contextmanager
def nobody_reads_its_log(folder: Path, fleet: str) -> Iterator[Service]:
    """A running service whose standard error leads nowhere: every write to it fails."""
    with service_in(folder, fleet=fleet) as service:
        reader, writer = os.pipe()
        try:
            service.start(stderr_to=writer)
        finally:
            os.close(writer)
            os.close(reader)
        yield service


@needs_strace
def test_a_log_that_cannot_be_written_costs_no_answer(tmp_path: Path) -> None:
    with nobody_reads_its_log(tmp_path, standalone_fleet(1)) as service:
        events = ordered(service, 1)
        with traced(service, "-e", "trace=pwrite64", "-e", "inject=pwrite64:error=ENOSPC"):
            assert approve(service.guest("vm0"), events["vm0"]) == 503  # and that is logged

        assert approve(service.guest("vm0"), events["vm0"]) == 200
        service.wait_for_phase(events["vm0"], "completed")
        assert service.stop() == 0


@needs_strace
def test_a_log_that_cannot_be_written_keeps_no_failed_disk_in_service(tmp_path: Path) -> None:
    with nobody_reads_its_log(tmp_path, standalone_fleet(1)) as service:
        events = ordered(service, 1)
        with traced(service, "-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO"):
            assert approve(service.guest("vm0"), events["vm0"]) in (503, None)
            assert service.exit_code() == EXIT_STORE_FAILED


def fill(disk: Path) -> Path:
    """Leave no room on a disk; returns the file that takes it."""
    ballast = disk / "ballast"

    def write_for_ever() -> None:
        with ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4_096))

    with pytest.raises(OSError, match="No space left"):
        write_for_ever()
    return ballast


@needs("unshare")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
def test_on_a_really_full_disk_it_answers_503_until_there_is_room(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = f'mount -t tmpfs -o mode=0700,size={SMALL_DISK} tmpfs "$0" && exec "$@"'
    with service_in(tmp_path, fleet=standalone_fleet(2)) as service:
        service.data = small / "data"
        service.start(under=["unshare", "--mount", "sh", "-c", mount, str(small)])
        disk = Path(f"/proc/{service.process.pid}/root") / small.relative_to("/")
        service.data = disk / "data"  # only the service itself sees the mount
        events = ordered(service, 2)

        ballast = fill(disk)
        assert approve(service.guest("vm0"), events["vm0"]) == 503
        assert service.guest("vm0").events()[events["vm0"]]["EventStatus"] == "Scheduled"
        ballast.unlink()

        assert approve(service.guest("vm0"), events["vm0"]) == 200
        service.wait_for_phase(events["vm0"], "completed")
        assert service.look(f"events/{events['vm1']}")["phase"] == "scheduled"
        assert service.stop() == 0
    assert list(small.iterdir()) == []
