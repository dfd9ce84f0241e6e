"""The hosts of one process: their heartbeats, their hands, and their word that documents show.

Rings make it quick; a sweep over every host makes it sure. Nothing here decides anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import structlog

from forewarn.core.errors import Refusal, Unavailable
from forewarn.core.model import Scope
from forewarn.host.documents import Documents
from forewarn.host.executor import Executor
from forewarn.ports import HostLink, Hypervisor

log = structlog.get_logger(__name__)

HEARTBEAT_EVERY_S = 5.0
SWEEP_EVERY_S = 10.0
BUSY_STEP_EVERY_S = 0.1
STEPS_AT_ONCE = 32


class Hosts:
    """Runs one executor per host and confirms what is shown. Belongs to the event loop."""

    def __init__(
        self, names: Iterable[str], *, link: HostLink, hypervisor: Hypervisor, documents: Documents
    ) -> None:
        self._link = link
        self._hypervisor = hypervisor
        self._documents = documents
        self._executors: dict[str, Executor] = {}
        self._ring = asyncio.Event()
        self._wanted: set[str] = set()
        self._unconfirmed: dict[tuple[str, str], int] = {}
        self.failures = 0
        self.set_names(names)

    def set_names(self, names: Iterable[str]) -> None:
        """Have exactly these hosts."""
        wanted = set(names)
        for name in wanted - self._executors.keys():
            self._executors[name] = Executor(name, link=self._link, hypervisor=self._hypervisor)
            self._wanted.add(name)
        for name in self._executors.keys() - wanted:
            del self._executors[name]

    def ring(self, hosts: Iterable[str]) -> None:
        """These hosts have something to do."""
        self._wanted.update(hosts)
        if self._wanted:
            self._ring.set()

    def shown(self, scope: Scope) -> None:
        """The scope's document is on show; its hosts say so where nobody has yet."""
        for event in scope.events:
            if event.visible and event.shown_ms is None:
                self._unconfirmed[event.host, scope.name] = scope.incarnation
        if self._unconfirmed:
            self._ring.set()

    async def run(self) -> None:
        """Work until canceled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._heartbeats())
            tasks.create_task(self._work())

    async def heartbeat(self) -> None:
        """One heartbeat of every host."""
        for executor in list(self._executors.values()):
            try:
                await executor.heartbeat()
            except (Refusal, Unavailable) as why:
                log.warning("heartbeat_refused", host=executor.host, why=str(why))

    async def _heartbeats(self) -> None:
        while True:
            await self.heartbeat()
            await asyncio.sleep(HEARTBEAT_EVERY_S)

    async def _work(self) -> None:
        swept_s = 0.0
        loop = asyncio.get_running_loop()
        while True:
            self._ring.clear()  # first: what is rung for from here on is not slept through
            await self._confirm()
            if loop.time() - swept_s >= SWEEP_EVERY_S:
                swept_s = loop.time()
                self._wanted.update(self._executors)
            await self._step()
            busy = any(executor.busy for executor in self._executors.values())
            if not self._wanted:
                again_soon = busy or self._unconfirmed
                await self._wait(BUSY_STEP_EVERY_S if again_soon else SWEEP_EVERY_S)
            self._wanted.update(name for name, e in self._executors.items() if e.busy)

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._ring.wait()
        except TimeoutError:
            return

    async def _confirm(self) -> None:
        for (host, scope), incarnation in list(self._unconfirmed.items()):
            shown = self._documents.incarnation_shown(scope)
            if shown is None or host not in self._executors:
                del self._unconfirmed[host, scope]
                continue
            if shown < incarnation:
                continue
            try:
                await self._link.confirm(host, scope, shown)
            except Unavailable as why:
                log.warning("confirmation_not_kept", host=host, scope=scope, why=str(why))
                await asyncio.sleep(BUSY_STEP_EVERY_S)
                continue
            if self._unconfirmed.get((host, scope)) == incarnation:
                del self._unconfirmed[host, scope]

    async def _step(self) -> None:
        names, self._wanted = sorted(self._wanted), set()
        for first in range(0, len(names), STEPS_AT_ONCE):
            some = names[first : first + STEPS_AT_ONCE]
            await asyncio.gather(*(self._step_one(name) for name in some))

    async def _step_one(self, name: str) -> None:
        executor = self._executors.get(name)
        if executor is None:
            return
        try:
            await executor.step()
        except Unavailable as why:
            log.warning("step_put_off", host=name, why=str(why))
        except Refusal as why:
            log.warning("step_refused", host=name, why=str(why))
        except Exception:
            log.exception("step_failed", host=name)  # the other hosts go on
            self.failures += 1
