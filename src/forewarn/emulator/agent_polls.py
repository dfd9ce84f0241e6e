"""Whether the agents of a scope keep polling, in real time, while the clock is turned.

A clock that is turned by a day takes milliseconds, in which no agent polls. The pacer stops just
before a scope falls silent and lets its agents have their say. Real time only: seconds of the event
loop. Nothing here knows of events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable

from msgspec import Struct

from forewarn.doorbell import rung
from forewarn.endpoint.registry import Guest

# How long an agent is waited for since its last poll: some of its usual gaps, within limits.
GAPS_WAITED = 3
WAITED_S_MIN = 2.0  # also for an agent that has polled once only
WAITED_S_MAX = 30.0


class _Pace(Struct):
    """When a VM last polled, and how long after its poll before; in seconds of the event loop."""

    last_s: float
    gap_s: float = 0.0

    @property
    def until_s(self) -> float:
        """Until when an agent that still runs is expected to have polled again."""
        return self.last_s + min(max(self.gap_s * GAPS_WAITED, WAITED_S_MIN), WAITED_S_MAX)


class AgentPolls:
    """Belongs to the event loop. `guests` gives the VMs of a scope that can read."""

    def __init__(self, guests: Callable[[str], Iterable[Guest]], now_ms: Callable[[], int]) -> None:
        self._guests = guests
        self._now_ms = now_ms
        self._paces: dict[str, _Pace] = {}
        self._ring = asyncio.Event()

    def polled(self, vm: str) -> None:
        """The VM polls now."""
        now_s = asyncio.get_running_loop().time()
        pace = self._paces.get(vm)
        self._paces[vm] = _Pace(now_s, 0.0 if pace is None else now_s - pace.last_s)
        self._ring.set()

    async def wait(self, scopes: Collection[str]) -> None:
        """Wait until each scope was polled at what the clock shows now, or its agents are late."""
        loop = asyncio.get_running_loop()
        while True:
            self._ring.clear()
            until_s = max(
                (self._until_s(scope) for scope in scopes if not self._has_polled(scope)),
                default=0.0,
            )
            left_s = until_s - loop.time()
            if left_s <= 0:
                return
            await rung(self._ring, left_s)

    def count_as_polled(self, scopes: Collection[str]) -> None:
        """These scopes count as polled now, each by one VM that has polled before."""
        for scope in scopes:
            for guest in self._guests(scope):
                if guest.vm.name in self._paces:
                    guest.polled_ms = self._now_ms()
                    break

    def _has_polled(self, scope: str) -> bool:
        now_ms = self._now_ms()
        return any(guest.polled_ms >= now_ms for guest in self._guests(scope))

    def _until_s(self, scope: str) -> float:
        paces = (self._paces.get(guest.vm.name) for guest in self._guests(scope))
        return max((pace.until_s for pace in paces if pace is not None), default=0.0)
