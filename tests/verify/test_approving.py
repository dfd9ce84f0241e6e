"""`verify` approves what it may and nothing else, says which event, and asks only on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Iterator

import pytest

from forewarn.verify import Options, Report, Verdict, run
from support.cli_runner import Ran, forewarn
from support.system_world import FOREWARN
from verify.planted_bugs import BUGS
from verify.planted_endpoint import Clock, Service, served

LIMIT_S = 60.0
MINUTE_S = 60.0


@pytest.fixture
def service() -> Service:
    return Service(Clock(), started_for=30)


@pytest.fixture
def url(service: Service) -> Iterator[str]:
    with served(service) as address:
        yield address


def started(service: Service) -> set[str]:
    return {event.id for event in service.events if event.started}


def approving(
    url: str, service: Service, approve_event: str | None = None
) -> tuple[Report, list[str]]:
    """A run that may approve, and what it announced."""
    said: list[str] = []
    options = Options(
        approve=True,
        advance=service.clock.turn,
        pace_per_s=0,
        only=("approve-starts",),
        announce=said.append,
        approve_event=approve_event,
    )
    return run(url, options), said


def verify(url: str, *arguments: str) -> Ran:
    return forewarn("verify", url, "--pace", "0", "--only", "approve-200", *arguments)


def why(report: Report, check_id: str) -> str:
    return next(o.why for o in report.outcomes if o.check.id == check_id)


def test_the_event_of_a_neighbour_is_never_approved(url: str, service: Service) -> None:
    neighbours = service.schedule("Reboot", ["web_1"])
    shared = service.schedule("Redeploy", ["web_0", "web_1"])
    report, said = approving(url, service)
    assert started(service) == set()
    assert said == []
    assert "no Scheduled event is for web_0 alone" in why(report, "approve-200")
    assert neighbours in why(report, "approve-200")
    assert shared in why(report, "approve-200")


def test_an_event_of_this_vm_alone_is_approved_and_named_first(url: str, service: Service) -> None:
    service.schedule("Redeploy", ["web_0", "web_1"])
    own = service.schedule("Reboot", ["web_0"], source="User")
    report, said = approving(url, service)
    assert report.good
    assert started(service) == {own}
    assert said == [
        f"approves event {own}: Reboot of web_0, NotBefore Tue, 03 Mar 2026 10:15:00 GMT"
    ]


def test_an_event_that_is_named_is_approved_whichever_vms_it_is_for(
    url: str, service: Service
) -> None:
    service.schedule("Reboot", ["web_0"])
    shared = service.schedule("Redeploy", ["web_0", "web_1"], source="User")
    report, said = approving(url, service, approve_event=shared.lower())
    assert report.good
    assert started(service) == {shared}
    assert said[0].startswith(f"approves event {shared}: Redeploy of web_0, web_1, ")


def test_an_event_that_is_named_and_is_not_there_is_not_replaced_by_another(
    url: str, service: Service
) -> None:
    service.schedule("Reboot", ["web_0"])
    report, _ = approving(url, service, approve_event="0F1E2D3C-4B5A-6978-8796-A5B4C3D2E1F0")
    assert started(service) == set()
    assert "no Scheduled event 0F1E2D3C" in why(report, "approve-200")


def test_what_another_client_has_scheduled_meanwhile_is_not_taken_for_the_runs_own(
    url: str, service: Service
) -> None:
    def schedule(event_type: str, _: str) -> None:
        service.schedule(event_type, ["web_1"])

    options = Options(
        operator=schedule,
        advance=service.clock.turn,
        pace_per_s=0,
        only=("approve-200",),
    )
    report = run(url, options)
    assert started(service) == set()
    appears = next(o for o in report.outcomes if o.check.id == "approve-200")
    assert appears.verdict is not Verdict.PASS


def test_without_a_terminal_nothing_is_asked(url: str, service: Service) -> None:
    shared = service.schedule("Redeploy", ["web_0", "web_1"])
    ran = verify(url, "--approve-event", shared)
    assert ran.code == 0, ran.out
    assert f"approves event {shared}" in ran.err
    assert "?" not in ran.err
    assert started(service) == {shared}


@pytest.mark.parametrize(("said", "code"), [("y\n", 0), ("n\n", 4)])
def test_on_a_terminal_an_event_that_is_named_is_asked_about(
    url: str, service: Service, said: str, code: int
) -> None:
    shared = service.schedule("Redeploy", ["web_0", "web_1"])
    ours, theirs = pty.openpty()
    try:
        os.write(ours, said.encode())
        ran = subprocess.run(
            [
                *(str(FOREWARN), "verify", url, "--pace", "0", "--only", "approve-200"),
                *("--approve-event", shared),
            ],
            stdin=theirs,
            stderr=theirs,
            stdout=subprocess.PIPE,
            check=False,
            timeout=LIMIT_S,
        )
        shown = os.read(ours, 65_536).decode()
    finally:
        os.close(theirs)
        os.close(ours)
    assert ran.returncode == code, shown
    assert "Approve event" in shown
    assert started(service) == ({shared} if said == "y\n" else set())


def test_an_endpoint_that_ignores_approvals_is_found_where_an_event_is_there(
    service: Service,
) -> None:
    clock = Clock(0.2)
    broken = BUGS["approvals-ignored"].service(clock, started_for=30)
    broken.schedule("Reboot", ["web_0"], source="User")
    with served(broken) as url:
        options = Options(approve=True, pace_per_s=0, wait=clock.turn, only=("approve-starts",))
        report = run(url, options)
    assert {o.check.id for o in report.with_verdict(Verdict.FAIL)} == {"approve-starts"}


def test_where_the_clock_stands_and_is_not_turned_nothing_is_waited_for(
    url: str, service: Service
) -> None:
    service.schedule("Reboot", ["web_0"], source="User")
    waited_s: list[float] = []
    said: list[str] = []
    options = Options(
        approve=True,
        wait=waited_s.append,  # the clock of the endpoint stands meanwhile
        pace_per_s=0,
        only=("approve-200", "approve-starts", "life-ends"),
        announce=said.append,
    )
    report = run(url, options)
    assert why(report, "life-ends") == "the clock of the endpoint stands still; give --advance"
    assert sum(waited_s) < MINUTE_S
