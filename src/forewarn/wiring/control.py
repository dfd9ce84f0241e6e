"""`forewarn control`: the control plane on one machine, its hosts on others."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn
from msgspec import Struct

from forewarn.adapters.certificate_authority import Authority, read_peer, read_request
from forewarn.adapters.members_file import MembersFile
from forewarn.adapters.operator_token import operator_token
from forewarn.adapters.restored_members import files_to_keep
from forewarn.adapters.secret_files import LINK_FOLDER
from forewarn.adapters.shared_folders import refuse_shared_folder
from forewarn.adapters.sqlite.data_folder import DatabaseRefused
from forewarn.adapters.sqlite.store import SqliteStore
from forewarn.adapters.system import RandomIds, SystemClock
from forewarn.api.adopt_routes import AdoptRoutes
from forewarn.api.app import create_app
from forewarn.api.certificate_metrics import CertificateMetrics
from forewarn.api.connection_limits import PortLimits
from forewarn.api.guarded_server import GuardedServer
from forewarn.api.link.app import create_link_app
from forewarn.api.link.metrics import LinkMetrics
from forewarn.api.link.protocol import LinkProtocol, link_limits
from forewarn.api.link.routes import LinkRoutes
from forewarn.api.member_routes import MemberRoutes
from forewarn.control.commands import WasDown
from forewarn.control.hosts.host_feed import HostFeed
from forewarn.control.hosts.membership import Membership, Signing
from forewarn.control.hosts.report_intake import ReportIntake
from forewarn.control.retention import RetentionLoop
from forewarn.core.addresses import listen_text
from forewarn.core.model import SECOND_MS
from forewarn.core.principal import CLOCK
from forewarn.logs import Log
from forewarn.ports import Change, Clock
from forewarn.settings import OPERATOR_TOKEN_FILE, Settings
from forewarn.wiring.control_parts import Adapters, ControlParts
from forewarn.wiring.operator_issuers import asking_issuers
from forewarn.wiring.operator_server import (
    STOP_GRACE_S,
    Announcement,
    listening,
    operator_tls,
    serving,
)
from forewarn.wiring.operator_socket import serving_socket
from forewarn.wiring.own_names import server_names, server_url
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

CERTIFICATE_LOOK_EVERY_S = 3_600.0
# Longer than hosts keep an idle connection, so that they close it and not we under their question.
KEEP_ALIVE_S = 75


class ControlWhere(Struct, frozen=True, kw_only=True):
    """Where the control plane really is, once it is there."""

    operator_url: str
    operator_socket: Path
    operator_authority: Path | None  # what callers trust, if the certificate is our own
    hosts_url: str
    hosts_listen: str
    members: int
    data: Path
    console_link: str  # opens the console once, within a minute


class LinkAddress(Struct, frozen=True):
    """Where the link listens, and the URL by which hosts reach it."""

    listen: str
    url: str

    def join_command(self, name: str) -> str:
        """What to say on a hypervisor to have it join. It asks for the token, which is secret."""
        return f"forewarn host --control {self.url} --name {name} --token-file -"


class ControlService:
    """The control plane of `forewarn control`. Made and run inside one event loop.

    `clock` is what rules decide by, `lease_clock` what leases and heartbeats are counted on. Tokens
    and certificates follow the machine's own. `limits` are those of the link's port.
    """

    def __init__(
        self,
        settings: Settings,
        store: SqliteStore,
        *,
        clock: Clock,
        lease_clock: Clock,
        limits: PortLimits,
    ) -> None:
        real = SystemClock()
        self._settings = settings
        self._limits = limits
        self._server: GuardedServer | None = None  # of the link, once it listens
        self._tls: OperatorTls | None = None  # of the operator API, once it is loaded
        self.parts = ControlParts(
            settings,
            Adapters(store=store, clock=clock, lease_clock=lease_clock, ids=RandomIds()),
            show=self._show,
            ring=self._ring,
            hosts_join=True,
        )
        self.report_intake = ReportIntake(real, self.parts.volatile)
        self._inventories = self.parts.inventories(needs_channels=False)
        self.host_feed = HostFeed(
            self.parts.history,
            adoptions=self.report_intake.adoptions_for,
            asked=self.parts.observed.asks,
        )
        self.report_intake.on_adoption(self.host_feed.ring)
        self.parts.load_host_feed(self.host_feed)
        folder = settings.data / LINK_FOLDER
        self._authority = Authority(folder)
        members = MembersFile(folder)
        self.membership = Membership(
            members.load(joined=() if self._authority.is_new else self._joined()),
            keep=members.keep,
            signing=Signing(
                fingerprint=self._authority.fingerprint,
                pem=self._authority.pem,
                read_request=read_request,
                read_peer=read_peer,
                sign=lambda request, name: self._authority.sign(request, name=name),
            ),
            control=self.parts.control,
            clock=real,
            shut_out=self.host_feed.ring,
            files=self.parts.files,
            by=settings.by(),
        )
        self.parts.measures.count(
            "forewarn_host_place_errors",
            "How often taking the places of hosts that left broke, and was put off.",
            lambda: self.membership.failures,
        )
        self._link_measures = self._new_link_measures()
        self.parts.measures.add(self._link_measures)
        self.parts.measures.add(self.parts.lateness)
        self._told_to_stop = asyncio.Event()

    def _new_link_measures(self) -> LinkMetrics:
        return LinkMetrics(
            members=lambda: [member.name for member in self.membership.members()],
            silent_ms=self.parts.observed.silent_ms,
            refuses=self._refuses,
            two_daemons=self.parts.observed.two_daemons,
            waiting=self.host_feed.waiting,
            handshakes=lambda: self._server.unfinished() if self._server else 0,
            speaks=self.parts.observed.speaks,
        )

    def _expiries_s(self) -> dict[str, float]:
        hosts = self.membership.first_expiry_ms() / SECOND_MS
        return {**self._authority.expiries_s(), "host": hosts}

    def _joined(self) -> list[str]:
        return [host.name for host in self.parts.fleet.hosts() if host.joined]

    def _show(self, changes: Sequence[Change]) -> None:
        self.host_feed.published(changes)
        for change in changes:
            gone = [n for n in change.removed_hosts if n not in self.parts.fleet.hosts_by_name]
            self.host_feed.forget(gone)

    def _ring(self) -> None:
        self.parts.ticker.ring()

    def _refuses(self, host: str) -> bool:
        return bool(self.parts.observed.refuses(host))

    def stop(self) -> None:
        """End `run`, as a signal does."""
        self._told_to_stop.set()

    async def run(self, started: Callable[[ControlWhere], None]) -> None:
        """Start in the order that keeps the promises, run until told to stop, end cleanly.

        Raises one of CannotStart with nothing left open. `started` is called once everything
        listens.
        """
        with stop_signals(self.stop), reload_signal(self._look_again):
            self.parts.writer.start()
            try:
                await self._start_and_run(started)
            finally:
                end_loading()
                await self.parts.stop()

    async def _start_and_run(self, started: Callable[[ControlWhere], None]) -> None:
        parts, settings = self.parts, self._settings
        token = operator_token(settings.data / OPERATOR_TOKEN_FILE)
        tls = self._tls = operator_tls(settings)
        self._measure_certificates(tls)
        parts.observed.pulse()  # however long the start takes, hosts are not listened to in it
        await self._apply_inventory()
        await self.membership.settle()
        await parts.control.submit(WasDown(by=CLOCK, since_ms=parts.last_heartbeat_ms))
        async with self._link() as link, asking_issuers(settings, parts.measures) as issuers:
            console = parts.console(expiries_s=self._expiries_s)
            app = create_app(
                parts.control,
                token=token,
                measures=parts.measures,
                doorbell=parts.doorbell,
                feed=parts.feed,
                scratch=settings.data,
                more=[
                    *MemberRoutes(
                        parts.control, self.membership, command=link.join_command
                    ).table(),
                    *AdoptRoutes(parts.control, self.report_intake).table(),
                ],
                inventories=self._inventories,
                kept_files=lambda: files_to_keep(settings.data),
                by=settings.by(),
                issuers=issuers,
                console=console,
                socket_groups=settings.socket_groups,
                webhooks=parts.webhooks(),
            )
            async with (
                serving(app, settings.operator, tls=tls) as url,
                serving_socket(app, settings),
            ):
                with Announcement(settings.data, url):
                    settle_memory()
                    console.url = url
                    link_to_console = console.first_link(settings.by())
                    started(self._where(url, link, tls, link_to_console))
                    await self._work_until_stopped()

    def _look_again(self) -> None:
        """What SIGHUP does: a reload of the unit is harmless where there is nothing to look at."""
        log.info("told_to_look_again", tls=self._settings.operator_has_tls)
        if self._tls is not None:
            self._tls.look()

    def _measure_certificates(self, tls: OperatorTls | None) -> None:
        sources: list[Callable[[], Mapping[str, float]]] = [self._expiries_s]
        if tls is not None:
            sources.append(tls.expiries_s)
            self.parts.measures.add(tls)
        self.parts.measures.add(CertificateMetrics(*sources))

    def _where(
        self, operator_url: str, link: LinkAddress, tls: OperatorTls | None, console_link: str
    ) -> ControlWhere:
        return ControlWhere(
            operator_url=operator_url,
            operator_socket=self._settings.operator_socket,
            operator_authority=None if tls is None else tls.authority_file,
            hosts_url=link.url,
            hosts_listen=link.listen,
            members=len(self.membership.members()),
            data=self._settings.data,
            console_link=console_link,
        )

    async def _apply_inventory(self) -> None:
        """As in `serve`, but without a file there is no fleet other than what hosts show."""
        await self._inventories.prepare()  # what hosts report is compared with it
        if self._settings.inventory is None:
            return
        await self.parts.apply_at_start(self._inventories, self._settings.inventory_text())

    @asynccontextmanager
    async def _link(self) -> AsyncIterator[LinkAddress]:
        """The link on its socket; yields where it is."""
        names = server_names(self._settings.hosts, told=self._settings.hosts_url)
        context = self._authority.server_context(names)
        app = create_link_app(
            LinkRoutes(
                self.parts.control,
                host_feed=self.host_feed,
                report_intake=self.report_intake,
            ),
            self.membership,
            clock=self.parts.clock,
            measures=self._link_measures,
        )
        config = uvicorn.Config(
            app,
            http=LinkProtocol,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=STOP_GRACE_S,
        )
        config.load()
        config.ssl = context
        server = self._server = GuardedServer(config, self._limits)
        renewing = asyncio.get_running_loop().create_task(self._renew_server(context, names))
        try:
            async with listening(
                server, self._settings.hosts, what="the link for hosts", option="--hosts"
            ) as where:
                url = server_url(self._settings.hosts, port=where[1], told=self._settings.hosts_url)
                yield LinkAddress(listen_text(*where), url)
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)

    async def _renew_server(self, context: ssl.SSLContext, names: Sequence[str]) -> None:
        """Have the server's certificate live on, however long the process does."""
        while True:
            await asyncio.sleep(CERTIFICATE_LOOK_EVERY_S)
            try:
                await asyncio.to_thread(self._authority.refresh, context, names)
            except DatabaseRefused as why:
                log.error("certificate_not_renewed", why=str(why))  # noqa: TRY400 - says it all

    async def _work_until_stopped(self) -> None:
        loop = asyncio.get_running_loop()
        loops = (
            self.parts.pulse,
            self.parts.lateness.run,
            self.parts.ticker.run,
            RetentionLoop(self.parts.control, self._settings.retention_days).run,
            self._inventories.run,
            self.parts.send_to_webhooks,
            self.membership.run,
        )
        tasks = [loop.create_task(run()) for run in loops]
        stopping = loop.create_task(self._told_to_stop.wait())
        done, _ = await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
        for task in [*tasks, stopping]:
            task.cancel()
        await asyncio.gather(*tasks, stopping, return_exceptions=True)
        self.parts.doorbell.close()
        self.host_feed.close()
        for task in done - {stopping}:
            task.result()  # a loop that ends by itself has failed: say so and stop


def open_control(
    settings: Settings,
    *,
    clock: Clock | None = None,
    lease_clock: Clock | None = None,
    limits: PortLimits | None = None,
    new: bool = False,
) -> ControlService:
    """Open the data folder and build the control plane. Call it inside the event loop that runs it.

    `limits` of the link's port follow from how many descriptors the process may open, unless they
    are given. `new`: begin with a new database where the one that was there is lost or would be
    refused. Raises one of CannotStart.
    """
    descriptors = raise_descriptor_limit()
    refuse_shared_folder(settings.data)
    store = SqliteStore.in_folder(settings.data, new=new)
    load_quietly()
    try:
        return ControlService(
            settings,
            store,
            clock=clock or SystemClock(),
            lease_clock=lease_clock or SystemClock(),
            limits=limits or link_limits(descriptors),
        )
    except BaseException:
        end_loading()
        store.close()
        raise
