"""The emulator on the pages of the console: its clock on all of them, scenarios and faults on one.

An app team steps an event by hand and sees its agent react. Everything here does what the routes of
the operator API do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from forewarn.api.console.browser_security import session_of
from forewarn.api.console.order_pages import read_form
from forewarn.api.console.page_context import Desk, Tab
from forewarn.api.console.page_routes import PageRoute
from forewarn.core.access import Right
from forewarn.core.errors import Invalid, Refusal
from forewarn.emulator.clock import EmulatedClock, parse_speed
from forewarn.emulator.clock_routes import need_next
from forewarn.emulator.faults.book import FaultBook, fault_json
from forewarn.emulator.faults.kinds import FaultKind
from forewarn.emulator.faults.orders import read_order
from forewarn.emulator.pacer import Pacer
from forewarn.emulator.scenarios import library
from forewarn.emulator.scenarios.answers import listed
from forewarn.emulator.scenarios.runner import ScenarioRunner
from forewarn.text.durations import parse_duration_ms
from forewarn.wire.api_versions import NEWEST

PACKAGE = "forewarn.emulator"
PATH = "/console/emulator"
STEPS = ("1m", "5m", "15m", "1h", "1d")
SPEEDS = ("virtual", "real", "x10", "x60", "x600")
INSTANTS_SHOWN_MAX = 8
PASSED_SAID_MAX = 3
FAULT_WORDS = ("kind", "vm", "count", "for", "seconds")

Act = Callable[[Mapping[str, str]], Awaitable[str]]


class EmulatorOnPages:
    """`desk.More` for an emulator."""

    tabs: Sequence[Tab] = (Tab(PATH, "Emulator", "emulator"),)
    packages: Mapping[str, str] = {"emulator": PACKAGE}
    bar = "emulator/bar.html"

    def __init__(
        self,
        desk: Desk,
        *,
        pacer: Pacer,
        clock: EmulatedClock,
        faults: FaultBook,
        scenarios: ScenarioRunner,
        run_at: Callable[[int], None],
        urls: Callable[[], Mapping[str, str]],
    ) -> None:
        self._desk = desk
        self._pacer = pacer
        self._clock = clock
        self._faults = faults
        self._scenarios = scenarios
        self._run_at = run_at
        self._urls = urls

    @property
    def speed(self) -> int | None:
        return self._clock.speed

    def routes(self) -> Sequence[PageRoute]:
        acts: dict[str, Act] = {
            "advance": self._advance,
            "next": self._next,
            "speed": self._speed,
            "scenario": self._scenario,
            "stop": self._stop,
            "fault": self._fault,
            "clear": self._clear,
        }
        return [
            PageRoute(PATH, self.page, right=Right.OPERATE, by_scope=False),
            *(
                PageRoute(
                    f"{PATH}/{name}",
                    self._doing(act),
                    right=Right.OPERATE,
                    by_scope=False,
                    methods=["POST"],
                )
                for name, act in acts.items()
            ),
        ]

    async def shown(self) -> Mapping[str, object]:
        """The bar: what time it is, what is due next, how fast it runs."""
        upcoming = await self._pacer.upcoming()
        words = {0: "virtual", 1: "real"}
        return {
            "next": upcoming[0] if upcoming else None,
            "speed": words.get(self._clock.speed, f"x{self._clock.speed}"),
            "speeds": SPEEDS,
            "steps": STEPS,
        }

    async def page(self, request: Request) -> Response:
        upcoming = await self._pacer.upcoming()
        runs = [
            {"run": run, "over": await self._scenarios.over(run)}
            for run in reversed(self._scenarios.runs())
        ]
        return await self._desk.page(
            request,
            "emulator/page.html",
            tab="emulator",
            title="Emulator",
            upcoming=upcoming[:INSTANTS_SHOWN_MAX],
            scenarios=listed().items,
            runs=runs,
            faults=[fault_json(fault) for fault in self._faults.list()],
            kinds=[kind.value for kind in FaultKind],
            urls=self._urls(),
            query=f"/metadata/scheduledevents?api-version={NEWEST.name}",
        )

    def _doing(self, act: Act) -> Callable[[Request], Awaitable[Response]]:
        async def handler(request: Request) -> Response:
            session = session_of(request)
            said = await read_form(request, session)
            try:
                session.note(await act(said))
            except Refusal as refusal:
                session.note(str(refusal))
            return RedirectResponse(_back(said.get("back", "")), 303)

        return handler

    async def _advance(self, said: Mapping[str, str]) -> str:
        by = said.get("by", "").strip()
        passed = await self._pacer.advance(parse_duration_ms(by))
        return f"The clock is {by} ahead. {_passed([one.what for one in passed])}"

    async def _next(self, _: Mapping[str, str]) -> str:
        reached = await need_next(self._pacer)
        return _passed([one.what for one in reached])

    async def _speed(self, said: Mapping[str, str]) -> str:
        word = said.get("speed", "")
        self._run_at(parse_speed(word))
        return "The clock stands." if word == "virtual" else f"The clock runs: {word}."

    async def _scenario(self, said: Mapping[str, str]) -> str:
        run = await self._scenarios.start(
            library.load(said.get("name", "")), said.get("on", "").strip() or None
        )
        if said.get("to_end"):
            await self._scenarios.to_end(run.run_id)
        return f"Scenario {said.get('name', '')} runs ({run.run_id})."

    async def _stop(self, said: Mapping[str, str]) -> str:
        self._scenarios.stop(said.get("run", ""))
        return f"Run {said.get('run', '')} takes no further step."

    async def _fault(self, said: Mapping[str, str]) -> str:
        words: dict[str, object] = {
            name: said[name].strip() for name in FAULT_WORDS if said.get(name, "").strip()
        }
        if "count" in words:
            words["count"] = _count(str(words["count"]))
        fault = self._faults.add(read_order(words))
        await self._pacer.settle()
        return f"Fault {fault.fault_id} stands: {fault.kind.value}."

    async def _clear(self, said: Mapping[str, str]) -> str:
        cleared = self._faults.clear(said.get("fault") or None)
        await self._pacer.settle()
        return f"{len(cleared)} ended."


def _passed(what: Sequence[str]) -> str:
    if not what:
        return "Nothing was due on the way."
    more = len(what) - PASSED_SAID_MAX
    said = "; ".join(what[:PASSED_SAID_MAX])
    return f"{said}{f', and {more} more' if more > 0 else ''}."


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 7):
        raise Invalid(f"{text[:20]!r} is not a speed.", "Write a whole number.")
    return int(text)


def _back(path: str) -> str:
    """The page that the button was on."""
    own = path.startswith("/console/") and "//" not in path and "\\" not in path
    return path if own and path.isprintable() else PATH
