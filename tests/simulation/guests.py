"""The guests of the simulated world: what a VM asks of the daemon of the host that it is on.

It does what the endpoint does for a poll and an approval, step by step, without sockets.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from forewarn.core.errors import Refusal, Unavailable
from forewarn.endpoint.registry import Guest
from forewarn.wire.api_versions import NEWEST
from simulation.hosts import Daemon

if TYPE_CHECKING:
    from simulation.world import SimulationWorld


class Guests:
    """Everybody who asks."""

    def __init__(self, world: SimulationWorld) -> None:
        self._world = world

    def _at(self, vm: str) -> tuple[Daemon, Guest] | None:
        """The daemon that a VM reaches, and who it is there; None if it gets no answer."""
        world = self._world
        if not world.hypervisor.inner.runs(vm):
            return None
        host = world.hosts.get(world.hypervisor.inner.where(vm) or "")
        daemon = host.daemon if host is not None else None
        if daemon is None or not daemon.serving:
            return None
        guest = daemon.identity.by_name(vm)
        return None if guest is None else (daemon, guest)

    def poll(self, vm: str) -> dict[str, Any] | None:
        """What a GET by this VM answers; None if it gets no answer."""
        found = self._at(vm)
        if found is None:
            return None
        daemon, guest = found
        guest.polled_ms = daemon.now_ms()
        if guest.expected:
            guest.expected = False
            daemon.guests.returned(vm)
        if not guest.page.enabled:
            daemon.tasks.begin(("enable", guest.page.name), lambda: _enable(daemon, guest))
            if not guest.page.enabled:
                return None
        document = guest.page.documents[NEWEST.name]
        new = guest.read(document)
        if new:
            daemon.guests.first_read(vm, guest.page.name, new)
        text = document.body.decode()
        told: dict[str, Any] = json.loads(text)
        self._world.judge.read(vm, told["DocumentIncarnation"], text.partition(",")[2], told)
        return told

    def approve(self, vm: str, event_id: str) -> None:
        """A POST by this VM. What it is answered, the judge is told when it is."""
        found = self._at(vm)
        if found is None:
            return
        self._world.judge.may_be_approved(event_id)
        daemon = found[0]
        daemon.tasks.begin(("approve", vm, event_id), lambda: self._approve(daemon, vm, event_id))

    async def _approve(self, daemon: Daemon, vm: str, event_id: str) -> None:
        try:
            await daemon.guests.approve(vm, (event_id,))
        except (Refusal, Unavailable) as why:
            self._world.say(f"  {vm} approves {event_id}: {why}")
            return
        self._world.say(f"  {vm} approves {event_id}: ok")
        self._world.judge.approved(event_id)

    def intrude(self, vm: str, event_id: str) -> None:
        """A POST by a VM of another scope."""
        found = self._at(vm)
        if found is not None:
            daemon = found[0]
            key = ("intrude", vm, event_id)
            daemon.tasks.begin(key, lambda: self._intrude(daemon, vm, event_id))

    async def _intrude(self, daemon: Daemon, vm: str, event_id: str) -> None:
        try:
            await daemon.guests.approve(vm, (event_id,))
        except (Refusal, Unavailable):
            return
        self._world.judge.intruded(vm, event_id)


async def _enable(daemon: Daemon, guest: Guest) -> None:
    page = guest.page
    try:
        await daemon.guests.enable(page.name, guest.name)
    except Unavailable:
        return
    page.enabled = True
