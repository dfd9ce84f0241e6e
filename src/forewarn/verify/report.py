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
    """How one check ended. `why` is set when it was skipped, the other two when it failed."""

    check: Check
    verdict: Verdict
    seen: str = ""
    expected: str = ""
    why: str = ""
    took_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All outcomes, in the order of the checks. The endpoint is good if nothing failed."""

    url: str
    profile: str
    outcomes: tuple[Outcome, ...]
    took_s: float

    def with_verdict(self, verdict: Verdict) -> tuple[Outcome, ...]:
        """The outcomes with this verdict."""
        return tuple(outcome for outcome in self.outcomes if outcome.verdict is verdict)

    @property
    def good(self) -> bool:
        """True if nothing failed. What was skipped was not looked at."""
        return not self.with_verdict(Verdict.FAIL)

    @property
    def counts(self) -> dict[Verdict, int]:
        """How many outcomes there are of each verdict."""
        counted = Counter(outcome.verdict for outcome in self.outcomes)
        return {verdict: counted[verdict] for verdict in Verdict}
