"""Running the checks against an endpoint, in their order, each to a verdict."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from forewarn.verify.check import Check, Failed, Level, Skipped
from forewarn.verify.connection import Broken, Silent, Unreachable
from forewarn.verify.event_following import leave
from forewarn.verify.options import BadOptions, Options, target_of
from forewarn.verify.probe import Probe
from forewarn.verify.report import Outcome, Report, Verdict
from forewarn.verify.table import named, selected

ANSWER_EXPECTED = "a whole HTTP answer in time"


class NothingAnswers(Exception):  # noqa: N818 - says what is the case
    """Nothing answers at the URL; the text says what happened instead."""


def _ignore(_: Outcome) -> None:
    """For callers that do not follow the outcomes."""


def run(
    url: str, options: Options | None = None, *, each: Callable[[Outcome], None] = _ignore
) -> Report:
    """Check the endpoint at the URL; `each` is told of every outcome as it comes.

    Raises BadOptions if the run cannot be made as asked, NothingAnswers if no server answers.
    Whatever an endpoint answers, well or badly, ends in the report.
    """
    options = options or Options()
    target = target_of(url)
    try:
        checks, left_out = selected(options.only), named(options.skip)
    except KeyError as unknown:
        raise BadOptions(f"There is no check or topic {unknown}; --list names all.") from None
    probe = Probe(target, options)
    began_s = time.monotonic()
    try:
        probe.first_answer()
    except (Unreachable, Broken) as error:
        # A server that sends something else than an answer is there; the checks say what it sends.
        if isinstance(error, Unreachable) or type(error) is Silent:
            raise NothingAnswers(f"nothing answers at {target.url}: {error}") from None
    outcomes: dict[str, Outcome] = {}
    try:
        for check in checks:
            out = "left out" if check.id in left_out else _of_profile(check, options)
            why = out or _not_asked_for(check, options) or _needs(check, outcomes)
            outcome = _outcome(check, probe, why, left_out=bool(out))
            outcomes[check.id] = outcome
            each(outcome)
    finally:
        leave(probe)
    return Report(
        url=target.url,
        profile=options.profile,
        outcomes=tuple(outcomes.values()),
        took_s=time.monotonic() - began_s,
        named=named(options.only),
    )


def _outcome(check: Check, probe: Probe, why: str, *, left_out: bool) -> Outcome:
    """How the check ends; `why` says why it is not to be made, if it is not."""
    if why:
        return Outcome(check=check, verdict=Verdict.SKIPPED, why=why, left_out=left_out)
    began_s = time.monotonic()

    def ended(verdict: Verdict, seen: str = "", expected: str = "", why: str = "") -> Outcome:
        took_s = time.monotonic() - began_s
        return Outcome(
            check=check, verdict=verdict, seen=seen, expected=expected, why=why, took_s=took_s
        )

    try:
        check.look(probe)
    except Failed as failed:
        return ended(Verdict.FAIL, seen=failed.seen, expected=failed.expected)
    except (Broken, Unreachable) as broken:
        return ended(Verdict.FAIL, seen=str(broken), expected=ANSWER_EXPECTED)
    except Skipped as skipped:
        return ended(Verdict.SKIPPED, why=str(skipped))
    return ended(Verdict.PASS)


def _of_profile(check: Check, options: Options) -> str:
    if check.choice and options.profile == "azure":
        return "a choice of Forewarn; --profile azure leaves it out"
    return ""


def _not_asked_for(check: Check, options: Options) -> str:
    operated = options.operator is not None
    approves = options.approve or options.approve_event is not None or operated
    if check.level is Level.APPROVE and not approves:
        return "it sends a POST; give --approve"
    if check.level is Level.OPERATOR and not operated:
        return "it has events scheduled; give --operator"
    if check.level is Level.BURST and not options.burst:
        return "it goes beyond the rate limit; give --burst"
    return ""


def _needs(check: Check, outcomes: Mapping[str, Outcome]) -> str:
    for needed in check.needs:
        outcome = outcomes[needed]
        if outcome.verdict is Verdict.FAIL:
            return f"needs {needed}, which failed"
        if outcome.verdict is Verdict.SKIPPED:
            return f"needs {needed}: {outcome.why}"
    return ""
