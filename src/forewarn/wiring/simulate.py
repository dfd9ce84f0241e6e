"""`forewarn simulate`: the product with a clock that can be turned, kept in memory only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from forewarn.adapters.store import SqliteStore
from forewarn.adapters.system import SystemClock
from forewarn.api.app import create_app
from forewarn.api.doorbell import Doorbell
from forewarn.api.route_table import RouteSpec
from forewarn.control import inventory
from forewarn.core.addresses import listen_text
from forewarn.core.errors import NotFound
from forewarn.core.model import SECOND_MS, Vm
from forewarn.emulator.clock import EmulatedClock, StillClock
from forewarn.emulator.clock_routes import clock_routes
from forewarn.emulator.fault_routes import fault_routes
from forewarn.emulator.faults import FaultBook
from forewarn.emulator.faulty_endpoint import FaultyEndpoint
from forewarn.emulator.fleet import ANY_PORT
from forewarn.emulator.ids import SeededIds
from forewarn.emulator.pacer import Instant, Pacer, SettledControl
from forewarn.emulator.scenario_routes import scenario_routes
from forewarn.emulator.scenario_runner import ScenarioRunner
from forewarn.settings import Settings
from forewarn.wiring.assembly import Adapters, Assembly, Guests
from forewarn.wiring.operator_server import serving
from forewarn.wiring.process import raise_descriptor_limit

# Where the clock starts if a seed is given: two runs are the same to the byte, dates included.
SEEDED_START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is emulated.

    The same plan with a seed, and the same commands, give the same run byte for byte. Without a
    seed the ids are those of seed 0 and the clock starts with the current second. `speed` is how
    many times as fast as real time the clock runs; 0 stands still until it is turned. `listen` is
    where the first VM of the inventory listens, unless the inventory says it.
    """

    settings: Settings
    inventory: str
    seed: int | None = None
    start_ms: int | None = None
    speed: int = 0
    listen: str = ANY_PORT


class Emulator:
    """A whole Forewarn in memory. Made, started and closed inside one event loop."""

    def __init__(self, plan: Plan) -> None:
        raise_descriptor_limit()
        real = SystemClock()
        self._plan = plan
        self.clock = EmulatedClock(start_ms=_start_ms(plan, real), speed=plan.speed, real=real)
        seed = plan.seed or 0
        self.faults = FaultBook(self.clock.now_ms, seed, knows_vm=self._knows_vm)
        store = SqliteStore.in_memory()
        try:
            self._parts = parts = Assembly(
                plan.settings,
                Adapters(
                    store=store, clock=self.clock, lease_clock=StillClock(), ids=SeededIds(seed)
                ),
                ring=self._changed,
                shown_as=self.faults.renumbered,
            )
        except BaseException:
            store.close()
            raise
        self.pacer = Pacer(
            clock=self.clock,
            control=parts.control,
            ticker=parts.ticker,
            traces=parts.traces,
            hosts=parts.hosts,
            hypervisor=parts.hypervisor,
            arrange=self._arrange,
            more_instants=self._more_instants,
        )
        self.control = SettledControl(
            writer=parts.writer,
            store=store,
            clock=self.clock,
            dispatch=parts.dispatch,
            pacer=self.pacer,
        )
        self.scenarios = ScenarioRunner(
            pacer=self.pacer,
            control=parts.control,
            machines=parts.hypervisor,
            faults=self.faults,
        )
        self._endpoint = FaultyEndpoint(
            Guests(self.control, parts.traces),
            now_ms=self.clock.now_ms,
            place=plan.settings.place(),
            metadata_header=plan.settings.metadata_header,
            faults=self.faults,
        )
        self._listeners = parts.serve_guests(self._endpoint)
        self._first_vm = ""
        self._pacing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Have the fleet and its listeners. Raises one of CannotStart; `close` it all the same."""
        self._parts.writer.start()
        wanted = inventory.parse(self._plan.inventory)
        self._first_vm = wanted.vms[0].name if wanted.vms else ""
        await self._parts.control.submit(inventory.apply(self._plan.inventory, by="inventory"))
        await self._arrange()
        await self._parts.hosts.heartbeat()
        await self.pacer.settle()
        if self.clock.speed:
            self._pacing = asyncio.get_running_loop().create_task(self.pacer.run())

    async def wait(self) -> None:
        """Run for ever. Ends only by being canceled, or by what must not happen."""
        await (self._pacing or asyncio.get_running_loop().create_future())

    async def close(self) -> None:
        """End everything: no port, thread or task is left."""
        if self._pacing is not None:
            self._pacing.cancel()
            await asyncio.gather(self._pacing, return_exceptions=True)
        self._parts.doorbell.close()
        await self._listeners.close()
        await self._endpoint.close()
        await self._parts.writer.stop()
        self._parts.store.close()

    @property
    def doorbell(self) -> Doorbell:
        """Rung after every commit."""
        return self._parts.doorbell

    def document(self, vm: str, version: str) -> bytes:
        """What the VM would read now, without it having read anything. Raises NotFound."""
        guest = self._parts.documents.guest(vm)
        if guest is None:
            raise NotFound(f"There is no VM {vm}.", "`forewarn vm list` shows the names.")
        return guest.page.documents[version].body

    def urls(self) -> dict[str, str]:
        """Where each VM reads its document, in the order of the inventory."""
        addresses = self._listeners.addresses()
        return {
            vm.name: f"http://{listen_text(*addresses[vm.name])}"
            for scope in self._parts.memory.scopes.values()
            for vm in scope.vms
            if vm.name in addresses
        }

    @asynccontextmanager
    async def operator(self, *, token: str, listen: str = ANY_PORT) -> AsyncIterator[str]:
        """The operator API, with the emulator's own routes, for the length of the block."""
        app = create_app(
            self.control,
            token=token,
            measures=self._parts.measures,
            doorbell=self._parts.doorbell,
            more=self._routes(),
        )
        async with serving(app, listen) as url:
            yield url

    def _routes(self) -> Sequence[RouteSpec]:
        return [
            *clock_routes(self.pacer, self.clock),
            *fault_routes(self.faults),
            *scenario_routes(self.scenarios),
        ]

    def _changed(self) -> None:
        self.pacer.changed()

    def _knows_vm(self, vm: str) -> bool:
        return self._parts.documents.guest(vm) is not None

    def _more_instants(self) -> Iterator[Instant]:
        ends_ms = self.faults.ends()
        if ends_ms is not None:
            yield Instant(ends_ms, "a fault ends")

    async def _arrange(self) -> None:
        if self._parts.fleet_changed.is_set():
            self._parts.fleet_changed.clear()
            await self._parts.arrange(self._listeners, self._listen)

    def _listen(self, vm: Vm) -> str:
        if vm.name == self._first_vm and vm.listen in (None, ANY_PORT):
            return self._plan.listen
        return vm.listen or ANY_PORT


def _start_ms(plan: Plan, real: SystemClock) -> int:
    if plan.start_ms is not None:
        return plan.start_ms
    if plan.seed is not None:
        return SEEDED_START_MS
    return real.now_ms() // SECOND_MS * SECOND_MS
