"""What a host sees of its machines: looked at, arranged for, told, adopted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import pytest

from forewarn.adapters.simulated.hypervisor import SimulatedHypervisor
from forewarn.core.errors import Unavailable
from forewarn.core.inventory.host_report import SeenVm, Traits
from forewarn.host.channels.plan import ChannelProblem
from forewarn.host.vm_watcher import VmWatcher
from forewarn.wire.link import Adoption
from forewarn.wire.link_values import vm_traits
from support.clock import ManualClock
from support.host_world import a_vm
from support.simulated_machines import SimulatedWorld
from support.unasked_link import UnaskedLink
from support.waiting import until


class Control(UnaskedLink):
    """Keeps what it is told; raises what is in `refusals`, one each."""

    def __init__(self) -> None:
        self.reports: list[tuple[str, ...]] = []
        self.boots: list[str] = []
        self.answers: list[tuple[str, str]] = []
        self.blindness: list[str] = []
        self.problems: dict[str, str] = {}
        self.refusals: list[Exception] = []

    async def sight(self, vms: Sequence[SeenVm], boot_id: str = "") -> Mapping[str, str]:
        if self.refusals:
            raise self.refusals.pop(0)
        self.reports.append(tuple(vm.name for vm in vms))
        self.boots.append(boot_id)
        return self.problems

    async def blind(self, why: str) -> None:
        if self.refusals:
            raise self.refusals.pop(0)
        self.blindness.append(why)

    async def adopted(self, adoption_id: str, problem: str) -> None:
        self.answers.append((adoption_id, problem))


class Arranged:
    """Keeps what it is to arrange."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, ...]] = []
        self.problems: list[ChannelProblem] = []
        self.breaks: Exception | None = None

    async def arrange(self, seen: Sequence[SeenVm]) -> Sequence[ChannelProblem]:
        if self.breaks is not None:
            raise self.breaks
        self.seen.append(tuple(vm.name for vm in seen))
        return self.problems


class Bench:
    """One host with two simulated VMs. Made inside an event loop."""

    def __init__(self) -> None:
        self.world = SimulatedWorld(SimulatedHypervisor(ManualClock()))
        self.world.put("h1", [a_vm("web_1"), a_vm("web_0")])
        self.machines = self.world.on("h1")
        self.control = Control()
        self.channels = Arranged()
        self.witnessed: list[int] = []
        self.watch = VmWatcher(
            "h1",
            machines=self.machines,
            link=self.control,
            channels=self.channels,
            witness=lambda seen: self.witnessed.append(len(seen)),
            boot_id=partial(self.world.hypervisor.boot_id, "h1"),
        )


def run(test: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        await asyncio.wait_for(test(Bench()), 100)

    asyncio.run(main())


async def running(bench: Bench, look: Callable[[], Any], what: str) -> None:
    """Let the watch run until there is something to see."""
    watching = asyncio.ensure_future(bench.watch.run())
    try:
        await until(look, what)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


def test_what_is_seen_is_arranged_for_and_told() -> None:
    async def test(bench: Bench) -> None:
        assert await bench.watch.look()
        assert bench.channels.seen == [("web_0", "web_1")]
        assert bench.witnessed == [2]

        assert await bench.watch.tell()
        assert bench.control.reports == [("web_0", "web_1")]

    run(test)


def test_a_change_is_told_soon_after_it_rang() -> None:
    async def test(bench: Bench) -> None:
        await bench.watch.look()
        bench.world.put("h1", [a_vm("web_2")])
        await running(
            bench,
            lambda: bench.control.reports[-1:] == [("web_0", "web_1", "web_2")],
            "the new VM is told",
        )
        assert bench.channels.seen[-1] == ("web_0", "web_1", "web_2")

    run(test)


def test_a_hypervisor_that_is_away_proves_nothing() -> None:
    async def test(bench: Bench) -> None:
        await bench.watch.look()
        bench.machines.away = "Libvirt cannot be reached."
        assert not await bench.watch.look()
        assert bench.watch.seen is None
        assert await bench.watch.tell()

        assert bench.control.reports == []
        assert bench.channels.seen == [("web_0", "web_1")]  # what is served stays

    run(test)


def test_that_a_hypervisor_is_away_is_told_soon_with_why_and_so_is_its_return() -> None:
    async def test(bench: Bench) -> None:
        await bench.watch.look()
        await bench.watch.tell()
        bench.machines.away = "Libvirt cannot be reached."
        bench.control.refusals = [Unavailable("away")]
        bench.watch.ring()
        await running(bench, lambda: bench.control.blindness, "it is told, at the second attempt")
        assert set(bench.control.blindness) == {"Libvirt cannot be reached."}

        bench.machines.away = ""
        bench.watch.ring()
        await running(bench, lambda: len(bench.control.reports) > 1, "they are seen again")

    run(test)


def test_a_hypervisor_that_was_away_at_the_start_is_looked_for_soon() -> None:
    async def test(bench: Bench) -> None:
        bench.machines.away = "Libvirt cannot be reached."
        await bench.watch.look()
        bench.machines.away = ""
        await running(bench, lambda: bench.watch.seen is not None, "it is seen")
        assert bench.channels.seen[-1] == ("web_0", "web_1")

    run(test)


def test_what_is_told_is_what_is_and_not_what_was() -> None:
    async def test(bench: Bench) -> None:
        await bench.watch.look()
        bench.watch._looked_s = 0.0  # long ago
        bench.world.take("web_1")
        await bench.watch.tell()

        assert bench.control.reports == [("web_0",)]

    run(test)


def test_a_sighting_that_was_not_heard_is_told_again() -> None:
    async def test(bench: Bench) -> None:
        await bench.watch.look()
        bench.control.refusals = [Unavailable("away")]
        assert not await bench.watch.tell()
        assert await bench.watch.tell()
        assert bench.watch.reports_taken == 1

    run(test)


def test_after_a_reconnection_control_is_told_again() -> None:
    async def test(bench: Bench) -> None:
        await bench.watch.look()
        await bench.watch.tell()
        bench.watch.tell_again()
        await running(bench, lambda: len(bench.control.reports) == 2, "it is told again")
        assert bench.control.reports == [("web_0", "web_1")] * 2

    run(test)


def test_problems_are_kept_to_be_shown() -> None:
    async def test(bench: Bench) -> None:
        problem = ChannelProblem(where="br7", words="There is no such bridge.", remedy="Make it.")
        bench.channels.problems = [problem]
        bench.control.problems = {"web_0": "its name is taken"}
        assert not await bench.watch.look()  # to be tried again soon
        await bench.watch.tell()

        assert bench.watch.channel_problems == ("br7: There is no such bridge. Make it.",)
        assert bench.watch.problems == {"web_0": "its name is taken"}

    run(test)


def test_channels_that_break_do_not_keep_the_host_from_telling() -> None:
    async def test(bench: Bench) -> None:
        bench.channels.breaks = RuntimeError("a bug")
        assert not await bench.watch.look()
        assert bench.watch.failures == 1
        assert await bench.watch.tell()
        assert bench.control.reports == [("web_0", "web_1")]

    run(test)


@pytest.mark.parametrize(
    ("vm", "problem"), [("web_0", ""), ("nobody", "there is no VM nobody on host h1")]
)
def test_an_adoption_is_written_and_answered(vm: str, problem: str) -> None:
    async def test(bench: Bench) -> None:
        traits = Traits(scope="web", update_domain=2)
        bench.watch.adopt(Adoption("a1", vm, vm_traits(traits)))
        await running(bench, lambda: bench.control.answers, "it is answered")

        assert bench.control.answers == [("a1", problem)]
        found = {seen.name: seen.traits for seen in await bench.machines.seen()}
        assert found["web_0"] == (Traits() if problem else traits)

    run(test)


def test_traits_that_only_a_newer_host_knows_are_answered_with_what_to_upgrade() -> None:
    async def test(bench: Bench) -> None:
        newer = msgspec.structs.replace(vm_traits(Traits(scope="web")), priority="best-effort")
        bench.watch.adopt(Adoption("a1", "web_0", newer))
        await running(bench, lambda: bench.control.answers, "it is answered")
        [(_, problem)] = bench.control.answers
        assert problem.endswith("Upgrade it.")
        assert bench.watch.failures == 0

    run(test)


def test_the_simulated_machines_follow_what_the_hypervisor_does() -> None:
    async def test(bench: Bench) -> None:
        bench.world.hypervisor.kill_host("h1")
        powers = {vm.name: vm.power.value for vm in await bench.machines.seen()}
        assert powers == {"web_0": "off", "web_1": "off"}

    run(test)


def test_control_is_told_in_which_boot_something_was_seen() -> None:
    async def story() -> None:
        bench = Bench()
        await bench.watch.tell()
        bench.world.hypervisor.boot_host("h1")
        bench.watch.tell_again()
        await bench.watch.tell()
        bench.world.hypervisor.kill_host("h1")  # it cannot say; what was seen is told all the same
        await bench.watch.tell()
        assert bench.control.boots == ["h1-boot-0", "h1-boot-1", ""]

    asyncio.run(story())
