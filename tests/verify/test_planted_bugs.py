"""An endpoint written from the contract alone: good, it passes; with a bug planted in it, it fails.

With both clocks: one that the kit can turn, and one that runs on by itself while it is looked at.
What is waited for is turned, so that no test waits.
"""

import pytest

from forewarn.verify import Options, Report, Verdict, run
from verify.planted_bugs import BUGS
from verify.planted_choices import CHOICES
from verify.planted_endpoint import Clock, Service, served
from verify.planted_later import UNSEEN

TYPES = ("Reboot", "Redeploy", "Freeze", "Preempt", "Terminate")
OF_PLATFORM = ("Freeze", "Preempt")
CLOCKS = {"standing": 0.0, "running": 0.2}  # how much it moves on by itself at each answer, in s
STARTED_FOR_S = 20


def report_on(kind: type[Service], clock_name: str, only: tuple[str, ...] = ()) -> Report:
    clock = Clock(CLOCKS[clock_name])
    service = kind(clock, started_for=STARTED_FOR_S)

    def schedule(event_type: str, vm: str) -> None:
        source = "Platform" if event_type in OF_PLATFORM else "User"
        names = [vm, "web_1"] if event_type == "Freeze" else [vm]
        service.schedule(event_type, names, source=source)

    with served(service) as url:
        options = Options(
            operator=schedule,
            cancel=service.cancel,
            advance=clock.turn if clock_name == "standing" else None,
            wait=clock.turn,
            types=TYPES,
            profile="azure",
            only=only,
            pace_per_s=0,
            timeout_s=10.0,
        )
        return run(url, options)


def failed(report: Report) -> dict[str, str]:
    return {o.check.id: f"{o.seen} / {o.expected}" for o in report.with_verdict(Verdict.FAIL)}


def test_there_are_sixty_bugs_that_a_client_can_see_and_each_names_its_fact() -> None:
    assert len(BUGS) - len(UNSEEN) >= 60
    assert set(UNSEEN) <= set(BUGS)
    assert all(bug.fact and bug.says for bug in BUGS.values())


@pytest.mark.parametrize("clock", CLOCKS)
def test_the_endpoint_without_a_bug_keeps_every_sentence(clock: str) -> None:
    report = report_on(Service, clock)
    assert failed(report) == {}
    skipped = {
        outcome.check.id
        for outcome in report.with_verdict(Verdict.SKIPPED)
        if not outcome.check.choice
    }
    assert {check_id for check_id in skipped if not check_id.startswith("rate-")} == set()


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("name", CHOICES)
def test_what_the_contract_leaves_open_is_no_break(name: str, clock: str) -> None:
    assert failed(report_on(CHOICES[name], clock)) == {}


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("name", [name for name in BUGS if name not in UNSEEN])
def test_a_planted_bug_is_found(name: str, clock: str) -> None:
    assert failed(report_on(BUGS[name].service, clock)), BUGS[name].says


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("name", UNSEEN)
def test_a_bug_in_no_answer_is_listed_with_its_reason_and_not_found(name: str, clock: str) -> None:
    assert failed(report_on(BUGS[name].service, clock)) == {}, UNSEEN[name]


@pytest.mark.parametrize("clock", CLOCKS)
def test_a_start_at_not_before_is_not_the_doing_of_an_approval(clock: str) -> None:
    report = report_on(BUGS["approvals-ignored"].service, clock, only=("approve-starts",))
    assert set(failed(report)) == {"approve-starts"}
