"""The listening sockets of the endpoint on one interface. Who asks is said by who opens them."""

from __future__ import annotations

import asyncio
import errno
import os
import socket

from forewarn.endpoint.endpoint import Endpoint
from forewarn.endpoint.protocol import Identify
from forewarn.host.channels.filter_rules import PORT
from forewarn.host.channels.plan import ENDPOINT_V4, ENDPOINT_V6, ChannelProblem
from forewarn.host.listeners import LISTEN_BACKLOG, bound_reads
from forewarn.ports import Interface

# Binds to the interface itself and not to whatever has its name. Not named by Python.
_SO_BINDTOIFINDEX = 62


class InterfaceListener:
    """169.254.169.254:80 and its IPv6 sibling on one interface, and on no other."""

    def __init__(self, interface: Interface) -> None:
        self.interface = interface
        self._servers: dict[int, asyncio.Server] = {}

    def lacks(self) -> list[socket.AddressFamily]:
        """The families that are not open yet."""
        return [f for f in (socket.AF_INET, socket.AF_INET6) if f not in self._servers]

    async def open(
        self, family: socket.AddressFamily, endpoint: Endpoint, identify: Identify
    ) -> ChannelProblem | None:
        """Open the listener of one family; what keeps it from that, if anything does."""
        loop = asyncio.get_running_loop()
        try:
            listening = _listening(self.interface, family)
        except OSError as error:
            return _problem(self.interface.name, family, error)
        self._servers[family] = await loop.create_server(
            lambda: endpoint.connection(identify), sock=listening, backlog=LISTEN_BACKLOG
        )
        return None

    def close(self) -> None:
        """Close them. Open connections are the endpoint's to close."""
        for server in self._servers.values():
            server.close()
        self._servers.clear()


def _listening(interface: Interface, family: socket.AddressFamily) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, _SO_BINDTOIFINDEX, interface.ifindex)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.bind((ENDPOINT_V6, PORT, 0, interface.ifindex))
        else:
            listening.bind((ENDPOINT_V4, PORT))
        bound_reads(listening)
        listening.listen(LISTEN_BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening


def _problem(name: str, family: socket.AddressFamily, error: OSError) -> ChannelProblem:
    address = f"[{ENDPOINT_V6}]" if family == socket.AF_INET6 else ENDPOINT_V4
    reason = os.strerror(error.errno) if error.errno else str(error)
    remedies = {
        errno.EADDRINUSE: f"Another program listens on port {PORT} of every address (`ss -ltnp"
        f" 'sport = :{PORT}'`); have it listen on addresses of its own.",
        errno.EACCES: "Run the daemon as root or with CAP_NET_BIND_SERVICE.",
        errno.EPERM: "Run the daemon as root or with CAP_NET_RAW.",
        errno.EMFILE: "Allow the process more open files.",
    }
    return ChannelProblem(
        where=name,
        words=f"Cannot listen on {address}:{PORT} of {name}: {reason}.",
        remedy=remedies.get(error.errno or 0, "It is tried again."),
    )
