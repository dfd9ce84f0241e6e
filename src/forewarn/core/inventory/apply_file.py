"""What an inventory file changes of the fleet, or why that cannot be now.

What a file says of a VM that is in an open event must wait: such a file is refused whole. An
order is stronger than a file: a VM stays on the host it was moved to, and a VM that was deleted
stays deleted until a file without it was applied. How a change becomes a Decision is
`fleet_change`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from forewarn.core import scope_edits
from forewarn.core.inventory import merge, vm_changes_scope
from forewarn.core.inventory.clashes import Clash, event_words, remedy
from forewarn.core.inventory.desired import vm_of
from forewarn.core.inventory.entries import (
    Applied,
    HostEntry,
    Inventory,
    NameChanges,
    ScopeEntry,
    VmEntry,
)
from forewarn.core.inventory.fleet_change import FleetChange
from forewarn.core.inventory.host_checks import Bound, host_clashes
from forewarn.core.model import Decision, Host, Scope, Vm


class FileDecision(Struct, frozen=True, kw_only=True):
    """From the fleet as it is to the fleet as the file wants it; no part of it if it clashes.

    `touched` are the scopes that differ from what the file wants, also if it clashes. `desired` is
    the whole fleet as the file and the hosts want it.
    """

    decision: Decision = field(default_factory=Decision)
    removed_scopes: tuple[str, ...] = ()
    removed_hosts: tuple[str, ...] = ()
    applied: Applied = field(default_factory=Applied)
    clashes: tuple[Clash, ...] = ()
    touched: frozenset[str] = frozenset()
    desired: Inventory = field(default_factory=Inventory)


def step(
    file: Inventory,
    *,
    scopes: Mapping[str, Scope],
    hosts: Mapping[str, Host],
    shown: Container[str],
    bound: Bound,
    new_id: Callable[[], str],
    now_ms: int,
    elsewhere: Callable[[str], int] = lambda _: 0,
) -> FileDecision:
    """What must change, or every clash that forbids it. `elsewhere`: see `host_checks`.

    `shown` are the VMs that hosts have shown: what the file does not list of them stays.
    """
    wanted = merge.with_what_hosts_show(file, scopes=scopes, hosts=hosts, shown=shown)
    work = _Work(wanted, scopes=scopes, hosts=hosts, new_id=new_id, now_ms=now_ms)
    work.clashes.extend(merge.clashes(file, wanted))
    work.look_at_scopes()
    work.look_at_vms()
    work.clashes.extend(
        host_clashes(
            wanted.hosts,
            work.new,
            hosts=hosts,
            scopes_after=work.change.scopes(),
            bound=bound,
            elsewhere=elsewhere,
        )
    )
    if work.clashes:
        return FileDecision(clashes=tuple(work.clashes), touched=work.touched(), desired=wanted)
    return work.finish()


def hosts_of_file(entries: Iterable[HostEntry], before: Mapping[str, Host]) -> tuple[Host, ...]:
    """The hosts that are new or described otherwise, when only the hosts of a file are taken."""
    file = Inventory(hosts=tuple(entries))
    wanted = merge.with_what_hosts_show(file, scopes={}, hosts=before, shown=())
    return tuple(_next_hosts(wanted.hosts, before))


def _next_hosts(wanted: Iterable[HostEntry], before: Mapping[str, Host]) -> Iterator[Host]:
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
        self.change = FleetChange(scopes, now_ms=now_ms)
        self.clashes: list[Clash] = []
        self.vms_before = {vm.name: (s, vm) for s in scopes.values() for vm in s.vms}
        self.vms_changed: list[str] = []
        self.stuck: set[str] = set()  # scopes of which a VM cannot change now
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
            shown = self.change.describe(entry)
            if shown is not None:
                self.stuck.add(entry.name)
                self.clash(
                    entry,
                    f"scope {entry.name} cannot become a {entry.kind.value}: "
                    f"{event_words(shown)} is visible.",
                    remedy(shown),
                )

    # VMs.

    def look_at_vms(self) -> None:
        moved: list[tuple[Scope, Vm, VmEntry]] = []
        for name, (scope, vm) in self.vms_before.items():
            entry = self.listed.get(name)
            if entry is None:
                self._remove(scope, vm)
            elif (after := self._kept(scope, vm, entry)) is None:
                continue
            elif entry.scope == scope.name:
                self.change.become(scope.name, after, wanted=scope.name)
            else:
                moved.append((scope, after, entry))
        for scope, after, entry in sorted(moved, key=lambda one: one[2].number):
            self.change.become(scope.name, after, wanted=entry.scope)
        for entry in self.new:
            vm = vm_of(entry, vm_id=self.new_id().lower(), host=entry.host)
            self.change.join(entry.scope, vm)
        self._mark_deleted()

    def _remove(self, scope: Scope, vm: Vm) -> None:
        bound = next(vm_changes_scope.binding(scope, vm.name), None)
        if bound is None:
            self.change.leave(scope.name, vm.name, because="no longer in the inventory")
            return
        self.stuck.add(scope.name)
        self.clash(
            None,
            f"VM {vm.name} is not in the file, but {event_words(bound)} names it.",
            f"List it again. {remedy(bound)} To have it deleted with notice, say "
            f"`forewarn vm delete {vm.name}`.",
        )

    def _kept(self, scope: Scope, vm: Vm, entry: VmEntry) -> Vm | None:
        """A VM as the file wants it, None if it is so already or cannot be. Orders may move it."""
        after = scope_edits.as_known(vm_of(entry, vm_id=vm.vm_id, host=vm.host), vm)
        if after == vm and entry.scope == scope.name:
            return None
        self.vms_changed.append(vm.name)
        changes = list(
            vm_changes_scope.bound_changes(scope, vm, scope_after=entry.scope, after=after)
        )
        for what, bound in changes:
            self.clash(
                entry,
                f"the {what} of VM {vm.name} cannot change: {event_words(bound)} names it.",
                f"Keep it as it was. {remedy(bound)}",
            )
        if changes:
            self.stuck.update((scope.name, entry.scope))
            return None
        return after

    def _mark_deleted(self) -> None:
        """Keep the marks of deleted VMs that the file lists, where it lists them."""
        marks: dict[str, list[str]] = {}
        for name in sorted(self.still_deleted):
            marks.setdefault(self.listed[name].scope, []).append(name)
        marked = {name for name, scope in self.scopes_before.items() if scope.deleted}
        for name in marked.union(marks):
            scope = self.change.events_of(name)
            if scope is None:
                continue
            kept = [vm for vm in scope.deleted if vm in marks.get(name, ())]
            kept.extend(vm for vm in marks.get(name, ()) if vm not in kept)
            if tuple(kept) != scope.deleted:
                self.change.put_around(replace(scope, deleted=tuple(kept)))

    # The end.

    def finish(self) -> FileDecision:
        listed = {entry.name for entry in self.wanted.scopes}
        unlisted = self.scopes_before.keys() - listed
        gone, _ = self.change.drop_empty(sorted(unlisted), at_once=True)
        removed_scopes = tuple(sorted(gone))
        scopes = self.change.to_save(but=gone)
        hosts = tuple(_next_hosts(self.wanted.hosts, self.hosts_before))
        removed_hosts = tuple(
            sorted(self.hosts_before.keys() - {h.name for h in self.wanted.hosts})
        )
        return FileDecision(
            decision=Decision(scopes=scopes, hosts=hosts, facts=tuple(self.change.facts)),
            removed_scopes=removed_scopes,
            removed_hosts=removed_hosts,
            applied=Applied(
                differs=True,
                hosts=_host_changes(self.hosts_before, hosts, removed_hosts),
                scopes=self._scope_changes(listed, removed_scopes),
                vms=self._vm_changes(),
                still_deleted=tuple(sorted(self.still_deleted)),
            ),
            touched=frozenset(gone).union(scope.name for scope in scopes),
            desired=self.wanted,
        )

    def touched(self) -> frozenset[str]:
        """The scopes that are not as the file wants them."""
        listed = {entry.name for entry in self.wanted.scopes}
        differ = (scope.name for scope in self.change.to_save())
        unlisted = (
            name
            for name, scope in self.scopes_before.items()
            if name not in listed
            and (scope.incarnation == 1 or scope != vm_changes_scope.emptied(scope))
        )
        return frozenset(self.stuck).union(differ, unlisted)

    def _scope_changes(self, listed: set[str], removed_rows: tuple[str, ...]) -> NameChanges:
        before = self.scopes_before
        known = {name for name, scope in before.items() if scope.vms or scope.deleted}
        return NameChanges(
            added=tuple(
                name for name in sorted(listed - known) if name not in before or self._vms_in(name)
            ),
            changed=tuple(
                name
                for name in sorted(listed & known)
                if _described(before[name]) != _described(self.change.scope(name) or before[name])
            ),
            removed=tuple(sorted((known - listed).union(removed_rows))),
        )

    def _vms_in(self, name: str) -> tuple[Vm, ...]:
        scope = self.change.scope(name)
        return () if scope is None else scope.vms

    def _vm_changes(self) -> NameChanges:
        return NameChanges(
            added=tuple(sorted(entry.name for entry in self.new)),
            changed=tuple(sorted(self.vms_changed)),
            removed=tuple(sorted(self.vms_before.keys() - self.listed.keys())),
        )


def _described(scope: Scope) -> tuple[object, ...]:
    """What of a scope a file describes."""
    return scope.kind, scope.terminate_notice_ms, scope.auto_approve


def _host_changes(
    before: Mapping[str, Host], after: Iterable[Host], removed: tuple[str, ...]
) -> NameChanges:
    names = [host.name for host in after]
    return NameChanges(
        added=tuple(name for name in names if name not in before),
        changed=tuple(name for name in names if name in before),
        removed=removed,
    )
