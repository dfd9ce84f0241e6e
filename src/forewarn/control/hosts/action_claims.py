"""What hosts cause: claims, their leases, and reports. Each function decides one command."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from forewarn.control import commands
from forewarn.control.fleet_reader import FleetReader
from forewarn.control.hosts import vm_power
from forewarn.control.hosts.leases import LEASE_MS, Lease
from forewarn.control.transaction import Transaction
from forewarn.core import deadlines, ending, hosts, lost_time, notice
from forewarn.core import vm_power as power
from forewarn.core.errors import Conflict, NotFound
from forewarn.core.facts import DowntimeDetail
from forewarn.core.model import (
    Action,
    ActionKind,
    ActionPhase,
    Decision,
    Fact,
    FactKind,
    Health,
    Operation,
    Outcome,
    Phase,
    ScheduledEvent,
    Scope,
)
from forewarn.core.principal import Who, the_host

CLAIMS_PER_CALL_MAX = 64


def host_is_silent(tx: Transaction, command: commands.HostIsSilent) -> None:
    _silent(tx, command.host, tx.silent_ms(command.host))


def _silent(tx: Transaction, host: str, silent_ms: int) -> None:
    stopped = [
        lost_time.not_heard(scope, host=host, lost_ms=silent_ms, now_ms=tx.now_ms)
        for scope in tx.scopes_on(host)
    ]
    for decision in stopped:
        tx.apply(decision)
    if any(decision.scopes for decision in stopped):
        detail = DowntimeDetail(lost_ms=silent_ms)
        tx.note(Fact(kind=FactKind.DOWNTIME, at_ms=tx.now_ms, host=host, detail=detail))


def _heard_late(tx: Transaction, host: str, lost_ms: int) -> None:
    for scope in tx.scopes_on(host):
        tx.apply(lost_time.heard_late(scope, host=host, lost_ms=lost_ms))


def _may_act(tx: Transaction, host: str) -> bool:
    """False for a host that was given up: what it did now would collide with its replacement."""
    known = tx.host(host)
    return known is not None and known.health is not Health.FAILED


def declare_if_stranded(tx: Transaction, vm: str, *, by: Who, down: bool = False) -> None:
    """A VM that is, or may be, on a host that has failed is declared like the others there.

    `down` is that the host had failed while the VM was on its way, whatever it is now.
    """
    scope_name = tx.scope_of_vm.get(vm)
    if scope_name is None:
        return
    tx.apply(
        hosts.arrived(
            tx.need_scope(scope_name),
            vm,
            tx,
            by=by,
            ids=tx.ids(),
            now_ms=tx.now_ms,
            policy=tx.policy,
            down=down,
        )
    )


def _tell_again(tx: Transaction, event: ScheduledEvent, vm: str) -> None:
    """A host shows that a VM runs that was not asked because it was off: ask it now."""
    tx.apply(
        power.spared(
            tx.need_scope(event.scope),
            event,
            vm,
            operation=tx.operation(event.operation_id or ""),
            event_id=tx.new_id(),
            now_ms=tx.now_ms,
            policy=tx.policy,
        )
    )


class _Held(Struct, frozen=True):
    """An open action with what it belongs to: an event of a scope, or an operation."""

    action: Action
    scope: Scope | None = None
    event: ScheduledEvent | None = None
    operation: Operation | None = None

    def may_begin(self, now_ms: int) -> bool:
        owner = self.event or self.operation
        return owner is not None and deadlines.may_begin(owner, now_ms)


def _about(tx: Transaction, held: _Held) -> tuple[tuple[str, str], ...]:
    """The VMs that were told of what is about to be done, and who they were then.

    A person or tool can give a name to another VM a moment before its host acts.
    """
    told: list[tuple[Scope, str]] = []
    if held.scope is not None and held.action.vm is not None:
        told.append((held.scope, held.action.vm))
    for scope_name, event_id in held.operation.members if held.operation else ():
        scope = tx.scope(scope_name)
        event = scope.event(event_id) if scope else None
        if scope is not None and event is not None:
            told.extend((scope, name) for name in event.resources)
    found = ((name, scope.vm(name)) for scope, name in told)
    shown = tx.digests  # who was never shown has an id of ours, which no host knows
    return tuple((name, vm.vm_id if vm and name in shown else "") for name, vm in found)


def _left_ms(tx: Transaction, held: _Held) -> int | None:
    """For how long what is done is still part of what was announced."""
    owner = held.event or held.operation
    deadline_ms = owner.deadline_ms if owner else None
    return None if deadline_ms is None else max(0, deadline_ms - tx.now_ms)


def _take(tx: Transaction, held: _Held, boot_id: str) -> Action:
    """Claim the action for its host."""
    if held.operation is not None:
        decision, action = ending.claim_for_operation(
            held.operation, held.action, boot_id=boot_id, now_ms=tx.now_ms
        )
    else:
        # Looked up again: an earlier claim of the same call may have changed the same event.
        found = tx.open_event(held.event.event_id) if held.event is not None else None
        if found is None:
            raise NotFound(f"There is no open action {held.action.action_id}.")
        decision, action = ending.claim_for_event(
            *found, held.action, boot_id=boot_id, now_ms=tx.now_ms
        )
    tx.apply(decision)
    return action


class Renewed(Struct, frozen=True):
    """Claims that are not the host's any more, and what it has to do and holds no claim of."""

    lost: tuple[str, ...] = ()
    not_held: tuple[str, ...] = ()


def renew(tx: Transaction, host: str, holding: Mapping[str, int], refuses: str = "") -> Renewed:
    """The host is there, and holds on to its claims.

    If it was silent, guests there could not read: that time was no notice.
    """
    tx.need_host(host)
    silent_ms = tx.silent_ms(host)
    if silent_ms >= notice.HOST_SILENT_AFTER_MS:
        _silent(tx, host, silent_ms)
    elif silent_ms > notice.HEARTBEAT_LATE_MS:
        _heard_late(tx, host, silent_ms - notice.HEARTBEAT_EVERY_MS)
    tx.hears(host, refuses=refuses)
    if not _may_act(tx, host):
        return Renewed(lost=tuple(holding))
    lost = dict.fromkeys(holding)
    not_held = []
    for held in _open_actions(tx, host):
        action = held.action
        if holding.get(action.action_id) == action.epoch:
            _lease(tx, action)
            if action.phase is ActionPhase.CLAIMED:
                lost.pop(action.action_id)
            continue
        not_held.append(action.action_id)
        if tx.volatile.leases.get(action.action_id) is None:
            # A claim from before our own start that its host does not know died with it.
            tx.put(tx.volatile.leases, action.action_id, Lease(action.epoch, tx.monotonic_ms))
    return Renewed(lost=tuple(lost), not_held=tuple(not_held))


def claim_actions(tx: Transaction, command: commands.ClaimActions) -> commands.ClaimResult:
    host = command.host
    if not _may_act(tx, host):
        return commands.ClaimResult(work=())
    vm_power.booted(tx, host, command.boot_id)
    if tx.two_daemons(host):
        return commands.ClaimResult(work=(), two_daemons=True)
    if command.daemon:
        _succeed(tx, host, command.daemon)
    taken: list[commands.HandedOut] = []
    for held in list(_open_actions(tx, host)):
        if len(taken) >= CLAIMS_PER_CALL_MAX:
            break
        if command.only is not None and held.action.action_id not in command.only:
            continue
        if not held.may_begin(tx.now_ms) or not _may_claim(tx, held.action):
            continue
        action = _take(tx, held, command.boot_id)
        _lease(tx, action)
        about, left_ms = _about(tx, held), _left_ms(tx, held)
        taken.append(commands.HandedOut(action=action, about=about, left_ms=left_ms))
    return commands.ClaimResult(work=tuple(taken))


def _succeed(tx: Transaction, host: str, daemon: str) -> None:
    """Let the leases of the daemon that claimed before lapse: it is no more."""
    before = tx.volatile.claimed_by.get(host, daemon)
    tx.put(tx.volatile.claimed_by, host, daemon)
    if before == daemon:
        return
    for held in _open_actions(tx, host):
        if held.action.phase is ActionPhase.CLAIMED:
            lapsed = Lease(held.action.epoch, tx.monotonic_ms)
            tx.put(tx.volatile.leases, held.action.action_id, lapsed)


def hold_claim(tx: Transaction, command: commands.HoldClaim) -> bool:
    if not _may_act(tx, command.host):
        return False
    for held in _open_actions(tx, command.host):
        action = held.action
        if action.action_id == command.action_id:
            mine = action.phase is ActionPhase.CLAIMED and action.epoch == command.epoch
            if mine:
                _lease(tx, action)
            return mine and held.may_begin(tx.now_ms)
    return False


def _lease(tx: Transaction, action: Action) -> None:
    """The host holds its claim from now for another lease."""
    tx.put(
        tx.volatile.leases,
        action.action_id,
        Lease(action.epoch, tx.monotonic_ms + LEASE_MS),
    )


def _may_claim(tx: Transaction, action: Action) -> bool:
    if action.phase is ActionPhase.PENDING:
        return True
    lease = tx.volatile.leases.get(action.action_id)
    if lease is None or lease.epoch != action.epoch:
        return tx.monotonic_ms >= tx.volatile.began_ms + LEASE_MS
    return tx.monotonic_ms >= lease.until_ms


def end_action(tx: Transaction, host: str, ended: commands.EndedAction) -> None:
    """The host says how an action ended. Refused if the claim is no longer held."""
    found = (h for h in _all_actions(tx, host) if h.action.action_id == ended.action_id)
    held = next(found, None)
    if held is None:
        _end_late(tx, host, ended)
        return
    decision = _ended(tx, held, ended)
    if decision == Decision():
        return  # it was said before, and what followed from it has followed
    if ended.outcome is Outcome.SPARED and not held.action.only_off:
        raise Conflict(
            f"Action {ended.action_id} is not only for a VM that is off.",
            "Say that it is done, failed or lost.",
        )
    tx.apply(decision)
    if ended.outcome is Outcome.SPARED and held.event is not None and decision.scopes:
        _tell_again(tx, held.event, held.action.vm or "")
    if held.action.kind is ActionKind.MOVE_VM:
        down = held.action.target_failed and ended.outcome is Outcome.DONE
        declare_if_stranded(tx, held.action.vm or "", by=the_host(host), down=down)


def _ended(tx: Transaction, held: _Held, ended: commands.EndedAction) -> Decision:
    if held.operation is not None:
        return ending.report_for_operation(
            held.operation,
            tx,
            epoch=ended.epoch,
            outcome=ended.outcome,
            detail=ended.detail,
            now_ms=tx.now_ms,
            policy=tx.policy,
        )
    if held.scope is None or held.event is None:
        raise NotFound(f"There is no open action {held.action.action_id}.")
    return ending.report_for_event(
        held.scope,
        held.event,
        held.action.action_id,
        epoch=ended.epoch,
        outcome=ended.outcome,
        detail=ended.detail,
        now_ms=tx.now_ms,
        policy=tx.policy,
    )


def _end_late(tx: Transaction, host: str, ended: commands.EndedAction) -> None:
    """Take what a host really did after its event was given up, or refuse the report."""
    action_id, epoch, outcome = ended.action_id, ended.epoch, ended.outcome
    operation = tx.kept_operation(action_id)
    done = operation.action if operation and operation.host == host else None
    if done is not None and ending.repeats(done, epoch, outcome):
        return
    event = tx.kept_event(action_id.partition("/")[0])
    actions = event.actions if event else ()
    action = next((a for a in actions if a.action_id == action_id and a.host == host), None)
    scope = tx.scope(event.scope) if event else None
    if action is not None and ending.repeats(action, epoch, outcome):
        return
    if event is None or scope is None or action is None:
        raise NotFound(
            f"Host {host} has no open action {action_id}.",
            "Drop the report: its event has ended.",
        )
    decision = ending.late_report(
        scope, event, action, epoch=epoch, outcome=outcome, now_ms=tx.now_ms
    )
    if decision == Decision():
        return
    tx.apply(decision)
    if action.kind is ActionKind.MOVE_VM:
        down = action.target_failed and outcome is Outcome.DONE
        declare_if_stranded(tx, action.vm or "", by=the_host(host), down=down)


def _open_actions(fleet: FleetReader, host: str) -> Iterator[_Held]:
    """Actions that the host has to do or is doing."""
    found = _actions(fleet, host, fleet.scopes_acting(host))
    return (held for held in found if not held.action.ended)


def open_action_ids(fleet: FleetReader, host: str) -> list[str]:
    """The ids of actions that the host has to do or is doing."""
    return [held.action.action_id for held in _open_actions(fleet, host)]


def _all_actions(tx: Transaction, host: str) -> Iterator[_Held]:
    """Actions of the host that belong to something still open."""
    return _actions(tx, host, tx.scopes_on(host))


def _actions(fleet: FleetReader, host: str, scopes: Iterable[Scope]) -> Iterator[_Held]:
    for operation in fleet.operations_on(host):
        if operation.action is not None:
            yield _Held(operation.action, operation=operation)
    started = Phase.STARTED  # looked up once: hosts of crowded scopes ask often
    for scope in scopes:
        for event in scope.events:
            if event.phase is not started:
                continue
            for action in event.actions:
                if action.host == host:
                    yield _Held(action, scope=scope, event=event)
