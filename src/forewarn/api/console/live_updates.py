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
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence

import msgspec
from msgspec import Struct

from forewarn.api.console.blocks import Block, ChangedNames, View
from forewarn.api.console.page_context import Desk
from forewarn.api.console.view_models.grid import Grid
from forewarn.control.slices import Walk, in_slices
from forewarn.core.access import Access
from forewarn.core.errors import Refusal
from forewarn.core.model import SECOND_MS
from forewarn.doorbell import rung
from forewarn.logs import Log
from forewarn.metrics import Family, counter, gauge
from forewarn.ports import Change

DRAW_EVERY_S = 0.1  # at most; what changes in between is drawn together
LOOK_EVERY_S = 1.0  # for what changes without a commit
HOSTS_LOOKED_AT = 1_000  # of a large fleet, with each look: what fell silent is found in turn
BEAT_EVERY_S = 15.0  # a stream without news says that it is there
STREAMS_MAX = 96  # in all; other tabs ask now and then
FEEDS_MAX = 100  # those without streams, the oldest first, are forgotten
MOVES_KEPT = 200  # of cells of a grid; who was away for longer gets it whole
PAGE_WAITS_FOR_S = 1.0  # blocks that are made more often than that are made for each page
QUICK_S = 0.01  # a block that takes longer is made less often,
RESTS = 10  # so that it rests for so many times as long as it takes
WOKEN_AT_ONCE = 8  # streams; then guests have their turn
TEXT_AGE_MS_MAX = 1_000  # of a block that tells the time, on a new page

log = Log(__name__)

GRID = "grid"
Cells = tuple[tuple[int, str], ...]


class DrawnBlock(Struct):
    """A block as it was made last: its value, and its text once that was asked for.

    `since` is the revision in which it changed, `whole_since` that in which more of it did than
    cells. `stale`: a commit has touched it since it was made, which took `took_s`.
    """

    value: object
    made_s: float
    made_ms: int
    took_s: float = 0.0
    text: str | None = None
    text_ms: int = 0
    since: int = 0
    whole_since: int = 0
    stale: bool = False

    def made(self, now_s: float, now_ms: int, took_s: float) -> None:
        """It was made anew."""
        self.made_s, self.made_ms, self.took_s, self.stale = now_s, now_ms, took_s, False


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
        self.tabs: set[asyncio.Event] = set()  # each rung when there is something for it
        self.news = asyncio.Event()  # there may be something to draw
        self.touched = False  # by a commit, since it was made
        self.revision = 0
        self.rung_for = 0  # the revision that tabs were told to look at
        self.before = 0  # the revision before
        self.message = b""  # from there to here
        self.used_s = 0.0
        self.refused: Refusal | None = None
        self.lock = asyncio.Lock()
        self.drawing: asyncio.Task[None] | None = None
        self._moved: deque[_Move] = deque()
        self._moved_from = 0  # all moves of cells since that revision are known

    def touch(self) -> None:
        """Have its blocks made anew: commits may have changed them."""
        self.touched = True
        self.news.set()

    def take_touch(self) -> None:
        """What is drawn is stale if it was touched."""
        if self.touched:
            self.touched = False
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
        self._feeds: dict[tuple[str, Seen], PageStream] = {}
        self._life = secrets.token_hex(4)
        self._revision = 0
        self._swept_s = float("-inf")
        self._beat_every_s = beat_every_s
        self.drawings = 0  # how often a block was drawn
        self.made = 0  # how often the value of a block was
        desk.control.fleet.on_publish(self._committed)
        desk.on_news(self._more_is_known)
        desk.doorbell.on_close(self._close)

    def _committed(self, changes: Sequence[Change]) -> None:
        others = [feed for feed in self._feeds.values() if not feed.touched]
        if not others:
            return
        names = ChangedNames()
        names.add(changes)
        for feed in others:
            if feed.view.touched(names):
                feed.touch()

    def _more_is_known(self, block: str) -> None:
        for feed in self._feeds.values():
            if block in feed.drawn:
                feed.drawn[block].made_s = float("-inf")
                feed.touch()

    def _close(self) -> None:
        for feed in self._feeds.values():
            feed.news.set()
            for tab in feed.tabs:
                tab.set()

    @property
    def streams(self) -> int:
        """How many tabs are kept up to date now."""
        return sum(len(feed.tabs) for feed in self._feeds.values())

    def collect(self) -> Iterator[Family]:
        """Its numbers, for /metrics."""
        text = "Pages of the console that are kept up to date now."
        yield gauge("forewarn_console_streams", text, self.streams)
        text = "Blocks of pages that were drawn: each once for all who may see the same."
        yield counter("forewarn_console_drawings", text, self.drawings)

    @property
    def position(self) -> Position:
        return Position(self._desk.control.fleet.journal.end, self._revision, self._life)

    # Pages.

    async def show(self, view: View, access: Access, *, fresh: bool = True) -> PageStream:
        """The blocks of a page as they are now. Raises what refuses to show them.

        Not `fresh`: as one who follows the page is told of them, which may be a moment later.
        """
        feed = self._feed(view, access)
        await in_slices(self._sweep())
        async with feed.lock:
            await self._make(feed, fresh=fresh)
        await _wake(feed)
        if feed.refused is not None:
            raise feed.refused
        return feed

    def texts(self, feed: PageStream) -> dict[str, str]:
        """The blocks as a page shows them."""
        now_ms = self._desk.now_ms()
        for name, drawn in feed.drawn.items():
            old = abs(now_ms - drawn.text_ms) > TEXT_AGE_MS_MAX
            if old and feed.view.blocks[name].tells_time:
                drawn.text = None
        return {name: self._text(feed, name) for name in feed.drawn}

    def _sweep(self) -> Walk[None]:
        """Find hosts that fell silent: each is looked at once in LOOK_EVERY_S, some at a time."""
        loop, summary = asyncio.get_running_loop(), self._desk.summary
        part_s = LOOK_EVERY_S / max(1.0, len(summary.host_names) / HOSTS_LOOKED_AT)
        while loop.time() >= self._swept_s + part_s:
            self._swept_s = max(self._swept_s, loop.time() - LOOK_EVERY_S) + part_s
            if summary.look_again(HOSTS_LOOKED_AT):
                for feed in self._feeds.values():
                    feed.touch()
            yield

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
            idle = [key for key, feed in self._feeds.items() if not feed.tabs]
            if not idle:
                return
            del self._feeds[min(idle, key=lambda key: self._feeds[key].used_s)]

    # Drawing.

    async def _make(self, feed: PageStream, *, fresh: bool) -> None:
        """Make the blocks whose time has come, and tell of those whose value has changed.

        What was made is told also when this is canceled: who has asked may be gone.
        """
        loop, desk = asyncio.get_running_loop(), self._desk
        feed.take_touch()
        feed.refused = None
        changed: list[str] = []
        cells: Cells = ()
        try:
            for name, block in feed.view.blocks.items():
                before, began_s = feed.drawn.get(name), loop.time()
                if before is not None and not self._is_due(block, before, fresh=fresh):
                    continue
                value = await block.make()
                now_s, now_ms = loop.time(), desk.now_ms()
                self.made += 1
                moved = None if before is None else _moved_cells(before.value, value)
                if before is None or (moved is None and before.value != value):
                    feed.drawn[name] = DrawnBlock(value, now_s, now_ms, now_s - began_s)
                    changed.append(name)
                else:
                    before.made(now_s, now_ms, now_s - began_s)
                    if moved:
                        before.value, before.text = value, None
                        cells += moved
                await asyncio.sleep(0)  # guests are answered between two blocks
        except Refusal as refusal:
            feed.refused = refusal
        finally:
            self._tell(feed, changed, cells)

    def _is_due(self, block: Block, drawn: DrawnBlock, *, fresh: bool) -> bool:
        """Whether a block is to be made again; `fresh` for a page that is being loaded.

        A page shows what was just ordered; only what takes long may be left as it is.
        """
        age_s = asyncio.get_running_loop().time() - drawn.made_s
        passed_s = abs(self._desk.now_ms() - drawn.made_ms) / SECOND_MS  # a clock may be turned
        if max(age_s, passed_s) >= block.at_rest_s:
            return True
        return drawn.stale and age_s >= _rests_s(block, drawn, fresh=fresh)

    def _tell(self, feed: PageStream, changed: Collection[str], cells: Cells) -> None:
        if not changed and not cells:
            return
        self._revision += 1
        feed.tell(self._revision, changed, cells)
        feed.message = self._message(feed, changed, cells) if feed.tabs else b""

    def _text(self, feed: PageStream, name: str) -> str:
        """A block as HTML: drawn when it is first asked for, and kept until it changes."""
        drawn = feed.drawn[name]
        if drawn.text is None:
            self.drawings += 1
            drawn.text_ms = self._desk.now_ms()
            drawn.text = self._desk.pages.render(
                feed.view.blocks[name].template,
                block=name,
                it=drawn.value,
                all_scopes=feed.all_scopes,
                now_ms=drawn.text_ms,
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

    def _since(self, feed: PageStream, known: int) -> bytes:
        """What has changed since a drawing; empty if nothing has."""
        blocks, cells = feed.since(known)
        return self._message(feed, blocks, cells) if blocks or cells else b""

    def _missed(self, feed: PageStream, position: Position) -> bytes:
        """What has changed since a position; of another life, everything."""
        return self._since(feed, position.drawing if position.life == self._life else -1)

    # Streams.

    async def stream(
        self, view: View, access: Access, after: Position, *, ended: Callable[[], bool]
    ) -> AsyncIterator[bytes]:
        """Messages for one tab, from a position on, until `ended`.

        While it waits to be read, nothing is kept for it: then it is sent what has changed since.
        """
        feed, tab = await self.show(view, access, fresh=False), asyncio.Event()
        feed.tabs.add(tab)
        try:
            self._go_on(feed)
            # What was told must be known before this waits to be sent.
            first, told = b"retry: 2000\n\n" + self._missed(feed, after), feed.revision
            yield first
            loop = asyncio.get_running_loop()
            said_s = loop.time()
            while not ended() and not self._desk.doorbell.closed:
                tab.clear()
                if feed.revision == told:
                    # Without a ring too: a session may end.
                    await rung(tab, min(LOOK_EVERY_S, self._beat_every_s))
                if feed.revision == told:
                    if loop.time() - said_s < self._beat_every_s:
                        continue
                    said_s = loop.time()
                    yield _sse("beat", msgspec.json.encode(self._time()), "")
                    continue
                in_order = feed.before == told and feed.message
                message = feed.message if in_order else self._since(feed, told)
                told, said_s = feed.revision, loop.time()
                yield message
            yield _sse("end", b"{}", "")
        finally:
            feed.tabs.discard(tab)

    async def once(self, view: View, access: Access, after: Position) -> bytes:
        """What has changed since a position, for a tab that asks now and then."""
        feed = await self.show(view, access, fresh=False)
        return self._missed(feed, after) or _sse(
            "beat", msgspec.json.encode(self._time()), str(self.position)
        )

    def _go_on(self, feed: PageStream) -> None:
        if feed.drawing is None or feed.drawing.done():
            feed.drawing = asyncio.create_task(self._keep_drawn(feed))

    async def _keep_drawn(self, feed: PageStream) -> None:
        """Draw while there is a stream. Each view for itself: one that waits for the store holds
        up no other.
        """
        loop = asyncio.get_running_loop()
        while feed.tabs and not self._desk.doorbell.closed:
            feed.news.clear()
            began_s = loop.time()
            try:
                await in_slices(self._sweep())
                async with feed.lock:
                    await self._make(feed, fresh=False)
                await _wake(feed)
            except Exception:
                self._desk.measures.error()
                log.exception("console_not_drawn")
                await asyncio.sleep(LOOK_EVERY_S)
            await asyncio.sleep(max(0.0, began_s + DRAW_EVERY_S - loop.time()))
            if not feed.touched:
                await rung(feed.news, self._next_look_s(feed))

    def _next_look_s(self, feed: PageStream) -> float:
        """How long there is nothing to draw without news."""
        now_s, blocks = asyncio.get_running_loop().time(), feed.view.blocks
        due_s = (
            drawn.made_s + _rests_s(blocks[name], drawn, fresh=False) - now_s
            for name, drawn in feed.drawn.items()
            if drawn.stale
        )
        return max(0.0, min((LOOK_EVERY_S, *due_s)))


async def _wake(feed: PageStream) -> None:
    """Ring for its tabs, some at a time, if there is something new for them."""
    if feed.rung_for == feed.revision:
        return
    feed.rung_for = feed.revision
    for number, tab in enumerate(list(feed.tabs), 1):
        tab.set()
        if not number % WOKEN_AT_ONCE:
            await asyncio.sleep(0)


def _rests_s(block: Block, drawn: DrawnBlock, *, fresh: bool) -> float:
    """How long a block is left as it is, though commits have touched it."""
    slow_s = drawn.took_s * RESTS if drawn.took_s > QUICK_S else 0.0
    often = fresh and block.every_s <= PAGE_WAITS_FOR_S
    return slow_s if often else max(block.every_s, slow_s)


Seen = tuple[str, tuple[str, ...]]


def seen_by(access: Access) -> Seen:
    """What two people share who are shown the same."""
    return access.role.value, access.scopes


def _moved_cells(before: object, after: object) -> Cells | None:
    """The cells of a grid that changed; None for anything else, and if hosts came or left."""
    if not isinstance(before, Grid) or not isinstance(after, Grid) or before.shape != after.shape:
        return None
    return tuple(
        (place, new)
        for old_group, group in zip(before.groups, after.groups, strict=True)
        if old_group.codes != group.codes
        for place, (old, new) in enumerate(
            zip(old_group.codes, group.codes, strict=True), group.first
        )
        if old != new
    )


def _sse(event: str, data: bytes, position: str) -> bytes:
    head = f"id: {position}\n" if position else ""
    return f"{head}event: {event}\ndata: ".encode() + data + b"\n\n"
