"""Reading the addresses that people write: of a VM, and of what listens. One spelling of each.

Only text and the values it means live here; nothing is looked up or opened.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from urllib.parse import urlsplit

from forewarn.core.errors import Invalid

PORT_MAX = 65_535
LISTEN_TEXTS_KEPT = 256  # most VMs of a fleet that listen say the same: any port of loopback
LISTEN_ACCEPTED = (
    "ADDR:PORT, like 127.0.0.1:8080 or [::1]:8080, with a port from 0 to 65535 (0 takes a free one)"
)
ADDRESS_ACCEPTED = "the IP address that requests of one VM come from, like 192.0.2.7 or 2001:db8::7"


def read_address(text: str) -> str:
    """The address of one VM in its one spelling; IPv4 written as IPv6 is IPv4. Raises Invalid."""
    try:
        parsed = ip_address(text)
    except ValueError:
        raise Invalid(f"{text!r} is not an IP address.", f"Write {ADDRESS_ACCEPTED}.") from None
    if isinstance(parsed, IPv6Address):
        if parsed.scope_id is not None:
            raise Invalid(f"{text!r} names a zone.", "Write the address without `%` and the zone.")
        parsed = parsed.ipv4_mapped or parsed
    if parsed.is_unspecified or parsed.is_multicast or str(parsed) == "255.255.255.255":
        raise Invalid(f"No request can come from {text!r}.", f"Write {ADDRESS_ACCEPTED}.")
    return str(parsed)


@lru_cache(maxsize=LISTEN_TEXTS_KEPT)
def read_listen(text: str) -> tuple[str, int]:
    """`ADDR:PORT` as a pair; ADDR is an IP address (IPv6 in brackets) or localhost.

    Raises Invalid.
    """
    address, separator, port = text.rpartition(":")
    bracketed = address.startswith("[") and address.endswith("]")
    address = address[1:-1] if bracketed else address
    if not separator or not (port.isascii() and port.isdigit()) or int(port[:6]) > PORT_MAX:
        raise Invalid(f"{text!r} is no address to listen on.", f"Write {LISTEN_ACCEPTED}.")
    if address == "localhost" and not bracketed:
        return address, int(port)
    try:
        parsed = ip_address(address)
    except ValueError:
        parsed = None
    if parsed is None or (parsed.version == 6) != bracketed:
        raise Invalid(f"{text!r} is no address to listen on.", f"Write {LISTEN_ACCEPTED}.")
    return str(parsed), int(port)


def listen_text(address: str, port: int) -> str:
    """The pair of `read_listen` as text again, in its one spelling."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def is_loopback(address: str) -> bool:
    """True if only this machine can reach what listens on the address of a `read_listen`."""
    if address == "localhost":
        return True
    parsed = ip_address(address)
    if isinstance(parsed, IPv6Address):
        parsed = parsed.ipv4_mapped or parsed
    return parsed.is_loopback


def is_safe_url(text: str) -> bool:
    """True for https, and for http that stays on this machine; without user name and fragment."""
    if not text.isascii() or not text.isprintable() or " " in text or "\\" in text:
        return False
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:  # no port, or no IPv6 address
        return False
    if not host or port == 0 or "@" in parts.netloc or "#" in text:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and _names_this_machine(host))


def _names_this_machine(host: str) -> bool:
    try:
        return is_loopback(host)
    except ValueError:  # another name
        return False
