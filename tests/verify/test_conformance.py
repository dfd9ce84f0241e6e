"""Our own endpoint keeps every sentence of the kit; the kit does no more than it is allowed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from forewarn.verify import OperatorFailed, Options, Report, Verdict, run
from forewarn.verify.check import Level
from forewarn.verify.documents import VERSIONS
from forewarn.verify.table import CHECKS
from verify.breaking_events import in_rfc_1123
from verify.emulated import emulated
from verify.front import DOCUMENT_PATH, Asked, Given, Tampering, front_of, refusal

RATE_PER_S = 5


def not_passed(report: Report) -> dict[str, str]:
    return {
        o.check.id: o.why or f"seen: {o.seen}; expected: {o.expected}"
        for o in report.outcomes
        if o.verdict is not Verdict.PASS
    }


def watching(asked: list[Asked]) -> Tampering:
    """Changes nothing, keeps every request."""

    def ask(request: Asked) -> Asked:
        asked.append(request)
        return request

    return Tampering(ask=ask)


def test_our_endpoint_keeps_every_sentence() -> None:
    with emulated() as world:
        everything = run(world.url, world.options(skip=("rate",), vm=None))
    with emulated(requests_per_s=RATE_PER_S) as limited:
        rate = run(limited.url, limited.options(burst=True, only=("rate",)))
    left_out = {check.id for check in CHECKS if check.topic == "rate"}
    assert set(not_passed(everything)) == left_out
    assert not_passed(rate) == {}
    assert {outcome.check.id for outcome in everything.outcomes} == {c.id for c in CHECKS}
    assert left_out <= {outcome.check.id for outcome in rate.outcomes}
    assert everything.good


def test_a_run_that_only_reads_sends_nothing_that_could_change_anything() -> None:
    asked: list[Asked] = []
    with emulated() as world:
        world.schedule("Reboot", world.vm)
        with front_of(world.url, watching(asked)) as front:
            report = run(front.url, Options(pace_per_s=0, skip=("wait-held",)))
        assert report.good
        after = run(world.url, Options(pace_per_s=0, only=("incarnation-number",)))
    assert after.good
    assert {request.method for request in asked} == {"GET", "HEAD", "PUT", ""}
    assert [request.body for request in asked if request.method == "PUT"] == [b""] * len(
        [request for request in asked if request.method == "PUT"]
    )
    levels = {outcome.check.level for outcome in report.with_verdict(Verdict.PASS)}
    assert levels == {Level.READ}


def test_events_that_are_there_are_judged_without_an_operator() -> None:
    with emulated() as world:
        world.schedule("Reboot", world.vm)
        report = run(world.url, Options(pace_per_s=0, only=("documents",)))
    at_once = {"same-events", "same-status", "same-type", "same-not-before", "same-names"}
    unseen = {"not-before-blank", "events-order", "started-shown", *at_once}
    assert set(not_passed(report)) == unseen


def test_without_an_operator_what_is_there_is_approved_only_if_asked_for() -> None:
    with emulated() as world:
        world.schedule("Reboot", world.vm)
        careful = run(world.url, Options(pace_per_s=0, only=("approve-ended",)))
        assert not_passed(careful)["approve-200"] == "it sends a POST; give --approve"
        allowed = Options(
            pace_per_s=0, approve=True, advance=world.advance, only=("approve-ended",)
        )
        report = run(world.url, allowed)
        assert not_passed(report) == {}
        nothing = run(world.url, allowed)
        assert "no Scheduled event is there" in not_passed(nothing)["approve-200"]


def test_what_forewarn_decided_is_left_out_for_azure() -> None:
    with emulated() as world:
        report = run(world.url, Options(pace_per_s=0, profile="azure"))
    assert report.good
    skipped = not_passed(report)
    choices = {check.id for check in CHECKS if check.choice}
    assert choices <= set(skipped)
    assert skipped["etag-quoted"].startswith("a choice of Forewarn")
    assert report.counts[Verdict.PASS] > 60


def as_the_real_service(asked: Asked) -> Asked | Given:
    """What is known of the real service, or could be the case, where Forewarn decided otherwise."""
    tag = asked.header("If-None-Match")
    odd_path = asked.path != DOCUMENT_PATH and asked.path.lower().startswith(DOCUMENT_PATH)
    if odd_path or asked.method == "" or asked.target.startswith("http:"):
        return Given(404 if asked.method else 400).saying(b"<html>")
    if asked.is_post() and any(i != i.upper() for i in asked.event_ids):
        return refusal(400)
    if asked.is_post() and len(set(asked.event_ids)) == 1 and "BADC0DE" in asked.event_ids[0]:
        return Given(200).saying(b"")
    if tag is not None and (not tag.isdigit() or asked.version != VERSIONS[-1]):
        return asked.without("If-None-Match")
    for header in ("Origin", "Sec-Fetch-Site", "Forwarded", "X-Real-IP", "Via"):
        asked = asked.without(header)
    return asked.without("Prefer").having("Host", "169.254.169.254")


def shown_as_the_real_service(asked: Asked, given: Given) -> Given:
    tag = given.header("ETag")
    if tag is not None:
        given = given.having("ETag", tag.strip('"'))
    if asked.version == "1999-12-31":
        return Given(400).saying(b"")
    if asked.method == "PUT" or asked.header("X-Forwarded-For"):
        return given.saying(b"<xml>").having("Content-Type", "text/xml")
    if given.status == 200 and asked.is_document(VERSIONS[0]):
        content = given.json
        return given.with_json({**content, "Events": [in_rfc_1123(e) for e in content["Events"]]})
    return given


def test_an_endpoint_like_the_real_service_has_nothing_against_it_with_the_profile_azure() -> None:
    tampering = Tampering(ask=as_the_real_service, give=shown_as_the_real_service)
    with emulated() as world, front_of(world.url, tampering) as front:
        azure = run(front.url, world.options(profile="azure"))
        ours = run(front.url, world.options(skip=("wait-held",)))
    assert [(o.check.id, o.seen) for o in azure.with_verdict(Verdict.FAIL)] == []
    failed = {outcome.check.id for outcome in ours.with_verdict(Verdict.FAIL)}
    assert len(failed) > 10
    assert failed <= {check.id for check in CHECKS if check.choice}


def test_the_pace_keeps_a_run_below_the_rate_limit() -> None:
    asked: list[Asked] = []
    throttled: list[int] = []
    tampering = watching(asked)

    def count(_: Asked, given: Given) -> Given:
        throttled.append(given.status)
        return given

    tampering.give = count
    with emulated(requests_per_s=50) as world, front_of(world.url, tampering) as front:
        report = run(front.url, Options(pace_per_s=40, skip=("wait-held",)))
    assert report.good
    assert len(asked) > 50
    assert 429 not in throttled


def test_throttling_by_others_is_waited_out() -> None:
    others = iter([True, False, True, True, False])  # who has used up the limit when we ask

    def ask(request: Asked) -> Asked | Given:
        return refusal(429).having("Retry-After", "0") if next(others, False) else request

    with emulated() as world, front_of(world.url, Tampering(ask=ask)) as front:
        report = run(front.url, Options(pace_per_s=0, only=("get-no-extension",)))
    assert not_passed(report) == {}
    assert next(others, None) is None


def test_only_runs_the_named_checks_and_what_they_need() -> None:
    with emulated() as world:
        report = run(world.url, Options(pace_per_s=0, only=("etag-quoted", "versions")))
    ran = [outcome.check.id for outcome in report.outcomes]
    assert ran == [
        check.id
        for check in CHECKS
        if check.id in ("get-200", "etag-present", "etag-quoted") or check.topic == "versions"
    ]
    assert not_passed(report) == {}


def test_time_is_waited_for_and_announced_where_no_clock_can_be_turned() -> None:
    said: list[str] = []
    with emulated(speed=60) as world:
        options = world.options(
            advance=None, progress=said.append, types=("Reboot",), only=("life-ends",)
        )
        report = run(world.url, options)
    assert not_passed(report) == {}
    assert "waiting up to 60 min for the event to end" in said


def broken(*_: object) -> None:
    raise OperatorFailed("`order vm0` ended with 1: no such thing")


@pytest.mark.parametrize(
    ("option", "check_id"),
    [("operator", "life-appears"), ("advance", "life-ends"), ("cancel", "cancel-removes")],
)
def test_an_operator_that_fails_is_reported_with_what_it_said(option: str, check_id: str) -> None:
    with emulated() as world:
        changed: dict[str, Callable[..., None]] = {option: broken}
        options = world.options(**changed, types=("Reboot",), only=(check_id,))
        report = run(world.url, options)
    failed = {o.check.id: o.seen for o in report.with_verdict(Verdict.FAIL)}
    assert failed == {check_id: "`order vm0` ended with 1: no such thing"}


def test_what_would_delete_the_vm_is_skipped_unless_it_can_be_canceled() -> None:
    with emulated() as world:
        report = run(world.url, world.options(cancel=None, skip=("wait-held", "rate")))
        assert "would delete the VM" in not_passed(report)["notice-Preempt"]
        assert "would delete the VM" in not_passed(report)["notice-Terminate"]
        assert report.good
        again = run(world.url, world.options(only=("get-200",)))
    assert again.good


def test_what_a_run_had_scheduled_and_could_not_end_is_canceled_or_told() -> None:
    said: list[str] = []
    with emulated() as world:
        options = world.options(
            types=("Reboot",), only=("life-type",), cancel=None, announce=said.append
        )
        assert run(world.url, options).good
        assert len(said) == 1
        assert "was scheduled for this run and may be left" in said[0]
        world.cancel(said[0].split()[1])
        said.clear()
        assert run(world.url, world.options(only=("life-type",), announce=said.append)).good
        after = run(world.url, Options(pace_per_s=0, only=("event-status",)))
    assert said == []
    assert "no event was seen" in not_passed(after)["event-status"]


def test_a_platform_event_that_waits_for_other_tenants_is_no_failure() -> None:
    def platform(asked: Asked, given: Given) -> Given:
        if asked.is_post():
            return given
        return given.saying(given.body.replace(b'"User"', b'"Platform"')) if given.body else given

    def ignore_approvals(asked: Asked) -> Asked | Given:
        return Given(200).saying(b"") if asked.is_post() else asked

    tampering = Tampering(ask=ignore_approvals, give=platform)
    with emulated() as world, front_of(world.url, tampering) as front:
        report = run(front.url, world.options(types=("Reboot",), only=("approve-starts",)))
    assert report.good
    assert "other tenants" in not_passed(report)["approve-starts"]
