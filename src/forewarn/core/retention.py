"""For how long what has ended is kept: what may go, and the line that says what went.

Nothing that is open ever goes, nor what was said of it: an approval that was answered is kept until
its event has ended and for the time of the setting after that.
"""

from __future__ import annotations

from msgspec import Struct

from forewarn.core.facts import PrunedDetail, by_whom
from forewarn.core.model import DAY_MS, Fact, FactKind
from forewarn.core.principal import Who

RETENTION_DAYS = 400  # more than a year, so that a year can be compared with the one before
SLICE_LINES_MAX = 500  # of the journal, in one commit: others wait no longer than that takes
SLICE_EVENTS_MAX = 100  # events and operations, each with its receipts and actions


class Prunable(Struct, frozen=True, kw_only=True):
    """What a slice takes away: lines by number, events and operations by id.

    `receipts` says how many first reads go with the events.
    """

    lines: tuple[int, ...] = ()
    events: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    receipts: int = 0

    def __bool__(self) -> bool:
        return bool(self.lines or self.events or self.operations)


def prune_before_ms(now_ms: int, retention_days: int) -> int | None:
    """What ended before this may go; None if everything is kept."""
    return now_ms - retention_days * DAY_MS if retention_days > 0 else None


def pruned_fact(pruned: Prunable, *, before_ms: int, now_ms: int, by: Who) -> Fact:
    """The line that says what went. Written in the same commit, at the end of the journal."""
    detail = PrunedDetail(
        before_ms=before_ms,
        lines=len(pruned.lines),
        events=len(pruned.events),
        operations=len(pruned.operations),
        receipts=pruned.receipts,
        last_line=max(pruned.lines, default=None),
    )
    return by_whom(Fact(kind=FactKind.PRUNED, at_ms=now_ms, detail=detail), by)
