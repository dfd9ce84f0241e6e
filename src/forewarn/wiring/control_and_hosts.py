"""Control and its simulated hosts in one process: what `serve` and the emulator are made of.

`control_parts` has the control plane alone. Nothing here runs by itself.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from forewarn.adapters.simulated.hypervisor import SimulatedHypervisor
from forewarn.api.link.in_process import InProcessLink
from forewarn.api.link.routes import LinkRoutes
from forewarn.control.hosts.host_feed import HostFeed
from forewarn.control.hosts.report_intake import ReportIntake
from forewarn.control.hosts.simulated_power import HostPower
from forewarn.core.model import Health, Host, Vm
from forewarn.endpoint.endpoint import Endpoint
from forewarn.endpoint.metrics import EndpointMetrics
from forewarn.host.daemon import Hosts
from forewarn.host.identity import Identity
from forewarn.host.in_process_guests import InProcessGuests
from forewarn.host.in_process_hosts import InProcessHosts
from forewarn.host.listeners import Listeners
from forewarn.host.served_documents import Documents
from forewarn.ports import Change, HostLink
from forewarn.settings import Settings
from forewarn.wire.link import ShownScope
from forewarn.wiring.control_parts import Adapters, ControlParts


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
