"""Which hosts an inventory file may use and drop, judged on the fleet that the file leads to.

A file places new VMs only. A heartbeat is not asked for: a host may be listed before it is up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from forewarn.core.inventory.clashes import Clash, event_words, remedy
from forewarn.core.inventory.entries import HostEntry, VmEntry
from forewarn.core.model import Health, Host, Operation, ScheduledEvent, Scope, Vm

NAMES_SHOWN_MAX = 5


class Bound(Protocol):
    """What may keep a file from using a host or dropping it; a part of `core.fleet.Fleet`."""

    def arriving(self, host: str) -> Sequence[tuple[str, Vm]]: ...

    def operations_on(self, host: str) -> Sequence[Operation]: ...


def host_clashes(
    wanted: Sequence[HostEntry],
    new: Sequence[VmEntry],
    *,
    hosts: Mapping[str, Host],
    scopes_after: Iterable[Scope],
    bound: Bound,
    elsewhere: Callable[[str], int] = lambda _: 0,
) -> Iterator[Clash]:
    """Why new VMs cannot be placed as the file says, and why hosts it drops are still needed.

    `elsewhere` counts the VMs on a host that stay there in other scopes than these.
    """
    scopes = tuple(scopes_after)
    on_host = Counter(vm.host for scope in scopes for vm in scope.vms)
    new_on_host: dict[str, list[VmEntry]] = {}
    for vm in new:
        new_on_host.setdefault(vm.host, []).append(vm)
    listed = {entry.name for entry in wanted}
    for entry in wanted:
        coming = new_on_host.get(entry.name)
        if coming is None:
            continue
        host = hosts.get(entry.name)
        if host is not None:
            yield from _unfit(host, coming, bound)
        there = on_host[entry.name] + elsewhere(entry.name)
        yield from _full(entry, there, len(coming), bound)
    yield from still_needed(hosts.keys() - listed, scopes, bound)


def still_needed(hosts: Collection[str], scopes: Iterable[Scope], bound: Bound) -> Iterator[Clash]:
    """Why hosts cannot be dropped: anything is on them, or is about to happen to them.

    `scopes` are at least those that have to do with these hosts.
    """
    if not hosts:
        return
    vms: dict[str, list[str]] = {}
    about: dict[str, ScheduledEvent] = {}
    for scope in scopes:
        for vm in scope.vms:
            if vm.host in hosts:
                vms.setdefault(vm.host, []).append(vm.name)
        for event in scope.events:
            for name in _hosts_of(event):
                about.setdefault(name, event)
    for name in sorted(hosts):
        there = [*vms.get(name, ()), *(vm.name for _, vm in bound.arriving(name))]
        yield from _needed(name, there, about.get(name), bound)


def _unfit(host: Host, new: Sequence[VmEntry], bound: Bound) -> Iterator[Clash]:
    operation = next(iter(bound.operations_on(host.name)), None)
    if host.closed:
        why, instead = "is closed", f"say `forewarn host open {host.name}` first"
    elif host.health is not Health.OK:
        why = "has failed" if host.health is Health.FAILED else "is degraded"
        instead = f"say `forewarn host repair {host.name}` first"
    elif operation is not None:
        why = f"has an open {operation.event_type.value} operation, {operation.operation_id}"
        instead = "wait until that has ended"
    else:
        return
    for vm in new:
        yield Clash(
            where=vm,
            refused=f"VM {vm.name} cannot be placed on host {host.name}, which {why}.",
            accepted=f"Place it on another host, or {instead}.",
        )


def _full(entry: HostEntry, on_host: int, new: int, bound: Bound) -> Iterator[Clash]:
    coming = len(bound.arriving(entry.name))
    if entry.capacity is None or on_host + coming <= entry.capacity:
        return
    yield Clash(
        where=entry,
        refused=(
            f"host {entry.name} takes {entry.capacity} VMs; it has {on_host - new + coming} "
            f"and the file adds {new}."
        ),
        accepted="Place some of them elsewhere, or raise its capacity.",
    )


def _needed(
    name: str, vms: Sequence[str], event: ScheduledEvent | None, bound: Bound
) -> Iterator[Clash]:
    if vms:
        yield Clash(
            where=None,
            refused=f"host {name} is not in the file, but VMs are there: {_some(vms)}.",
            accepted="List it again, or move its VMs away first: "
            f"`forewarn host maintain {name} --type Redeploy`.",
        )
        return
    operation = next(iter(bound.operations_on(name)), None)
    if operation is not None:
        yield Clash(
            where=None,
            refused=f"host {name} is not in the file, but its {operation.event_type.value} "
            f"operation {operation.operation_id} is open.",
            accepted="List it again until the operation has ended.",
        )
        return
    if event is not None:
        yield Clash(
            where=None,
            refused=f"host {name} is not in the file, but {event_words(event)} is about it.",
            accepted=f"List it again. {remedy(event)}",
        )


def _hosts_of(event: ScheduledEvent) -> Iterator[str]:
    """The hosts that an open event is about."""
    if event.phase.ended:
        return
    yield event.host
    for action in event.actions:
        if not action.ended:
            yield from (name for name in (action.host, action.target_host) if name is not None)


def _some(names: Iterable[str]) -> str:
    ordered = sorted(names)
    more = len(ordered) - NAMES_SHOWN_MAX
    return ", ".join(ordered[:NAMES_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")
