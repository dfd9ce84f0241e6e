"""Which rule an event falls under."""

from __future__ import annotations

import pytest

from forewarn_guest.configuration import Part, Rule
from forewarn_guest.observing import matches, rule_for
from scene import event, rule, step


def test_a_rule_without_types_is_about_every_type_but_preempt() -> None:
    anything = Rule("all")
    for event_type in ("Freeze", "Reboot", "Redeploy", "Terminate", "SpotRebalanceRecommendation"):
        assert matches(anything, event(event_type=event_type))
    assert not matches(anything, event(event_type="Preempt"))


def test_preempt_has_the_rule_that_names_it() -> None:
    assert matches(Rule("spot", event_types=("Preempt",)), event(event_type="Preempt"))


def test_a_rule_with_types_is_about_those_only() -> None:
    down = Rule("down", event_types=("Reboot", "Redeploy"))
    assert matches(down, event(event_type="Redeploy"))
    assert not matches(down, event(event_type="Freeze"))


def test_a_rule_with_a_source_is_about_that_source_only() -> None:
    ours = Rule("ours", source="User")
    assert matches(ours, event(source="User"))
    assert not matches(ours, event(source="Platform"))


def test_an_event_whose_source_is_not_told_matches_no_rule_with_a_source() -> None:
    # S1: api-versions before 2019-08-01 do not tell it, and at-once is for User events only.
    assert not matches(Rule("ours", source="User"), event(source=""))
    assert matches(Rule("all"), event(source=""))


@pytest.mark.parametrize(
    ("duration_s", "expected"), [(9, False), (0, False), (10, True), (-1, True), (None, True)]
)
def test_an_event_that_says_it_is_shorter_is_not_meant(
    duration_s: int | None, *, expected: bool
) -> None:
    # -1 is "not known" (section 1.5), and older api-versions say nothing: both may be long.
    assert matches(Rule("long", min_duration_s=10), event(duration_s=duration_s)) is expected


def test_a_pattern_may_match_any_name_of_the_event_in_any_case() -> None:
    web = Rule("web", resources=("WEB_*",))
    assert matches(web, event(resources=("db_0", "web_1")))
    assert not matches(web, event(resources=("db_0",)))
    assert not matches(web, event(resources=()))


def test_brackets_in_a_name_are_no_pattern_of_the_name() -> None:
    assert not matches(Rule("web", resources=("web_0",)), event(resources=("web_[0]",)))


def test_every_condition_of_a_rule_must_hold() -> None:
    both = Rule("both", event_types=("Reboot",), source="User")
    assert not matches(both, event(source="Platform"))
    assert not matches(both, event(event_type="Freeze", source="User"))
    assert matches(both, event(source="User"))


def test_the_first_rule_that_matches_decides() -> None:
    first, second = Rule("short", min_duration_s=60), Rule("rest")
    assert rule_for(event(duration_s=5), (first, second)) is second
    assert rule_for(event(duration_s=90), (first, second)) is first
    assert rule_for(event(event_type="Preempt"), (first, second)) is None


def test_what_undoes_is_what_recovers_unless_there_is_a_list_for_it() -> None:
    assert [s.name for s in rule().steps(Part.CANCELED)] == ["return"]
    assert rule(canceled=()).steps(Part.CANCELED) == ()
    assert rule(canceled=("undo",)).steps(Part.CANCELED) == (step("undo"),)
