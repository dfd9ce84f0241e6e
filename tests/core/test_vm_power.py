"""A VM that its owner switched off stays off, and nobody waits for it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from forewarn.control import commands
from forewarn.core import vm_power
from forewarn.core.model import (
    DAY_MS,
    ActionKind,
    Cause,
    EventType,
    FactKind,
    OperationPhase,
    Outcome,
    Phase,
    Policy,
    ScheduledEvent,
)
from forewarn.core.starting import HoldReason
from forewarn.ports import SWITCHED_ON
from support import ordered
from support.core_fleet import Cloud, minutes, reasons, scope

VMS = {"a": (0, "h1"), "b": (0, "h1"), "c": (1, "h2")}


@pytest.fixture
def cloud() -> Cloud:
    """`a` is off, `b` and `c` run."""
    made = Cloud(scope("one", VMS))
    switch(made, "a", on=False)
    return made


def switch(cloud: Cloud, vm: str, *, on: bool) -> None:
    owner = cloud.scope("one")
    now_ms = cloud.clock.wall
    if on:
        decision = vm_power.switched_on(owner, (vm,), enabled=True, now_ms=now_ms)
    else:
        decision = vm_power.switched_off(owner, (vm,), now_ms)
    cloud.run(lambda tx: tx.apply(decision))


def about(cloud: Cloud, vm: str) -> ScheduledEvent:
    [event] = [event for event in cloud.scope("one").events if vm in event.resources]
    return event


# Maintenance of its host.


@pytest.mark.parametrize("event_type", [EventType.FREEZE, EventType.REBOOT])
def test_what_is_done_to_a_host_is_no_business_of_a_vm_that_is_off(
    cloud: Cloud, event_type: EventType
) -> None:
    operation = cloud.maintain("h1", event_type)
    [event] = cloud.events_of(operation)
    assert event.resources == ("b",)
    cloud.start(event)
    assert cloud.operation(operation).phase is OperationPhase.STARTED


@pytest.mark.parametrize("event_type", [EventType.FREEZE, EventType.REBOOT])
def test_a_host_with_nothing_but_vms_that_are_off_waits_for_nobody(
    cloud: Cloud, event_type: EventType
) -> None:
    switch(cloud, "b", on=False)
    incarnation = cloud.scope("one").incarnation
    operation = cloud.maintain("h1", event_type)
    cloud.tick()
    assert cloud.operation(operation).phase is OperationPhase.STARTED
    assert cloud.scope("one").incarnation == incarnation


def test_a_vm_that_is_switched_on_before_the_start_gets_its_full_notice(cloud: Cloud) -> None:
    operation = cloud.maintain("h1", EventType.REBOOT)
    cloud.pass_time(minutes(14))
    switch(cloud, "a", on=True)
    cloud.pass_time(minutes(2))
    assert cloud.operation(operation).phase is OperationPhase.WAITING
    event = about(cloud, "a")
    assert not event.silent
    cloud.pass_time(minutes(14))
    assert cloud.operation(operation).phase is OperationPhase.WAITING
    cloud.pass_time(minutes(2))
    assert cloud.operation(operation).phase is OperationPhase.STARTED


def test_a_domain_that_is_off_does_not_forbid_a_reboot_of_its_host() -> None:
    cloud = Cloud(scope("one", {"a": (0, "h1"), "b": (1, "h1")}))
    switch(cloud, "a", on=False)
    operation = cloud.maintain("h1", EventType.REBOOT)
    assert [event.resources for event in cloud.events_of(operation)] == [("b",)]


def test_one_that_is_switched_on_breaks_no_domains_that_nobody_had_said_may_be_broken() -> None:
    """The operator accepted that of another scope; this one had one domain there that ran."""
    cloud = Cloud(
        scope("one", {"a": (0, "h1"), "b": (1, "h1")}),
        scope("two", {"c": (0, "h1"), "d": (1, "h1")}),
    )
    switch(cloud, "a", on=False)
    operation = cloud.maintain("h1", EventType.FREEZE, break_domains=True)
    switch(cloud, "a", on=True)
    cloud.tick()
    cloud.start(*cloud.events_of(operation))
    assert reasons(cloud.operation_holds(operation)) == {HoldReason.TWO_DOMAINS}


def test_it_leaves_a_host_that_is_emptied_without_waiting(cloud: Cloud) -> None:
    incarnation = cloud.scope("one").incarnation
    operation = cloud.maintain("h1", EventType.REDEPLOY)
    quiet, told = about(cloud, "a"), about(cloud, "b")
    assert (quiet.silent, told.silent) == (True, False)
    assert cloud.scope("one").incarnation == incarnation + 1  # for b
    cloud.tick()
    [move] = cloud.claim("h1")
    assert (move.kind, move.vm) == (ActionKind.MOVE_VM, "a")
    cloud.report("h1", move)
    assert cloud.where("a") == move.target_host
    assert cloud.vm("a").off
    assert cloud.event(quiet).phase is Phase.COMPLETED
    assert cloud.event(told).phase is Phase.SCHEDULED
    assert cloud.operation(operation).phase is OperationPhase.STARTED


def test_it_holds_no_other_domain_up() -> None:
    cloud = Cloud(scope("one", VMS), policy=Policy(domain_recovery_ms=minutes(10)))
    switch(cloud, "a", on=False)
    switch(cloud, "b", on=False)
    cloud.maintain("h1", EventType.REDEPLOY)
    cloud.tick()
    moves = cloud.claim("h1")
    other = cloud.order("c", EventType.REBOOT)
    cloud.start(other)
    assert cloud.event(other).phase is Phase.STARTED  # beside the moves, which impact nobody
    for move in moves:
        cloud.report("h1", move)
    assert cloud.scope("one").recoveries == ()
    assert cloud.facts(FactKind.EXEMPTED) == []


def test_it_waits_for_no_other_domain(cloud: Cloud) -> None:
    other = cloud.order("c", EventType.REBOOT)
    cloud.start(other)
    cloud.maintain("h1", EventType.REDEPLOY)
    cloud.tick()
    assert [move.vm for move in cloud.claim("h1")] == ["a"]


def test_a_move_that_could_not_begin_is_announced_once_it_is_switched_on(cloud: Cloud) -> None:
    for host in ("h2", "h3"):
        cloud.run(ordered.close_host(host, by="operator"))
    cloud.maintain("h1", EventType.REDEPLOY)
    cloud.tick()
    event = about(cloud, "a")
    assert reasons(cloud.holds(event)) == {HoldReason.NO_TARGET}
    switch(cloud, "a", on=True)
    shown = cloud.event(event)
    assert not shown.silent
    assert shown.not_before_ms >= cloud.clock.wall + minutes(10)
    cloud.run(ordered.open_host("h3", by="operator"))
    cloud.pass_time(minutes(9))
    assert cloud.event(event).phase is Phase.SCHEDULED
    cloud.pass_time(minutes(2))
    assert cloud.event(event).phase is Phase.STARTED


def test_a_scope_that_begins_to_listen_is_not_told_of_it() -> None:
    cloud = Cloud(scope("one", VMS, enabled=False))
    switch(cloud, "a", on=False)
    for host in ("h2", "h3"):
        cloud.run(ordered.close_host(host, by="operator"))
    cloud.maintain("h1", EventType.REDEPLOY)
    cloud.polls("one", "b")
    assert (about(cloud, "a").silent, about(cloud, "b").silent) == (True, False)


def test_what_was_announced_before_it_was_switched_off_keeps_its_time(cloud: Cloud) -> None:
    event = cloud.order("b", EventType.REDEPLOY)
    switch(cloud, "b", on=False)
    assert not cloud.event(event).silent
    assert cloud.event(event).not_before_ms == event.not_before_ms


def test_what_was_announced_before_it_was_switched_off_waits_for_other_domains(
    cloud: Cloud,
) -> None:
    """It may be switched on again while the event runs."""
    event, other = cloud.order("b", EventType.REDEPLOY), cloud.order("c", EventType.REBOOT)
    cloud.start(other)
    switch(cloud, "b", on=False)
    cloud.tick()
    assert HoldReason.DOMAIN_STARTED in reasons(cloud.holds(cloud.event(event)))
    assert cloud.event(event).phase is Phase.SCHEDULED


# It is switched off after it was told: it is waited for no longer.


@pytest.mark.parametrize("event_type", [EventType.REBOOT, EventType.REDEPLOY])
def test_what_was_announced_to_one_that_is_off_by_now_starts_at_once(
    cloud: Cloud, event_type: EventType
) -> None:
    event = cloud.order("b", event_type)
    cloud.pass_time(minutes(1))
    assert reasons(cloud.holds(event)) == {HoldReason.CONSENT}
    switch(cloud, "b", on=False)
    assert cloud.holds(event) == []
    cloud.tick()
    assert cloud.event(event).phase is Phase.STARTED
    assert [action.only_off for action in cloud.claim("h1")] == [True]


def test_a_host_that_nobody_shows_anything_on_is_not_waited_for_either(cloud: Cloud) -> None:
    event = cloud.order("b", EventType.REDEPLOY)
    assert reasons(cloud.holds(event)) == {HoldReason.NOT_YET_SERVED}
    switch(cloud, "b", on=False)
    cloud.tick()
    assert cloud.event(event).phase is Phase.STARTED


def test_one_that_runs_is_still_asked_though_the_other_is_off(cloud: Cloud) -> None:
    switch(cloud, "a", on=True)
    operation = cloud.maintain("h1", EventType.REDEPLOY)
    [event] = cloud.events_of(operation)
    assert event.resources == ("a", "b")
    switch(cloud, "a", on=False)
    cloud.pass_time(minutes(9))
    assert reasons(cloud.holds(event)) == {HoldReason.CONSENT}
    switch(cloud, "b", on=False)
    cloud.tick()
    assert cloud.event(event).phase is Phase.STARTED


def test_the_time_that_an_order_named_is_waited_for_all_the_same(cloud: Cloud) -> None:
    at_ms = cloud.clock.wall + minutes(60)
    operation = cloud.maintain("h1", EventType.REDEPLOY, not_before_ms=at_ms)
    told = about(cloud, "b")
    switch(cloud, "b", on=False)
    cloud.pass_time(minutes(59))
    [hold] = cloud.holds(told)
    assert (hold.reason, hold.until_ms) == (HoldReason.CLOCK, at_ms)
    cloud.pass_time(minutes(2))
    assert {event.phase for event in cloud.events_of(operation)} == {Phase.STARTED}


def test_one_that_is_switched_on_again_before_the_start_keeps_its_notice(cloud: Cloud) -> None:
    for host in ("h2", "h3"):
        cloud.run(ordered.close_host(host, by="operator"))
    event = cloud.order("b", EventType.REDEPLOY)
    cloud.pass_time(minutes(1))
    switch(cloud, "b", on=False)
    cloud.tick()
    assert reasons(cloud.holds(event)) == {HoldReason.NO_TARGET}
    switch(cloud, "b", on=True)
    cloud.run(ordered.open_host("h3", by="operator"))
    cloud.tick()
    assert cloud.event(event).not_before_ms == event.not_before_ms
    assert reasons(cloud.holds(event)) == {HoldReason.CONSENT}
    cloud.pass_time(event.not_before_ms - cloud.clock.wall)
    assert cloud.event(event).phase is Phase.STARTED
    assert [action.only_off for action in cloud.claim("h1")] == [False]


def test_what_it_was_given_its_time_for_is_done_to_it_though_it_is_off(cloud: Cloud) -> None:
    """It was told in full: that it is switched on again in the last moment changes nothing."""
    event = cloud.order("b", EventType.REDEPLOY)
    cloud.approve(event)
    switch(cloud, "b", on=False)
    cloud.tick()
    assert [action.only_off for action in cloud.claim("h1")] == [False]


@pytest.mark.parametrize("event_type", [EventType.FREEZE, EventType.REBOOT])
def test_a_host_does_not_wait_for_what_it_had_announced_to_a_vm_that_is_off_by_now(
    event_type: EventType,
) -> None:
    cloud = Cloud(scope("one", VMS), scope("two", {"d": (0, "h1")}))
    operation = cloud.maintain("h1", event_type)
    told = about(cloud, "a")
    [other] = [event for event in cloud.events_of(operation) if event.scope == "two"]
    cloud.approve(other)
    cloud.pass_time(minutes(1))
    assert reasons(cloud.operation_holds(operation)) == {HoldReason.CONSENT}
    for vm in ("a", "b"):
        switch(cloud, vm, on=False)
    assert cloud.operation_holds(operation) == []
    cloud.tick()
    assert cloud.operation(operation).phase is OperationPhase.STARTED
    assert cloud.event(other).phase is Phase.STARTED
    # Nothing is done to them: who is switched on now is none of those that were told.
    assert (cloud.event(told).phase, cloud.event(told).outcome) == (
        Phase.CANCELED,
        "avoided: switched off",
    )
    [handed_out] = cloud.handed_out("h1")
    assert handed_out.about == (("d", ""),)
    assert {fact.vm for fact in cloud.facts(FactKind.AVOIDED)} == {"a", "b"}


def test_an_operation_is_not_begun_before_its_time_because_all_are_off(cloud: Cloud) -> None:
    at_ms = cloud.clock.wall + minutes(60)
    operation = cloud.maintain("h1", EventType.REBOOT, not_before_ms=at_ms)
    switch(cloud, "b", on=False)
    cloud.pass_time(minutes(59))
    assert reasons(cloud.operation_holds(operation)) == {HoldReason.CLOCK}
    switch(cloud, "b", on=True)
    cloud.pass_time(0)
    assert reasons(cloud.operation_holds(operation)) == {HoldReason.CONSENT}
    assert len(cloud.events_of(operation)) == 1  # what was announced stands


def test_being_off_is_no_consent_to_its_end(cloud: Cloud) -> None:
    event = cloud.order("a", EventType.TERMINATE)
    cloud.pass_time(minutes(1))
    assert reasons(cloud.holds(event)) == {HoldReason.CONSENT}
    assert cloud.event(event).phase is Phase.SCHEDULED


# It is switched on in the last moment: what was decided because it is off is not done to it.


def spared(cloud: Cloud, host: str = "h1") -> None:
    """The host finds it running, and does nothing."""
    [action] = [action for action in cloud.claim(host) if action.vm == "a"]
    assert action.only_off
    cloud.report(host, action, Outcome.SPARED, SWITCHED_ON)


def test_what_is_done_because_a_vm_is_off_is_done_to_no_other(cloud: Cloud) -> None:
    cloud.start(cloud.order("b", EventType.REDEPLOY))
    cloud.maintain("h1", EventType.REDEPLOY)
    cloud.tick()
    cloud.crash(down_ms=minutes(1))
    ordered.renew("h1", {})
    assert {action.vm: action.only_off for action in cloud.claim("h1")} == {"a": True, "b": False}


def test_one_that_a_host_found_running_is_told_by_the_operation_that_spared_it(
    cloud: Cloud,
) -> None:
    operation = cloud.maintain("h1", EventType.REDEPLOY)
    quiet = about(cloud, "a")
    cloud.tick()
    spared(cloud)
    assert cloud.event(quiet).phase is Phase.FAILED
    assert "it was switched on before this began" in cloud.event(quiet).outcome
    assert not cloud.vm("a").off
    assert cloud.scope("one").hold is None  # nothing is wrong
    cloud.tick()
    told = about(cloud, "a")
    assert not told.silent
    assert told.not_before_ms >= cloud.clock.wall + minutes(10)
    assert told in cloud.events_of(operation)
    cloud.pass_time(minutes(9))
    assert cloud.event(told).phase is Phase.SCHEDULED
    cloud.pass_time(minutes(2))
    [move] = [action for action in cloud.claim("h1") if action.vm == "a"]
    assert not move.only_off
    cloud.report("h1", move)
    assert cloud.where("a") != "h1"


def test_a_drain_whose_last_vm_was_spared_goes_on_until_that_has_moved() -> None:
    cloud = Cloud(scope("one", {"a": (0, "h1"), "c": (1, "h2")}))
    switch(cloud, "a", on=False)
    operation = cloud.maintain("h1", EventType.REDEPLOY)
    cloud.tick()
    spared(cloud)
    cloud.tick()
    cloud.tick()
    assert cloud.operation(operation).phase is OperationPhase.STARTED
    assert about(cloud, "a").operation_id == operation.operation_id


def test_one_that_was_spared_is_not_told_of_a_drain_that_was_canceled(cloud: Cloud) -> None:
    cloud.maintain("h1", EventType.REDEPLOY)
    cloud.tick()
    cloud.cancel(about(cloud, "b"))
    spared(cloud)
    cloud.tick()
    assert cloud.scope("one").events == ()
    assert cloud.index.operations == {}


@pytest.mark.parametrize("event_type", [EventType.REBOOT, EventType.REDEPLOY])
def test_an_order_of_its_owner_that_spared_it_is_announced_to_it(
    cloud: Cloud, event_type: EventType
) -> None:
    before = cloud.order("a", event_type)
    cloud.tick()
    spared(cloud)
    assert cloud.event(before).phase is Phase.FAILED
    told = about(cloud, "a")
    assert (told.event_type, told.ordered_by) == (event_type, before.ordered_by)
    assert (told.silent, told.phase) == (False, Phase.SCHEDULED)
    assert told.not_before_ms >= cloud.clock.wall + told.minimum_notice_ms


def test_a_redeploy_that_spared_it_still_loses_the_local_disk(cloud: Cloud) -> None:
    order = ordered.order_vm("a", EventType.REDEPLOY, by="ann")
    assert isinstance(order, commands.RedeployVm)
    cloud.run(replace(order, lose_disk=True))
    cloud.tick()
    spared(cloud)
    assert about(cloud, "a").lose_disk


def test_an_owner_who_approves_reboots_beforehand_is_not_asked_after_all() -> None:
    auto = frozenset({EventType.REBOOT})
    cloud = Cloud(scope("one", VMS, auto_approve=auto))
    switch(cloud, "a", on=False)
    cloud.order("a", EventType.REBOOT)
    cloud.tick()
    spared(cloud)
    cloud.tick()
    assert about(cloud, "a").phase is Phase.STARTED
    assert [action.only_off for action in cloud.claim("h1")] == [False]


def test_a_report_that_it_was_spared_may_come_twice(cloud: Cloud) -> None:
    cloud.order("a", EventType.REBOOT)
    cloud.tick()
    [action] = cloud.claim("h1")
    for _ in range(2):
        cloud.report("h1", action, Outcome.SPARED, SWITCHED_ON)
    assert len(cloud.scope("one").events) == 1


# Orders of its owner.


@pytest.mark.parametrize("event_type", [EventType.REBOOT, EventType.REDEPLOY])
def test_an_order_for_it_is_carried_out_at_once(cloud: Cloud, event_type: EventType) -> None:
    event = cloud.order("a", event_type)
    assert event.silent
    cloud.tick()
    assert cloud.event(event).phase is Phase.STARTED


def test_a_deletion_takes_its_time_all_the_same(cloud: Cloud) -> None:
    """Its owner may still want to cancel it."""
    event = cloud.order("a", EventType.TERMINATE)
    assert not event.silent
    assert event.not_before_ms >= cloud.clock.wall + minutes(5)


# Its host fails.


def test_it_is_defined_elsewhere_and_left_off(cloud: Cloud) -> None:
    incarnation = cloud.scope("one").incarnation
    cloud.fail("h1", fenced=True)
    cloud.tick()
    actions = {action.vm: action for action in cloud.claim("h3")}
    assert {vm: action.kind for vm, action in actions.items()} == {
        "a": ActionKind.DEFINE_VM,
        "b": ActionKind.START_VM,
    }
    assert [event.resources for event in cloud.scope("one").events if event.visible] == [("b",)]
    assert cloud.scope("one").incarnation == incarnation + 1
    for action in actions.values():
        cloud.report("h3", action)
    assert (cloud.where("a"), cloud.vm("a").off, cloud.where("b")) == ("h3", True, "h3")
    assert cloud.scope("one").events == ()


def test_a_host_that_stays_away_with_it_holds_no_scope() -> None:
    cloud = Cloud(scope("one", VMS))
    for vm in ("a", "b"):
        switch(cloud, vm, on=False)
    cloud.fail("h1")
    cloud.pass_time(DAY_MS)
    assert len(cloud.facts(FactKind.FAILED)) == 2
    assert cloud.scope("one").hold is None
    assert cloud.vm("a").off


def test_it_stays_off_on_a_host_that_is_repaired(cloud: Cloud) -> None:
    cloud.fail("h1")
    cloud.repair("h1")
    cloud.tick()
    kinds = {action.vm: action.kind for action in cloud.claim("h1")}
    assert kinds == {"a": ActionKind.DEFINE_VM, "b": ActionKind.START_VM}


def test_nothing_brings_it_back_while_its_host_is_not_fenced(cloud: Cloud) -> None:
    cloud.fail("h1")
    cloud.tick()
    assert [cloud.claim(host) for host in ("h2", "h3")] == [[], []]


@pytest.mark.parametrize("fenced", [True, False])
def test_it_is_not_started_though_its_move_was_under_way(cloud: Cloud, *, fenced: bool) -> None:
    cloud.maintain("h1", EventType.REDEPLOY)
    cloud.tick()
    [move] = cloud.claim("h1")
    assert move.vm == "a"
    cloud.fail("h1", fenced=fenced)
    if not fenced:
        cloud.repair("h1")
    cloud.tick()
    kinds = [a.kind for host in ("h1", "h2", "h3") for a in cloud.claim(host) if a.vm == "a"]
    assert kinds == [ActionKind.DEFINE_VM]


def test_one_that_is_switched_on_again_is_started_like_the_others(cloud: Cloud) -> None:
    switch(cloud, "a", on=True)
    cloud.fail("h1", fenced=True)
    [event] = [e for e in cloud.scope("one").events if e.cause is Cause.FAILURE]
    assert event.resources == ("a", "b")


def test_a_definition_that_fails_is_told_to_the_operator(cloud: Cloud) -> None:
    cloud.fail("h1", fenced=True)
    cloud.tick()
    event = about(cloud, "a")
    [action] = [action for action in cloud.claim("h3") if action.vm == "a"]
    cloud.report("h3", action, Outcome.FAILED, "no such disk")
    assert cloud.event(event).phase is Phase.FAILED
    assert cloud.scope("one").hold is not None


def test_it_outlives_a_kill_of_control(cloud: Cloud) -> None:
    cloud.crash(down_ms=minutes(1))
    assert (cloud.vm("a").off, cloud.vm("b").off) == (True, False)
