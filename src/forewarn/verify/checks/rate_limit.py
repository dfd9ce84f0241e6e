"""Checks of the rate limit. They go beyond it, so they come last and only if asked for."""

from __future__ import annotations

import time

from forewarn.verify.answers import expect_error_object
from forewarn.verify.check import Failed, Level, Skipped, Topic, expect
from forewarn.verify.connection import Answer
from forewarn.verify.documents import NEWEST
from forewarn.verify.probe import Probe, path_of

TOPIC = Topic("rate", "The rate limit", level=Level.BURST, needs=("get-200",))

BURST_REQUESTS = 60
RECOVERS_WITHIN_S = 10.0
ALLOWED_PER_S = 5
QUIET_S = 1.2


def _once(probe: Probe) -> Answer:
    """One GET, whatever the pace and whatever the answer."""
    with probe.connection() as connection:
        connection.send(probe.request("GET", path_of(NEWEST)))
        return connection.answer()


@TOPIC.check(
    "rate-429",
    "Far more requests than five in a second get 429.",
    "R1, E10",
    not_checked="60 requests one after another; where the limit lies is not measured.",
)
def rate_429(probe: Probe) -> None:
    for _ in range(BURST_REQUESTS):
        answer = _once(probe)
        if answer.status == 429:
            probe.observed.throttled = answer
            return
    raise Failed(f"none of {BURST_REQUESTS} requests at once was refused", "429")


def _throttled(probe: Probe) -> Answer:
    if probe.observed.throttled is None:
        raise Skipped("nothing was refused")
    return probe.observed.throttled


@TOPIC.check(
    "rate-error-object",
    'The 429 carries a JSON object with "error".',
    "contract 2.1 (not known of the real service, E10)",
    not_checked="The first 429 alone, and any text; the words are not read.",
    needs=("rate-429",),
    choice=True,
)
def rate_error_object(probe: Probe) -> None:
    expect_error_object(_throttled(probe))


@TOPIC.check(
    "rate-retry-after",
    "The 429 says in Retry-After how many seconds to wait.",
    "Forewarn's choice (not known of the real service, R2)",
    not_checked="Any whole number passes; rate-recovers waits at most five seconds of it.",
    needs=("rate-429",),
    choice=True,
)
def rate_retry_after(probe: Probe) -> None:
    value = _throttled(probe).header("Retry-After") or ""
    expect(value.isascii() and value.isdigit(), f"Retry-After: {value}", "whole seconds")


@TOPIC.check(
    "rate-recovers",
    "A client that waits as told is answered again.",
    "R1",
    not_checked="Up to ten seconds of further 429 pass; other clients are not watched.",
    needs=("rate-429",),
)
def rate_recovers(probe: Probe) -> None:
    until_s = time.monotonic() + RECOVERS_WITHIN_S
    while True:
        probe.rest(_throttled(probe))
        answer = _once(probe)
        if answer.status == 200:
            return
        expect(answer.status == 429, answer, "200")
        expect(time.monotonic() < until_s, answer, f"200 within {RECOVERS_WITHIN_S:g} s")


@TOPIC.check(
    "rate-allows-five",
    "After a quiet second, five requests at once are answered.",
    "R1",
    not_checked="One VM alone; whether each VM has a limit of its own is not seen.",
    needs=("rate-recovers",),
)
def rate_allows_five(probe: Probe) -> None:
    time.sleep(QUIET_S)
    statuses = [_once(probe).status for _ in range(ALLOWED_PER_S)]
    expect(statuses == [200] * ALLOWED_PER_S, statuses, "200 five times")
