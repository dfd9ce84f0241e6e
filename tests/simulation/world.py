"""A whole cloud in one process on virtual time: control, hosts, guests, and what goes wrong.

Control, the link and the daemons of hosts are the deployed ones (`service`, `wire_link`, `hosts`);
only clock, hypervisor and network are simulated. Every random choice comes from one seed.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from typing import TypeVar

from forewarn.adapters.sqlite.store import SqliteStore
from forewarn.control import ticker
from forewarn.core.errors import Refusal, Unavailable
from forewarn.core.inventory.host_report import Power, SeenVm, Traits
from forewarn.core.model import Host, Phase, Policy, Scope, ScopeKind
from forewarn.ports import EVERYTHING, Change
from forewarn.wire import link as wire
from forewarn.wire.api_versions import NEWEST
from simulation.faulty_store import Crash, FaultyStore
from simulation.guests import Guests
from simulation.hosts import TELL_EVERY_MS, Daemon, HostCrash, SimHost
from simulation.hypervisor import JudgedHypervisor
from simulation.judge import Broken, Judge
from simulation.service import Durable, Service
from simulation.sim_clock import SimClock
from simulation.wire_link import Wire
from support import ordered
from support.batches import keep
from support.control import run_now
from support.ids import CountedIds
from support.ordered import Given
from support.shown_scopes import render
from support.simulated_machines import SimulatedWorld

T = TypeVar("T")
SUBSTEP_MS = 5_000
EVERY = 1_000_000  # events or lines: more than a world makes
# A host is heard every five seconds. That it is not is noticed a second later: until then what it
# showed counts as shown, by design.
UNNOTICED_MS = 6_000
# Hosts report every thirty seconds; one whose reports come so rarely is not seen all the time.
SEEN_WITHIN_MS = TELL_EVERY_MS + SUBSTEP_MS
HEARD_WITHIN_MS = 15_000
RING_HEARD = 0.7  # of the hosts that a commit concerns, so many ask at once


def new_store(hosts: Iterable[Host]) -> SqliteStore:
    """A store that knows these hosts and nothing else."""
    store = SqliteStore.in_memory()
    keep(store, Change(hosts=tuple((None, host) for host in hosts)))
    return store


class SimulationWorld:
    """Everything there is in one run. Raises Broken as soon as an invariant does not hold."""

    def __init__(
        self,
        seed: int,
        hosts: Sequence[Host],
        vms: Sequence[tuple[str, SeenVm]],
        policy: Policy,
        *,
        log: list[bytes] | None = None,
    ) -> None:
        """`log` is where the command log goes, if somebody wants it."""
        self.rng = random.Random(f"{seed} world")
        self.clock = SimClock()
        self.ids = CountedIds()
        self.policy = policy
        self.judge = Judge(self.clock, [seen for _, seen in vms])
        self.hypervisor = JudgedHypervisor(self.clock, self.judge)
        self.machines = SimulatedWorld(self.hypervisor.inner)
        self.wire = Wire(random.Random(f"{seed} wire"), self.clock, self)
        self.durable = Durable(FaultyStore(new_store(hosts)), log=log)
        self.store = self.durable.store
        self.hosts = {host.name: SimHost(host.name, self.machines.on(host.name)) for host in hosts}
        self.guests = Guests(self)
        self.service: Service | None = None
        self.trace: list[str] = []
        self.failed: set[str] = set()  # hosts that the service was told have failed
        # By VM: the boot, as the service knew it, in which a host last showed it to run.
        self.ran_in: dict[str, str] = {}
        self._boots: dict[str, str] = {}
        self._told: dict[str, Scope] = {}  # as the judge was told of them last
        self._put: list[SeenVm] = []
        self._last_beat_ms = 0
        self._named: dict[bytes, list[tuple[str, list[str]]]] = {}
        for where, seen in vms:
            self.put(where, seen)
        self.start_service()
        for one in self.hosts.values():
            self.join(one)
            self.daemon_returns(one)

    def put(self, host: str, seen: SeenVm) -> None:
        """Have a VM run on a host."""
        self._put.append(seen)
        self.machines.put(host, [seen])
        self.hypervisor.vm_ids[seen.name] = seen.vm_id

    def traits_in(self, scope: str) -> Traits | None:
        """What VMs of a scope say of themselves; None of a scope that takes no more of them."""
        there = (seen.traits for seen in self._put if seen.traits.scope == scope)
        traits = next(there, None)
        alone = traits is None or traits.scope_kind is ScopeKind.STANDALONE
        return None if alone else traits

    def say(self, line: str) -> None:
        self.trace.append(f"{self.clock.real_ms / 1000:10.1f} {line}")

    # The service's process.

    def start_service(self) -> None:
        """Start the service on whatever is durable."""
        self.service = Service(
            self.durable,
            clock=self.clock,
            ids=self.ids,
            policy=self.policy,
            committed=self._committed,
        )
        self.judge.check_approvals(self.store.event)
        try:
            self.submit(ordered.was_down(self.service.heartbeat_ms))
            self._settle_members()
        except Unavailable:
            self.service = None  # a service that cannot write that it is back is not back
            raise
        self._last_beat_ms = self.clock.real_ms

    def _settle_members(self) -> None:
        """Who has joined is in the fleet, and nobody else is."""
        if self.service is not None:
            try:
                run_now(self.service.membership.settle())
            except Crash as crash:
                self.crash(str(crash))
                raise Unavailable("died") from None

    def crash(self, why: str) -> None:
        """kill -9 of the service. Hosts live on with what they have."""
        self.say(f"service dies: {why}")
        self.judge.count("crashes")
        self.service = None
        self.judge.quiet_ms.clear()
        # What was committed and never told to anybody still counts.
        kept = self.store.load().scopes
        for scope in kept:
            self._observe(scope)
        untold = [(self._told.get(scope.name), scope) for scope in kept]
        self.judge.announced_anew(untold, self.clock.now_ms())
        self._told.update({scope.name: scope for scope in kept})

    def submit(self, command: Given[T]) -> T:
        """Run one command as its own commit. Unavailable when the service is down or dies."""
        if self.service is None:
            raise Unavailable("down")
        try:
            return self.service.run(command)
        except Crash as crash:
            self.crash(str(crash))
            raise Unavailable("died") from None

    def answer(self, certificate: bytes, name: str, body: bytes) -> tuple[int, bytes]:
        """What a host is answered (`wire_link.Answering`)."""
        if self.service is None:
            raise Unavailable("down")
        try:
            status, text, question = self.service.answer(certificate, name, body)
        except Crash as crash:
            self.crash(str(crash))
            raise Unavailable("died") from None
        host = certificate.decode().partition(" ")[0]
        if status == 200:
            self.judge.answered_host(host, certificate, name, question, text)
            if name == "turn":
                self._heard(self.hosts[host])
            elif name == "sight":
                self._sighted(self.hosts[host], question)
        return status, text

    def _heard(self, host: SimHost) -> None:
        host.heard_ms = self.clock.real_ms
        if host.daemon is not None:
            host.dark = {}  # what an earlier daemon showed does not count any more

    def _committed(self, changes: Sequence[Change]) -> None:
        """After a commit and before anybody is answered: the judge is told."""
        for change in changes:
            for before, after in change.scopes:
                self._judge_starts(before, after)
                self._observe(after)
                self._forget_ended(after)
                self._told[after.name] = after
            self.judge.announced_anew(change.scopes, self.clock.now_ms())

    def _judge_starts(self, before: Scope | None, after: Scope) -> None:
        for event in after.events:
            known = before.event(event.event_id) if before else None
            if event.started_ms is not None and (known is None or known.started_ms is None):
                self.judge.begins(event, self.clock.now_ms())

    def _observe(self, scope: Scope) -> None:
        text = render(scope, NEWEST).decode()
        vm_ids = {vm.vm_id for vm in scope.vms}
        self.judge.committed(scope.name, text, self.clock.now_ms(), vm_ids=vm_ids)

    def _forget_ended(self, after: Scope) -> None:
        for event in after.events:
            if event.phase in (Phase.FAILED, Phase.COMPLETED):
                self.hypervisor.forget([action.action_id for action in event.actions])
                if event.operation_id is not None:
                    self.hypervisor.forget([event.operation_id])

    # Time.

    def pass_time(self, ms: int) -> None:
        """Let time pass in small steps in which everything alive does its duty."""
        while ms > 0:
            # While the service is down hosts ask in vain: nothing can happen step by step.
            part = ms if self.service is None else min(ms, SUBSTEP_MS)
            self._count_readable(part)
            self.clock.pass_ms(part)
            ms -= part
            self.beat()

    def beat(self) -> None:
        """Hosts and the ticker take one turn."""
        self.wire.arrive()
        chance = self.rng if self.wire.weather else None
        for host in self.hosts.values():
            self.host_turn(host, chance)
        self.tick()
        self.rings()
        self._note_running()
        self._judge_powers()

    def host_turn(self, host: SimHost, chance: random.Random | None = None) -> None:
        if host.daemon is None:
            self._restart(host)
            return
        try:
            host.daemon.turn(chance)
        except HostCrash as crash:
            self._daemon_died(host, crash)

    def _daemon_died(self, host: SimHost, crash: HostCrash) -> None:
        """It is started again after a while, by its own machine."""
        self.say(f"  the daemon of {host.name} dies {crash}")
        self.judge.count("host crashes")
        self.daemon_dies(host)
        host.restarts_ms = self.clock.real_ms + self.rng.choice([1_000, 8_000, 30_000])

    def _restart(self, host: SimHost) -> None:
        """Start a daemon again whose time has come."""
        if host.restarts_ms is not None and self.clock.real_ms >= host.restarts_ms:
            host.restarts_ms = None
            if not self.hypervisor.inner.dead(host.name):
                self.daemon_returns(host)

    def rings(self) -> None:
        """Hosts that have something new ask for it at once; some of the rings are lost."""
        if self.service is None:
            return
        for name in self.service.host_feed.take_rung():
            host = self.hosts.get(name)
            if host is None or host.daemon is None or self.rng.random() >= RING_HEARD:
                continue
            if host.daemon.serving:
                try:
                    host.daemon.follow()
                except HostCrash as crash:
                    self._daemon_died(host, crash)

    def tick(self) -> None:
        try:
            if self.clock.real_ms - self._last_beat_ms >= ticker.HEARTBEAT_EVERY_MS:
                self.submit(ordered.heartbeat())
                self._last_beat_ms = self.clock.real_ms
            for command in self._survey():
                self.submit(command)
        except (Unavailable, Refusal):
            return

    def _survey(self) -> ticker.Nominated:
        """What the ticker finds in the scopes of its agenda, which is all that there is to find."""
        if self.service is None:
            raise Unavailable("down")
        look, agenda, found = self.service.fleet.look(), self.service.agenda, ticker.Survey()
        names = sorted(agenda.due(look.now_ms))
        found.scopes(look, (look.scopes[name] for name in names if name in look.scopes))
        found.silent_hosts(look, agenda.told_hosts())
        found.whole_operations(look)
        nominated = found.nominated()
        if len(nominated) != len(ticker.survey(look)):
            raise Broken(f"I7: the agenda has {names}, and something else is due")
        return nominated

    # What guests could read.

    def _count_readable(self, ms: int) -> None:
        if self.service is None:
            return
        for vm in self.judge.domains:
            host = self.hosts.get(self.hypervisor.inner.where(vm) or "")
            if host is None:
                continue
            elsewhere = [] if self.hypervisor.inner.runs(vm) else self._shown(vm)
            here = None if host.daemon is None else host.daemon.text(vm)
            now = self._naming(vm, [here, *elsewhere])
            last = self._naming(vm, [host.dark.get(vm)])
            unnoticed_ms = UNNOTICED_MS - (self.clock.real_ms - host.heard_ms)
            for event_id in now | last:
                known = host.daemon is not None and event_id in now
                counted_ms = ms if known else max(0, min(ms, unnoticed_ms))
                self.judge.readable(vm, event_id, counted_ms)

    def _naming(self, vm: str, texts: Iterable[bytes | None]) -> set[str]:
        """The events that name a VM in some documents."""
        named = (one for text in texts if text for one in self._events_named(text))
        return {event_id for event_id, resources in named if vm in resources}

    def _shown(self, vm: str) -> list[bytes]:
        """What any host shows of a scope: a VM that does not run reads nothing, wherever it is."""
        scope = self.judge.domains[vm][0]
        pages = (h.daemon.documents.page(scope) for h in self.hosts.values() if h.daemon)
        return [page.documents[NEWEST.name].body for page in pages if page is not None]

    def _events_named(self, text: bytes) -> list[tuple[str, list[str]]]:
        """The events of a document and whom they name; read once, it is asked at every beat."""
        if text not in self._named:
            events = json.loads(text)["Events"]
            self._named[text] = [(event["EventId"], event["Resources"]) for event in events]
        return self._named[text]

    # Hosts.

    def join(self, host: SimHost) -> None:
        """The operator invites the host, and it joins with a new key. Raises Unavailable."""
        if self.service is None:
            raise Unavailable("down")
        host.disk.certificate = b"%b key-%d" % (host.name.encode(), self.ids.number())
        membership = self.service.membership
        try:
            token = run_now(membership.invite(host.name, replaces=True))
            run_now(membership.join(host.name, token, host.disk.certificate.decode()))
        except Crash as crash:
            self.crash(str(crash))
            raise Unavailable("died") from None
        finally:
            self.judge.members[host.name] = self._key_of(host.name)

    def revoke(self, host: SimHost) -> None:
        """The operator shuts a host out. Raises Refusal or Unavailable."""
        if self.service is None:
            raise Unavailable("down")
        try:
            run_now(self.service.membership.revoke(host.name))
            self.judge.count("hosts shut out")
        except Crash as crash:
            self.crash(str(crash))
            raise Unavailable("died") from None
        finally:
            self.judge.members[host.name] = self._key_of(host.name)

    def is_member(self, host: SimHost) -> bool:
        """Whether the certificate that the host has is good."""
        key = self._key_of(host.name)
        return key is not None and host.disk.certificate == f"{host.name} {key}".encode()

    def _key_of(self, host: str) -> str | None:
        """The key that the host has joined with, as it is durable."""
        member = self.durable.members.members.get(host)
        return member.key if member is not None else None

    def daemon_dies(self, host: SimHost) -> None:
        if host.daemon is not None:
            # Of one that control has never heard, nobody knows that it showed less.
            host.dark = host.dark or host.daemon.texts()
            host.daemon.tasks.drop()
            host.daemon = None

    def daemon_returns(self, host: SimHost) -> None:
        """It speaks to control first of all."""
        host.daemon, host.restarts_ms = Daemon(self, host), None
        self.host_turn(host)

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
            known = self.service.fleet.scope_of_vm if self.service is not None else {}
            self.judge.went_down([vm for vm in down if vm in known])  # nobody told of the others

    def _note_running(self) -> None:
        for vm in [*self.judge.down_since, *self.judge.given_up]:
            if self.hypervisor.inner.runs(vm):
                self.judge.down_since.pop(vm, None)
                self.judge.given_up.discard(vm)

    # VMs that are switched on and off.

    def owner_switches(self, vm: str, *, on: bool) -> None:
        """The owner of a VM switches it on or off, where it is."""
        inner = self.hypervisor.inner
        where = inner.where(vm)
        if where is None or inner.dead(where) or (not on and not inner.runs(vm)):
            return
        self.say(f"  {vm} is switched {'on' if on else 'off'} on {where}")
        inner.switch(vm, on=on)
        self.judge.switched(vm, on=on)
        if on:
            return
        unseen = self.ran_in.get(vm) != run_now(self.hypervisor.boot_id(where))
        if where in self.failed or unseen or vm in self.hypervisor.acted_on():
            self.judge.unsure_off.add(vm)

    def _sighted(self, host: SimHost, told: wire.Sighting) -> None:
        """Control has taken over what a host reported."""
        host.sighted_ms = self.clock.real_ms
        running = {seen.name for seen in told.vms if seen.power == Power.RUNNING}
        known = self.service.fleet.host(host.name) if self.service else None
        if known is not None and known.boot_id is not None:
            self.ran_in.update(dict.fromkeys(running, known.boot_id))
        self.judge.on_unheard -= running
        if host.name not in self.failed:
            self.judge.unsure_off -= running - self.hypervisor.acted_on()
        for vm in running & self.judge.quiet_ms.keys():
            del self.judge.quiet_ms[vm]  # an old report: it says that the VM runs

    def _judge_powers(self) -> None:
        """Off counts while nothing is wrong with the host, the service and the VM's own affairs."""
        self._note_boots()  # always: a host may boot in the moment in which an owner switches off
        if not self.judge.off_since:
            return
        busy = self.hypervisor.acted_on()
        for vm in list(self.judge.off_since):
            where = self.hypervisor.inner.where(vm) or ""
            well = self._is_well(self.hosts.get(where))
            quiet = well and vm not in busy and where not in busy and where not in self.failed
            self.judge.is_off(vm, quiet=quiet, runs=self.hypervisor.inner.runs(vm))

    def _is_well(self, host: SimHost | None) -> bool:
        """Whether the service hears the host all the time, and what it reports."""
        if host is None or host.daemon is None or self.service is None:
            return False
        now_ms = self.clock.real_ms
        heard = now_ms - host.heard_ms < HEARD_WITHIN_MS
        return heard and now_ms - host.sighted_ms <= SEEN_WITHIN_MS

    def _note_boots(self) -> None:
        """Who was off too shortly to count when its host booted may have gone down with it."""
        for host in [name for name in self.hosts if not self.hypervisor.inner.dead(name)]:
            boot_id = run_now(self.hypervisor.boot_id(host))
            if self._boots.get(host, boot_id) != boot_id:
                here = self.judge.off_since.keys() & self.hypervisor.vms_on(host)
                self.judge.unsure_off.update(here - self.judge.surely_off)
            self._boots[host] = boot_id

    # The end.

    def end(self) -> None:
        """Everything was healed and all events have ended: nothing may be missing."""
        inner, vms = self.hypervisor.inner, set(self.judge.domains)
        running = {vm for vm in vms if inner.runs(vm)}
        gone = {vm for vm in vms if inner.where(vm) is None}
        self.judge.end_of_vms(running, gone)
        self.judge.check_approvals(self.store.event)
        events = self.store.events(EVERYTHING, open_only=False, limit=EVERY)
        lines = self.store.journal(EVERYTHING, after=0, limit=EVERY)
        self.judge.check_journal([one.event for one in events], lines)
        for host in self.hosts.values():
            if host.daemon is None or host.daemon.feed_reader.refuses:
                raise Broken(f"documents: {host.name} refuses what control shows, or is away")
            committed = self._committed_to(host.name)
            for shown in (host.daemon.shows(), host.daemon.texts()):
                self.judge.end_of_documents(host.name, shown=shown, committed=committed)

    def _committed_to(self, host: str) -> dict[str, bytes]:
        """By VM of a host, the document that is committed."""
        scopes = self.store.load().scopes
        return {
            vm.name: render(scope, NEWEST)
            for scope in scopes
            for vm in scope.vms
            if vm.host == host
        }
