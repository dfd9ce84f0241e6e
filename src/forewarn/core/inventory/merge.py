"""Merges an inventory file with what hosts report: the whole fleet as both want it.

A file that speaks of a VM, scope or host wins (`apply_report`); what it does not speak of stays.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence

from forewarn.core.inventory.clashes import Clash
from forewarn.core.inventory.desired import as_it_is
from forewarn.core.inventory.entries import HostEntry, Inventory, ScopeEntry, VmEntry
from forewarn.core.inventory.names import KnownNames, in_case_only
from forewarn.core.model import Host, Scope, ScopeKind


def with_what_hosts_show(
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
        vms=(*wanted.vms, *(as_it_is(scope.name, vm) for scope, vm in vms)),
    )


def clashes(wanted: Inventory, together: Inventory) -> Iterator[Clash]:
    """Why a file does not fit what hosts show. `together` is what `with_what_hosts_show` made."""
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
    listed = {entry.name: entry for entry in wanted}
    names = KnownNames(listed)
    for entry in together[len(wanted) :]:
        same = names.taken_by(entry.name)
        if same is not None:
            yield Clash(
                where=listed[same],
                refused=in_case_only(what, entry.name),
                accepted="Give it another name.",
            )


def _as_it_is(scope: Scope) -> ScopeEntry:
    return ScopeEntry(
        name=scope.name,
        kind=scope.kind,
        terminate_notice_ms=scope.terminate_notice_ms,
        auto_approve=scope.auto_approve,
    )
