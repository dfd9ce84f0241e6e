"""What the fleet makes of the VMs that hosts show: they come and change."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from forewarn.control.hosts import reported_vms
from forewarn.core.errors import Invalid, NotFound
from forewarn.core.facts import detail_words
from forewarn.core.inventory.apply_report import GRACE_MS
from forewarn.core.inventory.host_report import Power, SeenVm
from forewarn.core.model import (
    MINUTE_MS,
    EventType,
    FactKind,
    Policy,
    ScopeKind,
)
from forewarn.core.vm_profile import Priority
from support import ordered
from support.journal import said
from support.reporting_fleet import ReportingFleet, id_of, seen, web


@pytest.fixture
def fleet() -> Iterator[ReportingFleet]:
    made = ReportingFleet()
    yield made
    made.close()


# VMs that come.


def test_a_new_domain_is_in_the_scope_that_its_metadata_names(fleet: ReportingFleet) -> None:
    assert fleet.shows("h1", web(0, address="192.0.2.7", priority=Priority.SPOT, zone="1")) == {}
    scope, vm = fleet.scope("web"), fleet.vm("web-0")
    assert (scope.kind, scope.terminate_notice_ms) == (ScopeKind.AVAILABILITY_SET, 5 * MINUTE_MS)
    assert (vm.vm_id, vm.host, vm.update_domain) == (id_of("web-0"), "h1", 0)
    assert (vm.profile.address, vm.profile.priority, vm.profile.zone) == (
        "192.0.2.7",
        Priority.SPOT,
        "1",
    )
    [fact] = fleet.facts(FactKind.VM_SEEN)
    assert (fact.scope, fact.vm, fact.host) == ("web", "web-0", "h1")


def test_a_scope_is_of_the_kind_and_has_the_notice_that_its_vms_say(fleet: ReportingFleet) -> None:
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


def test_an_unknown_domain_is_standalone_in_a_scope_named_like_it(fleet: ReportingFleet) -> None:
    assert fleet.shows("h1", seen("db")) == {}
    assert fleet.scope("db").kind is ScopeKind.STANDALONE
    assert [vm.name for vm in fleet.scope("db").vms] == ["db"]


def test_a_domain_without_a_scope_whose_name_is_that_of_a_scope_is_a_problem(
    fleet: ReportingFleet,
) -> None:
    fleet.shows("h1", web(0))
    problems = fleet.shows("h1", web(0), seen("web"))
    assert "vm adopt web --scope web" in problems["web"]
    assert fleet.names() == ["web-0"]


def test_names_that_differ_in_case_only_are_a_problem(fleet: ReportingFleet) -> None:
    fleet.shows("h1", seen("db"))
    assert "more than case" in fleet.shows("h2", seen("DB"))["DB"]
    assert "vm adopt x --scope db" in fleet.shows("h3", seen("x", scope="Db"))["x"]
    assert fleet.names() == ["db"]


def test_a_second_vm_in_a_standalone_scope_is_a_problem(fleet: ReportingFleet) -> None:
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
    fleet: ReportingFleet, name: str
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
    fleet: ReportingFleet, said: dict[str, object]
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
    fleet: ReportingFleet,
) -> None:
    problems = fleet.shows("h1", web(0, problem="it has no network interface."))
    assert problems == {"web-0": "it has no network interface."}
    assert fleet.vm("web-0").host == "h1"
    assert fleet.observed.reported("h1")["web-0"].problem == "it has no network interface."


def test_vms_of_a_scope_that_disagree_about_it_are_a_problem_and_the_first_is_right(
    fleet: ReportingFleet,
) -> None:
    fleet.shows("h1", web(0, terminate_notice_ms=7 * MINUTE_MS))
    problems = fleet.shows("h2", web(1, terminate_notice_ms=9 * MINUTE_MS))
    assert "VM web-0 sets" in problems["web-1"]
    assert fleet.scope("web").terminate_notice_ms == 7 * MINUTE_MS


def test_a_scope_keeps_what_its_vms_say_while_some_were_not_shown_since_a_restart(
    fleet: ReportingFleet, tmp_path_factory: pytest.TempPathFactory
) -> None:
    durable = ReportingFleet(folder=tmp_path_factory.mktemp("data"))
    durable.shows("h1", web(0))
    durable.shows("h2", web(1, terminate_notice_ms=9 * MINUTE_MS))
    durable.restart()
    durable.shows("h1", web(0))
    assert durable.scope("web").terminate_notice_ms == 9 * MINUTE_MS
    durable.shows("h2", web(1))
    assert durable.scope("web").terminate_notice_ms == 5 * MINUTE_MS
    durable.close()


# VMs that change.


def test_a_changed_domain_changes_its_vm(fleet: ReportingFleet) -> None:
    fleet.shows("h1", web(0))
    fleet.shows("h1", web(0, update_domain=3, tags=(("owner", "shop"),)))
    assert (fleet.vm("web-0").update_domain, fleet.vm("web-0").profile.tags) == (
        3,
        (("owner", "shop"),),
    )
    [fact] = fleet.facts(FactKind.VM_CHANGED)
    assert said(fact) == {"changed": ["update_domain", "tags"]}


def test_an_adopted_vm_moves_to_its_scope_and_no_empty_scope_stays(fleet: ReportingFleet) -> None:
    fleet.shows("h1", seen("web-0"))
    fleet.shows("h1", web(0))
    assert [vm.name for vm in fleet.scope("web").vms] == ["web-0"]
    fleet.shows("h2")
    assert "web-0" not in fleet.index.scopes


def test_a_vm_that_changes_its_scope_never_reads_a_lower_incarnation(fleet: ReportingFleet) -> None:
    fleet.shows("h1", web(0))
    event = fleet.order("web-0", EventType.REBOOT)
    fleet.run(ordered.cancel_event(event.event_id, by="owner"))
    read = fleet.scope("web").incarnation
    fleet.shows("h1", web(0, scope="api"))
    assert fleet.scope("api").incarnation > read
    assert fleet.scope("web").vms == ()
    assert fleet.scope("web").incarnation == read  # its row stays, for the same reason


def test_a_vm_that_comes_back_into_a_group_reads_no_lower_incarnation_than_alone(
    fleet: ReportingFleet,
) -> None:
    """Its host knows what it has read, and would refuse this control as an old one."""
    fleet.shows("h1", seen("web-0"), seen("other"))
    event = fleet.order("web-0", EventType.REBOOT)
    fleet.run(ordered.cancel_event(event.event_id, by="owner"))
    read = fleet.scope("web-0").incarnation
    fleet.shows("h1", seen("other"))
    fleet.later(GRACE_MS / 1_000)
    fleet.shows("h1", seen("other"))
    assert fleet.scope("web-0").vms == ()
    fleet.shows("h1", seen("other"), web(0))
    assert [vm.name for vm in fleet.scope("web").vms] == ["web-0"]
    assert fleet.scope("web").incarnation > read


@pytest.mark.parametrize("back", [seen("web-0"), web(0, scope="api"), web(0)])
@pytest.mark.parametrize("alone_before", [False, True])
def test_a_vm_that_comes_back_reads_no_lower_incarnation_than_in_the_group_it_left(
    tmp_path: Path, back: SeenVm, *, alone_before: bool
) -> None:
    """Its host knows what it has read, and would refuse this control as an old one."""
    fleet = ReportingFleet(folder=tmp_path)
    others = (web(1), web(2, scope="api"))
    if alone_before:
        fleet.shows("h1", seen("web-0"), *others)
        event = fleet.order("web-0", EventType.REBOOT)
        fleet.run(ordered.cancel_event(event.event_id, by="owner"))
    fleet.shows("h1", web(0), *others)
    for _ in range(3):
        event = fleet.order("web-0", EventType.REBOOT)
        fleet.run(ordered.cancel_event(event.event_id, by="owner"))
    read = fleet.scope("web").incarnation
    fleet.shows("h1", *others)
    fleet.later(GRACE_MS / 1_000)
    fleet.shows("h1", *others)
    assert "web-0" not in fleet.names()
    fleet.restart()
    fleet.shows("h1", back, *others)
    scope = fleet.scope(fleet.index.scope_of_vm["web-0"])
    assert scope.incarnation >= read if scope.name == "web" else scope.incarnation > read
    fleet.close()


def test_what_a_visible_event_depends_on_waits_until_it_has_ended(fleet: ReportingFleet) -> None:
    fleet.shows("h1", web(0, address="192.0.2.1"))
    event = fleet.order("web-0", EventType.REBOOT)
    changed = web(0, scope="api", address="192.0.2.2", zone="2")
    problems = fleet.shows("h1", changed)
    assert event.event_id in problems["web-0"]
    assert (fleet.index.scope_of_vm["web-0"], fleet.vm("web-0").profile.address) == (
        "web",
        "192.0.2.1",
    )
    fleet.run(ordered.cancel_event(event.event_id, by="owner"))
    assert fleet.shows("h1", changed) == {}
    assert (fleet.index.scope_of_vm["web-0"], fleet.vm("web-0").profile.address) == (
        "api",
        "192.0.2.2",
    )


def test_the_kind_of_a_scope_waits_for_its_visible_events(fleet: ReportingFleet) -> None:
    fleet.shows("h1", web(0))
    event = fleet.order("web-0", EventType.REBOOT)
    changed = web(0, scope_kind=ScopeKind.CLOUD_SERVICE)
    assert event.event_id in fleet.shows("h1", changed)["web-0"]
    assert fleet.scope("web").kind is ScopeKind.AVAILABILITY_SET
    fleet.run(ordered.cancel_event(event.event_id, by="owner"))
    fleet.shows("h1", changed)
    assert fleet.scope("web").kind is ScopeKind.CLOUD_SERVICE


def test_power_that_other_hands_change_is_journalled_and_the_vm_stays(
    fleet: ReportingFleet,
) -> None:
    fleet.shows("h1", web(0))
    for power in (Power.CRASHED, Power.RUNNING, Power.OFF):
        fleet.shows("h1", web(0, power=power))
    facts = [(said(f)["before"], said(f)["after"]) for f in fleet.facts(FactKind.VM_POWER)]
    assert facts == [("running", "crashed"), ("crashed", "running"), ("running", "off")]
    assert fleet.names() == ["web-0"]


def test_power_that_an_action_changes_is_not_journalled_again(fleet: ReportingFleet) -> None:
    fleet.shows("h1", web(0))
    fleet.approve(fleet.order("web-0", EventType.REBOOT))
    fleet.tick()
    fleet.shows("h1", web(0, power=Power.OFF))
    fleet.hosts_do_their_work()
    fleet.shows("h1", web(0))
    assert fleet.facts(FactKind.VM_POWER) == []


def rebooted(fleet: ReportingFleet, *vms: str) -> list[str]:
    fleet.run(ordered.turn("h1", rebooted=vms))
    lines = fleet.facts(FactKind.VM_POWER)
    return [line.vm or "" for line in lines if "rebooted" in detail_words(line.detail)]


def test_a_vm_that_others_rebooted_is_in_the_journal_if_its_scope_is_enabled() -> None:
    fleet = ReportingFleet(policy=Policy())
    fleet.shows("h1", web(0))
    assert rebooted(fleet, "web-0") == []
    fleet.run(ordered.enable("h1", "web", "web-0"))
    assert rebooted(fleet, "web-0", "nobody") == ["web-0"]
    fleet.close()


def test_a_vm_that_an_action_works_on_is_not_said_to_be_rebooted_by_others(
    fleet: ReportingFleet,
) -> None:
    fleet.shows("h1", web(0))
    fleet.approve(fleet.order("web-0", EventType.REBOOT))
    fleet.tick()
    assert rebooted(fleet, "web-0") == []


# Hosts that lie.


def test_a_report_of_too_many_vms_is_refused_whole(fleet: ReportingFleet) -> None:
    with pytest.raises(Invalid, match="shows 10001 VMs"):
        reported_vms.refuse_too_many("h1", [web(0)] * 10_001)


def test_a_definition_that_is_too_long_is_not_kept_and_said(fleet: ReportingFleet) -> None:
    long = replace(web(0), definition="x" * (256 * 1_024 + 1))
    assert "no other host could start it" in fleet.shows("h1", long)["web-0"]
    kept = fleet.store.definition("web-0")
    assert kept is not None
    assert kept.text == ""


def test_a_host_that_cannot_say_what_a_vm_is_does_not_unsay_what_it_was(
    fleet: ReportingFleet,
) -> None:
    fleet.shows("h1", web(0))
    fleet.shows("h1", replace(web(0), definition=""))
    kept = fleet.store.definition("web-0")
    assert kept is not None
    assert kept.text == web(0).definition


def test_one_name_twice_in_a_report_is_one_vm(fleet: ReportingFleet) -> None:
    twice = (web(0), replace(web(0, update_domain=5), definition="another"))
    fleet.shows("h1", *twice)
    assert fleet.vm("web-0").update_domain == 0
    kept = fleet.store.definition("web-0")
    assert kept is not None
    assert kept.text == web(0).definition


def test_names_without_end_fill_no_memory(fleet: ReportingFleet) -> None:
    problems = fleet.shows("h1", seen("x" * 100_000, vm_id="y" * 100_000, problem="z" * 100_000))
    assert all(len(name) + len(words) < 3_000 for name, words in problems.items())
    [(name, shown)] = fleet.observed.reported("h1").items()
    assert len(name) + len(shown.problem) < 3_000


def test_a_host_that_is_not_in_the_fleet_changes_nothing(fleet: ReportingFleet) -> None:
    with pytest.raises(NotFound, match="no host h9"):
        fleet.shows("h9", web(0))
    assert fleet.names() == []


def test_a_uuid_in_another_case_is_the_same_vm(fleet: ReportingFleet) -> None:
    fleet.shows("h1", web(0))
    fleet.shows("h1", web(0, vm_id=id_of("web-0").upper()))
    assert fleet.facts(FactKind.VM_GONE) == []
    assert fleet.vm("web-0").vm_id == id_of("web-0")
