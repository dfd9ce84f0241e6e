"""One failure hides no other, what was not looked at is said, and a choice is no break."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from forewarn.verify import Verdict
from forewarn.verify.table import CHECKS
from support.cli_runner import Ran, forewarn
from verify.planted_bugs import BUGS
from verify.planted_endpoint import Clock, Event, Json, Request, Service, served
from verify.test_planted_bugs import CLOCKS, failed, report_on


class LikeTheVendorsMock(Service):
    """An event gets another EventId at its start, and starts 15 s after it was scheduled."""

    def due(self, event: Event, now: datetime) -> bool:
        return super().due(event, now) or now >= event.scheduled_at + timedelta(seconds=15)

    def show(self, event: Event, version: str) -> Json:
        shown = super().show(event, version)
        other = "0" if event.id[0] != "0" else "1"
        return {**shown, "EventId": other + event.id[1:]} if event.started else shown

    def start_requests(self, request: Request) -> list[str]:
        known = {event.id[1:].upper(): event.id for event in self.events}
        return [known.get(each[1:].upper(), each) for each in super().start_requests(request)]


@pytest.mark.parametrize("clock", CLOCKS)
def test_an_event_that_changes_its_id_hides_nothing_of_the_rest(clock: str) -> None:
    report = report_on(LikeTheVendorsMock, clock)
    assert {"life-id-stable", "alone-waits"} <= set(failed(report))
    assert "before its NotBefore" in failed(report)["alone-waits"]
    skipped = [
        outcome.check.id
        for outcome in report.with_verdict(Verdict.SKIPPED)
        if not outcome.left_out and not outcome.check.id.startswith("rate-")
    ]
    assert skipped == []


@pytest.mark.parametrize("name", ["approvals-ignored", "started-never-shown", "never-by-itself"])
def test_a_life_that_goes_wrong_hides_no_check_of_notice(name: str) -> None:
    report = report_on(BUGS[name].service, "standing")
    verdicts = {outcome.check.id: outcome.verdict for outcome in report.outcomes}
    for event_type in ("Reboot", "Redeploy", "Freeze", "Preempt", "Terminate"):
        assert verdicts[f"notice-{event_type}"] is Verdict.PASS
    assert verdicts["cancel-removes"] is Verdict.PASS


def verify(*arguments: str) -> Ran:
    with served(Service(Clock())) as url:
        return forewarn("verify", url, "--pace", "0", *arguments)


def test_a_run_whose_named_checks_were_all_skipped_ends_with_4_and_says_why() -> None:
    ran = verify("--only", "approve-starts,rate")
    assert ran.code == 4
    assert "skipped, so the result is incomplete; approve-starts: it sends a POST" in ran.err


def test_a_run_that_made_one_of_its_named_checks_ends_with_0_unless_it_is_strict() -> None:
    only = ("--only", "get-200,approve-starts")
    assert verify(*only).code == 0
    assert verify(*only, "--strict").code == 4
    assert verify(*only, "--strict", "--skip", "approve-starts,approve-200").code == 0


def test_what_failed_counts_more_than_what_was_skipped() -> None:
    with served(BUGS["header-not-needed"].service(Clock())) as url:
        ran = forewarn("verify", url, "--pace", "0", "--strict", "--only", "header-required,rate")
    assert ran.code == 1


def test_quiet_prints_what_failed_and_the_last_line() -> None:
    good = verify("--only", "get-200", "--quiet")
    assert good.code == 0
    assert len(good.out.splitlines()) == 1
    assert good.err == ""
    with served(BUGS["header-not-needed"].service(Clock())) as url:
        bad = forewarn("verify", url, "--pace", "0", "--quiet", "--only", "header-required")
    lines = bad.out.splitlines()
    assert bad.code == 1
    assert [line.split()[0] for line in lines[1:5]] == ["FAIL", "seen:", "expected:", "source:"]
    assert lines[-1].endswith("Failed: header-required.")


def test_the_help_says_what_each_exit_code_means() -> None:
    said = " ".join(forewarn("verify", "--help").out.split())
    for words in ("0 if nothing failed", "1 if something failed", "2 if it", "3 if", "4 if"):
        assert words in said


def test_what_differs_is_shown() -> None:
    seen = failed(report_on(BUGS["not-before-slides"].service, "standing"))
    assert "NotBefore of " in seen["incarnation-same-events"]
    assert ", then " in seen["incarnation-same-events"]
    missing = failed(
        report_on(BUGS["field-missing"].service, "standing", ("life-appears", "documents"))
    )
    assert missing["fields-2020-07-01"].startswith("no ResourceType / ")


def test_order_of_fields_upper_case_and_the_bare_tag_are_choices() -> None:
    choices = {check.id for check in CHECKS if check.choice}
    assert {"fields-order", "event-id-upper", "tag-bare", "etag-quoted"} <= choices
