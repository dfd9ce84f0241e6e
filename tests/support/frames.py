"""Frames as an attacker would write them, byte by byte. Nothing here sends or receives."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

BROADCAST = "ff:ff:ff:ff:ff:ff"
ARP, IPV4, IPV6 = 0x0806, 0x0800, 0x86DD
REQUEST, REPLY = 1, 2
SYN, ACK, PUSH = 0x02, 0x10, 0x08
# Loose source routing by one more stop: type, length, pointer, and the stop.
LOOSE_ROUTE = 0x83


def mac_bytes(mac: str) -> bytes:
    return bytes(int(part, 16) for part in mac.split(":"))


def ethernet(source: str, target: str, kind: int, inside: bytes, *, tags: int = 0) -> bytes:
    """A frame; with `tags` priority tags (VLAN 0) before what is inside."""
    tagged = struct.pack("!HH", 0x8100, 0) * tags
    return mac_bytes(target) + mac_bytes(source) + tagged + struct.pack("!H", kind) + inside


def arp(operation: int, *, claims: tuple[str, str], to: tuple[str, str]) -> bytes:
    """`claims` and `to` are pairs of IP and MAC address."""
    head = struct.pack("!HHBBH", 1, IPV4, 6, 4, operation)
    return head + b"".join(mac_bytes(mac) + socket.inet_aton(ip) for ip, mac in (claims, to))


def checksum(data: bytes) -> int:
    padded = data + b"\0" * (len(data) % 2)
    total: int = sum(struct.unpack(f"!{len(padded) // 2}H", padded))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


@dataclass(frozen=True)
class Segment:
    """A TCP segment over IPv4."""

    source: tuple[str, int]
    target: tuple[str, int]
    sequence: int = 1000
    acknowledged: int = 0
    flags: int = SYN
    data: bytes = b""
    options: bytes = b""  # of IP, a multiple of four

    def packet(self) -> bytes:
        tcp = self._tcp()
        length = 20 + len(self.options) + len(tcp)
        words = 5 + len(self.options) // 4
        head = struct.pack("!BBHHHBBH", 0x40 | words, 0, length, 1, 0, 64, socket.IPPROTO_TCP, 0)
        head += self._ends() + self.options
        return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + tcp

    def _ends(self) -> bytes:
        return socket.inet_aton(self.source[0]) + socket.inet_aton(self.target[0])

    def _tcp(self) -> bytes:
        head = struct.pack(
            "!HHIIBBHHH",
            self.source[1],
            self.target[1],
            self.sequence & 0xFFFFFFFF,
            self.acknowledged & 0xFFFFFFFF,
            0x50,
            self.flags,
            0xFFFF,
            0,
            0,
        )
        # The sum is over the addresses where the segment ends, after every stop of its route.
        end = socket.inet_aton(self.target[0])
        if self.options:
            end = self.options[3:7]
        ends = socket.inet_aton(self.source[0]) + end
        pseudo = ends + struct.pack("!BBH", 0, socket.IPPROTO_TCP, len(head) + len(self.data))
        whole = checksum(pseudo + head + self.data)
        return head[:16] + struct.pack("!H", whole) + head[18:] + self.data


def advert(claimed: str, mac: str, target: str) -> bytes:
    """An unasked neighbor advertisement from and for `claimed`, in IPv6."""
    source, to = (socket.inet_pton(socket.AF_INET6, one) for one in (claimed, target))
    option = struct.pack("!BB", 2, 1) + mac_bytes(mac)
    body = struct.pack("!BBHI", 136, 0, 0, 0x20000000) + source + option
    pseudo = source + to + struct.pack("!IBBBB", len(body), 0, 0, 0, socket.IPPROTO_ICMPV6)
    body = body[:2] + struct.pack("!H", checksum(pseudo + body)) + body[4:]
    head = struct.pack("!IHBB", 0x60000000, len(body), socket.IPPROTO_ICMPV6, 255)
    return head + source + to + body


@dataclass(frozen=True)
class Heard:
    """A TCP segment that was seen on a wire."""

    source: tuple[str, int]
    target: tuple[str, int]
    sequence: int
    acknowledged: int
    flags: int
    data: bytes


def heard(frame: bytes) -> Heard | None:
    """The TCP segment over IPv4 in a frame; None for anything else."""
    if len(frame) < 54 or struct.unpack("!H", frame[12:14])[0] != IPV4 or frame[23] != 6:
        return None
    at = 14 + (frame[14] & 15) * 4
    length = struct.unpack("!H", frame[16:18])[0]
    ports = struct.unpack("!HH", frame[at : at + 4])
    sequence, acknowledged = struct.unpack("!II", frame[at + 4 : at + 12])
    data = frame[at + (frame[at + 12] >> 4) * 4 : 14 + length]
    ends = (socket.inet_ntoa(frame[26:30]), socket.inet_ntoa(frame[30:34]))
    return Heard(
        (ends[0], ports[0]), (ends[1], ports[1]), sequence, acknowledged, frame[at + 13], data
    )
