"""Orders as the operator API takes them: what their bodies may say, and what they answer.

Each function is one command that carries an order out and gives the JSON of its answer, so that
the answer can be remembered in the same transaction. The rules are in `core`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, TypeVar

import msgspec

from forewarn.control import idempotency, inventory, maintenance, overview
from forewarn.control.measures import OPERATOR
from forewarn.control.transaction import Transaction
from forewarn.control.writer import Command
from forewarn.core import edits
from forewarn.core.errors import BadInventory, Invalid
from forewarn.core.model import Cause, EventType, Host, Operation, Phase
from forewarn.wire.operator_json import Json, event_json, parse_time

BODY_BYTES_MAX = 64 * 1_024


class NoWords(msgspec.Struct, forbid_unknown_fields=True):
    """An order that its path says whole."""


class DegradeWords(msgspec.Struct, forbid_unknown_fields=True):
    """When the VMs of a degraded host are moved at the earliest; a week ahead by default."""

    not_before: str | None = None


class FailWords(msgspec.Struct, forbid_unknown_fields=True):
    """`fenced`: the host is surely off, so that its VMs may start elsewhere.

    A host that was heard just now says otherwise, and is believed unless `force`.
    """

    fenced: bool = False
    force: bool = False


class MaintainWords(msgspec.Struct, forbid_unknown_fields=True):
    """What is done to a host and when at the earliest.

    `duration_seconds` is how long a Freeze lasts, and only a Freeze may have it; `description` is
    what guests read. `break_domains` accepts that a Freeze or Reboot hits two update domains of
    one scope at once.
    """

    event_type: Literal["Freeze", "Reboot", "Redeploy"]
    not_before: str | None = None
    duration_seconds: int | None = None
    description: str | None = None
    break_domains: bool = False


Words = TypeVar("Words", bound=msgspec.Struct)


def words(body: bytes, kind: type[Words]) -> Words:
    """The body as `kind`; an empty one says nothing. Raises Invalid with what would be right."""
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        fields = ", ".join(kind.__struct_fields__)
        accepted = f"a JSON object with {fields}" if fields else "an empty body"
        raise Invalid(
            f"The body was not understood: {error}.", f"What would be accepted: {accepted}."
        ) from None


def order_vm(vm: str, event_type: EventType) -> Command[Json]:
    """Restart, redeploy, delete or evict a VM: the event."""

    def command(tx: Transaction) -> Json:
        event = maintenance.order_vm(vm, event_type, by=OPERATOR)(tx)
        return overview.event_answer(event)

    return command


def maintain_host(host: str, said: MaintainWords) -> Command[Json]:
    """Freeze, reboot or empty a host: the operation with its events."""

    def command(tx: Transaction) -> Json:
        operation = maintenance.maintain_host(
            host,
            EventType(said.event_type),
            by=OPERATOR,
            not_before_ms=_not_before_ms(tx, said.not_before),
            duration_s=said.duration_seconds,
            description=said.description,
            break_domains=said.break_domains,
        )(tx)
        return _operation_answer(tx, operation)

    return command


def degrade_host(host: str, said: DegradeWords) -> Command[Json]:
    """Say that a host is expected to fail: the operation that empties it, with its events."""

    def command(tx: Transaction) -> Json:
        not_before_ms = _not_before_ms(tx, said.not_before)
        operation = maintenance.degrade_host(host, by=OPERATOR, not_before_ms=not_before_ms)(tx)
        return _operation_answer(tx, operation)

    return command


def fail_host(host: str, said: FailWords) -> Command[Json]:
    """Say that a host has failed: the host, and the events of the VMs that were on it."""

    def command(tx: Transaction) -> Json:
        order = maintenance.fail_host(host, by=OPERATOR, fenced=said.fenced, force=said.force)
        answer = _host_answer(tx, host, order)
        events = [
            event
            for scope in tx.scopes_on(host)
            for event in scope.events
            if event.host == host and event.cause is Cause.FAILURE and not event.phase.ended
        ]
        return {
            **answer,
            "events": [event_json(event) for event in events],
            "silent_scopes": overview.silent_scopes(events),
        }

    return command


def repair_host(host: str) -> Command[Json]:
    """Say that a host is well again: the host."""
    return lambda tx: _host_answer(tx, host, maintenance.repair_host(host, by=OPERATOR))


def close_host(host: str) -> Command[Json]:
    """Place nothing on a host any more: the host."""
    return lambda tx: _host_answer(tx, host, maintenance.close_host(host, by=OPERATOR))


def open_host(host: str) -> Command[Json]:
    """Place VMs on a host again: the host."""
    return lambda tx: _host_answer(tx, host, maintenance.open_host(host, by=OPERATOR))


def approve_event(given: str) -> Command[Json]:
    """Say go ahead in the name of the scope: the event."""

    def command(tx: Transaction) -> Json:
        event_id = overview.open_event_id(tx, given)
        return overview.event_answer(maintenance.approve_event(event_id, by=OPERATOR)(tx))

    return command


def cancel_event(given: str) -> Command[Json]:
    """Cancel a scheduled event: the event as it ended, and every event canceled with it."""

    def command(tx: Transaction) -> Json:
        event_id = overview.open_event_id(tx, given)
        scope, event = maintenance.need_event(tx, event_id)
        operation = tx.operation(event.operation_id or "")
        together = operation.members if operation else ((scope.name, event_id),)
        maintenance.cancel_event(event_id, by=OPERATOR)(tx)
        after = (tx.need_scope(name).event(member) for name, member in together)
        ended = [e.event_id for e in after if e is not None and e.phase is Phase.CANCELED]
        canceled = tx.need_scope(scope.name).event(event_id)
        return {**overview.event_answer(canceled or event), "canceled": ended}

    return command


def release_scope(name: str) -> Command[Json]:
    """Let platform events of a scope go on: the scope."""

    def command(tx: Transaction) -> Json:
        before = tx.need_scope(name)
        after = maintenance.release_scope(name, by=OPERATOR)(tx)
        return overview.scope_answer(tx, edits.seal(before, after))

    return command


REPLACED_NOTE = (
    "Another inventory was applied since, and the fleet is what that one says. Nothing was changed"
    " now; listed is what this one changed, or was to change, when it was first sent. Send it under"
    " another Idempotency-Key to have it applied again."
)


def inventory_text(body: bytes) -> str:
    """The inventory file in a body. Raises BadInventory."""
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + 1
        raise BadInventory(
            f"Line {line} of the inventory is not UTF-8.", "A TOML file in UTF-8 is accepted."
        ) from None


def applied_inventory(apply: Command[inventory.Applied]) -> Command[Json]:
    """Make the fleet what a file says: what that changed."""

    def command(tx: Transaction) -> Json:
        applied = apply(tx)
        return {
            "differs": applied.differs,
            "hosts": _changes_json(applied.hosts),
            "scopes": _changes_json(applied.scopes),
            "vms": _changes_json(applied.vms),
            "still_deleted": list(applied.still_deleted),
        }

    return command


def with_waiting(answer: idempotency.Answer, waiting: Sequence[str]) -> idempotency.Answer:
    """The answer to an inventory of which something has to wait: with the words why."""
    said: Json = msgspec.json.decode(answer.text)
    text = msgspec.json.encode({**said, "waiting": list(waiting)}).decode()
    return replace(answer, text=text)


def with_replaced(answer: idempotency.Answer) -> idempotency.Answer:
    """The answer to an inventory that is sent again, after another one was applied."""
    said: Json = msgspec.json.decode(answer.text)
    text = msgspec.json.encode({**said, "replaced": True, "note": REPLACED_NOTE}).decode()
    return replace(answer, text=text)


def _changes_json(changes: inventory.Changes) -> Json:
    return {
        "added": list(changes.added),
        "changed": list(changes.changed),
        "removed": list(changes.removed),
    }


def _host_answer(tx: Transaction, name: str, order: Command[Host]) -> Json:
    """Carry the order out and answer the host with the revision that it will be saved under."""
    before = tx.need_host(name)
    after = order(tx)
    if after != before:
        after = replace(after, revision=before.revision + 1)
    return overview.host_item(tx, after)


def _operation_answer(tx: Transaction, operation: Operation) -> Json:
    found = []
    for scope_name, event_id in operation.members:
        event = tx.need_scope(scope_name).event(event_id)
        if event is not None:
            found.append(event)
    return overview.operation_with(operation, found)


def _not_before_ms(tx: Transaction, text: str | None) -> int | None:
    if text is None:
        return None
    at_ms = parse_time(text, now_ms=tx.now_ms)
    if at_ms < tx.now_ms:
        raise Invalid(f"The time {text} has passed.", "A time from now on would be accepted.")
    return at_ms
