"""The operator API's side of a connection: HTTP as uvicorn speaks it, with limits that it lacks.

Only who may keep a connection open lives here; what is answered is Starlette's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import count

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_TIMEOUT_S = 10.0  # from the first wait for a request to the end of its head
HEAD_BYTES_MAX = 16 * 1_024  # of a request line and headers; ours have a few hundred
WRITE_TIMEOUT_S = 60.0  # for a caller to take anything of the answer that waits for it
CONNECTIONS_MAX = 384  # 224 readers of the feed, 96 tabs of the console, and who asks beside them
# In the scope of a request: what to call once its sender has shown who it is.
KNOWN_KEY = "forewarn.known"

_arrivals = count()


class GuardedProtocol(HttpToolsProtocol):
    """Cuts connections whose next head is too long or takes too long, and those beyond the limit.

    So it does with those that do not take their answer, which waits in memory.

    Beyond the limit the oldest goes that has not shown who it is; only where all have, the newest.
    uvicorn waits for a head for ever: connections that send half of one would take the descriptors
    that guest listeners need, and those that send one without end the memory. An idle connection
    between two requests stays uvicorn's to close.
    """

    head_timeout_s = HEAD_TIMEOUT_S
    write_timeout_s = WRITE_TIMEOUT_S
    connections_max = CONNECTIONS_MAX
    known = False  # the peer has shown who it is: a token, or at the link a certificate
    made = False  # the transport is there
    leaving = False
    number = 0  # in the order of their coming
    _head_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.made = True
        self.number = next(_arrivals)
        self._await_head()
        if len(self.connections) > self.connections_max:
            here = self._here()
            if len(here) > self.connections_max:
                self._unknown_first(here).cut()

    def _here(self) -> list[GuardedProtocol]:
        """Who is connected to this port, without those that are being cut."""
        others: set[asyncio.Protocol] = self.connections  # type: ignore[assignment]
        return [one for one in others if isinstance(one, GuardedProtocol) and not one.leaving]

    def _unknown_first(self, here: Iterable[GuardedProtocol]) -> GuardedProtocol:
        """Who has to go: the oldest of them that is not known, else this one."""
        unknown = (one for one in here if not one.known)
        return min(unknown, key=lambda one: one.number, default=self)

    def cut(self) -> None:
        """End the connection now."""
        self.leaving = True
        self.transport.abort()

    def _is_known(self) -> None:
        self.known = True

    def data_received(self, data: bytes) -> None:
        # Not left to on_message_begin alone: empty lines before a request begin no message.
        # uvicorn types the cycle as if there were one before the first request.
        if self.cycle is None or self.cycle.response_complete:  # type: ignore[redundant-expr]
            self._await_head()
        super().data_received(data)
        if self._head_timer is not None:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self.transport.abort()

    def on_message_begin(self) -> None:
        self._await_head()  # also of a request that follows before the last one is answered
        super().on_message_begin()
        self.scope[KNOWN_KEY] = self._is_known  # type: ignore[literal-required]

    def on_headers_complete(self) -> None:
        self._stop_waiting()
        super().on_headers_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_taking()

    def resume_writing(self) -> None:
        self._is_taken()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_taken()
        self._stop_waiting()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """The service stops. Who waits for no answer is cut off: saying goodbye over TLS takes two,
        and a peer that does not read would hold up the stop."""
        idle = self.cycle is None or self.cycle.response_complete  # type: ignore[redundant-expr]
        if idle and self.transport.get_extra_info("ssl_object") is not None:
            self.transport.abort()
        else:
            super().shutdown()

    def _await_head(self) -> None:
        """The time runs from the first call; more bytes of the same head do not renew it."""
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.head_timeout_s, self.transport.abort)

    def _await_taking(self) -> None:
        waits = self.transport.get_write_buffer_size()
        self._write_timer = self.loop.call_later(self.write_timeout_s, self._look_taken, waits)

    def _look_taken(self, waited: int) -> None:
        """Cut who has taken nothing since; who is only slow has as long again."""
        if self.transport.get_write_buffer_size() >= waited:
            self.cut()
        else:
            self._await_taking()

    def _is_taken(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _stop_waiting(self) -> None:
        self._head_bytes = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
