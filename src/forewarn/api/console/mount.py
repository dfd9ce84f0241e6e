"""The way into the console: all of it that is loaded before a browser asks for the first page."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct, field
from starlette.types import ASGIApp, Receive, Scope, Send

from forewarn.api.console.sessions import Sessions
from forewarn.api.peer_credentials import PEER_KEY
from forewarn.core.access import Access, Role
from forewarn.core.principal import Principal

PATH = "/console"


def path_of(code: str) -> str:
    return f"{PATH}/enter?code={code}"


def _nothing() -> Mapping[str, int]:
    return {}


def _no_bytes() -> int:
    return 0


class ConsoleSetup(Struct, kw_only=True):
    """What the console is told by the service that it belongs to.

    `names` are those of the Host header that an operator allows beside addresses. `expiries_ms`
    says when certificates end, by what they are of; `database_bytes` how large the database is;
    `kept` is False where nothing is kept. `more` makes what else a service has on its pages
    (`desk.More`), given the desk.
    """

    sessions: Sessions = field(default_factory=Sessions)
    names: frozenset[str] = frozenset()
    expiries_ms: Callable[[], Mapping[str, int]] = _nothing
    database_bytes: Callable[[], int] = _no_bytes
    kept: bool = True
    more: Callable[[Any], Any] | None = None
    url: str = ""  # where the console is, once that is known

    def link(self, code: str) -> str:
        """Where a code is used."""
        return f"{self.url}{path_of(code)}"

    def first_link(self, by: Principal) -> str:
        """The link that a service prints when it has started: for who started it."""
        access = Access(principal=by, role=Role.ADMIN)
        return self.link(self.sessions.make_code(access, "the terminal of the service"))


class ConsoleMount:
    """ASGI middleware: what is below /console goes to the console, the rest goes on.

    Nothing of the console is loaded before its first request. The Unix socket has no console: a
    browser does not speak it.
    """

    def __init__(self, app: ASGIApp, *, make: Callable[[], Awaitable[ASGIApp]]) -> None:
        self._app = app
        self._make = make
        self._console: ASGIApp | None = None
        self._making: asyncio.Lock | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or PEER_KEY in scope or not _is_below(scope["path"]):
            await self._app(scope, receive, send)
            return
        console = self._console or await self._made()
        await console(scope, receive, send)

    async def _made(self) -> ASGIApp:
        """The console, made once: who asks meanwhile waits for it."""
        self._making = self._making or asyncio.Lock()
        async with self._making:
            if self._console is None:
                self._console = await self._make()
            return self._console


def _is_below(path: str) -> bool:
    return path == PATH or path.startswith(f"{PATH}/")


# What a token allows that a person shows, who asks from that address.
TokenAccess = Callable[[str, str], Access | None]
