"""What a test can expect of the code it tests, how that is waited for, and what is said if not.

Everything here runs on the emulator's loop. Waiting is done on the doorbell, in real seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from enum import Enum, auto

from msgspec import Struct

from forewarn.control.fleet_reader import FleetLook
from forewarn.core import explain
from forewarn.core.errors import Invalid, NotFound
from forewarn.core.model import Phase, ScheduledEvent
from forewarn.core.scheduling import AUTO_APPROVED_BY
from forewarn.core.suggestions import shown
from forewarn.emulator.faults.book import Fault
from forewarn.ports import ListFilter, Store
from forewarn.testing.background import Work
from forewarn.testing.values import clock_text, event_of, fact_of, read_of, time_of
from forewarn.wire.api_versions import NEWEST
from forewarn.wiring.simulate import Emulator

WITHIN_S = 5.0  # unless a test says otherwise
WITHIN_S_MAX = 86_400.0
FACTS_SHOWN_MAX = 40


class Observation(Enum):
    """What a look at the cloud shows of an expectation."""

    MET = auto()
    NOT_YET = auto()
    NEVER = auto()  # it cannot be met any more: no use in waiting


class Expectation(Struct, frozen=True, kw_only=True):
    """`look` says whether it is met, `missed` what to say if not, `story` what was the case."""

    look: Callable[[Emulator], Awaitable[Observation]]
    missed: str
    story: Callable[[Emulator], Awaitable[Sequence[str]]]
    negative: bool = False  # nothing of the kind may happen while it is waited for


def judging(expectation: Expectation, within_s: float) -> Work[str]:
    """Work that waits for the expectation and returns an empty text, or what is wrong.

    Raises Invalid for a wait that is no number of seconds, or too long.
    """
    if not within_s <= WITHIN_S_MAX:  # what is not a number is not less either
        raise Invalid(
            f"within is {shown(within_s)}.", f"Seconds are accepted, at most {WITHIN_S_MAX:g}."
        )

    async def work(emulator: Emulator) -> str:
        answer = await _waited(emulator, expectation.look, within_s)
        if (answer is Observation.MET) is not expectation.negative:
            return ""
        told = expectation.missed
        if answer is Observation.NOT_YET and within_s > 0:
            told += f" within {within_s:g} s"
        elif answer is Observation.NEVER:
            told += ", and nothing can change that any more"
        lines = [f"{told}.", *await expectation.story(emulator)]
        return "\n  ".join(lines)

    return work


async def _waited(
    emulator: Emulator, look: Callable[[Emulator], Awaitable[Observation]], within_s: float
) -> Observation:
    loop = asyncio.get_running_loop()
    until_s = loop.time() + within_s
    while True:
        ring = emulator.doorbell.next_ring()
        answer = await look(emulator)
        if answer is not Observation.NOT_YET or loop.time() >= until_s or emulator.errors():
            return answer
        try:
            async with asyncio.timeout_at(until_s):
                await ring.wait()
        except TimeoutError:
            continue  # one last look


# What can be expected.


def approved(event_ids: Sequence[str], *, by: str | None = None) -> Expectation:
    """Each of the events was approved, and with `by` by that VM."""

    async def look(emulator: Emulator) -> Observation:
        events = await _events(emulator, event_ids)
        if any(event.approved_by != by for event in events if by and event.approved_by):
            return Observation.NEVER
        if any(e.approved_ms is None and e.phase is not Phase.SCHEDULED for e in events):
            return Observation.NEVER
        answer = _all(event.approved_ms is not None for event in events)
        if answer is Observation.NOT_YET and by and by not in (emulator.by.name, AUTO_APPROVED_BY):
            emulator.document(by, NEWEST.name)  # raises NotFound for a VM there is not
        return answer

    words = f" by {by}" if by else ""
    return _of_events(event_ids, look, f"was not approved{words}")


def not_approved(event_ids: Sequence[str]) -> Expectation:
    """None of the events is approved while it is waited for."""

    async def look(emulator: Emulator) -> Observation:
        events = await _events(emulator, event_ids)
        return (
            Observation.MET if any(event.approved_ms is not None for event in events) else _NOT_YET
        )

    return _of_events(event_ids, look, "was approved", negative=True)


def started(event_ids: Sequence[str]) -> Expectation:
    """Each of the events has started; one that is over by now has."""

    async def look(emulator: Emulator) -> Observation:
        events = await _events(emulator, event_ids)
        if any(event.started_ms is None and event.phase.ended for event in events):
            return Observation.NEVER
        return _all(event.started_ms is not None for event in events)

    return _of_events(event_ids, look, "has not started")


def gone(event_ids: Sequence[str]) -> Expectation:
    """Each of the events has left the document."""

    async def look(emulator: Emulator) -> Observation:
        return _all(event.phase.ended for event in await _events(emulator, event_ids))

    return _of_events(event_ids, look, "is not gone")


def read(vm: str, event_ids: Sequence[str]) -> Expectation:
    """The VM was sent a document with each of the events in it."""

    async def look(emulator: Emulator) -> Observation:
        await emulator.pacer.settle()  # first reads are kept when everything is settled
        found = await emulator.control.read(lambda store: _readers(store, event_ids))
        if all(vm in readers for readers in found):
            return Observation.MET
        emulator.document(vm, NEWEST.name)  # raises NotFound for a VM there is not
        ended = any(event.phase.ended for event in await _events(emulator, event_ids))
        return Observation.NEVER if ended else Observation.NOT_YET

    return _of_events(event_ids, look, f"was not read by {vm}")


def polled(vm: str, *, more_than: int) -> Expectation:
    """The VM has asked for its document more often than that, whatever it was answered."""

    async def look(emulator: Emulator) -> Observation:
        return _all([polls_of(emulator, vm) > more_than])

    async def story(emulator: Emulator) -> list[str]:
        faults = [_fault_words(fault) for fault in emulator.faults.list()]
        return [_asked(emulator, vm), f"Faults that stand: {', '.join(faults) or 'none'}."]

    often = f" more than {_times(more_than)}" if more_than else ""
    return Expectation(look=look, missed=f"{vm} has not polled{often}", story=story)


def met(fault_id: str, *, times: int | None) -> Expectation:
    """The fault has hit so many requests; without `times` all that it is for, or one."""

    async def look(emulator: Emulator) -> Observation:
        fault = emulator.faults.get(fault_id)
        if fault.hits >= (times or fault.order.count or 1):
            return Observation.MET
        return Observation.NEVER if fault.over else Observation.NOT_YET

    async def story(emulator: Emulator) -> list[str]:
        fault = emulator.faults.get(fault_id)
        lines = [_fault_words(fault)]
        return [*lines, _asked(emulator, fault.order.vm)] if fault.order.vm else lines

    wanted = f" {_times(times)}" if times else ""
    return Expectation(look=look, missed=f"Fault {fault_id} was not met{wanted}", story=story)


# How.

_NOT_YET = Observation.NOT_YET


def _all(conditions: Iterable[bool]) -> Observation:
    return Observation.MET if all(conditions) else Observation.NOT_YET


def _of_events(
    event_ids: Sequence[str],
    look: Callable[[Emulator], Awaitable[Observation]],
    missed: str,
    *,
    negative: bool = False,
) -> Expectation:
    async def story(emulator: Emulator) -> list[str]:
        await emulator.pacer.settle()  # first reads are kept when everything is settled
        lines = [await _time(emulator)]
        for event in await _events(emulator, event_ids):
            lines += await emulator.control.read(_telling(event))
            lines += [f"  {line}" for line in holding(emulator.control.fleet.look(), event)]
            lines += [f"  {_asked(emulator, vm)}" for vm in event.resources]
        return lines

    what = f"Event {event_ids[0]}" if len(event_ids) == 1 else "One of the events"
    return Expectation(look=look, missed=f"{what} {missed}", story=story, negative=negative)


async def _time(emulator: Emulator) -> str:
    """What the clock shows, and what it must be turned to for more to happen."""
    now = f"The clock shows {clock_text(time_of(emulator.clock.now_ms()))}"
    upcoming = await emulator.pacer.upcoming()
    if not upcoming:
        return f"{now}; nothing is due."
    return f"{now}; next: {upcoming[0].what} at {clock_text(time_of(upcoming[0].at_ms))}."


async def _events(emulator: Emulator, event_ids: Sequence[str]) -> list[ScheduledEvent]:
    def query(store: Store) -> list[ScheduledEvent]:
        return [need_event(store, event_id) for event_id in event_ids]

    return await emulator.control.read(query)


def need_event(store: Store, event_id: str) -> ScheduledEvent:
    """The event of that id, open or ended. Raises NotFound."""
    event = store.event(event_id.upper())
    if event is None:
        raise NotFound(f"There is no event {event_id[:64]}.", "`cloud.events()` has the open ones.")
    return event


def polls_of(emulator: Emulator, vm: str) -> int:
    """How often the VM has asked for its document. Raises NotFound for one that never was."""
    polls = emulator.visits.polls(vm)
    if not polls:
        emulator.document(vm, NEWEST.name)  # raises
    return polls


def _readers(store: Store, event_ids: Sequence[str]) -> list[set[str]]:
    return [{one.vm for one in store.first_reads(event_id)} for event_id in event_ids]


def _telling(event: ScheduledEvent) -> Callable[[Store], list[str]]:
    return lambda store: _told(store, event)


def holding(fleet: FleetLook, event: ScheduledEvent) -> list[str]:
    """What an event that has not started waits for."""
    found = fleet.open_event(event.event_id)
    if found is None or found[1].phase is not Phase.SCHEDULED:
        return []
    explained = explain.explain_event(*found, fleet, fleet.now_ms)
    return [f"It waits: {hold.what}." for hold in explained.holds]


def _told(store: Store, found: ScheduledEvent) -> list[str]:
    """Everything there is to know of an event, line by line."""
    event = event_of(found)
    reads = [read_of(one) for one in store.first_reads(event.event_id)]
    readers = ", ".join(f"{one.vm} at {clock_text(one.at)}" for one in reads)
    lines = [f"{event} is {event.phase.value}, not before {clock_text(event.not_before)}."]
    if event.silent:
        lines.append(f"  It is silent: no VM of scope {event.scope} had polled.")
    lines.append(f"  Read by {readers or 'no VM'}; approved by {event.approved_by or 'no VM'}.")
    about = ListFilter(event_id=event.event_id, scope=event.scope)
    facts = store.journal(about, after=0, limit=FACTS_SHOWN_MAX)
    lines.append("  Its journal:")
    lines += [f"    {fact_of(fact)}" for fact in facts]
    return lines


def _asked(emulator: Emulator, vm: str) -> str:
    visits = emulator.visits
    approvals = visits.approvals(vm)
    sent = "1 approval" if approvals == 1 else f"{approvals} approvals"
    return f"{vm} has polled {_times(visits.polls(vm))} and sent {sent}."


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _fault_words(fault: Fault) -> str:
    whom = f" of {fault.order.vm}" if fault.order.vm else ""
    over = ", is over" if fault.over else ""
    return f"{fault.fault_id} ({fault.kind.value}{whom}) has hit {_times(fault.hits)}{over}"
