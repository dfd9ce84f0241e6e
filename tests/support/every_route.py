"""Every route that any service has, and every route of the console. No test lives here."""

from __future__ import annotations

from typing import Any

from forewarn.api.adopt_routes import AdoptRoutes
from forewarn.api.console.forms import FORMS
from forewarn.api.console.login import Entering
from forewarn.api.console.mount import ConsoleSetup
from forewarn.api.console.order_pages import Ordering
from forewarn.api.console.page_context import Desk
from forewarn.api.console.page_routes import PageRoute
from forewarn.api.console.view_pages import Looking
from forewarn.api.console_routes import ConsoleRoutes
from forewarn.api.doorbell import Doorbell
from forewarn.api.feed_routes import FeedRoutes
from forewarn.api.member_routes import MemberRoutes
from forewarn.api.operator_routes import OperatorRoutes
from forewarn.api.route_table import RouteSpec, table
from forewarn.api.token_routes import TokenRoutes
from forewarn.control.metrics import ControlMetrics
from forewarn.core.access import RIGHTS, Role
from forewarn.emulator.clock_routes import clock_routes
from forewarn.emulator.console import EmulatorOnPages
from forewarn.emulator.faults.routes import fault_routes
from forewarn.emulator.scenarios.routes import scenario_routes


# The tables only name what belongs to a service; nothing of it is asked while they are made.
class _NotAsked:
    """Stands for all that belongs to a service."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *_: object, **__: object) -> Any:
        return self


NOT_ASKED: Any = _NotAsked()


def of_every_service() -> list[RouteSpec]:
    routes = OperatorRoutes(
        NOT_ASKED,
        measures=ControlMetrics(),
        doorbell=Doorbell(),
        scratch=None,
        version="test",
        inventories=NOT_ASKED,
    )
    return [
        *table(routes),
        *FeedRoutes(NOT_ASKED).table(),
        *ConsoleRoutes(ConsoleSetup()).table(),
        *TokenRoutes(NOT_ASKED, routes).table(),
    ]


def of_a_control() -> list[RouteSpec]:
    members = MemberRoutes(NOT_ASKED, NOT_ASKED, command=str)
    return [*members.table(), *AdoptRoutes(NOT_ASKED, NOT_ASKED).table()]


def of_an_emulator() -> list[RouteSpec]:
    return [
        *clock_routes(NOT_ASKED, NOT_ASKED),
        *fault_routes(NOT_ASKED),
        *scenario_routes(NOT_ASKED),
    ]


def every_spec() -> list[RouteSpec]:
    return [*of_every_service(), *of_a_control(), *of_an_emulator()]


def pages() -> list[PageRoute]:
    """Those of the console that need a session, but its stream."""
    desk: Desk = NOT_ASKED
    on_pages = EmulatorOnPages(
        desk,
        pacer=NOT_ASKED,
        clock=NOT_ASKED,
        faults=NOT_ASKED,
        scenarios=NOT_ASKED,
        run_at=NOT_ASKED,
        urls=NOT_ASKED,
    )
    return [
        *Looking(desk, NOT_ASKED).routes(),
        *Ordering(desk).routes(),
        *Entering(NOT_ASKED).routes(),
        *on_pages.routes(),
    ]


def forms() -> list[str]:
    """The orders that the console gives, each by the route of that name."""
    return list(FORMS)


def may(spec: RouteSpec | PageRoute, role: Role) -> str:
    """What the table of the page says: yes, in own scopes, or no."""
    if spec.right not in RIGHTS[role]:
        return "no"
    if role is not Role.OWNER:
        return "yes"
    return "own" if spec.by_scope else "no"
