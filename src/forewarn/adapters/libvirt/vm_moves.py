"""Moving a VM to another host: while it runs if that can be, else shut down here, started there."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from msgspec.structs import replace

from forewarn.adapters.libvirt import next_steps
from forewarn.adapters.libvirt.blocking_calls import DomainView, LibvirtSession
from forewarn.adapters.libvirt.connection import LibvirtConnection, LibvirtLost, LibvirtRefused, Why
from forewarn.adapters.libvirt.domain_xml import DomainMark
from forewarn.adapters.libvirt.next_steps import DomainStep, MoveInputs, MoveStage, Next
from forewarn.adapters.libvirt.vm_actions import START_S, ActionRun, Tools, ended, meant
from forewarn.core.inventory.host_report import Power
from forewarn.core.model import SECOND_MS
from forewarn.ports import SWITCHED_ON, HypervisorFailed, Sight, SightKind, WorkOrder

THERE_S = 10.0
ABORT_S = 60.0
OVERDUE_MS = 120 * SECOND_MS  # without any progress, at a place where only others can help
LIVE_ATTEMPTS_MAX = 2  # the second only if libvirt itself was lost during the first


class LiveRefused(HypervisorFailed):
    """A VM was not moved; it runs where it ran. `never` if it cannot be moved while it runs."""

    def __init__(self, words: str, *, never: bool) -> None:
        super().__init__(words)
        self.never = never


async def move_live(tools: Tools, vm: str, target: str, *, within_s: float) -> None:
    """Move a running VM. LiveRefused or LibvirtLost if that did not succeed.

    A migration that takes longer is aborted: the VM goes on here.
    """
    uri, connection = tools.uri_of(target), tools.connection
    autostart = await connection.call(lambda s: s.autostart(vm), what=f"look at {vm}")
    migration = asyncio.ensure_future(
        connection.call(
            lambda s: s.migrate(vm, uri),
            what=f"move {vm} to {target}",
            seconds=within_s + ABORT_S,
        )
    )
    late = ""
    try:
        await asyncio.wait([migration], timeout=within_s)
        if not migration.done():
            late = f"it took more than {within_s:g} s and was aborted; "
            with suppress(HypervisorFailed):  # it may have ended in this moment
                await connection.call(lambda s: s.abort(vm), what=f"abort the move of {vm}")
        await migration
    except LibvirtRefused as refused:
        # Not running is seen by the next look; an invalid operation on a running one is for ever.
        never = not late and refused.why in (Why.CANNOT_LIVE, Why.NOT_NOW)
        raise LiveRefused(f"{late}{refused}", never=never) from None
    except LibvirtLost as lost:
        if late:
            raise LiveRefused(f"{late}{lost}", never=False) from None
        raise
    finally:
        migration.cancel()
    if autostart:  # libvirt does not take it along
        with suppress(HypervisorFailed):
            await tools.there(target).call(
                lambda s: s.set_autostart(vm), what=f"let {vm} start with {target}"
            )


class MoveWork(ActionRun):
    """MOVE_VM, on the host where the VM is."""

    def __init__(self, tools: Tools, action: WorkOrder) -> None:
        super().__init__(tools, action)
        self.target = action.target_host or ""
        self._cannot_live = ""
        self._failed_live = ""
        self._live_attempts = 0
        self._progress_ms = tools.clock.monotonic_ms()

    @property
    def _other(self) -> LibvirtConnection:
        return self.tools.there(self.target)

    async def turn(self) -> Sight | None:
        view = meant(await self.tools.view(self.vm), self.action)
        there, answers = await self._look_there()
        action_id = self.action.action_id
        mark = next_steps.mark_of(view, action_id) or next_steps.mark_of(there, action_id)
        if view is None and mark is None:
            there = None  # whatever has this name there, it is not known to be ours
            mark = DomainMark(action_id=action_id, kind=self.action.kind, target_host=self.target)
        refuse_namesake(view, there, self.target)
        if mark is None and self.action.only_off and view is not None and view.active:
            return Sight(SightKind.SPARED, SWITCHED_ON)
        if mark is None:
            mark = await self.begin(view)
        move = MoveInputs(
            here=next_steps.place_of(view, action_id),
            there=next_steps.place_of(there, action_id),
            there_answers=answers,
            mark=mark,
            migrating=view is not None and view.active and await self._migrating(),
            cannot_live=self._cannot_live,
            failed_live=self._failed_live,
            overdue=self.tools.clock.monotonic_ms() - self._progress_ms >= OVERDUE_MS,
            patience=self.patience(mark),
            only_off=self.action.only_off,
        )
        next_ = next_steps.moving(move)
        try:
            return await self.do(next_, view, mark)
        finally:
            if next_.step is not DomainStep.WAIT:
                self._progress_ms = self.tools.clock.monotonic_ms()

    async def _look_there(self) -> tuple[DomainView | None, bool]:
        vm = self.vm
        try:
            view = await self._other.call(
                lambda s: s.view(vm), what=f"look at {vm} on {self.target}", seconds=THERE_S
            )
        except HypervisorFailed:
            return None, False
        return view, True

    async def _migrating(self) -> bool:
        vm = self.vm
        return await self.tools.connection.call(
            lambda s: s.migrating(vm), what=f"look at the move of {vm}"
        )

    async def do(self, next_: Next, view: DomainView | None, mark: DomainMark) -> Sight | None:
        self.idle = False
        if next_.step is DomainStep.MOVE_LIVE:
            await self._move_live()
        elif next_.step is DomainStep.GO_COLD and view is not None:
            found = mark.found if view.active else Power.OFF
            await self._stage(view, replace(mark, found=found), MoveStage.COLD, next_.detail)
        elif next_.step is DomainStep.GO_BACK and view is not None:
            await self._stage(view, mark, MoveStage.BACK, next_.detail)
        elif next_.step is DomainStep.DEFINE_THERE and view is not None:
            await self._stage(view, mark, MoveStage.THERE, mark.detail)
            await self._define_there()
        elif next_.step is DomainStep.START_THERE:
            await self._start_there(view, mark)
        elif next_.step is DomainStep.UNDEFINE:
            vm = self.vm
            await self.tools.act(lambda s: s.undefine(vm, moved=True), f"undefine {vm}")
        elif next_.step is DomainStep.UNDEFINE_THERE:
            vm = self.vm
            await self._other.call(
                lambda s: s.undefine(vm, moved=True), what=f"undefine {vm} there"
            )
        else:
            return await super().do(next_, view, mark)
        return None

    async def _stage(
        self, view: DomainView, mark: DomainMark, stage: MoveStage, detail: str
    ) -> None:
        """Write down how far it is, before the step that this makes possible.

        The button counts from the moment it may be pressed, not from the first attempt.
        """
        changed = replace(mark, step=stage.value, detail=detail, before=view.active)
        if stage is MoveStage.COLD:
            changed = replace(changed, since_ms=self.tools.clock.monotonic_ms())
        await self.tools.write_mark(view, changed)

    async def _move_live(self) -> None:
        self._live_attempts += 1
        try:
            await move_live(self.tools, self.vm, self.target, within_s=self.tools.migrate_s)
        except LiveRefused as refused:
            if refused.never:
                self._cannot_live = str(refused)
            else:
                self._failed_live = str(refused)
        except LibvirtLost as lost:
            if self._live_attempts >= LIVE_ATTEMPTS_MAX:
                self._failed_live = str(lost)
            raise

    async def _define_there(self) -> None:
        """Define it there with its mark: the daemon that finds it knows what it is."""
        vm = self.vm
        xml, autostart = await self.tools.connection.call(
            lambda s: (s.definition(vm), s.autostart(vm)), what=f"read the definition of {vm}"
        )

        def define(session: LibvirtSession) -> None:
            session.define(xml)
            if autostart:
                session.set_autostart(vm)

        try:
            await self._other.call(define, what=f"define {vm} on {self.target}")
        except LibvirtRefused as refused:
            await self._back(str(refused))

    async def _start_there(self, view: DomainView | None, mark: DomainMark) -> None:
        vm = self.vm
        paused = mark.found is Power.PAUSED
        try:
            await self._other.call(
                lambda s: s.create(vm, paused=paused),
                what=f"start {vm} on {self.target}",
                seconds=START_S,
            )
        except LibvirtRefused as refused:
            if view is None:
                raise
            await self._back(str(refused))

    async def _back(self, why: str) -> None:
        view = await self.tools.view(self.vm)
        mark = next_steps.mark_of(view, self.action.action_id)
        if view is not None and mark is not None:
            await self._stage(view, mark, MoveStage.BACK, f"{why}; it was started here again")

    async def end(self, sight: Sight) -> Sight:
        """Also where it has gone to: there it would be taken for a move that still goes on."""
        vm, action_id = self.vm, self.action.action_id

        def write(session: LibvirtSession) -> None:
            view = session.view(vm)
            mark = next_steps.mark_of(view, action_id)
            if view is not None and mark is not None:
                done = ended(mark, sight)
                session.set_mark(vm, done, live=view.active, config=view.persistent)

        with suppress(HypervisorFailed):  # else the host there does it, when it finds it running
            await self._other.call(write, what=f"mark {vm} on {self.target}", seconds=THERE_S)
        return await super().end(sight)


def refuse_namesake(here: DomainView | None, there: DomainView | None, target: str) -> None:
    """Refuse a move to where another domain has the name."""
    if here is not None and there is not None and here.uuid != there.uuid:
        raise HypervisorFailed(
            f"There is another domain {there.name} on {target} (uuid {there.uuid}). "
            f"Rename one of them: `virsh domrename {there.name} NEW-NAME`."
        )
