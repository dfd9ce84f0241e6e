"""Who has come to a port and has not yet shown who they are: counted, and the oldest goes first.

Only counting lives here: no sockets, no time.
"""

from __future__ import annotations

from collections.abc import Hashable
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Generic, TypeVar

from msgspec import Struct

T = TypeVar("T", bound=Hashable)

IPV6_SOURCE_BITS = 64  # one machine has all the addresses of such a network


class PortLimits(Struct, frozen=True, kw_only=True):
    """What a port holds open at once: `connections_max + handshakes_max` descriptors in all.

    A handshake is unfinished from accept until TLS knows the peer, and is counted by its source
    only for so long: many hosts may share an address.
    """

    connections_max: int
    handshakes_max: int = 512
    handshakes_of_source_max: int = 64
    handshake_timeout_s: float = 5.0  # a host gives up after three


class PendingHandshakes(Generic[T]):
    """Those whose handshake is under way, by source."""

    def __init__(self, limits: PortLimits) -> None:
        self._limits = limits
        self._by_source: dict[str, dict[T, None]] = {}
        self._sources: dict[T, str] = {}

    def __len__(self) -> int:
        return len(self._sources)

    def all(self) -> list[T]:
        """Every caller, by when it came."""
        return list(self._sources)

    def begin(self, who: T, source: str) -> T | None:
        """Count one more. Returns who has to go for it, None if there is room.

        Of a source with too many its oldest goes; of too many in all the oldest of the source that
        has most. A peer that means well is done after two round trips, so the oldest is not it.
        """
        self._sources[who] = source
        own = self._by_source.setdefault(source, {})
        own[who] = None
        if len(own) > self._limits.handshakes_of_source_max:
            return next(iter(own))
        if len(self._sources) > self._limits.handshakes_max:
            return self.oldest()
        return None

    def end(self, who: T) -> None:
        """It is finished, or gone. Saying so twice does no harm."""
        source = self._sources.pop(who, None)
        if source is None:
            return
        own = self._by_source[source]
        del own[who]
        if not own:
            del self._by_source[source]

    def oldest(self) -> T | None:
        """The first to come of the source that has most."""
        most = max(self._by_source.values(), key=len, default=None)
        return next(iter(most)) if most else None


def source_of(address: str) -> str:
    """What is counted as one source: an IPv4 address, or a network of IPv6 addresses."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address  # of a socket that has no addresses
    if isinstance(found, IPv4Address):
        return str(found)
    return _ipv6_source(found)


def _ipv6_source(address: IPv6Address) -> str:
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(IPv6Network((address, IPV6_SOURCE_BITS), strict=False))
