"""The link as an ASGI application: who asks, in which version, and what is answered in words.

Every answer carries the wall clock of control. A caller without a certificate of a member learns
the authority's certificate, may join, and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Coroutine, Iterable, Mapping
from functools import partial
from typing import TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forewarn.api.link.at_once import AtOnce
from forewarn.api.link.metrics import LinkMetrics
from forewarn.api.link.protocol import CERTIFICATE_KEY
from forewarn.api.link.routes import JOIN_BYTES_MAX, Asker, Asking, LinkRoutes
from forewarn.api.memory_budget import MIB, MemoryBudget, PacedResponse, declared_bytes
from forewarn.api.request_gate import (
    EXCEPTION_HANDLERS,
    broken_response,
    on_http_exception,
    on_refusal,
)
from forewarn.api.requests import read_body
from forewarn.control.hosts.membership import Membership
from forewarn.core.errors import Invalid, NotMember, Refusal, Unavailable, UnknownQuestion
from forewarn.core.membership import Member
from forewarn.logs import Log
from forewarn.ports import Clock, StoreFailed
from forewarn.wire import link as wire

# What a larger body would keep the event loop from doing meanwhile, a thread does.
DECODED_AT_ONCE_BYTES_MAX = 256 * 1_024
BODY_TIMEOUT_S = 60.0
# What questions and answers take at once. Long ones (reports of VMs) do not take the room of short
# ones (heartbeats), nor one host that of the others.
LONG_QUESTIONS_BYTES_MAX = 192 * MIB
SHORT_QUESTIONS_BYTES_MAX = 64 * MIB
SHORT_OF_HOST_BYTES_MAX = 4 * MIB
ANSWERS_BYTES_MAX = 256 * MIB
ANSWERS_OF_HOST_BYTES_MAX = 64 * MIB
PACED_BYTES_MIN = 64 * 1_024  # shorter answers count with their connection
VERSION_CHARS_MAX = 16
NAME_CHARS_MAX = 64

log = Log(__name__)


def create_link_app(
    routes: LinkRoutes, membership: Membership, *, clock: Clock, measures: LinkMetrics
) -> ASGIApp:
    """The application behind `/link/*`; serve it with `LinkProtocol`, which says who asks."""
    names = frozenset({"authority", "join", "renew", *routes.table()})
    rooms = _Rooms(measures)
    asked = {
        f"/link/{name}": _answering(asking, membership, rooms)
        for name, asking in routes.table().items()
    }
    app = Starlette(
        routes=[
            Route("/link/authority", _authority(membership), methods=["GET"]),
            Route("/link/join", _joining(membership), methods=["POST"]),
            Route("/link/renew", _renewing(membership), methods=["POST"]),
            *(Route(path, handler, methods=["POST"]) for path, handler in asked.items()),
            Route("/link/{name}", _unknown(names), methods=["POST"]),
        ],
        exception_handlers=EXCEPTION_HANDLERS,
    )
    app.router.redirect_slashes = False
    at_once = AtOnce(routes.table(), membership, clock=clock, measures=measures)
    questions = _Questions(asked, app)
    return _Gate(questions, at_once, clock=clock, measures=measures, names=names)


Handler = Callable[[Request], Awaitable[Response]]


class _Rooms:
    """What the questions and answers of one link share."""

    def __init__(self, measures: LinkMetrics) -> None:
        self.measures = measures
        self.long = MemoryBudget(LONG_QUESTIONS_BYTES_MAX, wire.BODY_BYTES_MAX)
        self.short = MemoryBudget(SHORT_QUESTIONS_BYTES_MAX, SHORT_OF_HOST_BYTES_MAX)
        self.answers = MemoryBudget(ANSWERS_BYTES_MAX, ANSWERS_OF_HOST_BYTES_MAX)

    def of_question(self, size: int) -> MemoryBudget:
        return self.short if size <= wire.QUESTION_BYTES_MAX else self.long


Question = TypeVar("Question", bound=msgspec.Struct)


def _authority(membership: Membership) -> Handler:
    async def handler(_: Request) -> Response:
        return Response(membership.authority_pem, media_type="application/x-pem-file")

    return handler


def _joining(membership: Membership) -> Handler:
    async def handler(request: Request) -> Response:
        check_version(request)
        body = await read_body(request, bytes_max=JOIN_BYTES_MAX)
        asked = _decoded(body, wire.Join, msgspec.json.Decoder(wire.Join).decode)
        try:
            certificate = await membership.join(asked.name, asked.token, asked.request)
        except Refusal as why:
            source = request.client.host if request.client else None
            log.warning("join_refused", host=asked.name[:64], source=source, why=str(why))
            raise
        log.info("host_joined", host=asked.name)
        return _json(msgspec.json.encode(wire.Joined(certificate, membership.authority_pem)))

    return handler


def _renewing(membership: Membership) -> Handler:
    async def handler(request: Request) -> Response:
        member = _member(request, membership)
        check_version(request)
        body = await read_body(request, bytes_max=JOIN_BYTES_MAX)
        asked = _decoded(body, wire.Renew, msgspec.json.Decoder(wire.Renew).decode)
        certificate = await membership.renew(member, asked.request)
        _member(request, membership)
        return _json(msgspec.json.encode(wire.Joined(certificate, membership.authority_pem)))

    return handler


def _answering(asking: Asking, membership: Membership, rooms: _Rooms) -> Handler:
    if asking.bytes_max > wire.QUESTION_BYTES_MAX:
        return _one_at_a_time(_reading(asking, membership, rooms), membership)
    return _reading(asking, membership, rooms)


def _one_at_a_time(handler: Handler, membership: Membership) -> Handler:
    """One long question of each host at once: what they keep in memory has a limit then."""
    asking_now: set[str] = set()

    async def handled(request: Request) -> Response:
        name = _member(request, membership).name
        if name in asking_now:
            raise Unavailable(f"Host {name} is in the middle of such a question already.")
        asking_now.add(name)
        try:
            return await handler(request)
        finally:
            asking_now.discard(name)

    return handled


def _reading(asking: Asking, membership: Membership, rooms: _Rooms) -> Handler:
    async def handler(request: Request) -> Response:
        member = _member(request, membership)
        rooms.measures.spoke(member.name, request.headers.get(wire.VERSION_HEADER, ""))
        asker = Asker(member.name, partial(membership.need_still, member))
        size = declared_bytes(request, bytes_max=asking.bytes_max)
        with rooms.of_question(size).taking(f"host {member.name}", size):
            try:
                check_version(request)
                question = await _question(request, asking)
                answer = None if asking.at_once is None else asking.at_once(asker, question)
                if answer is None:
                    answer = await _unless_gone(request, asking.answer(asker, question))
            except Invalid as why:
                if asking.not_understood is not None:
                    await asking.not_understood(asker, why)
                raise
        _member(request, membership)  # a poll may have waited; who is out by now is told nothing
        content = msgspec.json.encode(answer)
        if len(content) <= PACED_BYTES_MIN:
            return _json(content)
        return PacedResponse(
            content,
            room=rooms.answers,
            caller=f"host {member.name}",
            media_type="application/json",
        )

    return handler


async def _question(request: Request, asking: Asking) -> msgspec.Struct:
    body = await read_body(request, bytes_max=asking.bytes_max, timeout_s=BODY_TIMEOUT_S)
    if len(body) > DECODED_AT_ONCE_BYTES_MAX:
        read = asking.read_long or asking.read
        return await asyncio.to_thread(_decoded, body, asking.kind, read)
    return _decoded(body, asking.kind, asking.read)


async def _unless_gone(
    request: Request, answering: Coroutine[object, object, msgspec.Struct]
) -> msgspec.Struct:
    """The answer, unless who asked has hung up; then nothing waits in its name any more.

    What was submitted to the writer is carried out all the same.
    """
    answer = asyncio.ensure_future(answering)
    gone = asyncio.ensure_future(request.receive())  # the body was read: what comes is the end
    try:
        await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise ClientDisconnect
        return answer.result()
    finally:
        for one in (answer, gone):
            one.cancel()


def _member(request: Request, membership: Membership) -> Member:
    certificate: bytes | None = request.scope.get(CERTIFICATE_KEY)
    if certificate is None:
        raise NotMember(
            "Hosts show a certificate; none was shown.",
            "Join first: `forewarn host invite NAME` on the control machine prints the command.",
        )
    return membership.need_member(certificate)


def check_version(request: Request) -> None:
    """Raises Invalid unless the caller speaks the same major version of the link."""
    given = request.headers.get(wire.VERSION_HEADER, "")
    if wire.same_major(given):
        return
    major, ours = given.partition(".")[0], wire.LINK_VERSION.partition(".")[0]
    newer = major.isdecimal() and len(major) < VERSION_CHARS_MAX and int(major) > int(ours)
    shown = ascii(given[:VERSION_CHARS_MAX]) if given else "no version"
    raise Invalid(
        f"The host speaks {shown} of the link, this control version {wire.LINK_VERSION}.",
        "Upgrade control first, then its hosts."
        if newer
        else "Upgrade the host to the version of control.",
    )


def _unknown(names: Iterable[str]) -> Handler:
    """What a newer host asks, and this control does not know."""
    known = ", ".join(sorted(names))

    async def handler(request: Request) -> Response:
        name = str(request.path_params["name"])[:NAME_CHARS_MAX]
        if name == "authority":
            raise Invalid("The authority is not asked for with POST.", "GET /link/authority.")
        raise UnknownQuestion(
            f"This control does not know the question {name!r} (it speaks version"
            f" {wire.LINK_VERSION} of the link).",
            f"It knows {known}. Upgrade control first, then its hosts.",
        )

    return handler


def _decoded(body: bytes, kind: type[Question], read: Callable[[bytes], Question]) -> Question:
    try:
        return read(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Invalid(
            f"The question was not understood: {str(error)[:300]}.",
            f"Accepted: a JSON object with {_fields(kind)} (see docs/link.md).",
        ) from None


def _fields(kind: type[msgspec.Struct]) -> str:
    """The fields of a question in words, those first that must be there."""
    fields = msgspec.structs.fields(kind)
    needed = [field.encode_name for field in fields if field.required]
    others = [field.encode_name for field in fields if not field.required]
    optional = f"optional: {', '.join(others)}" if others else ""
    return "; ".join(words for words in (", ".join(needed), optional) if words)


def _json(content: bytes) -> Response:
    return Response(content, media_type="application/json")


class _Questions:
    """ASGI application: what members ask all day is found by its path, everything else by `others`.

    Hundreds of hosts say their turn every few seconds, and most of them say nothing: finding out
    who answers must not cost more than the answer.
    """

    def __init__(self, asked: Mapping[str, Handler], others: ASGIApp) -> None:
        self._asked = asked
        self._others = others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        handler = self._asked.get(scope.get("path", ""))
        if handler is None or scope.get("method") != "POST":
            await self._others(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            response = await handler(request)
        except (Refusal, Unavailable, StoreFailed) as why:
            response = await on_refusal(request, why)
        except HTTPException as why:
            response = await on_http_exception(request, why)
        await response(scope, receive, send)


class _Gate:
    """ASGI middleware: the time on every answer, and no error left unanswered.

    `at_once` is for the protocol, which asks it first.
    """

    def __init__(
        self,
        app: ASGIApp,
        at_once: AtOnce,
        *,
        clock: Clock,
        measures: LinkMetrics,
        names: Container[str],
    ) -> None:
        self._app = app
        self.at_once = at_once
        self._clock = clock
        self._measures = measures
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answered = False
        name = str(scope["path"]).removeprefix("/link/")
        question = name if name in self._names else "other"

        async def timed(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.start":
                answered = True
                self._measures.answered(question, message["status"])
                now = (wire.NOW_HEADER.encode(), str(self._clock.now_ms()).encode())
                version = (wire.VERSION_HEADER.encode(), wire.LINK_VERSION.encode())
                message = {**message, "headers": [*message["headers"], now, version]}
            await send(message)

        try:
            await self._app(scope, receive, timed)
        except ClientDisconnect:
            return  # the caller has gone
        except Exception:
            log.exception("link_request_failed", path=scope["path"])
            if answered:
                raise  # half an answer is out; the server cuts the connection
            await broken_response()(scope, receive, timed)
