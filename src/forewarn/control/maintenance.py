"""What operators and owners order: each function is one command for the writer.

An order that can start at once does so in the same transaction, so guests see one step.
"""

from __future__ import annotations

from forewarn.control.transaction import Transaction
from forewarn.control.writer import Command
from forewarn.core import consent, failing, scheduling, starting
from forewarn.core.errors import AlreadyStarted, Invalid, NotFound
from forewarn.core.model import Cause, EventType, Health, Host, Operation, ScheduledEvent, Scope

EVENT_TYPES_OF_HOSTS = (EventType.FREEZE, EventType.REBOOT, EventType.REDEPLOY)


def order_vm(vm: str, event_type: EventType, *, by: str) -> Command[ScheduledEvent]:
    """Restart (Reboot), redeploy, delete (Terminate) or evict (Preempt) a VM.

    Answers the event, also when the same order was already open.
    """
    cause = Cause.EVICTION if event_type is EventType.PREEMPT else Cause.ORDER

    def command(tx: Transaction) -> ScheduledEvent:
        scope = tx.need_scope_of_vm(vm)
        order = scheduling.Order(event_type=event_type, cause=cause, by=by)
        decision, event_id = scheduling.order_for_vm(
            scope, vm, order, event_id=tx.new_id(), now_ms=tx.now_ms, policy=tx.policy
        )
        tx.apply(decision)
        _start_if_approved(tx, scope.name, event_id)
        return need_event(tx, event_id)[1]

    return command


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
        raise AlreadyStarted(
            f"Event {wanted} has ended ({ended.phase.value}).",
            "`forewarn event list` shows the open ones.",
        )
    raise NotFound(f"There is no event {wanted}.", "`forewarn event list` shows the open ones.")


def maintain_host(
    host: str,
    event_type: EventType,
    *,
    by: str,
    not_before_ms: int | None = None,
    duration_s: int | None = None,
    description: str | None = None,
    break_domains: bool = False,
) -> Command[Operation]:
    """Freeze or reboot a host, or move its VMs away (Redeploy).

    `duration_s` is the length of a Freeze; `description` replaces the words that guests read.
    """
    if event_type not in EVENT_TYPES_OF_HOSTS:
        raise Invalid(
            f"A host cannot be maintained by {event_type.value}.",
            "Use Freeze, Reboot or Redeploy.",
        )

    def command(tx: Transaction) -> Operation:
        order = scheduling.Order(
            event_type=event_type,
            cause=Cause.MAINTENANCE,
            by=by,
            not_before_ms=not_before_ms,
            duration_s=duration_s,
            description=description,
        )
        operation_id = tx.new_id()
        tx.apply(
            scheduling.maintain(
                tx.need_host(host),
                order,
                tx,
                operation_id=operation_id,
                ids=tx.ids(),
                now_ms=tx.now_ms,
                policy=tx.policy,
                break_domains=break_domains,
            )
        )
        return tx.operations[operation_id]

    return command


def degrade_host(host: str, *, by: str, not_before_ms: int | None = None) -> Command[Operation]:
    """Say that a host's hardware is expected to fail; its VMs move, a week ahead by default."""

    def command(tx: Transaction) -> Operation:
        operation_id = tx.new_id()
        tx.apply(
            failing.degrade(
                tx.need_host(host),
                tx,
                not_before_ms=not_before_ms,
                by=by,
                operation_id=operation_id,
                ids=tx.ids(),
                now_ms=tx.now_ms,
                policy=tx.policy,
            )
        )
        return tx.operations[operation_id]

    return command


def fail_host(host: str, *, by: str, fenced: bool, force: bool = False) -> Command[Host]:
    """Say that a host has failed, and with `fenced` that it is surely off.

    The power of a simulated host is cut first, so that it is. Any other that is heard is not off:
    HostHeard, unless `force`.
    """

    def command(tx: Transaction) -> Host:
        before = tx.need_host(host)
        if before.health is not Health.FAILED:
            tx.cut_power(host)
        tx.apply(
            failing.fail(
                before,
                tx,
                fenced=fenced,
                force=force,
                by=by,
                ids=tx.ids(),
                now_ms=tx.now_ms,
                policy=tx.policy,
            )
        )
        return tx.need_host(host)

    return command


def repair_host(host: str, *, by: str) -> Command[Host]:
    """Say that a degraded or failed host is well again; a simulated one gets its power back."""

    def command(tx: Transaction) -> Host:
        tx.apply(failing.repair(tx.need_host(host), tx, by=by, now_ms=tx.now_ms))
        tx.restore_power(host)
        return tx.need_host(host)

    return command


def close_host(host: str, *, by: str) -> Command[Host]:
    def command(tx: Transaction) -> Host:
        tx.apply(failing.close(tx.need_host(host), by=by, now_ms=tx.now_ms))
        return tx.need_host(host)

    return command


def open_host(host: str, *, by: str) -> Command[Host]:
    def command(tx: Transaction) -> Host:
        tx.apply(failing.reopen(tx.need_host(host), by=by, now_ms=tx.now_ms))
        return tx.need_host(host)

    return command


def approve_event(event_id: str, *, by: str) -> Command[ScheduledEvent]:
    """An operator says go ahead in the name of the scope."""

    def command(tx: Transaction) -> ScheduledEvent:
        scope, event = need_event(tx, event_id)
        tx.apply(
            consent.approve(
                scope, (event.event_id,), known=(event.event_id,), by=by, now_ms=tx.now_ms
            )
        )
        return need_event(tx, event_id)[1]

    return command


def cancel_event(event_id: str, *, by: str) -> Command[None]:
    """Cancel a scheduled event, or withdraw an eviction. An operation is canceled whole."""

    def command(tx: Transaction) -> None:
        scope, event = need_event(tx, event_id)
        tx.apply(scheduling.cancel(scope, event.event_id, tx, by=by, now_ms=tx.now_ms))

    return command


def release_scope(scope: str, *, by: str) -> Command[Scope]:
    """Let platform events of a scope go on after one of its events has failed."""

    def command(tx: Transaction) -> Scope:
        tx.apply(consent.release(tx.need_scope(scope), by=by, now_ms=tx.now_ms))
        return tx.need_scope(scope)

    return command
