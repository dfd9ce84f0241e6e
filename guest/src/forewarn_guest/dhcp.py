"""Asking a DHCP server for option 245 (D2 to D5). Needs root; takes no lease, changes nothing.

A DISCOVER is sent from every Ethernet interface that is up, at once. The firewall of the VM is
left as it is (the sample of D4 opens it): where it drops the answer, nothing is found.
"""

from __future__ import annotations

import errno
import selectors
import socket
import struct
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass

from forewarn_guest.http1 import Bell, Stopped
from forewarn_guest.leases import usable

CLIENT_PORT = 68
SERVER_PORT = 67
ANSWER_BYTES_MAX = 1500
INTERFACES_MAX = 16
QUERY_S = 8.0
# When to send, in seconds from the beginning. The first has the bytes of D3; the others ask for an
# answer by broadcast, for interfaces that the server's unicast does not reach.
SEND_AT_S = (0.0, 1.0, 3.0)

COOKIE = b"\x63\x82\x53\x63"
OPTIONS_AT = 0xF0
ANSWER_BYTES_MIN = 0xF6  # D5
_PAD, _ENDPOINT, _END = 0, 245, 255
_GET_FLAGS, _GET_ADDRESS = 0x8913, 0x8927  # SIOCGIFFLAGS and SIOCGIFHWADDR of Linux
_UP, _LOOPBACK, _ETHERNET = 0x1, 0x8, 1


@dataclass(frozen=True)
class Interface:
    """An interface that can be asked from."""

    name: str
    mac: bytes


@dataclass(frozen=True)
class LeaseAnswer:
    """The result of asking from one interface: an address, or why no address came."""

    interface: str
    address: str
    why: str


def interfaces() -> list[Interface]:
    """Ethernet interfaces that are up, by name. None where the system does not tell."""
    found = []
    for _, name in sorted(socket.if_nameindex(), key=lambda pair: pair[1]):
        try:
            flags, kind, mac = _look(name)
        except OSError:  # gone in this instant
            continue
        if flags & _UP and not flags & _LOOPBACK and kind == _ETHERNET and any(mac):
            found.append(Interface(name, mac))
    return found[:INTERFACES_MAX]


def _look(name: str) -> tuple[int, int, bytes]:
    """Flags, type and hardware address: from the kernel, since /sys may be another namespace's."""
    if sys.platform == "win32":
        return 0, 0, b""
    try:
        import fcntl  # noqa: PLC0415 - not on every system
    except ImportError:
        return 0, 0, b""
    request = struct.pack("16s24x", name.encode())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        flags = fcntl.ioctl(any_socket, _GET_FLAGS, request)
        address = fcntl.ioctl(any_socket, _GET_ADDRESS, request)
    (flag,) = struct.unpack_from("=H", flags, 16)
    (kind,) = struct.unpack_from("=H", address, 16)
    return flag, kind, address[18:24]


def discover_packet(xid: bytes, mac: bytes, *, broadcast: bool = False) -> bytes:
    """The 244 bytes of a DHCPDISCOVER (D3)."""
    flags = 0x8000 if broadcast else 0
    head = struct.pack(">BBBB4sHH", 1, 1, 6, 0, xid, 0, flags)
    return head.ljust(0x1C, b"\0") + mac.ljust(0xEC - 0x1C, b"\0") + COOKIE + b"\x35\x01\x01\xff"


def endpoint_in(packet: bytes, xid: bytes, mac: bytes) -> str | None:
    """The address in option 245 of an answer to that question; None if it is another's (D5).

    Empty if it is an answer without such an option.
    """
    if len(packet) < ANSWER_BYTES_MIN or packet[0] != 2 or packet[4:8] != xid:
        return None
    if packet[0x1C : 0x1C + 6] != mac or packet[0xEC:OPTIONS_AT] != COOKIE:
        return None
    at = OPTIONS_AT
    while at < len(packet) and packet[at] != _END:
        if packet[at] == _PAD:
            at += 1
            continue
        if at + 1 >= len(packet):
            break
        value = packet[at + 2 : at + 2 + packet[at + 1]]
        if packet[at] == _ENDPOINT:
            return usable(value)
        at += 2 + packet[at + 1]
    return ""


def ask(
    asked: list[Interface],
    xid: bytes,
    bell: Bell,
    *,
    seconds: float = QUERY_S,
) -> list[LeaseAnswer]:
    """Asks from every interface; ends with the first address, or after so many seconds.

    Returns the result of each interface, those with an address first. Never raises OSError: a
    result says what was not permitted. Raises Stopped if the bell rings.
    """
    heard: dict[str, LeaseAnswer] = {}
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        for interface in asked:
            try:
                opened = stack.enter_context(_socket(interface.name))
            except OSError as error:
                heard[interface.name] = LeaseAnswer(interface.name, "", _why(error))
                continue
            selector.register(opened, selectors.EVENT_READ, interface)
            heard[interface.name] = LeaseAnswer(interface.name, "", "no DHCP server answered")
        if selector.get_map():
            selector.register(bell.ear, selectors.EVENT_READ)
            _converse(selector, xid, seconds, heard)
    return sorted(heard.values(), key=lambda one: not one.address)


def _converse(
    selector: selectors.BaseSelector, xid: bytes, seconds: float, heard: dict[str, LeaseAnswer]
) -> None:
    clock = time.monotonic
    begin, sent = clock(), 0
    until = begin + seconds
    while clock() < until and not any(one.address for one in heard.values()):
        if sent < len(SEND_AT_S) and clock() >= begin + SEND_AT_S[sent]:
            for key in list(selector.get_map().values()):
                if key.data is not None:
                    _send(key, xid, heard, broadcast=sent > 0)
            sent += 1
        due = begin + SEND_AT_S[sent] if sent < len(SEND_AT_S) else until
        for key, _ in selector.select(max(min(due, until) - clock(), 0.0)):
            if key.data is None:
                raise Stopped
            interface: Interface = key.data
            packet = _receive(key, heard)
            address = endpoint_in(packet, xid, interface.mac)
            if address is not None:
                why = "" if address else "a DHCP server answered without option 245"
                heard[interface.name] = LeaseAnswer(interface.name, address, why)


def _socket(name: str) -> socket.socket:
    if sys.platform == "win32":  # `interfaces` finds none there
        raise OSError(errno.ENOTSUP, "a socket cannot be kept to one interface")
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        opened.settimeout(0.0)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, name.encode() + b"\0")
        opened.bind(("0.0.0.0", CLIENT_PORT))  # noqa: S104 - what DHCP asks for; one interface only
    except OSError:
        opened.close()
        raise
    return opened


def _send(
    key: selectors.SelectorKey, xid: bytes, heard: dict[str, LeaseAnswer], *, broadcast: bool
) -> None:
    interface: Interface = key.data
    packet = discover_packet(xid, interface.mac, broadcast=broadcast)
    opened = key.fileobj
    assert isinstance(opened, socket.socket)  # noqa: S101 - what was registered
    try:
        opened.sendto(packet, ("255.255.255.255", SERVER_PORT))
    except OSError as error:
        heard[interface.name] = LeaseAnswer(interface.name, "", _why(error))


def _receive(key: selectors.SelectorKey, heard: dict[str, LeaseAnswer]) -> bytes:
    opened = key.fileobj
    assert isinstance(opened, socket.socket)  # noqa: S101 - what was registered
    try:
        return opened.recv(ANSWER_BYTES_MAX)
    except OSError as error:
        interface: Interface = key.data
        heard[interface.name] = LeaseAnswer(interface.name, "", _why(error))
        return b""


def _why(error: OSError) -> str:
    if isinstance(error, PermissionError):
        return "asking a DHCP server is not permitted; root may"
    return f"cannot be asked from: {(error.strerror or str(error)).lower()}"
