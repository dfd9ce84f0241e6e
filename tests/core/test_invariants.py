"""The last look before a save: each planted violation is refused, and counting is exact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from forewarn.control.transaction import Transaction
from forewarn.core import scope_edits
from forewarn.core.invariants import InvariantBroken, check
from forewarn.core.model import (
    Cause,
    Decision,
    EventType,
    Phase,
    ScheduledEvent,
    Scope,
)
from support import events
from support.clock import START_MS
from support.core_fleet import WEB, Cloud, minutes, scope

NOW_MS = START_MS
Plant = Callable[[Scope], Scope]


def an_event(event_id: str = "E1", **more: Any) -> ScheduledEvent:
    """A visible reboot of web_0 that was shown long enough and is due."""
    long_ago_ms = NOW_MS - minutes(15)
    event = events.an_event(
        event_id,
        event_type=EventType.REBOOT,
        not_before_ms=NOW_MS,
        scheduled_ms=long_ago_ms,
        appeared_incarnation=1,
        shown_ms=long_ago_ms,
    )
    return replace(event, **more)


def holding(*events: ScheduledEvent) -> Scope:
    return replace(scope("web", WEB), events=events)


def changed(before: Scope, event: ScheduledEvent, **more: object) -> Scope:
    after = scope_edits.with_event(before, replace(event, **more))  # type: ignore[arg-type]
    return scope_edits.seal(before, after)


def start(before: Scope, event: ScheduledEvent) -> Scope:
    return changed(before, event, phase=Phase.STARTED, started_ms=NOW_MS)


def test_a_start_after_full_notice_is_fine() -> None:
    event = an_event()
    check(holding(event), start(holding(event), event), NOW_MS)


@pytest.mark.parametrize(
    ("event", "broken"),
    [
        (an_event(not_before_ms=NOW_MS + 1), "I1"),
        (an_event(shown_ms=NOW_MS - minutes(15) + 1), "I6"),
        (an_event(shown_ms=None), "I6"),
        (an_event(unreadable_ms=1), "I6"),
    ],
)
def test_a_start_without_its_notice_is_refused_unless_it_was_approved(
    event: ScheduledEvent, broken: str
) -> None:
    with pytest.raises(InvariantBroken, match=broken):
        check(holding(event), start(holding(event), event), NOW_MS)
    approved = replace(event, approved_ms=NOW_MS, approved_by="web_0")
    check(holding(approved), start(holding(approved), approved), NOW_MS)


@pytest.mark.parametrize("event_type", [EventType.FREEZE, EventType.REBOOT, EventType.REDEPLOY])
def test_a_start_beside_another_started_domain_is_refused(event_type: EventType) -> None:
    other = an_event("E2", update_domain=1, resources=("web_1",), phase=Phase.STARTED)
    event = an_event(event_type=event_type)
    before = holding(other, event)
    with pytest.raises(InvariantBroken, match="I2"):
        check(before, start(before, event), NOW_MS)


@pytest.mark.parametrize(
    "exempt",
    [
        {"event_type": EventType.PREEMPT},
        {"event_type": EventType.TERMINATE},
        {"cause": Cause.FAILURE},
    ],
)
def test_exempt_events_may_start_beside_another_domain(exempt: dict[str, Any]) -> None:
    other = an_event("E2", update_domain=1, resources=("web_1",), phase=Phase.STARTED)
    event = an_event(**exempt)
    before = holding(other, event)
    check(before, start(before, event), NOW_MS)


def test_forced_domains_of_one_operation_may_start_together_and_no_others() -> None:
    forced: dict[str, Any] = {"breaks_domains": True, "operation_id": "O1"}
    one, two = an_event(**forced), an_event("E2", update_domain=1, resources=("web_1",), **forced)
    before = holding(one, two)
    after = scope_edits.with_event(before, replace(one, phase=Phase.STARTED, started_ms=NOW_MS))
    after = scope_edits.with_event(after, replace(two, phase=Phase.STARTED, started_ms=NOW_MS))
    check(before, scope_edits.seal(before, after), NOW_MS)
    stranger = holding(replace(one, operation_id="O2", phase=Phase.STARTED), two)
    with pytest.raises(InvariantBroken, match="I2"):
        check(stranger, start(stranger, two), NOW_MS)


def test_a_vm_in_two_started_events_is_refused() -> None:
    other = an_event("E2", phase=Phase.STARTED)
    event = an_event()
    before = holding(other, event)
    with pytest.raises(InvariantBroken, match="two started events"):
        check(before, start(before, event), NOW_MS)


def vanish(before: Scope) -> Scope:
    return scope_edits.seal(before, replace(before, events=()))


def go_back(before: Scope) -> Scope:
    return changed(before, before.events[0], phase=Phase.SCHEDULED)


def unapprove(before: Scope) -> Scope:
    return changed(before, before.events[0], approved_ms=None)


def later(before: Scope) -> Scope:
    return changed(before, before.events[0], not_before_ms=NOW_MS + 1_000)


def another_type(before: Scope) -> Scope:
    return changed(before, before.events[0], event_type=EventType.FREEZE)


def another_scope(before: Scope) -> Scope:
    return changed(before, before.events[0], scope="api")


def born_ended(before: Scope) -> Scope:
    return scope_edits.seal(
        before, scope_edits.with_event(before, an_event("E9", phase=Phase.COMPLETED))
    )


def incarnation_stands_still(before: Scope) -> Scope:
    sealed = changed(before, before.events[0], resources=("web_1",))
    return replace(sealed, incarnation=before.incarnation)


def incarnation_moves_for_nothing(before: Scope) -> Scope:
    sealed = scope_edits.seal(before, replace(before, polled_ms=NOW_MS + 1))
    return replace(sealed, incarnation=before.incarnation + 1)


def incarnation_goes_back(before: Scope) -> Scope:
    return replace(changed(before, before.events[0], resources=("web_1",)), incarnation=0)


def with_guest(before: Scope, name: str) -> Scope:
    return replace(before, vms=(*before.vms, replace(before.vms[0], name=name)))


def incarnation_goes_back_as_a_vm_joins(before: Scope) -> Scope:
    sealed = scope_edits.seal(before, with_guest(before, "new"))
    return replace(sealed, incarnation=before.incarnation - 1)


def incarnation_stands_still_as_a_vm_joins(before: Scope) -> Scope:
    sealed = changed(with_guest(before, "new"), before.events[0], resources=("web_1",))
    return replace(sealed, incarnation=before.incarnation)


def incarnation_jumps_as_a_vm_leaves(before: Scope) -> Scope:
    sealed = scope_edits.seal(before, replace(before, vms=before.vms[1:]))
    return replace(sealed, incarnation=before.incarnation + 5)


def revision_stands_still(before: Scope) -> Scope:
    return replace(scope_edits.seal(before, before), revision=before.revision)


@pytest.mark.parametrize(
    ("plant", "event", "broken"),
    [
        (vanish, an_event(), "I3.*vanished"),
        (go_back, an_event(phase=Phase.STARTED), "I3.*started to scheduled"),
        (unapprove, an_event(approved_ms=NOW_MS), "I5"),
        (later, an_event(), "NotBefore"),
        (another_type, an_event(), "I3.*another event"),
        (another_scope, an_event(), "I3.*another event"),
        (born_ended, an_event(), "I3.*began as completed"),
        (incarnation_stands_still, an_event(), "I4"),
        (incarnation_moves_for_nothing, an_event(), "I4"),
        (incarnation_goes_back, an_event(), "I4"),
        (incarnation_goes_back_as_a_vm_joins, an_event(), "I4"),
        (incarnation_stands_still_as_a_vm_joins, an_event(), "I4"),
        (incarnation_jumps_as_a_vm_leaves, an_event(), "I4"),
        (revision_stands_still, an_event(), "revision"),
    ],
)
def test_a_planted_violation_is_refused(plant: Plant, event: ScheduledEvent, broken: str) -> None:
    before = holding(event)
    with pytest.raises(InvariantBroken, match=broken):
        check(before, plant(before), NOW_MS)


def test_not_before_may_be_set_while_an_event_is_silent() -> None:
    before = holding(an_event(silent=True))
    check(before, changed(before, before.events[0], not_before_ms=NOW_MS + 1_000), NOW_MS)


def test_a_broken_invariant_is_not_saved() -> None:
    cloud = Cloud(scope("web", WEB))
    event = cloud.order("web_0", EventType.REBOOT)
    before = cloud.everything()

    def plant(tx: Transaction) -> None:
        bad = replace(cloud.scope().events[0], phase=Phase.STARTED, started_ms=NOW_MS)
        tx.apply(Decision(scopes=(scope_edits.with_event(cloud.scope(), bad),)))

    with pytest.raises(InvariantBroken, match="I1"):
        cloud.run(plant)
    assert cloud.everything() == before
    assert cloud.event(event).phase is Phase.SCHEDULED


# Counting.


def test_every_write_counts_the_revision_by_one() -> None:
    before = holding()
    assert scope_edits.seal(before, replace(before, polled_ms=1)).revision == before.revision + 1


@pytest.mark.parametrize(
    ("more", "visible"),
    [
        ({"resources": ("web_1",)}, True),
        ({"phase": Phase.STARTED}, True),
        ({"phase": Phase.CANCELED}, True),
        ({"description": "other words"}, True),
        ({"duration_s": 3}, True),
        ({"approved_ms": 5}, False),
        ({"shown_ms": 5}, False),
        ({"unreadable_ms": 5}, False),
        ({"deadline_ms": 5}, False),
        ({"ordered_by": "somebody"}, False),
    ],
)
def test_the_incarnation_moves_if_and_only_if_guests_can_see_a_difference(
    more: dict[str, object], *, visible: bool
) -> None:
    before = holding(an_event())
    after = changed(before, before.events[0], **more)
    assert after.incarnation == before.incarnation + (1 if visible else 0)


def test_the_incarnation_may_jump_ahead_where_a_vm_joins_and_nowhere_else() -> None:
    before = replace(holding(an_event()), incarnation=7)
    for said, counted in ((50, 50), (7, 7), (3, 7)):
        after = scope_edits.seal(before, replace(with_guest(before, "new"), incarnation=said))
        assert after.incarnation == counted
        check(before, after, NOW_MS)
        assert (
            scope_edits.seal(before, replace(before, incarnation=said, polled_ms=1)).incarnation
            == 7
        )
    both = scope_edits.with_event(
        with_guest(before, "new"), replace(before.events[0], duration_s=3)
    )
    assert scope_edits.seal(before, both).incarnation == 8


def test_changes_to_a_silent_event_never_move_the_incarnation() -> None:
    before = holding(an_event(silent=True))
    after = changed(before, before.events[0], resources=("web_1",), phase=Phase.STARTED)
    assert after.incarnation == before.incarnation


def test_several_changes_in_one_use_case_are_one_step_for_guests() -> None:
    before = holding()
    after = before
    for number in range(3):
        after = scope_edits.with_event(after, an_event(f"E{number}", appeared_incarnation=0))
    sealed = scope_edits.seal(before, after)
    assert sealed.incarnation == before.incarnation + 1
    assert {event.appeared_incarnation for event in sealed.events} == {sealed.incarnation}


def test_ended_events_are_dropped_from_memory_and_open_ones_kept() -> None:
    ended = an_event("E2", phase=Phase.COMPLETED)
    assert scope_edits.open_only(holding(an_event(), ended)).events == (an_event(),)
