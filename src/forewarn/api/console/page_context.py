"""What all pages of the console share: the fleet, its summary, who may do what, the templates."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from forewarn.api.access import access_of
from forewarn.api.console.browser_security import session_of
from forewarn.api.console.mount import ConsoleSetup, TokenAccess
from forewarn.api.console.now_page_cache import EndedOfLate, NewestLines
from forewarn.api.console.page_routes import PageRoute
from forewarn.api.console.rendering import Pages
from forewarn.api.console.view_models import inbox
from forewarn.api.console.view_models.notice_week import NoticeLedger, read_given, read_week
from forewarn.api.console.view_models.values import ConsentNeeded, Offers
from forewarn.api.doorbell import Doorbell
from forewarn.api.route_table import RouteSpec
from forewarn.control.control import Control
from forewarn.control.fleet_reader import FleetLook
from forewarn.control.fleet_summary import FleetSummary
from forewarn.control.metrics import ControlMetrics
from forewarn.control.slices import in_slices
from forewarn.core.access import Access, Right, not_yours
from forewarn.logs import Log
from forewarn.ports import StoreFailed

log = Log(__name__)

TAIL_LINES = 10  # of the journal, on the Now page


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

    def routes(self) -> Sequence[PageRoute]: ...

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

    def routes(self) -> Sequence[PageRoute]:
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
        self.summary = FleetSummary(control.fleet, at_once=False)
        self.ledger = NoticeLedger()
        self.newest = NewestLines(control, TAIL_LINES)
        self.ended = EndedOfLate(control, told=lambda: self._tell("work"))
        self._on_news: Callable[[str], None] | None = None
        self._look: FleetLook | None = None
        for reader in (self.summary, self.ledger, self.newest, self.ended):
            control.fleet.on_publish(reader.committed)
        self.more: More = Nothing() if setup.more is None else setup.more(self)
        self.pages = Pages(self.more.packages)
        self._reading: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Take the fleet over and load the templates, while others have their turns."""
        await in_slices(self.summary.begin())
        await asyncio.to_thread(self.pages.load)

    def on_news(self, tell: Callable[[str], None]) -> None:
        """Call `tell` with the name of a block of which more is known, without a commit."""
        self._on_news = tell

    def _tell(self, block: str) -> None:
        if self._on_news is not None:
            self._on_news(block)
        self.doorbell.ring()

    def look(self) -> FleetLook:
        """The fleet as it is now: one look for all that is asked in one turn of the event loop."""
        if self._look is None:
            self._look = self.control.fleet.look()
            asyncio.get_running_loop().call_soon(self._forget_look)
        return self._look

    def _forget_look(self) -> None:
        self._look = None

    def offers(self, access: Access) -> Offers:
        return Offers(access, self._needed)

    def now_ms(self) -> int:
        return self.control.clock.now_ms()

    def count_notice(self) -> None:
        """Have the notice of the week read, and of what has started since then. Waits for none."""
        if self._reading is None and (not self.ledger.known or self.ledger.pending()):
            self._reading = asyncio.create_task(self._read_notice())

    async def _read_notice(self) -> None:
        try:
            if not self.ledger.known:
                now_ms = self.now_ms()
                self.ledger.add(await self.control.read(lambda store: read_week(store, now_ms)))
                self.ledger.known = True
            pending = self.ledger.pending()
            self.ledger.add(await self.control.read(lambda store: read_given(store, pending)))
        except StoreFailed as why:
            log.warning("notice_not_read", why=str(why))
            return
        finally:
            self._reading = None
        self._tell("notice")

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
            bar=self.more.bar if access.all_scopes else "",
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
