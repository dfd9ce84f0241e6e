"""What an operator is answered to an order, made in the transaction that carries it out.

So that the answer can be remembered there, and says what will be committed.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from msgspec.structs import replace

from forewarn.control import commands, operator_overview
from forewarn.control.commands import Command
from forewarn.control.transaction import Transaction
from forewarn.core import scope_edits
from forewarn.core.inventory.entries import Applied, NameChanges
from forewarn.core.model import Host, Operation
from forewarn.wire import operator_answers as wire
from forewarn.wire.operator_json import event_as, event_json, token_json, webhook_json

R = TypeVar("R")


class Decide(Protocol):
    """Who decides commands: `command_handlers.decide`."""

    def __call__(self, tx: Transaction, command: Command[R], /) -> R: ...


def carried_out(
    tx: Transaction, order: commands.Order | commands.InventoryOrder, decide: Decide
) -> wire.AnswerBody:
    """Carry an order out: what the operator is answered. Raises its Refusal."""
    answer: wire.AnswerBody
    match order:
        case commands.MaintainHost() | commands.DegradeHost() | commands.CancelOperation():
            answer = _operation(tx, decide(tx, order))
        case commands.FailHost():
            before = tx.need_host(order.host)
            failed = decide(tx, order)
            answer = operator_overview.host_as(
                wire.HostFailedJson,
                tx,
                _sealed(before, failed.host),
                events=tuple(event_json(event) for event in failed.events),
                silent_scopes=operator_overview.silent_scopes(failed.events),
            )
        case commands.RepairHost() | commands.CloseHost() | commands.OpenHost():
            before = tx.need_host(order.host)
            answer = operator_overview.host_item(tx, _sealed(before, decide(tx, order)))
        case commands.CancelEvent():
            canceled = decide(tx, order)
            answer = event_as(
                wire.EventCanceledJson,
                canceled.event,
                silent_scopes=operator_overview.silent_scopes([canceled.event]),
                canceled=canceled.together,
            )
        case commands.PostponeEvent():
            postponed = decide(tx, order)
            answer = event_as(
                wire.EventPostponedJson,
                postponed.event,
                silent_scopes=operator_overview.silent_scopes([postponed.event]),
                withdrawn=postponed.withdrawn,
                announced=postponed.announced,
            )
        case commands.ReleaseScope():
            held = tx.need_scope(order.scope)
            answer = operator_overview.scope_answer(tx, scope_edits.seal(held, decide(tx, order)))
        case (
            commands.ApplyInventory()
            | commands.NothingToApply()
            | commands.ApplyInventoryAtOnce()
            | commands.DecideInventory()
        ):
            answer = _applied(decide(tx, order))
        case commands.MakeToken() | commands.RotateToken() | commands.RevokeToken():
            answer = token_json(decide(tx, order), tx.now_ms)
        case commands.OrderWebhook():
            answer = webhook_json(decide(tx, order), tx.journal.end, tx.now_ms)
        case _:
            answer = operator_overview.event_answer(decide(tx, order))
    return answer


def _applied(applied: Applied) -> wire.InventoryApplied:
    """What an inventory has changed."""
    return wire.InventoryApplied(
        differs=applied.differs,
        hosts=_changes(applied.hosts),
        scopes=_changes(applied.scopes),
        vms=_changes(applied.vms),
        still_deleted=applied.still_deleted,
    )


def _changes(changes: NameChanges) -> wire.ChangesJson:
    return wire.ChangesJson(added=changes.added, changed=changes.changed, removed=changes.removed)


def _sealed(before: Host, after: Host) -> Host:
    """The host with the revision that it will be saved under."""
    return after if after == before else replace(after, revision=before.revision + 1)


def _operation(tx: Transaction, operation: Operation) -> wire.OperationDetail:
    found = []
    for scope_name, event_id in operation.members:
        scope = tx.scope(scope_name)  # it may have left
        event = scope.event(event_id) if scope is not None else None
        if event is not None:
            found.append(event)
    return operator_overview.operation_with(operation, found)
