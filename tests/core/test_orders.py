"""What owners order for one VM: types, repetition, limits, auto-approval, cancel, approval."""

from __future__ import annotations

import pytest

from forewarn.control.command_handlers import decide
from forewarn.control.transaction import Transaction
from forewarn.core import document
from forewarn.core.errors import (
    AlreadyStarted,
    Conflict,
    NotFound,
    NotSpot,
    TooManyUserEvents,
    UnknownEventIds,
)
from forewarn.core.model import (
    Cause,
    EventSource,
    EventType,
    FactKind,
    Phase,
    Policy,
    ScheduledEvent,
)
from forewarn.core.scheduling import EVENTS_PER_SCOPE_MAX
from support import ordered
from support.core_fleet import WEB, Cloud, minutes, scope, spot

PAIR = {"a": (0, "h1"), "b": (0, "h1"), "c": (1, "h2")}


@pytest.fixture
def cloud() -> Cloud:
    return Cloud(scope("web", WEB), spot("spotty", "h3"))


@pytest.mark.parametrize("wanted", [EventType.REBOOT, EventType.REDEPLOY, EventType.TERMINATE])
def test_an_owners_order_names_its_vm_and_says_that_a_user_wanted_it(
    cloud: Cloud, wanted: EventType
) -> None:
    event = cloud.order("web_0", wanted)
    assert (event.event_type, event.event_source, event.cause) == (
        wanted,
        EventSource.USER,
        Cause.ORDER,
    )
    assert (event.resources, event.update_domain, event.host) == (("web_0",), 0, "h1")


def test_an_eviction_is_the_platforms(cloud: Cloud) -> None:
    assert cloud.order("spotty", EventType.PREEMPT).event_source is EventSource.PLATFORM


def test_only_spot_vms_can_be_evicted(cloud: Cloud) -> None:
    before = cloud.everything()
    with pytest.raises(NotSpot, match="priority"):
        cloud.order("web_0", EventType.PREEMPT)
    assert cloud.everything() == before


def test_an_order_for_a_vm_that_is_not_there_is_refused(cloud: Cloud) -> None:
    with pytest.raises(NotFound, match="forewarn vm list"):
        cloud.order("nobody", EventType.REBOOT)


def test_repeating_an_order_returns_the_event_that_is_already_there(cloud: Cloud) -> None:
    first = cloud.order("web_0", EventType.REBOOT)
    cloud.pass_time(minutes(1))
    before = cloud.everything()
    assert cloud.order("web_0", EventType.REBOOT).event_id == first.event_id
    assert cloud.everything() == before
    cloud.start(first)
    assert cloud.order("web_0", EventType.REBOOT).event_id == first.event_id


def test_an_order_repeated_after_the_end_is_a_new_one(cloud: Cloud) -> None:
    first = cloud.order("web_0", EventType.REBOOT)
    cloud.carry_out(first)
    assert cloud.order("web_0", EventType.REBOOT).event_id != first.event_id


def test_an_owners_redeploy_is_another_event_than_the_platforms(cloud: Cloud) -> None:
    [platform] = cloud.events_of(cloud.maintain("h1", EventType.REDEPLOY))
    assert cloud.order("web_0", EventType.REDEPLOY).event_id != platform.event_id


def test_a_scope_takes_as_many_user_events_as_the_setting_says() -> None:
    vms = {f"vm_{i}": (0, "h1") for i in range(4)}
    cloud = Cloud(scope("web", vms), policy=Policy(user_events_max=3))
    events = [cloud.order(f"vm_{i}", EventType.REBOOT) for i in range(3)]
    with pytest.raises(TooManyUserEvents, match="user_events_max"):
        cloud.order("vm_3", EventType.REBOOT)
    assert cloud.order("vm_0", EventType.REBOOT).event_id == events[0].event_id
    cloud.maintain("h1", EventType.FREEZE)  # the limit is for users
    cloud.cancel(events[0])
    cloud.order("vm_3", EventType.REBOOT)


def test_the_limit_on_user_events_is_a_hundred_by_default() -> None:
    assert Policy().user_events_max == 100


def test_a_scope_has_a_limit_of_open_events_and_says_so() -> None:
    vms = {f"vm_{i}": (0, "h1") for i in range(EVENTS_PER_SCOPE_MAX + 1)}
    cloud = Cloud(scope("web", vms), policy=Policy(user_events_max=EVENTS_PER_SCOPE_MAX + 1))

    def fill(tx: Transaction) -> None:
        for number in range(EVENTS_PER_SCOPE_MAX):
            decide(tx, ordered.order_vm(f"vm_{number}", EventType.REBOOT, by="o"))

    cloud.run(fill)
    with pytest.raises(Conflict, match=str(EVENTS_PER_SCOPE_MAX)):
        cloud.order(f"vm_{EVENTS_PER_SCOPE_MAX}", EventType.REBOOT)


# Auto-approval.


def auto(*types: EventType) -> Cloud:
    return Cloud(scope("web", WEB, auto_approve=frozenset(types)))


@pytest.mark.parametrize("wanted", [EventType.REBOOT, EventType.REDEPLOY])
def test_an_auto_approved_order_is_started_in_one_incarnation(wanted: EventType) -> None:
    cloud = auto(wanted)
    event = cloud.order("web_0", wanted)
    assert event.phase is Phase.STARTED
    assert cloud.scope().incarnation == 2
    assert [e.phase for e in document.visible(cloud.scope())] == [Phase.STARTED]
    assert event.approved_by == "policy"


def test_only_the_types_the_scope_names_are_auto_approved() -> None:
    cloud = auto(EventType.REBOOT)
    assert cloud.order("web_0", EventType.REDEPLOY).phase is Phase.SCHEDULED


def test_platform_events_are_never_auto_approved() -> None:
    cloud = auto(EventType.REBOOT, EventType.REDEPLOY)
    [event] = cloud.events_of(cloud.maintain("h1", EventType.REBOOT))
    cloud.tick()
    assert (event.approved_ms, cloud.event(event).phase) == (None, Phase.SCHEDULED)


def test_an_auto_approved_order_that_must_wait_is_shown_scheduled_and_is_due() -> None:
    cloud = auto(EventType.REBOOT)
    first = cloud.order("web_0", EventType.REBOOT)
    second = cloud.order("web_1", EventType.REBOOT)
    assert second.phase is Phase.SCHEDULED
    assert not second.silent
    assert second.approved_ms is not None
    cloud.work()
    assert cloud.event(first).phase is Phase.COMPLETED
    assert cloud.event(second).phase is Phase.STARTED


# Cancel.


def test_canceling_takes_the_event_out_of_the_document(cloud: Cloud) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.cancel(event)
    assert cloud.event(event).phase is Phase.CANCELED
    assert document.visible(cloud.scope()) == ()
    assert cloud.scope().incarnation == 3
    [fact] = cloud.facts(FactKind.CANCELED)
    assert (fact.event_id, fact.by) == (event.event_id, "operator")


def test_an_eviction_can_be_withdrawn(cloud: Cloud) -> None:
    event = cloud.order("spotty", EventType.PREEMPT)
    cloud.cancel(event)
    cloud.pass_time(minutes(5))
    assert cloud.event(event).phase is Phase.CANCELED
    assert cloud.where("spotty") == "h3"


def test_cancel_after_start_is_refused_and_changes_nothing(cloud: Cloud) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.start(event)
    before = cloud.everything()
    with pytest.raises(AlreadyStarted, match="started"):
        cloud.cancel(event)
    assert cloud.everything() == before


def test_cancel_after_the_end_says_how_it_ended(cloud: Cloud) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.carry_out(event)
    with pytest.raises(AlreadyStarted, match="completed"):
        cloud.cancel(event)


def test_an_id_that_never_was_cannot_be_canceled(cloud: Cloud) -> None:
    with pytest.raises(NotFound, match="forewarn event list"):
        cloud.run(ordered.cancel_event("no-such-id", by="operator"))


# Approvals.


def test_one_unknown_id_refuses_the_whole_approval(cloud: Cloud) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    with pytest.raises(UnknownEventIds, match="NEVER-WAS"):
        cloud.approves("web_0", [event.event_id, "NEVER-WAS"])
    assert cloud.event(event).approved_ms is None


def test_an_id_of_another_scope_is_unknown(cloud: Cloud) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    with pytest.raises(UnknownEventIds):
        cloud.approves("spotty", [event.event_id])
    assert cloud.event(event).approved_ms is None


def test_any_vm_of_the_scope_may_approve_and_the_first_is_remembered(cloud: Cloud) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.approves("web_1", [event.event_id])
    cloud.clock.pass_ms(minutes(1))
    cloud.approves("web_0", [event.event_id])
    approved = cloud.event(event)
    assert approved.approved_by == "web_1"
    assert approved.approved_ms == cloud.clock.wall - minutes(1)


def test_approving_does_not_change_the_document(cloud: Cloud) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    incarnation = cloud.scope().incarnation
    cloud.approves("web_0", [event.event_id])
    assert cloud.scope().incarnation == incarnation


@pytest.mark.parametrize("until", ["approved", "started", "ended"])
def test_an_id_already_approved_started_or_ended_is_accepted_without_effect(
    cloud: Cloud, until: str
) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.approve(event)
    if until != "approved":
        cloud.tick()
    if until == "ended":
        cloud.work()
    before = cloud.everything()
    cloud.approves("web_0", [event.event_id])
    assert cloud.everything() == before


def test_several_ids_are_approved_together(cloud: Cloud) -> None:
    events = [cloud.order(name, EventType.REBOOT) for name in WEB]
    cloud.approves("web_0", [event.event_id for event in events] * 2)
    assert all(cloud.event(event).approved_ms is not None for event in events)
    assert len(cloud.facts(FactKind.APPROVED)) == 2


# Several events for one VM.


def started(cloud: Cloud) -> list[ScheduledEvent]:
    return [e for owner in cloud.index.scopes.values() for e in owner.events if e.started_ms]


def test_a_vm_has_at_most_one_started_event_and_the_oldest_due_goes_first(cloud: Cloud) -> None:
    reboot = cloud.order("web_0", EventType.REBOOT)
    redeploy = cloud.order("web_0", EventType.REDEPLOY)
    cloud.approve(redeploy)
    cloud.clock.pass_ms(1)
    cloud.approve(reboot)
    cloud.tick()
    assert [e.event_id for e in started(cloud)] == [redeploy.event_id]


def test_the_next_event_of_a_vm_starts_when_the_one_before_has_ended(cloud: Cloud) -> None:
    reboot = cloud.order("web_0", EventType.REBOOT)
    terminate = cloud.order("web_0", EventType.TERMINATE)
    cloud.approve(reboot)
    cloud.clock.pass_ms(1)
    cloud.approve(terminate)
    cloud.tick()
    assert cloud.event(terminate).phase is Phase.SCHEDULED
    cloud.work()
    assert cloud.event(reboot).phase is Phase.COMPLETED
    assert cloud.event(terminate).phase is Phase.STARTED


def test_terminates_stand_alone() -> None:
    cloud = Cloud(scope("web", PAIR))
    events = [cloud.order(name, EventType.TERMINATE) for name in ("a", "b")]
    assert [event.resources for event in events] == [("a",), ("b",)]
    cloud.carry_out(events[1])
    assert cloud.event(events[1]).phase is Phase.COMPLETED
    assert cloud.event(events[0]).phase is Phase.SCHEDULED


def test_a_deleted_vm_leaves_its_other_scheduled_events() -> None:
    cloud = Cloud(scope("web", PAIR))
    reboot = cloud.order("a", EventType.REBOOT)
    [freeze] = cloud.events_of(cloud.maintain("h1", EventType.FREEZE))
    assert freeze.resources == ("a", "b")
    terminate = cloud.order("a", EventType.TERMINATE)
    cloud.start(terminate)
    incarnation = cloud.scope().incarnation
    cloud.work()
    assert cloud.event(reboot).phase is Phase.CANCELED
    assert cloud.event(freeze).resources == ("b",)
    assert cloud.scope().vm("a") is None
    assert cloud.scope().incarnation == incarnation + 1
    assert {fact.event_id for fact in cloud.facts(FactKind.AVOIDED)} == {
        reboot.event_id,
        freeze.event_id,
    }


def test_an_evicted_vm_is_gone_and_leaves_its_other_events(cloud: Cloud) -> None:
    reboot = cloud.order("spotty", EventType.REBOOT)
    cloud.carry_out(cloud.order("spotty", EventType.PREEMPT))
    assert cloud.event(reboot).phase is Phase.CANCELED
    assert cloud.index.scope_of_vm.get("spotty") is None
