"""From the claim of an action to the end of its event: claims, reports, deadlines.

What a host did changes the fleet here and only here: a moved VM gets its new host, a deleted one
is gone, and both leave their other scheduled events.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from forewarn.core import (
    avoiding,
    placement,
    recovering,
    scheduling,
    scope_edits,
    unfinished_moves,
    windows,
)
from forewarn.core.errors import NotFound, StaleReport
from forewarn.core.facts import (
    ClaimedDetail,
    CompletedDetail,
    FailedDetail,
    HeldDetail,
    MovedDetail,
    ReportedDetail,
    event_fact,
    operation_fact,
)
from forewarn.core.fleet import Fleet
from forewarn.core.lifecycle import Move
from forewarn.core.model import (
    Action,
    ActionKind,
    ActionPhase,
    Decision,
    EndedAs,
    EventType,
    Fact,
    FactKind,
    Operation,
    OperationPhase,
    Outcome,
    Phase,
    Policy,
    ScheduledEvent,
    Scope,
    ScopeHold,
)

LOST = "no report by the deadline"
COMPLETED = "completed"

# What says, when it is done, where a VM runs.
_PLACING = (
    ActionKind.MOVE_VM,
    ActionKind.START_VM,
    ActionKind.DEFINE_VM,
    ActionKind.FIND_VM,
)


def claimed(action: Action, boot_id: str) -> Action:
    """The action as taken by its host, under a new epoch.

    The first claim of a host reboot remembers the boot id; a later claim that sees another one
    knows that the reboot has happened.
    """
    return replace(
        action,
        phase=ActionPhase.CLAIMED,
        epoch=action.epoch + 1,
        boot_id=boot_id if action.boot_id is None else action.boot_id,
    )


def _claim_fact(action: Action, now_ms: int) -> Fact:
    return Fact(
        kind=FactKind.CLAIMED,
        at_ms=now_ms,
        host=action.host,
        vm=action.vm,
        detail=ClaimedDetail(action_id=action.action_id, epoch=action.epoch),
    )


def claim_for_event(
    scope: Scope, event: ScheduledEvent, action: Action, *, boot_id: str, now_ms: int
) -> tuple[Decision, Action]:
    """A host takes one action of an event."""
    taken = claimed(action, boot_id)
    event = scope_edits.with_action(event, taken)
    fact = replace(_claim_fact(taken, now_ms), scope=scope.name, event_id=event.event_id)
    return Decision(scopes=(scope_edits.with_event(scope, event),), facts=(fact,)), taken


def claim_for_operation(
    operation: Operation, action: Action, *, boot_id: str, now_ms: int
) -> tuple[Decision, Action]:
    """A host takes the action that an operation does to it."""
    taken = claimed(action, boot_id)
    fact = replace(_claim_fact(taken, now_ms), operation_id=operation.operation_id)
    return Decision(operations=(replace(operation, action=taken),), facts=(fact,)), taken


def repeats(action: Action, epoch: int, outcome: Outcome) -> bool:
    """True if a report says what is already written: its answer was lost on the way."""
    return action.ended and action.epoch == epoch and action.outcome is outcome


def _refuse_stale(action: Action, epoch: int, outcome: Outcome) -> bool:
    """True if the report only repeats what is already written; refuses what is not current."""
    if repeats(action, epoch, outcome):
        return True
    if action.phase is not ActionPhase.CLAIMED or action.epoch != epoch:
        raise StaleReport(
            f"The report on action {action.action_id} is for epoch {epoch}; "
            f"it is {action.phase.value} at epoch {action.epoch}.",
            "Drop the report: the claim was lost, and the host with the next one looks for itself.",
        )
    return False


def report_for_event(
    scope: Scope,
    event: ScheduledEvent,
    action_id: str,
    *,
    epoch: int,
    outcome: Outcome,
    detail: str,
    now_ms: int,
    policy: Policy,
) -> Decision:
    """A host says how an action of an event ended. The last report ends the event."""
    action = next((a for a in event.actions if a.action_id == action_id), None)
    if action is None:
        raise NotFound(f"Event {event.event_id} has no action {action_id}.")
    if _refuse_stale(action, epoch, outcome):
        return Decision()
    ended = replace(action, phase=ActionPhase.ENDED, outcome=outcome, detail=detail)
    facts = [replace(_report_fact(ended, now_ms), scope=scope.name, event_id=event.event_id)]
    if action.kind is ActionKind.FIND_VM and outcome is not Outcome.DONE:
        scope, _ = unfinished_moves.not_found(scope, event, action)
        return Decision(scopes=(scope,), facts=tuple(facts))
    event = scope_edits.with_action(event, ended)
    scope = scope_edits.with_event(scope, event)
    if outcome is Outcome.DONE:
        scope, new_facts = _take_effect(scope, event, ended, now_ms)
        facts.extend(new_facts)
    elif outcome is Outcome.LOST:
        scope, new_facts = unfinished_moves.unsure(scope, ended, now_ms)
        facts.extend(new_facts)
    if all(a.ended for a in event.actions):
        scope, new_facts = finish_event(scope, event, now_ms=now_ms, policy=policy)
        facts.extend(new_facts)
    return Decision(scopes=(scope,), facts=tuple(facts))


def late_report(
    scope: Scope,
    event: ScheduledEvent,
    action: Action,
    *,
    epoch: int,
    outcome: Outcome,
    now_ms: int,
) -> Decision:
    """A host says how an action ended that was already given up as lost.

    The event stays failed, but the VM is where it is: what was really done takes effect. Only the
    last holder of the claim is believed, and only while nothing else has happened to the VM.
    """
    vm = scope.vm(action.vm or "")
    if action.outcome is not Outcome.LOST or not 0 < epoch == action.epoch - 1:
        raise StaleReport(
            f"The report on action {action.action_id} is for a claim that is no longer held.",
            "Drop it: its event has ended.",
        )
    if vm is None or vm.host != event.host:
        return Decision()
    facts: tuple[Fact, ...] = ()
    if outcome is Outcome.DONE:
        scope, facts = _take_effect(scope, event, action, now_ms)
    elif outcome is not Outcome.LOST:  # it has not come to where it was being brought
        scope = unfinished_moves.not_on_target(scope, vm, action)
    done = replace(action, epoch=epoch, outcome=outcome, detail="late")
    fact = replace(_report_fact(done, now_ms), scope=scope.name, event_id=event.event_id)
    return Decision(scopes=(scope,), facts=(fact, *facts))


def _report_fact(action: Action, now_ms: int) -> Fact:
    return Fact(
        kind=FactKind.REPORTED,
        at_ms=now_ms,
        host=action.host,
        vm=action.vm,
        detail=ReportedDetail(
            action_id=action.action_id,
            epoch=action.epoch,
            outcome=action.outcome,
            detail=action.detail,
        ),
    )


def _take_effect(
    scope: Scope, event: ScheduledEvent, action: Action, now_ms: int
) -> tuple[Scope, tuple[Fact, ...]]:
    vm = scope.vm(action.vm) if action.vm else None
    if vm is None:
        return scope, ()
    if action.kind is ActionKind.DELETE_VM:
        scope = replace(
            scope,
            vms=tuple(v for v in scope.vms if v.name != vm.name),
            deleted=(*scope.deleted, vm.name),
        )
        scope, back = recovering.vm_returned(scope, vm.name, now_ms)
        scope, left = avoiding.vm_leaves(
            scope, vm.name, because="deleted", now_ms=now_ms, except_event=event.event_id
        )
        fact = event_fact(FactKind.DELETED, event, now_ms, host=vm.host, vm=vm.name)
        return scope, (fact, *back, *left)
    new_host = action.target_host
    if action.kind not in _PLACING or new_host is None:
        return scope, ()
    scope, _ = scope_edits.found_on(scope, vm, new_host)
    if new_host == vm.host:
        return scope, ()  # a restart in place moves nothing: other notices of this host still hold
    scope, left = avoiding.vm_leaves(
        scope, vm.name, because=f"moved to {new_host}", now_ms=now_ms, except_event=event.event_id
    )
    moved = MovedDetail(from_host=vm.host)
    fact = event_fact(FactKind.MOVED, event, now_ms, host=new_host, vm=vm.name, detail=moved)
    return scope, (fact, *left)


def finish_event(
    scope: Scope, event: ScheduledEvent, *, now_ms: int, policy: Policy, failure: str = ""
) -> tuple[Scope, tuple[Fact, ...]]:
    """End a started event whose actions have all ended: completed, or failed if one went badly.

    A completed Reboot or Redeploy leaves its domain recovering. A failed event holds the platform
    events of its scope, unless it only waited too long for VMs that are off, or spared one.
    """
    bad = [a for a in event.actions if a.outcome is not Outcome.DONE]
    reason = failure or "; ".join(f"{a.vm}: {a.detail or a.outcome}" for a in bad)
    if reason:
        return _fail_event(scope, event, now_ms, reason)
    scope = scope_edits.with_event(
        scope, scope_edits.end_event(event, Move.COMPLETE, now_ms, "completed")
    )
    fact = event_fact(FactKind.COMPLETED, event, now_ms)
    if event.event_type not in (EventType.REBOOT, EventType.REDEPLOY):
        return scope, (fact,)
    awaited = tuple(vm.name for vm in scope.vms if vm.name in event.resources and not vm.off)
    scope, facts = recovering.begin_recovery(
        scope, event.update_domain, awaited, now_ms, policy.domain_recovery_ms
    )
    return scope, (fact, *facts)


def _fail_event(
    scope: Scope, event: ScheduledEvent, now_ms: int, reason: str
) -> tuple[Scope, tuple[Fact, ...]]:
    scope = scope_edits.with_event(scope, scope_edits.end_event(event, Move.FAIL, now_ms, reason))
    facts = [event_fact(FactKind.FAILED, event, now_ms, detail=FailedDetail(reason=reason))]
    # A VM that is off and waits too long for its host impacts no guest and holds up no event.
    lost = all(action.outcome is Outcome.LOST for action in event.actions)
    waited = lost and placement.all_off(scope, event)
    bad = {action.outcome for action in event.actions if action.outcome is not Outcome.DONE}
    harmless = waited or bad == {Outcome.SPARED}
    if scope.hold is None and not harmless:
        hold = ScopeHold(since_ms=now_ms, event_id=event.event_id, reason=reason)
        scope = replace(scope, hold=hold)
        facts.append(
            event_fact(
                FactKind.HELD,
                event,
                now_ms,
                detail=HeldDetail(release=f"forewarn scope release {scope.name}"),
            )
        )
    return scope, tuple(facts)


def report_for_operation(
    operation: Operation,
    fleet: Fleet,
    *,
    epoch: int,
    outcome: Outcome,
    detail: str,
    now_ms: int,
    policy: Policy,
) -> Decision:
    """A host says how its own freeze or reboot ended; every event of the operation ends with it."""
    action = operation.action
    if action is None:
        raise NotFound(f"Operation {operation.operation_id} has not started.")
    if _refuse_stale(action, epoch, outcome):
        return Decision()
    ended = replace(action, phase=ActionPhase.ENDED, outcome=outcome, detail=detail)
    fact = replace(_report_fact(ended, now_ms), operation_id=operation.operation_id)
    failure = "" if outcome is Outcome.DONE else (detail or outcome.value)
    decision = end_operation(
        replace(operation, action=ended), fleet, failure=failure, now_ms=now_ms, policy=policy
    )
    return replace(decision, facts=(fact, *decision.facts))


def end_operation(
    operation: Operation, fleet: Fleet, *, failure: str, now_ms: int, policy: Policy
) -> Decision:
    """End a started Freeze or Reboot of a host together with its events."""
    scopes: dict[str, Scope] = {}
    facts: list[Fact] = []
    for scope_name, event_id in operation.members:
        scope = scopes.get(scope_name) or fleet.scope(scope_name)
        event = scope.event(event_id) if scope else None
        if scope is None or event is None or event.phase is not Phase.STARTED:
            continue
        scopes[scope_name], new_facts = finish_event(
            scope, event, now_ms=now_ms, policy=policy, failure=failure
        )
        facts.extend(new_facts)
    facts.append(
        operation_fact(
            FactKind.FAILED if failure else FactKind.COMPLETED,
            operation,
            now_ms,
            detail=FailedDetail(reason=failure) if failure else None,
        )
    )
    ended = replace(
        operation,
        phase=OperationPhase.ENDED,
        ended_ms=now_ms,
        outcome=failure or operation.outcome or COMPLETED,
    )
    return Decision(scopes=tuple(scopes.values()), operations=(ended,), facts=tuple(facts))


def ended_as(operation: Operation) -> EndedAs | None:
    """How an operation ended, in one word; None while it has not."""
    if operation.phase is not OperationPhase.ENDED:
        return None
    if operation.outcome == COMPLETED:
        return EndedAs.COMPLETED
    if operation.outcome.startswith(windows.WITHDRAWN):
        return EndedAs.WITHDRAWN
    called_off = operation.outcome in (scheduling.CANCELED, scheduling.HOST_REPAIRED)
    if called_off or operation.started_ms is None:  # its host failed before it had begun
        return EndedAs.CANCELED
    return EndedAs.FAILED


def _of_moves(events: Sequence[ScheduledEvent]) -> tuple[FactKind, str]:
    """What became of a Redeploy, by its events."""
    failed = [event for event in events if event.phase is Phase.FAILED]
    if failed:
        first = failed[0].outcome
        return FactKind.FAILED, f"{len(failed)} of {len(events)} events failed, the first: {first}"
    late = [event for event in events if event.outcome.startswith(windows.WITHDRAWN)]
    return FactKind.COMPLETED, late[0].outcome if late else COMPLETED


def settle_operation(
    operation: Operation, fleet: Fleet, events: Sequence[ScheduledEvent], now_ms: int
) -> Decision:
    """End a Redeploy operation all of whose events have ended; `events` are those, as they did."""
    for scope_name, event_id in operation.members:
        scope = fleet.scope(scope_name)
        if scope is not None and scope.event(event_id) is not None:
            return Decision()
    kind, outcome = _of_moves(events)
    if operation.outcome:  # it was canceled or withdrawn while moves were under way
        kind, outcome = FactKind.COMPLETED, operation.outcome
    how = FailedDetail if kind is FactKind.FAILED else CompletedDetail
    fact = operation_fact(kind, operation, now_ms, detail=how(outcome=outcome))
    ended = replace(operation, phase=OperationPhase.ENDED, ended_ms=now_ms, outcome=outcome)
    return Decision(operations=(ended,), facts=(fact,))


def expire_event(scope: Scope, event: ScheduledEvent, *, now_ms: int, policy: Policy) -> Decision:
    """Fail a started event whose reports did not come by its deadline: its actions are lost."""
    for action in event.actions:
        if not action.ended:
            scope = unfinished_moves.unreported(scope, action)
            event = scope_edits.with_action(
                event, scope_edits.end_action(action, Outcome.LOST, LOST)
            )
    scope = scope_edits.with_event(scope, event)
    scope, facts = finish_event(
        scope, event, now_ms=now_ms, policy=policy, failure="" if event.actions else LOST
    )
    return Decision(scopes=(scope,), facts=facts)


def expire_operation(
    operation: Operation, fleet: Fleet, *, now_ms: int, policy: Policy
) -> Decision:
    """Fail a started operation whose report did not come by its deadline."""
    action = operation.action
    if action is not None and not action.ended:
        lost = scope_edits.end_action(action, Outcome.LOST, LOST)
        operation = replace(operation, action=lost)
    return end_operation(operation, fleet, failure=LOST, now_ms=now_ms, policy=policy)
