"""Where a VM is, by what hosts show of it and how much their word counts.

Where it runs, else where it is paused, else where it is at all; at a draw it stays where the fleet
has it. A host that is silent or has failed proves nothing about its VMs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from forewarn.core.fleet import Fleet
from forewarn.core.inventory.host_report import Power, SeenVm
from forewarn.core.model import Health, Vm

_RANKS = {Power.RUNNING: 2, Power.PAUSED: 1, Power.OFF: 0, Power.CRASHED: 0}
_NOT_THERE = -1
_NOT_KNOWN = 0  # its host cannot be asked: only one that runs elsewhere is surely there

Report = Mapping[str, SeenVm]  # by name


class Locations:
    """What the last reports of all hosts say of where VMs are; `host` reports just now."""

    def __init__(self, host: str, reports: Mapping[str, Report], fleet: Fleet) -> None:
        self._host = host
        self._reports = reports
        self._fleet = fleet

    def counts(self, host: str) -> bool:
        """Whether the word of a host counts."""
        there = self._fleet.host(host)
        if there is None or there.health is Health.FAILED:
            return False
        return host == self._host or self._fleet.alive(host)

    def others(self, vm: Vm) -> Iterator[str]:
        """Other hosts than its own that show this very VM and whose word counts."""
        for host, report in self._reports.items():
            seen = report.get(vm.name)
            if host == vm.host or seen is None or seen.vm_id != vm.vm_id:
                continue
            if self.counts(host):
                yield host

    def runs_at(self, vm: Vm, host: str) -> bool:
        seen = self._reports.get(host, {}).get(vm.name)
        return seen is not None and seen.power is Power.RUNNING and self.counts(host)

    def not_on_other_host(self, vm: Vm) -> bool:
        """True if the other host that may run the VM shows what it has, and not that VM."""
        other = vm.may_run_on or ""
        report = self._reports.get(other)
        return report is not None and vm.name not in report and self.counts(other)

    def best(self, vm: Vm) -> str:
        """The host where the VM is: its own unless another has a better claim."""
        best = vm.host
        if not self.counts(vm.host):
            rank = _NOT_KNOWN
        elif vm.host not in self._reports:
            return best  # it is there and will say so
        else:
            seen = self._reports[vm.host].get(vm.name)
            rank = _RANKS[seen.power] if seen and seen.vm_id == vm.vm_id else _NOT_THERE
            if rank != _NOT_THERE and self.operating(vm.host):
                return best  # paused or off by order: no host can claim it until it is gone there
        for host in sorted(self.others(vm)):
            claim = _RANKS[self._reports[host][vm.name].power]
            if claim > rank:
                best, rank = host, claim
        return best

    def operating(self, host: str) -> bool:
        """True while an operation of the host is being carried out."""
        return any(
            operation.action is not None and not operation.action.ended
            for operation in self._fleet.operations_on(host)
        )


def only_lies_there(seen: SeenVm) -> bool:
    """Whether a host has the VM without running it, not even paused."""
    return _RANKS[seen.power] == 0
