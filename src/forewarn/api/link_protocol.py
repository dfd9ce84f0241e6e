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
STRANGERS_MAX = 128  # connections without a certificate: machines that join, and nobody else
CERTIFICATE_KEY = "forewarn.certificate"  # in the scope of a request: DER, or None


class LinkProtocol(GuardedProtocol):
    """Puts what TLS has checked of the peer into the scope of every request.

    However many strangers come, they leave room for hosts.
    """

    connections_max = LINK_CONNECTIONS_MAX
    strangers_max = STRANGERS_MAX
    _certificate: bytes | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        spoken: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        if spoken is not None:
            self._certificate = spoken.getpeercert(binary_form=True)
        super().connection_made(transport)
        if self._certificate is None and self._strangers() > self.strangers_max:
            transport.abort()

    def _strangers(self) -> int:
        others: set[asyncio.Protocol] = self.connections  # type: ignore[assignment]
        return sum(isinstance(one, LinkProtocol) and one.is_stranger for one in others)

    @property
    def is_stranger(self) -> bool:
        """True if the peer has shown no certificate."""
        return self._certificate is None

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
