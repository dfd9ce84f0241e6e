"""A host's connection: HTTP as uvicorn speaks it, and the certificate that the peer has shown.

uvicorn tells an application nothing of TLS; who asks is in the certificate and nowhere else.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from forewarn.api.crowds import PortLimits
from forewarn.api.guarded_protocol import CONNECTIONS_MAX, GuardedProtocol

if TYPE_CHECKING:
    import ssl

LINK_CONNECTIONS_MAX = 4_096  # some for each host of a large fleet
HANDSHAKES_MAX = 512  # connections that have not finished TLS, of all sources together
PEER_CONNECTIONS_MAX = 128  # of one host; its daemon has some two dozen, twice while it renews
STRANGERS_MAX = 128  # connections without a certificate: machines that join, and nobody else
# Descriptors that the link leaves alone: every connection of operators, and what control itself has
# open (the database and its log, certificates, a backup on its way).
KEPT_FREE = CONNECTIONS_MAX + 128
LINK_DESCRIPTORS_MIN = 128
HANDSHAKES_SHARE = 4  # of the link's descriptors at most one in so many has no finished TLS
CERTIFICATE_KEY = "forewarn.certificate"  # in the scope of a request: DER, or None


def link_limits(descriptors: int) -> PortLimits:
    """What the link's port may hold open in a process that may open so many descriptors."""
    room = max(descriptors - KEPT_FREE, LINK_DESCRIPTORS_MIN)
    handshakes = min(HANDSHAKES_MAX, room // HANDSHAKES_SHARE)
    return PortLimits(
        connections_max=min(LINK_CONNECTIONS_MAX, room - handshakes), handshakes_max=handshakes
    )


class LinkProtocol(GuardedProtocol):
    """Puts what TLS has checked of the peer into the scope of every request.

    However many strangers come, or however often one host does, they leave room for the others: of
    strangers beyond their limit the oldest is cut, of one host's connections the newest.
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
        self.known = self.peer is not None
        super().connection_made(transport)
        same = self._of_this_peer()
        if self.known and len(same) > self.peer_connections_max:
            self.cut()
        elif not self.known and len(same) > self.strangers_max:
            self._unknown_first(same).cut()

    def _of_this_peer(self) -> list[GuardedProtocol]:
        """The connections of the same host; all who have shown no certificate are one."""
        return [
            one for one in self._here() if isinstance(one, LinkProtocol) and one.peer == self.peer
        ]

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
