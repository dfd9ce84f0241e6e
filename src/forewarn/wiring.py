"""Settings into running objects, by plain calls, top to bottom. The only importer of adapters."""

from __future__ import annotations

import asyncio
import os
import resource
import secrets
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from importlib.metadata import version as version_of
from pathlib import Path

import structlog
import uvicorn

from forewarn.adapters import backup
from forewarn.adapters.data_folder import DatabaseRefused, FolderUnusable, unusable
from forewarn.adapters.simulated_hypervisor import SimulatedHypervisor
from forewarn.adapters.store import SqliteStore
from forewarn.adapters.system import RandomIds, SystemClock
from forewarn.api.app import create_app
from forewarn.api.doorbell import Doorbell
from forewarn.api.guarded_protocol import GuardedProtocol
from forewarn.control import inventory, metadata, ticker
from forewarn.control.control import Control
from forewarn.control.dispatch import Dispatch
from forewarn.control.link import LocalLink
from forewarn.control.loops import GuestTraces, TickerLoop
from forewarn.control.measures import Measures
from forewarn.control.memory import Memory
from forewarn.control.timekeeper import PULSE_EVERY_S, Timekeeper
from forewarn.control.writer import Writer, WriterThread
from forewarn.core import edits
from forewarn.core.addresses import read_listen
from forewarn.core.errors import InventoryConflict, Refusal, Unavailable
from forewarn.core.model import Scope
from forewarn.endpoint.endpoint import Endpoint
from forewarn.host.daemon import Hosts
from forewarn.host.documents import Documents
from forewarn.host.identity import Identity
from forewarn.host.listeners import Listeners, ListenFailed, cannot_listen
from forewarn.ports import Change, StoreFailed
from forewarn.settings import OPERATOR_TOKEN_FILE, OPERATOR_URL_FILE, Settings

log = structlog.get_logger(__name__)

STOP_GRACE_S = 5
ARRANGE_AGAIN_S = 2.0
STARTED_LOOK_EVERY_S = 0.005
DESCRIPTORS_MAX = 262_144  # a listener and some connections for each guest of a large host
EXIT_STORE_FAILED = 70

CannotStart = (DatabaseRefused, ListenFailed, Refusal, StoreFailed, Unavailable)
restore = backup.restore


class Guests:
    """What the endpoint asks of the service behind it (`endpoint.service.Service`)."""

    def __init__(self, control: Control, traces: GuestTraces) -> None:
        self._control = control
        self._traces = traces
        self._tasks: set[asyncio.Task[None]] = set()

    async def approve(self, vm: str, event_ids: tuple[str, ...]) -> None:
        await self._control.submit(metadata.approve(vm, event_ids))

    async def enable(self, scope: str, vm: str) -> None:
        await self._control.submit(metadata.enable(scope, vm=vm))

    def first_read(self, vm: str, scope: str, event_ids: frozenset[str]) -> None:
        self._traces.first_read(vm, scope, event_ids)

    def returned(self, vm: str) -> None:
        task = asyncio.get_running_loop().create_task(self._returned(vm))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _returned(self, vm: str) -> None:
        try:
            await self._control.submit(metadata.returned(vm))
        except (Refusal, Unavailable) as why:
            log.warning("return_not_kept", vm=vm, why=str(why))


@dataclass(frozen=True, slots=True)
class Where:
    """Where the service really listens, once it does."""

    guest: tuple[str, int]
    operator_url: str
    listeners: dict[str, tuple[str, int]]
    example: str  # a VM with a listener, to try things on: one of the largest scope
    data: Path


class Service:
    """Everything in one process: `forewarn serve`. Made and run inside one event loop."""

    def __init__(self, settings: Settings, store: SqliteStore) -> None:
        self._settings = settings
        self._store = store
        self._clock = SystemClock()
        self._timekeeper = Timekeeper(self._clock)
        snapshot = store.load()
        self._last_heartbeat_ms = snapshot.heartbeat_ms
        dispatch = Dispatch(self._clock)
        self._memory = Memory(snapshot, dispatch)
        self._memory.cannot_listen = cannot_listen
        self._measures = Measures(version=version_of("forewarn"))
        self._measures.loaded(snapshot.scopes)
        writer = Writer(
            memory=self._memory,
            store=store,
            timekeeper=self._timekeeper,
            policy=settings.policy(),
            ids=RandomIds(),
            on_step=ticker.clock_stepped,
            on_stall=ticker.stalled,
            on_commit=self._committed,
        )
        self._writer = WriterThread(
            writer,
            publish=self._published,
            on_fatal=_die,
            on_failure=self._measures.store_failed,
        )
        self.control = Control(
            writer=self._writer, store=store, clock=self._clock, dispatch=dispatch
        )
        self._identity = Identity()
        self._documents = Documents(
            self._identity, requests_per_s=float(settings.guest_requests_per_second)
        )
        self._traces = GuestTraces(self.control, self._documents.polled)
        self._endpoint = Endpoint(
            Guests(self.control, self._traces),
            now_ms=self._clock.now_ms,
            place=settings.place(),
            metadata_header=settings.metadata_header,
        )
        self._measures.endpoint(self._endpoint.counters)
        self._listeners = Listeners(self._endpoint, self._identity)
        self._hypervisor = SimulatedHypervisor(self._clock)
        self._ticker = TickerLoop(self.control, self._measures)
        self._hosts = Hosts(
            self._memory.hosts,
            link=LocalLink(self.control),
            hypervisor=self._hypervisor,
            documents=self._documents,
        )
        self._count_what_breaks()
        self._doorbell = Doorbell()
        self._fleet_changed = asyncio.Event()
        self._told_to_stop = asyncio.Event()

    def _count_what_breaks(self) -> None:
        self._measures.count(
            "forewarn_host_errors",
            "Steps, heartbeats and confirmations of hosts that broke or hung.",
            lambda: self._hosts.failures,
        )
        self._measures.count(
            "forewarn_first_reads_dropped",
            "First reads that were not kept.",
            lambda: self._traces.first_reads_dropped,
        )

    def _committed(self, changes: Sequence[Change]) -> None:
        self._writer.committed(changes)

    # After a commit, on the event loop.

    def _published(self, changes: Sequence[Change]) -> None:
        """Show what was committed, then ring everybody who may want to look again."""
        busy_hosts: set[str] = set()
        for change in changes:
            for before, after in change.scopes:
                self._show(edits.open_only(after))
                busy_hosts.update(_hosts_with_actions(after))
                if before is None or before.vms is not after.vms:
                    self._fleet_changed.set()
            for name in change.removed_scopes:
                self._documents.drop(name)
            for _, operation in change.operations:
                if operation.action is not None and not operation.action.ended:
                    busy_hosts.add(operation.host)
            if change.hosts or change.removed_hosts or change.removed_scopes:
                self._fleet_changed.set()
        self._measures.committed(changes)
        self._hosts.ring(busy_hosts)
        if any(change.scopes or change.operations or change.hosts for change in changes):
            self._ticker.ring()
        self._doorbell.ring()

    def _show(self, scope: Scope) -> None:
        self._documents.show(scope)
        self._hosts.shown(scope)
        for recovery in scope.recoveries:
            for vm in recovery.waiting_for:
                self._documents.expect(vm)

    async def _pulse(self) -> None:
        while True:
            self._timekeeper.pulse()
            await asyncio.sleep(PULSE_EVERY_S)

    async def _follow_fleet(self) -> None:
        await keep_arranged(self._fleet_changed, self._arrange)

    async def _arrange(self) -> None:
        """Have listeners, hosts and the simulated machines as the inventory has them."""
        scopes = await self.control.ask(lambda tx: list(tx.memory.scopes.values()))
        hosts = await self.control.ask(lambda tx: list(tx.memory.hosts))
        self._hosts.set_names(hosts)
        vms = [vm for scope in scopes for vm in scope.vms]
        for vm in vms:
            self._hypervisor.place(vm.name, vm.host)
        await self._listeners.apply({vm.name: vm.listen for vm in vms if vm.listen})

    # Life.

    async def run(self, started: Callable[[Where], None]) -> None:
        """Start in the order that keeps the promises, run until told to stop, end cleanly.

        Raises one of CannotStart with nothing left open. `started` is called once everything
        listens.
        """
        with _stop_signals(self._told_to_stop.set):
            self._writer.start()
            try:
                await self._start_and_run(started)
            finally:
                await self._listeners.close()
                await self._endpoint.close()
                await self._writer.stop()
                self._store.close()

    async def _start_and_run(self, started: Callable[[Where], None]) -> None:
        await self._apply_inventory()
        for scope in self._memory.scopes.values():
            self._show(scope)
        await self._arrange()
        guest = await self._listeners.open_shared(self._settings.guest)
        # From here on guests can read. Only now is it known how long they could not.
        await self.control.submit(ticker.was_down(self._last_heartbeat_ms))
        await self._hosts.heartbeat()
        server = self._operator_server(operator_token(self._settings.data))
        async with _serving(server, self._settings.operator) as operator:
            url = f"http://{_bracketed(operator[0])}:{operator[1]}"
            _write_private(self._settings.data / OPERATOR_URL_FILE, f"{url}\n")
            started(self._where(guest, url))
            await self._work_until_stopped()
            self._doorbell.close()

    async def _apply_inventory(self) -> None:
        """Make the fleet what the file says, unless what is under way forbids it for now.

        A service that stays down because of a file gives no notice at all, so a fleet that is
        there goes on as it is; a file that is wrong, or a first one that does not work, stops
        the start.
        """
        text = self._settings.inventory_text()
        try:
            await self.control.submit(inventory.apply(text, by="inventory"))
        except InventoryConflict as why:
            if not self._memory.hosts:
                raise
            log.error(  # noqa: TRY400 - the sentence says it all
                "inventory_not_applied", why=str(why), remedy="forewarn inventory apply FILE, later"
            )

    def _where(self, guest: tuple[str, int], operator_url: str) -> Where:
        listeners = dict(sorted(self._listeners.addresses().items()))
        sizes = {
            vm.name: len(scope.vms) for scope in self._memory.scopes.values() for vm in scope.vms
        }
        return Where(
            guest=guest,
            operator_url=operator_url,
            listeners=listeners,
            example=max(listeners, key=lambda vm: sizes.get(vm, 0), default=""),
            data=self._settings.data,
        )

    def _operator_server(self, token: str) -> uvicorn.Server:
        app = create_app(
            self.control,
            token=token,
            measures=self._measures,
            doorbell=self._doorbell,
            scratch=self._settings.data,
        )
        config = uvicorn.Config(
            app,
            http=GuardedProtocol,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=STOP_GRACE_S,
        )
        return uvicorn.Server(config)

    async def _work_until_stopped(self) -> None:
        loop = asyncio.get_running_loop()
        loops = (
            self._pulse,
            self._ticker.run,
            self._hosts.run,
            self._traces.run,
            self._follow_fleet,
        )
        tasks = [loop.create_task(run()) for run in loops]
        stopping = loop.create_task(self._told_to_stop.wait())
        done, _ = await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
        for task in [*tasks, stopping]:
            task.cancel()
        await asyncio.gather(*tasks, stopping, return_exceptions=True)
        for task in done - {stopping}:
            task.result()  # a loop that ends by itself has failed: say so and stop
        try:
            await self._traces.save_first_reads()
            await self._traces.save_polls()
        except Unavailable as why:
            log.warning("guest_traces_lost", why=str(why))


async def keep_arranged(
    changed: asyncio.Event,
    arrange: Callable[[], Awaitable[None]],
    *,
    again_s: float = ARRANGE_AGAIN_S,
) -> None:
    """Arrange after each change, and again until it has worked; each new reason is logged."""
    why_not: str | None = None
    while True:
        try:
            async with asyncio.timeout(None if why_not is None else again_s):
                await changed.wait()
        except TimeoutError:
            pass  # the same change once more: a port or a descriptor may be free by now
        changed.clear()
        try:
            await arrange()
        except (ListenFailed, Unavailable) as why:
            if str(why) != why_not:
                log.error("fleet_change_put_off", why=str(why))  # noqa: TRY400 - the sentence says it all
            why_not = str(why)
        else:
            why_not = None


@contextmanager
def _stop_signals(told: Callable[[], None]) -> Iterator[None]:
    """Call `told` when the process is asked to end, from now to the end of the block."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, told)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def _hosts_with_actions(scope: Scope) -> Iterator[str]:
    for event in scope.events:
        for action in event.actions:
            if action.host is not None and not action.ended:
                yield action.host


def open_service(settings: Settings) -> Service:
    """Open the data folder and build the service. Call it inside the event loop that runs it.

    Raises one of CannotStart.
    """
    raise_descriptor_limit()
    store = SqliteStore.in_folder(settings.data)
    try:
        return Service(settings, store)
    except BaseException:
        store.close()
        raise


def raise_descriptor_limit() -> None:
    """Let the process open as many files as it is allowed to, up to DESCRIPTORS_MAX.

    Shells give 1,024; each guest listener and each connection needs one.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft == resource.RLIM_INFINITY or soft >= allowed:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    except (OSError, ValueError) as error:  # some systems allow less than they say
        log.warning("descriptor_limit_kept", limit=soft, why=str(error))


@asynccontextmanager
async def _serving(server: uvicorn.Server, listen: str) -> AsyncIterator[tuple[str, int]]:
    """Serve the operator API on `listen`; yields where it really is."""
    address, port = read_listen(listen)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address, port))
    except OSError as error:
        sock.close()
        raise ListenFailed(
            f"Cannot open the operator API on {listen}: {error.strerror or error}. "
            "Choose a free address and port with --operator."
        ) from error
    serving = asyncio.get_running_loop().create_task(_serve(server, sock))
    try:
        while not server.started:
            if serving.done():
                serving.result()
            await asyncio.sleep(STARTED_LOOK_EVERY_S)
        where = sock.getsockname()
        yield str(where[0]), int(where[1])
    finally:
        server.should_exit = True
        await serving
        sock.close()


async def _serve(server: uvicorn.Server, sock: socket.socket) -> None:
    """uvicorn without its own signal handlers: the service stops it."""
    server.capture_signals = nullcontext  # type: ignore[method-assign,assignment]
    await server.serve(sockets=[sock])


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def operator_token(data: Path) -> str:
    """The operator's token of this data folder, made at the first start."""
    path = data / OPERATOR_TOKEN_FILE
    try:
        token = path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        token = ""
    except OSError as error:
        raise unusable(data, error) from error
    except UnicodeDecodeError:
        raise FolderUnusable(
            f"{path} holds no token.", "Remove it; the next start makes a new one."
        ) from None
    if not token:
        token = secrets.token_urlsafe(32)
        _write_private(path, f"{token}\n")
    return token


def _write_private(path: Path, text: str) -> None:
    """Replace a file that only its owner may read, whole or not at all."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        scratch.touch(mode=0o600)
        scratch.write_text(text, encoding="utf-8")
        scratch.replace(path)
    except OSError as error:
        scratch.unlink(missing_ok=True)
        raise unusable(path.parent, error) from error


def _die(reason: str) -> None:
    """After a failed fsync nobody knows what is on the disk: end at once, answer nothing more."""
    try:
        sys.stderr.write(f"forewarn: stopped at once, nothing unkept was answered: {reason}\n")
        sys.stderr.flush()
    finally:  # also when nobody reads standard error any more
        os._exit(EXIT_STORE_FAILED)
