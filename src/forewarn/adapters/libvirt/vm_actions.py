"""Actions on one VM, carried out on libvirt step by step: restart, start, delete.

A work looks, decides (`next_steps`), does one step, and looks again until the action has ended.
Everything it must not forget is in the mark of the domain; a work that dies is continued by the
next one from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from forewarn.adapters.libvirt import domain_xml, next_steps
from forewarn.adapters.libvirt.blocking_calls import DomainView, LibvirtSession
from forewarn.adapters.libvirt.connection import (
    LibvirtConnection,
    LibvirtLost,
    LibvirtRefused,
    open_libvirt,
)
from forewarn.adapters.libvirt.domain_xml import DomainMark
from forewarn.adapters.libvirt.next_steps import DomainStep, Next, Patience
from forewarn.core.errors import Refusal, Unavailable
from forewarn.core.model import MINUTE_MS, ActionKind
from forewarn.logs import Log
from forewarn.ports import (
    SWITCHED_ON,
    Clock,
    HostLink,
    HypervisorFailed,
    Sight,
    SightKind,
    WorkOrder,
)

log = Log(__name__)

LOOK_EVERY_S = 0.5  # events of libvirt make it quicker
RING_TOGETHER_S = 0.05
LOST_PAUSE_S = 1.0
REFUSALS_MAX = 4  # by libvirt, of one work
START_S = 60.0
STARTS_MAX = 3
DEFINED = "defined"  # the step of a mark: the definition came from elsewhere
DESTROY_S = 30.0
# An action ends before its event is given up as lost (`deadlines.DEADLINE_MS`): nothing is done to
# a VM after the event that announced it.
GIVE_UP_AFTER_MS = {
    ActionKind.FREEZE_HOST: 13 * MINUTE_MS,
    ActionKind.REBOOT_HOST: 28 * MINUTE_MS,
    ActionKind.REBOOT_VM: 28 * MINUTE_MS,
    ActionKind.MOVE_VM: 55 * MINUTE_MS,
    ActionKind.DELETE_VM: 9 * MINUTE_MS,
    ActionKind.START_VM: 55 * MINUTE_MS,
    ActionKind.DEFINE_VM: 55 * MINUTE_MS,
    ActionKind.FIND_VM: 55 * MINUTE_MS,
}


LAST_WORDS_MS = 30_000  # what is left of that for the report


def lasts_ms(action: WorkOrder) -> int:
    """For how long a work on the action may go on: one that was claimed late has less time."""
    at_most_ms = GIVE_UP_AFTER_MS[action.kind]
    return at_most_ms if action.left_ms is None else min(at_most_ms, action.left_ms - LAST_WORDS_MS)


class Tools(Struct):
    """What works share. `there` opens the libvirt of another host, once for each."""

    connection: LibvirtConnection
    host: str
    clock: Clock
    boot_id: Callable[[], str]
    link: HostLink
    shutdown_ms: int
    migrate_uri: str
    migrate_s: float
    settle_s: float  # what was started must still run so long after
    open_other: Callable[[str], LibvirtConnection] = open_libvirt
    _others: dict[str, LibvirtConnection] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _rung: bool = False

    def there(self, target: str) -> LibvirtConnection:
        if target not in self._others:
            self._others[target] = self.open_other(self.uri_of(target))
        return self._others[target]

    def uri_of(self, target: str) -> str:
        """Where the libvirt of another host is, for us and for the libvirt here."""
        return self.migrate_uri.replace("{host}", target)

    def close(self) -> None:
        """Close what was opened to other hosts."""
        for other in self._others.values():
            other.close()
        self._others.clear()

    def ring(self) -> None:
        """Something has changed: every work that waits looks again, all at once after a moment."""
        if not self._rung:
            self._rung = True
            asyncio.get_running_loop().call_later(RING_TOGETHER_S, self._wake)

    def _wake(self) -> None:
        self._rung = False
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait(self, seconds: float = LOOK_EVERY_S) -> None:
        """Until something has changed, at most so long."""
        changed = self._changed
        try:
            async with asyncio.timeout(seconds):
                await changed.wait()
        except TimeoutError:
            return

    async def view(self, vm: str) -> DomainView | None:
        return await self.connection.call(lambda s: s.view(vm), what=f"look at {vm}")

    async def domains(self) -> Sequence[DomainView]:
        return await self.connection.call(lambda s: s.domains(), what="list the domains")

    async def act(
        self, work: Callable[[LibvirtSession], None], what: str, seconds: float = 15.0
    ) -> None:
        """Do one thing to a domain here."""
        await self.connection.call(work, what=what, seconds=seconds)

    def new_mark(self, action: WorkOrder, view: DomainView) -> DomainMark:
        """The mark of an action that begins now."""
        return DomainMark(
            action_id=action.action_id,
            kind=action.kind,
            found=view.power,
            since_ms=self.clock.monotonic_ms(),
            host=self.host,
            boot_id=self.boot_id(),
            target_host=action.target_host or "",
        )

    async def write_mark(
        self, view: DomainView, mark: DomainMark, *, seconds: float = 15.0
    ) -> None:
        """Mark a domain: its configuration first, then, as running since before, itself.

        The other order would make a domain that was restarted between the two look untouched.
        """

        def write(session: LibvirtSession) -> None:
            if view.persistent:
                session.set_mark(view.name, replace(mark, before=False), live=False, config=True)
            if view.active:
                session.set_mark(view.name, mark, live=True, config=False)

        await self.act(write, f"mark {view.name}", seconds)

    def elapsed_ms(self, mark: DomainMark, *, work_began_ms: int) -> int:
        """How long ago the action began; since the work began if the host has booted between."""
        since_ms = mark.since_ms if mark.boot_id == self.boot_id() else work_began_ms
        return max(0, self.clock.monotonic_ms() - since_ms)


class ActionRun:
    """One action under way. `run` ends with what came of it, and never raises HypervisorFailed.

    `idle` is whether the last turn left nothing new to look at before something happens.
    """

    def __init__(self, tools: Tools, action: WorkOrder) -> None:
        self.tools = tools
        self.action = action
        self.vm = action.vm or ""
        self.presses = 0
        self.began_ms = tools.clock.monotonic_ms()
        self._asked_ms: int | None = None  # when this work pressed the button first
        self.idle = True
        self._defined = False
        self._starts = 0
        self._refusals = 0
        self._said_lost = False

    async def run(self) -> Sight:
        clock = self.tools.clock
        until_ms = self.began_ms + lasts_ms(self.action)
        refusal = ""
        while clock.monotonic_ms() < until_ms:
            try:
                sight = await self.turn()
            except (LibvirtLost, Unavailable) as lost:
                self._say_lost(lost)
                await asyncio.sleep(LOST_PAUSE_S)
                continue
            except HypervisorFailed as refused:
                refusal = str(refused)
                self.idle = True
                self._refusals += 1
                if self._refusals >= REFUSALS_MAX:
                    return await self.end(Sight(SightKind.FAILED, refusal))
                sight = None
            if sight is not None:
                return await self.end(sight)
            if self.idle:
                await self.tools.wait()
        return await self.end(Sight(SightKind.FAILED, refusal or "it took too long"))

    def _say_lost(self, lost: Exception) -> None:
        if not self._said_lost:
            log.warning("work_waits", action=self.action.action_id, why=str(lost))
        self._said_lost = True

    async def turn(self) -> Sight | None:
        """Look, and do one thing. The sight once the action has ended."""
        view = meant(await self.tools.view(self.vm), self.action)
        mark = next_steps.mark_of(view, self.action.action_id)
        if mark is None and self.action.only_off and view is not None and view.active:
            return Sight(SightKind.SPARED, SWITCHED_ON)
        if mark is None:
            mark = await self.begin(view)
        return await self.do(self.decide(view, mark), view, mark)

    async def begin(self, view: DomainView | None) -> DomainMark:
        """Write down, on the domain, that this action is under way."""
        if view is None:
            return DomainMark(action_id=self.action.action_id, kind=self.action.kind)
        if not view.persistent and self.action.kind is not ActionKind.DELETE_VM:
            # A domain that only exists while it runs could not be started again.
            await self._keep(view)
            view = replace(view, persistent=True)
        mark = self.tools.new_mark(self.action, view)
        left = left_unsure(view)
        if left is not None:
            mark = replace(mark, found=left.found)
        if self._defined:
            mark = replace(mark, step=DEFINED)
        await self.tools.write_mark(view, replace(mark, before=view.active))
        return mark

    async def _keep(self, view: DomainView) -> None:
        """Give a domain a configuration, with what was said of it while it ran."""

        def define(session: LibvirtSession) -> None:
            session.define(view.config_xml)
            try:
                element = domain_xml.traits_element(domain_xml.read_traits(view.live_xml))
            except domain_xml.BadTraits:
                return  # it has nothing that can be used
            session.set_traits(view.name, element, live=False, config=True)

        await self.tools.act(define, f"define {view.name}")

    def decide(self, view: DomainView | None, mark: DomainMark) -> Next:
        here = next_steps.place_of(view, self.action.action_id)
        patience = self.patience(mark)
        if self.action.kind is ActionKind.DELETE_VM:
            return next_steps.deleting(here, patience)
        if self.action.kind is ActionKind.DEFINE_VM:
            return next_steps.defining(here)
        if self.action.kind is ActionKind.START_VM:
            return next_steps.starting(here, mark.found)
        return next_steps.rebooting(here, mark, patience)

    def patience(self, mark: DomainMark) -> Patience:
        """How much time the guest has had, also from an earlier work on the same action.

        This work cannot know whether an earlier one pressed the button. So the guest has half of
        its time from this work's first press: no plug is pulled without a press before.
        """
        limit_ms = min(self.tools.shutdown_ms, GIVE_UP_AFTER_MS[self.action.kind] // 2)
        now_ms = self.tools.clock.monotonic_ms()
        asked_for_ms = 0 if self._asked_ms is None else now_ms - self._asked_ms
        elapsed_ms = self.tools.elapsed_ms(mark, work_began_ms=self.began_ms)
        return Patience(
            elapsed_ms=min(elapsed_ms, limit_ms // 2 + asked_for_ms),
            limit_ms=limit_ms,
            presses=self.presses,
        )

    async def do(self, next_: Next, view: DomainView | None, mark: DomainMark) -> Sight | None:
        """The step on libvirt. Only the steps that end it have a sight."""
        vm, act = self.vm, self.tools.act
        self.idle = next_.step in (
            DomainStep.WAIT,
            DomainStep.PRESS,
        )  # else there is something new to see
        if next_.step in (DomainStep.DONE, DomainStep.FAILED, DomainStep.UNSURE, DomainStep.SPARED):
            return Sight(SightKind(next_.step.value), next_.detail)
        if next_.step is DomainStep.PRESS and view is not None:
            await self.press(view)
        elif next_.step is DomainStep.DESTROY and view is not None:
            await self.note(view, mark, next_.detail)
            await act(lambda s: s.destroy(vm), f"destroy {vm}", DESTROY_S)
        elif next_.step is DomainStep.START:
            await self._start()
        elif next_.step is DomainStep.RESUME:
            await act(lambda s: s.resume(vm), f"resume {vm}")
        elif next_.step is DomainStep.UNDEFINE:
            await act(lambda s: s.undefine(vm), f"undefine {vm}")
        elif next_.step is DomainStep.DEFINE:
            await self._define()
        return None

    async def _start(self) -> None:
        """Start it, and let it settle: a start right after a shutdown has been seen to be lost."""
        vm = self.vm
        if self._starts >= STARTS_MAX:
            raise HypervisorFailed(f"{vm} went off right after it was started, {STARTS_MAX} times")
        await self.tools.act(lambda s: s.create(vm), f"start {vm}", START_S)
        self._starts += 1
        await asyncio.sleep(self.tools.settle_s)

    async def press(self, view: DomainView) -> None:
        """Press the power button. A guest that is going off already is no mistake."""
        vm = self.vm
        self.presses += 1
        if self._asked_ms is None:
            self._asked_ms = self.tools.clock.monotonic_ms()
        try:
            if not domain_xml.powers_off(view.live_xml):
                await self.tools.act(lambda s: s.go_off_when_shut_down(vm), f"prepare {vm}")
        except LibvirtRefused as refused:
            log.info("on_poweroff_kept", vm=vm, why=str(refused))
        try:
            await self.tools.act(lambda s: s.press(vm), f"press the power button of {vm}")
        except LibvirtRefused as refused:
            log.info("button_refused", vm=vm, why=str(refused))

    async def note(self, view: DomainView, mark: DomainMark, detail: str) -> None:
        """Keep words for the report on the domain: a later daemon may be the one that reports."""
        if detail and detail != mark.detail:
            await self.tools.write_mark(view, replace(mark, before=view.active, detail=detail))

    async def _define(self) -> None:
        try:
            xml = await self.tools.link.definition(self.vm)
        except Unavailable:
            raise
        except Refusal as refused:
            raise HypervisorFailed(str(refused)) from None
        if xml is None:
            raise HypervisorFailed(
                f"No host has seen a definition of {self.vm}: define it here (`virsh define`)."
            )
        await self.tools.act(lambda s: s.define(xml), f"define {self.vm}")
        self._defined = True

    async def end(self, sight: Sight) -> Sight:
        """Write the end on the domain, so that a later look sees the same."""
        try:
            view = await self.tools.view(self.vm)
            mark = next_steps.mark_of(view, self.action.action_id)
            if view is None or mark is None:
                return sight
            if sight.kind is SightKind.FAILED and mark.step == DEFINED and not view.active:
                # It is only here because it was to start here, and it may be back elsewhere.
                await self.tools.act(lambda s: s.undefine(view.name), f"undefine {view.name}")
            else:
                await self.tools.write_mark(view, ended(mark, sight))
        except HypervisorFailed as failed:
            log.warning("end_not_marked", action=self.action.action_id, why=str(failed))
        return sight


def meant(view: DomainView | None, action: WorkOrder) -> DomainView | None:
    """The domain, if it is one that the action is about and not another of its name."""
    return view if view is not None and action.is_about(view.name, view.uuid) else None


def ended(mark: DomainMark, sight: Sight) -> DomainMark:
    """The mark of an action that has ended."""
    return replace(mark, before=False, ended=sight.kind.value, detail=sight.detail)


def sight_of(mark: DomainMark) -> Sight | None:
    """How a marked action ended; None while it has not."""
    ends = (SightKind.DONE, SightKind.FAILED, SightKind.UNSURE, SightKind.SPARED)
    return Sight(SightKind(mark.ended), mark.detail) if mark.ended in ends else None


def left_unsure(view: DomainView | None) -> DomainMark | None:
    """The mark of a move of this domain that ended here without knowing how it went."""
    mark = domain_xml.read_mark(view.config_xml or view.live_xml) if view is not None else None
    return mark if mark is not None and mark.ended == SightKind.UNSURE.value else None
