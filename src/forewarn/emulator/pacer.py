"""Drives the emulator: everything that can happen now happens now, then time may move.

`serve` has loops that look again every so often; here nothing is left to the time that a computer
takes. `settle` works until nothing changes any more, and `advance` goes from one instant at which
something is due to the next. The decisions are those of the product: the same ticker, the same
hosts, the same commands.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterator
from typing import Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from forewarn.control.control import Control
from forewarn.control.fleet_reader import FleetReader
from forewarn.control.loops import TickerLoop
from forewarn.control.writer import Wanted
from forewarn.core import notice, windows
from forewarn.core.errors import Conflict, Invalid
from forewarn.core.model import SECOND_MS, Phase
from forewarn.doorbell import rung
from forewarn.emulator.clock import EmulatedClock
from forewarn.host.daemon import Hosts
from forewarn.host.in_process_guests import InProcessGuests
from forewarn.logs import Log
from forewarn.ports import WorkOrder
from forewarn.text.durations import DURATION_MS_MAX

log = Log(__name__)

T = TypeVar("T")

Act = Callable[[], Awaitable[str | None]]

ROUNDS_MAX = 10_000  # of one settling; each changes something, so an end is always near
INSTANTS_MAX = 100_000  # in one advance
LOOK_EVERY_S = 1.0  # on a clock that runs; also what a lost ring costs at most


class Instant(Struct, frozen=True, order=True):
    """When something is due, and what, in words."""

    at_ms: int
    what: str


class Appointment(Struct, eq=False):
    """Something of the emulator's own that happens at an instant, like a step of a scenario."""

    instant: Instant
    act: Act
    canceled: bool = False
    otherwise: str = ""  # how it went, if not as it was called

    def cancel(self) -> None:
        """It will not happen. Without effect once it has."""
        self.canceled = True


class UnderWay(Protocol):
    """A hypervisor that can say when its actions end (`adapters.simulated.hypervisor`)."""

    def under_way(self) -> list[tuple[int, WorkOrder]]: ...


class Agents(Protocol):
    """Who polls in real time (`emulator.agent_polls`)."""

    async def wait(self, scopes: Collection[str]) -> None: ...

    def count_as_polled(self, scopes: Collection[str]) -> None: ...


class Pacer:
    """Belongs to the event loop. One thing at a time: callers queue for the lock."""

    def __init__(
        self,
        *,
        clock: EmulatedClock,
        control: Control,
        ticker: TickerLoop,
        guests: InProcessGuests,
        hosts: Hosts,
        hypervisor: UnderWay,
        arrange: Callable[[], Awaitable[None]],
        agents: Agents | None = None,
        more_instants: Callable[[], Iterator[Instant]] = lambda: iter(()),
    ) -> None:
        self._clock = clock
        self._control = control
        self._ticker = ticker
        self._guests = guests
        self._hosts = hosts
        self._hypervisor = hypervisor
        self._arrange = arrange
        self._agents = agents
        self._more_instants = more_instants
        self._appointments: list[Appointment] = []
        self._lock = asyncio.Lock()
        self._ring = asyncio.Event()
        self._changes = 0

    def changed(self) -> None:
        """Something was committed that others may have to look at."""
        self._changes += 1
        self._ring.set()

    def at(self, at_ms: int, what: str, act: Act) -> Appointment:
        """Have `act` called when the clock gets there: at once if it has, when all is settled.

        `act` runs while the pacer works: it must not call `settle`, `advance` or `next`, nor
        submit through a control that does. What it raises goes to the caller that moved the clock;
        what it returns tells that caller how it went, if that was not as it is called.
        """
        appointment = Appointment(Instant(at_ms, what), act)
        self._appointments.append(appointment)
        self._ring.set()
        return appointment

    async def settle(self) -> None:
        """Let everything happen that can happen now."""
        async with self._lock:
            await self._settle()

    async def advance(self, ms: int) -> list[Instant]:
        """Move the clock by so much, through every instant between; what was due on the way.

        Raises Invalid for a time that is negative or longer than ten years.
        """
        if not 0 <= ms <= DURATION_MS_MAX:
            raise Invalid(
                f"The clock cannot be advanced by {ms / SECOND_MS:g} s.",
                "It goes ahead only, by at most ten years at once.",
            )
        async with self._lock:
            return await self._advance_to(self._clock.now_ms() + ms)

    async def next(self) -> list[Instant]:
        """Move the clock to the next instant at which something is due; what was due then.

        Without effect, and empty, if nothing is.
        """
        async with self._lock:
            await self._settle()
            upcoming = await self._upcoming()
            return await self._advance_to(upcoming[0].at_ms) if upcoming else []

    async def upcoming(self) -> list[Instant]:
        """What is due later, as known now, soonest first."""
        async with self._lock:
            return await self._upcoming()

    async def run(self) -> None:
        """Keep everything settled, on a clock that runs by itself too. Until canceled."""
        while True:
            self._ring.clear()
            since_ms = self._clock.now_ms()
            await self.settle()
            wait_s: float | None = None
            if self._clock.speed:
                wait_s = await self._wait_s(since_ms)
            await rung(self._ring, wait_s)

    async def _wait_s(self, since_ms: int) -> float:
        """How long nothing is due, in real seconds, after a settling that began at `since_ms`.

        What fell due while it went on may have come too late for it: then there is no wait.
        """
        async with self._lock:
            upcoming = await self._upcoming(since_ms)
        if not upcoming:
            return LOOK_EVERY_S
        left_s = (upcoming[0].at_ms - self._clock.now_ms()) / SECOND_MS / self._clock.speed
        return min(max(left_s, 0.0), LOOK_EVERY_S)

    async def _advance_to(self, target_ms: int) -> list[Instant]:
        passed: list[Instant] = []
        alive: set[str] = set()  # scopes that were polled while the clock was turned
        await self._settle()
        for _ in range(INSTANTS_MAX):
            upcoming = await self._upcoming()
            if not upcoming or upcoming[0].at_ms > target_ms:
                self._clock.advance_to(target_ms)
                await self._settle()
                return passed
            first_ms = upcoming[0].at_ms
            spared = await self._let_agents_poll(first_ms, alive)
            if spared:
                alive |= spared
                passed += [
                    Instant(first_ms, f"scope {name} stays enabled: its agent polls")
                    for name in sorted(spared)
                ]
                continue
            appointments = list(self._appointments)
            self._clock.advance_to(first_ms)
            await self._settle()
            otherwise = {a.instant: a.otherwise for a in appointments if a.otherwise}
            passed += [
                replace(instant, what=f"{instant.what} {otherwise.get(instant, '')}".rstrip())
                for instant in upcoming
                if instant.at_ms == first_ms
            ]
        raise Conflict(f"More than {INSTANTS_MAX} things are due in that time.", "Advance by less.")

    async def _let_agents_poll(self, at_ms: int, alive: Collection[str]) -> set[str]:
        """Stop just before scopes fall silent; those that are polled meanwhile, in real time.

        Who has polled since the clock is turned is not waited for again.
        """
        names = falling_silent(self._control.fleet, at_ms)
        if not names or self._agents is None:
            return set()
        self._clock.advance_to(at_ms - 1)
        await self._settle()
        await self._agents.wait([name for name in names if name not in alive])
        self._agents.count_as_polled([name for name in names if name in alive])
        await self._settle()
        return set(names) - set(falling_silent(self._control.fleet, at_ms))

    async def _settle(self) -> None:
        """See `settle`. The caller holds the lock."""
        for _ in range(ROUNDS_MAX):
            before = self._changes
            await self._arrange()
            await self._guests.send(polls=True)
            await self._hosts.work_once()
            await self._ticker.tick()
            acted = await self._keep_appointments()
            if not acted and self._changes == before:
                return
        raise Conflict(f"Nothing came to rest in {ROUNDS_MAX} rounds.", "This is a bug.")

    async def _keep_appointments(self) -> bool:
        now_ms = self._clock.now_ms()
        due: list[Appointment] = []
        later: list[Appointment] = []
        for appointment in self._appointments:
            reached = appointment.canceled or appointment.instant.at_ms <= now_ms
            (due if reached else later).append(appointment)
        if not due:
            return False
        self._appointments = later
        # In the order of their instants; those of one instant in the order they were made.
        waiting = deque(sorted(due, key=lambda a: a.instant.at_ms))
        try:
            while waiting:
                appointment = waiting.popleft()
                if not appointment.canceled:
                    appointment.otherwise = await appointment.act() or ""
        finally:  # what one raises keeps none of the others from happening, at the next settling
            self._appointments += waiting
        return True

    async def _upcoming(self, since_ms: int | None = None) -> list[Instant]:
        """What is due after `since_ms`, else later than now. The caller holds the lock."""
        after_ms = self._clock.now_ms() if since_ms is None else since_ms
        found = due_later(self._control.fleet)
        offset_ms = self._clock.now_ms() - self._clock.monotonic_ms()
        found += [
            Instant(ends_ms + offset_ms, f"{action.kind.value} of {action.vm or action.host} ends")
            for ends_ms, action in self._hypervisor.under_way()
        ]
        found += [a.instant for a in self._appointments if not a.canceled]
        found += self._more_instants()
        return sorted(instant for instant in found if instant.at_ms > after_ms)


def falling_silent(fleet: FleetReader, at_ms: int) -> list[str]:
    """The scopes that fall silent at that instant unless they are polled before."""
    if fleet.policy.always_enabled:  # a scope that falls silent is told all the same
        return []
    return [
        name
        for name, scope in fleet.scopes.items()
        if scope.enabled
        and scope.polled_ms is not None
        and scope.polled_ms + notice.ENABLED_FOR_MS == at_ms
    ]


def due_later(fleet: FleetReader) -> list[Instant]:
    """What the rules themselves wait for, also where it has passed and something else holds it:
    notice, deadlines, recoveries, and falling silent.
    """
    found: list[Instant] = []
    if not fleet.policy.always_enabled:  # else a scope that falls silent is told all the same
        found += [
            Instant(scope.polled_ms + notice.ENABLED_FOR_MS, f"scope {name} falls silent")
            for name, scope in fleet.scopes.items()
            if scope.enabled and scope.polled_ms is not None
        ]
    for name in sorted(fleet.busy_scopes):
        scope = fleet.scopes[name]
        found += [
            Instant(recovery.until_ms, f"domain {recovery.update_domain} of {name} has recovered")
            for recovery in scope.recoveries
        ]
        for event in scope.events:
            of = f"{event.event_type.value} of {', '.join(event.resources)}"
            due_ms = notice.due_from_ms(event)
            if event.phase is Phase.SCHEDULED and due_ms is not None:
                opens_ms = windows.opens_ms(event.window)
                found.append(Instant(max(due_ms, opens_ms), f"{of} may start"))
            elif event.phase is Phase.STARTED and event.deadline_ms is not None:
                found.append(Instant(event.deadline_ms, f"{of} is given up"))
            if event.phase is Phase.SCHEDULED and event.window and not event.operation_id:
                found.append(Instant(event.window.end_ms, f"the window of the {of} closes"))
    for operation in fleet.operations.values():
        of = f"{operation.event_type.value} of {operation.host}"
        if operation.deadline_ms is not None:
            found.append(Instant(operation.deadline_ms, f"{of} fails"))
        elif operation.window is not None:
            found.append(Instant(operation.window.start_ms, f"the window of the {of} opens"))
            found.append(Instant(operation.window.end_ms, f"the window of the {of} closes"))
    return found


class SettledControl(Control):
    """A control whose commands are answered when everything they cause has happened.

    What a caller does next then finds the same state in every run.
    """

    def __init__(self, control: Control, pacer: Pacer) -> None:
        super().__init__(
            writer=control,
            store=control.store,
            clock=control.clock,
            lease_clock=control.lease_clock,
            fleet=control.fleet,
            observed=control.observed,
        )
        self._pacer = pacer

    async def submit(self, command: Wanted[T]) -> T:
        result = await super().submit(command)
        await self._pacer.settle()
        return result
