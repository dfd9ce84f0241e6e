"""What hosts show settles where a VM is whose move nobody has seen end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from forewarn.control.hosts.own_vms import own_vms
from forewarn.core.inventory.host_report import Power
from forewarn.core.model import (
    HOUR_MS,
    Action,
    ActionKind,
    Cause,
    EventType,
    FactKind,
    Outcome,
    Phase,
    ScheduledEvent,
)
from support import fleets, ordered
from support.reporting_fleet import ReportingFleet, web
from support.shown import as_shown_to

GRACE_S = 31
UNSURE = Outcome.LOST  # as a host says it


@pytest.fixture
def fleet() -> Iterator[ReportingFleet]:
    made = ReportingFleet()
    yield made
    made.close()


def moving(fleet: ReportingFleet) -> tuple[Action, str]:
    """web-0 is being moved from h1; the move and where to."""
    for host in ("h1", "h2", "h3"):
        fleet.shows(host, *([web(0)] if host == "h1" else []))
    fleet.approve(fleet.order("web-0", EventType.REDEPLOY))
    fleet.tick()
    [move] = fleet.claim("h1")
    assert move.target_host is not None
    return move, move.target_host


def lost(fleet: ReportingFleet, *silent: str) -> str:
    """As `moving`, and these hosts are silent until the event is given up; the target."""
    _, target = moving(fleet)
    fleet.heard_from.silent.update(target if host == "target" else host for host in silent)
    fleet.later(HOUR_MS / 1_000)
    fleet.tick()
    assert fleet.vm("web-0").may_run_on == target
    return target


def fail(fleet: ReportingFleet, host: str, *, fenced: bool = False) -> None:
    fleet.run(ordered.fail_host(host, by="operator", fenced=fenced, force=True))
    fleet.tick()


def declared(fleet: ReportingFleet) -> ScheduledEvent:
    [event] = [e for e in fleet.scope("web").events if e.cause is Cause.FAILURE]
    return event


def test_a_vm_that_its_target_shows_to_run_need_not_be_fenced_for(fleet: ReportingFleet) -> None:
    """Its old host failed after the move was done and before it could say so."""
    _, target = moving(fleet)
    fail(fleet, "h1")
    event = declared(fleet)
    fleet.shows(target, web(0))
    ended = fleet.store.event(event.event_id)
    assert ended is not None
    assert ended.phase is Phase.COMPLETED
    assert (fleet.vm("web-0").host, fleet.vm("web-0").may_run_on) == (target, None)


@pytest.mark.parametrize("power", [Power.OFF, Power.PAUSED])
def test_a_copy_that_does_not_run_proves_nothing(fleet: ReportingFleet, power: Power) -> None:
    _, target = moving(fleet)
    fail(fleet, "h1")
    fleet.shows(target, web(0, power=power))
    assert declared(fleet).phase is Phase.STARTED
    assert fleet.vm("web-0").host == "h1"


def test_a_vm_that_its_host_shows_to_run_is_nowhere_else(fleet: ReportingFleet) -> None:
    lost(fleet, "h1")
    fleet.heard_from.silent.clear()
    fleet.shows("h1", web(0))
    assert (fleet.vm("web-0").host, fleet.vm("web-0").may_run_on) == ("h1", None)
    assert fleet.facts(FactKind.VM_CHANGED) == []


def test_a_vm_that_is_off_and_that_its_target_does_not_have_is_nowhere_else(
    fleet: ReportingFleet,
) -> None:
    target = lost(fleet, "h1")
    fleet.heard_from.silent.clear()
    fleet.heard_from.silent.add(target)
    fleet.shows("h1", web(0, power=Power.OFF))
    assert fleet.vm("web-0").may_run_on == target
    fleet.heard_from.silent.clear()
    fleet.shows(target)
    fleet.later(5)
    fleet.shows("h1", web(0, power=Power.OFF, zone="1"))
    assert fleet.vm("web-0").may_run_on is None


def test_a_vm_that_its_host_has_not_got_is_counted_on_a_target_that_cannot_be_asked(
    fleet: ReportingFleet,
) -> None:
    """It used to leave the fleet, and nobody started it when that target was fenced."""
    target = lost(fleet, "h1", "target")
    fleet.heard_from.silent.discard("h1")
    fleet.shows("h1")
    fleet.later(GRACE_S)
    fleet.shows("h1")
    assert fleet.vm("web-0").host == target
    fail(fleet, target, fenced=True)
    started = [action for host in ("h1", "h2", "h3") for action in fleet.claim(host)]
    assert [(action.kind, action.vm) for action in started] == [(ActionKind.START_VM, "web-0")]
    assert fleet.definition(started[0].host or "", "web-0") is not None


def test_what_a_move_left_paused_is_not_taken_for_where_the_vm_is(fleet: ReportingFleet) -> None:
    move, target = moving(fleet)
    fleet.heard_from.silent.add(target)
    report = ordered.report
    words = f"{target} does not answer; it may run there, so it stays paused"
    fleet.run(report("h1", move.action_id, epoch=move.epoch, outcome=UNSURE, detail=words))
    assert (fleet.vm("web-0").host, fleet.vm("web-0").may_run_on) == (target, "h1")
    fleet.shows("h1", web(0, power=Power.PAUSED))
    assert fleet.vm("web-0").host == target
    fleet.heard_from.silent.clear()
    fleet.shows("h1", web(0, power=Power.PAUSED))
    fleet.shows(target)
    assert (fleet.vm("web-0").host, fleet.vm("web-0").may_run_on) == ("h1", None)


def test_both_hosts_speak_for_a_vm_that_may_run_on_either_and_are_told_no_more(
    fleet: ReportingFleet,
) -> None:
    _, target = moving(fleet)
    fail(fleet, "h1")
    scope = fleet.scope("web")
    for host in ("h1", target):
        assert [vm.name for vm in own_vms(scope, host)] == ["web-0"]
        assert [vm.name for vm in as_shown_to(scope, host).vms] == ["web-0"]
    assert [own_vms(scope, host) for host in {"h2", "h3"} - {target}] == [()]


def test_an_inventory_file_does_not_settle_it(fleet: ReportingFleet) -> None:
    target = lost(fleet, "h1")
    fleet.apply(fleets.HOSTS + fleets.scope("web") + fleets.vm("web-0", zone="2"))
    assert (fleet.vm("web-0").profile.zone, fleet.vm("web-0").may_run_on) == ("2", target)


def test_it_outlives_a_restart_of_control(tmp_path_factory: pytest.TempPathFactory) -> None:
    fleet = ReportingFleet(folder=tmp_path_factory.mktemp("data"))
    target = lost(fleet, "h1")
    fleet.restart()
    assert fleet.vm("web-0").may_run_on == target
    fleet.close()
