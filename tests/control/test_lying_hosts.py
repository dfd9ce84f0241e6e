"""What a host cannot have by saying so: VMs of others, and what is done to them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TypeVar

import pytest

from forewarn.control.hosts.report_intake import LONG_LOOK_MS, ReportIntake
from forewarn.core.deadlines import DEADLINE_MS
from forewarn.core.errors import InventoryConflict, NotFound, Unavailable
from forewarn.core.inventory.host_report import Power
from forewarn.core.model import ActionKind, EventType, OperationPhase
from forewarn.core.starting import HoldReason
from support import ordered
from support.clock import RestlessClock
from support.fleets import BOTH
from support.reporting_fleet import ReportingFleet, id_of, seen, web

T = TypeVar("T")


@pytest.fixture
def fleet() -> Iterator[ReportingFleet]:
    made = ReportingFleet()
    yield made
    made.close()


def begun(fleet: ReportingFleet, event_type: EventType) -> None:
    """An operation of h1, whose one event is approved, has started."""
    fleet.maintain("h1", event_type)
    [event] = fleet.scope("web").events
    fleet.approve(event)
    fleet.tick()


@pytest.mark.parametrize(
    ("event_type", "power"), [(EventType.FREEZE, Power.PAUSED), (EventType.REBOOT, Power.OFF)]
)
def test_a_vm_that_stands_still_by_order_cannot_be_claimed_by_another_host(
    fleet: ReportingFleet, event_type: EventType, power: Power
) -> None:
    fleet.shows("h1", web(0))
    begun(fleet, event_type)
    fleet.shows("h1", web(0, power=power))
    fleet.shows("h2", web(0))
    assert fleet.vm("web-0").host == "h1"
    fleet.shows("h1")  # it was moved away after all
    assert fleet.vm("web-0").host == "h2"


def test_a_host_that_guesses_a_name_does_not_learn_who_has_it(fleet: ReportingFleet) -> None:
    fleet.shows("h1", web(0))
    problems = fleet.shows("h2", web(0, vm_id=id_of("another")))
    assert "gets no document" in problems["web-0"]
    assert id_of("web-0") not in problems["web-0"]


# Only who was told is touched: what a host is handed says who that is.


def test_who_claims_an_action_is_told_whom_it_is_about(fleet: ReportingFleet) -> None:
    fleet.shows("h1", web(0), web(1, update_domain=0), seen("db"))
    fleet.approve(fleet.order("web-1", EventType.TERMINATE))
    fleet.tick()
    [handed_out] = fleet.handed_out("h1")
    assert (handed_out.action.kind, handed_out.about) == (
        ActionKind.DELETE_VM,
        (("web-1", id_of("web-1")),),
    )


def test_who_claims_a_freeze_is_told_whom_it_was_announced_to(fleet: ReportingFleet) -> None:
    fleet.shows("h1", web(0), web(1, update_domain=0))
    begun(fleet, EventType.FREEZE)
    fleet.shows("h1", web(0), web(1, update_domain=0), seen("new"))
    [handed_out] = fleet.handed_out("h1")
    assert handed_out.about == (("web-0", id_of("web-0")), ("web-1", id_of("web-1")))


def test_a_host_is_not_rebooted_while_a_vm_runs_there_that_cannot_be_told(
    fleet: ReportingFleet,
) -> None:
    fleet.shows("h2", seen("web-9"))
    fleet.shows("h1", web(0), seen("web-9", vm_id=id_of("another")))
    operation = fleet.maintain("h1", EventType.REBOOT)
    [event] = fleet.scope("web").events
    fleet.approve(event)
    fleet.tick()
    assert fleet.index.operations[operation.operation_id].phase is OperationPhase.WAITING
    [hold] = fleet.operation_holds(operation)
    assert (hold.reason, "web-9" in hold.what) == (HoldReason.VM_WITHOUT_NOTICE, True)
    fleet.shows("h1", web(0), seen("web-9", Power.OFF, vm_id=id_of("another")))
    fleet.tick()
    assert fleet.index.operations[operation.operation_id].phase is OperationPhase.STARTED


# Scopes that a file shuts.

SHUT = BOTH.replace('name = "web"\n', 'name = "web"\nonly_listed = true\n')


def test_a_vm_that_no_file_lists_neither_reads_nor_approves_in_a_scope_that_is_shut(
    fleet: ReportingFleet,
) -> None:
    fleet.apply(SHUT)
    fleet.shows("h1", seen("web_0"))
    order = fleet.order("web_0", EventType.REBOOT)
    problems = fleet.shows("h3", seen("evil", scope="web", update_domain=7))
    assert "only VMs that the inventory file lists" in problems["evil"]
    assert fleet.names() == ["web_0", "web_1"]
    with pytest.raises(NotFound):
        fleet.run(ordered.approve("h3", "evil", (order.event_id,)))
    fleet.shows("h3", seen("evil"))
    problems = fleet.shows("h3", seen("evil", scope="web", update_domain=7))
    assert "only VMs that the inventory file lists" in problems["evil"]
    assert fleet.index.scope_of_vm["evil"] == "evil"


def test_a_scope_is_not_shut_around_a_vm_that_the_file_does_not_list(fleet: ReportingFleet) -> None:
    fleet.apply(BOTH)
    fleet.shows("h3", seen("evil", scope="web", update_domain=7))
    with pytest.raises(InventoryConflict, match="VM evil, which host h3 shows, is in it"):
        fleet.apply(SHUT)
    fleet.shows("h3", seen("evil"))
    fleet.apply(SHUT)


def test_who_claims_an_action_is_told_how_much_time_is_left(fleet: ReportingFleet) -> None:
    fleet.shows("h1", web(0))
    fleet.approve(fleet.order("web-0", EventType.REBOOT))
    fleet.tick()
    fleet.later(60)
    [handed_out] = fleet.handed_out("h1")
    assert handed_out.left_ms == DEADLINE_MS[EventType.REBOOT] - 60_000


# Nobody keeps the others waiting.


def test_a_host_whose_reports_take_long_waits_before_the_next(fleet: ReportingFleet) -> None:
    clock = RestlessClock(LONG_LOOK_MS)
    report_intake = ReportIntake(clock, fleet.volatile)
    control = fleet.control
    asyncio.run(report_intake.take(control, "h1", (web(0),)))
    with pytest.raises(Unavailable, match="took long"):
        asyncio.run(report_intake.take(control, "h1", (web(0), web(1))))
    asyncio.run(report_intake.take(control, "h2", (web(2),)))  # the others do not wait
    clock.pass_ms(60_000)
    asyncio.run(report_intake.take(control, "h1", (web(0), web(1))))
    assert fleet.names() == ["web-0", "web-1", "web-2"]
