"""What an operator can look at: lists, single things, explanations and receipts, as answers.

Questions about what is open take the fleet as it was last committed (`Control.fleet`); questions
about ended things take the store (`Control.read`). Nothing here decides.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from msgspec.structs import replace

from forewarn.control.event_ids import ID_CHARS, IDS_COUNTED_MAX, only_one
from forewarn.control.fleet_reader import FleetLook, FleetReader
from forewarn.control.published_fleet import PublishedFleet
from forewarn.control.receipt import (
    Reads,
    judge,
    promised_ms,
    read_ms,
    readable_ms,
    unread_by,
    with_approval,
)
from forewarn.core import explain, postponing, scheduling, starting
from forewarn.core import placement as placement_rules
from forewarn.core.errors import Invalid, NotFound
from forewarn.core.explain import Explanation
from forewarn.core.model import (
    SECOND_MS,
    Fact,
    FactKind,
    Host,
    Operation,
    Phase,
    ScheduledEvent,
    Scope,
    Vm,
)
from forewarn.core.principal import PrincipalKind
from forewarn.ports import ListFilter, Store
from forewarn.wire import operator_answers as answers
from forewarn.wire.instants import needed_time_text, time_text
from forewarn.wire.operator_json import (
    event_as,
    event_json,
    fact_json,
    operation_as,
    operation_json,
    scope_as,
    scope_json,
    seconds,
    vm_as,
)

ITEMS_DEFAULT = 100
ITEMS_MAX = 1_000  # of a page; one more is looked for, which says whether there are more

CURSOR_CHARS_MAX = 18

FACTS_SEARCHED_MAX = 1_000  # for when an event was first seen

FleetNow = PublishedFleet | FleetLook  # they know what time it is

H = TypeVar("H", bound=answers.HostJson)
D = TypeVar("D", bound=answers.VmDetail)


# Ids.


def find_event(store: Store, given: str) -> ScheduledEvent:
    """The event, open or ended, that `given` means, or NotFound."""
    wanted = given.upper()
    if len(wanted) < ID_CHARS:
        ids = store.event_ids(wanted, limit=IDS_COUNTED_MAX)
        wanted = only_one(wanted, ids, noun="event")
    event = store.event(wanted)
    if event is None:
        raise NotFound(
            f"There is no event {wanted[:ID_CHARS]}.", "`forewarn event list` shows the open ones."
        )
    return event


def find_operation(store: Store, given: str) -> Operation:
    """The operation, open or ended, that `given` means, or NotFound."""
    wanted = given.upper()
    if len(wanted) < ID_CHARS:
        ids = store.operation_ids(wanted, limit=IDS_COUNTED_MAX)
        wanted = only_one(wanted, ids, noun="operation")
    operation = store.operation(wanted)
    if operation is None:
        raise NotFound(
            f"There is no operation {wanted[:ID_CHARS]}.",
            "`forewarn operation list` shows the open ones.",
        )
    return operation


# What is open: questions to the fleet.


def list_vms(
    fleet: PublishedFleet, *, after: str, limit: int, scope: str, host: str
) -> answers.VmPage:
    """VMs by name, those after `after`; an empty filter lets everything through."""
    if scope or host:
        scopes = [fleet.need_scope(scope)] if scope else fleet.scopes_on(host)
        found: Iterable[Vm] = (
            vm for of in scopes for vm in of.vms if vm.name > after and host in ("", vm.host)
        )
        chosen = heapq.nsmallest(limit + 1, found, key=lambda vm: vm.name)
    else:
        chosen = fleet.vms_after(after, limit + 1)
    items = (vm_item(fleet, vm.name) for vm in chosen[:limit])
    return answers.VmPage(items=tuple(items), more=len(chosen) > limit)


def list_hosts(fleet: PublishedFleet, *, after: str, limit: int) -> answers.HostPage:
    """Hosts by name, those after `after`."""
    look = fleet.look()
    chosen = fleet.host_names_after(after, limit + 1)
    items = (host_item(look, look.need_host(name)) for name in chosen[:limit])
    return answers.HostPage(items=tuple(items), more=len(chosen) > limit)


def list_scopes(fleet: PublishedFleet, *, after: str, limit: int) -> answers.ScopePage:
    """Scopes by name, those after `after`, with numbers in place of their VMs and events."""
    chosen = fleet.scopes_after(after, limit + 1)
    items = (scope_item(fleet, scope) for scope in chosen[:limit])
    return answers.ScopePage(items=tuple(items), more=len(chosen) > limit)


def vm_item(fleet: FleetNow, name: str) -> answers.VmItem:
    """A VM as lists show it."""
    scope = fleet.need_scope_of_vm(name)
    vm = fleet.vm(name)
    if vm is None:
        raise NotFound(f"There is no VM {name}.", "`forewarn vm list` shows the names.")
    return _vm_item(fleet, vm, scope)


def scope_item(fleet: FleetNow, scope: Scope) -> answers.ScopeJson:
    """A scope as lists show it."""
    return replace(
        scope_as(answers.ScopeJson, scope, enabled=_enabled(fleet, scope)),
        polled=_scope_polled(fleet, scope),
    )


def show_vm(fleet: FleetNow, name: str) -> answers.VmDetail:
    """A VM with its open events and whether its scope is being told."""
    return _vm_detail(answers.VmDetail, fleet, name)


def show_adopted(fleet: FleetNow, name: str) -> answers.AdoptedVm:
    """A VM as it was adopted, and that two update domains are on its host now, if that is so."""
    vm = fleet.vm(name)
    scope = fleet.need_scope_of_vm(name).name
    note = placement_rules.two_domains_note(scope, vm.host, fleet) if vm else ""
    return _vm_detail(answers.AdoptedVm, fleet, name, notes=(note,) if note else ())


def _vm_detail(kind: type[D], fleet: FleetNow, name: str, **more: object) -> D:
    scope = fleet.need_scope_of_vm(name)
    vm = fleet.vm(name)
    if vm is None:
        raise NotFound(f"There is no VM {name}.", "`forewarn vm list` shows the names.")
    return vm_as(
        kind,
        vm,
        scope.name,
        **_more_of_vm(fleet, vm, scope),
        **more,
        events=tuple(event_json(event) for event in scope.events if name in event.resources),
    )


def show_host(fleet: FleetNow, name: str) -> answers.HostDetail:
    """A host with its VMs, its open operations, and what of its VMs cannot be used."""
    host = fleet.need_host(name)
    vms = (
        _vm_item(fleet, vm, scope)
        for scope in fleet.scopes_on(name)
        for vm in scope.vms
        if vm.host == name
    )
    problems = (
        answers.VmProblem(vm=vm, power=reported.power, problem=reported.problem)
        for vm, reported in sorted(fleet.reported(name).items())
        if reported.problem
    )
    return host_as(
        answers.HostDetail,
        fleet,
        host,
        vms=tuple(vms),
        operations=tuple(operation_json(operation) for operation in fleet.operations_on(name)),
        problems=tuple(problems),
    )


def show_scope(fleet: FleetNow, name: str) -> answers.ScopeDetail:
    """A scope with its VMs and its open events."""
    scope = fleet.need_scope(name)
    return replace(scope_answer(fleet, scope), polled=_scope_polled(fleet, scope))


def explain_event(fleet: FleetLook, event: ScheduledEvent) -> answers.EventExplanationJson:
    """What an event, as it was kept last, waits for; one that has ended waits for nothing."""
    found = fleet.open_event(event.event_id)
    if found is None:
        return event_explanation(event, Explanation(phase=event.phase.value, holds=()))
    explained = explain.explain_event(*found, fleet, fleet.now_ms)
    may = postponing_json(fleet, *found)
    return event_explanation(replace(event, outcome=""), explained, postponing=may)


def event_explanation(
    event: ScheduledEvent,
    explained: Explanation,
    *,
    postponing: answers.PostponingJson | None = None,
    filtered: bool = False,
) -> answers.EventExplanationJson:
    return answers.EventExplanationJson(
        event_id=event.event_id,
        postponed_from=event.postponed_from,
        postponed_to=event.postponed_to,
        postponing=postponing,
        outcome=event.outcome,
        phase=explained.phase,
        holds=_holds(explained),
        until=time_text(explained.until_ms),
        filtered=filtered,
    )


def postponing_json(
    fleet: FleetLook, scope: Scope, event: ScheduledEvent
) -> answers.PostponingJson | None:
    """What the owner of an event may still do to it."""
    if event.phase is not Phase.SCHEDULED:
        return None
    left = postponing.allowance(
        scope,
        event,
        fleet,
        by=PrincipalKind.OWNER,
        policy=fleet.policy,
        now_ms=fleet.now_ms,
    )
    return answers.PostponingJson(
        postponements=left.postponements,
        postponed_seconds=seconds(left.postponed_ms),
        times_left=left.times_left,
        latest=time_text(left.latest_ms),
        why_not=left.refused.refused if left.refused else "",
    )


def explain_operation(fleet: FleetLook, operation: Operation) -> answers.OperationExplanationJson:
    """What an operation, as it was kept last, waits for."""
    found = fleet.operation(operation.operation_id)
    if found is None:
        return operation_explanation(operation, Explanation(phase=operation.phase.value, holds=()))
    return operation_explanation(found, explain.explain_operation(found, fleet, fleet.now_ms))


def operation_explanation(
    operation: Operation, explained: Explanation, *, filtered: bool = False
) -> answers.OperationExplanationJson:
    return answers.OperationExplanationJson(
        operation_id=operation.operation_id,
        outcome=operation.outcome,
        phase=explained.phase,
        holds=_holds(explained),
        until=time_text(explained.until_ms),
        filtered=filtered,
    )


def _holds(found: Explanation) -> tuple[answers.HoldJson, ...]:
    """Who or what holds it, since when, until when at the latest, what would free it."""
    return tuple(
        answers.HoldJson(
            reason=hold.reason,
            what=hold.what,
            since=time_text(hold.since_ms),
            until=time_text(hold.until_ms),
            remedy=hold.remedy,
        )
        for hold in found.holds
    )


# What is committed: questions to the store.


def list_events(
    store: Store, where: ListFilter, *, ended: bool, after: str, limit: int
) -> answers.EventPage:
    """Events, newest first; with `ended`, or an ended phase, those that have ended too."""
    open_only = not ended and where.phase is None
    found = store.events(where, open_only=open_only, below=_place(after), limit=limit + 1)
    more = len(found) > limit
    return answers.EventPage(
        items=tuple(event_json(one.event) for one in found[:limit]),
        more=more,
        next=str(found[limit - 1].number) if more else None,
    )


def list_operations(
    store: Store, where: ListFilter, *, ended: bool, after: str, limit: int
) -> answers.OperationPage:
    """Operations, newest first; with `ended`, or an ended phase, those that have ended too."""
    open_only = not ended and where.phase is None
    found = store.operations(where, open_only=open_only, below=_place(after), limit=limit + 1)
    more = len(found) > limit
    return answers.OperationPage(
        items=tuple(operation_json(one.operation) for one in found[:limit]),
        more=more,
        next=str(found[limit - 1].number) if more else None,
    )


def _place(after: str) -> int | None:
    """Where a list goes on; None for its beginning. It is the number of the last one shown."""
    if not after:
        return None
    if not (after.isascii() and after.isdecimal()) or len(after) > CURSOR_CHARS_MAX:
        raise Invalid("`after` is not a valid cursor.", "Send the `next` of the page before.")
    return int(after)


def show_event(store: Store, given: str, now_ms: int) -> answers.EventDetail:
    """An event, open or ended, with its receipt."""
    event = find_event(store, given)
    return event_as(answers.EventDetail, event, receipt=receipt_json(event, store, now_ms))


def show_operation(store: Store, given: str) -> answers.OperationDetail:
    """An operation, open or ended, with its events."""
    operation = find_operation(store, given)
    found = (store.event(event_id) for _, event_id in operation.members)
    return operation_with(operation, [event for event in found if event is not None])


def list_journal(
    store: Store,
    where: ListFilter,
    *,
    after: int,
    limit: int,
    event: str = "",
    told: Callable[[Fact], Fact] = lambda fact: fact,
) -> answers.JournalPage:
    """Lines after a number, oldest first. `end` is where to go on: after it, nothing was missed.

    `told` is what the reader is told of a line.
    """
    if event:
        where = replace(where, event_id=find_event(store, event).event_id)
    end = store.journal_end()  # before the lines: a later line is found the next time
    lines = store.journal(where, after=after, limit=limit + 1)
    shown = lines[:limit]
    last = shown[-1].number if shown else after
    return answers.JournalPage(
        items=tuple(fact_json(told(line.fact), line.number) for line in shown),
        more=len(lines) > limit,
        end=last if len(lines) > limit else max(last, after, end),
    )


# Pieces that lists, single things and the answers to orders share.


def event_answer(event: ScheduledEvent) -> answers.EventAnswer:
    """The answer to an order for a VM: the event, and who does not hear of it."""
    return event_as(answers.EventAnswer, event, silent_scopes=silent_scopes([event]))


def operation_with(
    operation: Operation, events: Sequence[ScheduledEvent]
) -> answers.OperationDetail:
    """An operation with its events, and which scopes do not hear of it."""
    return operation_as(
        answers.OperationDetail,
        operation,
        events=tuple(event_json(event) for event in events),
        silent_scopes=silent_scopes(events),
    )


def silent_scopes(events: Iterable[ScheduledEvent]) -> tuple[str, ...]:
    """The scopes whose guests are not told of these events, because none of them polls."""
    return tuple(sorted({event.scope for event in events if event.silent}))


def host_item(fleet: FleetReader, host: Host) -> answers.HostJson:
    return host_as(answers.HostJson, fleet, host)


def host_as(kind: type[H], fleet: FleetReader, host: Host, **more: object) -> H:
    """The host with what this kind of answer says `more` of it."""
    return kind(
        name=host.name,
        capacity=host.capacity,
        closed=host.closed,
        health=host.health,
        fenced=host.fenced,
        listed=host.listed,
        joined=host.joined,
        boot_id=host.boot_id,
        revision=host.revision,
        alive=fleet.alive(host.name),
        silent_seconds=fleet.silent_ms(host.name) // SECOND_MS,
        hypervisor_unreachable=fleet.hypervisor_unreachable(host.name),
        refuses=fleet.refuses(host.name),
        two_daemons=_two_daemons(fleet, host.name),
        placement=placement_rules.placement(host, fleet),
        vm_count=fleet.vm_count(host.name),
        open_operations=len(fleet.operations_on(host.name)),
        **more,
    )


def _two_daemons(fleet: FleetReader, host: str) -> str:
    """That two daemons speak as the host, and what to do, in words; empty while one does."""
    if not fleet.two_daemons(host):
        return ""
    said = f"Two daemons speak as host {host}: neither is given anything to do."
    return f"{said} {starting.TWO_DAEMONS_REMEDY}"


def scope_answer(fleet: FleetReader, scope: Scope) -> answers.ScopeDetail:
    return scope_json(scope, enabled=_enabled(fleet, scope))


def _enabled(fleet: FleetReader, scope: Scope) -> bool:
    return scheduling.is_enabled(scope, fleet.policy)


def _vm_item(fleet: FleetNow, vm: Vm, scope: Scope) -> answers.VmItem:
    return vm_as(answers.VmItem, vm, scope.name, **_more_of_vm(fleet, vm, scope))


def _more_of_vm(fleet: FleetNow, vm: Vm, scope: Scope) -> dict[str, object]:
    """What its host reported of a VM, whether it is told of events, and whether it reads them."""
    shown = fleet.reported(vm.host).get(vm.name)
    return {
        "host_alive": fleet.alive(vm.host),
        "power": shown.power if shown and fleet.may_be_on(vm.host) else None,
        "problem": shown.problem if shown else "",
        "freeze_by_move": shown.freeze_by_move if shown else None,
        "when_host_goes_down": shown.when_host_goes_down if shown else None,
        "enabled": _enabled(fleet, scope),
        "polled": time_text(_polled_ms(fleet, vm)),
        "reading": fleet.reading(vm),
        "open_events": sum(1 for event in scope.events if vm.name in event.resources),
    }


def _polled_ms(fleet: FleetNow, vm: Vm) -> int | None:
    """When the VM was last heard to poll."""
    ago_ms = fleet.polled_ago_ms(vm)
    return None if ago_ms is None else max(0, fleet.now_ms - ago_ms)


def _scope_polled(fleet: FleetNow, scope: Scope) -> str | None:
    """The last poll of the scope: what its VMs were heard to do is newer than what was saved."""
    heard = (_polled_ms(fleet, vm) for vm in scope.vms)
    known = [one for one in (scope.polled_ms, *heard) if one is not None]
    return time_text(max(known, default=None))


# Receipts.


def receipt_json(event: ScheduledEvent, store: Store, now_ms: int) -> answers.Receipt:
    """The receipt: what was promised, for how long it could be read, and who read it when."""
    kept = {receipt.vm: receipt.read_ms for receipt in store.first_reads(event.event_id)}
    reads = with_approval(event, kept)
    verdict = judge(event, reads)
    read = read_ms(event, reads)
    first = _first_facts(event, store)
    appeared_ms = None if event.silent else first.get(FactKind.APPEARED, event.scheduled_ms)
    return answers.Receipt(
        scheduled=needed_time_text(event.scheduled_ms),
        appeared=time_text(appeared_ms),
        shown=time_text(first.get(FactKind.CONFIRMED)),
        first_reads=tuple(_first_reads(event, reads)),
        unread_by=unread_by(event, reads),
        approved=time_text(event.approved_ms),
        approved_by=event.approved_by,
        approved_by_kind=event.approved_by_kind,
        overridden_by=event.approved_by if event.override_reason else None,
        override_reason=event.override_reason,
        started=time_text(event.started_ms),
        ended=time_text(event.ended_ms),
        notice_promised_seconds=promised_ms(event) / SECOND_MS,
        notice_readable_seconds=readable_ms(event, now_ms) / SECOND_MS,
        notice_read_seconds=None if read is None else read / SECOND_MS,
        kept=verdict.kept,
        why=verdict.why,
        chain=_chain(event, store),
    )


def _chain(event: ScheduledEvent, store: Store) -> tuple[answers.ChainedEventJson, ...]:
    """The events that postponing has made of it, from the first to the last that is kept."""
    if event.postponed_from is None and event.postponed_to is None:
        return ()
    earlier = _followed(event, store, lambda one: one.postponed_from)
    later = _followed(event, store, lambda one: one.postponed_to)
    return tuple(
        answers.ChainedEventJson(
            event_id=one.event_id,
            scheduled=needed_time_text(one.scheduled_ms),
            not_before=needed_time_text(one.not_before_ms),
            ended=time_text(one.ended_ms),
            outcome=one.outcome,
        )
        for one in (*reversed(earlier), event, *later)
    )


def _followed(
    event: ScheduledEvent, store: Store, link: Callable[[ScheduledEvent], str | None]
) -> list[ScheduledEvent]:
    """The events that a link leads to, one from the other."""
    found: list[ScheduledEvent] = []
    following: ScheduledEvent | None = event
    while following is not None and len(found) < scheduling.POSTPONEMENTS_MAX:
        named = link(following)
        following = store.event(named) if named else None
        if following is not None:
            found.append(following)
    return found


def _first_facts(event: ScheduledEvent, store: Store) -> dict[FactKind, int]:
    """When each kind of fact was first written down about the event.

    An event comes into the document at once, or (APPEARED) when its silent scope is enabled; its
    host confirms it (CONFIRMED) once more after every outage, and the first time is what counts.
    """
    about = ListFilter(event_id=event.event_id, scope=event.scope)
    lines = store.journal(about, after=0, limit=FACTS_SEARCHED_MAX)
    found: dict[FactKind, int] = {}
    for line in lines:
        found.setdefault(line.fact.kind, line.fact.at_ms)
    return found


def _first_reads(event: ScheduledEvent, read: Reads) -> Iterator[answers.FirstReadJson]:
    """One entry per VM: those it impacts, read or not, then others of the scope that read it."""
    for vm in dict.fromkeys((*event.resources, *read)):
        read_ms = read.get(vm)
        before_start_s = None
        if read_ms is not None and event.started_ms is not None:
            before_start_s = (event.started_ms - read_ms) / SECOND_MS
        yield answers.FirstReadJson(vm=vm, read=time_text(read_ms), notice_seconds=before_start_s)
