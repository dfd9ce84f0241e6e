"""A host's connection: HTTP as uvicorn speaks it, and the certificate that the peer has shown.

uvicorn tells an application nothing of TLS; who asks is in the certificate and nowhere else.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from forewarn.api.guarded_protocol import GuardedProtocol

if TYPE_CHECKING:
    import ssl

LINK_CONNECTIONS_MAX = 8_192  # some for each host of a large fleet
PEER_CONNECTIONS_MAX = 128  # of one host; its daemon has some two dozen, twice while it renews
STRANGERS_MAX = 128  # connections without a certificate: machines that join, and nobody else
CERTIFICATE_KEY = "forewarn.certificate"  # in the scope of a request: DER, or None


class LinkProtocol(GuardedProtocol):
    """Puts what TLS has checked of the peer into the scope of every request.

    However many strangers come, or however often one host does, they leave room for the others.
    """

    connections_max = LINK_CONNECTIONS_MAX
    peer_connections_max = PEER_CONNECTIONS_MAX
    strangers_max = STRANGERS_MAX
    _certificate: bytes | None = None
    peer: object = None  # who the certificate is for; a renewed one is for the same

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        spoken: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        if spoken is not None:
            self._certificate = spoken.getpeercert(binary_form=True)
            self.peer = (spoken.getpeercert() or {}).get("subject")
        super().connection_made(transport)
        limit = self.strangers_max if self.peer is None else self.peer_connections_max
        if self._of_this_peer() > limit:
            transport.abort()

    def _of_this_peer(self) -> int:
        """How many connections are of the same host; all who have shown no certificate are one."""
        others: set[asyncio.Protocol] = self.connections  # type: ignore[assignment]
        return sum(isinstance(one, LinkProtocol) and one.peer == self.peer for one in others)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope[CERTIFICATE_KEY] = self._certificate  # type: ignore[literal-required]

    def shutdown(self) -> None:
        """The service stops. Who waits for no answer is cut off: saying goodbye over TLS takes two,
        and a host that does not read would hold up the stop."""
        if self.cycle is None or self.cycle.response_complete:  # type: ignore[redundant-expr]
            self.transport.abort()
        else:
            super().shutdown()
