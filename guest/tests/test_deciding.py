"""What the agent does about one event, from its appearing to its being closed."""

from __future__ import annotations

import pytest

from forewarn_guest.configuration import Approve, OnUnknown
from forewarn_guest.deciding import (
    ATTEMPTS_AT_MOST,
    EARLIER_FAILED,
    HAS_STARTED,
    IS_GONE,
    NO_TIME,
    NOTHING_TO_UNDO,
    WITHOUT_RULE,
)
from forewarn_guest.facts import Outcome
from scene import Scene, event, rule, started, step

FULL = rule(
    prepare=("drain", "save"), started=("tell",), recover=("load", "join"), canceled=("undrain",)
)


def test_a_whole_life_runs_each_list_once_and_in_order() -> None:
    scene = Scene(FULL).show(event()).end("drain").end("save")
    scene.show(started(event())).end("tell").show().end("load").end("join")
    assert [line for line in scene.lines if "step-intended" in line] == [
        "E1#1 step-intended prepare drain",
        "E1#1 step-intended prepare save",
        "E1#1 step-intended started tell",
        "E1#1 step-intended recover load",
        "E1#1 step-intended recover join",
    ]
    assert scene.approved == ["E1#1"]
    assert scene.lines[-1] == "E1#1 closed"


def test_one_step_of_an_event_runs_at_a_time() -> None:
    scene = Scene(FULL).show(event())
    assert list(scene.running) == ["E1#1 drain"]
    assert list(scene.show(event(), at_s=1.0).running) == ["E1#1 drain"]


def test_an_event_first_seen_as_started_is_not_prepared_for_but_recovered_from() -> None:
    scene = Scene(FULL).show(started(event())).end("tell").show().end("load").end("join")
    assert not [line for line in scene.lines if "prepare" in line]
    assert scene.approved == []
    assert scene.lines[-1] == "E1#1 closed"


def test_an_event_that_starts_while_it_is_prepared_for_leaves_the_rest_out() -> None:
    scene = Scene(FULL).show(event()).show(started(event()))
    assert list(scene.running) == ["E1#1 drain"], "what runs comes to its own end"
    scene.end("drain")
    assert f"E1#1 step-left-out prepare save {HAS_STARTED}" in scene.lines
    assert list(scene.running) == ["E1#1 tell"]
    assert scene.approved == []


def test_an_event_withdrawn_during_prepare_is_undone_after_the_step_that_runs() -> None:
    scene = Scene(FULL).show(event()).show()
    assert list(scene.running) == ["E1#1 drain"]
    scene.end("drain")
    assert f"E1#1 step-left-out prepare save {IS_GONE}" in scene.lines
    assert f"E1#1 step-left-out started tell {IS_GONE}" in scene.lines
    assert list(scene.running) == ["E1#1 undrain"]
    assert scene.end("undrain").lines[-1] == "E1#1 closed"


def test_a_canceled_event_is_undone_by_recover_if_there_is_no_list_for_it() -> None:
    scene = Scene(rule()).show(event()).show().end("drain")
    assert scene.lines[-1] == "E1#1 step-intended canceled return"


def test_a_canceled_event_that_nothing_was_prepared_for_is_not_undone() -> None:
    scene = Scene(rule(prepare=(), canceled=("undrain", "join"), approve=Approve.NEVER))
    scene.show(event()).show()
    assert scene.lines[-3:] == [
        f"E1#1 step-left-out canceled undrain {NOTHING_TO_UNDO}",
        f"E1#1 step-left-out canceled join {NOTHING_TO_UNDO}",
        "E1#1 closed",
    ]
    assert scene.running == {}


def test_an_event_that_may_have_happened_is_recovered_from() -> None:
    scene = Scene(FULL).show(event()).end("drain").end("save").show(at_s=100.0)
    assert scene.approved == ["E1#1"]
    assert scene.lines[-1] == "E1#1 step-intended recover load"


# Time.


def test_a_prepare_step_has_until_the_margin_before_not_before() -> None:
    scene = Scene(rule(prepare=("drain", "save"), margin_s=10.0)).show(event(not_before_s=100.0))
    assert scene.limits["drain"] == 60.0, "its own limit is shorter"
    scene.end("drain", at_s=50.0)
    assert scene.limits["save"] == 40.0


def test_time_is_counted_from_the_date_of_the_answer() -> None:
    scene = Scene(rule(margin_s=10.0)).show(event(not_before_s=100.0), at_s=75.0)
    assert scene.limits["drain"] == 15.0


def test_steps_for_which_no_time_is_left_are_left_out_and_approval_says_so() -> None:
    scene = Scene(rule(prepare=("drain", "save"), margin_s=10.0)).show(event(not_before_s=60.0))
    scene.end("drain", at_s=50.0)
    assert scene.lines[-2:] == [
        f"E1#1 step-left-out prepare save {NO_TIME}",
        f"E1#1 approval-withheld step save of prepare was left out: {NO_TIME}",
    ]


def test_other_lists_have_their_own_limits_only() -> None:
    scene = Scene(FULL).show(event(not_before_s=5.0))
    scene.show(started(event())).end("tell").show(at_s=50.0)
    assert (scene.limits["tell"], scene.limits["load"]) == (60.0, 60.0)


def test_without_a_known_not_before_a_step_has_its_own_limit() -> None:
    assert Scene(rule()).show(event(not_before_s=None)).limits["drain"] == 60.0


# Steps that fail.


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.TIMED_OUT])
def test_a_failed_prepare_step_stops_preparing_and_withholds_approval(outcome: Outcome) -> None:
    scene = Scene(FULL).show(event()).end("drain", outcome).wait(5.0).show(event(), at_s=9.0)
    assert scene.lines[-2:] == [
        f"E1#1 step-left-out prepare save {EARLIER_FAILED}",
        f"E1#1 approval-withheld step drain of prepare: {outcome.value}",
    ]
    assert scene.approved == []


def test_what_a_failed_preparation_has_touched_is_brought_back() -> None:
    scene = Scene(FULL).show(event()).end("drain", Outcome.FAILED).show()
    assert list(scene.running) == ["E1#1 undrain"]


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.TIMED_OUT])
def test_recovery_goes_on_after_a_step_that_failed(outcome: Outcome) -> None:
    scene = Scene(FULL).show(started(event())).end("tell", outcome).show().end("load", outcome)
    assert list(scene.running) == ["E1#1 join"]
    assert scene.end("join").lines[-1] == "E1#1 closed"


def test_an_optional_step_may_fail_without_blocking_anything() -> None:
    scene = Scene(rule(prepare=(step("tell", optional=True), "drain"))).show(event())
    scene.end("tell", Outcome.FAILED).end("drain")
    assert scene.approved == ["E1#1"]


# Ends that nobody recorded.


def after_unknown(on_unknown: OnUnknown) -> Scene:
    drain = step("drain", on_unknown=on_unknown)
    return Scene(rule(prepare=(drain, "save"))).show(event()).restart().show(event())


def test_an_unknown_end_is_repeated_if_the_step_says_so_and_the_journal_says_it() -> None:
    scene = after_unknown(OnUnknown.REPEAT)
    assert scene.lines[-2:] == [
        "E1#1 step-ended prepare drain unknown",
        "E1#1 step-intended prepare drain",
    ]
    assert scene.facts[-1].detail["attempt"] == 2
    assert scene.end("drain").end("save").approved == ["E1#1"]


def test_an_unknown_end_counts_as_done_if_the_step_says_so() -> None:
    scene = after_unknown(OnUnknown.TREAT_AS_DONE)
    assert "E1#1 step-ruled prepare drain done" in scene.lines
    assert list(scene.running) == ["E1#1 save"]


def test_an_unknown_end_counts_as_failed_otherwise() -> None:
    scene = after_unknown(OnUnknown.TREAT_AS_FAILED)
    assert "E1#1 step-ruled prepare drain failed" in scene.lines
    assert scene.lines[-1] == "E1#1 approval-withheld step drain of prepare: unknown"
    assert scene.running == {}


def test_a_step_is_not_repeated_for_an_event_that_has_moved_on() -> None:
    drain = step("drain", on_unknown=OnUnknown.REPEAT)
    scene = Scene(rule(prepare=(drain,))).show(event()).restart().show(started(event()))
    assert scene.lines[-1] == "E1#1 step-ruled prepare drain failed"


def test_a_started_step_is_repeated_while_the_event_stands_and_not_after() -> None:
    with_tell = rule(started=(step("tell", on_unknown=OnUnknown.REPEAT),))
    scene = Scene(with_tell).show(started(event())).restart().show(started(event()))
    assert list(scene.running) == ["E1#1 tell"]
    scene.restart().show()
    assert "E1#1 step-ruled started tell failed" in scene.lines
    assert list(scene.running) == ["E1#1 return"]


@pytest.mark.parametrize("at_s", [90.0, 95.0])
def test_a_step_is_not_repeated_without_time_and_the_agent_settles(at_s: float) -> None:
    drain = step("drain", on_unknown=OnUnknown.REPEAT)
    scene = Scene(rule(prepare=(drain,))).show(event(not_before_s=100.0)).restart()
    scene.show(event(not_before_s=100.0), at_s=at_s)
    assert "E1#1 step-ruled prepare drain failed" in scene.lines
    assert scene.lines[-1] == "E1#1 approval-withheld step drain of prepare: unknown"


def test_a_step_that_ends_its_own_agent_is_not_repeated_for_ever() -> None:
    scene = Scene(rule(recover=(step("load", on_unknown=OnUnknown.REPEAT),)))
    scene.show(started(event())).show()
    for _ in range(ATTEMPTS_AT_MOST):
        assert list(scene.running) == ["E1#1 load"]
        scene.restart().show()
    assert scene.lines[-2:] == ["E1#1 step-ruled recover load failed", "E1#1 closed"]


def test_a_step_that_the_configuration_no_longer_has_counts_as_failed() -> None:
    scene = Scene(rule()).show(event()).restart(rule(prepare=("other",))).show(event())
    assert scene.lines[-2:] == [
        "E1#1 step-ruled prepare drain failed",
        "E1#1 step-intended prepare other",
    ]


# What a restart finds.


def test_after_a_restart_the_agent_goes_on_with_the_next_step() -> None:
    scene = Scene(FULL).show(event()).end("drain")
    scene.end("save").restart().show(event())
    assert scene.running == {}
    assert scene.approved == ["E1#1", "E1#1"], "an approval may be said twice, a step never"


def test_after_a_reboot_an_event_that_is_gone_has_happened() -> None:
    scene = Scene(FULL).show(event()).end("drain", Outcome.FAILED).restart(reboots=True).show()
    assert scene.lines[-1] == "E1#1 step-intended recover load"


def test_a_rule_that_is_gone_from_the_configuration_is_said_once_and_nothing_is_run() -> None:
    scene = Scene(FULL).show(event()).end("drain").end("save").restart(rule("other"))
    scene.show(event()).show(event())
    assert scene.lines.count(f"E1#1 approval-withheld {WITHOUT_RULE}") == 1
    assert scene.show().lines[-1] == "E1#1 closed"
    assert scene.running == {}


def test_a_rule_that_now_ignores_what_was_prepared_is_said_too() -> None:
    scene = Scene(rule()).show(event()).end("drain").restart(rule(ignore=True)).show(event())
    assert scene.lines[-1] == f"E1#1 approval-withheld {WITHOUT_RULE}"
    assert scene.show().lines[-1] == "E1#1 closed"
