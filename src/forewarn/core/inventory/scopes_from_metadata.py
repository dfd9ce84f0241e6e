"""The scopes that VMs name in their metadata: made when the first VM comes, gone after the last.

What an inventory file says of a scope wins; only other scopes are made, settled and dropped here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from msgspec.structs import replace

from forewarn.core.inventory.clashes import event_words
from forewarn.core.inventory.entries import ScopeEntry
from forewarn.core.inventory.fleet_change import FleetChange, crowded, visible
from forewarn.core.inventory.host_report import SeenVm, Traits
from forewarn.core.inventory.names import in_case_only
from forewarn.core.model import MINUTE_MS, Scope, ScopeKind

TERMINATE_NOTICE_DEFAULT_MS = 5 * MINUTE_MS

T = TypeVar("T")


class ReportedScopes:
    """Which scope a VM can join that a host shows, and what the VMs of a scope say of it."""

    def __init__(self, change: FleetChange, *, file_scopes: Mapping[str, ScopeEntry]) -> None:
        self._change = change
        self._file_scopes = file_scopes

    def into(self, name: str, vm: str, said: Traits, *, listed_vm: bool) -> Scope | str:
        """The scope that a VM can join under that name, or why it cannot, in words.

        `listed_vm`: the inventory file lists the VM.
        """
        there = self._change.scope(name)
        if name in self._file_scopes:
            return self._into_listed(name, vm, there, listed_vm=listed_vm)
        kind = said.scope_kind or (
            ScopeKind.AVAILABILITY_SET if said.scope else ScopeKind.STANDALONE
        )
        if there is None:
            taken = self._change.scope_named_like(name)
            if taken is None:
                return Scope(name=name, kind=kind)
            return (
                f"{in_case_only('scope', taken)} "
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
        if other is not None and crowded(listed.kind, 1 + len(listed.vms)):
            return _crowd(name, other)
        return listed

    def settle(
        self, name: str, reports: Mapping[str, Mapping[str, SeenVm]]
    ) -> Iterator[tuple[str, str]]:
        """Give a scope what its VMs say of it; (VM, words) for what cannot be taken.

        Nothing changes while it is not known what a VM of the scope says: it has not been shown
        since control was started, and may say what the others leave out. Where VMs disagree, the
        first by name is right.
        """
        scope = self._change.scope(name)
        said = None if scope is None else _said(scope, reports)
        if scope is None or not said:
            return
        first = next(iter(said))
        for what, attribute in _OF_A_SCOPE.items():
            values = {vm: getattr(traits, attribute) for vm, traits in said.items()}
            yield from _disagreeing(what, name, values)
        wanted = _entry(name, said)
        differs = wanted.kind is not scope.kind
        if differs and crowded(wanted.kind, len(said)) and visible(scope) is None:
            yield first, _crowd(name, first)
            wanted = dataclasses.replace(wanted, kind=scope.kind)
        shown = self._change.describe(wanted)
        if shown is not None:
            yield first, f"the kind of scope {name} waits until {event_words(shown)} has ended."
        if scope.deleted:  # only files need to remember what was deleted
            around = self._change.events_of(name) or scope
            self._change.put_around(replace(around, deleted=()))


# What VMs say of their scope: the attribute of their metadata, and the trait.
_OF_A_SCOPE = {
    "scope-kind": "scope_kind",
    "terminate-notice-minutes": "terminate_notice_ms",
    "auto-approve": "auto_approve",
}


def _said(scope: Scope, reports: Mapping[str, Mapping[str, SeenVm]]) -> dict[str, Traits] | None:
    """What each VM says of its scope, by name; None if it is not known of one."""
    said: dict[str, Traits] = {}
    for vm in sorted(scope.vms, key=lambda vm: vm.name):
        seen = reports.get(vm.host, {}).get(vm.name)
        if seen is None or (seen.problem and seen.traits == Traits()):
            return None
        elsewhere = (seen.traits.scope or vm.name) != scope.name  # it is to leave, and waits
        said[vm.name] = Traits(scope=scope.name) if elsewhere else seen.traits
    return said


def _entry(name: str, said: Mapping[str, Traits]) -> ScopeEntry:
    """The scope as its VMs want it: of each thing, what the first says that says it."""
    alone = len(said) == 1 and not next(iter(said.values())).scope
    kind = ScopeKind.STANDALONE if alone else ScopeKind.AVAILABILITY_SET
    return ScopeEntry(
        name=name,
        kind=_first((traits.scope_kind for traits in said.values()), kind),
        terminate_notice_ms=_first(
            (traits.terminate_notice_ms for traits in said.values()), TERMINATE_NOTICE_DEFAULT_MS
        ),
        auto_approve=_first((traits.auto_approve for traits in said.values()), frozenset()),
    )


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
    shown = visible(there)
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
            words = (
                f"VM {right[0]} sets {what} of scope {scope}. "
                "Set the same value here, or leave it out."
            )
            yield vm, words


def _first(said: Iterable[T | None], default: T) -> T:
    return next((value for value in said if value is not None), default)
