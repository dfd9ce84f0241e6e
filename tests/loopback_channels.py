"""Channels for VMs that are only simulated: a listener of its own for each, on loopback.

For tests, the bench and trying things out. Which VM asks is which listener it asked.
"""

from __future__ import annotations

from collections.abc import Sequence

from forewarn.core.inventory.host_report import Power, SeenVm
from forewarn.endpoint.endpoint import Endpoint
from forewarn.host.channels.plan import EVERYWHERE, ChannelProblem
from forewarn.host.identity import Identity
from forewarn.host.listeners import Listeners, ListenFailed

LISTEN = "127.0.0.1:0"


class LoopbackChannels:
    """One listener for each VM that runs. Belongs to the event loop."""

    def __init__(self, endpoint: Endpoint, identity: Identity) -> None:
        self._listeners = Listeners(endpoint, identity)

    async def arrange(self, seen: Sequence[SeenVm]) -> Sequence[ChannelProblem]:
        """Have a listener for each VM that runs; what could not be opened, in words."""
        running = [vm.name for vm in seen if vm.power is not Power.OFF]
        try:
            await self._listeners.apply(dict.fromkeys(running, LISTEN))
        except ListenFailed as failed:
            return [ChannelProblem(where=EVERYWHERE, words=str(failed), remedy="")]
        return []

    def addresses(self) -> dict[str, tuple[str, int]]:
        """Where each VM asks, by its name."""
        return self._listeners.addresses()

    async def close(self) -> None:
        await self._listeners.close()
