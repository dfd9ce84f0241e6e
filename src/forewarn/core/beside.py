"""An inventory file beside what hosts show: what of the fleet is not the file's to say.

A file that speaks of a VM, scope or host wins (`sighting`); what it does not speak of stays.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence

from forewarn.core.inventory import Clash, HostEntry, Inventory, ScopeEntry, VmEntry
from forewarn.core.model import Host, Scope, ScopeKind, Vm


def beside_hosts(
    wanted: Inventory,
    *,
    scopes: Mapping[str, Scope],
    hosts: Mapping[str, Host],
    shown: Container[str],
) -> Inventory:
    """What a file wants, and what it does not speak of because hosts do: that stays as it is.

    `shown` are the VMs that hosts have shown. A file removes neither them nor their scopes, nor
    hosts that have joined.
    """
    listed_vms = {entry.name for entry in wanted.vms}
    listed_scopes = {entry.name for entry in wanted.scopes}
    listed_hosts = {entry.name for entry in wanted.hosts}
    vms = [
        (scope, vm)
        for scope in scopes.values()
        for vm in scope.vms
        if vm.name in shown and vm.name not in listed_vms
    ]
    theirs = {scope.name: scope for scope, _ in vms if scope.name not in listed_scopes}
    joined = (h for h in hosts.values() if h.joined and h.name not in listed_hosts)
    return Inventory(
        hosts=(*wanted.hosts, *(HostEntry(name=host.name) for host in joined)),
        scopes=(*wanted.scopes, *map(_as_it_is, theirs.values())),
        vms=(*wanted.vms, *(_entry_of(scope.name, vm) for scope, vm in vms)),
    )


def clashes(wanted: Inventory, together: Inventory) -> Iterator[Clash]:
    """Why a file cannot stand beside what hosts show. `together` is what `beside_hosts` made."""
    yield from _in_case_only("host", wanted.hosts, together.hosts)
    yield from _in_case_only("scope", wanted.scopes, together.scopes)
    yield from _in_case_only("VM", wanted.vms, together.vms)
    alone = {entry.name for entry in wanted.scopes if entry.kind is ScopeKind.STANDALONE}
    listed = {entry.scope: entry for entry in wanted.vms}
    shut = {entry.name: entry for entry in wanted.scopes if entry.only_listed}
    for entry in together.vms[len(wanted.vms) :]:
        if entry.scope in shut:
            yield Clash(
                where=shut[entry.scope],
                refused=f"scope {entry.scope} would have only VMs that the file lists, but VM "
                f"{entry.name}, which host {entry.host} shows, is in it.",
                accepted="List it too, or have it leave first: "
                f"`forewarn vm adopt {entry.name} --scope ...`.",
            )
        if entry.scope in alone and entry.scope in listed:
            yield Clash(
                where=listed[entry.scope],
                refused=f"scope {entry.scope} would be standalone, that of exactly one VM, but VM "
                f"{entry.name}, which host {entry.host} shows, is in it.",
                accepted="Declare the scope with another kind, or adopt that VM into another: "
                f"`forewarn vm adopt {entry.name} --scope ...`.",
            )


def _in_case_only(
    what: str,
    wanted: Sequence[HostEntry] | Sequence[ScopeEntry] | Sequence[VmEntry],
    together: Sequence[HostEntry] | Sequence[ScopeEntry] | Sequence[VmEntry],
) -> Iterator[Clash]:
    """Names that differ from those that hosts gave in case only (C10)."""
    folded = {entry.name.casefold(): entry for entry in wanted}
    for entry in together[len(wanted) :]:
        same = folded.get(entry.name.casefold())
        if same is not None:
            yield Clash(
                where=same,
                refused=f"there is a {what} {entry.name}, and a difference in case is none.",
                accepted="Give it another name.",
            )


def _entry_of(scope: str, vm: Vm) -> VmEntry:
    return VmEntry(
        name=vm.name,
        scope=scope,
        host=vm.host,
        update_domain=vm.update_domain,
        priority=vm.priority,
        address=vm.address,
        listen=vm.listen,
        tags=vm.tags,
        fault_domain=vm.fault_domain,
        zone=vm.zone,
        os_type=vm.os_type,
        computer_name=vm.computer_name,
    )


def _as_it_is(scope: Scope) -> ScopeEntry:
    return ScopeEntry(
        name=scope.name,
        kind=scope.kind,
        terminate_notice_ms=scope.terminate_notice_ms,
        auto_approve=scope.auto_approve,
    )
