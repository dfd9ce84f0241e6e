"""Cutting what an inventory file changes into slices of whole scopes, each a commit of its own.

Every rule holds between two slices. So scopes between which a VM moves, or its name, its mark or
the channel it is known by, are in one slice. Hosts that come are there before the first slice, and
hosts that go leave after the last.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from msgspec import Struct

from forewarn.core.inventory.entries import HostEntry, Inventory, ScopeEntry, VmEntry
from forewarn.core.inventory.names import KnownNames
from forewarn.core.model import Scope, Vm

Group = tuple[str, ...]  # the names of scopes that go together
Slice = tuple[Group, ...]  # groups that do not depend on each other


class ByScope(Struct, frozen=True):
    """What a file wants, so that the part of some scopes is found without looking at the rest."""

    hosts: dict[str, HostEntry]
    scopes: dict[str, ScopeEntry]
    vms: dict[str, VmEntry]
    members: dict[str, list[VmEntry]]

    def let_go(self) -> None:
        """Forget everything, piece by piece: to free a large fleet at once stops every thread."""
        for held in (self.members, self.vms, self.scopes, self.hosts):
            while held:
                held.popitem()

    def part(self, names: Iterable[str]) -> Inventory:
        """What the file wants of these scopes, and the hosts on which it places their VMs."""
        ordered = sorted(names)
        vms = [entry for name in ordered for entry in self.members.get(name, ())]
        hosts = sorted({entry.host for entry in vms})
        return Inventory(
            hosts=tuple(self.hosts[name] for name in hosts if name in self.hosts),
            scopes=tuple(self.scopes[name] for name in ordered if name in self.scopes),
            vms=tuple(vms),
        )


def by_scope(wanted: Inventory) -> ByScope:
    """The same, by name and by scope."""
    members: dict[str, list[VmEntry]] = {}
    for entry in wanted.vms:
        members.setdefault(entry.scope, []).append(entry)
    return ByScope(
        hosts={entry.name: entry for entry in wanted.hosts},
        scopes={entry.name: entry for entry in wanted.scopes},
        vms={entry.name: entry for entry in wanted.vms},
        members=members,
    )


def slices(
    changed: Collection[str],
    wanted: Inventory,
    *,
    scopes: Mapping[str, Scope],
    vms_max: int,
) -> list[Slice]:
    """The names of the scopes that change, in slices of up to so many VMs where that can be.

    A scope is never divided, nor scopes that depend on each other: those are a group.
    """
    together = _Together()
    for one, other in _bound(wanted, scopes):
        together.bind(one, other)
    groups: dict[str, set[str]] = {}
    for name in changed:
        groups.setdefault(together.first(name), set()).add(name)
    for name in together.names():
        first = together.first(name)
        if first in groups:
            groups[first].add(name)
    sizes: dict[str, int] = {}
    for entry in wanted.vms:
        sizes[entry.scope] = sizes.get(entry.scope, 0) + 1
    cut: list[list[Group]] = []
    room = 0
    for group in sorted(sorted(names) for names in groups.values()):
        size = sum(_size(name, scopes, sizes) for name in group)
        if size > room:
            cut.append([])
            room = vms_max
        cut[-1].append(tuple(group))
        room -= size
    return [tuple(part) for part in cut]


def names_of(part: Slice) -> tuple[str, ...]:
    """The scopes of a slice."""
    return tuple(name for group in part for name in group)


def halves(part: Slice) -> tuple[Slice, ...]:
    """A slice in two, to find the groups that cannot be applied; one group is left whole."""
    middle = len(part) // 2
    return (part[:middle], part[middle:]) if middle else (part,)


def closed(
    names: Iterable[str],
    wanted: ByScope,
    in_scope: Callable[[str], Scope | None],
    scope_of_vm: Mapping[str, str],
) -> frozenset[str]:
    """These scopes, and those that VMs of theirs leave or come from as the fleet is now."""
    found: set[str] = set()
    look = list(names)
    while look:
        name = look.pop()
        if name in found:
            continue
        found.add(name)
        scope = in_scope(name)
        for vm in scope.vms if scope is not None else ():
            entry = wanted.vms.get(vm.name)
            if entry is not None and entry.scope not in found:
                look.append(entry.scope)
        for entry in wanted.members.get(name, ()):
            now = scope_of_vm.get(entry.name, name)
            if now not in found:
                look.append(now)
    return frozenset(found)


def _size(name: str, scopes: Mapping[str, Scope], wanted: Mapping[str, int]) -> int:
    before = scopes.get(name)
    return max(1, wanted.get(name, 0), len(before.vms) if before is not None else 0)


def _bound(wanted: Inventory, scopes: Mapping[str, Scope]) -> Iterator[tuple[str, str]]:
    """Pairs of scopes between which something moves."""
    before = {vm.name: (name, vm) for name, scope in scopes.items() for vm in scope.vms}
    deleted = {vm: name for name, scope in scopes.items() for vm in scope.deleted}
    channels = {
        channel: (name, vm.name)
        for name, scope in scopes.items()
        for vm in scope.vms
        for channel in _channels(vm)
    }
    scope_names, vm_names = KnownNames(scopes), KnownNames(before)
    for scope in wanted.scopes:
        yield scope.name, scope_names.taken_by(scope.name) or scope.name
    for entry in wanted.vms:
        known = before.get(entry.name)
        if known is not None:
            yield entry.scope, known[0]
        else:
            taken = vm_names.taken_by(entry.name)
            yield entry.scope, before[taken][0] if taken is not None else entry.scope
            yield entry.scope, deleted.get(entry.name, entry.scope)
            if entry.name in scopes:  # kept since the VM was here, in no group
                yield entry.scope, entry.name
        for channel in _channels(entry):
            held = channels.get(channel)
            if held is not None and held[1] != entry.name:
                yield entry.scope, held[0]


def _channels(vm: Vm | VmEntry) -> Iterator[tuple[str, str]]:
    address, listen = vm.profile.address, vm.profile.listen
    if address is not None:
        yield "address", address
    if listen is not None and not listen.endswith(":0"):
        yield "listen", listen


class _Together:
    """Which names belong together. A name that was not bound to another is alone."""

    def __init__(self) -> None:
        self._towards: dict[str, str] = {}

    def names(self) -> Iterable[str]:
        return self._towards

    def first(self, name: str) -> str:
        root = name
        while (above := self._towards.get(root, root)) != root:
            root = above
        while (above := self._towards.get(name, name)) != root:
            self._towards[name] = root
            name = above
        return root

    def bind(self, one: str, other: str) -> None:
        if one == other:
            return
        self._towards.setdefault(one, one)
        self._towards.setdefault(other, other)
        a, b = self.first(one), self.first(other)
        if a != b:
            self._towards[max(a, b)] = min(a, b)
