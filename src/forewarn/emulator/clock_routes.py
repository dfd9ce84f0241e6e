"""`/v1/clock`: what time it is in the emulator, and turning it."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from forewarn.api.order_bodies import BODY_BYTES_MAX, EmptyRequest, words
from forewarn.api.requests import NoQuery, read_query
from forewarn.api.route_table import RouteSpec
from forewarn.core.access import Right
from forewarn.core.errors import Invalid
from forewarn.emulator.clock import EmulatedClock
from forewarn.emulator.idempotency import RememberedOrders, answered
from forewarn.emulator.pacer import Instant, Pacer
from forewarn.text.durations import parse_duration_ms
from forewarn.wire.instants import time_text

PASSED_SHOWN_MAX = 1_000


class DueShown(msgspec.Struct):
    """An instant at which something is due, and what."""

    at: str
    what: str


class ClockShown(msgspec.Struct):
    """The emulator's time. `speed` 0 stands still; `next` is what is due next, if anything."""

    now: str
    speed: int
    next: DueShown | None


class ClockMoved(msgspec.Struct):
    """The emulator's time after it was turned, and what was due on the way."""

    now: str
    speed: int
    next: DueShown | None
    passed: list[DueShown]


class AdvanceRequest(msgspec.Struct, forbid_unknown_fields=True):
    """By how much the clock is turned: seconds, or a text like 15m or 1h30m."""

    by: str | float


def clock_routes(pacer: Pacer, clock: EmulatedClock) -> list[RouteSpec]:
    """The routes of the emulator's clock."""
    routes, once = _ClockRoutes(pacer, clock), RememberedOrders()
    return [
        RouteSpec(
            method="GET",
            path="/v1/clock",
            name="clock",
            summary="The emulator's time, and what is due next.",
            handler=routes.show,
            answer=ClockShown,
            right=Right.VIEW,
        ),
        RouteSpec(
            method="POST",
            path="/v1/clock/advance",
            name="clock-advance",
            summary="Turn the clock ahead, through everything that is due on the way.",
            handler=once.taking(routes.advance, bytes_max=BODY_BYTES_MAX),
            answer=ClockMoved,
            right=Right.OPERATE,
            body=AdvanceRequest,
        ),
        RouteSpec(
            method="POST",
            path="/v1/clock/next",
            name="clock-next",
            summary="Turn the clock to the next instant at which something is due.",
            handler=once.taking(routes.next, bytes_max=BODY_BYTES_MAX),
            answer=ClockMoved,
            right=Right.OPERATE,
            body=EmptyRequest,
        ),
    ]


class _ClockRoutes:
    def __init__(self, pacer: Pacer, clock: EmulatedClock) -> None:
        self._pacer = pacer
        self._clock = clock

    async def show(self, request: Request) -> Response:
        read_query(request, NoQuery)
        return answered(ClockShown(now=self._now, speed=self._speed, next=await self._next()))

    async def advance(self, _: Request, body: bytes) -> ClockMoved:
        said = words(body, AdvanceRequest)
        return await self._moved(await self._pacer.advance(parse_duration_ms(said.by)))

    async def next(self, _: Request, body: bytes) -> ClockMoved:
        words(body, EmptyRequest)
        return await self._moved(await need_next(self._pacer))

    async def _moved(self, passed: list[Instant]) -> ClockMoved:
        shown = [_due(instant) for instant in passed[:PASSED_SHOWN_MAX]]
        return ClockMoved(now=self._now, speed=self._speed, next=await self._next(), passed=shown)

    @property
    def _now(self) -> str:
        return _time(self._clock.now_ms())

    @property
    def _speed(self) -> int:
        return self._clock.speed

    async def _next(self) -> DueShown | None:
        upcoming = await self._pacer.upcoming()
        return _due(upcoming[0]) if upcoming else None


async def need_next(pacer: Pacer) -> list[Instant]:
    """Go to the next instant at which something is due. Raises Invalid if nothing is."""
    reached = await pacer.next()
    if not reached:
        raise Invalid(
            "Nothing is due: the clock has nowhere to go.",
            "Order something first, or turn it with `forewarn clock advance 15m`.",
        )
    return reached


def _due(instant: Instant) -> DueShown:
    return DueShown(at=_time(instant.at_ms), what=instant.what)


def _time(at_ms: int) -> str:
    return time_text(at_ms) or ""
