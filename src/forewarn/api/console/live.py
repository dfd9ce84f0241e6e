"""Pages that stay true while they are open: what has changed is drawn once, for all who look.

A feed belongs to one view and to all who may see the same of it. It keeps the last value of each
block; when a value has changed, the block is drawn once, and every stream sends the same bytes. A
stream that was away is sent the blocks that have changed since: it never has to be told each step,
so nothing waits in memory for a reader that is slow.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence

import msgspec
from msgspec import Struct

from forewarn.api.console.blocks import Block, ChangedNames, View
from forewarn.api.console.desk import Desk
from forewarn.api.console.view_models.grid import Grid
from forewarn.core.access import Access
from forewarn.core.errors import Refusal
from forewarn.doorbell import rung
from forewarn.logs import Log
from forewarn.ports import Change

DRAW_EVERY_S = 0.1  # at most; what changes in between is drawn together
LOOK_EVERY_S = 1.0  # for what changes without a commit
HOSTS_LOOKED_AT = 1_000  # of a large fleet, with each look: what fell silent is found in turn
BEAT_EVERY_S = 15.0  # a stream without news says that it is there
FEEDS_MAX = 100  # those without streams, the oldest first, are forgotten
MOVES_KEPT = 200  # of cells of a grid; who was away for longer gets it whole
PAGE_WAITS_FOR_S = 1.0  # blocks that are made more often than that are made for each page

log = Log(__name__)

GRID = "grid"
Cells = tuple[tuple[int, str], ...]


class DrawnBlock(Struct):
    """A block as it was made last: its value, and its text once that was asked for.

    `since` is the revision in which it changed, `whole_since` that in which more of it did than
    cells. `stale`: a commit has touched it since.
    """

    value: object
    made_s: float
    text: str | None = None
    since: int = 0
    whole_since: int = 0
    stale: bool = False


class _Move(Struct, frozen=True):
    revision: int
    cells: Cells


class Position(Struct, frozen=True):
    """How far a page is: the newest line of the journal that it shows, and what was drawn by then.

    It is the id of a message, `LINE-DRAWING-LIFE`; drawings are counted in one life of a service.
    """

    line: int = 0
    drawing: int = 0
    life: str = ""

    def __str__(self) -> str:
        return f"{self.line}-{self.drawing}-{self.life}"


def read_position(text: str) -> Position:
    """A position as a page says it; the beginning for any other text."""
    line, _, rest = text.partition("-")
    drawing, _, life = rest.partition("-")
    numbers = [part for part in (line, drawing) if part.isascii() and part.isdecimal()]
    if len(numbers) != 2 or max(map(len, numbers)) > 18:
        return Position()
    return Position(int(line), int(drawing), life)


class PageStream:
    """The blocks of one view for all who may see the same of it."""

    def __init__(self, view: View, access: Access) -> None:
        self.view = view
        self.all_scopes = access.all_scopes
        self.drawn: dict[str, DrawnBlock] = {}
        self.streams = 0
        self.changed = asyncio.Event()
        self.revision = 0
        self.before = 0  # the revision before
        self.message = b""  # from there to here
        self.used_s = 0.0
        self.refused: Refusal | None = None
        self.lock = asyncio.Lock()
        self._moved: deque[_Move] = deque()
        self._moved_from = 0  # all moves of cells since that revision are known

    def touch(self, touched: ChangedNames) -> None:
        """Have its blocks made anew if commits may have changed them."""
        if touched and self.view.touched(touched):
            for drawn in self.drawn.values():
                drawn.stale = True

    def tell(self, revision: int, changed: Collection[str], cells: Cells) -> None:
        """These blocks have changed whole, and of the grid these cells."""
        self.before, self.revision = self.revision, revision
        for name in changed:
            self.drawn[name].since = self.drawn[name].whole_since = revision
        if GRID in changed:
            self._moved.clear()
            self._moved_from = revision
        if cells:
            self.drawn[GRID].since = revision
            self._moved.append(_Move(revision, cells))
            if len(self._moved) > MOVES_KEPT:
                self._moved_from = self._moved.popleft().revision

    def since(self, known: int) -> tuple[list[str], Cells]:
        """Blocks that have changed since a revision, and cells that were moved since."""
        blocks = [name for name, drawn in self.drawn.items() if drawn.since > known]
        grid = self.drawn.get(GRID)
        if grid is None or GRID not in blocks:
            return blocks, ()
        if grid.whole_since > known or known < self._moved_from:
            return blocks, ()
        cells: dict[int, str] = {}
        for moved in self._moved:
            cells |= dict(moved.cells) if moved.revision > known else {}
        blocks.remove(GRID)
        return blocks, tuple(cells.items())


class Hub:
    """Draws for all streams and pages. Belongs to the event loop."""

    def __init__(self, desk: Desk, *, beat_every_s: float = BEAT_EVERY_S) -> None:
        self._desk = desk
        self._feeds: dict[tuple[str, str], PageStream] = {}
        self._life = secrets.token_hex(4)
        self._revision = 0
        self._line = 0
        self._touched = ChangedNames()
        self._drawing: asyncio.Task[None] | None = None
        self._hosts_seen_s = float("-inf")
        self._beat_every_s = beat_every_s
        self.drawings = 0  # how often a block was drawn
        desk.control.fleet.on_publish(self._committed)

    def _committed(self, changes: Sequence[Change]) -> None:
        self._touched.add(changes)

    @property
    def position(self) -> Position:
        return Position(self._line, self._revision, self._life)

    # Pages.

    async def show(self, view: View, access: Access) -> PageStream:
        """The blocks of a page as they are now. Raises what refuses to show them."""
        await self._look_at_journal()
        feed = self._feed(view, access)
        kept = bool(feed.streams) and self._drawing is not None
        if not kept:
            self._look_at_hosts()
        async with feed.lock:
            feed.touch(self._touched)
            await self._make(feed, least_s=PAGE_WAITS_FOR_S if kept else None)
        if feed.refused is not None:
            raise feed.refused
        return feed

    def texts(self, feed: PageStream) -> dict[str, str]:
        """The blocks as a page shows them."""
        return {name: self._text(feed, name) for name in feed.drawn}

    def _look_at_hosts(self) -> None:
        """Find hosts that fell silent, where no stream has them looked at."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._hosts_seen_s >= LOOK_EVERY_S:
            self._hosts_seen_s = now_s
            self._desk.summary.look_again(len(self._desk.summary.host_names))

    def _feed(self, view: View, access: Access) -> PageStream:
        key = (view.key, seen_by(access))
        feed = self._feeds.get(key)
        if feed is None:
            self._forget()
            feed = self._feeds[key] = PageStream(view, access)
        feed.used_s = asyncio.get_running_loop().time()
        return feed

    def _forget(self) -> None:
        while len(self._feeds) >= FEEDS_MAX:
            idle = [key for key, feed in self._feeds.items() if not feed.streams]
            if not idle:
                return
            del self._feeds[min(idle, key=lambda key: self._feeds[key].used_s)]

    # Drawing.

    async def _look_at_journal(self) -> None:
        self._line = await self._desk.control.read(lambda store: store.journal_end())

    async def _make(self, feed: PageStream, *, least_s: float | None) -> None:
        """Make the blocks whose time has come, and tell of those whose value has changed.

        Of a block that a commit has touched and that is made only every so often, `least_s` is for
        how long it may be left as it is; None has all blocks made.
        """
        changed: list[str] = []
        cells: Cells = ()
        for name, block in feed.view.blocks.items():
            before = feed.drawn.get(name)
            now_s = asyncio.get_running_loop().time()
            if before is not None and not _is_due(block, before, now_s, least_s):
                continue
            try:
                value = await block.make()
            except Refusal as refusal:
                feed.refused = refusal
                return
            feed.refused = None
            if before is not None and before.value == value:
                before.made_s, before.stale = now_s, False
                continue
            moved = None if before is None else _moved_cells(before.value, value)
            if before is not None and moved is not None:
                before.value, before.made_s, before.stale, before.text = value, now_s, False, None
                cells += moved
            else:
                feed.drawn[name] = DrawnBlock(value, now_s)
                changed.append(name)
            await asyncio.sleep(0)  # guests are answered between two blocks
        if changed or cells:
            self._revision += 1
            feed.tell(self._revision, changed, cells)
            if feed.streams:
                feed.message = self._message(feed, changed, cells)
            _wake(feed)

    def _text(self, feed: PageStream, name: str) -> str:
        """A block as HTML: drawn when it is first asked for, and kept until it changes."""
        drawn = feed.drawn[name]
        if drawn.text is None:
            self.drawings += 1
            drawn.text = self._desk.pages.render(
                feed.view.blocks[name].template,
                block=name,
                it=drawn.value,
                all_scopes=feed.all_scopes,
                now_ms=self._desk.now_ms(),
            )
        return drawn.text

    def _message(self, feed: PageStream, names: Iterable[str], cells: Cells) -> bytes:
        blocks = {name: self._text(feed, name) for name in names}
        content = {"blocks": blocks, "cells": cells, **self._time()}
        return _sse("patch", msgspec.json.encode(content), str(self.position))

    def _time(self) -> dict[str, int]:
        """What time it is, and how fast it runs."""
        speed = self._desk.more.speed
        return {"now": self._desk.now_ms(), "speed": 1 if speed is None else speed}

    def _since(self, feed: PageStream, position: Position) -> bytes:
        """What has changed since then; empty if nothing has."""
        ours = position.life == self._life
        blocks, cells = feed.since(position.drawing if ours else -1)
        return self._message(feed, blocks, cells) if blocks or cells else b""

    # Streams.

    async def stream(
        self, view: View, access: Access, after: Position, *, ended: Callable[[], bool]
    ) -> AsyncIterator[bytes]:
        """Messages for one tab, from a position on, until `ended`."""
        feed = await self.show(view, access)
        feed.streams += 1
        try:
            self._go_on()
            yield b"retry: 2000\n\n"
            missed = self._since(feed, after)
            if missed:
                yield missed
            told, loop = feed.revision, asyncio.get_running_loop()
            said_s = loop.time()
            while not ended() and not self._desk.doorbell.closed:
                ring = feed.changed
                if feed.revision != told:
                    late, in_order = Position(self._line, told, self._life), feed.before == told
                    told = feed.revision  # while this is sent, there may be another one
                    said_s = loop.time()
                    yield feed.message if in_order else self._since(feed, late)
                    continue
                await rung(ring, min(LOOK_EVERY_S, self._beat_every_s))  # a session may end
                if feed.revision == told and loop.time() - said_s >= self._beat_every_s:
                    said_s = loop.time()
                    yield _sse("beat", msgspec.json.encode(self._time()), "")
            yield _sse("end", b"{}", "")
        finally:
            feed.streams -= 1

    async def once(self, view: View, access: Access, after: Position) -> bytes:
        """What has changed since a position, for a tab that asks now and then."""
        feed = await self.show(view, access)
        return self._since(feed, after) or _sse(
            "beat", msgspec.json.encode(self._time()), str(self.position)
        )

    def _go_on(self) -> None:
        if self._drawing is None or self._drawing.done():
            self._drawing = asyncio.create_task(self._keep_drawn())

    async def _keep_drawn(self) -> None:
        """Draw while there is a stream."""
        loop = asyncio.get_running_loop()
        try:
            while any(feed.streams for feed in self._feeds.values()):
                ring = self._desk.doorbell.next_ring()
                began_s = loop.time()
                try:
                    await self._make_all()
                except Exception:
                    self._desk.measures.error()
                    log.exception("console_not_drawn")
                    await rung(ring, LOOK_EVERY_S)
                if self._desk.doorbell.closed:
                    return
                if not self._touched:
                    await rung(ring, LOOK_EVERY_S)
                await asyncio.sleep(max(0.0, began_s + DRAW_EVERY_S - loop.time()))
        finally:
            self._drawing = None
            for feed in self._feeds.values():
                _wake(feed)

    async def _make_all(self) -> None:
        touched, self._touched = self._touched, ChangedNames()
        self._desk.summary.look_again(HOSTS_LOOKED_AT)
        if touched.facts:
            await self._look_at_journal()
        for feed in list(self._feeds.values()):
            feed.touch(touched)
            if feed.streams:
                async with feed.lock:
                    await self._make(feed, least_s=0.0)


def _wake(feed: PageStream) -> None:
    told, feed.changed = feed.changed, asyncio.Event()
    told.set()


def seen_by(access: Access) -> str:
    """What two people share who are shown the same."""
    return f"{access.role.value}:{','.join(access.scopes)}"


def _is_due(block: Block, drawn: DrawnBlock, now_s: float, least_s: float | None) -> bool:
    if least_s is None:
        return True
    age_s = now_s - drawn.made_s
    # A page shows what was just ordered; only what takes long may be left as it is.
    least_s = block.every_s if block.every_s > least_s else 0.0
    return age_s >= block.at_rest_s or (drawn.stale and age_s >= least_s)


def _moved_cells(before: object, after: object) -> Cells | None:
    """The cells of a grid that changed; None for anything else, and if hosts came or left."""
    if not isinstance(before, Grid) or not isinstance(after, Grid) or before.shape != after.shape:
        return None
    pairs = enumerate(zip(before.codes, after.codes, strict=True))
    return tuple((place, new) for place, (old, new) in pairs if old != new)


def _sse(event: str, data: bytes, position: str) -> bytes:
    head = f"id: {position}\n" if position else ""
    return f"{head}event: {event}\ndata: ".encode() + data + b"\n\n"
