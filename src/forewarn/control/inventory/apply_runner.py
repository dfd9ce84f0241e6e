"""Inventories that are applied while the service runs, of any size.

A file is read apart, compared on a thread and checked whole. What fits one slice is one commit. Of
a larger one the text is made durable first: from then on it is decided. Then it is applied slice by
slice (`core.inventory.slicing`), and what others ask goes between. The next start goes on with
what was cut off; what an event that began meanwhile forbids waits until that has ended. What breaks
is tried again, later each time. Neither holds anything else up: a slice that cannot be applied
whole is halved until only the scopes that go together are left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, TypeVar

from forewarn.control.commands import (
    ApplyInventory,
    ApplyInventoryAtOnce,
    Command,
    DecideInventory,
    FinishInventory,
    InventoryOrder,
    InventoryTried,
    NothingToApply,
    TakeInventorySlice,
)
from forewarn.control.control import Control
from forewarn.control.inventory import apply_at_once as inventory
from forewarn.control.inventory import apply_in_slices, work_left
from forewarn.control.inventory.file_reader import (
    InventoryClash,
    Mistake,
    ReadFiles,
    in_words,
    parse,
)
from forewarn.control.inventory.work_left import THE_END, InventoryWork
from forewarn.control.retries import Retries
from forewarn.control.writer import LoggedByCaller
from forewarn.core.errors import BadInventory, InventoryConflict, Unavailable
from forewarn.core.inventory import slicing
from forewarn.core.inventory.entries import Applied, Inventory
from forewarn.core.principal import INVENTORY_FILE, Principal
from forewarn.core.suggestions import MISTAKES_NAMED_MAX, first_of
from forewarn.doorbell import rung
from forewarn.logs import Log
from forewarn.ports import Change
from forewarn.wire import packed

T = TypeVar("T")
Guard = Callable[[InventoryOrder], Command[T]]

SLICE_VMS_MAX = 256  # some 10 ms of the writer, and as much of the event loop
LOOK_AGAIN_S = 2.0  # whether anything is due, or was decided without a ring
READ_ATTEMPTS_MAX = 5  # at a start; then the caller that needs the file reads it itself
READ_LATER_CHARS_MIN = 1_024 * 1_024  # of a file at a start: reading it would take seconds
SCOPES_NAMED_MAX = 5  # of a slice that broke, in what is said of it
STOPPING = "The service is stopping. The next start goes on with the inventory."
BROKEN_REMEDY = (
    "nothing else waits for it, and it is tried again; this is a fault of Forewarn: report it with"
    " this line. Until it is mended, forewarn inventory apply FILE with a file that leaves these"
    " scopes as they are takes its place"
)
NOT_UNDERSTOOD = (
    "It was accepted by an earlier version. forewarn inventory apply FILE with a file that this"
    " version reads takes its place."
)
_COMPARING = "comparing"  # a file that was decided before with the fleet

log = Log(__name__)


class Reads(Protocol):
    """Reads files in a place where no other caller waits for it."""

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


def _broken_words(names: Sequence[str], error: Exception) -> str:
    more = len(names) - SCOPES_NAMED_MAX
    listed = ", ".join(names[:SCOPES_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
    what = f"the part of the inventory with scope {listed}" if names else "the end of the inventory"
    return f"{what} broke, and is tried again: {type(error).__name__}: {error}"


class Inventories:
    """Applies inventories, one after the other. Belongs to the event loop; `run` does the slices.

    Without `slice_vms` every file is one commit. `quietly` is entered while much comes to be in
    memory. `files` is told what was read, which is what the writer decides by; unless it
    `keeps_read`, that is forgotten afterwards. `needs_channels` and `cannot_listen`: see
    `inventory`.
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
        keeps_read: bool = True,
    ) -> None:
        self._control = control
        self._needs_channels = needs_channels
        self._cannot_listen = cannot_listen
        self._reads: Reads = reads or ReadsOnThread()
        self._slice_vms = slice_vms
        self._quietly = quietly
        self._files = files or ReadFiles()
        self._keeps_read = keeps_read
        self._turn = asyncio.Lock()
        self._ring = asyncio.Event()
        self._work: InventoryWork | None = None
        # Slices of a file that waits must not come between the check of another and its decision.
        self._at_work = asyncio.Lock()
        self._not_understood: str | None = None
        self._comparing = Retries()
        self._waits: tuple[str, ...] = ()
        self._stopped = False
        self.failures = 0  # parts that broke, each time that they were tried
        control.fleet.on_publish(self._saw)

    def _saw(self, changes: Sequence[Change]) -> None:
        if self._work is not None:
            self._work.saw(changes)

    def waits(self) -> tuple[str, ...]:
        """What of the decided file had to wait, or broke, when it was last tried; in words."""
        return self._waits if self._control.fleet.unfinished else ()

    async def apply_at_once(self, text: str, *, by: Principal) -> Applied:
        """Apply a file in one commit, whatever its size: before the service serves."""
        _, deaf = await self._read(text)
        try:
            return await self._control.submit(ApplyInventory(by=by, text=text, deaf=deaf))
        finally:
            self._forget_read()

    async def prepare(self) -> None:
        """Read the file that was decided before, for callers that ask what it lists.

        A large one is read by `run`, while the service serves.
        """
        text = self._control.fleet.inventory
        if not self._keeps_read or text is None:
            return
        if len(text) >= READ_LATER_CHARS_MIN:
            self._files.reading = True
        else:
            await self._know(self._files, text)

    async def _know(self, files: ReadFiles, text: str) -> None:
        try:
            if files.known(text) is None:
                wanted = await self._reads.read(text, needs_channels=False)
                files.keep(text, wanted, counts=self._control.fleet.inventory)
        except BadInventory:
            log.warning("inventory_written_under_older_rules")  # what it meant is in the fleet

    async def apply(
        self,
        text: str,
        *,
        by: Principal,
        guard: Guard[T],
        before: Command[T | None] | None = None,
    ) -> tuple[T, tuple[str, ...]]:
        """Make the fleet what the file says, and say what that changed; others wait their turn.

        `guard` is put around the command that decides. What `before` finds is the answer, if the
        same was decided before. Answers when every slice was tried, also then, with what has to
        wait, in words. Raises BadInventory or InventoryConflict, and then nothing of the file was
        applied.
        """
        async with self._turn:
            with self._quietly():
                known = None if before is None else await self._control.submit(before)
                if known is not None:
                    return known, await self._left_of(text)
                wanted, deaf = await self._read(text)
                try:
                    if self._slice_vms is None or self._is_small(wanted):
                        order = ApplyInventory(by=by, text=text, deaf=deaf)
                        return await self._control.submit(guard(order)), ()
                    async with self._at_work:
                        done, work = await self._apply_large(text, wanted, deaf, by=by, guard=guard)
                finally:
                    del wanted  # what is left of it is let go piece by piece
                    self._forget_read()
                return done, () if work is None else await self._passing(work)

    async def _left_of(self, text: str) -> tuple[str, ...]:
        """What has to wait of a file that was decided before, once all that is left was tried."""
        async with self._at_work:
            fleet = self._control.fleet
            if not fleet.unfinished or fleet.inventory != text:
                return ()  # it was applied whole, or another took its place
            work = await self._present_work()
            self._comparing.mended(_COMPARING)
        return await self._passing(work)

    async def was_replaced(self, text: str) -> bool:
        """Whether the fleet is what another file says than this one, which was applied once."""
        async with self._turn:
            last = self._control.fleet.inventory
            if last is None or last == text:
                return False
            try:  # the same content in other words is not kept
                return await self._content(last) != await self._content(text)
            except BadInventory:
                return True  # one of them was written under older rules

    async def _content(self, text: str) -> Inventory:
        return self._files.known(text) or await self._reads.read(text, needs_channels=False)

    async def _passing(self, work: InventoryWork) -> tuple[str, ...]:
        if self._stopped:
            raise Unavailable(STOPPING)
        passed = work.next_pass()
        self._ring.set()
        return await asyncio.shield(passed)

    def _forget_read(self) -> None:
        """What a file says is needed no more, unless hosts are asked what it lists."""
        if not self._keeps_read:
            self._files.forget()

    async def _read(self, text: str) -> tuple[Inventory, dict[str, str]]:
        wanted = await self._reads.read(text, needs_channels=self._needs_channels)
        self._files.keep(text, wanted, counts=self._control.fleet.inventory)
        return wanted, await asyncio.to_thread(inventory.unheard, wanted, self._cannot_listen)

    def _is_small(self, wanted: Inventory) -> bool:
        together = len(wanted.vms) + len(self._control.fleet.scope_of_vm)
        return self._slice_vms is not None and together <= self._slice_vms

    async def _apply_large(
        self,
        text: str,
        wanted: Inventory,
        deaf: Mapping[str, str],
        *,
        by: Principal,
        guard: Guard[T],
    ) -> tuple[T, InventoryWork | None]:
        """Check a file, then apply it if it fits one commit, else decide it: what is left to do."""
        checked = await self._check(wanted, deaf)
        if checked.mistakes:
            raise InventoryConflict(*await self._reads.words(text, checked.mistakes))
        if await self._is_known(text, wanted, checked):
            return await self._control.submit(guard(NothingToApply(by=by))), None
        applied = checked.applied
        parts = await asyncio.to_thread(slicing.by_scope, wanted)
        self._files.keep_by_scope(text, parts, counts=self._control.fleet.inventory)
        kept = await asyncio.to_thread(packed.pack, text)
        if len(checked.slices) <= 1:
            names = slicing.names_of(checked.slices[0] if checked.slices else ())
            at_once = ApplyInventoryAtOnce(
                by=by, text=text, packed=kept, scopes=names, applied=applied
            )
            try:
                return await self._control.submit(guard(at_once)), None
            except InventoryClash as clash:
                words = await self._reads.words(text, clash.found)
                raise InventoryConflict(*words) from None
            finally:
                self._files.forget_by_scope(text)
        done = await self._control.submit(
            guard(DecideInventory(by=by, text=text, packed=kept, applied=applied))
        )
        await self._replaced()
        self._work = work_left.begin(text, parts, checked.slices)
        self._comparing.mended(_COMPARING)
        self._waits = ()
        log.info("inventory_decided", slices=len(checked.slices), vms=len(wanted.vms))
        return done, self._work

    async def _check(
        self, wanted: Inventory, deaf: Mapping[str, str]
    ) -> apply_in_slices.CheckResult:
        still = apply_in_slices.still(self._control.fleet)
        vms_max = self._slice_vms or SLICE_VMS_MAX
        return await asyncio.to_thread(
            apply_in_slices.check, wanted, still, deaf, slice_vms=vms_max
        )

    async def _is_known(
        self, text: str, wanted: Inventory, checked: apply_in_slices.CheckResult
    ) -> bool:
        """Whether the file says what the last one said, and nothing of that is left to do."""
        fleet = self._control.fleet
        last = fleet.inventory
        if last is None or fleet.unfinished or checked.touched:
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
        self._stopped = False
        try:
            if self._files.reading:
                await self._know_safely(self._files)
            while True:
                self._ring.clear()
                if self._control.fleet.unfinished or self._work is not None:
                    await self._go_on_safely()
                await rung(self._ring, LOOK_AGAIN_S)
        finally:
            self._stopped = True
            self._tell_failed(Unavailable(STOPPING))

    async def _know_safely(self, files: ReadFiles) -> None:
        """Know the file that counts. A child that died is tried again: else the writer reads."""
        try:
            for _ in range(READ_ATTEMPTS_MAX):
                try:
                    return await self._know(files, self._control.fleet.inventory or "")
                except Unavailable as why:
                    log.warning("inventory_not_read", why=str(why))
                    await asyncio.sleep(LOOK_AGAIN_S)
        finally:
            files.reading = False

    async def _go_on_safely(self) -> None:
        now_ms = self._control.clock.monotonic_ms()
        if not self._comparing.due(_COMPARING, now_ms) or self._nothing_due(now_ms):
            return
        try:
            with self._quietly():
                async with self._at_work:
                    await self.go_on()
        except Unavailable as why:
            log.warning("inventory_put_off", why=str(why))
            self._tell_failed(Unavailable(f"{why} The inventory is decided, and goes on later."))
        except BadInventory as why:
            self._not_understood = self._control.fleet.inventory
            self._waits = (f"all that is left of the inventory: {why} {NOT_UNDERSTOOD}",)
            log.error(  # noqa: TRY400 - the sentence says it all
                "inventory_not_understood", why=str(why), remedy="forewarn inventory apply FILE"
            )
        except Exception as error:
            words = f"the inventory cannot be applied further: {type(error).__name__}: {error}"
            self._waits = (words,)
            self.failures += 1
            if self._comparing.broke(_COMPARING, (words,), now_ms):
                log.exception("inventory_broke", remedy=BROKEN_REMEDY)
            self._tell_failed(error)
        else:
            self._comparing.mended(_COMPARING)

    def _nothing_due(self, now_ms: int) -> bool:
        """Whether all that is left was tried a short while ago, and no caller waits for a pass."""
        work, fleet = self._work, self._control.fleet
        if work is None or not work.passed.done() or work.any_due(now_ms):
            return False
        return bool(fleet.unfinished) and fleet.inventory is work.text

    def _tell_failed(self, error: Exception) -> None:
        if self._work is not None and not self._work.passed.done():
            self._work.passed.set_exception(error)
            self._work.passed.exception()  # it was told, whether or not a caller waits

    async def go_on(self) -> None:
        """Try every slice that is left once; then, if none is left, the inventory is applied.

        A slice that cannot be applied whole is halved: only what is in the way of itself waits.
        What broke, or had to wait, a short while ago is passed over.
        """
        fleet = self._control.fleet
        if not fleet.unfinished:
            return await self._replaced()
        if fleet.inventory == self._not_understood:
            return None
        work = await self._present_work()
        words: list[str] = []
        untried = len(work.left)
        while untried:
            untried -= 1
            part = work.first()
            found = await self._tried(
                work,
                part,
                TakeInventorySlice(
                    by=INVENTORY_FILE,
                    inventory=self._files.digest(work.text),
                    scopes=slicing.names_of(part),
                ),
            )
            if found is None:
                return await self._replaced()
            if found and len(part) > 1:
                untried += work.halve(part)
                continue
            if not found:
                work.applied()
            words.extend(found)
        end = FinishInventory(
            by=INVENTORY_FILE,
            inventory=self._files.digest(work.text),
            all_applied=not work.left,
        )
        found = await self._tried(work, THE_END, end)
        if found is None:
            return await self._replaced()
        words = [*found, *words]  # hosts first: they are few
        self._passed(work, words)
        if not words:
            await self._let_go(work)
        return None

    async def _tried(
        self,
        work: InventoryWork,
        part: slicing.Slice,
        command: Command[InventoryTried],
    ) -> Sequence[str] | None:
        """Try a part: why it has to wait, in words, or None if another file took the place."""
        now_ms = self._control.clock.monotonic_ms()
        if not work.due(part, now_ms):
            return work.said(part)
        try:
            tried = await self._control.submit(LoggedByCaller(command))
        except Unavailable:
            raise
        except Exception as error:
            words = _broken_words(slicing.names_of(part), error)
            if len(part) > 1:
                return [words]  # its halves are tried
            self.failures += 1
            if work.broken.broke(part, (words,), now_ms):
                work.broke_now += 1
                if work.broke_now <= MISTAKES_NAMED_MAX:
                    log.exception("inventory_slice_broke", why=words, remedy=BROKEN_REMEDY)
            return [words]
        work.broken.mended(part)
        if tried.replaced:
            return None
        found = list(tried.waits)
        if part == THE_END and (found or work.left):
            hosts = apply_in_slices.going(self._control.fleet.hosts_by_name, work.wanted)
            work.waits(part, found, hosts, now_ms)
        elif found and len(part) == 1:
            work.waits(part, found, (), now_ms)
        return found

    async def _replaced(self) -> None:
        """Another file took the place of the one whose slices were left, if any were."""
        work, self._work = self._work, None
        if work is None:
            return
        log.info("inventory_replaced", slices_left=len(work.left))
        if not work.passed.done():
            work.passed.set_result(())
        await self._let_go(work)

    async def _let_go(self, work: InventoryWork) -> None:
        """Nothing is left to do of a file."""
        self._files.forget_by_scope(work.text)
        await asyncio.to_thread(work.wanted.let_go)

    def _passed(self, work: InventoryWork, words: Sequence[str]) -> None:
        said = {word for part in (*work.left, THE_END) for word in work.broken.said(part)}
        news = [word for word in words if word not in work.told and word not in said]
        for word in first_of(news, ""):
            log.warning("inventory_waits", why=word)
        more = work.broke_now - MISTAKES_NAMED_MAX
        if more > 0:
            log.error("inventory_slice_broke", why=f"... and {more} more.", remedy=BROKEN_REMEDY)
        work.broke_now = 0
        work.told = set(words)
        self._waits = tuple(first_of(words, ""))
        if not words and work is self._work:
            log.info("inventory_applied")
            self._work = None
        if not work.passed.done():
            work.passed.set_result(self._waits)

    async def _present_work(self) -> InventoryWork:
        """What is left of the file that is decided and not applied whole."""
        text = self._control.fleet.inventory or ""
        if self._work is None or self._work.text is not text:
            await self._replaced()
            self._work = await self._found_unfinished(text)
        return self._work

    async def _found_unfinished(self, text: str) -> InventoryWork:
        """What an earlier life of the service has decided, or a caller that left."""
        wanted = await self._content(text)
        checked = await self._check(wanted, {})
        log.info("inventory_gone_on_with", slices=len(checked.slices))
        parts = await asyncio.to_thread(slicing.by_scope, wanted)
        self._files.keep_by_scope(text, parts)
        return work_left.begin(text, parts, checked.slices)
