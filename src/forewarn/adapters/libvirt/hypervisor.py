"""What really happens to VMs and to the host, on libvirt (ports.Hypervisor).

`begin` and `look` start works (`vm_actions` and its neighbours) and say how far they are. What a
work must not forget is a mark on the domain, so a look after the death of the daemon finds what
was begun and goes on with it. docs/host/reference.md says what is done to domains, and how.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from forewarn.adapters.libvirt import host_actions, next_steps
from forewarn.adapters.libvirt.blocking_calls import DomainView
from forewarn.adapters.libvirt.connection import LibvirtConnection, LibvirtLost, open_libvirt
from forewarn.adapters.libvirt.host_actions import FreezeWork, RebootHostWork
from forewarn.adapters.libvirt.interrupted_actions import (
    MEND_AT_MOST_EVERY_S,
    MEND_EVERY_S,
    Mending,
    open_mark,
)
from forewarn.adapters.libvirt.thaw_guard import Guard, start_guard
from forewarn.adapters.libvirt.vm_actions import (
    GIVE_UP_AFTER_MS,
    ActionRun,
    Tools,
    lasts_ms,
    left_unsure,
    meant,
    sight_of,
)
from forewarn.adapters.libvirt.vm_moves import MoveWork, refuse_namesake
from forewarn.core.inventory.host_report import Power
from forewarn.core.model import SECOND_MS, ActionKind
from forewarn.logs import Log
from forewarn.ports import (
    Clock,
    HostLink,
    HypervisorFailed,
    Sight,
    SightKind,
    SwitchedOn,
    WorkOrder,
)

log = Log(__name__)

REMEMBERED_MAX = 1_000  # ends of works; older ones are read from the domains again
MIGRATE_S = 20 * 60.0
SETTLE_S = 0.5
CLOSE_S = 5.0
_OF_HOST = (ActionKind.FREEZE_HOST, ActionKind.REBOOT_HOST)


class LibvirtHypervisor:
    """The hypervisor of one host. Belongs to the event loop."""

    def __init__(
        self,
        connection: LibvirtConnection,
        *,
        host: str,
        clock: Clock,
        link: HostLink,
        migrate_uri: str = "qemu+ssh://{host}/system",
        shutdown_s: float = 60.0,
        migrate_s: float = MIGRATE_S,
        settle_s: float = SETTLE_S,
        reboot_command: Sequence[str] = (),
        boot_id_file: Path = Path("/proc/sys/kernel/random/boot_id"),
        guard: Callable[[str, str], Guard] = start_guard,
        open_other: Callable[[str], LibvirtConnection] = open_libvirt,
    ) -> None:
        self._host = host
        self._connection = connection
        self._boot_id_file = boot_id_file
        self._reboot_command = tuple(reboot_command)
        self._guard = guard
        self._tools = Tools(
            connection=connection,
            host=host,
            clock=clock,
            boot_id=self._boot_id,
            link=link,
            shutdown_ms=round(shutdown_s * SECOND_MS),
            migrate_uri=migrate_uri,
            migrate_s=migrate_s,
            settle_s=settle_s,
            open_other=open_other,
        )
        self._mending = Mending(self._tools, self._start)
        self._works: dict[str, tuple[WorkOrder, asyncio.Task[Sight]]] = {}
        self._ends: dict[str, Sight] = {}
        self._listens = False

    # ports.Hypervisor.

    async def boot_id(self, host: str) -> str:
        self._refuse_other(host)
        return self._boot_id()

    async def look(self, host: str, action: WorkOrder) -> Sight:
        """What has become of the action. Continues one that an earlier daemon began."""
        self._refuse_other(host)
        if action.action_id in self._works:
            return Sight(SightKind.UNDER_WAY)
        if action.action_id in self._ends:
            return self._ends[action.action_id]
        sight = await self._looked(action)
        if sight is None:
            log.info("action_taken_up", action=action.action_id, kind=action.kind.value)
            self._start(action)
            return Sight(SightKind.UNDER_WAY)
        return sight

    async def begin(self, host: str, action: WorkOrder) -> None:
        """Start a work on it. HypervisorFailed if it is clear that it cannot succeed."""
        self._refuse_other(host)
        self._boot_id()  # no mark can be written without it
        if 2 * lasts_ms(action) < GIVE_UP_AFTER_MS[action.kind]:
            raise HypervisorFailed(
                "it was claimed too late to be over before its event is given up; nothing was done"
            )
        if action.lose_disk:
            raise HypervisorFailed(
                f"Host {host} keeps every disk of a VM: libvirt does not say which are local,"
                " so a Redeploy with --lose-disk is not done here; nothing was done. Order it again"
                " without --lose-disk."
            )
        if action.kind is ActionKind.REBOOT_HOST and not self._reboot_command:
            raise HypervisorFailed(
                f"Host {host} does not know how to reboot itself: the setting reboot_command is "
                'empty. Write, for example, reboot_command = ["systemctl", "reboot"].'
            )
        if action.kind is ActionKind.REBOOT_HOST:
            await self._refuse_strangers(action)
        if action.kind not in (*_OF_HOST, ActionKind.START_VM, ActionKind.DEFINE_VM):
            await self._refuse_vm(action)
        self._start(action)

    # What the daemon does with it.

    async def run(self) -> None:
        """Until canceled: bring back what interrupted actions left down."""
        said = ""
        while True:
            try:
                await self.mend()
                said = ""
            except HypervisorFailed as failed:
                if str(failed) != said:
                    log.warning("not_looked_for_marks", why=str(failed))
                said = str(failed)
            except Exception:
                log.exception("mending_failed", host=self._host)  # what else can be done is done
            await asyncio.sleep(MEND_AT_MOST_EVERY_S)
            await self._tools.wait(MEND_EVERY_S)

    async def mend(self) -> None:
        """One round of `run`. HypervisorFailed if libvirt cannot be asked."""
        self._listen()
        await self._mending.mend(self.works_on())

    def works_on(self, kind: ActionKind | None = None) -> frozenset[str]:
        """The ids of the actions under way here, of one kind or of all."""
        return frozenset(
            action_id
            for action_id, (action, _) in self._works.items()
            if kind in (None, action.kind)
        )

    async def close(self) -> None:
        """Stop working, after a moment for what is nearly done.

        The next daemon continues what is still under way.
        """
        works = [task for _, task in self._works.values()]
        if works:
            await asyncio.wait(works, timeout=CLOSE_S)
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)
        self._tools.close()

    # Within.

    def _start(self, action: WorkOrder) -> None:
        self._listen()
        action_id = action.action_id
        if action_id in self._works:
            return
        task = asyncio.get_running_loop().create_task(self._work(action).run())
        self._works[action_id] = (action, task)
        task.add_done_callback(lambda done: self._ended(action_id, done))

    def _work(self, action: WorkOrder) -> ActionRun:
        if action.kind is ActionKind.FREEZE_HOST:
            return FreezeWork(self._tools, action, self._guard)
        if action.kind is ActionKind.REBOOT_HOST:
            return RebootHostWork(self._tools, action, self._reboot_command)
        if action.kind is ActionKind.MOVE_VM and action.target_host not in (None, self._host):
            return MoveWork(self._tools, action)
        return ActionRun(self._tools, action)

    def _ended(self, action_id: str, done: asyncio.Task[Sight]) -> None:
        self._works.pop(action_id, None)
        if done.cancelled():
            return
        error = done.exception()
        if error is not None:
            log.error("work_broke", action=action_id, exc_info=error)
            self._remember(action_id, Sight(SightKind.FAILED, f"Forewarn broke: {error!r}"))
            return
        self._remember(action_id, done.result())

    def _remember(self, action_id: str, sight: Sight) -> None:
        if len(self._ends) >= REMEMBERED_MAX:
            self._ends.pop(next(iter(self._ends)))
        self._ends[action_id] = sight

    async def _looked(self, action: WorkOrder) -> Sight | None:
        """What libvirt shows of an action that no work here does. None: a work must continue it."""
        if action.kind is ActionKind.FIND_VM:
            return await self._found(action)
        if action.kind in _OF_HOST:
            rebooted = (
                action.kind is ActionKind.REBOOT_HOST
                and action.boot_id is not None
                and action.boot_id != self._boot_id()
            )
            domains = await self._tools.domains()
            return host_actions.looked(action, domains, rebooted=rebooted)
        view = meant(await self._tools.view(action.vm or ""), action)
        mark = next_steps.mark_of(view, action.action_id)
        if mark is not None:
            return sight_of(mark)
        if view is None:
            return await self._looked_for(action)
        return self._started(action, view)

    async def _looked_for(self, action: WorkOrder) -> Sight | None:
        """What an action has come to whose VM is not here."""
        if action.kind is ActionKind.DELETE_VM:
            return Sight(SightKind.DONE, "it was gone already")
        if action.kind is ActionKind.MOVE_VM:
            return await self._looked_there(action)
        return Sight(SightKind.NOT_BEGUN)

    async def _found(self, action: WorkOrder) -> Sight:
        """Whether a VM runs here, once nothing here can still take it elsewhere."""
        busy = (one.vm == action.vm or one.kind in _OF_HOST for one, _ in self._works.values())
        if any(busy):
            return Sight(SightKind.UNDER_WAY)
        view = meant(await self._tools.view(action.vm or ""), action)
        mark = open_mark(view) if view is not None else None
        if mark is not None and mark.host == self._host and mark.kind is ActionKind.MOVE_VM:
            return Sight(SightKind.UNDER_WAY)  # it is taken back soon (`Mending`)
        if view is not None and view.power is Power.RUNNING:
            return Sight(SightKind.DONE)
        return Sight(SightKind.FAILED, f"{action.vm} does not run on host {self._host}")

    def _started(self, action: WorkOrder, view: DomainView) -> Sight:
        """What a domain without the mark of an action says of it: only what is there is done."""
        if action.kind is ActionKind.DEFINE_VM:
            return Sight(SightKind.DONE)
        if action.kind is not ActionKind.START_VM or not view.active:
            return Sight(SightKind.NOT_BEGUN)
        mark = open_mark(view)
        coming = mark is not None and mark.kind is ActionKind.MOVE_VM and mark.host != self._host
        if coming and view.power is Power.PAUSED:
            return Sight(SightKind.UNDER_WAY)  # until it runs it may vanish with its old host
        resume = left_unsure(view) is not None and view.power is Power.PAUSED
        return Sight(SightKind.NOT_BEGUN if resume else SightKind.DONE)

    async def _looked_there(self, action: WorkOrder) -> Sight | None:
        """It is not here. If it came to its target by this move, that is done.

        None if the target does not answer: a work waits for it, for a while.
        """
        vm, target = action.vm or "", action.target_host or ""
        if target in ("", self._host):
            return Sight(SightKind.NOT_BEGUN)
        try:
            there = await self._tools.there(target).call(
                lambda s: s.view(vm), what=f"look at {vm} on {target}"
            )
        except LibvirtLost:
            return None
        mark = next_steps.mark_of(there, action.action_id)
        if mark is not None:
            return sight_of(mark)
        return Sight(SightKind.NOT_BEGUN)

    async def _refuse_vm(self, action: WorkOrder) -> None:
        try:
            view = await self._tools.view(action.vm or "")
        except LibvirtLost:
            return  # a libvirt that is restarted right now: the work finds out
        if view is None:
            raise HypervisorFailed(f"there is no VM {action.vm} on host {self._host}")
        if meant(view, action) is None:
            raise HypervisorFailed(
                f"another VM has the name {view.name} now ({view.uuid}); nothing was done to it"
            )
        if action.only_off and view.active:
            raise SwitchedOn
        if action.kind is ActionKind.MOVE_VM and action.target_host not in (None, self._host):
            await self._refuse_target(view, action.target_host or "")

    async def _refuse_target(self, view: DomainView, target: str) -> None:
        try:
            there = await self._tools.there(target).call(
                lambda s: s.view(view.name), what=f"look at {view.name} on {target}"
            )
        except LibvirtLost as lost:
            raise HypervisorFailed(
                f"Host {target} cannot be reached from here, so nothing was moved: {lost}"
            ) from None
        refuse_namesake(view, there, target)

    async def _refuse_strangers(self, action: WorkOrder) -> None:
        """Refuse a reboot that would take VMs along which came since it was announced."""
        try:
            domains = await self._tools.domains()
        except LibvirtLost:
            return  # as above
        strangers = [v.name for v in domains if v.active and meant(v, action) is None]
        if strangers:
            raise HypervisorFailed(
                f"{host_actions.some(strangers)} had no notice, so nothing was done to host "
                f"{self._host}. Order it again: every VM that is on the host then gets notice."
            )

    def _refuse_other(self, host: str) -> None:
        if host != self._host:
            raise HypervisorFailed(f"This is the hypervisor of host {self._host}, not of {host}.")

    def _boot_id(self) -> str:
        try:
            return self._boot_id_file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise HypervisorFailed(
                f"The boot id of host {self._host} cannot be read: {error}. "
                "The setting boot_id_file says where it is."
            ) from None

    def _listen(self) -> None:
        if not self._listens:
            self._listens = True
            self._connection.on_event(self._tools.ring)
