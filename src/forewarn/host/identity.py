"""Who is asking: the channel a request came by, turned into a guest. Nothing in a request counts.

A guest is known by its source address on the shared listener, or by the listener that is its own.
For a caller that is not known there is no guest, and the endpoint tells it nothing (P7).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from ipaddress import IPv6Address, ip_address
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from forewarn.core.errors import Invalid
from forewarn.core.inventory.host_report import Power, SeenVm
from forewarn.endpoint.registry import Guest, NotYet

_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4 = re.compile(rf"(?:{_OCTET}\.){{3}}{_OCTET}")


def plain_address(address: str) -> str:
    """One spelling per address: IPv4 in IPv6 is IPv4, a zone (`%eth0`) does not count.

    Raises Invalid for what is no address.
    """
    if _IPV4.fullmatch(address):  # nearly all, and each takes microseconds the other way
        return address
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        raise Invalid(
            f"{address!r} is not an IP address.", "Write one like 192.0.2.7 or 2001:db8::7."
        ) from None
    mapped = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
    return str(mapped or parsed)


class Identity:
    """The guests by source address and by name. `host.served_documents` keeps it up to date."""

    def __init__(self) -> None:
        self._by_address: dict[str, Guest] = {}
        self._by_name: dict[str, Guest] = {}

    def learn(self, guest: Guest) -> None:
        """From now on the guest's name, and its address if it has one, mean this guest.

        An address that another guest had until now changes hands: that guest is cut off, so that
        no open connection keeps answering for it.
        """
        self._by_name[guest.name] = guest
        if guest.vm.address is None:
            return
        address = plain_address(guest.vm.address)
        before = self._by_address.get(address)
        if before is not None and before is not guest:
            before.cut()
        self._by_address[address] = guest

    def forget(self, guest: Guest) -> None:
        """Name and address no longer mean this guest. If one means another by now, it stays so."""
        if self._by_name.get(guest.name) is guest:
            del self._by_name[guest.name]
        self.forget_address(guest)

    def forget_address(self, guest: Guest) -> None:
        """The guest's address is no longer its own."""
        if guest.vm.address is None:
            return
        address = plain_address(guest.vm.address)
        if self._by_address.get(address) is guest:
            del self._by_address[address]

    def guest(self, vm: str) -> Guest | None:
        """The guest that the name means, whatever the channel."""
        return self._by_name.get(vm)

    def by_name(self, vm: str) -> Guest | None:
        """The guest that this VM's own channel answers; None if it answers no guest now."""
        return self.guest(vm)

    def by_channel(self, vm: str) -> Guest | None:
        """The same, for a request by that channel. Raises NotYet if it is to ask again soon."""
        return self.by_name(vm)

    def by_address(self, address: str) -> Guest | None:
        """Who has this source address."""
        guest = self._by_address.get(address)
        if guest is not None or ":" not in address:
            return guest
        return self._by_address.get(plain_address(address))

    def by_peer(self, transport: asyncio.BaseTransport) -> Guest | None:
        """Who is at the other end of a connection to the shared listener."""
        peer = transport.get_extra_info("peername")
        return None if not peer else self.by_address(peer[0])


class Following(Protocol):
    """Who asks control what to show: `host.feed_reader.FeedReader`.

    When it asked the last question whose answer is on show, by this machine's monotonic clock;
    None if there was none.
    """

    @property
    def asked_ms(self) -> int | None: ...

    def ask_now(self) -> None: ...


class _VmOnHost(Struct, frozen=True):
    """A VM that is on this host, and has been at each look since `came_ms`, or since the first.

    One that is on its way here is seen before it runs here: it does since `runs_ms`.
    """

    vm_id: str
    came_ms: int | None
    runs_ms: int | None


class WitnessedIdentity(Identity):
    """Knows a guest by name only if the VM that is seen by that name is the one that is meant.

    Two hosts may each have a VM of one name; control takes one of them into the fleet. The other
    must not read its document, nor approve for it, however it got that name.

    A VM that has just come may have read a newer document on another host than this one has: what
    is on show here counts for it only once control has answered a question that was asked since it
    runs here (I4). Until then it is told to ask again. VMs that were here at the first look, and
    that their document has here, are taken for never having left.
    """

    def __init__(
        self,
        host: str,
        *,
        feed_reader: Callable[[], Following],
        monotonic_ms: Callable[[], int],
    ) -> None:
        super().__init__()
        self._host = host
        self._feed_reader = feed_reader
        self._monotonic_ms = monotonic_ms
        self._seen: dict[str, _VmOnHost] | None = None

    def witness(self, seen: Iterable[SeenVm]) -> None:
        """These VMs are on this host now. Who is no longer who it was is cut off."""
        before, now_ms = self._seen, self._monotonic_ms()
        self._seen = {vm.name: self._looked(vm, before, now_ms) for vm in seen}
        for name, was in (before or {}).items():
            there = self._seen.get(name)
            if there is None or there.vm_id != was.vm_id:
                guest = self.guest(name)
                if guest is not None:
                    guest.cut()
        if self.waiting:
            self._feed_reader().ask_now()

    def _looked(self, vm: SeenVm, before: Mapping[str, _VmOnHost] | None, now_ms: int) -> _VmOnHost:
        vm_id = vm.vm_id.casefold()
        was = None if before is None else before.get(vm.name)
        if was is None or was.vm_id != vm_id:
            was = _VmOnHost(vm_id, came_ms=None if before is None else now_ms, runs_ms=None)
        if vm.power is Power.RUNNING:
            return was if was.runs_ms is not None else replace(was, runs_ms=now_ms)
        # One that ran here and is frozen now is still here; one that is off may start elsewhere.
        return was if vm.power is Power.PAUSED else replace(was, runs_ms=None)

    @property
    def waiting(self) -> int:
        """How many VMs that run here are told to ask again until control has answered."""
        return sum(
            seen.runs_ms is not None
            and (guest := self.guest(name)) is not None
            and guest.vm.vm_id.casefold() == seen.vm_id
            and not self._proved(guest, seen)
            for name, seen in (self._seen or {}).items()
        )

    def _proved(self, guest: Guest, seen: _VmOnHost) -> bool:
        """Whether the VM has surely read nothing newer elsewhere than what is on show here."""
        here = guest.vm.host == self._host
        if here and seen.came_ms is None:
            return True
        since_ms = seen.came_ms if seen.runs_ms is None and here else seen.runs_ms
        asked_ms = self._feed_reader().asked_ms
        return since_ms is not None and asked_ms is not None and asked_ms > since_ms

    def by_name(self, vm: str) -> Guest | None:
        try:
            return self.by_channel(vm)
        except NotYet:
            return None

    def by_channel(self, vm: str) -> Guest | None:
        guest, seen = self.guest(vm), (self._seen or {}).get(vm)
        if guest is None or seen is None or seen.vm_id != guest.vm.vm_id.casefold():
            return None
        if not self._proved(guest, seen):
            raise NotYet(guest)
        return guest
