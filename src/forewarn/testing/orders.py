"""What a test orders, as work for the emulator's loop: the orders that every operator has.

Each is answered when everything that it causes has happened. Raises the Refusal of the rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from forewarn.control import maintenance
from forewarn.control.measures import OPERATOR
from forewarn.control.transaction import Transaction
from forewarn.core import model
from forewarn.core.errors import Invalid, NotFound
from forewarn.core.model import Cause, EventType, Phase
from forewarn.core.spelling import meant, shown
from forewarn.ports import Store
from forewarn.testing.background import Work
from forewarn.testing.expectations import need_event
from forewarn.testing.tracebacks import for_refusals
from forewarn.testing.values import Event, Operation, event_of, ms_of
from forewarn.wire.operator_json import LAST_MS, parse_time, time_text
from forewarn.wiring.simulate import Emulator

When = datetime | timedelta | str
__tracebackhide__ = for_refusals


def order_vm(vm: str, event_type: EventType) -> Work[Event]:
    """Restart, redeploy, delete or evict a VM."""

    async def work(emulator: Emulator) -> Event:
        ordered = await emulator.control.submit(maintenance.order_vm(vm, event_type, by=OPERATOR))
        return (await _events(emulator, [ordered.event_id]))[0]

    return work


def maintain(
    where: str,
    event_type: str,
    *,
    not_before: When | None,
    duration: int | None,
    description: str | None,
    break_domains: bool,
) -> Work[Operation]:
    """Freeze or reboot a host, or move its VMs away. `where` is the host, or a VM on it."""
    types = [one.value for one in maintenance.EVENT_TYPES_OF_HOSTS]
    if event_type not in types:
        raise Invalid(
            f"A host cannot be maintained by {shown(event_type)}.", f"Use {', '.join(types)}."
        )

    async def work(emulator: Emulator) -> Operation:
        not_before_ms = _not_before_ms(emulator, not_before)

        def command(tx: Transaction) -> model.Operation:
            return maintenance.maintain_host(
                _host(tx, where),
                EventType(event_type),
                by=OPERATOR,
                not_before_ms=not_before_ms,
                duration_s=duration,
                description=description,
                break_domains=break_domains,
            )(tx)

        return await _operation(emulator, await emulator.control.submit(command))

    return work


def degrade(where: str, *, not_before: When | None) -> Work[Operation]:
    """Say that the hardware of a host is expected to fail."""

    async def work(emulator: Emulator) -> Operation:
        not_before_ms = _not_before_ms(emulator, not_before)

        def command(tx: Transaction) -> model.Operation:
            host = _host(tx, where)
            return maintenance.degrade_host(host, by=OPERATOR, not_before_ms=not_before_ms)(tx)

        return await _operation(emulator, await emulator.control.submit(command))

    return work


def fail(where: str, *, fenced: bool) -> Work[tuple[Event, ...]]:
    """Say that a host has failed; the events of the VMs that were on it."""

    async def work(emulator: Emulator) -> tuple[Event, ...]:
        def command(tx: Transaction) -> list[str]:
            host = _host(tx, where)
            maintenance.fail_host(host, by=OPERATOR, fenced=fenced)(tx)
            return [
                event.event_id
                for scope in tx.scopes_on(host)
                for event in scope.events
                if event.host == host and event.cause is Cause.FAILURE and not event.phase.ended
            ]

        return await _events(emulator, await emulator.control.submit(command))

    return work


def repair(where: str) -> Work[None]:
    """Say that a degraded or failed host is well again."""

    async def work(emulator: Emulator) -> None:
        def command(tx: Transaction) -> None:
            maintenance.repair_host(_host(tx, where), by=OPERATOR)(tx)

        await emulator.control.submit(command)

    return work


def cancel(event_ids: Sequence[str]) -> Work[None]:
    """Cancel events; one that another of them took along with its operation is done already."""

    async def work(emulator: Emulator) -> None:
        def command(tx: Transaction) -> None:
            for event_id in event_ids:
                if maintenance.need_event(tx, event_id)[1].phase is not Phase.CANCELED:
                    maintenance.cancel_event(event_id, by=OPERATOR)(tx)

        await emulator.control.submit(command)

    return work


def approve(event_ids: Sequence[str]) -> Work[None]:
    """Say go ahead, as an operator may in the name of a scope."""

    async def work(emulator: Emulator) -> None:
        def command(tx: Transaction) -> None:
            for event_id in event_ids:
                maintenance.approve_event(event_id, by=OPERATOR)(tx)

        await emulator.control.submit(command)

    return work


def _host(tx: Transaction, where: str) -> str:
    """The host of that name, or the host of the VM of that name."""
    if where in tx.hosts_by_name:
        return where
    vm = tx.vm(where)
    if vm is None:
        known = [*tx.hosts_by_name, *tx.scope_of_vm]
        raise NotFound(f"There is no host or VM {shown(where)}.", meant(where, known))
    return vm.host


def _not_before_ms(emulator: Emulator, not_before: When | None) -> int | None:
    now_ms = emulator.clock.now_ms()
    if not_before is None:
        return None
    if isinstance(not_before, timedelta):
        return _written(now_ms + not_before // timedelta(milliseconds=1))
    if isinstance(not_before, str):
        return parse_time(not_before, now_ms=now_ms)
    if not_before.tzinfo is None:
        raise Invalid(
            f"The time {not_before} names no zone.",
            "Give a datetime with one, a timedelta from now, or a text like +2h.",
        )
    return _written(ms_of(not_before))


def _written(at_ms: int) -> int:
    """An instant that can be written as a date. Raises Invalid for another."""
    if not 0 <= at_ms <= LAST_MS:
        raise Invalid(
            "The time of not_before cannot be written as a date.",
            f"Times from {time_text(0)} to {time_text(LAST_MS)} are accepted.",
        )
    return at_ms


async def _events(emulator: Emulator, event_ids: Sequence[str]) -> tuple[Event, ...]:
    """The events as they are when all is settled."""

    def query(store: Store) -> tuple[Event, ...]:
        return tuple(event_of(need_event(store, event_id)) for event_id in event_ids)

    return await emulator.control.read(query)


async def _operation(emulator: Emulator, ordered: model.Operation) -> Operation:
    return Operation(
        operation_id=ordered.operation_id,
        host=ordered.host,
        event_type=ordered.event_type.value,
        events=await _events(emulator, [event_id for _, event_id in ordered.members]),
    )
