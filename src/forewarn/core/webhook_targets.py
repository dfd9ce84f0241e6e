"""Which places a webhook may send to. Pure: the client looks addresses up, and tells them.

By default every place with TLS and a public address. What is nearer has to be listed
(`webhook_targets`): a name lets it be a private address and plain HTTP, an address or network lets
it be that whatever it is. A name alone never leads to this machine or its neighbours on the link:
the owner of the name could turn it there, to our own endpoint at 169.254.169.254.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from urllib.parse import urlsplit

from msgspec import Struct

from forewarn.core.errors import Invalid

URL_CHARS_MAX = 2_000
_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NAME = re.compile(rf"(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*\.?")
_PORTS = {"https": 443, "http": 80}
# Addresses that carry an IPv4 address in their last bits: what counts is that one.
_NAT64 = IPv6Network("64:ff9b::/96")

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


class WebhookTargets(Struct, frozen=True):
    """What is listed: names in lower case, and networks."""

    names: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()

    def lists_name(self, host: str) -> bool:
        return _plain(host) in self.names

    def lists_address(self, address: Address) -> bool:
        return any(address.version == n.version and address in n for n in self.networks)


class Place(Struct, frozen=True, kw_only=True):
    """A URL, taken apart. `host` is a name or an address without brackets."""

    tls: bool
    host: str
    port: int
    path: str  # with the query
    authority: str  # as the Host header says it


def read_target(text: str) -> str:
    """A listed place in its one spelling. Raises ValueError."""
    network = _network(text)
    if network is not None:
        return str(network)
    if not _NAME.fullmatch(text) or _like_a_number(text):
        raise ValueError(text)
    return _plain(text)


def targets_of(listed: Iterable[str]) -> WebhookTargets:
    """What texts of `read_target` list."""
    texts = tuple(listed)
    networks = tuple(found for found in map(_network, texts) if found is not None)
    return WebhookTargets(frozenset(one for one in texts if _network(one) is None), networks)


def read_url(text: str) -> Place:
    """Where a URL leads. Raises Invalid."""
    accepted = "An address like https://hooks.example.com/forewarn would be accepted."
    if len(text) > URL_CHARS_MAX or not text.isascii() or not text.isprintable() or " " in text:
        raise Invalid("This is no URL that can be sent to.", accepted)
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError:  # no port, or no IPv6 address
        raise Invalid("This is no URL that can be sent to.", accepted) from None
    if parts.scheme not in _PORTS or port == 0 or "\\" in text:
        raise Invalid("This is no URL that can be sent to.", accepted)
    if "@" in parts.netloc:
        raise Invalid("The URL has a user name or password.", accepted)
    if "#" in text:
        raise Invalid("The URL has a fragment (#), which is never sent.", accepted)
    address = _address(host)
    if address is None and (not _NAME.fullmatch(host) or _like_a_number(host)):
        raise Invalid("The URL has no host name or address.", accepted)
    tls, named = parts.scheme == "https", f"[{host}]" if ":" in host else host
    shown_port = "" if port in (None, _PORTS[parts.scheme]) else f":{port}"
    query = f"?{parts.query}" if parts.query else ""
    return Place(
        tls=tls,
        host=host,
        port=port or _PORTS[parts.scheme],
        path=f"{parts.path or '/'}{query}",
        authority=f"{named}{shown_port}",
    )


def refuse_place(place: Place, targets: WebhookTargets) -> None:
    """Raises Invalid for what the URL alone says may not be. Its addresses are looked at later."""
    address = _address(place.host)
    if not place.tls:
        listed = targets.lists_name(place.host) if address is None else _listed(address, targets)
        if not listed:
            raise Invalid(
                f"The URL of {place.host} is not https.",
                "Use https, or list the host in the setting webhook_targets.",
            )
    why = "" if address is None else why_not(place.host, place, targets, own=False)
    if why:
        raise Invalid(f"A webhook may not send to {place.host}: {why}.", _REMEDY)


_REMEDY = "List it in the setting webhook_targets if it is meant, and start the service again."


def why_not(found: str, place: Place, targets: WebhookTargets, *, own: bool) -> str:
    """Why nothing is sent to an address that the place has; empty if it may be.

    `own`: it is an address of this machine.
    """
    address = _meant(ip_address(found.partition("%")[0]))
    if _listed(address, targets):
        return ""
    kind = _near(address, own=own)
    if kind:
        return f"{address} is {kind}"
    if address.is_global or targets.lists_name(place.host):
        return ""
    return f"{address} is a private address"


def _near(address: Address, *, own: bool) -> str:
    """What a name alone never leads to."""
    if address.is_loopback:
        return "a loopback address"
    if address.is_link_local:
        return "a link-local address"
    if address.is_multicast:
        return "a multicast address"
    if address.is_unspecified:
        return "no address of any machine"
    if address.is_reserved:
        return "a reserved address"
    return "an address of this machine" if own else ""


def _listed(address: Address, targets: WebhookTargets) -> bool:
    return targets.lists_address(_meant(address))


def _meant(address: Address) -> Address:
    """The IPv4 address that an IPv6 address stands for, if it does."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    teredo = address.teredo
    return address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo else address)


def _address(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _network(text: str) -> Network | None:
    try:
        return ip_network(text)
    except ValueError:
        return None


def _like_a_number(host: str) -> bool:
    """Such names are addresses to many programs: 127.1, 2130706433, 0x7f000001."""
    last = _plain(host).rpartition(".")[2]
    return last.isdigit() or bool(re.fullmatch(r"0[xX][0-9A-Fa-f]*", last))


def _plain(host: str) -> str:
    return host.lower().removesuffix(".")
