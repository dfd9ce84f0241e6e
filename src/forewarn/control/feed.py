"""The feed: the journal as CloudEvents, for readers who follow it. Belongs to the event loop.

The journal is the outbox: there is no second table, and how far a reader has come is the number of
a line, which the reader keeps. The newest lines are in memory, each encoded once, when the first
reader needs it; older ones are read from the store, slice by slice, on another thread. A ring wakes
readers, at most every `PACE_S`, so that many of them share one look.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count

from msgspec import Struct

from forewarn.control.control import Control
from forewarn.core import owner_explain
from forewarn.core.access import Access
from forewarn.core.errors import JournalRestored, LinesPruned, Unavailable
from forewarn.core.model import Fact, FactKind
from forewarn.metrics import Family, counter, gauge
from forewarn.ports import EVERYTHING, Change, JournalExtent, JournalLine, ListFilter, Store
from forewarn.wire.cloud_events import FeedPosition, cloud_event, encoded

LINES_KEPT_MAX = 16_384  # in memory, at least half of them; a stream that falls behind it is cut
JSON_KEPT_BYTES_MAX = 32 * 1_024 * 1_024  # of them, as far as readers have needed it
SLICE_LINES_MAX = 500  # of the store, in one look
STEP_LINES_MAX = 100  # of memory, before the event loop has its turn: each may have to be encoded
STEP_LOOKED_AT_MAX = 2_000  # of them, those too that are not for the reader
SLICE_BYTES_MAX = 256 * 1_024  # of one chunk of a stream
LOOKS_MAX = 20  # for one page; a reader who sees few of many lines asks again
PACE_S = 0.05  # between two rings, so that readers take several lines at once
# Of the connections that operators may have: others must get through beside them.
FEED_READERS_MAX = 224
WOKEN_AT_ONCE = 8  # readers; then guests have their turn
CHUNKS_KEPT_MAX = 16
HEARTBEAT_S = 15.0  # of a stream without lines; proxies cut what is silent for a minute


class FeedFilter(Struct, frozen=True):
    """Which lines a reader is sent: those that it may see, and has asked for.

    `own` are the scopes of an owner, None for who sees everything. Empty sets ask for all.
    """

    own: frozenset[str] | None = None
    scopes: frozenset[str] = frozenset()
    kinds: frozenset[FactKind] = frozenset()

    def shows(self, fact: Fact) -> bool:
        """Whether a line is sent. Lines that name no scope are for who sees everything."""
        if self.own is not None and fact.scope not in self.own:
            return False
        if self.scopes and fact.scope not in self.scopes:
            return False
        return not self.kinds or fact.kind in self.kinds

    def told(self, fact: Fact) -> Fact:
        """What the reader is told of a line."""
        return fact if self.own is None else owner_explain.fact(fact, self.own)

    def in_store(self) -> ListFilter | None:
        """The same for the store, if it can look for it; None if its lines are filtered here."""
        scopes = self.scopes or self.own or frozenset()
        if len(scopes) > 1 or len(self.kinds) > 1:
            return None
        return ListFilter(scope=next(iter(scopes), None), kind=next(iter(self.kinds), None))


def filter_for(
    access: Access, *, scopes: Sequence[str] = (), kinds: Sequence[FactKind] = ()
) -> FeedFilter:
    """What a reader with this access is sent, of what it asks for."""
    own = None if access.all_scopes else frozenset(access.scopes)
    return FeedFilter(own, frozenset(scopes), frozenset(kinds))


class FeedLine:
    """A line in memory, and its JSON once a reader has needed it."""

    __slots__ = ("fact", "json", "number")

    def __init__(self, line: JournalLine) -> None:
        self.number = line.number
        self.fact = line.fact
        self.json = b""


class FeedSlice(Struct, frozen=True):
    """Some lines as JSON, with the number of each; `end` is how far they reach.

    What lies between is not for this reader. `more`: there are lines after `end` already.
    """

    lines: tuple[tuple[int, bytes], ...]
    end: int
    more: bool


class FeedChunk(Struct, frozen=True):
    """Some lines as one piece of a stream; empty if none of them is for its readers."""

    content: bytes
    end: int


class Feed:
    """The newest lines, and who reads them. Streams say every `heartbeat_s` that they are there."""

    def __init__(
        self,
        control: Control,
        *,
        lines_kept: int = LINES_KEPT_MAX,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        self.heartbeat_s = heartbeat_s
        self._read = control.read
        self._fleet = control.fleet
        self._lines_kept = lines_kept
        self._lines: list[FeedLine] = []  # without gaps
        self._before = self._fleet.journal.end  # the number before the first of them
        self._json_bytes = 0
        self._rings = _rings()
        self._seats: set[int] = set()  # of readers; so many in a row share a ring
        self._rung_s = 0.0
        self._ringing: asyncio.TimerHandle | None = None
        self._chunks: dict[tuple[int, FeedFilter], FeedChunk] = {}
        self.closed = False
        self.encodings = 0  # of lines, since the start
        self.cut = 0  # streams that fell too far behind
        self._fleet.on_publish(self._published)

    @property
    def journal(self) -> JournalExtent:
        """Which lines there are."""
        return self._fleet.journal

    def close(self) -> None:
        """No reader waits any more: the service is stopping."""
        self.closed = True
        if self._ringing is not None:
            self._ringing.cancel()
        self._ring_now()

    def refuse_crowd(self) -> None:
        """Raises Unavailable while there are as many readers as there may be."""
        if self.readers >= FEED_READERS_MAX:
            raise Unavailable(f"The feed has {FEED_READERS_MAX} readers, the most there may be.")

    @property
    def readers(self) -> int:
        """How many wait or stream now."""
        return len(self._seats)

    @contextmanager
    def counting(self) -> Iterator[int]:
        """Count a reader for the length of the block: its seat, for `next_ring`."""
        seat = next(number for number in count() if number not in self._seats)
        self._seats.add(seat)
        try:
            yield seat
        finally:
            self._seats.discard(seat)

    def collect(self) -> Iterator[Family]:
        """Its numbers, for /metrics."""
        yield gauge(
            "forewarn_feed_readers", "Readers that wait for the feed or stream it.", self.readers
        )
        text = "Lines that were encoded for readers of the feed: each once while it is in memory."
        yield counter("forewarn_feed_encodings", text, self.encodings)
        text = "Streams of the feed that were cut because their reader was too slow."
        yield counter("forewarn_feed_cut", text, self.cut)

    # Where a reader begins.

    def begin(self, asked: FeedPosition | None) -> int:
        """The number after which a reader goes on, without missing a line.

        Without a position it begins with the oldest line from which on none is missing. Raises
        JournalRestored for a position that a restore has undone, and LinesPruned.
        """
        journal = self.journal
        if asked is None:
            return journal.pruned_through
        if asked.generation is not None:
            self._refuse_undone(asked.number, asked.generation)
        if asked.number < journal.pruned_through:
            oldest, begin = journal.pruned_through + 1, self.position(journal.pruned_through)
            raise LinesPruned(
                f"Lines after {asked} were pruned; from {oldest} on all are there.",
                f"Begin with after={begin}; the lines in between are missing.",
                begin=str(begin),
                oldest=oldest,
            )
        return asked.number

    def _refuse_undone(self, number: int, generation: int) -> None:
        """Raises JournalRestored unless that line, or the place before its generation, is there."""
        generations = self.journal.generations
        firsts = [one.first_number for one in generations if one.generation == generation]
        later = [one.first_number for one in generations if one.generation > generation]
        before = later[0] - 1 if later else None  # what the next generation has begun after
        if firsts and firsts[0] - 1 <= number and (before is None or number <= before):
            return
        begin = self.position(generations[-1].first_number - 1 if before is None else before)
        raise JournalRestored(
            f"A backup was restored, and the line {generation}-{number} is not in it.",
            f"Begin with after={begin}: the line that follows says what was restored.",
            begin=str(begin),
            oldest=self.journal.pruned_through + 1,
        )

    def position(self, number: int) -> FeedPosition:
        """The place of a line, or of the beginning, as readers name it."""
        return FeedPosition(number, self.journal.generation_of(number))

    # Reading.

    def next_ring(self, seat: int = 0) -> asyncio.Event:
        """Set by the next ring. Take it before you look, so that no ring falls in between."""
        return self._rings[seat // WOKEN_AT_ONCE % len(self._rings)]

    async def after(
        self, number: int, where: FeedFilter, *, lines: int, size: int = SLICE_BYTES_MAX
    ) -> FeedSlice:
        """The next lines: at most so many, and so many bytes and one line more.

        It may end before, with `more`. Raises StoreFailed.
        """
        found: list[tuple[int, bytes]] = []
        looks, room, more = 0, size, True
        while more and looks < LOOKS_MAX and len(found) < lines and room > 0:
            if looks:
                await asyncio.sleep(0)
            left = lines - len(found)
            part = self._newest(number, where, lines=left, size=room)
            if part is None:
                part = await self._older(number, where, lines=left, size=room)
            found += part.lines
            room -= sum(len(json) for _, json in part.lines)
            number, more, looks = part.end, part.more, looks + 1
        return FeedSlice(tuple(found), number, more)

    def _newest(self, number: int, where: FeedFilter, *, lines: int, size: int) -> FeedSlice | None:
        """Some of them if they are in memory; None if it takes the store to know them."""
        if number < self._before:
            return None
        found: list[tuple[int, bytes]] = []
        room, begin = size, number - self._before
        at, last = begin, min(begin + STEP_LOOKED_AT_MAX, len(self._lines))
        while at < last and len(found) < min(lines, STEP_LINES_MAX) and room > 0:
            line = self._lines[at]
            at += 1
            if where.shows(line.fact):
                json = self._json(line, where)
                found.append((line.number, json))
                room -= len(json)
        return FeedSlice(tuple(found), number + at - begin, more=at < len(self._lines))

    async def _older(self, number: int, where: FeedFilter, *, lines: int, size: int) -> FeedSlice:
        journal, listed = self.journal, where.in_store()
        limit = SLICE_LINES_MAX if listed is None else min(lines, SLICE_LINES_MAX)

        def look(store: Store) -> FeedSlice:
            read = store.journal(listed or EVERYTHING, after=number, limit=limit)
            return _sliced(read, where, journal, lines=lines, size=size, whole=len(read) < limit)

        found = await self._read(look)
        self.encodings += len(found.lines)
        return found

    def chunk(
        self, number: int, where: FeedFilter, join: Callable[[FeedSlice], bytes]
    ) -> FeedChunk | None:
        """The next lines as one piece; None if they are not in memory.

        Readers that have come equally far and are sent the same share it. All of them `join` alike.
        """
        known = self._chunks.get((number, where))
        if known is not None:
            return known
        found = self._newest(number, where, lines=STEP_LINES_MAX, size=SLICE_BYTES_MAX)
        if found is None:
            return None
        if len(self._chunks) >= CHUNKS_KEPT_MAX:
            self._chunks.clear()
        made = FeedChunk(join(found), found.end)
        self._chunks[number, where] = made
        return made

    def _json(self, line: FeedLine, where: FeedFilter) -> bytes:
        told = where.told(line.fact)
        if told is not line.fact:  # few lines are told to owners in other words: they are not kept
            self.encodings += 1
            return _encoded(line.number, told, self.journal)
        if line.json:
            return line.json
        self.encodings += 1
        json = _encoded(line.number, line.fact, self.journal)
        if self._json_bytes + len(json) <= JSON_KEPT_BYTES_MAX:
            line.json = json
            self._json_bytes += len(json)
        return json

    # Being told.

    def _published(self, changes: Sequence[Change]) -> None:
        lines = [FeedLine(line) for change in changes for line in change.lines]
        if not lines:
            return
        self._lines += lines
        if len(self._lines) > self._lines_kept or self._json_bytes > JSON_KEPT_BYTES_MAX // 2:
            self._forget(len(self._lines) - self._lines_kept // 2)
        self._chunks.clear()
        self._ring_soon()

    def _forget(self, least: int) -> None:
        """Leave the oldest to the store, at least half of what is there."""
        gone = max(least, len(self._lines) // 2)
        self._json_bytes -= sum(len(line.json) for line in self._lines[:gone])
        del self._lines[:gone]
        self._before += gone

    def _ring_soon(self) -> None:
        """At once after a quiet time, else when the pace allows it."""
        if self._ringing is not None or self.closed:
            return
        loop = asyncio.get_running_loop()
        wait_s = self._rung_s + PACE_S - loop.time()
        if wait_s <= 0:
            self._ring_now()
        else:
            self._ringing = loop.call_later(wait_s, self._ring_now)

    def _ring_now(self) -> None:
        self._ringing = None
        self._rung_s = asyncio.get_running_loop().time()
        rung, self._rings = self._rings, _rings()
        self._ring_row(rung, 0)

    def _ring_row(self, rung: Sequence[asyncio.Event], row: int) -> None:
        """Wake some readers, and the next ones after guests have had their turn."""
        rung[row].set()
        if row + 1 < len(rung) and max(self._seats, default=0) >= (row + 1) * WOKEN_AT_ONCE:
            asyncio.get_running_loop().call_soon(self._ring_row, rung, row + 1)


def _rings() -> list[asyncio.Event]:
    return [asyncio.Event() for _ in range(-(-FEED_READERS_MAX // WOKEN_AT_ONCE))]


def _encoded(number: int, fact: Fact, journal: JournalExtent) -> bytes:
    return encoded(
        cloud_event(
            fact,
            number,
            generation=journal.generation_of(number),
            installation=journal.installation,
        )
    )


def _sliced(
    read: Sequence[JournalLine],
    where: FeedFilter,
    journal: JournalExtent,
    *,
    lines: int,
    size: int,
    whole: bool,
) -> FeedSlice:
    """What of the lines that were read is sent. `whole`: the store has no others."""
    found: list[tuple[int, bytes]] = []
    room = size
    for line in read:
        if len(found) == lines or room <= 0:
            return FeedSlice(tuple(found), found[-1][0], more=True)
        if where.shows(line.fact):
            json = _encoded(line.number, where.told(line.fact), journal)
            found.append((line.number, json))
            room -= len(json)
    last = read[-1].number if read else journal.end
    # The store may have lines that were committed since; what was published before, it has.
    return FeedSlice(tuple(found), max(last, journal.end) if whole else last, more=not whole)
