"""Who says go ahead, and when."""

from __future__ import annotations

from typing import Any

import pytest

from forewarn_guest.configuration import Approve, Rule
from forewarn_guest.deciding import APPROVE_AGAIN_S
from forewarn_guest.facts import Outcome
from scene import VM, Scene, event, rule, started, step


def with_approve(approve: Approve, **more: Any) -> Rule:
    return rule(approve=approve, **more)


def test_after_prepare_approves_when_the_last_step_is_done_and_not_before() -> None:
    scene = Scene(with_approve(Approve.AFTER_PREPARE, prepare=("drain", "save"))).show(event())
    assert scene.end("drain").approved == []
    assert scene.end("save").approved == ["E1#1"]


def test_a_rule_without_prepare_steps_approves_at_once() -> None:
    assert Scene(rule(prepare=())).show(event()).approved == ["E1#1"]


def test_at_once_approves_before_and_while_steps_run_and_in_spite_of_a_failure() -> None:
    scene = Scene(with_approve(Approve.AT_ONCE)).show(event(source="User"))
    assert scene.approved == ["E1#1"]
    assert list(scene.running) == ["E1#1 drain"]
    scene.wait(APPROVE_AGAIN_S[0])
    assert scene.approved == ["E1#1", "E1#1"], "not moved on: said again while the step runs"
    scene.end("drain", Outcome.FAILED)
    assert not [line for line in scene.lines if "withheld" in line]


def test_at_once_is_not_said_again_after_the_event_has_started() -> None:
    scene = Scene(with_approve(Approve.AT_ONCE)).show(event(source="User"))
    scene.show(started(event(source="User"))).wait(600.0)
    assert list(scene.running) == ["E1#1 drain"]
    assert scene.approved == ["E1#1"]


def test_never_approves_never_and_blames_nobody() -> None:
    scene = Scene(with_approve(Approve.NEVER)).show(event()).end("drain").wait(600.0)
    assert scene.approved == []
    scene = Scene(with_approve(Approve.NEVER)).show(event()).end("drain", Outcome.FAILED)
    assert not [line for line in scene.lines if "withheld" in line]


def test_an_approval_is_said_again_until_the_event_has_moved_on() -> None:
    scene = Scene(rule()).show(event()).end("drain")
    when = 0.0
    for number, pause_s in enumerate((*APPROVE_AGAIN_S, APPROVE_AGAIN_S[-1]), 1):
        assert len(scene.approved) == number
        assert scene.look_again_s == when + pause_s
        scene.wait(when + pause_s - 0.1)
        assert len(scene.approved) == number
        when += pause_s
        scene.wait(when)
    said = len(scene.approved)
    scene.show(started(event())).wait(when + 600.0)
    assert len(scene.approved) == said


def test_no_event_is_approved_after_it_is_gone() -> None:
    scene = Scene(rule()).show(event()).end("drain").show().end("return").wait(600.0)
    assert scene.approved == ["E1#1"]


def test_a_withheld_approval_says_why_once() -> None:
    scene = Scene(rule()).show(event()).end("drain", Outcome.FAILED)
    scene.wait(60.0).show(event(), at_s=61.0).restart().show(event(), at_s=62.0)
    withheld = [line for line in scene.lines if "withheld" in line]
    assert withheld == ["E1#1 approval-withheld step drain of prepare: failed"]


def test_the_reason_names_the_step_that_blocks_and_not_an_optional_one() -> None:
    steps = (step("tell", optional=True), "drain", "save")
    scene = Scene(rule(prepare=steps)).show(event())
    scene.end("tell", Outcome.FAILED).end("drain", Outcome.TIMED_OUT)
    assert scene.lines[-1] == "E1#1 approval-withheld step drain of prepare: timed-out"


# One of several.

NAMES = ("db_0", "web_1", VM)
FIRST_NAMED = with_approve(Approve.FIRST_NAMED, take_over_s=60.0)


def test_the_first_named_vm_is_the_first_name_and_approves_when_it_is_prepared() -> None:
    scene = Scene(FIRST_NAMED).show(event(resources=(VM.upper(), "db_0")))
    assert scene.approved == []
    assert scene.end("drain").approved == ["E1#1"]


@pytest.mark.parametrize(
    ("names", "turn"),
    [((VM, "b"), 0), (("a", VM), 1), (("a", "b", VM), 2), (("a", "A", "a", VM), 1)],
)
def test_each_further_name_takes_over_one_time_later(names: tuple[str, ...], turn: int) -> None:
    scene = Scene(FIRST_NAMED).show(event(resources=names)).end("drain", at_s=30.0)
    if turn:
        assert scene.look_again_s == 30.0 + turn * 60.0
        assert scene.wait(30.0 + turn * 60.0 - 0.1).approved == []
    assert scene.wait(30.0 + turn * 60.0).approved[:1] == ["E1#1"]


def test_who_is_not_the_first_named_vm_stays_silent_if_the_first_named_vm_approves() -> None:
    scene = Scene(FIRST_NAMED).show(event(resources=NAMES)).end("drain", at_s=10.0)
    scene.show(started(event(resources=NAMES)), at_s=20.0).wait(600.0)
    assert scene.approved == []


def test_a_first_named_vm_whose_preparation_failed_does_not_approve_and_says_why() -> None:
    scene = Scene(FIRST_NAMED).show(event(resources=(VM, "db_0"))).end("drain", Outcome.FAILED)
    assert scene.wait(600.0).approved == []
    assert scene.lines[-1] == "E1#1 approval-withheld step drain of prepare: failed"


def test_who_takes_over_must_be_prepared_too() -> None:
    scene = Scene(FIRST_NAMED).show(event(resources=("db_0", VM), not_before_s=None)).wait(600.0)
    assert scene.approved == []
    scene.end("drain", at_s=600.0)
    assert scene.wait(659.9).approved == []
    assert scene.wait(660.0).approved == ["E1#1"]
