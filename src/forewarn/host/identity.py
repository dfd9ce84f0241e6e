"""Who is asking: the channel a request came by, turned into a guest. Nothing in a request counts.

A guest is known by its source address on the shared listener, or by the listener that is its own.
Whoever is not known is None, and the endpoint tells it nothing (P7).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from ipaddress import IPv6Address, ip_address

from forewarn.core.errors import Invalid
from forewarn.core.machines import SeenVm
from forewarn.endpoint.pages import Guest

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
    """The guests by source address and by name. `host.documents` keeps it up to date."""

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
        """Nothing means this guest any more. What has become another's by now stays so."""
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

    def by_name(self, vm: str) -> Guest | None:
        """Who a VM's own listener answers."""
        return self._by_name.get(vm)

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


class WitnessedIdentity(Identity):
    """Knows a guest by name only if the VM that is seen by that name is the one that is meant.

    Two hosts may each have a VM of one name; control takes one of them into the fleet. The other
    must not read its document, nor approve for it, whoever gave it that name.
    """

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[str, str] = {}

    def witness(self, seen: Iterable[SeenVm]) -> None:
        """These VMs are on this host now. Who is no longer who it was is cut off."""
        before, self._seen = self._seen, {vm.name: vm.vm_id.casefold() for vm in seen}
        for name, vm_id in before.items():
            if self._seen.get(name) != vm_id:
                guest = super().by_name(name)
                if guest is not None:
                    guest.cut()

    def by_name(self, vm: str) -> Guest | None:
        guest = super().by_name(vm)
        if guest is None or self._seen.get(vm) != guest.vm.vm_id.casefold():
            return None
        return guest
