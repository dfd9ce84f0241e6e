"""Wakes those who wait for the journal to grow. A ring says "look again" and carries nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Doorbell:
    """Rung after every commit. A reader that misses a ring looks again a little later by itself."""

    def __init__(self) -> None:
        self._next = asyncio.Event()
        self._ends: list[Callable[[], None]] = []
        self.closed = False

    def ring(self) -> None:
        """Wake every reader that waits now."""
        rung, self._next = self._next, asyncio.Event()
        rung.set()

    def close(self) -> None:
        """No reader waits any more, now or later: the service is stopping."""
        self.closed = True
        self.ring()
        for end in self._ends:
            end()

    def on_close(self, end: Callable[[], None]) -> None:
        """Also call this when the service stops."""
        self._ends.append(end)

    def next_ring(self) -> asyncio.Event:
        """Set by the next ring. Take it before you look, so that no ring falls in between."""
        return self._next
