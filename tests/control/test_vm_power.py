"""Which VMs count as switched off by their owners, from what hosts show."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from forewarn.control import operator_overview
from forewarn.core.inventory.host_report import Power
from forewarn.core.model import EventType, FactKind
from support import ordered
from support.control import run_now
from support.journal import said
from support.reporting_fleet import ReportingFleet, id_of, seen, web

OFF = web(0, power=Power.OFF)


@pytest.fixture
def fleet() -> Iterator[ReportingFleet]:
    made = ReportingFleet()
    yield made
    made.close()


def shows_for(fleet: ReportingFleet, seconds: int, *vms: object, host: str = "h1") -> None:
    """The host shows these VMs every ten seconds for so long, the first and the last time too."""
    fleet.shows(host, *vms)  # type: ignore[arg-type]
    for _ in range(seconds // 10):
        fleet.later(10)
        fleet.shows(host, *vms)  # type: ignore[arg-type]


def counts_as(fleet: ReportingFleet) -> list[object]:
    facts = fleet.facts(FactKind.VM_POWER)
    return [said(fact)["counts_as"] for fact in facts if "counts_as" in said(fact)]


def test_a_vm_counts_as_off_once_it_was_seen_off_for_a_minute(fleet: ReportingFleet) -> None:
    fleet.shows("h1", web(0))
    shows_for(fleet, 50, OFF)
    assert not fleet.vm("web-0").off
    fleet.later(10)
    fleet.shows("h1", OFF)
    assert fleet.vm("web-0").off
    assert counts_as(fleet) == ["off"]


def test_one_that_is_off_when_it_is_first_seen_counts_too(fleet: ReportingFleet) -> None:
    shows_for(fleet, 60, OFF)
    assert fleet.vm("web-0").off


@pytest.mark.parametrize("power", [Power.RUNNING, Power.PAUSED, Power.CRASHED])
def test_what_is_not_off_does_not_count(fleet: ReportingFleet, power: Power) -> None:
    shows_for(fleet, 120, web(0, power=power))
    assert not fleet.vm("web-0").off


@pytest.mark.parametrize("power", [Power.RUNNING, Power.PAUSED, Power.CRASHED])
def test_one_that_is_switched_on_does_not_count_any_more(
    fleet: ReportingFleet, power: Power
) -> None:
    shows_for(fleet, 60, OFF)
    fleet.shows("h1", web(0, power=power))
    assert not fleet.vm("web-0").off
    assert counts_as(fleet) == ["off", "on"]


def test_a_vm_that_goes_off_before_its_host_does_is_not_off(fleet: ReportingFleet) -> None:
    """Hosts shut their VMs down first when they are shut down themselves."""
    fleet.shows("h1", web(0))
    shows_for(fleet, 40, OFF)
    fleet.later(600)
    fleet.shows("h1", OFF)
    fleet.later(10)
    fleet.shows("h1", OFF)
    assert not fleet.vm("web-0").off


def test_a_silence_between_two_reports_starts_the_minute_anew(fleet: ReportingFleet) -> None:
    """The host shut its VMs down, booted, and is back before its next report was missed."""
    run_now(fleet.control.turns.take(ordered.turn("h1")))
    fleet.shows("h1", web(0))
    shows_for(fleet, 30, OFF)
    fleet.later(40)
    run_now(fleet.control.turns.take(ordered.turn("h1")))
    fleet.shows("h1", OFF)
    assert not fleet.vm("web-0").off


def test_a_host_that_shows_its_vms_before_it_is_heard_proves_nothing(fleet: ReportingFleet) -> None:
    fleet.shows("h1", web(0))
    shows_for(fleet, 30, OFF)
    fleet.later(40)
    fleet.heard_from.silent.add("h1")
    fleet.shows("h1", OFF)
    assert not fleet.vm("web-0").off


def test_hosts_that_show_their_vms_every_half_minute_are_enough(fleet: ReportingFleet) -> None:
    fleet.shows("h1", OFF)
    for _ in range(2):
        fleet.later(30.5)
        fleet.shows("h1", OFF)
    assert fleet.vm("web-0").off


def test_a_vm_is_switched_off_where_reports_said_nothing_new_for_long(
    fleet: ReportingFleet,
) -> None:
    """Reports that say nothing new are not looked at: that is no pause in what was seen."""
    shows_for(fleet, 290, web(0))
    shows_for(fleet, 150, OFF)
    assert fleet.vm("web-0").off


def test_a_vm_that_a_boot_of_its_host_took_down_is_not_off(fleet: ReportingFleet) -> None:
    fleet.shows("h1", web(0))
    fleet.run(ordered.claim("h1", "boot-1"))
    fleet.later(60)
    fleet.run(ordered.claim("h1", "boot-2"))
    shows_for(fleet, 120, OFF)
    assert not fleet.vm("web-0").off
    fleet.shows("h1", web(0))  # it is started, and later switched off
    shows_for(fleet, 60, OFF)
    assert fleet.vm("web-0").off


@pytest.mark.parametrize("while_down", [False, True])
def test_control_knows_after_a_restart_which_vms_went_down_with_their_host(
    tmp_path_factory: pytest.TempPathFactory, *, while_down: bool
) -> None:
    """Also if the host booted while control was down: the next repair or failure starts them."""
    fleet = ReportingFleet(folder=tmp_path_factory.mktemp("data"))
    fleet.shows("h1", web(0))
    fleet.run(ordered.claim("h1", "boot-1"))
    if not while_down:
        fleet.run(ordered.claim("h1", "boot-2"))
    fleet.restart()
    fleet.run(ordered.claim("h1", "boot-2"))
    shows_for(fleet, 120, OFF)
    assert not fleet.vm("web-0").off
    fleet.restart()
    fleet.shows("h1", web(0))  # it is started, and later switched off
    shows_for(fleet, 60, OFF)
    assert fleet.vm("web-0").off
    fleet.close()


def test_a_vm_that_runs_in_the_new_boot_and_is_switched_off_before_its_claim_counts_as_off(
    fleet: ReportingFleet,
) -> None:
    """The report that shows it comes before the claim that tells of the boot."""
    fleet.shows("h1", web(0), boot_id="boot-1")
    fleet.run(ordered.claim("h1", "boot-1"))
    fleet.later(60)
    fleet.shows("h1", web(0), boot_id="boot-2")  # nothing else is new
    fleet.later(1)
    fleet.shows("h1", OFF, boot_id="boot-2")
    fleet.run(ordered.claim("h1", "boot-2"))
    for _ in range(3):
        fleet.later(30)
        fleet.shows("h1", OFF, boot_id="boot-2")
    assert fleet.vm("web-0").off


def test_a_vm_that_is_down_in_the_first_report_of_a_new_boot_went_down_with_its_host(
    fleet: ReportingFleet,
) -> None:
    fleet.shows("h1", web(0), boot_id="boot-1")
    for _ in range(5):
        fleet.later(30)
        fleet.shows("h1", OFF, boot_id="boot-2")
    assert (fleet.vm("web-0").off, fleet.vm("web-0").went_down) == (False, True)


def test_a_report_that_names_no_boot_says_nothing_of_it(fleet: ReportingFleet) -> None:
    fleet.shows("h1", web(0), boot_id="boot-1")
    fleet.shows("h1", web(0))
    assert fleet.host("h1").boot_id == "boot-1"
    assert not fleet.vm("web-0").went_down


def test_one_that_was_off_before_stays_so_when_its_host_boots(fleet: ReportingFleet) -> None:
    shows_for(fleet, 60, OFF)
    for boot in ("boot-1", "boot-2"):
        fleet.run(ordered.claim("h1", boot))
    fleet.shows("h1", OFF)
    assert fleet.vm("web-0").off


def test_what_is_off_by_our_doing_does_not_count(fleet: ReportingFleet) -> None:
    fleet.shows("h1", web(0))
    fleet.approve(fleet.order("web-0", EventType.REBOOT))
    fleet.tick()
    shows_for(fleet, 120, OFF)
    assert not fleet.vm("web-0").off
    fleet.hosts_do_their_work()
    shows_for(fleet, 50, OFF)
    assert not fleet.vm("web-0").off  # counted from when nothing was under way


def test_what_is_off_for_an_operation_of_its_host_does_not_count(fleet: ReportingFleet) -> None:
    fleet.shows("h1", web(0))
    operation = fleet.maintain("h1", EventType.REBOOT)
    [event] = fleet.scope("web").events
    fleet.approve(event)
    fleet.tick()
    assert fleet.index.operations[operation.operation_id].action is not None
    shows_for(fleet, 120, OFF)
    assert not fleet.vm("web-0").off


def test_a_failed_host_proves_nothing(fleet: ReportingFleet) -> None:
    fleet.shows("h1", web(0))
    fleet.run(ordered.fail_host("h1", by="operator", fenced=False, force=True))
    shows_for(fleet, 120, OFF)
    assert not fleet.vm("web-0").off


def test_a_copy_on_another_host_says_nothing(fleet: ReportingFleet) -> None:
    fleet.shows("h1", web(0))
    shows_for(fleet, 120, OFF, host="h2")
    assert not fleet.vm("web-0").off


def test_one_that_runs_where_it_is_being_brought_does_not_count_as_off_any_more(
    fleet: ReportingFleet,
) -> None:
    fleet.shows("h2")
    shows_for(fleet, 60, OFF)
    fleet.approve(fleet.order("web-0", EventType.REDEPLOY))
    fleet.tick()
    [(_, coming)] = fleet.index.arriving("h2")
    assert (coming.name, coming.off) == ("web-0", True)
    fleet.shows("h2", OFF)
    assert fleet.vm("web-0").off
    fleet.shows("h2", web(0))
    assert (fleet.vm("web-0").host, fleet.vm("web-0").off) == ("h1", False)
    assert counts_as(fleet) == ["off", "on"]


def test_another_vm_of_that_name_has_a_power_of_its_own(fleet: ReportingFleet) -> None:
    shows_for(fleet, 60, OFF)
    assert fleet.vm("web-0").off
    fleet.shows("h1", web(0, vm_id=id_of("another")))
    assert not fleet.vm("web-0").off


def test_another_vm_that_gets_the_name_of_one_that_was_off_is_not_off_for_that(
    fleet: ReportingFleet,
) -> None:
    shows_for(fleet, 30, OFF, seen("other"))
    shows_for(fleet, 400, seen("other"))
    assert "web-0" not in fleet.index.vms
    fleet.shows("h1", web(0, power=Power.OFF, vm_id=id_of("another")), seen("other"))
    assert not fleet.vm("web-0").off


def test_it_is_durable_and_a_changed_description_does_not_undo_it(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    fleet = ReportingFleet(folder=tmp_path_factory.mktemp("data"))
    shows_for(fleet, 60, OFF)
    fleet.restart()
    assert fleet.vm("web-0").off
    fleet.shows("h1", web(0, power=Power.OFF, zone="2"))
    assert (fleet.vm("web-0").profile.zone, fleet.vm("web-0").off) == ("2", True)
    fleet.close()


def test_a_vm_that_is_off_is_started_by_nobody_when_its_host_fails(fleet: ReportingFleet) -> None:
    fleet.shows("h2")
    fleet.shows("h3")
    shows_for(fleet, 60, OFF, seen("other"))
    fleet.run(ordered.fail_host("h1", by="operator", fenced=True, force=True))
    fleet.tick()
    kinds = {a.vm: a.kind.value for host in ("h2", "h3") for a in fleet.claim(host)}
    assert kinds == {"web-0": "define-vm", "other": "start-vm"}
    target = fleet.index.scopes["web"].events[0].actions[0].host
    assert fleet.definition(target or "", "web-0") is not None


def test_vms_that_run_after_a_boot_do_not_count_as_down_though_nothing_new_is_shown() -> None:
    """A host that asked for work first, in its new boot, shows what it showed before."""
    fleet = ReportingFleet("h1")
    fleet.run(ordered.claim("h1", "boot-1"))
    fleet.shows("h1", seen("a"), boot_id="boot-1")
    fleet.run(ordered.claim("h1", "boot-2"))
    assert fleet.vm("a").went_down
    fleet.shows("h1", seen("a"), boot_id="boot-2")
    assert not fleet.vm("a").went_down


def test_a_vm_of_a_host_that_is_not_heard_is_not_said_to_run(fleet: ReportingFleet) -> None:
    fleet.shows("h1", web(0))
    before = operator_overview.show_vm(fleet.published, "web-0")
    fleet.heard_from.silent.add("h1")
    fleet.later(60)
    (listed,) = operator_overview.list_vms(
        fleet.published, after="", limit=9, scope="", host="h1"
    ).items
    (of_host,) = operator_overview.show_host(fleet.published, "h1").vms

    assert (before.power, before.host_alive) == (Power.RUNNING, True)
    for after in (listed, of_host, operator_overview.show_vm(fleet.published, "web-0")):
        assert (after.power, after.host_alive) == (None, False)
