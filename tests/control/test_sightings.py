"""What the fleet makes of the VMs that hosts show: they come, change, move and vanish."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from forewarn.control import maintenance
from forewarn.core.machines import Power
from forewarn.core.model import (
    MINUTE_MS,
    EventType,
    FactKind,
    Phase,
    Policy,
    Priority,
    ScopeKind,
)
from sighting_fleet import SightingFleet, id_of, seen, web

GRACE_S = 31


@pytest.fixture
def fleet() -> Iterator[SightingFleet]:
    made = SightingFleet()
    yield made
    made.close()


# VMs that come.


def test_a_new_domain_is_in_the_scope_that_its_metadata_names(fleet: SightingFleet) -> None:
    assert fleet.shows("h1", web(0, address="192.0.2.7", priority=Priority.SPOT, zone="1")) == {}
    scope, vm = fleet.scope("web"), fleet.vm("web-0")
    assert (scope.kind, scope.terminate_notice_ms) == (ScopeKind.AVAILABILITY_SET, 5 * MINUTE_MS)
    assert (vm.vm_id, vm.host, vm.update_domain) == (id_of("web-0"), "h1", 0)
    assert (vm.address, vm.priority, vm.zone) == ("192.0.2.7", Priority.SPOT, "1")
    [fact] = fleet.facts(FactKind.VM_SEEN)
    assert (fact.scope, fact.vm, fact.host) == ("web", "web-0", "h1")


def test_a_scope_is_of_the_kind_and_has_the_notice_that_its_vms_say(fleet: SightingFleet) -> None:
    fleet.shows(
        "h1",
        web(
            0,
            scope_kind=ScopeKind.PLACEMENT_GROUP,
            terminate_notice_ms=10 * MINUTE_MS,
            auto_approve=frozenset({EventType.REBOOT}),
        ),
    )
    scope = fleet.scope("web")
    assert (scope.kind, scope.terminate_notice_ms) == (ScopeKind.PLACEMENT_GROUP, 10 * MINUTE_MS)
    assert scope.auto_approve == {EventType.REBOOT}


def test_an_unknown_domain_is_standalone_in_a_scope_named_like_it(fleet: SightingFleet) -> None:
    assert fleet.shows("h1", seen("db")) == {}
    assert fleet.scope("db").kind is ScopeKind.STANDALONE
    assert [vm.name for vm in fleet.scope("db").vms] == ["db"]


def test_a_domain_without_a_scope_whose_name_is_that_of_a_scope_is_a_problem(
    fleet: SightingFleet,
) -> None:
    fleet.shows("h1", web(0))
    problems = fleet.shows("h1", web(0), seen("web"))
    assert "vm adopt web --scope web" in problems["web"]
    assert fleet.names() == ["web-0"]


def test_names_that_differ_in_case_only_are_a_problem(fleet: SightingFleet) -> None:
    fleet.shows("h1", seen("db"))
    assert "difference in case" in fleet.shows("h2", seen("DB"))["DB"]
    assert "vm adopt x --scope db" in fleet.shows("h3", seen("x", scope="Db"))["x"]
    assert fleet.names() == ["db"]


def test_a_second_vm_in_a_standalone_scope_is_a_problem(fleet: SightingFleet) -> None:
    fleet.shows("h1", seen("db"))
    problems = fleet.shows("h2", seen("db-2", scope="db"))
    assert "exactly one VM" in problems["db-2"]
    problems = fleet.shows(
        "h2", seen("db-2", scope="db", update_domain=1, scope_kind=ScopeKind.AVAILABILITY_SET)
    )
    assert problems == {}
    assert fleet.scope("db").kind is ScopeKind.AVAILABILITY_SET


@pytest.mark.parametrize("name", ["", "a b", "x" * 65, "operator", "-a", "../a", "a\0b"])
def test_a_domain_whose_name_cannot_be_used_is_a_problem_and_the_rest_comes(
    fleet: SightingFleet, name: str
) -> None:
    problems = fleet.shows("h1", seen(name), web(0))
    assert list(problems) == [name]
    assert "virsh domrename" in problems[name]
    assert fleet.names() == ["web-0"]


@pytest.mark.parametrize(
    "said",
    [
        {"scope": "we b"},
        {"update_domain": -1},
        {"update_domain": 10_000},
        {"address": "not an address"},
        {"tags": (("a;b", "c"),)},
        {"fault_domain": 99_999_999},
        {"zone": "\n"},
        {"terminate_notice_ms": 1},
        {"terminate_notice_ms": 10**12},
        {"auto_approve": frozenset({EventType.FREEZE})},
    ],
)
def test_metadata_that_cannot_be_used_leaves_a_known_vm_as_it_was(
    fleet: SightingFleet, said: dict[str, object]
) -> None:
    fleet.shows("h1", web(0))
    before = fleet.vm("web-0"), fleet.scope("web")
    problems = fleet.shows("h1", web(0, **said))
    assert "Accepted:" in problems["web-0"]
    assert (fleet.vm("web-0"), fleet.scope("web")) == before
    new = fleet.shows("h1", web(0), web(1, **said))
    assert "Accepted:" in new["web-1"]
    assert fleet.scope("web-1").kind is ScopeKind.STANDALONE  # it is there, and gets its notice


def test_what_a_host_says_is_wrong_with_a_domain_is_said_to_the_operator(
    fleet: SightingFleet,
) -> None:
    problems = fleet.shows("h1", web(0, problem="it has no network interface."))
    assert problems == {"web-0": "it has no network interface."}
    assert fleet.vm("web-0").host == "h1"
    assert fleet.memory.shown["h1"]["web-0"].problem == "it has no network interface."


def test_vms_of_a_scope_that_disagree_about_it_are_a_problem_and_the_first_is_right(
    fleet: SightingFleet,
) -> None:
    fleet.shows("h1", web(0, terminate_notice_ms=7 * MINUTE_MS))
    problems = fleet.shows("h2", web(1, terminate_notice_ms=9 * MINUTE_MS))
    assert "as VM web-0 says" in problems["web-1"]
    assert fleet.scope("web").terminate_notice_ms == 7 * MINUTE_MS


def test_a_scope_keeps_what_its_vms_say_while_some_were_not_shown_since_a_restart(
    fleet: SightingFleet, tmp_path_factory: pytest.TempPathFactory
) -> None:
    durable = SightingFleet(folder=tmp_path_factory.mktemp("data"))
    durable.shows("h1", web(0))
    durable.shows("h2", web(1, terminate_notice_ms=9 * MINUTE_MS))
    durable.restart()
    durable.shows("h1", web(0))
    assert durable.scope("web").terminate_notice_ms == 9 * MINUTE_MS
    durable.shows("h2", web(1))
    assert durable.scope("web").terminate_notice_ms == 5 * MINUTE_MS
    durable.close()


# VMs that change.


def test_a_changed_domain_changes_its_vm(fleet: SightingFleet) -> None:
    fleet.shows("h1", web(0))
    fleet.shows("h1", web(0, update_domain=3, tags=(("owner", "shop"),)))
    assert (fleet.vm("web-0").update_domain, fleet.vm("web-0").tags) == (3, (("owner", "shop"),))
    [fact] = fleet.facts(FactKind.VM_CHANGED)
    assert fact.detail == {"changed": ["update_domain", "tags"]}


def test_an_adopted_vm_moves_to_its_scope_and_no_empty_scope_stays(fleet: SightingFleet) -> None:
    fleet.shows("h1", seen("web-0"))
    fleet.shows("h1", web(0))
    assert [vm.name for vm in fleet.scope("web").vms] == ["web-0"]
    fleet.shows("h2")
    assert "web-0" not in fleet.memory.scopes


def test_a_vm_that_changes_its_scope_never_reads_a_lower_incarnation(fleet: SightingFleet) -> None:
    fleet.shows("h1", web(0))
    event = fleet.order("web-0", EventType.REBOOT)
    fleet.run(maintenance.cancel_event(event.event_id, by="owner"))
    read = fleet.scope("web").incarnation
    fleet.shows("h1", web(0, scope="api"))
    assert fleet.scope("api").incarnation > read
    assert fleet.scope("web").vms == ()
    assert fleet.scope("web").incarnation == read  # its row stays, for the same reason


def test_what_a_visible_event_depends_on_waits_until_it_has_ended(fleet: SightingFleet) -> None:
    fleet.shows("h1", web(0, address="192.0.2.1"))
    event = fleet.order("web-0", EventType.REBOOT)
    changed = web(0, scope="api", address="192.0.2.2", zone="2")
    problems = fleet.shows("h1", changed)
    assert event.event_id in problems["web-0"]
    assert (fleet.memory.scope_of_vm["web-0"], fleet.vm("web-0").address) == ("web", "192.0.2.1")
    fleet.run(maintenance.cancel_event(event.event_id, by="owner"))
    assert fleet.shows("h1", changed) == {}
    assert (fleet.memory.scope_of_vm["web-0"], fleet.vm("web-0").address) == ("api", "192.0.2.2")


def test_the_kind_of_a_scope_waits_for_its_visible_events(fleet: SightingFleet) -> None:
    fleet.shows("h1", web(0))
    event = fleet.order("web-0", EventType.REBOOT)
    changed = web(0, scope_kind=ScopeKind.CLOUD_SERVICE)
    assert event.event_id in fleet.shows("h1", changed)["web-0"]
    assert fleet.scope("web").kind is ScopeKind.AVAILABILITY_SET
    fleet.run(maintenance.cancel_event(event.event_id, by="owner"))
    fleet.shows("h1", changed)
    assert fleet.scope("web").kind is ScopeKind.CLOUD_SERVICE


def test_power_that_other_hands_change_is_journalled_and_the_vm_stays(fleet: SightingFleet) -> None:
    fleet.shows("h1", web(0))
    for power in (Power.CRASHED, Power.RUNNING, Power.OFF):
        fleet.shows("h1", web(0, power=power))
    facts = [(f.detail["before"], f.detail["after"]) for f in fleet.facts(FactKind.VM_POWER)]
    assert facts == [("running", "crashed"), ("crashed", "running"), ("running", "off")]
    assert fleet.names() == ["web-0"]


def test_power_that_an_action_changes_is_not_journalled_again(fleet: SightingFleet) -> None:
    fleet.shows("h1", web(0))
    fleet.approve(fleet.order("web-0", EventType.REBOOT))
    fleet.tick()
    fleet.shows("h1", web(0, power=Power.OFF))
    fleet.hosts_do_their_work()
    fleet.shows("h1", web(0))
    assert fleet.facts(FactKind.VM_POWER) == []


# VMs that move.


def test_a_vm_that_other_hands_moved_is_on_its_new_host_without_its_scheduled_events(
    fleet: SightingFleet,
) -> None:
    fleet.shows("h1", web(0))
    fleet.run(
        maintenance.maintain_host(
            "h1",
            EventType.FREEZE,
            by="operator",
            not_before_ms=None,
            duration_s=None,
            description=None,
            break_domains=False,
        )
    )
    incarnation = fleet.scope("web").incarnation
    fleet.shows("h2", web(0))
    assert fleet.vm("web-0").host == "h1"  # h1 showed it running: nobody knows yet
    fleet.shows("h1")
    assert fleet.vm("web-0").host == "h2"
    assert fleet.scope("web").events == ()
    assert fleet.scope("web").incarnation == incarnation + 1
    [moved] = fleet.facts(FactKind.MOVED)
    assert (moved.vm, moved.host, moved.detail["from"]) == ("web-0", "h2", "h1")
    assert [fact.vm for fact in fleet.facts(FactKind.AVOIDED)] == ["web-0"]


@pytest.mark.parametrize("order", ["source first", "target first"])
def test_a_move_is_seen_whichever_host_speaks_first(fleet: SightingFleet, order: str) -> None:
    fleet.shows("h1", web(0))
    reports = {"h1": (), "h2": (web(0),)}
    for host in sorted(reports, reverse=order == "target first"):
        fleet.shows(host, *reports[host])
    fleet.shows("h2", web(0))
    assert fleet.vm("web-0").host == "h2"


def test_a_copy_that_is_off_elsewhere_gets_nothing_and_is_said(fleet: SightingFleet) -> None:
    fleet.shows("h1", web(0))
    problems = fleet.shows("h2", web(0, power=Power.OFF))
    assert "it is on host h1" in problems["web-0"]
    assert fleet.vm("web-0").host == "h1"


def test_where_it_runs_wins_over_where_it_is_off(fleet: SightingFleet) -> None:
    fleet.shows("h1", web(0, power=Power.OFF))
    assert fleet.shows("h2", web(0)) == {}
    assert fleet.vm("web-0").host == "h2"


def test_a_vm_that_runs_on_two_hosts_is_said_loudly_and_stays_where_it_was(
    fleet: SightingFleet,
) -> None:
    fleet.shows("h1", web(0))
    assert fleet.shows("h2", web(0)) == {}  # a migration may just be ending
    fleet.later(GRACE_S)
    assert "virsh destroy web-0" in fleet.shows("h2", web(0))["web-0"]
    assert "virsh destroy web-0" in fleet.shows("h1", web(0))["web-0"]
    fleet.shows("h2", web(0))
    assert fleet.vm("web-0").host == "h1"
    assert [fact.detail["hosts"] for fact in fleet.facts(FactKind.VM_TWICE)] == [["h1", "h2"]]
    fleet.shows("h2")
    assert fleet.shows("h1", web(0)) == {}


def test_one_name_for_two_vms_on_two_hosts_is_a_problem_of_the_second(fleet: SightingFleet) -> None:
    fleet.shows("h1", web(0))
    problems = fleet.shows("h2", web(0, vm_id=id_of("another")))
    assert "virsh domrename web-0" in problems["web-0"]
    assert (fleet.vm("web-0").host, fleet.vm("web-0").vm_id) == ("h1", id_of("web-0"))
    assert fleet.run(fleet.sightings.targets("h2", ["web-0"])) == {"web-0": None}


def test_a_move_that_an_action_makes_is_for_its_report_to_say(fleet: SightingFleet) -> None:
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


def test_a_report_from_before_a_move_does_not_move_the_vm_back(fleet: SightingFleet) -> None:
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


def test_a_report_from_before_a_deletion_does_not_bring_the_vm_back(fleet: SightingFleet) -> None:
    fleet.shows("h1", web(0), web(1))
    fleet.carry_out("web-0", EventType.TERMINATE)
    fleet.shows("h1", web(0), web(1))
    assert fleet.names() == ["web-1"]
    fleet.shows("h1", web(0), web(1))  # still there: somebody made it again
    assert fleet.names() == ["web-0", "web-1"]


def test_vms_that_an_operation_of_their_host_moves_away_are_followed(fleet: SightingFleet) -> None:
    fleet.shows("h1", web(0))
    operation = fleet.run(
        maintenance.maintain_host(
            "h1",
            EventType.REBOOT,
            by="operator",
            not_before_ms=None,
            duration_s=None,
            description=None,
            break_domains=False,
        )
    )
    [event] = fleet.scope("web").events
    fleet.approve(event)
    fleet.tick()
    fleet.shows("h1", web(0))
    assert fleet.run(fleet.sightings.targets("h1", ["web-0"])) == {"web-0": "h2"}
    fleet.shows("h2", web(0))
    fleet.shows("h1")
    assert fleet.vm("web-0").host == "h2"
    [moved] = fleet.facts(FactKind.MOVED)
    assert moved.operation_id == operation.operation_id
    fleet.hosts_do_their_work()
    stored = fleet.store.event(event.event_id)
    assert stored is not None
    assert stored.phase is Phase.COMPLETED


# VMs that vanish.


def test_a_vm_that_its_host_has_no_more_leaves_with_its_events_after_a_grace(
    fleet: SightingFleet,
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


def test_a_vm_that_is_back_within_the_grace_has_not_left(fleet: SightingFleet) -> None:
    fleet.shows("h1", web(0))
    fleet.shows("h1")
    fleet.later(20)
    fleet.shows("h1", web(0))
    fleet.later(20)
    fleet.shows("h1")
    assert fleet.names() == ["web-0"]
    assert fleet.facts(FactKind.VM_GONE) == []


def test_a_vm_that_comes_back_later_is_a_new_one(fleet: SightingFleet) -> None:
    fleet.shows("h1", seen("db"))
    for _ in range(2):
        fleet.shows("h1")
        fleet.later(GRACE_S)
    fleet.shows("h1")
    assert fleet.names() == []
    assert fleet.memory.scopes == {}
    fleet.shows("h2", seen("db"))
    assert fleet.vm("db").host == "h2"
    assert len(fleet.facts(FactKind.VM_SEEN)) == 2


def test_a_silent_or_failed_host_proves_nothing_about_its_vms(fleet: SightingFleet) -> None:
    fleet.shows("h1", web(0))
    fleet.later(10 * GRACE_S)
    fleet.shows("h2")
    assert fleet.names() == ["web-0"]
    fleet.run(maintenance.fail_host("h1", by="operator", fenced=False))
    for _ in range(3):
        assert fleet.shows("h1") == {}
        fleet.later(GRACE_S)
    assert fleet.names() == ["web-0"]


def test_a_vm_with_an_open_action_does_not_vanish(fleet: SightingFleet) -> None:
    fleet.shows("h1", web(0))
    fleet.approve(fleet.order("web-0", EventType.REBOOT))
    fleet.tick()
    for _ in range(3):
        fleet.shows("h1")
        fleet.later(GRACE_S)
    assert fleet.names() == ["web-0"]


def test_a_renamed_domain_is_a_new_vm_and_the_old_name_goes_at_once(fleet: SightingFleet) -> None:
    fleet.shows("h1", web(0))
    fleet.shows("h1", replace(web(7), vm_id=id_of("web-0")))
    assert fleet.names() == ["web-7"]


def test_a_domain_made_anew_under_the_same_name_has_none_of_the_old_ones_events(
    fleet: SightingFleet,
) -> None:
    fleet.shows("h1", web(0))
    fleet.order("web-0", EventType.REBOOT)
    fleet.shows("h1", web(0, vm_id=id_of("another")))
    assert fleet.vm("web-0").vm_id == id_of("another")
    assert fleet.scope("web").events == ()
    assert len(fleet.facts(FactKind.VM_GONE)) == 1


def test_a_vm_started_elsewhere_by_hand_is_followed_when_its_host_is_silent(
    fleet: SightingFleet,
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
    fleet = SightingFleet(folder=tmp_path_factory.mktemp("data"))
    fleet.shows("h1", web(0))
    fleet.restart()
    fleet.run(maintenance.fail_host("h1", by="operator", fenced=True))
    fleet.tick()
    [event] = fleet.scope("web").events
    target = event.actions[0].target_host
    assert target in ("h2", "h3")
    other = "h3" if target == "h2" else "h2"
    kept = web(0).definition
    assert fleet.run(fleet.sightings.definition(target, "web-0")) == kept
    assert fleet.run(fleet.sightings.definition(other, "web-0")) is None
    assert fleet.run(fleet.sightings.definition(target, "web-9")) is None
    fleet.hosts_do_their_work()
    fleet.shows(target, web(0))
    assert fleet.vm("web-0").host == target
    assert fleet.run(fleet.sightings.definition(target, "web-0")) is None
    kept_now = fleet.store.definition("web-0")
    assert kept_now is not None
    assert (kept_now.host, kept_now.text) == (target, kept)
    fleet.close()


def test_targets_count_what_the_same_answer_plans(fleet: SightingFleet) -> None:
    fleet.shows("h1", *(seen(f"vm-{number}") for number in range(4)))
    answer = fleet.run(fleet.sightings.targets("h1", [f"vm-{number}" for number in range(4)]))
    assert sorted(str(target) for target in answer.values()) == ["h2", "h2", "h3", "h3"]


def test_a_fleet_of_one_host_has_no_target() -> None:
    fleet = SightingFleet("h1")
    fleet.shows("h1", web(0))
    assert fleet.run(fleet.sightings.targets("h1", ["web-0"])) == {"web-0": None}
    fleet.close()


# Costs.


def test_a_report_that_says_nothing_new_writes_nothing_and_needs_no_transaction(
    fleet: SightingFleet,
) -> None:
    vms = [web(number) for number in range(50)]
    fleet.shows("h1", *vms)
    commits = len(fleet.commits)
    assert fleet.sightings.settled("h1", vms) == {}
    assert fleet.run(fleet.sightings.sight("h1", vms)) == {}
    assert len(fleet.commits) == commits
    fleet.later(400)
    assert fleet.sightings.settled("h1", vms) is None  # looked at all the same, now and then


def test_only_a_changed_definition_is_written(fleet: SightingFleet) -> None:
    fleet.shows("h1", web(0), web(1))
    fleet.commits.clear()
    changed = replace(web(0), definition="<domain>other</domain>")
    fleet.shows("h1", changed, web(1))
    [change] = fleet.commits
    assert [(d.vm, d.text) for d in change.definitions] == [("web-0", "<domain>other</domain>")]
    kept = fleet.store.definition("web-0")
    assert kept is not None
    assert kept.text == "<domain>other</domain>"


def test_what_cannot_be_written_is_looked_at_again(fleet: SightingFleet) -> None:
    fleet.shows("h1", web(0))
    fleet.run(maintenance.fail_host("h1", by="operator", fenced=False))
    fleet.run(maintenance.repair_host("h1", by="operator"))
    assert fleet.sightings.settled("h1", [web(0)]) in ({}, None)


def test_notice_runs_from_when_a_vm_could_read_it(fleet: SightingFleet) -> None:
    """A VM that appears on a host with a waiting operation gets an event and notice of its own."""
    fleet.shows("h1", web(0))
    fleet.run(
        maintenance.maintain_host(
            "h1",
            EventType.FREEZE,
            by="operator",
            not_before_ms=None,
            duration_s=None,
            description=None,
            break_domains=False,
        )
    )
    fleet.shows("h1", web(0), seen("late"))
    fleet.tick()
    [event] = fleet.scope("late").events
    assert event.not_before_ms >= fleet.clock.now + event.minimum_notice_ms


def test_a_policy_of_recovery_does_not_wait_for_a_vm_that_is_gone() -> None:
    fleet = SightingFleet(policy=Policy(always_enabled=True, domain_recovery_ms=600_000))
    fleet.shows("h1", web(0), web(1))
    fleet.carry_out("web-0", EventType.REBOOT)
    assert fleet.scope("web").recoveries
    fleet.shows("h1", web(1))
    fleet.later(GRACE_S)
    fleet.shows("h1", web(1))
    assert fleet.scope("web").recoveries == ()
    fleet.close()
