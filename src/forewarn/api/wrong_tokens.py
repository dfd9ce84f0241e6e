"""How many wrong tokens one address may show: beyond that the answer is 429, for a while.

A right token is let in all the same, so that no stranger behind the same proxy shuts an operator
out. A secret has 200 bits; the limit saves work and the journal, it does not keep the secret.
"""

from __future__ import annotations

import ipaddress
import math
from collections import OrderedDict

WRONG_TOKENS_AT_ONCE = 20
WRONG_TOKENS_EVERY_S = 3.0  # one more each so often
ADDRESSES_MAX = 10_000  # the one that was heard longest ago is forgotten first
_V6_NETWORK_BITS = 64  # what one customer has


class WrongTokens:
    """Counts wrong tokens by address. Belongs to the event loop."""

    def __init__(self) -> None:
        # By address: when all of its wrong tokens are forgiven.
        self._forgiven_s: OrderedDict[str, float] = OrderedDict()

    def shown(self, address: str, now_s: float) -> int | None:
        """One more was shown. None if that is within the limit, else in how many seconds to ask."""
        source = network_of(address)
        forgiven_s = max(self._forgiven_s.pop(source, 0.0), now_s)
        over_s = forgiven_s - now_s - (WRONG_TOKENS_AT_ONCE - 1) * WRONG_TOKENS_EVERY_S
        if over_s <= 0:
            forgiven_s += WRONG_TOKENS_EVERY_S
        self._forgiven_s[source] = forgiven_s
        while len(self._forgiven_s) > ADDRESSES_MAX:
            self._forgiven_s.popitem(last=False)
        return math.ceil(over_s) if over_s > 0 else None


def network_of(address: str) -> str:
    """What counts as one caller: an IPv4 address, or the network of an IPv6 address."""
    try:
        known = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(known, ipaddress.IPv4Address):
        return str(known)
    if known.ipv4_mapped is not None:
        return str(known.ipv4_mapped)
    return str(ipaddress.ip_network((known, _V6_NETWORK_BITS), strict=False))
