"""Coming in and going out: a token that is pasted, a link that is good once, the way out."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from forewarn.api.access import access_of
from forewarn.api.console.browser_security import (
    cookie_header,
    is_prefetch,
    refuse_foreign_page,
    session_of,
)
from forewarn.api.console.order_pages import FORM_BYTES_MAX, read_form
from forewarn.api.console.page_context import Desk
from forewarn.api.console.page_routes import PageRoute
from forewarn.api.console.sessions import CODE_S, loop_s
from forewarn.api.requests import read_body
from forewarn.core.access import Role
from forewarn.core.errors import Forbidden, Invalid, Refusal
from forewarn.wire.problems import status_of

FAILURES_MAX = 10  # of one address in a minute; then it waits
FAILURES_FORGOTTEN_S = 60.0
ADDRESSES_KEPT_MAX = 1_000
TOKEN_CHARS_MAX = 4_096


class TokenRefused(Forbidden):
    """The token lets no person in."""


class TooManyAttempts(Forbidden):
    """Too many tokens of one address were wrong."""


class Attempts:
    """Tokens that were wrong, by address."""

    def __init__(self, now_s: Callable[[], float] = loop_s) -> None:
        self._now_s = now_s
        self._failed: OrderedDict[str, list[float]] = OrderedDict()

    def refuse(self, address: str) -> None:
        """Raises TooManyAttempts."""
        if len(self._recent(address)) >= FAILURES_MAX:
            raise TooManyAttempts(
                f"{FAILURES_MAX} tokens from your address were wrong.", "Try again in a minute."
            )

    def failed(self, address: str) -> None:
        self._failed[address] = [*self._recent(address), self._now_s()]
        self._failed.move_to_end(address)
        while len(self._failed) > ADDRESSES_KEPT_MAX:
            self._failed.popitem(last=False)

    def _recent(self, address: str) -> list[float]:
        since_s = self._now_s() - FAILURES_FORGOTTEN_S
        return [at_s for at_s in self._failed.get(address, ()) if at_s > since_s]


class Entering:
    """The functions behind the ways in and out."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._attempts = Attempts()

    def open_routes(self) -> list[Route]:
        """Those that need no session."""
        return [
            Route("/console/login", self.ask, methods=["GET"]),
            Route("/console/login", self.login, methods=["POST"]),
            Route("/console/enter", self.enter, methods=["GET"]),
        ]

    def routes(self) -> list[PageRoute]:
        end = "/console/sessions/{number:int}/end"
        return [
            PageRoute("/console/logout", self.logout, by_scope=True, methods=["POST"]),
            PageRoute(end, self.end, by_scope=True, methods=["POST"]),
        ]

    async def ask(self, request: Request) -> Response:
        return self.login_page(to=_own_path(request.query_params.get("to", "")))

    def login_page(self, *, to: str = "", refusal: Refusal | None = None) -> Response:
        text = self._desk.pages.render(
            "login.html",
            title="Log in",
            to=to,
            refusal=refusal,
            code_s=int(CODE_S),
            stream="",
            after="",
            speed=None,
            now_ms=self._desk.now_ms(),
        )
        return HTMLResponse(text, status_code=200 if refusal is None else status_of(refusal))

    async def login(self, request: Request) -> Response:
        """Begin a session with a token that was pasted."""
        refuse_foreign_page(request.scope)
        body = await read_body(request, bytes_max=FORM_BYTES_MAX)
        said = dict(parse_qsl(body.decode("latin-1"), max_num_fields=8))
        to = _own_path(said.get("to", ""))
        address = request.client.host if request.client else ""
        try:
            self._attempts.refuse(address)
            access = self._desk.token_access(
                said.get("token", "").strip()[:TOKEN_CHARS_MAX], address
            )
            if access is None:
                self._attempts.failed(address)
                raise TokenRefused(
                    "This token does not open the console.",
                    "Paste a whole token that has not expired, or use `forewarn console` on the"
                    " machine of the service.",
                )
        except Refusal as refusal:
            return self.login_page(to=to, refusal=refusal)
        secret = self._desk.setup.sessions.open(access, "a token")
        return self._entered(request, secret, to)

    async def enter(self, request: Request) -> Response:
        """Begin a session with a link that is good once."""
        if is_prefetch(request.scope):
            return Response(status_code=503, headers={"Retry-After": "1"})
        try:
            secret = self._desk.setup.sessions.enter(request.query_params.get("code", ""))
        except Refusal as refusal:
            return self.login_page(refusal=refusal)
        return self._entered(request, secret, "")

    def _entered(self, request: Request, secret: str, to: str) -> Response:
        """Go on to the console from a page of its own: a redirect from a link on another site
        would not send the cookie along.
        """
        text = self._desk.pages.render("entered.html", to=to or "/console/", title="Welcome")
        secure = request.url.scheme == "https"
        cookie = cookie_header(request.scope, secret, secure=secure)
        return HTMLResponse(text, headers={"Set-Cookie": cookie})

    async def logout(self, request: Request) -> Response:
        session = session_of(request)
        await read_form(request, session)
        self._desk.setup.sessions.end(session.number)
        gone = cookie_header(request.scope, "", secure=request.url.scheme == "https")
        return RedirectResponse("/console/login", 303, headers={"Set-Cookie": gone})

    async def end(self, request: Request) -> Response:
        """End another session: one's own, or any as an admin."""
        session, access = session_of(request), access_of(request)
        await read_form(request, session)
        number = int(request.path_params["number"])
        sessions = self._desk.setup.sessions
        found = next((one for one in sessions.all() if one.number == number), None)
        if found is None:
            raise Invalid("This session has ended already.", "Load the page again.")
        if access.role is not Role.ADMIN and found.access.principal.id != access.principal.id:
            raise Forbidden("This is the session of another person.", "An admin can end it.")
        sessions.end(number)
        session.note(f"Session {number} is ended.")
        return RedirectResponse("/console/access", 303)


def _own_path(text: str) -> str:
    """A path of the console to go on to; empty for anything else."""
    own = text.startswith("/console/") and "//" not in text and "\\" not in text
    return text if own and text.isprintable() and len(text) < 1_000 else ""
