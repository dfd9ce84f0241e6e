"""What all pages of the console share: the fleet, its summary, who may do what, the templates."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from forewarn.api.access import access_of
from forewarn.api.console.gate import session_of
from forewarn.api.console.mount import ConsoleSetup, TokenAccess
from forewarn.api.console.rendering import Pages
from forewarn.api.console.view_models import inbox
from forewarn.api.console.view_models.notice_week import NoticeLedger, read_given, read_week
from forewarn.api.console.view_models.values import ConsentNeeded, Offers
from forewarn.api.doorbell import Doorbell
from forewarn.api.route_table import RouteSpec
from forewarn.control.control import Control
from forewarn.control.fleet_summary import FleetSummary
from forewarn.control.metrics import ControlMetrics
from forewarn.core.access import Access, Right, not_yours
from forewarn.core.errors import TokenEnded
from forewarn.core.tokens import refuse_ended

Handler = Callable[[Request], Awaitable[Response]]


class Tab(Struct, frozen=True):
    """An entry of the menu."""

    path: str
    word: str
    mark: str


TABS = (
    Tab("/console/", "Now", "now"),
    Tab("/console/fleet", "Fleet", "fleet"),
    Tab("/console/timeline", "Timeline", "timeline"),
    Tab("/console/inbox", "Inbox", "inbox"),
    Tab("/console/journal", "Journal", "journal"),
    Tab("/console/access", "Access", "access"),
)


class More(Protocol):
    """What a service has on its pages beside what all have (`emulator.console`)."""

    tabs: Sequence[Tab]  # for those who may order anything
    packages: Mapping[str, str]  # of its templates, by their folder
    bar: str  # a template above every page; empty: none

    def routes(self) -> Sequence[Route]: ...

    async def shown(self) -> Mapping[str, object]:
        """What its bar is made of."""
        ...

    @property
    def speed(self) -> int | None:
        """How fast its clock runs; None for the real one."""
        ...


class Nothing:
    """No more than all have."""

    tabs: Sequence[Tab] = ()
    packages: Mapping[str, str] = {}
    bar = ""
    speed: int | None = None

    def routes(self) -> Sequence[Route]:
        return ()

    async def shown(self) -> Mapping[str, object]:
        return {}


class Desk:
    """Made with the first request; belongs to the event loop."""

    def __init__(
        self,
        *,
        control: Control,
        setup: ConsoleSetup,
        specs: Sequence[RouteSpec],
        measures: ControlMetrics,
        doorbell: Doorbell,
        version: str,
        token_access: TokenAccess,
    ) -> None:
        self.control = control
        self.setup = setup
        self.measures = measures
        self.doorbell = doorbell
        self.version = version
        self.token_access = token_access
        self.specs = {spec.name: spec for spec in specs}
        self._needed = {
            spec.name: ConsentNeeded(spec.right, spec.by_scope)
            for spec in specs
            if spec.method == "POST"
        }
        setup.sessions.ask_whether(self.stands)
        self.summary = FleetSummary(control.fleet)
        self.ledger = NoticeLedger()
        control.fleet.on_publish(self.summary.committed)
        control.fleet.on_publish(self.ledger.committed)
        self.more: More = Nothing() if setup.more is None else setup.more(self)
        self.pages = Pages(self.more.packages)
        self._loading: asyncio.Task[None] | None = None

    def offers(self, access: Access) -> Offers:
        return Offers(access, self._needed)

    def stands(self, access: Access) -> bool:
        """Whether the token that a session was opened with still lets in."""
        try:
            refuse_ended(self.control.fleet.tokens, access.principal, self.now_ms())
        except TokenEnded:
            return False
        return True

    def now_ms(self) -> int:
        return self.control.clock.now_ms()

    async def count_notice(self) -> None:
        """Have the notice of the week read, and of what has started since then."""
        if self._loading is None:
            self._loading = asyncio.create_task(self._read_week())
        pending = self.ledger.pending()
        if pending:
            self.ledger.add(await self.control.read(lambda store: read_given(store, pending)))

    async def _read_week(self) -> None:
        now_ms = self.now_ms()
        self.ledger.add(await self.control.read(lambda store: read_week(store, now_ms)))
        self.ledger.known = True
        self.doorbell.ring()

    # Answers.

    async def page(
        self,
        request: Request,
        template: str,
        *,
        tab: str,
        title: str,
        status: int = 200,
        stream: str = "",
        after: str = "",
        **values: object,
    ) -> Response:
        """A page with the menu around it. `stream` is what it follows, `after` since when."""
        session, access = session_of(request), access_of(request)
        offers = self.offers(access)
        operates = access.all_scopes and access.may(Right.OPERATE)
        text = self.pages.render(
            template,
            tab=tab,
            title=title,
            tabs=[*TABS, *(self.more.tabs if operates else ())],
            operates=operates,
            me=access,
            all_scopes=access.all_scopes,
            session=session,
            waiting=inbox.count(self.summary, offers),
            notes=session.take_notes(),
            now_ms=self.now_ms(),
            speed=self.more.speed,
            stream=stream,
            after=after,
            bar=self.more.bar,
            here=_here(request),
            more=await self.more.shown(),
            **values,
        )
        return HTMLResponse(text, status_code=status)


def scope_of_vm(desk: Desk, access: Access, vm: str) -> str:
    """The scope of a VM. Raises NotFound; to an owner Forbidden, whether it is there or not."""
    scope = desk.control.fleet.scope_of_vm.get(vm)
    if not access.all_scopes and (scope is None or not access.sees(scope)):
        raise not_yours(access, f"VM {vm}")
    return desk.control.fleet.need_scope_of_vm(vm).name


def _here(request: Request) -> str:
    """The page that is shown, for a form that leads back to it."""
    query = f"?{request.url.query}" if request.url.query else ""
    return f"{request.url.path}{query}" if request.method == "GET" else "/console/"
