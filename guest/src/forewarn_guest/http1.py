"""HTTP/1.1 to one address: one request at a time over a connection that is kept.

No proxy is ever used and no redirect followed (P6): nothing here reads the environment, and a 3xx
is an answer as any other. Every wait has an end, and every wait can be ended from another thread.
"""

from __future__ import annotations

import errno
import http.client
import io
import os
import select
import selectors
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlsplit

from forewarn_guest.errors import BadAnswer, NotFound, Unreachable

CONNECT_S = 2.0
# Once an answer has begun, the rest of it must come within this: a server that holds a request
# holds it before the first byte.
REST_S = 5.0
BODY_BYTES_MAX = 1024 * 1024
CHUNK_BYTES = 64 * 1024

# A connection whose other end has vanished (a host failed, a VM was moved or frozen) says nothing.
# The kernel asks after it while a request is held, and gives up after a few seconds.
KEEPALIVE_IDLE_S = 2
KEEPALIVE_INTERVAL_S = 1
KEEPALIVE_PROBES = 3
UNANSWERED_MS = 4000


class Stopped(Exception):  # noqa: N818 - says what is the case
    """Another thread rang the bell while this one waited. It never leaves the package."""


class Bell:
    """A thing to wait on that another thread, or a signal handler, can ring."""

    def __init__(self) -> None:
        self.ear, self._mouth = socket.socketpair()
        self.ear.settimeout(0.0)
        self._mouth.settimeout(0.0)
        # Reentrant, because a signal handler may ring while this thread closes. Without it a ring
        # could go to whatever has got the number of a socket that was just closed.
        self._lock = threading.RLock()
        self._gone = False

    def ring(self) -> None:
        """Ends every wait on this bell, now and later. A late call is harmless: no thread waits."""
        with self._lock:
            if self._gone:
                return
            try:
                self._mouth.send(b"!")
            except BlockingIOError:
                return  # full of earlier rings

    def wait(self, seconds: float) -> bool:
        """True as soon as the bell has been rung, False after so many seconds."""
        return bool(_readable([self.ear], max(seconds, 0.0)))

    def close(self) -> None:
        with self._lock:
            self._gone = True
            self.ear.close()
            self._mouth.close()


class Stop:
    """Says to iterations, from any thread or signal handler, to end now. It stays said."""

    def __init__(self) -> None:
        # No lock: a signal handler may interrupt the thread that would hold it.
        self._said = False
        self._bells: set[Bell] = set()

    def set(self) -> None:
        """Ends what waits, and whatever begins to wait later."""
        self._said = True
        for bell in tuple(self._bells):
            bell.ring()

    def is_set(self) -> bool:
        return self._said

    def wait(self, seconds: float) -> bool:
        """True as soon as this is set, False after so many seconds."""
        with bell_of(self) as bell:
            return bell.wait(seconds)

    def attach(self, bell: Bell) -> None:
        """Has the bell rung as soon as this is set, at once if it is."""
        self._bells.add(bell)
        if self._said:
            bell.ring()

    def detach(self, bell: Bell) -> None:
        self._bells.discard(bell)


@contextmanager
def bell_of(*stops: Stop) -> Iterator[Bell]:
    """A bell that any of these rings."""
    bell = Bell()
    try:
        for stop in stops:
            stop.attach(bell)
        yield bell
    finally:
        for stop in stops:
            stop.detach(bell)
        bell.close()


@dataclass(frozen=True)
class Address:
    """Where an endpoint is. `prefix` stands before /metadata, and is empty as a rule."""

    host: str
    port: int
    prefix: str = ""

    @classmethod
    def of(cls, url: str) -> Address:
        """Reads `http://HOST[:PORT]`, `HOST[:PORT]`, or the URL of a document with its query."""
        parts = urlsplit(url if "://" in url else f"//{url}", scheme="http")
        try:
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        plain = url.isascii() and url.isprintable() and " " not in url
        if parts.scheme != "http" or not host or not plain:
            raise NotFound(
                f"{url[:200]!r} is not the address of an endpoint.",
                "It is like http://169.254.169.254 or http://127.0.0.1:8254, without TLS.",
            )
        prefix = parts.path.partition("/metadata")[0].rstrip("/")
        return cls(host=host, port=80 if port is None else port, prefix=prefix)

    @property
    def netloc(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == 80 else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.netloc}{self.prefix}"


@dataclass(frozen=True)
class Request:
    """What is asked. `target` is path and query, without the prefix of the address."""

    target: str
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    def encoded(self, address: Address) -> bytes:
        """The bytes of the request. A header that is no header is left out, never sent."""
        lines = [
            f"{self.method} {address.prefix}{self.target} HTTP/1.1",
            f"Host: {address.netloc}",
            "Metadata: true",  # H1
            "Accept-Encoding: identity",
            *(f"{name}: {value}" for name, value in self.headers.items() if value.isprintable()),
        ]
        if self.method != "GET":
            lines += ["Content-Type: application/json", f"Content-Length: {len(self.body)}"]
        return "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n" + self.body


@dataclass(frozen=True)
class Answer:
    """What came back. Header names are in lower case; `received_s` is monotonic time."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    received_s: float


class Connection:
    """A connection to one address that is opened when needed and kept while it lasts.

    For one thread at a time.
    """

    def __init__(self, address: Address, *, connect_s: float = CONNECT_S) -> None:
        self.address = address
        self._connect_s = connect_s
        self._socket: socket.socket | None = None

    def ask(self, request: Request, *, read_s: float, bell: Bell) -> Answer:
        """One answer, whatever its status, its first byte within `read_s` of the request.

        A kept connection that turns out to be dead is replaced and the request sent once more:
        all that is ever sent may be sent twice (A4). Unreachable if there is no answer, BadAnswer
        if it is no HTTP or longer than BODY_BYTES_MAX, Stopped if the bell rings.
        """
        until = time.monotonic() + read_s
        reused = self._socket is not None and not _readable([self._socket], 0.0)
        if not reused:
            self.close()
        exchange = _Exchange(bell, until)
        try:
            try:
                return self._once(request, exchange)
            except OSError:  # http.client.RemoteDisconnected is one
                self.close()
                if not reused or exchange.begun or exchange.late:
                    raise
            return self._once(request, _Exchange(bell, until))
        except (OSError, http.client.IncompleteRead) as error:
            self.close()
            raise Unreachable(f"{self.address.url} did not answer: {_why(error)}.") from error
        except http.client.HTTPException as error:
            self.close()
            raise BadAnswer(
                f"{self.address.url} answered with what is no HTTP: {_why(error)}."
            ) from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Drops the connection; the next request opens another."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _once(self, request: Request, exchange: _Exchange) -> Answer:
        if self._socket is None:
            self._socket = _connected(self.address, self._connect_s, exchange.bell)
        self._socket.settimeout(REST_S)
        self._socket.sendall(request.encoded(self.address))
        exchange.socket = self._socket
        response = http.client.HTTPResponse(cast("socket.socket", exchange), method=request.method)
        try:
            response.begin()
            body = _body(response, self.address)
            headers: dict[str, str] = {}
            for name, value in response.getheaders():
                headers.setdefault(name.lower(), value)
            answer = Answer(response.status, headers, body, time.monotonic())
        finally:
            response.close()
        if response.will_close:
            self.close()
        return answer


class _Exchange(io.RawIOBase):
    """The bytes of one answer, read by http.client: each read ends by the time-out or the bell."""

    def __init__(self, bell: Bell, until_s: float) -> None:
        self.bell = bell
        self.until_s = until_s
        self.begun = False
        self.late = False
        self.socket: socket.socket | None = None

    def makefile(self, *_: Any) -> io.BufferedReader:
        """What http.client asks a socket for."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        assert self.socket is not None  # noqa: S101 - set before anything reads
        left_s = max(self.until_s - time.monotonic(), 0.0)
        ready = _readable([self.socket, self.bell.ear], left_s)
        if self.bell.ear in ready:
            raise Stopped
        if not ready:
            self.late = True
            raise TimeoutError("the answer did not come in time")
        count = self.socket.recv_into(buffer)
        if count and not self.begun:
            self.begun = True
            self.until_s = min(self.until_s, time.monotonic() + REST_S)
        return count


def _body(response: http.client.HTTPResponse, address: Address) -> bytes:
    too_long = BadAnswer(
        f"{address.url} answered with more than {BODY_BYTES_MAX} bytes, which is no document."
    )
    if response.length is not None:
        if response.length > BODY_BYTES_MAX:
            raise too_long
        return response.read()  # IncompleteRead if it breaks off
    body = bytearray()
    while len(body) <= BODY_BYTES_MAX:
        chunk = response.read(CHUNK_BYTES)
        if not chunk:
            return bytes(body)
        body += chunk
    raise too_long


def _connected(address: Address, connect_s: float, bell: Bell) -> socket.socket:
    """A connected socket, to the first of the host's addresses that takes the connection."""
    until = time.monotonic() + connect_s
    failed: OSError = ConnectionRefusedError("the host has no address")
    for family, kind, proto, _, place in socket.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM
    ):
        opened = socket.socket(family, kind, proto)
        try:
            opened.settimeout(0.0)
            _watched(opened)
            number = opened.connect_ex(place)
            if number not in (0, errno.EINPROGRESS, errno.EWOULDBLOCK):
                raise OSError(number, "no connection")
            _await_connection(opened, max(until - time.monotonic(), 0.0), bell)
        except OSError as error:
            opened.close()
            failed = error
        except BaseException:
            opened.close()
            raise
        else:
            return opened
    raise failed


def _await_connection(opened: socket.socket, seconds: float, bell: Bell) -> None:
    with selectors.DefaultSelector() as selector:
        selector.register(opened, selectors.EVENT_WRITE)
        selector.register(bell.ear, selectors.EVENT_READ)
        ready = [key.fileobj for key, _ in selector.select(seconds)]
    if bell.ear in ready:
        raise Stopped
    if not ready:
        raise TimeoutError("the connection was not accepted in time")
    number = opened.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if number:
        raise OSError(number, "no connection")


def _watched(opened: socket.socket) -> None:
    """Has the kernel notice that the other end has vanished, where it can be told to."""
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_IDLE_S),
        ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL_S),
        ("TCP_KEEPCNT", KEEPALIVE_PROBES),
        ("TCP_USER_TIMEOUT", UNANSWERED_MS),
    ):
        option = getattr(socket, name, None)
        if option is not None:
            opened.setsockopt(socket.IPPROTO_TCP, option, value)


def _readable(sockets: list[socket.socket], seconds: float) -> list[socket.socket]:
    """Those that can be read, or have ended, within so many seconds."""
    if sys.platform == "win32" or not hasattr(select, "poll"):
        return select.select(sockets, [], [], seconds)[0]
    poll = select.poll()  # unlike select, it knows file descriptors above 1023
    for each in sockets:
        poll.register(each, select.POLLIN)
    ready = {number for number, _ in poll.poll(seconds * 1000)}
    return [each for each in sockets if each.fileno() in ready]


def _why(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno and error.strerror:
        return os.strerror(error.errno).lower()
    return str(error).strip().rstrip(".") or type(error).__name__
