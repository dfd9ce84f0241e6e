"""What the Now page shows of the store, kept in memory: no page waits for the disk to be drawn.

The newest lines come with each commit. What has ended of late is read when something has ended,
beside the pages: one that would have to wait for long is drawn with what was known before.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from forewarn.api.console.journal_reading import newest_lines
from forewarn.api.console.view_models.timeline import EndedOrders, read_ended
from forewarn.control.control import Control
from forewarn.core.model import HOUR_MS, FactKind
from forewarn.logs import Log
from forewarn.ports import Change, JournalLine, ListFilter, StoreFailed

ENDED_READ_MAX = 40
ENDED_SHOWN_FOR_MS = 6 * HOUR_MS
WAIT_S = 0.25  # for what has just ended
_ENDS = frozenset(
    (
        FactKind.COMPLETED,
        FactKind.FAILED,
        FactKind.CANCELED,
        FactKind.POSTPONED,
        FactKind.AVOIDED,
        FactKind.DELETED,
        FactKind.RESTORED,
    )
)

log = Log(__name__)


class NewestLines:
    """The last lines of the journal. Belongs to the event loop; tell it of every commit."""

    def __init__(self, control: Control, count: int) -> None:
        self._control = control
        self._lines: deque[JournalLine] = deque(maxlen=count)
        self._read = False

    def committed(self, changes: Sequence[Change]) -> None:
        for change in changes:
            self._lines.extend(change.lines)

    async def newest(self) -> Sequence[JournalLine]:
        """In the order in which they were written. The first time it reads the store."""
        if not self._read:
            count = self._lines.maxlen or 0
            found = await self._control.read(lambda s: newest_lines(s, ListFilter(), count))
            known = {line.number: line for line in (*found, *self._lines)}
            self._lines.extend([known[number] for number in sorted(known)])
            self._read = True
        return tuple(self._lines)


class EndedOfLate:
    """The orders that have ended in the last hours.

    `told` is called when they are known after a page could not wait for them.
    """

    def __init__(self, control: Control, *, told: Callable[[], None]) -> None:
        self._control = control
        self._told = told
        self._known = EndedOrders(operations=(), events=())
        self._stale = True
        self._reading: asyncio.Task[None] | None = None
        self._owed = False  # a page was drawn without them
        self.reads = 0

    def committed(self, changes: Sequence[Change]) -> None:
        if not self._stale:
            self._stale = any(line.fact.kind in _ENDS for one in changes for line in one.lines)

    async def newest(self) -> EndedOrders:
        """Those of now, or of a moment ago if the store takes its time."""
        if self._stale and self._reading is None:
            self._reading = asyncio.create_task(self._read())
        if self._reading is not None:
            _, late = await asyncio.wait({self._reading}, timeout=WAIT_S)
            self._owed = self._owed or bool(late)
        return self._known

    async def _read(self) -> None:
        self._stale = False
        self.reads += 1
        where = ListFilter(since_ms=self._control.clock.now_ms() - ENDED_SHOWN_FOR_MS)
        try:
            self._known = await self._control.read(lambda s: read_ended(s, where, ENDED_READ_MAX))
        except StoreFailed as why:
            self._stale = True
            log.warning("ended_not_read", why=str(why))
            return
        finally:
            self._reading = None
        if self._owed:
            self._owed = False
            self._told()
