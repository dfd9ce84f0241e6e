"""The hosts of one process: their hands, and their turns to speak.

Rings make it quick; the answer to every turn, which rings too, makes it sure. Nothing here decides
anything.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Container, Iterable
from functools import partial

from forewarn.core.errors import Refusal, Unavailable
from forewarn.doorbell import rung
from forewarn.host.confirmations import Confirmations
from forewarn.host.executor import Executor
from forewarn.host.guest_proxy import GuestProxy
from forewarn.host.metrics import heartbeat_times
from forewarn.host.served_documents import Documents
from forewarn.host.turns import Turns
from forewarn.logs import Log
from forewarn.ports import HostLink, Hypervisor
from forewarn.wire.link import ShownScope

log = Log(__name__)

HEARTBEAT_EVERY_S = 5.0
SWEEP_EVERY_S = 10.0  # hosts whose question for work was not answered, or that are not rung
BUSY_STEP_EVERY_S = 0.1
STEPS_AT_ONCE = 32  # of those that are quick; a slow one gives its turn to the others
STEP_TURN_S = 1.0
STEP_TIMEOUT_S = 30.0  # then a step is given up; the next one looks at what has really happened
LINK_TIMEOUT_S = 10.0  # one turn
SAY_AGAIN_S = 0.5
TAKEN_AT_ONCE_S = 0.002  # what takes longer has waited for a commit
TURNS_AT_ONCE = 64  # then guests that ask meanwhile are answered, however many hosts there are


class Hosts:
    """Runs one executor per host, and has each host say its turn. Belongs to the event loop.

    A host takes one step at a time and says one turn at a time: every few seconds, and soon when
    there is something to say. One that hangs or breaks keeps no other from working.
    What is shown but not `readable`, because a way to its guests is broken, is not confirmed: its
    notice does not run. `links` makes the link of a host; `guests` are those whose traces it tells.
    While `obeys` says no, nothing new is begun; `refuses` tells control why. A host that is not
    `powered` says nothing at all. `unheard` is called when control does not answer a turn.
    """

    def __init__(
        self,
        names: Iterable[str],
        *,
        links: Callable[[str], HostLink],
        hypervisor: Hypervisor,
        documents: Documents,
        monotonic_ms: Callable[[], int],
        guests: Callable[[str], GuestProxy | None] = lambda _: None,
        step_timeout_s: float = STEP_TIMEOUT_S,
        busy_step_every_s: float = BUSY_STEP_EVERY_S,
        sweep_every_s: float = SWEEP_EVERY_S,
        readable: Callable[[ShownScope], bool] = lambda _: True,
        obeys: Callable[[], bool] = lambda: True,
        refuses: Callable[[], str] = lambda: "",
        powered: Callable[[str], bool] = lambda _: True,
        unheard: Callable[[], None] = lambda: None,
    ) -> None:
        self._new_link = links
        self._links: dict[str, HostLink] = {}
        self._hypervisor = hypervisor
        self._confirming = Confirmations(documents, readable=readable, powered=powered)
        self._guests = guests
        self._monotonic_ms = monotonic_ms
        self._executors: dict[str, Executor] = {}
        self._turns: dict[str, Turns] = {}
        self._step_timeout_s = step_timeout_s
        self._busy_step_every_s = busy_step_every_s
        self._sweep_every_s = sweep_every_s
        self._obeys = obeys
        self._refuses = refuses
        self._powered = powered
        self._unheard = unheard
        self._why_not: dict[tuple[str, str], str] = {}
        self._beat = asyncio.Event()
        self._to_say = asyncio.Event()
        self._wanted_turns: set[str] = set()
        self._talking: set[str] = set()  # hosts that say something until it is kept
        self._speaking: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # one turn each
        self._ring = asyncio.Event()
        self._wanted: set[str] = set()  # to claim; who is busy only looks at what it holds
        self._unanswered: set[str] = set()  # who asked for work and has no answer yet
        self._unrung: set[str] = set()  # whose control does not say in turns that there is work
        self._looking: set[str] = set()
        self._stepping: set[str] = set()
        self._places = asyncio.Semaphore(STEPS_AT_ONCE)
        self.failures = 0  # steps and turns that broke or hung
        self.heartbeats = 0
        self.heartbeat_times = heartbeat_times()
        self.set_names(names)

    @property
    def held(self) -> int:
        """How many claims these hosts hold."""
        return sum(executor.held for executor in self._executors.values())

    def set_names(self, names: Iterable[str]) -> None:
        """Have exactly these hosts."""
        wanted = set(names)
        for name in sorted(wanted - self._executors.keys()):
            link = self._links[name] = self._new_link(name)
            self._executors[name] = self._executor(name)
            self._turns[name] = Turns(
                name,
                link=link,
                confirming=self._confirming,
                guests=partial(self._guests, name),
                refuses=self._refuses,
                work=partial(self._told_of_work, name),
            )
            self._wanted.add(name)
        for name in sorted(self._executors.keys() - wanted):
            del self._executors[name], self._links[name], self._turns[name]
            self._speaking.pop(name, None)
            self._unanswered.discard(name)
            self._unrung.discard(name)
            self._confirming.forget(name)
            self._why_not = {k: why for k, why in self._why_not.items() if k[1] != name}

    def _executor(self, name: str) -> Executor:
        return Executor(
            name,
            link=self._links[name],
            hypervisor=self._hypervisor,
            now_ms=self._monotonic_ms,
            obeys=self._obeys,
        )

    def died(self, name: str) -> None:
        """A host has lost its power, and what it held in its hands with it."""
        if name in self._executors:
            self._executors[name] = self._executor(name)

    def booted(self, name: str) -> None:
        """A host has power again: it looks what there is to do, and what it shows."""
        self.ring([name])
        self.want_turn(name)

    def ring(self, hosts: Iterable[str]) -> None:
        """These hosts have something to do."""
        self._wanted.update(hosts)
        if self._wanted:
            self._ring.set()

    def _told_of_work(self, host: str, work: bool | None) -> None:  # noqa: FBT001 - as it was said
        """Control says in its answer to a turn whether the host has something to claim."""
        if work is None:
            self._unrung.add(host)
        else:
            self._unrung.discard(host)
        if work:
            self.ring([host])

    def beat(self) -> None:
        """Have the next turn of every host now: there is something to say in it."""
        self._beat.set()

    def want_turn(self, host: str) -> None:
        """The host has something to say: it has its turn soon."""
        self._wanted_turns.add(host)
        self._to_say.set()

    def shown(self, host: str, scope: ShownScope) -> None:
        """The scope's document is on show at the host, which says so if control wants to hear."""
        self._confirming.shown(host, scope)
        if scope.to_confirm:
            self.want_turn(host)

    async def run(self) -> None:
        """Work until canceled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._heartbeats())
            tasks.create_task(self._talks(tasks))
            tasks.create_task(self._steps(tasks))

    async def work_once(self) -> None:
        """Have every host say what it shows, claim what is wanted, then work and say how it went.

        By name. What is said first and the claims are asked for together, so that they share a
        commit; what follows is done host after host, so that it happens in the same order in every
        run. For a caller that drives the hosts step by step instead of by `run`; never both.
        """
        await asyncio.gather(*(self._turn_of(name) for name in self._confirming.hosts))
        names, self._wanted = sorted(self._wanted & self._executors.keys()), set()
        await asyncio.gather(*(self._step_one(self._executors[name], work=False) for name in names))
        for name in sorted(name for name, executor in self._executors.items() if executor.busy):
            executor = self._executors.get(name)
            if executor is not None:
                await self._step_one(executor, claim=False)
                if executor.ended:
                    await self._turn_of(name)

    # Turns.

    async def heartbeat(self, of: Container[str] | None = None, *, anew: bool = False) -> None:
        """One turn of every host, or `of` some. Those that fail are logged and counted.

        Most are taken at once, one after the other. Those that wait for control do so together, and
        share its commits. A turn that is under way is a sign of life too, unless `anew`.
        """
        names = [name for name in self._executors if of is None or name in of]
        taken = 0
        now_s = asyncio.get_running_loop().time
        waits = False
        async with asyncio.TaskGroup() as waiting:
            for name in names:
                executor = self._executors.get(name)
                if executor is None or (self._speaking[name].locked() and not anew):
                    continue
                busy = executor.busy or self._speaking[name].locked()
                if waits or busy or self._turns[name].waiting(executor):
                    waiting.create_task(self._turn_of(name))
                else:
                    began_s = now_s()
                    await self._turn_of(name)
                    waits = now_s() - began_s > TAKEN_AT_ONCE_S
                taken += 1
                if taken % TURNS_AT_ONCE == 0:
                    await asyncio.sleep(0)

    async def say(self, host: str) -> bool:
        """One turn of the host, if it is ours. Raises Refusal, or Unavailable.

        False if some of it has to be said again, and not at once.
        """
        async with self._speaking[host], asyncio.timeout(LINK_TIMEOUT_S):
            executor = self._executors.get(host)
            return executor is None or await self._turns[host].once(executor)

    async def _turn_of(self, host: str) -> bool:
        """One turn of the host, if it has power. False if some of it is to be said later."""
        if host not in self._executors:
            self._confirming.forget(host)
            return True
        if not self._powered(host):
            return False
        now_s = asyncio.get_running_loop().time
        began_s = now_s()
        try:
            kept = await self.say(host)
            self.heartbeats += 1
            self._why_not.pop(("turn_refused", host), None)
        except (Refusal, Unavailable) as why:
            self._say_once("turn_refused", host, str(why))
            if isinstance(why, Unavailable):
                self._unheard()
            return False
        except Exception:
            log.exception("turn_failed", host=host)  # the other hosts go on
            self.failures += 1
            return False
        finally:
            self.heartbeat_times.observe(now_s() - began_s)
        return kept

    def _say_once(self, what: str, host: str, why: str) -> None:
        """Log what control would not take, once for each reason: it may be away for hours."""
        if self._why_not.get((what, host)) != why:
            log.warning(what, host=host, why=why)
        self._why_not[what, host] = why

    async def _heartbeats(self) -> None:
        while True:
            anew = self._beat.is_set()
            self._beat.clear()
            await self.heartbeat(anew=anew)
            await rung(self._beat, HEARTBEAT_EVERY_S)

    async def _talks(self, tasks: asyncio.TaskGroup) -> None:
        """Give every host its turn that has something to say, all at the same time."""
        while True:
            await self._to_say.wait()
            self._to_say.clear()
            for number, name in enumerate(sorted(self._wanted_turns - self._talking), 1):
                self._talking.add(name)
                tasks.create_task(self._talk(name))
                if number % TURNS_AT_ONCE == 0:
                    await asyncio.sleep(0)

    async def _talk(self, host: str) -> None:
        """Have the host say what there is until control has taken it."""
        try:
            while host in self._executors:
                self._wanted_turns.discard(host)
                taken = False
                if self._turns[host].waiting(self._executors[host]):
                    taken = await self._turn_of(host)
                if not self._left_to_say(host):
                    return
                await asyncio.sleep(0 if taken else SAY_AGAIN_S)
        finally:
            self._wanted_turns.discard(host)
            self._talking.discard(host)

    def _left_to_say(self, host: str) -> bool:
        executor = self._executors.get(host)
        if executor is None or not self._powered(host):
            return False
        return self._confirming.waits(host) or self._turns[host].waiting(executor)

    # Steps.

    async def _steps(self, tasks: asyncio.TaskGroup) -> None:
        """Begin the steps of rung hosts at once, of busy ones soon, of all others by a sweep."""
        now_s = asyncio.get_running_loop().time
        sweep_at_s = busy_at_s = now_s()
        while True:
            self._ring.clear()  # first: what is rung for from here on is not slept through
            if now_s() >= sweep_at_s:
                sweep_at_s = now_s() + self._sweep_every_s
                self._wanted.update(self._unanswered | self._unrung)
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
                if claim:
                    self._unanswered.add(name)
                tasks.create_task(self._step_one(executor, claim=claim))
            self._wanted.discard(name)
            self._looking.discard(name)

    async def _step_one(self, executor: Executor, *, claim: bool = True, work: bool = True) -> None:
        name = executor.host
        try:
            if await self._step_within_its_time(executor, claim=claim, work=work):
                self._unanswered.discard(name)
            self._why_not.pop(("step_put_off", name), None)
        except Unavailable as why:
            self._say_once("step_put_off", name, str(why))
        except Refusal as why:
            self._say_once("step_refused", name, str(why))
        except TimeoutError:
            log.warning("step_timed_out", host=name, after_s=self._step_timeout_s)
            self.failures += 1
        except Exception:
            log.exception("step_failed", host=name)  # the other hosts go on
            self.failures += 1
        finally:
            self._stepping.discard(name)
            if executor.busy or name in self._wanted:
                self._ring.set()
            if executor.ended:
                self.want_turn(name)

    async def _step_within_its_time(self, executor: Executor, *, claim: bool, work: bool) -> bool:
        turn_s = min(STEP_TURN_S, self._step_timeout_s)
        async with self._places:
            step = asyncio.ensure_future(executor.step(claim=claim, work=work))
            try:
                await asyncio.wait([step], timeout=turn_s)
            except asyncio.CancelledError:
                step.cancel()
                raise
        async with asyncio.timeout(self._step_timeout_s - turn_s):
            return await step
