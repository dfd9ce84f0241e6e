"""The guests of a process that is control too: what they cause, told to control by their hosts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from forewarn.core.errors import NotFound
from forewarn.host.guest_proxy import (
    POLLS_SENT_EVERY_S,
    TRACES_SENT_EVERY_S,
    VM_POLLS_SENT_EVERY_S,
    GuestProxy,
)
from forewarn.host.identity import Identity
from forewarn.host.served_documents import Documents
from forewarn.logs import Log
from forewarn.ports import Clock, HostLink

log = Log(__name__)


class InProcessGuests:
    """What guests cause, told to control by the host that each of them is on.

    `endpoint.service.Service` for a process with many hosts. Belongs to the event loop. `say` has a
    host say its turn at once; `want_turn` has it do so soon.
    """

    def __init__(
        self,
        *,
        links: Callable[[str], HostLink],
        say: Callable[[str], Awaitable[None]],
        want_turn: Callable[[str], None],
        identity: Identity,
        documents: Documents,
        clock: Clock,
    ) -> None:
        self._links = links
        self._say = say
        self._want_turn = want_turn
        self._identity = identity
        self._documents = documents
        self._clock = clock
        self._guests: dict[str, GuestProxy] = {}
        self._queued: set[str] = set()  # hosts with something to tell
        self._dropped = 0  # of hosts that have left the fleet

    @property
    def dropped(self) -> int:
        """First reads and returns that were not kept."""
        return self._dropped + sum(guests.dropped for guests in self._guests.values())

    def forget(self, hosts: Iterable[str]) -> None:
        """These hosts have left the fleet: control believes nothing of them any more."""
        for host in hosts:
            guests = self._guests.pop(host, None)
            self._dropped += 0 if guests is None else guests.dropped + guests.reads_waiting
            self._queued.discard(host)

    def of_host(self, host: str) -> GuestProxy | None:
        """The guests of a host that have something to tell, or had."""
        return self._guests.get(host)

    async def approve(self, vm: str, event_ids: tuple[str, ...]) -> None:
        await self._of(vm).approve(vm, event_ids)

    async def enable(self, scope: str, vm: str) -> None:
        await self._of(vm).enable(scope, vm)

    def first_read(self, vm: str, scope: str, event_ids: frozenset[str]) -> None:
        guests = self._queueing(vm)
        if guests is not None:
            guests.first_read(vm, scope, event_ids)

    def returned(self, vm: str) -> None:
        guests = self._queueing(vm)
        if guests is not None:
            guests.returned(vm)

    async def send(self, *, polls: bool) -> None:
        """Tell what is gathered, with the last polls if wanted. Raises Unavailable, or Refusal."""
        if polls:
            self._gather_polls()
            self._gather_vm_polls()
        for host in self._waiting():
            await self._at(host).tell_all(partial(self._say, host))

    async def run(self) -> None:
        """Have it told until canceled. What cannot be kept now is told later."""
        loop = asyncio.get_running_loop()
        polls_at_s = loop.time() + POLLS_SENT_EVERY_S
        vm_polls_at_s = loop.time() + VM_POLLS_SENT_EVERY_S
        while True:
            await asyncio.sleep(TRACES_SENT_EVERY_S)
            if loop.time() >= vm_polls_at_s:
                vm_polls_at_s = loop.time() + VM_POLLS_SENT_EVERY_S
                self._gather_vm_polls()
            if loop.time() >= polls_at_s:
                polls_at_s = loop.time() + POLLS_SENT_EVERY_S
                self._gather_polls()
            for host in self._waiting():
                self._want_turn(host)

    def _waiting(self) -> list[str]:
        """The hosts with something left to tell."""
        told = {host for host in self._queued if not self._at(host).waiting}
        self._queued -= told
        return sorted(self._queued)

    def _gather_polls(self) -> None:
        for scope, polled_ms in self._documents.polled().items():
            host = self._documents.host_of(scope)
            if host is not None:
                self._queued.add(host)
                self._at(host).add_polls({scope: polled_ms})

    def _gather_vm_polls(self) -> None:
        for vm, polled_ms in self._documents.vm_polled().items():
            guests = self._queueing(vm)
            if guests is not None:
                guests.add_vm_polls({vm: polled_ms})

    def _of(self, vm: str) -> GuestProxy:
        guest = self._identity.guest(vm)
        if guest is None:
            raise NotFound(f"There is no VM {vm}.", "It has left since it asked.")
        return self._at(guest.vm.host)

    def _queueing(self, vm: str) -> GuestProxy | None:
        """Who sends what this VM did in passing; None if it has left since."""
        guest = self._identity.guest(vm)
        if guest is None:
            return None
        self._queued.add(guest.vm.host)
        return self._at(guest.vm.host)

    def _at(self, host: str) -> GuestProxy:
        known = self._guests.get(host)
        if known is None:
            known = self._guests[host] = GuestProxy(
                self._links(host),
                polled=dict,
                now_ms=self._clock.now_ms,
                monotonic_ms=self._clock.monotonic_ms,
            )
        return known
