"""What guests have asked of the emulator, counted, so that tests can wait for it.

Counting only. A ring says that a count, or what a guest has read, has changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable

from forewarn.endpoint.routes import Ask
from forewarn.endpoint.service import Service


class RequestCounts:
    """How often each VM has asked. Belongs to the event loop; `ring` is called after each count.

    A request counts when it is whole, whatever it is answered: one that meets a fault counts too.
    """

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._counts: Counter[tuple[str, Ask]] = Counter()

    def asked(self, vm: str, ask: Ask) -> None:
        """The VM has sent such a request."""
        self._counts[vm, ask] += 1
        self._ring()

    def polls(self, vm: str) -> int:
        """How often the VM has asked for its document."""
        return self._counts[vm, Ask.POLL]

    def approvals(self, vm: str) -> int:
        """How often the VM has sent an approval, those without effect included."""
        return self._counts[vm, Ask.APPROVE]


class WatchedService:
    """`endpoint.service.Service` that rings when a guest has read something new.

    What a guest causes is answered when everything that follows has happened (`settle`).
    """

    def __init__(
        self, service: Service, ring: Callable[[], None], settle: Callable[[], Awaitable[None]]
    ) -> None:
        self._service = service
        self._ring = ring
        self._settle = settle

    async def approve(self, vm: str, event_ids: tuple[str, ...]) -> None:
        await self._service.approve(vm, event_ids)
        await self._settle()

    async def enable(self, scope: str, vm: str) -> None:
        await self._service.enable(scope, vm)
        await self._settle()

    def first_read(self, vm: str, scope: str, event_ids: frozenset[str]) -> None:
        self._service.first_read(vm, scope, event_ids)
        self._ring()

    def returned(self, vm: str) -> None:
        self._service.returned(vm)
