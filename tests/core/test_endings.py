"""From claim to end: epochs, boot ids, reports that are stale, repeated or late, deadlines."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from forewarn.core import document, ending
from forewarn.core.errors import NotFound, StaleReport
from forewarn.core.model import (
    Action,
    ActionKind,
    ActionPhase,
    EventType,
    FactKind,
    OperationPhase,
    Outcome,
    Phase,
    ScheduledEvent,
)
from support import ordered
from support.core_fleet import WEB, Cloud, minutes, scope, spot
from support.journal import said

DEADLINES = {
    EventType.REBOOT: minutes(30),
    EventType.REDEPLOY: minutes(60),
    EventType.TERMINATE: minutes(10),
}


@pytest.fixture
def cloud() -> Cloud:
    return Cloud(scope("web", WEB), spot("spotty", "h3"))


def taken(cloud: Cloud, event_type: EventType) -> tuple[ScheduledEvent, Action]:
    """A started event of web_0 whose one action its host has claimed."""
    event = cloud.order("web_0", event_type)
    cloud.start(event)
    [action] = cloud.claim("h1")
    return event, action


def test_a_claim_takes_the_action_under_a_new_epoch_and_keeps_the_boot_id(cloud: Cloud) -> None:
    event, action = taken(cloud, EventType.REBOOT)
    assert (action.phase, action.epoch, action.boot_id) == (ActionPhase.CLAIMED, 1, "boot-1")
    assert cloud.event(event).actions == (action,)
    assert said(cloud.facts(FactKind.CLAIMED)[-1])["epoch"] == 1


def test_the_boot_id_of_the_first_claim_stays() -> None:
    first = ending.claimed(
        Action(action_id="x", kind=ActionKind.REBOOT_HOST, host="h1"), boot_id="before"
    )
    again = ending.claimed(first, boot_id="after")
    assert (again.epoch, again.boot_id) == (2, "before")


def test_a_report_completes_the_event_and_it_leaves_the_document(cloud: Cloud) -> None:
    event, action = taken(cloud, EventType.REBOOT)
    incarnation = cloud.scope().incarnation
    cloud.report("h1", action)
    assert cloud.event(event).phase is Phase.COMPLETED
    assert document.visible(cloud.scope()) == ()
    assert cloud.scope().incarnation == incarnation + 1


@pytest.mark.parametrize("epoch", [0, 2])
def test_a_report_for_another_epoch_is_refused_and_changes_nothing(
    cloud: Cloud, epoch: int
) -> None:
    event, action = taken(cloud, EventType.REBOOT)
    before = cloud.everything()
    with pytest.raises(StaleReport, match="epoch"):
        cloud.report("h1", replace(action, epoch=epoch))
    assert cloud.everything() == before
    assert cloud.event(event).phase is Phase.STARTED


def test_a_report_on_an_action_nobody_has_claimed_is_refused(cloud: Cloud) -> None:
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.start(event)
    with pytest.raises(StaleReport, match="pending"):
        cloud.report("h1", cloud.event(event).actions[0])


def test_a_report_by_another_host_is_refused(cloud: Cloud) -> None:
    _, action = taken(cloud, EventType.REBOOT)
    with pytest.raises(NotFound):
        cloud.report("h2", action)


def test_a_repeated_report_is_accepted_without_effect_while_the_event_is_open() -> None:
    cloud = Cloud(scope("web", {"a": (0, "h1"), "b": (0, "h1")}))
    [event] = cloud.events_of(cloud.maintain("h1", EventType.REDEPLOY))
    cloud.start(event)
    first, _ = cloud.claim("h1")
    cloud.report("h1", first)
    before = cloud.everything()
    cloud.report("h1", first)
    assert cloud.everything() == before
    with pytest.raises(StaleReport):
        cloud.report("h1", first, Outcome.FAILED)


@pytest.mark.parametrize("outcome", [Outcome.DONE, Outcome.FAILED])
@pytest.mark.parametrize("what", ["event", "operation"])
def test_a_repeated_report_is_accepted_without_effect_after_the_end(
    what: str, outcome: Outcome
) -> None:
    cloud = Cloud(scope("web", WEB))
    if what == "event":
        _, action = taken(cloud, EventType.REBOOT)
    else:
        operation = cloud.maintain("h1", EventType.REBOOT)
        cloud.start(*cloud.events_of(operation))
        [action] = cloud.claim("h1")
    cloud.report("h1", action, outcome)
    before, lines = cloud.everything(), len(cloud.facts(FactKind.REPORTED))
    cloud.report("h1", action, outcome)
    assert cloud.everything() == before
    assert len(cloud.facts(FactKind.REPORTED)) == lines
    other = Outcome.FAILED if outcome is Outcome.DONE else Outcome.DONE
    with pytest.raises((StaleReport, NotFound)):
        cloud.report("h1", action, other)


# Deadlines.


@pytest.mark.parametrize("event_type", DEADLINES)
def test_an_event_without_a_report_by_its_deadline_fails_as_lost(
    cloud: Cloud, event_type: EventType
) -> None:
    event, _ = taken(cloud, event_type)
    cloud.pass_time(DEADLINES[event_type] - 1)
    assert cloud.event(event).phase is Phase.STARTED
    cloud.pass_time(1)
    ended = cloud.event(event)
    assert ended.phase is Phase.FAILED
    assert [action.outcome for action in ended.actions] == [Outcome.LOST]
    assert cloud.scope().hold is not None


def test_an_eviction_without_a_report_fails_after_ten_minutes(cloud: Cloud) -> None:
    event = cloud.order("spotty", EventType.PREEMPT)
    cloud.start(event)
    cloud.pass_time(minutes(10))
    assert cloud.event(event).phase is Phase.FAILED


@pytest.mark.parametrize(("event_type", "limit"), [(EventType.FREEZE, 15), (EventType.REBOOT, 30)])
def test_an_operation_without_a_report_by_its_deadline_fails_with_all_its_events(
    event_type: EventType, limit: int
) -> None:
    cloud = Cloud(scope("one", {"a": (0, "h1")}), scope("two", {"b": (0, "h1")}))
    operation = cloud.maintain("h1", event_type)
    cloud.start(*cloud.events_of(operation))
    cloud.pass_time(minutes(limit) - 1)
    assert cloud.operation(operation).phase is OperationPhase.STARTED
    cloud.pass_time(1)
    assert cloud.operation(operation).outcome == ending.LOST
    assert {e.phase for e in cloud.events_of(operation)} == {Phase.FAILED}


@pytest.mark.parametrize("lost", ["downtime", "step"])
@pytest.mark.parametrize("what", ["event", "operation"])
def test_lost_time_does_not_count_against_a_deadline(what: str, lost: str) -> None:
    cloud = Cloud(scope("web", WEB))
    if what == "event":
        event = cloud.order("web_0", EventType.REBOOT)
    else:
        [event] = cloud.events_of(cloud.maintain("h1", EventType.REBOOT))
    cloud.start(event)
    if lost == "downtime":
        cloud.crash(down_ms=minutes(600))
    else:
        cloud.clock.wall += minutes(600)
    cloud.pass_time(minutes(29))
    assert cloud.event(event).phase is Phase.STARTED
    cloud.pass_time(minutes(1))
    assert cloud.event(event).phase is Phase.FAILED


def test_a_clock_that_is_set_back_does_not_stretch_a_deadline(cloud: Cloud) -> None:
    event, _ = taken(cloud, EventType.REBOOT)
    cloud.clock.wall -= minutes(600)
    cloud.pass_time(minutes(30))
    assert cloud.event(event).phase is Phase.FAILED


# Late reports.


def lost(cloud: Cloud, event_type: EventType) -> tuple[ScheduledEvent, Action]:
    event, action = taken(cloud, event_type)
    cloud.pass_time(DEADLINES[event_type])
    return event, action


def test_what_was_really_done_takes_effect_though_the_event_stays_failed(cloud: Cloud) -> None:
    event, action = lost(cloud, EventType.REDEPLOY)
    other = cloud.order("web_0", EventType.REBOOT)
    cloud.report("h1", action)
    assert cloud.event(event).phase is Phase.FAILED
    assert cloud.where("web_0") == action.target_host
    assert cloud.event(other).phase is Phase.CANCELED
    assert said(cloud.facts(FactKind.REPORTED)[-1])["detail"] == "late"


def test_a_late_word_of_a_deletion_removes_the_vm(cloud: Cloud) -> None:
    _, action = lost(cloud, EventType.TERMINATE)
    cloud.report("h1", action)
    assert cloud.scope().vm("web_0") is None
    cloud.report("h1", action)  # again: nothing left to do
    assert cloud.scope().vm("web_0") is None


def test_a_late_word_of_a_failure_says_that_the_vm_has_not_moved(cloud: Cloud) -> None:
    event, action = lost(cloud, EventType.REDEPLOY)
    assert cloud.vm("web_0").may_run_on == action.target_host
    cloud.report("h1", action, Outcome.FAILED)
    assert cloud.event(event).phase is Phase.FAILED
    assert (cloud.where("web_0"), cloud.vm("web_0").may_run_on) == ("h1", None)


def test_only_the_last_holder_of_a_lost_action_is_believed(cloud: Cloud) -> None:
    event, action = taken(cloud, EventType.REDEPLOY)
    cloud.clock.pass_ms(minutes(1))
    [again] = cloud.claim("h1")
    assert again.epoch == action.epoch + 1
    cloud.pass_time(minutes(60))
    assert cloud.event(event).phase is Phase.FAILED
    with pytest.raises(StaleReport):
        cloud.report("h1", action)
    assert cloud.where("web_0") == "h1"
    cloud.report("h1", again)
    assert cloud.where("web_0") == again.target_host


def test_an_action_that_nobody_claimed_cannot_be_reported_late(cloud: Cloud) -> None:
    event = cloud.order("web_0", EventType.REDEPLOY)
    cloud.start(event)
    [action] = cloud.event(event).actions
    cloud.pass_time(minutes(60))
    with pytest.raises(StaleReport):
        cloud.report("h1", action)
    assert cloud.where("web_0") == "h1"


def test_a_late_move_to_a_host_that_failed_meanwhile_is_declared(cloud: Cloud) -> None:
    _, action = lost(cloud, EventType.REDEPLOY)
    cloud.fail(action.target_host or "")
    cloud.report("h1", action)
    assert [e.resources for e in cloud.scope().events] == [("web_0",)]
    assert cloud.scope().events[0].host == action.target_host


def test_a_late_word_is_ignored_once_the_vm_has_gone_elsewhere() -> None:
    cloud = Cloud(scope("web", {"web_0": (0, "h1")}))
    _, action = lost(cloud, EventType.REDEPLOY)
    assert action.target_host == "h2"
    cloud.run(ordered.close_host("h2", by="operator"))
    cloud.carry_out(cloud.order("web_0", EventType.REDEPLOY))
    cloud.report("h1", action)
    assert cloud.where("web_0") == "h3"


def test_a_late_deletion_leaves_a_started_event_to_its_own_end(cloud: Cloud) -> None:
    _, deletion = lost(cloud, EventType.TERMINATE)
    event, action = taken(cloud, EventType.REBOOT)
    cloud.report("h1", deletion)
    assert cloud.scope().vm("web_0") is None
    assert cloud.event(event).phase is Phase.STARTED
    cloud.report("h1", action, Outcome.FAILED, "no such VM")
    assert cloud.event(event).phase is Phase.FAILED
