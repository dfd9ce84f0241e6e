"""What really happens to the VMs and hosts of the simulated world, with the judge watching."""

from __future__ import annotations

from forewarn.adapters.simulated.hypervisor import SimulatedHypervisor
from forewarn.core.model import ActionKind
from forewarn.ports import HypervisorFailed, Sight, SightKind, WorkOrder
from simulation.judge import Judge
from simulation.sim_clock import SimClock


class JudgedHypervisor:
    """The simulated hypervisor, with the judge watching when impacts begin and end."""

    def __init__(self, clock: SimClock, judge: Judge) -> None:
        self.inner = SimulatedHypervisor(clock)
        self._clock = clock
        self._judge = judge
        self.vm_ids: dict[str, str] = {}  # of every VM that ever was, by name
        self._under_way: dict[str, list[str]] = {}
        self._acted_on: dict[str, str] = {}  # by action: what no host has seen the end of

    def vms_on(self, host: str) -> list[str]:
        return sorted(vm for vm in self.vm_ids if self.inner.where(vm) == host)

    async def boot_id(self, host: str) -> str:
        return await self.inner.boot_id(host)

    async def look(self, host: str, action: WorkOrder) -> Sight:
        sight = await self.inner.look(host, action)
        if action.kind is ActionKind.START_VM and sight.kind is SightKind.FAILED:
            self._judge.excused(action.vm or "")
        if sight.kind in (SightKind.DONE, SightKind.FAILED, SightKind.SPARED):
            self._acted_on.pop(action.action_id, None)
            self._judge.impact_ends(self._under_way.pop(action.action_id, []))
        return sight

    async def begin(self, host: str, action: WorkOrder) -> None:
        self._judge.host_begins(host, action)
        if action.kind is ActionKind.START_VM and action.vm is not None:
            self._judge.started_somewhere(action.vm, host, self._may_run_on(action.vm))
        told = [vm for vm in self.vms_on(host) if action.is_about(vm, self.vm_ids[vm])]
        strangers = [v for v in self.vms_on(host) if self.inner.runs(v) and v not in told]
        if action.kind is ActionKind.REBOOT_HOST and strangers:
            raise HypervisorFailed(
                f"{strangers} had no notice"
            )  # as hosts do; a Freeze lets them be
        try:
            await self.inner.begin(host, action)
        except HypervisorFailed:
            if action.kind is ActionKind.START_VM:
                self._judge.excused(action.vm or "")
            raise
        hit = [vm for vm in ([action.vm] if action.vm else told) if self.inner.runs(vm)]
        earlier = self._under_way.get(action.action_id, [])  # begun before, by a daemon that died
        self._under_way[action.action_id] = [*earlier, *(vm for vm in hit if vm not in earlier)]
        self._acted_on[action.action_id] = action.vm or host
        self._judge.impact_begins(action, hit)

    def _may_run_on(self, vm: str) -> set[str]:
        """Where a VM runs now, and where something that is under way will have it run."""
        where = self.inner.where(vm)
        here = {where} if where is not None and self.inner.runs(vm) else set()
        return here | self.inner.coming(vm)

    def acted_on(self) -> set[str]:
        """VMs and hosts that something was begun on whose end no host has seen."""
        going_on = {action.vm or action.host or "" for _, action in self.inner.under_way()}
        return going_on.union(self._acted_on.values())

    def forget(self, action_ids: list[str]) -> None:
        """The event of these actions has ended without their hosts' word."""
        for action_id in action_ids:
            self._acted_on.pop(action_id, None)
            self._judge.impact_ends(self._under_way.pop(action_id, []))
