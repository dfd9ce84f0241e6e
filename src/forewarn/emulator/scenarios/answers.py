"""Scenarios and their runs as JSON has them: the types of the answers, and how they are filled."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from forewarn.core.model import ScheduledEvent
from forewarn.emulator.scenarios import library
from forewarn.emulator.scenarios.values import Needs, Scenario, ScenarioStep
from forewarn.text.durations import duration_text
from forewarn.wire.instants import time_text

if TYPE_CHECKING:  # the command line reads scripts without it, and it imports all of control
    from forewarn.emulator.scenarios.runner import Run, StepRun


class StepJson(msgspec.Struct):
    """A step of a script."""

    number: int
    at: str
    do: str
    what: str


class ScenarioLine(msgspec.Struct):
    """A scenario in a list; `lasts` is the time of its last step."""

    name: str
    title: str
    needs: Needs
    steps: int
    lasts: str


class ScenarioJson(msgspec.Struct):
    """A scenario with its steps and its script."""

    name: str
    title: str
    about: str
    needs: Needs
    steps: list[StepJson]
    toml: str


class ScenarioList(msgspec.Struct):
    """All shipped scenarios, by name."""

    items: list[ScenarioLine]


class StepRunJson(msgspec.Struct):
    """A step of a run: when it is due, what has become of it, and what it made."""

    number: int
    at: str
    do: str
    what: str
    due: str
    phase: str
    said: str
    events: list[str]
    operations: list[str]
    faults: list[str]


class EventLine(msgspec.Struct):
    """An event that a run has made, as far as it has come."""

    event_id: str
    event_type: str
    event_source: str
    resources: list[str]
    phase: str
    not_before: str
    started: str | None
    ended: str | None
    description: str
    duration_seconds: int


class RunJson(msgspec.Struct):
    """A run. It is over when no step is left and everything that it made has ended."""

    run_id: str
    scenario: str
    title: str
    on: str
    scope: str
    started: str
    over: bool
    steps: list[StepRunJson]
    events: list[EventLine]


class RunList(msgspec.Struct):
    """Runs, oldest first."""

    items: list[RunJson]


def listed() -> ScenarioList:
    """Every shipped scenario in a line."""
    return ScenarioList(items=[_line(library.load(name)) for name in library.names()])


def _line(scenario: Scenario) -> ScenarioLine:
    return ScenarioLine(
        name=scenario.name,
        title=scenario.title,
        needs=scenario.needs,
        steps=len(scenario.steps),
        lasts=duration_text(scenario.steps[-1].at_ms),
    )


def shown(scenario: Scenario) -> ScenarioJson:
    """A scenario with everything there is to know of it."""
    return ScenarioJson(
        name=scenario.name,
        title=scenario.title,
        about=scenario.about,
        needs=scenario.needs,
        steps=[_step_shown(step) for step in scenario.steps],
        toml=scenario.text,
    )


def _step_shown(step: ScenarioStep) -> StepJson:
    return StepJson(
        number=step.number, at=duration_text(step.at_ms), do=step.verb.value, what=step.words
    )


def run_shown(run: Run, events: Iterable[ScheduledEvent], *, over: bool) -> RunJson:
    """A run as far as it has come."""
    return RunJson(
        run_id=run.run_id,
        scenario=run.scenario.name,
        title=run.scenario.title,
        on=run.target.vm,
        scope=run.target.scope,
        started=_time(run.started_ms),
        over=over,
        steps=[_step_taken(taken) for taken in run.steps],
        events=[_event_line(event) for event in events],
    )


def _step_taken(taken: StepRun) -> StepRunJson:
    return StepRunJson(
        number=taken.step.number,
        at=duration_text(taken.step.at_ms),
        do=taken.step.verb.value,
        what=taken.step.words,
        due=_time(taken.due_ms),
        phase=taken.phase.value,
        said=taken.said,
        events=list(taken.made.event_ids),
        operations=list(taken.made.operation_ids),
        faults=list(taken.made.fault_ids),
    )


def _event_line(event: ScheduledEvent) -> EventLine:
    return EventLine(
        event_id=event.event_id,
        event_type=event.event_type.value,
        event_source=event.event_source.value,
        resources=list(event.resources),
        phase=event.phase.value,
        not_before=_time(event.not_before_ms),
        started=time_text(event.started_ms),
        ended=time_text(event.ended_ms),
        description=event.description,
        duration_seconds=event.duration_s,
    )


def _time(at_ms: int) -> str:
    return time_text(at_ms) or ""
