"""`/v1/faults`: adding, listing and clearing faults. Mounted by the emulator only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from forewarn.api.order_bodies import BODY_BYTES_MAX, refuse_doubled_keys
from forewarn.api.requests import NoQuery, read_query
from forewarn.api.route_table import RouteSpec
from forewarn.core.access import Right
from forewarn.core.errors import Invalid
from forewarn.emulator.faults.book import Fault, FaultBook, fault_json
from forewarn.emulator.faults.kinds import FaultKind, Method
from forewarn.emulator.faults.orders import WORDS, read_order
from forewarn.emulator.idempotency import RememberedOrders, answered

_Duration = str | float


class FaultRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A fault, by its kind or its status. `for` is a time of the emulator's clock, seconds of the
    real one; both are seconds or a text like 70s or 2m.
    """

    kind: str | int
    vm: str | None = None
    method: str | None = None
    count: int | None = None
    share: float | None = None
    for_: _Duration | None = msgspec.field(name="for", default=None)
    seconds: _Duration | None = None
    retry_after: _Duration | None = None
    by: int | None = None
    per_second: float | None = None
    document: str | dict[str, Any] | None = None


class FaultShown(msgspec.Struct):
    """A fault as it is now. What is null is no limit, or is nothing of its kind."""

    fault_id: str
    kind: FaultKind
    vm: str | None
    method: Method | None
    count: int | None
    share: float | None
    seconds: float | None
    retry_after: int | None
    by: int | None
    per_second: float | None
    document: str | None
    added: str
    until: str | None
    hits: int
    over: bool


class FaultsShown(msgspec.Struct):
    """Faults, oldest first."""

    items: list[FaultShown]


class FaultsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """`all` includes those that are over."""

    all: bool = False


async def _nothing() -> None:
    """Nothing follows from a fault."""


def fault_routes(
    book: FaultBook, settle: Callable[[], Awaitable[None]] = _nothing
) -> list[RouteSpec]:
    """The routes of the faults of a book, which belongs to the same event loop.

    An order is answered after `settle`: what follows from it has happened.
    """
    routes = _FaultRoutes(book, settle)
    return [
        RouteSpec(
            method="GET",
            path="/v1/faults",
            name="list-faults",
            summary="Faults that stand, oldest first.",
            handler=routes.listed,
            answer=FaultsShown,
            query=FaultsQuery,
            right=Right.VIEW,
        ),
        RouteSpec(
            method="POST",
            path="/v1/faults",
            name="fault-add",
            summary="Have the endpoint misbehave.",
            handler=RememberedOrders().taking(routes.add, bytes_max=BODY_BYTES_MAX),
            answer=FaultShown,
            body=FaultRequest,
            right=Right.OPERATE,
        ),
        RouteSpec(
            method="DELETE",
            path="/v1/faults",
            name="fault-clear-all",
            summary="End all faults; those that this has ended.",
            handler=routes.clear,
            answer=FaultsShown,
            right=Right.OPERATE,
        ),
        RouteSpec(
            method="DELETE",
            path="/v1/faults/{id}",
            name="fault-clear",
            summary="End one fault, unless it is over already.",
            handler=routes.clear,
            answer=FaultsShown,
            right=Right.OPERATE,
        ),
    ]


class _FaultRoutes:
    def __init__(self, book: FaultBook, settle: Callable[[], Awaitable[None]]) -> None:
        self._book = book
        self._settle = settle

    async def listed(self, request: Request) -> Response:
        asked = read_query(request, FaultsQuery)
        return _several(self._book.list(over=asked.all))

    async def add(self, _: Request, body: bytes) -> FaultShown:
        added = self._book.add(read_order(_words(body)))
        await self._settle()
        return _shown(self._book.get(added.fault_id))

    async def clear(self, request: Request) -> Response:
        read_query(request, NoQuery)
        cleared = self._book.clear(request.path_params.get("id"))
        await self._settle()
        return _several(cleared)


def _words(body: bytes) -> dict[str, object]:
    """The words as they were sent: the reader of orders names what is wrong with one better."""
    try:
        said = msgspec.json.decode(body, type=dict[str, object])
        refuse_doubled_keys(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid(
            f"The body was not understood: {error}.",
            f"What would be accepted: a JSON object with {', '.join(WORDS)}.",
        ) from None
    return said


def _several(faults: Iterable[Fault]) -> Response:
    return answered(FaultsShown(items=[_shown(fault) for fault in faults]))


def _shown(fault: Fault) -> FaultShown:
    return msgspec.convert(fault_json(fault), FaultShown)
