"""`forewarn simulate`: the product with a clock that can be turned, kept in memory only."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from forewarn.adapters.operator_token import given_token, operator_token
from forewarn.adapters.shared_folders import refuse_shared_folder
from forewarn.adapters.simulated.hypervisor import HANGS_MS, ActionFault
from forewarn.adapters.sqlite.data_folder import FolderLock
from forewarn.adapters.sqlite.store import SqliteStore
from forewarn.adapters.system import SystemClock
from forewarn.api.doorbell import Doorbell
from forewarn.control.inventory import apply_at_once as inventory
from forewarn.core.addresses import listen_text
from forewarn.core.errors import NotFound
from forewarn.core.incarnation_marks import ScopeWithIncarnation
from forewarn.core.model import SECOND_MS, Vm
from forewarn.core.principal import INVENTORY_FILE
from forewarn.core.suggestions import meant
from forewarn.emulator.agent_polls import AgentPolls
from forewarn.emulator.clock import EmulatedClock, StillClock
from forewarn.emulator.exchanges import ExchangeRecord
from forewarn.emulator.faults.book import FaultBook
from forewarn.emulator.faults.endpoint import FaultyEndpoint
from forewarn.emulator.faults.kinds import FaultKind
from forewarn.emulator.faults.scope_faults import ScopeFaults
from forewarn.emulator.fleet import ANY_PORT
from forewarn.emulator.ids import SeededIds
from forewarn.emulator.impact_command import impact_command
from forewarn.emulator.impacts import Impacts
from forewarn.emulator.instance_values import InstanceValue, InstanceValues
from forewarn.emulator.pacer import Instant, Pacer, SettledControl
from forewarn.emulator.request_counts import RequestCounts, WatchedService
from forewarn.endpoint.registry import Guest
from forewarn.endpoint.routes import Ask
from forewarn.host.listeners import ListenFailed, cannot_listen
from forewarn.settings import OPERATOR_TOKEN_FILE, Settings
from forewarn.wire.link import ShownScope
from forewarn.wiring.control_and_hosts import ControlAndHosts
from forewarn.wiring.control_parts import Adapters
from forewarn.wiring.process import (
    raise_descriptor_limit,
    reload_signal,
    stop_signals,
    without_collections,
)

if TYPE_CHECKING:
    from forewarn.api.console.mount import ConsoleSetup
    from forewarn.api.console.page_context import Desk
    from forewarn.api.route_table import RouteSpec
    from forewarn.emulator.console import EmulatorOnPages
    from forewarn.emulator.scenarios.runner import ScenarioRunner
    from forewarn.wiring.operator_tls import OperatorTls

# Where the clock starts if a seed is given: two runs are the same to the byte, dates included.
LINK_LOCAL_ADDRESS = "169.254.169.254"
LINK_LOCAL = f"{LINK_LOCAL_ADDRESS}:80"  # where the real service is (P1)
SEEDED_START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
SEED_BITS = 48  # of the seed of a run that was given none: no two runs share it, and it is short


class EmulationPlan(Struct, frozen=True, kw_only=True):
    """What is emulated.

    The same plan with a seed, and the same commands, give the same run byte for byte. Without a
    seed each run has one of its own, which `Emulator.seed` tells, and the clock starts with the
    current second. `speed` is how many times as fast as real time the clock runs; 0 stands still
    until it is turned. `listen` is where the first VM of the inventory listens, unless the
    inventory says it.
    """

    settings: Settings
    inventory: str
    seed: int | None = None
    start_ms: int | None = None
    speed: int = 0
    listen: str = ANY_PORT
    on_impact: tuple[str, ...] = ()  # a command, as `impact_command` runs it
    instance: tuple[InstanceValue, ...] = ()  # over what VMs read at /metadata/instance


class Kept(Struct, frozen=True, kw_only=True):
    """What an emulator leaves to the one that takes its place, so that apps see one cloud.

    `sockets` are those of its VMs, open; `addresses` where each VM ever asked; `incarnations` the
    highest that was shown of each scope; `turn` how many emulators there were before.
    """

    sockets: dict[str, socket.socket]
    addresses: dict[str, str]
    incarnations: dict[str, int]
    turn: int


NOTHING_KEPT = Kept(sockets={}, addresses={}, incarnations={}, turn=0)


class Emulator:
    """A whole Forewarn in memory. Made, started and closed inside one event loop.

    One that follows another (`kept`) is as new, but VMs ask where they did, incarnations go on
    from where they were, and no EventId comes again.
    """

    def __init__(self, plan: EmulationPlan, kept: Kept = NOTHING_KEPT) -> None:
        raise_descriptor_limit()
        real = SystemClock()
        self._plan = plan
        self.by = plan.settings.by()  # who orders: by the API, in scenarios, in tests
        self.clock = EmulatedClock(start_ms=_start_ms(plan, real), speed=plan.speed, real=real)
        self._kept = kept
        seed = secrets.randbits(SEED_BITS) if plan.seed is None else plan.seed
        self.seed = seed + (kept.turn << SEED_BITS if plan.seed is not None else 0)
        self.faults = FaultBook(
            self.clock.now_ms, self.seed, vms=self._vms, after=kept.incarnations
        )
        self._scope_faults = ScopeFaults(self.faults, self._show_later)
        self._parts = parts = self._control_and_hosts()
        self._agents = AgentPolls(self._guests_of, self.clock.now_ms)
        self.pacer = Pacer(
            clock=self.clock,
            control=parts.control,
            ticker=parts.ticker,
            guests=parts.guests,
            hosts=parts.hosts,
            hypervisor=parts.hypervisor,
            arrange=self._arrange,
            agents=self._agents,
            more_instants=self._more_instants,
        )
        self.impacts = self._impacts()
        self.control = SettledControl(parts.control, self.pacer)
        self.exchanges = ExchangeRecord(self.clock.now_ms, lambda: parts.facts)
        self.instance = InstanceValues(plan.instance)
        self.visits = RequestCounts(parts.doorbell.ring)
        self._errors: list[BaseException] = []
        self._endpoint = FaultyEndpoint(
            WatchedService(parts.guests, parts.doorbell.ring, self.pacer.settle),
            now_ms=self.clock.now_ms,
            place=plan.settings.place(),
            rules=plan.settings.rules(),
            faults=self.faults,
            asked=self._asked,
            values=self.instance,
            answered=self.exchanges.answered,
            broke=self.broke,
        )
        self._listeners = parts.serve_guests(self._endpoint, kept=kept.sockets)
        self._first_vm = ""
        self._unheard: set[str] = set()  # VMs that a fault has no listener for
        self._closed_at: dict[str, str] = {}  # where those listened, and listen again
        self._at_first: dict[str, str] = {}  # where each VM asked when the fleet was new
        self._closing = False
        self.console: ConsoleSetup | None = None  # once there is an operator API
        self._pacing: asyncio.Task[None] | None = None

    def _control_and_hosts(self) -> ControlAndHosts:
        store = SqliteStore.in_memory()
        adapters = Adapters(
            store=store,
            clock=self.clock,
            lease_clock=StillClock(),
            poll_clock=self.clock,
            ids=SeededIds(self.seed),
        )
        try:
            return ControlAndHosts(
                self._plan.settings, adapters, ring=self._changed, shown_as=self._shown_as
            )
        except BaseException:
            store.close()
            raise

    def _impacts(self) -> Impacts:
        impacts = Impacts(self.pacer, self._parts.fleet, self.clock.now_ms)
        impacts.watch(
            lambda one: self.exchanges.felt(one.vm, f"{one.kind.value} of what runs in it")
        )
        self._parts.hypervisor.on_impact(begun=impacts.begun, lost=impacts.lost)
        self._parts.hypervisor.spoil(self._spoil)
        self._scope_faults.on_release(self._parts.documents.change)
        if self._plan.on_impact:
            impacts.add(impact_command(self._plan.on_impact))
        return impacts

    @cached_property
    def scenarios(self) -> ScenarioRunner:
        """All runs of scenarios. Most emulators have none, and its imports take their time."""
        from forewarn.emulator.scenarios.runner import ScenarioRunner  # noqa: PLC0415 - see above

        return ScenarioRunner(
            pacer=self.pacer,
            control=self._parts.control,
            machines=self._parts.hypervisor,
            faults=self.faults,
            by=self.by,
        )

    async def start(self) -> None:
        """Have the fleet and its listeners. Raises one of CannotStart; `close` it all the same."""
        self._parts.writer.start()
        with without_collections():
            await self._have_the_fleet()
        if self.clock.speed:
            self._pacing = asyncio.get_running_loop().create_task(self.pacer.run())

    async def _have_the_fleet(self) -> None:
        self._refuse_strangers()
        if self._plan.listen != ANY_PORT:
            wanted = inventory.parse(self._plan.inventory)
            self._first_vm = wanted.vms[0].name if wanted.vms else ""
        files = self._parts.volatile.files
        await self._parts.control.submit(
            # Most VMs listen on any port: whether something can is tried once for each address.
            inventory.apply(
                self._plan.inventory,
                by=INVENTORY_FILE,
                cannot_listen=cache(self._cannot_listen),
                files=files,
            )
        )
        files.forget()  # what the file says is the fleet by now
        await self._arrange()
        self._at_first = self._addresses()
        await self._parts.hosts.heartbeat()
        await self.pacer.settle()

    def _addresses(self) -> dict[str, str]:
        return {vm: listen_text(*where) for vm, where in self._listeners.addresses().items()}

    def _refuse_strangers(self) -> None:
        """Raises NotFound for a value of a VM that the inventory does not have."""
        named = {one.vm for one in self._plan.instance if one.vm is not None}
        if named:
            vms = [vm.name for vm in inventory.parse(self._plan.inventory).vms]
            for vm in sorted(named.difference(vms)):
                raise NotFound(f"There is no VM {vm}.", meant(vm, vms))

    def _cannot_listen(self, listen: str) -> str | None:
        open_already = {self._kept.addresses[vm] for vm in self._kept.sockets}
        return None if listen in open_already else cannot_listen(listen)

    async def wait(self) -> None:
        """Run for ever. Ends only by being canceled, or by what must not happen."""
        await (self._pacing or asyncio.get_running_loop().create_future())

    async def close(self) -> None:
        """End everything: no port, thread or task is left."""
        if self._pacing is not None:
            self._pacing.cancel()
            await asyncio.gather(self._pacing, return_exceptions=True)
        self._closing = True
        self._parts.doorbell.close()
        await self._listeners.close()
        await self._endpoint.close()
        await self._parts.writer.stop()
        await self._listeners.close()  # what a command that was under way has opened since
        await self._parts.stop()

    def hand_over(self) -> Kept:
        """What the next emulator needs. To be closed after this; what is taken must be used."""
        return Kept(
            sockets=self._listeners.hand_over(),
            addresses={**self._kept.addresses, **self._at_first, **self._addresses()},
            incarnations={**self._kept.incarnations, **self.faults.incarnations()},
            turn=self._kept.turn + 1,
        )

    def broke(self, error: BaseException) -> None:
        """Note an error of ours that no caller is told of otherwise, and wake those that wait."""
        self._errors.append(error)
        self._parts.doorbell.ring()

    def errors(self) -> tuple[BaseException, ...]:
        """What has broken inside and was not raised to a caller, oldest first."""
        hosts = self._parts.host_failures
        counted = [RuntimeError(f"hosts broke {hosts} times; the log says how")] if hosts else []
        return (*self._errors, *counted)

    @property
    def doorbell(self) -> Doorbell:
        """Rung after every commit, every request of a guest, and every first read."""
        return self._parts.doorbell

    def document(self, vm: str, version: str) -> bytes:
        """What the VM would read now, without it having read anything. Raises NotFound."""
        guest = self._parts.documents.guest(vm)
        if guest is None:
            raise NotFound(f"There is no VM {vm}.", meant(vm, self.urls()))
        return guest.page.documents[version].body

    def urls(self) -> dict[str, str]:
        """Where each VM reads its document: scope by scope in the order of their names, and in
        each as the inventory has its VMs.
        """
        addresses = self._addresses()
        addresses |= {vm: self._closed_at[vm] for vm in self._unheard if vm in self._closed_at}
        scopes = sorted(self._parts.fleet.scopes.values(), key=lambda scope: scope.name)
        return {
            vm.name: f"http://{addresses[vm.name]}"
            for scope in scopes
            for vm in scope.vms
            if vm.name in addresses
        }

    @asynccontextmanager
    async def operator(
        self,
        *,
        token: str,
        listen: str = ANY_PORT,
        by_socket: bool = False,
        tls: OperatorTls | None = None,
    ) -> AsyncIterator[str]:
        """The operator API, with the emulator's own routes, for the length of the block.

        `by_socket`: also on the Unix socket of the data folder, whose lock the caller holds.
        """
        # Most tests never ask for it, and importing it takes longer than starting everything else.
        from forewarn.api.app import create_app  # noqa: PLC0415 - see above
        from forewarn.control.inventory.apply_runner import Inventories  # noqa: PLC0415 - see above
        from forewarn.wiring.operator_issuers import asking_issuers  # noqa: PLC0415 - see above
        from forewarn.wiring.operator_server import serving  # noqa: PLC0415 - see above
        from forewarn.wiring.operator_socket import serving_socket  # noqa: PLC0415 - see above

        self.console = self._parts.console(kept=False, more=self._on_pages)
        async with AsyncExitStack() as opened:
            issuers = asking_issuers(self._plan.settings, self._parts.measures)
            app = create_app(
                self.control,
                token=token,
                measures=self._parts.measures,
                doorbell=self._parts.doorbell,
                feed=self._parts.feed,
                console=self.console,
                more=self._routes(),
                inventories=Inventories(
                    self.control,
                    cannot_listen=cannot_listen,
                    files=self._parts.volatile.files,
                    keeps_read=False,
                ),
                by=self.by,
                socket_by=self.by,  # who runs an emulator is its operator, on every machine alike
                issuers=await opened.enter_async_context(issuers),
                webhooks=self._parts.webhooks(),
            )
            url = await opened.enter_async_context(serving(app, listen, tls=tls))
            self.console.url = url
            sending = asyncio.create_task(self._parts.send_to_webhooks())
            opened.push_async_callback(self._end, sending)
            if by_socket:
                await opened.enter_async_context(serving_socket(app, self._plan.settings))
            yield url

    async def _end(self, task: asyncio.Task[None]) -> None:
        """Cancel a task that runs for ever, and wait until it has ended."""
        task.cancel()
        for error in await asyncio.gather(task, return_exceptions=True):
            if isinstance(error, Exception):
                self.broke(error)

    def _routes(self) -> Sequence[RouteSpec]:
        from forewarn.emulator.clock_routes import clock_routes  # noqa: PLC0415 - as in `operator`
        from forewarn.emulator.faults.routes import fault_routes  # noqa: PLC0415
        from forewarn.emulator.scenarios.routes import scenario_routes  # noqa: PLC0415

        return [
            *clock_routes(self.pacer, self.clock),
            *fault_routes(self.faults, self.pacer.settle),
            *scenario_routes(self.scenarios),
        ]

    def _on_pages(self, desk: Desk) -> EmulatorOnPages:
        """Clock, scenarios and faults on the pages of the console: with its first request."""
        from forewarn.emulator.console import EmulatorOnPages  # noqa: PLC0415 - see above

        return EmulatorOnPages(
            desk,
            pacer=self.pacer,
            clock=self.clock,
            faults=self.faults,
            scenarios=self.scenarios,
            run_at=self.run_at,
            urls=self.urls,
        )

    def console_link(self) -> str:
        """Opens the console once, within a minute; empty without an operator API."""
        return "" if self.console is None else self.console.first_link(self.by)

    def run_at(self, speed: int) -> None:
        """Let the clock run at this speed from now on; 0 stands. Raises Invalid."""
        self.clock.run_at(speed)
        if speed and self._pacing is None:
            self._pacing = asyncio.get_running_loop().create_task(self.pacer.run())
        self.pacer.changed()

    def _shown_as(self, scope: ShownScope) -> ShownScope:
        """What a host shows of a scope, with what faults do to it for all hosts."""
        whole: ScopeWithIncarnation = self._parts.fleet.scope(scope.name) or scope
        return self._scope_faults.shown(scope, whole)

    def _show_later(self, ms: int, scope: str, show: Callable[[], None]) -> None:
        async def act() -> None:
            show()

        self.pacer.at(self.clock.now_ms() + ms, f"a late document of {scope} is shown", act)

    def _spoil(self, vms: list[str]) -> ActionFault | None:
        """How an action on these VMs goes wrong, if a fault says so."""
        fault = self.faults.of_action(vms)
        if fault is None:
            return None
        if fault.kind is FaultKind.ACTION_FAILS:
            return ActionFault(failure=f"fault {fault.fault_id} has it fail")
        hangs = fault.kind is FaultKind.ACTION_HANGS
        return ActionFault(extra_ms=HANGS_MS if hangs else fault.order.delay_ms or 0)

    def _changed(self) -> None:
        self.pacer.changed()

    def _asked(self, vm: str, ask: Ask) -> None:
        self.visits.asked(vm, ask)
        if ask is Ask.POLL:
            self._agents.polled(vm)

    def _guests_of(self, scope: str) -> Iterator[Guest]:
        """The VMs of a scope that can read their document."""
        found = self._parts.fleet.scope(scope)
        for vm in found.vms if found else ():
            guest = self._parts.documents.guest(vm.name)
            if guest is not None:
                yield guest

    def _vms(self) -> Collection[str]:
        return self._parts.documents.vms()

    def _more_instants(self) -> Iterator[Instant]:
        ends_ms = self.faults.ends()
        if ends_ms is not None:
            yield Instant(ends_ms, "a fault ends")

    async def _arrange(self) -> None:
        self._follow_unheard()
        if self._parts.fleet_changed.is_set() and not self._closing:
            self._parts.fleet_changed.clear()
            await self._parts.arrange(self._listeners, self._listen)

    def _follow_unheard(self) -> None:
        """Have listeners closed and opened as faults say."""
        asked = any(fault.kind is FaultKind.NO_LISTENER for fault in self.faults.list())
        if not asked and not self._unheard:
            return
        scope_of = self._parts.fleet.scope_of_vm
        faults = {vm: self.faults.unheard(vm) for vm in scope_of}
        unheard = {vm for vm, fault in faults.items() if fault is not None}
        if unheard == self._unheard:
            return
        here = self._addresses()
        for vm in unheard - self._unheard:
            fault = faults[vm]
            if vm in here and fault is not None:
                self._closed_at[vm] = here[vm]
                self.faults.refused(fault.fault_id, vm)
        changed = unheard ^ self._unheard
        self._unheard = unheard
        self._parts.look_at_scopes({scope_of[vm] for vm in changed if vm in scope_of})

    def _listen(self, vm: Vm) -> str | None:
        if vm.name in self._unheard:
            return None
        closed_at = self._closed_at.get(vm.name)
        if closed_at is not None:
            return closed_at
        before = self._kept.addresses.get(vm.name)
        if before is not None and (vm.name in self._kept.sockets or cannot_listen(before) is None):
            return before
        if vm.name == self._first_vm and vm.profile.listen in (None, ANY_PORT):
            return self._plan.listen
        return vm.profile.listen or ANY_PORT


def _start_ms(plan: EmulationPlan, real: SystemClock) -> int:
    if plan.start_ms is not None:
        return plan.start_ms
    if plan.seed is not None:
        return SEEDED_START_MS
    return real.now_ms() // SECOND_MS * SECOND_MS


class Running(Struct, frozen=True, kw_only=True):
    """Where an emulator really listens, once it does."""

    vm_urls: dict[str, str]
    operator_url: str
    operator_socket: Path
    operator_authority: Path | None  # what callers trust, if the certificate is our own
    now_ms: int
    speed: int
    data: Path
    seed: int
    console_link: str  # opens the console once, within a minute


async def run_emulator(
    plan: EmulationPlan, *, token: str | None, started: Callable[[Running], None]
) -> None:
    """Run until told to stop, leaving the operator URL and token in the data folder meanwhile.

    The token is made, or the one that the folder has, unless one is given. Raises one of
    CannotStart with nothing left open. `started` is called once everything listens.
    """
    from forewarn.wiring.operator_server import (  # noqa: PLC0415 - as there
        Announcement,
        operator_tls,
    )

    data = plan.settings.data
    refuse_shared_folder(data)
    lock = FolderLock(data)
    stop = asyncio.Event()
    try:
        emulator = Emulator(plan)
    except BaseException:
        lock.release()
        raise
    try:
        with stop_signals(stop.set):
            tls = operator_tls(plan.settings)
            await _start(emulator, plan)
            async with emulator.operator(
                token=_token(data, token), listen=plan.settings.operator, by_socket=True, tls=tls
            ) as url:
                with Announcement(data, url), reload_signal(None if tls is None else tls.look):
                    started(
                        Running(
                            vm_urls=emulator.urls(),
                            operator_url=url,
                            operator_socket=plan.settings.operator_socket,
                            operator_authority=None if tls is None else tls.authority_file,
                            now_ms=emulator.clock.now_ms(),
                            speed=plan.speed,
                            data=data,
                            seed=emulator.seed,
                            console_link=emulator.console_link(),
                        )
                    )
                    await _first_of(stop.wait(), emulator.wait())
                    emulator.doorbell.close()
    finally:
        await emulator.close()
        lock.release()


def _token(data: Path, given: str | None) -> str:
    path = data / OPERATOR_TOKEN_FILE
    return given_token(path, given) if given else operator_token(path)


async def _start(emulator: Emulator, plan: EmulationPlan) -> None:
    try:
        await emulator.start()
    except ListenFailed as failed:
        missing = "" if plan.listen != LINK_LOCAL else " ".join(missing_for_link_local())
        if not missing and f" on {plan.listen}:" in str(failed):
            raise ListenFailed(
                f"{failed} --guest says which; with port 0 any is taken."
            ) from failed
        if not missing:
            raise
        raise ListenFailed(f"Cannot listen on {LINK_LOCAL}. {missing}") from failed


def missing_for_link_local() -> Iterator[str]:
    """What stands in the way of a listener on the link-local address, with its remedy each.

    The emulator never adds the address by itself: in a cloud VM that would cut every other
    program off from the real service.
    """
    if cannot_listen(f"{LINK_LOCAL_ADDRESS}:0") is not None:
        yield (
            f"No interface of this machine has the address {LINK_LOCAL_ADDRESS}: in a container or"
            " network namespace of your own (in a cloud VM it would hide the real service), run"
            f" `ip address add {LINK_LOCAL_ADDRESS}/32 dev lo` as root."
        )
    why = cannot_listen("127.0.0.1:80")
    if why is not None:
        yield (
            f"Port 80 cannot be opened here ({why}): run as root, give the program"
            " CAP_NET_BIND_SERVICE, or stop what uses the port."
        )


async def _first_of(*endings: Coroutine[None, None, object]) -> None:
    """Wait for the first to end, end the others, and raise what it raised."""
    tasks = [asyncio.ensure_future(ending) for ending in endings]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
