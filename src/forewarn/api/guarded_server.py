"""A uvicorn server that accepts connections itself: counted from the first moment on.

An event loop's own server does not report a connection before its TLS handshake is finished, waits
a minute for that, and resets connections when descriptors run out. Here a connection is counted
when it is accepted, the handshake has a short time, and when there are too many the oldest is cut.
Where TLS is spoken, a caller who speaks plain HTTP can be told so in HTTP.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress

import uvicorn

from forewarn.api.connection_limits import PendingHandshakes, PortLimits, source_of
from forewarn.api.guarded_protocol import CONNECTIONS_MAX, GuardedProtocol
from forewarn.logs import Log

BACKLOG = 2_048
ACCEPTS_PER_TURN = 16  # of the event loop, which has more to do than to open doors
ACCEPT_AGAIN_S = 0.1  # after accept has failed, for want of a descriptor or memory
CROWD_SAID_EVERY_S = 60.0
SHUTDOWN_TIMEOUT_S = 5.0  # of TLS: a peer that does not say goodbye is not waited for

TICK_EVERY_S = 1.0  # the Date header has seconds

# Operators are few: beyond these, connections that have not finished TLS are not theirs.
OPERATOR_HANDSHAKES_MAX = 128
OPERATOR_LIMITS = PortLimits(
    connections_max=CONNECTIONS_MAX, handshakes_max=OPERATOR_HANDSHAKES_MAX
)

# The first byte that a client of TLS sends: a record of the kind "handshake".
_TLS_BEGINS = b"\x16"
_PLAIN_BYTES_MAX = 64 * 1_024  # of a plain request: read, or the answer would be lost to a reset

log = Log(__name__)


class GuardedServer(uvicorn.Server):
    """uvicorn with its connections accepted by a `Door`. `config.http` is a GuardedProtocol.

    `to_plain` is what a caller is sent who speaks plain HTTP where TLS is spoken: a whole answer.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        limits: PortLimits = OPERATOR_LIMITS,
        *,
        to_plain: bytes = b"",
    ) -> None:
        self._stop = asyncio.Event()
        super().__init__(config)
        self.limits = limits
        self.doors: list[Door] = []
        self._to_plain = to_plain

    @property
    def should_exit(self) -> bool:
        """Set it to stop."""
        return self._stop.is_set()

    @should_exit.setter
    def should_exit(self, stop: bool) -> None:
        if stop:
            self._stop.set()

    async def main_loop(self) -> None:
        """As uvicorn's, which looks ten times a second whether it is to stop."""
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                async with asyncio.timeout(TICK_EVERY_S):
                    await self._stop.wait()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the doors; uvicorn closes what is in `servers` when it stops."""
        await self.lifespan.startup()
        self.doors = [
            Door(
                one,
                self.limits,
                make=self._protocol,
                tls=self.config.ssl,
                to_plain=self._to_plain,
            )
            for one in sockets or ()
        ]
        self.servers = self.doors  # type: ignore[assignment] # it closes and waits for them, no more
        for door in self.doors:
            door.open()
        self.started = True

    def unfinished(self) -> int:
        """How many handshakes are under way now."""
        return sum(door.unfinished() for door in self.doors)

    def use_tls(self, context: ssl.SSLContext) -> None:
        """Speak with another certificate from the next connection on."""
        for door in self.doors:
            door.tls = context

    def _protocol(self) -> GuardedProtocol:
        made: GuardedProtocol = self.config.http_protocol_class(  # type: ignore[assignment,call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        made.connections_max = self.limits.connections_max
        return made


def _set(come: asyncio.Future[None]) -> None:
    if not come.done():
        come.set_result(None)


class _Arrival:
    """One connection, from its being accepted until its protocol knows of it."""

    def __init__(self, accepted: socket.socket, protocol: GuardedProtocol) -> None:
        self.socket = accepted
        self.protocol = protocol
        self.entering: asyncio.Task[None] | None = None

    def cut(self) -> None:
        """End it, unless it is just through: then its protocol decides."""
        if self.entering is not None and not self.protocol.made:
            self.entering.cancel()


class Door:
    """Accepts what comes to a listening socket. Belongs to the event loop."""

    def __init__(
        self,
        listening: socket.socket,
        limits: PortLimits,
        *,
        make: Callable[[], GuardedProtocol],
        tls: ssl.SSLContext | None,
        to_plain: bytes = b"",
    ) -> None:
        self.tls = tls
        self._listening = listening
        self._limits = limits
        self._make = make
        self._to_plain = to_plain
        self._unfinished: PendingHandshakes[_Arrival] = PendingHandshakes(limits)
        self._entering: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._again: asyncio.TimerHandle | None = None
        self._short = False  # the last accept has failed
        self._crowd_said_s: float | None = None
        self._closed = False

    def unfinished(self) -> int:
        """How many handshakes are under way now."""
        return len(self._unfinished)

    def open(self) -> None:
        self._listening.settimeout(0)
        self._listening.listen(BACKLOG)
        self._loop.add_reader(self._listening.fileno(), self._accept)

    def close(self) -> None:
        """Accept no more, and end what has not come in yet."""
        if self._closed:
            return
        self._closed = True
        if self._again is not None:
            self._again.cancel()
        self._loop.remove_reader(self._listening.fileno())
        for one in self._unfinished.all():
            self._cut(one)

    async def wait_closed(self) -> None:
        await asyncio.gather(*self._entering, return_exceptions=True)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                accepted, address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._rest(error)
                return
            self._short = False
            self._let_in(accepted, source_of(str(address[0]) if address else ""))

    def _rest(self, error: OSError) -> None:
        """Look away for a moment: who waits in the backlog would wake us again and again."""
        if not self._short:
            log.warning("connections_not_accepted", why=error.strerror or str(error))
        self._short = True
        oldest = self._unfinished.oldest()
        if oldest is not None:
            self._cut(oldest)
        self._loop.remove_reader(self._listening.fileno())
        self._again = self._loop.call_later(ACCEPT_AGAIN_S, self._open_again)

    def _open_again(self) -> None:
        self._again = None
        self._loop.add_reader(self._listening.fileno(), self._accept)

    def _let_in(self, accepted: socket.socket, source: str) -> None:
        accepted.settimeout(0)
        arrival = _Arrival(accepted, self._make())
        crowded = self._unfinished.begin(arrival, source)
        arrival.entering = self._loop.create_task(self._enter(arrival))
        self._entering.add(arrival.entering)
        arrival.entering.add_done_callback(lambda done: self._entered(arrival, done))
        if crowded is not None:
            self._say_crowded(source)
            self._cut(crowded)

    def _say_crowded(self, source: str) -> None:
        now_s = self._loop.time()
        if self._crowd_said_s is None or now_s - self._crowd_said_s >= CROWD_SAID_EVERY_S:
            self._crowd_said_s = now_s
            log.warning("handshakes_cut", unfinished=len(self._unfinished), source=source)

    def _cut(self, arrival: _Arrival) -> None:
        """End it, and count it no more: its task takes a turn of the loop to end."""
        self._unfinished.end(arrival)
        arrival.cut()

    async def _enter(self, arrival: _Arrival) -> None:
        if arrival.socket.family != socket.AF_UNIX:
            with suppress(OSError):  # the peer is gone already, which the next line finds out
                arrival.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.tls is None:
            await self._loop.connect_accepted_socket(lambda: arrival.protocol, arrival.socket)
            return
        if self._to_plain and not await self._speaks_tls(arrival.socket):
            return
        await self._loop.connect_accepted_socket(
            lambda: arrival.protocol,
            arrival.socket,
            ssl=self.tls,
            ssl_handshake_timeout=self._limits.handshake_timeout_s,
            ssl_shutdown_timeout=SHUTDOWN_TIMEOUT_S,
        )

    async def _speaks_tls(self, accepted: socket.socket) -> bool:
        """Whether the peer begins with TLS. One that does not is told, and hung up on."""
        async with asyncio.timeout(self._limits.handshake_timeout_s):
            first = await self._first_byte(accepted)
            if first == _TLS_BEGINS:
                return True
            if first.isalpha() and first.isascii():  # the verb of a request
                await self._answer_plain(accepted)
            accepted.close()
            return False

    async def _first_byte(self, accepted: socket.socket) -> bytes:
        """The first byte that has come, left where it is; none if the peer has hung up."""
        come: asyncio.Future[None] = self._loop.create_future()
        descriptor = accepted.fileno()
        self._loop.add_reader(descriptor, _set, come)
        try:
            await come
        finally:
            self._loop.remove_reader(descriptor)
        return accepted.recv(1, socket.MSG_PEEK)

    async def _answer_plain(self, accepted: socket.socket) -> None:
        await self._loop.sock_sendall(accepted, self._to_plain)
        accepted.shutdown(socket.SHUT_WR)
        left = _PLAIN_BYTES_MAX
        while left > 0 and (chunk := await self._loop.sock_recv(accepted, left)):
            left -= len(chunk)

    def _entered(self, arrival: _Arrival, done: asyncio.Task[None]) -> None:
        self._unfinished.end(arrival)
        self._entering.discard(done)
        if done.cancelled():
            arrival.socket.close()
            return
        error = done.exception()
        if error is None:
            return
        arrival.socket.close()
        if not isinstance(error, OSError):  # TLS refuses, resets and runs out of time by OSError
            log.error("connection_failed", exc_info=error)
