"""A whole cloud in one process on virtual time: service, hosts, guests, and what goes wrong.

The service under test is the real one (core, control, store, executor, documents); only clock,
hypervisor and network are simulated. Every random choice comes from one seed.
"""

from __future__ import annotations

import json
import random
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from forewarn.adapters.simulated_hypervisor import SimulatedHypervisor
from forewarn.adapters.store import SqliteStore
from forewarn.control import metadata, ticker
from forewarn.control.dispatch import Dispatch
from forewarn.control.memory import Memory, Transaction
from forewarn.control.timekeeper import Timekeeper
from forewarn.control.writer import Command, Writer
from forewarn.core.errors import Refusal, Unavailable
from forewarn.core.invariants import InvariantBroken
from forewarn.core.model import (
    Action,
    ActionKind,
    Decision,
    Host,
    Outcome,
    Phase,
    Policy,
    Scope,
)
from forewarn.host.executor import Executor
from forewarn.ports import Change, Sight, SightKind, StaleRevision, StoreFailed
from forewarn.wire import documents
from forewarn.wire.api_versions import NEWEST
from simulation.faulty_store import Crash, FaultyStore
from simulation.judge import Broken, Judge
from simulation.sim_clock import SimClock, SimIds

T = TypeVar("T")
SUBSTEP_MS = 5_000


def run_now(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never really waits."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    raise AssertionError("a simulated call tried to wait")


class JudgedHypervisor:
    """The simulated hypervisor, with the judge watching when impacts begin and end."""

    def __init__(self, clock: SimClock, judge: Judge) -> None:
        self.inner = SimulatedHypervisor(clock)
        self._judge = judge
        self.on_host: dict[str, str] = {}
        self._under_way: dict[str, list[str]] = {}

    def vms_on(self, host: str) -> list[str]:
        return sorted(vm for vm in self.on_host if self.inner.where(vm) == host)

    async def boot_id(self, host: str) -> str:
        return await self.inner.boot_id(host)

    async def look(self, host: str, action: Action) -> Sight:
        sight = await self.inner.look(host, action)
        if sight.kind in (SightKind.DONE, SightKind.FAILED):
            self._judge.impact_ends(self._under_way.pop(action.action_id, []))
        return sight

    async def begin(self, host: str, action: Action) -> None:
        if action.kind is ActionKind.START_VM and action.vm is not None:
            running = self.inner.where(action.vm) if self.inner.runs(action.vm) else None
            self._judge.started_somewhere(action.vm, host, running)
        await self.inner.begin(host, action)
        hit = [action.vm] if action.vm else self.vms_on(host)
        self._under_way[action.action_id] = hit
        self._judge.impact_begins(action, hit)

    def forget(self, action_ids: list[str]) -> None:
        """The event of these actions has ended without their hosts' word."""
        for action_id in action_ids:
            self._judge.impact_ends(self._under_way.pop(action_id, []))


@dataclass
class SimHost:
    """A host's daemon: what it shows to guests, and its hands."""

    name: str
    executor: Executor
    up: bool = True
    shown: dict[str, bytes] = field(default_factory=dict)


class World:
    """Everything there is in one run. Raises Broken as soon as an invariant does not hold."""

    def __init__(
        self, rng: random.Random, hosts: Sequence[Host], scopes: Sequence[Scope], policy: Policy
    ) -> None:
        self.rng = rng
        self.clock = SimClock()
        self.ids = SimIds()
        self.policy = policy
        self.judge = Judge(
            {vm.name: (scope.name, vm.update_domain) for scope in scopes for vm in scope.vms}
        )
        self.judge.terminate_ms = {scope.name: scope.terminate_notice_ms for scope in scopes}
        self.judge.auto_approving = {scope.name for scope in scopes if scope.auto_approve}
        self.hypervisor = JudgedHypervisor(self.clock, self.judge)
        self.store = FaultyStore(SqliteStore.in_memory())
        self.hosts = {
            host.name: SimHost(
                host.name, Executor(host.name, link=SimLink(self), hypervisor=self.hypervisor)
            )
            for host in hosts
        }
        for scope in scopes:
            for vm in scope.vms:
                self.hypervisor.inner.place(vm.name, vm.host)
                self.hypervisor.on_host[vm.name] = vm.host
        self.writer: Writer | None = None
        self.memory: Memory | None = None
        self.dispatch: Dispatch | None = None
        self._last_beat_ms = 0
        self.trace: list[str] = []
        self.start_service()
        self.submit(lambda tx: tx.apply(Decision(scopes=tuple(scopes), hosts=tuple(hosts))))

    def say(self, line: str) -> None:
        self.trace.append(f"{self.clock.real_ms / 1000:10.1f} {line}")

    # The service's process.

    def start_service(self) -> None:
        """Start the service on whatever is durable."""
        snapshot = self.store.load()
        self.dispatch = Dispatch(self.clock)
        self.memory = Memory(snapshot, self.dispatch)
        self.writer = Writer(
            memory=self.memory,
            store=self.store,
            timekeeper=Timekeeper(self.clock),
            policy=self.policy,
            ids=self.ids,
            on_step=ticker.clock_stepped,
            on_commit=self._committed,
        )
        self._check_approvals()
        try:
            self.submit(ticker.was_down(snapshot.heartbeat_ms))
        except Unavailable:
            self.writer = None  # a service that cannot write that it is back is not back
            raise
        self._last_beat_ms = self.clock.real_ms

    def crash(self, why: str) -> None:
        """kill -9 of the service. Hosts live on with what they have."""
        self.say(f"service dies: {why}")
        self.judge.count("crashes")
        self.store.rollback()
        self.writer = self.memory = self.dispatch = None
        for scope in self.store.load().scopes:
            self._observe(scope)  # what was committed and never told to anybody still counts

    def submit(self, command: Command[T]) -> T:
        """Run one command as its own commit. Unavailable when the service is down or dies."""
        if self.writer is None:
            raise Unavailable("down")
        try:
            done = self.writer.run([command])[0]
        except Crash as crash:
            self.crash(str(crash))
            raise Unavailable("died") from None
        except StoreFailed as failed:
            raise Unavailable(str(failed)) from None
        if isinstance(done.error, InvariantBroken):
            raise Broken(str(done.error))
        if done.error is not None:
            if not isinstance(done.error, Refusal | StaleRevision | Unavailable):
                raise Broken(f"a command broke: {done.error!r}") from done.error
            raise done.error
        return done.value  # type: ignore[no-any-return]

    def _committed(self, changes: Sequence[Change]) -> None:
        """After a commit and before anybody is answered: record it, and perhaps ring hosts."""
        for change in changes:
            for _, after in change.scopes:
                text = self._observe(after)
                self._forget_ended(after)
                if self.rng.random() < 0.3:
                    continue  # the ring is lost; the host looks again by itself
                for host in {vm.host for vm in after.vms}:
                    if self.hosts[host].up:
                        self.hosts[host].shown[after.name] = text

    def _observe(self, scope: Scope) -> bytes:
        text = documents.render(scope, NEWEST)
        self.judge.committed(scope.name, json.loads(text), text.decode(), self.clock.now_ms())
        return text

    def _forget_ended(self, after: Scope) -> None:
        for event in after.events:
            if event.phase in (Phase.FAILED, Phase.COMPLETED):
                self.hypervisor.forget([action.action_id for action in event.actions])
                if event.operation_id is not None:
                    self.hypervisor.forget([event.operation_id])

    def _check_approvals(self) -> None:
        for event_id in sorted(self.judge.answered):
            event = self.store.event(event_id)
            if event is None:
                raise Broken(f"I5: the approved event {event_id} is gone from the store")
            if event.phase is Phase.SCHEDULED and event.approved_ms is None:
                raise Broken(f"I5: the approval of {event_id} was answered and lost")

    # Time.

    def pass_time(self, ms: int) -> None:
        """Let time pass in small steps in which everything alive does its duty."""
        while ms > 0:
            part = min(ms, SUBSTEP_MS)
            self._count_readable(part)
            self.clock.advance(part)
            ms -= part
            self.beat()

    def _count_readable(self, ms: int) -> None:
        if self.writer is None:
            return
        for vm, (scope, _) in self.judge.domains.items():
            host = self.hosts.get(self.hypervisor.inner.where(vm) or "")
            if host is None or not host.up or scope not in host.shown:
                continue
            for event in json.loads(host.shown[scope])["Events"]:
                if vm in event["Resources"]:
                    self.judge.readable(vm, event["EventId"], ms)

    def beat(self) -> None:
        """Ticker, heartbeats and executors take one turn."""
        for host in self.hosts.values():
            if host.up:
                self.host_turn(host)
        self.tick()

    def tick(self) -> None:
        try:
            if self.clock.real_ms - self._last_beat_ms >= ticker.HEARTBEAT_EVERY_MS:
                self.submit(ticker.heartbeat)
                self._last_beat_ms = self.clock.real_ms
            for command in self.submit(ticker.survey):
                self.submit(command)
        except (Unavailable, Refusal):
            return

    def host_turn(self, host: SimHost) -> None:
        """A host's daemon: heartbeat, fetch and confirm documents, work."""
        try:
            run_now(host.executor.heartbeat())
            self.fetch(host)
            run_now(host.executor.step())
        except (Unavailable, Refusal):
            return

    def fetch(self, host: SimHost) -> None:
        """Take over the documents of the scopes on this host, and say that they are shown."""

        def question(tx: Transaction) -> list[Scope]:
            return [s for s in tx.scopes_on(host.name) if any(v.host == host.name for v in s.vms)]

        scopes = self.submit(question)
        host.shown = {scope.name: documents.render(scope, NEWEST) for scope in scopes}
        for scope in scopes:
            if any(e.host == host.name and e.visible and e.shown_ms is None for e in scope.events):
                run_now(SimLink(self).confirm(host.name, scope.name, scope.incarnation))

    # Guests.

    def guest_document(self, vm: str) -> dict[str, Any] | None:
        """What a GET by this VM answers; None if it gets no answer."""
        scope_name, _ = self.judge.domains[vm]
        host = self.hosts.get(self.hypervisor.inner.where(vm) or "")
        if host is None or not host.up or self.writer is None:
            return None
        try:
            scope = self.submit(lambda tx: tx.scope(scope_name))
            here = scope.vm(vm) if scope else None
            if scope is None or here is None or here.host != host.name:
                return None
            if not scope.enabled:
                self.submit(metadata.enable(scope_name, vm=vm))
                self.fetch(host)
            if any(vm in r.waiting_for for r in scope.recoveries):
                self.submit(metadata.returned(vm))
            self.submit(metadata.save_polls({scope_name: self.clock.now_ms()}))
        except (Unavailable, Refusal):
            return None
        text = host.shown.get(scope_name)
        if text is None:
            return None
        document: dict[str, Any] = json.loads(text)
        content = text.decode().partition(",")[2]
        self.judge.read(vm, document["DocumentIncarnation"], content, document)
        return document


class SimLink:
    """`ports.HostLink`: calls that fail while the service is down."""

    def __init__(self, world: World) -> None:
        self._world = world

    def _dispatch(self) -> Dispatch:
        if self._world.dispatch is None:
            raise Unavailable("down")
        return self._world.dispatch

    async def heartbeat(self, host: str, holding: Mapping[str, int], refuses: str = "") -> None:
        self._world.submit(self._dispatch().heartbeat(host, holding, refuses))

    async def claim(self, host: str, boot_id: str) -> Sequence[Action]:
        return self._world.submit(self._dispatch().claim(host, boot_id))

    async def holds(self, host: str, action_id: str, epoch: int) -> bool:
        return self._world.submit(self._dispatch().holds(host, action_id, epoch))

    async def report(
        self, host: str, action_id: str, *, epoch: int, outcome: Outcome, detail: str
    ) -> None:
        self._world.submit(
            self._dispatch().report(host, action_id, epoch=epoch, outcome=outcome, detail=detail)
        )

    async def confirm(self, host: str, scope: str, incarnation: int) -> None:
        self._world.submit(metadata.confirm(host, scope, incarnation))
