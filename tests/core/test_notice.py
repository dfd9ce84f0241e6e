"""What notice is promised, and when it has been given: minimum notice, NotBefore, due."""

from __future__ import annotations

import pytest

from forewarn.core import notice
from forewarn.core.model import (
    DAY_MS,
    HOUR_MS,
    SECOND_MS,
    EventType,
    FactKind,
    Phase,
    Policy,
    ScheduledEvent,
)
from support import ordered
from support.clock import START_MS
from support.core_fleet import WEB, Cloud, minutes, scope, spot, three_hosts
from support.journal import said

PROMISED = {
    EventType.FREEZE: minutes(15),
    EventType.REBOOT: minutes(15),
    EventType.REDEPLOY: minutes(10),
    EventType.PREEMPT: minutes(0.5),
}


@pytest.fixture
def cloud() -> Cloud:
    return Cloud(scope("web", WEB), spot("spotty", "h3"))


@pytest.mark.parametrize("event_type", [EventType.REBOOT, EventType.REDEPLOY])
def test_an_owners_order_gets_the_minimum_notice_of_its_type(
    cloud: Cloud, event_type: EventType
) -> None:
    event = cloud.order("web_0", event_type)
    assert event.minimum_notice_ms == PROMISED[event_type]
    assert event.not_before_ms == START_MS + PROMISED[event_type]


@pytest.mark.parametrize("event_type", [EventType.FREEZE, EventType.REBOOT, EventType.REDEPLOY])
def test_work_on_a_host_gets_the_minimum_notice_of_its_type(
    cloud: Cloud, event_type: EventType
) -> None:
    [event] = cloud.events_of(cloud.maintain("h1", event_type))
    assert event.minimum_notice_ms == PROMISED[event_type]
    assert event.not_before_ms == START_MS + PROMISED[event_type]


def test_an_eviction_gives_thirty_seconds(cloud: Cloud) -> None:
    event = cloud.order("spotty", EventType.PREEMPT)
    assert event.not_before_ms == START_MS + PROMISED[EventType.PREEMPT]


@pytest.mark.parametrize("given", [5, 8, 15])
def test_terminate_takes_the_notice_of_its_scope(given: int) -> None:
    cloud = Cloud(scope("web", WEB, terminate_notice_ms=minutes(given)))
    event = cloud.order("web_0", EventType.TERMINATE)
    assert event.not_before_ms == START_MS + minutes(given)
    cloud.pass_time(minutes(given) - SECOND_MS)
    assert cloud.event(event).phase is Phase.SCHEDULED
    cloud.pass_time(SECOND_MS)
    assert cloud.event(event).phase is Phase.STARTED


def test_terminate_gives_five_minutes_where_the_scope_says_nothing(cloud: Cloud) -> None:
    assert cloud.order("web_0", EventType.TERMINATE).minimum_notice_ms == minutes(5)


@pytest.mark.parametrize("off_ms", [1, 499, 999])
def test_not_before_is_a_whole_second_and_never_earlier_than_the_notice(off_ms: int) -> None:
    cloud = Cloud(scope("web", WEB))
    cloud.clock.pass_ms(off_ms)
    event = cloud.order("web_0", EventType.REBOOT)
    assert event.not_before_ms % SECOND_MS == 0
    least_ms = cloud.clock.wall + PROMISED[EventType.REBOOT]
    assert least_ms <= event.not_before_ms < least_ms + SECOND_MS


def test_an_order_may_name_a_later_time_but_no_earlier_one(cloud: Cloud) -> None:
    later_ms = START_MS + 2 * HOUR_MS
    [late] = cloud.events_of(cloud.maintain("h1", EventType.FREEZE, not_before_ms=later_ms))
    soon = cloud.maintain("h2", EventType.FREEZE, not_before_ms=START_MS + minutes(1))
    [early] = cloud.events_of(soon)
    assert late.not_before_ms == later_ms
    assert early.not_before_ms == START_MS + PROMISED[EventType.FREEZE]


def test_not_before_never_changes_after_publication(cloud: Cloud) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.pass_time(minutes(1))
    cloud.crash(down_ms=minutes(5))
    cloud.clock.wall -= HOUR_MS
    cloud.pass_time(minutes(2))
    cloud.hearing.falls_silent("h1")
    cloud.pass_time(minutes(3))
    cloud.hearing.returns("h1")
    cloud.polls("web", "web_0")
    cloud.approve(event)
    assert cloud.event(event).not_before_ms == event.not_before_ms


# Due.


def test_a_shown_event_starts_at_not_before_and_no_sooner(cloud: Cloud) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.pass_time(minutes(15) - 1)
    assert cloud.event(event).phase is Phase.SCHEDULED
    cloud.pass_time(1)
    assert cloud.event(event).phase is Phase.STARTED


def test_an_approval_makes_an_event_due_at_once(cloud: Cloud) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.tick()
    assert cloud.event(event).phase is Phase.SCHEDULED
    cloud.start(event)
    assert cloud.event(event).phase is Phase.STARTED


def test_an_approval_is_enough_though_no_host_has_shown_the_event(cloud: Cloud) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.start(event)
    assert cloud.event(event).shown_ms is None
    assert cloud.event(event).phase is Phase.STARTED


def test_approving_one_event_leaves_the_others_scheduled(cloud: Cloud) -> None:
    first = cloud.order("web_0", EventType.REBOOT)
    second = cloud.order("web_0", EventType.REDEPLOY)
    cloud.start(first)
    assert cloud.event(first).phase is Phase.STARTED
    assert cloud.event(second).approved_ms is None
    assert cloud.event(second).phase is Phase.SCHEDULED


def test_an_event_that_no_host_has_shown_is_never_due(cloud: Cloud) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.pass_time(DAY_MS, shown=False)
    assert cloud.event(event).phase is Phase.SCHEDULED


def test_notice_runs_from_the_confirmation_and_not_from_the_order(cloud: Cloud) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.clock.pass_ms(minutes(10))
    cloud.pass_time(minutes(15) - 1)
    assert cloud.event(event).phase is Phase.SCHEDULED
    cloud.pass_time(1)
    assert cloud.event(event).phase is Phase.STARTED


def test_a_confirmation_of_an_older_document_shows_nothing(cloud: Cloud) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.run(ordered.confirm("h1", "web", cloud.scope().incarnation - 1))
    assert cloud.event(event).shown_ms is None
    cloud.run(ordered.confirm("h2", "web", cloud.scope().incarnation))
    assert cloud.event(event).shown_ms is None  # another host shows it; its own does not yet
    cloud.run(ordered.confirm("h1", "web", cloud.scope().incarnation))
    assert cloud.event(event).shown_ms == START_MS


def test_the_silence_of_a_host_is_no_notice_and_what_was_given_before_is_kept(
    cloud: Cloud,
) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.pass_time(minutes(10))
    cloud.hearing.falls_silent("h1")
    cloud.pass_time(minutes(60))
    banked = cloud.event(event)
    assert banked.shown_ms is None
    assert notice.readable_ms(banked, cloud.clock.wall) == minutes(10)
    cloud.hearing.returns("h1")
    cloud.pass_time(minutes(5) - 1)
    assert cloud.event(event).phase is Phase.SCHEDULED
    cloud.pass_time(1)
    assert cloud.event(event).phase is Phase.STARTED


def test_time_in_which_the_process_stood_still_is_no_notice(cloud: Cloud) -> None:
    """A stopped process serves nobody, though every clock goes on."""
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.pass_time(minutes(10))
    cloud.timekeeper.pulse()
    cloud.clock.pass_ms(14_000)
    for _ in range(5 * 60 - 1):  # the process runs again, and beats
        cloud.timekeeper.pulse()
        cloud.pass_time(SECOND_MS)
        cloud.timekeeper.pulse()
    assert cloud.event(event).phase is Phase.SCHEDULED
    cloud.pass_time(SECOND_MS)
    assert cloud.event(event).phase is Phase.STARTED


def test_a_silence_takes_nothing_from_events_on_other_hosts(cloud: Cloud) -> None:
    other = cloud.order("web_1", EventType.REBOOT)
    cloud.pass_time(minutes(1))
    cloud.hearing.falls_silent("h1")
    cloud.pass_time(minutes(14), shown=False)
    assert cloud.event(other).phase is Phase.STARTED


@pytest.mark.parametrize("step_ms", [HOUR_MS, 3 * DAY_MS])
def test_a_clock_that_jumps_ahead_gives_no_notice(cloud: Cloud, step_ms: int) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.pass_time(minutes(5))
    cloud.clock.wall += step_ms
    cloud.pass_time(minutes(10) - 1)
    assert cloud.event(event).phase is Phase.SCHEDULED
    cloud.pass_time(1)
    assert cloud.event(event).phase is Phase.STARTED


def test_a_clock_that_is_set_back_delays_the_start_until_not_before(cloud: Cloud) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.pass_time(minutes(5))
    cloud.clock.wall -= HOUR_MS
    cloud.pass_time(minutes(10))
    assert cloud.event(event).phase is Phase.SCHEDULED
    cloud.pass_time(HOUR_MS)
    assert cloud.event(event).phase is Phase.STARTED


def test_a_clock_that_is_set_back_and_forth_costs_no_notice(cloud: Cloud) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.pass_time(minutes(5))
    cloud.clock.wall -= HOUR_MS
    cloud.pass_time(minutes(5))
    cloud.clock.wall += HOUR_MS
    cloud.pass_time(minutes(5))
    assert cloud.event(event).phase is Phase.STARTED


@pytest.mark.parametrize("what", ["event", "operation"])
def test_an_approval_does_not_lapse_when_the_clock_is_set_back(what: str) -> None:
    cloud = Cloud(scope("web", WEB))
    if what == "event":
        event = cloud.order("web_0", EventType.REBOOT)
    else:
        [event] = cloud.events_of(cloud.maintain("h1", EventType.REBOOT))
    cloud.hearing.falls_silent("h1")
    cloud.approve(event)
    cloud.clock.wall -= 2 * HOUR_MS
    cloud.hearing.returns("h1")
    cloud.pass_time(SECOND_MS)
    assert cloud.event(event).phase is Phase.STARTED


@pytest.mark.parametrize("step_ms", [0, HOUR_MS, -HOUR_MS])
def test_downtime_is_no_notice_whatever_the_clock_did_meanwhile(cloud: Cloud, step_ms: int) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.pass_time(minutes(10))
    cloud.run(ordered.heartbeat())
    cloud.crash(down_ms=minutes(30), wall_step_ms=step_ms)
    given_ms = minutes(10) - 15 * SECOND_MS  # a silence just before may have gone unnoticed
    assert notice.readable_ms(cloud.event(event), cloud.clock.wall) == given_ms
    cloud.pass_time(minutes(15) - given_ms - 1)
    assert cloud.event(event).phase is Phase.SCHEDULED
    cloud.pass_time(HOUR_MS if step_ms < 0 else 1)
    assert cloud.event(event).phase is Phase.STARTED


def test_after_a_restart_notice_waits_until_the_host_confirms_again(cloud: Cloud) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.pass_time(minutes(14))
    cloud.crash(down_ms=SECOND_MS)
    cloud.pass_time(DAY_MS, shown=False)
    assert cloud.event(event).phase is Phase.SCHEDULED


def test_downtime_and_steps_are_in_the_journal(cloud: Cloud) -> None:
    cloud.run(ordered.heartbeat())
    cloud.crash(down_ms=minutes(3))
    cloud.clock.wall += minutes(7)
    cloud.tick()
    assert said(cloud.facts(FactKind.DOWNTIME)[-1])["lost_ms"] == minutes(3)
    assert said(cloud.facts(FactKind.CLOCK_STEPPED)[-1])["stepped_ms"] == minutes(7)


def test_nothing_counts_as_read_below_zero() -> None:
    cloud = Cloud(scope("web", WEB))
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.show()
    shown = cloud.event(event)
    assert notice.readable_ms(shown, shown.scheduled_ms, lost_ms=minutes(5)) == 0


@pytest.mark.parametrize(
    ("event_type", "duration_s"),
    [(EventType.FREEZE, 9), (EventType.REBOOT, -1), (EventType.REDEPLOY, -1)],
)
def test_only_a_freeze_says_how_long_it_takes(event_type: EventType, duration_s: int) -> None:
    cloud = Cloud(scope("web", WEB), policy=Policy(freeze_s=9), hosts=three_hosts())
    [event] = cloud.events_of(cloud.maintain("h1", event_type))
    assert event.duration_s == duration_s


def test_every_reason_for_an_event_has_the_words_of_the_contract() -> None:
    cloud = Cloud(scope("web", WEB), spot("spotty", "h3"))
    cloud.order("web_0", EventType.REBOOT)
    cloud.order("web_0", EventType.REDEPLOY)
    cloud.order("web_0", EventType.TERMINATE)
    cloud.order("spotty", EventType.PREEMPT)
    cloud.maintain("h2", EventType.FREEZE)
    cloud.degrade("h1")
    cloud.fail("h3")
    words = {words_of(event) for owner in cloud.index.scopes.values() for event in owner.events}
    assert words == {
        ("Reboot", "Virtual machine is going to be restarted as requested by authorized user."),
        ("Redeploy", "Virtual machine is going to be redeployed as requested by authorized user."),
        ("Terminate", ""),
        ("Preempt", ""),
        ("Freeze", "Host server is undergoing maintenance."),
        ("Redeploy", "Host server is undergoing an emergency repair."),
        ("Reboot", "Virtual machine has encountered a failure."),
    }


def words_of(event: ScheduledEvent) -> tuple[str, str]:
    return event.event_type.value, event.description
