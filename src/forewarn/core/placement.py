"""Computing, without deciding: which VMs an order touches, and where a VM could go."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from msgspec import Struct

from forewarn.core.fleet import Fleet
from forewarn.core.model import Health, Host, ScheduledEvent, Scope, Vm

HOSTS_NAMED_MAX = 8


class Group(Struct, frozen=True, kw_only=True):
    """VMs of one scope and one update domain on one host: what one event can name (L42).

    A VM that is off is in a group of its own: nothing waits for it.
    """

    scope: str
    update_domain: int
    host: str
    vm_names: tuple[str, ...]
    off: bool = False


def groups_of(scope: Scope, host: str, vms: tuple[Vm, ...]) -> tuple[Group, ...]:
    """The groups that `vms` of one scope on one host form, by update domain, then those off."""
    domains = sorted({vm.update_domain for vm in vms if not vm.off})
    running = tuple(
        Group(
            scope=scope.name,
            update_domain=domain,
            host=host,
            vm_names=tuple(v.name for v in vms if v.update_domain == domain and not v.off),
        )
        for domain in domains
    )
    off = tuple(
        Group(
            scope=scope.name,
            update_domain=vm.update_domain,
            host=host,
            vm_names=(vm.name,),
            off=True,
        )
        for vm in vms
        if vm.off
    )
    return running + off


def all_off(scope: Scope, event: ScheduledEvent) -> bool:
    """True if every VM of the event was switched off: it impacts no guest."""
    off = [vm.name for vm in scope.vms if vm.off]  # of most scopes none is
    return bool(off) and bool(event.resources) and set(off).issuperset(event.resources)


def hits_no_vm(scope: Scope, event: ScheduledEvent) -> bool:
    """True if no guest was told of the event, and all its VMs are off: no domain waits for it.

    One that was announced counts as any other: a VM of it may be switched on until it has ended.
    """
    return event.silent and all_off(scope, event)


def plan(host: str, fleet: Fleet, *, with_off: bool) -> tuple[Group, ...]:
    """Every group on the host, by scope name and update domain; VMs that are off only if asked.

    What is done to a host as a whole does nothing to a VM that is off.
    """
    return tuple(
        group
        for scope in fleet.scopes_on(host)
        for group in groups_of(
            scope,
            host,
            tuple(vm for vm in scope.vms if vm.host == host and (with_off or not vm.off)),
        )
    )


def scopes_with_two_domains(host: str, fleet: Fleet) -> Mapping[str, tuple[int, ...]]:
    """Scopes with several update domains on the host or on the way to it, and those domains."""
    domains: dict[str, set[int]] = {}
    for group in plan(host, fleet, with_off=False):
        domains.setdefault(group.scope, set()).add(group.update_domain)
    for name, vm in fleet.arriving(host):
        if not vm.off:
            domains.setdefault(name, set()).add(vm.update_domain)
    return {name: tuple(sorted(found)) for name, found in domains.items() if len(found) > 1}


def two_domains_note(scope: str, host: str, fleet: Fleet) -> str:
    """What it means that a host carries two update domains of that scope; empty if it does not."""
    found = scopes_with_two_domains(host, fleet).get(scope)
    if not found:
        return ""
    return (
        f"Host {host} carries update domains {', '.join(map(str, found))} of scope {scope}: one "
        f"impact on the host hits all of them. A Freeze or Reboot of {host} needs --break-domains; "
        "`forewarn vm redeploy NAME` moves one of them away."
    )


def placement(host: Host, fleet: Fleet) -> str:
    """ "open", or what closes the host to VMs: the operator, its health, its silence and so on."""
    if host.closed:
        return "closed"
    if host.health is not Health.OK:
        return host.health.value
    if fleet.operations_on(host.name):
        return "operating"
    return _away(host, fleet) or "open"


def _away(host: Host, fleet: Fleet) -> str:
    """Why a host that the operator has nothing against cannot be counted on; empty if it can."""
    if fleet.shut_out(host.name):
        return "not-joined"
    if not host.listed:
        return "unlisted"
    if not fleet.alive(host.name):
        return "silent"
    if fleet.two_daemons(host.name):
        return "two-daemons"
    if fleet.refuses(host.name):
        return "refusing"
    return "hypervisor-unreachable" if fleet.hypervisor_unreachable(host.name) else ""


def open_to_placement(host: Host, fleet: Fleet) -> bool:
    """False for every host whose `placement` has another word than open."""
    return placement(host, fleet) == "open"


def places(fleet: Fleet) -> tuple[tuple[Host, int], ...]:
    """Hosts that can take one more VM now, with their load: VMs there and on the way there.

    Least loaded first, then by name. Computing it asks about every host, so a fleet keeps it
    (`Fleet.places`) while nothing changes.
    """
    found: list[tuple[Host, int]] = []
    for host in fleet.hosts():
        if not open_to_placement(host, fleet):
            continue
        there = load(host, fleet)
        if host.capacity is None or there < host.capacity:
            found.append((host, there))
    return tuple(sorted(found, key=lambda place: (place[1], place[0].name)))


def load(host: Host, fleet: Fleet) -> int:
    """The VMs of a host: there and on the way there."""
    return fleet.vm_count(host.name) + len(fleet.arriving(host.name))


def places_left(host: Host, fleet: Fleet) -> int | None:
    """How many more VMs a host can take now: 0 while it is closed, None without a limit."""
    if not open_to_placement(host, fleet):
        return 0
    return None if host.capacity is None else max(0, host.capacity - load(host, fleet))


def choose_target(scope: Scope, vm: Vm, fleet: Fleet, planned: Mapping[str, int]) -> str | None:
    """The host a VM should move to, or None if there is none now.

    An open host with a free place and without another domain of the VM's scope; the least loaded,
    then the first by name. `planned` counts VMs the same decision already sends somewhere. The
    only host of a fleet is its own target: the VM restarts in place.
    """
    if len(tuple(islice(fleet.hosts(), 2))) == 1:
        return vm.host
    other_domains_on = {o.host for o in scope.vms if o.update_domain != vm.update_domain}
    best: tuple[int, str] | None = None
    for host, load_now in fleet.places():
        if best is not None and (load_now, host.name) > best:
            break  # what is planned only adds to a load, so no later place is better
        load = load_now + planned.get(host.name, 0)
        if host.name == vm.host or (host.capacity is not None and load >= host.capacity):
            continue
        if host.name in other_domains_on or _another_domain_comes(scope, vm, host.name, fleet):
            continue
        if best is None or (load, host.name) < best:
            best = (load, host.name)
    return best[1] if best else None


def held_by_domains(scope: Scope, vm: Vm, fleet: Fleet) -> tuple[str, ...]:
    """Hosts that could take the VM, were another update domain of its scope not there."""
    return tuple(
        host.name
        for host, _ in fleet.places()
        if host.name != vm.host and domains_beside(scope, vm, host.name, fleet)
    )


def domains_beside(scope: Scope, vm: Vm, host: str, fleet: Fleet) -> tuple[int, ...]:
    """The other update domains of its scope that the VM would meet on that host."""
    there = {o.update_domain for o in scope.vms if o.host == host and o.name != vm.name}
    coming = {o.update_domain for name, o in fleet.arriving(host) if name == scope.name}
    return tuple(sorted((there | coming) - {vm.update_domain}))


def why_no_target(scope: Scope, vm: Vm, fleet: Fleet) -> str:
    """Why the other hosts cannot take a VM, host by host, as far as there is room to say it."""
    others = (host for host in fleet.hosts() if host.name != vm.host)
    named = [f"{h.name}: {why_not(scope, h, fleet)}" for h in islice(others, HOSTS_NAMED_MAX)]
    return ", ".join(named) + (", ..." if len(named) == HOSTS_NAMED_MAX else "")


_CLOSED_BECAUSE = {
    "hypervisor-unreachable": "its hypervisor does not answer",
    "not-joined": "it has not joined, or was revoked",
    "refusing": "it takes no orders from this control",
    "two-daemons": "two daemons speak as it",
}


def why_not(scope: Scope, host: Host, fleet: Fleet) -> str:
    """Why a host cannot take a VM of the scope."""
    found = placement(host, fleet)
    if found != "open":
        return _CLOSED_BECAUSE.get(found, found)
    load = fleet.vm_count(host.name) + len(fleet.arriving(host.name))
    if host.capacity is not None and load >= host.capacity:
        return "full"
    return f"has another update domain of {scope.name}"


def _another_domain_comes(scope: Scope, vm: Vm, host: str, fleet: Fleet) -> bool:
    return any(
        name == scope.name and other.update_domain != vm.update_domain
        for name, other in fleet.arriving(host)
    )
