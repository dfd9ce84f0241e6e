"""What time causes. One tick surveys the scopes that are due for a look and names commands.

A survey only nominates: each command decides again for itself, in its own transaction, so a
survey that is late, repeated or lost does no harm. Oldest due first; a held operation reserves
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct, field

from forewarn.control import commands
from forewarn.control.commands import Command
from forewarn.control.fleet_reader import FleetLook
from forewarn.control.hosts.action_claims import declare_if_stranded
from forewarn.control.transaction import Transaction
from forewarn.core import (
    ending,
    hosts,
    lost_time,
    notice,
    placement,
    polls_and_approvals,
    scheduling,
    starting,
    windows,
)
from forewarn.core.errors import Refusal
from forewarn.core.facts import ClockSteppedDetail, DowntimeDetail
from forewarn.core.model import (
    Fact,
    FactKind,
    Operation,
    OperationPhase,
    Phase,
    ScheduledEvent,
    Scope,
)
from forewarn.core.principal import TICKER

COMMANDS_PER_TICK_MAX = 1_000
STARTED_TOGETHER_MAX = 64  # events of one scope in one command
HEARTBEAT_EVERY_MS = 5_000

Nominated = list[Command[Any]]


class Start(Struct, frozen=True):
    """Something that nothing holds now. The oldest due is tried first."""

    due_ms: int
    ordered_ms: int
    of: str
    command: Command[Any]

    @property
    def turn(self) -> tuple[int, int, str]:
        return self.due_ms, self.ordered_ms, self.of


class Survey(Struct):
    """What may be due, gathered from as many looks as one likes. Nothing here changes anything."""

    housekeeping: Nominated = field(default_factory=list)
    operations: Nominated = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)

    def scopes(self, fleet: FleetLook, scopes: Iterable[Scope]) -> None:
        """Look at these scopes and their events."""
        for scope in scopes:
            self.housekeeping.extend(_of_scope(fleet, scope))
            self.starts.extend(_event_starts(fleet, scope))

    def silent_hosts(self, fleet: FleetLook, told: Iterable[str]) -> None:
        """Look at the hosts on which a notice runs."""
        for host in sorted(told):
            if fleet.silent_ms(host) >= notice.HOST_SILENT_AFTER_MS:
                self.housekeeping.append(commands.HostIsSilent(by=TICKER, host=host))

    def whole_operations(self, fleet: FleetLook) -> None:
        """Look at everything that is done to hosts."""
        self.operations.extend(_of_operations(fleet))
        self.starts.extend(_operation_starts(fleet))

    def nominated(self) -> Nominated:
        """The commands, in the order in which they should be tried."""
        starts = [start.command for start in sorted(self.starts, key=lambda start: start.turn)]
        return [*self.housekeeping, *self.operations, *starts][:COMMANDS_PER_TICK_MAX]


def survey(fleet: FleetLook) -> Nominated:
    """Everything that time may have made possible in the whole fleet, in the order to try it."""
    found = Survey()
    scopes = [fleet.scopes[name] for name in sorted(fleet.scopes)]
    found.scopes(fleet, scopes)
    found.silent_hosts(
        fleet, {event.host for s in scopes for event in s.events if lost_time.notice_runs(event)}
    )
    found.whole_operations(fleet)
    return found.nominated()


def _of_scope(fleet: FleetLook, scope: Scope) -> Iterator[Command[Any]]:
    unpolled_ms = fleet.now_ms - (scope.polled_ms or fleet.now_ms)
    if scope.enabled and unpolled_ms >= notice.ENABLED_FOR_MS:
        yield commands.DisableScope(by=TICKER, scope=scope.name)
    if any(fleet.now_ms >= recovery.until_ms for recovery in scope.recoveries):
        yield commands.EndRecoveries(by=TICKER, scope=scope.name)
    for event in scope.events:
        if _expired(fleet, event):
            yield commands.ExpireEvent(by=TICKER, scope=scope.name, event_id=event.event_id)
        elif _withdrawn(fleet, event):
            yield commands.WithdrawEvent(by=TICKER, scope=scope.name, event_id=event.event_id)
        elif _has_place(fleet, scope, event):
            yield commands.AssignPlace(by=TICKER, scope=scope.name, event_id=event.event_id)


def _has_place(fleet: FleetLook, scope: Scope, event: ScheduledEvent) -> bool:
    """True if a VM of a failed host that waits for a place could have one now."""
    if not hosts.waits_for_place(event):
        return False
    return bool(hosts.assign(scope, event, fleet, fleet.now_ms).scopes)


def _expired(fleet: FleetLook, event: ScheduledEvent) -> bool:
    """True for a started event of its own past its deadline; an operation's end with it."""
    if event.phase is not Phase.STARTED or event.deadline_ms is None:
        return False
    operation = fleet.operation(event.operation_id) if event.operation_id else None
    of_host = operation is not None and operation.whole_host
    return fleet.now_ms >= event.deadline_ms and not of_host


def _withdrawn(fleet: FleetLook, event: ScheduledEvent) -> bool:
    """True for an event of its own whose window has closed; an operation withdraws its events."""
    if event.phase is not Phase.SCHEDULED:
        return False
    if not windows.closed_for_good(event.window, fleet.now_ms):
        return False
    return event.operation_id is None or fleet.operation(event.operation_id) is None


def _operation_withdrawn(fleet: FleetLook, operation: Operation) -> bool:
    """True if something of an operation has not started, and its window has closed."""
    begun = operation.whole_host and operation.phase is not OperationPhase.WAITING
    if begun or operation.outcome:
        return False
    return windows.closed_for_good(operation.window, fleet.now_ms)


def _of_operations(fleet: FleetLook) -> Iterator[Command[Any]]:
    for operation in sorted(fleet.operations.values(), key=lambda o: o.ordered_ms):
        whole_host = operation.whole_host
        if operation.deadline_ms is not None and fleet.now_ms >= operation.deadline_ms:
            yield commands.ExpireOperation(by=TICKER, operation_id=operation.operation_id)
        elif whole_host and operation.phase is OperationPhase.STARTED:
            continue
        elif _operation_withdrawn(fleet, operation):
            yield commands.WithdrawOperation(by=TICKER, operation_id=operation.operation_id)
        elif _not_told_yet(fleet, operation):
            yield commands.TellNewcomers(by=TICKER, operation_id=operation.operation_id)
        elif not whole_host and _has_ended(fleet, operation):
            yield commands.SettleOperation(by=TICKER, operation_id=operation.operation_id)


def _has_ended(fleet: FleetLook, operation: Operation) -> bool:
    scopes = ((fleet.scope(name), event_id) for name, event_id in operation.members)
    return all(scope is None or scope.event(event_id) is None for scope, event_id in scopes)


def _not_told_yet(fleet: FleetLook, operation: Operation) -> tuple[placement.Group, ...]:
    """VMs that came to the host of an operation after it was announced, as groups.

    A Redeploy tells each VM once; whether its move then failed is for the operator to see. Who can
    be told too late for the window is not told: nothing would come of it.
    """
    if operation.outcome:  # canceled: no VM is told of it any more
        return ()
    told = set(operation.named)
    if operation.whole_host:
        told = set()
        for scope_name, event_id in operation.members:
            scope = fleet.scope(scope_name)
            event = scope.event(event_id) if scope else None
            told.update(event.resources if event else ())
    return tuple(
        group
        for scope in fleet.scopes_on(operation.host)
        for group in placement.groups_of(
            scope,
            operation.host,
            tuple(
                v
                for v in scope.vms
                if v.host == operation.host
                and v.name not in told
                and not (v.off and operation.whole_host)
            ),
        )
        if scheduling.can_be_told(operation, scope, group, now_ms=fleet.now_ms, policy=fleet.policy)
    )


# What is held is left out, so that any number of held ones leave room for the others.


def _event_starts(fleet: FleetLook, scope: Scope) -> Iterator[Start]:
    """Events of a scope that nothing holds. Those of one domain start together: one change.

    Those of another domain would be held by them, and have their turn later.
    """
    free: list[tuple[tuple[int, int, str], ScheduledEvent]] = []
    for event in starting.due_events(scope, fleet.now_ms):
        operation = fleet.operation(event.operation_id) if event.operation_id else None
        if operation is not None and operation.whole_host:
            continue
        due_ms = notice.due_from_ms(event, unasked=starting.unasked(scope, event)) or 0
        free.append(((due_ms, event.scheduled_ms, event.event_id), event))
    free.sort(key=lambda one: one[0])
    domain: int | None = None
    begun: set[str] = set()
    for place, (turn, event) in enumerate(free):
        ruled = starting.one_domain_at_a_time(event)
        if event.event_id in begun or (ruled and domain not in (None, event.update_domain)):
            continue
        if starting.event_holds(event, scope, fleet, fleet.now_ms):
            continue
        domain = event.update_domain if ruled else domain
        others = (e for _, e in free[place + 1 :])
        ids = [e.event_id for e in starting.together(event, others)][:STARTED_TOGETHER_MAX]
        begun.update(ids)
        command = commands.StartEvents(by=TICKER, scope=scope.name, event_ids=tuple(ids))
        yield Start(*turn, command)


def _operation_starts(fleet: FleetLook) -> Iterator[Start]:
    for operation in fleet.operations.values():
        if operation.phase is not OperationPhase.WAITING or not operation.whole_host:
            continue
        if not windows.is_open(operation.window, fleet.now_ms):
            continue
        if not _notice_given(fleet, operation):  # most that wait; cheaper than all their holds
            continue
        if starting.operation_holds(operation, fleet, fleet.now_ms):
            continue
        due_ms, operation_id = _due_from_ms(fleet, operation), operation.operation_id
        command = commands.StartOperation(by=TICKER, operation_id=operation_id)
        yield Start(due_ms, operation.ordered_ms, operation_id, command)


def _open_events(fleet: FleetLook, operation: Operation) -> Iterator[ScheduledEvent]:
    """Those that the operation waits for: not those of VMs that are off."""
    for scope_name, event_id in operation.members:
        scope = fleet.scope(scope_name)
        event = scope.event(event_id) if scope else None
        if scope is not None and event is not None and not placement.all_off(scope, event):
            yield event


def _notice_given(fleet: FleetLook, operation: Operation) -> bool:
    return all(notice.due(event, fleet.now_ms) for event in _open_events(fleet, operation))


def _due_from_ms(fleet: FleetLook, operation: Operation) -> int:
    """When the last event of an operation that nothing holds became due."""
    latest_ms = operation.ordered_ms
    for event in _open_events(fleet, operation):
        latest_ms = max(latest_ms, notice.due_from_ms(event) or 0)
    return latest_ms


# How commands are decided. Each looks again: what was true in the survey may no longer be.


def start_events(tx: Transaction, command: commands.StartEvents) -> bool:
    begun, refusal = False, None
    for event_id in command.event_ids:
        try:
            begun = _start(tx, command.scope, event_id) or begun
        except Refusal as why:
            refusal = why
    if refusal is not None and not begun:
        raise refusal
    return begun


def _start(tx: Transaction, scope_name: str, event_id: str) -> bool:
    scope, event = _open_event(tx, scope_name, event_id)
    if scope is None or event is None or event.phase is not Phase.SCHEDULED:
        return False
    if starting.event_holds(event, scope, tx, tx.now_ms):
        return False
    tx.apply(starting.start_event(scope, event, tx, now_ms=tx.now_ms, policy=tx.policy))
    return True


def start_operation(tx: Transaction, command: commands.StartOperation) -> bool:
    operation = tx.operation(command.operation_id)
    if operation is None or operation.phase is not OperationPhase.WAITING:
        return False
    if starting.operation_holds(operation, tx, tx.now_ms):
        return False
    tx.apply(starting.start_operation(operation, tx, now_ms=tx.now_ms, policy=tx.policy))
    return True


def withdraw_event(tx: Transaction, command: commands.WithdrawEvent) -> None:
    scope, event = _open_event(tx, command.scope, command.event_id)
    if scope is not None and event is not None and _withdrawn(tx, event):
        tx.apply(scheduling.withdraw_event(scope, event, tx.now_ms))


def withdraw_operation(tx: Transaction, command: commands.WithdrawOperation) -> None:
    operation = tx.operation(command.operation_id)
    if operation is not None and _operation_withdrawn(tx, operation):
        tx.apply(scheduling.withdraw_operation(operation, tx, tx.now_ms))


def tell_newcomers(tx: Transaction, command: commands.TellNewcomers) -> None:
    operation = tx.operation(command.operation_id)
    if operation is None:
        return
    tx.apply(
        scheduling.announce(
            operation,
            _not_told_yet(tx, operation),
            tx,
            ids=tx.ids(),
            now_ms=tx.now_ms,
            policy=tx.policy,
        )
    )


def settle_operation(tx: Transaction, command: commands.SettleOperation) -> None:
    operation = tx.operation(command.operation_id)
    if operation is not None and not operation.whole_host:
        events = tx.kept_events(event_id for _, event_id in operation.members)
        tx.apply(ending.settle_operation(operation, tx, events, tx.now_ms))


def expire_event(tx: Transaction, command: commands.ExpireEvent) -> None:
    scope, event = _open_event(tx, command.scope, command.event_id)
    if scope is None or event is None or not _expired(tx, event):
        return
    tx.apply(ending.expire_event(scope, event, now_ms=tx.now_ms, policy=tx.policy))
    for name in event.resources:
        declare_if_stranded(tx, name, by=command.by)


def expire_operation(tx: Transaction, command: commands.ExpireOperation) -> None:
    operation = tx.operation(command.operation_id)
    if operation is None or operation.deadline_ms is None:
        return
    if tx.now_ms >= operation.deadline_ms:
        tx.apply(ending.expire_operation(operation, tx, now_ms=tx.now_ms, policy=tx.policy))


def assign(tx: Transaction, command: commands.AssignPlace) -> None:
    scope, event = _open_event(tx, command.scope, command.event_id)
    if scope is not None and event is not None and event.phase is Phase.STARTED:
        tx.apply(hosts.assign(scope, event, tx, tx.now_ms))


def end_recoveries(tx: Transaction, command: commands.EndRecoveries) -> None:
    scope = tx.scope(command.scope)
    if scope is not None:
        tx.apply(polls_and_approvals.end_recoveries(scope, tx.now_ms))


def disable(tx: Transaction, command: commands.DisableScope) -> None:
    scope = tx.scope(command.scope)
    if scope is not None:
        tx.apply(polls_and_approvals.disable_if_silent(scope, tx.now_ms))


def _open_event(
    tx: Transaction, scope_name: str, event_id: str
) -> tuple[Scope | None, ScheduledEvent | None]:
    scope = tx.scope(scope_name)
    return scope, scope.event(event_id) if scope else None


# Time that was lost.


def note_heartbeat(tx: Transaction, _: commands.NoteHeartbeat) -> None:
    tx.beat()


def clock_stepped(tx: Transaction, command: commands.ClockStepped) -> None:
    for scope in list(tx.scopes.values()):
        tx.apply(lost_time.clock_stepped(scope, command.stepped_ms))
    for operation in list(tx.operations.values()):
        tx.apply(lost_time.operation_loses_time(operation, command.stepped_ms))
    tx.beat()
    tx.note(
        Fact(
            kind=FactKind.CLOCK_STEPPED,
            at_ms=tx.now_ms,
            detail=ClockSteppedDetail(stepped_ms=command.stepped_ms),
        )
    )


def stalled(tx: Transaction, command: commands.Stalled) -> None:
    for name in list(tx.busy_scopes):
        tx.apply(
            lost_time.not_heard(
                tx.need_scope(name), host=None, lost_ms=command.stalled_ms, now_ms=tx.now_ms
            )
        )
    detail = DowntimeDetail(lost_ms=command.stalled_ms)
    tx.note(Fact(kind=FactKind.DOWNTIME, at_ms=tx.now_ms, detail=detail))


def was_down(tx: Transaction, command: commands.WasDown) -> None:
    if command.since_ms is not None:
        _lose_downtime(tx, command.since_ms)
    tx.beat()


def _lose_downtime(tx: Transaction, since_ms: int) -> None:
    down_ms = tx.now_ms - since_ms
    for name in list(tx.scopes):
        scope = tx.need_scope(name)
        tx.apply(lost_time.was_down(scope, down_ms))
        tx.apply(
            lost_time.not_heard(
                tx.need_scope(name),
                host=None,
                lost_ms=down_ms + notice.HOST_SILENT_AFTER_MS,
                now_ms=tx.now_ms,
            )
        )
    for operation in list(tx.operations.values()):
        tx.apply(lost_time.operation_loses_time(operation, down_ms))
    detail = DowntimeDetail(lost_ms=down_ms)
    tx.note(Fact(kind=FactKind.DOWNTIME, at_ms=tx.now_ms, detail=detail))
