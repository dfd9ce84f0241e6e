"""The judge of the simulated worlds: what it excuses, and what it does not."""

from __future__ import annotations

import pytest

from forewarn.core.inventory.host_report import Power, SeenVm, Traits
from forewarn.core.model import ActionKind
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
