"""What a test orders, as work for the emulator's loop: the orders that every operator has.

Each is answered when everything that it causes has happened. Raises the Refusal of the rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import cast

from forewarn.control import commands, operator_commands
from forewarn.core import model
from forewarn.core.errors import Invalid, NotFound, NotSpot
from forewarn.core.model import EventType
from forewarn.core.suggestions import meant, shown
from forewarn.ports import Store
from forewarn.testing.background import Work
from forewarn.testing.expectations import need_event
from forewarn.testing.literals import HostEventType
from forewarn.testing.tracebacks import for_refusals
from forewarn.testing.values import CloudOperation, Event, event_of, ms_of
from forewarn.wire.instants import TimeInput, WindowInput, parse_instant
from forewarn.wiring.simulate import Emulator

When = datetime | timedelta | str
InWindow = tuple[When, When]
__tracebackhide__ = for_refusals

BROKEN_BECAUSE = "the test says so"  # why the rule of one domain at a time is broken


def order_vm(vm: str, event_type: EventType, *, window: InWindow | None = None) -> Work[Event]:
    """Restart, delete or evict a VM."""

    async def work(emulator: Emulator) -> Event:
        order = commands.VM_ORDERS[event_type](by=emulator.by, vm=vm, window=_window(window))
        try:
            ordered = await emulator.control.submit(order)
        except NotSpot as refusal:
            say_so = 'Have it as one: spot=True for the whole cloud, or spot=["NAME"].'
            raise NotSpot(refusal.refused, say_so) from None
        return (await _events(emulator, [ordered.event_id]))[0]

    return work


def redeploy(vm: str, *, window: InWindow | None, lose_disk: bool) -> Work[Event]:
    """Move a VM to another host."""

    async def work(emulator: Emulator) -> Event:
        order = commands.RedeployVm(
            by=emulator.by, vm=vm, window=_window(window), lose_disk=lose_disk
        )
        ordered = await emulator.control.submit(order)
        return (await _events(emulator, [ordered.event_id]))[0]

    return work


def maintain(
    where: str,
    event_type: str,
    *,
    not_before: When | None,
    window: InWindow | None = None,
    duration: int | None,
    description: str | None,
    break_domains: bool,
    lose_disk: bool = False,
) -> Work[CloudOperation]:
    """Freeze or reboot a host, or move its VMs away. `where` is the host, or a VM on it."""
    types = [one.value for one in operator_commands.EVENT_TYPES_OF_HOSTS]
    if event_type not in types:
        raise Invalid(
            f"A host cannot be maintained by {shown(event_type)}.", f"Use {', '.join(types)}."
        )

    async def work(emulator: Emulator) -> CloudOperation:
        order = commands.MaintainHost(
            by=emulator.by,
            host=_host(emulator, where),
            event_type=EventType(event_type),
            not_before=_when(not_before),
            window=_window(window),
            duration_s=duration,
            description=description,
            break_domains=break_domains,
            lose_disk=lose_disk,
            reason=BROKEN_BECAUSE if break_domains else "",
        )
        return await _operation(emulator, await emulator.control.submit(order))

    return work


def degrade(
    where: str, *, not_before: When | None, window: InWindow | None = None
) -> Work[CloudOperation]:
    """Say that the hardware of a host is expected to fail."""

    async def work(emulator: Emulator) -> CloudOperation:
        order = commands.DegradeHost(
            by=emulator.by,
            host=_host(emulator, where),
            not_before=_when(not_before),
            window=_window(window),
        )
        return await _operation(emulator, await emulator.control.submit(order))

    return work


def fail(where: str, *, fenced: bool) -> Work[tuple[Event, ...]]:
    """Say that a host has failed; the events of the VMs that were on it."""

    async def work(emulator: Emulator) -> tuple[Event, ...]:
        order = commands.FailHost(by=emulator.by, host=_host(emulator, where), fenced=fenced)
        failed = await emulator.control.submit(order)
        return await _events(emulator, [event.event_id for event in failed.events])

    return work


def repair(where: str) -> Work[None]:
    """Say that a degraded or failed host is well again."""

    async def work(emulator: Emulator) -> None:
        order = commands.RepairHost(by=emulator.by, host=_host(emulator, where))
        await emulator.control.submit(order)

    return work


def cancel(event_ids: Sequence[str]) -> Work[None]:
    """Cancel events; one that another of them took along with its operation is done already."""

    async def work(emulator: Emulator) -> None:
        once: dict[str, str] = {}  # one event of each operation
        for event_id in event_ids:
            found = emulator.control.fleet.open_event(event_id.upper())
            once.setdefault((found[1].operation_id if found else None) or event_id, event_id)
        orders = tuple(commands.CancelEvent(by=emulator.by, event_id=one) for one in once.values())
        await emulator.control.submit(commands.AllOf(by=emulator.by, orders=orders))

    return work


def postpone(event_id: str, until: When, reason: str) -> Work[Event]:
    """Withdraw an event and announce it anew, with its operation if it has to; the new event."""

    async def work(emulator: Emulator) -> Event:
        order = commands.PostponeEvent(
            by=emulator.by, event_id=event_id, until=_instant(until), reason=reason
        )
        postponed = await emulator.control.submit(order)
        return (await _events(emulator, [postponed.event.event_id]))[0]

    return work


def approve(event_ids: Sequence[str], reason: str) -> Work[None]:
    """Say go ahead, as an operator may in place of a VM."""

    async def work(emulator: Emulator) -> None:
        orders = tuple(
            commands.ApproveEvent(by=emulator.by, event_id=one, reason=reason) for one in event_ids
        )
        await emulator.control.submit(commands.AllOf(by=emulator.by, orders=orders))

    return work


def _host(emulator: Emulator, where: str) -> str:
    """The host of that name, or the host of the VM of that name."""
    fleet = emulator.control.fleet
    if where in fleet.hosts_by_name:
        return where
    vm = fleet.vm(where)
    if vm is None:
        known = [*fleet.hosts_by_name, *fleet.scope_of_vm]
        raise NotFound(f"There is no host or VM {shown(where)}.", meant(where, known))
    return vm.host


def _when(not_before: When | None) -> TimeInput | None:
    return None if not_before is None else _instant(not_before)


def _instant(when: When) -> TimeInput:
    if isinstance(when, str):
        return parse_instant(when)
    if isinstance(when, timedelta):
        from_now_ms = when // timedelta(milliseconds=1)
        return TimeInput(said=f"{when} from now", from_now_ms=from_now_ms)
    if when.tzinfo is None:
        raise Invalid(
            f"The time {when} names no zone.",
            "Give a datetime with one, a timedelta from now, or a text like +2h.",
        )
    return TimeInput(said=str(when), at_ms=ms_of(when))


def _window(window: InWindow | None) -> WindowInput | None:
    if window is None:
        return None
    start, end = window
    return WindowInput(start=_instant(start), end=_instant(end))


async def _events(emulator: Emulator, event_ids: Sequence[str]) -> tuple[Event, ...]:
    """The events as they are when all is settled."""

    def query(store: Store) -> tuple[Event, ...]:
        return tuple(event_of(need_event(store, event_id)) for event_id in event_ids)

    return await emulator.control.read(query)


async def _operation(emulator: Emulator, ordered: model.Operation) -> CloudOperation:
    return CloudOperation(
        operation_id=ordered.operation_id,
        host=ordered.host,
        event_type=cast("HostEventType", ordered.event_type.value),
        events=await _events(emulator, [event_id for _, event_id in ordered.members]),
    )
