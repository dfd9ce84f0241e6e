"""Who must not ask for a VM: web pages in a browser inside it, and proxies in front of others.

A caller that reaches the endpoint from a VM is that VM, so a page that a browser opens there could
read and approve in its name. A browser says that it asks for a page (Origin, Sec-Fetch-Site), and
it says the name that it looked up (Host): a name that leads to one address now and to another
later (DNS rebinding) makes the endpoint look like a part of the page's own site.

`refuse` is a function of the head alone and is asked before anything else is decided. It never
looks at Sec-Fetch-Mode: the fetch of Node.js sends it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv6Address

from forewarn.endpoint.http_parser import Head
from forewarn.wire import problems

# What proxies add. Who asks is known from the channel alone, and a proxy's channel is its own.
_FORWARDING = {name.lower(): name for name in ("X-Forwarded-For", "Forwarded", "X-Real-IP", "Via")}
# The one value that no page can cause: a person typed the address, or opened a bookmark.
_NO_SITE = "none"

_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)(.*)", re.DOTALL)
_HOST = re.compile(r"(\[[^\[\]]*\]|[^\[\]:]+)(?::[0-9]{0,5})?")
_BYTE = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = re.compile(rf"{_BYTE}(?:\.{_BYTE}){{3}}")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_ZONE = re.compile(r"[A-Za-z0-9._~-]{1,64}")


def known_names(names: Iterable[str]) -> frozenset[str]:
    """Names as they are compared: without case, and without the dot that may end them."""
    return frozenset(name.lower().removesuffix(".") for name in names)


def refuse(head: Head, names: frozenset[str]) -> None:
    """Raise GuestProblem unless a program of the VM may have sent this itself.

    `names` are those of `guest_names`, as `known_names` gives them.
    """
    headers = head.headers
    for name, written in _FORWARDING.items():
        if name in headers:
            raise problems.forwarded(written)
    if "origin" in headers:
        raise problems.web_page("Origin")
    if headers.get("sec-fetch-site", _NO_SITE) != _NO_SITE:
        raise problems.web_page("Sec-Fetch-Site")
    if len(head.hosts) != 1 and (head.hosts or not head.http_1_0):
        raise problems.not_one_host(len(head.hosts))
    authority, _ = split_target(head.target)
    # A server believes the target more than Host (RFC 9112, 3.2.2). Here both must be good.
    for host in head.hosts if authority is None else (*head.hosts, authority):
        if not host_accepted(host, names):
            raise problems.unknown_host(host)


def host_accepted(host: str, names: frozenset[str]) -> bool:
    """Whether no site of the web can have this Host, or the operator has named it.

    An IP address is looked up nowhere; `localhost` and a name without a dot are looked up on the
    VM's own network. A name of several labels belongs to the owner of its domain.
    """
    if not host:
        return True
    shape = _HOST.fullmatch(host)
    if shape is None:
        return False
    name = shape[1].lower()
    if name.startswith("["):
        return _is_ipv6(name[1:-1])
    if _IPV4.fullmatch(name) or _LABEL.fullmatch(name):
        return True
    # A dot at the end says that the name is whole; `web.` would be a top-level domain.
    whole = name.removesuffix(".")
    return whole == "localhost" or whole in names


def split_target(target: str) -> tuple[str | None, str]:
    """The authority of a target in absolute form, else None, and the rest of the target."""
    absolute = None if target.startswith("/") else _ABSOLUTE.fullmatch(target)
    if absolute is None:
        return None, target
    rest = absolute[2]
    return absolute[1], rest if rest.startswith("/") else f"/{rest}"


def _is_ipv6(text: str) -> bool:
    """An IPv6 address, also with a zone: `fe80::1%eth0`, or `%25eth0` as URLs write it."""
    address, percent, zone = text.partition("%")
    if percent and not _ZONE.fullmatch(zone):
        return False
    try:
        IPv6Address(address)
    except ValueError:
        return False
    return True
