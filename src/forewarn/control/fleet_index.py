"""Open scopes, hosts and operations by name, with the indexes that rules and readers ask for.

The values are immutable; only the maps here change, and only their owner changes them. There are
two indexes in a service: the writer's own, which a transaction edits and can put back, and the
published one, which holds what was committed (`published_fleet`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from forewarn.core import unfinished_moves
from forewarn.core.incarnation_marks import VmKey
from forewarn.core.model import Host, Operation, OperationPhase, Scope, Vm, Webhook
from forewarn.core.tokens import Token
from forewarn.ports import DepartedVm, Snapshot


class FleetIndex:
    """Everything open. `put_*` replaces, adds or (with None) removes, and keeps the indexes true.

    A scope that is replaced keeps its place in the order of the scopes.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.scopes: dict[str, Scope] = {}
        self.hosts: dict[str, Host] = {}
        self.operations: dict[str, Operation] = {}
        self.inventory = snapshot.inventory  # the text that was decided last
        self.unfinished = snapshot.unfinished  # noted while that is not applied whole
        self.journal = snapshot.journal  # which lines there are
        # Of the definitions that are kept, by VM: those VMs, and only those, a host has shown.
        self.digests: dict[str, str] = dict(snapshot.digests)
        # VMs that have left, those that left longest ago first.
        self.departed: dict[VmKey, DepartedVm] = {one.key: one for one in snapshot.departed_vms}
        self.tokens: dict[str, Token] = {one.token_id: one for one in snapshot.tokens}
        self.webhooks: dict[str, Webhook] = {one.webhook_id: one for one in snapshot.webhooks}
        self.vms: dict[str, Vm] = {}
        self.scope_of_vm: dict[str, str] = {}
        self.scope_of_event: dict[str, str] = {}
        self.busy_scopes: set[str] = set()  # those with open events or recoveries
        # By host, so that a question about one host costs the same in a fleet of any size.
        self._mentioned: dict[str, frozenset[str]] = {}  # hosts, by scope
        self._carriers: dict[str, frozenset[str]] = {}  # of them, those with its VMs
        self._scopes_on: dict[str, set[str]] = {}
        self._vm_counts: Counter[str] = Counter()
        self._arriving: dict[str, dict[str, list[Vm]]] = {}  # then by scope
        self._acting: dict[str, set[str]] = {}  # scopes with actions of the host that go on
        self._operations_on: dict[str, dict[str, Operation]] = {}  # then by id
        for host in snapshot.hosts:
            self.put_host(host.name, host)
        for scope in snapshot.scopes:
            self.put_scope(scope.name, scope)
        for operation in snapshot.operations:
            self.put_operation(operation.operation_id, operation)

    def put_scope(self, name: str, scope: Scope | None) -> None:
        before = self.scopes.get(name)
        if scope is None:
            if before is not None:
                self._forget_vms(before)
                self._learn_events(None, before)
                self._learn_arrivals(None, before)
                self._point_hosts_to(name, frozenset())
                self._carriers.pop(name, None)
                self.busy_scopes.discard(name)
                del self.scopes[name]
            return
        self.scopes[name] = scope
        if before is None or before.vms is not scope.vms:
            if before is not None:
                self._forget_vms(before)
            self._learn_vms(scope)
            self._carriers[name] = unfinished_moves.carriers(scope)
        if before is None or not unfinished_moves.mention_the_same(before, scope):
            self._learn_events(scope, before)
            self._learn_arrivals(scope, before)
            carrying = self._carriers[name]
            self._point_hosts_to(name, unfinished_moves.hosts_mentioned(scope, carrying))
        if scope.events or scope.recoveries:
            self.busy_scopes.add(name)
        else:
            self.busy_scopes.discard(name)

    def _learn_vms(self, scope: Scope) -> None:
        for vm in scope.vms:
            self._vm_counts[vm.host] += 1
            self.scope_of_vm[vm.name] = scope.name
            self.vms[vm.name] = vm

    def _forget_vms(self, scope: Scope) -> None:
        for vm in scope.vms:
            self._vm_counts[vm.host] -= 1
            if self.scope_of_vm.get(vm.name) == scope.name:  # else it moved to another scope
                del self.scope_of_vm[vm.name]
                del self.vms[vm.name]

    def _learn_events(self, scope: Scope | None, before: Scope | None) -> None:
        old = {event.event_id for event in before.events} if before else set()
        new = {event.event_id for event in scope.events} if scope else set()
        for event_id in old - new:
            self.scope_of_event.pop(event_id, None)
        if before is not None:
            for host in unfinished_moves.hosts_with_actions(before):
                self._acting[host].discard(before.name)
        if scope is not None:
            self.scope_of_event.update(dict.fromkeys(new - old, scope.name))
            for host in unfinished_moves.hosts_with_actions(scope):
                self._acting.setdefault(host, set()).add(scope.name)

    def _learn_arrivals(self, scope: Scope | None, before: Scope | None) -> None:
        if (
            scope is not None
            and before is not None
            and unfinished_moves.arrive_the_same(before, scope)
        ):
            return
        if before is not None:
            for host, _ in unfinished_moves.arrivals(before):
                self._arriving[host].pop(before.name, None)
        if scope is not None:
            for host, vm in unfinished_moves.arrivals(scope):
                self._arriving.setdefault(host, {}).setdefault(scope.name, []).append(vm)

    def _point_hosts_to(self, name: str, hosts: frozenset[str]) -> None:
        before = self._mentioned.get(name, frozenset())
        if hosts is before:
            return
        for host in before - hosts:
            self._scopes_on[host].discard(name)
        for host in hosts - before:
            self._scopes_on.setdefault(host, set()).add(name)
        if hosts:
            self._mentioned[name] = hosts
        else:
            self._mentioned.pop(name, None)

    def put_host(self, name: str, host: Host | None) -> None:
        if host is None:
            self.hosts.pop(name, None)
        else:
            self.hosts[name] = host

    def put_operation(self, operation_id: str, operation: Operation | None) -> None:
        """Keep an open operation; an ended one is forgotten."""
        before = self.operations.pop(operation_id, None)
        if before is not None:
            del self._operations_on[before.host][operation_id]
        if operation is None or operation.phase is OperationPhase.ENDED:
            return
        self.operations[operation_id] = operation
        self._operations_on.setdefault(operation.host, {})[operation_id] = operation

    def scopes_on(self, host: str) -> Sequence[Scope]:
        """Scopes with VMs on the host or open events about it, in name order."""
        return [self.scopes[name] for name in sorted(self._scopes_on.get(host, ()))]

    def scopes_acting(self, host: str) -> Sequence[Scope]:
        """Scopes of which the host has something to do or is doing it, in name order."""
        return [self.scopes[name] for name in sorted(self._acting.get(host, ()))]

    def vm_count(self, host: str) -> int:
        return self._vm_counts[host]

    def arriving(self, host: str) -> Sequence[tuple[str, Vm]]:
        """(scope name, VM) of VMs that a started action is bringing to the host."""
        by_scope = self._arriving.get(host, {})
        return [(name, vm) for name in sorted(by_scope) for vm in by_scope[name]]

    def operations_on(self, host: str) -> Sequence[Operation]:
        """Open operations of the host, oldest first."""
        found = self._operations_on.get(host, {}).values()
        return sorted(found, key=lambda o: (o.ordered_ms, o.operation_id))

    def acts(self, host: str) -> bool:
        """True while the host has anything to do or is doing it."""
        if self._acting.get(host):
            return True
        return any(
            operation.action is not None and not operation.action.ended
            for operation in self._operations_on.get(host, {}).values()
        )
