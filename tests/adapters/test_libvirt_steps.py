"""What is done next to a domain, for everything that may be seen of it: pure tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import pytest

from forewarn.adapters.libvirt_steps import (
    Move,
    MoveStage,
    Next,
    Patience,
    Place,
    Step,
    deleting,
    moving,
    rebooting,
    shutting_down,
    starting,
)
from forewarn.adapters.libvirt_xml import Mark
from forewarn.core.machines import Power
from forewarn.core.model import ActionKind

FRESH = Patience(elapsed_ms=0, limit_ms=60_000, presses=0)
SPENT = Patience(elapsed_ms=60_000, limit_ms=60_000, presses=2)
OFF = Place(power=Power.OFF, active=False)
RUNS = Place(power=Power.RUNNING, active=True, before=True)
RESTARTED = replace(RUNS, before=False)
PAUSED = Place(power=Power.PAUSED, active=True, before=True)
CRASHED = Place(power=Power.CRASHED, active=False)
HUNG = Place(power=Power.CRASHED, active=True, before=True)
MARK = Mark(action_id="E", kind=ActionKind.MOVE_VM, found=Power.RUNNING, target_host="h2")


@pytest.mark.parametrize(
    ("here", "patience", "step"),
    [
        (RUNS, FRESH, Step.PRESS),
        (RUNS, replace(FRESH, presses=1), Step.WAIT),
        (RUNS, replace(FRESH, presses=1, elapsed_ms=30_000), Step.PRESS),
        (RUNS, replace(FRESH, presses=2, elapsed_ms=59_999), Step.WAIT),
        (RUNS, SPENT, Step.DESTROY),
        (RUNS, replace(FRESH, limit_ms=0), Step.DESTROY),
        (PAUSED, FRESH, Step.DESTROY),
        (HUNG, FRESH, Step.DESTROY),
    ],
)
def test_a_guest_is_asked_twice_and_then_not_any_more(
    here: Place, patience: Patience, step: Step
) -> None:
    assert shutting_down(here, patience).step is step


@pytest.mark.parametrize(
    ("here", "found", "step"),
    [
        (None, Power.RUNNING, Step.FAILED),
        (OFF, Power.OFF, Step.DONE),
        (OFF, Power.RUNNING, Step.START),
        (CRASHED, Power.CRASHED, Step.START),
        (RESTARTED, Power.RUNNING, Step.DONE),
        (RUNS, Power.RUNNING, Step.PRESS),
        (PAUSED, Power.PAUSED, Step.DESTROY),
    ],
)
def test_a_restart_ends_when_the_domain_was_started_since(
    here: Place | None, found: Power, step: Step
) -> None:
    assert rebooting(here, replace(MARK, found=found), FRESH).step is step


@pytest.mark.parametrize(
    ("here", "step"),
    [(None, Step.DONE), (OFF, Step.UNDEFINE), (RUNS, Step.PRESS), (RESTARTED, Step.PRESS)],
)
def test_a_deletion_shuts_down_and_forgets(here: Place | None, step: Step) -> None:
    assert deleting(here, FRESH) == Next(step)


@pytest.mark.parametrize(
    ("here", "step"),
    [(None, Step.DEFINE), (OFF, Step.START), (RUNS, Step.DONE), (PAUSED, Step.DONE)],
)
def test_a_start_defines_what_is_missing(here: Place | None, step: Step) -> None:
    assert starting(here, Power.OFF) == Next(step)


def test_a_start_resumes_what_a_move_left_paused() -> None:
    assert starting(PAUSED, Power.RUNNING) == Next(Step.RESUME)
    assert starting(PAUSED, Power.PAUSED) == Next(Step.DONE)


# Moves: by where the domain is.


def a_move(here: Place | None, there: Place | None, stage: MoveStage, **more: Any) -> Move:
    mark = replace(MARK, step=stage.value, found=more.pop("found", Power.RUNNING))
    values: dict[str, Any] = {"there_answers": True, "patience": FRESH, **more}
    return Move(here=here, there=there, mark=mark, **values)


LIVE, COLD, THERE, BACK = MoveStage


@pytest.mark.parametrize(
    ("move", "step"),
    [
        # It runs here.
        (a_move(RUNS, None, LIVE), Step.MOVE_LIVE),
        (a_move(PAUSED, None, LIVE, found=Power.PAUSED), Step.MOVE_LIVE),
        (a_move(RUNS, OFF, LIVE), Step.MOVE_LIVE),
        (a_move(RUNS, None, LIVE, there_answers=False), Step.MOVE_LIVE),
        (a_move(RUNS, None, LIVE, migrating=True), Step.WAIT),
        (a_move(RUNS, None, LIVE, migrating=True, failed_live="no"), Step.WAIT),
        (a_move(RUNS, None, LIVE, failed_live="no"), Step.FAILED),
        (a_move(PAUSED, None, LIVE, failed_live="no"), Step.RESUME),
        (a_move(PAUSED, None, LIVE, failed_live="no", found=Power.PAUSED), Step.FAILED),
        (a_move(PAUSED, None, LIVE, failed_live="no", there_answers=False), Step.WAIT),
        (
            a_move(PAUSED, None, LIVE, failed_live="no", there_answers=False, overdue=True),
            Step.UNSURE,
        ),
        (a_move(RUNS, None, LIVE, cannot_live="no"), Step.GO_COLD),
        (a_move(RUNS, None, COLD), Step.PRESS),
        (a_move(RUNS, None, COLD, patience=SPENT), Step.DESTROY),
        (a_move(PAUSED, None, COLD), Step.DESTROY),
        (a_move(RUNS, None, COLD, there_answers=False), Step.FAILED),
        (a_move(RESTARTED, None, COLD), Step.FAILED),
        (a_move(RESTARTED, None, THERE), Step.FAILED),
        (a_move(RESTARTED, OFF, BACK), Step.UNDEFINE_THERE),
        (a_move(RESTARTED, None, BACK), Step.FAILED),
        # It is off here.
        (a_move(OFF, None, LIVE), Step.GO_COLD),
        (a_move(OFF, None, COLD), Step.DEFINE_THERE),
        (a_move(OFF, OFF, COLD), Step.DEFINE_THERE),
        (a_move(OFF, None, COLD, there_answers=False), Step.GO_BACK),
        (a_move(OFF, None, THERE), Step.DEFINE_THERE),
        (a_move(OFF, OFF, THERE), Step.START_THERE),
        (a_move(OFF, OFF, THERE, found=Power.OFF), Step.UNDEFINE),
        (a_move(OFF, None, THERE, there_answers=False), Step.WAIT),
        (a_move(OFF, None, THERE, there_answers=False, overdue=True), Step.UNSURE),
        (a_move(OFF, OFF, BACK), Step.START),
        (a_move(OFF, None, BACK, there_answers=False), Step.START),
        (a_move(OFF, OFF, BACK, found=Power.OFF), Step.UNDEFINE_THERE),
        (a_move(OFF, None, BACK, found=Power.OFF), Step.FAILED),
        # It is active there too.
        (a_move(OFF, RUNS, LIVE), Step.UNDEFINE),
        (a_move(OFF, RUNS, THERE), Step.UNDEFINE),
        (a_move(OFF, RUNS, BACK), Step.UNDEFINE),
        (a_move(RUNS, PAUSED, LIVE, migrating=True), Step.WAIT),
        (a_move(RUNS, PAUSED, LIVE), Step.WAIT),
        (a_move(RUNS, PAUSED, LIVE, overdue=True), Step.FAILED),
        (a_move(PAUSED, PAUSED, LIVE), Step.WAIT),
        (a_move(PAUSED, RUNS, LIVE), Step.DESTROY),
        (a_move(PAUSED, RUNS, LIVE, found=Power.PAUSED), Step.WAIT),
        (a_move(RUNS, RUNS, LIVE), Step.FAILED),
        (a_move(RUNS, RUNS, THERE), Step.FAILED),
        # It is gone from here.
        (a_move(None, RUNS, LIVE), Step.DONE),
        (a_move(None, PAUSED, LIVE), Step.DONE),
        (a_move(None, OFF, THERE), Step.START_THERE),
        (a_move(None, OFF, THERE, found=Power.OFF), Step.DONE),
        (a_move(None, None, LIVE), Step.FAILED),
        (a_move(None, None, LIVE, there_answers=False), Step.WAIT),
        (a_move(None, None, LIVE, there_answers=False, overdue=True), Step.UNSURE),
    ],
)
def test_a_move_goes_on_from_where_the_domain_is(move: Move, step: Step) -> None:
    assert moving(move).step is step


def every_move() -> Iterator[Move]:
    """Everything that can be seen of a move."""
    heres = (None, OFF, CRASHED, RUNS, RESTARTED, PAUSED, HUNG)
    theres = ((None, True), (None, False), (OFF, True), (RUNS, True), (PAUSED, True))
    for here, (there, answers), stage in product(heres, theres, MoveStage):
        for found, migrating, overdue in product(Power, (False, True), (False, True)):
            for cannot, failed, patience in product(("", "x"), ("", "x"), (FRESH, SPENT)):
                yield a_move(
                    here,
                    there,
                    stage,
                    there_answers=answers,
                    found=found,
                    migrating=migrating,
                    overdue=overdue,
                    cannot_live=cannot,
                    failed_live=failed,
                    patience=patience,
                )


def violations(rule: Callable[[Move, Next], bool]) -> list[tuple[Move, Next]]:
    found = [(move, moving(move)) for move in every_move()]
    assert len(found) > 10_000
    return [(move, next_) for move, next_ in found if not rule(move, next_)][:3]


def test_nothing_is_started_where_it_may_run_on_the_other_host() -> None:
    def rule(move: Move, next_: Next) -> bool:
        if next_.step is Step.START:
            known_off = move.there is None or not move.there.active
            return known_off and (move.there_answers or move.stage is MoveStage.BACK)
        if next_.step is Step.START_THERE:
            return move.here is None or not move.here.active
        return True

    assert violations(rule) == []


def test_a_domain_is_forgotten_only_where_it_is_off_and_while_it_is_elsewhere() -> None:
    def rule(move: Move, next_: Next) -> bool:
        if next_.step is Step.UNDEFINE:
            return move.here is not None and not move.here.active and move.there is not None
        if next_.step is Step.UNDEFINE_THERE:
            there_off = move.there is not None and not move.there.active
            return there_off and move.here is not None
        return True

    assert violations(rule) == []


def test_the_plug_is_pulled_only_if_the_guest_had_its_time_or_runs_elsewhere() -> None:
    def rule(move: Move, next_: Next) -> bool:
        if next_.step is not Step.DESTROY:
            return True
        here, there = move.here, move.there
        runs_there = there is not None and there.power is Power.RUNNING
        had_its_time = move.patience is SPENT or (here is not None and here.power != Power.RUNNING)
        return runs_there or (had_its_time and move.stage is not MoveStage.LIVE)

    assert violations(rule) == []


def test_done_is_said_only_of_a_domain_that_is_there_and_not_here() -> None:
    def rule(move: Move, next_: Next) -> bool:
        return next_.step is not Step.DONE or (move.here is None and move.there is not None)

    assert violations(rule) == []


def test_every_failure_has_words() -> None:
    bad = (Step.FAILED, Step.UNSURE)
    assert violations(lambda _, next_: next_.step not in bad or bool(next_.detail)) == []


def test_a_move_is_unsure_only_if_its_target_cannot_be_asked_and_it_does_not_run_here() -> None:
    def rule(move: Move, next_: Next) -> bool:
        runs = move.here is not None and move.here.power is Power.RUNNING
        return next_.step is not Step.UNSURE or (not move.there_answers and not runs)

    assert violations(rule) == []


def test_nothing_is_started_here_while_a_target_that_may_run_it_cannot_be_asked() -> None:
    """A target was never told to start it in the stages before THERE."""

    def rule(move: Move, next_: Next) -> bool:
        may_run_there = move.stage is MoveStage.THERE or move.failed_live != ""
        starts = next_.step in (Step.START, Step.RESUME)
        return not starts or move.there_answers or not may_run_there or move.stage is BACK

    assert violations(rule) == []


@dataclass
class Pretend:
    """Two hosts that do what they are told: enough to see that every move comes to its end."""

    here: Place | None
    there: Place | None
    mark: Mark
    failed_live: str = ""
    cannot_live: str = ""

    def do(self, next_: Next) -> None:  # noqa: C901 - a table
        step, off = next_.step, Place(power=Power.OFF, active=False)
        match step:
            case Step.DESTROY | Step.PRESS:
                self.here = off
            case Step.START:
                self.here = RESTARTED
            case Step.RESUME:
                self.here = RUNS
            case Step.UNDEFINE:
                self.here = None
            case Step.MOVE_LIVE:
                self.cannot_live = "it cannot"
            case Step.GO_COLD:
                active = self.here is not None and self.here.active
                found = self.mark.found if active else Power.OFF
                self.mark = replace(self.mark, step=COLD.value, found=found)
            case Step.GO_BACK:
                self.mark = replace(self.mark, step=BACK.value)
            case Step.DEFINE_THERE:
                self.mark, self.there = replace(self.mark, step=THERE.value), off
            case Step.START_THERE:
                self.there = RESTARTED
            case Step.UNDEFINE_THERE:
                self.there = None
            case _:
                raise AssertionError(step)


def test_every_move_comes_to_its_end_in_a_few_steps() -> None:
    """From wherever it was interrupted, if both hosts answer and do what they are told."""
    for move in every_move():
        if not move.there_answers or move.migrating:
            continue
        world = Pretend(move.here, move.there, move.mark, move.failed_live, move.cannot_live)
        for _ in range(10):
            next_ = moving(
                replace(
                    move,
                    here=world.here,
                    there=world.there,
                    mark=world.mark,
                    failed_live=world.failed_live,
                    cannot_live=world.cannot_live,
                    overdue=True,
                )
            )
            if next_.step in (Step.DONE, Step.FAILED):
                break
            if next_.step is not Step.WAIT:
                world.do(next_)
        else:
            raise AssertionError(f"no end: {move}")
