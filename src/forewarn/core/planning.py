"""Computing, without deciding: which VMs an order touches, and where a VM could go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from forewarn.core.fleet import Fleet
from forewarn.core.model import Health, Host, Scope, Vm


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """VMs of one scope and one update domain on one host: what one event can name (L42)."""

    scope: str
    update_domain: int
    host: str
    vm_names: tuple[str, ...]


def groups_of(scope: Scope, host: str, vms: tuple[Vm, ...]) -> tuple[Group, ...]:
    """The groups that `vms` of one scope on one host form, by update domain."""
    domains = sorted({vm.update_domain for vm in vms})
    return tuple(
        Group(
            scope=scope.name,
            update_domain=domain,
            host=host,
            vm_names=tuple(vm.name for vm in vms if vm.update_domain == domain),
        )
        for domain in domains
    )


def plan(host: str, fleet: Fleet) -> tuple[Group, ...]:
    """Every group on the host, by scope name and update domain."""
    return tuple(
        group
        for scope in fleet.scopes_on(host)
        for group in groups_of(scope, host, tuple(vm for vm in scope.vms if vm.host == host))
    )


def scopes_with_two_domains(host: str, fleet: Fleet) -> Mapping[str, tuple[int, ...]]:
    """Scopes with several update domains on the host or on the way to it, and those domains."""
    domains: dict[str, set[int]] = {}
    for group in plan(host, fleet):
        domains.setdefault(group.scope, set()).add(group.update_domain)
    for name, vm in fleet.arriving(host):
        domains.setdefault(name, set()).add(vm.update_domain)
    return {name: tuple(sorted(found)) for name, found in domains.items() if len(found) > 1}


def placement(host: Host, fleet: Fleet) -> str:
    """ "open", or what closes the host to VMs: the operator, its health, an operation, silence."""
    if host.closed:
        return "closed"
    if host.health is not Health.OK:
        return host.health.value
    if fleet.operations_on(host.name):
        return "operating"
    if not host.listed:
        return "unlisted"
    return "open" if fleet.alive(host.name) else "silent"


def open_to_placement(host: Host, fleet: Fleet) -> bool:
    """False for closed, failed, degraded, operating, unlisted and silent hosts."""
    return placement(host, fleet) == "open"


def choose_target(scope: Scope, vm: Vm, fleet: Fleet, planned: Mapping[str, int]) -> str | None:
    """The host a VM should move to, or None if there is none now.

    An open host with a free place and without another domain of the VM's scope; the least loaded,
    then the first by name. `planned` counts VMs the same decision already sends somewhere. The
    only host of a fleet is its own target: the VM restarts in place.
    """
    hosts = tuple(fleet.hosts())
    if len(hosts) == 1:
        return vm.host
    best: tuple[int, str] | None = None
    for host in hosts:
        if host.name == vm.host or not open_to_placement(host, fleet):
            continue
        arriving = fleet.arriving(host.name)
        load = fleet.vm_count(host.name) + len(arriving) + planned.get(host.name, 0)
        if host.capacity is not None and load >= host.capacity:
            continue
        if _carries_another_domain(scope, vm, host.name, fleet):
            continue
        if best is None or (load, host.name) < best:
            best = (load, host.name)
    return best[1] if best else None


def _carries_another_domain(scope: Scope, vm: Vm, host: str, fleet: Fleet) -> bool:
    here = (other for other in scope.vms if other.host == host)
    coming = (other for name, other in fleet.arriving(host) if name == scope.name)
    return any(
        other.update_domain != vm.update_domain for group in (here, coming) for other in group
    )
