"""`GET /v1/feed`: the journal as CloudEvents, page by page, or as a stream of server-sent events.

What is in the feed is `control.feed`; here is how it is asked for and how it leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from forewarn.api.access import access_of, need_still
from forewarn.api.requests import FOLLOW_WAIT_S_MAX, Limit, Name, NoQuery, read_query
from forewarn.api.route_table import RouteSpec
from forewarn.control.feed import SLICE_LINES_MAX, Feed, FeedFilter, FeedSlice, filter_for
from forewarn.control.operator_overview import ITEMS_DEFAULT
from forewarn.core.access import Access, Right
from forewarn.core.errors import Invalid, NotFound, TokenEnded
from forewarn.core.model import FactKind
from forewarn.doorbell import rung
from forewarn.wire import cloud_events
from forewarn.wire.cloud_events import (
    BATCH_CONTENT_TYPE,
    FeedPage,
    FeedPosition,
    FeedSchemas,
    read_position,
)

STREAM_CONTENT_TYPE = "text/event-stream"
SCHEMA_CONTENT_TYPE = "application/schema+json"
LINES_CONTENT_TYPE = "application/x-ndjson"
NEXT_HEADER = "Forewarn-Next"
MORE_HEADER = "Forewarn-More"
FILTERED_HEADER = "Forewarn-Filtered"
NEWEST = "end"  # as a position: only what comes from now on

PAGE_BYTES_MAX = 1_024 * 1_024  # a page ends with the line that exceeds it
LIST_NAMES_MAX = 100  # of scopes or kinds that are asked for
LOOK_EVERY_S = 1.0  # a reader that missed a ring looks again by itself
RETRY_MS = 3_000  # after which a reader that was cut comes again

_FIRST_FRAME = f"retry: {RETRY_MS}\n\n".encode()
_FILTERED_FRAME = b": filtered: only lines of your scopes are here\n\n"
_ENDED_FRAME = b": your token has ended\n\n"
_CUT_FRAME = b": you read too slowly; come again with the id that you had last\n\n"
# No proxy may keep lines back.
_STREAM_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}

Names = Annotated[str, Meta(max_length=LIST_NAMES_MAX * 256)]


class FeedQuery(Struct, forbid_unknown_fields=True):
    """Lines after a place, oldest first: the id of a line, its number, or `end`.

    `scope` and `kind` are names divided by commas. With `wait`, if there is no line yet, the answer
    comes with the next one or after that many seconds.
    """

    after: Name = ""
    limit: Limit = ITEMS_DEFAULT
    wait: Annotated[int, Meta(ge=0, le=FOLLOW_WAIT_S_MAX)] = 0
    scope: Names = ""
    kind: Names = ""


class FeedRoutes:
    """The functions behind the routes of the feed."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    def table(self) -> list[RouteSpec]:
        """The routes, as `route_table` has the others."""
        return [
            RouteSpec(
                method="GET",
                path="/v1/feed",
                name="feed",
                summary="The journal as CloudEvents: a page, or a stream.",
                handler=self.feed,
                answer=FeedPage,
                query=FeedQuery,
                right=Right.VIEW,
                by_scope=True,
            ),
            RouteSpec(
                method="GET",
                path="/v1/feed/schemas",
                name="list-feed-schemas",
                summary="The names of the schemas of what the feed says.",
                handler=self.list_schemas,
                answer=FeedSchemas,
                right=Right.VIEW,
                by_scope=True,
            ),
            RouteSpec(
                method="GET",
                path="/v1/feed/schemas/{name}",
                name="show-feed-schema",
                summary="The JSON Schema of the `data` of one type.",
                handler=self.show_schema,
                answer=SCHEMA_CONTENT_TYPE,
                right=Right.VIEW,
                by_scope=True,
            ),
        ]

    async def feed(self, request: Request) -> Response:
        """Lines in the form that `Accept` asks for."""
        asked = read_query(request, FeedQuery)
        access = access_of(request)
        where = _filter(asked, access)
        form = _form(request.headers.get("accept", ""))
        if form is not None:
            begin = self._begin(asked.after)
            return await self._page(request, begin, asked, where, form)
        self._feed.refuse_crowd()
        # A browser that comes again has the first address and the newest id.
        begin = self._begin(request.headers.get("last-event-id", "") or asked.after)
        return _FeedStream(self._feed, begin, where, still=partial(need_still, request))

    def _begin(self, after: str) -> int:
        if after == NEWEST:
            return self._feed.journal.end
        return self._feed.begin(read_position(after) if after else None)

    async def _page(
        self, request: Request, number: int, asked: FeedQuery, where: FeedFilter, form: Form
    ) -> Response:
        if not asked.wait:
            found = await self._feed.after(number, where, lines=asked.limit, size=PAGE_BYTES_MAX)
        else:
            self._feed.refuse_crowd()
            with self._feed.counting() as seat:
                found = await self._wait(request, number, asked, where, seat)
        return form(found, self._feed.position(found.end), where)

    async def _wait(
        self, request: Request, number: int, asked: FeedQuery, where: FeedFilter, seat: int
    ) -> FeedSlice:
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + asked.wait
        while True:
            ring = self._feed.next_ring(seat)
            found = await self._feed.after(number, where, lines=asked.limit, size=PAGE_BYTES_MAX)
            need_still(request)
            left_s = give_up_s - loop.time()
            if found.lines or left_s <= 0 or self._feed.closed:
                return found
            number = found.end
            if not found.more:
                await rung(ring, min(left_s, LOOK_EVERY_S))

    async def list_schemas(self, request: Request) -> Response:
        read_query(request, NoQuery)
        names = FeedSchemas(tuple(cloud_events.schema_names()))
        return Response(msgspec.json.encode(names), media_type="application/json")

    async def show_schema(self, request: Request) -> Response:
        read_query(request, NoQuery)
        name = str(request.path_params["name"])
        found = cloud_events.schema(name)
        if found is None:
            raise NotFound(
                f"There is no schema {name[:64]}.", "GET /v1/feed/schemas lists their names."
            )
        return Response(found, media_type=SCHEMA_CONTENT_TYPE)


def _filter(asked: FeedQuery, access: Access) -> FeedFilter:
    """What a reader is sent. Raises Invalid, and Forbidden for scopes that it may not see."""
    scopes = _names(asked.scope, "scope")
    for scope in scopes:
        access.need(Right.VIEW, scope=scope, what=f"to read the feed of {scope}")
    kinds = []
    for word in _names(asked.kind, "kind"):
        try:
            kinds.append(FactKind(word))
        except ValueError:
            known = ", ".join(kind.value for kind in FactKind)
            raise Invalid(
                f"There is no kind of line {word[:64]!r}.", f"Accepted as `kind`: {known}."
            ) from None
    return filter_for(access, scopes=scopes, kinds=kinds)


def _names(text: str, what: str) -> list[str]:
    found = [name.strip() for name in text.split(",")] if text else []
    if not all(found) or len(found) > LIST_NAMES_MAX:
        raise Invalid(
            f"`{what}` is no list of names: {text[:64]!r}.",
            f"1 to {LIST_NAMES_MAX} names divided by commas would be accepted.",
        )
    return found


# Pages.

Form = Callable[[FeedSlice, FeedPosition, FeedFilter], Response]


def _as_page(found: FeedSlice, end: FeedPosition, where: FeedFilter) -> Response:
    rest = {"next": str(end), "more": found.more, "filtered": where.own is not None}
    items = b",".join(json for _, json in found.lines)
    content = b'{"items":[' + items + b"]," + msgspec.json.encode(rest)[1:]
    return _answer(content, "application/json", found, end, where)


def _as_batch(found: FeedSlice, end: FeedPosition, where: FeedFilter) -> Response:
    content = b"[" + b",".join(json for _, json in found.lines) + b"]"
    return _answer(content, BATCH_CONTENT_TYPE, found, end, where)


def _as_lines(found: FeedSlice, end: FeedPosition, where: FeedFilter) -> Response:
    content = b"".join(json + b"\n" for _, json in found.lines)
    return _answer(content, LINES_CONTENT_TYPE, found, end, where)


def _answer(
    content: bytes, media_type: str, found: FeedSlice, end: FeedPosition, where: FeedFilter
) -> Response:
    headers = {NEXT_HEADER: str(end), MORE_HEADER: "true" if found.more else "false"}
    if where.own is not None:
        headers[FILTERED_HEADER] = "true"
    return Response(content, media_type=media_type, headers=headers)


# None is a stream.
_FORMS: Mapping[str, Form | None] = {
    "application/json": _as_page,
    BATCH_CONTENT_TYPE: _as_batch,
    LINES_CONTENT_TYPE: _as_lines,
    "application/jsonl": _as_lines,
    STREAM_CONTENT_TYPE: None,
}


def _form(accept: str) -> Form | None:
    """The first form of `Accept` that there is; a page for who takes any."""
    for one in accept.split(","):
        media_type = one.partition(";")[0].strip().lower()
        if media_type in _FORMS:
            return _FORMS[media_type]
    return _as_page


# Streams.


class _FeedStream(StreamingResponse):
    """Lines as they come, until the reader goes, is too slow, or the service stops."""

    def __init__(
        self, feed: Feed, number: int, where: FeedFilter, *, still: Callable[[], None]
    ) -> None:
        headers = dict(_STREAM_HEADERS)
        if where.own is not None:
            headers[FILTERED_HEADER] = "true"
        self._seat = 0
        frames = _frames(feed, number, where, still, lambda: self._seat)
        super().__init__(frames, media_type=STREAM_CONTENT_TYPE, headers=headers)
        self._feed = feed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._feed.counting() as self._seat:
            await super().__call__(scope, receive, send)


async def _frames(
    feed: Feed,
    number: int,
    where: FeedFilter,
    still: Callable[[], None],
    seat: Callable[[], int],
) -> AsyncIterator[bytes]:
    """The frames of one reader. What is hidden from it moves it on with the next heartbeat.

    `still` raises TokenEnded once the reader is let in no more: then nothing else is sent.
    """
    loop = asyncio.get_running_loop()

    def join(found: FeedSlice) -> bytes:
        frames = (
            f"id: {feed.position(line)}\ndata: ".encode() + json + b"\n\n"
            for line, json in found.lines
        )
        return b"".join(frames)

    yield _FIRST_FRAME if where.own is None else _FIRST_FRAME + _FILTERED_FRAME
    sent_s, newest = loop.time(), False
    while not feed.closed and number >= feed.journal.pruned_through:
        ring = feed.next_ring(seat())
        found = feed.chunk(number, where, join)
        if found is None:
            if newest:
                feed.cut += 1
                yield _CUT_FRAME
                return
            older = await feed.after(number, where, lines=SLICE_LINES_MAX)
            content, end = join(older), older.end
        else:
            content, end = found.content, found.end
        try:
            still()
        except TokenEnded:
            yield _ENDED_FRAME
            return
        if content:
            yield content
            sent_s = loop.time()
        if end != number:
            number = end
            await asyncio.sleep(
                0
            )  # others have their turn, also where the reader takes all at once
            continue
        newest = True
        left_s = sent_s + feed.heartbeat_s - loop.time()
        if left_s <= 0:
            yield f": here\nid: {feed.position(number)}\n\n".encode()
            sent_s, left_s = loop.time(), feed.heartbeat_s
        await rung(ring, left_s)
