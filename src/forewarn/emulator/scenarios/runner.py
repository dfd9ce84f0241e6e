"""Runs scenarios: each step is an appointment with the pacer, so that time can be turned over it.

A step that is refused when its time has come stays in the record of its run, with the sentence of
the refusal; the other steps go on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from forewarn.control.commands import AllOf
from forewarn.control.control import Control
from forewarn.core.errors import Conflict, NotFound, Refusal, Unavailable
from forewarn.core.model import SECOND_MS, OperationPhase, ScheduledEvent
from forewarn.core.principal import OPERATOR, Principal
from forewarn.core.suggestions import meant, shown
from forewarn.emulator.faults.book import Fault
from forewarn.emulator.faults.orders import FaultOrder
from forewarn.emulator.scenarios.step_orders import (
    RunTarget,
    StepResult,
    choose_target,
    made_by,
    orders_of,
    vms_meant,
)
from forewarn.emulator.scenarios.values import Scenario, ScenarioStep, StepPhase, Verb
from forewarn.ports import Store

RUNS_MAX = 100  # at once, and in the record
INSTANTS_TO_END_MAX = 10_000

Take = Callable[[], Awaitable[str | None]]


class Canceling(Protocol):
    """What the pacer gives for an appointment."""

    def cancel(self) -> None: ...


class Pace(Protocol):
    """What a run needs of the pacer (`emulator.pacer.Pacer`)."""

    async def settle(self) -> None: ...

    async def next(self) -> Sequence[object]: ...

    def at(self, at_ms: int, what: str, act: Take) -> Canceling: ...


class SimulatedHardware(Protocol):
    """What a run needs of the simulated machines (`adapters.simulated.hypervisor`)."""

    def hold(self, owner_id: str, seconds: float) -> None: ...


class Faults(Protocol):
    """What a run needs of the book of faults (`emulator.faults.book.FaultBook`)."""

    def add(self, order: FaultOrder) -> Fault: ...

    def clear(self, fault_id: str | None = None) -> Sequence[Fault]: ...


class StepRun(Struct, eq=False):
    """One step of a run; `said` is the sentence of a refusal."""

    step: ScenarioStep
    due_ms: int
    phase: StepPhase = StepPhase.WAITING
    said: str = ""
    made: StepResult = field(default_factory=StepResult)
    appointment: Canceling | None = None


class Run(Struct, eq=False):
    """One run of a scenario, as far as it has come."""

    run_id: str
    scenario: Scenario
    target: RunTarget
    started_ms: int
    steps: list[StepRun]

    @property
    def waits(self) -> bool:
        """True while a step is still to come."""
        return any(step.phase is StepPhase.WAITING for step in self.steps)


class ScenarioRunner:
    """All runs of one emulator. Belongs to the event loop.

    `control` must be one that does not settle: steps are taken while the pacer works.
    """

    def __init__(
        self,
        *,
        pacer: Pace,
        control: Control,
        machines: SimulatedHardware,
        faults: Faults,
        by: Principal = OPERATOR,
    ) -> None:
        """`by` is who orders what the steps say."""
        self._by = by
        self._pacer = pacer
        self._control = control
        self._machines = machines
        self._faults = faults
        self._runs: dict[str, Run] = {}
        self._begun = 0

    async def start(self, scenario: Scenario, on: str | None = None) -> Run:
        """Begin a run on a VM or scope, or on the first that will do, and take what is due now.

        Raises a Refusal if the fleet does not fit; refused steps are in the record instead.
        """
        self._make_room()
        target = choose_target(self._control.fleet, scenario, on)
        now_ms = self._control.clock.now_ms()
        self._begun += 1
        run = Run(
            run_id=f"run-{self._begun}",
            scenario=scenario,
            target=target,
            started_ms=now_ms,
            steps=[StepRun(step, now_ms + step.at_ms) for step in scenario.steps],
        )
        self._runs[run.run_id] = run
        for step in run.steps:
            what = f"{run.run_id} ({scenario.name}) step {step.step.number}: {step.step.words}"
            step.appointment = self._pacer.at(step.due_ms, what, self._taking(run, step))
        await self._pacer.settle()
        return run

    def runs(self) -> tuple[Run, ...]:
        """Every run that is still known, oldest first."""
        return tuple(self._runs.values())

    def get(self, run_id: str) -> Run:
        """The run of that id. Raises NotFound."""
        run = self._runs.get(run_id)
        if run is None:
            raise NotFound(f"There is no run {shown(run_id)}.", meant(run_id, self._runs))
        return run

    def stop(self, run_id: str) -> Run:
        """Take no further step. What was done stays done: its events go on."""
        run = self.get(run_id)
        for step in run.steps:
            if step.phase is StepPhase.WAITING:
                step.phase = StepPhase.STOPPED
                if step.appointment is not None:
                    step.appointment.cancel()
        return run

    async def to_end(self, run_id: str) -> Run:
        """Turn the clock until no step is left and everything that the run made has ended.

        Stops short where nothing is due any more, though something is still open. Raises Conflict
        after INSTANTS_TO_END_MAX instants.
        """
        run = self.get(run_id)
        for _ in range(INSTANTS_TO_END_MAX):
            if await self.over(run) or not await self._pacer.next():
                return run
        raise Conflict(
            f"{run_id} has not come to its end after {INSTANTS_TO_END_MAX} instants.",
            "Turn the clock by hand: `forewarn clock advance 1h`.",
        )

    async def over(self, run: Run) -> bool:
        """True when no step is left and everything that the run made has ended."""
        return not run.waits and await self._control.read(lambda store: _all_ended(store, run))

    async def events(self, run: Run) -> list[ScheduledEvent]:
        """The events that the run has made so far, in the order of its steps."""
        return await self._control.read(lambda store: _events(store, run))

    def _make_room(self) -> None:
        if len(self._runs) < RUNS_MAX:
            return
        oldest = next((run for run in self._runs.values() if not run.waits), None)
        if oldest is None:
            raise Conflict(
                f"{RUNS_MAX} runs are under way.", "Stop one: `forewarn scenario stop RUN`."
            )
        del self._runs[oldest.run_id]

    def _taking(self, run: Run, step: StepRun) -> Take:
        async def take() -> str | None:
            try:
                step.made = await self._take(run, step.step)
            except (Refusal, Unavailable) as why:
                step.phase = StepPhase.REFUSED
                step.said = str(why)
                return f"was refused: {why}"
            step.phase = StepPhase.DONE
            return None

        return take

    async def _take(self, run: Run, step: ScenarioStep) -> StepResult:
        if step.verb is Verb.CLEAR_FAULTS:
            return self._clear_faults(run)
        if step.fault is not None:
            return await self._add_faults(step, step.fault, run.target)
        earlier = {
            other.step.label: other.made
            for other in run.steps
            if other.step.label is not None and other.phase is StepPhase.DONE
        }
        step_orders = orders_of(step, run.target, earlier, self._control.fleet, by=self._by)
        answers = await self._control.submit(AllOf(by=self._by, orders=step_orders.orders))
        made = made_by(step_orders, answers)
        if step.started_for_ms is not None:
            for owner_id in made.held:
                self._machines.hold(owner_id, step.started_for_ms / SECOND_MS)
        return made

    async def _add_faults(
        self, step: ScenarioStep, order: FaultOrder, target: RunTarget
    ) -> StepResult:
        place = step.on
        orders = [order]
        if place is not None:
            vms = vms_meant(place, target, self._control.fleet)
            orders = [replace(order, vm=vm) for vm in vms]
        return StepResult(fault_ids=tuple(self._faults.add(one).fault_id for one in orders))

    def _clear_faults(self, run: Run) -> StepResult:
        """End what earlier steps of the run have added; faults of others stay."""
        for step in run.steps:
            for fault_id in step.made.fault_ids:
                self._faults.clear(fault_id)
        return StepResult()


def _events(store: Store, run: Run) -> list[ScheduledEvent]:
    found: dict[str, ScheduledEvent] = {}
    for step in run.steps:
        ids = list(step.made.event_ids)
        for operation_id in step.made.operation_ids:
            operation = store.operation(operation_id)
            ids += [event_id for _, event_id in operation.members] if operation else []
        for event_id in ids:
            event = store.event(event_id)
            if event is not None:
                found[event_id] = event
    return list(found.values())


def _all_ended(store: Store, run: Run) -> bool:
    for step in run.steps:
        for operation_id in step.made.operation_ids:
            operation = store.operation(operation_id)
            if operation is not None and operation.phase is not OperationPhase.ENDED:
                return False
    return all(event.phase.ended for event in _events(store, run))
