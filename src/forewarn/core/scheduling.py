"""Orders become events here: what an owner or an operator wants, put into scopes with its notice.

Every function takes values and the time and returns a Decision, or raises a Refusal and has
changed nothing. Starting is elsewhere (`starting`), and so is everything about hosts that fail
(`hosts`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from forewarn.core import deadlines, notice, overrides, placement, scope_edits, windows
from forewarn.core.errors import (
    AlreadyStarted,
    Conflict,
    HostUnfit,
    Invalid,
    LocalDiskKept,
    NotFound,
    NotSpot,
    OperationExists,
    OtherDisk,
    TooManyUserEvents,
    TwoDomainsOnHost,
)
from forewarn.core.facts import (
    CanceledDetail,
    OrderedDetail,
    ScheduledDetail,
    approved_fact,
    by_whom,
    event_fact,
    operation_fact,
    window_bounds,
)
from forewarn.core.fleet import Fleet
from forewarn.core.lifecycle import Move, move
from forewarn.core.model import (
    Cause,
    Decision,
    EventSource,
    EventType,
    Fact,
    FactKind,
    Health,
    Host,
    Operation,
    OperationPhase,
    Phase,
    Policy,
    ScheduledEvent,
    Scope,
    Window,
)
from forewarn.core.principal import POLICY, TICKER, Who, kept_of, who_was
from forewarn.core.vm_profile import Priority

EVENTS_PER_SCOPE_MAX = 1_000
POSTPONEMENTS_MAX = 100  # of one event, also by operators: each leaves an ended one
FREEZE_SECONDS_MAX = 600  # well within the deadline of a started Freeze (`deadlines.DEADLINE_MS`)
DESCRIPTION_CHARS_MAX = 200
AUTO_APPROVED_BY = POLICY.name
CANCELED = "canceled"
HOST_REPAIRED = "the host was repaired"
# A deletion takes its time all the same: its owner may still want to cancel it.
_NOTHING_TO_ONE_THAT_IS_OFF = (EventType.REBOOT, EventType.REDEPLOY)

# Contract 3.7; Preempt and Terminate carry no text as far as is known.
DESCRIPTIONS: dict[tuple[Cause, EventType], str] = {
    (Cause.ORDER, EventType.REBOOT): (
        "Virtual machine is going to be restarted as requested by authorized user."
    ),
    (Cause.ORDER, EventType.REDEPLOY): (
        "Virtual machine is going to be redeployed as requested by authorized user."
    ),
    (Cause.MAINTENANCE, EventType.FREEZE): "Host server is undergoing maintenance.",
    (Cause.MAINTENANCE, EventType.REBOOT): "Host server is undergoing maintenance.",
    (Cause.MAINTENANCE, EventType.REDEPLOY): "Host server is undergoing maintenance.",
    (Cause.DEGRADED, EventType.REDEPLOY): "Host server is undergoing an emergency repair.",
    (Cause.FAILURE, EventType.REBOOT): "Virtual machine has encountered a failure.",
}


class Order(Struct, frozen=True, kw_only=True):
    """Who asks for what, why, and when at the earliest.

    `not_before_ms` is the earliest start without approval; outside of `window` nothing starts,
    approved or not. `duration_s` is how long a Freeze of a host lasts, `description` what guests
    read; where they are None, the policy and the contract's words decide. `lose_disk`: its VMs
    start where they are moved to with empty local disks.
    """

    event_type: EventType
    cause: Cause
    by: Who
    not_before_ms: int | None = None
    window: Window | None = None
    duration_s: int | None = None
    description: str | None = None
    lose_disk: bool = False


def is_enabled(scope: Scope, policy: Policy) -> bool:
    """True if the scope's guests are being told."""
    return scope.enabled or policy.always_enabled


def duration_s(order: Order, policy: Policy) -> int:
    """What DurationInSeconds says: the length of a pause we control, else -1 (contract 3.4)."""
    if order.event_type is not EventType.FREEZE:
        return -1
    return policy.freeze_s if order.duration_s is None else order.duration_s


def description(order: Order) -> str:
    """What Description says: the order's own words, else those of the contract (3.7)."""
    if order.description is not None:
        return order.description
    return DESCRIPTIONS.get((order.cause, order.event_type), "")


def _untold(scope: Scope, group: placement.Group, policy: Policy) -> bool:
    """True if no guest is told: the VM is off, or no VM of its scope polls."""
    return group.off or not is_enabled(scope, policy)


def not_before_ms(
    scope: Scope, order: Order, group: placement.Group, *, now_ms: int, policy: Policy
) -> int:
    """The order's time, when its window opens, or the minimum notice from now: what is latest.

    A silent event has no notice to give, and so has a failure; then nothing is rounded for the
    wire either.
    """
    named_ms = max(order.not_before_ms or 0, windows.opens_ms(order.window))
    if order.cause is Cause.FAILURE or _untold(scope, group, policy):
        return max(now_ms, named_ms)
    least_ms = notice.minimum_notice_ms(scope, order.event_type)
    return scope_edits.whole_second_ms(max(now_ms + least_ms, named_ms))


def new_event(
    scope: Scope,
    order: Order,
    group: placement.Group,
    *,
    event_id: str,
    now_ms: int,
    policy: Policy,
    operation_id: str | None = None,
    breaks_domains: bool = False,
) -> ScheduledEvent:
    """An event for VMs of one update domain on one host, scheduled or declared as the order says.

    A silent event has no notice to give; it gets one if it appears (`consent.enable`).
    """
    source = EventSource.USER if order.cause is Cause.ORDER else EventSource.PLATFORM
    declared = order.cause is Cause.FAILURE
    approved = source is EventSource.USER and order.event_type in scope.auto_approve
    _, by_kind, by_id = kept_of(order.by)
    return ScheduledEvent(
        event_id=event_id,
        scope=scope.name,
        event_type=order.event_type,
        event_source=source,
        cause=order.cause,
        phase=move(None, Move.DECLARE if declared else Move.SCHEDULE),
        update_domain=group.update_domain,
        host=group.host,
        resources=group.vm_names,
        not_before_ms=not_before_ms(scope, order, group, now_ms=now_ms, policy=policy),
        minimum_notice_ms=notice.minimum_notice_ms(scope, order.event_type),
        scheduled_ms=now_ms,
        description=description(order),
        duration_s=duration_s(order, policy),
        silent=_untold(scope, group, policy),
        ordered_not_before_ms=order.not_before_ms,
        window=order.window,
        ordered_by=str(order.by),
        ordered_by_kind=by_kind,
        ordered_by_id=by_id,
        operation_id=operation_id,
        breaks_domains=breaks_domains,
        lose_disk=order.lose_disk,
        approved_ms=now_ms if approved else None,
        approved_by=AUTO_APPROVED_BY if approved else None,
        approved_by_kind=POLICY.kind if approved else None,
        started_ms=now_ms if declared else None,
        deadline_ms=(
            now_ms + deadlines.deadline_after_ms(order.event_type, order.cause)
            if declared
            else None
        ),
    )


def scheduled_fact(event: ScheduledEvent) -> Fact:
    """The journal line of a new event."""
    return event_fact(
        FactKind.SCHEDULED,
        event,
        event.scheduled_ms,
        by=who_ordered(event),
        detail=ScheduledDetail(
            event_type=event.event_type,
            event_source=event.event_source,
            cause=event.cause,
            resources=event.resources,
            update_domain=event.update_domain,
            not_before_ms=event.not_before_ms,
            silent=event.silent,
            lose_disk=event.lose_disk,
            postponed_from=event.postponed_from,
            **window_bounds(event.window),
        ),
    )


def who_ordered(ordered: ScheduledEvent | Operation) -> Who:
    """Who ordered an event or operation, as far as it was kept."""
    return who_was(ordered.ordered_by, ordered.ordered_by_kind, ordered.ordered_by_id)


def schedule(scope: Scope, event: ScheduledEvent) -> tuple[Scope, tuple[Fact, ...]]:
    """Put a new event into its scope, or refuse if the scope is full."""
    if len(scope.events) >= EVENTS_PER_SCOPE_MAX:
        raise Conflict(
            f"Scope {scope.name} already has {EVENTS_PER_SCOPE_MAX} open events.",
            "Wait until some have ended, or cancel some.",
        )
    return put(scope, event)


def put(scope: Scope, event: ScheduledEvent) -> tuple[Scope, tuple[Fact, ...]]:
    """Put a new event into its scope, however full that is."""
    facts = [scheduled_fact(event)]
    if event.approved_ms is not None:
        facts.append(approved_fact(event, event.approved_ms, by=POLICY, by_kind=POLICY.kind))
    return scope_edits.with_event(scope, event), tuple(facts)


def order_for_vm(
    scope: Scope, vm_name: str, order: Order, *, event_id: str, now_ms: int, policy: Policy
) -> tuple[Decision, str]:
    """Schedule what an owner (restart, redeploy, delete) or an eviction wants of one VM.

    Returns the decision and the event's id. Repeating an order that is still open changes
    nothing and returns the id of the event that is already there.
    """
    vm = scope.vm(vm_name)
    if vm is None:
        raise NotFound(f"There is no VM {vm_name}.", "`forewarn vm list` shows the names.")
    if order.event_type is EventType.PREEMPT and vm.profile.priority is not Priority.SPOT:
        raise NotSpot(
            f"{vm_name} is not a spot VM and cannot be evicted.",
            'Only VMs with priority = "spot" can; to delete this one use `forewarn vm delete`.',
        )
    refuse_lost_disk(order, policy)
    existing = _same_order(scope, vm_name, order)
    if existing is not None:
        if existing.phase is Phase.SCHEDULED:
            windows.refuse_other(existing, order.window)
            _refuse_other_disk(existing, order)
        return Decision(), existing.event_id
    if order.cause is Cause.ORDER:
        _refuse_too_many_user_events(scope, policy)
    group = placement.Group(
        scope=scope.name,
        update_domain=vm.update_domain,
        host=vm.host,
        vm_names=(vm.name,),
        off=vm.off and order.event_type in _NOTHING_TO_ONE_THAT_IS_OFF,
    )
    _refuse_outside_window(order, ((scope, group),), now_ms=now_ms, policy=policy)
    event = new_event(scope, order, group, event_id=event_id, now_ms=now_ms, policy=policy)
    scope, facts = schedule(scope, event)
    return Decision(scopes=(scope,), facts=facts), event_id


def refuse_lost_disk(order: Order, policy: Policy) -> None:
    """Refuse local disks that cannot be lost: no guest is told of what will not happen."""
    if not order.lose_disk:
        return
    if order.event_type is not EventType.REDEPLOY:
        raise Invalid(
            f"A {order.event_type.value} does not lose the local disk.",
            "--lose-disk is accepted for a Redeploy only; leave it out.",
        )
    if policy.hosts_join:
        raise LocalDiskKept(
            "A Redeploy that loses the local disk cannot be ordered here: hosts with a daemon of"
            " their own keep every disk of a VM, because they cannot tell local disks from shared"
            " ones.",
            "Order it without --lose-disk; emulated hosts (`forewarn simulate`, `forewarn serve`)"
            " take it.",
        )


def _refuse_other_disk(existing: ScheduledEvent, order: Order) -> None:
    if existing.lose_disk != order.lose_disk:
        has = "one that loses" if existing.lose_disk else "one that keeps"
        raise OtherDisk(
            f"The same is ordered already, as {has} the local disk: event {existing.event_id}.",
            f"Cancel it first (`forewarn event cancel {existing.event_id}`), then order it again.",
        )


def _refuse_outside_window(
    order: Order,
    groups: Iterable[tuple[Scope, placement.Group]],
    *,
    now_ms: int,
    policy: Policy,
) -> None:
    for scope, group in groups:
        windows.refuse_too_short(
            order.window,
            order.event_type,
            ordered_not_before_ms=order.not_before_ms,
            not_before_ms=not_before_ms(scope, order, group, now_ms=now_ms, policy=policy),
            whom=f"{', '.join(group.vm_names)} of scope {scope.name}",
            now_ms=now_ms,
        )


def _same_order(scope: Scope, vm_name: str, order: Order) -> ScheduledEvent | None:
    return next(
        (
            event
            for event in scope.events
            if event.event_type is order.event_type
            and event.cause is order.cause
            and vm_name in event.resources
        ),
        None,
    )


def _refuse_too_many_user_events(scope: Scope, policy: Policy) -> None:
    count = sum(1 for event in scope.events if event.event_source is EventSource.USER)
    if count >= policy.user_events_max:
        raise TooManyUserEvents(
            f"Scope {scope.name} has {count} open user events, the most it may have.",
            "Wait until some have ended, approve or cancel some, or raise user_events_max.",
        )


def maintain(
    host: Host,
    order: Order,
    fleet: Fleet,
    *,
    operation_id: str,
    ids: Iterator[str],
    now_ms: int,
    policy: Policy,
    break_domains: bool = False,
    reason: str = "",
) -> Decision:
    """Order an operation on a host: one event per scope and update domain that it carries.

    All events get the same NotBefore, the latest any scope needs. Redeploy and degraded hardware
    move VM by VM; Freeze and Reboot hit the whole host and are refused where that would hit two
    domains of one scope, unless `break_domains` says that the operator accepts it, for a `reason`.
    """
    if break_domains:
        reason = overrides.need_reason(reason, "Breaking the domain rule needs a reason.")
    _refuse_words(order)
    refuse_lost_disk(order, policy)
    _refuse_unfit_host(host, order, fleet)
    whole_host = order.event_type is not EventType.REDEPLOY
    groups = placement.plan(host.name, fleet, with_off=not whole_host)
    told = ((need_scope(fleet, group.scope), group) for group in groups)
    _refuse_outside_window(order, told, now_ms=now_ms, policy=policy)
    broken = placement.scopes_with_two_domains(host.name, fleet)
    if whole_host and not break_domains:
        _refuse_two_domains(host, order, broken)
    name, by_kind, by_id = kept_of(order.by)
    operation = Operation(
        operation_id=operation_id,
        host=host.name,
        event_type=order.event_type,
        cause=order.cause,
        phase=OperationPhase.WAITING,
        ordered_ms=now_ms,
        ordered_by=str(order.by),
        ordered_by_kind=by_kind,
        ordered_by_id=by_id,
        ordered_not_before_ms=order.not_before_ms,
        window=order.window,
        duration_s=order.duration_s,
        description=order.description,
        broke_domains_by=name if whole_host and broken else None,
        lose_disk=order.lose_disk,
    )
    fact = _ordered_fact(operation, order, broken, reason)
    announced = announce(operation, groups, fleet, ids=ids, now_ms=now_ms, policy=policy)
    return replace(announced, facts=(fact, *announced.facts))


def _ordered_fact(
    operation: Operation, order: Order, broken: Mapping[str, tuple[int, ...]], reason: str
) -> Fact:
    """The line that says who ordered what of a host, and for what reason domains are broken."""
    by_force = operation.broke_domains_by is not None
    detail = OrderedDetail(
        event_type=order.event_type,
        cause=order.cause,
        broke_domains=tuple(sorted(broken)) if by_force else (),
        reason=reason if by_force else "",
        lose_disk=order.lose_disk,
        **window_bounds(order.window),
    )
    fact = Fact(
        kind=FactKind.ORDERED,
        at_ms=operation.ordered_ms,
        operation_id=operation.operation_id,
        host=operation.host,
        detail=detail,
    )
    return by_whom(fact, order.by)


def _refuse_two_domains(host: Host, order: Order, broken: Mapping[str, tuple[int, ...]]) -> None:
    if broken:
        raise TwoDomainsOnHost(
            f"{order.event_type.value} of host {host.name} would hit "
            + "; ".join(
                f"update domains {', '.join(map(str, domains))} of scope {name} at once"
                for name, domains in broken.items()
            )
            + ".",
            f"Move one of them away first (`forewarn host maintain {host.name} --type Redeploy`, "
            "or `forewarn vm redeploy NAME`), or accept it with --break-domains --reason TEXT.",
        )


def _refuse_words(order: Order) -> None:
    """What an order says of its events must be something that the wire can carry and we can do."""
    if order.duration_s is not None:
        if order.event_type is not EventType.FREEZE:
            raise Invalid(
                f"How long a {order.event_type.value} lasts cannot be given.",
                "A duration is accepted for Freeze only; leave it out.",
            )
        if not 0 <= order.duration_s <= FREEZE_SECONDS_MAX:
            raise Invalid(
                f"A Freeze of {order.duration_s} seconds is refused.",
                f"From 0 to {FREEZE_SECONDS_MAX} seconds would be accepted.",
            )
    text = order.description or ""
    if len(text) > DESCRIPTION_CHARS_MAX or not text.isprintable():
        raise Invalid(
            "The description is longer than one line of a document should be, or holds control "
            "characters.",
            f"Up to {DESCRIPTION_CHARS_MAX} printable characters would be accepted.",
        )


def _refuse_unfit_host(host: Host, order: Order, fleet: Fleet) -> None:
    if host.health is Health.FAILED:
        raise HostUnfit(
            f"Host {host.name} has failed.", f"Say `forewarn host repair {host.name}` first."
        )
    for operation in fleet.operations_on(host.name):
        if operation.event_type is order.event_type and operation.cause is order.cause:
            raise OperationExists(
                f"Host {host.name} already has a {operation.event_type.value} operation, "
                f"{operation.operation_id}, {operation.phase.value}.",
                f"Wait for it, or cancel it: `forewarn operation cancel {operation.operation_id}`.",
            )


def _order_of(operation: Operation) -> Order:
    """What an operation was ordered with, for the events that it still gets."""
    return Order(
        event_type=operation.event_type,
        cause=operation.cause,
        by=who_ordered(operation),
        not_before_ms=operation.ordered_not_before_ms,
        window=operation.window,
        duration_s=operation.duration_s,
        description=operation.description,
        lose_disk=operation.lose_disk,
    )


def can_be_told(
    operation: Operation, scope: Scope, group: placement.Group, *, now_ms: int, policy: Policy
) -> bool:
    """False for VMs that arrived too late for a notice that ends before the window closes."""
    order = _order_of(operation)
    at_ms = not_before_ms(scope, order, group, now_ms=now_ms, policy=policy)
    return windows.is_open(operation.window, at_ms)


def announce(
    operation: Operation,
    groups: tuple[placement.Group, ...],
    fleet: Fleet,
    *,
    ids: Iterator[str],
    now_ms: int,
    policy: Policy,
) -> Decision:
    """Add an event per group to an operation: at its order, or for VMs that arrived since."""
    order = _order_of(operation)
    forced = operation.broke_domains_by is not None
    broken = placement.scopes_with_two_domains(operation.host, fleet) if forced else {}
    scopes = {scope.name: scope for scope in (need_scope(fleet, group.scope) for group in groups)}
    events = [
        new_event(
            scopes[group.scope],
            order,
            group,
            event_id=next(ids),
            now_ms=now_ms,
            policy=policy,
            operation_id=operation.operation_id,
            breaks_domains=group.scope in broken,
        )
        for group in groups
    ]
    if order.event_type is not EventType.REDEPLOY:  # one impact, so one time: the latest
        latest_ms = max((event.not_before_ms for event in events), default=0)
        events = [replace(event, not_before_ms=latest_ms) for event in events]
    facts: list[Fact] = []
    for event in events:
        scopes[event.scope], new_facts = schedule(scopes[event.scope], event)
        facts.extend(new_facts)
    operation = replace(
        operation,
        members=(*operation.members, *((event.scope, event.event_id) for event in events)),
        named=(*operation.named, *(name for event in events for name in event.resources)),
    )
    return Decision(scopes=tuple(scopes.values()), operations=(operation,), facts=tuple(facts))


def need_scope(fleet: Fleet, name: str) -> Scope:
    """The scope of that name, or a refusal."""
    scope = fleet.scope(name)
    if scope is None:
        raise NotFound(f"There is no scope {name}.")
    return scope


def need_scheduled(scope: Scope, event_id: str, *, done: str) -> ScheduledEvent:
    """The event, if it has not started. Raises NotFound or AlreadyStarted; `done` is wanted."""
    event = scope.event(event_id)
    if event is None:
        raise NotFound(f"Scope {scope.name} has no open event {event_id}.")
    if event.phase is not Phase.SCHEDULED:
        raise AlreadyStarted(
            f"Event {event_id} has started.",
            f"Only scheduled events can be {done}; wait until it has ended.",
        )
    return event


def cancel(scope: Scope, event_id: str, fleet: Fleet, *, by: Who, now_ms: int) -> Decision:
    """Cancel a scheduled event. If it belongs to an operation, the operation is canceled whole.

    Cancel after start is refused; whichever was committed first has won.
    """
    event = need_scheduled(scope, event_id, done="canceled")
    if event.operation_id is not None:
        operation = fleet.operation(event.operation_id)
        if operation is not None:
            return cancel_operation(operation, fleet, by=by, now_ms=now_ms, reason=CANCELED)
    canceled = scope_edits.cancel_event(event, now_ms, CANCELED)
    return Decision(
        scopes=(scope_edits.with_event(scope, canceled),), facts=(canceled_fact(canceled, by),)
    )


def cancel_whole(operation: Operation, fleet: Fleet, *, by: Who, now_ms: int) -> Decision:
    """Cancel an operation by itself: also one without events, on a host without VMs."""
    scopes = ((fleet.scope(name), event_id) for name, event_id in operation.members)
    open_events = [scope.event(event_id) for scope, event_id in scopes if scope is not None]
    phases = {event.phase for event in open_events if event is not None}
    begun = operation.phase is OperationPhase.STARTED and Phase.SCHEDULED not in phases
    if operation.outcome or begun:
        raise AlreadyStarted(
            f"Nothing of operation {operation.operation_id} is left to cancel: "
            + (f"it is {operation.outcome} already, and " if operation.outcome else "")
            + "what has started goes on to its end.",
            "Wait until it has ended.",
        )
    return cancel_operation(operation, fleet, by=by, now_ms=now_ms, reason=CANCELED)


def cancel_operation(
    operation: Operation, fleet: Fleet, *, by: Who, now_ms: int, reason: str
) -> Decision:
    """Cancel an operation with every event of it that has not started.

    Moves of a Redeploy that have started go on to their end, and the operation ends with them.
    """
    scopes: dict[str, Scope] = {}
    facts: list[Fact] = []
    left = 0
    for scope_name, event_id in operation.members:
        scope = scopes.get(scope_name) or fleet.scope(scope_name)
        event = scope.event(event_id) if scope else None
        if scope is None or event is None:
            continue
        if event.phase is not Phase.SCHEDULED:
            left += 1
            continue
        canceled = scope_edits.cancel_event(event, now_ms, reason)
        scopes[scope_name] = scope_edits.with_event(scope, canceled)
        facts.append(canceled_fact(canceled, by))
    facts.append(
        operation_fact(
            FactKind.CANCELED,
            operation,
            now_ms,
            by=by,
            detail=CanceledDetail(reason=reason, still_running=left),
        )
    )
    if left == 0:
        operation = replace(operation, phase=OperationPhase.ENDED, ended_ms=now_ms, outcome=reason)
    else:
        operation = replace(operation, outcome=reason)
    return Decision(scopes=tuple(scopes.values()), operations=(operation,), facts=tuple(facts))


def withdraw_event(scope: Scope, event: ScheduledEvent, now_ms: int) -> Decision:
    """End an event of its own that did not start before its window closed."""
    ended, fact = windows.withdrawn(event, windows.CLOSED, now_ms)
    return Decision(scopes=(scope_edits.with_event(scope, ended),), facts=(fact,))


def withdraw_operation(operation: Operation, fleet: Fleet, now_ms: int) -> Decision:
    """End what of an operation has not started before its window closed."""
    return cancel_operation(operation, fleet, by=TICKER, now_ms=now_ms, reason=windows.CLOSED)


def canceled_fact(event: ScheduledEvent, by: Who) -> Fact:
    detail = CanceledDetail(reason=event.outcome)
    return event_fact(FactKind.CANCELED, event, event.ended_ms or 0, by=by, detail=detail)
