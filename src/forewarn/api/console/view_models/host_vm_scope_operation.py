"""Single things: a host, a VM, a scope, an operation, each with what is open about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from forewarn.api.console.view_models.explaining import explained_operation
from forewarn.api.console.view_models.lines import Line, line
from forewarn.api.console.view_models.now import owners
from forewarn.api.console.view_models.values import (
    HoldRow,
    Offers,
    OrderLink,
    Ref,
    hold_row,
    of_event,
    of_operation,
)
from forewarn.control.fleet_reader import FleetLook
from forewarn.control.fleet_summary import natural, starts_ms
from forewarn.control.operator_overview import find_operation
from forewarn.core import ending, scheduling, starting
from forewarn.core import placement as placement_rules
from forewarn.core.agent_polling import Reading
from forewarn.core.errors import NotFound
from forewarn.core.model import (
    Health,
    Host,
    Operation,
    OperationPhase,
    Phase,
    ScheduledEvent,
    Scope,
    Vm,
)
from forewarn.ports import JournalLine, ListFilter, Store

LINES_MAX = 30


class EventRow(Struct, frozen=True, kw_only=True):
    """An event in a list. `at_ms`: may start, is given up, or has ended."""

    ref: Ref
    what: str
    scope: str
    update_domain: int
    host: str
    phase: Phase
    approved: bool
    silent: bool
    at_ms: int | None


def event_row(event: ScheduledEvent) -> EventRow:
    at_ms = event.ended_ms or event.deadline_ms
    return EventRow(
        ref=Ref("event", event.event_id),
        what=of_event(event),
        scope=event.scope,
        update_domain=event.update_domain,
        host=event.host,
        phase=event.phase,
        approved=event.approved_ms is not None,
        silent=event.silent,
        at_ms=starts_ms(event) if event.phase is Phase.SCHEDULED else at_ms,
    )


class VmRow(Struct, frozen=True, kw_only=True):
    """A VM in a list. `code` is how it is at its worst, `word` says it."""

    name: str
    scope: str
    update_domain: int
    host: str
    code: str
    word: str
    reading: Reading
    power: str


# How a VM is at its worst; the letters are those of hosts where they mean the same.
VM_WORDS = {
    "n": "no host",
    "w": "working",
    "r": "recovering",
    "a": "announced",
    "s": "host silent",
    "q": "does not poll",
    "x": "off",
    "o": "well",
}


def vm_row(look: FleetLook, scope: Scope, vm: Vm) -> VmRow:
    reported = look.reported(vm.host).get(vm.name)
    known = reported is not None and look.may_be_on(vm.host)
    power = "off, stays off" if vm.off else reported.power.value if reported and known else ""
    code = _vm_code(look, scope, vm)
    return VmRow(
        name=vm.name,
        scope=scope.name,
        update_domain=vm.update_domain,
        host=vm.host,
        code=code,
        word=VM_WORDS[code],
        reading=look.reading(vm),
        power=power,
    )


def _vm_code(look: FleetLook, scope: Scope, vm: Vm) -> str:
    own = [event for event in scope.events if vm.name in event.resources]
    started = [event for event in own if event.phase is Phase.STARTED]
    if any(a.host is None and not a.ended and a.vm == vm.name for e in started for a in e.actions):
        return "n"
    if started:
        return "w"
    if any(vm.name in recovery.waiting_for for recovery in scope.recoveries):
        return "r"
    if own:
        return "a"
    return _vm_at_rest(look, vm)


def _vm_at_rest(look: FleetLook, vm: Vm) -> str:
    if vm.off:
        return "x"
    if not look.alive(vm.host):
        return "s"
    return "q" if look.reading(vm) is Reading.STOPPED else "o"


# A host.


class HostView(Struct, frozen=True, kw_only=True):
    host: Host
    alive: bool
    silent_ms: int
    placement: str
    trouble: tuple[HoldRow, ...]
    vms: tuple[VmRow, ...]
    load: int
    operations: tuple[EventRow, ...]
    events: tuple[EventRow, ...]
    two_domains: tuple[str, ...]
    orders: tuple[OrderLink, ...]
    says: tuple[OrderLink, ...]
    lines: tuple[Line, ...]


def host_page(look: FleetLook, name: str, lines: Iterable[JournalLine], offers: Offers) -> HostView:
    """A host with its VMs and what is done to it. Raises NotFound."""
    host = look.need_host(name)
    scopes = look.scopes_on(name)
    vms = [(scope, vm) for scope in scopes for vm in scope.vms if vm.host == name]
    events = [event for scope in scopes for event in scope.events if event.host == name]
    return HostView(
        host=host,
        alive=look.alive(name),
        silent_ms=look.silent_ms(name),
        placement=placement_rules.placement(host, look),
        trouble=tuple(hold_row(hold) for hold in starting.host_holds(name, look, look.now_ms)),
        vms=tuple(sorted((vm_row(look, *one) for one in vms), key=lambda row: natural(row.name))),
        load=len(vms) + len(look.arriving(name)),
        operations=tuple(map(_operation_as_row, look.operations_on(name))),
        events=tuple(event_row(event) for event in events if event.operation_id is None),
        two_domains=tuple(placement_rules.scopes_with_two_domains(name, look)),
        orders=tuple(_host_orders(host, offers)),
        says=tuple(_host_says(host, offers)),
        lines=tuple(map(line, lines)),
    )


def _operation_as_row(operation: Operation) -> EventRow:
    started = operation.phase is OperationPhase.STARTED
    return EventRow(
        ref=Ref("operation", operation.operation_id),
        what=of_operation(operation),
        scope="",
        update_domain=0,
        host=operation.host,
        phase=Phase.STARTED if started else Phase.SCHEDULED,
        approved=False,
        silent=False,
        at_ms=operation.deadline_ms or operation.ordered_not_before_ms,
    )


def _host_orders(host: Host, offers: Offers) -> Iterator[OrderLink]:
    if host.health is not Health.FAILED:
        yield from _given(offers.link("host-maintain", host.name, "Order maintenance"))


def _host_says(host: Host, offers: Offers) -> Iterator[OrderLink]:
    """What a person may say of the host."""
    order, words = ("host-open", "Open") if host.closed else ("host-close", "Close")
    yield from _given(offers.link(order, host.name, words))
    if host.health is not Health.OK:
        yield from _given(offers.link("host-repair", host.name, "Repair"))
    if host.health is Health.OK:
        yield from _given(offers.link("host-degrade", host.name, "Declare degraded"))
    if host.health is not Health.FAILED:
        yield from _given(offers.link("host-fail", host.name, "Declare failed"))
    elif not host.fenced:
        yield from _given(offers.link("host-fail", host.name, "Is surely off"))


def _given(link: OrderLink | None) -> Iterator[OrderLink]:
    if link is not None:
        yield link


# A VM.


class VmView(Struct, frozen=True, kw_only=True):
    vm: Vm
    row: VmRow
    scope: Scope
    enabled: bool
    owners: tuple[str, ...]
    polled_ms: int | None
    problem: str
    events: tuple[EventRow, ...]
    orders: tuple[OrderLink, ...]
    lines: tuple[Line, ...]


def vm_page(look: FleetLook, name: str, lines: Iterable[JournalLine], offers: Offers) -> VmView:
    """A VM with its open events. Raises NotFound."""
    scope = look.need_scope_of_vm(name)
    vm = scope.vm(name)
    if vm is None:
        raise NotFound(f"There is no VM {name}.", "`forewarn vm list` shows the names.")
    reported = look.reported(vm.host).get(name)
    ago_ms = look.polled_ago_ms(vm)
    orders = (
        offers.link("vm-restart", name, "Restart", scope.name),
        offers.link("vm-redeploy", name, "Redeploy", scope.name),
    )
    return VmView(
        vm=vm,
        row=vm_row(look, scope, vm),
        scope=scope,
        enabled=scheduling.is_enabled(scope, look.policy),
        owners=owners([vm]),
        polled_ms=None if ago_ms is None else look.now_ms - ago_ms,
        problem=reported.problem if reported else "",
        events=tuple(event_row(event) for event in scope.events if name in event.resources),
        orders=tuple(one for one in orders if one is not None),
        lines=tuple(map(line, lines)),
    )


# A scope.


class DomainRow(Struct, frozen=True, kw_only=True):
    """One update domain of a scope, and how it is."""

    update_domain: int
    word: str
    vms: tuple[VmRow, ...]
    until_ms: int | None = None


class ScopeView(Struct, frozen=True, kw_only=True):
    """A scope as domains and VMs: what is hit together stands together."""

    scope: Scope
    enabled: bool
    owners: tuple[str, ...]
    domains: tuple[DomainRow, ...]
    events: tuple[EventRow, ...]
    orders: tuple[OrderLink, ...]
    lines: tuple[Line, ...]


def scope_page(
    look: FleetLook, name: str, lines: Iterable[JournalLine], offers: Offers
) -> ScopeView:
    """A scope with its VMs and open events. Raises NotFound."""
    scope = look.need_scope(name)
    release = offers.link("scope-release", name, "Release", name) if scope.hold else None
    return ScopeView(
        scope=scope,
        enabled=scheduling.is_enabled(scope, look.policy),
        owners=owners(scope.vms),
        domains=tuple(domains(look, scope)),
        events=tuple(map(event_row, scope.events)),
        orders=(release,) if release else (),
        lines=tuple(map(line, lines)),
    )


def domains(look: FleetLook, scope: Scope) -> Iterator[DomainRow]:
    """The update domains of a scope in their order, each with its VMs."""
    by_domain: dict[int, list[Vm]] = {}
    for vm in scope.vms:
        by_domain.setdefault(vm.update_domain, []).append(vm)
    for number in sorted(by_domain):
        vms = sorted(by_domain[number], key=lambda vm: natural(vm.name))
        word, until_ms = _domain_word(scope, number)
        rows = tuple(vm_row(look, scope, vm) for vm in vms)
        yield DomainRow(update_domain=number, word=word, vms=rows, until_ms=until_ms)


def _domain_word(scope: Scope, number: int) -> tuple[str, int | None]:
    own = [event for event in scope.events if event.update_domain == number]
    started = [event for event in own if event.phase is Phase.STARTED]
    if started:
        return "working", max((event.deadline_ms or 0 for event in started), default=None)
    recovering = [one for one in scope.recoveries if one.update_domain == number]
    if recovering:
        return "recovering", recovering[0].until_ms
    return ("announced", min(map(starts_ms, own))) if own else ("well", None)


# An operation.


class OperationView(Struct, frozen=True, kw_only=True):
    operation: Operation
    title: str
    word: str
    holds: tuple[HoldRow, ...]
    until_ms: int | None
    events: tuple[EventRow, ...]
    orders: tuple[OrderLink, ...]
    lines: tuple[Line, ...]


class OperationRead(Struct, frozen=True, kw_only=True):
    """What the store has of an operation."""

    operation: Operation
    events: tuple[ScheduledEvent, ...]
    lines: tuple[JournalLine, ...]

    @property
    def scopes(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.operation.members)


def read_operation(store: Store, given: str) -> OperationRead:
    """The operation that an id, or the beginning of one, means. Raises NotFound or Invalid."""
    operation = find_operation(store, given)
    events = (store.event(event_id) for _, event_id in operation.members)
    where = ListFilter(host=operation.host, since_ms=operation.ordered_ms)
    lines = store.journal(where, after=0, limit=_OPERATION_LINES_READ_MAX)
    own = operation.operation_id
    return OperationRead(
        operation=operation,
        events=tuple(event for event in events if event is not None),
        lines=tuple(one for one in lines if one.fact.operation_id == own),
    )


_OPERATION_LINES_READ_MAX = 500


def operation_page(look: FleetLook, read: OperationRead, offers: Offers) -> OperationView:
    """The operation as it is in the fleet, else as the store has it; to an owner, his part."""
    operation = look.operation(read.operation.operation_id) or read.operation
    holds: Sequence[HoldRow] = ()
    until_ms = None
    if operation.phase is not OperationPhase.ENDED:
        explained = explained_operation(look, offers.access, operation)
        holds, until_ms = [hold_row(hold) for hold in explained.holds], explained.until_ms
    sees = offers.access.sees
    events = [_now(look, event) for event in read.events if sees(event.scope)]
    cancel = None
    waits = operation.phase is OperationPhase.WAITING or any(
        event.phase is Phase.SCHEDULED for event in events
    )
    if operation.phase is not OperationPhase.ENDED and waits and not operation.outcome:
        cancel = offers.link("operation-cancel", operation.operation_id, "Cancel")
    ended_as = ending.ended_as(operation)
    return OperationView(
        operation=operation,
        title=of_operation(operation),
        word=ended_as.value if ended_as else operation.phase.value,
        holds=tuple(holds),
        until_ms=until_ms,
        events=tuple(map(event_row, events)),
        orders=(cancel,) if cancel else (),
        lines=tuple(line(one) for one in read.lines if sees(one.fact.scope)),
    )


def _now(look: FleetLook, event: ScheduledEvent) -> ScheduledEvent:
    found = look.open_event(event.event_id)
    return found[1] if found else event
