"""What the fleet makes of VMs that move and vanish by other hands, and what looking costs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from forewarn.control.command_handlers import decide
from forewarn.control.transaction import Transaction
from forewarn.core.errors import Conflict
from forewarn.core.inventory.host_report import Power
from forewarn.core.model import (
    EventType,
    FactKind,
    OperationPhase,
    Phase,
    Policy,
)
from support import ordered
from support.journal import said
from support.reporting_fleet import ReportingFleet, id_of, seen, web

GRACE_S = 31


@pytest.fixture
def fleet() -> Iterator[ReportingFleet]:
    made = ReportingFleet()
    yield made
    made.close()


# VMs that move.


def test_a_vm_that_other_hands_moved_is_on_its_new_host_without_its_scheduled_events(
    fleet: ReportingFleet,
) -> None:
    fleet.shows("h1", web(0))
    fleet.maintain("h1", EventType.FREEZE)
    incarnation = fleet.scope("web").incarnation
    fleet.shows("h2", web(0))
    assert fleet.vm("web-0").host == "h1"  # h1 showed it running: nobody knows yet
    fleet.shows("h1")
    assert fleet.vm("web-0").host == "h2"
    assert fleet.scope("web").events == ()
    assert fleet.scope("web").incarnation == incarnation + 1
    [moved] = fleet.facts(FactKind.MOVED)
    assert (moved.vm, moved.host, said(moved)["from"]) == ("web-0", "h2", "h1")
    assert [fact.vm for fact in fleet.facts(FactKind.AVOIDED)] == ["web-0"]


@pytest.mark.parametrize("order", ["source first", "target first"])
def test_a_move_is_seen_whichever_host_speaks_first(fleet: ReportingFleet, order: str) -> None:
    fleet.shows("h1", web(0))
    reports = {"h1": (), "h2": (web(0),)}
    for host in sorted(reports, reverse=order == "target first"):
        fleet.shows(host, *reports[host])
    fleet.shows("h2", web(0))
    assert fleet.vm("web-0").host == "h2"


def test_a_copy_that_is_off_elsewhere_gets_nothing_and_is_said(fleet: ReportingFleet) -> None:
    fleet.shows("h1", web(0))
    problems = fleet.shows("h2", web(0, power=Power.OFF))
    assert "it is on host h1" in problems["web-0"]
    assert fleet.vm("web-0").host == "h1"


def test_where_it_runs_wins_over_where_it_is_off(fleet: ReportingFleet) -> None:
    fleet.shows("h1", web(0, power=Power.OFF))
    assert fleet.shows("h2", web(0)) == {}
    assert fleet.vm("web-0").host == "h2"


def test_a_vm_that_runs_on_two_hosts_is_said_loudly_and_stays_where_it_was(
    fleet: ReportingFleet,
) -> None:
    fleet.shows("h1", web(0))
    assert fleet.shows("h2", web(0)) == {}  # a migration may just be ending
    fleet.later(GRACE_S)
    assert "virsh destroy web-0" in fleet.shows("h2", web(0))["web-0"]
    assert "virsh destroy web-0" in fleet.shows("h1", web(0))["web-0"]
    fleet.shows("h2", web(0))
    assert fleet.vm("web-0").host == "h1"
    assert [said(fact)["hosts"] for fact in fleet.facts(FactKind.VM_ON_TWO_HOSTS)] == [["h1", "h2"]]
    fleet.shows("h2")
    assert fleet.shows("h1", web(0)) == {}


def test_one_name_for_two_vms_on_two_hosts_is_a_problem_of_the_second(
    fleet: ReportingFleet,
) -> None:
    fleet.shows("h1", web(0))
    problems = fleet.shows("h2", web(0, vm_id=id_of("another")))
    assert "virsh domrename web-0" in problems["web-0"]
    assert (fleet.vm("web-0").host, fleet.vm("web-0").vm_id) == ("h1", id_of("web-0"))
    assert fleet.targets("h2", "web-0") == {"web-0": None}


def test_a_move_that_an_action_makes_is_for_its_report_to_say(fleet: ReportingFleet) -> None:
    fleet.shows("h1", web(0))
    fleet.approve(fleet.order("web-0", EventType.REDEPLOY))
    fleet.tick()
    [event] = fleet.scope("web").events
    target = event.actions[0].target_host
    assert target is not None
    fleet.shows("h1")
    fleet.shows(target, web(0))
    fleet.later(2 * GRACE_S)
    fleet.shows("h1")
    fleet.shows(target, web(0))
    assert fleet.vm("web-0").host == "h1"
    fleet.hosts_do_their_work()
    assert fleet.vm("web-0").host == target
    assert len(fleet.facts(FactKind.MOVED)) == 1


def test_a_report_from_before_a_move_does_not_move_the_vm_back(fleet: ReportingFleet) -> None:
    fleet.shows("h1", web(0))
    fleet.shows("h2")
    fleet.shows("h3")
    fleet.carry_out("web-0", EventType.REDEPLOY)
    target = fleet.vm("web-0").host
    assert target != "h1"
    fleet.shows("h1", web(0))  # looked at before, told after
    fleet.shows(target, web(0))
    fleet.shows("h1")
    assert fleet.vm("web-0").host == target
    assert len(fleet.facts(FactKind.MOVED)) == 1


def test_a_report_from_before_a_deletion_does_not_bring_the_vm_back(fleet: ReportingFleet) -> None:
    fleet.shows("h1", web(0), web(1))
    fleet.carry_out("web-0", EventType.TERMINATE)
    fleet.shows("h1", web(0), web(1))
    assert fleet.names() == ["web-1"]
    fleet.shows("h1", web(0), web(1))  # still there: somebody made it again
    assert fleet.names() == ["web-0", "web-1"]


def test_vms_that_an_operation_of_their_host_moves_away_are_followed(fleet: ReportingFleet) -> None:
    fleet.shows("h1", web(0))
    operation = fleet.maintain("h1", EventType.REBOOT)
    [event] = fleet.scope("web").events
    fleet.approve(event)
    fleet.tick()
    fleet.shows("h1", web(0))
    assert fleet.targets("h1", "web-0") == {"web-0": "h2"}
    fleet.shows("h2", web(0))
    fleet.shows("h1")
    assert fleet.vm("web-0").host == "h2"
    [moved] = fleet.facts(FactKind.MOVED)
    assert moved.operation_id == operation.operation_id
    fleet.hosts_do_their_work()
    stored = fleet.store.event(event.event_id)
    assert stored is not None
    assert stored.phase is Phase.COMPLETED


@pytest.mark.parametrize("stays", [True, False])
def test_the_failure_of_the_new_host_does_not_end_the_operation_of_the_old_one(
    fleet: ReportingFleet, *, stays: bool
) -> None:
    others = [web(1, update_domain=0)] if stays else []
    fleet.shows("h1", web(0), *others)
    operation = fleet.maintain("h1", EventType.REBOOT)
    [event] = fleet.scope("web").events
    fleet.approve(event)
    fleet.tick()
    fleet.shows("h1", *others)
    fleet.shows("h2", web(0))
    fleet.run(ordered.fail_host("h2", by="operator", fenced=True, force=True))
    named = {e.event_id: e.resources for e in fleet.scope("web").events}
    assert named.get(event.event_id) == (("web-1",) if stays else None)
    assert ("web-0",) in named.values()
    fleet.tick()
    fleet.hosts_do_their_work()
    fleet.tick()
    ended = fleet.store.operation(operation.operation_id)
    assert ended is not None
    assert ended.phase is OperationPhase.ENDED
    assert fleet.scope("web").events == ()


# VMs that vanish.


def test_a_vm_that_its_host_has_no_more_leaves_with_its_events_after_a_grace(
    fleet: ReportingFleet,
) -> None:
    fleet.shows("h1", web(0), web(1))
    fleet.order("web-0", EventType.REBOOT)
    fleet.shows("h1", web(1))
    fleet.later(10)
    fleet.shows("h1", web(1))
    assert fleet.names() == ["web-0", "web-1"]
    fleet.later(GRACE_S)
    fleet.shows("h1", web(1))
    assert fleet.names() == ["web-1"]
    assert fleet.scope("web").events == ()
    [gone] = fleet.facts(FactKind.VM_GONE)
    assert (gone.vm, gone.host) == ("web-0", "h1")
    assert fleet.store.definition("web-0") is None


def test_a_vm_that_is_back_within_the_grace_has_not_left(fleet: ReportingFleet) -> None:
    fleet.shows("h1", web(0))
    fleet.shows("h1")
    fleet.later(20)
    fleet.shows("h1", web(0))
    fleet.later(20)
    fleet.shows("h1")
    assert fleet.names() == ["web-0"]
    assert fleet.facts(FactKind.VM_GONE) == []


def test_a_vm_that_comes_back_later_is_a_new_one(fleet: ReportingFleet) -> None:
    fleet.shows("h1", seen("db"))
    for _ in range(2):
        fleet.shows("h1")
        fleet.later(GRACE_S)
    fleet.shows("h1")
    assert fleet.names() == []
    assert fleet.index.scopes == {}
    fleet.shows("h2", seen("db"))
    assert fleet.vm("db").host == "h2"
    assert len(fleet.facts(FactKind.VM_SEEN)) == 2


def test_a_silent_or_failed_host_proves_nothing_about_its_vms(fleet: ReportingFleet) -> None:
    fleet.shows("h1", web(0))
    fleet.later(10 * GRACE_S)
    fleet.shows("h2")
    assert fleet.names() == ["web-0"]
    fleet.run(ordered.fail_host("h1", by="operator", fenced=False, force=True))
    for _ in range(3):
        assert fleet.shows("h1") == {}
        fleet.later(GRACE_S)
    assert fleet.names() == ["web-0"]


def test_a_vm_with_an_open_action_does_not_vanish(fleet: ReportingFleet) -> None:
    fleet.shows("h1", web(0))
    fleet.approve(fleet.order("web-0", EventType.REBOOT))
    fleet.tick()
    for _ in range(3):
        fleet.shows("h1")
        fleet.later(GRACE_S)
    assert fleet.names() == ["web-0"]


def test_a_renamed_domain_is_a_new_vm_and_the_old_name_goes_at_once(fleet: ReportingFleet) -> None:
    fleet.shows("h1", web(0))
    fleet.shows("h1", replace(web(7), vm_id=id_of("web-0")))
    assert fleet.names() == ["web-7"]


def test_a_domain_made_anew_under_the_same_name_has_none_of_the_old_ones_events(
    fleet: ReportingFleet,
) -> None:
    fleet.shows("h1", web(0))
    fleet.order("web-0", EventType.REBOOT)
    fleet.shows("h1", web(0, vm_id=id_of("another")))
    assert fleet.vm("web-0").vm_id == id_of("another")
    assert fleet.scope("web").events == ()
    assert len(fleet.facts(FactKind.VM_GONE)) == 1


def test_a_vm_started_elsewhere_by_hand_is_followed_when_its_host_is_silent(
    fleet: ReportingFleet,
) -> None:
    fleet.shows("h1", web(0))
    fleet.heard_from.silent.add("h1")
    fleet.shows("h2", web(0, power=Power.OFF))
    assert fleet.vm("web-0").host == "h1"
    fleet.shows("h2", web(0))
    assert fleet.vm("web-0").host == "h2"


# Failure and recovery.


def test_a_failed_hosts_vm_starts_elsewhere_from_what_was_kept_of_it(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    fleet = ReportingFleet(folder=tmp_path_factory.mktemp("data"))
    fleet.shows("h1", web(0))
    fleet.restart()
    fleet.run(ordered.fail_host("h1", by="operator", fenced=True, force=True))
    fleet.tick()
    [event] = fleet.scope("web").events
    target = event.actions[0].target_host
    assert target in ("h2", "h3")
    other = "h3" if target == "h2" else "h2"
    kept = web(0).definition
    assert fleet.definition(target, "web-0") == kept
    assert fleet.definition(other, "web-0") is None
    assert fleet.definition(target, "web-9") is None
    fleet.hosts_do_their_work()
    fleet.shows(target, web(0))
    assert fleet.vm("web-0").host == target
    assert fleet.definition(target, "web-0") is None
    kept_now = fleet.store.definition("web-0")
    assert kept_now is not None
    assert (kept_now.host, kept_now.text) == (target, kept)
    fleet.close()


def test_targets_count_what_the_same_answer_plans(fleet: ReportingFleet) -> None:
    fleet.shows("h1", *(seen(f"vm-{number}") for number in range(4)))
    answer = fleet.targets("h1", *(f"vm-{number}" for number in range(4)))
    assert sorted(str(target) for target in answer.values()) == ["h2", "h2", "h3", "h3"]


def test_targets_of_one_answer_keep_update_domains_apart(fleet: ReportingFleet) -> None:
    fleet.shows("h1", web(0), web(1), web(2))
    answer = fleet.targets("h1", "web-0", "web-1", "web-2")
    assert sorted(str(target) for target in answer.values()) == ["None", "h2", "h3"]


def test_a_fleet_of_one_host_has_no_target() -> None:
    fleet = ReportingFleet("h1")
    fleet.shows("h1", web(0))
    assert fleet.targets("h1", "web-0") == {"web-0": None}
    fleet.close()


# Costs.


def test_a_report_that_says_nothing_new_writes_nothing_and_needs_no_transaction(
    fleet: ReportingFleet,
) -> None:
    vms = [web(number) for number in range(50)]
    fleet.shows("h1", *vms)
    commits = len(fleet.commits)
    assert fleet.settled("h1", vms) == {}
    assert fleet.take("h1", *fleet.report_intake.steps("h1", vms)) == {}
    assert len(fleet.commits) == commits
    fleet.later(400)
    assert fleet.settled("h1", vms) is None  # looked at all the same, now and then


def test_only_a_changed_definition_is_written(fleet: ReportingFleet) -> None:
    fleet.shows("h1", web(0), web(1))
    fleet.commits.clear()
    changed = replace(web(0), definition="<domain>other</domain>")
    fleet.shows("h1", changed, web(1))
    [change] = fleet.commits
    assert [(d.vm, d.text) for d in change.definitions] == [("web-0", "<domain>other</domain>")]
    kept = fleet.store.definition("web-0")
    assert kept is not None
    assert kept.text == "<domain>other</domain>"


def test_what_cannot_be_written_is_looked_at_again(fleet: ReportingFleet) -> None:
    def undone(tx: Transaction) -> None:
        decide(tx, fleet.report_intake.steps("h1", [web(0)])[-1])
        raise Conflict("Something else of the same command is refused.")

    fleet.shows("h1")
    with pytest.raises(Conflict):
        fleet.run(undone)
    assert (fleet.names(), fleet.index.digests) == ([], {})
    assert fleet.store.definition("web-0") is None
    assert fleet.settled("h1", [web(0)]) is None
    fleet.shows("h1", web(0))
    assert fleet.names() == ["web-0"]


def test_notice_runs_from_when_a_vm_could_read_it(fleet: ReportingFleet) -> None:
    """A VM that appears on a host with a waiting operation gets an event and notice of its own."""
    fleet.shows("h1", web(0))
    fleet.maintain("h1", EventType.FREEZE)
    fleet.shows("h1", web(0), seen("late"))
    fleet.tick()
    [event] = fleet.scope("late").events
    assert event.not_before_ms >= fleet.clock.wall + event.minimum_notice_ms


def test_a_policy_of_recovery_does_not_wait_for_a_vm_that_is_gone() -> None:
    fleet = ReportingFleet(policy=Policy(always_enabled=True, domain_recovery_ms=600_000))
    fleet.shows("h1", web(0), web(1))
    fleet.carry_out("web-0", EventType.REBOOT)
    assert fleet.scope("web").recoveries
    fleet.shows("h1", web(1))
    fleet.later(GRACE_S)
    fleet.shows("h1", web(1))
    assert fleet.scope("web").recoveries == ()
    fleet.close()
