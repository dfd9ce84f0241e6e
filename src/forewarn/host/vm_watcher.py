"""What a host sees on its hypervisor: looked at when something may be new, arranged, and told.

Three loops that do not wait for each other: looking at the machines and arranging channels for
them, telling control what was seen, and writing down what the operator adopts. A hypervisor that
is away proves nothing about its VMs: nothing is told of it, and what is served stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from forewarn.core.errors import Invalid, Refusal, Unavailable
from forewarn.core.inventory.host_report import SeenVm
from forewarn.doorbell import rung
from forewarn.host.channels.plan import ChannelProblem, cut_off
from forewarn.logs import Log
from forewarn.ports import HostLink, HypervisorFailed, Machines
from forewarn.wire.link import Adoption
from forewarn.wire.link_values import traits_of

log = Log(__name__)

LOOK_EVERY_S = 30.0
LOOK_AGAIN_S = 2.0  # after a look that showed nothing, or channels that could not all be opened
LOOK_TIMEOUT_S = 30.0
ARRANGE_TIMEOUT_S = 30.0
# What is told must be what is: a VM that was deleted a moment ago must not come back by a report.
FRESH_S = 0.5
DEBOUNCE_S = 0.1  # a VM that starts rings several times
TELL_EVERY_S = 30.0
TELL_AGAIN_S = 2.0
ADOPT_TIMEOUT_S = 10.0
ADOPTIONS_QUEUED_MAX = 1_000
ANSWER_ATTEMPTS = 5
ANSWER_AGAIN_S = 1.0


class Arranging(Protocol):
    """The ways by which VMs ask: `host.channels.channel_setup`."""

    async def arrange(self, seen: Sequence[SeenVm]) -> Sequence[ChannelProblem]: ...


class VmWatcher:
    """The machines of one host. Belongs to the event loop.

    `witness` is told what is seen before channels are arranged for it. `boot_id` is that of the
    machine, or raises HypervisorFailed; control is told in which boot something was seen.
    """

    def __init__(
        self,
        host: str,
        *,
        machines: Machines,
        link: HostLink,
        channels: Arranging,
        witness: Callable[[Sequence[SeenVm]], None],
        boot_id: Callable[[], Awaitable[str]],
    ) -> None:
        self._host = host
        self._boot_id = boot_id
        self._machines = machines
        self._link = link
        self._channels = channels
        self._witness = witness
        self._look_ring = asyncio.Event()
        self._tell_ring = asyncio.Event()
        self._adoptions: asyncio.Queue[Adoption] = asyncio.Queue(ADOPTIONS_QUEUED_MAX)
        self._told: tuple[SeenVm, ...] | None = None
        self._looking = asyncio.Lock()
        self._looked_s = 0.0
        self._said: dict[str, frozenset[str]] = {}
        self.seen: tuple[SeenVm, ...] | None = None  # None while they are not known
        self._unreachable = ""  # why the VMs are not known
        self.reports_taken = 0
        self.failures = 0
        self.problems: Mapping[str, str] = {}
        self.channel_problems: tuple[str, ...] = ()
        self.cut_off: frozenset[str] = frozenset()  # VMs that ask and are not heard
        machines.on_change(self.ring)

    def ring(self) -> None:
        """There may be something new to see."""
        self._look_ring.set()

    def tell_again(self) -> None:
        """Control may have forgotten what it was told."""
        self._told = None
        self._tell_ring.set()

    def adopt(self, adoption: Adoption) -> None:
        """Write traits to a VM and answer control. What does not fit is not answered."""
        try:
            self._adoptions.put_nowait(adoption)
        except asyncio.QueueFull:
            log.warning("adoption_dropped", host=self._host, vm=adoption.vm)

    async def run(self) -> None:
        """Look, tell and adopt until canceled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._look_always())
            tasks.create_task(self._tell_always())
            tasks.create_task(self._adopt_always())

    # Looking.

    async def _look_always(self) -> None:
        good = self.seen is not None and not self.channel_problems  # of the look before
        while True:
            await rung(self._look_ring, LOOK_EVERY_S if good else LOOK_AGAIN_S)
            await asyncio.sleep(DEBOUNCE_S)
            self._look_ring.clear()
            good = await self.look()

    async def look(self) -> bool:
        """Look once and arrange for what is seen. False if it should be done again soon."""
        async with self._looking:
            return await self._look()

    async def _look(self) -> bool:
        looked_s = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(LOOK_TIMEOUT_S):
                seen = tuple(sorted(await self._machines.seen(), key=lambda vm: vm.name))
        except (HypervisorFailed, TimeoutError) as why:
            if not self._unreachable:
                self._tell_ring.set()
            self.seen, self._unreachable = None, str(why) or "no answer in time"
            self._say("machines_not_seen", [self._unreachable])
            return False
        except Exception as error:  # noqa: BLE001 - the top of a turn; `_broke` logs it
            self._broke("look_failed", error)
            return False
        self._say("machines_not_seen", [])
        self.seen = seen
        self._looked_s = looked_s
        if seen != self._told or self._unreachable:
            self._tell_ring.set()
        self._unreachable = ""
        return await self._arrange(seen)

    async def _arrange(self, seen: Sequence[SeenVm]) -> bool:
        self._witness(seen)
        try:
            async with asyncio.timeout(ARRANGE_TIMEOUT_S):
                problems = await self._channels.arrange(seen)
        except TimeoutError:
            self._say("channel_problem", ["the channels of the VMs were not arranged in time"])
            return False
        except Exception as error:  # noqa: BLE001 - the top of a turn; `_broke` logs it
            self._broke("arranging_failed", error)
            return False
        self._say("channel_problem", [])
        self.channel_problems = tuple(str(problem) for problem in problems)  # logged there
        self.cut_off = cut_off(seen, problems)
        return not problems

    # Telling.

    async def _tell_always(self) -> None:
        told = True
        while True:
            await rung(self._tell_ring, TELL_EVERY_S if told else TELL_AGAIN_S)
            self._tell_ring.clear()
            told = await self.tell()

    async def tell(self) -> bool:
        """Tell control what is seen now, or why nothing is. False if it did not hear."""
        if asyncio.get_running_loop().time() - self._looked_s > FRESH_S:
            await self.look()
            self._tell_ring.clear()
        seen = self.seen
        try:
            if seen is None:
                if self._unreachable:
                    await self._link.blind(self._unreachable)
                return True
            self.problems = dict(await self._link.sight(seen, await self._boot()))
        except (Refusal, Unavailable) as why:
            self._say("report_not_taken", [str(why)])
            return False
        except Exception as error:  # noqa: BLE001 - the top of a turn; `_broke` logs it
            self._broke("telling_failed", error)
            return False
        self.reports_taken += 1
        self._told = seen
        self._say("report_not_taken", [])
        self._say("vm_problem", [f"{vm}: {words}" for vm, words in self.problems.items()])
        return True

    async def _boot(self) -> str:
        """The boot of this machine; empty if its hypervisor cannot say."""
        try:
            return await self._boot_id()
        except HypervisorFailed:
            return ""

    # Adopting.

    async def _adopt_always(self) -> None:
        while True:
            adoption = await self._adoptions.get()
            problem = await self._write(adoption)
            self.ring()
            await self._answer(adoption, problem)

    async def _write(self, adoption: Adoption) -> str:
        """Why the traits could not be written; empty if they are."""
        try:
            async with asyncio.timeout(ADOPT_TIMEOUT_S):
                await self._machines.adopt(adoption.vm, traits_of(adoption.traits))
        except HypervisorFailed as failed:
            return str(failed)
        except Invalid:
            return "The host daemon does not know a word of these traits. Upgrade it."
        except TimeoutError:
            return f"The hypervisor of {self._host} did not write it within {ADOPT_TIMEOUT_S:g} s."
        except Exception:
            log.exception("adoption_failed", host=self._host, vm=adoption.vm)
            self.failures += 1
            return "The host daemon failed; its log says why."
        log.info("adopted", host=self._host, vm=adoption.vm, scope=adoption.traits.scope)
        return ""

    async def _answer(self, adoption: Adoption, problem: str) -> None:
        for _ in range(ANSWER_ATTEMPTS):
            try:
                await self._link.adopted(adoption.adoption_id, problem)
            except Unavailable:
                await asyncio.sleep(ANSWER_AGAIN_S)
            except Refusal as why:  # no caller waits for it any more
                log.warning("adoption_not_wanted", vm=adoption.vm, why=str(why))
                return
            else:
                return

    def _broke(self, what: str, error: Exception) -> None:
        """Count an error of ours, and log it once: what breaks one turn breaks the next."""
        self.failures += 1
        words = frozenset([repr(error)])
        if self._said.get(what) != words:
            log.exception(what, host=self._host)  # noqa: LOG004 - called inside its `except`
        self._said[what] = words

    def _say(self, what: str, words: Sequence[str]) -> None:
        """Log what is new since this was said last; with nothing, what was is over."""
        before = self._said.get(what, frozenset())
        self._said[what] = frozenset(words)
        for one in words:
            if one not in before:
                log.warning(what, host=self._host, why=one)
        if before and not words:
            log.info("problem_over", host=self._host, what=what)
