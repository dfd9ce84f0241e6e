"""Bringing back what an interrupted action left down, when no daemon claims it any more.

After a daemon was killed in the middle, the next one gets its claim back at once, or never: then
its event has ended. Either way a VM that we paused or shut down for a while must not stay so. What
is mended is only ever what makes a VM run again as announced; nothing is impacted here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from msgspec.structs import replace

from forewarn.adapters.libvirt import next_steps
from forewarn.adapters.libvirt.blocking_calls import DomainView
from forewarn.adapters.libvirt.connection import LibvirtLost
from forewarn.adapters.libvirt.domain_xml import DomainMark, read_mark
from forewarn.adapters.libvirt.host_actions import start_again
from forewarn.adapters.libvirt.next_steps import MoveStage
from forewarn.adapters.libvirt.vm_actions import Tools, ended
from forewarn.core.inventory.host_report import Power
from forewarn.core.model import SECOND_MS, ActionKind
from forewarn.logs import Log
from forewarn.ports import HypervisorFailed, Sight, SightKind, WorkOrder

log = Log(__name__)

MEND_EVERY_S = 5.0
MEND_AT_MOST_EVERY_S = 1.0  # however often something changes
# A lapsed claim comes back within a lease of 30 s; who claims it goes on with the action itself.
UNCLAIMED_FOR_MS = 60 * SECOND_MS
INTERRUPTED = "it was interrupted, and no daemon claimed it again"


class Mending:
    """Looks at every mark that no work is on. `work_on` starts a work, which ends the action."""

    def __init__(self, tools: Tools, work_on: Callable[[WorkOrder], None]) -> None:
        self._tools = tools
        self._work_on = work_on
        self._unclaimed_since_ms: dict[tuple[str, str], int] = {}

    async def mend(self, worked_on: Collection[str]) -> None:
        """One round. `worked_on` are the ids of actions that have a work."""
        domains = await self._tools.domains()
        seen = set()
        for view in domains:
            mark = open_mark(view)
            if mark is None or mark.action_id in worked_on:
                continue
            seen.add((view.name, mark.action_id))
            try:
                await self._mend_one(view, mark)
            except LibvirtLost:
                raise
            except HypervisorFailed as failed:
                log.warning("not_mended", vm=view.name, action=mark.action_id, why=str(failed))
        self._unclaimed_since_ms = {
            key: since for key, since in self._unclaimed_since_ms.items() if key in seen
        }

    async def _mend_one(self, view: DomainView, mark: DomainMark) -> None:
        if mark.host != self._tools.host:
            await self._arrived(view, mark)
        elif mark.kind is ActionKind.FREEZE_HOST:
            await self._thaw(view, mark)
        elif mark.kind is ActionKind.REBOOT_VM:
            await self._restart(view, mark)
        elif mark.kind is ActionKind.REBOOT_HOST:
            if mark.boot_id != self._tools.boot_id():
                await start_again(self._tools, view, mark)
            elif self._unclaimed(view, mark):
                await start_again(self._tools, view, mark, failure=INTERRUPTED)
        elif mark.kind is ActionKind.MOVE_VM:
            await self._end_move(view, mark)

    async def _arrived(self, view: DomainView, mark: DomainMark) -> None:
        """It came here with what its old host was doing to it; running here, that has ended."""
        if view.active and self._unclaimed(view, mark):
            done = Sight(SightKind.DONE, mark.detail)
            await self._tools.write_mark(view, ended(mark, done))

    async def _thaw(self, view: DomainView, mark: DomainMark) -> None:
        tools = self._tools
        same_boot = mark.boot_id == tools.boot_id()
        if same_boot and tools.clock.monotonic_ms() < mark.until_ms:
            return
        if view.power is Power.PAUSED:
            log.warning("thawed", vm=view.name, action=mark.action_id)
            await tools.act(lambda s: s.resume(view.name), f"resume {view.name}")
        await tools.write_mark(
            replace(view, persistent=False), ended(mark, Sight(SightKind.DONE, INTERRUPTED))
        )

    async def _restart(self, view: DomainView, mark: DomainMark) -> None:
        here = next_steps.place_of(view, mark.action_id)
        if here is None or (not here.active and mark.found is Power.OFF):
            return
        if not here.active or not here.before:
            log.warning("restarted", vm=view.name, action=mark.action_id)
            await start_again(self._tools, view, replace(mark, found=Power.RUNNING))

    async def _end_move(self, view: DomainView, mark: DomainMark) -> None:
        tools = self._tools
        if not self._unclaimed(view, mark):
            return
        action = WorkOrder(
            action_id=mark.action_id,
            kind=mark.kind,
            host=tools.host,
            vm=view.name,
            target_host=mark.target_host,
        )
        if mark.step != MoveStage.THERE.value:
            # It was not about to run there, so it runs here or nowhere.
            back = replace(mark, step=MoveStage.BACK.value, detail=INTERRUPTED)
            await tools.write_mark(view, replace(back, before=view.active))
        log.warning("move_taken_back", vm=view.name, action=mark.action_id)
        self._work_on(action)

    def _unclaimed(self, view: DomainView, mark: DomainMark) -> bool:
        """True once no daemon has worked on it for so long that none will."""
        now_ms = self._tools.clock.monotonic_ms()
        since_ms = self._unclaimed_since_ms.setdefault((view.name, mark.action_id), now_ms)
        return now_ms - since_ms >= UNCLAIMED_FOR_MS


def open_mark(view: DomainView) -> DomainMark | None:
    """The mark of an action on this domain that has not ended."""
    for xml in (view.live_xml, view.config_xml):
        mark = read_mark(xml) if xml else None
        if mark is not None:
            return None if mark.ended else mark
    return None
