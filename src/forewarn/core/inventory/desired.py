"""Which VM is wanted, in which scope and how: one value, whichever source says it.

An inventory file says it; of a VM that no file lists its host does.
"""

from __future__ import annotations

from collections.abc import Mapping

from forewarn.core.inventory.entries import Source, VmEntry
from forewarn.core.inventory.host_report import SeenVm
from forewarn.core.model import Vm


def desired(seen: SeenVm, host: str, *, file_vms: Mapping[str, VmEntry]) -> VmEntry:
    """A VM that a host shows, as it is wanted."""
    return file_vms.get(seen.name) or by_host(seen, host)


def by_host(seen: SeenVm, host: str) -> VmEntry:
    """The VM that the metadata of a domain describes; without a scope it has one of its own."""
    said = seen.traits
    return VmEntry(
        name=seen.name,
        scope=said.scope or seen.name,
        host=host,
        update_domain=said.update_domain or 0,
        profile=said.profile,
        source=Source.HOST,
    )


def as_it_is(scope: str, vm: Vm) -> VmEntry:
    """A VM of the fleet that stays as it is: its host has shown it, and no file lists it."""
    return VmEntry(
        name=vm.name,
        scope=scope,
        host=vm.host,
        update_domain=vm.update_domain,
        profile=vm.profile,
        source=Source.HOST,
    )


def vm_of(entry: VmEntry, *, vm_id: str, host: str) -> Vm:
    """The VM that is wanted, on the host where it really is."""
    return Vm(
        name=entry.name,
        vm_id=vm_id,
        update_domain=entry.update_domain,
        host=host,
        profile=entry.profile,
    )
