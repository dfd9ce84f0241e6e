"""Run on a hypervisor of the rig: says when a guest's POST arrives and when its domain is marked.

One line of JSON each, with the wall clock of the kernel: {"what": "post", "from": ADDRESS, "at": S}
and {"what": "mark", "vm": NAME, "at": S}. A mark is what the host daemon writes into a domain
first when it begins an action (docs/host/reference.md), as libvirt tells everybody who listens.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
import time

import libvirt

MARK = "urn:forewarn:action:1"
_ETH_P_ALL = 3
_SO_TIMESTAMPNS = 35
_IPV4 = 0x0800
_TCP = 6


def say(**words: object) -> None:
    print(json.dumps(words), flush=True)


def watch_marks() -> None:
    """Tell of every mark, for ever."""
    libvirt.virEventRegisterDefaultImpl()

    def run() -> None:
        while True:
            libvirt.virEventRunDefaultImpl()

    threading.Thread(target=run, daemon=True).start()
    connection = libvirt.open("qemu:///system")

    def changed(_: object, domain: libvirt.virDomain, _kind: int, uri: str, __: object) -> None:
        if uri == MARK:
            say(what="mark", vm=domain.name(), at=time.time())

    event = libvirt.VIR_DOMAIN_EVENT_ID_METADATA_CHANGE
    connection.domainEventRegisterAny(None, event, changed, None)
    watch_marks.connection = connection  # type: ignore[attr-defined] # else it is closed


def post_from(frame: bytes) -> str | None:
    """The address of the guest whose POST begins in a frame."""
    if len(frame) < 54 or struct.unpack_from("!H", frame, 12)[0] != _IPV4 or frame[23] != _TCP:
        return None
    begin = 14 + (frame[14] & 15) * 4
    begin += (frame[begin + 12] >> 4) * 4
    if not frame[begin:].startswith(b"POST /metadata/scheduledevents"):
        return None
    return socket.inet_ntoa(frame[26:30])


def main() -> None:
    """Listen until killed."""
    watch_marks()
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL)) as listening:
        listening.bind(("br0", _ETH_P_ALL))
        listening.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        say(what="ready")
        while True:
            frame, told, _, _ = listening.recvmsg(65_536, 64)
            sender = post_from(frame)
            if sender is not None:
                seconds, nanoseconds = struct.unpack("qq", told[0][2])
                say(what="post", **{"from": sender}, at=seconds + nanoseconds / 1e9)


if __name__ == "__main__":
    main()
