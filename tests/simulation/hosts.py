"""The hosts of the simulated world: daemons made of the deployed parts, and what outlives them.

A `Daemon` is one life of a host's daemon. What a loop does in the product is one step here, begun
once a turn; a step that waits for the network goes on a turn later, while the others go on.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from forewarn.adapters.last_documents import LastShown
from forewarn.core.errors import Refusal, Unavailable
from forewarn.core.incarnation_marks import Marks
from forewarn.core.inventory.host_report import SeenVm
from forewarn.core.model import SECOND_MS
from forewarn.host.confirmations import Confirmations
from forewarn.host.control_clock import ControlClock
from forewarn.host.daemon import SWEEP_EVERY_S
from forewarn.host.executor import Executor
from forewarn.host.feed_reader import WAIT_S, FeedReader
from forewarn.host.guest_proxy import POLLS_SENT_EVERY_S, GuestProxy
from forewarn.host.identity import WitnessedIdentity
from forewarn.host.served_documents import Documents
from forewarn.host.turns import Turns
from forewarn.host.vm_watcher import TELL_EVERY_S
from forewarn.wire.api_versions import NEWEST
from forewarn.wire.link import ShownScope
from simulation.tasks import Tasks
from simulation.wire_link import SimLink
from support.control import run_now
from support.simulated_machines import SimulatedMachines

if TYPE_CHECKING:
    from simulation.world import SimulationWorld

SWEEP_EVERY_MS = round(SWEEP_EVERY_S * SECOND_MS)
FOLLOW_EVERY_MS = WAIT_S * SECOND_MS
TELL_EVERY_MS = round(TELL_EVERY_S * SECOND_MS)
POLLS_EVERY_MS = round(POLLS_SENT_EVERY_S * SECOND_MS)


class HostCrash(BaseException):
    """kill -9 of a host's daemon: nothing that would run after this runs."""


@dataclass
class Disk:
    """What outlives a host's daemon. `crash_at` is a durable step that the daemon dies at."""

    certificate: bytes = b""
    marks: Marks | None = None
    shown: bytes = b""
    crash_at: str = ""

    def step(self, name: str) -> None:
        if self.crash_at == name:
            self.crash_at = ""
            raise HostCrash(name)


@dataclass
class SimHost:
    """A host: its disk, its machines and its daemon, if that is up."""

    name: str
    machines: SimulatedMachines
    disk: Disk = field(default_factory=Disk)
    daemon: Daemon | None = None
    lives: int = 0
    heard_ms: int = 0  # when control heard it last, in real time
    sighted_ms: int = -TELL_EVERY_MS  # when control last took what it reported
    restarts_ms: int | None = None  # when its machine starts its daemon again
    dark: dict[str, bytes] = field(default_factory=dict)  # what it showed when its daemon died

    @property
    def up(self) -> bool:
        return self.daemon is not None


class Daemon:
    """One life of a host's daemon."""

    def __init__(self, world: SimulationWorld, host: SimHost) -> None:
        host.lives += 1
        self._world = world
        self._host = host
        self._clock = world.clock
        self.name = host.name
        self.disk = host.disk
        self.time = ControlClock()
        self.link = SimLink(
            self._carry,
            daemon=f"{host.name}/{host.lives}",
            monotonic_ms=self._clock.monotonic_ms,
            told_time=self._told_time,
        )
        self.identity = WitnessedIdentity(
            self.name,
            feed_reader=lambda: self.feed_reader,
            monotonic_ms=self._clock.monotonic_ms,
        )
        self.documents = Documents(self.identity)
        self.guests = GuestProxy(
            self.link,
            polled=self.documents.polled,
            now_ms=self.now_ms,
            monotonic_ms=self._clock.monotonic_ms,
        )
        self.confirming = Confirmations(self.documents)
        self.feed_reader = self._new_feed_reader()
        self.link.followed = lambda: self.feed_reader.epoch
        self.executor = Executor(
            self.name,
            link=self.link,
            hypervisor=world.hypervisor,
            now_ms=self._clock.monotonic_ms,
            obeys=lambda: bool(self.feed_reader.epoch) and not self.feed_reader.refuses,
        )
        self.turns = Turns(
            self.name,
            link=self.link,
            confirming=self.confirming,
            guests=lambda: self.guests,
            refuses=lambda: self.feed_reader.refuses,
            work=self._told_of_work,
        )
        self.tasks = Tasks()
        self.serving = False  # once control was heard, or what was shown last is shown
        self.told: Sequence[SeenVm] | None = None
        self._seen: Sequence[SeenVm] = ()
        self._wanted = True
        self._answered = False  # the last question for work
        self._changed = False
        self._follow_ms = self._sweep_ms = self._tell_ms = 0
        self._polls_ms = self._clock.real_ms + POLLS_EVERY_MS

    def _new_feed_reader(self) -> FeedReader:
        return FeedReader(
            self.name,
            link=self.link,
            documents=self.documents,
            hosts=self,
            monotonic_ms=self._clock.monotonic_ms,
            marks=self.disk.marks,
            keep=self._mark,
            took_over=self._took_over,
            reconnected=self._reconnected,
            hurry=lambda: self.identity.waiting > 0,
        )

    async def _carry(self, name: str, body: bytes) -> tuple[int, bytes]:
        return await self._world.wire.carry(self.name, self.disk.certificate, name, body)

    def _told_time(self, asked_ms: int, heard_ms: int) -> None:
        now_ms = self._world.clock.now_ms()
        self.time.heard(now_ms, asked_monotonic_ms=asked_ms, heard_monotonic_ms=heard_ms)

    def now_ms(self) -> int:
        """What time control has."""
        return self.time.now_ms(self._clock.monotonic_ms())

    async def _mark(self, marks: Marks) -> None:
        self.disk.step("before marks")
        self.disk.marks = marks
        self.disk.step("after marks")

    def _took_over(self) -> None:
        self._changed = True

    def _reconnected(self) -> None:
        self.told = None
        self._wanted = True

    # host.feed_reader.FeedListener.

    def shown(self, host: str, scope: ShownScope) -> None:
        self.confirming.shown(host, scope)

    def ring(self, hosts: Sequence[str]) -> None:
        self._wanted = self._wanted or self.name in hosts

    def _told_of_work(self, work: bool | None) -> None:  # noqa: FBT001 - as it was said
        self._wanted = self._wanted or work is not False

    # Its life.

    def start(self) -> None:
        """Ask control; if it does not answer, show what was shown last."""
        self.tasks.begin("start", self._connect)

    async def _connect(self) -> None:
        last = msgspec.json.decode(self.disk.shown, type=LastShown) if self.disk.shown else None
        if last is not None:
            self.feed_reader.recall(last.scopes)
        heard = await self.feed_reader.once()
        if not heard and last is not None:
            if not self.time.known:
                then_ms = last.monotonic_ms
                self.time.heard(last.now_ms, asked_monotonic_ms=then_ms, heard_monotonic_ms=then_ms)
            self.feed_reader.resume(last.scopes, heard_ms=last.monotonic_ms)
        self.serving = heard or last is not None

    def turn(self, chance: random.Random | None) -> None:
        """Everything that the daemon does by itself, once. `chance` shuffles it."""
        self.tasks.resume()
        if not self.serving:
            self.start()
        if not self.serving:
            return
        self.look()
        steps = [self._follow_on, self._say, self._work, self._tell]
        if chance is not None:
            chance.shuffle(steps)
        for step in steps:
            step()
        self._keep()

    def follow(self) -> None:
        """Ask what is new."""
        self._follow_ms = self._clock.real_ms + FOLLOW_EVERY_MS
        self.tasks.begin("follow", self.feed_reader.once)

    def _follow_on(self) -> None:
        """Ask again, though nobody rang: at once while control does not answer or a VM waits."""
        waits = self.identity.waiting > 0 or not self.feed_reader.up
        if waits or self._clock.real_ms >= self._follow_ms:
            self.follow()

    def look(self) -> None:
        """See which VMs are here: who is not seen is not answered."""
        self._seen = tuple(run_now(self._host.machines.seen()))
        self.identity.witness(self._seen)

    def _say(self) -> None:
        if self._clock.real_ms >= self._polls_ms:
            self._polls_ms = self._clock.real_ms + POLLS_EVERY_MS
            self.guests.gather_polls()
        self.tasks.begin("turn", lambda: _calmly(lambda: self.turns.once(self.executor)))

    def _work(self) -> None:
        now_ms = self._clock.real_ms
        claim = self._wanted or (not self._answered and now_ms >= self._sweep_ms)
        if not (claim or self.executor.busy) or "step" in self.tasks:
            return
        if claim:
            self._wanted, self._answered, self._sweep_ms = False, False, now_ms + SWEEP_EVERY_MS
        self.tasks.begin("step", lambda: _calmly(lambda: self._step(claim=claim)))

    async def _step(self, *, claim: bool) -> None:
        if await self.executor.step(claim=claim):
            self._answered = True

    def _tell(self) -> None:
        if self._seen != self.told or self._clock.real_ms >= self._tell_ms:
            self.tasks.begin("tell", lambda: _calmly(self._sight))

    async def _sight(self) -> None:
        seen = self._seen
        await self.link.sight(seen)
        self.told = seen
        self._tell_ms = self._clock.real_ms + TELL_EVERY_MS

    def _keep(self) -> None:
        """Keep what is shown for the next life, a turn after it has changed."""
        if not self._changed:
            return
        self._changed = False
        pages = (self.documents.page(name) for name in sorted(self.feed_reader.names))
        monotonic_ms = self._clock.monotonic_ms()
        kept = LastShown(
            scopes=tuple(page.scope for page in pages if page is not None),
            now_ms=self.time.now_ms(monotonic_ms),
            monotonic_ms=monotonic_ms,
            boot_id="",
        )
        self.disk.step("before documents")
        self.disk.shown = msgspec.json.encode(kept)

    # What its guests can read.

    def text(self, vm: str) -> bytes | None:
        """The document that a GET by this VM would be answered with now."""
        guest = self.identity.by_name(vm) if self.serving else None
        return None if guest is None else guest.page.documents[NEWEST.name].body

    def texts(self) -> dict[str, bytes]:
        """By VM, what each could read."""
        found = {vm: self.text(vm) for vm in self.documents.vms()}
        return {vm: text for vm, text in found.items() if text is not None}

    def shows(self) -> dict[str, bytes]:
        """By VM, what is there to be read, whoever is seen to be here."""
        found = {vm: self.documents.guest(vm) for vm in sorted(self.documents.vms())}
        return {
            vm: guest.page.documents[NEWEST.name].body
            for vm, guest in found.items()
            if guest is not None
        }


async def _calmly(step: object) -> None:
    """A step that control may refuse, or not hear: the next one tries again."""
    try:
        await step()  # type: ignore[operator]
    except (Refusal, Unavailable):
        return
