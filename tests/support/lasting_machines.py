"""Simulated machines that outlive the process that acts on them: a file, as libvirtd is a process.

`begun` counts how often each action was begun, so that a test can say: once. No test lives here.
"""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from forewarn.core.inventory.host_report import Power, SeenVm, Traits
from forewarn.core.model import ActionKind
from forewarn.ports import HypervisorFailed, Sight, SightKind, WorkOrder


def make_world(path: Path, vms: dict[str, str]) -> None:
    """VMs by name, with the host of each."""
    world = {
        "vms": {
            name: {"host": host, "vm_id": f"00000000-0000-4000-8000-{number:012x}", "boots": 1}
            for number, (name, host) in enumerate(vms.items(), 1)
        },
        "begun": {},
        "ends": {},
        "done": [],
        "away": "",
    }
    path.write_text(json.dumps(world))


def read_world(path: Path) -> Any:
    with _held(path) as world:
        return world


def take_away(path: Path, why: str) -> None:
    """The hypervisors of all hosts do not say what VMs they have, and why; empty: they do."""
    with _held(path) as world:
        world["away"] = why


@contextmanager
def _held(path: Path) -> Iterator[Any]:
    """The world, written back whole at the end; nobody else has it meanwhile."""
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = path.read_text()
        world = json.loads(before)
        yield world
        after = json.dumps(world)
        if after != before:
            scratch = path.with_suffix(".new")
            scratch.write_text(after)
            scratch.replace(path)


class LastingMachines:
    """`ports.Machines` and `ports.Hypervisor` of one host."""

    def __init__(self, path: Path, host: str) -> None:
        self._path = path
        self._host = host
        self._ring: Callable[[], None] = lambda: None

    async def seen(self) -> Sequence[SeenVm]:
        with _held(self._path) as world:
            if world["away"]:
                raise HypervisorFailed(world["away"])
            return [
                SeenVm(name=name, vm_id=vm["vm_id"], power=Power.RUNNING)
                for name, vm in world["vms"].items()
                if vm["host"] == self._host
            ]

    async def adopt(self, vm: str, traits: Traits) -> None:
        raise HypervisorFailed(f"{vm} stays as it is, without {traits}")

    def on_change(self, ring: Callable[[], None]) -> None:
        self._ring = ring

    async def boot_id(self, host: str) -> str:
        return f"{host}-boot"

    async def look(self, host: str, action: WorkOrder) -> Sight:
        del host
        key = action.action_id
        with _held(self._path) as world:
            if key in world["done"]:
                return Sight(SightKind.DONE)
            if key not in world["ends"]:
                return Sight(SightKind.NOT_BEGUN)
            if time.time() < world["ends"][key]:
                return Sight(SightKind.UNDER_WAY)
            self._settle(world, action)
            world["done"].append(key)
        self._ring()
        return Sight(SightKind.DONE)

    async def begin(self, host: str, action: WorkOrder) -> None:
        del host
        with _held(self._path) as world:
            key = action.action_id
            world["begun"][key] = world["begun"].get(key, 0) + 1
            world["ends"][key] = time.time() + action.duration_s

    def _settle(self, world: Any, action: WorkOrder) -> None:
        vm = world["vms"][action.vm]
        if action.kind is ActionKind.MOVE_VM:
            vm["host"] = action.target_host
        elif action.kind is ActionKind.DELETE_VM:
            del world["vms"][action.vm]
        else:
            vm["boots"] += 1
