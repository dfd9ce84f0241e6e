"""What operators and owners order: each function decides one command.

An order that can start at once does so in the same transaction, so guests see one step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from forewarn.control import commands
from forewarn.control.event_ids import event_id_meant, operation_id_meant
from forewarn.control.fleet_reader import FleetLook
from forewarn.control.transaction import Transaction
from forewarn.core import ending, hosts, overrides, polls_and_approvals, scheduling, starting
from forewarn.core.errors import AlreadyEnded, Invalid, NotFound
from forewarn.core.facts import AdoptionOrderedDetail, BackedUpDetail, by_whom
from forewarn.core.model import (
    Cause,
    Decision,
    EventType,
    Fact,
    FactKind,
    Health,
    Host,
    Operation,
    Phase,
    ScheduledEvent,
    Scope,
    Window,
)
from forewarn.core.principal import PrincipalKind
from forewarn.wire.instants import TimeInput, WindowInput
from forewarn.wire.link_values import vm_traits

if TYPE_CHECKING:
    from forewarn.core.postponing import Postponement

EVENT_TYPES_OF_HOSTS = (EventType.FREEZE, EventType.REBOOT, EventType.REDEPLOY)
OfVm = commands.RestartVm | commands.RedeployVm | commands.DeleteVm | commands.EvictVm


def restart_vm(tx: Transaction, command: commands.RestartVm) -> ScheduledEvent:
    return _order_vm(tx, command)


def redeploy_vm(tx: Transaction, command: commands.RedeployVm) -> ScheduledEvent:
    return _order_vm(tx, command)


def delete_vm(tx: Transaction, command: commands.DeleteVm) -> ScheduledEvent:
    return _order_vm(tx, command)


def evict_vm(tx: Transaction, command: commands.EvictVm) -> ScheduledEvent:
    return _order_vm(tx, command)


def _order_vm(tx: Transaction, command: OfVm) -> ScheduledEvent:
    scope = tx.need_scope_of_vm(command.vm).name  # before an id is made for what is not there
    decision, event_id = vm_order(tx, command, event_id=tx.new_id())
    tx.apply(decision)
    _start_if_approved(tx, scope, event_id)
    return need_event(tx, event_id)[1]


def vm_order(fleet: FleetLook, command: OfVm, *, event_id: str) -> tuple[Decision, str]:
    """What an order for a VM decides, and the id of its event: the one that is there already, if
    the same is open. Changes nothing; `order_previews` asks it too.
    """
    event_type = commands.EVENT_TYPE_OF[type(command)]
    order = scheduling.Order(
        event_type=event_type,
        cause=Cause.EVICTION if event_type is EventType.PREEMPT else Cause.ORDER,
        by=command.by,
        window=_window(fleet, command.window),
        lose_disk=isinstance(command, commands.RedeployVm) and command.lose_disk,
    )
    return scheduling.order_for_vm(
        fleet.need_scope_of_vm(command.vm),
        command.vm,
        order,
        event_id=event_id,
        now_ms=fleet.now_ms,
        policy=fleet.policy,
    )


def start_vm(tx: Transaction, command: commands.StartVm) -> ScheduledEvent:
    scope, host = tx.need_scope_of_vm(command.vm), tx.need_host(command.host)
    vm = scope.vm(command.vm)
    if vm is None:
        raise NotFound(f"There is no VM {command.vm}.", "`forewarn vm list` shows the names.")
    decision, event_id = hosts.start_on(
        scope,
        vm,
        host,
        tx,
        break_domains=command.break_domains,
        reason=command.reason,
        by=command.by,
        now_ms=tx.now_ms,
    )
    tx.apply(decision)
    return need_event(tx, event_id)[1]


def _start_if_approved(tx: Transaction, scope_name: str, event_id: str) -> None:
    """An auto-approved order whose domain is free is never seen as Scheduled (L47)."""
    scope = tx.need_scope(scope_name)
    event = scope.event(event_id)
    if event is None or event.approved_ms is None or event.started_ms is not None:
        return
    if not starting.event_holds(event, scope, tx, tx.now_ms):
        tx.apply(starting.start_event(scope, event, tx, now_ms=tx.now_ms, policy=tx.policy))


def need_event(tx: Transaction, event_id: str) -> tuple[Scope, ScheduledEvent]:
    """The open event and its scope, or a refusal that says whether it ever was."""
    wanted = event_id.upper()
    found = tx.open_event(wanted)
    if found is not None:
        return found
    ended = tx.kept_event(wanted)
    if ended is not None:
        anew = f"Event {ended.postponed_to} took its place. " if ended.postponed_to else ""
        raise AlreadyEnded(
            f"Event {wanted} has ended: {_how(ended.phase.value, ended.outcome)}.",
            f"{anew}`forewarn event show {wanted}` says more, `forewarn event list` shows the open"
            " ones.",
        )
    raise NotFound(f"There is no event {wanted}.", "`forewarn event list` shows the open ones.")


def _how(word: str, outcome: str) -> str:
    """How something ended, with what its outcome adds to the one word."""
    return word if outcome in ("", word) else f"{word} ({outcome})"


def _need_operation(tx: Transaction, given: str) -> Operation:
    """The open operation, or a refusal that says whether it ever was."""
    operation_id = operation_id_meant(tx, given)
    operation = tx.operation(operation_id)
    if operation is not None:
        return operation
    listed = "`forewarn operation list` shows the open ones."
    ended = tx.kept_operation(operation_id)
    if ended is None:
        raise NotFound(f"There is no operation {operation_id}.", listed)
    word = ending.ended_as(ended) or ended.phase
    raise AlreadyEnded(
        f"Operation {operation_id} has ended: {_how(word.value, ended.outcome)}.", listed
    )


def cancel_operation(tx: Transaction, command: commands.CancelOperation) -> Operation:
    operation = _need_operation(tx, command.operation_id)
    by = command.by
    decision = scheduling.cancel_whole(operation, tx, by=by, now_ms=tx.now_ms)
    tx.apply(decision)
    return tx.operation(operation.operation_id) or decision.operations[0]


def maintain_host(tx: Transaction, command: commands.MaintainHost) -> Operation:
    operation_id = tx.new_id()
    tx.apply(maintenance(tx, command, operation_id=operation_id, ids=tx.ids()))
    return tx.operations[operation_id]


def maintenance(
    fleet: FleetLook, command: commands.MaintainHost, *, operation_id: str, ids: Iterator[str]
) -> Decision:
    """What an order for a host decides. Changes nothing; `order_previews` asks it too."""
    if command.event_type not in EVENT_TYPES_OF_HOSTS:
        raise Invalid(
            f"A host cannot be maintained by {command.event_type.value}.",
            "Use Freeze, Reboot or Redeploy.",
        )
    order = scheduling.Order(
        event_type=command.event_type,
        cause=Cause.MAINTENANCE,
        by=command.by,
        not_before_ms=_to_come_ms(fleet, command.not_before),
        window=_window(fleet, command.window),
        duration_s=command.duration_s,
        description=command.description,
        lose_disk=command.lose_disk,
    )
    return scheduling.maintain(
        fleet.need_host(command.host),
        order,
        fleet,
        operation_id=operation_id,
        ids=ids,
        now_ms=fleet.now_ms,
        policy=fleet.policy,
        break_domains=command.break_domains,
        reason=command.reason,
    )


def degrade_host(tx: Transaction, command: commands.DegradeHost) -> Operation:
    operation_id = tx.new_id()
    tx.apply(degradation(tx, command, operation_id=operation_id, ids=tx.ids()))
    return tx.operations[operation_id]


def degradation(
    fleet: FleetLook, command: commands.DegradeHost, *, operation_id: str, ids: Iterator[str]
) -> Decision:
    """What follows if a host is expected to fail. Changes nothing; `order_previews` asks it too."""
    return hosts.degrade(
        fleet.need_host(command.host),
        fleet,
        not_before_ms=_to_come_ms(fleet, command.not_before),
        window=_window(fleet, command.window),
        by=command.by,
        operation_id=operation_id,
        ids=ids,
        now_ms=fleet.now_ms,
        policy=fleet.policy,
    )


def _to_come_ms(fleet: FleetLook, when: TimeInput | None) -> int | None:
    return None if when is None else when.to_come_ms(fleet.now_ms)


def _window(fleet: FleetLook, said: WindowInput | None) -> Window | None:
    return None if said is None else said.window(fleet.now_ms)


def fail_host(tx: Transaction, command: commands.FailHost) -> commands.HostFailed:
    before = tx.need_host(command.host)
    if before.health is not Health.FAILED:
        tx.cut_power(command.host)
    tx.apply(
        hosts.fail(
            before,
            tx,
            fenced=command.fenced,
            force=command.force,
            reason=command.reason,
            by=command.by,
            ids=tx.ids(),
            now_ms=tx.now_ms,
            policy=tx.policy,
        )
    )
    events = tuple(
        event
        for scope in tx.scopes_on(command.host)
        for event in scope.events
        if event.host == command.host and event.cause is Cause.FAILURE and not event.phase.ended
    )
    return commands.HostFailed(host=tx.need_host(command.host), events=events)


def repair_host(tx: Transaction, command: commands.RepairHost) -> Host:
    host, by = command.host, command.by
    before = tx.need_host(host)
    switched_on = tx.restore_power(host)
    tx.apply(
        hosts.repair(
            before,
            tx,
            by=by,
            now_ms=tx.now_ms,
            force=command.force,
            reason=command.reason,
            switched_on=switched_on,
        )
    )
    return tx.need_host(host)


def close_host(tx: Transaction, command: commands.CloseHost) -> Host:
    host, by = command.host, command.by
    tx.apply(hosts.close(tx.need_host(host), by=by, now_ms=tx.now_ms))
    return tx.need_host(host)


def open_host(tx: Transaction, command: commands.OpenHost) -> Host:
    host, by = command.host, command.by
    tx.apply(hosts.reopen(tx.need_host(host), by=by, now_ms=tx.now_ms))
    return tx.need_host(host)


def note_adoption(tx: Transaction, command: commands.NoteAdoption) -> None:
    fact = Fact(
        kind=FactKind.ADOPTION_ORDERED,
        at_ms=tx.now_ms,
        scope=tx.scope_of_vm.get(command.vm),
        host=command.host,
        vm=command.vm,
        detail=AdoptionOrderedDetail(traits=msgspec.to_builtins(vm_traits(command.traits))),
    )
    tx.note(by_whom(fact, command.by))


def approve_event(tx: Transaction, command: commands.ApproveEvent) -> ScheduledEvent:
    event_id = event_id_meant(tx, command.event_id)
    scope, event = need_event(tx, event_id)
    owner = command.by.kind is PrincipalKind.OWNER
    tx.apply(
        polls_and_approvals.approve(
            scope,
            (event.event_id,),
            known=(event.event_id,),
            by=command.by,
            by_kind=command.by.kind,
            reason=(overrides.fitting if owner else polls_and_approvals.need_reason)(
                command.reason
            ),
            now_ms=tx.now_ms,
        )
    )
    return need_event(tx, event_id)[1]


def cancel_event(tx: Transaction, command: commands.CancelEvent) -> commands.EventCanceled:
    event_id = event_id_meant(tx, command.event_id)
    scope, event = need_event(tx, event_id)
    operation = tx.operation(event.operation_id or "")
    together = operation.members if operation else ((scope.name, event.event_id),)
    by = command.by
    tx.apply(scheduling.cancel(scope, event.event_id, tx, by=by, now_ms=tx.now_ms))
    scopes = ((tx.scope(name), member) for name, member in together)  # one may have left
    after = [found.event(member) for found, member in scopes if found is not None]
    return commands.EventCanceled(
        event=tx.need_scope(scope.name).event(event.event_id) or event,
        together=tuple(e.event_id for e in after if e and e.phase is Phase.CANCELED),
    )


def postpone_event(tx: Transaction, command: commands.PostponeEvent) -> commands.EventPostponed:
    scope, event = need_event(tx, event_id_meant(tx, command.event_id))
    postponed = postponement(tx, command, scope, event.event_id, ids=tx.ids())
    tx.apply(postponed.decision)
    return commands.EventPostponed(
        event=need_event(tx, postponed.announced[0])[1],
        withdrawn=postponed.withdrawn,
        announced=postponed.announced,
    )


def postponement(
    fleet: FleetLook,
    command: commands.PostponeEvent,
    scope: Scope,
    event_id: str,
    *,
    ids: Iterator[str],
) -> Postponement:
    """What an order to postpone an event decides. Changes nothing; `order_previews` asks it too."""
    from forewarn.core import postponing  # noqa: PLC0415 - most emulators postpone nothing

    return postponing.postpone(
        scope,
        event_id,
        fleet,
        until_ms=command.until.to_come_ms(fleet.now_ms),
        reason=postponing.need_reason(command.reason),
        by=command.by,
        ids=ids,
        now_ms=fleet.now_ms,
        policy=fleet.policy,
    )


def release_scope(tx: Transaction, command: commands.ReleaseScope) -> Scope:
    scope, by = command.scope, command.by
    tx.apply(polls_and_approvals.release(tx.need_scope(scope), by=by, now_ms=tx.now_ms))
    return tx.need_scope(scope)


def note_backup(tx: Transaction, command: commands.NoteBackup) -> None:
    detail = BackedUpDetail(bytes=command.size)
    fact = Fact(kind=FactKind.BACKED_UP, at_ms=tx.now_ms, detail=detail)
    tx.note(by_whom(fact, command.by))


def tell_time(tx: Transaction, _: commands.TellTime) -> int:
    return tx.now_ms
