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
        self.tracked_events: dict[str, TrackedEvent] = {}
        for fact in world.kept:
            mind.fold(self.tracked_events, fact)
        self._timings: dict[str, Timing] = {}
        self._running: list[tuple[Run, str, Execution]] = []

    def keep(self, kind: FactKind, tracked: str = "", **detail: object) -> None:
        fact = Fact(kind, self.world.date(), tracked, detail)
        self.world.keep(fact)
        self._mind.fold(self.tracked_events, fact)

    def begin(self) -> None:
        """Find out what became of the steps that an agent before this one has left open."""
        self.keep(FactKind.BEGIN, boot_id=self.world.boot_id)
        for tracked in list(self.tracked_events.values()):
            for run in [run for run in tracked.runs.values() if run.open]:
                self._look(tracked, run)
        boot_id, at = self.world.boot_id, self.world.date()
        for fact in booted(list(self.tracked_events.values()), boot_id=boot_id, at=at):
            self.keep(fact.kind, fact.tracked, **fact.detail)

    def _look(self, tracked: TrackedEvent, run: Run) -> None:
        found = self.world.find(tracked.tracked_id, run.part, run.step, run.attempt)
        if found is not None and found.ended_s is None:
            if run.stage is Stage.INTENDED:
                self._begun(tracked.tracked_id, run.part, run.step, run.attempt)
            self._running.append((tracked.runs[run.part, run.step], tracked.tracked_id, found))
            return
        if found is None and run.stage is Stage.INTENDED and self.world.chance(0.5):
            # There was room for its file, which says that nobody began it.
            place = {"part": run.part.value, "step": run.step, "attempt": run.attempt}
            self.keep(FactKind.NOT_BEGUN, tracked.tracked_id, **place)
            return
        known = found is not None and found.recorded
        outcome = found.outcome if found is not None and known else Outcome.UNKNOWN
        self._ended(tracked.tracked_id, run.part, run.step, run.attempt, outcome)

    def _begun(self, tracked: str, part: Part, step: str, attempt: int) -> None:
        place = {"part": part.value, "step": step, "attempt": attempt}
        process = {"pid": 1, "start_ticks": 1, "boot_id": self.world.boot_id}
        self.keep(FactKind.BEGUN, tracked, **place, **process)

    def _ended(self, tracked: str, part: Part, step: str, attempt: int, outcome: Outcome) -> None:
        place = {"part": part.value, "step": step, "attempt": attempt}
        self.keep(FactKind.ENDED, tracked, **place, outcome=outcome.value)

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
        run, tracked_id, process = item
        if process.ended_s is None:
            if self.world.now_s < process.began_s + process.limit_s:
                return
            self.world.stop(process)
        self._ended(tracked_id, run.part, run.step, run.attempt, process.outcome)
        self._running.remove(item)

    def _observe(self) -> None:
        document = self.world.document()
        facts = self._mind.observe(
            document,
            self.tracked_events,
            vm=VM,
            rules=self._configuration.rules,
            boot_id=self.world.boot_id,
            at=self.world.date(),
        )
        for fact in facts:
            self.world.keep(fact)
            self._mind.fold(self.tracked_events, fact)
        for tracked in self.tracked_events.values():
            event = document.event(tracked.key)
            left_s = None if event is None else document.seconds_left(event)
            if tracked.gone is None and left_s is not None:
                timing = self._timings.get(tracked.tracked_id, Timing())
                at_s = document.received_s + left_s
                self._timings[tracked.tracked_id] = replace(timing, not_before_s=at_s)
        shown = {event.key: event.status for event in document.events if event.names(VM)}
        self.world.happen("looked", shown=shown)

    def _decide(self) -> Decision:
        for tracked in self.tracked_events.values():
            rule = self._configuration.rule(tracked.rule)
            timing = self._timings.get(tracked.tracked_id, Timing())
            if timing.prepared_s is None and rule is not None and prepared(tracked, rule):
                self._timings[tracked.tracked_id] = replace(timing, prepared_s=self.world.now_s)
        return self._mind.decide(
            self.tracked_events, self._configuration, self._timings, vm=VM, now_s=self.world.now_s
        )

    def do(self, deed: Deed) -> None:
        """Keep the fact of a deed; then do it."""
        if isinstance(deed, RunStep):
            self.run(deed)
        elif isinstance(deed, SayGoAhead):
            self.say_go_ahead(deed.tracked)
        elif isinstance(deed, CountAs):
            place = {"part": deed.part.value, "step": deed.step, "attempt": deed.attempt}
            self.keep(FactKind.RULED, deed.tracked, **place, counts_as=deed.outcome.value)
        elif isinstance(deed, LeaveOut):
            place = {"part": deed.part.value, "step": deed.step}
            self.keep(FactKind.LEFT_OUT, deed.tracked, **place, why=deed.why)
        elif isinstance(deed, Share):
            self.keep(FactKind.SHARED, deed.tracked, by=deed.by)
        elif isinstance(deed, HandOver):
            self.keep(FactKind.HANDED_OVER, deed.tracked, to=deed.to, prepared=deed.prepared)
        elif isinstance(deed, Withhold):
            self.keep(FactKind.WITHHELD, deed.tracked, why=deed.why)
        else:
            assert isinstance(deed, Close)
            self.keep(FactKind.CLOSED, deed.tracked)

    def run(self, deed: RunStep) -> None:
        step, world = deed.step.name, self.world
        place = {"part": deed.part.value, "step": step, "attempt": deed.attempt}
        self.keep(FactKind.INTENDED, deed.tracked, **place)
        if world.chance(0.03):  # the program is not there any more
            self._ended(deed.tracked, deed.part, step, deed.attempt, Outcome.FAILED)
            return
        process = world.begin(deed.tracked, deed.part, step, deed.attempt, deed.limit_s)
        world.crash_point()
        self._begun(deed.tracked, deed.part, step, deed.attempt)
        run = self.tracked_events[deed.tracked].run(deed.part, step)
        if run is not None:
            self._running.append((run, deed.tracked, process))

    def say_go_ahead(self, tracked_id: str) -> None:
        """The fact first: what may have been approved must not count as canceled later."""
        self.keep(FactKind.APPROVING, tracked_id)
        self.world.approve(self.tracked_events[tracked_id].key)
        self.note_approval(tracked_id)
        self.keep(FactKind.APPROVED, tracked_id)

    def note_approval(self, tracked_id: str) -> None:
        timing = self._timings.get(tracked_id, Timing())
        self._timings[tracked_id] = replace(
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
                if world.calm and all(tracked.closed for tracked in agent.tracked_events.values()):
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
