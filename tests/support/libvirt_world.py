"""Hypervisors on libvirt's own test driver: domains without machines, in this process.

A world has two of them, `h1` and `h2`, each with its libvirt, its boot id and its daemon, on an
event loop in a thread of its own, so that works go on between the questions of a test.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

import pytest

from forewarn.adapters.libvirt.blocking_calls import DomainView, LibvirtSession
from forewarn.adapters.libvirt.connection import (
    LibvirtConnection,
    LibvirtLost,
    LibvirtMissing,
    LibvirtRefused,
    Why,
    open_libvirt,
)
from forewarn.adapters.libvirt.hypervisor import LibvirtHypervisor
from forewarn.core.errors import Unavailable
from forewarn.core.model import ActionKind
from forewarn.ports import HypervisorFailed, Sight, SightKind, WorkOrder
from support.clock import ManualClock
from support.unasked_link import UnaskedLink
from support.waiting import wait_until

T = TypeVar("T")

WITHIN_S = 60.0
ENDS = ("done", "failed", "unsure", "spared")
SHUTDOWN_S = 60
LOOKS = ("look", "list", "read", "mark")  # everything else is an act
UUIDS = {"vm": "6695eb01-f6a4-8304-79aa-97f2502e193f"}
NETWORK = (
    "<network><name>default</name><bridge name='virbr0'/>"
    "<ip address='192.0.2.1' netmask='255.255.255.0'/></network>"
)


def domain_xml(name: str, *, metadata: str = "", devices: str | None = None, rest: str = "") -> str:
    """A domain for the test driver."""
    uuid = UUIDS.get(name) or f"00000000-0000-4000-8000-{abs(hash(name)) % 16**12:012x}"
    if devices is None:
        devices = (
            "<interface type='bridge'><mac address='52:54:00:00:00:07'/>"
            "<source bridge='br0'/><target dev='tap7'/></interface>"
        )
    return (
        f"<domain type='test'><name>{name}</name><uuid>{uuid}</uuid>"
        f"<metadata>{metadata}</metadata><memory>65536</memory><vcpu>1</vcpu>"
        f"<os><type>hvm</type></os>{rest}<devices>{devices}</devices></domain>"
    )


def libvirt_is_there() -> None:
    """Skip where the Python binding is missing."""
    try:
        open_libvirt("test:///default").close()
    except LibvirtMissing as missing:
        pytest.skip(str(missing))


class FakeLibvirt(LibvirtConnection):
    """The test driver with hands on it: acts can be held, refused, lost; the host can be off."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self.off = False
        self.free = asyncio.Event()  # acts wait for it
        self.free.set()
        self.refuse: dict[str, LibvirtRefused | LibvirtLost] = {}
        self.lose_once: set[str] | None = None
        self.undo_starts = 0
        self.stop_at = ""
        self.stopped = False
        self.asked: list[str] = []

    async def call(
        self, work: Callable[[LibvirtSession], T], *, what: str, seconds: float = 15.0
    ) -> T:
        if self.off:
            raise LibvirtLost("host does not answer")
        word = what.partition(" ")[0]
        if word not in LOOKS:
            self.asked.append(what)
            await self.free.wait()
        if word in self.refuse:
            raise self.refuse[word]
        if self.stop_at and what == self.stop_at:
            self.stopped = True
            await asyncio.Event().wait()  # whoever asked is killed here
        value = await super().call(work, what=what, seconds=seconds)
        if word == "start" and self.undo_starts > 0:
            self.undo_starts -= 1
            await super().call(lambda s: s.destroy("vm"), what="undo", seconds=seconds)
        if self.lose_once is not None and word not in LOOKS and what not in self.lose_once:
            self.lose_once.add(what)
            raise LibvirtLost(f"lost after {what}")
        return value


class FakeElsewhere(UnaskedLink):
    """`ports.HostLink` with what control would say of other hosts."""

    def __init__(self) -> None:
        self.targets_of: dict[str, str | None] = {}
        self.definitions: dict[str, str] = {}
        self.away = False
        self.asked = 0

    async def targets(self, vms: Sequence[str]) -> Mapping[str, str | None]:
        return {vm: self.targets_of.get(vm) for vm in vms}

    async def definition(self, vm: str) -> str | None:
        self.asked += 1
        if self.away:
            raise Unavailable("control is away")
        return self.definitions.get(vm)


class FakeGuard:
    """A guard that only remembers what it was told."""

    def __init__(self, told: list[str]) -> None:
        self._told = told
        self._told.append("ready")

    def thaw_at(self, monotonic_ms: int) -> None:
        self._told.append(f"thaw at {monotonic_ms}")

    def dismiss(self) -> None:
        self._told.append("dismissed")


class LibvirtWorld:
    """Two hosts. Close it."""

    def __init__(self, folder: Path, libvirt: type[FakeLibvirt] = FakeLibvirt) -> None:
        libvirt_is_there()
        self.folder = folder
        self.clock = ManualClock()
        self.elsewhere = FakeElsewhere()
        self.guard_told: list[str] = []
        self.no_guard = ""
        self.posted: Future[None] | None = None
        self.boots = 1
        self.reboot_command: tuple[str, ...] = ("true",)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.libvirts: dict[str, FakeLibvirt] = {}
        self.hypervisors: dict[str, LibvirtHypervisor] = {}
        for host in ("h1", "h2"):
            place = folder / f"{host}.xml"
            place.write_text(f"<node>{NETWORK}</node>")
            self.libvirts[host] = libvirt(f"test://{place}")
            self.boot_file(host).write_text(f"{host}-boot-1\n")
            self.start_daemon(host)

    def boot_file(self, host: str) -> Path:
        return self.folder / f"{host}.boot"

    def start_daemon(self, host: str) -> None:
        """A new daemon, which knows nothing of what another did."""
        self.hypervisors[host] = LibvirtHypervisor(
            self.libvirts[host],
            host=host,
            clock=self.clock,
            link=self.elsewhere,
            migrate_uri="{host}",
            shutdown_s=SHUTDOWN_S,
            settle_s=0.01,
            reboot_command=self.reboot_command,
            boot_id_file=self.boot_file(host),
            guard=self._guard,
            open_other=lambda uri: self.libvirts[uri],
        )

    def _guard(self, _uri: str, _action_id: str) -> FakeGuard:
        if self.no_guard:
            raise HypervisorFailed(self.no_guard)
        return FakeGuard(self.guard_told)

    def kill_daemon(self, host: str) -> None:
        """The daemon dies wherever it is, and another one starts."""
        if self.posted is not None:
            self.posted.cancel()
        self.run(_cancel_works(self.hypervisors[host]))
        self.start_daemon(host)

    def close(self) -> None:
        self.release()
        if self.posted is not None:
            self.posted.cancel()
        for hypervisor in self.hypervisors.values():
            self.run(_cancel_works(hypervisor))
        for libvirt in self.libvirts.values():
            libvirt.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def hold(self) -> None:
        """Let every act wait, on both hosts. Looks and marks go on."""
        for libvirt in self.libvirts.values():
            self._loop.call_soon_threadsafe(libvirt.free.clear)

    def release(self) -> None:
        """Let acts go on."""
        for libvirt in self.libvirts.values():
            self._loop.call_soon_threadsafe(libvirt.free.set)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WITHIN_S)

    def on(self, host: str, work: Callable[[LibvirtSession], T]) -> T:
        """Do something with a libvirt, as `virsh` would."""
        libvirt = self.libvirts[host]
        return self.run(LibvirtConnection.call(libvirt, work, what="arrange"))

    def define(self, host: str, xml: str, *, start: bool) -> None:
        name = xml.partition("<name>")[2].partition("</name>")[0]
        self.on(host, lambda s: s.define(xml))
        if start:
            self.on(host, lambda s: s.create(name))

    def view(self, host: str, vm: str = "vm") -> DomainView | None:
        return self.on(host, lambda s: s.view(vm))

    def seen(self, host: str, vm: str = "vm") -> DomainView:
        view = self.view(host, vm)
        assert view is not None, f"there is no {vm} on {host}"
        return view

    def begin(self, action: WorkOrder) -> None:
        self.run(self.hypervisors[action.host or ""].begin(action.host or "", action))

    def look(self, action: WorkOrder) -> Sight:
        return self.run(self.hypervisors[action.host or ""].look(action.host or "", action))

    def post(self, action: WorkOrder) -> None:
        """Begin an action without waiting for that; `posted` is its future."""
        host = action.host or ""
        begun = self.hypervisors[host].begin(host, action)
        self.posted = asyncio.run_coroutine_threadsafe(
            self._begin_and_work(host, begun), self._loop
        )

    async def _begin_and_work(self, host: str, begun: Coroutine[Any, Any, None]) -> None:
        await begun
        while self.hypervisors[host].works_on():  # noqa: ASYNC110 - a look at it, not an event
            await asyncio.sleep(0.005)

    def end_turning(self, action: WorkOrder, *, by_ms: int) -> Sight:
        """Wait until the action has ended; the clock is turned while it is waited for."""
        found: list[Sight] = []

        def ended() -> bool:
            found.append(self.look(action))
            self.clock.pass_ms(by_ms // 100)
            return found[-1].kind.value in ENDS

        wait_until(ended, f"the end of {action.action_id}")
        return found[-1]

    def end_of(self, action: WorkOrder) -> Sight:
        """Wait until the action has ended."""
        found: list[Sight] = []

        def ended() -> bool:
            found.append(self.look(action))
            return found[-1].kind.value in ENDS

        wait_until(ended, f"the end of {action.action_id}")
        return found[-1]


async def _cancel_works(hypervisor: LibvirtHypervisor) -> None:
    works = [task for _, task in hypervisor._works.values()]
    for work in works:
        work.cancel()
    await asyncio.gather(*works, return_exceptions=True)
    await asyncio.sleep(0)


def refusal(words: str, why: Why = Why.REFUSED) -> LibvirtRefused:
    return LibvirtRefused(words, why)


FREEZE_S = 5
DONE = Sight(SightKind.DONE)


def an_action(kind: ActionKind, **more: Any) -> WorkOrder:
    of_host = kind in (ActionKind.FREEZE_HOST, ActionKind.REBOOT_HOST)
    target = {ActionKind.MOVE_VM: "h2", ActionKind.START_VM: "h1"}.get(kind)
    values: dict[str, Any] = {
        "action_id": f"E1/{kind}",
        "kind": kind,
        "host": "h1",
        "vm": None if of_host else "vm",
        "target_host": target,
        "duration_s": FREEZE_S if kind is ActionKind.FREEZE_HOST else 0,
        "boot_id": "h1-boot-1",
        **more,
    }
    return WorkOrder(**values)


REBOOT = an_action(ActionKind.REBOOT_VM)
MOVE = an_action(ActionKind.MOVE_VM)
START = an_action(ActionKind.START_VM)
DELETE = an_action(ActionKind.DELETE_VM)
FREEZE = an_action(ActionKind.FREEZE_HOST)
REBOOT_HOST = an_action(ActionKind.REBOOT_HOST)


def run(world: LibvirtWorld, action: WorkOrder) -> Sight:
    """Begin an action and wait for its end."""
    world.begin(action)
    return world.end_of(action)


def acts(world: LibvirtWorld, host: str = "h1") -> list[str]:
    return list(world.libvirts[host].asked)


def frozen(world: LibvirtWorld, action: WorkOrder = FREEZE) -> None:
    world.begin(action)
    wait_until(lambda: "dismissed" in world.guard_told, "all are paused")
