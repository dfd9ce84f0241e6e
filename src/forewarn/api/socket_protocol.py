"""The operator's connection by the Unix socket: HTTP, and who the kernel says is asking."""

from __future__ import annotations

import asyncio

from forewarn.api.guarded_protocol import GuardedProtocol
from forewarn.api.peer_credentials import PEER_KEY, UNKNOWN, Peer, read_peer
from forewarn.logs import Log

log = Log(__name__)


class SocketProtocol(GuardedProtocol):
    """Puts the peer of the socket into the scope of every request. The gate decides."""

    _peer: Peer = UNKNOWN

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        try:
            self._peer = read_peer(transport.get_extra_info("socket"))
        except OSError as error:
            log.warning("peer_unknown", why=str(error))
        super().connection_made(transport)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope[PEER_KEY] = self._peer  # type: ignore[literal-required]
