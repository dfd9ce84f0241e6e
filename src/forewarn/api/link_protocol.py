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
CERTIFICATE_KEY = "forewarn.certificate"  # in the scope of a request: DER, or None


class LinkProtocol(GuardedProtocol):
    """Puts what TLS has checked of the peer into the scope of every request."""

    connections_max = LINK_CONNECTIONS_MAX
    _certificate: bytes | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        spoken: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        if spoken is not None:
            self._certificate = spoken.getpeercert(binary_form=True)
        super().connection_made(transport)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope[CERTIFICATE_KEY] = self._certificate  # type: ignore[literal-required]
