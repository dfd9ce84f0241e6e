"""What an owner can look at: the part of the fleet in his scopes. Lists say that they are a part.

Each function answers as the one of the same name in `operator_overview` does. What is not the
owner's is refused in the same words as what is not there. Of a host he sees the name
and how it is; of an operation its own events. Nothing here decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

from msgspec.structs import replace

from forewarn.control import operator_overview
from forewarn.control.event_ids import ID_CHARS
from forewarn.control.fleet_reader import FleetLook
from forewarn.control.published_fleet import PublishedFleet
from forewarn.core import owner_explain
from forewarn.core.access import Access, not_yours
from forewarn.core.errors import Invalid, NotFound
from forewarn.core.model import Operation, ScheduledEvent, Scope, Vm
from forewarn.ports import ListFilter, Store
from forewarn.wire import operator_answers as answers

T = TypeVar("T")


def list_vms(
    fleet: PublishedFleet, access: Access, *, after: str, limit: int, scope: str, host: str
) -> answers.VmPage:
    """VMs of the owner's scopes by name."""
    if scope:
        _need_scope(fleet, access, scope)
    found = sorted(
        (vm.name, of.name)
        for of, vm in _own_vms(fleet, access)
        if vm.name > after and scope in ("", of.name) and host in ("", vm.host)
    )
    items = tuple(operator_overview.vm_item(fleet, name) for name, _ in found[:limit])
    return answers.VmPage(items=items, more=len(found) > limit, filtered=True)


def show_vm(fleet: PublishedFleet, access: Access, name: str) -> answers.VmDetail:
    scope = fleet.scope_of_vm.get(name)
    if scope is None or not access.sees(scope):
        raise not_yours(access, f"VM {name}")
    return operator_overview.show_vm(fleet, name)


def list_hosts(
    fleet: PublishedFleet, access: Access, *, after: str, limit: int
) -> answers.HostBriefPage:
    """The hosts that VMs of the owner are on: their names, and how they are."""
    names = sorted({vm.host for _, vm in _own_vms(fleet, access) if vm.host > after})
    items = tuple(_host(fleet, name) for name in names[:limit])
    return answers.HostBriefPage(items=items, more=len(names) > limit, filtered=True)


def show_host(fleet: PublishedFleet, access: Access, name: str) -> answers.HostBriefDetail:
    """The host, with those of its VMs that are the owner's."""
    own = sorted(vm.name for _, vm in _own_vms(fleet, access) if vm.host == name)
    if not own:
        raise not_yours(access, f"host {name} with a VM")
    brief = _host(fleet, name)
    return answers.HostBriefDetail(
        name=brief.name,
        health=brief.health,
        alive=brief.alive,
        vms=tuple(operator_overview.vm_item(fleet, vm) for vm in own),
        filtered=True,
    )


def list_scopes(
    fleet: PublishedFleet, access: Access, *, after: str, limit: int
) -> answers.ScopePage:
    names = sorted(name for name in access.scopes if name > after and fleet.scope(name))
    items = tuple(
        operator_overview.scope_item(fleet, fleet.need_scope(name)) for name in names[:limit]
    )
    return answers.ScopePage(items=items, more=len(names) > limit, filtered=True)


def show_scope(fleet: PublishedFleet, access: Access, name: str) -> answers.ScopeDetail:
    _need_scope(fleet, access, name)
    return operator_overview.show_scope(fleet, name)


def narrowed(access: Access, where: ListFilter) -> ListFilter:
    """What is listed to the owner of what is asked for. Raises Forbidden for another scope."""
    if where.scope is not None and not access.sees(where.scope):
        raise not_yours(access, f"scope {where.scope}")
    return replace(where, scopes=access.scopes)


def find_event(store: Store, access: Access, given: str) -> ScheduledEvent:
    """The event of the owner's scopes that `given` means, open or ended. Raises Forbidden."""
    event = _found(lambda: operator_overview.find_event(store, given))
    if event is None or not access.sees(event.scope):
        raise not_yours(access, f"event {given[:ID_CHARS]}")
    return event


def find_operation(store: Store, access: Access, given: str) -> Operation:
    """The operation with an event of the owner's scopes that `given` means. Raises Forbidden."""
    operation = _found(lambda: operator_overview.find_operation(store, given))
    if operation is None or not any(access.sees(scope) for scope, _ in operation.members):
        raise not_yours(access, f"operation {given[:ID_CHARS]} with an event")
    return operation


def show_event(store: Store, access: Access, given: str, now_ms: int) -> answers.EventDetail:
    return operator_overview.show_event(store, find_event(store, access, given).event_id, now_ms)


def explain_event(
    fleet: FleetLook, access: Access, event: ScheduledEvent
) -> answers.EventExplanationJson:
    """What an event of the owner waits for; of what is not his, that it holds and no more."""
    found = fleet.open_event(event.event_id)
    if found is None:
        return operator_overview.explain_event(fleet, event)
    explained = owner_explain.explain_event(*found, fleet, fleet.now_ms, own=access.scopes)
    return operator_overview.event_explanation(
        replace(event, outcome=""),
        explained,
        postponing=operator_overview.postponing_json(fleet, *found),
        filtered=True,
    )


def explain_operation(
    fleet: FleetLook, access: Access, operation: Operation
) -> answers.OperationExplanationJson:
    """What the owner's events of an operation wait for."""
    found = fleet.operation(operation.operation_id) or operation
    explained = owner_explain.explain_operation(found, fleet, fleet.now_ms, own=access.scopes)
    return operator_overview.operation_explanation(
        replace(operation, outcome=""), explained, filtered=True
    )


def list_operations(
    store: Store, access: Access, where: ListFilter, *, ended: bool, after: str, limit: int
) -> answers.OperationPage:
    """Operations with events of the owner's scopes; each with those alone."""
    page = operator_overview.list_operations(
        store, narrowed(access, where), ended=ended, after=after, limit=limit
    )
    items = tuple(_own_part(access, item) for item in page.items)
    return replace(page, items=items, filtered=True)


def show_operation(store: Store, access: Access, given: str) -> answers.OperationDetail:
    operation = find_operation(store, access, given)
    own = tuple(member for member in operation.members if access.sees(member[0]))
    found = (store.event(event_id) for _, event_id in own)
    events = [event for event in found if event is not None]
    shown = operator_overview.operation_with(replace(operation, members=own), events)
    return replace(_own_part(access, shown), filtered=True)


O = TypeVar("O", bound=answers.OperationJson)  # noqa: E741 - an operation


def _own_part(access: Access, shown: O) -> O:
    """What an owner sees of an operation: which host, what, when; and his own events."""
    own = tuple(member for member in shown.members if access.sees(member.scope))
    return replace(shown, members=own, action=None, broke_domains_by=None, outcome="", revision=0)


def list_journal(
    store: Store, access: Access, where: ListFilter, *, after: int, limit: int, event: str = ""
) -> answers.JournalPage:
    """Lines about the owner's scopes."""
    if event:
        event = find_event(store, access, event).event_id
    narrow = narrowed(access, where)
    told = partial(owner_explain.fact, own=access.scopes)
    page = operator_overview.list_journal(
        store, narrow, after=after, limit=limit, event=event, told=told
    )
    return replace(page, filtered=True)


def health(fleet: PublishedFleet, access: Access, shown: answers.HealthJson) -> answers.HealthJson:
    """Whether orders can be kept, with the numbers of the owner's own."""
    vms = list(_own_vms(fleet, access))
    scopes = {of.name: of for of, _ in vms}
    hosts = sorted({vm.host for _, vm in vms})
    events = [event for of in scopes.values() for event in of.events]
    return replace(
        shown,
        vms=len(vms),
        hosts=len(hosts),
        hosts_silent=tuple(name for name in hosts if not fleet.alive(name)),
        open_events=len(events),
        open_operations=len({one.operation_id for one in events if one.operation_id}),
        inventory_waits=(),
        filtered=True,
    )


def _own_vms(fleet: PublishedFleet, access: Access) -> Iterable[tuple[Scope, Vm]]:
    for name in access.scopes:
        scope = fleet.scope(name)
        if scope is not None:
            yield from ((scope, vm) for vm in scope.vms)


def _need_scope(fleet: PublishedFleet, access: Access, name: str) -> None:
    if not access.sees(name) or fleet.scope(name) is None:
        raise not_yours(access, f"scope {name}")


def _host(fleet: PublishedFleet, name: str) -> answers.HostBrief:
    host = fleet.need_host(name)
    return answers.HostBrief(name=name, health=host.health, alive=fleet.alive(name))


def _found(find: Callable[[], T]) -> T | None:
    """What is found, or None: that two begin alike, or none does, tells of what is not his."""
    try:
        return find()
    except (NotFound, Invalid):
        return None
