"""What is done next to a domain, for everything that may be seen of it: pure tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace

from forewarn.adapters.libvirt.domain_xml import DomainMark
from forewarn.adapters.libvirt.next_steps import (
    DomainOnHost,
    DomainStep,
    MoveInputs,
    MoveStage,
    Next,
    Patience,
    deleting,
    moving,
    rebooting,
    shutting_down,
    starting,
)
from forewarn.core.inventory.host_report import Power
from forewarn.core.model import ActionKind

FRESH = Patience(elapsed_ms=0, limit_ms=60_000, presses=0)
SPENT = Patience(elapsed_ms=60_000, limit_ms=60_000, presses=2)
OFF = DomainOnHost(power=Power.OFF, active=False)
RUNS = DomainOnHost(power=Power.RUNNING, active=True, before=True)
RESTARTED = replace(RUNS, before=False)
PAUSED = DomainOnHost(power=Power.PAUSED, active=True, before=True)
CRASHED = DomainOnHost(power=Power.CRASHED, active=False)
HUNG = DomainOnHost(power=Power.CRASHED, active=True, before=True)
MARK = DomainMark(action_id="E", kind=ActionKind.MOVE_VM, found=Power.RUNNING, target_host="h2")


@pytest.mark.parametrize(
    ("here", "patience", "step"),
    [
        (RUNS, FRESH, DomainStep.PRESS),
        (RUNS, replace(FRESH, presses=1), DomainStep.WAIT),
        (RUNS, replace(FRESH, presses=1, elapsed_ms=30_000), DomainStep.PRESS),
        (RUNS, replace(FRESH, presses=2, elapsed_ms=59_999), DomainStep.WAIT),
        (RUNS, SPENT, DomainStep.DESTROY),
        (RUNS, replace(FRESH, limit_ms=0), DomainStep.DESTROY),
        (PAUSED, FRESH, DomainStep.DESTROY),
        (HUNG, FRESH, DomainStep.DESTROY),
    ],
)
def test_a_guest_is_asked_twice_and_then_not_any_more(
    here: DomainOnHost, patience: Patience, step: DomainStep
) -> None:
    assert shutting_down(here, patience).step is step


@pytest.mark.parametrize(
    ("here", "found", "step"),
    [
        (None, Power.RUNNING, DomainStep.FAILED),
        (OFF, Power.OFF, DomainStep.DONE),
        (OFF, Power.RUNNING, DomainStep.START),
        (CRASHED, Power.CRASHED, DomainStep.START),
        (RESTARTED, Power.RUNNING, DomainStep.DONE),
        (RUNS, Power.RUNNING, DomainStep.PRESS),
        (PAUSED, Power.PAUSED, DomainStep.DESTROY),
    ],
)
def test_a_restart_ends_when_the_domain_was_started_since(
    here: DomainOnHost | None, found: Power, step: DomainStep
) -> None:
    assert rebooting(here, replace(MARK, found=found), FRESH).step is step


@pytest.mark.parametrize(
    ("here", "step"),
    [
        (None, DomainStep.DONE),
        (OFF, DomainStep.UNDEFINE),
        (RUNS, DomainStep.PRESS),
        (RESTARTED, DomainStep.PRESS),
    ],
)
def test_a_deletion_shuts_down_and_forgets(here: DomainOnHost | None, step: DomainStep) -> None:
    assert deleting(here, FRESH) == Next(step)


@pytest.mark.parametrize(
    ("here", "step"),
    [
        (None, DomainStep.DEFINE),
        (OFF, DomainStep.START),
        (RUNS, DomainStep.DONE),
        (PAUSED, DomainStep.DONE),
    ],
)
def test_a_start_defines_what_is_missing(here: DomainOnHost | None, step: DomainStep) -> None:
    assert starting(here, Power.OFF) == Next(step)


def test_a_start_resumes_what_a_move_left_paused() -> None:
    assert starting(PAUSED, Power.RUNNING) == Next(DomainStep.RESUME)
    assert starting(PAUSED, Power.PAUSED) == Next(DomainStep.DONE)


# Moves: by where the domain is.


def a_move(
    here: DomainOnHost | None, there: DomainOnHost | None, stage: MoveStage, **more: Any
) -> MoveInputs:
    mark = replace(MARK, step=stage.value, found=more.pop("found", Power.RUNNING))
    values: dict[str, Any] = {"there_answers": True, "patience": FRESH, **more}
    return MoveInputs(here=here, there=there, mark=mark, **values)


LIVE, COLD, THERE, BACK = MoveStage


@pytest.mark.parametrize(
    ("move", "step"),
    [
        # It runs here.
        (a_move(RUNS, None, LIVE), DomainStep.MOVE_LIVE),
        (a_move(PAUSED, None, LIVE, found=Power.PAUSED), DomainStep.MOVE_LIVE),
        (a_move(RUNS, OFF, LIVE), DomainStep.MOVE_LIVE),
        (a_move(RUNS, None, LIVE, there_answers=False), DomainStep.MOVE_LIVE),
        (a_move(RUNS, None, LIVE, migrating=True), DomainStep.WAIT),
        (a_move(RUNS, None, LIVE, migrating=True, failed_live="no"), DomainStep.WAIT),
        (a_move(RUNS, None, LIVE, failed_live="no"), DomainStep.FAILED),
        (a_move(PAUSED, None, LIVE, failed_live="no"), DomainStep.RESUME),
        (a_move(PAUSED, None, LIVE, failed_live="no", found=Power.PAUSED), DomainStep.FAILED),
        (a_move(PAUSED, None, LIVE, failed_live="no", there_answers=False), DomainStep.WAIT),
        (
            a_move(PAUSED, None, LIVE, failed_live="no", there_answers=False, overdue=True),
            DomainStep.UNSURE,
        ),
        (a_move(RUNS, None, LIVE, cannot_live="no"), DomainStep.GO_COLD),
        (a_move(RUNS, None, COLD), DomainStep.PRESS),
        (a_move(RUNS, None, COLD, patience=SPENT), DomainStep.DESTROY),
        (a_move(PAUSED, None, COLD), DomainStep.DESTROY),
        (a_move(RUNS, None, COLD, there_answers=False), DomainStep.FAILED),
        (a_move(RESTARTED, None, COLD), DomainStep.FAILED),
        (a_move(RESTARTED, None, THERE), DomainStep.FAILED),
        (a_move(RESTARTED, OFF, BACK), DomainStep.UNDEFINE_THERE),
        (a_move(RESTARTED, None, BACK), DomainStep.FAILED),
        # It is off here.
        (a_move(OFF, None, LIVE), DomainStep.GO_COLD),
        (a_move(OFF, None, COLD), DomainStep.DEFINE_THERE),
        (a_move(OFF, OFF, COLD), DomainStep.DEFINE_THERE),
        (a_move(OFF, None, COLD, there_answers=False), DomainStep.GO_BACK),
        (a_move(OFF, None, THERE), DomainStep.DEFINE_THERE),
        (a_move(OFF, OFF, THERE), DomainStep.START_THERE),
        (a_move(OFF, OFF, THERE, found=Power.OFF), DomainStep.UNDEFINE),
        (a_move(OFF, None, THERE, there_answers=False), DomainStep.WAIT),
        (a_move(OFF, None, THERE, there_answers=False, overdue=True), DomainStep.UNSURE),
        (a_move(OFF, OFF, BACK), DomainStep.START),
        (a_move(OFF, None, BACK, there_answers=False), DomainStep.START),
        (a_move(OFF, OFF, BACK, found=Power.OFF), DomainStep.UNDEFINE_THERE),
        (a_move(OFF, None, BACK, found=Power.OFF), DomainStep.FAILED),
        # It is active there too.
        (a_move(OFF, RUNS, LIVE), DomainStep.UNDEFINE),
        (a_move(OFF, RUNS, THERE), DomainStep.UNDEFINE),
        (a_move(OFF, RUNS, BACK), DomainStep.UNDEFINE),
        (a_move(RUNS, PAUSED, LIVE, migrating=True), DomainStep.WAIT),
        (a_move(RUNS, PAUSED, LIVE), DomainStep.WAIT),
        (a_move(RUNS, PAUSED, LIVE, overdue=True), DomainStep.FAILED),
        (a_move(PAUSED, PAUSED, LIVE), DomainStep.WAIT),
        (a_move(PAUSED, RUNS, LIVE), DomainStep.DESTROY),
        (a_move(PAUSED, RUNS, LIVE, found=Power.PAUSED), DomainStep.WAIT),
        (a_move(RUNS, RUNS, LIVE), DomainStep.FAILED),
        (a_move(RUNS, RUNS, THERE), DomainStep.FAILED),
        # It is gone from here.
        (a_move(None, RUNS, LIVE), DomainStep.DONE),
        (a_move(None, PAUSED, LIVE), DomainStep.DONE),
        (a_move(None, OFF, THERE), DomainStep.START_THERE),
        (a_move(None, OFF, THERE, found=Power.OFF), DomainStep.DONE),
        (a_move(None, None, LIVE), DomainStep.FAILED),
        (a_move(None, None, LIVE, there_answers=False), DomainStep.WAIT),
        (a_move(None, None, LIVE, there_answers=False, overdue=True), DomainStep.UNSURE),
    ],
)
def test_a_move_goes_on_from_where_the_domain_is(move: MoveInputs, step: DomainStep) -> None:
    assert moving(move).step is step


def every_move() -> Iterator[MoveInputs]:
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


def violations(rule: Callable[[MoveInputs, Next], bool]) -> list[tuple[MoveInputs, Next]]:
    found = [(move, moving(move)) for move in every_move()]
    assert len(found) > 10_000
    return [(move, next_) for move, next_ in found if not rule(move, next_)][:3]


def test_nothing_is_started_where_it_may_run_on_the_other_host() -> None:
    def rule(move: MoveInputs, next_: Next) -> bool:
        if next_.step is DomainStep.START:
            known_off = move.there is None or not move.there.active
            return known_off and (move.there_answers or move.stage is MoveStage.BACK)
        if next_.step is DomainStep.START_THERE:
            return move.here is None or not move.here.active
        return True

    assert violations(rule) == []


def test_a_domain_is_forgotten_only_where_it_is_off_and_while_it_is_elsewhere() -> None:
    def rule(move: MoveInputs, next_: Next) -> bool:
        if next_.step is DomainStep.UNDEFINE:
            return move.here is not None and not move.here.active and move.there is not None
        if next_.step is DomainStep.UNDEFINE_THERE:
            there_off = move.there is not None and not move.there.active
            return there_off and move.here is not None
        return True

    assert violations(rule) == []


def test_the_plug_is_pulled_only_if_the_guest_had_its_time_or_runs_elsewhere() -> None:
    def rule(move: MoveInputs, next_: Next) -> bool:
        if next_.step is not DomainStep.DESTROY:
            return True
        here, there = move.here, move.there
        runs_there = there is not None and there.power is Power.RUNNING
        had_its_time = move.patience is SPENT or (here is not None and here.power != Power.RUNNING)
        return runs_there or (had_its_time and move.stage is not MoveStage.LIVE)

    assert violations(rule) == []


def test_done_is_said_only_of_a_domain_that_is_there_and_not_here() -> None:
    def rule(move: MoveInputs, next_: Next) -> bool:
        return next_.step is not DomainStep.DONE or (move.here is None and move.there is not None)

    assert violations(rule) == []


def test_every_failure_has_words() -> None:
    bad = (DomainStep.FAILED, DomainStep.UNSURE)
    assert violations(lambda _, next_: next_.step not in bad or bool(next_.detail)) == []


def test_a_move_is_unsure_only_if_its_target_cannot_be_asked_and_it_does_not_run_here() -> None:
    def rule(move: MoveInputs, next_: Next) -> bool:
        runs = move.here is not None and move.here.power is Power.RUNNING
        return next_.step is not DomainStep.UNSURE or (not move.there_answers and not runs)

    assert violations(rule) == []


def test_nothing_is_started_here_while_a_target_that_may_run_it_cannot_be_asked() -> None:
    """A target was never told to start it in the stages before THERE."""

    def rule(move: MoveInputs, next_: Next) -> bool:
        may_run_there = move.stage is MoveStage.THERE or move.failed_live != ""
        starts = next_.step in (DomainStep.START, DomainStep.RESUME)
        return not starts or move.there_answers or not may_run_there or move.stage is BACK

    assert violations(rule) == []


@dataclass
class Pretend:
    """Two hosts that do what they are told: enough to see that every move comes to its end."""

    here: DomainOnHost | None
    there: DomainOnHost | None
    mark: DomainMark
    failed_live: str = ""
    cannot_live: str = ""

    def do(self, next_: Next) -> None:  # noqa: C901 - a table
        step, off = next_.step, DomainOnHost(power=Power.OFF, active=False)
        match step:
            case DomainStep.DESTROY | DomainStep.PRESS:
                self.here = off
            case DomainStep.START:
                self.here = RESTARTED
            case DomainStep.RESUME:
                self.here = RUNS
            case DomainStep.UNDEFINE:
                self.here = None
            case DomainStep.MOVE_LIVE:
                self.cannot_live = "it cannot"
            case DomainStep.GO_COLD:
                active = self.here is not None and self.here.active
                found = self.mark.found if active else Power.OFF
                self.mark = replace(self.mark, step=COLD.value, found=found)
            case DomainStep.GO_BACK:
                self.mark = replace(self.mark, step=BACK.value)
            case DomainStep.DEFINE_THERE:
                self.mark, self.there = replace(self.mark, step=THERE.value), off
            case DomainStep.START_THERE:
                self.there = RESTARTED
            case DomainStep.UNDEFINE_THERE:
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
            if next_.step in (DomainStep.DONE, DomainStep.FAILED):
                break
            if next_.step is not DomainStep.WAIT:
                world.do(next_)
        else:
            raise AssertionError(f"no end: {move}")
