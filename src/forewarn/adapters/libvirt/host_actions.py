"""Actions on a whole host: its VMs are frozen for a while, or brought through its reboot."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from msgspec.structs import replace

from forewarn.adapters.libvirt import domain_xml, next_steps
from forewarn.adapters.libvirt.blocking_calls import DomainView
from forewarn.adapters.libvirt.connection import LibvirtLost, LibvirtRefused
from forewarn.adapters.libvirt.domain_xml import DomainMark, read_mark
from forewarn.adapters.libvirt.next_steps import DomainStep
from forewarn.adapters.libvirt.thaw_guard import Guard
from forewarn.adapters.libvirt.vm_actions import START_S, ActionRun, Tools, ended, meant
from forewarn.adapters.libvirt.vm_moves import move_live
from forewarn.adapters.programs import run_program
from forewarn.core.errors import Refusal, Unavailable
from forewarn.core.inventory.host_report import Power, Traits, WhenHostGoesDown
from forewarn.core.model import SECOND_MS, ActionKind
from forewarn.logs import Log
from forewarn.ports import HypervisorFailed, Sight, SightKind, WorkOrder

log = Log(__name__)

MOVES_AT_ONCE = 4
FREEZE_MOVES_S = 180.0  # all of them, before the others are paused
REBOOT_MOVES_S = 480.0
COMMAND_S = 60.0
SAID_CHARS_MAX = 500
REBOOTED_WITHIN_MS = 10 * 60 * SECOND_MS
NAMES_SHOWN_MAX = 5
# When a libvirt that hung goes on, it does what it was asked meanwhile, though no caller waits any
# more, and may first show the state from before. So many times `settle_s` later it has done it.
SETTLES_AFTER_HANGING = 4
LATE_SAID_MS = 2 * SECOND_MS


class Runs(Protocol):
    """Runs the command that reboots the host: its exit code and what it said."""

    async def __call__(self, command: Sequence[str], seconds: float) -> tuple[int, str]: ...


async def run_command(command: Sequence[str], seconds: float) -> tuple[int, str]:
    """Run a command of the settings: its exit code, and the end of what it said."""
    try:
        ended = await run_program(command, seconds=seconds)
    except TimeoutError:
        return 124, f"it took more than {seconds:g} s"
    except OSError as error:
        return 127, str(error)
    return ended.code, f"{ended.output}{ended.errors}".strip()[-SAID_CHARS_MAX:]


def traits_of(view: DomainView) -> Traits:
    """What the owner said of the VM; what cannot be understood was not said."""
    try:
        return domain_xml.read_traits(view.told_xml)
    except domain_xml.BadTraits:
        return Traits()


def live_mark(view: DomainView, action_id: str) -> DomainMark | None:
    """The mark of an action on a running domain."""
    mark = read_mark(view.live_xml) if view.active else None
    return mark if mark is not None and mark.action_id == action_id else None


async def move_away(
    tools: Tools, domains: Sequence[DomainView], *, within_s: float
) -> frozenset[str]:
    """Move running VMs to where the control plane wants them. The names of those that are gone.

    Who has not gone in time stays: the event of the others would fail over it.
    """
    if not domains:
        return frozenset()
    names = [view.name for view in domains]
    try:
        targets: Mapping[str, str | None] = await tools.link.targets(names)
    except (Refusal, Unavailable, HypervisorFailed) as why:
        log.warning("no_targets", host=tools.host, why=str(why))
        return frozenset()
    for name in names:
        if not targets.get(name):
            why_not = "no other open host can take it, or each has another domain of its scope"
            log.warning("not_moved_away", vm=name, target="", why=why_not)
    turns = asyncio.Semaphore(MOVES_AT_ONCE)
    now_s = asyncio.get_running_loop().time
    until_s = now_s() + within_s

    async def move(name: str, target: str) -> str | None:
        async with turns:
            if now_s() >= until_s:
                log.warning("not_moved_away", vm=name, target=target, why="no time left")
                return None
            try:
                await move_live(tools, name, target, within_s=until_s - now_s())
            except HypervisorFailed as failed:
                log.warning("not_moved_away", vm=name, target=target, why=str(failed))
                return None
            return name

    gone = await asyncio.gather(
        *(move(name, target) for name, target in targets.items() if target and name in names)
    )
    return frozenset(name for name in gone if name is not None)


def some(names: Sequence[str]) -> str:
    """The first of these names, and how many more there are."""
    more = len(names) - NAMES_SHOWN_MAX
    return ", ".join(names[:NAMES_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")


class FreezeWork(ActionRun):
    """FREEZE_HOST: pause each running VM that was told for the announced time, or move it before.

    If an earlier work began the freeze, this one only thaws: no VM is paused twice.
    """

    def __init__(
        self, tools: Tools, action: WorkOrder, start_guard: Callable[[str, str], Guard]
    ) -> None:
        super().__init__(tools, action)
        self._start_guard = start_guard
        self._began_here = False
        self._paused: tuple[str, ...] | None = None  # None until the first of them is
        self._thaw_at_ms = 0
        self._may_pause_late = False
        self._notes: list[str] = []

    async def turn(self) -> Sight | None:
        if self._paused is None:
            await self._freeze_or_take_over()
        while self.tools.clock.monotonic_ms() < self._thaw_at_ms:
            left_s = (self._thaw_at_ms - self.tools.clock.monotonic_ms()) / SECOND_MS
            await self.tools.wait(min(0.1, left_s))
        if not await self._thawed():
            return None
        return Sight(SightKind.DONE, "; ".join(self._notes))

    async def _freeze_or_take_over(self) -> None:
        domains = await self.tools.domains()
        marks = {v.name: m for v in domains if (m := live_mark(v, self.action.action_id))}
        if not marks or self._began_here:
            self._began_here = True
            await self._freeze(
                self._told([view for view in domains if view.power is Power.RUNNING])
            )
            return
        self._paused = tuple(marks)
        self._may_pause_late = True  # what the earlier work waited for is not known
        same_boot = [mark for mark in marks.values() if mark.boot_id == self.tools.boot_id()]
        self._thaw_at_ms = max((mark.until_ms for mark in same_boot), default=0)
        self._notes.append("it was interrupted; no VM was paused again")

    def _told(self, running: Sequence[DomainView]) -> list[DomainView]:
        """Without those that came since it was announced: they had no notice."""
        told = [view for view in running if meant(view, self.action) is not None]
        strangers = [view.name for view in running if view not in told]
        if strangers:
            self._notes.append(f"{some(strangers)} had no notice and was not paused")
        return told

    async def _freeze(self, running: Sequence[DomainView]) -> None:
        movers = [view for view in running if traits_of(view).freeze_by_move]
        gone = await move_away(self.tools, movers, within_s=FREEZE_MOVES_S)
        chosen = [view for view in running if view.name not in gone]
        stayed = [view.name for view in movers if view.name not in gone]
        if stayed:
            self._notes.append(f"{some(stayed)} could not be moved away and was paused")
        if not chosen:
            self._paused = ()
            return
        loop, uri = asyncio.get_running_loop(), self.tools.connection.uri
        guard = await loop.run_in_executor(None, self._start_guard, uri, self.action.action_id)
        try:
            lasts_ms = max(0, self.action.duration_s) * SECOND_MS
            until_ms = self.tools.clock.monotonic_ms() + lasts_ms
            chosen = await self._mark(chosen, until_ms)
            self._thaw_at_ms = self.tools.clock.monotonic_ms() + lasts_ms
            guard.thaw_at(self._thaw_at_ms)
            self._paused = tuple(view.name for view in chosen)
            await asyncio.gather(*(self._pause(view.name) for view in chosen))
        finally:
            guard.dismiss()

    async def _mark(self, chosen: Sequence[DomainView], until_ms: int) -> list[DomainView]:
        """Mark the running domains, not what they are started from: who is started anew runs.

        Those that could be marked; the others (gone meanwhile, most likely) are left alone.
        """

        async def mark(view: DomainView) -> DomainView | None:
            begun = self.tools.new_mark(self.action, view)
            try:
                await self.tools.write_mark(
                    replace(view, persistent=False),
                    replace(begun, before=True, until_ms=until_ms),
                )
            except LibvirtRefused as refused:
                self._notes.append(f"{view.name} was not paused: {refused}")
                return None
            return view

        marked = await asyncio.gather(*(mark(view) for view in chosen))
        return [view for view in marked if view is not None]

    async def _pause(self, name: str) -> None:
        try:
            await self.tools.act(lambda s: s.suspend(name), f"pause {name}")
        except HypervisorFailed as failed:
            self._may_pause_late |= isinstance(failed, LibvirtLost)
            self._notes.append(f"{name} was not paused: {failed}")

    async def _thawed(self) -> bool:
        """Resume what we paused. True once all of it runs, and says so."""
        domains = {view.name: view for view in await self.tools.domains()}
        ours = {}
        for name in self._paused or ():
            view = domains.get(name)
            mark = live_mark(view, self.action.action_id) if view is not None else None
            if view is not None and mark is not None and not mark.ended:
                ours[name] = (view, mark)
        paused = [name for name, (view, _) in ours.items() if view.power is Power.PAUSED]
        await asyncio.gather(*(self._resume(name) for name in paused))
        late_ms = self.tools.clock.monotonic_ms() - self._thaw_at_ms
        if paused and self._thaw_at_ms and late_ms >= LATE_SAID_MS:
            late = f"{some(paused)} stood still for {late_ms // SECOND_MS} s longer than announced"
            self._notes.append(f"{late}: libvirt did not answer in time")
        if paused:
            return False  # looked at once more
        if self._may_pause_late:
            self._may_pause_late = False
            await asyncio.sleep(SETTLES_AFTER_HANGING * self.tools.settle_s)
            return False
        done = Sight(SightKind.DONE)
        await asyncio.gather(
            *(
                self.tools.write_mark(replace(view, persistent=False), ended(mark, done))
                for view, mark in ours.values()
            )
        )
        return True

    async def _resume(self, name: str) -> None:
        await self.tools.act(lambda s: s.resume(name), f"resume {name}")

    async def end(self, sight: Sight) -> Sight:
        return sight


class RebootHostWork(ActionRun):
    """REBOOT_HOST: its VMs go away or off, the host reboots, and exactly those come back."""

    def __init__(
        self, tools: Tools, action: WorkOrder, command: Sequence[str], runs: Runs = run_command
    ) -> None:
        super().__init__(tools, action)
        self._command = tuple(command)
        self._runs = runs
        self._commanded_ms: int | None = None
        self._failure = ""
        self._shutting: dict[str, tuple[ActionRun, int]] = {}  # and since when
        self._moved_away = False

    @property
    def _rebooted(self) -> bool:
        return self.action.boot_id not in (None, self.tools.boot_id())

    async def turn(self) -> Sight | None:
        if self._rebooted or self._failure:
            return await self._bring_back()
        if self._commanded_ms is not None:
            if self.tools.clock.monotonic_ms() - self._commanded_ms >= REBOOTED_WITHIN_MS:
                minutes = REBOOTED_WITHIN_MS // (60 * SECOND_MS)
                self._failure = f"the host did not reboot within {minutes} minutes"
            return None
        if await self._all_off():
            await self._reboot()
        return None

    async def _all_off(self) -> bool:
        """Mark what runs, move away what wants to be, shut the rest down. True once all is off."""
        active = [view for view in await self.tools.domains() if view.active]
        unmarked = [v for v in active if next_steps.mark_of(v, self.action.action_id) is None]
        for view in unmarked:
            await self.begin(view)
        if not self._moved_away:
            policy = WhenHostGoesDown.MOVE
            wanted = [v for v in active if traits_of(v).when_host_goes_down is policy]
            await move_away(self.tools, wanted, within_s=REBOOT_MOVES_S)
            self._moved_away = True
            return False
        if unmarked:
            return False
        await asyncio.gather(*(self._shut_down(view) for view in active))
        return not active

    async def _shut_down(self, view: DomainView) -> None:
        mark = next_steps.mark_of(view, self.action.action_id)
        here = next_steps.place_of(view, self.action.action_id)
        if mark is None or here is None:
            return
        now_ms = self.tools.clock.monotonic_ms()
        one = ActionRun(self.tools, replace(self.action, vm=view.name))
        one, since_ms = self._shutting.setdefault(view.name, (one, now_ms))
        # Counted from when it may be asked: the mark is older than the moves of others.
        patience = replace(one.patience(mark), elapsed_ms=now_ms - since_ms)
        next_ = next_steps.shutting_down(here, patience)
        if next_.step is not DomainStep.WAIT:
            await one.do(next_, view, mark)

    async def _reboot(self) -> None:
        code, said = await self._runs(self._command, COMMAND_S)
        if code != 0:
            self._failure = f"{' '.join(self._command)} failed with {code}: {said}"
            return
        self._commanded_ms = self.tools.clock.monotonic_ms()

    async def _bring_back(self) -> Sight | None:
        """Start what ran before. A sight once everything has been tried."""
        failed = []
        for view in await self.tools.domains():
            mark = next_steps.mark_of(view, self.action.action_id)
            if mark is None or mark.ended:
                continue
            try:
                await start_again(self.tools, view, mark, failure=self._failure)
            except LibvirtLost:
                raise
            except HypervisorFailed as why:
                failed.append(f"{view.name} could not be started again: {why}")
        problems = [self._failure] * bool(self._failure) + failed
        if problems:
            return Sight(SightKind.FAILED, some(problems))
        return Sight(SightKind.DONE)

    async def end(self, sight: Sight) -> Sight:
        return sight


async def start_again(
    tools: Tools, view: DomainView, mark: DomainMark, *, failure: str = ""
) -> None:
    """Start a VM that an action had shut down, paused if it was; then the mark is ended.

    One that runs already was started by others (autostart). `failure` is that of the action.
    """
    if not view.active:
        paused = mark.found is Power.PAUSED
        try:
            await tools.act(
                lambda s: s.create(view.name, paused=paused), f"start {view.name}", START_S
            )
        except LibvirtRefused as refused:
            again = await tools.view(view.name)
            if again is None or not again.active:
                await tools.write_mark(view, ended(mark, Sight(SightKind.FAILED, str(refused))))
                raise
    now = await tools.view(view.name)
    if now is not None:
        kind = SightKind.FAILED if failure else SightKind.DONE
        await tools.write_mark(now, ended(mark, Sight(kind, failure)))


def looked(action: WorkOrder, domains: Sequence[DomainView], *, rebooted: bool) -> Sight | None:
    """What domains say of an action on their host; None if a work must go on with it."""
    if action.kind is ActionKind.FREEZE_HOST:
        marks = [m for v in domains if (m := live_mark(v, action.action_id))]
    else:
        marks = [m for v in domains if (m := next_steps.mark_of(v, action.action_id))]
    if any(not mark.ended for mark in marks):
        return None
    failed = sorted({mark.detail for mark in marks if mark.ended == SightKind.FAILED.value})
    if failed:
        return Sight(SightKind.FAILED, some(failed))
    if marks and action.kind is ActionKind.REBOOT_HOST and not rebooted:
        return Sight(SightKind.FAILED, "it was interrupted before the host rebooted")
    return Sight(SightKind.DONE if marks or rebooted else SightKind.NOT_BEGUN)
