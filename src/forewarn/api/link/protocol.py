"""A host's connection: HTTP as uvicorn speaks it, and the certificate that the peer has shown.

uvicorn tells an application nothing of TLS; who asks is in the certificate and nowhere else.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from forewarn.api.connection_limits import PortLimits
from forewarn.api.guarded_protocol import CONNECTIONS_MAX, GuardedProtocol
from forewarn.api.guarded_server import OPERATOR_HANDSHAKES_MAX
from forewarn.api.link.at_once import AT_ONCE_BYTES_MAX, AskedAtOnce, AtOnce

if TYPE_CHECKING:
    import ssl

LINK_CONNECTIONS_MAX = 4_096  # some for each host of a large fleet
HANDSHAKES_MAX = 512  # connections that have not finished TLS, of all sources together
PEER_CONNECTIONS_MAX = 128  # of one host; its daemon has some two dozen, twice while it renews
STRANGERS_MAX = 128  # connections without a certificate: machines that join, and no others
# Descriptors that the link leaves alone: every connection of operators, and what control itself has
# open (the database and its log, certificates, a backup on its way).
KEPT_FREE = CONNECTIONS_MAX + OPERATOR_HANDSHAKES_MAX + 128
LINK_DESCRIPTORS_MIN = 128
HANDSHAKES_SHARE = 4  # of the link's descriptors at most one in so many has no finished TLS
# A short question whose body has not come after so long goes the ordinary way, which limits that.
HELD_S = 1.0
# Of what one read brings, no more questions than this are answered at once: a peer that sends many
# without waiting for answers takes its turn with the others.
AT_ONCE_PER_READ_MAX = 8
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
    _at_once: AtOnce | None = None
    _held: bytearray | None = None  # the body, by now, of a question that may be answered at once
    _held_timer: asyncio.TimerHandle | None = None
    _answered_of_read = 0
    _between = True  # the parser is at the end of one message, or before the first
    _begun_of_read = 0
    _asked: AskedAtOnce | None = None  # the question that was answered at once last
    _same: tuple[bytes, AskedAtOnce] | None = None  # the last read that was one such question
    peer: object = None  # who the certificate is for; a renewed one is for the same

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        spoken: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        if spoken is not None:
            self._certificate = spoken.getpeercert(binary_form=True)
            self.peer = (spoken.getpeercert() or {}).get("subject")
        self.known = self.peer is not None
        if self.known:
            self._at_once = getattr(self.app, "at_once", None)
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
        self._between = False
        self._begun_of_read += 1
        super().on_message_begin()
        self.scope[CERTIFICATE_KEY] = self._certificate  # type: ignore[literal-required]

    # Questions that may be answered at once. Until all of one is there nothing is begun for it.

    def data_received(self, data: bytes) -> None:
        whole = self._between
        if whole and self._answered_again(data):
            return
        self._answered_of_read = self._begun_of_read = 0
        super().data_received(data)
        if whole and self._between and self._begun_of_read == self._answered_of_read == 1:
            self._same = None if self._asked is None else (data, self._asked)
        if self._held is not None and self._held_timer is None:
            self._held_timer = self.loop.call_later(HELD_S, self._begin)

    def _answered_again(self, data: bytes) -> bool:
        """Whether this is the last question once more, byte for byte, and is answered.

        A host at rest says the same every few seconds, and what it says is parsed once. Whether it
        is a member, and what is to be answered, is found out each time.
        """
        if self._same is None or self._same[0] != data or not self._takes_answers():
            return False
        return self._write_at_once(self._same[1])

    def on_headers_complete(self) -> None:
        if self._may_answer_at_once():
            self._stop_waiting()
            self._held = bytearray()
        else:
            super().on_headers_complete()

    def _may_answer_at_once(self) -> bool:
        """Whether it is a short question, whole by what it says, and the peer takes its answers."""
        if self._at_once is None or not self._at_once.knows(self.url):
            return False
        if self._answered_of_read >= AT_ONCE_PER_READ_MAX:
            return False
        if not self._takes_answers() or self.expect_100_continue:
            return False
        parser = self.parser
        if parser.get_method() != b"POST" or parser.get_http_version() != "1.1":
            return False
        if parser.should_upgrade() or not parser.should_keep_alive():
            return False
        lengths = [value for name, value in self.headers if name == b"content-length"]
        return len(lengths) == 1 and lengths[0].isdigit() and int(lengths[0]) <= AT_ONCE_BYTES_MAX

    def _takes_answers(self) -> bool:
        """Whether everything before is answered, and the peer reads."""
        answered = self.cycle is None or self.cycle.response_complete  # type: ignore[redundant-expr]
        return answered and not self.flow.write_paused

    def on_body(self, body: bytes) -> None:
        if self._held is None:
            super().on_body(body)
        else:
            self._held += body

    def on_message_complete(self) -> None:
        self._between = True
        if self._held is not None and not self._answered_at_once(bytes(self._held)):
            self._begin()
        if self._held is None:
            super().on_message_complete()
        self._hold_nothing()

    def _answered_at_once(self, body: bytes) -> bool:
        at_once = self._at_once
        self._asked = None if at_once is None else at_once.read(self.url, self.headers, body)
        return self._asked is not None and self._write_at_once(self._asked)

    def _write_at_once(self, asked: AskedAtOnce) -> bool:
        if self._at_once is None or self._certificate is None or self.transport.is_closing():
            return False
        answer = self._at_once.answer(asked, self._certificate)
        if answer is None:
            return False
        self._stop_waiting()
        self._answered_of_read += 1
        usual = (b"%b: %b\r\n" % one for one in self.server_state.default_headers)
        self.transport.write(b"HTTP/1.1 200 OK\r\n" + b"".join(usual) + answer)
        self.on_response_complete()
        return True

    def _begin(self) -> None:
        """What was held goes the ordinary way."""
        body = self._held
        self._hold_nothing()
        if body is not None:
            super().on_headers_complete()
            if body:
                super().on_body(bytes(body))

    def _hold_nothing(self) -> None:
        self._held = None
        if self._held_timer is not None:
            self._held_timer.cancel()
            self._held_timer = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._hold_nothing()
        super().connection_lost(exc)
