"""I10 in a seeded world: no step is silently run twice or skipped, wherever the agent dies.

A failing seed is replayed with `World(seed)`; the same seed gives the same story.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from agent_judge import Broken, Judge
from agent_model import Mind, ModelAgent, Unsettled, live
from agent_world import World
from forewarn_guest.configuration import Approve, Configuration, Part
from forewarn_guest.deciding import (
    Close,
    CountAs,
    Decision,
    LeaveOut,
    RunStep,
    SayGoAhead,
    Timing,
    decide,
)
from forewarn_guest.document import Document
from forewarn_guest.facts import Fact, FactKind, Gone, Outcome
from forewarn_guest.observing import observe
from forewarn_guest.tracked_event import TrackedEvent, fold

SEEDS = 400
SEEDS_PLANTED = 300  # within so many, a planted mistake is found
BATCH = 50
CRASHES_WORLDS = (2, 108, 208, 273)  # with nearly every kind of fact in them


def judge(
    seed: int,
    mind: Mind | None = None,
    life: type[ModelAgent] = ModelAgent,
    *,
    crashes: float | None = None,
    crash_at: frozenset[int] = frozenset(),
) -> World:
    world = World(seed, crashes=crashes, crash_at=crash_at)
    live(world, mind, life)
    Judge(world).judge()
    return world


def broken_in(
    seed: int, mind: Mind | None = None, life: type[ModelAgent] = ModelAgent
) -> str | None:
    """Which promise is broken with that seed; None if all hold."""
    try:
        judge(seed, mind, life)
    except (Broken, Unsettled) as broken:
        return str(broken)
    return None


@pytest.mark.parametrize("first", range(0, SEEDS, BATCH))
def test_no_step_is_silently_run_twice_or_skipped_in_a_seeded_world(first: int) -> None:
    for seed in range(first, first + BATCH):
        what = broken_in(seed)
        assert what is None, f"seed {seed}: {what}"


@pytest.mark.parametrize("seed", CRASHES_WORLDS)
def test_an_agent_that_dies_at_any_point_between_two_durable_steps_goes_on(seed: int) -> None:
    points = judge(seed, crashes=0.0).points
    assert points > 100, "a world in which hardly anything happens proves nothing"
    for point in range(1, points + 1):
        judge(seed, crashes=0.0, crash_at=frozenset({point}))
        # And once more at once, while it takes up what the first death has left.
        judge(seed, crashes=0.0, crash_at=frozenset({point, point + 2}))


def test_the_seeded_worlds_contain_every_kind_of_fact_and_every_way_of_ending() -> None:
    kinds: set[FactKind] = set()
    outcomes: set[str] = set()
    attempts: set[int] = set()
    for seed in range(300):
        for fact in judge(seed).kept:
            kinds.add(fact.kind)
            if fact.kind is FactKind.ENDED:
                outcomes.add(fact.detail["outcome"])
                attempts.add(fact.detail["attempt"])
    assert kinds == set(FactKind) - {FactKind.PAUSE}
    assert outcomes == {outcome.value for outcome in Outcome}
    assert {1, 2, 3} <= attempts


def test_the_same_seed_gives_the_same_story() -> None:
    first, second = judge(7), judge(7)
    assert [repr(line) for line in first.story] == [repr(line) for line in second.story]


# Mistakes that the judge must find.

TrackedEvents = Mapping[str, TrackedEvent]
Timings = Mapping[str, Timing]


def forgets_what_was_intended(tracked_events: dict[str, TrackedEvent], fact: Fact) -> None:
    if fact.kind is not FactKind.INTENDED:
        fold(tracked_events, fact)


def forgets_what_was_left_out(tracked_events: dict[str, TrackedEvent], fact: Fact) -> None:
    if fact.kind is not FactKind.LEFT_OUT:
        fold(tracked_events, fact)


def forgets_handing_over(tracked_events: dict[str, TrackedEvent], fact: Fact) -> None:
    """The one that hands over knows it; the heir does not."""
    if fact.kind is FactKind.HANDED_OVER:
        tracked_events[fact.tracked].handed_over_to = fact.detail["to"]
        return
    fold(tracked_events, fact)


def takes_every_end_that_nobody_saw_for_canceled(*given: Any, **named: Any) -> list[Fact]:
    document: Document = given[0]
    tracked_events: TrackedEvents = given[1]
    seen = observe(document, tracked_events, **named)
    return [
        replace(fact, detail={"how": Gone.CANCELED.value})
        if fact.kind is FactKind.GONE and not tracked_events[fact.tracked].started
        else fact
        for fact in seen
    ]


def sees_an_id_only_once(*given: Any, **named: Any) -> list[Fact]:
    seen = observe(*given, **named)
    back = (fact for fact in seen if fact.kind is FactKind.APPEARED and fact.detail["sighting"] > 1)
    again = [fact.tracked for fact in back]
    return [fact for fact in seen if fact.tracked not in again]


def overlooks_started(*given: Any, **named: Any) -> list[Fact]:
    return [fact for fact in observe(*given, **named) if fact.kind is not FactKind.STARTED]


def decides(
    change: Callable[[Decision, TrackedEvents, Configuration], None],
) -> Callable[..., Decision]:
    """The real decision, with something changed afterwards."""

    def decide_wrongly(
        tracked_events: TrackedEvents, configuration: Configuration, timings: Timings, **named: Any
    ) -> Decision:
        decision = decide(tracked_events, configuration, timings, **named)
        change(decision, tracked_events, configuration)
        return decision

    return decide_wrongly


def unknown_is_done(
    decision: Decision, _tracked_events: TrackedEvents, _configuration: Configuration
) -> None:
    decision.deeds[:] = [
        replace(deed, outcome=Outcome.DONE) if isinstance(deed, CountAs) else deed
        for deed in decision.deeds
    ]


def unknown_is_repeated(
    decision: Decision, tracked_events: TrackedEvents, configuration: Configuration
) -> None:
    for number, deed in enumerate(decision.deeds):
        if isinstance(deed, CountAs):
            rule = configuration.rule(tracked_events[deed.tracked].rule)
            assert rule is not None
            step = next(s for s in rule.steps(deed.part) if s.name == deed.step)
            again = RunStep(deed.tracked, deed.part, step, deed.attempt + 1, step.limit_s)
            decision.deeds[number] = again


def recovers_when_started(
    decision: Decision, tracked_events: TrackedEvents, configuration: Configuration
) -> None:
    for tracked in tracked_events.values():
        rule = configuration.rule(tracked.rule)
        idle = not any(run.open for run in tracked.runs.values())
        if rule is None or not tracked.started or tracked.gone is not None or not idle:
            continue
        if rule.recover and not rule.ignore and not tracked.touched(Part.RECOVER):
            step = rule.recover[0]
            decision.deeds[:] = [RunStep(tracked.tracked_id, Part.RECOVER, step, 1, step.limit_s)]


def approves_first(
    decision: Decision, tracked_events: TrackedEvents, configuration: Configuration
) -> None:
    for tracked in tracked_events.values():
        rule = configuration.rule(tracked.rule)
        scheduled = not tracked.started and tracked.gone is None and not tracked.approved
        if rule is None or rule.ignore or rule.approve is not Approve.AFTER_PREPARE:
            continue
        if scheduled:
            decision.deeds.append(SayGoAhead(tracked.tracked_id))


def closes_what_is_gone(
    decision: Decision, tracked_events: TrackedEvents, _configuration: Configuration
) -> None:
    for tracked in tracked_events.values():
        idle = not any(run.open for run in tracked.runs.values())
        if tracked.gone is not None and not tracked.closed and idle:
            others = [deed for deed in decision.deeds if deed.tracked != tracked.tracked_id]
            decision.deeds[:] = [*others, Close(tracked.tracked_id)]


def says_nothing_of_what_is_left_out(
    decision: Decision, _tracked_events: TrackedEvents, _configuration: Configuration
) -> None:
    decision.deeds[:] = [deed for deed in decision.deeds if not isinstance(deed, LeaveOut)]


def goes_on_after_a_failure(
    decision: Decision, tracked_events: TrackedEvents, configuration: Configuration
) -> None:
    for number, deed in enumerate(decision.deeds):
        if isinstance(deed, LeaveOut) and "earlier step had failed" in deed.why:
            rule = configuration.rule(tracked_events[deed.tracked].rule)
            assert rule is not None
            step = next(s for s in rule.prepare if s.name == deed.step)
            decision.deeds[number:] = [RunStep(deed.tracked, deed.part, step, 1, 1.0)]
            return


def ignores_the_time_left(
    decision: Decision, tracked_events: TrackedEvents, configuration: Configuration
) -> None:
    decision.deeds[:] = [
        replace(deed, limit_s=deed.step.limit_s) if isinstance(deed, RunStep) else deed
        for deed in decision.deeds
    ]


def decides_seeing(
    visible: Callable[[TrackedEvent, TrackedEvent], bool],
) -> Callable[..., Decision]:
    """The real decision for each tracked event, which sees only some of the others."""

    def decide_blindly(
        tracked_events: TrackedEvents, configuration: Configuration, timings: Timings, **named: Any
    ) -> Decision:
        decision = Decision()
        for tracked in tracked_events.values():
            seen = {
                name: other
                for name, other in tracked_events.items()
                if other is tracked or visible(tracked, other)
            }
            deeds = decide(seen, configuration, timings, **named).deeds
            decision.deeds.extend(deed for deed in deeds if deed.tracked == tracked.tracked_id)
        return decision

    return decide_blindly


def forgets_open_runs(
    tracked_events: TrackedEvents, configuration: Configuration, timings: Timings, **named: Any
) -> Decision:
    blind = {
        name: replace(
            tracked, runs={place: run for place, run in tracked.runs.items() if not run.open}
        )
        for name, tracked in tracked_events.items()
    }
    return decide(blind, configuration, timings, **named)


class ApprovesBeforeItKeepsTheFact(ModelAgent):
    """The VM may have been let go, and nobody knows."""

    def say_go_ahead(self, tracked_id: str) -> None:
        self.world.approve(self.tracked_events[tracked_id].key)
        self.note_approval(tracked_id)
        self.keep(FactKind.APPROVED, tracked_id)


class RunsBeforeItKeepsTheFact(ModelAgent):
    """A step may have been run, and nobody knows."""

    def run(self, deed: RunStep) -> None:
        world = self.world
        world.begin(deed.tracked, deed.part, deed.step.name, deed.attempt, deed.limit_s)
        world.crash_point()
        super().run(deed)


class TakesUnknownForNeverRun(ModelAgent):
    """After a crash, what was only intended is run again as if for the first time."""

    def begin(self) -> None:
        for tracked in self.tracked_events.values():
            places = [place for place, run in tracked.runs.items() if run.open and not run.pid]
            for place in places:
                del tracked.runs[place]
        super().begin()


MINDS = {
    "fold forgets what was intended": Mind(fold=forgets_what_was_intended),
    "fold forgets what was left out": Mind(fold=forgets_what_was_left_out),
    "the heir does not know that it is one": Mind(fold=forgets_handing_over),
    "an end that nobody saw counts as canceled": Mind(
        observe=takes_every_end_that_nobody_saw_for_canceled
    ),
    "an id that comes back is not seen": Mind(observe=sees_an_id_only_once),
    "Started is overlooked": Mind(observe=overlooks_started),
    "an unknown end counts as done": Mind(decide=decides(unknown_is_done)),
    "an unknown end is always repeated": Mind(decide=decides(unknown_is_repeated)),
    "recovery begins when the event starts": Mind(decide=decides(recovers_when_started)),
    "approved before it is prepared": Mind(decide=decides(approves_first)),
    "closed as soon as it is gone": Mind(decide=decides(closes_what_is_gone)),
    "steps are left out without a word": Mind(decide=decides(says_nothing_of_what_is_left_out)),
    "preparing goes on after a failure": Mind(decide=decides(goes_on_after_a_failure)),
    "a prepare step has as long as it likes": Mind(decide=decides(ignores_the_time_left)),
    "two steps of one event at a time": Mind(decide=forgets_open_runs),
    "shared, and not handed over": Mind(
        decide=decides_seeing(lambda tracked, _: tracked.gone is None)
    ),
    "two that end together both recover": Mind(
        decide=decides_seeing(lambda tracked, other: tracked.gone is None or other.gone is None)
    ),
    "prepares beside bringing back": Mind(
        decide=decides_seeing(lambda tracked, other: tracked.gone is not None or other.gone is None)
    ),
}
LIVES: dict[str, type[ModelAgent]] = {
    "approves before the fact is kept": ApprovesBeforeItKeepsTheFact,
    "runs before the fact is kept": RunsBeforeItKeepsTheFact,
    "takes what was intended for never run": TakesUnknownForNeverRun,
}


def found_within(seeds: int, mind: Mind | None, life: type[ModelAgent]) -> int | None:
    seeds_found = (seed for seed in range(seeds) if broken_in(seed, mind, life) is not None)
    return next(seeds_found, None)


@pytest.mark.parametrize("mistake", sorted(MINDS))
def test_a_mistake_in_the_pure_parts_is_found(mistake: str) -> None:
    assert found_within(SEEDS_PLANTED, MINDS[mistake], ModelAgent) is not None


@pytest.mark.parametrize("mistake", sorted(LIVES))
def test_a_mistake_in_the_order_of_keeping_and_doing_is_found(mistake: str) -> None:
    assert found_within(SEEDS_PLANTED, None, LIVES[mistake]) is not None


def test_the_judge_finds_nothing_where_nothing_was_planted() -> None:
    same = Mind(decide=decides(lambda *_: None))
    one_by_one = Mind(decide=decides_seeing(lambda *_: True))
    assert found_within(100, same, ModelAgent) is None
    assert found_within(100, one_by_one, ModelAgent) is None
