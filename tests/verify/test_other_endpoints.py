"""Endpoints that are right in another way than ours, or wrong in another way than breakages."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from forewarn.verify import Report, Verdict, run
from verify.breaking_requests import bare_etag
from verify.emulated import emulated
from verify.front import Asked, Given, Tampering, front_of


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


SECOND_WAYS: dict[str, Tampering] = {
    "event-id-form": events(lambda e: {**e, "EventId": e["EventId"].lower()}),
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
