"""The endpoint that misbehaves when told to: the product's own, with the book of faults before it.

A request is looked at when it is whole, before it is handled. What is carried out is carried out by
the product; only its answer is tampered with, on its way to the socket. Strangers meet no fault:
they are refused as ever. Delays are seconds of the event loop, never of the emulator's clock.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import sys
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, cast

import msgspec

from forewarn.core.model import SECOND_MS
from forewarn.emulator import attested
from forewarn.emulator.faults.book import ONE_PER_REQUEST, Fault, FaultBook
from forewarn.emulator.faults.kinds import KINDS, FaultKind
from forewarn.emulator.instance_values import InstanceValues
from forewarn.endpoint import answers, routes
from forewarn.endpoint.endpoint import Endpoint
from forewarn.endpoint.http_parser import Message
from forewarn.endpoint.limits import Bucket, Limits, Timeouts
from forewarn.endpoint.protocol import Connection, Identify
from forewarn.endpoint.registry import Guest
from forewarn.endpoint.routes import Ask, Request, RequestRules
from forewarn.endpoint.service import Service
from forewarn.endpoint.stages import BUSY, IDLE
from forewarn.wire import instance
from forewarn.wire.instance import ResourceLocation
from forewarn.wire.problems import GuestProblem

_END = b"\r\n\r\n"
_ETAG = b'\r\nETag: "'
_DOCUMENT = b'{"DocumentIncarnation":'
_NOT_OF_POLLS = ONE_PER_REQUEST - {FaultKind.REPLAY}  # only polls are answered from elsewhere
_ETAG_ONLY = frozenset({FaultKind.UNQUOTED_ETAG})
_AFTER = GuestProblem(
    HTTPStatus.INTERNAL_SERVER_ERROR, "fault-error-after", "Internal Server Error"
)
_PAGE = (
    b"<!DOCTYPE html>\n<html><head><title>Error</title></head>"
    b"<body><h1>The page cannot be displayed</h1></body></html>\n"
)
# What is answered in the place of a document, and as what: G8, a proxy's page, half of it.
_BODIES = {
    FaultKind.EMPTY: (b"", answers.JSON),
    FaultKind.HTML: (_PAGE, b"text/html; charset=utf-8"),
    FaultKind.MALFORMED: (
        b'{"DocumentIncarnation":2,"Events":[{"EventId":"602D9444-',
        answers.JSON,
    ),
}
# On, and no seconds: closing then sends a reset instead of an end.
_LINGER_NOT = struct.pack("ii", 1, 0)


# VM, request, answer, and what a fault does to it.
Answered = Callable[[str, Message, bytes, str], None]


class FaultyEndpoint(Endpoint):
    """An Endpoint whose guests meet the faults of a book.

    `asked` is told of every request of a guest, before a fault or an answer; `answered` of each
    request with its answer, and how a fault spoils it; `broke` is given the errors of ours that a
    guest is only told as a 503.
    """

    def __init__(
        self,
        service: Service,
        *,
        faults: FaultBook,
        now_ms: Callable[[], int],
        place: ResourceLocation,
        rules: RequestRules | None = None,
        limits: Limits | None = None,
        timeouts: Timeouts | None = None,
        asked: Callable[[str, Ask], None] = lambda _vm, _ask: None,
        values: InstanceValues | None = None,
        answered: Answered = lambda *_: None,
        broke: Callable[[BaseException], None] = lambda _error: None,
    ) -> None:
        super().__init__(
            service,
            now_ms=now_ms,
            place=place,
            rules=rules,
            limits=limits,
            timeouts=timeouts,
        )
        self.faults = faults
        self.asked = asked
        self.answered = answered
        self.values = values or InstanceValues(())
        self._broke = broke
        self._buckets: dict[str, tuple[str, Bucket]] = {}  # by VM, with the fault it is of

    def connection(self, identify: Identify) -> Connection:
        return FaultyConnection(self, identify, self.faults)

    def remember(self, key: bytes, request: Request) -> None:
        """Keep nothing: what is not in the cache of heads goes the way where faults are met."""

    def failed(self, what: str, **context: str) -> None:
        super().failed(what, **context)
        error = sys.exception()
        if error is not None:
            self._broke(error)

    def retry_s(self, vm: str, now_s: float) -> float:
        """Seconds until a rate limit allows this VM's request; 0.0 if none forbids it."""
        fault = self.faults.rate_limit(vm)
        if fault is None:
            return 0.0
        of, bucket = self._buckets.get(vm, ("", None))
        if bucket is None or of != fault.fault_id:
            bucket = Bucket(fault.order.per_second or 0.0)
            self._buckets[vm] = (fault.fault_id, bucket)
        retry_s = bucket.take(now_s)
        if retry_s:
            self.faults.refused(fault.fault_id, vm)
        return retry_s


class _Outlet:
    """The transport of a connection, with a say in what is written; the rest is the transport's."""

    def __init__(self, transport: asyncio.Transport, write: Callable[[bytes], None]) -> None:
        self._transport = transport
        self.write = write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class FaultyConnection(Connection):
    """A connection that does to each request what the book of faults says.

    While an answer is put off or stalls the connection is BUSY, as during an approval: the sweep
    leaves it alone, and what the client sends meanwhile waits.
    """

    __slots__ = (
        "_asking",
        "_closing_later",
        "_fault",
        "_faults",
        "_faulty_endpoint",
        "_later",
        "_note",
        "_real",
    )

    def __init__(self, endpoint: FaultyEndpoint, identify: Identify, faults: FaultBook) -> None:
        super().__init__(endpoint, identify)
        self._faulty_endpoint = endpoint
        self._faults = faults
        self._fault: Fault | None = None  # what is done to the answer of the request at hand
        self._later: asyncio.TimerHandle | None = None
        self._closing_later = False
        self._note = ""  # the fault that it meets, for the record
        self._asking: tuple[str, Message] | None = None  # who is answered next, and what

    # -- called by the transport, the endpoint and the guest -----------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._real = cast("asyncio.Transport", transport)
        outlet = _Outlet(self._real, self._write)
        super().connection_made(cast("asyncio.Transport", outlet))

    def connection_lost(self, exc: Exception | None) -> None:
        self._give_up()
        super().connection_lost(exc)

    def eof_received(self) -> bool:
        """Who closes its side while an answer is put off has left, like one that is parked."""
        return super().eof_received() and self._later is None

    def cut(self) -> None:
        if not self._approving:  # who approves its own end meets its fault with that answer
            self._give_up()
        super().cut()

    # -- requests ------------------------------------------------------------------------------

    def _handle(self, message: Message) -> None:
        guest = self._guest
        if guest is None:
            super()._handle(message)
            return
        self._asking, self._note = (guest.name, message), ""
        request = self._routed(message)
        self._faulty_endpoint.asked(guest.name, request.ask)
        now_s = self._since_s = self._time_s()
        retry_s = self._faulty_endpoint.retry_s(guest.name, now_s)
        if retry_s:
            self._refuse_rate(retry_s, request)
            return
        kinds = ONE_PER_REQUEST if request.ask is Ask.POLL else _NOT_OF_POLLS
        fault = self._faults.pick(guest.name, message.head.method, kinds)
        self._note = "" if fault is None else f"fault {fault.kind.value}"
        if fault is None and request.ask is Ask.NOTHING and attested.is_asked(message.head):
            self._attest(message, guest)
        elif fault is None:
            super()._handle(message)
        elif KINDS[fault.kind].status is not None:
            self._refuse(_problem(fault), request)
        elif fault.kind in _BODIES:
            body, content_type = _BODIES[fault.kind]
            self._answer(200, request, content_type=content_type, body=body)
        elif fault.kind is FaultKind.REPLAY:
            self._replay(fault.order.document or "", request)
        elif fault.kind in (FaultKind.SLOW_FIRST, FaultKind.LATENCY):
            self._at = BUSY
            self._put_off(fault, lambda: self._handle_now(message))
        else:
            self._fault = fault
            super()._handle(message)

    def _attest(self, message: Message, guest: Guest) -> None:
        endpoint, request = self._endpoint, routes.unrouted(message.head)
        try:
            now_ms = endpoint.dates.now_ms()
            rules, place = endpoint.rules, endpoint.place
            body = attested.answer(message.head, rules, guest, place, now_ms)
        except GuestProblem as problem:
            self._refuse(problem, request)
            return
        self._answer(200, request, body=body)

    def _responded(self, request: Request, guest: Guest) -> tuple[bytes, bytes]:
        if request.ask is not Ask.INSTANCE:
            return super()._responded(request, guest)
        place = self._endpoint.place
        tree = instance.instance_tree(guest.vm, guest.page.scope, place, request.version)
        over = self._faulty_endpoint.values.over(tree, guest.name)
        body = instance.select(over, request.path, text=request.text)
        return answers.TEXT if request.text else answers.JSON, body

    def _replay(self, document: str, request: Request) -> None:
        endpoint = self._endpoint
        endpoint.dates.now_ms()
        close = self._closes(request)
        tag = json.loads(document)["DocumentIncarnation"]
        self._transport.write(
            answers.plain(
                200,
                date=endpoint.dates.line,
                body=document.encode(),
                headers=(("ETag", f'"{tag}"'),),
                close=close,
                without_body=request.without_body,
            )
        )
        if close:
            self._close()

    def _handle_now(self, message: Message) -> None:
        self._at = IDLE
        super()._handle(message)
        self._read_on()

    def _routed(self, message: Message) -> Request:
        return routes.route(message.head, self._endpoint.rules)

    # -- bytes out -----------------------------------------------------------------------------

    def _write(self, answer: bytes) -> None:
        """Every answer of the connection passes here, whole, exactly once."""
        if _has_tag(answer) and self._picks_tag():
            answer = _unquoted(answer)
        fault, self._fault = self._fault, None
        self._tell(answer)
        if fault is None:
            self._real.write(answer)
        elif fault.kind is FaultKind.RESET:
            self._reset()
        elif fault.kind is FaultKind.SHUFFLE:
            self._real.write(self._shuffled(fault, answer))
        elif fault.kind is FaultKind.CUT:
            self._real.write(answer[: _middle(answer)])
            self._close()
        elif fault.kind is FaultKind.ERROR_AFTER:
            self._real.write(self._failed_after(answer))
        elif fault.kind is FaultKind.LATE:
            self._at = BUSY
            self._put_off(fault, lambda: self._go_on(answer))
        else:
            self._stall(fault, answer)

    def _tell(self, answer: bytes) -> None:
        asking, self._asking = self._asking, None
        if asking is not None:
            vm, message = asking
            self._faulty_endpoint.answered(vm, message, answer, self._note)

    def _shuffled(self, fault: Fault, answer: bytes) -> bytes:
        """The answer with its events in a drawn order; as it is if it has none. As long as ever."""
        head, end, body = answer.partition(_END)
        if not body.startswith(_DOCUMENT):
            return answer
        document = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        events = msgspec.json.decode(document["Events"], type=list[msgspec.Raw])
        order = self._faults.drawn_order(fault, len(events))
        drawn = msgspec.Raw(msgspec.json.encode([events[place] for place in order]))
        return head + end + msgspec.json.encode({**document, "Events": drawn})

    def _picks_tag(self) -> bool:
        guest = self._guest
        return guest is not None and bool(self._faults.pick(guest.name, "GET", _ETAG_ONLY))

    def _reset(self) -> None:
        pipe = self._real.get_extra_info("socket")
        if pipe is not None:
            pipe.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
        self.abort()
        self._close()

    def _failed_after(self, answer: bytes) -> bytes:
        """A 500 in the place of an answer; the connection is kept or closed as it would be."""
        closes = b"\r\nConnection: close" in answer[: answer.index(_END)]
        return answers.refusal(
            _AFTER, date=self._endpoint.dates.line, close=closes, without_body=False
        )

    def _stall(self, fault: Fault, answer: bytes) -> None:
        middle = _middle(answer)
        self._real.write(answer[:middle])
        self._at = BUSY
        self._put_off(fault, lambda: self._go_on(answer[middle:]))

    def _go_on(self, rest: bytes) -> None:
        self._at = IDLE
        self._since_s = self._time_s()
        self._real.write(rest)
        if self._closing_later:
            self._close()
        else:
            self._read_on()

    def _put_off(self, fault: Fault, act: Callable[[], None]) -> None:
        def now() -> None:
            self._later = None
            act()

        delay_s = (fault.order.delay_ms or 0) / SECOND_MS
        self._later = asyncio.get_running_loop().call_later(delay_s, now)

    def _give_up(self) -> None:
        """Nothing that was put off happens any more."""
        self._fault = None
        if self._later is not None:
            self._later.cancel()
            self._later = None

    def _close(self) -> None:
        """Close, but not before the rest of an answer that stalls is out."""
        if self._later is not None:
            self._closing_later = True
            return
        super()._close()


def _problem(fault: Fault) -> GuestProblem:
    """The answer of a fault with a status. What the real service says is not known (E13 to E15)."""
    status = KINDS[fault.kind].status
    assert status is not None  # noqa: S101 - asked for such kinds only
    after_s = fault.order.retry_after_s
    headers = () if after_s is None else (("Retry-After", str(after_s)),)
    return GuestProblem(
        status, f"fault-{fault.kind}", f"{status.phrase}. Nothing was changed", headers=headers
    )


def _has_tag(answer: bytes) -> bool:
    return answer.find(_ETAG, 0, answer.find(_END)) >= 0


def _unquoted(answer: bytes) -> bytes:
    """The answer with the ETag as the real service writes it (G4). It must have one."""
    start = answer.index(_ETAG) + len(_ETAG)
    end = answer.index(b'"', start)
    return answer[: start - 1] + answer[start:end] + answer[end + 1 :]


def _middle(answer: bytes) -> int:
    """Where an answer breaks: half way through its body; of its head if there is no body."""
    body = answer.index(_END) + len(_END)
    length = len(answer) - body
    return body + length // 2 if length else body // 2
