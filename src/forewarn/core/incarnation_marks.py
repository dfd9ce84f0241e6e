"""How far a host has come: for each VM the highest incarnation that it was ever shown there.

A guest compares incarnations for as long as it lives, longer than any daemon or control. So the
marks of a host outlive both: whatever control it follows, nothing below a mark is shown. A VM is
its name and its id together; another VM that was given the name begins anew.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct, field
from msgspec.structs import replace

# Five times as many as a host may have VMs at once. With more, those go first that were raised
# longest ago and that are not on show: a guest that old is not the one that was here.
MARKS_MAX = 50_000

FIRST_INCARNATION = 1

VmKey = tuple[str, str]  # the name of a VM and its id


class VmWithId(Protocol):
    """A VM, as the fleet knows it or as a host shows it."""

    @property
    def name(self) -> str: ...

    @property
    def vm_id(self) -> str: ...


class ScopeWithIncarnation(Protocol):
    """A scope and the number of its document, as the fleet knows it or as a host shows it."""

    @property
    def name(self) -> str: ...

    @property
    def incarnation(self) -> int: ...

    @property
    def vms(self) -> Sequence[VmWithId]: ...


class Above(Struct, frozen=True, kw_only=True):
    """A VM that was shown more than a document says: `marked`, where `sent` is what it says."""

    scope: str
    vm: str
    marked: int
    sent: int

    def __str__(self) -> str:
        return (
            f"the document of scope {self.scope} would go back from incarnation {self.marked} to"
            f" {self.sent} for VM {self.vm}"
        )


class Marks(Struct, frozen=True, kw_only=True):
    """The marks of one host, those raised longest ago first.

    No VM has a mark for the first incarnation: nothing is below it. `lost` says in words why not
    all marks are known any more; empty if they are.
    """

    of_vm: Mapping[VmKey, int] = field(default_factory=dict)
    lost: str = ""

    def above(self, scope: ScopeWithIncarnation) -> Above | None:
        """The VM of the scope that was shown most, if that is more than the scope says."""
        found = [(self.of_vm.get(key_of(vm), 0), vm.name) for vm in scope.vms]
        marked, vm = max(found, default=(0, ""))
        if marked <= scope.incarnation:
            return None
        return Above(scope=scope.name, vm=vm, marked=marked, sent=scope.incarnation)

    def raised(self, scopes: Iterable[ScopeWithIncarnation]) -> Marks:
        """With every VM of these scopes marked at least so high; itself if they are already."""
        higher = {
            key_of(vm): scope.incarnation
            for scope in scopes
            if scope.incarnation > FIRST_INCARNATION
            for vm in scope.vms
            if self.of_vm.get(key_of(vm), 0) < scope.incarnation
        }
        if not higher:
            return self
        kept = {key: marked for key, marked in self.of_vm.items() if key not in higher}
        return replace(self, of_vm={**kept, **higher})

    def at_most(self, limit: int, *, on_show: Callable[[], Collection[VmKey]]) -> Marks:
        """Without those that are too many; a VM that is on show keeps its mark."""
        too_many = len(self.of_vm) - limit
        if too_many <= 0:
            return self
        shown = on_show()
        oldest = [key for key in self.of_vm if key not in shown][:too_many]
        gone = frozenset(oldest)
        kept = {key: marked for key, marked in self.of_vm.items() if key not in gone}
        return replace(self, of_vm=kept)


def key_of(vm: VmWithId) -> VmKey:
    """What a VM is known by here."""
    return vm.name, vm.vm_id.casefold()
