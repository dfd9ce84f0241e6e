"""A hypervisor without machines: actions take as long as they say, and fail when told to.

It keeps a world of its own (which VM runs where, each host's boot id), so that what the control
plane believes can be compared with what "really" happened. Time is the clock's monotonic time.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from forewarn.core.model import SECOND_MS, ActionKind
from forewarn.ports import (
    SWITCHED_ON,
    Clock,
    HypervisorFailed,
    Sight,
    SightKind,
    SwitchedOn,
    WorkOrder,
)

# Looks come soon after the end of an action; older ends are forgotten.
REMEMBERED_MAX = 10_000
HANGS_MS = 1 << 60  # longer than any clock runs
HELD_MAX = 10_000  # events and operations; the oldest one is forgotten


class _Begun(Struct, frozen=True):
    action: WorkOrder
    ends_monotonic_ms: int
    failure: str


class ActionFault(Struct, frozen=True, kw_only=True):
    """How an action goes wrong: it fails when its time is over, or it takes longer; or for ever."""

    failure: str = ""
    extra_ms: int = 0


class SimulatedHypervisor:
    """All hosts of a simulated fleet. It runs no real VMs.

    A host that is not `powered` does nothing and answers nothing. What that did to its VMs is
    settled by `kill_host`; if the power comes back before, nothing has happened.
    """

    def __init__(self, clock: Clock, *, powered: Callable[[str], bool] = lambda _: True) -> None:
        self._clock = clock
        self._powered = powered
        self._boots: dict[str, int] = {}
        self._vms: dict[str, str] = {}
        # By (host, action id): what one host did says nothing of another that got the action later.
        self._begun: dict[tuple[str, str], _Begun] = {}
        self._first_end_ms: float = math.inf  # nothing of `_begun` ends before this
        self._done: dict[tuple[str, str], Sight] = {}
        self._failures: dict[str, str] = {}
        self._extra_ms: dict[str, int] = {}
        self._held_ms: dict[str, int] = {}  # by event or operation
        self._dead: set[str] = set()
        self._down: set[str] = set()  # VMs that went down with their host
        self._off: set[str] = set()  # VMs that their owners switched off
        self._emptied: dict[str, int] = {}
        self._changed: Callable[[], None] = lambda: None
        self._hit: Callable[[WorkOrder, list[str], int], None] = lambda _action, _vms, _more: None
        self._spoiled: Callable[[list[str]], ActionFault | None] = lambda _vms: None
        self._lost: Callable[[list[str]], None] = lambda _vms: None

    # What a test or the emulator arranges.

    def on_change(self, ring: Callable[[], None]) -> None:
        """Call `ring` when an action has taken effect. One at a time."""
        self._changed = ring

    def on_impact(
        self,
        *,
        begun: Callable[[WorkOrder, list[str], int], None],
        lost: Callable[[list[str]], None],
    ) -> None:
        """Call `begun` with each action that begins, the VMs that feel it and how many milliseconds
        longer than announced it takes, and `lost` with the VMs that went down with their host.
        One at a time.
        """
        self._hit, self._lost = begun, lost

    def spoil(self, ask: Callable[[list[str]], ActionFault | None]) -> None:
        """Ask, with the VMs that an action hits, whether it goes wrong. One at a time."""
        self._spoiled = ask

    def place(self, vm: str, host: str) -> None:
        """Let a VM run on a host, if it does not run yet."""
        self._vms.setdefault(vm, host)

    def carry(self, vm: str, host: str) -> None:
        """Have a VM run on another host from now on, as if an outside tool had moved it."""
        self._vms[vm] = host

    def switch(self, vm: str, *, on: bool) -> None:
        """Have its owner switch a VM on or off; one that went down with its host stays down."""
        self._settle()
        if on:
            self._off.discard(vm)
        else:
            self._off.add(vm)

    def fail_next(self, name: str, reason: str) -> None:
        """Let the next action on this VM (or host) fail, when its time is over, with a reason."""
        self._failures[name] = reason

    def slow_next(self, name: str, *, extra_s: int) -> None:
        """Let the next action on this VM (or host) take longer than announced."""
        self._extra_ms[name] = extra_s * SECOND_MS

    def hold(self, owner_id: str, seconds: float) -> None:
        """Let every action of this event or operation take so long in all, from its beginning.

        The real service keeps an event Started for minutes after the impact (contract 3.4).
        Without effect on actions that have begun.
        """
        if owner_id not in self._held_ms and len(self._held_ms) >= HELD_MAX:
            self._held_ms.pop(next(iter(self._held_ms)))
        self._held_ms[owner_id] = round(seconds * SECOND_MS)

    def kill_host(self, host: str) -> None:
        """Power the host off: nothing on it can be looked at or begun, and its VMs are down.

        A host that has power until now takes down what has arrived by now, looked at or not. One
        whose power was cut before (it is not `powered`) takes down what a look had shown arrived:
        a move whose end no look had shown by then counts as still on its way. A move that is
        still on its way there fails, and its VM runs on where it was.
        """
        self._settle()
        self._dead.add(host)
        here = {vm for vm, where in self._vms.items() if where == host}
        lost = here - self._off - self._down
        self._down |= lost
        self._begun = {key: begun for key, begun in self._begun.items() if key[0] != host}
        self._done = {key: sight for key, sight in self._done.items() if key[0] != host}
        for key, begun in self._begun.items():
            if begun.action.target_host == host:
                self._begun[key] = replace(begun, failure=_no_answer(host))
        self._lost(sorted(lost))

    def boot_host(self, host: str) -> None:
        """Power the host on again: it has a new boot id."""
        self._dead.discard(host)
        self._boots[host] = self._boots.get(host, 0) + 1

    def dead(self, host: str) -> bool:
        """True from `kill_host` until `boot_host`."""
        return host in self._dead

    def answers(self, host: str) -> bool:
        """True while the host has power and is booted."""
        return host not in self._dead and self._powered(host)

    def runs(self, vm: str) -> bool:
        """True if the VM is there, is not switched off and did not go down with its host."""
        self._settle()
        return self._is_up(vm)

    def _is_up(self, vm: str) -> bool:
        return vm in self._vms and vm not in self._down and vm not in self._off

    def where(self, vm: str) -> str | None:
        """The host a VM is really on."""
        self._settle()
        return self._vms.get(vm)

    def disks_lost(self, vm: str) -> int:
        """How often a VM has come to a new host with empty local disks."""
        self._settle()
        return self._emptied.get(vm, 0)

    def coming(self, vm: str) -> set[str]:
        """The hosts that something under way, which will not fail, brings the VM to."""
        found = (one.action for one in self._begun.values() if not one.failure)
        return {a.target_host for a in found if a.vm == vm and a.target_host is not None}

    def under_way(self) -> list[tuple[int, WorkOrder]]:
        """Every action that was begun and not looked at since it ended, with its end.

        The end is an instant of the clock's monotonic time, in milliseconds. What hangs has none.
        """
        begun = [(one.ends_monotonic_ms, one.action) for one in self._begun.values()]
        return [(ends_ms, action) for ends_ms, action in begun if ends_ms < HANGS_MS]

    # ports.Hypervisor.

    async def boot_id(self, host: str) -> str:
        self._refuse_dead(host)
        return f"{host}-boot-{self._boots.get(host, 0)}"

    async def look(self, host: str, action: WorkOrder) -> Sight:
        self._refuse_dead(host)
        key = (host, action.action_id)
        self._settle()
        if action.kind is ActionKind.FIND_VM:
            return self._found(host, action.vm or "")
        if key in self._done:
            return self._done[key]
        if key in self._begun:
            return Sight(SightKind.UNDER_WAY)
        if action.kind is ActionKind.REBOOT_HOST and await self.boot_id(host) != action.boot_id:
            return Sight(SightKind.DONE)  # a reboot that another caused counts too
        return Sight(SightKind.DONE if self._is_done(host, action) else SightKind.NOT_BEGUN)

    def _is_done(self, host: str, action: WorkOrder) -> bool:
        """Whether what the action is to bring about is so already."""
        vm = action.vm or ""
        if action.kind is ActionKind.DEFINE_VM:
            return self._vms.get(vm) == host
        # It got here before its old host was given up; a held event takes its time all the same.
        started = action.kind is ActionKind.START_VM and self._runs_on(vm, host)
        return started and _owner(action) not in self._held_ms

    async def begin(self, host: str, action: WorkOrder) -> None:
        self._refuse_dead(host)
        if action.target_host is not None and not self.answers(action.target_host):
            raise HypervisorFailed(_no_answer(action.target_host or ""))
        name = action.vm or host
        if action.vm is not None and not self._has(host, action):
            raise HypervisorFailed(f"there is no VM {action.vm} on host {host}")
        if action.only_off and self.runs(name):
            raise SwitchedOn
        takes_ms = self._held_ms.get(_owner(action), max(0, action.duration_s) * SECOND_MS)
        vms = self._feeling(host, action)
        spoiled = self._spoiled(vms) or ActionFault(extra_ms=0)
        extra_ms = self._extra_ms.pop(name, 0) + spoiled.extra_ms
        failure = self._failures.pop(name, "") or spoiled.failure
        ends_ms = self._clock.monotonic_ms() + takes_ms + extra_ms
        self._begun[host, action.action_id] = _Begun(action, ends_ms, failure)
        self._first_end_ms = min(self._first_end_ms, ends_ms)
        if not action.only_off:
            self._hit(action, vms, extra_ms)

    def _feeling(self, host: str, action: WorkOrder) -> list[str]:
        """The VMs that feel an action: those that run, and the one that is started."""
        if action.vm is None:
            return sorted(vm for vm, at in self._vms.items() if at == host and self._is_up(vm))
        up = self._is_up(action.vm) or action.kind is ActionKind.START_VM
        return [action.vm] if up else []

    def _has(self, host: str, action: WorkOrder) -> bool:
        """Whether there is a VM to do it to: one that starts may have been anywhere before."""
        where = self._vms.get(action.vm or "")
        anywhere = action.kind in (ActionKind.START_VM, ActionKind.DEFINE_VM)
        return where is not None and (where == host or anywhere)

    def _found(self, host: str, vm: str) -> Sight:
        """Whether the VM runs on the host, once nothing there can still take it elsewhere."""
        if any(key[0] == host and begun.action.vm == vm for key, begun in self._begun.items()):
            return Sight(SightKind.UNDER_WAY)
        if self._runs_on(vm, host):
            return Sight(SightKind.DONE)
        return Sight(SightKind.FAILED, f"{vm} does not run on host {host}")

    def _runs_on(self, vm: str, host: str) -> bool:
        return self._vms.get(vm) == host and self.runs(vm)

    def _refuse_dead(self, host: str) -> None:
        if not self.answers(host):
            raise HypervisorFailed(_no_answer(host))

    def _settle(self) -> None:
        """Let every action whose time is over take effect, in the order in which they ended.

        Looking changes nothing: what has happened does not depend on who asked since.
        """
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._first_end_ms:  # asked at every look, while hundreds may be under way
            return
        begun = [(one.ends_monotonic_ms, key) for key, one in self._begun.items()]
        over = sorted(end for end in begun if end[0] <= now_ms and self._goes_on(end[1]))
        for _, key in over:
            self._take_effect(key, self._begun.pop(key))
        ends = (one.ends_monotonic_ms for one in self._begun.values())
        self._first_end_ms = min(ends, default=math.inf)
        if over:
            self._changed()

    def _goes_on(self, key: tuple[str, str]) -> bool:
        """Whether both hosts of an action that was begun have power."""
        target = self._begun[key].action.target_host
        return self._powered(key[0]) and (target is None or self._powered(target))

    def _take_effect(self, key: tuple[str, str], begun: _Begun) -> None:
        if len(self._done) >= REMEMBERED_MAX:
            self._done.pop(next(iter(self._done)))
        if begun.failure:
            self._done[key] = Sight(SightKind.FAILED, begun.failure)
            return
        host, action = key[0], begun.action
        if action.only_off and action.vm is not None and self._is_up(action.vm):
            self._done[key] = Sight(SightKind.SPARED, SWITCHED_ON)
            return
        if action.kind is ActionKind.DELETE_VM and action.vm is not None:
            if self._vms.get(action.vm) == host:  # else it has moved on: a host deletes its own
                del self._vms[action.vm]
        elif action.target_host is not None and action.vm is not None:
            self._vms[action.vm] = action.target_host
            if action.lose_disk:
                self._emptied[action.vm] = self._emptied.get(action.vm, 0) + 1
            self._down.discard(action.vm)
            if action.kind is ActionKind.START_VM:
                self._off.discard(action.vm)
        elif action.kind is ActionKind.REBOOT_HOST:
            self._boots[host] = self._boots.get(host, 0) + 1
        self._done[key] = Sight(SightKind.DONE)


def _no_answer(host: str) -> str:
    return f"host {host} does not answer"


def _owner(action: WorkOrder) -> str:
    """The event or operation an action belongs to: its id begins with that one's."""
    return action.action_id.partition("/")[0]
