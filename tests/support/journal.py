"""Lines of a journal, as the writer numbers them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from forewarn.core.facts import EarlierDetail, detail_words
from forewarn.core.model import Fact, FactKind
from forewarn.ports import JournalLine


def lines_of(facts: Iterable[Fact], *, after: int = 0) -> tuple[JournalLine, ...]:
    """The facts under the numbers that follow `after`."""
    return tuple(JournalLine(number=n, fact=fact) for n, fact in enumerate(facts, after + 1))


def worded(at_ms: int, words: str) -> Fact:
    """A fact that takes as much room as its words."""
    return Fact(kind=FactKind.DOWNTIME, at_ms=at_ms, detail=EarlierDetail(said={"words": words}))


def said(fact: Fact) -> dict[str, Any]:
    """What a fact says beyond what every fact says, as its JSON has it."""
    return detail_words(fact.detail)
