"""Inventory files that are applied while events are open, and VMs that come while they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.control.commands import (
    Command,
    DecideInventory,
    FinishInventory,
    InventoryTried,
    TakeInventorySlice,
)
from forewarn.control.inventory import apply_at_once, apply_in_slices
from forewarn.control.inventory.apply_at_once import Applied
from forewarn.control.inventory.file_reader import digest_of, parse
from forewarn.control.published_fleet import PublishedFleet
from forewarn.core.errors import Unavailable
from forewarn.core.inventory import slicing
from forewarn.core.inventory.host_report import SeenVm
from forewarn.core.model import MINUTE_MS, Scope, Vm
from forewarn.core.principal import INVENTORY_FILE
from forewarn.wire import packed
from simulation.fleets import machine, new_scope
from support import ordered

if TYPE_CHECKING:
    from simulation.world import SimulationWorld

VMS_MAX = 16
SLICE_VMS = 2


class Inventories:
    """The operator's file. What was listed once stays listed, with other tags each time.

    Every other file is decided first, and then applied slice by slice while the world goes on.
    """

    def __init__(self, world: SimulationWorld) -> None:
        self._world = world
        self._rng = world.rng
        self._listed: dict[str, str] = {}  # by VM, its table
        self._scopes: dict[str, str] = {}
        self._made = 0
        self._files = 0
        self._digest = ""  # of the file whose slices these are
        self._left: list[tuple[str, ...]] = []  # those that are to be tried, by their scopes

    def apply(self) -> Command[Applied]:
        """A file that says of some scopes what they are, and of their VMs something new."""
        if self._world.service is None:
            raise Unavailable("down")
        fleet = self._world.service.fleet
        hosts = [f'[[host]]\nname = "{name}"\n' for name in self._world.hosts]
        for scope in fleet.scopes.values():
            if scope.vms and self._rng.random() < 0.5:
                self._list(scope)
        text = "".join([*hosts, *self._scopes.values(), *self._listed.values()])
        self._files += 1
        return (self._files % 2 == 0 and self._in_slices(fleet, text)) or apply_at_once.apply(
            text, by=ordered.operator("operator"), needs_channels=False
        )

    def _in_slices(self, fleet: PublishedFleet, text: str) -> Command[Applied] | None:
        """The decision to apply the file in slices; None if it is wrong, or no more than one."""
        checked = _checked(fleet, text)
        if checked.mistakes or len(checked.slices) < 2:
            return None
        by = ordered.operator("operator")
        return DecideInventory(by=by, text=text, packed=packed.pack(text), applied=checked.applied)

    def next_slice(self) -> Command[InventoryTried] | None:
        """What is to be done next of a decided file, if anything is: also of one that was decided
        in an earlier life of control.
        """
        service = self._world.service
        if service is None or not service.fleet.unfinished or service.fleet.inventory is None:
            return None
        text = service.fleet.inventory
        if digest_of(text) != self._digest:
            self._digest = digest_of(text)
            slices = _checked(service.fleet, text).slices
            self._left = [slicing.names_of(one) for one in slices]
            self._world.judge.count("inventories in slices")
        if not self._left:
            return FinishInventory(by=INVENTORY_FILE, inventory=self._digest, all_applied=True)
        return TakeInventorySlice(by=INVENTORY_FILE, inventory=self._digest, scopes=self._left[0])

    def tried(self, found: InventoryTried) -> None:
        """What came of it. What has to wait is tried again after the others."""
        if self._left and not found.replaced:
            first, *others = self._left
            self._left = [*others, first] if found.waits else others
            self._world.judge.count("slices that wait" if found.waits else "slices")

    def _list(self, scope: Scope) -> None:
        approves = ", ".join(f'"{one.value.lower()}"' for one in sorted(scope.auto_approve))
        self._scopes[scope.name] = (
            f'[[scope]]\nname = "{scope.name}"\nkind = "{scope.kind.value}"\n'
            f"terminate_notice_minutes = {scope.terminate_notice_ms // MINUTE_MS}\n"
            f"auto_approve = [{approves}]\n"
        )
        for vm in scope.vms:
            self._listed[vm.name] = self._table(scope, vm)

    def _table(self, scope: Scope, vm: Vm) -> str:
        return (
            f'[[vm]]\nname = "{vm.name}"\nscope = "{scope.name}"\nhost = "{vm.host}"\n'
            f'update_domain = {vm.update_domain}\npriority = "{vm.profile.priority.value}"\n'
            f'tags = {{ round = "{self._rng.randint(1, 3)}" }}\n'
        )

    def appears(self, hosts: list[str]) -> list[SeenVm]:
        """VMs that nobody has heard of: a new scope, or one more in a scope that is there."""
        world = self._world
        if len(world.judge.domains) >= VMS_MAX:
            return []
        self._made += 1
        name = f"n{self._made}"
        groups = sorted({scope for scope, _ in world.judge.domains.values()})
        if self._rng.random() < 0.5 and groups:
            traits = world.traits_in(self._rng.choice(groups))
            if traits is None:
                return []
            made = [(self._rng.choice(hosts), machine(f"{traits.scope}-{name}", traits))]
        else:
            made = new_scope(self._rng, name, hosts)
        for host, seen in made:
            world.judge.meets(seen)
            world.put(host, seen)
        return [seen for _, seen in made]


def _checked(fleet: PublishedFleet, text: str) -> apply_in_slices.CheckResult:
    wanted = parse(text, needs_channels=False)
    still = apply_in_slices.still(fleet)
    return apply_in_slices.check(wanted, still, {}, slice_vms=SLICE_VMS)
