"""One connection of a guest: HTTP/1.1 over an asyncio transport.

A connection handles one request at a time and answers in order; what a client sends meanwhile
stays unread. What a request asks for is decided in `routes`, what is valid HTTP in `http_parser`,
and when a request that is here is handled in
`fair_turns`: a few of one connection, then others.

The hot path is a poll whose bytes were seen before: `data_received` finds its parsed form, and
`_poll` checks identity, rate limit and what the guest has, and writes bytes that are ready.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from forewarn.core.errors import NotFound, Refusal, Unavailable
from forewarn.endpoint import answers, routes
from forewarn.endpoint.http_parser import Message, MessageReader
from forewarn.endpoint.limits import REFUSAL_WAITS_S, REFUSALS_AT_ONCE, REFUSALS_PER_S
from forewarn.endpoint.registry import Document, Guest, GuestConnection, NotYet
from forewarn.endpoint.routes import Ask, Request
from forewarn.endpoint.stages import BODY, BUSY, CLOSING, HEAD, IDLE, LINGERING, PARKED
from forewarn.wire import approvals, problems
from forewarn.wire.problems import GuestProblem

if TYPE_CHECKING:
    from forewarn.endpoint.endpoint import Endpoint

# Who is at the other end; raises NotYet if that is known and what it is to be told is not.
Identify = Callable[[asyncio.BaseTransport], Guest | None]

RETRY_AFTER_S = 2


class Connection(asyncio.Protocol):
    """See the module. Everything here runs on the event loop's thread."""

    __slots__ = (
        "_again",
        "_approving",
        "_at",
        "_blank_bytes",
        "_blank_since_s",
        "_counted",
        "_discarded",
        "_drained",
        "_draining",
        "_endpoint",
        "_guest",
        "_heads",
        "_identify",
        "_last",
        "_last_answer",
        "_reader",
        "_reading_paused",
        "_refused",
        "_request",
        "_since_s",
        "_tag",
        "_time_s",
        "_transport",
        "_until_s",
        "_waits",
        "_waits_until",
        "_writing_since_s",
    )

    def __init__(self, endpoint: Endpoint, identify: Identify) -> None:
        self._endpoint = endpoint
        self._identify = identify
        self._guest: Guest | None = None
        self._counted: Guest | None = None  # whose connection it is, also if it is told nothing yet
        self._heads = endpoint.heads
        self._reader: MessageReader | None = None
        self._at: int = IDLE
        self._until_s = 0.0
        self._request: Request | None = None  # the one that is parked
        self._tag = ""  # of the document it was parked with
        self._last = False  # the client has closed its side
        self._approving = self._last_answer = False  # an approval is under way; then all ends
        self._discarded = 0
        self._blank_bytes = 0  # empty lines since the request of `_blank_since_s`
        self._blank_since_s = 0.0
        self._waits = False  # for a turn: one is asked for, or will be when its time has come
        self._waits_until: asyncio.TimerHandle | None = None
        self._refused: tuple[float, Request] | None = None  # whose 429 waits, and its Retry-After
        self._draining = False  # what was sent behind it is answered without another wait
        self._drained = 0  # how many of these were, since the last read
        self._again = b""  # the 429 that was written last in this turn
        self._writing_since_s: float | None = None
        self._reading_paused = False

    # -- called by the transport ---------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        endpoint = self._endpoint
        self._transport = cast("asyncio.Transport", transport)
        self._time_s = asyncio.get_running_loop().time
        self._since_s = self._time_s()
        endpoint.opened(self)
        guest = self._counted = self._who(transport)
        connects = endpoint.connects_of_strangers if guest is None else guest.connects
        if connects.take(self._since_s):
            endpoint.counters.refusals["connects"] += 1
            self._at = CLOSING
            self.abort()  # without a word: a client that connects like this reads none
            return
        crowd: set[GuestConnection] = endpoint.strangers if guest is None else guest.connections
        limit = endpoint.limits
        most = limit.connections_of_strangers if guest is None else limit.connections_per_guest
        if len(crowd) >= most:
            stranger = guest is None
            problem = (
                problems.unknown_caller() if stranger else problems.too_many_requests(RETRY_AFTER_S)
            )
            self._refuse(problem, close=True)
            self._close()  # without lingering: these are the ones that are too many
            return
        crowd.add(self)

    def _who(self, transport: asyncio.BaseTransport) -> Guest | None:
        """Whose connection it is. One that is not to be told anything yet is not our guest."""
        try:
            self._guest = self._identify(transport)
        except NotYet as early:
            return early.guest
        return self._guest

    def _unknown_caller(self) -> GuestProblem:
        """The answer to a caller that is no guest; one that is not known yet is to ask again."""
        stranger = self._counted is None
        return problems.unknown_caller() if stranger else problems.unavailable(RETRY_AFTER_S)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        if self._at == PARKED:
            self._unpark()
        self._stop_waiting()
        self._at = CLOSING
        self._drop_reader()
        if self._counted is not None:
            self._counted.connections.discard(self)
        self._endpoint.closed(self)

    def data_received(self, data: bytes) -> None:
        if self._at == IDLE:
            request = self._heads.get(data)
            if request is not None:
                self._poll(request)
                return
        self._receive(data)

    def eof_received(self) -> bool:
        """A client may close its side and still read an answer; one that is parked has left."""
        self._last = True
        return self._at == BUSY or self._waits

    def pause_writing(self) -> None:
        self._writing_since_s = self._time_s()
        self._regulate()

    def resume_writing(self) -> None:
        self._writing_since_s = None
        self._read_on()

    # -- called by the endpoint, the page and the guest ----------------------------------------

    def check(self, now_s: float) -> None:
        """End what has taken too long. Called by the sweep."""
        at = self._at
        writing_s = self._writing_since_s
        if writing_s is not None and now_s - writing_s > self._endpoint.timeouts.write_s:
            self.abort()
        elif at == PARKED:
            if now_s >= self._until_s:
                self.wake()
        elif now_s - self._since_s <= self._endpoint.patience_s[at]:
            return
        elif at == IDLE:
            self._close()
        elif at <= BODY:
            self._refuse(problems.request_timeout(), close=True)
        else:
            self.abort()

    def wake(self) -> None:
        """Answer a parked poll from the document of now. It is no poll of now: only a read."""
        request = self._request
        guest = self._guest
        if self._at != PARKED or request is None or guest is None:
            return
        self._unpark()
        document = guest.page.documents[request.version]
        # `*` has any document, so it waits for another one than there was.
        had = {self._tag} if request.any_tag else request.tags or ()
        if document.tag in had:
            self._write_unchanged(request, document)
        else:
            self._note_read(guest, document)
            self._write_document(request, document)
        self._read_on()

    def cut(self) -> None:
        """Close: the guest is gone or is now another. What was answered is still sent."""
        if self._approving:  # who approves its own end must learn that it did
            self._last_answer = True
        else:
            self._close()

    def abort(self) -> None:
        """Close at once and send nothing more."""
        self._transport.abort()

    # -- requests ------------------------------------------------------------------------------

    def _poll(self, request: Request) -> None:
        guest = self._guest
        if guest is None:
            self._refuse(self._unknown_caller(), close=True)
            return
        now_s = self._since_s = self._time_s()
        retry_s = guest.bucket.take(now_s)
        if retry_s:
            self._refuse_rate(retry_s, request)
            return
        endpoint = self._endpoint
        dates = endpoint.dates
        guest.polled_ms = dates.now_ms()
        document = guest.document
        if document is None or guest.asked is not request:
            document = self._find(request, guest)
            if document is None:
                return
        if request.close:
            self._write_document(request, document)
            return
        endpoint.counters.polls_200 += 1
        if document.date is not dates.line:
            document.dress(dates.line)
        self._transport.write(document.answer)

    def _find(self, request: Request, guest: Guest) -> Document | None:
        """The document this poll gets; None if it was answered otherwise or waits."""
        document = guest.page.documents[request.version]
        if request.tags is not None and (document.tag in request.tags or request.any_tag):
            if guest.polled_serial == document.serial or self._look(request, guest, document):
                self._unchanged(request, guest, document)
            return None
        if guest.read_serial != document.serial:
            if not self._look(request, guest, document):
                return None
            self._note_read(guest, document)
            guest.read_serial = document.serial
        guest.asked = request
        guest.document = document
        return document

    def _look(self, request: Request, guest: Guest, document: Document) -> bool:
        """Everything rare about a poll. False if the answer has to wait for a commit."""
        if guest.expected:
            guest.expected = False
            self._endpoint.service.returned(guest.name)
        if not guest.page.enabled:
            self._at = BUSY
            self._endpoint.work(self._enable(request, guest))
            return False
        guest.polled_serial = document.serial
        return True

    async def _enable(self, request: Request, guest: Guest) -> None:
        await self._endpoint.enable(guest)
        if self._at != BUSY:
            return
        self._at = IDLE
        if not guest.page.enabled:  # not kept: an answer would promise a notice that never comes
            self._refuse(problems.unavailable(RETRY_AFTER_S), request)
            self._read_on()
            return
        # What is shown may be new: enabling makes silent events appear.
        document = guest.page.documents[request.version]
        if request.tags is not None and (document.tag in request.tags or request.any_tag):
            self._unchanged(request, guest, document)
        else:
            self._note_read(guest, document)
            self._write_document(request, document)
        self._read_on()

    def _unchanged(self, request: Request, guest: Guest, document: Document) -> None:
        """The guest has this document already: say so, at once or when its wait is over."""
        if not request.wait_s:
            self._write_unchanged(request, document)
            return
        endpoint = self._endpoint
        if guest.parked >= endpoint.limits.parked_per_guest:
            self._refuse(problems.too_many_requests(RETRY_AFTER_S), request)
            return
        guest.parked += 1
        endpoint.counters.parked += 1
        endpoint.counters.waits += 1
        self._at = PARKED
        self._request = request
        self._tag = document.tag
        self._until_s = self._time_s() + min(request.wait_s, endpoint.timeouts.wait_s)
        guest.page.waiters[self] = None

    def _unpark(self) -> None:
        guest = self._guest
        if guest is not None:
            guest.parked -= 1
            guest.page.waiters.pop(self, None)
        self._endpoint.counters.parked -= 1
        self._request = None
        self._at = IDLE
        self._since_s = self._time_s()

    def _note_read(self, guest: Guest, document: Document) -> None:
        new = guest.read(document)
        if new:
            self._endpoint.counters.first_reads += len(new)
            self._endpoint.service.first_read(guest.name, guest.page.name, new)

    def _handle(self, message: Message) -> None:
        """A request that was not in the cache of heads."""
        guest = self._guest
        if guest is None:
            self._refuse(self._unknown_caller(), close=True)
            return
        endpoint = self._endpoint
        now_s = self._since_s = self._time_s()
        retry_s = guest.bucket.retry_s(now_s)
        if retry_s:  # before all else: who is over its rate costs, and changes, as little as can be
            self._refuse_rate(retry_s, routes.unrouted(message.head))
            return
        request = routes.route(message.head, endpoint.rules)
        if message.key is not None:
            endpoint.remember(message.key, request)
        if request.ask is Ask.POLL:
            self._poll(request)
            return
        guest.bucket.take(now_s)
        try:
            if request.problem is not None:
                raise request.problem
            if request.ask is Ask.APPROVE:
                event_ids = approvals.parse(message.body)
                self._at = BUSY
                self._approving = True
                endpoint.work(self._approve(request, guest, event_ids))
                return
            content_type, body = self._responded(request, guest)
        except GuestProblem as problem:
            self._refuse(problem, request)
            return
        self._answer(200, request, content_type=content_type, body=body)

    def _responded(self, request: Request, guest: Guest) -> tuple[bytes, bytes]:
        """Content-Type and body for what is neither a poll nor an approval. Or GuestProblem."""
        return routes.respond(request, guest, self._endpoint.place)

    async def _approve(self, request: Request, guest: Guest, event_ids: tuple[str, ...]) -> None:
        problem: GuestProblem | None = None
        endpoint = self._endpoint
        try:
            async with asyncio.timeout(endpoint.timeouts.approval_s):
                await endpoint.service.approve(guest.name, event_ids)
            endpoint.counters.approvals += 1
        except NotFound:
            problem = problems.unknown_caller()  # the VM was deleted while we waited
        except Refusal as refusal:
            problem = routes.refused(refusal)
        except (Unavailable, TimeoutError):
            problem = problems.unavailable(RETRY_AFTER_S)
        except Exception:  # noqa: BLE001 - the top of this piece of work: a guest must get an answer
            endpoint.failed("an approval failed", vm=guest.name)
            problem = problems.unavailable(RETRY_AFTER_S)
        self._approving = False
        if self._at != BUSY:
            return  # the client has gone; what was approved stays approved
        self._at = IDLE
        if problem is not None:
            self._refuse(problem, request)
        else:
            self._answer(200, request)
        self._read_on()

    # -- bytes in ------------------------------------------------------------------------------

    def _receive(self, data: bytes) -> None:
        if self._at >= LINGERING:
            self._discarded += len(data)
            if self._discarded > self._endpoint.limits.discarded_bytes:
                self.abort()
            return
        if self._reader is None:
            self._reader = MessageReader(self._endpoint.limits)
        self._reader.feed(data)
        self._ask_for_turn()
        self._regulate()

    def _read_on(self) -> None:
        """What kept the next request waiting is over: go on with what is here, in turns."""
        self._ask_for_turn()
        self._regulate()
        self._close_if_done()

    def _ask_for_turn(self) -> None:
        if (
            self._reader is not None
            and not self._waits
            and self._at <= BODY
            and self._writing_since_s is None
        ):
            self._waits = True
            self._endpoint.turns.ask(self, self._guest)

    def turn(self, most: int) -> int:
        """Handle the requests that are here until one has to wait or none is whole.

        Called by `turns`. At most so many; returns how many it were.
        """
        self._waits = False
        self._again = b""
        used = self._refuse_late()
        while used < most and self._at <= BODY and self._writing_since_s is None:
            reader = self._reader
            if reader is None or self._waits:
                break
            request = reader.take_known(self._heads)
            if request is not None:
                self._at = IDLE
                if not (self._again and self._refuse_again(request)):
                    self._poll(request)
            elif not self._read_one(reader):
                break
            used += 1
        else:
            self._ask_for_turn()
        if self._draining and not self._waits:
            # The kernel may have more of a long row. Who sends one request after the other has not.
            self._draining = self._drained > 1
            self._drained = 0
        self._regulate()
        self._close_if_done()
        return used

    def _read_one(self, reader: MessageReader) -> bool:
        """Handle the next request, or look at a piece of it; False if nothing is to be done."""
        try:
            message = reader.next_message()
        except GuestProblem as problem:
            self._take_token()  # what is no request counts as one
            self._refuse(problem, close=True)
            return False
        if message is not None:
            self._at = IDLE
            self._handle(message)
        elif reader.in_chunks and self._retry_s():
            # To find its end would cost more than all else: it is not looked for.
            self._refuse(problems.too_many_requests(math.ceil(self._retry_s())), close=True)
            return False
        elif not reader.unseen:
            self._wait_for_more(reader)
            return False
        return True

    def _take_token(self) -> None:
        if self._guest is not None:
            self._guest.bucket.take(self._time_s())

    def _retry_s(self) -> float:
        return 0.0 if self._guest is None else self._guest.bucket.retry_s(self._time_s())

    def _refuse_late(self) -> int:
        """Write the 429 whose time has come; what was sent behind it is answered with it."""
        if self._refused is None:
            return 0
        until_s, request = self._refused
        self._refused = self._waits_until = None
        self._draining = True
        self._drained = 1
        now_s = self._since_s = self._time_s()
        self._throttle(max(1, math.ceil(until_s - now_s)), request)
        return 1

    def _stop_waiting(self) -> None:
        """Want no turn any more."""
        if not self._waits:
            return
        self._waits = False
        self._refused = None
        if self._waits_until is not None:
            self._waits_until.cancel()
            self._waits_until = None
        self._endpoint.turns.leave(self, self._guest)

    def _close_if_done(self) -> None:
        """Close once all that a client sent before it closed its side is answered."""
        if self._last and self._at == IDLE and self._reader is None and not self._waits:
            self._close()

    def _wait_for_more(self, reader: MessageReader) -> None:
        if not reader.begun:
            self._at = IDLE
            self._reader = None  # most requests come from the cache: idle ones hold no buffer
            if reader.blank_bytes:
                self._count_blank(reader.blank_bytes)
            return
        at = BODY if reader.in_body else HEAD
        if self._at != at:
            self._at = at
            self._since_s = self._time_s()
        if reader.take_continue():
            self._transport.write(answers.CONTINUE)

    def _count_blank(self, blank_bytes: int) -> None:
        """Empty lines and no request: they add up until a request comes."""
        if self._blank_since_s != self._since_s:
            self._blank_since_s = self._since_s
            self._blank_bytes = 0
        self._blank_bytes += blank_bytes
        limit_bytes = self._endpoint.limits.blank_bytes
        if self._blank_bytes > limit_bytes:
            self._refuse(problems.blank_lines(limit_bytes), close=True)

    def _regulate(self) -> None:
        """Read only while there is room for what comes, and nothing here waits for its turn."""
        pipelined = self._at in (BUSY, PARKED) and self._reader is not None
        full = pipelined and self._unread_bytes() > self._endpoint.limits.pipelined_bytes
        pause = self._writing_since_s is not None or full or self._waits
        if pause == self._reading_paused or self._transport.is_closing():
            return
        self._reading_paused = pause
        if pause:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _unread_bytes(self) -> int:
        return 0 if self._reader is None else self._reader.unread_bytes

    # -- bytes out -----------------------------------------------------------------------------

    def _write_document(self, request: Request, document: Document) -> None:
        self._endpoint.counters.polls_200 += 1
        self._dress(document)
        self._send(document.answer, close=self._closes(request))

    def _write_unchanged(self, request: Request, document: Document) -> None:
        self._endpoint.counters.polls_304 += 1
        self._dress(document)
        self._send(document.unchanged, close=self._closes(request))

    def _dress(self, document: Document) -> None:
        dates = self._endpoint.dates
        dates.now_ms()
        if document.date is not dates.line:
            document.dress(dates.line)

    def _send(self, answer: bytes, *, close: bool) -> None:
        if not close:
            self._transport.write(answer)
            return
        self._transport.write(answers.closing(answer))
        self._close()

    def _answer(
        self,
        status: int,
        request: Request,
        *,
        content_type: bytes = answers.JSON,
        body: bytes = b"",
    ) -> None:
        endpoint = self._endpoint
        endpoint.counters.others[status] += 1
        endpoint.dates.now_ms()
        close = self._closes(request)
        self._transport.write(
            answers.plain(
                status,
                date=endpoint.dates.line,
                content_type=content_type,
                body=body,
                close=close,
            )
        )
        if close:
            self._close()

    def _refuse_rate(self, retry_s: float, request: Request) -> None:
        """429, at once if it is one of the first of this second, else when it has waited."""
        guest = self._guest
        if self._reader is None:
            self._draining = False  # it came alone
        most = REFUSALS_PER_S if self._draining else REFUSALS_AT_ONCE
        if guest is None or guest.refusals.may_write(self._since_s, most):
            self._drained += 1
            self._throttle(math.ceil(retry_s), request)
            return
        self._draining = False
        self._refused = (self._since_s + retry_s, request)
        self._waits = True
        self._waits_until = asyncio.get_running_loop().call_later(
            REFUSAL_WAITS_S, self._endpoint.turns.ask, self, guest
        )
        self._regulate()

    def _throttle(self, retry_s: int, request: Request) -> None:
        if request.without_body or self._closes(request):
            self._refuse(problems.too_many_requests(retry_s), request)
            return
        endpoint = self._endpoint
        endpoint.counters.throttled += 1
        dates = endpoint.dates
        dates.now_ms()
        self._again = endpoint.throttling.answer(retry_s, dates.line)
        self._transport.write(self._again)

    def _refuse_again(self, request: Request) -> bool:
        """Write the same 429 again: in one turn no time passes, so no token has come.

        False if this one has to be looked at.
        """
        guest = self._guest
        if request.close or self._last or not self._draining or guest is None:
            return False
        if not guest.refusals.may_write(self._since_s, REFUSALS_PER_S):
            return False
        self._drained += 1
        self._endpoint.counters.throttled += 1
        self._transport.write(self._again)
        return True

    def _refuse(
        self, problem: GuestProblem, request: Request | None = None, *, close: bool = False
    ) -> None:
        """Answer with a problem. Without a request the client may still be sending: linger."""
        endpoint = self._endpoint
        endpoint.counters.others[problem.status] += 1
        endpoint.counters.refusals[problem.reason] += 1
        endpoint.dates.now_ms()
        close = close or (request is not None and self._closes(request))
        answer = answers.refusal(
            problem,
            date=endpoint.dates.line,
            close=close,
            without_body=request is not None and request.without_body,
        )
        self._transport.write(answer)
        if close and request is None:
            self._linger()
        elif close:
            self._close()

    def _closes(self, request: Request) -> bool:
        """Whether the answer to this request is the last one."""
        return request.close or self._last_answer or (self._last and not self._unread_bytes())

    def _linger(self) -> None:
        """Say that we are done and let the client read it before the connection goes.

        Closing with unread bytes would reset the connection, and the client would never see why.
        """
        self._stop_waiting()
        self._at = LINGERING
        self._since_s = self._time_s()
        self._drop_reader()
        if self._transport.can_write_eof() and not self._last:
            self._transport.write_eof()
        else:
            self._transport.close()

    def _drop_reader(self) -> None:
        if self._reader is not None:
            self._reader.forget()
            self._reader = None

    def _close(self) -> None:
        if self._at == PARKED:
            self._unpark()
        self._stop_waiting()
        self._at = CLOSING
        self._since_s = self._time_s()
        self._drop_reader()
        self._transport.close()
