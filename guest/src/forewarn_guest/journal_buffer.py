"""Keeping facts: into the journal now, or as soon as it takes them; and a journal that stays short.

What is kept is always the beginning of what has happened: facts are kept in order, so an agent
that dies meanwhile is as one that died a little earlier.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from typing import Any, Callable, Protocol

from forewarn_guest.errors import JournalError, JournalFull
from forewarn_guest.facts import Fact, FactKind
from forewarn_guest.logs import Log
from forewarn_guest.tracked_event import fold_all, unfinished

COMPACT_FROM_FACTS = 2_000
COMPACT_AGAIN_S = 60.0  # after that has failed
LINE_CHARS_MAX = 256 * 1024  # of several facts; a longer one has a line of its own
UNKEPT_MAX = 1_000  # from here on, sightings that are over are forgotten before they are kept

# Of these only the latest of a tracked event says anything.
_REPLACED_BY = {
    FactKind.CHANGED: (FactKind.CHANGED, FactKind.STARTED),
    FactKind.WITHHELD: (FactKind.WITHHELD, FactKind.APPROVED),
}


class JournalWriter(Protocol):
    """What is asked of a journal."""

    @property
    def large(self) -> bool: ...

    def append(self, lines: list[dict[str, Any]]) -> None: ...

    def compact(self, lines: list[dict[str, Any]]) -> None: ...


class JournalBuffer:
    """The facts of one agent: `kept` are in the journal, `unkept` are not yet."""

    def __init__(
        self,
        journal: JournalWriter,
        kept: Iterable[Fact],
        *,
        log: Log,
        compact_from: int = COMPACT_FROM_FACTS,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.kept = list(kept)
        self.unkept: list[Fact] = []
        self._journal = journal
        self._log = log
        self._full = False
        self._compact_least = self._compact_from = compact_from
        self._large_from = 1
        self._now_s = now_s
        self._not_until_s: float | None = None

    def add(self, new: Iterable[Fact]) -> bool:
        """Keep these too; False if the journal cannot be written now."""
        self.unkept.extend(new)
        return self.write()

    def write(self) -> bool:
        """Keep what is not kept yet; False if the journal cannot be written now."""
        for batch in list(_batches(self.unkept)):
            try:
                self._journal.append([fact.to_json() for fact in batch])
            except JournalError as why:
                self._full = isinstance(why, JournalFull)
                self._log.once("journal", "the journal cannot be written; approval waits", why=why)
                self._forget()
                return False
            self.kept += batch
            del self.unkept[: len(batch)]
            self._full = False
            self._log.over("journal", "the journal is written again")
        return True

    def compact(self) -> bool:
        """Begin a new journal with what is not over yet, if the old one is long or full.

        True if that was done: then `kept` is less than it was.
        """
        few = self._large_from if self._full or self._journal.large else self._compact_from
        failed = self._not_until_s is not None and self._now_s() < self._not_until_s
        if len(self.kept) < few or failed:
            return False
        left = list(_needed(self.kept, unfinished(fold_all(self.kept))))
        try:
            self._journal.compact([fact.to_json() for fact in left])
        except JournalError as why:
            self._not_until_s = self._now_s() + COMPACT_AGAIN_S
            self._log.once("compact", "the journal was not made shorter", why=why)
            return False
        self._log.info("the journal begins anew", facts=len(left), before=len(self.kept))
        self._log.over("compact", "the journal is made shorter again")
        self.kept = left
        self._compact_from = max(self._compact_least, 2 * len(left))
        self._large_from = 1 + len(left) + len(left) // 2
        self._not_until_s = None
        return True

    def _forget(self) -> None:
        """Let go of sightings that came and were closed while nothing could be kept.

        Nothing follows from them any more, and a disk may stay full for days.
        """
        if len(self.unkept) < UNKEPT_MAX:
            return
        tracked_events = fold_all(self.unkept)
        # What was handed over is the business of a tracked event that may be kept already.
        over = {
            i
            for i, tracked in tracked_events.items()
            if tracked.closed and not tracked.handed_over_to
        }
        left = [fact for fact in self.unkept if fact.tracked not in over]
        if len(left) < len(self.unkept):
            self._log.warning(
                "the journal never had these facts", facts=len(self.unkept) - len(left)
            )
            self.unkept = left


def _needed(kept: list[Fact], wanted: set[str]) -> Iterator[Fact]:
    """The facts of these tracked events, without those that a later one has replaced."""
    last: dict[tuple[str, FactKind], int] = {}
    for number, fact in enumerate(kept):
        last[fact.tracked, fact.kind] = number
    for number, fact in enumerate(kept):
        by = _REPLACED_BY.get(fact.kind, ())
        replaced = any(last.get((fact.tracked, kind), -1) > number for kind in by)
        if fact.tracked in wanted and not replaced:
            yield fact


def _batches(facts: list[Fact]) -> Iterator[list[Fact]]:
    """The facts in order, so many together as fit on a line."""
    batch: list[Fact] = []
    length = 0
    for fact in facts:
        chars = len(json.dumps(fact.to_json())) if len(facts) > 1 else 0
        if batch and length + chars > LINE_CHARS_MAX:
            yield batch
            batch, length = [], 0
        batch.append(fact)
        length += chars
    if batch:
        yield batch
