"""Endpoints that are right in another way than ours, or wrong in another way than breakages."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from forewarn.verify import Report, Verdict, run
from verify.breakages import BREAKAGES
from verify.breaking_events import Remembering, in_each, two_ids
from verify.breaking_requests import answering, as_newest, bare_etag, with_metadata
from verify.emulated import emulated
from verify.front import Asked, Given, Tampering, front_of, refusal


def report_on(tampering: Tampering) -> Report:
    with emulated() as world, front_of(world.url, tampering) as front:
        return run(front.url, world.options(skip=("wait-held",)))


def failed(report: Report) -> set[str]:
    return {outcome.check.id for outcome in report.with_verdict(Verdict.FAIL)}


def giving(change: Callable[[Given], Given]) -> Tampering:
    return Tampering(give=lambda _, given: change(given))


def documents(change: Callable[[Given], Given]) -> Tampering:
    """Change every document."""

    def give(asked: Asked, given: Given) -> Given:
        return change(given) if asked.is_document() and given.status == 200 else given

    return Tampering(give=give)


def events(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Tampering:
    """Change every event of every document."""

    def changed(given: Given) -> Given:
        content = given.json
        return given.with_json({**content, "Events": [change(e) for e in content["Events"]]})

    return documents(changed)


def saying_close(given: Given) -> Given:
    return replace(given.having("Connection", "close"), then_close=True)


def with_quoted_charset(given: Given) -> Given:
    if "json" not in (given.header("Content-Type") or ""):
        return given
    return given.having("Content-Type", 'application/json;charset="UTF-8"')


OTHERS: dict[str, Tampering] = {
    "one that ends each connection and says so": giving(saying_close),
    "one that quotes the charset": giving(with_quoted_charset),
    "one with more headers": giving(lambda g: g.having("Server", "IMDS/150.870.65.1854")),
    "one with header names in lower case": giving(
        lambda g: replace(g, headers=tuple((name.lower(), value) for name, value in g.headers))
    ),
    "one that indents its documents": documents(
        lambda g: g.saying(json.dumps(g.json, indent=2).encode())
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_right_in_another_way_is_no_failure(name: str) -> None:
    assert failed(report_on(OTHERS[name])) == set()


def test_an_endpoint_that_ends_connections_is_skipped_where_it_would_be_wrong_to_judge() -> None:
    report = report_on(giving(saying_close))
    skipped = {o.check.id: o.why for o in report.with_verdict(Verdict.SKIPPED)}
    assert "says so" in skipped["keep-alive"]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_document_that_is_not_plain_utf_8_is_none(encoding: str) -> None:
    report = report_on(documents(lambda g: g.saying(g.body.decode().encode(encoding))))
    assert failed(report) >= {"get-200"}


def with_another_id_once_started(event: dict[str, Any]) -> dict[str, Any]:
    if event["EventStatus"] == "Scheduled":
        return event
    return {
        **event,
        "EventId": f"DEADBEEF{event['EventId'][8:]}",
        "Resources": [*event["Resources"], "another"],
    }


def test_an_event_that_gets_another_id_and_more_names_at_its_start_has_not_kept_its_id() -> None:
    assert "life-id-stable" in failed(report_on(events(with_another_id_once_started)))


def with_duration_as_text(event: dict[str, Any]) -> dict[str, Any]:
    seconds = event.get("DurationInSeconds")
    return event if seconds is None else {**event, "DurationInSeconds": str(seconds)}


def with_fraction(given: Given) -> Given:
    content = given.json
    return given.with_json({**content, "DocumentIncarnation": content["DocumentIncarnation"] + 0.0})


def null_for_nothing(given: Given) -> Given:
    return given.with_json({**given.json, "Events": given.json["Events"] or None})


def no_content(asked: Asked, given: Given) -> Given:
    return replace(given, status=204) if asked.is_post() and not given.body else given


def without_tag(given: Given) -> Given:
    return given.without("ETag") if given.status == 304 else given


def as_another(event_type: str, other: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda e: {**e, "EventType": other} if e["EventType"] == event_type else e


class Disguising(Remembering):
    """A Terminate is shown to an api-version that does not know it as something else."""

    def older(self, version: str, content: Any) -> Any:
        known = [event for event in self.events if event["EventType"] == "Terminate"]
        if version != "2017-11-01" or not known:
            return content
        names = list(known[0])[:6]
        event_id = f"DEADBEEF{known[0]['EventId'][8:]}"
        shown = {name: known[0][name] for name in names}
        other = {**shown, "EventId": event_id, "EventType": "Redeploy"}
        return {**content, "Events": [*content["Events"], other]}


SECOND_WAYS: dict[str, Tampering] = {
    "unchanged-etag": giving(without_tag),
    "notice-Redeploy": events(as_another("Redeploy", "Freeze")),
    "shown-Preempt": in_each(as_another("Preempt", "Redeploy"), "2019-08-01")(),
    "hidden-Terminate": Disguising(),
    "approve-several": answering(two_ids(same=False), refusal(400))(),
    "event-id-form": events(lambda e: {**e, "EventId": e["EventId"].replace("-", ",")}),
    "event-id-upper": events(lambda e: {**e, "EventId": e["EventId"].lower()}),
    "not-before-blank": events(lambda e: e if e["NotBefore"] else {**e, "NotBefore": None}),
    "event-duration": events(with_duration_as_text),
    "incarnation-number": documents(with_fraction),
    "events-array": documents(null_for_nothing),
    "approve-200": Tampering(give=no_content),
    "etag-quoted": giving(lambda g: bare_etag(g) if g.header("ETag") else g),
}


@pytest.mark.parametrize("check_id", SECOND_WAYS)
def test_a_sentence_that_is_broken_in_a_second_way_is_noticed_too(check_id: str) -> None:
    assert check_id in failed(report_on(SECOND_WAYS[check_id]))


class Late(Remembering):
    """Events are shown so many seconds after they were scheduled."""

    def __init__(self, seconds: int) -> None:
        super().__init__()
        self.late = timedelta(seconds=seconds)
        self.since: dict[str, datetime] = {}

    def newest(self, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for event in events:
            self.since.setdefault(event["EventId"], self.now)
        return [e for e in events if self.now - self.since[e["EventId"]] >= self.late]


@pytest.mark.parametrize(("seconds", "found"), [(40, set()), (120, {"notice-Redeploy"})])
def test_notice_counts_from_the_order_for_those_that_show_an_event_within_a_minute(
    seconds: int, found: set[str]
) -> None:
    with emulated() as world, front_of(world.url, Late(seconds)) as front:
        report = run(front.url, world.options(only=("notice-Redeploy",)))
    assert failed(report) == found


@pytest.mark.parametrize(
    ("check_id", "when"),
    [
        ("post-no-header", lambda asked: asked.header("Metadata") is None),
        ("post-no-version", lambda asked: asked.version is None),
    ],
)
def test_an_approval_that_is_refused_and_applied_all_the_same_is_noticed(
    check_id: str, when: Callable[[Asked], bool]
) -> None:
    mended: list[Asked] = []

    def ask(asked: Asked) -> Asked:
        if not (asked.is_post() and when(asked)):
            return asked
        mended.append(with_metadata(as_newest(asked)))
        return mended[-1]

    def give(asked: Asked, given: Given) -> Given:
        return refusal(400) if asked.is_post() and when(asked) else given

    with emulated() as world, front_of(world.url, Tampering(ask, give)) as front:
        report = run(front.url, world.options(only=(check_id,)))
    assert len(mended) == 1
    assert failed(report) == {check_id}


def test_an_approval_is_not_judged_by_an_event_that_is_no_longer_scheduled() -> None:
    with emulated() as world, front_of(world.url, BREAKAGES["post-no-header"]()) as front:
        report = run(front.url, world.options(only=("post-no-header", "post-no-version")))
    skipped = {o.check.id: o.why for o in report.with_verdict(Verdict.SKIPPED)}
    assert skipped == {"post-no-version": "the event is no longer Scheduled"}
