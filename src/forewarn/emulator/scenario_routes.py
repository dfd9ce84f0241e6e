"""`/v1/scenarios`: the shipped scenarios, and runs of them or of one's own scripts."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from forewarn.api.operator_routes import Handler
from forewarn.api.orders import NoWords, words
from forewarn.api.requests import Name, NoQuery, read_body, read_query
from forewarn.api.route_table import RouteSpec
from forewarn.control import idempotency
from forewarn.core.errors import IdempotencyMismatch, Invalid
from forewarn.emulator import scenario_library
from forewarn.emulator.once import answered
from forewarn.emulator.scenario import Scenario
from forewarn.emulator.scenario_file import SCENARIO_BYTES_MAX, parse
from forewarn.emulator.scenario_runner import RUNS_MAX, Run, ScenarioRunner
from forewarn.emulator.scenario_shown import (
    RunList,
    RunShown,
    ScenarioList,
    ScenarioShown,
    listed,
    run_shown,
    shown,
)

RUN_BODY_BYTES_MAX = 4 * SCENARIO_BYTES_MAX  # a script takes more room as a JSON string
OWN_SCRIPT = "script"  # what a script without a name is called


class RunWords(msgspec.Struct, forbid_unknown_fields=True):
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
    routes = _ScenarioRoutes(runner)
    at = "/v1/scenarios"
    return [
        _get(at, "list-scenarios", "Scenarios by name.", routes.list, ScenarioList),
        RouteSpec(
            method="POST",
            path=f"{at}/runs",
            name="run-scenario",
            summary="Run a scenario, or a script of one's own.",
            handler=routes.start,
            answer=RunShown,
            body=RunWords,
        ),
        _get(f"{at}/runs", "list-scenario-runs", "Runs, oldest first.", routes.runs, RunList),
        _get(f"{at}/runs/{{id}}", "show-scenario-run", "A run.", routes.run, RunShown),
        RouteSpec(
            method="POST",
            path=f"{at}/runs/{{id}}/stop",
            name="stop-scenario-run",
            summary="Take no further step; what was done stays done.",
            handler=routes.stop,
            answer=RunShown,
            body=NoWords,
            keyed=False,
        ),
        _get(f"{at}/{{name}}", "show-scenario", "A scenario.", routes.show, ScenarioShown),
    ]


def _get(
    path: str, name: str, summary: str, handler: Handler, answer: type[msgspec.Struct]
) -> RouteSpec:
    return RouteSpec(
        method="GET", path=path, name=name, summary=summary, handler=handler, answer=answer
    )


class _ScenarioRoutes:
    def __init__(self, runner: ScenarioRunner) -> None:
        self._runner = runner
        # By idempotency key, as long as the run is known: what was asked, and its run.
        self._asked: dict[str, tuple[str, str]] = {}

    async def list(self, request: Request) -> Response:
        read_query(request, NoQuery)
        return answered(listed())

    async def show(self, request: Request) -> Response:
        read_query(request, NoQuery)
        return answered(shown(scenario_library.load(str(request.path_params["name"]))))

    async def runs(self, request: Request) -> Response:
        read_query(request, NoQuery)
        return answered(RunList(items=[await self._shown(run) for run in self._runner.runs()]))

    async def run(self, request: Request) -> Response:
        read_query(request, NoQuery)
        return answered(await self._shown(self._runner.get(_id(request))))

    async def stop(self, request: Request) -> Response:
        read_query(request, NoQuery)
        words(await read_body(request, bytes_max=RUN_BODY_BYTES_MAX), NoWords)
        return answered(await self._shown(self._runner.stop(_id(request))))

    async def start(self, request: Request) -> Response:
        read_query(request, NoQuery)
        key = idempotency.key_of(request.headers.getlist("idempotency-key"))
        body = await read_body(request, bytes_max=RUN_BODY_BYTES_MAX)
        said = words(body, RunWords)
        run = self._begun_before(key, body)
        if run is None:
            run = await self._runner.start(_wanted(said), said.on)
            self._remember(key, body, run)
        if said.to_end:
            await self._runner.to_end(run.run_id)
        return answered(await self._shown(run))

    def _begun_before(self, key: str | None, body: bytes) -> Run | None:
        """The run that the same request began before, if its answer was lost on the way."""
        if key is None or key not in self._asked:
            return None
        mark, run_id = self._asked[key]
        if mark != _mark(body):
            raise IdempotencyMismatch(
                f"The Idempotency-Key {key} was used before, for another run.",
                "Send the same request again, or this one with a key of its own.",
            )
        return self._runner.get(run_id)

    def _remember(self, key: str | None, body: bytes, run: Run) -> None:
        if key is None:
            return
        if len(self._asked) >= RUNS_MAX:
            self._asked.pop(next(iter(self._asked)))
        self._asked[key] = (_mark(body), run.run_id)

    async def _shown(self, run: Run) -> RunShown:
        events = await self._runner.events(run)
        return run_shown(run, events, over=await self._runner.over(run))


def _wanted(said: RunWords) -> Scenario:
    if said.toml is not None:
        return parse(said.toml, name=said.name or OWN_SCRIPT)
    if said.name is not None:
        return scenario_library.load(said.name)
    raise Invalid(
        "Nothing was said to be run.", "Give the name of a scenario, or a script as toml."
    )


def _mark(body: bytes) -> str:
    return idempotency.fingerprint("POST", "/v1/scenarios/runs", body)


def _id(request: Request) -> str:
    return str(request.path_params["id"])
