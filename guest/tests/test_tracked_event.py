"""Facts folded into tracked events: what is known after a crash is what was known before."""

from __future__ import annotations

import json
from typing import Any

import pytest

from forewarn_guest.configuration import Part
from forewarn_guest.facts import (
    Fact,
    FactKind,
    Gone,
    Outcome,
    event_from_json,
    event_json,
    from_json,
    tracked_in,
)
from forewarn_guest.tracked_event import Stage, TrackedEvent, fold, fold_all
from scene import at, event, started


def fact(kind: FactKind, tracked: str = "E1#1", **detail: Any) -> Fact:
    return Fact(kind, at(0), tracked, detail)


def appeared(tracked: str = "E1#1", **more: Any) -> Fact:
    shown = event(tracked.split("#", maxsplit=1)[0], **more)
    return fact(FactKind.APPEARED, tracked, event=event_json(shown), rule="all", boot_id="boot-1")


def of_step(kind: FactKind, attempt: int = 1, **detail: Any) -> Fact:
    return fact(kind, part="prepare", step="drain", attempt=attempt, **detail)


INTENDED = of_step(FactKind.INTENDED)
BEGUN = of_step(FactKind.BEGUN, pid=7, start_ticks=8, boot_id="boot-1")


def tracked_of(*facts: Fact) -> TrackedEvent:
    return fold_all([appeared(), *facts])["E1#1"]


def test_an_event_is_read_back_as_it_was_kept() -> None:
    for shown in (event(raw={"Odd": [1]}), started(event()), event(not_before_s=None)):
        kept = json.loads(json.dumps(event_json(shown)))
        assert event_from_json(kept) == shown
        assert event_from_json(kept).raw == shown.raw


def test_a_fact_is_read_back_as_it_was_kept() -> None:
    for kept in (appeared(), BEGUN, Fact(FactKind.BEGIN, at(1), "", {"boot_id": "b"})):
        assert from_json(json.loads(json.dumps(kept.to_json()))) == kept


def test_a_fact_of_the_version_before_is_read_as_one_of_today() -> None:
    for kept in (appeared(), BEGUN):
        line = json.loads(json.dumps(kept.to_json()))
        line["care"] = line.pop("tracked_event")
        assert from_json(line) == kept
        assert tracked_in(line) == "E1#1"


@pytest.mark.parametrize("line", [{}, {"fact": "odd", "at": "x"}, {"fact": "begin", "at": "x"}])
def test_a_line_that_no_agent_has_written_is_refused(line: dict[str, Any]) -> None:
    with pytest.raises((KeyError, ValueError)):
        from_json(line)


def test_a_step_may_have_been_run_from_the_moment_it_was_intended() -> None:
    tracked = tracked_of(INTENDED)
    assert tracked.touched(Part.PREPARE)
    assert not tracked.touched(Part.RECOVER)
    assert tracked.runs[Part.PREPARE, "drain"].open
    assert tracked.counts_as(Part.PREPARE, "drain") is None


def test_a_step_that_was_begun_is_known_by_its_process() -> None:
    run = tracked_of(INTENDED, BEGUN).runs[Part.PREPARE, "drain"]
    assert (run.stage, run.pid, run.start_ticks, run.boot_id) == (Stage.BEGUN, 7, 8, "boot-1")


@pytest.mark.parametrize("outcome", [Outcome.DONE, Outcome.FAILED, Outcome.TIMED_OUT])
def test_a_step_that_ended_counts_as_what_it_ended_with(outcome: Outcome) -> None:
    tracked = tracked_of(INTENDED, BEGUN, of_step(FactKind.ENDED, outcome=outcome.value))
    assert tracked.counts_as(Part.PREPARE, "drain") is outcome


def test_an_unknown_end_counts_as_nothing_until_that_is_said() -> None:
    unknown = of_step(FactKind.ENDED, outcome="unknown")
    tracked = tracked_of(INTENDED, unknown)
    assert not tracked.runs[Part.PREPARE, "drain"].open
    assert tracked.counts_as(Part.PREPARE, "drain") is None
    tracked = tracked_of(INTENDED, unknown, of_step(FactKind.RULED, counts_as="done"))
    assert tracked.counts_as(Part.PREPARE, "drain") is Outcome.DONE
    assert tracked.runs[Part.PREPARE, "drain"].outcome is Outcome.UNKNOWN


def test_what_is_said_of_an_earlier_attempt_does_not_touch_the_later_one() -> None:
    unknown = of_step(FactKind.ENDED, outcome="unknown")
    late = of_step(FactKind.ENDED, outcome="done")
    tracked = tracked_of(INTENDED, unknown, of_step(FactKind.INTENDED, attempt=2), late)
    assert tracked.runs[Part.PREPARE, "drain"].attempt == 2
    assert tracked.runs[Part.PREPARE, "drain"].open


def test_the_end_of_a_step_that_was_never_intended_changes_nothing() -> None:
    assert tracked_of(of_step(FactKind.ENDED, outcome="done")).runs == {}


def test_facts_about_an_unknown_or_closed_tracked_event_change_nothing() -> None:
    tracked_events: dict[str, TrackedEvent] = {}
    fold(tracked_events, fact(FactKind.GONE, "odd#1", how="ended"))
    fold(tracked_events, Fact(FactKind.BEGIN, at(0)))
    assert tracked_events == {}
    closed = tracked_of(fact(FactKind.CLOSED), fact(FactKind.GONE, how="ended"))
    assert closed.gone is None


def test_an_approval_ends_what_was_withheld() -> None:
    tracked = tracked_of(fact(FactKind.WITHHELD, why="no"))
    assert tracked.withheld == "no"
    tracked = tracked_of(
        fact(FactKind.WITHHELD, why="no"), fact(FactKind.APPROVING), fact(FactKind.APPROVED)
    )
    assert (tracked.withheld, tracked.approving, tracked.approved) == ("", True, True)


@pytest.mark.parametrize(
    ("first", "second", "inherited"),
    [
        ("canceled", "canceled", Gone.CANCELED),
        ("ended", "canceled", Gone.ENDED),
        ("canceled", "ended", Gone.ENDED),
    ],
)
def test_an_heir_remembers_the_worst_of_what_it_inherits(
    first: str, second: str, inherited: Gone
) -> None:
    facts = [appeared("A#1"), appeared("B#1"), appeared("C#1")]
    for tracked, how in (("A#1", first), ("B#1", second)):
        facts.append(fact(FactKind.GONE, tracked, how=how))
        facts.append(fact(FactKind.HANDED_OVER, tracked, to="C#1", prepared=how == "ended"))
    heir = fold_all(facts)["C#1"]
    assert heir.inherits is inherited
    assert heir.ready_with_others is ("ended" in (first, second))


def test_what_was_inherited_is_handed_on() -> None:
    facts = [appeared("A#1"), appeared("B#1"), appeared("C#1")]
    for tracked, to, how in (("A#1", "B#1", "ended"), ("B#1", "C#1", "canceled")):
        facts.append(fact(FactKind.GONE, tracked, how=how))
        facts.append(fact(FactKind.HANDED_OVER, tracked, to=to, prepared=False))
    assert fold_all(facts)["C#1"].inherits is Gone.ENDED


def test_a_step_that_was_surely_not_begun_is_as_if_it_had_not_been_intended() -> None:
    assert tracked_of(INTENDED, of_step(FactKind.NOT_BEGUN)) == tracked_of()


def test_a_repeat_that_was_surely_not_begun_leaves_the_end_before_it_unknown() -> None:
    ended = of_step(FactKind.ENDED, outcome="unknown")
    tracked = tracked_of(
        INTENDED, ended, of_step(FactKind.INTENDED, 2), of_step(FactKind.NOT_BEGUN, 2)
    )
    run = tracked.run(Part.PREPARE, "drain")
    assert run is not None
    assert (run.attempt, run.stage, run.outcome) == (1, Stage.ENDED, Outcome.UNKNOWN)
    assert tracked.counts_as(Part.PREPARE, "drain") is None
