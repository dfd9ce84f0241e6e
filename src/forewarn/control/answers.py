"""What an operator is answered to an order, made in the transaction that carries it out.

So that the answer can be remembered there, and says what will be committed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol, TypeVar

from forewarn.control import commands, overview
from forewarn.control.commands import Command
from forewarn.control.transaction import Transaction
from forewarn.core import edits
from forewarn.core.model import Host, Operation
from forewarn.wire.operator_json import Json, event_json

R = TypeVar("R")


class Decide(Protocol):
    """Who decides commands: `deciding.decide`."""

    def __call__(self, tx: Transaction, command: Command[R], /) -> R: ...


def carried_out(tx: Transaction, order: commands.Order, decide: Decide) -> Json:
    """Carry an order out: what the operator is answered. Raises its Refusal."""
    match order:
        case commands.MaintainHost() | commands.DegradeHost():
            return _operation(tx, decide(tx, order))
        case commands.FailHost():
            before = tx.need_host(order.host)
            failed = decide(tx, order)
            return {
                **_host(tx, before, failed.host),
                "events": [event_json(event) for event in failed.events],
                "silent_scopes": overview.silent_scopes(failed.events),
            }
        case commands.RepairHost() | commands.CloseHost() | commands.OpenHost():
            return _host(tx, tx.need_host(order.host), decide(tx, order))
        case commands.CancelEvent():
            canceled = decide(tx, order)
            answer = overview.event_answer(canceled.event)
            return {**answer, "canceled": list(canceled.together)}
        case commands.ReleaseScope():
            held = tx.need_scope(order.scope)
            return overview.scope_answer(tx, edits.seal(held, decide(tx, order)))
        case _:
            return overview.event_answer(decide(tx, order))


def _host(tx: Transaction, before: Host, after: Host) -> Json:
    """The host with the revision that it will be saved under."""
    if after != before:
        after = replace(after, revision=before.revision + 1)
    return overview.host_item(tx, after)


def _operation(tx: Transaction, operation: Operation) -> Json:
    found = []
    for scope_name, event_id in operation.members:
        event = tx.need_scope(scope_name).event(event_id)
        if event is not None:
            found.append(event)
    return overview.operation_with(operation, found)
