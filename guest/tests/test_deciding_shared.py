"""Several events at once. One rule is one way of being prepared: they share it."""

from __future__ import annotations

from forewarn_guest.configuration import OnUnknown
from forewarn_guest.facts import Outcome
from scene import Scene, event, rule, started, step

A, B, C = event("A"), event("B"), event("C")
TWO = rule(prepare=("drain",), recover=("load", "join"), canceled=("undrain",))


def intended(scene: Scene) -> list[str]:
    """What was run, in order: `tracked event step`."""
    lines = (line.split() for line in scene.lines if "step-intended" in line)
    return [f"{tracked} {name}" for tracked, _, _, name in lines]


def test_the_second_event_waits_while_the_first_has_the_vm_prepared() -> None:
    scene = Scene(TWO).show(A, B)
    assert list(scene.running) == ["A#1 drain"]
    scene.end("drain")
    assert "B#1 already-prepared A#1" in scene.lines
    assert sorted(scene.approved) == ["A#1", "B#1"]
    assert intended(scene) == ["A#1 drain"]


def test_an_event_that_comes_later_shares_what_was_prepared() -> None:
    scene = Scene(TWO).show(A).end("drain").show(started(A), B)
    assert "B#1 already-prepared A#1" in scene.lines
    assert scene.running == {}


def test_an_event_that_shares_leaves_out_no_steps_of_its_own() -> None:
    scene = Scene(TWO).show(A, B).end("drain").show(started(A), started(B))
    assert not [line for line in scene.lines if "left-out" in line]


def test_the_second_prepares_by_itself_if_the_first_has_no_time_left() -> None:
    scene = Scene(TWO).show(event("A", not_before_s=5.0), B)
    assert list(scene.running) == ["B#1 drain"]


def test_of_several_the_first_that_stands_inherits_else_the_last_that_is_gone() -> None:
    scene = Scene(TWO).show(A, B, C).end("drain").show(B, C)
    assert "A#1 handed-over B#1" in scene.lines
    scene = Scene(TWO).show(A, B, C).end("drain").show()
    handed = [line for line in scene.lines if "handed-over" in line]
    assert handed == ["A#1 handed-over C#1", "B#1 handed-over C#1"]
    assert list(scene.running) == ["C#1 load"]


def test_the_first_hands_over_and_the_last_recovers() -> None:
    scene = Scene(TWO).show(A, B).end("drain").show(B, at_s=10.0)
    assert "A#1 handed-over B#1" in scene.lines
    assert "A#1 closed" in scene.lines
    assert scene.running == {}
    scene.show(started(B)).show().end("load").end("join")
    assert intended(scene) == ["A#1 drain", "B#1 load", "B#1 join"]
    assert scene.lines[-1] == "B#1 closed"


def test_a_third_event_shares_with_the_second_after_the_first_is_gone() -> None:
    scene = Scene(TWO).show(A, B).end("drain").show(B).show(B, C)
    assert "C#1 already-prepared B#1" in scene.lines
    assert intended(scene) == ["A#1 drain"]


def test_what_was_prepared_for_another_event_is_prepared_anew_after_a_boot() -> None:
    scene = Scene(TWO).show(A, B).end("drain").show(started(A), B)
    assert scene.approved == ["A#1", "B#1"]
    scene.restart(reboots=True).show(B)
    assert "B#1 vm-booted" in scene.lines
    assert "A#1 handed-over B#1" in scene.lines
    assert list(scene.running) == ["B#1 drain"]
    scene.end("drain").show(started(B)).show().end("load").end("join")
    assert intended(scene) == ["A#1 drain", "B#1 drain", "B#1 load", "B#1 join"]


def test_what_was_handed_over_is_prepared_anew_after_a_boot() -> None:
    scene = Scene(TWO).show(A, B).end("drain").show(B)
    scene.restart(reboots=True).show(B)
    assert list(scene.running) == ["B#1 drain"]


def test_nothing_that_was_prepared_before_a_boot_is_shared_or_handed_over_after_it() -> None:
    scene = Scene(TWO).show(A).end("drain").show(started(A)).restart(reboots=True)
    scene.show(started(A), B)
    assert "B#1 already-prepared A#1" not in scene.lines
    assert list(scene.running) == ["B#1 drain"]
    scene.end("drain").show(B)
    assert intended(scene) == ["A#1 drain", "B#1 drain"]


def test_what_was_prepared_anew_after_a_boot_is_shared_again() -> None:
    scene = Scene(TWO).show(A, B).end("drain").show(started(A), B).restart(reboots=True)
    scene.show(started(A), B, C).end("drain")
    assert "C#1 already-prepared B#1" in scene.lines
    assert intended(scene) == ["A#1 drain", "B#1 drain"]


def test_an_event_that_had_shared_before_a_boot_passes_nothing_on_after_it() -> None:
    scene = Scene(TWO).show(A, B).end("drain").show(started(A), started(B))
    scene.restart(reboots=True).show(started(B), C)
    assert list(scene.running) == ["C#1 drain"]


def test_what_is_handed_over_after_a_boot_is_shared() -> None:
    scene = Scene(TWO).show(A).end("drain").restart(reboots=True).show(A, B).end("drain")
    scene.show(A).show(A, C)
    assert "B#1 handed-over A#1" in scene.lines
    assert "C#1 already-prepared A#1" in scene.lines
    assert intended(scene) == ["A#1 drain", "B#1 drain"]


def test_an_event_is_not_prepared_for_twice_because_the_vm_has_booted() -> None:
    scene = Scene(TWO).show(A).end("drain").restart(reboots=True).show(A)
    assert intended(scene) == ["A#1 drain"]
    assert scene.approved == ["A#1", "A#1"]


def test_an_event_that_starts_after_a_boot_says_that_nothing_was_prepared_anew() -> None:
    scene = Scene(TWO).show(A, B).end("drain").restart(reboots=True).show(started(B))
    assert "B#1 step-left-out prepare drain the event had started" in scene.lines


def test_an_event_that_had_started_before_the_boot_was_prepared() -> None:
    scene = Scene(TWO).show(A, B).end("drain").show(started(A), started(B))
    scene.restart(reboots=True).show(started(B))
    assert not [line for line in scene.lines if "left-out" in line]


def test_that_the_vm_has_booted_is_said_once() -> None:
    scene = Scene(TWO).show(A).restart(reboots=True).restart().show(A)
    assert scene.lines.count("A#1 vm-booted") == 1


def test_the_second_prepares_by_itself_if_the_first_cannot() -> None:
    scene = Scene(TWO).show(A, B).end("drain", Outcome.FAILED)
    assert list(scene.running) == ["B#1 drain"]
    scene.end("drain")
    assert scene.approved == ["B#1"]


def test_the_second_waits_for_a_step_of_the_first_that_still_runs_after_the_start() -> None:
    scene = Scene(TWO).show(A, B).show(started(A), B)
    assert list(scene.running) == ["A#1 drain"]
    scene.end("drain")
    assert "B#1 already-prepared A#1" in scene.lines


def test_the_second_prepares_by_itself_beside_a_first_that_was_seen_started() -> None:
    scene = Scene(TWO).show(started(A), B)
    assert list(scene.running) == ["B#1 drain"]


def test_two_events_that_are_gone_together_are_recovered_from_once() -> None:
    scene = Scene(TWO).show(A, B).end("drain").show(started(A), started(B)).show()
    assert "A#1 handed-over B#1" in scene.lines
    scene.end("load").end("join")
    assert intended(scene) == ["A#1 drain", "B#1 load", "B#1 join"]


def test_one_that_ended_and_one_that_was_canceled_together_are_recovered_from() -> None:
    # What has happened outweighs what was canceled, in whichever order they appeared.
    for ended, canceled in ((A, B), (B, A)):
        scene = Scene(rule(prepare=("drain",), recover=("load",), canceled=("undrain",)))
        scene.show(A, B).end("drain", Outcome.FAILED).end("drain", Outcome.FAILED)
        shown = [started(ended) if e is ended else e for e in (A, B)]
        scene.show(*shown).show().end("load")
        assert intended(scene)[2:] == ["B#1 load"], canceled
        assert {"A#1 closed", "B#1 closed"} <= set(scene.lines)


def test_a_canceled_one_leaves_the_vm_prepared_for_the_other() -> None:
    scene = Scene(rule(prepare=("drain", "save"), canceled=("undrain",))).show(A, B)
    scene.end("drain").show(B)
    assert list(scene.running) == ["A#1 save"], "what runs comes to its own end"
    scene.end("save")
    assert "A#1 handed-over B#1" in scene.lines
    assert scene.running == {}
    assert scene.approved == ["B#1"]


def test_two_that_are_canceled_are_undone_once() -> None:
    scene = Scene(TWO).show(A, B).end("drain", Outcome.FAILED).end("drain", Outcome.FAILED)
    scene.show(B).show().end("undrain")
    assert intended(scene)[2:] == ["B#1 undrain"]


def test_a_canceled_one_that_nothing_was_prepared_for_hands_nothing_over() -> None:
    scene = Scene(TWO).show(A, B).show(A)
    assert "B#1 closed" in scene.lines
    assert not [line for line in scene.lines if "handed-over" in line]
    assert list(scene.running) == ["A#1 drain"]


def test_preparing_waits_until_a_step_of_bringing_back_has_ended() -> None:
    scene = Scene(TWO).show(started(A)).show().show(B)
    assert list(scene.running) == ["A#1 load"]
    scene.end("load")
    assert "A#1 handed-over B#1" in scene.lines
    assert list(scene.running) == ["B#1 drain"], "the rest of the recovery is for B to do"


def test_bringing_back_that_has_begun_is_not_handed_over_as_prepared() -> None:
    scene = Scene(TWO).show(A).end("drain").show().show(B)
    assert list(scene.running) == ["A#1 load"]
    scene.end("load")
    assert list(scene.running) == ["B#1 drain"]
    assert scene.approved == ["A#1"]


def test_an_unknown_step_of_bringing_back_is_not_repeated_under_another_event() -> None:
    load = step("load", on_unknown=OnUnknown.REPEAT)
    scene = Scene(rule(recover=(load,))).show(started(A)).show().restart().show(B)
    assert "A#1 step-ruled recover load failed" in scene.lines
    assert list(scene.running) == ["B#1 drain"]


def test_an_id_that_comes_back_during_recovery_is_prepared_for_after_the_step() -> None:
    scene = Scene(TWO).show(started(A)).show().show(A).end("load")
    assert list(scene.running) == ["A#2 drain"]
    assert "A#1 handed-over A#2" in scene.lines


def test_events_under_different_rules_know_nothing_of_each_other() -> None:
    freeze = rule("freeze", event_types=("Freeze",), prepare=("quiesce",), recover=("resume",))
    pause = event("F", event_type="Freeze")
    scene = Scene(freeze, TWO).show(A, pause)
    assert sorted(scene.running) == ["A#1 drain", "F#1 quiesce"]
    scene.end("quiesce").end("drain").show(A, at_s=1.0)
    assert list(scene.running) == ["F#1 resume"]
    scene.end("resume").show()
    assert list(scene.running) == ["A#1 load"]


def test_a_failed_step_of_one_rule_does_not_block_the_events_of_another() -> None:
    freeze = rule("freeze", event_types=("Freeze",), prepare=("quiesce",))
    scene = Scene(freeze, TWO).show(A, event("F", event_type="Freeze"))
    scene.end("quiesce", Outcome.FAILED).end("drain")
    assert scene.approved == ["A#1"]


def test_sharing_and_handing_over_survive_a_restart() -> None:
    scene = Scene(TWO).show(A, B).end("drain").restart().show(B).restart().show(started(B))
    scene.show().restart().show()
    assert intended(scene)[1] == "B#1 load"
    assert intended(scene).count("A#1 drain") == 1
