"""The console as an ASGI application: its gate, its routes, its stream, its answers to errors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route, Router
from starlette.types import Message, Receive, Scope, Send

from forewarn.api.access import ACCESS_KEY
from forewarn.api.console import browser_security, rendering
from forewarn.api.console.blocks import View, view_named
from forewarn.api.console.live_updates import STREAMS_MAX, Hub, Position, read_position
from forewarn.api.console.login import Entering
from forewarn.api.console.mount import ConsoleSetup, TokenAccess
from forewarn.api.console.order_pages import Ordering
from forewarn.api.console.page_context import Desk
from forewarn.api.console.page_routes import PageRoute
from forewarn.api.console.sessions import ConsoleSession
from forewarn.api.console.view_pages import Looking
from forewarn.api.console.webhook_pages import WebhookPages
from forewarn.api.doorbell import Doorbell
from forewarn.api.guarded_protocol import KNOWN_KEY
from forewarn.api.route_table import RouteSpec
from forewarn.control.control import Control
from forewarn.control.metrics import ControlMetrics
from forewarn.core.errors import Invalid, NotFound, Refusal, Unavailable
from forewarn.logs import Log
from forewarn.ports import StoreFailed
from forewarn.wire.problems import status_of

STREAMS_OF_SESSION_MAX = 4  # a browser has six connections to one place, for all its tabs
POLL_EVERY_S = 5
CROWD_POLLS_EVERY_S = 15  # where there are as many streams as there may be
VIEW_CHARS_MAX = 2_000
ASSETS_KEPT_S = 31_536_000
SSE = "text/event-stream"

log = Log(__name__)


async def make_console(
    *,
    control: Control,
    setup: ConsoleSetup,
    specs: Sequence[RouteSpec],
    measures: ControlMetrics,
    doorbell: Doorbell,
    version: str,
    token_access: TokenAccess,
) -> ConsoleApp:
    """The console of a service: with the first request to it."""
    desk = Desk(
        control=control,
        setup=setup,
        specs=specs,
        measures=measures,
        doorbell=doorbell,
        version=version,
        token_access=token_access,
    )
    await desk.begin()
    return ConsoleApp(desk)


class ConsoleApp:
    """What is below /console. Nothing leaves it without its headers, and no error unanswered."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.hub = Hub(desk)
        desk.measures.add(self.hub)
        self._entering = Entering(desk)
        self._open = Router(
            routes=[
                *self._entering.open_routes(),
                Route("/console/assets/{mark}/{name}", self.asset),
            ],
            redirect_slashes=False,
        )
        self._open_paths = [route.path_regex for route in self._open.routes]  # type: ignore[attr-defined]
        self.routes: Sequence[PageRoute] = (
            *Looking(desk, self.hub).routes(),
            *Ordering(desk).routes(),
            *WebhookPages(desk).routes(),
            *self._entering.routes(),
            PageRoute("/console/stream", self.stream, by_scope=True),
            *desk.more.routes(),
        )
        self._router = Router(routes=self.routes, redirect_slashes=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answered = False

        async def dressed(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.start":
                answered = True
                message = browser_security.with_headers(message)
                self.desk.measures.answered(message["status"])
            await send(message)

        try:
            await self._answer(scope, receive, dressed)
        except ClientDisconnect:
            return  # the caller is gone
        except Exception as error:
            if answered:
                raise  # half an answer is out; the server cuts the connection
            response = await self._refused(Request(scope), error)
            await response(scope, receive, dressed)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self  # so that a router raises what it has no route for
        request = Request(scope, receive)
        browser_security.refuse_foreign_host(request.headers, self.desk.setup.names)
        if scope["method"] not in ("GET", "HEAD", "POST"):
            raise HTTPException(405, headers={"Allow": "GET, HEAD, POST"})
        if any(pattern.match(scope["path"]) for pattern in self._open_paths):
            await self._open(scope, receive, send)
            return
        if scope["method"] == "POST":
            browser_security.refuse_foreign_page(scope)
        secret = browser_security.read_cookie(scope)
        is_stream = scope["path"] == "/console/stream"
        session = self.desk.setup.sessions.find(secret, used=not is_stream) if secret else None
        if session is None:
            await self._no_session(request)(scope, receive, send)
            return
        scope[browser_security.SESSION_KEY] = session
        scope[ACCESS_KEY] = session.access
        scope.get(KNOWN_KEY, _nothing)()
        await self._router(scope, receive, send)

    def _no_session(self, request: Request) -> Response:
        """Ask who it is. A link on another site brings no cookie: then ask once more from here."""
        scope = request.scope
        if scope["method"] == "GET" and browser_security.comes_from_elsewhere(scope):
            path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            text = self.desk.pages.render("entered.html", to=path, title="Forewarn")
            return HTMLResponse(text)
        if scope["path"] == "/console/stream" or scope["method"] != "GET":
            text = self.desk.pages.render(
                "bare.html",
                title="Log in",
                what="Your session has ended. Nothing was done.",
                remedy="Log in again.",
            )
            return HTMLResponse(text, status_code=401)
        query = f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else ""
        to = quote(f"{scope['path']}{query}", safe="")
        return RedirectResponse(f"/console/login?to={to}", 303)

    async def _refused(self, request: Request, error: Exception) -> Response:
        """The page for what was refused, or broke."""
        status, what, remedy = _problem(error, request)
        if status == 500:
            self.desk.measures.error()
            log.error("console_failed", path=request.url.path[:200], exc_info=error)
        headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
        if status == 503:
            headers["Retry-After"] = "5"
        if (
            browser_security.SESSION_KEY in request.scope
            and request.scope["path"] != "/console/stream"
        ):
            page = await self.desk.page(
                request,
                "problem.html",
                tab="",
                title=what.rstrip("."),
                status=status,
                what=what,
                remedy=remedy,
                problem_status=status,
            )
            page.headers.update(headers)
            return page
        text = self.desk.pages.render("bare.html", title="Refused", what=what, remedy=remedy)
        return HTMLResponse(text, status_code=status, headers=headers)

    async def asset(self, request: Request) -> Response:
        name = str(request.path_params["name"])
        if name not in rendering.ASSETS:
            raise NotFound(f"There is no asset {name[:64]}.")
        current = rendering.asset_url(name) == request.url.path
        kept = f"public, max-age={ASSETS_KEPT_S}, immutable" if current else "no-store"
        media_type = rendering.MEDIA_TYPES[name.rpartition(".")[2]]
        return Response(
            rendering.asset(name), media_type=media_type, headers={"Cache-Control": kept}
        )

    # The stream.

    async def stream(self, request: Request) -> Response:
        """What changes on a page, as it does. A tab too many is told to ask now and then."""
        session = browser_security.session_of(request)
        key = request.query_params.get("on", "")
        if not key or len(key) > VIEW_CHARS_MAX:
            raise Invalid("A stream follows one view.", "`on` says which.")
        view = view_named(self.desk, session.access, key)
        told = request.headers.get("last-event-id") or request.query_params.get("after", "")
        after = read_position(told[:100])
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        if "once" in request.query_params:
            content = await self.hub.once(view, session.access, after)
            return Response(content, media_type=SSE, headers=headers)
        if session.streams >= STREAMS_OF_SESSION_MAX or self.hub.streams >= STREAMS_MAX:
            crowd = self.hub.streams >= STREAMS_MAX
            hint = poll_hint(CROWD_POLLS_EVERY_S if crowd else POLL_EVERY_S)
            return Response(hint, media_type=SSE, headers=headers)
        secret = browser_security.read_cookie(request.scope)
        messages = self._messages(session, secret, view, after)
        return StreamingResponse(messages, media_type=SSE, headers=headers)

    async def _messages(
        self, session: ConsoleSession, secret: str, view: View, after: Position
    ) -> AsyncIterator[bytes]:
        def ended() -> bool:
            return self.desk.setup.sessions.find(secret, used=False) is not session

        session.streams += 1
        try:
            async for message in self.hub.stream(view, session.access, after, ended=ended):
                yield message
        finally:
            session.streams -= 1


def poll_hint(every_s: int) -> bytes:
    """What a tab is sent that gets no stream: it asks now and then."""
    return f'event: poll\ndata: {{"every": {every_s}}}\n\n'.encode()


def _problem(error: Exception, request: Request) -> tuple[int, str, str]:
    """Status, what was refused, and what would help."""
    if isinstance(error, Refusal):
        return status_of(error), error.refused, error.accepted
    if isinstance(error, Unavailable | StoreFailed):
        return 503, "The service can keep nothing now, so nothing was done.", str(error)
    if isinstance(error, HTTPException):
        if error.status_code == 404:
            return (
                404,
                f"There is no page {request.url.path[:200]}.",
                "The menu leads to every page.",
            )
        return error.status_code, str(error.detail), ""
    return 500, "Something broke on our side.", "The log of the service says what."


def _nothing() -> None:
    """What is told of a caller where nothing counts connections."""
