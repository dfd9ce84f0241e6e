"""What an event does to the app inside a VM: frozen and thawed, killed and started again.

`impacts_of` decides what an action means for the VMs that it hits; `Impacts` has it done at its
instant. Who does it (signals to a process, a command of the caller) is a receiver's business.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum

from msgspec import Struct

from forewarn.control.fleet_reader import FleetReader
from forewarn.core.model import SECOND_MS, ActionKind, Phase, ScheduledEvent
from forewarn.emulator.clock import LAST_MS
from forewarn.emulator.pacer import Appointment, Pacer
from forewarn.logs import Log
from forewarn.ports import WorkOrder

log = Log(__name__)


class ImpactKind(StrEnum):
    """What happens to what runs in a VM."""

    FREEZE = "freeze"  # it stands still
    THAW = "thaw"  # it goes on
    KILL = "kill"  # it is gone at once, as when the power is cut
    START = "start"  # the VM is up again


class Impact(Struct, frozen=True, kw_only=True):
    """One thing that happens to a VM. `event_id` and `event_type` are empty where none is known."""

    kind: ImpactKind
    vm: str
    event_id: str
    event_type: str
    at_ms: int
    lose_disk: bool = False  # of a start: the local disks of the VM are empty


# Does to what runs in a VM what an impact says; what it returns is how that went wrong.
Receiver = Callable[[Impact], Awaitable[str | None]]

_KILLS = (ActionKind.REBOOT_HOST, ActionKind.REBOOT_VM, ActionKind.MOVE_VM, ActionKind.DELETE_VM)
_STARTS = (
    ActionKind.REBOOT_HOST,
    ActionKind.REBOOT_VM,
    ActionKind.MOVE_VM,
    ActionKind.START_VM,
)


def impacts_of(kind: ActionKind) -> tuple[ImpactKind | None, ImpactKind | None]:
    """What an action does to a VM when it begins, and when its duration is over."""
    if kind is ActionKind.FREEZE_HOST:
        return ImpactKind.FREEZE, ImpactKind.THAW
    return (
        ImpactKind.KILL if kind in _KILLS else None,
        ImpactKind.START if kind in _STARTS else None,
    )


class Impacts:
    """Has what happens to VMs done by the receivers, as appointments with the pacer.

    Belongs to the event loop. Without a receiver nothing is arranged.
    """

    def __init__(self, pacer: Pacer, fleet: FleetReader, now_ms: Callable[[], int]) -> None:
        self._pacer = pacer
        self._fleet = fleet
        self._now_ms = now_ms
        self._receivers: list[Receiver] = []
        self._watching: Callable[[Impact], None] = lambda _: None
        self._later: dict[str, list[Appointment]] = {}  # by VM: thaws and starts to come

    def watch(self, look: Callable[[Impact], None]) -> None:
        """Have every impact that is done told here as well. One at a time."""
        self._watching = look

    def add(self, receiver: Receiver) -> None:
        self._receivers.append(receiver)

    def remove(self, receiver: Receiver) -> None:
        """Without effect for one that is not there."""
        if receiver in self._receivers:
            self._receivers.remove(receiver)

    def begun(self, action: WorkOrder, vms: Sequence[str], extra_ms: int) -> None:
        """A host has begun an action that hits these VMs, and takes so much longer; or hangs."""
        if not self._receivers:
            return
        first, last = impacts_of(action.kind)
        now_ms = self._now_ms()
        owner = action.action_id.partition("/")[0]
        for vm in vms:
            event = self._event(vm, owner)
            if first is ImpactKind.KILL:
                self._call_off(vm)
            if first is not None:
                self._arrange(first, vm, event, now_ms)
            if last is not None:
                # An event may stay Started for longer than its impact lasts (contract 3.4).
                until_ms = now_ms + max(0, action.duration_s) * SECOND_MS + extra_ms
                if until_ms > LAST_MS:
                    continue
                self._later.setdefault(vm, []).append(self._arrange(last, vm, event, until_ms))

    def lost(self, vms: Sequence[str]) -> None:
        """These VMs went down with their host, without an action."""
        if self._receivers:
            for vm in vms:
                self._call_off(vm)
                self._arrange(ImpactKind.KILL, vm, None, self._now_ms())

    def _call_off(self, vm: str) -> None:
        """What goes down is not thawed or started by what hit it before."""
        for appointment in self._later.pop(vm, ()):
            appointment.cancel()

    def _arrange(
        self, kind: ImpactKind, vm: str, event: ScheduledEvent | None, at_ms: int
    ) -> Appointment:
        async def act() -> str | None:
            known = event or self._event(vm, None)
            impact = Impact(
                kind=kind,
                vm=vm,
                event_id="" if known is None else known.event_id,
                event_type="" if known is None else known.event_type.value,
                at_ms=at_ms,
                lose_disk=kind is ImpactKind.START and known is not None and known.lose_disk,
            )
            self._watching(impact)
            wrong = [said for said in [await do(impact) for do in tuple(self._receivers)] if said]
            for said in wrong:
                log.warning("impact_failed", impact=kind.value, vm=vm, why=said)
            return f"({'; '.join(wrong)})" if wrong else None

        return self._pacer.at(at_ms, f"{kind.value} of what runs in {vm}", act)

    def _event(self, vm: str, owner: str | None) -> ScheduledEvent | None:
        """The started event that hits the VM, and belongs to that event or operation."""
        scope = self._fleet.scope(self._fleet.scope_of_vm.get(vm, ""))
        for event in scope.events if scope else ():
            mine = owner in (None, event.event_id, event.operation_id)
            if mine and event.phase is Phase.STARTED and vm in event.resources:
                return event
        return None
