"""What time causes. One tick surveys everything open and names the commands that may be due.

A survey only nominates: each command decides again for itself, in its own transaction, so a
survey that is late, repeated or lost does no harm. Oldest due first; a held operation reserves
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from forewarn.control.dispatch import HOST_SILENT_AFTER_MS, declare_if_stranded, host_silent
from forewarn.control.memory import Transaction
from forewarn.control.writer import Command
from forewarn.core import consent, ending, explain, failing, notice, planning, scheduling, starting
from forewarn.core.model import (
    Cause,
    EventType,
    Fact,
    FactKind,
    Operation,
    OperationPhase,
    Phase,
    ScheduledEvent,
    Scope,
)

COMMANDS_PER_TICK_MAX = 1_000
HEARTBEAT_EVERY_MS = 5_000

Nominated = list[Command[Any]]


def survey(tx: Transaction) -> Nominated:
    """Everything that time may have made possible, in the order it should be tried."""
    found: Nominated = []
    found.extend(_housekeeping(tx))
    found.extend(_of_operations(tx))
    found.extend(_starts(tx))
    return found[:COMMANDS_PER_TICK_MAX]


def _housekeeping(tx: Transaction) -> Iterator[Command[Any]]:
    for scope in tx.memory.scopes.values():
        unpolled_ms = tx.now_ms - (scope.polled_ms or tx.now_ms)
        if scope.enabled and unpolled_ms >= notice.ENABLED_FOR_MS:
            yield disable(scope.name)
    running: set[str] = set()  # hosts on which somebody's notice runs
    for name in sorted(tx.memory.busy_scopes):
        scope = tx.memory.scopes[name]
        if any(tx.now_ms >= recovery.until_ms for recovery in scope.recoveries):
            yield end_recoveries(name)
        for event in scope.events:
            if consent.notice_runs(event):
                running.add(event.host)
            yield from _of_started(tx, event)
    for host in sorted(running):
        if tx.memory.liveness.silent_ms(host) >= HOST_SILENT_AFTER_MS:
            yield host_silent(host)


def _of_started(tx: Transaction, event: ScheduledEvent) -> Iterator[Command[Any]]:
    if _expired(tx, event):
        yield expire_event(event.scope, event.event_id)
    elif event.cause is Cause.FAILURE and any(
        action.host is None and not action.ended for action in event.actions
    ):
        scope = tx.memory.scopes[event.scope]
        if failing.assign(scope, event, tx, tx.now_ms).scopes:  # else there is no place yet
            yield assign(event.scope, event.event_id)


def _expired(tx: Transaction, event: ScheduledEvent) -> bool:
    """True for a started event of its own past its deadline; an operation's end with it."""
    if event.phase is not Phase.STARTED or event.deadline_ms is None:
        return False
    operation = tx.operation(event.operation_id) if event.operation_id else None
    return tx.now_ms >= event.deadline_ms and not explain.whole_host(operation)


def _of_operations(tx: Transaction) -> Iterator[Command[Any]]:
    for operation in sorted(tx.memory.operations.values(), key=lambda o: o.ordered_ms):
        whole_host = explain.whole_host(operation)
        if operation.deadline_ms is not None and tx.now_ms >= operation.deadline_ms:
            yield expire_operation(operation.operation_id)
        elif whole_host and operation.phase is OperationPhase.STARTED:
            continue
        elif _untold(tx, operation):
            yield tell_newcomers(operation.operation_id)
        elif not whole_host and _has_ended(tx, operation):
            yield settle_operation(operation.operation_id)


def _has_ended(tx: Transaction, operation: Operation) -> bool:
    scopes = ((tx.scope(name), event_id) for name, event_id in operation.members)
    return all(scope is None or scope.event(event_id) is None for scope, event_id in scopes)


def _untold(tx: Transaction, operation: Operation) -> tuple[planning.Group, ...]:
    """VMs that came to the host of an operation after it was announced, as groups.

    A Redeploy tells each VM once; whether its move then failed is for the operator to see.
    """
    if operation.outcome:  # canceled: nobody is told of it any more
        return ()
    told = set(operation.named)
    if explain.whole_host(operation):
        told = set()
        for scope_name, event_id in operation.members:
            scope = tx.scope(scope_name)
            event = scope.event(event_id) if scope else None
            told.update(event.resources if event else ())
    return tuple(
        group
        for scope in tx.scopes_on(operation.host)
        for group in planning.groups_of(
            scope,
            operation.host,
            tuple(
                v
                for v in scope.vms
                if v.host == operation.host
                and v.name not in told
                and not (v.off and explain.whole_host(operation))
            ),
        )
    )


def _starts(tx: Transaction) -> Iterator[Command[Any]]:
    """Operations and events that nothing holds now, oldest due first.

    What is held is left out here, so that any number of held ones leave room for the others.
    """
    candidates: list[tuple[int, int, str, Command[Any]]] = []
    for name in sorted(tx.memory.busy_scopes):
        scope = tx.memory.scopes[name]
        for event in scope.events:
            operation = tx.operation(event.operation_id) if event.operation_id else None
            if event.phase is not Phase.SCHEDULED or explain.whole_host(operation):
                continue
            if not starting.due(scope, event, tx.now_ms):
                continue
            if starting.event_holds(event, scope, tx, tx.now_ms):
                continue
            unasked = starting.unasked(scope, event)
            due_ms = notice.due_from_ms(event, unasked=unasked) or 0
            command = start_event(name, event.event_id)
            candidates.append((due_ms, event.scheduled_ms, event.event_id, command))
    for operation in tx.memory.operations.values():
        if operation.phase is OperationPhase.WAITING and explain.whole_host(operation):
            if not _notice_given(tx, operation):  # most that wait; cheaper than all their holds
                continue
            if starting.operation_holds(operation, tx, tx.now_ms):
                continue
            key = (_due_from_ms(tx, operation), operation.ordered_ms, operation.operation_id)
            candidates.append((*key, start_operation(operation.operation_id)))
    candidates.sort(key=lambda candidate: candidate[:3])
    return (command for *_, command in candidates)


def _open_events(tx: Transaction, operation: Operation) -> Iterator[ScheduledEvent]:
    """Those that the operation waits for: not those of VMs that are off."""
    for scope_name, event_id in operation.members:
        scope = tx.scope(scope_name)
        event = scope.event(event_id) if scope else None
        if scope is not None and event is not None and not planning.all_off(scope, event):
            yield event


def _notice_given(tx: Transaction, operation: Operation) -> bool:
    return all(notice.due(event, tx.now_ms) for event in _open_events(tx, operation))


def _due_from_ms(tx: Transaction, operation: Operation) -> int:
    """When the last event of an operation that nothing holds became due."""
    latest_ms = operation.ordered_ms
    for event in _open_events(tx, operation):
        latest_ms = max(latest_ms, notice.due_from_ms(event) or 0)
    return latest_ms


# The commands. Each looks again, because what was true in the survey may no longer be.


def start_event(scope_name: str, event_id: str) -> Command[bool]:
    """Start an event if nothing holds it."""

    def command(tx: Transaction) -> bool:
        scope, event = _open_event(tx, scope_name, event_id)
        if scope is None or event is None or event.phase is not Phase.SCHEDULED:
            return False
        if starting.event_holds(event, scope, tx, tx.now_ms):
            return False
        tx.apply(starting.start_event(scope, event, tx, now_ms=tx.now_ms, policy=tx.policy))
        return True

    return command


def start_operation(operation_id: str) -> Command[bool]:
    """Start an operation, with all its events and in one transaction, if nothing holds it."""

    def command(tx: Transaction) -> bool:
        operation = tx.operation(operation_id)
        if operation is None or operation.phase is not OperationPhase.WAITING:
            return False
        if starting.operation_holds(operation, tx, tx.now_ms):
            return False
        tx.apply(starting.start_operation(operation, tx, now_ms=tx.now_ms, policy=tx.policy))
        return True

    return command


def tell_newcomers(operation_id: str) -> Command[None]:
    """Give VMs that arrived at an operation's host their own event and full notice."""

    def command(tx: Transaction) -> None:
        operation = tx.operation(operation_id)
        if operation is None:
            return
        tx.apply(
            scheduling.announce(
                operation,
                _untold(tx, operation),
                tx,
                ids=tx.ids(),
                now_ms=tx.now_ms,
                policy=tx.policy,
            )
        )

    return command


def settle_operation(operation_id: str) -> Command[None]:
    def command(tx: Transaction) -> None:
        operation = tx.operation(operation_id)
        if operation is not None and operation.event_type is EventType.REDEPLOY:
            tx.apply(ending.settle_operation(operation, tx, tx.now_ms))

    return command


def expire_event(scope_name: str, event_id: str) -> Command[None]:
    def command(tx: Transaction) -> None:
        scope, event = _open_event(tx, scope_name, event_id)
        if scope is None or event is None or not _expired(tx, event):
            return
        tx.apply(ending.expire_event(scope, event, now_ms=tx.now_ms, policy=tx.policy))
        for name in event.resources:
            declare_if_stranded(tx, name, by="ticker")

    return command


def expire_operation(operation_id: str) -> Command[None]:
    def command(tx: Transaction) -> None:
        operation = tx.operation(operation_id)
        if operation is None or operation.deadline_ms is None:
            return
        if tx.now_ms >= operation.deadline_ms:
            tx.apply(ending.expire_operation(operation, tx, now_ms=tx.now_ms, policy=tx.policy))

    return command


def assign(scope_name: str, event_id: str) -> Command[None]:
    def command(tx: Transaction) -> None:
        scope, event = _open_event(tx, scope_name, event_id)
        if scope is not None and event is not None and event.phase is Phase.STARTED:
            tx.apply(failing.assign(scope, event, tx, tx.now_ms))

    return command


def end_recoveries(scope_name: str) -> Command[None]:
    def command(tx: Transaction) -> None:
        scope = tx.scope(scope_name)
        if scope is not None:
            tx.apply(consent.end_recoveries(scope, tx.now_ms))

    return command


def disable(scope_name: str) -> Command[None]:
    def command(tx: Transaction) -> None:
        scope = tx.scope(scope_name)
        if scope is not None:
            tx.apply(consent.disable_if_silent(scope, tx.now_ms))

    return command


def _open_event(
    tx: Transaction, scope_name: str, event_id: str
) -> tuple[Scope | None, ScheduledEvent | None]:
    scope = tx.scope(scope_name)
    return scope, scope.event(event_id) if scope else None


# Time that was lost.


def heartbeat(tx: Transaction) -> None:
    """Write down that the service is up; a gap between two of these is a downtime."""
    tx.beat()


def clock_stepped(stepped_ms: int) -> Command[None]:
    """Take a step of the wall clock out of every notice, deadline and recovery."""

    def command(tx: Transaction) -> None:
        for scope in list(tx.memory.scopes.values()):
            tx.apply(consent.clock_stepped(scope, stepped_ms))
        for operation in list(tx.memory.operations.values()):
            tx.apply(consent.operation_loses_time(operation, stepped_ms))
        tx.beat()
        tx.note(
            Fact(
                kind=FactKind.CLOCK_STEPPED,
                at_ms=tx.now_ms,
                detail={"stepped_ms": stepped_ms},
            )
        )

    return command


def stalled(stalled_ms: int) -> Command[None]:
    """Take time in which the process stood still out of every notice: nobody could read."""

    def command(tx: Transaction) -> None:
        for name in list(tx.memory.busy_scopes):
            tx.apply(
                consent.not_heard(
                    tx.need_scope(name), host=None, lost_ms=stalled_ms, now_ms=tx.now_ms
                )
            )
        tx.note(Fact(kind=FactKind.DOWNTIME, at_ms=tx.now_ms, detail={"lost_ms": stalled_ms}))

    return command


def was_down(since_ms: int | None) -> Command[None]:
    """Take the time since the last heartbeat, in which nobody could read, out of every notice.

    Which hosts had fallen silent just before that died with the process, so every notice also
    loses as long as such a silence may have gone unnoticed.
    """

    def command(tx: Transaction) -> None:
        if since_ms is not None:
            _lose_downtime(tx, since_ms)
        tx.beat()

    return command


def _lose_downtime(tx: Transaction, since_ms: int) -> None:
    down_ms = tx.now_ms - since_ms
    for name in list(tx.memory.scopes):
        scope = tx.need_scope(name)
        tx.apply(consent.was_down(scope, down_ms))
        tx.apply(
            consent.not_heard(
                tx.need_scope(name),
                host=None,
                lost_ms=down_ms + HOST_SILENT_AFTER_MS,
                now_ms=tx.now_ms,
            )
        )
    for operation in list(tx.memory.operations.values()):
        tx.apply(consent.operation_loses_time(operation, down_ms))
    tx.note(Fact(kind=FactKind.DOWNTIME, at_ms=tx.now_ms, detail={"lost_ms": down_ms}))
