"""The hosts of one process: heartbeats, steps on a ring and by sweep, and word of what is shown."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from forewarn.adapters.simulated.hypervisor import SimulatedHypervisor
from forewarn.control.hosts.own_vms import ScopeByHost
from forewarn.core.errors import Conflict, NotFound, Unavailable
from forewarn.core.model import (
    ActionKind,
    Cause,
    EventSource,
    EventType,
    Outcome,
    Phase,
    ScheduledEvent,
    Scope,
)
from forewarn.host.daemon import (
    STEP_TIMEOUT_S,
    STEPS_AT_ONCE,
    SWEEP_EVERY_S,
    TURNS_AT_ONCE,
    Hosts,
)
from forewarn.host.identity import Identity
from forewarn.host.served_documents import Documents
from forewarn.wire.link import Turn, TurnTaken, Work
from support import events
from support.clock import ManualClock
from support.core_fleet import WEB, scope
from support.scripted_link import ScriptedLink
from support.shown_scopes import as_shown
from support.waiting import until


def an_event(event_id: str, host: str, **more: Any) -> ScheduledEvent:
    """A reboot that is due at once."""
    due: dict[str, Any] = {"not_before_ms": 0, "minimum_notice_ms": 0, "scheduled_ms": 0}
    due |= {"event_type": EventType.REBOOT, "event_source": EventSource.USER, "cause": Cause.ORDER}
    return events.an_event(event_id, host=host, **{**due, **more})


def showing(*events: ScheduledEvent, incarnation: int = 2) -> Scope:
    return replace(scope("web", WEB), events=events, incarnation=incarnation)


def an_action(host: str = "h1") -> Work:
    return Work(
        action_id=f"E1/{host}",
        kind=ActionKind.REBOOT_VM.value,
        host=host,
        vm="web_0",
        epoch=1,
    )


class HangingHypervisor(SimulatedHypervisor):
    """Hosts in `hanging` never answer; `given_up` counts the calls that were taken back."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.clock = clock
        self.hanging: set[str] = set()
        self.asked: list[str] = []
        self.given_up = 0

    async def boot_id(self, host: str) -> str:
        self.asked.append(host)
        if host in self.hanging:
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                self.given_up += 1
        return await super().boot_id(host)


class Bench:
    """Hosts h1 and h2 with a scripted control plane. Made inside an event loop."""

    def __init__(
        self,
        names: Iterable[str] = ("h1", "h2"),
        *,
        step_timeout_s: float = STEP_TIMEOUT_S,
        sweep_every_s: float = SWEEP_EVERY_S,
    ) -> None:
        self.link = ScriptedLink()
        self.hypervisor = HangingHypervisor(ManualClock())
        self.hypervisor.place("web_0", "h1")
        self.documents = Documents(Identity())
        self.unreadable: set[str] = set()
        self.unheard = 0
        self.hosts = Hosts(
            names,
            links=self.link.of,
            hypervisor=self.hypervisor,
            documents=self.documents,
            monotonic_ms=self.hypervisor.clock.monotonic_ms,
            step_timeout_s=step_timeout_s,
            sweep_every_s=sweep_every_s,
            unheard=self._unheard,
            readable=lambda owner: owner.name not in self.unreadable,
            powered=self.hypervisor.answers,
        )

    def _unheard(self) -> None:
        self.unheard += 1

    def asked(self, host: str) -> int:
        """How often the host has asked for work."""
        return [one for one, _ in self.link.claims].count(host)

    def show(self, owner: Scope) -> None:
        self.documents.show(as_shown(owner))
        self.shown(owner)

    def shown(self, owner: Scope) -> None:
        """Each host of an event is told whether it has to confirm it."""
        for host in {event.host for event in owner.events}:
            self.hosts.shown(host, ScopeByHost(owner).to(host))


def while_working(
    act: Callable[[Bench], Coroutine[Any, Any, None]],
    *,
    names: Iterable[str] = ("h1", "h2"),
    hanging: Iterable[str] = (),
    step_timeout_s: float = STEP_TIMEOUT_S,
) -> Bench:
    async def main() -> Bench:
        bench = Bench(names, step_timeout_s=step_timeout_s)
        bench.hypervisor.hanging.update(hanging)
        work = asyncio.ensure_future(bench.hosts.run())
        try:
            await act(bench)
            assert not work.done()
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
        return bench

    return asyncio.run(main())


def test_every_host_beats_and_looks_for_work_from_the_beginning() -> None:
    async def act(bench: Bench) -> None:
        await until(lambda: len(bench.link.heartbeats) >= 2 and len(bench.link.claims) >= 2)

    bench = while_working(act)
    assert {host for host, _ in bench.link.heartbeats} == {"h1", "h2"}
    assert {host for host, _ in bench.link.claims} == {"h1", "h2"}


def test_a_ring_makes_a_host_do_its_work_to_the_end() -> None:
    async def act(bench: Bench) -> None:
        await until(lambda: len(bench.link.claims) >= 2)
        bench.link.to_do["h1"] = [an_action()]
        bench.hosts.ring(["h1"])
        await until(lambda: bool(bench.link.reports))

    bench = while_working(act)
    assert bench.link.reports == [("h1", "E1/h1", 1, Outcome.DONE, "")]


def test_who_is_told_in_turns_whether_there_is_work_asks_for_it_only_then() -> None:
    async def story() -> None:
        bench = Bench(sweep_every_s=0.02)
        bench.link.work["h1"] = False
        running = asyncio.ensure_future(bench.hosts.run())
        try:
            await until(lambda: len(bench.link.heartbeats) >= 2 and bench.asked("h1"))
            asked, swept = bench.asked("h1"), bench.asked("h2")
            await until(lambda: bench.asked("h2") > swept + 5)  # its control does not say
            # A sweep repeats a question that has no answer yet: at most one was under way.
            assert bench.asked("h1") <= asked + 1
            asked = bench.asked("h1")

            bench.link.to_do["h1"] = [an_action()]  # the ring of the feed was lost
            bench.link.work["h1"] = True
            await bench.hosts.heartbeat()
            await until(lambda: bench.asked("h1") > asked and not bench.link.to_do)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(story())


@pytest.mark.parametrize("why", [Unavailable("Control is away."), Conflict("Two daemons.")])
def test_a_question_for_work_that_is_not_answered_is_asked_again(why: Exception) -> None:
    async def story() -> None:
        bench = Bench(["h1"], sweep_every_s=0.001)
        bench.link.work["h1"] = False
        bench.link.refuse("claim", why, why, why)
        running = asyncio.ensure_future(bench.hosts.run())
        try:
            await until(lambda: bench.asked("h1"))
            assert bench.link.refusals["claim"] == []
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(story())


def test_a_turn_without_an_answer_is_said_to_who_waits_on_another_connection() -> None:
    async def story() -> None:
        bench = Bench(["h1"])
        bench.link.refuse("turn", NotFound("There is no host h1."), Unavailable("It is away."))
        await bench.hosts.heartbeat()
        assert bench.unheard == 0, "a refusal is an answer"
        await bench.hosts.heartbeat()
        assert bench.unheard == 1

    asyncio.run(story())


def test_however_many_hosts_beat_others_have_their_turn_meanwhile() -> None:
    slices = 4

    async def story() -> int:
        bench = Bench([f"h{number}" for number in range(slices * TURNS_AT_ONCE)])
        beating, turns = asyncio.ensure_future(bench.hosts.heartbeat()), 0
        while not beating.done():
            await asyncio.sleep(0)
            turns += 1
        assert len(bench.link.heartbeats) == slices * TURNS_AT_ONCE
        return turns

    assert asyncio.run(story()) >= slices


async def most_at_once(bench: Bench, hosts: int) -> int:
    """How many heartbeats came while the event loop turned once, at most; ends with the last."""
    most = before = len(bench.link.heartbeats)
    while before < hosts:
        await asyncio.sleep(0)
        most, before = max(most, len(bench.link.heartbeats) - before), len(bench.link.heartbeats)
    return most


def test_hosts_that_wait_for_control_together_begin_some_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("forewarn.host.daemon.TAKEN_AT_ONCE_S", -1.0)  # the first one has waited
    hosts = 5 * TURNS_AT_ONCE

    async def story() -> int:
        bench = Bench([f"h{number}" for number in range(hosts)])
        beating = asyncio.ensure_future(bench.hosts.heartbeat())
        most = await most_at_once(bench, hosts)
        await beating
        return most

    assert asyncio.run(story()) <= 2 * TURNS_AT_ONCE


def test_hosts_that_all_have_something_to_say_begin_some_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("forewarn.host.daemon.HEARTBEAT_EVERY_S", 3_600.0)
    names = [f"h{number}" for number in range(5 * TURNS_AT_ONCE)]
    found: list[int] = []

    async def act(bench: Bench) -> None:
        await until(lambda: len(bench.link.heartbeats) == len(names))  # the first of all
        bench.link.heartbeats.clear()
        bench.show(showing(*(an_event(f"E{n}", name) for n, name in enumerate(names))))
        found.append(await most_at_once(bench, len(names)))

    while_working(act, names=names)
    assert found[0] <= 2 * TURNS_AT_ONCE


def test_a_ring_for_nobody_wakes_nobody() -> None:
    async def act(bench: Bench) -> None:
        await until(lambda: len(bench.link.claims) >= 2)
        claims = len(bench.link.claims)
        bench.hosts.ring([])
        bench.hosts.ring(["a host of another process"])
        bench.show(showing(an_event("E1", "h1")))
        await until(lambda: bool(bench.link.confirmed))
        assert len(bench.link.claims) == claims

    while_working(act)


def test_what_is_shown_is_confirmed_by_the_hosts_of_its_events() -> None:
    async def act(bench: Bench) -> None:
        bench.show(showing(an_event("E1", "h1"), an_event("E2", "h2")))
        await until(lambda: len(bench.link.confirmed) >= 2)

    bench = while_working(act)
    assert sorted(bench.link.confirmed) == [("h1", "web", 2), ("h2", "web", 2)]


def test_a_host_without_power_neither_beats_nor_confirms_until_it_has_booted() -> None:
    async def act(bench: Bench) -> None:
        bench.hypervisor.kill_host("h1")
        bench.hosts.died("h1")
        bench.show(showing(an_event("E1", "h1"), an_event("E2", "h2")))
        await bench.hosts.heartbeat()
        await until(lambda: bool(bench.link.confirmed))
        assert bench.link.confirmed == [("h2", "web", 2)]
        assert {host for host, _ in bench.link.heartbeats} == {"h2"}
        bench.hypervisor.boot_host("h1")
        bench.hosts.booted("h1")
        await until(lambda: ("h1", "web", 2) in bench.link.confirmed)
        await bench.hosts.heartbeat({"h1"})
        assert bench.link.heartbeats[-1][0] == "h1"

    async def main() -> None:
        bench = Bench()
        bench.hypervisor.kill_host("h1")  # before the first heartbeat
        work = asyncio.ensure_future(bench.hosts.run())
        try:
            await act(bench)
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    asyncio.run(main())


def test_what_a_host_held_in_its_hands_is_gone_with_its_power() -> None:
    async def act(bench: Bench) -> None:
        bench.hypervisor.slow_next("web_0", extra_s=600)
        bench.link.to_do["h1"] = [an_action()]
        bench.hosts.ring(["h1"])
        await until(lambda: bench.hosts.held == 1)
        bench.hypervisor.kill_host("h1")
        bench.hosts.died("h1")
        bench.hosts.died("a host of another process")
        assert bench.hosts.held == 0

    assert while_working(act).link.reports == []


@pytest.mark.parametrize("more", [{"shown_ms": 5}, {"silent": True}, {"phase": Phase.CANCELED}])
def test_what_needs_no_confirmation_gets_none(more: dict[str, Any]) -> None:
    async def act(bench: Bench) -> None:
        bench.show(showing(an_event("E1", "h1", **more)))
        bench.show(replace(showing(an_event("E2", "h2")), name="api"))
        await until(lambda: bool(bench.link.confirmed))

    bench = while_working(act)
    assert bench.link.confirmed == [("h2", "api", 2)]


def test_nothing_is_confirmed_before_guests_can_read_it() -> None:
    async def act(bench: Bench) -> None:
        bench.documents.show(as_shown(showing(incarnation=1)))
        bench.shown(showing(an_event("E1", "h1"), incarnation=2))
        bench.shown(replace(showing(an_event("E2", "h2")), name="never-shown"))
        bench.link.to_do["h1"] = [an_action()]
        bench.hosts.ring(["h1"])
        await until(lambda: bool(bench.link.reports))  # meanwhile everything else goes on
        assert bench.link.confirmed == []
        bench.documents.show(as_shown(showing(an_event("E1", "h1"), incarnation=2)))
        await until(lambda: bool(bench.link.confirmed))

    bench = while_working(act)
    assert bench.link.confirmed == [("h1", "web", 2)]


def test_what_guests_cannot_reach_is_confirmed_when_they_can() -> None:
    async def act(bench: Bench) -> None:
        bench.unreadable.add("web")
        bench.show(showing(an_event("E1", "h1")))
        bench.show(replace(showing(an_event("E2", "h2")), name="api"))
        bench.link.to_do["h1"] = [an_action()]
        bench.hosts.ring(["h1"])
        await until(lambda: bool(bench.link.reports and bench.link.confirmed))
        assert bench.link.confirmed == [("h2", "api", 2)]
        bench.unreadable.clear()
        await until(lambda: len(bench.link.confirmed) == 2)

    bench = while_working(act)
    assert bench.link.confirmed[1] == ("h1", "web", 2)


def test_a_confirmation_that_could_not_be_kept_is_sent_again() -> None:
    async def act(bench: Bench) -> None:
        bench.link.refuse("confirm", Unavailable("disk full"), Unavailable("disk full"))
        bench.show(showing(an_event("E1", "h1")))
        await until(lambda: bool(bench.link.confirmed))

    bench = while_working(act)
    assert bench.link.refusals["confirm"] == []


def test_a_host_that_is_not_ours_confirms_nothing() -> None:
    async def act(bench: Bench) -> None:
        bench.show(showing(an_event("E1", "h9"), an_event("E2", "h1")))
        await until(lambda: bool(bench.link.confirmed))

    bench = while_working(act)
    assert bench.link.confirmed == [("h1", "web", 2)]


def test_a_host_whose_confirmation_takes_long_keeps_no_other_waiting() -> None:
    async def act(bench: Bench) -> None:
        bench.link.kept_waiting["h1"] = asyncio.Event()
        bench.show(showing(an_event("E1", "h1"), an_event("E2", "h2")))
        await until(lambda: bench.link.confirmed == [("h2", "web", 2)])
        bench.link.kept_waiting["h1"].set()
        await until(lambda: ("h1", "web", 2) in bench.link.confirmed)

    bench = while_working(act)
    assert bench.link.asked_to_confirm == ["h1", "h2"]  # one question each, both at once
    assert bench.link.confirmed == [("h2", "web", 2), ("h1", "web", 2)]


def test_a_host_that_leaves_while_it_confirms_says_no_more() -> None:
    async def act(bench: Bench) -> None:
        bench.link.kept_waiting["h1"] = asyncio.Event()
        bench.show(showing(an_event("E1", "h1")))
        bench.show(replace(showing(an_event("E2", "h1")), name="api", vms=()))
        await until(lambda: bool(bench.link.asked_to_confirm))
        bench.hosts.set_names(["h2"])
        bench.link.kept_waiting["h1"].set()
        bench.show(showing(an_event("E3", "h2"), incarnation=3))
        await until(lambda: ("h2", "web", 3) in bench.link.confirmed)

    bench = while_working(act)
    assert bench.link.asked_to_confirm == ["h1", "h2"]
    assert bench.hosts.failures == 0


@pytest.mark.parametrize(
    "failure", [Unavailable("down"), NotFound("who are you"), ZeroDivisionError()]
)
def test_a_step_that_fails_ends_neither_the_host_nor_its_neighbours(failure: Exception) -> None:
    async def act(bench: Bench) -> None:
        await until(lambda: len(bench.link.claims) >= 2)
        bench.link.refuse("claim", failure)
        bench.hosts.ring(["h1"])
        await until(lambda: not bench.link.refusals["claim"])
        bench.link.to_do = {"h1": [an_action("h1")], "h2": [an_action("h2")]}
        bench.hosts.ring(["h1", "h2"])
        await until(lambda: len(bench.link.reports) >= 2)

    bench = while_working(act)
    assert bench.hosts.failures == (1 if isinstance(failure, ZeroDivisionError) else 0)


def test_hosts_that_hang_keep_no_other_from_its_work_nor_documents_from_being_confirmed() -> None:
    hanging = [f"a{number:02}" for number in range(STEPS_AT_ONCE)]  # every turn there is

    async def act(bench: Bench) -> None:
        await until(lambda: set(hanging) <= set(bench.hypervisor.asked))
        bench.show(showing(an_event("E1", "h1")))
        await until(lambda: bool(bench.link.confirmed))
        bench.link.to_do["h1"] = [an_action()]
        bench.hosts.ring(["h1"])
        await until(lambda: bool(bench.link.reports))
        assert bench.hypervisor.given_up == 0

    bench = while_working(act, names=[*hanging, "h1"], hanging=hanging)
    assert bench.hypervisor.given_up == STEPS_AT_ONCE  # canceled with the service
    assert [bench.hypervisor.asked.count(name) for name in hanging] == [1] * STEPS_AT_ONCE


def test_a_step_that_hangs_is_given_up_counted_and_tried_again() -> None:
    async def act(bench: Bench) -> None:
        await until(lambda: bench.hosts.failures >= 1)
        bench.hypervisor.hanging.clear()
        bench.link.to_do["h1"] = [an_action()]
        bench.hosts.ring(["h1"])
        await until(lambda: bool(bench.link.reports))

    bench = while_working(act, hanging=["h1"], step_timeout_s=0.5)
    assert bench.hypervisor.given_up == bench.hosts.failures


def test_a_ring_during_a_step_is_not_lost() -> None:
    async def act(bench: Bench) -> None:
        await until(lambda: "h1" in bench.hypervisor.asked)
        bench.hosts.ring(["h1"])
        bench.hypervisor.hanging.clear()
        await until(lambda: ("h1", "h1-boot-0") in bench.link.claims)

    bench = while_working(act, hanging=["h1"], step_timeout_s=1.0)
    assert bench.hosts.failures == 1


@pytest.mark.parametrize("failure", [NotFound("who are you"), ZeroDivisionError()])
def test_a_confirmation_that_breaks_ends_nothing_and_is_sent_again(failure: Exception) -> None:
    async def act(bench: Bench) -> None:
        bench.link.refuse("confirm", failure)
        bench.show(showing(an_event("E1", "h1"), an_event("E2", "h2")))
        await until(lambda: len(bench.link.confirmed) >= 2)

    bench = while_working(act)
    assert bench.link.confirmed == [("h2", "web", 2), ("h1", "web", 2)]
    assert bench.hosts.failures == (1 if isinstance(failure, ZeroDivisionError) else 0)


def test_how_long_every_heartbeat_took_is_counted_also_if_it_failed() -> None:
    async def run() -> Bench:
        bench = Bench()
        await bench.hosts.heartbeat()
        bench.link.refuse("turn", Unavailable("away"))
        await bench.hosts.heartbeat()
        return bench

    [times] = asyncio.run(run()).hosts.heartbeat_times.collect()
    counts = {sample.name: sample.value for sample in times.samples}
    assert counts["forewarn_heartbeat_seconds_count"] == 4


@pytest.mark.parametrize(
    "failure", [Unavailable("down"), NotFound("who are you"), ZeroDivisionError()]
)
def test_a_heartbeat_that_is_refused_does_not_keep_the_others_from_beating(
    failure: Exception,
) -> None:
    async def main() -> list[str]:
        bench = Bench()
        bench.link.refuse("turn", failure)
        await bench.hosts.heartbeat()
        await bench.hosts.heartbeat()
        return [host for host, _ in bench.link.heartbeats]

    assert len(asyncio.run(main())) == 3


def test_a_busy_host_whose_heartbeat_waits_for_control_keeps_no_other_from_beating() -> None:
    async def main() -> None:
        bench = Bench(("h1", "h2", "h3"))
        bench.link.to_do["h1"] = [an_action()]
        await bench.hosts.work_once()
        assert bench.hosts.held == 1
        waits, say = asyncio.Event(), bench.link.turn

        async def slow(host: str, said: Turn) -> TurnTaken:
            if said.holding:
                await waits.wait()
            return await say(host, said)

        bench.link.turn = slow  # type: ignore[method-assign]
        beating = asyncio.ensure_future(bench.hosts.heartbeat())
        await until(lambda: len(bench.link.heartbeats) == 2)
        assert [host for host, _ in bench.link.heartbeats] == ["h2", "h3"]
        waits.set()
        await beating
        assert bench.link.heartbeats[-1] == ("h1", {"E1/h1": 1})

    asyncio.run(main())


def test_heartbeats_that_wait_for_control_wait_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a stall every host is late, and each turn is a commit: in a row they would be late
    again by the next one.
    """
    monkeypatch.setattr("forewarn.host.daemon.TAKEN_AT_ONCE_S", -1.0)  # the first one has waited

    async def main() -> None:
        names = [f"h{number}" for number in range(20)]
        bench = Bench(names)
        waiting, say, go_on = 0, bench.link.turn, asyncio.Event()

        async def commits(host: str, said: Turn) -> TurnTaken:
            nonlocal waiting
            waiting += 1
            if host != names[0]:
                await go_on.wait()
            return await say(host, said)

        bench.link.turn = commits  # type: ignore[method-assign]
        beating = asyncio.ensure_future(bench.hosts.heartbeat())
        await until(lambda: waiting == len(names))
        go_on.set()
        await beating
        assert sorted({host for host, _ in bench.link.heartbeats}) == sorted(names)

    asyncio.run(main())


def test_what_is_new_since_a_turn_began_is_said_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forewarn.host.daemon.HEARTBEAT_EVERY_S", 3_600.0)

    async def act(bench: Bench) -> None:
        await until(lambda: len(bench.link.heartbeats) == 2)  # the first of all
        bench.link.kept_waiting["h1"] = asyncio.Event()
        bench.show(showing(an_event("E1", "h1")))
        await until(lambda: bool(bench.link.asked_to_confirm))
        bench.link.heartbeats.clear()
        bench.hosts.beat()
        await until(lambda: any(host == "h2" for host, _ in bench.link.heartbeats))
        bench.link.kept_waiting["h1"].set()
        await until(lambda: len(bench.link.heartbeats) == 3)

    bench = while_working(act)
    assert sorted(host for host, _ in bench.link.heartbeats) == ["h1", "h1", "h2"]


def test_what_there_is_to_say_is_said_in_a_heartbeat_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("forewarn.host.daemon.HEARTBEAT_EVERY_S", 3_600.0)

    async def act(bench: Bench) -> None:
        await until(lambda: len(bench.link.heartbeats) == 2)
        bench.hosts.beat()
        await until(lambda: len(bench.link.heartbeats) == 4)

    bench = while_working(act)
    assert [host for host, _ in bench.link.heartbeats] == ["h1", "h2", "h1", "h2"]


def test_hosts_come_and_go_with_the_inventory() -> None:
    async def act(bench: Bench) -> None:
        await until(lambda: len(bench.link.claims) >= 2)
        bench.hosts.set_names(["h2", "h3"])
        bench.hosts.ring(["h1", "h3"])
        await until(lambda: ("h3", "h3-boot-0") in bench.link.claims)
        bench.link.heartbeats.clear()
        await bench.hosts.heartbeat()
        assert {host for host, _ in bench.link.heartbeats} == {"h2", "h3"}

    bench = while_working(act)
    assert [host for host, _ in bench.link.claims].count("h1") == 1


def test_a_host_keeps_its_claims_when_others_come() -> None:
    async def main() -> dict[str, int]:
        bench = Bench()
        bench.link.to_do["h1"] = [msgspec.structs.replace(an_action(), duration_s=60)]
        bench.hosts.ring(["h1"])
        work = asyncio.ensure_future(bench.hosts.run())
        await until(lambda: ("h1", "h1-boot-0") in bench.link.claims)
        bench.hosts.set_names(["h1", "h2", "h3"])
        bench.link.heartbeats.clear()
        await until(lambda: len(bench.link.claims) > 2)
        await bench.hosts.heartbeat()
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        return dict(bench.link.heartbeats)["h1"]

    assert asyncio.run(main()) == {"E1/h1": 1}
