"""A move whose source or target dies in the middle: the VM never runs twice and is never lost."""

from __future__ import annotations

import pytest

from forewarn.core.model import (
    DAY_MS,
    HOUR_MS,
    Action,
    ActionKind,
    Cause,
    EventType,
    FactKind,
    Health,
    Outcome,
    Phase,
    ScheduledEvent,
)
from forewarn.core.starting import HoldReason
from support.core_fleet import Cloud, minutes, reasons, scope
from support.journal import said

UNSURE = Outcome.LOST  # as a host says it


@pytest.fixture
def cloud() -> Cloud:
    return Cloud(scope("one", {"a": (0, "h1")}))


def moving(cloud: Cloud) -> tuple[ScheduledEvent, Action]:
    """`a` is being moved from h1 to h2, and h1 has not said how that went."""
    event = cloud.order("a", EventType.REDEPLOY)
    cloud.start(event)
    [move] = cloud.claim("h1")
    assert (move.kind, move.target_host) == (ActionKind.MOVE_VM, "h2")
    return event, move


def declared(cloud: Cloud) -> ScheduledEvent:
    [event] = [e for e in cloud.scope("one").events if e.cause is Cause.FAILURE]
    return event


def claims(cloud: Cloud) -> dict[str, tuple[ActionKind, Action]]:
    """What each host is given to do now, after the ticker has looked."""
    cloud.tick()
    hosts = [host for host in ("h1", "h2", "h3") if cloud.hearing.alive(host)]
    found = {host: cloud.claim(host) for host in hosts}
    assert all(len(actions) <= 1 for actions in found.values())
    return {host: (actions[0].kind, actions[0]) for host, actions in found.items() if actions}


def kinds(cloud: Cloud) -> dict[str, ActionKind]:
    return {host: kind for host, (kind, _) in claims(cloud).items()}


# The source fails.


def test_a_vm_on_the_move_starts_nowhere_while_its_host_is_not_fenced(cloud: Cloud) -> None:
    """It may still run on its host: the target must not start it, though it may be there too."""
    moving(cloud)
    cloud.fail("h1")
    assert kinds(cloud) == {}
    [hold] = cloud.holds(declared(cloud))
    assert hold.reason is HoldReason.NO_HOST
    assert "being moved from the failed host h1 to h2; it may run on either" in hold.what
    assert "forewarn host fail h1 --fenced" in hold.remedy
    cloud.pass_time(HOUR_MS)
    assert kinds(cloud) == {}


def test_once_its_host_is_fenced_its_target_looks_and_starts_it(cloud: Cloud) -> None:
    moving(cloud)
    cloud.fail("h1")
    event = declared(cloud)
    cloud.fail("h1", fenced=True)
    cloud.tick()
    [start] = cloud.claim("h2")
    assert start.kind is ActionKind.START_VM
    cloud.report("h2", start)
    assert cloud.event(event).phase is Phase.COMPLETED
    assert (cloud.where("a"), cloud.vm("a").may_run_on) == ("h2", None)


def test_a_target_that_has_failed_too_is_waited_for_until_it_is_fenced(cloud: Cloud) -> None:
    moving(cloud)
    cloud.fail("h2")
    cloud.fail("h1", fenced=True)
    assert kinds(cloud) == {}
    [hold] = cloud.holds(declared(cloud))
    assert hold.reason is HoldReason.NO_HOST
    assert "forewarn host fail h2 --fenced" in hold.remedy
    cloud.fail("h2", fenced=True)
    assert kinds(cloud) == {"h3": ActionKind.START_VM}


@pytest.mark.parametrize("first", ["h1", "h2"])
def test_when_both_are_fenced_it_starts_elsewhere(cloud: Cloud, first: str) -> None:
    moving(cloud)
    cloud.fail(first, fenced=True)
    cloud.fail("h2" if first == "h1" else "h1", fenced=True)
    assert kinds(cloud) == {"h3": ActionKind.START_VM}


def test_a_source_that_returns_is_asked_before_anything_is_started(cloud: Cloud) -> None:
    """The failure was only suspected, and the VM never stopped running there."""
    moving(cloud)
    cloud.fail("h1")
    event = declared(cloud)
    cloud.repair("h1")
    asked = claims(cloud)
    assert {host: kind for host, (kind, _) in asked.items()} == {"h1": ActionKind.FIND_VM}
    cloud.report("h1", asked["h1"][1])
    assert cloud.event(event).phase is Phase.COMPLETED
    assert (cloud.where("a"), cloud.vm("a").may_run_on) == ("h1", None)


def test_then_its_target_is_asked(cloud: Cloud) -> None:
    moving(cloud)
    cloud.fail("h1")
    event = declared(cloud)
    cloud.repair("h1")
    cloud.report("h1", claims(cloud)["h1"][1], Outcome.FAILED, "it does not run here")
    asked = claims(cloud)
    assert {host: kind for host, (kind, _) in asked.items()} == {"h2": ActionKind.FIND_VM}
    cloud.report("h2", asked["h2"][1])
    assert cloud.event(event).phase is Phase.COMPLETED
    assert (cloud.where("a"), cloud.vm("a").may_run_on) == ("h2", None)


def test_a_vm_that_runs_on_neither_starts_at_home(cloud: Cloud) -> None:
    moving(cloud)
    cloud.fail("h1")
    event = declared(cloud)
    cloud.repair("h1")
    cloud.report("h1", claims(cloud)["h1"][1], Outcome.FAILED, "it does not run here")
    cloud.report("h2", claims(cloud)["h2"][1], Outcome.FAILED, "it does not run here")
    started = claims(cloud)
    assert {host: kind for host, (kind, _) in started.items()} == {"h1": ActionKind.START_VM}
    cloud.report("h1", started["h1"][1])
    assert cloud.event(event).phase is Phase.COMPLETED
    assert cloud.where("a") == "h1"


def test_a_target_that_is_fenced_while_it_is_asked_need_not_answer(cloud: Cloud) -> None:
    moving(cloud)
    cloud.fail("h1")
    cloud.repair("h1")
    cloud.report("h1", claims(cloud)["h1"][1], Outcome.FAILED, "it does not run here")
    asked = claims(cloud)["h2"][1]
    cloud.fail("h2", fenced=True)
    assert kinds(cloud) == {"h1": ActionKind.START_VM}
    with pytest.raises(Exception, match="no open action"):
        cloud.report("h2", asked)


def test_a_source_that_fails_again_while_it_is_asked(cloud: Cloud) -> None:
    moving(cloud)
    cloud.fail("h1")
    cloud.repair("h1")
    claims(cloud)
    cloud.fail("h1")
    assert kinds(cloud) == {}
    cloud.fail("h1", fenced=True)
    assert kinds(cloud) == {"h2": ActionKind.START_VM}


def test_a_move_that_nobody_had_taken_was_never_begun(cloud: Cloud) -> None:
    event = cloud.order("a", EventType.REDEPLOY)
    cloud.start(event)
    cloud.fail("h1", fenced=True)
    assert cloud.vm("a").may_run_on is None
    assert set(kinds(cloud).values()) == {ActionKind.START_VM}


def test_all_of_it_outlives_a_kill_of_control(cloud: Cloud) -> None:
    moving(cloud)
    cloud.fail("h1")
    cloud.crash(down_ms=minutes(1))
    assert cloud.vm("a").may_run_on == "h2"
    cloud.repair("h1")
    cloud.tick()
    cloud.crash(down_ms=minutes(1))
    [asked] = cloud.claim("h1")
    assert asked.kind is ActionKind.FIND_VM
    cloud.report("h1", asked)
    assert cloud.where("a") == "h1"


# The target fails while the source has still to report.


@pytest.mark.parametrize("fenced", [False, True])
def test_a_target_that_fails_leaves_the_move_to_its_source(cloud: Cloud, *, fenced: bool) -> None:
    """It still runs there, or has arrived: only the source can say, so nobody starts it."""
    event, move = moving(cloud)
    cloud.fail("h2", fenced=fenced)
    assert kinds(cloud) == {}
    assert cloud.event(event).phase is Phase.STARTED
    cloud.report("h1", move, Outcome.FAILED, "host h2 does not answer")
    assert cloud.event(event).phase is Phase.FAILED
    assert cloud.where("a") == "h1"
    assert kinds(cloud) == {}
    assert cloud.scope("one").events == ()


def test_what_had_arrived_on_a_target_that_is_fenced_starts_elsewhere(cloud: Cloud) -> None:
    _, move = moving(cloud)
    cloud.fail("h2", fenced=True)
    cloud.report("h1", move)
    assert declared(cloud).resources == ("a",)
    assert list(kinds(cloud).values()) == [ActionKind.START_VM]


@pytest.mark.parametrize("fenced", [False, True])
def test_what_had_arrived_on_a_target_that_failed_and_is_back_is_looked_for_there(
    cloud: Cloud, *, fenced: bool
) -> None:
    """It went down with its new host before its old one could report that it had arrived."""
    event, move = moving(cloud)
    cloud.fail("h2", fenced=fenced)
    cloud.crash(down_ms=minutes(1))
    cloud.repair("h2")
    assert kinds(cloud) == {}
    cloud.report("h1", move)
    assert cloud.event(event).phase is Phase.COMPLETED
    assert (declared(cloud).host, declared(cloud).resources) == ("h2", ("a",))
    assert kinds(cloud) == {"h2": ActionKind.START_VM}


def test_a_move_whose_target_failed_and_is_back_may_have_failed_too(cloud: Cloud) -> None:
    _, move = moving(cloud)
    cloud.fail("h2")
    cloud.repair("h2")
    cloud.report("h1", move, Outcome.FAILED, "host h2 did not answer")
    assert cloud.where("a") == "h1"
    assert cloud.scope("one").events == ()


@pytest.mark.parametrize("failed_first", [False, True])
def test_a_source_that_cannot_know_leaves_it_to_the_target(
    cloud: Cloud, *, failed_first: bool
) -> None:
    """It is off at the source and was told to start at the target, which does not answer."""
    event, move = moving(cloud)
    if failed_first:
        cloud.fail("h2")
    cloud.report("h1", move, UNSURE, "h2 does not answer; it may run there")
    assert cloud.event(event).phase is Phase.FAILED
    assert cloud.scope("one").hold is not None
    assert (cloud.where("a"), cloud.vm("a").may_run_on) == ("h2", "h1")
    if not failed_first:
        cloud.fail("h2")
    assert declared(cloud).host == "h2"
    assert kinds(cloud) == {}
    cloud.fail("h2", fenced=True)
    started = claims(cloud)
    assert {host: kind for host, (kind, _) in started.items()} == {"h1": ActionKind.START_VM}
    cloud.report("h1", started["h1"][1])
    assert (cloud.where("a"), cloud.vm("a").may_run_on) == ("h1", None)


def test_a_target_that_returns_is_asked_whether_it_runs_it(cloud: Cloud) -> None:
    _, move = moving(cloud)
    cloud.fail("h2")
    cloud.report("h1", move, UNSURE, "h2 does not answer; it may run there")
    event = declared(cloud)
    cloud.repair("h2")
    asked = claims(cloud)
    assert {host: kind for host, (kind, _) in asked.items()} == {"h2": ActionKind.FIND_VM}
    cloud.report("h2", asked["h2"][1])
    assert cloud.event(event).phase is Phase.COMPLETED
    assert cloud.where("a") == "h2"


# Nobody reports.


def test_a_lost_move_is_not_started_elsewhere_while_its_target_may_run_it(cloud: Cloud) -> None:
    moving(cloud)
    for host in ("h1", "h2"):
        cloud.hearing.falls_silent(host)
    cloud.pass_time(HOUR_MS)
    assert cloud.scope("one").events == ()
    assert (cloud.where("a"), cloud.vm("a").may_run_on) == ("h1", "h2")
    cloud.fail("h1", fenced=True)
    assert kinds(cloud) == {}
    cloud.fail("h2", fenced=True)
    assert kinds(cloud) == {"h3": ActionKind.START_VM}


@pytest.mark.parametrize("failed_first", [False, True])
def test_a_lost_move_to_a_host_that_fails_is_declared_with_its_vms(
    cloud: Cloud, *, failed_first: bool
) -> None:
    """It may have gone down there: its old host looks, and starts it if it has not got it."""
    moving(cloud)
    if failed_first:
        cloud.fail("h2", fenced=True)
    cloud.pass_time(HOUR_MS)
    if not failed_first:
        cloud.fail("h2", fenced=True)
    event = declared(cloud)
    assert (event.host, event.resources) == ("h2", ("a",))
    started = claims(cloud)
    assert {host: kind for host, (kind, _) in started.items()} == {"h1": ActionKind.START_VM}
    cloud.report("h1", started["h1"][1])
    assert cloud.event(event).phase is Phase.COMPLETED
    assert cloud.where("a") == "h1"


def test_a_start_that_is_lost_may_have_started_it(cloud: Cloud) -> None:
    cloud.fail("h1", fenced=True)
    cloud.tick()
    [start] = [a for host in ("h2", "h3") for a in cloud.claim(host)]
    cloud.hearing.falls_silent(start.host or "")
    cloud.pass_time(DAY_MS)
    assert cloud.vm("a").may_run_on == start.host
    cloud.repair("h1")
    cloud.fail("h1", fenced=True)
    assert kinds(cloud) == {}
    assert reasons(cloud.holds(declared(cloud))) == {HoldReason.HOST_SILENT}


def test_the_journal_says_that_a_place_is_not_sure(cloud: Cloud) -> None:
    _, move = moving(cloud)
    cloud.report("h1", move, UNSURE, "h2 does not answer; it may run there")
    [moved] = cloud.facts(FactKind.MOVED)
    assert (moved.vm, moved.host, said(moved)) == ("a", "h2", {"from": "h1", "sure": False})
    assert cloud.host("h2").health is Health.OK


def test_a_host_that_may_run_a_vm_without_its_notice_is_left_alone(cloud: Cloud) -> None:
    """Its freeze would hit a VM that was told nothing of it."""
    moving(cloud)
    operation = cloud.maintain("h2", EventType.FREEZE)
    cloud.fail("h1")
    cloud.pass_time(HOUR_MS)
    holds = cloud.operation_holds(operation)
    assert reasons(holds) == {HoldReason.VM_ARRIVING}
    assert "a may be on host h2" in holds[0].what
    assert "forewarn host fail h1 --fenced" in holds[0].remedy
