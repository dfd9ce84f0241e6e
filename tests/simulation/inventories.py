"""Inventory files that are applied while events are open, and VMs that come while they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forewarn.control.commands import Command
from forewarn.control.inventory import apply_at_once
from forewarn.control.inventory.apply_at_once import Applied
from forewarn.core.errors import Unavailable
from forewarn.core.inventory.host_report import SeenVm
from forewarn.core.model import MINUTE_MS, Scope, Vm
from simulation.fleets import machine, new_scope
from support import ordered

if TYPE_CHECKING:
    from simulation.world import SimulationWorld

VMS_MAX = 16


class Inventories:
    """The operator's file. What was listed once stays listed, with other tags each time."""

    def __init__(self, world: SimulationWorld) -> None:
        self._world = world
        self._rng = world.rng
        self._listed: dict[str, str] = {}  # by VM, its table
        self._scopes: dict[str, str] = {}
        self._made = 0

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
        return apply_at_once.apply(text, by=ordered.operator("operator"), needs_channels=False)

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
