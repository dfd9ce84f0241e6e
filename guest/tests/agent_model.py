"""An agent that is made only of observing, folding and deciding, over a journal in memory.

It shows the order in which the real one must do things: a fact is kept before what follows from
it is done. It dies wherever the world says so, and goes on from what was kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from agent_world import BUSY_S, END_S, VM, Crash, Execution, World
from forewarn_guest.configuration import Configuration, Part
from forewarn_guest.deciding import (
    Close,
    CountAs,
    Decision,
    Deed,
    HandOver,
    LeaveOut,
    RunStep,
    SayGoAhead,
    Share,
    Timing,
    Withhold,
    decide,
    prepared,
)
from forewarn_guest.facts import Fact, FactKind, Outcome
from forewarn_guest.observing import booted, observe
from forewarn_guest.tracked_event import Run, Stage, TrackedEvent, fold

ROUNDS_AT_MOST = 60  # of deciding and doing until nothing is left to do now


class Unsettled(AssertionError):  # noqa: N818 - says what is the case
    """The agent found something to do again and again without anything having changed."""


@dataclass(frozen=True)
class Mind:
    """The pure parts, so that a test can plant a mistake in one of them."""

    observe: Callable[..., list[Fact]] = observe
    fold: Callable[[dict[str, TrackedEvent], Fact], None] = fold
    decide: Callable[..., Decision] = decide


class ModelAgent:
    """One life of an agent."""

    def __init__(self, world: World, mind: Mind, configuration: Configuration) -> None:
        self.world = world
        self._mind = mind
        self._configuration = configuration
        self.cares: dict[str, TrackedEvent] = {}
        for fact in world.kept:
            mind.fold(self.cares, fact)
        self._timings: dict[str, Timing] = {}
        self._running: list[tuple[Run, str, Execution]] = []

    def keep(self, kind: FactKind, care: str = "", **detail: object) -> None:
        fact = Fact(kind, self.world.date(), care, detail)
        self.world.keep(fact)
        self._mind.fold(self.cares, fact)

    def begin(self) -> None:
        """Find out what became of the steps that an agent before this one has left open."""
        self.keep(FactKind.BEGIN, boot_id=self.world.boot_id)
        for care in list(self.cares.values()):
            for run in [run for run in care.runs.values() if run.open]:
                self._look(care, run)
        boot_id, at = self.world.boot_id, self.world.date()
        for fact in booted(list(self.cares.values()), boot_id=boot_id, at=at):
            self.keep(fact.kind, fact.care, **fact.detail)

    def _look(self, care: TrackedEvent, run: Run) -> None:
        found = self.world.find(care.care_id, run.part, run.step, run.attempt)
        if found is not None and found.ended_s is None:
            if run.stage is Stage.INTENDED:
                self._begun(care.care_id, run.part, run.step, run.attempt)
            self._running.append((care.runs[run.part, run.step], care.care_id, found))
            return
        if found is None and run.stage is Stage.INTENDED and self.world.chance(0.5):
            # There was room for its file, which says that nobody began it.
            place = {"part": run.part.value, "step": run.step, "attempt": run.attempt}
            self.keep(FactKind.NOT_BEGUN, care.care_id, **place)
            return
        known = found is not None and found.recorded
        outcome = found.outcome if found is not None and known else Outcome.UNKNOWN
        self._ended(care.care_id, run.part, run.step, run.attempt, outcome)

    def _begun(self, care: str, part: Part, step: str, attempt: int) -> None:
        place = {"part": part.value, "step": step, "attempt": attempt}
        process = {"pid": 1, "start_ticks": 1, "boot_id": self.world.boot_id}
        self.keep(FactKind.BEGUN, care, **place, **process)

    def _ended(self, care: str, part: Part, step: str, attempt: int, outcome: Outcome) -> None:
        place = {"part": part.value, "step": step, "attempt": attempt}
        self.keep(FactKind.ENDED, care, **place, outcome=outcome.value)

    def turn(self, *, look: bool) -> None:
        """See to the processes, look at the document, and do what is to be done."""
        for item in list(self._running):
            self._see_to(item)
        if look:
            self._observe()
        for _ in range(ROUNDS_AT_MOST):
            deeds = self._decide().deeds
            if not deeds:
                return
            for deed in deeds:
                self.do(deed)
        raise Unsettled(repr(deeds))

    def _see_to(self, item: tuple[Run, str, Execution]) -> None:
        run, care_id, process = item
        if process.ended_s is None:
            if self.world.now_s < process.began_s + process.limit_s:
                return
            self.world.stop(process)
        self._ended(care_id, run.part, run.step, run.attempt, process.outcome)
        self._running.remove(item)

    def _observe(self) -> None:
        document = self.world.document()
        facts = self._mind.observe(
            document,
            self.cares,
            vm=VM,
            rules=self._configuration.rules,
            boot_id=self.world.boot_id,
            at=self.world.date(),
        )
        for fact in facts:
            self.world.keep(fact)
            self._mind.fold(self.cares, fact)
        for care in self.cares.values():
            event = document.event(care.key)
            left_s = None if event is None else document.seconds_left(event)
            if care.gone is None and left_s is not None:
                timing = self._timings.get(care.care_id, Timing())
                at_s = document.received_s + left_s
                self._timings[care.care_id] = replace(timing, not_before_s=at_s)
        shown = {event.key: event.status for event in document.events if event.names(VM)}
        self.world.happen("looked", shown=shown)

    def _decide(self) -> Decision:
        for care in self.cares.values():
            rule = self._configuration.rule(care.rule)
            timing = self._timings.get(care.care_id, Timing())
            if timing.prepared_s is None and rule is not None and prepared(care, rule):
                self._timings[care.care_id] = replace(timing, prepared_s=self.world.now_s)
        return self._mind.decide(
            self.cares, self._configuration, self._timings, vm=VM, now_s=self.world.now_s
        )

    def do(self, deed: Deed) -> None:
        """Keep the fact of a deed; then do it."""
        if isinstance(deed, RunStep):
            self.run(deed)
        elif isinstance(deed, SayGoAhead):
            self.say_go_ahead(deed.care)
        elif isinstance(deed, CountAs):
            place = {"part": deed.part.value, "step": deed.step, "attempt": deed.attempt}
            self.keep(FactKind.RULED, deed.care, **place, counts_as=deed.outcome.value)
        elif isinstance(deed, LeaveOut):
            place = {"part": deed.part.value, "step": deed.step}
            self.keep(FactKind.LEFT_OUT, deed.care, **place, why=deed.why)
        elif isinstance(deed, Share):
            self.keep(FactKind.SHARED, deed.care, by=deed.by)
        elif isinstance(deed, HandOver):
            self.keep(FactKind.HANDED_OVER, deed.care, to=deed.to, prepared=deed.prepared)
        elif isinstance(deed, Withhold):
            self.keep(FactKind.WITHHELD, deed.care, why=deed.why)
        else:
            assert isinstance(deed, Close)
            self.keep(FactKind.CLOSED, deed.care)

    def run(self, deed: RunStep) -> None:
        step, world = deed.step.name, self.world
        place = {"part": deed.part.value, "step": step, "attempt": deed.attempt}
        self.keep(FactKind.INTENDED, deed.care, **place)
        if world.chance(0.03):  # the program is not there any more
            self._ended(deed.care, deed.part, step, deed.attempt, Outcome.FAILED)
            return
        process = world.begin(deed.care, deed.part, step, deed.attempt, deed.limit_s)
        world.crash_point()
        self._begun(deed.care, deed.part, step, deed.attempt)
        run = self.cares[deed.care].run(deed.part, step)
        if run is not None:
            self._running.append((run, deed.care, process))

    def say_go_ahead(self, care_id: str) -> None:
        """The fact first: what may have been approved must not count as canceled later."""
        self.keep(FactKind.APPROVING, care_id)
        self.world.approve(self.cares[care_id].key)
        self.note_approval(care_id)
        self.keep(FactKind.APPROVED, care_id)

    def note_approval(self, care_id: str) -> None:
        timing = self._timings.get(care_id, Timing())
        self._timings[care_id] = replace(
            timing, approvals=timing.approvals + 1, approved_s=self.world.now_s
        )
        self.world.crash_point()


def live(world: World, mind: Mind | None = None, life: type[ModelAgent] = ModelAgent) -> None:
    """Let the world go on to its end, with one agent after another."""
    configuration = Configuration(rules=world.rules)
    while world.now_s < END_S:
        agent = life(world, mind or Mind(), configuration)
        world.agent_lives = True
        try:
            agent.begin()
            agent.turn(look=True)
            while world.now_s < END_S:
                if world.calm and all(care.closed for care in agent.cares.values()):
                    return
                boot = world.boots
                world.turn(None if world.now_s < BUSY_S else 10.0)
                if world.now_s < BUSY_S and _reboots(world):
                    world.reboot()
                if world.boots != boot:
                    raise Crash
                agent.turn(look=world.chance(0.7) or world.now_s > BUSY_S)
        except Crash:
            world.happen("crash")
            world.agent_lives = False
            while world.chance(0.6):
                world.turn()


def _reboots(world: World) -> bool:
    """A Reboot that has just started takes the VM down; so does, seldom, nothing at all."""
    started = any(
        told.event_type == "Reboot"
        and told.started_s == world.now_s
        and told.status == "Started"
        and VM in told.resources
        for told in world.events
    )
    return started or world.chance(0.002)
