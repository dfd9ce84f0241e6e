"""A whole cloud in one process on virtual time: service, hosts, guests, and what goes wrong.

The service under test is the real one (core, control, store, executor, documents); only clock,
hypervisor and network are simulated. Every random choice comes from one seed.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from forewarn.adapters.simulated_hypervisor import SimulatedHypervisor
from forewarn.adapters.store import SqliteStore
from forewarn.control import metadata, ticker
from forewarn.control.agenda import Agenda
from forewarn.control.control import Control
from forewarn.control.dispatch import Dispatch
from forewarn.control.fleet_index import FleetIndex
from forewarn.control.observed import Observed
from forewarn.control.powers import Powers
from forewarn.control.published import PublishedFleet
from forewarn.control.timekeeper import Timekeeper
from forewarn.control.writer import Command, Writer
from forewarn.core import edits, whereabouts
from forewarn.core.errors import Refusal, Unavailable
from forewarn.core.invariants import InvariantBroken
from forewarn.core.machines import Power
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
from forewarn.ports import Change, HypervisorFailed, Sight, SightKind, StaleRevision, StoreFailed
from forewarn.wire import documents
from forewarn.wire.api_versions import NEWEST
from inline_control import Inline, InlineControl, run_now
from simulation.faulty_store import Crash, FaultyStore
from simulation.judge import Broken, Judge
from simulation.sim_clock import SimClock, SimIds
from unasked_link import UnaskedLink

T = TypeVar("T")
SUBSTEP_MS = 5_000
# A host is heard every five seconds. That it is not is noticed a second later: until then what it
# showed counts as shown, by design.
UNNOTICED_MS = 6_000


class JudgedHypervisor:
    """The simulated hypervisor, with the judge watching when impacts begin and end."""

    def __init__(self, clock: SimClock, judge: Judge) -> None:
        self.inner = SimulatedHypervisor(clock)
        self._clock = clock
        self._judge = judge
        self.on_host: dict[str, str] = {}
        self._under_way: dict[str, list[str]] = {}
        self._acted_on: dict[str, str] = {}  # by action: what no host has seen the end of

    def vms_on(self, host: str) -> list[str]:
        return sorted(vm for vm in self.on_host if self.inner.where(vm) == host)

    async def boot_id(self, host: str) -> str:
        return await self.inner.boot_id(host)

    async def look(self, host: str, action: Action) -> Sight:
        sight = await self.inner.look(host, action)
        if action.kind is ActionKind.START_VM and sight.kind is SightKind.FAILED:
            self._judge.excused(action.vm or "")
        if sight.kind in (SightKind.DONE, SightKind.FAILED, SightKind.SPARED):
            self._acted_on.pop(action.action_id, None)
            self._judge.impact_ends(self._under_way.pop(action.action_id, []))
        return sight

    async def begin(self, host: str, action: Action) -> None:
        if action.kind is ActionKind.START_VM and action.vm is not None:
            self._judge.started_somewhere(action.vm, host, self._may_run_on(action.vm))
        told = [vm for vm in self.vms_on(host) if action.is_about(vm, "")]
        strangers = [v for v in self.vms_on(host) if self.inner.runs(v) and v not in told]
        if action.kind is ActionKind.REBOOT_HOST and strangers:
            raise HypervisorFailed(
                f"{strangers} had no notice"
            )  # as hosts do; a Freeze lets them be
        try:
            await self.inner.begin(host, action)
        except HypervisorFailed:
            if action.kind is ActionKind.START_VM:
                self._judge.excused(action.vm or "")
            raise
        hit = [vm for vm in ([action.vm] if action.vm else told) if self.inner.runs(vm)]
        earlier = self._under_way.get(action.action_id, [])  # begun before, by a daemon that died
        self._under_way[action.action_id] = [*earlier, *(vm for vm in hit if vm not in earlier)]
        self._acted_on[action.action_id] = action.vm or host
        self._judge.impact_begins(action, hit)

    def _may_run_on(self, vm: str) -> set[str]:
        """Where a VM runs now, and where something that is under way will have it run."""
        where = self.inner.where(vm)
        here = {where} if where is not None and self.inner.runs(vm) else set()
        return here | self.inner.coming(vm)

    def acted_on(self) -> set[str]:
        """VMs and hosts that something was begun on whose end no host has seen."""
        going_on = {action.vm or action.host or "" for _, action in self.inner.under_way()}
        return going_on.union(self._acted_on.values())

    def forget(self, action_ids: list[str]) -> None:
        """The event of these actions has ended without their hosts' word."""
        for action_id in action_ids:
            self._acted_on.pop(action_id, None)
            self._judge.impact_ends(self._under_way.pop(action_id, []))


@dataclass
class SimHost:
    """A host's daemon: what it shows to guests, and its hands."""

    name: str
    executor: Executor
    up: bool = True
    heard_ms: int = 0  # when it was heard last, in real time
    shown: dict[str, bytes] = field(default_factory=dict)
    dark: dict[str, bytes] = field(default_factory=dict)  # what it showed when its daemon died


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
                host.name,
                Executor(host.name, link=SimLink(self, host.name), hypervisor=self.hypervisor),
            )
            for host in hosts
        }
        for scope in scopes:
            for vm in scope.vms:
                self.hypervisor.inner.place(vm.name, vm.host)
                self.hypervisor.on_host[vm.name] = vm.host
        self.writer: Writer | None = None
        self.control: Control | None = None
        self.agenda: Agenda | None = None
        self.powers = Powers(self.clock)
        self.shows_powers = False
        self._boots: dict[str, str] = {}
        self._last_beat_ms = 0
        self._rendered: dict[str, tuple[Scope, bytes]] = {}
        self._named: dict[bytes, list[tuple[str, list[str]]]] = {}
        self.trace: list[str] = []
        self.failed: set[str] = set()  # hosts that the service was told have failed
        # By VM: the boot, as the service knew it, in which a host last showed it to run.
        self.ran_in: dict[str, str] = {}
        self.start_service()
        self.submit(lambda tx: tx.apply(Decision(scopes=tuple(scopes), hosts=tuple(hosts))))

    def say(self, line: str) -> None:
        self.trace.append(f"{self.clock.real_ms / 1000:10.1f} {line}")

    # The service's process.

    def start_service(self) -> None:
        """Start the service on whatever is durable."""
        snapshot = self.store.load()
        self.powers = Powers(self.clock)
        observed = Observed(self.clock)
        self.control = InlineControl(
            writer=Inline(self.submit),
            store=self.store,
            clock=self.clock,
            lease_clock=self.clock,
            fleet=PublishedFleet(snapshot, observed, policy=self.policy, clock=self.clock),
            observed=observed,
            dispatch=Dispatch(self.clock),
        )
        self.agenda = Agenda(self.control.fleet)
        self.control.fleet.on_publish(self.agenda.published)
        self.writer = Writer(
            index=FleetIndex(snapshot),
            observed=observed,
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
        self.writer = self.control = self.agenda = None
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
        if self.control is not None:
            self.control.fleet.publish(changes)
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
            # While the service is down hosts ask in vain: nothing can happen step by step.
            part = ms if self.writer is None else min(ms, SUBSTEP_MS)
            self._count_readable(part)
            self.clock.advance(part)
            ms -= part
            self.beat()

    def _count_readable(self, ms: int) -> None:
        if self.writer is None:
            return
        for vm, (scope, _) in self.judge.domains.items():
            host = self.hosts.get(self.hypervisor.inner.where(vm) or "")
            if host is None:
                continue
            text, counted_ms = host.shown.get(scope), ms
            if not host.up:
                text = host.dark.get(scope)
                unnoticed_ms = UNNOTICED_MS - (self.clock.real_ms - host.heard_ms)
                counted_ms = max(0, min(ms, unnoticed_ms))
            texts = [text] if self.hypervisor.inner.runs(vm) else [text, *self._shown(scope)]
            named = {e: r for shown in texts if shown for e, r in self._events_named(shown)}
            for event_id, resources in named.items():
                if vm in resources:
                    self.judge.readable(vm, event_id, counted_ms)

    def _shown(self, scope: str) -> list[bytes | None]:
        """What any host shows of a scope: a VM that does not run reads nothing, wherever it is."""
        return [host.shown.get(scope) for host in self.hosts.values()]

    def _events_named(self, text: bytes) -> list[tuple[str, list[str]]]:
        """The events of a document and whom they name; read once, it is asked at every beat."""
        if text not in self._named:
            events = json.loads(text)["Events"]
            self._named[text] = [(event["EventId"], event["Resources"]) for event in events]
        return self._named[text]

    def _render(self, scope: Scope) -> bytes:
        """The document of a scope; made once: every host asks for it at every beat."""
        kept = self._rendered.get(scope.name)
        if kept is None or kept[0] is not scope:
            kept = self._rendered[scope.name] = (scope, documents.render(scope, NEWEST))
        return kept[1]

    def beat(self) -> None:
        """Ticker, heartbeats and executors take one turn."""
        for host in self.hosts.values():
            if host.up:
                self.host_turn(host)
        self.tick()
        self._note_running()
        self._judge_powers()

    def declared(self, host: str) -> None:
        """The service was told that a host has failed; its VMs are down with it if it is off."""
        self.failed.add(host)
        inner = self.hypervisor.inner
        # What it brings back it is at work on; nobody else can see for how long.
        self.judge.unsure_off.update(self.hypervisor.vms_on(host), self.hypervisor.acted_on())
        if inner.dead(host):
            here = self.hypervisor.vms_on(host)
            meant = self.judge.off_since.keys() | self.judge.on_unheard
            down = [vm for vm in here if not inner.runs(vm) and vm not in meant]
            self.judge.went_down(down, self.clock.real_ms)

    def _note_running(self) -> None:
        for vm in [*self.judge.down_since, *self.judge.given_up]:
            if self.hypervisor.inner.runs(vm):
                self.judge.down_since.pop(vm, None)
                self.judge.given_up.discard(vm)

    def end(self) -> None:
        """Everything was healed and all events have ended: every VM must run that should."""
        inner, vms = self.hypervisor.inner, set(self.judge.domains)
        running = {vm for vm in vms if inner.runs(vm)}
        gone = {vm for vm in vms if inner.where(vm) is None}
        self.judge.end_of_vms(running, gone, self.clock.real_ms)

    def tick(self) -> None:
        try:
            if self.clock.real_ms - self._last_beat_ms >= ticker.HEARTBEAT_EVERY_MS:
                self.submit(ticker.heartbeat)
                self._last_beat_ms = self.clock.real_ms
            for command in self._survey():
                self.submit(command)
        except (Unavailable, Refusal):
            return

    def _survey(self) -> ticker.Nominated:
        """What the ticker finds in the scopes of its agenda, which is all that there is to find."""
        if self.control is None or self.agenda is None:
            raise Unavailable("down")
        look, found = self.control.fleet.look(), ticker.Survey()
        names = sorted(self.agenda.due(look.now_ms))
        found.scopes(look, (look.scopes[name] for name in names if name in look.scopes))
        found.silent_hosts(look, self.agenda.told_hosts())
        found.whole_operations(look)
        nominated = found.nominated()
        if len(nominated) != len(ticker.survey(look)):
            raise Broken(f"I7: the agenda has {names}, and something else is due")
        return nominated

    def host_turn(self, host: SimHost) -> None:
        """A host's daemon: heartbeat, fetch and confirm documents, work."""
        try:
            run_now(host.executor.heartbeat())
            host.heard_ms = self.clock.real_ms
            self.fetch(host)
            self._show_powers(host)
            run_now(host.executor.step())
        except (Unavailable, Refusal):
            return

    def owner_switches(self, vm: str, *, on: bool) -> None:
        """The owner of a VM switches it on or off, where it is."""
        inner = self.hypervisor.inner
        where = inner.where(vm)
        if where is None or inner.dead(where) or (not on and not inner.runs(vm)):
            return
        self.say(f"  {vm} is switched {'on' if on else 'off'} on {where}")
        inner.switch(vm, on=on)
        self.judge.switched(vm, on=on, real_ms=self.clock.real_ms)
        if on:
            return
        unseen = self.ran_in.get(vm) != run_now(self.hypervisor.boot_id(where))
        if where in self.failed or unseen or vm in self.hypervisor.acted_on():
            self.judge.unsure_off.add(vm)

    def _show_powers(self, host: SimHost) -> None:
        """The host shows which of its VMs run. Only worlds whose owners switch VMs need it."""
        if self.shows_powers:
            inner = self.hypervisor.inner
            powers = {
                vm: Power.RUNNING if inner.runs(vm) else Power.OFF
                for vm in self.hypervisor.vms_on(host.name)
            }
            self.submit(lambda tx: self.powers.seen(tx, host.name, powers))
            running = {vm for vm, shown in powers.items() if shown is Power.RUNNING}
            known = self.control.fleet.host(host.name) if self.control else None
            if known is not None and known.boot_id is not None:
                self.ran_in.update(dict.fromkeys(running, known.boot_id))
            self.judge.on_unheard -= running
            if host.name not in self.failed:
                self.judge.unsure_off -= running - self.hypervisor.acted_on()

    def hosts_report(self) -> None:
        """Hosts that are up report where VMs are: of one that was moved there is no more doubt."""
        if self.control is None or any(not host.up for host in self.hosts.values()):
            return
        for vm in self.judge.domains:
            known, where = self.control.fleet.vm(vm), self.hypervisor.inner.where(vm)
            scope = self.control.fleet.scope(self.control.fleet.scope_of_vm.get(vm, ""))
            if known is None or scope is None or where is None or known.may_run_on is None:
                continue
            if vm not in self.hypervisor.acted_on() and not whereabouts.acted_on(scope, vm):
                found, _ = edits.found_on(scope, known, where)
                self.submit(lambda tx, found=found: tx.apply(Decision(scopes=(found,))))  # type: ignore[misc]

    def _judge_powers(self) -> None:
        """Off counts while nothing is wrong with the host, the service and the VM's own affairs."""
        self._note_boots()
        busy = self.hypervisor.acted_on()
        for vm in list(self.judge.off_since):
            where = self.hypervisor.inner.where(vm) or ""
            host = self.hosts.get(where)
            well = host is not None and host.up and self.writer is not None
            quiet = well and vm not in busy and where not in busy and where not in self.failed
            self.judge.is_off(
                vm, quiet=quiet, runs=self.hypervisor.inner.runs(vm), real_ms=self.clock.real_ms
            )

    def _note_boots(self) -> None:
        """Who was off too shortly to count when its host booted may have gone down with it."""
        if not self.shows_powers:
            return
        for host in [name for name in self.hosts if not self.hypervisor.inner.dead(name)]:
            boot_id = run_now(self.hypervisor.boot_id(host))
            if self._boots.get(host, boot_id) != boot_id:
                here = self.judge.off_since.keys() & self.hypervisor.vms_on(host)
                self.judge.unsure_off.update(here - self.judge.surely_off)
            self._boots[host] = boot_id

    def daemon_dies(self, host: SimHost) -> None:
        host.up, host.shown, host.dark = False, {}, host.shown

    def daemon_returns(self, host: SimHost) -> None:
        """It speaks to control first of all."""
        host.up, host.dark = True, {}
        self.host_turn(host)

    def fetch(self, host: SimHost) -> None:
        """Take over the documents of the scopes on this host, and say that they are shown."""
        if self.control is None:
            raise Unavailable("down")
        on_host = self.control.fleet.scopes_on(host.name)
        scopes = [s for s in on_host if any(v.host == host.name for v in s.vms)]
        host.shown = {scope.name: self._render(scope) for scope in scopes}
        for scope in scopes:
            if any(e.host == host.name and e.visible and e.shown_ms is None for e in scope.events):
                run_now(SimLink(self, host.name).confirm(scope.name, scope.incarnation))

    # Guests.

    def guest_document(self, vm: str) -> dict[str, Any] | None:
        """What a GET by this VM answers; None if it gets no answer."""
        scope_name, _ = self.judge.domains[vm]
        if vm in self.judge.off_since:
            return None
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


class SimLink(UnaskedLink):
    """`ports.HostLink` of one host: calls that fail while the service is down."""

    def __init__(self, world: World, host: str) -> None:
        self._world = world
        self._host = host

    def _control(self) -> Control:
        if self._world.control is None:
            raise Unavailable("down")
        return self._world.control

    def _dispatch(self) -> Dispatch:
        return self._control().dispatch

    async def heartbeat(self, holding: Mapping[str, int], refuses: str = "") -> None:
        await self._control().heartbeats.take(self._host, holding, refuses)

    async def claim(self, boot_id: str) -> Sequence[Action]:
        return self._world.submit(self._dispatch().claim(self._host, boot_id))

    async def holds(self, action_id: str, epoch: int) -> bool:
        return self._world.submit(self._dispatch().holds(self._host, action_id, epoch))

    async def report(self, action_id: str, *, epoch: int, outcome: Outcome, detail: str) -> None:
        self._world.submit(
            self._dispatch().report(
                self._host, action_id, epoch=epoch, outcome=outcome, detail=detail
            )
        )

    async def confirm(self, scope: str, incarnation: int) -> None:
        self._world.submit(metadata.confirm(self._host, scope, incarnation))
