"""Which hosts an inventory file may use and drop, judged on the fleet that the file leads to.

A file places new VMs only. A heartbeat is not asked for: a host may be listed before it is up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from forewarn.core.fleet import Fleet
from forewarn.core.inventory import Clash, HostEntry, VmEntry, event_words, remedy
from forewarn.core.model import Health, Host, ScheduledEvent, Scope

NAMES_SHOWN_MAX = 5


def host_clashes(
    wanted: Sequence[HostEntry],
    new: Sequence[VmEntry],
    *,
    hosts: Mapping[str, Host],
    scopes_after: Iterable[Scope],
    fleet: Fleet,
) -> Iterator[Clash]:
    """Why new VMs cannot be placed as the file says, and why hosts it drops are still needed."""
    scopes = tuple(scopes_after)
    on_host = Counter(vm.host for scope in scopes for vm in scope.vms)
    new_on_host = Counter(vm.host for vm in new)
    listed = {entry.name for entry in wanted}
    for entry in wanted:
        if not new_on_host[entry.name]:
            continue
        host = hosts.get(entry.name)
        if host is not None:
            yield from _unfit(host, new, fleet)
        yield from _full(entry, on_host[entry.name], new_on_host[entry.name], fleet)
    for name in sorted(hosts.keys() - listed):
        yield from _needed(name, scopes, fleet)


def _unfit(host: Host, new: Sequence[VmEntry], fleet: Fleet) -> Iterator[Clash]:
    operation = next(iter(fleet.operations_on(host.name)), None)
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
        if vm.host == host.name:
            yield Clash(
                where=vm,
                refused=f"VM {vm.name} cannot be placed on host {host.name}, which {why}.",
                accepted=f"Place it on another host, or {instead}.",
            )


def _full(entry: HostEntry, on_host: int, new: int, fleet: Fleet) -> Iterator[Clash]:
    coming = len(fleet.arriving(entry.name))
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


def _needed(name: str, scopes: Sequence[Scope], fleet: Fleet) -> Iterator[Clash]:
    """A host that anything is on, or is about to happen to, cannot be dropped."""
    vms = [vm.name for scope in scopes for vm in scope.vms if vm.host == name]
    vms.extend(vm.name for _, vm in fleet.arriving(name))
    if vms:
        yield Clash(
            where=None,
            refused=f"host {name} is not in the file, but VMs are there: {_some(vms)}.",
            accepted="List it again, or move its VMs away first: "
            f"`forewarn host maintain {name} --type Redeploy`.",
        )
        return
    operation = next(iter(fleet.operations_on(name)), None)
    if operation is not None:
        yield Clash(
            where=None,
            refused=f"host {name} is not in the file, but its {operation.event_type.value} "
            f"operation {operation.operation_id} is open.",
            accepted="List it again until the operation has ended.",
        )
        return
    events = (event for scope in scopes for event in scope.events if _about(event, name))
    event = next(events, None)
    if event is not None:
        yield Clash(
            where=None,
            refused=f"host {name} is not in the file, but {event_words(event)} is about it.",
            accepted=f"List it again. {remedy(event)}",
        )


def _about(event: ScheduledEvent, host: str) -> bool:
    if event.phase.ended:
        return False
    return event.host == host or any(
        host in (action.host, action.target_host) for action in event.actions if not action.ended
    )


def _some(names: Iterable[str]) -> str:
    ordered = sorted(names)
    more = len(ordered) - NAMES_SHOWN_MAX
    return ", ".join(ordered[:NAMES_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")
