"""The objects that every command with a control plane has, put together by plain calls.

What differs between `serve` and the emulator comes in as arguments: clock, ids, store, and who
drives the loops. Nothing here runs by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from forewarn.adapters.loop_lateness import LoopLateness
from forewarn.adapters.sqlite.store import SqliteStore
from forewarn.api.doorbell import Doorbell
from forewarn.control.control import Control
from forewarn.control.fleet_index import FleetIndex
from forewarn.control.fleet_metrics import FleetMetrics
from forewarn.control.hosts import feed_positions
from forewarn.control.hosts.host_feed import HostFeed
from forewarn.control.hosts.liveness import Observed
from forewarn.control.hosts.simulated_power import HostPower
from forewarn.control.inventory.file_reader import ReadFiles
from forewarn.control.loops import TickerLoop
from forewarn.control.metrics import ControlMetrics
from forewarn.control.published_fleet import PublishedFleet
from forewarn.control.timekeeper import PULSE_EVERY_S, Timekeeper
from forewarn.control.volatile import Volatile
from forewarn.control.writer import Writer, WriterThread
from forewarn.core.errors import InventoryConflict
from forewarn.core.model import SECOND_MS, Policy
from forewarn.core.principal import INVENTORY_FILE
from forewarn.endpoint.browsers_and_proxies import known_names
from forewarn.logs import Log
from forewarn.ports import Change, Clock, Ids, Snapshot
from forewarn.settings import Settings
from forewarn.tables.folding import RowNumbers
from forewarn.wiring.process import Growing, die

if TYPE_CHECKING:
    from forewarn.api.console.mount import ConsoleSetup
    from forewarn.api.webhook_routes import WebhookSetup
    from forewarn.control.feed import Feed
    from forewarn.control.inventory.apply_runner import Inventories
    from forewarn.control.journal_log import JournalLog
    from forewarn.control.webhook_sender import WebhookSender

log = Log(__name__)


def _version() -> str:
    # With the first scrape: it loads zip files and e-mail, and most emulators are never asked.
    from importlib.metadata import version  # noqa: PLC0415 - see above

    return version("forewarn")


class Adapters(Struct, frozen=True, kw_only=True):
    """The outside world of one command.

    `lease_clock` is what leases and heartbeats of hosts are counted on, and the polls of their VMs
    unless those have a `poll_clock`.
    """

    store: SqliteStore
    clock: Clock
    lease_clock: Clock
    ids: Ids
    poll_clock: Clock | None = None


class ControlParts:
    """Store, writer, control and ticker, connected. Made inside the event loop that runs it.

    After each commit, on the event loop and once the fleet has it, `show` is given what was
    committed; then `ring` is called if a host may have to look again.
    """

    def __init__(
        self,
        settings: Settings,
        adapters: Adapters,
        *,
        show: Callable[[Sequence[Change]], None],
        ring: Callable[[], None],
        hosts_join: bool = False,
        power: HostPower | None = None,
    ) -> None:
        self.settings = settings
        policy = replace(settings.policy(), hosts_join=hosts_join)
        self.store = adapters.store
        self.clock = adapters.clock
        self._ring = ring
        self._lease_clock = adapters.lease_clock
        self.timekeeper = Timekeeper(adapters.clock, pulse_clock=adapters.lease_clock)
        snapshot = adapters.store.load()
        self.last_heartbeat_ms = snapshot.heartbeat_ms
        self.history = feed_positions.begin(adapters.store, snapshot)
        self._shown_commits = snapshot.shown
        self.observed = Observed(adapters.lease_clock, poll_clock=adapters.poll_clock, power=power)
        self.fleet = PublishedFleet(snapshot, self.observed, policy=policy, clock=self.clock)
        self.measures = self._measuring(snapshot)
        self.lateness = LoopLateness()
        self.files = ReadFiles() if hosts_join else None  # they are asked what a file lists
        began_ms = adapters.lease_clock.monotonic_ms()
        self.volatile = Volatile(began_ms, files=self.files or ReadFiles())
        self.writer = self._writer(snapshot, policy, adapters.ids)
        self.control = Control(
            writer=self.writer,
            store=self.store,
            clock=self.clock,
            lease_clock=adapters.lease_clock,
            fleet=self.fleet,
            observed=self.observed,
        )
        self.ticker = TickerLoop(self.control, self.measures)
        self.fleet.on_publish(show)
        self.fleet.on_publish(self.measures.committed)
        self.fleet.on_publish(self._fleet_measures.committed)
        self._journal_log = self._logging() if settings.log_journal else None
        self._webhook_came = asyncio.Event()
        self.fleet.on_publish(self._ring_all)
        self.doorbell = Doorbell()
        self.measures.count(
            "forewarn_writer_turns",
            "Batches of commands that the writer has taken, one commit each at most.",
            lambda: self.writer.turns,
        )
        self.measures.count(
            "forewarn_turn_errors",
            "Parts of what hosts said or asked for that broke in control, each time.",
            lambda: self.control.turns.failures,
        )

    @cached_property
    def feed(self) -> Feed:
        """What readers and webhooks follow. It begins here: earlier lines are the store's."""
        # The emulator has no reader unless it has an operator API.
        from forewarn.control.feed import Feed  # noqa: PLC0415 - see above

        feed = Feed(self.control)
        self.measures.add(feed)
        return feed

    @cached_property
    def webhook_sender(self) -> WebhookSender:
        """Who sends to webhooks. With the first one: most services have none."""
        from forewarn.wiring.webhooks import new_sender  # noqa: PLC0415 - see above

        settings = self.settings
        sender = new_sender(
            self.control, self.feed, targets=settings.webhook_targets, place=settings.place()
        )
        self.measures.add(sender)
        return sender

    def webhooks(self) -> WebhookSetup:
        """What the operator API is told of webhooks."""
        from forewarn.api.webhook_routes import WebhookSetup  # noqa: PLC0415 - with the API

        return WebhookSetup(
            listed=self.settings.webhook_targets, sender=lambda: self.webhook_sender
        )

    async def send_to_webhooks(self) -> None:
        """Send to webhooks, from the first one on, until canceled: who leads runs this."""
        while not self.fleet.webhooks:
            await self._webhook_came.wait()
        await self.webhook_sender.run()

    def _logging(self) -> JournalLog:
        # Most emulators log no journal, and every module costs their start.
        from forewarn.control.journal_log import JournalLog  # noqa: PLC0415 - see above

        journal_log = JournalLog()
        self.fleet.on_publish(journal_log.committed)
        return journal_log

    def _measuring(self, snapshot: Snapshot) -> ControlMetrics:
        """The numbers of this control, which begin with what is stored."""
        measures = ControlMetrics(version=_version)
        reads, backup_ms = self.store.open_first_reads(), self.store.last_backup_ms()
        measures.loaded(snapshot.scopes, reads, backup_ms=backup_ms)
        measures.sizes(self.store.sizes)
        self._fleet_measures = FleetMetrics(self.fleet)
        measures.add(self._fleet_measures)
        return measures

    def console(
        self,
        *,
        expiries_s: Callable[[], Mapping[str, float]] = dict,
        more: Callable[[Any], Any] | None = None,
        kept: bool = True,
    ) -> ConsoleSetup:
        """What the console is told of this service. Once: it has the sessions."""
        from forewarn.api.console.mount import ConsoleSetup  # noqa: PLC0415 - with the API

        return ConsoleSetup(
            names=known_names(self.settings.console_names),
            expiries_ms=lambda: {w: round(s * SECOND_MS) for w, s in expiries_s().items()},
            database_bytes=lambda: sum(self.store.sizes().values()),
            kept=kept,
            more=more,
        )

    async def stop(self) -> None:
        """End the writer, the store and the log of the journal, in this order."""
        await self.writer.stop()
        self.store.close()
        if self._journal_log is not None:
            await asyncio.to_thread(self._journal_log.end)

    def load_host_feed(self, host_feed: HostFeed) -> None:
        """Have the views begin with what is stored."""
        shown, self._shown_commits = self._shown_commits, {}
        host_feed.load(self.fleet.scopes.values(), self.fleet.operations.values(), shown)

    def _writer(self, snapshot: Snapshot, policy: Policy, ids: Ids) -> WriterThread:
        writer = Writer(
            index=FleetIndex(snapshot),
            counted=RowNumbers.after(snapshot),
            observed=self.observed,
            store=self.store,
            timekeeper=self.timekeeper,
            lease_clock=self._lease_clock,
            volatile=self.volatile,
            policy=policy,
            ids=ids,
            on_commit=self._committed,
        )
        return WriterThread(
            writer,
            publish=self.fleet.publish,
            on_fatal=die,
            on_failure=self.measures.store_failed,
        )

    def _committed(self, changes: Sequence[Change]) -> None:
        self.writer.committed(changes)

    def _ring_all(self, changes: Sequence[Change]) -> None:
        """Ring all parts that may have to look again."""
        if any(change.scopes or change.operations or change.hosts for change in changes):
            self._ring()
        if any(change.webhooks for change in changes):
            self._webhook_came.set()
        self.doorbell.ring()

    def inventories(
        self,
        *,
        needs_channels: bool = True,
        cannot_listen: Callable[[str], str | None] = lambda _: None,
    ) -> Inventories:
        """Who applies inventories of any size while the service runs. Once; see `Inventories`."""
        # The emulator has none of it, and every module costs its start.
        from forewarn.control.inventory.apply_runner import (  # noqa: PLC0415 - see above
            SLICE_VMS_MAX,
            Inventories,
        )
        from forewarn.wiring.inventory_child import reads_apart  # noqa: PLC0415 - see above

        growing = Growing()
        inventories = Inventories(
            self.control,
            needs_channels=needs_channels,
            cannot_listen=cannot_listen,
            reads=reads_apart(),
            slice_vms=SLICE_VMS_MAX,
            quietly=lambda: growing,
            files=self.volatile.files,
            keeps_read=self.files is not None,
        )
        self.measures.count(
            "forewarn_inventory_errors",
            "Parts of large inventories that broke, each time control tried them.",
            lambda: inventories.failures,
        )
        return inventories

    async def apply_at_start(self, inventories: Inventories, text: str) -> None:
        """Make the fleet what the file says, unless what is under way forbids it for now.

        A service that stays down because of a file gives no notice at all, so a fleet that is there
        goes on as it is. Raises InventoryConflict for a first file that does not work.
        """
        if text == self.fleet.inventory:
            return  # decided before; reading a large file takes longer than all the rest
        try:
            await inventories.apply_at_once(text, by=INVENTORY_FILE)
        except InventoryConflict as why:
            if not self.fleet.hosts_by_name:
                raise
            log.error(  # noqa: TRY400 - the sentence says it all
                "inventory_not_applied", why=str(why), remedy="forewarn inventory apply FILE, later"
            )

    async def pulse(self) -> None:
        """Let the timekeeper notice, until canceled, that this process stood still.

        What hosts said meanwhile was not heard: they are not taken for silent because of that.
        """
        while True:
            self.timekeeper.pulse()
            self.observed.pulse()
            await asyncio.sleep(PULSE_EVERY_S)
