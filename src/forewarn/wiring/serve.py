"""`forewarn serve`: everything in one process, kept in a data folder."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from starlette.applications import Starlette

from forewarn.adapters.operator_token import operator_token
from forewarn.adapters.restored_members import files_to_keep
from forewarn.adapters.shared_folders import refuse_shared_folder
from forewarn.adapters.sqlite import backup, store_check
from forewarn.adapters.sqlite.data_folder import stop_service
from forewarn.adapters.sqlite.store import SqliteStore
from forewarn.adapters.system import RandomIds, SystemClock
from forewarn.api.access import AccessFor
from forewarn.api.app import create_app
from forewarn.api.certificate_metrics import CertificateMetrics
from forewarn.api.console.mount import ConsoleSetup
from forewarn.control.commands import WasDown
from forewarn.control.retention import RetentionLoop
from forewarn.core.errors import Conflict, Unavailable
from forewarn.core.principal import CLOCK
from forewarn.doorbell import rung
from forewarn.endpoint.endpoint import Endpoint
from forewarn.host.listeners import ListenFailed, cannot_listen
from forewarn.logs import Log
from forewarn.settings import OPERATOR_TOKEN_FILE, Settings
from forewarn.wiring.control_and_hosts import ControlAndHosts
from forewarn.wiring.control_parts import Adapters
from forewarn.wiring.operator_issuers import asking_issuers
from forewarn.wiring.operator_server import (
    Announcement,
    operator_tls,
    serving,
)
from forewarn.wiring.operator_socket import serving_socket
from forewarn.wiring.process import (
    end_loading,
    load_quietly,
    raise_descriptor_limit,
    reload_signal,
    settle_memory,
    stop_signals,
)

if TYPE_CHECKING:
    from forewarn.wiring.operator_tls import OperatorTls

log = Log(__name__)

ARRANGE_AGAIN_S = 2.0
STOP_LIMIT_S = 60.0  # for a service that is told to end

restore = backup.restore
check_folder = store_check.check_folder
check_backup = store_check.check_backup


def move_out(data: Path, target: Path, *, limit_s: float = STOP_LIMIT_S) -> None:
    """End the service of a data folder, if one runs, and write its last backup. See `backup`."""
    stop_service(data, limit_s=limit_s)
    backup.move_out(data, target)


class Where(Struct, frozen=True):
    """Where the service really listens, once it does."""

    guest: tuple[str, int]
    operator_url: str
    operator_socket: Path
    listeners: dict[str, tuple[str, int]]
    example: str  # a VM with a listener, to try things on: one of the largest scope
    data: Path
    console_link: str  # opens the console once, within a minute
    operator_authority: Path | None = None  # what callers trust, if the certificate is our own


class EmbeddedService:
    """Everything in one process: `forewarn serve`. Made and run inside one event loop."""

    def __init__(self, settings: Settings, store: SqliteStore) -> None:
        clock = SystemClock()
        self._settings = settings
        self._parts = ControlAndHosts(
            settings,
            Adapters(store=store, clock=clock, lease_clock=clock, ids=RandomIds()),
            ring=self._ring,
        )
        self._parts.measures.add(self._parts.lateness)
        self._endpoint = Endpoint(
            self._parts.guests,
            now_ms=clock.now_ms,
            place=settings.place(),
            rules=settings.rules(),
        )
        self._listeners = self._parts.serve_guests(self._endpoint)
        self._inventories = self._parts.inventories(cannot_listen=cannot_listen)
        self._told_to_stop = asyncio.Event()

    def _ring(self) -> None:
        self._parts.ticker.ring()

    def refuse_real_hosts(self) -> None:
        """Raise Conflict if hosts have joined: simulated ones would say done in their name."""
        joined = [host.name for host in self._parts.fleet.hosts() if host.joined]
        if joined:
            raise Conflict(
                f"{self._settings.data} is the data folder of a control that host {joined[0]} has"
                " joined.",
                "Start `forewarn control` on it, or name another folder with --data.",
            )

    async def _follow_fleet(self) -> None:
        await keep_arranged(self._parts.fleet_changed, self._arrange)

    async def _arrange(self) -> None:
        await self._parts.arrange(self._listeners, lambda vm: vm.profile.listen)

    async def run(self, started: Callable[[Where], None]) -> None:
        """Start in the order that keeps the promises, run until told to stop, end cleanly.

        Raises one of CannotStart with nothing left open. `started` is called once everything
        listens.
        """
        with stop_signals(self._told_to_stop.set):
            self._parts.writer.start()
            try:
                await self._start_and_run(started)
            finally:
                end_loading()
                await self._listeners.close()
                await self._endpoint.close()
                await self._parts.stop()

    async def _start_and_run(self, started: Callable[[Where], None]) -> None:
        parts, settings = self._parts, self._settings
        token = operator_token(settings.data / OPERATOR_TOKEN_FILE)
        tls = operator_tls(settings)
        await self._apply_inventory()
        parts.show_all()
        await self._arrange()
        guest = await self._listeners.open_shared(settings.guest)
        # From here on guests can read. Only now is it known how long they could not.
        await parts.control.submit(WasDown(by=CLOCK, since_ms=parts.last_heartbeat_ms))
        await parts.hosts.heartbeat()
        async with asking_issuers(settings, parts.measures) as issuers:
            console = parts.console()
            app = self._app(token, issuers, console)
            if tls is not None:
                parts.measures.add(tls)
                parts.measures.add(CertificateMetrics(tls.expiries_s))
            async with (
                serving(app, settings.operator, tls=tls) as url,
                serving_socket(app, settings),
            ):
                look = None if tls is None else tls.look
                with Announcement(settings.data, url), reload_signal(look):
                    settle_memory()
                    console.url = url
                    link_to_console = console.first_link(settings.by())
                    started(self._where(guest, url, tls, link_to_console))
                    await self._work_until_stopped()
                    parts.doorbell.close()

    def _app(self, token: str, issuers: AccessFor | None, console: ConsoleSetup) -> Starlette:
        parts, settings = self._parts, self._settings
        return create_app(
            parts.control,
            token=token,
            measures=parts.measures,
            doorbell=parts.doorbell,
            feed=parts.feed,
            scratch=settings.data,
            inventories=self._inventories,
            kept_files=lambda: files_to_keep(settings.data),
            by=settings.by(),
            issuers=issuers,
            console=console,
            socket_groups=settings.socket_groups,
            webhooks=parts.webhooks(),
        )

    async def _apply_inventory(self) -> None:
        """Have the fleet as the file says. Without a file it is what was applied last, and the
        demo the first time. A file that is wrong stops the start.
        """
        if self._settings.inventory is None and self._parts.fleet.inventory is not None:
            return
        await self._parts.apply_at_start(self._inventories, self._settings.inventory_text())

    def _where(
        self,
        guest: tuple[str, int],
        operator_url: str,
        tls: OperatorTls | None,
        console_link: str,
    ) -> Where:
        listeners = dict(sorted(self._listeners.addresses().items()))
        scopes = self._parts.fleet.scopes.values()
        sizes = {vm.name: len(scope.vms) for scope in scopes for vm in scope.vms}
        return Where(
            guest=guest,
            operator_url=operator_url,
            operator_socket=self._settings.operator_socket,
            operator_authority=None if tls is None else tls.authority_file,
            listeners=listeners,
            example=max(listeners, key=lambda vm: sizes.get(vm, 0), default=""),
            data=self._settings.data,
            console_link=console_link,
        )

    async def _work_until_stopped(self) -> None:
        loop = asyncio.get_running_loop()
        loops = (
            self._parts.pulse,
            self._parts.lateness.run,
            self._parts.ticker.run,
            RetentionLoop(self._parts.control, self._settings.retention_days).run,
            self._parts.hosts.run,
            self._parts.guests.run,
            self._follow_fleet,
            self._inventories.run,
            self._parts.send_to_webhooks,
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
            await self._parts.guests.send(polls=True)
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
        # The same change once more: a port or a descriptor may be free by then.
        await rung(changed, None if why_not is None else again_s)
        changed.clear()
        try:
            await arrange()
        except (ListenFailed, Unavailable) as why:
            if str(why) != why_not:
                log.error("fleet_change_put_off", why=str(why))  # noqa: TRY400 - the sentence says it all
            why_not = str(why)
        else:
            why_not = None


def open_service(settings: Settings, *, new: bool = False) -> EmbeddedService:
    """Open the data folder and build the service. Call it inside the event loop that runs it.

    `new`: begin with a new database where the one that was there is lost or would be refused.
    Raises one of CannotStart.
    """
    raise_descriptor_limit()
    refuse_shared_folder(settings.data)
    store = SqliteStore.in_folder(settings.data, new=new)
    load_quietly()
    try:
        service = EmbeddedService(settings, store)
        service.refuse_real_hosts()
        return service  # noqa: TRY300 - what follows undoes
    except BaseException:
        end_loading()
        store.close()
        raise
