"""Scopes that nobody polls: silent events, enabling, falling silent, `enablement = "always"`."""

from __future__ import annotations

import pytest

from forewarn.core import document
from forewarn.core.errors import UnknownEventIds
from forewarn.core.model import (
    DAY_MS,
    HOUR_MS,
    SECOND_MS,
    EventSource,
    EventType,
    FactKind,
    Phase,
    Policy,
)
from support import ordered
from support.clock import START_MS
from support.core_fleet import WEB, Cloud, minutes, scope
from support.journal import said


@pytest.fixture
def cloud() -> Cloud:
    return Cloud(scope("web", WEB, enabled=False))


def test_an_order_for_a_silent_scope_makes_an_event_that_is_never_shown(cloud: Cloud) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    assert event.silent
    assert document.visible(cloud.scope()) == ()
    assert cloud.scope().incarnation == 1


def test_a_silent_user_event_is_due_at_once(cloud: Cloud) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.tick()
    assert cloud.event(event).phase is Phase.STARTED


def test_a_silent_user_event_stays_due_when_the_clock_is_set_back(cloud: Cloud) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.clock.wall -= HOUR_MS
    cloud.pass_time(SECOND_MS)
    assert cloud.event(event).phase is Phase.STARTED


def test_a_silent_platform_event_waits_for_the_time_its_order_named(cloud: Cloud) -> None:
    later_ms = START_MS + 2 * HOUR_MS
    [event] = cloud.events_of(cloud.maintain("h1", EventType.REBOOT, not_before_ms=later_ms))
    cloud.pass_time(2 * HOUR_MS - 1)
    assert cloud.event(event).phase is Phase.SCHEDULED
    cloud.pass_time(1)
    assert cloud.event(event).phase is Phase.STARTED


def test_a_silent_platform_event_without_a_time_starts_with_its_operation() -> None:
    cloud = Cloud(scope("mute", {"m": (0, "h1")}, enabled=False), scope("told", {"t": (0, "h1")}))
    mute, told = cloud.events_of(cloud.maintain("h1", EventType.FREEZE))
    cloud.pass_time(minutes(15) - 1)
    assert {cloud.event(e).phase for e in (mute, told)} == {Phase.SCHEDULED}
    cloud.pass_time(1)
    assert {cloud.event(e).phase for e in (mute, told)} == {Phase.STARTED}


def test_a_host_on_which_everybody_is_silent_is_worked_on_at_once(cloud: Cloud) -> None:
    [event] = cloud.events_of(cloud.maintain("h1", EventType.FREEZE))
    cloud.tick()
    assert cloud.event(event).phase is Phase.STARTED


def test_a_silent_platform_event_appears_with_its_full_notice_when_its_scope_is_enabled(
    cloud: Cloud,
) -> None:
    later_ms = START_MS + HOUR_MS
    [event] = cloud.events_of(cloud.maintain("h1", EventType.REBOOT, not_before_ms=later_ms))
    cloud.clock.pass_ms(minutes(55))
    cloud.polls("web", "web_1")
    appeared = cloud.event(event)
    assert not appeared.silent
    assert appeared.not_before_ms == cloud.clock.wall + minutes(15)
    assert cloud.scope().incarnation == 2
    assert cloud.facts(FactKind.APPEARED)[-1].event_id == event.event_id
    cloud.pass_time(minutes(15) - 1)
    assert cloud.event(event).phase is Phase.SCHEDULED
    cloud.pass_time(1)
    assert cloud.event(event).phase is Phase.STARTED


def test_an_event_that_appears_early_keeps_the_time_its_order_named(cloud: Cloud) -> None:
    later_ms = START_MS + 3 * HOUR_MS
    [event] = cloud.events_of(cloud.maintain("h1", EventType.REBOOT, not_before_ms=later_ms))
    cloud.polls("web", "web_0")
    assert cloud.event(event).not_before_ms == later_ms


def test_a_silent_user_event_stays_silent_to_its_end(cloud: Cloud) -> None:
    cloud.hearing.falls_silent("h1")
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.polls("web", "web_0")
    assert cloud.event(event).silent
    cloud.hearing.returns("h1")
    cloud.pass_time(SECOND_MS)
    cloud.work()
    ended = cloud.event(event)
    assert (ended.silent, ended.phase) == (True, Phase.COMPLETED)
    assert cloud.scope().incarnation == 1


def test_a_silent_platform_event_that_has_started_stays_silent(cloud: Cloud) -> None:
    [event] = cloud.events_of(cloud.maintain("h1", EventType.REBOOT))
    cloud.tick()
    cloud.polls("web", "web_0")
    assert cloud.event(event).silent
    assert document.visible(cloud.scope()) == ()


def test_a_silent_event_obeys_the_other_rules(cloud: Cloud) -> None:
    first = cloud.order("web_0", EventType.REBOOT)
    second = cloud.order("web_1", EventType.REBOOT)
    cloud.tick()
    assert cloud.event(first).phase is Phase.STARTED
    assert cloud.event(second).phase is Phase.SCHEDULED
    cloud.work()
    assert cloud.event(first).phase is Phase.COMPLETED
    assert cloud.event(second).phase is Phase.STARTED


def test_the_journal_tells_the_operator_who_was_silent() -> None:
    cloud = Cloud(scope("mute", {"m": (0, "h1")}, enabled=False), scope("told", {"t": (0, "h1")}))
    cloud.maintain("h1", EventType.FREEZE)
    silent = {fact.scope: said(fact)["silent"] for fact in cloud.facts(FactKind.SCHEDULED)}
    assert silent == {"mute": True, "told": False}


def test_the_first_poll_enables_a_scope_and_later_orders_are_shown(cloud: Cloud) -> None:
    cloud.polls("web", "web_0")
    event = cloud.order("web_1", EventType.REBOOT)
    assert not event.silent
    assert cloud.scope().incarnation == 2
    assert [fact.vm for fact in cloud.facts(FactKind.ENABLED)] == ["web_0"]


def test_a_second_poll_of_an_enabled_scope_writes_nothing_new(cloud: Cloud) -> None:
    cloud.polls("web", "web_0")
    revision = cloud.scope().revision
    cloud.polls("web", "web_1")
    assert cloud.scope().revision == revision


def test_a_scope_that_nobody_polled_for_a_day_falls_silent() -> None:
    cloud = Cloud(scope("web", WEB))
    cloud.pass_time(DAY_MS - 1)
    assert cloud.scope().enabled
    cloud.pass_time(1)
    assert not cloud.scope().enabled
    assert cloud.order("web_0", EventType.REBOOT).silent


def test_a_poll_keeps_a_scope_enabled_for_another_day() -> None:
    cloud = Cloud(scope("web", WEB))
    cloud.pass_time(DAY_MS - 1)
    cloud.polls("web", "web_0")
    cloud.pass_time(DAY_MS - 1)
    assert cloud.scope().enabled


@pytest.mark.parametrize("lost", ["downtime", "step"])
def test_time_in_which_nobody_could_poll_does_not_silence_a_scope(lost: str) -> None:
    cloud = Cloud(scope("web", WEB))
    if lost == "downtime":
        cloud.crash(down_ms=3 * DAY_MS)
    else:
        cloud.clock.wall += 3 * DAY_MS
    cloud.pass_time(DAY_MS - minutes(1))
    assert cloud.scope().enabled


def test_a_scope_that_falls_silent_keeps_its_visible_events() -> None:
    cloud = Cloud(scope("web", WEB))
    later_ms = START_MS + 2 * DAY_MS
    [event] = cloud.events_of(cloud.maintain("h1", EventType.FREEZE, not_before_ms=later_ms))
    cloud.pass_time(DAY_MS)
    assert not cloud.scope().enabled
    assert [e.event_id for e in document.visible(cloud.scope())] == [event.event_id]
    assert cloud.event(event).not_before_ms == later_ms
    cloud.pass_time(DAY_MS - 1)
    assert cloud.event(event).phase is Phase.SCHEDULED
    cloud.pass_time(1)
    assert cloud.event(event).phase is Phase.STARTED


def test_the_incarnation_does_not_start_over_when_a_scope_falls_silent_and_returns() -> None:
    cloud = Cloud(scope("web", WEB))
    cloud.cancel(cloud.order("web_0", EventType.REBOOT))
    assert cloud.scope().incarnation == 3
    cloud.pass_time(DAY_MS)
    cloud.polls("web", "web_0")
    assert cloud.scope().incarnation == 3


def test_with_enablement_always_events_are_shown_though_nobody_ever_polled() -> None:
    policy = Policy(always_enabled=True, domain_recovery_ms=0)
    cloud = Cloud(scope("web", WEB, enabled=False), policy=policy)
    user = cloud.order("web_0", EventType.REBOOT)
    [platform] = cloud.events_of(cloud.maintain("h2", EventType.FREEZE))
    assert not user.silent
    assert not platform.silent
    assert platform.event_source is EventSource.PLATFORM
    cloud.pass_time(minutes(15) - 1)
    assert cloud.event(user).phase is Phase.SCHEDULED


def test_a_guest_cannot_approve_a_silent_event_and_the_operator_can(cloud: Cloud) -> None:
    [event] = cloud.events_of(
        cloud.maintain("h1", EventType.FREEZE, not_before_ms=cloud.clock.wall + HOUR_MS)
    )
    with pytest.raises(UnknownEventIds):
        cloud.approves("web_0", [event.event_id])
    assert cloud.event(event).approved_ms is None
    cloud.run(ordered.approve_event(event.event_id, by="operator"))
    assert cloud.event(event).approved_by == "operator"


def test_a_silent_event_never_starts_before_the_time_it_names(cloud: Cloud) -> None:
    cloud.clock.pass_ms(501)
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.tick()
    started = cloud.event(event)
    assert started.started_ms is not None
    assert started.started_ms >= started.not_before_ms
