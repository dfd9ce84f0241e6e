"""Hosts that are closed, degraded, failed, fenced and repaired, and the VMs that were on them.

A failed host's VMs get an event that is Started from the beginning (L30). They start elsewhere
once the host is fenced, or in place once it is back; nothing starts a VM twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from forewarn.core import (
    ending,
    notice,
    overrides,
    placement,
    scheduling,
    scope_edits,
    starting,
    unfinished_moves,
)
from forewarn.core.errors import (
    HostHeard,
    HostSilent,
    HostUnfit,
    TwoDomainsOnHost,
    VmHasHost,
)
from forewarn.core.facts import (
    AssignedDetail,
    CanceledDetail,
    FailedDetail,
    HostFailedDetail,
    HostFencedDetail,
    HostRepairedDetail,
    StartedDetail,
    event_fact,
    host_fact,
    operation_fact,
)
from forewarn.core.fleet import Fleet
from forewarn.core.model import (
    SECOND_MS,
    Action,
    ActionKind,
    ActionPhase,
    Cause,
    Decision,
    EventType,
    Fact,
    FactKind,
    Health,
    Host,
    Operation,
    OperationPhase,
    Outcome,
    Phase,
    Policy,
    ScheduledEvent,
    Scope,
    Vm,
    Window,
)
from forewarn.core.principal import Who

HOST_FAILED = "the host has failed"


def close(host: Host, *, by: Who, now_ms: int) -> Decision:
    """Let no VM be placed on the host from now on. Closing a closed host changes nothing."""
    if host.closed:
        return Decision()
    fact = host_fact(FactKind.HOST_CLOSED, host.name, now_ms, by=by)
    return Decision(hosts=(replace(host, closed=True),), facts=(fact,))


def reopen(host: Host, *, by: Who, now_ms: int) -> Decision:
    """Let VMs be placed on the host again."""
    if not host.closed:
        return Decision()
    fact = host_fact(FactKind.HOST_OPENED, host.name, now_ms, by=by)
    return Decision(hosts=(replace(host, closed=False),), facts=(fact,))


def degrade(
    host: Host,
    fleet: Fleet,
    *,
    not_before_ms: int | None,
    window: Window | None = None,
    by: Who,
    operation_id: str,
    ids: Iterator[str],
    now_ms: int,
    policy: Policy,
) -> Decision:
    """The host's hardware is expected to fail: its VMs will be moved, a week ahead by default.

    With a window they are moved in that, also if it is sooner. An owner who redeploys a VM before
    avoids the event. The host takes no new VMs.
    """
    if host.health is not Health.OK:
        raise HostUnfit(
            f"Host {host.name} is already {host.health.value}.",
            f"`forewarn host repair {host.name}` when it is well again.",
        )
    if not_before_ms is None and window is None:
        not_before_ms = now_ms + notice.DEGRADED_NOTICE_MS
    order = scheduling.Order(
        event_type=EventType.REDEPLOY,
        cause=Cause.DEGRADED,
        by=by,
        not_before_ms=not_before_ms,
        window=window,
    )
    fact = host_fact(FactKind.HOST_DEGRADED, host.name, now_ms, by=by)
    decision = scheduling.maintain(
        host, order, fleet, operation_id=operation_id, ids=ids, now_ms=now_ms, policy=policy
    )
    return replace(
        decision,
        hosts=(replace(host, health=Health.DEGRADED),),
        facts=(fact, *decision.facts),
    )


def fail(
    host: Host,
    fleet: Fleet,
    *,
    fenced: bool,
    force: bool = False,
    reason: str = "",
    by: Who,
    ids: Iterator[str],
    now_ms: int,
    policy: Policy,
) -> Decision:
    """The host has failed. What ran there has ended badly; its VMs are declared Started.

    `fenced` says that the host is surely off, so that its VMs may start elsewhere. It may be said
    later, by declaring the failure again. A host that control hears has neither failed nor is it
    off, whatever the caller says: raises HostHeard, unless `force` overrides it for a `reason`,
    which the journal keeps.
    """
    if force:
        reason = overrides.need_reason(reason, "Declaring a host failed by force needs a reason.")
    if host.health is Health.FAILED and not fenced:
        return Decision()
    forced = _forced(host.name, fleet, fenced=fenced, reason=reason if force else None)
    if host.health is Health.FAILED:
        said = HostFencedDetail(forced=True, reason=reason) if forced else None
        return _fenced(
            host, fleet, host_fact(FactKind.HOST_FENCED, host.name, now_ms, by=by, detail=said)
        )
    how = HostFailedDetail(fenced=fenced, forced=forced, reason=reason if forced else "")
    facts = [host_fact(FactKind.HOST_FAILED, host.name, now_ms, by=by, detail=how)]
    operations = []
    for operation in fleet.operations_on(host.name):
        operations.append(_operation_dies(operation, now_ms))
        facts.append(_death_fact(operation, by=by, now_ms=now_ms))
    scopes = []
    for scope in fleet.scopes_on(host.name):
        after = unfinished_moves.target_failed(scope, host.name)
        after = unfinished_moves.moves_under_way(after, host.name)
        after, new_facts = _events_die(after, host.name, by=by, now_ms=now_ms, policy=policy)
        facts.extend(new_facts)
        after, new_facts = unfinished_moves.strand(after, host.name, now_ms)
        facts.extend(new_facts)
        if fenced:
            after = _is_off(after, host.name)
        after, new_facts = _declare(after, host.name, by=by, ids=ids, now_ms=now_ms, policy=policy)
        facts.extend(new_facts)
        if after != scope:
            scopes.append(after)
    failed = replace(host, health=Health.FAILED, fenced=fenced)
    return Decision(
        hosts=(failed,), scopes=tuple(scopes), operations=tuple(operations), facts=tuple(facts)
    )


def _fenced(host: Host, fleet: Fleet, fact: Fact) -> Decision:
    """A failed host is surely off: its VMs may start elsewhere. Saying it again changes nothing."""
    if host.fenced:
        return Decision()
    scopes = tuple(_is_off(scope, host.name) for scope in fleet.scopes_on(host.name))
    return Decision(hosts=(replace(host, fenced=True),), scopes=scopes, facts=(fact,))


def _death_fact(operation: Operation, *, by: Who, now_ms: int) -> Fact:
    """The host of an operation has failed: it fails, or will not start."""
    if operation.phase is OperationPhase.STARTED:
        detail = FailedDetail(reason=HOST_FAILED)
        return operation_fact(FactKind.FAILED, operation, now_ms, by=by, detail=detail)
    canceled = CanceledDetail(reason=HOST_FAILED)
    return operation_fact(FactKind.CANCELED, operation, now_ms, by=by, detail=canceled)


def _forced(host: str, fleet: Fleet, *, fenced: bool, reason: str | None) -> bool:
    """Whether it took force to take the host for failed.

    Raises HostHeard for one that speaks; if it is to be `fenced` also for one that may: its VMs
    would run twice. A `reason` is one for force.
    """
    if not (fleet.may_be_on(host) if fenced else fleet.alive(host)):
        return False
    if reason is not None:
        return True
    silent_s = notice.HOST_SILENT_AFTER_MS // SECOND_MS
    ago_s = fleet.silent_ms(host) // SECOND_MS
    if not fenced:
        refused = f"Host {host} has not failed: it was heard {ago_s} s ago."
    elif fleet.alive(host):
        refused = f"Host {host} is not off: it was heard {ago_s} s ago, and its VMs may run."
    else:
        refused = (
            f"Host {host} may be on: control has listened for it for less than {silent_s} s since"
            " it started, or since it stood still."
        )
    raise HostHeard(
        refused,
        "Check the name, power the host off, and run the command again when its heartbeat has"
        f" stopped for {silent_s} s, or at once with --force --reason TEXT.",
    )


def _operation_dies(operation: Operation, now_ms: int) -> Operation:
    action = operation.action
    if action is not None and not action.ended:
        action = scope_edits.end_action(action, Outcome.FAILED, HOST_FAILED)
    return replace(
        operation,
        phase=OperationPhase.ENDED,
        action=action,
        ended_ms=now_ms,
        outcome=HOST_FAILED,
    )


def _events_die(
    scope: Scope, host: str, *, by: Who, now_ms: int, policy: Policy
) -> tuple[Scope, tuple[Fact, ...]]:
    """End what the host was doing for the scope, and cancel what its operations had announced."""
    facts: list[Fact] = []
    for event in scope.events:
        if event.host != host or event.cause is Cause.FAILURE:
            continue
        if event.phase is Phase.STARTED:
            died = event
            for action in event.actions:
                if not action.ended:
                    ended = scope_edits.end_action(action, Outcome.FAILED, HOST_FAILED)
                    died = scope_edits.with_action(died, ended)
            scope, new_facts = ending.finish_event(
                scope_edits.with_event(scope, died),
                died,
                now_ms=now_ms,
                policy=policy,
                failure=HOST_FAILED,
            )
            facts.extend(new_facts)
        elif event.operation_id is not None:
            canceled = scope_edits.cancel_event(event, now_ms, HOST_FAILED)
            scope = scope_edits.with_event(scope, canceled)
            facts.append(scheduling.canceled_fact(canceled, by))
    return scope, tuple(facts)


def _is_off(scope: Scope, host: str) -> Scope:
    """VMs that were to start on a host that is surely off now need another place.

    While it is not fenced they may be running there already, and starting them once more
    elsewhere would be worse than waiting.
    """
    scope = unfinished_moves.not_on(scope, host)
    for event in scope.events:
        if event.cause is not Cause.FAILURE or event.phase is not Phase.STARTED:
            continue
        for action in event.actions:
            if action.host == host and not action.ended:
                without_host = unfinished_moves.without_host(action)
                event = scope_edits.with_action(event, without_host)  # noqa: PLW2901 - grows step by step
        scope = scope_edits.with_event(scope, event)
    return scope


def _declare(
    scope: Scope,
    host: str,
    *,
    by: Who,
    ids: Iterator[str],
    now_ms: int,
    policy: Policy,
    only: str | None = None,
) -> tuple[Scope, tuple[Fact, ...]]:
    """One Started event per update domain of the scope on the host, which has nowhere to go yet.

    With `only`, for that VM alone.
    """
    order = scheduling.Order(event_type=EventType.REBOOT, cause=Cause.FAILURE, by=by)
    declared = {
        action.vm  # one that has started elsewhere meanwhile is down anew
        for event in scope.events
        if event.cause is Cause.FAILURE and event.phase is Phase.STARTED
        for action in event.actions
        if not action.ended
    }
    vms = tuple(vm for vm in scope.vms if vm.host == host and vm.name not in declared)
    if only is not None:
        vms = tuple(vm for vm in vms if vm.name == only)
    facts: list[Fact] = []
    for vm in vms:
        scope, new_facts = _leave_started(scope, vm.name, now_ms=now_ms, policy=policy)
        facts.extend(new_facts)
    for group in placement.groups_of(scope, host, vms):
        event_id = next(ids)
        event = scheduling.new_event(
            scope, order, group, event_id=event_id, now_ms=now_ms, policy=policy
        )
        actions = tuple(
            Action(
                action_id=f"{event_id}/{name}",
                kind=ActionKind.DEFINE_VM if group.off else ActionKind.START_VM,
                host=None,
                vm=name,
                duration_s=policy.reboot_s,
            )
            for name in group.vm_names
        )
        if not group.off:
            facts.extend(starting.exemption_facts(scope, event, now_ms))
        facts.append(scheduling.scheduled_fact(event))
        started = StartedDetail(declared=True)
        facts.append(event_fact(FactKind.STARTED, event, now_ms, by=by, detail=started))
        # Not by scheduling.schedule: a full scope does not keep a host from failing.
        scope = scope_edits.with_event(scope, replace(event, actions=actions))
    return scope, tuple(facts)


def _leave_started(
    scope: Scope, vm_name: str, *, now_ms: int, policy: Policy
) -> tuple[Scope, tuple[Fact, ...]]:
    """Take a VM out of the event in which it came to the failed host: one started event per VM.

    The event goes on for its other VMs; if this was the last it waited for, it ends.
    """
    facts: list[Fact] = []
    for event in scope.events:
        if event.phase is not Phase.STARTED or vm_name not in event.resources:
            continue
        left = event
        for action in event.actions:
            if action.vm == vm_name and not action.ended:
                left = scope_edits.with_action(
                    left, scope_edits.end_action(action, Outcome.FAILED, HOST_FAILED)
                )
        names = tuple(name for name in left.resources if name != vm_name)
        # An event without actions waits for the operation of its host, which the VM was moved from.
        waits = not left.actions or any(not action.ended for action in left.actions)
        if names and waits:
            scope = scope_edits.with_event(scope, replace(left, resources=names))
            continue
        scope, new_facts = ending.finish_event(
            scope_edits.with_event(scope, left),
            left,
            now_ms=now_ms,
            policy=policy,
            failure="" if left.actions else HOST_FAILED,
        )
        facts.extend(new_facts)
    return scope, tuple(facts)


def arrived(
    scope: Scope,
    vm_name: str,
    fleet: Fleet,
    *,
    by: Who,
    ids: Iterator[str],
    now_ms: int,
    policy: Policy,
    down: bool = False,
) -> Decision:
    """A move has brought a VM to a host; if that host has failed meanwhile, so has the VM.

    The VM may have failed too if it is not known whether the move brought it there, or (`down`) if
    the host failed before the move was reported and is well again: that host looks, and starts it.
    """
    vm = scope.vm(vm_name)
    names = (vm.host, vm.may_run_on) if vm else ()
    failed = (fleet.host(name) for name in names if name)
    host = next((one for one in failed if one and one.health is Health.FAILED), None)
    if host is None and vm is not None and down:
        scope, facts = _declare(
            scope, vm.host, only=vm_name, by=by, ids=ids, now_ms=now_ms, policy=policy
        )
        return Decision(scopes=(scope,), facts=facts)
    if host is None:
        return Decision()
    scope, moved = unfinished_moves.strand(scope, host.name, now_ms)
    scope, facts = _declare(scope, host.name, by=by, ids=ids, now_ms=now_ms, policy=policy)
    return Decision(scopes=(scope,), facts=(*moved, *facts))


def repair(
    host: Host,
    fleet: Fleet,
    *,
    by: Who,
    now_ms: int,
    force: bool = False,
    reason: str = "",
    switched_on: bool = False,
) -> Decision:
    """The host is well again. What was announced only because it was degraded is canceled.

    Raises HostSilent for one that is not heard, unless it was just `switched_on` or `force`
    overrides it for a `reason`, which the journal keeps.
    """
    if force:
        reason = overrides.need_reason(reason, "Declaring a host repaired by force needs a reason.")
    if host.health is Health.OK:
        return Decision()
    unheard = not switched_on and not fleet.alive(host.name)
    if unheard and not force:
        raise HostSilent(
            f"Control gets no heartbeat of host {host.name}, so it cannot tell that it works.",
            "Run the command again when `forewarn host list` shows its heartbeat, or with --force"
            " --reason TEXT.",
        )
    scopes: dict[str, Scope] = {}
    operations: list[Operation] = []
    why = reason if unheard else ""
    detail = HostRepairedDetail(was=host.health, forced=unheard, reason=why)
    facts = [host_fact(FactKind.HOST_REPAIRED, host.name, now_ms, by=by, detail=detail)]
    for operation in fleet.operations_on(host.name):
        if operation.cause is not Cause.DEGRADED:
            continue
        canceled = scheduling.cancel_operation(
            operation, fleet, by=by, now_ms=now_ms, reason=scheduling.HOST_REPAIRED
        )
        scopes.update((scope.name, scope) for scope in canceled.scopes)
        operations.extend(canceled.operations)
        facts.extend(canceled.facts)
    for scope in fleet.scopes_on(host.name):
        known = scopes.get(scope.name, scope)
        at_home = _not_elsewhere(known, host.name)
        if at_home is not known:
            scopes[scope.name] = at_home
    return Decision(
        hosts=(replace(host, health=Health.OK, fenced=False),),
        scopes=tuple(scopes.values()),
        operations=tuple(operations),
        facts=tuple(facts),
    )


def _not_elsewhere(scope: Scope, home: str) -> Scope:
    """The scope after a failed host is back: what no other host has taken yet starts at home.

    There its owner may start it by hand, and then it must not start a second time elsewhere.
    """
    for event in scope.events:
        after = event
        for action in event.actions if event.cause is Cause.FAILURE and event.host == home else ():
            taken = action.epoch > 0 or action.ended
            if not taken and action.host not in (None, home):
                after = scope_edits.with_action(after, replace(action, host=None, target_host=None))
        if after is not event:
            scope = scope_edits.with_event(scope, after)
    return scope


def found(scope: Scope, vm_name: str, host: str, *, now_ms: int, policy: Policy) -> Decision:
    """A host shows that it runs a VM that might run there: what waited to start it has ended."""
    vm = scope.vm(vm_name)
    if vm is None or vm.may_run_on != host:
        return Decision()
    for event in scope.events:
        for action in event.actions:
            if action.vm == vm_name and not action.ended and event.cause is Cause.FAILURE:
                there = replace(
                    unfinished_moves.looked_for(action, host), phase=ActionPhase.CLAIMED
                )
                waiting = scope_edits.with_action(event, there)
                return ending.report_for_event(
                    scope_edits.with_event(scope, waiting),
                    waiting,
                    there.action_id,
                    epoch=there.epoch,
                    outcome=Outcome.DONE,
                    detail="",
                    now_ms=now_ms,
                    policy=policy,
                )
    return Decision()


def waits_for_place(event: ScheduledEvent) -> bool:
    """True for the event of a failed host while one of its VMs has no host to start on."""
    return event.cause is Cause.FAILURE and any(
        action.host is None and not action.ended for action in event.actions
    )


def assign(scope: Scope, event: ScheduledEvent, fleet: Fleet, now_ms: int) -> Decision:
    """Give VMs of a failed host a place to start: the host itself if it is back, else another.

    Only a fenced host's VMs start elsewhere. VMs without a place wait until there is one.
    """
    home = fleet.host(event.host)
    if home is None:
        return Decision()
    planned: dict[str, int] = {}
    facts: list[Fact] = []
    for action in event.actions:
        if action.ended or action.host is not None:
            continue
        vm = scope.vm(action.vm or "")
        next_ = None
        if vm is not None:
            next_ = _placed(action, vm, scope=scope, home=home, fleet=fleet, planned=planned)
        if next_ is None or next_.host is None:
            continue
        planned[next_.host] = planned.get(next_.host, 0) + 1
        event = scope_edits.with_action(event, next_)
        facts.append(
            event_fact(
                FactKind.ASSIGNED,
                event,
                now_ms,
                host=next_.host,
                vm=next_.vm,
                detail=AssignedDetail(from_host=home.name, kind=next_.kind),
            )
        )
    if not facts:
        return Decision()
    return Decision(scopes=(scope_edits.with_event(scope, event),), facts=tuple(facts))


def start_on(
    scope: Scope,
    vm: Vm,
    host: Host,
    fleet: Fleet,
    *,
    break_domains: bool,
    reason: str,
    by: Who,
    now_ms: int,
) -> tuple[Decision, str]:
    """Start a VM of a failed host, which waits for a place, on the host that an operator names.

    Returns the decision and the event's id. Only `break_domains`, with a reason, puts it beside
    another update domain of its scope; nothing makes it start where it could run twice.
    """
    event, action = _waiting(scope, vm)
    _refuse_running_twice(event, vm, fleet)
    if host not in (place for place, _ in fleet.places()):
        raise HostUnfit(
            f"Host {host.name} cannot take {vm.name}: {placement.why_not(scope, host, fleet)}.",
            "`forewarn host list` shows those that are open and have room.",
        )
    beside = placement.domains_beside(scope, vm, host.name, fleet)
    if beside and not break_domains:
        raise TwoDomainsOnHost(
            f"Host {host.name} has update domain {', '.join(map(str, beside))} of {scope.name}"
            f" already; {vm.name} is of domain {vm.update_domain}.",
            "Name another host, or accept it with --break-domains and --reason TEXT.",
        )
    words = overrides.fitting(reason)
    if break_domains:
        words = overrides.need_reason(reason, "Breaking the domain rule needs a reason.")
    fact = event_fact(
        FactKind.ASSIGNED,
        event,
        now_ms,
        host=host.name,
        vm=vm.name,
        by=by,
        detail=AssignedDetail(from_host=event.host, broke_domains=tuple(beside), reason=words),
    )
    after = scope_edits.with_action(event, _at(action, vm, host.name))
    return Decision(scopes=(scope_edits.with_event(scope, after),), facts=(fact,)), event.event_id


def _waiting(scope: Scope, vm: Vm) -> tuple[ScheduledEvent, Action]:
    for event in scope.events:
        for action in event.actions if waits_for_place(event) else ():
            if action.vm == vm.name and action.host is None and not action.ended:
                return event, action
    raise VmHasHost(
        f"{vm.name} does not wait for a host: it is on {vm.host}.",
        "Only a VM of a failed host is started so; `forewarn vm redeploy` moves one that runs.",
    )


def _refuse_running_twice(event: ScheduledEvent, vm: Vm, fleet: Fleet) -> None:
    if not unfinished_moves.surely_off(event.host, fleet):
        raise HostUnfit(
            f"Host {event.host} may still run {vm.name}.",
            f"Say `forewarn host fail {event.host} --fenced` once it is surely off.",
        )
    other = unfinished_moves.other_host(vm, fleet)
    if other is not None:
        raise HostUnfit(
            f"{vm.name} was being moved to {other}, and may run there.",
            f"Say `forewarn host repair {other}`, or `forewarn host fail {other} --fenced`.",
        )


def _placed(
    action: Action,
    vm: Vm,
    *,
    scope: Scope,
    home: Host,
    fleet: Fleet,
    planned: Mapping[str, int],
) -> Action | None:
    """The action with the host that takes it now; None while it must wait.

    A VM that may run on another host is looked for: first at home, which knows when a move of it
    is over. If home is off it can only be on that other host, which looks before it starts it.
    """
    other = unfinished_moves.other_host(vm, fleet)
    if home.health is not Health.FAILED:
        if not fleet.alive(home.name):
            return None
        if other is not None and not vm.off:
            return unfinished_moves.looked_for(action, home.name)
        return _at(action, vm, home.name)
    if not home.fenced:
        return None
    target = other or placement.choose_target(scope, vm, fleet, planned)
    there = fleet.host(target) if target else None
    if there is None or there.health is Health.FAILED:
        return None  # as for the only host of the fleet: it has to come back
    return _at(action, vm, there.name)


def _at(action: Action, vm: Vm, host: str) -> Action:
    """The action as one that brings the VM back on this host; off, if it was switched off."""
    kind = ActionKind.DEFINE_VM if vm.off else ActionKind.START_VM
    return replace(action, kind=kind, host=host, target_host=host)
