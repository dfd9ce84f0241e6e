"""Questions about the fleet, answered from one index and from what was observed of hosts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from forewarn.control.fleet_index import FleetIndex
from forewarn.control.hosts.liveness import Hearing, ReportedVm
from forewarn.core import placement
from forewarn.core.agent_polling import Reading, reading
from forewarn.core.errors import NotFound
from forewarn.core.inventory.host_report import Power
from forewarn.core.model import (
    Decision,
    Host,
    Operation,
    OperationPhase,
    Policy,
    ScheduledEvent,
    Scope,
    Vm,
    Webhook,
)
from forewarn.core.suggestions import meant
from forewarn.core.tokens import Tokens
from forewarn.ports import JournalExtent


class FleetReader:
    """Answers `core.fleet.Fleet` and what else is asked of a fleet. Changes nothing."""

    def __init__(self, index: FleetIndex, heard: Hearing, policy: Policy) -> None:
        self._index = index
        self._heard = heard
        self.policy = policy

    # The questions of core.fleet.Fleet.

    def host(self, name: str) -> Host | None:
        return self._index.hosts.get(name)

    def hosts(self) -> Iterable[Host]:
        return self._index.hosts.values()

    def alive(self, host: str) -> bool:
        return self._heard.alive(host)

    def silent_ms(self, host: str) -> int:
        return self._heard.silent_ms(host)

    def may_be_on(self, host: str) -> bool:
        return self._heard.may_be_on(host)

    def hypervisor_unreachable(self, host: str) -> str:
        return self._heard.hypervisor_unreachable(host)

    def refuses(self, host: str) -> str:
        return self._heard.refuses(host)

    def two_daemons(self, host: str) -> bool:
        return self._heard.two_daemons(host)

    def shut_out(self, host: str) -> bool:
        known = self._index.hosts.get(host)
        return self.policy.hosts_join and known is not None and not known.joined

    def scope(self, name: str) -> Scope | None:
        return self._index.scopes.get(name)

    def scopes_on(self, host: str) -> Sequence[Scope]:
        return self._index.scopes_on(host)

    def scopes_acting(self, host: str) -> Sequence[Scope]:
        """Scopes of which the host has something to do or is doing it, in name order."""
        return self._index.scopes_acting(host)

    def vm_count(self, host: str) -> int:
        return self._index.vm_count(host)

    def arriving(self, host: str) -> Sequence[tuple[str, Vm]]:
        return self._index.arriving(host)

    def strangers(self, host: str) -> Sequence[str]:
        reported = self._heard.reported(host)
        if not reported:
            return ()
        own = {vm.name for scope in self.scopes_on(host) for vm in scope.vms if vm.host == host}
        up = (Power.RUNNING, Power.PAUSED)
        return sorted(name for name, one in reported.items() if one.power in up and name not in own)

    def places(self) -> Sequence[tuple[Host, int]]:
        return placement.places(self)

    def operation(self, operation_id: str) -> Operation | None:
        return self._index.operations.get(operation_id)

    def operations_on(self, host: str) -> Sequence[Operation]:
        return self._index.operations_on(host)

    # What others ask beyond it.

    @property
    def scopes(self) -> Mapping[str, Scope]:
        """Every scope, in the order in which they came."""
        return self._index.scopes

    @property
    def hosts_by_name(self) -> Mapping[str, Host]:
        return self._index.hosts

    @property
    def operations(self) -> Mapping[str, Operation]:
        """The open operations, by id."""
        return self._index.operations

    @property
    def busy_scopes(self) -> Collection[str]:
        """The names of scopes with open events or recoveries."""
        return self._index.busy_scopes

    @property
    def tokens(self) -> Tokens:
        """Every token that is kept, by id."""
        return self._index.tokens

    @property
    def webhooks(self) -> Mapping[str, Webhook]:
        """Every webhook, by id."""
        return self._index.webhooks

    @property
    def scope_of_vm(self) -> Mapping[str, str]:
        return self._index.scope_of_vm

    @property
    def inventory(self) -> str | None:
        """The inventory file that was decided last."""
        return self._index.inventory

    @property
    def unfinished(self) -> str:
        """What was noted of that file while it is not applied whole; else empty."""
        return self._index.unfinished

    @property
    def journal(self) -> JournalExtent:
        """Which lines the journal has."""
        return self._index.journal

    @property
    def digests(self) -> Mapping[str, str]:
        """Those of the definitions that are kept: VMs that a host has reported, ever."""
        return self._index.digests

    def vm(self, name: str) -> Vm | None:
        return self._index.vms.get(name)

    def reported(self, host: str) -> Mapping[str, ReportedVm]:
        """The VMs that a host reported last, by name."""
        return self._heard.reported(host)

    def polled_ago_ms(self, vm: Vm) -> int | None:
        """How long ago the VM last polled; None if that was not heard since our own start."""
        return self._heard.polled_ago_ms(vm)

    def reading(self, vm: Vm) -> Reading:
        """Whether the agent in the VM reads its document."""
        return reading(
            vm,
            polled_ago_ms=self._missed_ms(vm),
            listened_ms=self._heard.up_ms(),
            host_alive=self.alive(vm.host),
            polls_told=self._heard.tells_polls(vm.host),
        )

    def agent_silent(self, vm: Vm, after_ms: int) -> bool:
        """True if a VM that has polled has not for so long, though its host would have told it."""
        missed_ms = self._missed_ms(vm)
        if (self._heard.up_ms() if missed_ms is None else missed_ms) < after_ms:
            return False
        return self._heard.tells_polls(vm.host) and self.alive(vm.host)

    def _missed_ms(self, vm: Vm) -> int | None:
        """For how long we listened without hearing the VM poll; None if it was not heard at all.

        In the emulator that is no time: agents poll in real time, however far its clock is turned.
        """
        ago_ms = self._heard.polled_ago_ms(vm)
        return None if ago_ms is None else min(ago_ms, self._heard.up_ms())

    def silences(self, host: str) -> int:
        """How often the host was silent and came back."""
        return self._heard.silences(host)

    def acts(self, host: str) -> bool:
        """True while the host has anything to do or is doing it."""
        return self._index.acts(host)

    def open_event(self, event_id: str) -> tuple[Scope, ScheduledEvent] | None:
        """An open event with its scope; `event_id` is in upper case."""
        scope = self._index.scopes.get(self._index.scope_of_event.get(event_id, ""))
        event = scope.event(event_id) if scope else None
        return None if scope is None or event is None else (scope, event)

    def open_event_ids(self) -> Collection[str]:
        return self._index.scope_of_event.keys()

    def need_host(self, name: str) -> Host:
        host = self._index.hosts.get(name)
        if host is None:
            raise NotFound(f"There is no host {name}.", _names("host", name, self._index.hosts))
        return host

    def need_scope(self, name: str) -> Scope:
        scope = self._index.scopes.get(name)
        if scope is None:
            raise NotFound(f"There is no scope {name}.", _names("scope", name, self._index.scopes))
        return scope

    def need_scope_of_vm(self, vm: str) -> Scope:
        name = self._index.scope_of_vm.get(vm)
        if name is None:
            raise NotFound(f"There is no VM {vm}.", _names("vm", vm, self._index.scope_of_vm))
        return self._index.scopes[name]


class FleetLook(FleetReader):
    """The fleet at one moment: what takes long to find out is found out once. Not to be kept."""

    def __init__(self, index: FleetIndex, heard: Hearing, policy: Policy, *, now_ms: int) -> None:
        super().__init__(index, heard, policy)
        self.now_ms = now_ms
        self._places: Sequence[tuple[Host, int]] | None = None

    def places(self) -> Sequence[tuple[Host, int]]:
        if self._places is None:
            self._places = super().places()
        return self._places

    def after(self, decision: Decision) -> FleetAfter:
        """The fleet as it would be after a decision that is not taken."""
        return FleetAfter(self._index, self._heard, self.policy, self.now_ms, decision)


class FleetAfter(FleetLook):
    """A look at what a decision would lead to, as far as `core.fleet.Fleet` asks: nothing changes.

    Which scopes are on a host is as it is now: no order moves a VM at once.
    """

    def __init__(
        self,
        index: FleetIndex,
        heard: Hearing,
        policy: Policy,
        now_ms: int,
        decision: Decision,
    ) -> None:
        super().__init__(index, heard, policy, now_ms=now_ms)
        self._hosts = {host.name: host for host in decision.hosts}
        self._scopes = {scope.name: scope for scope in decision.scopes}
        self._operations = {one.operation_id: one for one in decision.operations}

    def host(self, name: str) -> Host | None:
        return self._hosts.get(name) or super().host(name)

    def scope(self, name: str) -> Scope | None:
        return self._scopes.get(name) or super().scope(name)

    def scopes_on(self, host: str) -> Sequence[Scope]:
        return [self._scopes.get(scope.name, scope) for scope in super().scopes_on(host)]

    def operation(self, operation_id: str) -> Operation | None:
        return self._operations.get(operation_id) or super().operation(operation_id)

    def operations_on(self, host: str) -> Sequence[Operation]:
        here = {one.operation_id: one for one in super().operations_on(host)}
        here |= {key: one for key, one in self._operations.items() if one.host == host}
        found = (one for one in here.values() if one.phase is not OperationPhase.ENDED)
        return sorted(found, key=lambda one: (one.ordered_ms, one.operation_id))


def _names(what: str, name: str, known: Iterable[str]) -> str:
    return f"{meant(name, known)} `forewarn {what} list` shows the names."
