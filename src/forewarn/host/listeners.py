"""The sockets guests connect to: one that all share, and one for each VM that has its own.

Opening, closing and reporting addresses only. Who may ask is `identity`, what is answered is the
endpoint.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Mapping

from msgspec import Struct

from forewarn.core.addresses import read_listen
from forewarn.endpoint.endpoint import Endpoint
from forewarn.endpoint.limits import RECEIVE_BUFFER_BYTES
from forewarn.endpoint.registry import Guest
from forewarn.host.identity import Identity

LISTEN_BACKLOG = 4_096

_Connect = Callable[[], asyncio.Protocol]


class ListenFailed(Exception):  # noqa: N818 - says what is the case
    """A listener could not be opened; nothing was changed. The message says whose and why."""


def bound_reads(listening: socket.socket) -> None:
    """Let the kernel keep little of what is not read yet, for each connection to this socket.

    Otherwise it keeps megabytes of each, and hands over more at once than a turn should look at.
    """
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)


def cannot_listen(listen: str) -> str | None:
    """Why no listener can be opened there now; None if one can. Leaves nothing open."""
    address, port = read_listen(listen)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address, port))
    except OSError as error:
        return error.strerror or str(error)
    return None


class _Listener(Struct):
    """One open socket of one VM. `vm` may change: an address can be given to another VM."""

    vm: str
    identity: Identity
    server: asyncio.Server | None = None

    def identify(self, _transport: asyncio.BaseTransport) -> Guest | None:
        return self.identity.by_channel(self.vm)


class Listeners:
    """Every socket of the endpoint. All methods belong to the event loop's thread."""

    def __init__(
        self,
        endpoint: Endpoint,
        identity: Identity,
        *,
        kept: Mapping[str, socket.socket] | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._identity = identity
        self._kept = dict(kept or {})  # open sockets that were handed over, by VM
        self._shared: asyncio.Server | None = None
        self._own: dict[str, _Listener] = {}

    async def open_shared(self, listen: str) -> tuple[str, int]:
        """Open the listener that knows guests by source address; return where it really is."""
        if self._shared is not None:
            raise ListenFailed("The shared guest listener is open already. Close it first.")
        endpoint, identify = self._endpoint, self._identity.by_peer
        self._shared = await _open(
            "the shared guest listener", listen, lambda: endpoint.connection(identify)
        )
        return _where(self._shared)

    async def apply(self, wanted: Mapping[str, str]) -> None:
        """Have exactly these listeners: `ADDR:PORT` by the name of the VM.

        What is new is opened first; if that fails, ListenFailed is raised and nothing has changed.
        An address that another VM had changes hands without being closed.
        """
        by_key = _by_key(wanted)
        opened: dict[str, _Listener] = {}
        try:
            for key, (vm, listen) in by_key.items():
                if key not in self._own:
                    opened[key] = await self._open_own(vm, listen)
        except ListenFailed:
            for listener in opened.values():
                _stop(listener)
            raise
        for key in [key for key in self._own if key not in by_key]:
            listener = self._own.pop(key)
            self._cut(listener.vm)
            _stop(listener)
        self._own.update(opened)
        for key, (vm, _) in by_key.items():
            listener = self._own[key]
            if listener.vm != vm:
                self._cut(listener.vm)
                listener.vm = vm

    def shared_address(self) -> tuple[str, int] | None:
        """Where the shared listener really is; None if it is not open."""
        return None if self._shared is None else _where(self._shared)

    def addresses(self) -> dict[str, tuple[str, int]]:
        """Where each VM's own listener really is, by the name of the VM."""
        return {
            listener.vm: _where(listener.server)
            for listener in self._own.values()
            if listener.server is not None
        }

    def hand_over(self) -> dict[str, socket.socket]:
        """A second handle of each VM's own socket, for Listeners that follow these.

        A guest that connects while neither accepts waits, and is not refused.
        """
        return {
            listener.vm: socket.socket(fileno=os.dup(listener.server.sockets[0].fileno()))
            for listener in self._own.values()
            if listener.server is not None
        }

    async def close(self) -> None:
        """Close every socket. Open connections are the endpoint's to close."""
        while self._kept:
            self._kept.popitem()[1].close()
        for listener in self._own.values():
            _stop(listener)
        self._own.clear()
        if self._shared is not None:
            self._shared.close()
            self._shared = None
        await asyncio.sleep(0)  # the loop closes the sockets in its next turn

    async def _open_own(self, vm: str, listen: str) -> _Listener:
        listener = _Listener(vm, self._identity)
        endpoint, identify = self._endpoint, listener.identify
        kept = self._kept.pop(vm, None)
        if kept is not None:
            loop = asyncio.get_running_loop()
            listener.server = await loop.create_server(
                lambda: endpoint.connection(identify), sock=kept, backlog=LISTEN_BACKLOG
            )
            return listener
        listener.server = await _open(
            f"the listener of VM {vm}", listen, lambda: endpoint.connection(identify)
        )
        return listener

    def _cut(self, vm: str) -> None:
        guest = self._identity.guest(vm)
        if guest is not None:
            guest.cut()


def _by_key(wanted: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """The wanted listeners by address; with port 0, which is free for all, by VM."""
    by_key: dict[str, tuple[str, str]] = {}
    for vm, listen in wanted.items():
        address, port = read_listen(listen)
        key = f"{address} {port}" if port else f"{address} {vm}"
        if key in by_key:
            raise ListenFailed(
                f"VMs {by_key[key][0]} and {vm} both want to listen on {listen}."
                " Give each its own address or port."
            )
        by_key[key] = (vm, listen)
    return by_key


async def _open(whose: str, listen: str, connect: _Connect) -> asyncio.Server:
    address, port = read_listen(listen)
    loop = asyncio.get_running_loop()
    try:
        server = await loop.create_server(connect, address, port, backlog=LISTEN_BACKLOG)
    except OSError as error:
        # The event loop's own words repeat the address.
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        raise ListenFailed(
            f"Cannot open {whose} on {listen}: {reason}. Choose a free address and port."
        ) from error
    if not server.sockets:  # event loops pass over sockets that they cannot make
        server.close()
        raise ListenFailed(
            f"Cannot open {whose} on {listen}: no socket could be made. "
            "Allow the process more open files, or close connections."
        )
    for listening in server.sockets:
        bound_reads(listening)
    return server


def _where(server: asyncio.Server) -> tuple[str, int]:
    address, port = server.sockets[0].getsockname()[:2]
    return str(address), int(port)


def _stop(listener: _Listener) -> None:
    if listener.server is not None:
        listener.server.close()
        listener.server = None
