"""`cloud.vm(NAME).attach(pid)`: the app under test feels what happens to its VM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from forewarn.testing import Cloud, CloudVm, Conflict, Event, Invalid
from support.cloud_guest import approve
from support.waiting import wait_until

# Counts as long as it is let.
APP = """
import sys, time
while True:
    with open(sys.argv[1], "a") as file:
        file.write(".")
    time.sleep(0.002)
"""

Start = Callable[[], subprocess.Popen[bytes]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    begun: list[subprocess.Popen[bytes]] = []

    def make() -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-c", APP, str(tmp_path / "ticks")])
        begun.append(process)
        return process

    yield make
    for process in begun:
        process.kill()
        process.wait()


def ticks(folder: Path) -> int:
    file = folder / "ticks"
    return file.stat().st_size if file.exists() else 0


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


def felt(attached: object) -> list[tuple[str, str]]:
    return [(one.impact, one.event_type) for one in attached.impacts]  # type: ignore[attr-defined]


def test_a_freeze_stops_the_process_until_its_duration_is_over(
    cloud: Cloud, start: Start, tmp_path: Path
) -> None:
    app = start()
    attached = cloud.vm("vm0").attach(app)
    freeze = cloud.maintain("vm0", "Freeze", duration=9).event
    wait_until(lambda: ticks(tmp_path), "the app runs")
    assert state(app.pid) != "T"
    cloud.clock.advance(minutes=15)
    assert state(app.pid) == "T"
    before = ticks(tmp_path)
    cloud.clock.advance(seconds=8.999)
    assert (state(app.pid), ticks(tmp_path)) == ("T", before)
    cloud.clock.advance(seconds=0.001)
    wait_until(lambda: ticks(tmp_path) > before, "the app goes on")
    assert felt(attached) == [("freeze", "Freeze"), ("thaw", "Freeze")]
    assert {one.event_id for one in attached.impacts} == {freeze.event_id}
    assert attached.impacts[1].at - attached.impacts[0].at == (cloud.clock.now - freeze.not_before)


@pytest.mark.cloud(spot=True)
@pytest.mark.parametrize(
    ("order", "comes_back"),
    [
        (lambda cloud: cloud.restart("vm0"), True),
        (lambda cloud: cloud.redeploy("vm0"), True),
        (lambda cloud: cloud.maintain("vm0", "Reboot").event, True),
        (lambda cloud: cloud.evict("vm0"), False),
        (lambda cloud: cloud.delete("vm0"), False),
    ],
    ids=["restart", "redeploy", "maintain", "evict", "delete"],
)
def test_what_takes_a_vm_down_kills_the_process_and_only_what_comes_back_is_started_again(
    cloud: Cloud, start: Start, order: Callable[[Cloud], Event], *, comes_back: bool
) -> None:
    app = start()
    attached = cloud.vm("vm0").attach(app.pid, restart=start)
    event = order(cloud)
    approve(cloud.vm("vm0"), event.event_id)
    assert app.wait(60) == -signal.SIGKILL
    assert felt(attached) == [("kill", event.event_type)]
    assert attached.impacts[0].pid == app.pid
    cloud.clock.advance(minutes=5)
    cloud.expect_gone(event, within=0)
    assert felt(attached)[1:] == ([("start", event.event_type)] if comes_back else [])
    assert (attached.pid != app.pid) is comes_back
    if comes_back:
        assert state(attached.pid) not in ("Z", "X")


@pytest.mark.parametrize("lose_disk", [False, True])
def test_a_redeploy_tells_the_app_whether_its_local_disk_is_lost(
    cloud: Cloud, start: Start, *, lose_disk: bool
) -> None:
    attached = cloud.vm("vm0").attach(start(), restart=start)
    cloud.approve(cloud.redeploy("vm0", lose_disk=lose_disk))
    cloud.clock.advance(minutes=5)
    assert [(one.impact, one.lose_disk) for one in attached.impacts] == [
        ("kill", False),
        ("start", lose_disk),
    ]


def test_a_host_that_fails_takes_the_process_with_it(cloud: Cloud, start: Start) -> None:
    app = start()
    attached = cloud.vm("vm0").attach(app, restart=start)
    (reboot,) = cloud.fail("vm0", fenced=True)
    assert app.wait(60) == -signal.SIGKILL
    while not cloud.event(reboot).gone:
        cloud.clock.next()
    assert felt(attached) == [("kill", "Reboot"), ("start", "Reboot")]


@pytest.mark.cloud(scopes=["web:2"])
def test_only_the_vm_that_is_hit_feels_it(cloud: Cloud, start: Start) -> None:
    hit, spared = start(), start()
    cloud.vm("web_0").attach(hit)
    other = cloud.vm("web_1").attach(spared)
    cloud.approve(cloud.restart("web_0"))
    assert hit.wait(60) == -signal.SIGKILL
    cloud.clock.advance(minutes=1)
    assert (spared.poll(), other.impacts) == (None, ())


def test_a_restart_may_be_a_command_whose_process_ends_with_the_cloud(
    start: Start, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", APP, str(tmp_path / "again")]
    with Cloud() as cloud:
        attached = cloud.vm("vm0").attach(start(), restart=command)
        cloud.approve(cloud.restart("vm0"))
        cloud.clock.advance(minutes=1)
        wait_until((tmp_path / "again").exists, "the command runs")
        again = attached.pid
    with pytest.raises(ProcessLookupError):
        os.kill(again, 0)


def test_a_group_is_hit_as_a_whole(cloud: Cloud, tmp_path: Path) -> None:
    script = f"sleep 600 & echo $! > {tmp_path}/child.new; mv {tmp_path}/child.new {tmp_path}/child"
    shell = subprocess.Popen(["sh", "-c", f"{script}; wait"], start_new_session=True)
    try:
        wait_until((tmp_path / "child").exists, "the shell has a child")
        child = int((tmp_path / "child").read_text())
        cloud.vm("vm0").attach(shell, group=True)
        freeze = cloud.maintain("vm0", "Freeze")
        cloud.approve(freeze)
        wait_until(lambda: state(child) == "T", "the child stands still too")
        cloud.clock.next()
        wait_until(lambda: state(child) == "S", "the child goes on too")
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()


@pytest.mark.parametrize("ends", ["detach", "close"])
def test_a_process_that_is_frozen_goes_on_when_the_cloud_lets_go_of_it(
    start: Start, ends: str
) -> None:
    app = start()
    with Cloud() as cloud:
        attached = cloud.vm("vm0").attach(app)
        cloud.approve(cloud.maintain("vm0", "Freeze"))
        assert state(app.pid) == "T"
        if ends == "detach":
            attached.detach()
            attached.detach()
            wait_until(lambda: state(app.pid) != "T", "it goes on")
            cloud.approve(cloud.restart("vm0"))
            cloud.clock.advance(minutes=1)
    wait_until(lambda: state(app.pid) != "T", "it goes on")
    assert app.poll() is None


def test_a_process_that_was_gone_and_a_restart_that_fails_are_told(
    cloud: Cloud, start: Start
) -> None:
    app = start()

    def broken() -> int:
        raise RuntimeError("planted")

    attached = cloud.vm("vm0").attach(app, restart=broken)
    app.kill()
    app.wait()
    cloud.approve(cloud.restart("vm0"))
    (ended,) = [due.what for due in cloud.clock.next() if due.what.startswith("start of")]
    assert "failed: RuntimeError('planted')" in ended
    gone, failed = (one.failed for one in attached.impacts)
    assert gone == f"process {app.pid} of vm0 was gone already"
    assert "RuntimeError('planted')" in failed


@pytest.mark.parametrize(
    ("pid", "said"),
    [
        (os.getpid, "would freeze or kill itself"),
        (lambda: 0, "0 is no process"),
        (lambda: -1, "-1 is no process"),
        (lambda: True, "true is no process"),
        (lambda: 2**22 + 1, "There is no process"),
    ],
)
def test_what_cannot_be_attached_is_refused(
    cloud: Cloud, pid: Callable[[], int], said: str
) -> None:
    with pytest.raises(Invalid, match=said):
        cloud.vm("vm0").attach(pid())


def test_misuse_is_refused_with_what_would_be_accepted(cloud: Cloud, start: Start) -> None:
    vm = cloud.vm("vm0")
    with pytest.raises(Invalid, match=r"leads no group.*start_new_session=True"):
        vm.attach(start(), group=True)
    with pytest.raises(Invalid, match=r'restart is "app".*a function'):
        vm.attach(start(), restart="app")
    stranger = CloudVm(name="x", url="", scope="x", host="", update_domain=0)
    with pytest.raises(Conflict, match="of no cloud"):
        stranger.attach(1)
    assert "attaching" not in repr(vm)
