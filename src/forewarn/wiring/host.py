"""`forewarn host`: the daemon of one hypervisor. It serves guests, acts, and follows control.

The order at the start keeps the promises: join or load the certificate, ask control, show, open
channels, and only then say that the host is there. Control or hypervisor away: it keeps trying,
says so once, and serves what it can; without control that is what was shown last.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from functools import cached_property, partial
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from forewarn.adapters import host_credentials, joining
from forewarn.adapters.control_link import ControlLink
from forewarn.adapters.host_credentials import Credentials
from forewarn.adapters.loop_lateness import LoopLateness
from forewarn.adapters.shared_folders import refuse_shared_folder
from forewarn.adapters.sqlite.data_folder import DatabaseRefused, FolderLock
from forewarn.adapters.system import SystemClock, boottime_ms
from forewarn.core.errors import Conflict, Invalid, Refusal, Unavailable
from forewarn.core.inventory.host_report import SeenVm
from forewarn.doorbell import rung
from forewarn.endpoint.endpoint import Endpoint
from forewarn.host.channels.plan import ChannelProblem
from forewarn.host.control_clock import ControlClock
from forewarn.host.daemon import Hosts
from forewarn.host.feed_reader import FeedReader, back_off_s
from forewarn.host.guest_proxy import GuestProxy
from forewarn.host.identity import Identity, WitnessedIdentity
from forewarn.host.metrics_server import MetricsServer
from forewarn.host.served_documents import Documents
from forewarn.host.vm_watcher import VmWatcher
from forewarn.host_settings import HostSettings
from forewarn.logs import Log
from forewarn.ports import Clock, HostLink, Hypervisor, Machines
from forewarn.wire.link import ShownScope
from forewarn.wiring.host_documents import DocumentKeeper
from forewarn.wiring.host_metrics import host_metrics
from forewarn.wiring.process import (
    NotJoined,
    raise_descriptor_limit,
    settle_memory,
    stop_signals,
)

log = Log(__name__)

BUSY_STEP_EVERY_S = 0.2
RENEWAL_LOOK_EVERY_S = 60.0
LAST_WORDS_S = 3.0  # how long a stop waits for what guests did last to reach control


class VmChannels(Protocol):
    """The ways by which VMs ask."""

    async def arrange(self, seen: Sequence[SeenVm]) -> Sequence[ChannelProblem]: ...

    async def close(self) -> None: ...


async def _nothing() -> None:
    """There is nothing to close."""


class Machinery(Struct, frozen=True, kw_only=True):
    """What a host daemon acts on and is asked by.

    `loops` run as long as the daemon works; `close` ends what is open, whatever has run.
    `on_reboot` takes who is told the name of a VM that others have rebooted.
    """

    machines: Machines
    hypervisor: Hypervisor
    channels: Callable[[Endpoint, Identity], VmChannels]
    loops: tuple[Callable[[], Coroutine[None, None, None]], ...] = ()
    close: Callable[[], Awaitable[None]] = _nothing
    on_reboot: Callable[[Callable[[str], None]], None] = lambda _: None


Building = Callable[[str, HostLink], Machinery]


class HostWhere(Struct, frozen=True):
    """What a host daemon can say of itself once it serves."""

    name: str
    control: str
    data: Path
    metrics: tuple[str, int] | None
    vms: int | None  # None while the hypervisor cannot be seen


class HostService:
    """One host daemon. Made and run inside one event loop."""

    def __init__(
        self,
        settings: HostSettings,
        credentials: Credentials,
        *,
        build: Building,
        clock: Clock | None = None,
        chance: Callable[[], float] = random.random,
        linked_by: type[ControlLink] = ControlLink,
    ) -> None:
        self.name = credentials.name
        self.control = settings.control or credentials.control
        self._settings = settings
        self._credentials = credentials
        self._clock = clock or SystemClock()
        self._chance = chance
        self.time = ControlClock()
        self.link = linked_by(
            self.control,
            credentials.context(),
            monotonic_ms=self._clock.monotonic_ms,
            heard=self._heard,
        )
        self._machinery = build(self.name, self.link)
        self.identity = WitnessedIdentity(
            self.name,
            feed_reader=lambda: self.feed_reader,
            monotonic_ms=self._clock.monotonic_ms,
        )
        self.documents = Documents(
            self.identity, requests_per_s=float(settings.guest_requests_per_second)
        )
        self.guests = self._new_guests()
        self.endpoint = self._new_endpoint(settings)
        self.channels = self._machinery.channels(self.endpoint, self.identity)
        self.hosts = Hosts(
            [self.name],
            links=lambda _: self.link,
            hypervisor=self._machinery.hypervisor,
            documents=self.documents,
            monotonic_ms=boottime_ms,
            guests=lambda _: self.guests,
            busy_step_every_s=BUSY_STEP_EVERY_S,
            readable=self._readable,
            obeys=self._obeys,
            refuses=self._refuses,
            unheard=self._unheard,
        )
        self.watch = VmWatcher(
            self.name,
            machines=self._machinery.machines,
            link=self.link,
            channels=self.channels,
            witness=self.identity.witness,
            boot_id=partial(self._machinery.hypervisor.boot_id, self.name),
        )
        self.keeper = self._new_keeper()
        self.feed_reader = self._new_feed_reader()
        self.link.followed = self._followed
        self._metrics = MetricsServer(metrics=host_metrics(self).text, healthz=self._healthz)

    def _new_feed_reader(self) -> FeedReader:
        keeper = self.keeper
        return FeedReader(
            self.name,
            link=self.link,
            documents=self.documents,
            hosts=self.hosts,
            monotonic_ms=self._clock.monotonic_ms,
            chance=self._chance,
            marks=keeper.marks(),
            keep=keeper.mark,
            accepts=keeper.accepts,
            forget=keeper.forget,
            took_over=keeper.ring,
            wants=self.watch.adopt,
            reconnected=self._reconnected,
            judged=self.hosts.beat,
            hurry=lambda: self.identity.waiting > 0,
        )

    @cached_property
    def lateness(self) -> LoopLateness:
        """How late the event loop is."""
        return LoopLateness()

    def _new_keeper(self) -> DocumentKeeper:
        return DocumentKeeper(
            self._settings.data,
            documents=self.documents,
            time=self.time,
            clock=self._clock,
            boot_id_file=self._settings.boot_id_file,
        )

    def _new_guests(self) -> GuestProxy:
        guests = GuestProxy(
            self.link,
            polled=self.documents.polled,
            vm_polled=self.documents.vm_polled,
            now_ms=self._now_ms,
            monotonic_ms=self._clock.monotonic_ms,
            want_turn=lambda: self.hosts.want_turn(self.name),
        )
        self._machinery.on_reboot(guests.rebooted)
        return guests

    def _new_endpoint(self, settings: HostSettings) -> Endpoint:
        return Endpoint(
            self.guests,
            now_ms=self._now_ms,
            place=settings.place(),
            rules=settings.rules(),
        )

    def _heard(self, now_ms: int, asked_ms: int, heard_ms: int) -> None:
        self.time.heard(now_ms, asked_monotonic_ms=asked_ms, heard_monotonic_ms=heard_ms)

    def _followed(self) -> str:
        return self.feed_reader.epoch

    def _refuses(self) -> str:
        return self.feed_reader.refuses

    def _obeys(self) -> bool:
        """Only a control whose documents are on show, all of them, is obeyed."""
        return bool(self.feed_reader.epoch) and not self.feed_reader.refuses

    def _readable(self, scope: ShownScope) -> bool:
        """Whether every VM of the scope that runs here and asks is heard."""
        return self.watch.cut_off.isdisjoint(vm.name for vm in scope.vms)

    def _now_ms(self) -> int:
        """The wall clock of control: that of this machine says nothing."""
        return self.time.now_ms(self._clock.monotonic_ms())

    def _unheard(self) -> None:
        """Control does not answer a turn: a question for changes may wait on a dead connection."""
        self.feed_reader.ask_now()

    def _reconnected(self) -> None:
        """Control may have forgotten what it saw here, and what it asked for."""
        self.watch.tell_again()
        self.hosts.ring([self.name])

    # Running.

    async def run(self, started: Callable[[HostWhere], None]) -> None:
        """Serve until a signal says stop. `started` is called once guests are served.

        Raises one of CannotStart with nothing left open.
        """
        stop = asyncio.Event()
        with stop_signals(stop.set):
            await self.serve(stop, started)

    async def serve(self, stop: asyncio.Event, started: Callable[[HostWhere], None]) -> None:
        """The same until `stop` is set."""
        parts = (self.channels, self.endpoint, self._metrics, self.link, self._machinery)
        async with AsyncExitStack() as opened:
            for part in reversed(parts):  # what is entered last is closed first
                opened.push_async_callback(part.close)
            where = None
            if self._settings.metrics:
                where = await self._metrics.open(self._settings.metrics)
            if await self._connect(stop):
                await self.watch.look()
                await self.hosts.heartbeat()
                settle_memory()
                seen = self.watch.seen
                count = None if seen is None else len(seen)
                started(HostWhere(self.name, self.control, self._settings.data, where, count))
                await self._work(stop)

    async def _connect(self, stop: asyncio.Event) -> bool:
        """Ask control until it has answered once; False if told to stop before that.

        If it does not answer and there are last documents, those will do for the time being.
        """
        failures = 0
        self.keeper.recall(self.feed_reader)
        while not stop.is_set():
            asking = asyncio.ensure_future(self.feed_reader.once())
            stopping = asyncio.ensure_future(stop.wait())
            await asyncio.wait([asking, stopping], return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if asking.done() and asking.result():
                return True
            asking.cancel()
            await asyncio.gather(asking, stopping, return_exceptions=True)
            failures += 1
            if failures == 1 and not stop.is_set() and self.keeper.resume(self.feed_reader):
                return True
            await rung(stop, back_off_s(failures, self._chance()))
        return False

    async def _work(self, stop: asyncio.Event) -> None:
        loops = (
            self.lateness.run,
            self.feed_reader.run,
            self.hosts.run,
            self.guests.run,
            self.watch.run,
            self._renewals,
            self._keep_documents,
            *self._machinery.loops,
        )
        tasks = [asyncio.ensure_future(run()) for run in loops]
        stopping = asyncio.ensure_future(stop.wait())
        done, _ = await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
        for task in [*tasks, stopping]:
            task.cancel()
        await asyncio.gather(*tasks, stopping, return_exceptions=True)
        for task in done - {stopping}:
            task.result()  # a loop that ends by itself has failed: say so and stop
        await self._last_words()

    async def _keep_documents(self) -> None:
        await self.keeper.run(self.feed_reader)

    async def _last_words(self) -> None:
        await self.keeper.finish(self.feed_reader)
        try:
            async with asyncio.timeout(LAST_WORDS_S):
                self.guests.gather_polls()
                await self.guests.tell_all(partial(self.hosts.say, self.name))
        except (Refusal, Unavailable, TimeoutError) as why:
            log.warning("guest_traces_lost", why=str(why))

    # The certificate.

    async def _renewals(self) -> None:
        said = ""
        while True:
            try:
                await self.renew_if_due()
                said = ""
            except (DatabaseRefused, Refusal, Unavailable) as why:
                if str(why) != said:
                    log.warning("certificate_not_renewed", host=self.name, why=str(why))
                said = str(why)
            await asyncio.sleep(RENEWAL_LOOK_EVERY_S)

    async def renew_if_due(self) -> bool:
        """Renew the certificate when two thirds of its life have passed, by control's clock."""
        await self.link.close_used()
        if not self.time.known or not self._credentials.renewal_due(self._now_ms()):
            return False
        before = self._credentials
        joined = await self.link.renew(before.request())
        self._credentials = await asyncio.to_thread(
            host_credentials.keep,
            before.folder,
            key_pem=before.key_pem,
            certificate_pem=joined.certificate,
            authority_pem=joined.authority,
            control=before.control,
            token_digest=before.token_digest,
        )
        self.link.use(self._credentials.context())
        log.info("certificate_renewed", host=self.name)
        return True

    # What can be seen of it.

    def _healthz(self) -> str:
        age_s = self.feed_reader.age_s
        heard = "was never heard" if age_s is None else f"heard {age_s:.1f} s ago"
        seen = self.watch.seen
        vms = "hypervisor away" if seen is None else f"{len(seen)} VMs seen"
        problems = len(self.watch.problems) + len(self.watch.channel_problems)
        obeyed = ", refused" if self.feed_reader.refuses else ""
        return f"ok: host {self.name}, control {heard}{obeyed}, {vms}, {problems} problems"


async def membership(settings: HostSettings, token: str | None) -> Credentials:
    """The host's credentials: those it has, or those that the token gets it.

    A token that was used already by this host is passed over, so that the command that joined it
    starts it ever after; another one makes it join anew. Raises Refusal, Unavailable or
    DatabaseRefused.
    """
    try:
        known = host_credentials.load(settings.data)
    except Conflict:
        if token is None:
            raise
        known = None  # what is damaged is made anew
    if known is not None and settings.name and known.name != settings.name and not token:
        raise Conflict(
            f"This machine has joined as {known.name}, not as {settings.name}: {settings.data}"
            " has that certificate.",
            f"Start it with --name {known.name}; or, to rename it, invite {settings.name} with"
            f" `forewarn host invite {settings.name}` and give the token with --token-file.",
        )
    same = known is not None and (not settings.name or known.name == settings.name)
    if known is not None and same and _is_used(known, token):
        return known
    if token is None:
        raise NotJoined(
            f"This machine has not joined a control yet: there is no certificate in"
            f" {settings.data}.",
            "On the control machine `forewarn host invite NAME` prints the command to join with.",
        )
    control = settings.control or (known.control if known is not None else "")
    name = settings.name or (known.name if known is not None else "")
    if not control or not name:
        raise Invalid("To join, control and a name are needed.", "Give --control URL --name NAME.")
    return await joining.join(settings.data, control=control, name=name, token=token)


def _is_used(known: Credentials, token: str | None) -> bool:
    return token is None or host_credentials.digest_of(token.strip()) == known.token_digest


async def join_host(
    settings: HostSettings, *, token: str | None, joined: Callable[[str, str], None]
) -> None:
    """Have the credentials of a host and end; `joined` is told its name and control.

    Raises one of CannotStart, also while a daemon runs on the data folder.
    """
    lock = FolderLock(settings.data)
    try:
        credentials = await membership(settings, token)
        joined(credentials.name, settings.control or credentials.control)
    finally:
        lock.release()


async def run_host(
    settings: HostSettings,
    *,
    token: str | None,
    build: Callable[[HostSettings], Building],
    started: Callable[[HostWhere], None],
) -> None:
    """Run a host daemon until it is told to stop. Raises one of CannotStart.

    Who may write to its folder may choose its control, and say `accept-control` in its place.
    """
    raise_descriptor_limit()
    refuse_shared_folder(settings.data)
    lock = FolderLock(settings.data)
    try:
        credentials = await membership(settings, token)
        await HostService(settings, credentials, build=build(settings)).run(started)
    finally:
        lock.release()
