"""The gate before every route: who may pass, the answers to errors, the time of the service.

Over TCP the operator's token lets in; by the Unix socket the kernel says who asks, and no token is
looked at. Any other request learns nothing but that. What a handler refuses or breaks
on becomes problem+json here, in one place; the status codes are in `wire.problems`.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forewarn.api.guarded_protocol import KNOWN_KEY
from forewarn.api.peer_credentials import PEER_KEY, Admission, Peer, of_this_process
from forewarn.control.metrics import ControlMetrics
from forewarn.core.errors import Refusal, Unavailable
from forewarn.logs import Log
from forewarn.ports import Clock, StoreFailed
from forewarn.wire.instants import time_text
from forewarn.wire.problems import PROBLEM_CONTENT_TYPE, problem, problem_json, status_of

RETRY_AFTER_S = 5
# What every answer carries: the time by the clock that decides, to count down from.
NOW_HEADER = b"forewarn-now"

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
    headers = [("Retry-After", str(RETRY_AFTER_S))] if status == 503 else []
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
    """ASGI middleware: no request passes without the token or the socket, and no error leaves
    unanswered."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str,
        clock: Clock,
        measures: ControlMetrics,
        admission: Admission | None = None,
    ) -> None:
        if not token:
            raise ValueError("the operator API needs a token")
        self._app = app
        self._token = token.encode()
        self._admission = admission or of_this_process()
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
                self._measures.answered(message["status"])
            await send(message)

        refused = self._refused(scope)
        if refused is not None:
            await refused(scope, receive, counted)
            return
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

    def _refused(self, scope: Scope) -> Response | None:
        peer: Peer | None = scope.get(PEER_KEY)
        if peer is None:
            return None if self._has_token(scope) else _no_token()
        return None if self._admission.admits(peer) else _not_admitted(peer, self._admission)

    def _has_token(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(given) != 1:
            return False
        scheme, _, token = given[0].partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._token)


def _nothing() -> None:
    """What is told of a caller where nothing counts connections."""


def _no_token() -> Response:
    content = problem(
        "no-token",
        401,
        "The operator's token is missing or wrong.",
        "Send `Authorization: Bearer TOKEN`; the token is in the file operator.token of the"
        " service's data folder. On the same machine its Unix socket needs none.",
    )
    return problem_response(content, 401, [("WWW-Authenticate", 'Bearer realm="forewarn"')])


def _not_admitted(peer: Peer, admission: Admission) -> Response:
    content = problem(
        "not-admitted",
        403,
        f"The user with uid {peer.uid} may not use the operator's socket.",
        f"Ask as root, as the user who runs the service (uid {admission.uid}), or as a member of"
        f" its group (gid {admission.gid}).",
    )
    return problem_response(content, 403)


def broken_response() -> Response:
    """The answer to what must not happen."""
    content = problem(
        "internal", 500, "Something broke on our side.", "The log of the service says what."
    )
    return problem_response(content, 500)
