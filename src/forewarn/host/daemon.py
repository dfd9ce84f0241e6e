"""The hosts of one process: their heartbeats, their hands, and their word that documents show.

Rings make it quick; a sweep over every host makes it sure. Nothing here decides anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterable

from forewarn.core.errors import Refusal, Unavailable
from forewarn.host.confirming import Confirmations
from forewarn.host.documents import Documents
from forewarn.host.executor import Executor
from forewarn.host.measures import heartbeat_times
from forewarn.host.ringing import rung
from forewarn.logs import Log
from forewarn.ports import HostLink, Hypervisor
from forewarn.wire.link import ShownScope

log = Log(__name__)

HEARTBEAT_EVERY_S = 5.0
SWEEP_EVERY_S = 10.0
BUSY_STEP_EVERY_S = 0.1
STEPS_AT_ONCE = 32  # of those that are quick; a slow one gives its turn to the others
STEP_TURN_S = 1.0
STEP_TIMEOUT_S = 30.0  # then a step is given up; the next one looks at what has really happened
LINK_TIMEOUT_S = 10.0  # one heartbeat or confirmation
CONFIRM_AGAIN_S = 0.5


class Hosts:
    """Runs one executor per host and confirms what is shown. Belongs to the event loop.

    A host takes one step at a time, and a host that hangs or breaks keeps no other from working.
    What is shown but not `readable`, because a way to its guests is broken, is not confirmed: its
    notice does not run. `links` makes the link of a host. While `obeys` says no, nothing new is
    begun; `refuses` tells control why. A host that is not `powered` says nothing at all.
    """

    def __init__(
        self,
        names: Iterable[str],
        *,
        links: Callable[[str], HostLink],
        hypervisor: Hypervisor,
        documents: Documents,
        step_timeout_s: float = STEP_TIMEOUT_S,
        busy_step_every_s: float = BUSY_STEP_EVERY_S,
        readable: Callable[[ShownScope], bool] = lambda _: True,
        obeys: Callable[[], bool] = lambda: True,
        refuses: Callable[[], str] = lambda: "",
        powered: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self._new_link = links
        self._links: dict[str, HostLink] = {}
        self._hypervisor = hypervisor
        self._confirming = Confirmations(
            documents, confirm=self._confirm, readable=readable, powered=powered
        )
        self._executors: dict[str, Executor] = {}
        self._step_timeout_s = step_timeout_s
        self._busy_step_every_s = busy_step_every_s
        self._obeys = obeys
        self._refuses = refuses
        self._powered = powered
        self._why_not: dict[tuple[str, str], str] = {}
        self._beat = asyncio.Event()
        self._ring = asyncio.Event()
        self._wanted: set[str] = set()  # to claim; who is busy only looks at what it holds
        self._looking: set[str] = set()
        self._stepping: set[str] = set()
        self._turns = asyncio.Semaphore(STEPS_AT_ONCE)
        self._newly_shown = asyncio.Event()
        self._broken = 0
        self.heartbeats = 0
        self.heartbeat_times = heartbeat_times()
        self.set_names(names)

    @property
    def failures(self) -> int:
        """Steps, heartbeats and confirmations that broke or hung."""
        return self._broken + self._confirming.failures

    @property
    def held(self) -> int:
        """How many claims these hosts hold."""
        return sum(executor.held for executor in self._executors.values())

    def set_names(self, names: Iterable[str]) -> None:
        """Have exactly these hosts."""
        wanted = set(names)
        for name in sorted(wanted - self._executors.keys()):
            self._links[name] = self._new_link(name)
            self._executors[name] = self._executor(name)
            self._wanted.add(name)
        for name in sorted(self._executors.keys() - wanted):
            del self._executors[name], self._links[name]
            self._confirming.forget(name)
            self._why_not = {k: why for k, why in self._why_not.items() if k[1] != name}

    def _executor(self, name: str) -> Executor:
        return Executor(
            name,
            link=self._links[name],
            hypervisor=self._hypervisor,
            obeys=self._obeys,
            refuses=self._refuses,
        )

    def died(self, name: str) -> None:
        """A host has lost its power, and what it held in its hands with it."""
        if name in self._executors:
            self._executors[name] = self._executor(name)

    def booted(self, name: str) -> None:
        """A host has power again: it looks what there is to do, and what it shows."""
        self.ring([name])
        self._newly_shown.set()

    def ring(self, hosts: Iterable[str]) -> None:
        """These hosts have something to do."""
        self._wanted.update(hosts)
        if self._wanted:
            self._ring.set()

    def beat(self) -> None:
        """Have the next heartbeat now: there is something to say in it."""
        self._beat.set()

    def shown(self, host: str, scope: ShownScope) -> None:
        """The scope's document is on show at the host, which says so if control wants to hear."""
        self._confirming.shown(host, scope)
        if self._confirming:
            self._newly_shown.set()

    async def run(self) -> None:
        """Work until canceled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._heartbeats())
            tasks.create_task(self._confirmations())
            tasks.create_task(self._steps(tasks))

    async def work_once(self) -> None:
        """Confirm what is shown, have every host claim that is wanted, then every busy one work.

        By name. The claims are asked for together, so that they share a commit; what follows from
        them is done host after host, so that it happens in the same order in every run.
        For whoever drives the hosts step by step instead of by `run`; never both.
        """
        await self._confirm_all()
        names, self._wanted = sorted(self._wanted & self._executors.keys()), set()
        await asyncio.gather(*(self._step_one(self._executors[name], work=False) for name in names))
        for name in sorted(name for name, executor in self._executors.items() if executor.busy):
            executor = self._executors.get(name)
            if executor is not None:
                await self._step_one(executor, claim=False)

    async def heartbeat(self, of: Container[str] | None = None) -> None:
        """One heartbeat of every host, or `of` some. Those that fail are logged and counted.

        Busy hosts renew what they hold, which takes a turn of control; no other waits for that.
        """
        executors = [
            executor
            for name, executor in self._executors.items()
            if (of is None or name in of) and self._powered(name)
        ]
        async with asyncio.TaskGroup() as renewing:
            for executor in executors:
                if executor.busy:
                    renewing.create_task(self._beat_one(executor))
            for executor in executors:
                if not executor.busy:
                    await self._beat_one(executor)

    async def _beat_one(self, executor: Executor) -> None:
        now_s = asyncio.get_running_loop().time
        began_s = now_s()
        try:
            async with asyncio.timeout(LINK_TIMEOUT_S):
                await executor.heartbeat()
            self.heartbeats += 1
            self._why_not.pop(("heartbeat_refused", executor.host), None)
        except (Refusal, Unavailable) as why:
            self._say_once("heartbeat_refused", executor.host, str(why))
        except Exception:
            log.exception("heartbeat_failed", host=executor.host)  # the other hosts beat on
            self._broken += 1
        self.heartbeat_times.observe(now_s() - began_s)

    def _say_once(self, what: str, host: str, why: str) -> None:
        """Log what control would not take, once for each reason: it may be away for hours."""
        if self._why_not.get((what, host)) != why:
            log.warning(what, host=host, why=why)
        self._why_not[what, host] = why

    async def _heartbeats(self) -> None:
        while True:
            self._beat.clear()
            await self.heartbeat()
            await rung(self._beat, HEARTBEAT_EVERY_S)

    # What is shown.

    async def _confirmations(self) -> None:
        while True:
            self._newly_shown.clear()  # first: what is shown from here on is not slept through
            all_kept = await self._confirm_all()
            if self._confirming:
                pause_s = BUSY_STEP_EVERY_S if all_kept else CONFIRM_AGAIN_S
                await rung(self._newly_shown, pause_s)
            else:
                await self._newly_shown.wait()

    async def _confirm_all(self) -> bool:
        """Every host confirms what it shows, all at the same time, so that they share commits."""
        hosts = self._confirming.hosts
        for name in hosts:
            if name not in self._executors:
                self._confirming.forget(name)
        ours = [name for name in hosts if name in self._executors]
        return all(await asyncio.gather(*(self._confirming.once(name) for name in ours)))

    async def _confirm(self, host: str, scope: str, incarnation: int) -> None:
        async with asyncio.timeout(LINK_TIMEOUT_S):
            await self._links[host].confirm(scope, incarnation)

    # Steps.

    async def _steps(self, tasks: asyncio.TaskGroup) -> None:
        """Begin what is rung for at once, what is busy soon, and everything by a sweep."""
        now_s = asyncio.get_running_loop().time
        sweep_at_s = busy_at_s = now_s()
        while True:
            self._ring.clear()  # first: what is rung for from here on is not slept through
            if now_s() >= sweep_at_s:
                sweep_at_s = now_s() + SWEEP_EVERY_S
                self._wanted.update(self._executors)
            busy = [name for name, executor in self._executors.items() if executor.busy]
            if now_s() >= busy_at_s:
                busy_at_s = now_s() + self._busy_step_every_s
                self._looking.update(busy)
            self._begin(tasks)
            await rung(self._ring, (min(busy_at_s, sweep_at_s) if busy else sweep_at_s) - now_s())

    def _begin(self, tasks: asyncio.TaskGroup) -> None:
        """Begin the steps that are wanted; a host in the middle of one stays wanted."""
        for name in sorted((self._wanted | self._looking) - self._stepping):
            executor = self._executors.get(name)
            if executor is not None:
                self._stepping.add(name)
                claim = name in self._wanted
                tasks.create_task(self._step_one(executor, claim=claim))
            self._wanted.discard(name)
            self._looking.discard(name)

    async def _step_one(self, executor: Executor, *, claim: bool = True, work: bool = True) -> None:
        name = executor.host
        try:
            await self._step_within_its_time(executor, claim=claim, work=work)
            self._why_not.pop(("step_put_off", name), None)
        except Unavailable as why:
            self._say_once("step_put_off", name, str(why))
        except Refusal as why:
            self._say_once("step_refused", name, str(why))
        except TimeoutError:
            log.warning("step_timed_out", host=name, after_s=self._step_timeout_s)
            self._broken += 1
        except Exception:
            log.exception("step_failed", host=name)  # the other hosts go on
            self._broken += 1
        finally:
            self._stepping.discard(name)
            if executor.busy or name in self._wanted:
                self._ring.set()

    async def _step_within_its_time(self, executor: Executor, *, claim: bool, work: bool) -> None:
        turn_s = min(STEP_TURN_S, self._step_timeout_s)
        async with self._turns:
            step = asyncio.ensure_future(executor.step(claim=claim, work=work))
            try:
                await asyncio.wait([step], timeout=turn_s)
            except asyncio.CancelledError:
                step.cancel()
                raise
        async with asyncio.timeout(self._step_timeout_s - turn_s):
            await step
