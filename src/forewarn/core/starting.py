"""May it start now, and if not, why not. The holds that stop a start are what `explain` says.

An event or an operation starts if and only if its tuple of holds is empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from forewarn.core import avoiding, deadlines, notice, placement, scope_edits, windows
from forewarn.core.facts import (
    ExemptedDetail,
    StartedDetail,
    action_begun,
    event_fact,
    operation_fact,
)
from forewarn.core.fleet import Fleet
from forewarn.core.lifecycle import Move, move
from forewarn.core.model import (
    SECOND_MS,
    Action,
    ActionKind,
    Cause,
    Decision,
    EventSource,
    EventType,
    Fact,
    FactKind,
    Health,
    Operation,
    OperationPhase,
    Phase,
    Policy,
    ScheduledEvent,
    Scope,
    Window,
)
from forewarn.core.principal import who_was

TWO_DAEMONS_REMEDY = (
    "Find the machine that has a copy of the other's data folder, stop its daemon, remove host.pem"
    " there and have it join under a name of its own."
)


class HoldReason(StrEnum):
    """What can keep a due event or operation from starting, and what keeps it from being due."""

    CONSENT = "consent"  # not approved, and its notice still runs
    CLOCK = "clock"  # the order named a later time
    WINDOW_CLOSED = "window-closed"  # the window of the order is not open, approved or not
    NOT_YET_SERVED = "not-yet-served"  # the host has not confirmed that it shows the event
    VM_BUSY = "vm-busy"  # a VM of it is in another started event
    DOMAIN_STARTED = "domain-started"  # another update domain of the scope is started
    DOMAIN_RECOVERING = "domain-recovering"  # another one has not come back yet
    SCOPE_HELD = "scope-held"  # an event of the scope failed; the operator has not released it
    HOST_SILENT = "host-silent"  # no heartbeat
    HOST_NOT_JOINED = "host-not-joined"  # revoked, or it has not joined yet: it is not heard
    TWO_DAEMONS = "two-daemons"  # two speak as the host, so neither is given anything to do
    HOST_REFUSES = "host-refuses"  # it obeys nothing of this control, and says why
    HYPERVISOR_UNREACHABLE = "hypervisor-unreachable"  # its hypervisor does not answer
    HOST_FAILED = "host-failed"
    HOST_BUSY = "host-busy"  # another operation of the host is started
    VM_ARRIVING = "vm-arriving"  # a VM is on its way to the host
    VM_WITHOUT_NOTICE = (
        "vm-without-notice"  # a VM on the host has no event of the operation yet, or can have none
    )
    TWO_DOMAINS = "two-domains"  # a second update domain of a scope has come to the host
    NO_TARGET = "no-target"  # no host can take the VM
    NO_HOST = "no-host"  # a VM of a failed host has nowhere to start yet
    UNCLAIMED = "unclaimed"  # started, and the host has not taken the action yet
    RUNNING = "running"  # started, and the host is at work


class Hold(Struct, frozen=True, kw_only=True):
    """One thing that holds: who or what, since when, until when at the latest, what would free it.

    `until_ms` is None where it cannot be known.
    """

    reason: HoldReason
    what: str
    since_ms: int | None
    until_ms: int | None
    remedy: str


def obeys_domains(event: ScheduledEvent) -> bool:
    """True for events under the rule of one domain at a time (design section 5)."""
    ruled = (EventType.FREEZE, EventType.REBOOT, EventType.REDEPLOY)
    return event.event_type in ruled and event.cause is not Cause.FAILURE


def started_elsewhere(scope: Scope, event: ScheduledEvent) -> tuple[ScheduledEvent, ...]:
    """Started events of other update domains of the scope, except those of the same operation."""
    return tuple(
        other
        for other in scope.events
        if other.phase is Phase.STARTED
        and other.update_domain != event.update_domain
        and not placement.hits_no_vm(scope, other)
        and not (event.breaks_domains and other.operation_id == event.operation_id)
    )


def unasked(scope: Scope, event: ScheduledEvent) -> bool:
    """True if no VM need be asked: a VM that is off consents to what is not its end."""
    return obeys_domains(event) and placement.all_off(scope, event)


def due(scope: Scope, event: ScheduledEvent, now_ms: int) -> bool:
    """True once the event has the consent it needs, or its notice was given."""
    return notice.due(event, now_ms, unasked=unasked(scope, event))


def one_domain_at_a_time(event: ScheduledEvent) -> bool:
    """True if the event starts only while no other update domain of its scope is started."""
    return obeys_domains(event) and not event.breaks_domains and not event.silent


def together(first: ScheduledEvent, others: Iterable[ScheduledEvent]) -> list[ScheduledEvent]:
    """The first event of a scope, and those of the others that start in one change with it.

    They are all of its domain. What is outside the rule of domains starts alone.
    """
    if not one_domain_at_a_time(first):
        return [first]
    domain = first.update_domain
    ruled = (e for e in others if one_domain_at_a_time(e) and e.update_domain == domain)
    return [first, *ruled]


def due_events(scope: Scope, now_ms: int) -> Iterator[ScheduledEvent]:
    """The scheduled events of a scope that are due and that no other domain surely holds.

    Whether anything else holds one is for `event_holds` to say. Of a scope with many events most
    wait: they are looked at once, in one pass.
    """
    someone_off = any(vm.off for vm in scope.vms)
    started = (event for event in scope.events if event.phase is Phase.STARTED)
    busy = {event.update_domain for event in started if not placement.hits_no_vm(scope, event)}
    for event in scope.events:
        if event.phase is not Phase.SCHEDULED:
            continue
        if not (due(scope, event, now_ms) if someone_off else notice.due(event, now_ms)):
            continue
        if not (one_domain_at_a_time(event) and busy - {event.update_domain}):
            yield event


def notice_holds(scope: Scope, event: ScheduledEvent, now_ms: int) -> tuple[Hold, ...]:
    """Why the event is not due; empty if it is."""
    if due(scope, event, now_ms):
        return ()
    no_vm_asked = event.silent or unasked(scope, event)
    due_from_ms = notice.due_from_ms(event, unasked=no_vm_asked)
    override = f"`forewarn event approve {event.event_id} --reason TEXT`"
    approve = f"An approval by a VM of {event.scope}, or {override}."
    if due_from_ms is None:
        return (
            Hold(
                reason=HoldReason.NOT_YET_SERVED,
                what=f"host {event.host} has not confirmed that it shows the event",
                since_ms=event.scheduled_ms,
                until_ms=None,
                remedy=f"The host confirms with its next heartbeat. {approve}",
            ),
        )
    if no_vm_asked:
        return (
            Hold(
                reason=HoldReason.CLOCK,
                what="the time that the order named has not come",
                since_ms=event.scheduled_ms,
                until_ms=due_from_ms,
                remedy=approve,
            ),
        )
    return (
        Hold(
            reason=HoldReason.CONSENT,
            what=f"scope {event.scope} has not approved it and its notice still runs",
            since_ms=event.scheduled_ms,
            until_ms=due_from_ms,
            remedy=approve,
        ),
    )


def window_holds(window: Window | None, *, since_ms: int, now_ms: int) -> Iterable[Hold]:
    """Whether the window of the order is open. It is wall time, and no approval opens it."""
    if window is None or windows.is_open(window, now_ms):
        return
    over = windows.closed_for_good(window, now_ms)
    yield Hold(
        reason=HoldReason.WINDOW_CLOSED,
        what=f"the window of the order {'has closed' if over else 'has not opened yet'}",
        since_ms=window.end_ms if over else since_ms,
        until_ms=None if over else window.start_ms,
        remedy="Control withdraws it with the next tick. Order it again."
        if over
        else "Wait until the window opens, approved or not; or cancel it and order it anew.",
    )


def scope_holds(scope: Scope, event: ScheduledEvent) -> Iterable[Hold]:
    """What in the event's own scope keeps it from starting, apart from its notice."""
    for other in scope.events:
        if other.phase is not Phase.STARTED or other.event_id == event.event_id:
            continue
        busy = [name for name in event.resources if name in other.resources]
        if busy:
            yield Hold(
                reason=HoldReason.VM_BUSY,
                what=f"{', '.join(busy)} is in the started event {other.event_id}",
                since_ms=other.started_ms,
                until_ms=other.deadline_ms,
                remedy=f"It ends by itself; `forewarn event explain {other.event_id}` says more.",
            )
    if not obeys_domains(event) or placement.hits_no_vm(scope, event):
        return
    for other in started_elsewhere(scope, event):
        yield Hold(
            reason=HoldReason.DOMAIN_STARTED,
            what=f"update domain {other.update_domain} of scope {scope.name} is started "
            f"(event {other.event_id})",
            since_ms=other.started_ms,
            until_ms=other.deadline_ms,
            remedy=f"It ends by itself; `forewarn event explain {other.event_id}` says more.",
        )
    if event.event_source is not EventSource.PLATFORM:
        return
    for recovery in scope.recoveries:
        if recovery.update_domain != event.update_domain:
            yield Hold(
                reason=HoldReason.DOMAIN_RECOVERING,
                what=f"update domain {recovery.update_domain} of scope {scope.name} "
                "is recovering: "
                f"{', '.join(recovery.waiting_for)} has not polled again",
                since_ms=recovery.since_ms,
                until_ms=recovery.until_ms,
                remedy="A poll by each of those VMs.",
            )
    if scope.hold is not None:
        yield Hold(
            reason=HoldReason.SCOPE_HELD,
            what=f"event {scope.hold.event_id} of scope {scope.name} failed: {scope.hold.reason}",
            since_ms=scope.hold.since_ms,
            until_ms=None,
            remedy=f"Look at it, then `forewarn scope release {scope.name}`.",
        )


def host_holds(host_name: str, fleet: Fleet, now_ms: int) -> Iterable[Hold]:
    """What about the host keeps anything from starting on it."""
    host = fleet.host(host_name)
    if host is None or host.health is Health.FAILED:
        yield Hold(
            reason=HoldReason.HOST_FAILED,
            what=f"host {host_name} has failed",
            since_ms=_failed_since_ms(host_name, fleet),
            until_ms=None,
            remedy=f"`forewarn host repair {host_name}` when it is back, "
            f"or `forewarn host fail {host_name} --fenced` when it is surely off.",
        )
    elif fleet.shut_out(host_name):
        yield Hold(
            reason=HoldReason.HOST_NOT_JOINED,
            what=f"control does not listen to host {host_name}: it was revoked or has not joined",
            since_ms=None,
            until_ms=None,
            remedy=f"`forewarn host invite {host_name}`, and join with that token there; "
            f"or `forewarn host fail {host_name} --fenced` if it is gone for good and surely off.",
        )
    elif not fleet.alive(host_name):
        yield Hold(
            reason=HoldReason.HOST_SILENT,
            what=f"host {host_name} has no heartbeat",
            since_ms=now_ms - fleet.silent_ms(host_name),
            until_ms=None,
            remedy="Its next heartbeat.",
        )
    elif fleet.two_daemons(host_name):
        yield Hold(
            reason=HoldReason.TWO_DAEMONS,
            what=f"two daemons speak as host {host_name}, so neither is given anything to do",
            since_ms=None,
            until_ms=None,
            remedy=TWO_DAEMONS_REMEDY,
        )
    elif fleet.refuses(host_name):
        yield Hold(
            reason=HoldReason.HOST_REFUSES,
            what=f"host {host_name} takes no orders from this control",
            since_ms=None,
            until_ms=None,
            remedy=fleet.refuses(host_name),
        )
    elif fleet.hypervisor_unreachable(host_name):
        yield Hold(
            reason=HoldReason.HYPERVISOR_UNREACHABLE,
            what=f"the hypervisor of host {host_name} does not answer",
            since_ms=None,
            until_ms=None,
            remedy=fleet.hypervisor_unreachable(host_name),
        )


def late_holds(scope: Scope, event: ScheduledEvent, fleet: Fleet, now_ms: int) -> Iterable[Hold]:
    """Whether it is sure that guests could read the event until now, as its notice counts it."""
    late_ms = fleet.silent_ms(event.host)
    if event.approved_ms is not None or event.silent or unasked(scope, event):
        return
    if not fleet.alive(event.host):
        return
    if late_ms > notice.HEARTBEAT_LATE_MS:
        yield Hold(
            reason=HoldReason.HOST_SILENT,
            what=f"host {event.host} has not been heard for {late_ms // SECOND_MS} s",
            since_ms=now_ms - late_ms,
            until_ms=None,
            remedy="Its next heartbeat.",
        )


def _failed_since_ms(host: str, fleet: Fleet) -> int | None:
    """When the host was declared failed, as the events of its VMs say; None if it has no VMs."""
    declared = (
        event.started_ms
        for scope in fleet.scopes_on(host)
        for event in scope.events
        if event.cause is Cause.FAILURE and event.host == host and event.started_ms is not None
    )
    return max(declared, default=None)


def event_holds(event: ScheduledEvent, scope: Scope, fleet: Fleet, now_ms: int) -> tuple[Hold, ...]:
    """Everything that keeps an event that starts by itself from starting now."""
    holds = [
        *notice_holds(scope, event, now_ms),
        *window_holds(event.window, since_ms=event.scheduled_ms, now_ms=now_ms),
        *scope_holds(scope, event),
        *host_holds(event.host, fleet, now_ms),
        *late_holds(scope, event, fleet, now_ms),
    ]
    if event.event_type is EventType.REDEPLOY and not holds:
        without = [
            name for name, target in choose_targets(event, scope, fleet).items() if not target
        ]
        vm = scope.vm(without[0]) if without else None
        if vm is not None:
            why = placement.why_no_target(scope, vm, fleet)
            holds.append(
                Hold(
                    reason=HoldReason.NO_TARGET,
                    what=f"no open host can take {', '.join(without)} ({why})",
                    since_ms=notice.due_from_ms(event),
                    until_ms=None,
                    remedy="A host with a free place and without another update domain of "
                    f"{scope.name}: `forewarn host open NAME` for a closed one, `forewarn host "
                    "repair NAME` for a degraded one, or the end of an operation.",
                )
            )
    return tuple(holds)


def operation_holds(operation: Operation, fleet: Fleet, now_ms: int) -> tuple[Hold, ...]:
    """Everything that keeps a Freeze or Reboot of a host from starting now."""
    holds: list[Hold] = []
    told: set[str] = set()
    domains: dict[str, dict[int, int]] = {}  # by scope: since when each domain was told
    ruled: set[str] = set()
    asked = False
    for scope_name, event_id in operation.members:
        scope = fleet.scope(scope_name)
        event = scope.event(event_id) if scope else None
        if scope is None or event is None:
            continue  # avoided: its VMs have left the host
        if placement.all_off(scope, event):
            continue  # nothing is done to them (`start_operation`)
        asked = True
        told.update(event.resources)
        told_ms = domains.setdefault(scope_name, {})
        told_ms.setdefault(event.update_domain, event.scheduled_ms)
        if not event.breaks_domains:  # who came later may break domains, and not who was there
            ruled.add(scope_name)
        holds.extend(notice_holds(scope, event, now_ms))
        holds.extend(scope_holds(scope, event))
        holds.extend(late_holds(scope, event, fleet, now_ms))
    if not asked and (operation.ordered_not_before_ms or 0) > now_ms:
        holds.append(
            Hold(
                reason=HoldReason.CLOCK,
                what="the time that the order named has not come",
                since_ms=operation.ordered_ms,
                until_ms=operation.ordered_not_before_ms,
                remedy="Wait for that time; no VM has to approve.",
            )
        )
    window = operation.window
    holds.extend(window_holds(window, since_ms=operation.ordered_ms, now_ms=now_ms))
    holds.extend(host_holds(operation.host, fleet, now_ms))
    holds.extend(_two_domains_holds(operation, {name: domains[name] for name in ruled}))
    holds.extend(_traffic_holds(operation, fleet, told, now_ms))
    return tuple(holds)


def _two_domains_holds(
    operation: Operation, domains: Mapping[str, Mapping[int, int]]
) -> Iterable[Hold]:
    """A VM may bring a second update domain to the host after the order was accepted."""
    for scope_name, found in sorted(domains.items()):
        if len(found) > 1:
            yield Hold(
                reason=HoldReason.TWO_DOMAINS,
                what=f"host {operation.host} now carries update domains "
                f"{', '.join(map(str, sorted(found)))} of scope {scope_name}",
                since_ms=max(found.values()),
                until_ms=None,
                remedy="Move one of them away (`forewarn vm redeploy NAME`), or cancel it "
                f"(`forewarn operation cancel {operation.operation_id}`).",
            )


def _traffic_holds(
    operation: Operation, fleet: Fleet, told: set[str], now_ms: int
) -> Iterable[Hold]:
    for other in fleet.operations_on(operation.host):
        if other.phase is OperationPhase.STARTED and other.whole_host:
            yield Hold(
                reason=HoldReason.HOST_BUSY,
                what=f"operation {other.operation_id} of host {other.host} is started",
                since_ms=other.started_ms,
                until_ms=other.deadline_ms,
                remedy="That operation ends by itself.",
            )
    for scope_name, vm in fleet.arriving(operation.host):
        if vm.off:
            continue
        scope = fleet.scope(scope_name)
        events = scope.events if scope else ()
        bringing = (e for e in events if e.phase is Phase.STARTED and vm.name in e.resources)
        event = next(bringing, None)
        words, remedy = "is on its way to", "Wait until it has arrived; then it gets its notice."
        if vm.may_run_on == operation.host:
            words = "may be on"
            remedy = (
                f"Wait for the report of host {vm.host}, which was moving it, or run "
                f"`forewarn host fail {vm.host} --fenced` once that host is surely off."
            )
        yield Hold(
            reason=HoldReason.VM_ARRIVING,
            what=f"{vm.name} {words} host {operation.host}",
            since_ms=event.started_ms if event else None,
            until_ms=event.deadline_ms if event else None,
            remedy=remedy,
        )
    yield from _newcomer_holds(operation, fleet, told, now_ms)
    # A Freeze leaves them alone; a reboot of the host could not.
    strangers = fleet.strangers(operation.host) if operation.event_type is EventType.REBOOT else ()
    if strangers:
        yield Hold(
            reason=HoldReason.VM_WITHOUT_NOTICE,
            what=f"{', '.join(strangers)} runs on host {operation.host} and cannot be told",
            since_ms=None,
            until_ms=None,
            remedy=f"`forewarn host show {operation.host}` says why; rename it, move it away or "
            "switch it off.",
        )


def _newcomer_holds(
    operation: Operation, fleet: Fleet, told: set[str], now_ms: int
) -> Iterable[Hold]:
    """VMs that have come to the host since, or to which the operation could not be shown."""
    newcomers = [name for name in vm_names_on(operation.host, fleet) if name not in told]
    if not newcomers:
        return
    names = ", ".join(newcomers)
    what = f"{names} has come to host {operation.host} and has no notice yet"
    remedy = "It gets its notice with the next tick."
    notice_ends_ms = now_ms + notice.MINIMUM_NOTICE_MS[operation.event_type]
    if windows.closed_for_good(operation.window, notice_ends_ms):
        what = (
            f"{names} on host {operation.host} cannot be given its notice before the window closes"
        )
        remedy = (
            "Move it away (`forewarn vm redeploy NAME`) or switch it off; else the operation is "
            "withdrawn when the window closes."
        )
    yield Hold(
        reason=HoldReason.VM_WITHOUT_NOTICE,
        what=what,
        since_ms=None,
        until_ms=None,
        remedy=remedy,
    )


def vm_names_on(host: str, fleet: Fleet) -> tuple[str, ...]:
    """Names of the VMs that are on the host now and were not switched off."""
    vms = (vm for scope in fleet.scopes_on(host) for vm in scope.vms)
    return tuple(vm.name for vm in vms if vm.host == host and not vm.off)


def choose_targets(event: ScheduledEvent, scope: Scope, fleet: Fleet) -> dict[str, str | None]:
    """For each VM of a Redeploy the host it would go to, or None."""
    planned: dict[str, int] = {}
    targets: dict[str, str | None] = {}
    for name in event.resources:
        vm = scope.vm(name)
        target = placement.choose_target(scope, vm, fleet, planned) if vm else None
        targets[name] = target
        if target is not None:
            planned[target] = planned.get(target, 0) + 1
    return targets


def start_event(
    scope: Scope, event: ScheduledEvent, fleet: Fleet, *, now_ms: int, policy: Policy
) -> Decision:
    """Start an event that has no holds: it is Started and its actions are written down."""
    # Told and given its time, or asked and answered: then it is done to one that runs, too.
    only_off = unasked(scope, event) and (event.silent or not notice.due(event, now_ms))
    actions = _actions(event, scope, fleet, policy, only_off=only_off)
    started, facts = _started(scope, event, now_ms, actions)
    operations: tuple[Operation, ...] = ()
    if event.operation_id is not None:
        operation = fleet.operation(event.operation_id)
        if operation is not None and operation.phase is OperationPhase.WAITING:
            begun = replace(operation, phase=OperationPhase.STARTED, started_ms=now_ms)
            operations = (begun,)
    return Decision(
        scopes=(scope_edits.with_event(scope, started),), operations=operations, facts=facts
    )


def _started(
    scope: Scope, event: ScheduledEvent, now_ms: int, actions: tuple[Action, ...]
) -> tuple[ScheduledEvent, tuple[Fact, ...]]:
    started = replace(
        event,
        phase=move(event.phase, Move.START),
        started_ms=now_ms,
        deadline_ms=now_ms + deadlines.deadline_after_ms(event.event_type, event.cause),
        actions=actions,
    )
    facts = [
        event_fact(
            FactKind.STARTED,
            event,
            now_ms,
            detail=StartedDetail(
                approved=event.approved_ms is not None,
                readable_ms=notice.readable_ms(event, now_ms),
                actions=tuple(map(action_begun, actions)),
            ),
        )
    ]
    return started, (*facts, *exemption_facts(scope, event, now_ms))


def exemption_facts(scope: Scope, event: ScheduledEvent, now_ms: int) -> tuple[Fact, ...]:
    """A fact if this start falls into another domain's impact, which only exempt ones may."""
    others = [
        other.event_id
        for other in scope.events
        if other.phase is Phase.STARTED
        and other.update_domain != event.update_domain
        and not placement.hits_no_vm(scope, other)
    ]
    if placement.hits_no_vm(scope, event):
        return ()
    if not others and not event.breaks_domains:
        return ()
    return (
        event_fact(
            FactKind.EXEMPTED,
            event,
            now_ms,
            by=who_was(event.ordered_by, event.ordered_by_kind, event.ordered_by_id)
            if event.breaks_domains
            else None,
            detail=ExemptedDetail(
                because="break-domains" if event.breaks_domains else event.event_type.value,
                other_events=tuple(others),
            ),
        ),
    )


def _actions(
    event: ScheduledEvent, scope: Scope, fleet: Fleet, policy: Policy, *, only_off: bool
) -> tuple[Action, ...]:
    targets = choose_targets(event, scope, fleet) if event.event_type is EventType.REDEPLOY else {}
    kind, duration_s = {
        EventType.REBOOT: (ActionKind.REBOOT_VM, policy.reboot_s),
        EventType.REDEPLOY: (ActionKind.MOVE_VM, policy.redeploy_s),
        EventType.PREEMPT: (ActionKind.DELETE_VM, policy.delete_s),
        EventType.TERMINATE: (ActionKind.DELETE_VM, policy.delete_s),
    }[event.event_type]
    return tuple(
        Action(
            action_id=f"{event.event_id}/{name}",
            kind=kind,
            host=event.host,
            vm=name,
            target_host=targets.get(name),
            duration_s=duration_s,
            only_off=only_off,
            lose_disk=event.lose_disk,
        )
        for name in event.resources
    )


def start_operation(operation: Operation, fleet: Fleet, *, now_ms: int, policy: Policy) -> Decision:
    """Start a Freeze or Reboot of a host that has no holds: all its events, and ONE host action.

    Events of VMs that are off end here: nothing is done to them, and they were not waited for.
    """
    pause_s = policy.freeze_s if operation.duration_s is None else operation.duration_s
    kind, duration_s = {
        EventType.FREEZE: (ActionKind.FREEZE_HOST, pause_s),
        EventType.REBOOT: (ActionKind.REBOOT_HOST, policy.reboot_s),
    }[operation.event_type]
    action = Action(
        action_id=operation.operation_id,
        kind=kind,
        host=operation.host,
        duration_s=duration_s,
    )
    scopes: dict[str, Scope] = {}
    detail = StartedDetail(actions=(action_begun(action),))
    facts: list[Fact] = [operation_fact(FactKind.STARTED, operation, now_ms, detail=detail)]
    for scope_name, event_id in operation.members:
        scope = scopes.get(scope_name) or fleet.scope(scope_name)
        event = scope.event(event_id) if scope else None
        if scope is None or event is None:
            continue
        if placement.all_off(scope, event):
            after, new_facts = avoiding.avoided(event, now_ms, because="switched off")
        else:
            after, new_facts = _started(scope, event, now_ms, ())
        scopes[scope_name] = scope_edits.with_event(scope, after)
        facts.extend(new_facts)
    begun = replace(
        operation,
        phase=OperationPhase.STARTED,
        action=action,
        started_ms=now_ms,
        deadline_ms=now_ms + deadlines.DEADLINE_MS[operation.event_type],
    )
    return Decision(scopes=tuple(scopes.values()), operations=(begun,), facts=tuple(facts))
