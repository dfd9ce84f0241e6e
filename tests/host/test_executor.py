"""The hands of a host: claim, look, act, report; and what happens when any of it goes wrong."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from forewarn.adapters.simulated.hypervisor import SimulatedHypervisor
from forewarn.core.deadlines import CLAIM_FRESH_MS
from forewarn.core.errors import StaleReport, Unavailable
from forewarn.core.model import ActionKind, Outcome
from forewarn.host.executor import Executor
from forewarn.ports import HypervisorFailed, Sight, WorkOrder
from forewarn.wire.link import Turn, TurnTaken, Work
from support.clock import ManualClock
from support.scripted_link import ScriptedLink

ACTION = Work(
    action_id="E1/vm",
    kind=ActionKind.REBOOT_VM.value,
    host="h1",
    vm="vm",
    duration_s=5,
    epoch=3,
    boot_id="h1-boot-0",
)


class Hands(SimulatedHypervisor):
    """Counts what was begun, and may be out of reach for a while."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.begun: list[str] = []
        self.blind = False

    async def look(self, host: str, action: WorkOrder) -> Sight:
        if self.blind:
            raise HypervisorFailed("out of reach")
        return await super().look(host, action)

    async def begin(self, host: str, action: WorkOrder) -> None:
        await super().begin(host, action)
        self.begun.append(action.action_id)


class Bench:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.hands = Hands(self.clock)
        self.hands.place("vm", "h1")
        self.link = ScriptedLink()
        self.obeys = True
        self.executor = self.another()

    def another(self) -> Executor:
        """A new executor of the same host, as after a restart of its daemon."""
        return Executor(
            "h1",
            link=self.link.of("h1"),
            hypervisor=self.hands,
            now_ms=self.clock.monotonic_ms,
            obeys=lambda: self.obeys,
        )

    def step(self, executor: Executor | None = None) -> None:
        """One step, and a turn if there is something to say."""

        async def both(one: Executor) -> None:
            await one.step()
            if one.ended:
                await self.say(one)

        asyncio.run(both(executor or self.executor))

    async def say(self, executor: Executor) -> None:
        """One turn. Control may be away."""
        said = Turn(holding=executor.holding, ended=executor.ended)
        at_ms = executor.now_ms()
        try:
            taken = await self.link.turn(executor.host, said)
        except Unavailable:
            return
        executor.told(said, taken, at_ms=at_ms)

    def take(self, *actions: Work) -> None:
        self.link.to_do["h1"] = list(actions)
        self.step()

    def end(self) -> None:
        self.clock.pass_ms(5_000)
        self.step()


@pytest.fixture
def bench() -> Bench:
    return Bench()


def done(epoch: int = 3) -> tuple[str, str, int, Outcome, str]:
    return ("h1", "E1/vm", epoch, Outcome.DONE, "")


def test_a_claimed_action_is_begun_watched_and_reported(bench: Bench) -> None:
    bench.take(ACTION)
    assert bench.hands.begun == ["E1/vm"]
    assert bench.executor.busy
    bench.step()
    assert bench.link.reports == []
    bench.end()
    assert bench.link.reports == [done()]
    assert not bench.executor.busy


def test_a_step_begins_an_action_once_however_often_it_is_taken(bench: Bench) -> None:
    bench.take(ACTION)
    for _ in range(3):
        bench.step()
    bench.take(msgspec.structs.replace(ACTION, epoch=4))
    assert bench.hands.begun == ["E1/vm"]


def test_a_busy_host_claims_again_only_when_it_has_booted(bench: Bench) -> None:
    bench.take(ACTION)
    asyncio.run(bench.executor.step(claim=False))
    assert bench.link.claims == [("h1", "h1-boot-0")]
    bench.hands.kill_host("h1")
    bench.hands.boot_host("h1")
    asyncio.run(bench.executor.step(claim=False))
    assert bench.link.claims == [("h1", "h1-boot-0"), ("h1", "h1-boot-1")]


def test_a_step_without_work_claims_and_begins_nothing(bench: Bench) -> None:
    bench.link.to_do["h1"] = [ACTION]
    asyncio.run(bench.executor.step(work=False))
    assert (bench.executor.busy, bench.hands.begun) == (True, [])
    bench.step()
    assert bench.hands.begun == ["E1/vm"]


def test_a_new_executor_looks_at_what_a_dead_one_began_before_it_acts(bench: Bench) -> None:
    bench.take(ACTION)
    heir = bench.another()
    bench.link.to_do["h1"] = [msgspec.structs.replace(ACTION, epoch=4)]
    bench.step(heir)
    assert bench.hands.begun == ["E1/vm"]
    bench.clock.pass_ms(5_000)
    bench.step(heir)
    assert bench.link.reports == [done(epoch=4)]


def test_an_action_that_was_done_before_it_was_claimed_again_is_only_reported(
    bench: Bench,
) -> None:
    bench.take(ACTION)
    bench.clock.pass_ms(5_000)
    heir = bench.another()
    bench.link.to_do["h1"] = [msgspec.structs.replace(ACTION, epoch=4)]
    bench.step(heir)
    assert bench.hands.begun == ["E1/vm"]
    assert bench.link.reports == [done(epoch=4)]


def test_a_host_with_a_new_boot_id_has_rebooted(bench: Bench) -> None:
    reboot = msgspec.structs.replace(
        ACTION, action_id="O1", kind=ActionKind.REBOOT_HOST.value, vm=None
    )
    bench.take(reboot)
    bench.hands.kill_host("h1")
    bench.step()
    bench.hands.boot_host("h1")
    heir = bench.another()
    bench.link.to_do["h1"] = [msgspec.structs.replace(reboot, epoch=4)]
    bench.step(heir)
    assert bench.hands.begun == ["O1"]
    assert bench.link.reports == [("h1", "O1", 4, Outcome.DONE, "")]


def test_what_the_hypervisor_says_of_a_failure_is_reported(bench: Bench) -> None:
    bench.hands.fail_next("vm", "no memory left")
    bench.take(ACTION)
    bench.end()
    assert bench.link.reports == [("h1", "E1/vm", 3, Outcome.FAILED, "no memory left")]


def test_an_action_that_cannot_be_begun_is_reported_as_failed(bench: Bench) -> None:
    bench.take(msgspec.structs.replace(ACTION, vm="nobody"))
    [report] = bench.link.reports
    assert report[3] is Outcome.FAILED
    assert "nobody" in report[4]


def test_an_action_that_cannot_be_looked_at_is_looked_at_again_later(bench: Bench) -> None:
    bench.take(ACTION)
    bench.clock.pass_ms(5_000)
    bench.hands.blind = True
    for _ in range(3):
        bench.step()
    assert bench.link.reports == []
    bench.hands.blind = False
    bench.step()
    assert bench.link.reports == [done()]
    assert bench.hands.begun == ["E1/vm"]


def test_a_hypervisor_out_of_reach_claims_nothing(bench: Bench) -> None:
    bench.hands.kill_host("h1")
    bench.take(ACTION)
    assert bench.link.claims == []
    bench.hands.boot_host("h1")
    bench.step()
    assert bench.link.claims == [("h1", "h1-boot-1")]


def test_a_report_that_could_not_be_kept_is_sent_again(bench: Bench) -> None:
    bench.take(ACTION)
    bench.link.refuse("report", Unavailable("disk full"))
    bench.end()
    assert bench.executor.busy
    bench.step()
    assert bench.link.reports == [done()]
    assert not bench.executor.busy


def test_a_report_that_is_refused_is_dropped(bench: Bench) -> None:
    bench.take(ACTION)
    bench.link.refuse("report", StaleReport("another holds it"))
    bench.end()
    assert not bench.executor.busy
    bench.step()
    assert bench.link.reports == []


def test_one_action_that_fails_does_not_keep_the_others_from_being_done(bench: Bench) -> None:
    bench.hands.place("other", "h1")
    bench.take(msgspec.structs.replace(ACTION, action_id="E2/nobody", vm="nobody"), ACTION)
    bench.end()
    assert [report[1] for report in bench.link.reports] == ["E2/nobody", "E1/vm"]


def test_a_host_that_does_not_obey_claims_nothing(bench: Bench) -> None:
    bench.obeys = False
    bench.take(ACTION)
    assert bench.link.claims == []
    assert bench.hands.begun == []
    bench.obeys = True
    bench.step()
    assert bench.hands.begun == ["E1/vm"]


def test_what_was_begun_before_a_host_refused_is_finished_and_reported(bench: Bench) -> None:
    bench.take(ACTION)
    bench.obeys = False
    bench.end()
    assert bench.link.reports == [done()]


def test_what_was_claimed_and_not_begun_when_a_host_refused_is_left(bench: Bench) -> None:
    bench.link.to_do["h1"] = [ACTION]
    asyncio.run(bench.executor.step(work=False))
    bench.obeys = False
    bench.step()
    assert (bench.hands.begun, bench.executor.held) == ([], 0)


def test_a_turn_names_the_claims_that_are_held_until_it_is_known_how_they_ended(
    bench: Bench,
) -> None:
    assert bench.executor.holding == {}
    bench.take(ACTION)
    assert bench.executor.holding == {"E1/vm": 3}
    bench.link.refuse("report", Unavailable("away"))
    bench.end()
    assert bench.executor.holding == {"E1/vm": 3}
    bench.step()
    assert bench.executor.holding == {}


def test_an_end_that_nobody_has_heard_of_is_forgotten_once_the_work_is_claimed_anew(
    bench: Bench,
) -> None:
    bench.take(ACTION)
    bench.link.refuse("report", Unavailable("away"), Unavailable("away"))
    bench.end()
    bench.take(msgspec.structs.replace(ACTION, epoch=4))
    bench.step()
    assert bench.link.reports == [done(epoch=4)]
    assert bench.hands.begun == ["E1/vm"]


def test_work_of_a_kind_that_this_host_does_not_know_has_failed(bench: Bench) -> None:
    bench.take(msgspec.structs.replace(ACTION, kind="paint-vm"))
    [(_, action_id, epoch, outcome, detail)] = bench.link.reports
    assert (action_id, epoch, outcome) == ("E1/vm", 3, Outcome.FAILED)
    assert "does not know how to paint-vm; upgrade its daemon" in detail


def test_a_control_plane_that_is_away_ends_the_step_and_loses_nothing(bench: Bench) -> None:
    bench.take(ACTION)
    bench.link.refuse("claim", Unavailable("down"))
    with pytest.raises(Unavailable):
        bench.step()
    bench.end()
    assert bench.link.reports == [done()]


def later(bench: Bench, ms: int, **more: Any) -> None:
    """What was claimed is begun only so much later."""
    bench.link.to_do["h1"] = [msgspec.structs.replace(ACTION, **more)]
    asyncio.run(bench.executor.step(work=False))
    bench.clock.pass_ms(ms)
    bench.step()


def test_what_was_claimed_just_now_is_begun_without_another_question(bench: Bench) -> None:
    bench.link.refuse("holds", AssertionError("asked"))
    later(bench, CLAIM_FRESH_MS - 1)
    assert bench.hands.begun == ["E1/vm"]


@pytest.mark.parametrize(("ms", "left_ms"), [(CLAIM_FRESH_MS, None), (1_000, 1_000)])
def test_a_claim_that_was_lost_meanwhile_is_dropped_and_never_acted_on(
    bench: Bench, ms: int, left_ms: int | None
) -> None:
    """The event has ended, or another host has the VM: acting now would hit it without notice."""
    bench.link.lost_claims.add(("h1", ACTION.action_id, ACTION.epoch))
    later(bench, ms, left_ms=left_ms)
    assert bench.hands.begun == []
    assert not bench.executor.busy
    assert bench.link.reports == []


@pytest.mark.parametrize("lost", [False, True])
def test_a_turn_makes_a_claim_fresh_unless_it_is_lost(bench: Bench, *, lost: bool) -> None:
    bench.link.to_do["h1"] = [ACTION]
    asyncio.run(bench.executor.step(work=False))
    bench.clock.pass_ms(60_000)
    if lost:
        bench.link.lost_claims.add(("h1", ACTION.action_id, ACTION.epoch))
    else:
        bench.link.refuse("holds", AssertionError("asked"))
    asyncio.run(bench.say(bench.executor))
    bench.step()
    assert bench.hands.begun == ([] if lost else ["E1/vm"])


def test_a_turn_does_not_put_off_the_deadline_that_was_told_with_the_claim(bench: Bench) -> None:
    """Control gives up the event at its deadline: what begins later hits VMs without notice."""
    bench.link.to_do["h1"] = [msgspec.structs.replace(ACTION, left_ms=60_000)]
    asyncio.run(bench.executor.step(work=False))
    bench.clock.pass_ms(59_000)
    asyncio.run(bench.say(bench.executor))
    bench.clock.pass_ms(1_000)
    bench.link.lost_claims.add(("h1", ACTION.action_id, ACTION.epoch))
    bench.step()
    assert (bench.hands.begun, bench.executor.held) == ([], 0)


def test_what_a_turn_calls_lost_is_not_begun_though_it_was_claimed_just_now(bench: Bench) -> None:
    """The host was failed and fenced meanwhile: another one starts the VM."""
    bench.hands.blind = True
    bench.take(ACTION)
    bench.link.lost_claims.add(("h1", ACTION.action_id, ACTION.epoch))
    asyncio.run(bench.say(bench.executor))
    bench.hands.blind = False
    bench.step()
    assert (bench.hands.begun, bench.executor.held) == ([], 0)


def test_a_turn_that_was_answered_late_makes_nothing_fresh(bench: Bench) -> None:
    bench.link.to_do["h1"] = [ACTION]
    asyncio.run(bench.executor.step(work=False))
    said = Turn(holding=bench.executor.holding)
    asked_ms = bench.executor.now_ms()
    bench.clock.pass_ms(CLAIM_FRESH_MS)
    bench.executor.told(said, TurnTaken(), at_ms=asked_ms)
    bench.link.lost_claims.add(("h1", ACTION.action_id, ACTION.epoch))
    bench.step()
    assert bench.hands.begun == []
