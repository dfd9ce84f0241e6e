"""The operator API as an ASGI application: the route table behind the gate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version as version_of
from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Route

from forewarn.api import openapi
from forewarn.api.auth import EXCEPTION_HANDLERS, Gate
from forewarn.api.doorbell import Doorbell
from forewarn.api.operator_routes import OperatorRoutes
from forewarn.api.route_table import RouteSpec, table
from forewarn.control.control import Control
from forewarn.control.inventory.apply import Inventories
from forewarn.control.metrics import ControlMetrics
from forewarn.core.principal import OPERATOR, Principal


def create_app(
    control: Control,
    *,
    token: str,
    measures: ControlMetrics,
    doorbell: Doorbell | None = None,
    scratch: Path | None = None,
    more: Sequence[RouteSpec] = (),
    inventories: Inventories | None = None,
    kept_files: Callable[[], Mapping[str, bytes]] | None = None,
    by: Principal = OPERATOR,
) -> Starlette:
    """The operator API. Every path wants `token`, /metrics and /v1/health too. `by` is who has it.

    Ring `doorbell` after every commit and close it before the server stops; without rings those
    who follow the journal are told a second later. A backup is copied to a private folder in
    `scratch` (the system's folder for temporary files by default) before it is sent. `more` are
    routes beside those that every service has. `inventories` applies what is posted; without it
    each inventory is one commit, and nothing is known of addresses that nothing can listen on.
    `kept_files` are the secrets that a backup holds beside the database; it is then given by the
    socket only.
    """
    version = version_of("forewarn")
    routes = OperatorRoutes(
        control,
        measures=measures,
        doorbell=doorbell or Doorbell(),
        scratch=scratch,
        version=version,
        inventories=inventories,
        kept_files=kept_files,
        by=by,
    )
    specs = [*table(routes), *more]
    routes.describe(openapi.document(specs, version=version))
    app = Starlette(
        routes=[
            Route(spec.path, spec.handler, methods=[spec.method], name=spec.name) for spec in specs
        ],
        middleware=[Middleware(partial(Gate, token=token, clock=control.clock, measures=measures))],
        exception_handlers=EXCEPTION_HANDLERS,
    )
    app.router.redirect_slashes = False
    return app
