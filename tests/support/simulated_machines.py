"""Machines that are only a list: a host daemon runs with them where there is no libvirt.

What happens to them is the simulated hypervisor's business; here is what a host sees of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from forewarn.adapters.simulated.hypervisor import SimulatedHypervisor
from forewarn.core.inventory.host_report import Power, SeenVm, Traits
from forewarn.ports import HypervisorFailed


class SimulatedWorld:
    """All VMs of a simulated fleet, and who wants to know of changes. One for all its hosts."""

    def __init__(self, hypervisor: SimulatedHypervisor) -> None:
        self.hypervisor = hypervisor
        self._vms: dict[str, SeenVm] = {}
        self._rings: list[Callable[[], None]] = []
        hypervisor.on_change(self.ring)

    def put(self, host: str, vms: Iterable[SeenVm]) -> None:
        """Have these VMs on a host, running."""
        for vm in vms:
            self._vms[vm.name] = vm
            self.hypervisor.place(vm.name, host)
        self.ring()

    def take(self, vm: str) -> None:
        """Lose a VM, as if an outside tool had removed it."""
        self._vms.pop(vm, None)
        self.ring()

    def ring(self) -> None:
        """Something may be new on any host."""
        for ring in self._rings:
            ring()

    def on(self, host: str) -> SimulatedMachines:
        """The machines of one host."""
        return SimulatedMachines(self, host)

    def seen_on(self, host: str) -> list[SeenVm]:
        """What there is on a host now."""
        hypervisor = self.hypervisor
        found = (vm for name, vm in self._vms.items() if hypervisor.where(name) == host)
        return [
            vm if hypervisor.runs(vm.name) else replace(vm, power=Power.OFF)
            for vm in sorted(found, key=lambda vm: vm.name)
        ]

    def adopt(self, vm: str, traits: Traits) -> None:
        """Give a VM these traits."""
        self._vms[vm] = replace(self._vms[vm], traits=traits)
        self.ring()

    def listen(self, ring: Callable[[], None]) -> None:
        self._rings.append(ring)


class SimulatedMachines:
    """`ports.Machines` for one host of a simulated world. `away` makes it fail as libvirt can."""

    def __init__(self, world: SimulatedWorld, host: str) -> None:
        self._world = world
        self._host = host
        self.away = ""

    def _refuse(self) -> None:
        if self.away:
            raise HypervisorFailed(self.away)

    async def seen(self) -> Sequence[SeenVm]:
        self._refuse()
        return self._world.seen_on(self._host)

    async def adopt(self, vm: str, traits: Traits) -> None:
        self._refuse()
        if all(seen.name != vm for seen in self._world.seen_on(self._host)):
            raise HypervisorFailed(f"there is no VM {vm} on host {self._host}")
        self._world.adopt(vm, traits)

    def on_change(self, ring: Callable[[], None]) -> None:
        self._world.listen(ring)
