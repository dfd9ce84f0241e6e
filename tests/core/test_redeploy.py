"""Moving VMs: where to, in place, held, avoided; hosts that are emptied; degraded hardware."""

from __future__ import annotations

import pytest

from forewarn.core.errors import HostUnfit
from forewarn.core.model import (
    DAY_MS,
    HOUR_MS,
    ActionKind,
    EventType,
    FactKind,
    Health,
    Host,
    OperationPhase,
    Outcome,
    Phase,
)
from forewarn.core.starting import HoldReason
from support import ordered
from support.clock import START_MS
from support.core_fleet import Cloud, minutes, reasons, scope
from support.journal import said

LONE = {"w": (0, "h1")}


def hosts(*names: str, **capacities: int) -> tuple[Host, ...]:
    return tuple(Host(name=name, capacity=capacities.get(name)) for name in names)


def target(cloud: Cloud, vm: str = "w") -> str | None:
    """Where a redeploy of the VM goes; None while it is held."""
    event = cloud.order(vm, EventType.REDEPLOY)
    cloud.start(event)
    actions = cloud.event(event).actions
    return actions[0].target_host if actions else None


# The choice of a target.


def test_a_vm_goes_to_the_least_loaded_host() -> None:
    cloud = Cloud(scope("web", LONE), scope("api", {"x": (0, "h2")}))
    assert target(cloud) == "h3"


def test_among_equals_the_first_by_name_is_chosen() -> None:
    cloud = Cloud(scope("web", LONE), hosts=hosts("h1", "h3", "h2"))
    assert target(cloud) == "h2"


def test_vms_on_their_way_count_as_load() -> None:
    cloud = Cloud(scope("web", LONE), scope("api", {"x": (0, "h1")}))
    assert [target(cloud, "w"), target(cloud, "x")] == ["h2", "h3"]


def test_a_full_host_is_no_target() -> None:
    full = Cloud(scope("web", LONE), scope("api", {"x": (0, "h2")}), hosts=hosts("h1", "h2", h2=1))
    assert target(full) is None
    room = Cloud(scope("web", LONE), scope("api", {"x": (0, "h2")}), hosts=hosts("h1", "h2", h2=2))
    assert target(room) == "h2"


def test_a_place_that_a_vm_is_on_its_way_to_is_taken() -> None:
    cloud = Cloud(scope("web", LONE), scope("api", {"x": (0, "h1")}), hosts=hosts("h1", "h2", h2=1))
    assert [target(cloud, "w"), target(cloud, "x")] == ["h2", None]


def test_a_host_with_another_domain_of_the_scope_is_no_target() -> None:
    cloud = Cloud(scope("web", {"w": (0, "h1"), "v": (1, "h2")}), hosts=hosts("h1", "h2"))
    assert target(cloud) is None


def test_a_host_with_the_same_domain_or_another_scope_is_a_target() -> None:
    same = Cloud(scope("web", {"w": (0, "h1"), "v": (0, "h2")}), hosts=hosts("h1", "h2"))
    other = Cloud(scope("web", LONE), scope("api", {"x": (5, "h2")}), hosts=hosts("h1", "h2"))
    assert (target(same), target(other)) == ("h2", "h2")


@pytest.mark.parametrize("why", ["closed", "degraded", "failed", "operating", "silent"])
def test_a_host_that_is_not_open_is_no_target(why: str) -> None:
    cloud = Cloud(scope("web", LONE), hosts=hosts("h1", "h2"))
    if why == "closed":
        cloud.run(ordered.close_host("h2", by="operator"))
    elif why == "degraded":
        cloud.degrade("h2")
    elif why == "failed":
        cloud.fail("h2")
    elif why == "operating":
        cloud.maintain("h2", EventType.FREEZE, not_before_ms=START_MS + HOUR_MS)
    else:
        cloud.hearing.falls_silent("h2")
    assert target(cloud) is None


def test_without_a_target_the_event_is_held_and_starts_when_there_is_one() -> None:
    cloud = Cloud(scope("web", LONE), hosts=hosts("h1", "h2"))
    cloud.run(ordered.close_host("h2", by="operator"))
    event = cloud.order("w", EventType.REDEPLOY)
    cloud.start(event)
    [hold] = cloud.holds(event)
    assert hold.reason is HoldReason.NO_TARGET
    assert "forewarn host open" in hold.remedy
    cloud.run(ordered.open_host("h2", by="operator"))
    cloud.tick()
    assert cloud.event(event).phase is Phase.STARTED


def test_the_only_host_of_a_fleet_restarts_the_vm_in_place() -> None:
    cloud = Cloud(scope("web", LONE), hosts=hosts("h1"))
    freeze = cloud.events_of(cloud.maintain("h1", EventType.FREEZE))[0]
    event = cloud.order("w", EventType.REDEPLOY)
    cloud.carry_out(event)
    assert cloud.event(event).phase is Phase.COMPLETED
    assert cloud.where("w") == "h1"
    assert cloud.event(freeze).phase is Phase.SCHEDULED  # it moved nowhere and avoided nothing


def test_a_vm_that_restarts_in_place_is_not_on_its_way_anywhere() -> None:
    cloud = Cloud(scope("web", LONE), hosts=hosts("h1"))
    cloud.start(cloud.order("w", EventType.REDEPLOY))
    operation = cloud.maintain("h1", EventType.FREEZE)
    cloud.approve(*cloud.events_of(operation))
    assert reasons(cloud.operation_holds(operation)) == {HoldReason.VM_BUSY}


def test_both_hosts_are_on_the_action_and_the_vm_moves_with_the_report() -> None:
    cloud = Cloud(scope("web", LONE))
    event = cloud.order("w", EventType.REDEPLOY)
    cloud.start(event)
    [action] = cloud.claim("h1")
    assert (action.kind, action.host, action.target_host) == (ActionKind.MOVE_VM, "h1", "h2")
    assert cloud.where("w") == "h1"
    cloud.report("h1", action)
    assert cloud.where("w") == "h2"
    [fact] = cloud.facts(FactKind.MOVED)
    assert (fact.vm, fact.host, said(fact)) == ("w", "h2", {"from": "h1"})


def test_a_move_that_failed_moves_nothing() -> None:
    cloud = Cloud(scope("web", LONE))
    event = cloud.order("w", EventType.REDEPLOY)
    cloud.start(event)
    cloud.work(Outcome.FAILED)
    assert cloud.event(event).phase is Phase.FAILED
    assert cloud.where("w") == "h1"


def test_a_moved_vm_leaves_its_other_scheduled_events() -> None:
    cloud = Cloud(scope("web", {"w": (0, "h1"), "v": (0, "h1")}))
    reboot = cloud.order("w", EventType.REBOOT)
    [freeze] = cloud.events_of(cloud.maintain("h1", EventType.FREEZE))
    event = cloud.order("w", EventType.REDEPLOY)
    cloud.start(event)
    incarnation = cloud.scope().incarnation
    cloud.work()
    assert cloud.event(reboot).phase is Phase.CANCELED
    assert cloud.event(reboot).outcome == "avoided: moved to h2"
    assert cloud.event(freeze).resources == ("v",)
    assert cloud.scope().incarnation == incarnation + 1
    avoided = {
        fact.event_id: said(fact)["event_canceled"] for fact in cloud.facts(FactKind.AVOIDED)
    }
    assert avoided == {reboot.event_id: True, freeze.event_id: False}


# Redeploy of a host.


def test_a_redeploy_of_a_host_is_one_move_per_vm_and_waits_for_no_other_scope() -> None:
    cloud = Cloud(scope("one", {"a": (0, "h1"), "b": (0, "h1")}), scope("two", {"c": (0, "h1")}))
    operation = cloud.maintain("h1", EventType.REDEPLOY)
    first, second = cloud.events_of(operation)
    cloud.start(first)
    assert [cloud.event(e).phase for e in (first, second)] == [Phase.STARTED, Phase.SCHEDULED]
    assert [action.vm for action in cloud.event(first).actions] == ["a", "b"]
    assert cloud.operation(operation).phase is OperationPhase.STARTED
    cloud.work()
    assert cloud.operation(operation).phase is OperationPhase.STARTED
    cloud.carry_out(second)
    assert cloud.operation(operation).phase is OperationPhase.ENDED
    assert "h1" not in {cloud.where(name) for name in ("a", "b", "c")}


def test_an_event_with_two_vms_needs_a_place_for_both() -> None:
    fleet = hosts("h1", "h2", h2=1)
    cloud = Cloud(scope("one", {"a": (0, "h1"), "b": (0, "h1")}), hosts=fleet)
    [event] = cloud.events_of(cloud.maintain("h1", EventType.REDEPLOY))
    cloud.start(event)
    assert reasons(cloud.holds(event)) == {HoldReason.NO_TARGET}


def test_an_event_ends_when_its_last_move_has() -> None:
    cloud = Cloud(scope("one", {"a": (0, "h1"), "b": (0, "h1")}))
    [event] = cloud.events_of(cloud.maintain("h1", EventType.REDEPLOY))
    cloud.start(event)
    first, second = cloud.claim("h1")
    cloud.report("h1", first)
    assert cloud.event(event).phase is Phase.STARTED
    cloud.report("h1", second, Outcome.FAILED, "no room")
    assert cloud.event(event).phase is Phase.FAILED
    assert cloud.event(event).outcome == "b: no room"
    assert (cloud.where("a"), cloud.where("b")) == ("h2", "h1")


def test_canceling_a_redeploy_of_a_host_lets_started_moves_end() -> None:
    cloud = Cloud(scope("one", {"a": (0, "h1")}), scope("two", {"c": (0, "h1")}))
    operation = cloud.maintain("h1", EventType.REDEPLOY)
    first, second = cloud.events_of(operation)
    cloud.start(first)
    cloud.cancel(second)
    assert cloud.event(first).phase is Phase.STARTED
    assert cloud.event(second).phase is Phase.CANCELED
    cloud.work()
    assert cloud.event(first).phase is Phase.COMPLETED
    ended = cloud.operation(operation)
    assert (ended.phase, ended.outcome) == (OperationPhase.ENDED, "canceled")
    assert cloud.where("c") == "h1"


def test_a_redeploy_can_be_canceled_though_a_scope_that_was_told_of_it_has_left() -> None:
    cloud = Cloud(scope("one", {"a": (0, "h1")}), scope("two", {"c": (0, "h1")}))
    operation = cloud.maintain("h1", EventType.REDEPLOY)
    first, second = cloud.events_of(operation)
    cloud.start(first)
    cloud.work()
    cloud.run(lambda tx: tx.remove_scope("one"))
    answer = cloud.run(ordered.cancel_event(second.event_id, by="operator"))
    assert answer.together == (second.event_id,)
    assert cloud.event(second).phase is Phase.CANCELED


def test_a_redeploy_of_an_empty_host_ends_by_itself() -> None:
    cloud = Cloud(scope("web", LONE))
    operation = cloud.maintain("h3", EventType.REDEPLOY)
    cloud.tick()
    assert cloud.operation(operation).phase is OperationPhase.ENDED


def test_a_vm_that_arrives_at_a_host_being_emptied_is_told_and_moved_too() -> None:
    cloud = Cloud(scope("web", LONE), scope("api", {"x": (0, "h2")}))
    cloud.start(cloud.order("w", EventType.REDEPLOY))
    operation = cloud.maintain("h3", EventType.REDEPLOY)
    [action] = cloud.claim("h1")
    cloud.report("h1", action)
    cloud.tick()
    [told] = cloud.events_of(operation)
    assert (told.resources, told.host) == (("w",), "h3")
    cloud.carry_out(told)
    assert cloud.where("w") != "h3"


# Degraded hardware.


def test_degraded_hardware_gives_a_week_of_notice() -> None:
    cloud = Cloud(scope("web", LONE))
    operation = cloud.degrade("h1")
    [event] = cloud.events_of(operation)
    assert (event.event_type, event.not_before_ms) == (EventType.REDEPLOY, START_MS + 7 * DAY_MS)
    assert cloud.host("h1").health is Health.DEGRADED


def test_degraded_hardware_may_be_given_another_time_but_not_less_than_the_notice() -> None:
    cloud = Cloud(scope("web", LONE), scope("api", {"x": (0, "h2")}))
    [sooner] = cloud.events_of(cloud.degrade("h1", not_before_ms=START_MS + DAY_MS))
    [now] = cloud.events_of(cloud.degrade("h2", not_before_ms=START_MS))
    assert sooner.not_before_ms == START_MS + DAY_MS
    assert now.not_before_ms == START_MS + minutes(10)


def test_an_owner_who_redeploys_first_avoids_the_degraded_host() -> None:
    cloud = Cloud(scope("web", LONE))
    operation = cloud.degrade("h1")
    [event] = cloud.events_of(operation)
    cloud.carry_out(cloud.order("w", EventType.REDEPLOY))
    assert cloud.event(event).phase is Phase.CANCELED
    assert cloud.facts(FactKind.AVOIDED)[-1].event_id == event.event_id
    assert cloud.operation(operation).phase is OperationPhase.ENDED
    assert cloud.where("w") == "h2"


def test_repair_cancels_what_was_announced_because_of_degraded_hardware() -> None:
    cloud = Cloud(scope("web", LONE))
    operation = cloud.degrade("h1")
    other = cloud.maintain("h1", EventType.FREEZE)
    cloud.repair("h1")
    assert cloud.host("h1").health is Health.OK
    assert [e.phase for e in cloud.events_of(operation)] == [Phase.CANCELED]
    assert [e.phase for e in cloud.events_of(other)] == [Phase.SCHEDULED]


def test_a_host_that_is_degraded_already_is_refused() -> None:
    cloud = Cloud(scope("web", LONE))
    cloud.degrade("h1")
    with pytest.raises(HostUnfit, match="already degraded"):
        cloud.degrade("h1")


def test_an_approval_moves_a_vm_off_degraded_hardware_at_once() -> None:
    cloud = Cloud(scope("web", LONE))
    [event] = cloud.events_of(cloud.degrade("h1"))
    cloud.carry_out(event)
    assert cloud.where("w") == "h2"


def test_closing_and_opening_a_host_twice_changes_nothing_more() -> None:
    cloud = Cloud(scope("web", LONE))
    for _ in range(2):
        assert cloud.run(ordered.close_host("h2", by="operator")).closed
    for _ in range(2):
        assert not cloud.run(ordered.open_host("h2", by="operator")).closed
    assert len(cloud.facts(FactKind.HOST_CLOSED)) == 1
    assert len(cloud.facts(FactKind.HOST_OPENED)) == 1
