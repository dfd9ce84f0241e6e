"""For each check there is an endpoint that breaks its sentence, and then that check fails.

It fails alone, but for those that `ALSO` names.

The endpoint is the emulator behind a front that tampers with one thing. A run is everything that
the kit can check; only the one check that waits for a second is left out where neither waiting nor
tags are broken, and the rate limit has an endpoint of its own.
"""

from __future__ import annotations

import pytest

from forewarn.verify import Report, Verdict, run
from forewarn.verify.check import Level
from forewarn.verify.table import BY_ID, CHECKS
from verify.breakages import ALSO, BREAKAGES
from verify.emulated import emulated
from verify.front import Tampering, front_of

RATE_PER_S = 5


def report_on(tampering: Tampering, check_id: str) -> Report:
    check = BY_ID[check_id]
    if check.level is Level.BURST:
        with emulated(requests_per_s=RATE_PER_S) as world, front_of(world.url, tampering) as front:
            return run(front.url, world.options(burst=True, only=("rate",)))
    waits = check.topic in ("waiting", "tags") or "wait-held" in check.needs
    with emulated() as world, front_of(world.url, tampering) as front:
        return run(front.url, world.options(skip=() if waits else ("wait-held",)))


def dependents(check_id: str) -> set[str]:
    """Every check that is skipped when this one fails."""
    found = {check_id}
    for check in CHECKS:  # needs come before those that need them
        if found.intersection(check.needs):
            found.add(check.id)
    return found - {check_id}


def test_every_check_has_a_breakage_and_every_breakage_a_check() -> None:
    assert set(BREAKAGES) == set(BY_ID)


@pytest.mark.parametrize("check_id", BY_ID)
def test_a_broken_sentence_fails_its_check_and_no_other(check_id: str) -> None:
    report = report_on(BREAKAGES[check_id](), check_id)
    failed = {outcome.check.id: outcome for outcome in report.with_verdict(Verdict.FAIL)}
    expected = {check_id, *ALSO.get(check_id, ())}
    assert set(failed) == expected, {name: (o.seen, o.expected) for name, o in failed.items()}
    assert failed[check_id].seen
    assert failed[check_id].expected
    skipped = {outcome.check.id for outcome in report.with_verdict(Verdict.SKIPPED)}
    ran = {outcome.check.id for outcome in report.outcomes}
    assert skipped >= dependents(check_id) & ran
