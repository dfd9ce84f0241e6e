"""Why has it not happened yet: for every event and operation not yet ended, what holds it.

The answers are the very holds that `starting` obeys, so an explanation cannot disagree with what
the ticker does.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from forewarn.core import placement, starting, unfinished_moves
from forewarn.core.fleet import Fleet
from forewarn.core.model import (
    Action,
    ActionPhase,
    Health,
    Operation,
    OperationPhase,
    Phase,
    ScheduledEvent,
    Scope,
    Vm,
)
from forewarn.core.starting import Hold, HoldReason


class Explanation(Struct, frozen=True, kw_only=True):
    """What an event or operation waits for.

    `until_ms` is the latest instant at which everything that holds it lets go by itself, or None
    where something depends on a person, a host or a guest.
    """

    phase: str
    holds: tuple[Hold, ...]

    @property
    def until_ms(self) -> int | None:
        latest = [hold.until_ms for hold in self.holds]
        known = [at_ms for at_ms in latest if at_ms is not None]
        return max(known) if known and len(known) == len(latest) else None


def explain_event(scope: Scope, event: ScheduledEvent, fleet: Fleet, now_ms: int) -> Explanation:
    """What the event waits for now."""
    operation = fleet.operation(event.operation_id) if event.operation_id else None
    if event.phase is Phase.STARTED:
        actions: tuple[Action, ...] = event.actions
        if operation is not None and operation.action is not None:
            actions = (operation.action,)
        holds = tuple(_action_holds(actions, event, fleet, now_ms))
    elif operation is not None and operation.whole_host:
        holds = starting.operation_holds(operation, fleet, now_ms)
    else:
        holds = starting.event_holds(event, scope, fleet, now_ms)
    return Explanation(phase=event.phase.value, holds=holds)


def explain_operation(operation: Operation, fleet: Fleet, now_ms: int) -> Explanation:
    """What the operation waits for now; a Redeploy waits for each of its events."""
    if operation.phase is OperationPhase.WAITING and operation.whole_host:
        holds = starting.operation_holds(operation, fleet, now_ms)
        return Explanation(phase=operation.phase.value, holds=holds)
    found: list[Hold] = []
    for scope_name, event_id in operation.members:
        scope = fleet.scope(scope_name)
        event = scope.event(event_id) if scope else None
        if scope is not None and event is not None:
            found.extend(explain_event(scope, event, fleet, now_ms).holds)
    unique = tuple(dict.fromkeys(found))
    return Explanation(phase=operation.phase.value, holds=unique)


def _action_holds(
    actions: tuple[Action, ...], event: ScheduledEvent, fleet: Fleet, now_ms: int
) -> Iterable[Hold]:
    for action in actions:
        if action.ended:
            continue
        subject = action.vm or f"host {action.host}"
        if action.host is None:
            yield _no_host_hold(action, event, fleet)
        elif of_host := tuple(starting.host_holds(action.host, fleet, now_ms)):
            yield from of_host
        elif action.phase is ActionPhase.PENDING:
            yield Hold(
                reason=HoldReason.UNCLAIMED,
                what=f"host {action.host} has not taken {action.kind.value} of {subject} yet",
                since_ms=event.started_ms,
                until_ms=event.deadline_ms,
                remedy="The host takes it with its next look.",
            )
        else:
            yield Hold(
                reason=HoldReason.RUNNING,
                what=f"host {action.host} is at work: {action.kind.value} of {subject}",
                since_ms=event.started_ms,
                until_ms=event.deadline_ms,
                remedy="Its report.",
            )


def _accept_domains(scope: Scope, vm: Vm, fleet: Fleet) -> str:
    """The order that takes a place which only the rule of domains denies; empty if none does."""
    held = placement.held_by_domains(scope, vm, fleet)
    if not held:
        return ""
    return (
        f" Or accept two update domains of {scope.name} on one host: `forewarn vm start {vm.name}"
        f" --on {held[0]} --break-domains --reason TEXT`."
    )


def _no_host_hold(action: Action, event: ScheduledEvent, fleet: Fleet) -> Hold:
    scope = fleet.scope(event.scope)
    vm = scope.vm(action.vm or "") if scope else None
    other = unfinished_moves.other_host(vm, fleet) if vm else None
    words = f"{action.vm} was on the failed host {event.host} and has nowhere to start yet"
    if other is not None:
        words = f"{action.vm} was being moved from the failed host {event.host} to {other}; it "
        words += "may run on either, so it starts nowhere yet"
    host = fleet.host(event.host)
    fenced = host is not None and host.fenced
    failed = host is not None and host.health is Health.FAILED
    if failed and not fenced:
        remedy = (
            f"`forewarn host fail {event.host} --fenced` once the host is surely off, "
            f"or `forewarn host repair {event.host}` once it is back."
        )
    elif other is not None:
        remedy = (
            f"`forewarn host repair {other}` once it is back, "
            f"or `forewarn host fail {other} --fenced` once it is surely off."
        )
    else:
        remedy = "An open host with a free place: `forewarn host list`, `forewarn host open NAME`."
        if scope is not None and vm is not None:
            words += f" ({placement.why_no_target(scope, vm, fleet)})"
            remedy += _accept_domains(scope, vm, fleet)
    return Hold(
        reason=HoldReason.NO_HOST,
        what=words,
        since_ms=event.started_ms,
        until_ms=event.deadline_ms,
        remedy=remedy,
    )
