"""A host that fails: declared Started at once, fencing, return, deadline; what ran there ends."""

from __future__ import annotations

import pytest

from forewarn.control.command_handlers import decide
from forewarn.control.transaction import Transaction
from forewarn.core import document, notice
from forewarn.core.errors import HostHeard, HostSilent
from forewarn.core.model import (
    DAY_MS,
    HOUR_MS,
    ActionKind,
    Cause,
    EventSource,
    EventType,
    FactKind,
    Health,
    Host,
    OperationPhase,
    Outcome,
    Phase,
    Policy,
    ScheduledEvent,
)
from forewarn.core.scheduling import EVENTS_PER_SCOPE_MAX
from forewarn.core.starting import HoldReason
from support import ordered
from support.core_fleet import Cloud, minutes, reasons, scope
from support.journal import said

ONE = {"a": (0, "h1"), "b": (0, "h1"), "c": (1, "h2")}


@pytest.fixture
def cloud() -> Cloud:
    return Cloud(scope("one", ONE), scope("two", {"x": (0, "h1"), "y": (1, "h1")}))


def declared(cloud: Cloud, scope_name: str = "one") -> list[ScheduledEvent]:
    return [e for e in cloud.scope(scope_name).events if e.cause is Cause.FAILURE]


def test_a_failure_is_declared_started_for_every_vm_of_the_host(cloud: Cloud) -> None:
    cloud.fail("h1")
    [event] = declared(cloud)
    assert (event.phase, event.event_type, event.event_source) == (
        Phase.STARTED,
        EventType.REBOOT,
        EventSource.PLATFORM,
    )
    assert event.resources == ("a", "b")
    assert [e.resources for e in declared(cloud, "two")] == [("x",), ("y",)]
    assert cloud.host("h1").health is Health.FAILED
    assert cloud.scope("one").incarnation == 2


def test_without_fencing_nothing_starts_anywhere(cloud: Cloud) -> None:
    cloud.fail("h1")
    cloud.hearing.falls_silent("h1")
    cloud.pass_time(HOUR_MS)
    assert [cloud.claim(host) for host in ("h2", "h3")] == [[], []]
    assert reasons(cloud.holds(declared(cloud)[0])) == {HoldReason.NO_HOST}


def test_a_host_that_is_heard_is_not_fenced_unless_it_is_forced(cloud: Cloud) -> None:
    fencing = ordered.fail_host("h1", by="ann", fenced=True)
    with pytest.raises(HostHeard, match=r"Host h1 is not off.*has stopped.*--force"):
        cloud.run(fencing)
    assert cloud.host("h1").health is Health.OK
    cloud.fail("h1")
    with pytest.raises(HostHeard):
        cloud.run(fencing)
    assert not cloud.host("h1").fenced
    cloud.run(ordered.fail_host("h1", by="ann", fenced=True, force=True))
    assert cloud.host("h1").fenced
    (fact,) = cloud.facts(FactKind.HOST_FENCED)
    assert (fact.by, said(fact)) == ("ann", {"forced": True, "reason": ordered.WHY})


def test_a_host_that_is_heard_has_not_failed_unless_it_is_forced(cloud: Cloud) -> None:
    failing = ordered.fail_host("h1", by="ann", fenced=False)
    with pytest.raises(HostHeard, match=r"Host h1 has not failed: it was heard 0 s ago.*--force"):
        cloud.run(failing)
    assert (cloud.host("h1").health, declared(cloud)) == (Health.OK, [])
    cloud.run(ordered.fail_host("h1", by="ann", fenced=False, force=True))
    (fact,) = cloud.facts(FactKind.HOST_FAILED)
    assert said(fact) == {"fenced": False, "forced": True, "reason": ordered.WHY}
    cloud.run(failing)  # it is what is known already
    assert len(cloud.facts(FactKind.HOST_FAILED)) == 1


def test_a_host_that_is_silent_has_failed_without_force(cloud: Cloud) -> None:
    cloud.hearing.falls_silent("h1")
    cloud.run(ordered.fail_host("h1", by="ann", fenced=False))
    (fact,) = cloud.facts(FactKind.HOST_FAILED)
    assert said(fact) == {"fenced": False}


def test_a_host_that_is_silent_is_not_repaired_unless_it_is_forced(cloud: Cloud) -> None:
    cloud.hearing.falls_silent("h1")
    cloud.fail("h1")
    repairing = ordered.repair_host("h1", by="ann")
    with pytest.raises(HostSilent, match=r"no heartbeat of host h1.*--force"):
        cloud.run(repairing)
    assert cloud.host("h1").health is Health.FAILED
    cloud.hearing.returns("h1")
    cloud.run(repairing)
    cloud.fail("h1")
    cloud.hearing.falls_silent("h1")
    cloud.run(ordered.repair_host("h1", by="ann", force=True))
    details = [said(fact) for fact in cloud.facts(FactKind.HOST_REPAIRED)]
    assert details == [{"was": "failed"}, {"was": "failed", "forced": True, "reason": ordered.WHY}]


def test_a_host_that_is_silent_is_fenced_without_force(cloud: Cloud) -> None:
    cloud.hearing.falls_silent("h1")
    cloud.clock.pass_ms(notice.HOST_SILENT_AFTER_MS)
    cloud.run(ordered.fail_host("h1", by="ann", fenced=True))
    (fact,) = cloud.facts(FactKind.HOST_FAILED)
    assert said(fact) == {"fenced": True}


def test_after_fencing_vms_start_elsewhere(cloud: Cloud) -> None:
    cloud.fail("h1", fenced=True)
    [event] = declared(cloud)
    cloud.tick()
    actions = cloud.claim("h3")
    assert {action.kind for action in actions} == {ActionKind.START_VM}
    assert {action.vm for action in actions} >= {"a", "b"}  # h2 carries another domain of theirs
    for action in actions:
        cloud.report("h3", action)
    assert cloud.event(event).phase is Phase.COMPLETED
    assert (cloud.where("a"), cloud.where("b")) == ("h3", "h3")


def test_fencing_may_be_told_later(cloud: Cloud) -> None:
    cloud.fail("h1")
    cloud.fail("h1")
    cloud.tick()
    assert cloud.facts(FactKind.ASSIGNED) == []
    cloud.fail("h1", fenced=True)
    cloud.tick()
    assert len(cloud.facts(FactKind.HOST_FAILED)) == 1
    assert len(cloud.facts(FactKind.HOST_FENCED)) == 1
    assert cloud.facts(FactKind.ASSIGNED) != []


def test_a_host_that_returns_starts_its_vms_in_place(cloud: Cloud) -> None:
    cloud.fail("h1")
    [event] = declared(cloud)
    cloud.repair("h1")
    cloud.tick()
    cloud.work()
    assert cloud.event(event).phase is Phase.COMPLETED
    assert cloud.where("a") == "h1"
    assert cloud.facts(FactKind.MOVED) == []


def test_what_nobody_has_taken_elsewhere_starts_at_home_once_it_is_back(cloud: Cloud) -> None:
    """There its owner may have started it by hand; elsewhere it would run a second time."""
    cloud.fail("h1", fenced=True)
    [event] = declared(cloud)
    cloud.tick()
    assert {action.host for action in cloud.event(event).actions} == {"h3"}
    cloud.repair("h1")
    assert cloud.claim("h3") == []
    cloud.tick()
    cloud.work()
    assert cloud.event(event).phase is Phase.COMPLETED
    assert (cloud.where("a"), cloud.where("b")) == ("h1", "h1")


def test_what_was_taken_elsewhere_stays_there(cloud: Cloud) -> None:
    cloud.fail("h1", fenced=True)
    [event] = declared(cloud)
    cloud.tick()
    taken = cloud.claim("h3")
    cloud.repair("h1")
    cloud.tick()
    for action in taken:
        cloud.report("h3", action)
    assert cloud.event(event).phase is Phase.COMPLETED
    assert (cloud.where("a"), cloud.where("b")) == ("h3", "h3")


def test_a_returned_host_is_used_only_when_it_is_heard(cloud: Cloud) -> None:
    cloud.fail("h1")
    cloud.hearing.falls_silent("h1")
    cloud.repair("h1")
    cloud.tick()
    assert cloud.facts(FactKind.ASSIGNED) == []
    cloud.hearing.returns("h1")
    cloud.tick()
    assert {fact.host for fact in cloud.facts(FactKind.ASSIGNED)} == {"h1"}


def test_the_only_host_of_a_fleet_has_to_come_back() -> None:
    cloud = Cloud(scope("one", {"a": (0, "h1")}), hosts=[Host(name="h1")])
    cloud.fail("h1", fenced=True)
    cloud.tick()
    assert cloud.claim("h1") == []
    cloud.repair("h1")
    cloud.tick()
    assert len(cloud.claim("h1")) == 1


def test_vms_without_a_place_wait_for_one(cloud: Cloud) -> None:
    cloud.run(ordered.close_host("h3", by="operator"))
    cloud.fail("h1", fenced=True)
    cloud.tick()
    assert {fact.scope for fact in cloud.facts(FactKind.ASSIGNED)} == {"two"}
    cloud.run(ordered.open_host("h3", by="operator"))
    cloud.tick()
    assert {fact.scope for fact in cloud.facts(FactKind.ASSIGNED)} == {"one", "two"}


def test_two_domains_of_a_failed_host_do_not_start_on_one_other_host() -> None:
    crowd = {f"z{number}": (0, "h3") for number in range(5)}
    cloud = Cloud(scope("two", {"x": (0, "h1"), "y": (1, "h1")}), scope("crowd", crowd))
    cloud.fail("h1", fenced=True)
    cloud.tick()
    assert {fact.vm: fact.host for fact in cloud.facts(FactKind.ASSIGNED)} == {"x": "h2", "y": "h3"}


def test_a_failure_that_nobody_mends_fails_at_its_deadline(cloud: Cloud) -> None:
    cloud.fail("h1")
    [event] = declared(cloud)
    cloud.pass_time(DAY_MS - 1)
    assert cloud.event(event).phase is Phase.STARTED
    cloud.pass_time(1)
    assert cloud.event(event).phase is Phase.FAILED
    assert {action.outcome for action in cloud.event(event).actions} == {Outcome.LOST}
    assert document.visible(cloud.scope("one")) == ()


def test_running_actions_of_a_failed_host_fail(cloud: Cloud) -> None:
    event = cloud.order("a", EventType.REBOOT)
    cloud.start(event)
    [action] = cloud.claim("h1")
    cloud.fail("h1")
    ended = cloud.event(event)
    assert (ended.phase, ended.outcome) == (Phase.FAILED, "the host has failed")
    assert ended.actions[0].outcome is Outcome.FAILED
    assert ended.actions[0].epoch > action.epoch
    assert len(declared(cloud)) == 1


def test_a_started_operation_of_a_failed_host_ends_badly(cloud: Cloud) -> None:
    operation = cloud.maintain("h1", EventType.FREEZE, break_domains=True)
    cloud.start(*cloud.events_of(operation))
    cloud.fail("h1")
    assert {e.phase for e in cloud.events_of(operation)} == {Phase.FAILED}
    ended = cloud.operation(operation)
    assert (ended.phase, ended.outcome) == (OperationPhase.ENDED, "the host has failed")
    assert ended.action is not None
    assert ended.action.outcome is Outcome.FAILED


def test_waiting_operations_of_a_failed_host_are_canceled(cloud: Cloud) -> None:
    redeploy = cloud.maintain("h1", EventType.REDEPLOY)
    degraded = cloud.degrade("h1")
    cloud.fail("h1")
    for operation in (redeploy, degraded):
        assert {e.phase for e in cloud.events_of(operation)} == {Phase.CANCELED}
        assert cloud.operation(operation).phase is OperationPhase.ENDED


def test_a_users_order_on_a_failed_host_is_held_and_goes_on_when_the_host_is_back(
    cloud: Cloud,
) -> None:
    event = cloud.order("a", EventType.REBOOT)
    cloud.fail("h1")
    cloud.start(event)
    assert {HoldReason.HOST_FAILED, HoldReason.VM_BUSY} <= reasons(cloud.holds(event))
    cloud.repair("h1")
    cloud.tick()
    cloud.work()
    cloud.tick()
    assert cloud.event(event).phase is Phase.STARTED


def test_a_users_order_is_avoided_when_its_vm_starts_elsewhere(cloud: Cloud) -> None:
    event = cloud.order("a", EventType.REBOOT)
    cloud.fail("h1", fenced=True)
    cloud.tick()
    cloud.work()
    assert cloud.event(event).phase is Phase.CANCELED


def test_a_vm_is_never_started_twice_because_its_second_host_fails_too(cloud: Cloud) -> None:
    """It may be running there: only fencing that host as well sets it free."""
    cloud.fail("h1", fenced=True)
    cloud.tick()
    cloud.claim("h3")
    cloud.fail("h3")
    cloud.tick()
    [event] = declared(cloud)
    assert {action.vm: action.host for action in event.actions}["a"] == "h3"
    assert [hold.reason for hold in cloud.holds(event)][:1] == [HoldReason.HOST_FAILED]


def test_a_vm_that_was_being_moved_is_looked_for_on_its_target_first() -> None:
    cloud = Cloud(scope("one", {"a": (0, "h1")}))
    event = cloud.order("a", EventType.REDEPLOY)
    cloud.start(event)
    [move] = cloud.claim("h1")
    assert move.target_host == "h2"
    cloud.run(ordered.close_host("h2", by="operator"))
    cloud.fail("h1", fenced=True)
    cloud.tick()
    [declared_event] = declared(cloud)
    assert [action.host for action in declared_event.actions] == ["h2"]


def test_a_target_that_is_fenced_too_gives_its_guests_back(cloud: Cloud) -> None:
    cloud.fail("h1", fenced=True)
    cloud.tick()
    taken = {action.vm: action for action in cloud.claim("h3")}
    cloud.fail("h3", fenced=True)
    [event] = declared(cloud)
    without_host = {action.vm: action for action in event.actions}
    assert without_host["a"].host is None
    assert without_host["a"].epoch > taken["a"].epoch
    cloud.repair("h1")
    cloud.tick()
    cloud.work()
    assert cloud.event(event).phase is Phase.COMPLETED
    assert cloud.where("a") == "h1"


def test_a_host_that_fails_twice_declares_its_vms_once(cloud: Cloud) -> None:
    cloud.fail("h1")
    cloud.repair("h1")
    cloud.tick()
    cloud.claim("h1")
    cloud.fail("h1")
    assert len(declared(cloud)) == 1
    assert declared(cloud)[0].actions[0].host == "h1"
    cloud.fail("h1", fenced=True)
    assert declared(cloud)[0].actions[0].host is None


def test_a_vm_that_goes_down_again_where_it_started_is_declared_anew() -> None:
    """Though another VM of the first failure still waits for its place."""
    hosts = [Host(name="h1"), Host(name="h2", capacity=1), Host(name="h3", closed=True)]
    cloud = Cloud(scope("one", {"a": (0, "h1"), "b": (0, "h1")}), hosts=hosts)
    cloud.fail("h1", fenced=True)
    [first] = declared(cloud)
    cloud.tick()
    cloud.work()
    assert (cloud.where("a"), cloud.where("b")) == ("h2", "h1")
    cloud.fail("h2", fenced=True)
    again = next(event for event in declared(cloud) if event.event_id != first.event_id)
    assert (again.host, again.resources) == ("h2", ("a",))
    assert cloud.event(first).resources == ("b",)
    cloud.run(ordered.open_host("h3", by="operator"))
    cloud.tick()
    cloud.work()
    assert (cloud.where("a"), cloud.where("b")) == ("h3", "h3")


def test_the_target_of_a_move_that_is_done_may_fail_while_its_event_still_runs() -> None:
    cloud = Cloud(scope("one", {"a": (0, "h1"), "b": (0, "h1")}))
    [move] = cloud.events_of(cloud.maintain("h1", EventType.REDEPLOY))
    cloud.start(move)
    first, second = cloud.claim("h1")
    assert (first.target_host, second.target_host) == ("h2", "h3")
    cloud.report("h1", first)
    cloud.fail("h2")
    [failure] = declared(cloud)
    assert failure.resources == ("a",)
    assert cloud.event(move).resources == ("b",)
    assert cloud.event(move).phase is Phase.STARTED
    cloud.report("h1", second)
    assert cloud.event(move).phase is Phase.COMPLETED


@pytest.mark.parametrize("alone", [True, False])
def test_a_vm_that_is_moved_to_a_host_that_failed_meanwhile_is_declared_too(*, alone: bool) -> None:
    vms = {"a": (0, "h1")} if alone else {"a": (0, "h1"), "b": (0, "h1")}
    cloud = Cloud(scope("one", vms))
    [move] = cloud.events_of(cloud.maintain("h1", EventType.REDEPLOY))
    cloud.start(move)
    action, *others = cloud.claim("h1")
    cloud.fail("h2")
    assert declared(cloud) == []
    cloud.report("h1", action)
    assert cloud.where("a") == "h2"
    [failure] = declared(cloud)
    assert (failure.phase, failure.resources, failure.host) == (Phase.STARTED, ("a",), "h2")
    for other in others:
        cloud.report("h1", other)
    assert cloud.event(move).phase is Phase.COMPLETED


def test_a_report_that_is_repeated_declares_no_vm_once_more() -> None:
    """The answer to the first was lost; meanwhile the VM was brought back, and runs."""
    cloud = Cloud(scope("one", {"a": (0, "h1"), "b": (0, "h1")}))
    [move] = cloud.events_of(cloud.maintain("h1", EventType.REDEPLOY))
    cloud.start(move)
    first, _ = cloud.claim("h1")
    cloud.fail("h2")
    cloud.repair("h2")
    cloud.report("h1", first)
    [failure] = declared(cloud)
    cloud.tick()
    [start] = cloud.claim("h2")
    cloud.report("h2", start)
    assert cloud.event(failure).phase is Phase.COMPLETED
    before = cloud.scope("one").incarnation
    cloud.report("h1", first)
    assert declared(cloud) == []
    assert cloud.scope("one").incarnation == before


def test_a_full_scope_does_not_keep_a_host_from_failing() -> None:
    vms = {f"vm_{i}": (0, "h1") for i in range(EVENTS_PER_SCOPE_MAX)}
    cloud = Cloud(scope("one", vms), policy=Policy(user_events_max=EVENTS_PER_SCOPE_MAX))

    def fill(tx: Transaction) -> None:
        for name in vms:
            decide(tx, ordered.order_vm(name, EventType.REBOOT, by="o"))

    cloud.run(fill)
    cloud.fail("h1")
    assert len(declared(cloud)) == 1


def test_downtime_does_not_eat_the_time_to_mend_a_failure(cloud: Cloud) -> None:
    cloud.fail("h1")
    [event] = declared(cloud)
    cloud.crash(down_ms=2 * DAY_MS)
    cloud.pass_time(DAY_MS - minutes(1))
    assert cloud.event(event).phase is Phase.STARTED


def test_repairing_a_healthy_host_changes_nothing(cloud: Cloud) -> None:
    before = cloud.everything()
    cloud.repair("h2")
    assert cloud.everything() == before


def test_the_journal_of_a_failure_has_its_start_and_its_time_is_now(cloud: Cloud) -> None:
    cloud.fail("h1")
    [event] = declared(cloud)
    assert event.not_before_ms == cloud.clock.wall
    assert event.event_id in {fact.event_id for fact in cloud.facts(FactKind.STARTED)}
