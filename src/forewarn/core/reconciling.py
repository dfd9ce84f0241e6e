"""From the fleet as it is to the fleet as an inventory file wants it, or why that cannot be now.

What a file says of a VM that is in an open event must wait: such a file is refused whole. An
order is stronger than a file: a VM stays on the host it was moved to, and a VM that was deleted
stays deleted until a file without it was applied.

A scope that no file lists any more keeps its row, without VMs, if its document ever changed: were
it to come back at incarnation 1, guests could see the incarnation go back (I4). For the same reason
a scope that a VM moves to goes on above the incarnation of the scope that the VM leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from forewarn.core import belonging, edits
from forewarn.core.inventory import (
    Applied,
    Changes,
    Clash,
    HostEntry,
    Inventory,
    ScopeEntry,
    VmEntry,
    event_words,
    remedy,
)
from forewarn.core.model import Decision, Fact, Host, Scope, Vm
from forewarn.core.placing import Bound, host_clashes


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """From the fleet as it is to the fleet as the file wants it; no part of it if it clashes.

    `touched` are the scopes that differ from what the file wants, also if it clashes.
    """

    decision: Decision = field(default_factory=Decision)
    removed_scopes: tuple[str, ...] = ()
    removed_hosts: tuple[str, ...] = ()
    applied: Applied = field(default_factory=Applied)
    clashes: tuple[Clash, ...] = ()
    touched: frozenset[str] = frozenset()


def step(
    wanted: Inventory,
    *,
    scopes: Mapping[str, Scope],
    hosts: Mapping[str, Host],
    bound: Bound,
    new_id: Callable[[], str],
    now_ms: int,
    elsewhere: Callable[[str], int] = lambda _: 0,
) -> Step:
    """What must change, or every clash that forbids it. `elsewhere`: see `placing.host_clashes`."""
    work = _Work(wanted, scopes=scopes, hosts=hosts, new_id=new_id, now_ms=now_ms)
    work.look_at_scopes()
    work.look_at_vms()
    work.clashes.extend(
        host_clashes(
            wanted.hosts,
            work.new,
            hosts=hosts,
            scopes_after=work.scopes.values(),
            bound=bound,
            elsewhere=elsewhere,
        )
    )
    if work.clashes:
        return Step(clashes=tuple(work.clashes), touched=work.touched())
    return work.finish()


def next_hosts(wanted: Iterable[HostEntry], before: Mapping[str, Host]) -> Iterator[Host]:
    """The hosts that are new or described otherwise, as the file wants them."""
    for entry in wanted:
        known = before.get(entry.name)
        after = replace(known or Host(name=entry.name), capacity=entry.capacity, listed=True)
        if after != known:
            yield after


class _Work:
    """The next values while they are being worked out. One use, one file."""

    def __init__(
        self,
        wanted: Inventory,
        *,
        scopes: Mapping[str, Scope],
        hosts: Mapping[str, Host],
        new_id: Callable[[], str],
        now_ms: int,
    ) -> None:
        self.wanted = wanted
        self.scopes_before = scopes
        self.hosts_before = hosts
        self.new_id = new_id
        self.now_ms = now_ms
        self.clashes: list[Clash] = []
        self.facts: list[Fact] = []
        self.scopes: dict[str, Scope] = dict(scopes)
        self.vms_before = {vm.name: (s, vm) for s in scopes.values() for vm in s.vms}
        self.vms_changed: list[str] = []
        self.stuck: set[str] = set()  # scopes of which a VM cannot change now
        # By scope, and put in place once for each: a scope may have thousands.
        self.described: dict[str, dict[str, Vm]] = {}
        self.taken_out: dict[str, dict[str, str]] = {}  # VM: why
        self.added: dict[str, list[Vm]] = {}
        self.listed = {entry.name: entry for entry in wanted.vms}
        deleted = {name for scope in scopes.values() for name in scope.deleted}
        self.still_deleted = (deleted & self.listed.keys()) - self.vms_before.keys()
        self.new = sorted(
            (
                entry
                for entry in wanted.vms
                if entry.name not in self.vms_before and entry.name not in self.still_deleted
            ),
            key=lambda entry: entry.number,
        )

    def clash(
        self, where: HostEntry | ScopeEntry | VmEntry | None, refused: str, accepted: str
    ) -> None:
        self.clashes.append(Clash(where=where, refused=refused, accepted=accepted))

    # Scopes.

    def look_at_scopes(self) -> None:
        for entry in self.wanted.scopes:
            before = self.scopes_before.get(entry.name)
            if before is None:
                before = Scope(name=entry.name, kind=entry.kind)
            shown = next((event for event in before.events if event.visible), None)
            if before.kind is not entry.kind and shown is not None:
                self.clash(
                    entry,
                    f"scope {entry.name} cannot become a {entry.kind.value}: "
                    f"{event_words(shown)} is visible.",
                    remedy(shown),
                )
            self.scopes[entry.name] = replace(
                before,
                kind=entry.kind,
                terminate_notice_ms=entry.terminate_notice_ms,
                auto_approve=entry.auto_approve,
            )

    # VMs.

    def look_at_vms(self) -> None:
        for name, (scope, vm) in self.vms_before.items():
            entry = self.listed.get(name)
            if entry is None:
                self._remove(scope, vm)
            else:
                self._keep(scope, vm, entry)
        for moved in self.added.values():
            moved.sort(key=lambda vm: self.listed[vm.name].number)
        for entry in self.new:
            self._add(entry.scope, vm_of(entry, vm_id=self.new_id().lower(), host=entry.host))
        self._put_vms_in_place()
        for entry in self.new:
            alone = self.scopes_before.get(entry.name)  # kept since it was here, in no group
            if alone is not None and entry.scope != alone.name:
                self._go_ahead_of(alone, entry.scope)
        self._mark_deleted()

    def _remove(self, scope: Scope, vm: Vm) -> None:
        bound = next(belonging.binding(scope, vm.name), None)
        if bound is not None:
            self.stuck.add(scope.name)
            self.clash(
                None,
                f"VM {vm.name} is not in the file, but {event_words(bound)} names it.",
                f"List it again. {remedy(bound)} To have it deleted with notice, say "
                f"`forewarn vm delete {vm.name}`.",
            )
            return
        self._take_out(scope, vm.name, because="no longer in the inventory")

    def _take_out(self, scope: Scope, vm: str, *, because: str) -> None:
        """Take a VM out of its scope, with the silent events that were scheduled for it."""
        self.taken_out.setdefault(scope.name, {})[vm] = because

    def _put_vms_in_place(self) -> None:
        for name, described in self.described.items():
            scope = self.scopes[name]
            vms = tuple(described.get(vm.name, vm) for vm in scope.vms)
            self.scopes[name] = replace(scope, vms=vms)
        for name, because in self.taken_out.items():
            self.scopes[name], facts = belonging.without_vms(
                self.scopes[name], because, now_ms=self.now_ms
            )
            self.facts.extend(facts)
        for name, added in self.added.items():
            into = self.scopes[name]
            self.scopes[name] = replace(into, vms=(*into.vms, *added))
        for name, because in self.taken_out.items():
            for vm in because:
                entry = self.listed.get(vm)
                if entry is not None:
                    self._go_ahead_of(self.scopes_before[name], entry.scope)

    def _keep(self, scope: Scope, vm: Vm, entry: VmEntry) -> None:
        # An order may have moved it.
        after = edits.as_known(vm_of(entry, vm_id=vm.vm_id, host=vm.host), vm)
        moved = entry.scope != scope.name
        if after == vm and not moved:
            return
        self.vms_changed.append(vm.name)
        changes = list(belonging.bound_changes(scope, vm, scope_after=entry.scope, after=after))
        for what, bound in changes:
            self.clash(
                entry,
                f"the {what} of VM {vm.name} cannot change: {event_words(bound)} names it.",
                f"Keep it as it was. {remedy(bound)}",
            )
        if changes:
            self.stuck.update((scope.name, entry.scope))
            return
        if moved:
            self._take_out(scope, vm.name, because=f"now in scope {entry.scope}")
            self._add(entry.scope, after)
        else:
            self.described.setdefault(scope.name, {})[vm.name] = after

    def _add(self, scope: str, vm: Vm) -> None:
        self.added.setdefault(scope, []).append(vm)

    def _go_ahead_of(self, left: Scope, name: str) -> None:
        before = self.scopes_before.get(name)
        own = 1 if before is None else before.incarnation
        self.scopes[name] = belonging.ahead_of(left, self.scopes[name], own=own)

    def _mark_deleted(self) -> None:
        """Keep the marks of deleted VMs that the file lists, where it lists them."""
        marks: dict[str, list[str]] = {}
        for name in sorted(self.still_deleted):
            marks.setdefault(self.listed[name].scope, []).append(name)
        for name, scope in self.scopes.items():
            if not scope.deleted and name not in marks:
                continue
            kept = [vm for vm in scope.deleted if vm in marks.get(name, ())]
            kept.extend(vm for vm in marks.get(name, ()) if vm not in kept)
            if tuple(kept) != scope.deleted:
                self.scopes[name] = replace(scope, deleted=tuple(kept))

    # The end.

    def finish(self) -> Step:
        listed = {entry.name for entry in self.wanted.scopes}
        removed_scopes = self._drop_scopes(listed)
        gone = frozenset(removed_scopes)
        scopes = tuple(
            scope
            for name, scope in sorted(self.scopes.items())
            if name not in gone and scope != self.scopes_before.get(name)
        )
        hosts = tuple(next_hosts(self.wanted.hosts, self.hosts_before))
        removed_hosts = tuple(
            sorted(self.hosts_before.keys() - {h.name for h in self.wanted.hosts})
        )
        return Step(
            decision=Decision(scopes=scopes, hosts=hosts, facts=tuple(self.facts)),
            removed_scopes=removed_scopes,
            removed_hosts=removed_hosts,
            applied=Applied(
                differs=True,
                hosts=_host_changes(self.hosts_before, hosts, removed_hosts),
                scopes=self._scope_changes(listed, removed_scopes),
                vms=self._vm_changes(),
                still_deleted=tuple(sorted(self.still_deleted)),
            ),
            touched=gone.union(scope.name for scope in scopes),
        )

    def touched(self) -> frozenset[str]:
        """The scopes that are not as the file wants them."""
        listed = {entry.name for entry in self.wanted.scopes}
        differ = (n for n, scope in self.scopes.items() if scope != self.scopes_before.get(n))
        unlisted = (
            name
            for name, scope in self.scopes_before.items()
            if name not in listed and (scope.incarnation == 1 or scope != belonging.emptied(scope))
        )
        return frozenset(self.stuck).union(differ, unlisted)

    def _drop_scopes(self, listed: set[str]) -> tuple[str, ...]:
        """Empty what no file lists any more; the names of those of which nothing must stay.

        A row goes if its document never changed and if it has no events or VMs left to save: a
        VM that moves to another scope now still needs it, and then a later file removes it.
        """
        removed = []
        for name, scope in self.scopes.items():
            before = self.scopes_before.get(name)
            if name in listed or before is None:
                continue
            stays_somewhere = any(vm.name in self.listed for vm in before.vms)
            if before.incarnation == 1 and not before.events and not stays_somewhere:
                removed.append(name)
                continue
            self.scopes[name] = belonging.emptied(scope)
        return tuple(sorted(removed))

    def _scope_changes(self, listed: set[str], removed_rows: tuple[str, ...]) -> Changes:
        before = self.scopes_before
        known = {name for name, scope in before.items() if scope.vms or scope.deleted}
        return Changes(
            added=tuple(
                name
                for name in sorted(listed - known)
                if name not in before or self.scopes[name].vms
            ),
            changed=tuple(
                name
                for name in sorted(listed & known)
                if _described(before[name]) != _described(self.scopes[name])
            ),
            removed=tuple(sorted((known - listed).union(removed_rows))),
        )

    def _vm_changes(self) -> Changes:
        return Changes(
            added=tuple(sorted(entry.name for entry in self.new)),
            changed=tuple(sorted(self.vms_changed)),
            removed=tuple(sorted(self.vms_before.keys() - self.listed.keys())),
        )


def vm_of(entry: VmEntry, *, vm_id: str, host: str) -> Vm:
    """The VM that a file describes, on the host where it really is."""
    return Vm(
        name=entry.name,
        vm_id=vm_id,
        update_domain=entry.update_domain,
        host=host,
        priority=entry.priority,
        address=entry.address,
        listen=entry.listen,
        tags=entry.tags,
        fault_domain=entry.fault_domain,
        zone=entry.zone,
        os_type=entry.os_type,
        computer_name=entry.computer_name,
    )


def _described(scope: Scope) -> tuple[object, ...]:
    """What of a scope a file describes."""
    return scope.kind, scope.terminate_notice_ms, scope.auto_approve


def _host_changes(
    before: Mapping[str, Host], after: Iterable[Host], removed: tuple[str, ...]
) -> Changes:
    names = [host.name for host in after]
    return Changes(
        added=tuple(name for name in names if name not in before),
        changed=tuple(name for name in names if name in before),
        removed=removed,
    )
