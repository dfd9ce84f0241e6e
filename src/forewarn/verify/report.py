"""How a run ended: one outcome for each check, and what they add up to."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

from forewarn.verify.check import Check


class Verdict(StrEnum):
    """How one check ended."""

    PASS = "pass"  # noqa: S105 - a verdict, no password
    FAIL = "fail"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one check ended. `why` is set when it was skipped, the other two when it failed.

    `left_out` says that it was skipped because the caller wanted so.
    """

    check: Check
    verdict: Verdict
    seen: str = ""
    expected: str = ""
    why: str = ""
    left_out: bool = False
    took_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All outcomes, in the order of the checks. The endpoint is good if nothing failed.

    `named` are the checks that were asked for by name, without those that had to come before.
    """

    url: str
    profile: str
    outcomes: tuple[Outcome, ...]
    took_s: float
    named: frozenset[str] = frozenset()

    def with_verdict(self, verdict: Verdict) -> tuple[Outcome, ...]:
        """The outcomes with this verdict."""
        return tuple(outcome for outcome in self.outcomes if outcome.verdict is verdict)

    @property
    def good(self) -> bool:
        """True if nothing failed. What was skipped was not looked at."""
        return not self.with_verdict(Verdict.FAIL)

    def not_looked_at(self, *, strict: bool = False) -> tuple[Outcome, ...]:
        """What was skipped so that the report says less than was asked for.

        That is all that was named, if all of it was skipped; with `strict` whatever was skipped
        and not left out by the caller.
        """
        skipped = self.with_verdict(Verdict.SKIPPED)
        if strict:
            return tuple(outcome for outcome in skipped if not outcome.left_out)
        named = tuple(outcome for outcome in skipped if outcome.check.id in self.named)
        return named if len(named) == len(self.named) else ()

    @property
    def counts(self) -> dict[Verdict, int]:
        """How many outcomes there are of each verdict."""
        counted = Counter(outcome.verdict for outcome in self.outcomes)
        return {verdict: counted[verdict] for verdict in Verdict}
