"""The fleet as it was last committed, for every reader on the event loop.

`publish` is the only thing that changes it, and takes a whole commit at once: a reader that does
not await sees one commit. What leaves the loop is copied by who takes it. Reading never enters the
writer's queue.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from forewarn.control.fleet_index import FleetIndex
from forewarn.control.fleet_reader import FleetLook, FleetReader
from forewarn.control.hosts.liveness import Observed
from forewarn.core import scope_edits
from forewarn.core.model import Policy, Scope, Vm
from forewarn.ports import Change, Clock, Snapshot

# So many names are put into their places one by one; more are sorted together with all others.
NAMES_PLACED_MAX = 64


class PublishedFleet(FleetReader):
    """What is committed, what is observed, and the time. Belongs to the event loop."""

    def __init__(
        self, snapshot: Snapshot, observed: Observed, *, policy: Policy, clock: Clock
    ) -> None:
        super().__init__(FleetIndex(snapshot), observed, policy)
        self._observed = observed
        self._clock = clock
        self._vm_names = SortedNames(self._index.vms)
        self._scope_names = SortedNames(self._index.scopes)
        self._host_names = SortedNames(self._index.hosts)
        self._readers: list[Callable[[Sequence[Change]], None]] = []

    def look(self) -> FleetLook:
        """The fleet as it is now, for as long as the caller does not await."""
        return FleetLook(self._index, self._heard, self.policy, now_ms=self._clock.now_ms())

    @property
    def now_ms(self) -> int:
        return self._clock.now_ms()

    def on_publish(self, reader: Callable[[Sequence[Change]], None]) -> None:
        """Call `reader` with each commit, once it can be read here, in the order of these calls."""
        self._readers.append(reader)

    def publish(self, changes: Sequence[Change]) -> None:
        """Take over what was committed and what hosts reported, then tell the readers.

        There may be reports alone: then no reader is told.
        """
        self._observed.take_reports_over()
        if not changes:
            return
        for change in changes:
            self._take_over(change)
        for reader in self._readers:
            reader(changes)

    def _take_over(self, change: Change) -> None:
        index = self._index
        for name in change.removed_scopes:
            self._put_scope(name, None)
        for _, after in change.scopes:
            self._put_scope(after.name, scope_edits.open_only(after))
        for before, host in change.hosts:
            index.put_host(host.name, host)
            self._host_names.add(host.name)
            if before is None:
                self._observed.came(host.name)
            if before is not None and before.joined and not host.joined:
                self._observed.left(host.name)
        for name in change.removed_hosts:
            index.put_host(name, None)
            self._host_names.remove(name)
            self._observed.gone(name)
        for _, operation in change.operations:
            index.put_operation(operation.operation_id, operation)
        self._take_descriptions_over(change)

    def _take_descriptions_over(self, change: Change) -> None:
        index = self._index
        if change.inventory is not None:
            index.inventory = change.inventory
        if change.unfinished is not None:
            index.unfinished = change.unfinished
        for token_id in change.removed_tokens:
            index.tokens.pop(token_id, None)
        for token in change.tokens:
            index.tokens[token.token_id] = token
        for webhook_id in change.removed_webhooks:
            index.webhooks.pop(webhook_id, None)
        for webhook in change.webhooks:
            index.webhooks[webhook.webhook_id] = webhook
        for definition in change.definitions:
            index.digests[definition.vm] = definition.digest
        for vm in change.removed_definitions:
            index.digests.pop(vm, None)
        self._take_lines_over(change)

    def _take_lines_over(self, change: Change) -> None:
        if not change.lines:
            return
        journal = self._index.journal
        gone = change.pruned.lines if change.pruned is not None else ()
        self._index.journal = replace(
            journal,
            end=change.lines[-1].number,
            pruned_through=max(journal.pruned_through, *gone, 0),
        )

    def _put_scope(self, name: str, scope: Scope | None) -> None:
        before = self._index.scopes.get(name)
        self._index.put_scope(name, scope)
        if scope is None:
            self._scope_names.remove(name)
        elif before is None:
            self._scope_names.add(name)
        old, new = before.vms if before else (), scope.vms if scope else ()
        if old is new:
            return
        for vm in old:
            if vm.name not in self._index.vms:
                self._vm_names.remove(vm.name)
                self._observed.forget_polls([vm.name])
        for vm in new:
            self._vm_names.add(vm.name)

    # Pages, by name. They cost the same in a fleet of any size.

    def vms_after(self, name: str, limit: int) -> list[Vm]:
        """The VMs with the next names, at most so many."""
        return [self._index.vms[found] for found in self._vm_names.after(name, limit)]

    def scopes_after(self, name: str, limit: int) -> list[Scope]:
        return [self._index.scopes[found] for found in self._scope_names.after(name, limit)]

    def host_names_after(self, name: str, limit: int) -> Sequence[str]:
        return self._host_names.after(name, limit)


class SortedNames:
    """Names in order. Changes are sorted in when a reader looks."""

    def __init__(self, names: Iterable[str]) -> None:
        self._known = set(names)
        self._sorted = sorted(self._known)
        self._changed: set[str] = set()

    def add(self, name: str) -> None:
        """Without effect if it is there."""
        if name not in self._known:
            self._known.add(name)
            self._changed.add(name)

    def remove(self, name: str) -> None:
        """Without effect if it is not there."""
        if name in self._known:
            self._known.discard(name)
            self._changed.add(name)

    def after(self, name: str, limit: int) -> Sequence[str]:
        """The names that follow, at most so many."""
        self._put_in_place()
        first = bisect_right(self._sorted, name)
        return self._sorted[first : first + limit]

    def _put_in_place(self) -> None:
        if len(self._changed) > NAMES_PLACED_MAX:
            self._sorted = sorted(self._known)
        else:
            for name in self._changed:
                self._place(name)
        self._changed.clear()

    def _place(self, name: str) -> None:
        at = bisect_left(self._sorted, name)
        there = at < len(self._sorted) and self._sorted[at] == name
        if name in self._known and not there:
            insort(self._sorted, name)
        elif name not in self._known and there:
            del self._sorted[at]
