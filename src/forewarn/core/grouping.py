"""The scopes that VMs name in their metadata: made when the first VM comes, gone after the last.

What an inventory file says of a scope wins; only other scopes are made, settled and dropped here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from forewarn.core import belonging
from forewarn.core.inventory import ScopeEntry, event_words
from forewarn.core.machines import SeenVm, Traits
from forewarn.core.model import MINUTE_MS, Scope, ScopeKind, Vm

TERMINATE_NOTICE_DEFAULT_MS = 5 * MINUTE_MS

T = TypeVar("T")


class Groups:
    """Scopes as they will be. What was not put here is as it was."""

    def __init__(
        self, scopes: Mapping[str, Scope], *, file_scopes: Mapping[str, ScopeEntry]
    ) -> None:
        self._before = scopes
        self._file_scopes = file_scopes
        self._after: dict[str, Scope] = {}
        self._folded: dict[str, str] | None = None
        # Where each VM of a scope stands in its `vms`, kept while they only change in place or
        # come: a report may be of thousands of VMs of one scope.
        self._places: dict[str, dict[str, int]] = {}

    def scope(self, name: str) -> Scope | None:
        return self._after.get(name) or self._before.get(name)

    def vm(self, scope: Scope, name: str) -> Vm | None:
        """The VM of that name in a scope as it is now."""
        place = self._places_in(scope).get(name)
        return None if place is None else scope.vms[place]

    def put(self, scope: Scope) -> Scope:
        """Take over the next value of a scope, new or known."""
        self._places.pop(scope.name, None)
        return self._take_over(scope)

    def put_vm(self, scope: Scope, vm: Vm) -> Scope:
        """Take over a scope with `vm` in place of the one of the same name, or added as the last.

        `scope` is as it is now but for the VM.
        """
        places = self._places_in(scope)
        vms = list(scope.vms)
        if vm.name in places:
            vms[places[vm.name]] = vm
        else:
            places[vm.name] = len(vms)
            vms.append(vm)
        return self._take_over(replace(scope, vms=tuple(vms)))

    def _take_over(self, scope: Scope) -> Scope:
        if self._folded is not None:
            self._folded.setdefault(scope.name.casefold(), scope.name)
        self._after[scope.name] = scope
        return scope

    def _places_in(self, scope: Scope) -> dict[str, int]:
        found = self._places.get(scope.name)
        if found is None or len(found) != len(scope.vms):
            found = {vm.name: place for place, vm in enumerate(scope.vms)}
            self._places[scope.name] = found
        return found

    def changed(self) -> tuple[Scope, ...]:
        """The scopes that were put, as they are now."""
        return tuple(self._after.values())

    def incarnation_before(self, name: str) -> int:
        """What the store has, 1 for a new scope."""
        before = self._before.get(name)
        return 1 if before is None else before.incarnation

    def into(self, name: str, vm: str, said: Traits, *, listed_vm: bool) -> Scope | str:
        """The scope that a VM can join under that name, or why it cannot, in words.

        `listed_vm`: the inventory file lists the VM.
        """
        there = self.scope(name)
        if name in self._file_scopes:
            return self._into_listed(name, vm, there, listed_vm=listed_vm)
        kind = said.scope_kind or (
            ScopeKind.AVAILABILITY_SET if said.scope else ScopeKind.STANDALONE
        )
        if there is None:
            taken = self._taken(name)
            if taken is None:
                return Scope(name=name, kind=kind)
            return (
                f"there is a scope {taken}, and a difference in case is none. "
                f"Adopt it into a scope: `forewarn vm adopt {vm} --scope {taken}`."
            )
        other = _another(there, vm)
        if other is None:
            return there if there.events else replace(there, kind=kind)
        why = _why_not(there, other, vm, said)
        if not why and there.kind is ScopeKind.STANDALONE:
            return replace(there, kind=kind)
        return why or there

    def _into_listed(
        self, name: str, vm: str, there: Scope | None, *, listed_vm: bool
    ) -> Scope | str:
        if self._file_scopes[name].only_listed and not listed_vm:
            return (
                f"scope {name} has only VMs that the inventory file lists (only_listed). "
                "List it there, or give it another scope."
            )
        listed = there or _from_file(self._file_scopes[name])
        other = _another(listed, vm)
        if other is not None and listed.kind is ScopeKind.STANDALONE:
            return _crowd(name, other)
        return listed

    def _taken(self, name: str) -> str | None:
        """A scope whose name differs from this one in case only."""
        if self._folded is None:
            self._folded = {other.casefold(): other for other in (*self._before, *self._after)}
        return self._folded.get(name.casefold())

    def settle(
        self, name: str, reports: Mapping[str, Mapping[str, SeenVm]]
    ) -> Iterator[tuple[str, str]]:
        """Give a scope what its VMs say of it; (VM, words) for what cannot be taken.

        Nothing changes while nobody knows what a VM of the scope says: it has not been shown since
        control was started, and may say what the others leave out. Where VMs disagree, the first
        by name is right.
        """
        scope = self.scope(name)
        if scope is None or not scope.vms:
            return
        said: dict[str, Traits] = {}
        for vm in sorted(scope.vms, key=lambda vm: vm.name):
            seen = reports.get(vm.host, {}).get(vm.name)
            if seen is None or (seen.problem and seen.traits == Traits()):
                return  # nobody knows what it says
            elsewhere = (seen.traits.scope or vm.name) != name  # it is to leave, and waits
            said[vm.name] = Traits(scope=name) if elsewhere else seen.traits
        kinds = {vm: traits.scope_kind for vm, traits in said.items()}
        notices = {vm: traits.terminate_notice_ms for vm, traits in said.items()}
        approvals = {vm: traits.auto_approve for vm, traits in said.items()}
        yield from _disagreeing("scope-kind", name, kinds)
        yield from _disagreeing("terminate-notice-minutes", name, notices)
        yield from _disagreeing("auto-approve", name, approvals)
        alone = len(said) == 1 and not next(iter(said.values())).scope
        default = ScopeKind.STANDALONE if alone else ScopeKind.AVAILABILITY_SET
        kind = _first(kinds.values(), default)
        if kind is not scope.kind:
            shown = next((event for event in scope.events if event.visible), None)
            if shown is not None:
                words = f"the kind of scope {name} waits until {event_words(shown)} has ended."
                yield next(iter(said)), words
                kind = scope.kind
            elif kind is ScopeKind.STANDALONE and len(said) > 1:
                yield next(iter(said)), _crowd(name, next(iter(said)))
                kind = scope.kind
        after = replace(
            scope,
            kind=kind,
            terminate_notice_ms=_first(notices.values(), TERMINATE_NOTICE_DEFAULT_MS),
            auto_approve=_first(approvals.values(), frozenset()),
            deleted=(),  # only files need to remember what was deleted
        )
        if after != scope:
            self.put(after)

    def finish(
        self, empty_before: Iterable[str]
    ) -> tuple[tuple[Scope, ...], tuple[str, ...], frozenset[str]]:
        """The scopes to save, those to remove, and those that are empty and may go later.

        A scope without VMs keeps its row if its document ever changed: were it to come back at
        incarnation 1, guests could see the incarnation go back (I4).
        """
        removed: set[str] = set()
        for name in empty_before:
            scope = self._before.get(name)
            if scope is not None and name not in self._after and self._may_go(scope):
                removed.add(name)
        empty: set[str] = set()
        for name, scope in list(self._after.items()):
            if scope.vms or name in self._file_scopes:
                continue
            before = self._before.get(name)
            if before is None:
                del self._after[name]
                continue
            self._after[name] = belonging.emptied(scope)
            if before.incarnation == 1:
                empty.add(name)
        scopes = (
            scope for name, scope in sorted(self._after.items()) if scope != self._before.get(name)
        )
        return tuple(scopes), tuple(sorted(removed)), frozenset(empty)

    def _may_go(self, scope: Scope) -> bool:
        if scope.vms or scope.events or scope.name in self._file_scopes:
            return False
        return scope.incarnation == 1


def _from_file(entry: ScopeEntry) -> Scope:
    return Scope(
        name=entry.name,
        kind=entry.kind,
        terminate_notice_ms=entry.terminate_notice_ms,
        auto_approve=entry.auto_approve,
    )


def _another(scope: Scope, vm: str) -> str | None:
    """The first VM of the scope but this one."""
    return next((other.name for other in scope.vms if other.name != vm), None)


def _why_not(there: Scope, other: str, vm: str, said: Traits) -> str:
    """Why a VM cannot join a scope that another is in; empty if it can."""
    if not said.scope:
        return (
            f"without a scope it would have one of its own, but there is a scope {there.name}. "
            f"Adopt it into that scope or another: `forewarn vm adopt {vm} --scope {there.name}`."
        )
    if there.kind is not ScopeKind.STANDALONE:
        return ""
    becomes_another = said.scope_kind not in (None, ScopeKind.STANDALONE)
    shown = next((event for event in there.events if event.visible), None)
    if becomes_another and shown is not None:
        return f"the kind of scope {there.name} waits until {event_words(shown)} has ended."
    return "" if becomes_another else _crowd(there.name, other)


def _crowd(name: str, other: str) -> str:
    return (
        f"scope {name} is standalone, that of exactly one VM, and {other} is in it. Give the "
        "scope another kind (scope-kind), or the VM another scope."
    )


def _disagreeing(
    what: str, scope: str, said: Mapping[str, object | None]
) -> Iterator[tuple[str, str]]:
    right = next(((vm, value) for vm, value in said.items() if value is not None), None)
    if right is None:
        return
    for vm, value in said.items():
        if value is not None and value != right[1]:
            words = f"{what} of scope {scope} is as VM {right[0]} says; say the same here, or not."
            yield vm, words


def _first(said: Iterable[T | None], default: T) -> T:
    return next((value for value in said if value is not None), default)
