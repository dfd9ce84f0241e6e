"""The gate before every route: who may pass, the answers to errors, the time of the service.

Over TCP a token lets in; by the Unix socket the kernel says who asks, and no token is looked at
(`authentication`). Any other request learns nothing but that. What passes carries its `Access`;
which right a route needs is in the route table. What a handler refuses or breaks on becomes
problem+json here, in one place; the status codes are in `wire.problems`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forewarn.api.access import ACCESS_KEY, HOLDS_KEY, ROUTE_KEY
from forewarn.api.authentication import CHALLENGE, RETRY_AFTER_S, Credentials, NotLetIn, address_of
from forewarn.api.guarded_protocol import KNOWN_KEY
from forewarn.api.refused_attempts import Attempt, RefusedAttempts, RefusedFor
from forewarn.control.metrics import ControlMetrics
from forewarn.core.access import Access
from forewarn.core.errors import Refusal, Unavailable
from forewarn.logs import Log
from forewarn.ports import Clock, StoreFailed
from forewarn.wire.instants import time_text
from forewarn.wire.problems import PROBLEM_CONTENT_TYPE, problem, problem_json, status_of

# What every answer carries: the time by the clock that decides, to count down from.
NOW_HEADER = b"forewarn-now"

_INVALID = ("WWW-Authenticate", f'{CHALLENGE}, error="invalid_token"')
_REFUSED = {401: RefusedFor.ENDED, 403: RefusedFor.MISSING_RIGHT}

log = Log(__name__)


def problem_response(
    content: dict[str, object], status: int, headers: Iterable[tuple[str, str]] = ()
) -> Response:
    """A problem as an answer."""
    return Response(
        msgspec.json.encode(content),
        status_code=status,
        headers=dict(headers),
        media_type=PROBLEM_CONTENT_TYPE,
    )


def refusal_response(refusal: Refusal | Unavailable) -> Response:
    """The answer to what a rule, or the store, refuses."""
    status = status_of(refusal)
    headers = {503: [("Retry-After", str(RETRY_AFTER_S))], 401: [_INVALID]}.get(status, [])
    return problem_response(problem_json(refusal, status), status, headers)


async def on_refusal(_: Request, error: Exception) -> Response:
    """Starlette's handler for Refusal, Unavailable and StoreFailed."""
    if isinstance(error, Refusal | Unavailable):
        return refusal_response(error)
    return refusal_response(Unavailable(str(error)))


async def on_http_exception(request: Request, error: Exception) -> Response:
    """Starlette's handler for its own 404 and 405 and for the limits of this API."""
    if not isinstance(error, HTTPException):
        raise error
    headers = tuple((error.headers or {}).items())
    path = request.url.path[:200]
    if error.status_code == 404:
        content = problem(
            "unknown-path", 404, f"There is no {path}.", "/v1/openapi.json lists every path."
        )
    elif error.status_code == 405:
        allowed = dict(headers).get("Allow", "")
        content = problem(
            "wrong-verb", 405, f"{path} does not take {request.method}.", f"It takes {allowed}."
        )
    else:
        code = {408: "request-timeout", 413: "body-too-large"}.get(error.status_code, "refused")
        content = problem(code, error.status_code, str(error.detail))
    return problem_response(content, error.status_code, headers)


# What the application is made with.
EXCEPTION_HANDLERS = {
    Refusal: on_refusal,
    Unavailable: on_refusal,
    StoreFailed: on_refusal,
    HTTPException: on_http_exception,
}


class Gate:
    """ASGI middleware: no request passes without a token or the socket, and no error leaves
    unanswered."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        credentials: Credentials,
        refused: RefusedAttempts,
        clock: Clock,
        measures: ControlMetrics,
    ) -> None:
        self._app = app
        self._credentials = credentials
        self._refused = refused
        self._clock = clock
        self._measures = measures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answered = False

        async def counted(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.start":
                answered = True
                now = (time_text(self._clock.now_ms()) or "").encode()
                message = {**message, "headers": [*message["headers"], (NOW_HEADER, now)]}
                self._count(scope, message["status"])
            await send(message)

        try:
            access = await self._credentials.access(scope)
        except NotLetIn as why:
            self._refused.note(why.attempt)
            status = why.content["status"]
            answer = problem_response(why.content, int(str(status)), why.headers)
            await answer(scope, receive, counted)
            return
        scope[ACCESS_KEY] = access
        scope[HOLDS_KEY] = partial(self._credentials.need_still, access)
        scope.get(KNOWN_KEY, _nothing)()
        try:
            await self._app(scope, receive, counted)
        except ClientDisconnect:
            return  # the caller is gone
        except Exception:
            self._measures.error()
            log.exception("request_failed", method=scope["method"], path=scope["path"])
            if answered:
                raise  # half an answer is out; the server cuts the connection
            await broken_response()(scope, receive, counted)

    def _count(self, scope: Scope, status: int) -> None:
        self._measures.answered(status)
        access: Access | None = scope.get(ACCESS_KEY)
        if access is None or status not in _REFUSED:
            return
        attempt = Attempt(
            reason=_REFUSED[status],
            address=address_of(scope),
            who=access.principal,
            what=scope.get(ROUTE_KEY, ""),
        )
        self._refused.note(attempt)


def _nothing() -> None:
    """What is told of a caller where nothing counts connections."""


def broken_response() -> Response:
    """The answer to what must not happen."""
    content = problem(
        "internal", 500, "Something broke on our side.", "The log of the service says what."
    )
    return problem_response(content, 500)
