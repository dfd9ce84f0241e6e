"""Everything open, in memory, and the transaction through which alone it changes.

The memory belongs to the writer: one thread, one transaction at a time. A transaction edits it in
place and can take its edits back; what the store has not kept is taken back. Nothing here waits,
and nothing here decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from forewarn.core import edits, invariants, planning
from forewarn.core.errors import NotFound
from forewarn.core.machines import Power, WhenHostGoesDown
from forewarn.core.model import (
    ActionKind,
    Decision,
    Fact,
    Host,
    Operation,
    OperationPhase,
    Policy,
    Scope,
    Vm,
)
from forewarn.core.spelling import meant
from forewarn.ports import Change, Definition, FirstRead, Ids, Remembered, Snapshot, Store


class Liveness(Protocol):
    """Which hosts have been heard from lately."""

    def alive(self, host: str) -> bool: ...

    def silent_ms(self, host: str) -> int: ...


def hosts_mentioned(scope: Scope) -> set[str]:
    """Hosts that carry VMs of the scope or may do so, or that an open event of it is about."""
    hosts = {vm.host for vm in scope.vms}
    hosts.update(vm.may_run_on for vm in scope.vms if vm.may_run_on)
    for event in scope.events:
        hosts.add(event.host)
        for action in event.actions:
            hosts.update(name for name in (action.host, action.target_host) if name)
    return hosts


_COMING = (ActionKind.MOVE_VM, ActionKind.START_VM, ActionKind.DEFINE_VM)


def arrivals(scope: Scope) -> Iterator[tuple[str, Vm]]:
    """(host, VM) for each VM of the scope that a started action is bringing to a host.

    So with each that an action was bringing there, until it is known where it is.
    """
    for vm in scope.vms:
        if vm.may_run_on is not None and vm.may_run_on != vm.host:
            yield vm.may_run_on, vm
    for event in scope.events:
        for action in event.actions:
            coming = action.kind in _COMING
            if not coming or action.ended or action.target_host is None:
                continue
            comes = scope.vm(action.vm or "")
            if comes is not None and action.target_host not in (comes.host, comes.may_run_on):
                yield action.target_host, comes


@dataclass(frozen=True, slots=True)
class Shown:
    """A VM as its host showed it last; `problem` says what about it cannot be used."""

    power: Power
    problem: str = ""
    freeze_by_move: bool = False
    when_host_goes_down: WhenHostGoesDown = WhenHostGoesDown.RESTART


class Memory:
    """Open scopes, hosts and operations by name, with the indexes that rules ask for."""

    def __init__(self, snapshot: Snapshot, liveness: Liveness) -> None:
        self.liveness = liveness
        self.scopes: dict[str, Scope] = {}
        self.hosts: dict[str, Host] = {}
        self.operations: dict[str, Operation] = {}
        self.inventory = snapshot.inventory  # the last applied text
        # Of the definitions that are kept, by VM: those VMs, and only those, a host has shown.
        self.digests: dict[str, str] = dict(snapshot.digests)
        # What each host showed last, by host and VM. Only in memory: it is shown again.
        self.shown: dict[str, Mapping[str, Shown]] = {}
        # Hosts whose hypervisor does not answer, and why, until they show their VMs again.
        self.blind: dict[str, str] = {}
        # Hosts that obey nothing of this control, and why, as their last heartbeat said.
        self.refusing: dict[str, str] = {}
        # True where hosts have daemons of their own, and only those are heard that have joined.
        self.hosts_join = False
        self.silences: Counter[str] = Counter()  # how often each host was silent and came back
        # Why nothing can listen on an address now, or None; who opens listeners says so.
        self.cannot_listen: Callable[[str], str | None] = lambda _: None
        self.scope_of_vm: dict[str, str] = {}
        self.busy_scopes: set[str] = set()
        self._scopes_on: dict[str, set[str]] = {}
        self._vm_counts: Counter[str] = Counter()
        # By host, so that a question about one host costs the same in a fleet of any size.
        self._arriving: dict[str, dict[str, list[Vm]]] = {}  # then by scope
        self._operations_on: dict[str, dict[str, Operation]] = {}  # then by id
        for host in snapshot.hosts:
            self.put_host(host.name, host)
        for scope in snapshot.scopes:
            self.put_scope(scope.name, scope)
        for operation in snapshot.operations:
            self.put_operation(operation.operation_id, operation)

    def put_scope(self, name: str, scope: Scope | None) -> None:
        """Replace, add or (with None) remove a scope and keep the indexes true."""
        self._forget_scope(name)
        if scope is None:
            return
        self.scopes[name] = scope
        for host in hosts_mentioned(scope):
            self._scopes_on.setdefault(host, set()).add(name)
        for vm in scope.vms:
            self._vm_counts[vm.host] += 1
            self.scope_of_vm[vm.name] = name
        for target, vm in arrivals(scope):
            self._arriving.setdefault(target, {}).setdefault(name, []).append(vm)
        if scope.events or scope.recoveries:
            self.busy_scopes.add(name)

    def _forget_scope(self, name: str) -> None:
        old = self.scopes.pop(name, None)
        if old is None:
            return
        for host in hosts_mentioned(old):
            self._scopes_on[host].discard(name)
        for vm in old.vms:
            self._vm_counts[vm.host] -= 1
            if self.scope_of_vm.get(vm.name) == name:  # else it moved to another scope
                del self.scope_of_vm[vm.name]
        for target, _ in arrivals(old):
            self._arriving[target].pop(name, None)
        self.busy_scopes.discard(name)

    def put_host(self, name: str, host: Host | None) -> None:
        if host is None:
            self.hosts.pop(name, None)
        else:
            self.hosts[name] = host

    def put_operation(self, operation_id: str, operation: Operation | None) -> None:
        """Keep an open operation; an ended one is forgotten."""
        old = self.operations.pop(operation_id, None)
        if old is not None:
            del self._operations_on[old.host][operation_id]
        if operation is None or operation.phase is OperationPhase.ENDED:
            return
        self.operations[operation_id] = operation
        self._operations_on.setdefault(operation.host, {})[operation_id] = operation

    def scopes_on(self, host: str) -> Sequence[Scope]:
        return [self.scopes[name] for name in sorted(self._scopes_on.get(host, ()))]

    def vm_count(self, host: str) -> int:
        return self._vm_counts[host]

    def arriving(self, host: str) -> Sequence[tuple[str, Vm]]:
        by_scope = self._arriving.get(host, {})
        return [(name, vm) for name in sorted(by_scope) for vm in by_scope[name]]

    def operations_on(self, host: str) -> Sequence[Operation]:
        found = self._operations_on.get(host, {}).values()
        return sorted(found, key=lambda o: (o.ordered_ms, o.operation_id))


@dataclass(frozen=True, slots=True)
class Undo:
    """What a transaction replaced, so that it can be put back."""

    scopes: dict[str, Scope | None]
    hosts: dict[str, Host | None]
    operations: dict[str, Operation | None]


class Transaction:
    """One use case at work: the fleet as it is now, and everything the use case changes.

    It answers the questions of `core.fleet.Fleet`, its own changes included. Every command gets a
    new one; the writer seals it, saves it and only then lets anybody see it.
    """

    def __init__(
        self, memory: Memory, store: Store, *, now_ms: int, policy: Policy, ids: Ids
    ) -> None:
        self.memory = memory
        self.store = store
        self.now_ms = now_ms
        self.policy = policy
        self._ids = ids
        self._before = Undo({}, {}, {})
        self._facts: list[Fact] = []
        self._first_reads: list[FirstRead] = []
        self._remembered: Remembered | None = None
        self._heartbeat_ms: int | None = None
        self._inventory: str | None = None
        self._inventory_before = memory.inventory
        self._definitions: dict[str, Definition] = {}
        self._digests_before: dict[str, str | None] = {}
        self._ended_operations: dict[str, Operation] = {}
        self._on_take_back: list[Callable[[], None]] = []
        self._places: Sequence[tuple[Host, int]] | None = None  # until the next change

    # The questions of core.fleet.Fleet.

    def host(self, name: str) -> Host | None:
        return self.memory.hosts.get(name)

    def hosts(self) -> Iterable[Host]:
        return self.memory.hosts.values()

    def alive(self, host: str) -> bool:
        return self.memory.liveness.alive(host)

    def silent_ms(self, host: str) -> int:
        return self.memory.liveness.silent_ms(host)

    def blind(self, host: str) -> str:
        return self.memory.blind.get(host, "")

    def refuses(self, host: str) -> str:
        return self.memory.refusing.get(host, "")

    def shut_out(self, host: str) -> bool:
        known = self.memory.hosts.get(host)
        return self.memory.hosts_join and known is not None and not known.joined

    def scope(self, name: str) -> Scope | None:
        return self.memory.scopes.get(name)

    def scopes_on(self, host: str) -> Sequence[Scope]:
        return self.memory.scopes_on(host)

    def vm_count(self, host: str) -> int:
        return self.memory.vm_count(host)

    def arriving(self, host: str) -> Sequence[tuple[str, Vm]]:
        return self.memory.arriving(host)

    def strangers(self, host: str) -> Sequence[str]:
        shown = self.memory.shown.get(host)
        if not shown:
            return ()
        own = {vm.name for scope in self.scopes_on(host) for vm in scope.vms if vm.host == host}
        up = (Power.RUNNING, Power.PAUSED)
        return sorted(name for name, one in shown.items() if one.power in up and name not in own)

    def places(self) -> Sequence[tuple[Host, int]]:
        if self._places is None:
            self._places = planning.places(self)
        return self._places

    def operation(self, operation_id: str) -> Operation | None:
        return self.memory.operations.get(operation_id)

    def operations_on(self, host: str) -> Sequence[Operation]:
        return self.memory.operations_on(host)

    # What use cases need beyond it.

    def new_id(self) -> str:
        return self._ids.event_id()

    def ids(self) -> Iterator[str]:
        """As many new ids as are asked for."""
        while True:
            yield self._ids.event_id()

    def need_host(self, name: str) -> Host:
        host = self.memory.hosts.get(name)
        if host is None:
            raise NotFound(f"There is no host {name}.", _names("host", name, self.memory.hosts))
        return host

    def need_scope(self, name: str) -> Scope:
        scope = self.memory.scopes.get(name)
        if scope is None:
            raise NotFound(f"There is no scope {name}.", _names("scope", name, self.memory.scopes))
        return scope

    def need_scope_of_vm(self, vm: str) -> Scope:
        name = self.memory.scope_of_vm.get(vm)
        if name is None:
            raise NotFound(f"There is no VM {vm}.", _names("vm", vm, self.memory.scope_of_vm))
        return self.memory.scopes[name]

    def known_ids(self, scope: str, event_ids: Collection[str]) -> frozenset[str]:
        return self.store.known_ids(scope, event_ids)

    # Changing.

    def apply(self, decision: Decision) -> None:
        """Take a decision over. Later questions see it; it is durable when the writer says so."""
        self._places = None
        for scope in decision.scopes:
            self._before.scopes.setdefault(scope.name, self.memory.scopes.get(scope.name))
            self.memory.put_scope(scope.name, scope)
        for host in decision.hosts:
            self._before.hosts.setdefault(host.name, self.memory.hosts.get(host.name))
            self.memory.put_host(host.name, host)
        for operation in decision.operations:
            key = operation.operation_id
            self._before.operations.setdefault(key, self.memory.operations.get(key))
            self.memory.put_operation(key, operation)
            if operation.phase is OperationPhase.ENDED:
                self._ended_operations[key] = operation
        self._facts.extend(decision.facts)

    def remove_scope(self, name: str) -> None:
        self._places = None
        self._before.scopes.setdefault(name, self.memory.scopes.get(name))
        self.memory.put_scope(name, None)

    def remove_host(self, name: str) -> None:
        self._places = None
        self._before.hosts.setdefault(name, self.memory.hosts.get(name))
        self.memory.put_host(name, None)

    def note(self, *facts: Fact) -> None:
        """Add facts that belong to no decision."""
        self._facts.extend(facts)

    def receipts(self, first_reads: Iterable[FirstRead]) -> None:
        self._first_reads.extend(first_reads)

    def remember(self, remembered: Remembered) -> None:
        self._remembered = remembered

    def beat(self) -> None:
        """Write down that the service is up."""
        self._heartbeat_ms = self.now_ms

    def on_take_back(self, restore: Callable[[], None]) -> None:
        """Also call this if the transaction is taken back: what else it touched."""
        self._on_take_back.append(restore)

    def applied_inventory(self, text: str) -> None:
        """Keep the text of the inventory that this transaction applies."""
        self._inventory = self.memory.inventory = text

    def define(self, definition: Definition) -> None:
        """Keep what a host showed of a VM, for as long as the VM is in the fleet."""
        self._put_digest(definition.vm, definition.digest)
        self._definitions[definition.vm] = definition

    def _put_digest(self, vm: str, digest: str | None) -> None:
        digests = self.memory.digests
        self._digests_before.setdefault(vm, digests.get(vm))
        if digest is None:
            digests.pop(vm, None)
        else:
            digests[vm] = digest

    # For the writer.

    def seal(self) -> Change | None:
        """Count, check and collect what was changed; None if nothing was.

        After this the memory holds the sealed values, without what has ended.
        """
        if self._untouched():
            return None  # most heartbeats, claims and looks
        scopes: list[tuple[Scope | None, Scope]] = []
        removed: list[str] = []
        for name, before in sorted(self._before.scopes.items()):
            after = self.memory.scopes.get(name)
            if after is None:
                removed.append(name)
                continue
            if after == before:
                continue
            sealed = edits.seal(before, after)
            invariants.check(before, sealed, self.now_ms)
            scopes.append((before, sealed))
            self.memory.put_scope(name, edits.open_only(sealed))
        self._forget_definitions()
        hosts, removed_hosts = self._seal_hosts()
        change = Change(
            scopes=tuple(scopes),
            hosts=hosts,
            operations=self._seal_operations(),
            removed_scopes=tuple(removed),
            removed_hosts=removed_hosts,
            facts=tuple(self._facts),
            first_reads=tuple(self._first_reads),
            remembered=self._remembered,
            heartbeat_ms=self._heartbeat_ms,
            inventory=self._inventory,
            definitions=tuple(self._definitions.values()),
            removed_definitions=tuple(
                vm for vm in sorted(self._digests_before) if vm not in self.memory.digests
            ),
        )
        return None if change == Change() else change

    def _untouched(self) -> bool:
        before = self._before
        changed = before.scopes or before.hosts or before.operations or self._digests_before
        noted = self._facts or self._first_reads or self._definitions or self._remembered
        said = self._heartbeat_ms is not None or self._inventory is not None
        return not (changed or noted or said)

    def _forget_definitions(self) -> None:
        """What was kept of VMs that have left the fleet goes with them."""
        if not self.memory.digests:
            return
        for before in self._before.scopes.values():
            for vm in before.vms if before is not None else ():
                if vm.name not in self.memory.scope_of_vm and vm.name in self.memory.digests:
                    self._put_digest(vm.name, None)
                    self._definitions.pop(vm.name, None)

    def _seal_hosts(self) -> tuple[tuple[tuple[Host | None, Host], ...], tuple[str, ...]]:
        changed: list[tuple[Host | None, Host]] = []
        removed = []
        for name, before in sorted(self._before.hosts.items()):
            after = self.memory.hosts.get(name)
            if after is None:
                removed.append(name)
            elif after != before:
                sealed = replace(after, revision=before.revision + 1) if before else after
                changed.append((before, sealed))
                self.memory.put_host(name, sealed)
        return tuple(changed), tuple(removed)

    def _seal_operations(self) -> tuple[tuple[Operation | None, Operation], ...]:
        changed: list[tuple[Operation | None, Operation]] = []
        for key, before in sorted(self._before.operations.items()):
            after = self._ended_operations.get(key) or self.memory.operations.get(key)
            if after is None or after == before:
                continue
            sealed = replace(after, revision=before.revision + 1) if before else after
            changed.append((before, sealed))
            self.memory.put_operation(key, sealed)
        return tuple(changed)

    def take_back(self) -> None:
        """Put everything back as it was before this transaction."""
        for restore in reversed(self._on_take_back):
            restore()
        self.memory.inventory = self._inventory_before
        for vm, digest in self._digests_before.items():
            self._put_digest(vm, digest)
        for name, scope in self._before.scopes.items():
            self.memory.put_scope(name, scope)
        for name, host in self._before.hosts.items():
            self.memory.put_host(name, host)
        for key, operation in self._before.operations.items():
            self.memory.put_operation(key, operation)


def _names(what: str, name: str, known: Iterable[str]) -> str:
    return f"{meant(name, known)} `forewarn {what} list` shows the names."
