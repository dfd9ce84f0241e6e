"""Orders to the emulator itself that may be sent again, like any other order.

What they do is not in the store (the clock, the faults, the runs), so neither are the answers:
both end with the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from forewarn.api.operator_routes import Handler
from forewarn.api.requests import NoQuery, read_body, read_query
from forewarn.control import idempotency
from forewarn.core.errors import IdempotencyMismatch

KEPT_MAX = 1_000

Work = Callable[[Request, bytes], Awaitable[msgspec.Struct]]


class _OrderUnderWay(Struct, frozen=True):
    fingerprint: str
    work: asyncio.Future[msgspec.Struct]


class RememberedOrders:
    """The answers of the last KEPT_MAX orders that had an idempotency key."""

    def __init__(self) -> None:
        self._kept: dict[str, _OrderUnderWay] = {}

    def taking(self, work: Work, *, bytes_max: int) -> Handler:
        """A handler that does the work at most once under a key, also while it is being done."""

        async def handler(request: Request) -> Response:
            read_query(request, NoQuery)
            key = idempotency.key_of(request.headers.getlist("idempotency-key"))
            body = await read_body(request, bytes_max=bytes_max)
            if key is None:
                return answered(await work(request, body))
            mark = idempotency.fingerprint(request.method, request.url.path, body)
            kept = self._kept.get(key)
            if kept is None:
                kept = self._begin(key, mark, work(request, body))
            elif kept.fingerprint != mark:
                raise IdempotencyMismatch(
                    f"The Idempotency-Key {key} was used before, for another order.",
                    "Send the same order again, or this one with a key of its own.",
                )
            return answered(await asyncio.shield(kept.work))

        return handler

    def _begin(self, key: str, mark: str, work: Awaitable[msgspec.Struct]) -> _OrderUnderWay:
        if len(self._kept) >= KEPT_MAX:
            del self._kept[next(iter(self._kept))]
        kept = self._kept[key] = _OrderUnderWay(mark, asyncio.ensure_future(work))

        def forget_refused(done: asyncio.Future[msgspec.Struct]) -> None:
            if done.cancelled() or done.exception() is not None:
                self._kept.pop(key, None)

        kept.work.add_done_callback(forget_refused)
        return kept


def answered(content: msgspec.Struct) -> Response:
    """A value as the answer of one of the emulator's own routes."""
    return Response(msgspec.json.encode(content), media_type="application/json")
