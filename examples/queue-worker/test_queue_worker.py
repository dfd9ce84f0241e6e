"""What the worker promises, against an emulated cloud (the fixture `cloud` of Forewarn)."""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from queue_worker import Endpoint, Spool, Worker, run_script

from forewarn.testing import Cloud, Event, FaultName

PATIENCE_S = 5.0
VM = "web_0"

pytestmark = pytest.mark.cloud(scopes=["web:2"])


class Work:
    """Work that a test holds in its hand: each job begins, and ends when it is let go."""

    def __init__(self) -> None:
        self.runs: Counter[str] = Counter()
        self.under_way = 0
        self._begun: queue.Queue[str] = queue.Queue()
        self._let_go = threading.Semaphore(0)

    def __call__(self, job: Path, give_up: threading.Event) -> bool:
        self.under_way += 1
        self._begun.put(job.name)
        try:
            while not self._let_go.acquire(timeout=0.01):
                if give_up.is_set():
                    return False
            self.runs[job.name] += 1
            return True
        finally:
            self.under_way -= 1

    def next_begun(self) -> str:
        return self._begun.get(timeout=PATIENCE_S)

    def let_go(self, jobs: int = 1) -> None:
        self._let_go.release(jobs)


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path)


@pytest.fixture
def work(cloud: Cloud, spool: Spool) -> Iterator[Work]:
    """The work of a worker that runs on web_0 and watches for its events."""
    work = Work()
    worker = Worker(spool, Endpoint(cloud.vm(VM).url), work, pause_s=0.01)
    worker.start()
    try:
        cloud.expect_polled(VM)
        yield work
    finally:
        worker.stop()


def let_it_look_again(cloud: Cloud) -> None:
    """Until the worker has acted on everything that it could read up to now."""
    cloud.expect_polled(VM, more_than=cloud.polls(VM) + 2)


def be_rebooted(cloud: Cloud, event: Event) -> None:
    """The impact, and its end."""
    cloud.expect_started(event)
    cloud.clock.next()
    cloud.expect_gone(event)


def test_a_job_in_hand_is_finished_before_a_reboot(cloud: Cloud, spool: Spool, work: Work) -> None:
    spool.add("1")
    work.next_begun()
    event = cloud.restart(VM)
    cloud.expect_read(VM, event)
    let_it_look_again(cloud)
    cloud.expect_not_approved(event)
    work.let_go()
    cloud.expect_approved(event, by=VM)
    assert spool.names("done") == ["1"]
    assert spool.names("hand") == []


def test_no_job_is_taken_until_the_reboot_is_over(cloud: Cloud, spool: Spool, work: Work) -> None:
    event = cloud.restart(VM)
    cloud.expect_approved(event, by=VM)
    spool.add("1")
    let_it_look_again(cloud)
    assert spool.names("todo") == ["1"]
    be_rebooted(cloud, event)
    assert work.next_begun() == "1"


def test_no_job_is_lost_or_run_twice(cloud: Cloud, spool: Spool, work: Work) -> None:
    jobs = [f"{number:02}" for number in range(10)]
    for job in jobs:
        spool.add(job)
    for job in jobs[:5]:
        assert work.next_begun() == job
        event = cloud.restart(VM)
        cloud.expect_read(VM, event)
        let_it_look_again(cloud)
        work.let_go()
        cloud.expect_started(event)
        # A reboot ends everything that runs: nothing may, and nothing may be in between.
        assert (work.under_way, spool.names("hand")) == (0, [])
        be_rebooted(cloud, event)
    work.let_go(5)
    for job in jobs[5:]:
        assert work.next_begun() == job
    event = cloud.restart(VM)
    cloud.expect_approved(event)
    assert spool.names("done") == jobs
    assert set(work.runs.values()) == {1}


def test_events_of_other_vms_are_left_alone(cloud: Cloud, spool: Spool, work: Work) -> None:
    event = cloud.restart("web_1")
    cloud.expect_read(VM, event)
    spool.add("1")
    assert work.next_begun() == "1"
    # Who reads the next event has acted on the one before.
    cloud.expect_read(VM, cloud.maintain("web_1", "Freeze"))
    cloud.expect_not_approved(event)


@pytest.mark.parametrize(
    "kind", ["throttled", "gone", "empty", "reset", "cut", "error", "unavailable"]
)
def test_an_endpoint_in_trouble_is_asked_again(
    cloud: Cloud, spool: Spool, work: Work, kind: FaultName
) -> None:
    spool.add("1")
    work.next_begun()
    event = cloud.restart(VM)
    cloud.expect_read(VM, event)
    let_it_look_again(cloud)
    cloud.expect_met(cloud.faults.add(kind, vm=VM, count=3))
    cloud.expect_not_approved(event)  # trouble is no reason to forget what is in hand
    cloud.expect_met(cloud.faults.add(kind, vm=VM, count=1))
    work.let_go()
    cloud.expect_approved(event, by=VM)
    be_rebooted(cloud, event)


@pytest.mark.usefixtures("work")
@pytest.mark.parametrize("kind", ["reset", "unavailable"])
def test_an_approval_that_was_not_answered_is_sent_again(cloud: Cloud, kind: FaultName) -> None:
    fault = cloud.faults.add(kind, vm=VM, method="POST", count=1)
    event = cloud.restart(VM)
    cloud.expect_met(fault)
    cloud.expect_approved(event, by=VM)


@pytest.mark.cloud(scopes=["web:2"], spot=True)
def test_a_job_that_takes_too_long_is_put_back_before_a_preempt(
    cloud: Cloud, spool: Spool, work: Work
) -> None:
    spool.add("long")
    work.next_begun()
    event = cloud.evict(VM)
    assert event.not_before - cloud.clock.now == timedelta(seconds=30)
    cloud.expect_read(VM, event)
    let_it_look_again(cloud)
    cloud.expect_not_approved(event)
    cloud.clock.advance(seconds=20)
    cloud.expect_approved(event, by=VM)
    assert spool.names("todo") == ["long"]
    assert work.runs["long"] == 0


def test_work_goes_on_when_maintenance_is_canceled(cloud: Cloud, spool: Spool, work: Work) -> None:
    spool.add("1")
    work.next_begun()
    operation = cloud.maintain(VM, "Reboot")
    cloud.expect_read(VM, operation)
    cloud.cancel(operation)
    spool.add("2")
    work.let_go()
    assert work.next_begun() == "2"


def test_a_script_is_finished_or_ended_with_all_that_it_has_started(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("exit 3")
    assert run_script(script, threading.Event())
    script.write_text(f"sleep 60 && touch {tmp_path}/never")
    given_up = threading.Event()
    given_up.set()
    assert not run_script(script, given_up)
