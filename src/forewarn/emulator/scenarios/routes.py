"""`/v1/scenarios`: the shipped scenarios, and runs of them or of one's own scripts."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from forewarn.api.order_bodies import BODY_BYTES_MAX, EmptyRequest, words
from forewarn.api.requests import Name, NoQuery, read_query
from forewarn.api.route_table import RouteSpec, get_route
from forewarn.core.access import Right
from forewarn.core.errors import Invalid
from forewarn.emulator.idempotency import RememberedOrders, answered
from forewarn.emulator.scenarios import library
from forewarn.emulator.scenarios.answers import (
    RunJson,
    RunList,
    ScenarioJson,
    ScenarioList,
    listed,
    run_shown,
    shown,
)
from forewarn.emulator.scenarios.file import SCENARIO_BYTES_MAX, parse
from forewarn.emulator.scenarios.runner import Run, ScenarioRunner
from forewarn.emulator.scenarios.values import Scenario

RUN_BODY_BYTES_MAX = 4 * SCENARIO_BYTES_MAX  # a script takes more room as a JSON string
OWN_SCRIPT = "script"  # what a script without a name is called


class RunRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What is run: a shipped scenario by its `name`, or a script (`toml`), which may have a name.

    `on` is a VM or scope; without it the first that will do. `to_end` turns the clock until the
    run is over.
    """

    name: Name | None = None
    toml: str | None = None
    on: Name | None = None
    to_end: bool = False


def scenario_routes(runner: ScenarioRunner) -> list[RouteSpec]:
    """The routes of scenarios and their runs."""
    routes, once = _ScenarioRoutes(runner), RememberedOrders()
    at = "/v1/scenarios"
    return [
        get_route(at, "list-scenarios", "Scenarios by name.", routes.list, ScenarioList),
        RouteSpec(
            method="POST",
            path=f"{at}/runs",
            name="run-scenario",
            summary="Run a scenario, or a script of one's own.",
            handler=once.taking(routes.start, bytes_max=RUN_BODY_BYTES_MAX),
            answer=RunJson,
            body=RunRequest,
            right=Right.OPERATE,
        ),
        get_route(f"{at}/runs", "list-scenario-runs", "Runs, oldest first.", routes.runs, RunList),
        get_route(f"{at}/runs/{{id}}", "show-scenario-run", "A run.", routes.run, RunJson),
        RouteSpec(
            method="POST",
            path=f"{at}/runs/{{id}}/stop",
            name="stop-scenario-run",
            summary="Take no further step; what was done stays done.",
            handler=once.taking(routes.stop, bytes_max=BODY_BYTES_MAX),
            answer=RunJson,
            body=EmptyRequest,
            right=Right.OPERATE,
        ),
        # After the runs, which a name must not hide; no scenario is called runs.
        get_route(f"{at}/{{name}}", "show-scenario", "A scenario.", routes.show, ScenarioJson),
    ]


class _ScenarioRoutes:
    def __init__(self, runner: ScenarioRunner) -> None:
        self._runner = runner

    async def list(self, request: Request) -> Response:
        read_query(request, NoQuery)
        return answered(listed())

    async def show(self, request: Request) -> Response:
        read_query(request, NoQuery)
        return answered(shown(library.load(str(request.path_params["name"]))))

    async def runs(self, request: Request) -> Response:
        read_query(request, NoQuery)
        return answered(RunList(items=[await self._shown(run) for run in self._runner.runs()]))

    async def run(self, request: Request) -> Response:
        read_query(request, NoQuery)
        return answered(await self._shown(self._runner.get(_id(request))))

    async def start(self, _: Request, body: bytes) -> RunJson:
        said = words(body, RunRequest)
        run = await self._runner.start(_wanted(said), said.on)
        if said.to_end:
            await self._runner.to_end(run.run_id)
        return await self._shown(run)

    async def stop(self, request: Request, body: bytes) -> RunJson:
        words(body, EmptyRequest)
        return await self._shown(self._runner.stop(_id(request)))

    async def _shown(self, run: Run) -> RunJson:
        events = await self._runner.events(run)
        return run_shown(run, events, over=await self._runner.over(run))


def _wanted(said: RunRequest) -> Scenario:
    if said.toml is not None:
        return parse(said.toml, name=said.name or OWN_SCRIPT)
    if said.name is not None:
        return library.load(said.name)
    raise Invalid(
        "Nothing was said to be run.", "Give the name of a scenario, or a script as toml."
    )


def _id(request: Request) -> str:
    return str(request.path_params["id"])
