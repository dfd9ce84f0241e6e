"""The operator API as an ASGI application: the route table behind the gate."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Route
from starlette.types import ASGIApp

from forewarn.api import openapi
from forewarn.api.access import AccessFor, needing
from forewarn.api.authentication import Credentials
from forewarn.api.console.mount import ConsoleMount, ConsoleSetup
from forewarn.api.console_routes import ConsoleRoutes
from forewarn.api.doorbell import Doorbell
from forewarn.api.feed_routes import FeedRoutes
from forewarn.api.operator_routes import OperatorRoutes
from forewarn.api.peer_credentials import of_this_process
from forewarn.api.refused_attempts import RefusedAttempts
from forewarn.api.request_gate import EXCEPTION_HANDLERS, Gate
from forewarn.api.route_table import RouteSpec, table
from forewarn.api.token_routes import TokenRoutes
from forewarn.api.webhook_routes import WebhookRoutes, WebhookSetup
from forewarn.control.control import Control
from forewarn.control.feed import Feed
from forewarn.control.inventory.apply_runner import Inventories
from forewarn.control.metrics import ControlMetrics
from forewarn.core.access import SocketGroup
from forewarn.core.principal import OPERATOR, Principal


def create_app(
    control: Control,
    *,
    token: str,
    measures: ControlMetrics,
    doorbell: Doorbell | None = None,
    feed: Feed | None = None,
    scratch: Path | None = None,
    more: Sequence[RouteSpec] = (),
    inventories: Inventories | None = None,
    kept_files: Callable[[], Mapping[str, bytes]] | None = None,
    by: Principal = OPERATOR,
    socket_groups: Iterable[SocketGroup] = (),
    socket_by: Principal | None = None,
    issuers: AccessFor | None = None,
    console: ConsoleSetup | None = None,
    webhooks: WebhookSetup | None = None,
) -> Starlette:
    """The operator API. Every path wants a token, /metrics and /v1/health too, but by the socket.

    `token` is the operator's, and `by` who has it. `issuers` say what the bearers of their tokens
    may do, `socket_groups` what members of local groups may do by the socket. Who comes by it is
    called as on this machine, or is `socket_by`. Ring `doorbell` after every commit and close it
    before the server stops; without rings those who follow the journal are told a second later.
    `feed` is what its readers follow, made here unless others have one of this control already. A
    backup is copied to a private folder in `scratch` (the system's folder for temporary files by
    default) before it is sent. `more` are routes that others do not have. `inventories` applies
    what is posted; without it each is one commit, and nothing is known of addresses that nothing
    can listen on. `kept_files` are secrets that a backup holds too; then the socket alone gives it.
    `console` is what its pages are told, `webhooks` who sends, and where to.
    """
    version, setup = version_of("forewarn"), console or ConsoleSetup()
    doorbell, feed = doorbell or Doorbell(), feed or Feed(control)
    routes = OperatorRoutes(
        control,
        measures=measures,
        doorbell=doorbell,
        scratch=scratch,
        version=version,
        inventories=inventories,
        kept_files=kept_files,
    )
    specs = [*_routes(routes, control, doorbell, feed, setup=setup, webhooks=webhooks), *more]
    refused = RefusedAttempts(control, measures)
    credentials = Credentials(
        control,
        refused,
        token=token,
        by=by,
        admission=of_this_process(socket_groups),
        socket_by=socket_by,
        issuers=issuers,
    )
    setup.sessions.stands = credentials.stands
    routes.describe(openapi.document(specs, version=version))
    known = {"control": control, "measures": measures, "doorbell": doorbell, "version": version}
    pages = partial(_console, setup=setup, specs=specs, token_access=credentials.shown, **known)
    gate = partial(Gate, credentials=credentials, refused=refused, clock=control.clock)
    mount = Middleware(partial(ConsoleMount, make=pages))
    return _starlette(specs, [mount, Middleware(gate, measures=measures)])


def _routes(
    routes: OperatorRoutes,
    control: Control,
    doorbell: Doorbell,
    feed: Feed,
    *,
    setup: ConsoleSetup,
    webhooks: WebhookSetup | None,
) -> list[RouteSpec]:
    """What every service has."""
    doorbell.on_close(feed.close)
    return [
        *table(routes),
        *FeedRoutes(feed).table(),
        *ConsoleRoutes(setup).table(),
        *TokenRoutes(control, routes).table(),
        *WebhookRoutes(control, routes, feed, webhooks or WebhookSetup()).table(),
    ]


def _starlette(specs: Sequence[RouteSpec], middleware: Sequence[Middleware]) -> Starlette:
    app = Starlette(
        routes=[
            Route(spec.path, needing(spec), methods=[spec.method], name=spec.name) for spec in specs
        ],
        middleware=list(middleware),
        exception_handlers=EXCEPTION_HANDLERS,
    )
    app.router.redirect_slashes = False
    return app


async def _console(**what: Any) -> ASGIApp:
    """The console. With its first request: it loads what no program needs that asks the API.

    It is loaded on another thread, so that guests do not wait for it.
    """
    console = await asyncio.to_thread(import_module, "forewarn.api.console.app")
    made: ASGIApp = await console.make_console(**what)
    return made
