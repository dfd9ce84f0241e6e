"""Small steps that several rules share: replacing parts of a scope, and sealing it.

No rule decides here; a function either edits a value or counts what was edited.
"""

from __future__ import annotations

from msgspec.structs import replace

from forewarn.core import document
from forewarn.core.lifecycle import Move, move
from forewarn.core.model import (
    OPEN,
    SECOND_MS,
    Action,
    ActionPhase,
    Outcome,
    ScheduledEvent,
    Scope,
    Vm,
)


def whole_second_ms(at_ms: int) -> int:
    """The first whole second not before `at_ms`: the wire shows seconds, and shows no less (N7)."""
    return -(-at_ms // SECOND_MS) * SECOND_MS


def with_event(scope: Scope, event: ScheduledEvent) -> Scope:
    """The scope with `event` in place of the one of the same id, or added as the newest."""
    events = list(scope.events)
    for place, known in enumerate(events):
        if known.event_id == event.event_id:
            events[place] = event
            break
    else:
        events.append(event)
    return replace(scope, events=tuple(events))


def with_vm(scope: Scope, vm: Vm) -> Scope:
    """The scope with `vm` in place of the one of the same name."""
    return replace(scope, vms=tuple(vm if v.name == vm.name else v for v in scope.vms))


def as_known(after: Vm, before: Vm) -> Vm:
    """A VM as it is described now, with what no description says of it."""
    return replace(
        after,
        may_run_on=before.may_run_on,
        off=before.off,
        went_down=before.went_down,
        has_polled=before.has_polled and after.vm_id == before.vm_id,
    )


def found_on(scope: Scope, vm: Vm, host: str) -> tuple[Scope, Vm]:
    """The scope with the VM on that host and surely nowhere else."""
    found = replace(vm, host=host, may_run_on=None)
    return (scope if found == vm else with_vm(scope, found)), found


def with_action(event: ScheduledEvent, action: Action) -> ScheduledEvent:
    """The event with `action` in place of the one of the same id."""
    actions = tuple(action if a.action_id == action.action_id else a for a in event.actions)
    return replace(event, actions=actions)


def end_action(action: Action, outcome: Outcome, detail: str) -> Action:
    """The action, ended by us and not by its host; a late report finds a newer epoch."""
    return replace(
        action,
        phase=ActionPhase.ENDED,
        epoch=action.epoch + 1,
        outcome=outcome,
        detail=detail,
    )


def end_event(event: ScheduledEvent, wanted: Move, now_ms: int, outcome: str) -> ScheduledEvent:
    """The event after its last move."""
    return replace(event, phase=move(event.phase, wanted), ended_ms=now_ms, outcome=outcome)


def cancel_event(event: ScheduledEvent, now_ms: int, reason: str) -> ScheduledEvent:
    return end_event(event, Move.CANCEL, now_ms, reason)


def seal(before: Scope | None, after: Scope) -> Scope:
    """Count the change: revision by one, incarnation by one if guests can see a difference (I4).

    Everything one use case does to a scope is sealed once, so guests see one step. Only where
    VMs join the scope may `after` say a higher incarnation: they may have read that of another.
    """
    if before is None:
        return after
    changed = document.changed(before, after)
    incarnation = before.incarnation + 1 if changed else before.incarnation
    if document.joined(before, after):
        incarnation = max(incarnation, after.incarnation)
    events = after.events
    unnumbered = [event for event in events if event.appeared_incarnation == 0]
    if any(event.visible for event in unnumbered):
        events = tuple(
            replace(event, appeared_incarnation=incarnation)
            if event.appeared_incarnation == 0 and event.visible
            else event
            for event in events
        )
    return replace(after, revision=before.revision + 1, incarnation=incarnation, events=events)


def open_only(scope: Scope) -> Scope:
    """The scope without the events that have ended, as memory keeps it."""
    going_on = [event for event in scope.events if event.phase in OPEN]
    return scope if len(going_on) == len(scope.events) else replace(scope, events=tuple(going_on))
