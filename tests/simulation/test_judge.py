"""The judge of the simulated worlds: what it excuses, and what it does not."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from forewarn.core.inventory.host_report import Power, SeenVm, Traits
from forewarn.core.model import (
    ActionKind,
    Cause,
    EventSource,
    EventType,
    Phase,
    Policy,
    ScheduledEvent,
    Scope,
    ScopeKind,
)
from forewarn.core.principal import PrincipalKind
from forewarn.ports import WorkOrder
from simulation.judge import Broken, Judge
from simulation.sim_clock import SimClock


@pytest.fixture
def judge() -> Judge:
    """Of one VM, whose guest begins to poll after what was ordered before."""
    vm = SeenVm(name="a", vm_id="a", power=Power.RUNNING, traits=Traits(scope="web"))
    found = Judge(SimClock(), [vm])
    found.told_scopes.add("web")
    return found


def reboot(action_id: str) -> WorkOrder:
    return WorkOrder(action_id=action_id, kind=ActionKind.REBOOT_VM, vm="a", host="h1")


def hit(judge: Judge, action_id: str) -> None:
    judge.impact_begins(reboot(action_id), ["a"])
    judge.impact_ends(["a"])


def polls(judge: Judge) -> None:
    judge.read("a", 1, "", {"Events": []})


def test_a_silent_order_excuses_one_hit_and_no_other(judge: Judge) -> None:
    judge.ordered(["a"], "Reboot")
    polls(judge)
    hit(judge, "first")
    with pytest.raises(Broken, match=r"I6: a is hit by \['Reboot'\] and was never told"):
        hit(judge, "second")


def test_each_silent_order_excuses_a_hit(judge: Judge) -> None:
    judge.ordered(["a"], "Reboot")
    judge.ordered(["a"], "Reboot")
    polls(judge)
    hit(judge, "first")
    hit(judge, "second")
    with pytest.raises(Broken, match="I6"):
        hit(judge, "third")


def test_an_action_that_is_begun_again_is_the_same_hit(judge: Judge) -> None:
    judge.ordered(["a"], "Reboot")
    polls(judge)
    hit(judge, "first")
    hit(judge, "first")
    with pytest.raises(Broken, match="I6"):
        hit(judge, "second")


def test_an_order_that_is_not_silent_excuses_nothing(judge: Judge) -> None:
    polls(judge)
    judge.ordered(["a"], "Reboot")
    with pytest.raises(Broken, match="I6"):
        hit(judge, "first")


def test_a_silent_order_of_another_type_excuses_nothing(judge: Judge) -> None:
    judge.ordered(["a"], "Redeploy")
    polls(judge)
    with pytest.raises(Broken, match="I6"):
        hit(judge, "first")


# What is postponed.


def event(event_id: str, not_before_ms: int, **more: Any) -> ScheduledEvent:
    return ScheduledEvent(
        event_id=event_id,
        scope="web",
        event_type=EventType.REBOOT,
        event_source=EventSource.PLATFORM,
        cause=more.pop("cause", Cause.MAINTENANCE),
        phase=Phase.SCHEDULED,
        update_domain=0,
        host="h1",
        resources=("a",),
        not_before_ms=not_before_ms,
        minimum_notice_ms=0,
        scheduled_ms=0,
        silent=True,
        operation_id="O",
        **more,
    )


def announced(judge: Judge, old: ScheduledEvent, new: ScheduledEvent) -> None:
    """A commit in which one event takes the place of another."""
    web = Scope(name="web", kind=ScopeKind.AVAILABILITY_SET, events=(old,))
    judge.announced_anew([(None, web)], 0)
    gone = replace(old, phase=Phase.CANCELED, postponed_to=new.event_id)
    after = replace(web, events=(gone, replace(new, postponed_from=old.event_id)))
    judge.announced_anew([(web, after)], 0)


OWNERS_MAY = Policy(postponements_max=1, postpone_ms_max=10)


def test_what_an_owner_may_postpone_is_no_breach_and_what_was_withdrawn_never_starts(
    judge: Judge,
) -> None:
    judge.postpones(PrincipalKind.OWNER, OWNERS_MAY)
    announced(judge, event("A", 0), event("B", 10))
    judge.answered_postponed(["A"], ["B"])
    judge.begins(event("B", 10), 10)
    with pytest.raises(Broken, match="postponing: A was withdrawn and starts"):
        judge.begins(event("A", 0), 10)


@pytest.mark.parametrize(
    ("old", "new", "by"),
    [
        (event("A", 0), event("B", 11), PrincipalKind.OWNER),  # too far
        (event("A", 5), event("B", 5), PrincipalKind.OPERATOR),  # not later
        (event("A", 0), event("B", 5), None),  # nobody had asked
        (event("A", 0), event("B", 5, cause=Cause.DEGRADED), PrincipalKind.OPERATOR),
    ],
)
def test_what_may_not_be_postponed_so_is_a_breach(
    judge: Judge, old: ScheduledEvent, new: ScheduledEvent, by: PrincipalKind | None
) -> None:
    judge.postpones(by, OWNERS_MAY)
    with pytest.raises(Broken, match="postponing: "):
        announced(judge, old, new)


def test_an_owner_who_postpones_once_too_often_is_a_breach_and_an_operator_is_not(
    judge: Judge,
) -> None:
    judge.postpones(PrincipalKind.OPERATOR, OWNERS_MAY)
    announced(judge, event("A", 0), event("B", 2))
    announced(judge, event("B", 2), event("C", 3))
    judge.postpones(PrincipalKind.OWNER, OWNERS_MAY)
    with pytest.raises(Broken, match=r"postponing: C is postponed \(3, 4\)"):
        announced(judge, event("C", 3), event("D", 4))


def test_an_answer_that_nothing_was_committed_for_is_a_breach(judge: Judge) -> None:
    with pytest.raises(Broken, match="postponing: "):
        judge.answered_postponed(["A"], ["B"])
