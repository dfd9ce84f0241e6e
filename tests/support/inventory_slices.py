"""Inventories that are applied slice by slice, on a fleet of tests: what their tests share.

No test lives here.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from forewarn.control.inventory.apply_runner import Inventories
from forewarn.control.writer import Wanted
from forewarn.core.inventory.entries import Applied
from forewarn.core.model import EventType, FactKind, Scope
from forewarn.core.principal import OPERATOR
from forewarn.ports import Change
from support.fleets import HOSTS, alone, vm
from support.inventory_fleet import InventoryFleet
from support.journal import said
from support.waiting import until

T = TypeVar("T")

SLICE_VMS = 2
WAIT_S = 60.0  # only ends a hang


def scope(name: str) -> str:
    return f'[[scope]]\nname = "{name}"\nkind = "placement-group"\n'


def groups(count: int, *, tag: str = "a", size: int = 2) -> str:
    """Scopes of equal size on h1 to h3; `tag` is a change of every VM."""
    text = HOSTS
    for number in range(count):
        text += scope(f"s{number}")
        for member in range(size):
            text += vm(
                f"s{number}-{member}",
                scope=f"s{number}",
                host=f"h{number % 3 + 1}",
                address=f"198.51.{number}.{member + 1}",
                zone=tag,
            )
    return text


class Killed(BaseException):
    """kill -9: nothing that would run after this runs."""


class Submitting:
    """Takes commands at once, up to a number of them that commit: then the process is gone."""

    def __init__(self, fleet: InventoryFleet, *, commits: int = 1_000_000) -> None:
        self._fleet = fleet
        self._last = len(fleet.commits) + commits
        self.before: Callable[[], None] = lambda: None
        self.hold: asyncio.Event | None = None  # until then no slice of a decided file is taken

    async def submit(self, command: Wanted[T]) -> T:
        await asyncio.sleep(0)
        if self.hold is not None and self._fleet.published.unfinished:
            await self.hold.wait()
        self.before()
        if len(self._fleet.commits) >= self._last:
            raise Killed
        return self._fleet.run(command)


class Applying:
    """`Inventories` on a fleet, with its loop beside it."""

    def __init__(
        self, fleet: InventoryFleet, *, commits: int = 1_000_000, slice_vms: int = SLICE_VMS
    ) -> None:
        self.fleet = fleet
        self.writer = Submitting(fleet, commits=commits)
        fleet.control._writer = self.writer
        self.inventories = Inventories(fleet.control, slice_vms=slice_vms)

    async def apply(self, text: str) -> tuple[Applied, tuple[str, ...]]:
        return await self.inventories.apply(text, by=OPERATOR, guard=lambda command: command)

    def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do something while the loop runs."""

        async def main() -> T:
            async with asyncio.timeout(WAIT_S):
                running = asyncio.ensure_future(self.inventories.run())
                try:
                    return await work()
                finally:
                    running.cancel()
                    await asyncio.gather(running, return_exceptions=True)

        return asyncio.run(main())

    def applied(self, text: str) -> tuple[Applied, tuple[str, ...]]:
        return self.run(lambda: self.apply(text))

    def finished(self) -> None:
        """Wait until nothing is left to do."""

        self.run(lambda: until(lambda: not self.fleet.published.unfinished, "it is finished"))


def applied(fleet: InventoryFleet, text: str) -> tuple[Applied, tuple[str, ...]]:
    return Applying(fleet).applied(text)


def content(fleet: InventoryFleet) -> tuple[object, ...]:
    """Everything but the ids of VMs, which are made as VMs come, and rows that say nothing.

    A scope that is empty and never changed may be kept until the next file, and be gone then.
    """

    def without_ids(one: Scope) -> Scope:
        return replace(one, vms=tuple(replace(found, vm_id="") for found in one.vms))

    scopes = {
        name: without_ids(one)
        for name, one in sorted(fleet.index.scopes.items())
        if one.vms or one.incarnation > 1
    }
    return scopes, dict(sorted(fleet.index.hosts.items())), fleet.index.inventory


def at_once(*texts: str) -> InventoryFleet:
    """What the same files come to if each is one commit."""
    fleet = InventoryFleet()
    for text in texts:
        fleet.apply(text)
    return fleet


def facts(fleet: InventoryFleet) -> list[object]:
    kept = (line.fact for line in fleet.journal())
    return [said(fact) for fact in kept if fact.kind is FactKind.INVENTORY_APPLIED]


def order_after(fleet: InventoryFleet, applying: Applying, commits: int, vm_name: str) -> None:
    """Order a restart of a VM as soon as so many commits were made."""
    made = len(fleet.commits) + commits

    def order() -> None:
        if len(fleet.commits) == made:
            fleet.order(vm_name, EventType.REBOOT)

    applying.writer.before = order


def at_random(chance: random.Random) -> str:
    hosts = ["h1", "h2", *chance.sample(["h3", "h4", "h5"], chance.randrange(4))]
    text = "".join(f'[[host]]\nname = "{host}"\n' for host in hosts)
    addresses = chance.sample(range(1, 30), 14)
    members: dict[str, str] = {}
    for number in chance.sample(range(14), chance.randrange(4, 14)):
        name = f"v{number}" if chance.random() < 0.9 else f"V{number}"
        where = chance.choice(["s0", "s1", "s2", "s3", "s4", "s5", None])
        keys = {"host": chance.choice(["h1", "h2"]), "address": f"192.0.2.{addresses.pop()}"}
        if where is None:
            text += alone(name, **keys)
        else:
            members[where] = members.get(where, "") + vm(
                name, scope=where, update_domain=chance.randrange(2), **keys
            )
    return text + "".join(scope(name) + vms for name, vms in members.items())


def refuse_what_may_not_be_between_commits(fleet: InventoryFleet) -> None:
    """No two VMs are known by the same channel, nor by names that differ in case only."""

    def look(_: Sequence[Change]) -> None:
        vms = [one for found in fleet.published.scopes.values() for one in found.vms]
        assert len({one.profile.address for one in vms}) == len(vms)
        assert len({one.name.casefold() for one in vms}) == len(vms)

    fleet.published.on_publish(look)
