"""The objects that every command with a control plane has, put together by plain calls.

What differs between `serve` and the emulator comes in as arguments: clock, ids, store, and who
drives the loops. Nothing here runs by itself.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from forewarn.adapters.loop_lateness import LoopLateness
from forewarn.adapters.simulated.hypervisor import SimulatedHypervisor
from forewarn.adapters.sqlite.store import SqliteStore
from forewarn.api.doorbell import Doorbell
from forewarn.api.link.in_process import InProcessLink
from forewarn.api.link.routes import LinkRoutes
from forewarn.control.control import Control
from forewarn.control.fleet_index import FleetIndex
from forewarn.control.fleet_metrics import FleetMetrics
from forewarn.control.hosts import feed_positions
from forewarn.control.hosts.feed import HostFeed
from forewarn.control.hosts.observed import Observed
from forewarn.control.hosts.report_intake import ReportIntake
from forewarn.control.hosts.simulated_power import HostPower
from forewarn.control.inventory.file_reader import ReadFiles
from forewarn.control.journal_log import JournalLog
from forewarn.control.loops import TickerLoop
from forewarn.control.metrics import ControlMetrics
from forewarn.control.published_fleet import PublishedFleet
from forewarn.control.timekeeper import PULSE_EVERY_S, Timekeeper
from forewarn.control.volatile import Volatile
from forewarn.control.writer import Writer, WriterThread
from forewarn.core.model import SECOND_MS, Health, Host, Policy, Vm
from forewarn.endpoint.browsers import known_names
from forewarn.endpoint.endpoint import Endpoint
from forewarn.endpoint.metrics import EndpointMetrics
from forewarn.host.daemon import Hosts
from forewarn.host.identity import Identity
from forewarn.host.in_process_guests import InProcessGuests
from forewarn.host.in_process_hosts import InProcessHosts
from forewarn.host.listeners import Listeners
from forewarn.host.served_documents import Documents
from forewarn.logs import Log
from forewarn.ports import Change, Clock, HostLink, Ids, Snapshot
from forewarn.settings import Settings
from forewarn.tables.folding import Counted
from forewarn.wire.link import ShownScope
from forewarn.wiring.process import Growing, die

if TYPE_CHECKING:
    from forewarn.api.console.mount import ConsoleSetup
    from forewarn.control.feed import Feed
    from forewarn.control.inventory.apply import Inventories

log = Log(__name__)


def _version() -> str:
    # With the first scrape: it loads zip files and e-mail, and most emulators are never asked.
    from importlib.metadata import version  # noqa: PLC0415 - see above

    return version("forewarn")


class Adapters(Struct, frozen=True, kw_only=True):
    """The outside world of one command.

    `lease_clock` is what leases and heartbeats of hosts are counted on.
    """

    store: SqliteStore
    clock: Clock
    lease_clock: Clock
    ids: Ids


class ControlParts:
    """Store, writer, control and ticker, connected. Made inside the event loop that runs it.

    After each commit, on the event loop and once the fleet has it, `show` is given what was
    committed; then `ring` is called if a host may have to look again.
    """

    def __init__(
        self,
        settings: Settings,
        adapters: Adapters,
        *,
        show: Callable[[Sequence[Change]], None],
        ring: Callable[[], None],
        hosts_join: bool = False,
        power: HostPower | None = None,
    ) -> None:
        self.settings = settings
        policy = replace(settings.policy(), hosts_join=hosts_join)
        self.store = adapters.store
        self.clock = adapters.clock
        self._ring = ring
        self._lease_clock = adapters.lease_clock
        self.timekeeper = Timekeeper(adapters.clock, pulse_clock=adapters.lease_clock)
        snapshot = adapters.store.load()
        self.last_heartbeat_ms = snapshot.heartbeat_ms
        self.history = feed_positions.begin(adapters.store, snapshot)
        self._shown_commits = snapshot.shown
        self.observed = Observed(adapters.lease_clock, power=power)
        self.fleet = PublishedFleet(snapshot, self.observed, policy=policy, clock=self.clock)
        self.measures = self._measuring(snapshot)
        self.lateness = LoopLateness()
        self.files = ReadFiles() if hosts_join else None  # they are asked what a file lists
        began_ms = adapters.lease_clock.monotonic_ms()
        self.volatile = Volatile(began_ms, files=self.files or ReadFiles())
        self.writer = self._writer(snapshot, policy, adapters.ids)
        self.control = Control(
            writer=self.writer,
            store=self.store,
            clock=self.clock,
            lease_clock=adapters.lease_clock,
            fleet=self.fleet,
            observed=self.observed,
        )
        self.ticker = TickerLoop(self.control, self.measures)
        self.fleet.on_publish(show)
        self.fleet.on_publish(self.measures.committed)
        self.fleet.on_publish(self._fleet_measures.committed)
        self._journal_log = JournalLog() if settings.log_journal else None
        if self._journal_log is not None:
            self.fleet.on_publish(self._journal_log.committed)
        self.fleet.on_publish(self._ring_all)
        self.doorbell = Doorbell()
        self.measures.count(
            "forewarn_writer_turns",
            "Batches of commands that the writer has taken, one commit each at most.",
            lambda: self.writer.turns,
        )
        self.measures.count(
            "forewarn_turn_errors",
            "Parts of what hosts said or asked for that broke in control, each time.",
            lambda: self.control.turns.failures,
        )

    @cached_property
    def feed(self) -> Feed:
        """What readers and webhooks follow. It begins here: earlier lines are the store's."""
        # The emulator has no reader unless it has an operator API.
        from forewarn.control.feed import Feed  # noqa: PLC0415 - see above

        feed = Feed(self.control)
        self.measures.add(feed)
        return feed

    def _measuring(self, snapshot: Snapshot) -> ControlMetrics:
        """The numbers of this control, which begin with what is stored."""
        measures = ControlMetrics(version=_version)
        reads, backup_ms = self.store.open_first_reads(), self.store.last_backup_ms()
        measures.loaded(snapshot.scopes, reads, backup_ms=backup_ms)
        measures.sizes(self.store.sizes)
        self._fleet_measures = FleetMetrics(self.fleet)
        measures.add(self._fleet_measures)
        return measures

    def console(
        self,
        *,
        expiries_s: Callable[[], Mapping[str, float]] = dict,
        more: Callable[[Any], Any] | None = None,
        kept: bool = True,
    ) -> ConsoleSetup:
        """What the console is told of this service. Once: it has the sessions."""
        from forewarn.api.console.mount import ConsoleSetup  # noqa: PLC0415 - with the API

        return ConsoleSetup(
            names=known_names(self.settings.console_names),
            expiries_ms=lambda: {w: round(s * SECOND_MS) for w, s in expiries_s().items()},
            database_bytes=lambda: sum(self.store.sizes().values()),
            kept=kept,
            more=more,
        )

    async def stop(self) -> None:
        """End the writer, the store and the log of the journal, in this order."""
        await self.writer.stop()
        self.store.close()
        if self._journal_log is not None:
            await asyncio.to_thread(self._journal_log.end)

    def load_host_feed(self, host_feed: HostFeed) -> None:
        """Have the views begin with what is stored."""
        shown, self._shown_commits = self._shown_commits, {}
        host_feed.load(self.fleet.scopes.values(), self.fleet.operations.values(), shown)

    def _writer(self, snapshot: Snapshot, policy: Policy, ids: Ids) -> WriterThread:
        writer = Writer(
            index=FleetIndex(snapshot),
            counted=Counted.after(snapshot),
            observed=self.observed,
            store=self.store,
            timekeeper=self.timekeeper,
            lease_clock=self._lease_clock,
            volatile=self.volatile,
            policy=policy,
            ids=ids,
            on_commit=self._committed,
        )
        return WriterThread(
            writer,
            publish=self.fleet.publish,
            on_fatal=die,
            on_failure=self.measures.store_failed,
        )

    def _committed(self, changes: Sequence[Change]) -> None:
        self.writer.committed(changes)

    def _ring_all(self, changes: Sequence[Change]) -> None:
        """Ring all parts that may have to look again."""
        if any(change.scopes or change.operations or change.hosts for change in changes):
            self._ring()
        self.doorbell.ring()

    def inventories(
        self,
        *,
        needs_channels: bool = True,
        cannot_listen: Callable[[str], str | None] = lambda _: None,
    ) -> Inventories:
        """Who applies inventories of any size while the service runs. Once; see `Inventories`."""
        # The emulator has none of it, and every module costs its start.
        from forewarn.control.inventory.apply import (  # noqa: PLC0415 - see above
            SLICE_VMS_MAX,
            Inventories,
        )
        from forewarn.wiring.inventory_child import reads_apart  # noqa: PLC0415 - see above

        growing = Growing()
        inventories = Inventories(
            self.control,
            needs_channels=needs_channels,
            cannot_listen=cannot_listen,
            reads=reads_apart(),
            slice_vms=SLICE_VMS_MAX,
            quietly=lambda: growing,
            files=self.volatile.files,
            keeps_read=self.files is not None,
        )
        self.measures.count(
            "forewarn_inventory_errors",
            "Parts of large inventories that broke, each time that they were tried.",
            lambda: inventories.failures,
        )
        return inventories

    async def pulse(self) -> None:
        """Let the timekeeper notice, until canceled, that this process stood still.

        What hosts said meanwhile was not heard: they are not taken for silent because of that.
        """
        while True:
            self.timekeeper.pulse()
            self.observed.pulse()
            await asyncio.sleep(PULSE_EVERY_S)


class ControlAndHosts(ControlParts):
    """A control plane with its hosts and documents in the same process, over the link.

    `shown_as` turns a scope into what its guests are shown.
    """

    def __init__(
        self,
        settings: Settings,
        adapters: Adapters,
        *,
        ring: Callable[[], None],
        shown_as: Callable[[ShownScope], ShownScope] = lambda scope: scope,
    ) -> None:
        power = HostPower()
        super().__init__(settings, adapters, show=self._follow, ring=ring, power=power)
        self.facts = 0  # lines of the journal since the start
        self.host_feed = HostFeed(self.history)
        self.load_host_feed(self.host_feed)
        report_intake = ReportIntake(adapters.lease_clock, self.volatile)
        self._routes = LinkRoutes(
            self.control, host_feed=self.host_feed, report_intake=report_intake
        )
        self.identity = Identity()
        self.documents = Documents(
            self.identity, requests_per_s=float(settings.guest_requests_per_second)
        )
        self.guests = InProcessGuests(
            links=self._link,
            say=self._say,
            want_turn=self._want_turn,
            identity=self.identity,
            documents=self.documents,
            clock=self.clock,
        )
        self.hypervisor = SimulatedHypervisor(self.clock, powered=power.on)
        self.hosts = Hosts(
            self.fleet.hosts_by_name,
            links=self._link,
            hypervisor=self.hypervisor,
            documents=self.documents,
            monotonic_ms=adapters.lease_clock.monotonic_ms,
            guests=self.guests.of_host,
            powered=self.hypervisor.answers,
        )
        self._together = InProcessHosts(
            links=self._link,
            now=self.host_feed.now,
            documents=self.documents,
            hosts=self.hosts,
            clock=self.clock,
            shown_as=shown_as,
        )
        self._count_what_breaks()
        self.fleet_changed = asyncio.Event()
        # What `arrange` has not looked at yet: a commit must not cost the size of the fleet.
        self._new_scopes = set(self.fleet.scopes)
        self._new_hosts = set(self.fleet.hosts_by_name)
        self._listening: dict[str, dict[str, str]] = {}  # by scope, then by VM
        self._listening_changed = False

    def _link(self, host: str) -> HostLink:
        return InProcessLink(self._routes, host)

    async def _say(self, host: str) -> None:
        await self.hosts.say(host)

    def _want_turn(self, host: str) -> None:
        self.hosts.want_turn(host)

    def show_all(self) -> None:
        """Have every host show what there is now."""
        self._together.take_over(self.host_feed.take_rung())

    @property
    def host_failures(self) -> int:
        """How often something broke, or hung, in a host of this process."""
        return self.hosts.failures + self._together.failures

    def _count_what_breaks(self) -> None:
        self.measures.add(self.hosts.heartbeat_times)
        self.measures.count(
            "forewarn_host_errors",
            "Steps and turns of hosts that broke or hung, and what they could not take over.",
            lambda: self.host_failures,
        )
        self.measures.count(
            "forewarn_first_reads_dropped",
            "First reads that were not kept.",
            lambda: self.guests.dropped,
        )

    def serve_guests(
        self, endpoint: Endpoint, *, kept: Mapping[str, socket.socket] | None = None
    ) -> Listeners:
        """Let guests ask this endpoint. The listeners are open once they are told what to open.

        `kept` are sockets of VMs that are open already (`Listeners.hand_over`).
        """
        self.measures.add(EndpointMetrics(endpoint.counters))
        return Listeners(endpoint, self.identity, kept=kept)

    def _follow(self, changes: Sequence[Change]) -> None:
        """Have the hosts take over what was committed, before any caller is answered."""
        for change in changes:
            for before, host in change.hosts:
                self._follow_health(host, before.health if before else Health.OK)
        self.host_feed.published(changes)
        self.show_all()
        for change in changes:
            self._note(change)
            gone = [name for name in change.removed_hosts if name not in self.fleet.hosts_by_name]
            self.host_feed.forget(gone)
            self._together.forget(gone)
            self.guests.forget(gone)
        if self._new_scopes or self._new_hosts:
            self.fleet_changed.set()

    def _note(self, change: Change) -> None:
        """Remember which scopes and hosts are to be arranged, and count the journal's lines."""
        self.facts += len(change.lines)
        self._new_scopes.update(
            after.name
            for before, after in change.scopes
            if before is None or before.vms is not after.vms
        )
        self._new_scopes.update(change.removed_scopes)
        self._new_hosts.update(
            after.name
            for before, after in change.hosts
            if before is None or before.health is not after.health
        )
        self._new_hosts.update(change.removed_hosts)

    def _follow_health(self, host: Host, before: Health) -> None:
        """A simulated host is off from the commit that it has failed until that of its repair."""
        if Health.FAILED not in (before, host.health) or before is host.health:
            return
        if host.health is Health.FAILED:
            self._switch_off(host.name)
        else:
            self._switch_on(host.name)

    def _switch_off(self, host: str) -> None:
        self.hypervisor.kill_host(host)
        self.observed.lost(host)
        self.hosts.died(host)

    def _switch_on(self, host: str) -> None:
        self.hypervisor.boot_host(host)
        self.hosts.booted(host)

    def look_at_scopes(self, names: Iterable[str]) -> None:
        """Have these scopes arranged again: where their VMs listen may have changed."""
        self._new_scopes.update(names)
        self.fleet_changed.set()

    async def arrange(self, listeners: Listeners, listen: Callable[[Vm], str | None]) -> None:
        """Have listeners, hosts and the simulated machines as the inventory has them.

        Hosts that are new or have booted are heard, once the first ones were. `listen` says where
        a VM has its own listener, if it has one: it answers also while its host is off, so that
        a person who plays the guest can read what has happened to it. Raises ListenFailed.
        """
        hosts, self._new_hosts = self._new_hosts, set()
        scopes, self._new_scopes = self._new_scopes, set()
        if hosts:
            self.hosts.set_names(self.fleet.hosts_by_name)
        for name in sorted(scopes):
            self._arrange_scope(name, listen)
        for name in sorted(hosts):
            host = self.fleet.host(name)
            if host is not None:
                self._power(host)
        await self._have_heard(hosts)
        if self._listening_changed:
            wanted = {vm: where for own in self._listening.values() for vm, where in own.items()}
            await listeners.apply(wanted)
            self._listening_changed = False

    async def _have_heard(self, hosts: Collection[str]) -> None:
        """Have those of the hosts heard that are not, once the first hosts of all were."""
        silent = {name for name in hosts if not self.observed.alive(name)}
        if silent and any(map(self.observed.was_heard, self.fleet.hosts_by_name)):
            await self.hosts.heartbeat(silent)

    def _arrange_scope(self, name: str, listen: Callable[[Vm], str | None]) -> None:
        scope = self.fleet.scope(name)
        own: dict[str, str] = {}
        for vm in scope.vms if scope is not None else ():
            self.hypervisor.place(vm.name, vm.host)
            where = listen(vm)
            if where:
                own[vm.name] = where
        if own != self._listening.get(name, {}):
            self._listening_changed = True
            self._listening[name] = own
        if not own:
            self._listening.pop(name, None)

    def _power(self, host: Host) -> None:
        """A simulated host is off while the operator says that it has failed."""
        failed = host.health is Health.FAILED
        if failed and not self.hypervisor.dead(host.name):
            self._switch_off(host.name)
        elif not failed and self.hypervisor.dead(host.name):
            self._switch_on(host.name)
