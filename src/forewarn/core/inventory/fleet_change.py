"""From the fleet as it is to a fleet as a source wants it: the one engine of files and reports.

A source says which VM is in which scope, where, and with which attributes (`entries.VmEntry`), and
how each scope is. What that changes is collected here and becomes a Decision. What a source does
with a change that must wait is its own: a file is refused whole (`apply_file`), and of a report the
rest is taken (`apply_report`).

A scope without VMs keeps its row if its document ever changed: were it to come back at incarnation
1, guests could see the incarnation go back (I4). For the same reason a scope that a VM moves to
goes on above the incarnation of the scope that the VM leaves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from forewarn.core.inventory import vm_changes_scope
from forewarn.core.inventory.entries import ScopeEntry
from forewarn.core.inventory.names import KnownNames
from forewarn.core.model import Fact, ScheduledEvent, Scope, ScopeKind, Vm


class _Draft(Struct):
    """A scope that changes. Its VMs are put into it when it is read: it may have thousands."""

    scope: Scope
    vms: dict[str, Vm]
    stale: bool = False  # `scope` does not have the VMs yet


class FleetChange:
    """Scopes as they will be, and the facts that say why. What was not put here is as it was."""

    def __init__(self, scopes: Mapping[str, Scope], *, now_ms: int) -> None:
        self._before = scopes
        self._now_ms = now_ms
        self._drafts: dict[str, _Draft] = {}
        self._moved_from: set[str] = set()
        self._names: KnownNames | None = None
        self.facts: list[Fact] = []

    # What is there.

    def scope(self, name: str) -> Scope | None:
        """The scope as it is now, with its VMs."""
        draft = self._drafts.get(name)
        if draft is None:
            return self._before.get(name)
        if draft.stale:
            draft.scope = replace(draft.scope, vms=tuple(draft.vms.values()))
            draft.stale = False
        return draft.scope

    def events_of(self, name: str) -> Scope | None:
        """The scope for a look at all but its VMs, which may not be those of now."""
        draft = self._drafts.get(name)
        return self._before.get(name) if draft is None else draft.scope

    def vm(self, scope: str, name: str) -> Vm | None:
        """The VM of that name in a scope as it is now."""
        draft = self._drafts.get(scope)
        if draft is not None:
            return draft.vms.get(name)
        before = self._before.get(scope)
        # A report may be of thousands of VMs of one scope.
        return None if before is None else self._draft(before).vms.get(name)

    def scopes(self) -> Iterator[Scope]:
        """Every scope as it is now."""
        for name in {**self._before, **self._drafts}:
            scope = self.scope(name)
            if scope is not None:
                yield scope

    def changed(self) -> tuple[Scope, ...]:
        """The scopes that differ from what they were."""
        found = (self.scope(name) for name in self._drafts)
        return tuple(s for s in found if s is not None and s is not self._before.get(s.name))

    def scope_named_like(self, name: str) -> str | None:
        """The scope whose name is the same or differs in case only."""
        if self._names is None:
            self._names = KnownNames((*self._before, *self._drafts))
        return self._names.taken_by(name)

    # Scopes.

    def put(self, scope: Scope) -> None:
        """Take over the next value of a scope, new or known, with its VMs."""
        self._drafts[scope.name] = _Draft(scope, {vm.name: vm for vm in scope.vms})
        if self._names is not None:
            self._names.add(scope.name)

    def put_around(self, scope: Scope) -> None:
        """Take over a scope as `events_of` gave it, changed: its VMs stay those of now."""
        draft = self._drafts.get(scope.name)
        if draft is None:
            self.put(scope)
        else:
            draft.scope, draft.stale = scope, True

    def describe(self, entry: ScopeEntry) -> ScheduledEvent | None:
        """Have a scope as it is wanted. Its kind stays while an event is visible: that event."""
        before = self.events_of(entry.name) or Scope(name=entry.name, kind=entry.kind)
        shown = visible(before) if before.kind is not entry.kind else None
        after = replace(
            before,
            kind=entry.kind if shown is None else before.kind,
            terminate_notice_ms=entry.terminate_notice_ms,
            auto_approve=entry.auto_approve,
        )
        if after != before or entry.name not in self._before:
            self.put_around(after)
        return shown

    # VMs.

    def put_vm(self, scope: str, vm: Vm) -> None:
        """Have a VM in place of the one of the same name, or as the last of its scope."""
        draft = self._need(scope)
        draft.vms[vm.name] = vm
        draft.stale = True

    def join(self, scope: str, vm: Vm) -> None:
        """A VM comes that was in no scope; one of its own may be kept from when it was here."""
        alone = self._before.get(vm.name)
        self.put_vm(scope, vm)
        if alone is not None and alone.name != scope:
            self._go_ahead_of(alone, scope)

    def bound(
        self, scope: str, vm: Vm, after: Vm, *, wanted: str
    ) -> list[tuple[str, ScheduledEvent]]:
        """What would change of a VM although an event depends on it, and that event."""
        there = self._need(scope).scope
        return list(vm_changes_scope.bound_changes(there, vm, scope_after=wanted, after=after))

    def become(self, scope: str, after: Vm, *, wanted: str) -> None:
        """Have a VM of that scope as it is wanted, in the scope that is wanted."""
        if wanted == scope:
            self.put_vm(scope, after)
            return
        self.leave(scope, after.name, because="now in another scope")
        self._moved_from.add(scope)
        self.put_vm(wanted, after)
        self._go_ahead_of(self._before.get(scope), wanted)

    def leave(self, scope: str, vm: str, *, because: str) -> None:
        """Take a VM out of its scope, and out of the events that were scheduled for it."""
        draft = self._need(scope)
        del draft.vms[vm]
        draft.stale = True
        draft.scope, facts = vm_changes_scope.left_by(
            draft.scope, vm, because=because, now_ms=self._now_ms
        )
        self.facts.extend(facts)

    def _go_ahead_of(self, left: Scope | None, name: str) -> None:
        if left is None:
            return  # it is as new as the VM
        before, draft = self._before.get(name), self._need(name)
        own = 1 if before is None else before.incarnation
        draft.scope = vm_changes_scope.ahead_of(left, draft.scope, own=own)

    # The end.

    def drop_empty(self, names: Iterable[str], *, at_once: bool) -> tuple[set[str], set[str]]:
        """Empty those of the scopes that have no VMs: which rows go now, and which may go later.

        A row goes if its document never changed and it has no events. One that a VM has just
        moved from still needs its row, so it goes later; so do all unless `at_once`.
        """
        gone: set[str] = set()
        later: set[str] = set()
        for name in names:
            scope, before = self.scope(name), self._before.get(name)
            if scope is None or scope.vms:
                continue
            if before is None:
                del self._drafts[name]
                continue
            if at_once and may_go(before) and name not in self._moved_from:
                gone.add(name)
                continue
            if scope != (after := vm_changes_scope.emptied(scope)):
                self.put(after)
            if before.incarnation == 1:
                later.add(name)
        return gone, later

    def to_save(self, *, but: Iterable[str] = ()) -> tuple[Scope, ...]:
        """The scopes that changed, in name order."""
        left_out = frozenset(but)
        changed = (s for s in self.changed() if s.name not in left_out)
        return tuple(
            sorted((s for s in changed if s != self._before.get(s.name)), key=lambda s: s.name)
        )

    def _need(self, name: str) -> _Draft:
        found = self._drafts.get(name)
        return found if found is not None else self._draft(self._before[name])

    def _draft(self, scope: Scope) -> _Draft:
        draft = _Draft(scope, {vm.name: vm for vm in scope.vms})
        self._drafts[scope.name] = draft
        return draft


def visible(scope: Scope) -> ScheduledEvent | None:
    """An event of the scope that guests can see."""
    return next((event for event in scope.events if event.visible), None)


def may_go(scope: Scope) -> bool:
    """Whether the row of a scope without VMs need not be kept."""
    return scope.incarnation == 1 and not scope.events


def crowded(kind: ScopeKind, vms: int) -> bool:
    """Whether a scope of that kind has too many VMs: a standalone one is that of exactly one."""
    return kind is ScopeKind.STANDALONE and vms > 1
