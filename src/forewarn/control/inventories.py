"""Inventories that are applied while the service runs, of any size.

A file is read apart, compared on a thread and checked whole. What fits one slice is one commit. Of
a larger one the text is made durable first: from then on it is decided. Then it is applied slice by
slice (`core.slicing`), and what others ask goes between. What was cut off is gone on with at the
next start; what an event that began meanwhile forbids waits until that has ended.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import msgspec
import structlog

from forewarn.control import inventory
from forewarn.control.control import Control
from forewarn.control.inventory_file import Mistake, ReadFiles, in_words, parse
from forewarn.control.published import PublishedFleet
from forewarn.control.transaction import Transaction
from forewarn.control.writer import Command
from forewarn.core import beside, placing, reconciling, slicing
from forewarn.core.errors import BadInventory, InventoryConflict, Unavailable
from forewarn.core.inventory import Applied, Clash, Inventory
from forewarn.core.model import Decision, Fact, FactKind, Host, Operation, Scope, Vm
from forewarn.wire import packed

T = TypeVar("T")
Guard = Callable[[Command[Applied]], Command[T]]

SLICE_VMS_MAX = 256  # some 10 ms of the writer, and as much of the event loop
LOOK_AGAIN_S = 2.0  # at what has to wait
READ_LATER_CHARS_MIN = 1_024 * 1_024  # of a file at a start: reading it would take seconds

log = structlog.get_logger(__name__)


class Reads(Protocol):
    """Who reads files, so that nobody else waits for it."""

    async def read(self, text: str, *, needs_channels: bool) -> Inventory:
        """The content of a file. Raises BadInventory, or Unavailable."""
        ...

    async def words(self, text: str, found: Sequence[Mistake]) -> tuple[str, str]:
        """The words of a refusal, with the lines of the file."""
        ...


class ReadsOnThread:
    """Reads on a thread: good for what is not large."""

    async def read(self, text: str, *, needs_channels: bool) -> Inventory:
        return await asyncio.to_thread(parse, text, needs_channels=needs_channels)

    async def words(self, text: str, found: Sequence[Mistake]) -> tuple[str, str]:
        return await asyncio.to_thread(in_words, text, found)


@dataclass(frozen=True, slots=True)
class _Still:
    """The fleet at one moment, for a thread. `core.placing.Bound`."""

    scopes: Mapping[str, Scope]
    hosts: Mapping[str, Host]
    shown: frozenset[str]
    operations: Mapping[str, Sequence[Operation]]
    arrivals: Mapping[str, Sequence[tuple[str, Vm]]]
    now_ms: int

    def arriving(self, host: str) -> Sequence[tuple[str, Vm]]:
        return self.arrivals.get(host, ())

    def operations_on(self, host: str) -> Sequence[Operation]:
        return self.operations.get(host, ())


def _still(fleet: PublishedFleet) -> _Still:
    hosts = dict(fleet.hosts_by_name)
    arrivals = {name: fleet.arriving(name) for name in hosts}
    return _Still(
        scopes=dict(fleet.scopes),
        hosts=hosts,
        shown=frozenset(fleet.digests),
        operations={o.host: fleet.operations_on(o.host) for o in fleet.operations.values()},
        arrivals={name: coming for name, coming in arrivals.items() if coming},
        now_ms=fleet.look().now_ms,
    )


@dataclass(frozen=True, slots=True)
class _Checked:
    """A file compared with the whole fleet: what it changes, or what is wrong with it."""

    step: reconciling.Step
    slices: Sequence[tuple[str, ...]]
    mistakes: Sequence[Mistake]


def _check(
    wanted: Inventory, still: _Still, deaf: Mapping[str, str], *, slice_vms: int
) -> _Checked:
    """Compare a file with the fleet. Takes seconds for a large one; not for the event loop."""
    together = beside.beside_hosts(
        wanted, scopes=still.scopes, hosts=still.hosts, shown=still.shown
    )
    step = reconciling.step(
        together,
        scopes=still.scopes,
        hosts=still.hosts,
        bound=still,
        new_id=lambda: "",  # nothing of this is kept
        now_ms=still.now_ms,
    )
    found = inventory.mistakes((*beside.clashes(wanted, together), *step.clashes))
    if deaf:
        ours = {vm.listen for scope in still.scopes.values() for vm in scope.vms}
        found.extend(inventory.not_heard(wanted, deaf, ours))
    cut = slicing.slices(step.touched, together, scopes=still.scopes, vms_max=slice_vms)
    return _Checked(step, cut, found)


@dataclass(slots=True)
class _Work:
    """A decided file and the slices of it that are left. `passed` is set after a first pass."""

    text: str
    wanted: slicing.ByScope
    left: deque[tuple[str, ...]]
    passed: asyncio.Future[tuple[str, ...]]
    told: set[str] = field(default_factory=set)


def _work(text: str, wanted: slicing.ByScope, slices: Iterable[tuple[str, ...]]) -> _Work:
    return _Work(text, wanted, deque(slices), asyncio.get_running_loop().create_future())


class _Clashed(InventoryConflict):
    """What began since the check forbids the file; its lines are not looked up yet."""

    def __init__(self, found: Sequence[Mistake]) -> None:
        super().__init__("The inventory was refused.", "Nothing of it was applied.")
        self.found = found


class Inventories:
    """Applies inventories, one after the other. Belongs to the event loop; `run` does the slices.

    Without `slice_vms` every file is one commit. `quietly` is entered while much comes to be in
    memory, `files` is told what was read. `needs_channels` and `cannot_listen`: see `inventory`.
    """

    def __init__(
        self,
        control: Control,
        *,
        needs_channels: bool = True,
        cannot_listen: Callable[[str], str | None] = lambda _: None,
        reads: Reads | None = None,
        slice_vms: int | None = None,
        quietly: Callable[[], AbstractContextManager[object]] = nullcontext,
        files: ReadFiles | None = None,
    ) -> None:
        self._control = control
        self._needs_channels = needs_channels
        self._cannot_listen = cannot_listen
        self._reads: Reads = reads or ReadsOnThread()
        self._slice_vms = slice_vms
        self._quietly = quietly
        self._files = files
        self._turn = asyncio.Lock()
        self._ring = asyncio.Event()
        self._work: _Work | None = None
        self._deciding = False
        self._not_understood: str | None = None

    async def apply_at_once(self, text: str, *, by: str) -> Applied:
        """Apply a file in one commit, whatever its size: before anybody is served."""
        wanted, deaf = await self._read(text)
        return await self._control.submit(inventory.whole(text, wanted, by=by, deaf=deaf))

    async def prepare(self) -> None:
        """Have the file that was decided before read, for whoever asks what it lists.

        A large one is read by `run`, while the service serves.
        """
        text = self._control.fleet.inventory
        if self._files is None or text is None:
            return
        if len(text) >= READ_LATER_CHARS_MIN:
            self._files.reading = True
        else:
            await self._know(self._files, text)

    async def _know(self, files: ReadFiles, text: str) -> None:
        try:
            files.keep(text, await self._reads.read(text, needs_channels=False))
        except BadInventory:
            log.warning("inventory_written_under_older_rules")  # what it meant is in the fleet
        finally:
            files.reading = False

    async def apply(
        self,
        text: str,
        *,
        by: str,
        guard: Guard[T],
        before: Command[T | None] = lambda _: None,
    ) -> tuple[T, tuple[str, ...]]:
        """Make the fleet what the file says, and say what that changed; others wait their turn.

        `guard` is put around the command that decides. What `before` finds is the answer, if the
        same was applied before. Answers when every slice was applied, with
        what has to wait, in words. Raises BadInventory or InventoryConflict, and then nothing of
        the file was applied.
        """
        async with self._turn:
            with self._quietly():
                known = await self._control.submit(before)
                if known is not None:
                    return known, ()
                wanted, deaf = await self._read(text)
                if self._slice_vms is None or self._is_small(wanted):
                    done = await self._control.submit(
                        guard(inventory.whole(text, wanted, by=by, deaf=deaf))
                    )
                    return done, ()
                return await self._apply_large(text, wanted, deaf, by=by, guard=guard)

    async def _read(self, text: str) -> tuple[Inventory, Mapping[str, str]]:
        wanted = await self._reads.read(text, needs_channels=self._needs_channels)
        if self._files is not None:
            self._files.keep(text, wanted)
        return wanted, await asyncio.to_thread(inventory.unheard, wanted, self._cannot_listen)

    def _is_small(self, wanted: Inventory) -> bool:
        together = len(wanted.vms) + len(self._control.fleet.scope_of_vm)
        return self._slice_vms is not None and together <= self._slice_vms

    async def _apply_large(
        self, text: str, wanted: Inventory, deaf: Mapping[str, str], *, by: str, guard: Guard[T]
    ) -> tuple[T, tuple[str, ...]]:
        fleet, vms_max = self._control.fleet, self._slice_vms or SLICE_VMS_MAX
        checked = await asyncio.to_thread(_check, wanted, _still(fleet), deaf, slice_vms=vms_max)
        if checked.mistakes:
            raise InventoryConflict(*await self._reads.words(text, checked.mistakes))
        if await self._is_known(text, wanted, checked):
            return await self._control.submit(guard(lambda _: Applied())), ()
        applied = checked.step.applied
        parts = await asyncio.to_thread(slicing.by_scope, wanted)
        kept = await asyncio.to_thread(packed.pack, text)
        if len(checked.slices) <= 1:
            names = checked.slices[0] if checked.slices else ()
            command = _all_at_once(text, kept, parts, names, applied, by=by)
            try:
                return await self._control.submit(guard(command)), ()
            except _Clashed as clashed:
                words = await self._reads.words(text, clashed.found)
                raise InventoryConflict(*words) from None
        self._deciding = True  # what was decided before is let be from here on
        try:
            done = await self._control.submit(guard(_decide(text, kept, parts, applied, by=by)))
            work = self._work = _work(text, parts, checked.slices)
        finally:
            self._deciding = False
            self._ring.set()
        log.info("inventory_decided", slices=len(checked.slices), vms=len(wanted.vms))
        return done, await asyncio.shield(work.passed)

    async def _is_known(self, text: str, wanted: Inventory, checked: _Checked) -> bool:
        """Whether the file says what the last one said, and nothing of that is left to do."""
        fleet, step = self._control.fleet, checked.step
        last = fleet.inventory
        if last is None or fleet.unfinished or step.touched:
            return False
        if last == text:
            return True
        try:
            return await self._reads.read(last, needs_channels=False) == wanted
        except BadInventory:
            return False  # written under older rules; what it meant then is in the fleet

    # Slices.

    async def run(self) -> None:
        """Go on with what is decided and not applied whole, until canceled."""
        try:
            last = self._control.fleet.inventory
            if self._files is not None and self._files.reading and last is not None:
                await self._know_safely(self._files, last)
            while True:
                self._ring.clear()
                if not self._control.fleet.unfinished:
                    self._work = None
                elif not self._deciding and self._control.fleet.inventory != self._not_understood:
                    await self._go_on_safely()
                await self._rest()
        finally:
            if self._work is not None and not self._work.passed.done():
                stopping = Unavailable(
                    "The service is stopping. The next start goes on with the inventory."
                )
                self._work.passed.set_exception(stopping)
                self._work.passed.exception()  # it was told, whether or not anybody waits

    async def _know_safely(self, files: ReadFiles, text: str) -> None:
        try:
            await self._know(files, text)
        except Unavailable as why:
            log.warning("inventory_not_read", why=str(why))  # whoever needs it reads it himself

    async def _rest(self) -> None:
        unfinished = bool(self._control.fleet.unfinished)
        try:
            async with asyncio.timeout(LOOK_AGAIN_S if unfinished else None):
                await self._ring.wait()
        except TimeoutError:
            return

    async def _go_on_safely(self) -> None:
        try:
            with self._quietly():
                await self.go_on()
        except Unavailable as why:
            log.warning("inventory_put_off", why=str(why))
            self._tell_failed(why)
        except BadInventory as why:
            self._not_understood = self._control.fleet.inventory
            log.error(  # noqa: TRY400 - the sentence says it all
                "inventory_not_understood", why=str(why), remedy="forewarn inventory apply FILE"
            )
        except Exception as error:
            log.exception("inventory_slice_failed")
            self._tell_failed(error)

    def _tell_failed(self, error: Exception) -> None:
        if self._work is not None and not self._work.passed.done():
            self._work.passed.set_exception(error)
            self._work.passed.exception()

    async def go_on(self) -> None:
        """Try every slice that is left once; then, if none is left, the inventory is applied."""
        work = self._work
        if work is None or work.text is not self._control.fleet.inventory:
            work = await self._found_unfinished()
            if self._deciding or work.text is not self._control.fleet.inventory:
                return  # another was decided meanwhile
            self._work = work
        waiting: list[tuple[tuple[str, ...], list[str]]] = []
        for _ in range(len(work.left)):
            names = work.left[0]
            clashes = await self._control.submit(_slice(work.text, work.wanted, names))
            work.left.popleft()
            if clashes:
                waiting.append((names, [clash.refused for clash in clashes]))
        words = [word for _, said in waiting for word in said]
        if waiting:
            work.left.extend(names for names, _ in waiting)
        else:
            clashes = await self._control.submit(_finish(work.text, work.wanted))
            words = [clash.refused for clash in clashes]
        self._passed(work, words)

    def _passed(self, work: _Work, words: Sequence[str]) -> None:
        for word in words:
            if word not in work.told:
                log.warning("inventory_waits", why=word)
        work.told = set(words)
        if not words and work is self._work:
            log.info("inventory_applied")
            self._work = None
        if not work.passed.done():
            work.passed.set_result(tuple(words))

    async def _found_unfinished(self) -> _Work:
        """What was decided and is not applied whole: by an earlier life of the service."""
        fleet = self._control.fleet
        text = fleet.inventory or ""
        known = self._files.known(text) if self._files is not None else None
        wanted = known or await self._reads.read(text, needs_channels=False)
        vms_max = self._slice_vms or SLICE_VMS_MAX
        checked = await asyncio.to_thread(_check, wanted, _still(fleet), {}, slice_vms=vms_max)
        log.info("inventory_gone_on_with", slices=len(checked.slices))
        parts = await asyncio.to_thread(slicing.by_scope, wanted)
        return _work(text, parts, checked.slices)


# Commands.


def _about(applied: Applied, *, by: str) -> str:
    """What is noted of a decided inventory: the fact that its end writes into the journal."""
    fact = inventory.applied_fact(applied, by=by, now_ms=0)
    return msgspec.json.encode({"by": by, "detail": fact.detail}).decode()


def _decide(
    text: str, kept: str, wanted: slicing.ByScope, applied: Applied, *, by: str
) -> Command[Applied]:
    """Make a file durable as what is wanted, with its hosts. From here on it is applied."""

    def command(tx: Transaction) -> Applied:
        _take_hosts(tx, wanted)
        tx.decide_inventory(text, kept, _about(applied, by=by))
        return applied

    return command


def _take_hosts(tx: Transaction, wanted: slicing.ByScope) -> None:
    entries = Inventory(hosts=tuple(wanted.hosts.values()))
    together = beside.beside_hosts(entries, scopes={}, hosts=tx.hosts_by_name, shown=())
    tx.apply(Decision(hosts=tuple(reconciling.next_hosts(together.hosts, tx.hosts_by_name))))


def _slice(text: str, wanted: slicing.ByScope, names: Sequence[str]) -> Command[tuple[Clash, ...]]:
    """Have these scopes as the file wants them, or what forbids that now."""

    def command(tx: Transaction) -> tuple[Clash, ...]:
        if tx.inventory is not text:
            return ()  # another was decided since
        return _take_scopes(tx, wanted, names)

    return command


def _take_scopes(
    tx: Transaction, wanted: slicing.ByScope, names: Sequence[str]
) -> tuple[Clash, ...]:
    around = slicing.closed(names, wanted, tx.scope, tx.scope_of_vm)
    part = wanted.part(around)
    scopes = {name: scope for name in sorted(around) if (scope := tx.scope(name)) is not None}
    hosts = {e.name: host for e in part.hosts if (host := tx.host(e.name)) is not None}
    together = beside.beside_hosts(part, scopes=scopes, hosts=hosts, shown=tx.digests)
    step = reconciling.step(
        together, scopes=scopes, hosts=hosts, bound=tx, new_id=tx.new_id, now_ms=tx.now_ms
    )
    clashes = (*beside.clashes(part, together), *step.clashes)
    if not clashes:
        inventory.take_over(tx, step)
    return clashes


def _finish(text: str, wanted: slicing.ByScope) -> Command[tuple[Clash, ...]]:
    """Every slice was applied: drop the hosts that go and say so, or what forbids that now."""

    def command(tx: Transaction) -> tuple[Clash, ...]:
        if tx.inventory is not text or not tx.unfinished:
            return ()
        clashes = _drop_hosts(tx, wanted)
        if not clashes:
            about: dict[str, Any] = msgspec.json.decode(tx.unfinished)
            tx.finish_inventory()
            tx.note(
                Fact(
                    kind=FactKind.INVENTORY_APPLIED,
                    at_ms=tx.now_ms,
                    by=about["by"],
                    detail=about["detail"],
                )
            )
        return clashes

    return command


def _drop_hosts(tx: Transaction, wanted: slicing.ByScope) -> tuple[Clash, ...]:
    gone = {
        name
        for name, host in tx.hosts_by_name.items()
        if name not in wanted.hosts and not host.joined
    }
    around = {scope.name: scope for name in sorted(gone) for scope in tx.scopes_on(name)}
    clashes = tuple(placing.still_needed(gone, around.values(), tx))
    if not clashes:
        for name in sorted(gone):
            tx.remove_host(name)
    return clashes


def _all_at_once(
    text: str,
    kept: str,
    wanted: slicing.ByScope,
    names: Sequence[str],
    applied: Applied,
    *,
    by: str,
) -> Command[Applied]:
    """A file that fits one slice, as one commit. Raises _Clashed."""

    def command(tx: Transaction) -> Applied:
        _take_hosts(tx, wanted)
        clashes = (*_take_scopes(tx, wanted, names), *_drop_hosts(tx, wanted))
        if clashes:
            raise _Clashed(inventory.mistakes(clashes))
        tx.applied_inventory(text, kept)
        tx.note(inventory.applied_fact(applied, by=by, now_ms=tx.now_ms))
        return applied

    return command
