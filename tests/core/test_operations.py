"""Freeze and Reboot of a host: one operation, one start, one action, whoever lives there."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from forewarn.core import document
from forewarn.core.errors import (
    AlreadyStarted,
    HostUnfit,
    Invalid,
    OperationExists,
    TwoDomainsOnHost,
)
from forewarn.core.model import (
    HOUR_MS,
    ActionKind,
    Decision,
    EventType,
    FactKind,
    OperationPhase,
    Outcome,
    Phase,
)
from forewarn.core.starting import HoldReason
from support.clock import START_MS
from support.core_fleet import WEB, Cloud, minutes, reasons, scope, vm
from support.journal import said

ONE = {"a0": (0, "h1"), "a1": (0, "h1"), "a2": (1, "h2")}
TWO = {"b0": (1, "h1"), "b1": (2, "h2")}
SPLIT = {"s0": (0, "h1"), "s1": (1, "h1")}
WHOLE_HOST = [EventType.FREEZE, EventType.REBOOT]


@pytest.fixture
def cloud() -> Cloud:
    return Cloud(scope("one", ONE), scope("two", TWO))


def phases(cloud: Cloud, operation: object) -> list[Phase]:
    return [event.phase for event in cloud.events_of(operation)]  # type: ignore[arg-type]


def test_an_operation_has_one_event_per_scope_and_domain_on_the_host(cloud: Cloud) -> None:
    events = cloud.events_of(cloud.maintain("h1", EventType.REBOOT))
    assert [(e.scope, e.update_domain, e.resources) for e in events] == [
        ("one", 0, ("a0", "a1")),
        ("two", 1, ("b0",)),
    ]


def test_all_events_of_an_operation_have_the_same_not_before() -> None:
    cloud = Cloud(scope("mute", ONE, enabled=False), scope("two", TWO))
    cloud.clock.pass_ms(123)
    later_ms = cloud.clock.wall + HOUR_MS
    for host, at_ms in (("h1", None), ("h2", later_ms)):
        events = cloud.events_of(cloud.maintain(host, EventType.REBOOT, not_before_ms=at_ms))
        assert len({event.not_before_ms for event in events}) == 1


@pytest.mark.parametrize(
    ("event_type", "kind"),
    [(EventType.FREEZE, ActionKind.FREEZE_HOST), (EventType.REBOOT, ActionKind.REBOOT_HOST)],
)
def test_all_its_events_start_in_one_commit_with_one_host_action(
    cloud: Cloud, event_type: EventType, kind: ActionKind
) -> None:
    operation = cloud.maintain("h1", event_type)
    commits = len(cloud.commits)
    cloud.approve(*cloud.events_of(operation))
    approvals = len(cloud.commits) - commits
    cloud.tick()
    assert phases(cloud, operation) == [Phase.STARTED, Phase.STARTED]
    [change] = cloud.commits[commits + approvals :]
    assert [after.name for _, after in change.scopes] == ["one", "two"]
    action = cloud.operation(operation).action
    assert action is not None
    assert (action.kind, action.host) == (kind, "h1")
    assert [a.action_id for a in cloud.claim("h1")] == [action.action_id]


def test_the_report_of_the_host_ends_every_event_of_the_operation(cloud: Cloud) -> None:
    operation = cloud.maintain("h1", EventType.REBOOT)
    cloud.carry_out(*cloud.events_of(operation))
    assert phases(cloud, operation) == [Phase.COMPLETED, Phase.COMPLETED]
    ended = cloud.operation(operation)
    assert (ended.phase, ended.outcome) == (OperationPhase.ENDED, "completed")
    assert document.visible(cloud.scope("one")) == ()


def test_a_failed_host_action_fails_every_event_of_the_operation(cloud: Cloud) -> None:
    operation = cloud.maintain("h1", EventType.REBOOT)
    cloud.start(*cloud.events_of(operation))
    cloud.work(Outcome.FAILED)
    assert phases(cloud, operation) == [Phase.FAILED, Phase.FAILED]
    assert cloud.operation(operation).outcome == "no"
    assert cloud.scope("one").hold is not None
    assert cloud.scope("two").hold is not None


def test_nothing_moves_until_every_event_is_due(cloud: Cloud) -> None:
    operation = cloud.maintain("h1", EventType.FREEZE)
    first, second = cloud.events_of(operation)
    cloud.start(first)
    assert phases(cloud, operation) == [Phase.SCHEDULED, Phase.SCHEDULED]
    cloud.start(second)
    assert phases(cloud, operation) == [Phase.STARTED, Phase.STARTED]


def test_nothing_moves_if_the_domain_of_one_scope_is_not_free(cloud: Cloud) -> None:
    cloud.start(cloud.order("b1", EventType.REBOOT))
    operation = cloud.maintain("h1", EventType.FREEZE)
    incarnation = cloud.scope("one").incarnation
    cloud.start(*cloud.events_of(operation))
    assert phases(cloud, operation) == [Phase.SCHEDULED, Phase.SCHEDULED]
    assert cloud.scope("one").incarnation == incarnation
    assert cloud.operation(operation).phase is OperationPhase.WAITING
    cloud.work()
    assert phases(cloud, operation) == [Phase.STARTED, Phase.STARTED]


def test_nothing_moves_while_the_host_is_not_heard(cloud: Cloud) -> None:
    operation = cloud.maintain("h1", EventType.FREEZE)
    cloud.hearing.falls_silent("h1")
    cloud.start(*cloud.events_of(operation))
    assert phases(cloud, operation) == [Phase.SCHEDULED, Phase.SCHEDULED]
    cloud.hearing.returns("h1")
    cloud.tick()
    assert phases(cloud, operation) == [Phase.STARTED, Phase.STARTED]


def test_a_held_operation_reserves_nothing(cloud: Cloud) -> None:
    cloud.start(cloud.order("b1", EventType.REBOOT))
    held = cloud.maintain("h1", EventType.FREEZE)
    cloud.approve(*cloud.events_of(held))
    cloud.clock.pass_ms(1)
    younger = cloud.order("a2", EventType.REBOOT)  # another domain of a scope the held one waits in
    cloud.start(younger)
    assert phases(cloud, held) == [Phase.SCHEDULED, Phase.SCHEDULED]
    assert cloud.event(younger).phase is Phase.STARTED


def test_the_operation_that_was_due_first_starts_first() -> None:
    cloud = Cloud(scope("web", WEB))
    first = cloud.maintain("h1", EventType.FREEZE)
    second = cloud.maintain("h2", EventType.FREEZE)
    cloud.approve(*cloud.events_of(second))
    cloud.clock.pass_ms(1)
    cloud.approve(*cloud.events_of(first))
    cloud.tick()
    assert phases(cloud, second) == [Phase.STARTED]
    assert phases(cloud, first) == [Phase.SCHEDULED]


def test_two_operations_of_one_host_do_not_run_together(cloud: Cloud) -> None:
    freeze = cloud.maintain("h1", EventType.FREEZE)
    reboot = cloud.maintain("h1", EventType.REBOOT)
    cloud.approve(*cloud.events_of(freeze))
    cloud.clock.pass_ms(1)
    cloud.start(*cloud.events_of(reboot))
    assert cloud.operation(freeze).phase is OperationPhase.STARTED
    assert cloud.operation(reboot).phase is OperationPhase.WAITING
    cloud.work()
    assert cloud.operation(reboot).phase is OperationPhase.STARTED


def test_canceling_one_event_cancels_the_operation(cloud: Cloud) -> None:
    operation = cloud.maintain("h1", EventType.REBOOT)
    cloud.cancel(cloud.events_of(operation)[1])
    assert phases(cloud, operation) == [Phase.CANCELED, Phase.CANCELED]
    assert cloud.operation(operation).phase is OperationPhase.ENDED
    assert cloud.facts(FactKind.CANCELED)[-1].operation_id == operation.operation_id
    cloud.pass_time(HOUR_MS)
    assert cloud.claim("h1") == []


def test_an_operation_that_has_started_cannot_be_canceled(cloud: Cloud) -> None:
    operation = cloud.maintain("h1", EventType.REBOOT)
    events = cloud.events_of(operation)
    cloud.start(*events)
    with pytest.raises(AlreadyStarted):
        cloud.cancel(events[0])
    assert phases(cloud, operation) == [Phase.STARTED, Phase.STARTED]


@pytest.mark.parametrize("event_type", WHOLE_HOST)
def test_work_that_would_hit_two_domains_is_refused_with_their_names_and_a_remedy(
    event_type: EventType,
) -> None:
    cloud = Cloud(scope("split", SPLIT), scope("one", ONE))
    before = cloud.everything()
    with pytest.raises(TwoDomainsOnHost) as refusal:
        cloud.maintain("h1", event_type)
    assert "update domains 0, 1 of scope split" in refusal.value.refused
    assert "scope one" not in refusal.value.refused
    assert "--type Redeploy" in refusal.value.accepted
    assert "--break-domains" in refusal.value.accepted
    assert cloud.everything() == before


def test_a_second_domain_that_is_on_its_way_to_the_host_counts_as_there() -> None:
    cloud = Cloud(scope("web", {"w0": (0, "h1"), "w1": (1, "h2")}))
    cloud.start(cloud.order("w0", EventType.REDEPLOY))
    assert [vm.name for _, vm in cloud.run(lambda tx: list(tx.arriving("h3")))] == ["w0"]
    owner = cloud.scope()
    joined = replace(owner, vms=(*owner.vms, vm("w2", 2, "h3")))
    cloud.run(lambda tx: tx.apply(Decision(scopes=(joined,))))
    with pytest.raises(TwoDomainsOnHost, match="update domains 0, 2 of scope web"):
        cloud.maintain("h3", EventType.FREEZE)


@pytest.mark.parametrize("event_type", WHOLE_HOST)
def test_break_domains_starts_both_at_once_and_records_who_forced_it(
    event_type: EventType,
) -> None:
    cloud = Cloud(scope("split", SPLIT), scope("one", ONE))
    operation = cloud.maintain("h1", event_type, break_domains=True, by="ann")
    assert operation.broke_domains_by == "ann"
    assert said(cloud.facts(FactKind.ORDERED)[-1])["broke_domains"] == ["split"]
    cloud.start(*cloud.events_of(operation))
    assert set(phases(cloud, operation)) == {Phase.STARTED}
    exempted = cloud.facts(FactKind.EXEMPTED)
    assert len(exempted) == 2
    assert {(fact.scope, fact.by) for fact in exempted} == {("split", "ann")}
    assert {said(fact)["because"] for fact in exempted} == {"break-domains"}


def test_break_domains_breaks_no_other_domain_than_those_of_the_host() -> None:
    cloud = Cloud(scope("split", {**SPLIT, "s2": (2, "h2")}))
    cloud.start(cloud.order("s2", EventType.REBOOT))
    operation = cloud.maintain("h1", EventType.FREEZE, break_domains=True)
    cloud.start(*cloud.events_of(operation))
    assert set(phases(cloud, operation)) == {Phase.SCHEDULED}


def test_break_domains_where_nothing_is_broken_records_nobody(cloud: Cloud) -> None:
    operation = cloud.maintain("h1", EventType.FREEZE, break_domains=True)
    assert operation.broke_domains_by is None
    assert not any(event.breaks_domains for event in cloud.events_of(operation))


def test_a_redeploy_of_a_host_with_two_domains_is_not_refused() -> None:
    cloud = Cloud(scope("split", SPLIT))
    events = cloud.events_of(cloud.maintain("h1", EventType.REDEPLOY))
    cloud.start(*events)
    assert [cloud.event(e).phase for e in events] == [Phase.STARTED, Phase.SCHEDULED]


def test_the_same_operation_is_not_ordered_twice(cloud: Cloud) -> None:
    operation = cloud.maintain("h1", EventType.REBOOT)
    with pytest.raises(OperationExists, match=operation.operation_id):
        cloud.maintain("h1", EventType.REBOOT)


def test_a_failed_host_cannot_be_maintained(cloud: Cloud) -> None:
    cloud.fail("h1")
    with pytest.raises(HostUnfit, match="forewarn host repair h1"):
        cloud.maintain("h1", EventType.FREEZE)


def test_a_host_without_vms_is_worked_on_at_once(cloud: Cloud) -> None:
    operation = cloud.maintain("h3", EventType.REBOOT)
    cloud.tick()
    assert cloud.operation(operation).phase is OperationPhase.STARTED
    cloud.work()
    assert cloud.operation(operation).phase is OperationPhase.ENDED


def test_a_host_without_vms_waits_for_the_time_the_order_named(cloud: Cloud) -> None:
    operation = cloud.maintain("h3", EventType.REBOOT, not_before_ms=START_MS + HOUR_MS)
    cloud.pass_time(HOUR_MS - 1)
    assert cloud.operation(operation).phase is OperationPhase.WAITING
    cloud.pass_time(1)
    assert cloud.operation(operation).phase is OperationPhase.STARTED


def test_an_operation_whose_vms_have_all_left_still_waits_for_the_time_its_order_named() -> None:
    cloud = Cloud(scope("web", {"w": (0, "h1")}))
    operation = cloud.maintain("h1", EventType.REBOOT, not_before_ms=START_MS + HOUR_MS)
    cloud.carry_out(cloud.order("w", EventType.TERMINATE))
    cloud.pass_time(minutes(30))
    assert cloud.operation(operation).phase is OperationPhase.WAITING
    assert reasons(cloud.operation_holds(operation)) == {HoldReason.CLOCK}
    cloud.pass_time(minutes(30))
    assert cloud.operation(operation).phase is OperationPhase.STARTED


def test_an_operation_goes_on_without_a_scope_whose_vms_have_left(cloud: Cloud) -> None:
    operation = cloud.maintain("h1", EventType.FREEZE)
    ours, theirs = cloud.events_of(operation)
    cloud.carry_out(cloud.order("b0", EventType.REDEPLOY))
    assert cloud.where("b0") == "h3"  # h2 carries another domain of its scope
    assert cloud.event(theirs).phase is Phase.CANCELED
    cloud.start(ours)
    assert cloud.event(ours).phase is Phase.STARTED
    cloud.work()
    assert cloud.operation(operation).outcome == "completed"


def test_a_vm_in_a_started_event_holds_the_operation(cloud: Cloud) -> None:
    cloud.start(cloud.order("a0", EventType.REBOOT))
    operation = cloud.maintain("h1", EventType.FREEZE)
    cloud.start(*cloud.events_of(operation))
    assert HoldReason.VM_BUSY in reasons(cloud.operation_holds(operation))
    assert phases(cloud, operation) == [Phase.SCHEDULED, Phase.SCHEDULED]


def test_a_vm_that_arrives_during_an_operation_gets_its_own_full_notice() -> None:
    cloud = Cloud(scope("web", {"w": (0, "h1")}), scope("api", {"x": (0, "h2")}))
    move = cloud.order("w", EventType.REDEPLOY)
    cloud.start(move)  # h3 is empty: it goes there
    operation = cloud.maintain("h3", EventType.FREEZE)
    cloud.tick()
    assert reasons(cloud.operation_holds(operation)) == {HoldReason.VM_ARRIVING}
    cloud.clock.pass_ms(minutes(5))
    cloud.work()
    [told] = cloud.events_of(operation)
    assert told.resources == ("w",)
    assert told.not_before_ms == cloud.clock.wall + minutes(15)
    cloud.pass_time(minutes(15) - 1)
    assert cloud.event(told).phase is Phase.SCHEDULED
    cloud.pass_time(1)
    assert cloud.event(told).phase is Phase.STARTED


def test_an_order_may_say_how_long_a_freeze_lasts_and_what_guests_read(cloud: Cloud) -> None:
    operation = cloud.maintain("h1", EventType.FREEZE, duration_s=30, description="New firmware.")
    events = cloud.events_of(operation)
    assert [(e.duration_s, e.description) for e in events] == [(30, "New firmware.")] * 2
    cloud.approve(*events)
    cloud.tick()
    [action] = cloud.claim("h1")
    assert (action.kind, action.duration_s) == (ActionKind.FREEZE_HOST, 30)


def test_a_freeze_of_no_length_and_an_empty_description_are_kept_as_ordered(cloud: Cloud) -> None:
    events = cloud.events_of(cloud.maintain("h1", EventType.FREEZE, duration_s=0, description=""))
    assert {(e.duration_s, e.description) for e in events} == {(0, "")}


def test_what_an_order_said_is_said_to_vms_that_arrive_later_and_after_a_restart() -> None:
    cloud = Cloud(scope("web", {"w": (0, "h1")}), scope("api", {"x": (0, "h2")}))
    cloud.start(cloud.order("w", EventType.REDEPLOY))  # h3 is empty: it goes there
    operation = cloud.maintain("h3", EventType.FREEZE, duration_s=30, description="New firmware.")
    cloud.crash(down_ms=minutes(1))
    cloud.work()
    [told] = cloud.events_of(operation)
    assert (told.resources, told.duration_s, told.description) == (("w",), 30, "New firmware.")


@pytest.mark.parametrize(
    ("event_type", "said", "accepted"),
    [
        (EventType.REBOOT, {"duration_s": 30}, "Freeze only"),
        (EventType.REDEPLOY, {"duration_s": 0}, "Freeze only"),
        (EventType.FREEZE, {"duration_s": -1}, "From 0 to 600 seconds"),
        (EventType.FREEZE, {"duration_s": 601}, "From 0 to 600 seconds"),
        (EventType.FREEZE, {"description": "x" * 201}, "Up to 200 printable characters"),
        (EventType.REBOOT, {"description": "two\nlines"}, "Up to 200 printable characters"),
    ],
)
def test_an_order_that_nobody_could_keep_or_read_is_refused(
    cloud: Cloud, event_type: EventType, said: dict[str, Any], accepted: str
) -> None:
    with pytest.raises(Invalid, match=accepted):
        cloud.maintain("h1", event_type, **said)
    assert not cloud.index.operations


def test_a_restart_between_order_and_start_forgets_nothing(cloud: Cloud) -> None:
    operation = cloud.maintain("h1", EventType.REBOOT)
    cloud.approve(*cloud.events_of(operation))
    cloud.crash(down_ms=minutes(1))
    cloud.tick()
    assert phases(cloud, operation) == [Phase.STARTED, Phase.STARTED]
