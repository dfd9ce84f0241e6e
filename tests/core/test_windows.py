"""A window binds: outside of it nothing of its order starts, approved or not."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from forewarn.control import agenda, commands
from forewarn.core import invariants, scope_edits, windows
from forewarn.core.errors import Invalid, OtherWindow, WindowTooShort
from forewarn.core.model import (
    EventType,
    FactKind,
    Host,
    Operation,
    OperationPhase,
    Phase,
    ScheduledEvent,
    Window,
)
from forewarn.core.starting import HoldReason
from support import ordered
from support.clock import START_MS
from support.core_fleet import WEB, Cloud, minutes, reasons, scope, spot
from support.journal import said

OPENS, CLOSES = START_MS + minutes(60), START_MS + minutes(120)
WINDOW = (OPENS, CLOSES)


def maintained(
    cloud: Cloud, event_type: EventType, **more: Any
) -> tuple[Operation, ScheduledEvent]:
    operation = cloud.maintain("h1", event_type, window=WINDOW, **more)
    (event,) = cloud.events_of(operation)
    return operation, event


# What waits for the window.


@pytest.mark.parametrize("event_type", [EventType.FREEZE, EventType.REBOOT, EventType.REDEPLOY])
def test_an_approved_operation_waits_until_its_window_opens(event_type: EventType) -> None:
    cloud = Cloud(scope("web", WEB))
    operation, event = maintained(cloud, event_type)
    assert event.not_before_ms == OPENS
    cloud.show()
    cloud.approves("web_0", [event.event_id])
    cloud.pass_time(minutes(60) - 1)
    (hold,) = cloud.holds(event)
    assert (hold.reason, hold.until_ms) == (HoldReason.WINDOW_CLOSED, OPENS)
    assert cloud.operation_holds(operation) == [hold]
    assert cloud.event(event).phase is Phase.SCHEDULED
    cloud.pass_time(1)
    assert cloud.event(event).phase is Phase.STARTED


def test_an_approval_from_ahead_of_the_clock_does_not_put_off_the_look_at_its_window() -> None:
    """The clock was set back behind the approval: the event starts when its window opens."""
    cloud = Cloud(scope("web", WEB))
    event = cloud.order("web_0", EventType.REBOOT, window=WINDOW)
    cloud.show()
    cloud.approves("web_0", [event.event_id])
    ahead = replace(cloud.event(event), approved_ms=CLOSES)
    looked = agenda.instants(scope_edits.with_event(cloud.scope("web"), ahead))
    assert min(at_ms for at_ms in looked) == OPENS


@pytest.mark.parametrize("event_type", list(commands.VM_ORDERS))
def test_an_order_for_a_vm_waits_until_its_window_opens(event_type: EventType) -> None:
    cloud = Cloud(spot("web_0"))
    event = cloud.order("web_0", event_type, window=WINDOW)
    cloud.start(event)
    assert reasons(cloud.holds(event)) == {HoldReason.WINDOW_CLOSED}
    cloud.pass_time(minutes(60))
    assert cloud.event(event).phase is Phase.STARTED


def test_what_the_scope_approves_by_itself_waits_too() -> None:
    cloud = Cloud(scope("web", WEB, auto_approve=frozenset({EventType.REBOOT})))
    event = cloud.order("web_0", EventType.REBOOT, window=WINDOW)
    assert (event.phase, event.approved_by) == (Phase.SCHEDULED, "policy")
    cloud.pass_time(minutes(60))
    assert cloud.event(event).phase is Phase.STARTED


def test_what_no_guest_is_told_of_waits_too() -> None:
    cloud = Cloud(scope("web", WEB, enabled=False))
    of_owner = cloud.order("web_0", EventType.REBOOT, window=WINDOW)
    operation = cloud.maintain("h2", EventType.REBOOT, window=WINDOW)
    empty = cloud.maintain("h3", EventType.REBOOT, window=WINDOW)
    cloud.pass_time(minutes(59))
    assert cloud.event(of_owner).phase is Phase.SCHEDULED
    assert cloud.operation(operation).phase is OperationPhase.WAITING
    assert reasons(cloud.operation_holds(empty)) == {HoldReason.WINDOW_CLOSED}
    cloud.pass_time(minutes(1))
    assert cloud.event(of_owner).phase is Phase.STARTED
    assert cloud.operation(empty).phase is OperationPhase.STARTED


def test_an_order_of_an_owner_that_waits_appears_when_its_scope_is_told() -> None:
    cloud = Cloud(scope("web", WEB, enabled=False))
    event = cloud.order("web_0", EventType.REBOOT, window=WINDOW)
    cloud.pass_time(minutes(10))
    cloud.polls("web", "web_0")
    shown = cloud.event(event)
    assert (shown.silent, shown.not_before_ms) == (False, OPENS)


def test_notice_that_ends_in_the_window_is_given_in_full() -> None:
    cloud = Cloud(scope("web", WEB))
    operation = cloud.maintain("h1", EventType.REBOOT, window=(START_MS, CLOSES))
    (event,) = cloud.events_of(operation)
    assert event.not_before_ms == START_MS + minutes(15)
    cloud.pass_time(minutes(15) - 1)
    assert reasons(cloud.holds(event)) == {HoldReason.CONSENT}
    cloud.pass_time(1)
    assert cloud.event(event).phase is Phase.STARTED


def test_a_degraded_host_is_emptied_in_the_window_and_not_a_week_ahead() -> None:
    cloud = Cloud(scope("web", WEB))
    operation = cloud.degrade("h1", window=WINDOW)
    (event,) = cloud.events_of(operation)
    assert event.not_before_ms == OPENS


def test_the_window_is_wall_time_when_the_clock_is_set() -> None:
    cloud = Cloud(scope("web", WEB))
    operation, event = maintained(cloud, EventType.REBOOT)
    cloud.start(event)
    cloud.clock.wall += minutes(60)  # it jumps into the window
    cloud.run(ordered.clock_stepped(minutes(60)))
    cloud.clock.wall -= minutes(61)  # and back out of it, before anybody has looked
    cloud.tick()
    assert cloud.event(event).phase is Phase.SCHEDULED
    cloud.clock.wall += minutes(61)
    cloud.tick()
    assert cloud.event(event).phase is Phase.STARTED
    assert cloud.operation(operation).started_ms == OPENS


# What the window leaves no time for.


def test_an_order_whose_notice_ends_after_the_window_is_refused_with_words() -> None:
    cloud = Cloud(scope("web", WEB))
    window = (START_MS, START_MS + minutes(15))
    for order in (
        ordered.maintain_host("h1", EventType.REBOOT, by="op", window=window),
        ordered.order_vm("web_0", EventType.REBOOT, by="owner", window=window),
    ):
        with pytest.raises(WindowTooShort, match="web_0 of scope web ends 1 s after the window"):
            cloud.run(order)
    assert cloud.index.operations == {}
    assert cloud.scope("web").events == ()


def test_an_earliest_start_after_the_window_is_refused() -> None:
    cloud = Cloud(scope("web", WEB))
    with pytest.raises(Invalid, match="not in the window"):
        cloud.maintain("h1", EventType.REBOOT, not_before_ms=CLOSES, window=WINDOW)


@pytest.mark.parametrize(
    ("window", "words"),
    [
        ((CLOSES, OPENS), "closes before it opens"),
        ((START_MS - 2, START_MS - 1), "has closed"),
        ((START_MS - 2, START_MS), "has closed"),
    ],
)
def test_a_window_in_which_nothing_can_start_is_refused(
    window: tuple[int, int], words: str
) -> None:
    cloud = Cloud(scope("web", WEB))
    with pytest.raises(Invalid, match=words):
        cloud.order("web_0", EventType.REBOOT, window=window)


def test_a_repeated_order_with_another_window_is_refused_and_the_same_is_the_same() -> None:
    cloud = Cloud(scope("web", WEB))
    event = cloud.order("web_0", EventType.REBOOT, window=WINDOW)
    assert cloud.order("web_0", EventType.REBOOT, window=WINDOW) == event
    for window in (None, (OPENS, CLOSES + 1)):
        with pytest.raises(OtherWindow, match=event.event_id):
            cloud.order("web_0", EventType.REBOOT, window=window)


def test_what_has_not_started_when_the_window_closes_is_withdrawn_and_says_so() -> None:
    cloud = Cloud(scope("web", WEB))
    operation, event = maintained(cloud, EventType.REBOOT)
    of_owner = cloud.order("web_1", EventType.REBOOT, window=WINDOW)
    cloud.hearing.falls_silent("h1")
    cloud.hearing.falls_silent("h2")
    cloud.pass_time(minutes(120) - 1)
    assert cloud.event(event).phase is Phase.SCHEDULED
    cloud.pass_time(1)
    cloud.hearing.returns("h1")
    for one in (cloud.event(event), cloud.event(of_owner)):
        assert (one.phase, one.outcome) == (Phase.CANCELED, windows.CLOSED)
    ended = cloud.operation(operation)
    assert (ended.phase, ended.outcome) == (OperationPhase.ENDED, windows.CLOSED)
    lines = [
        (fact.event_id, fact.by, said(fact)["reason"]) for fact in cloud.facts(FactKind.CANCELED)
    ]
    assert (event.event_id, "ticker", windows.CLOSED) in lines
    assert (of_owner.event_id, "ticker", windows.CLOSED) in lines
    assert (None, "ticker", windows.CLOSED) in lines  # the operation


def test_moves_that_have_started_go_on_when_the_window_closes_the_others_are_withdrawn() -> None:
    cloud = Cloud(scope("web", {"web_0": (0, "h1"), "web_1": (1, "h1")}))
    window = (OPENS, OPENS + minutes(1))
    operation = cloud.maintain("h1", EventType.REDEPLOY, window=window)
    events = cloud.events_of(operation)
    cloud.pass_time(minutes(60))
    assert {cloud.event(e).phase for e in events} == {Phase.STARTED, Phase.SCHEDULED}
    cloud.pass_time(minutes(1))
    assert {cloud.event(e).phase for e in events} == {Phase.STARTED, Phase.CANCELED}
    assert cloud.operation(operation).phase is OperationPhase.STARTED
    cloud.work()
    ended = cloud.operation(operation)
    assert (ended.phase, ended.outcome) == (OperationPhase.ENDED, windows.CLOSED)


def test_an_event_that_can_be_told_too_late_for_its_window_is_withdrawn() -> None:
    cloud = Cloud(scope("web", WEB, enabled=False))
    operation, event = maintained(cloud, EventType.REBOOT)
    of_owner = cloud.order("web_0", EventType.REBOOT, window=WINDOW)
    cloud.clock.pass_ms(minutes(110))
    cloud.polls("web", "web_0")
    for one in (cloud.event(event), cloud.event(of_owner)):
        assert (one.phase, one.outcome) == (Phase.CANCELED, windows.TOLD_TOO_LATE)
    cloud.tick()
    (hold,) = cloud.operation_holds(operation)
    assert hold.reason is HoldReason.VM_WITHOUT_NOTICE
    assert "before the window closes" in hold.what
    cloud.pass_time(minutes(10))
    assert cloud.operation(operation).outcome == windows.CLOSED


def arriving(cloud: Cloud, window: tuple[int, int], after_ms: int) -> Operation:
    """A VM of another scope comes to the host of an operation, so long after it was ordered."""
    cloud.start(cloud.order("db_0", EventType.REDEPLOY))
    operation = cloud.maintain("h1", EventType.REBOOT, window=window)
    cloud.show()
    cloud.clock.pass_ms(after_ms)
    cloud.work()
    assert cloud.where("db_0") == "h1"
    return operation


def db_comes_to_h1() -> Cloud:
    hosts = (Host(name="h1"), Host(name="h2", closed=True), Host(name="h3"))
    return Cloud(scope("web", WEB), scope("db", {"db_0": (0, "h3")}), hosts=hosts)


def test_a_vm_that_arrives_in_time_gets_the_window_and_a_notice_that_ends_in_it() -> None:
    cloud = db_comes_to_h1()
    window = (START_MS, START_MS + minutes(20))
    operation = arriving(cloud, window, minutes(4))
    told = next(e for e in cloud.events_of(operation) if e.scope == "db")
    assert told.window == Window(start_ms=window[0], end_ms=window[1])
    assert told.not_before_ms == START_MS + minutes(19)


def test_a_vm_that_arrives_too_late_for_the_window_is_not_told_and_the_operation_waits() -> None:
    cloud = db_comes_to_h1()
    operation = arriving(cloud, (START_MS, START_MS + minutes(20)), minutes(6))
    assert [e.scope for e in cloud.events_of(operation)] == ["web"]
    cloud.pass_time(minutes(13))
    (hold,) = cloud.operation_holds(operation)
    assert hold.reason is HoldReason.VM_WITHOUT_NOTICE
    assert "db_0 on host h1 cannot be given its notice" in hold.what
    cloud.pass_time(minutes(1))
    assert cloud.operation(operation).outcome == windows.CLOSED


def test_a_restart_of_control_keeps_the_window() -> None:
    cloud = Cloud(scope("web", WEB))
    operation, event = maintained(cloud, EventType.REBOOT)
    cloud.start(event)
    cloud.crash(down_ms=minutes(1))
    assert cloud.operation(operation).window == Window(start_ms=OPENS, end_ms=CLOSES)
    cloud.tick()
    assert HoldReason.WINDOW_CLOSED in reasons(cloud.holds(event))


# The check before every save knows windows by itself.


def test_no_save_lets_an_event_start_outside_of_its_window() -> None:
    cloud = Cloud(scope("web", WEB))
    event = cloud.order("web_0", EventType.REBOOT, window=WINDOW)
    cloud.approve(event)
    before = cloud.scope("web")
    started = replace(before.events[0], phase=Phase.STARTED, started_ms=OPENS)
    after = scope_edits.seal(before, replace(before, events=(started,)))
    for now_ms in (OPENS - 1, CLOSES):
        with pytest.raises(invariants.InvariantBroken, match="outside of its window"):
            invariants.check(before, after, now_ms)
    for now_ms in (OPENS, CLOSES - 1):
        invariants.check(before, after, now_ms)


def test_no_save_shows_a_not_before_that_is_outside_of_the_window_or_changes_the_window() -> None:
    cloud = Cloud(scope("web", WEB))
    empty = cloud.scope("web")
    event = cloud.order("web_0", EventType.REBOOT, window=WINDOW)
    before = cloud.scope("web")
    for at_ms in (OPENS - 1_000, CLOSES):
        shown = replace(event, not_before_ms=at_ms)
        with pytest.raises(invariants.InvariantBroken, match="not in its window"):
            invariants.check(empty, scope_edits.seal(empty, replace(empty, events=(shown,))), OPENS)
    other = replace(event, window=Window(start_ms=OPENS, end_ms=CLOSES + 1))
    with pytest.raises(invariants.InvariantBroken, match="changed"):
        invariants.check(before, scope_edits.seal(before, replace(before, events=(other,))), OPENS)
