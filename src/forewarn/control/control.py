"""The front door of the control plane: submit a command, read what is committed.

Everything above (operator API, link, in-process hosts) holds one of these.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

from forewarn.control.hosts.liveness import Observed
from forewarn.control.hosts.turns import HostTurns
from forewarn.control.published_fleet import PublishedFleet
from forewarn.control.writer import Wanted
from forewarn.ports import Clock, Store

T = TypeVar("T")


class Submits(Protocol):
    """Who takes commands: a thread (`writer.WriterThread`), or a test in its own."""

    async def submit(self, command: Wanted[T]) -> T: ...


class Control:
    """Asynchronous access to the one writer, and the fleet as it was last committed.

    `clock` is what rules decide by, `lease_clock` what leases and heartbeats are counted on.
    """

    def __init__(
        self,
        *,
        writer: Submits,
        store: Store,
        clock: Clock,
        lease_clock: Clock,
        fleet: PublishedFleet,
        observed: Observed,
    ) -> None:
        self._writer = writer
        self.store = store
        self.clock = clock
        self.lease_clock = lease_clock
        self.fleet = fleet
        self.observed = observed
        self.turns = HostTurns(self)

    async def submit(self, command: Wanted[T]) -> T:
        """Run a command; its value comes back once everything it changed is durable.

        Raises the command's Refusal, or Unavailable when nothing can be kept now.
        """
        return await self._writer.submit(command)

    async def read(self, query: Callable[[Store], T]) -> T:
        """Read what is committed, ended things included, without stopping the event loop."""
        return await asyncio.to_thread(query, self.store)
