"""One request to the receiver of a webhook, and the beginning of its answer.

A client of our own: the address is looked up once, judged, and connected to as it was judged, while
the name stays for TLS and the Host header. It follows no redirect, asks no proxy, keeps no
connection, and everything about an answer has a limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import partial
from ipaddress import ip_address

import httptools

from forewarn.adapters.system import SystemClock
from forewarn.core.errors import Invalid
from forewarn.core.model import SECOND_MS
from forewarn.core.webhook_retries import ANSWER_BYTES_MAX, ReceiverAnswer
from forewarn.core.webhook_targets import Place, WebhookTargets, read_url, refuse_place, why_not

LIMIT_S = 20.0  # of all of one request
CONNECT_LIMIT_S = 5.0  # of one address, before the next one is tried
BODY_LIMIT_S = 2.0  # of the body of an answer whose status is known: it is only to be looked at
HEAD_BYTES_MAX = 32 * 1_024
CHUNK_BYTES = 8 * 1_024
ADDRESSES_MAX = 4  # of one name that are tried
LOOKUPS_MAX = 64  # of names, that have not ended: no more threads than that
USER_AGENT = "forewarn"

Headers = Sequence[tuple[str, str]]
# The addresses of a name, in the order in which they are to be tried. Raises OSError.
LookUp = Callable[[str, int], Awaitable[Sequence[str]]]


class Refused(Exception):  # noqa: N818 - says what is the case
    """Nothing was sent, in words for an admin."""


class WebhookClient:
    """Sends requests to the places that may be sent to. Belongs to the event loop."""

    def __init__(
        self,
        targets: WebhookTargets,
        *,
        limit_s: float = LIMIT_S,
        look_up: LookUp | None = None,
        tls: Callable[[], ssl.SSLContext] = ssl.create_default_context,
    ) -> None:
        self._clock = SystemClock()
        self._targets = targets
        self._limit_s = limit_s
        self._look_up = look_up or Names().look_up
        self._make_tls = tls
        self._tls: ssl.SSLContext | None = None  # reads a hundred certificates: not on the loop

    async def post(self, url: str, headers: Headers, body: bytes) -> ReceiverAnswer:
        """What came back, or why nothing did. Raises nothing but what must not happen."""
        began_ms = self._clock.monotonic_ms()
        found = _AnswerHead()
        problem = ""
        try:
            async with asyncio.timeout(self._limit_s):
                await self._exchange(url, headers, body, found)
        except TimeoutError:
            problem = f"no answer within {self._limit_s:g} s"
        except (Refused, Invalid) as why:
            problem = str(why)
        except ssl.SSLError as error:
            problem = f"TLS failed: {_of_tls(error)}"
        except (OSError, EOFError, httptools.HttpParserError) as error:
            problem = _of_network(error)
        return ReceiverAnswer(
            status=found.status,
            problem="" if found.status else problem,
            retry_after_ms=_retry_after_ms(found.retry_after, self._clock.now_ms()),
            body=bytes(found.body[:ANSWER_BYTES_MAX]),
            took_ms=self._clock.monotonic_ms() - began_ms,
            address=found.address,
        )

    async def _exchange(self, url: str, headers: Headers, body: bytes, found: _AnswerHead) -> None:
        place = read_url(url)
        refuse_place(place, self._targets)
        reader, writer = await self._connect(place, await self._addresses(place), found)
        try:
            writer.write(_head(place, headers, body) + body)
            # The answer may come before all was read; what it says counts for more.
            sending = asyncio.ensure_future(writer.drain())
            try:
                await found.read(reader)
            finally:
                sending.cancel()
                with contextlib.suppress(asyncio.CancelledError, OSError):
                    await sending
            with contextlib.suppress(TimeoutError, OSError, httptools.HttpParserError):
                async with asyncio.timeout(BODY_LIMIT_S):
                    await found.read_body(reader)
        finally:
            writer.transport.abort()

    async def _addresses(self, place: Place) -> Sequence[str]:
        """The addresses that the place has now. Raises Refused or OSError."""
        try:
            return (str(ip_address(place.host)),)
        except ValueError:
            pass
        try:
            found = await self._look_up(place.host, place.port)
        except OSError as error:
            raise Refused(f"{place.host} has no address: {error.strerror or error}") from None
        return list(dict.fromkeys(found))[:ADDRESSES_MAX]

    async def _connect(
        self, place: Place, addresses: Sequence[str], found: _AnswerHead
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connected to one of these, as it was judged. Raises Refused or OSError."""
        refused = [why for one in addresses if (why := self._why_not(one, place))]
        if refused or not addresses:
            # One that may not be is enough: the owner of the name could turn it to that one.
            why = refused[0] if refused else "it has none"
            raise Refused(f"nothing is sent to {place.host}: {why}")
        tls = await self._context() if place.tls else None
        failed: OSError | None = None
        for address in addresses:
            found.address = address
            try:
                async with asyncio.timeout(CONNECT_LIMIT_S):
                    return await asyncio.open_connection(
                        address,
                        place.port,
                        ssl=tls,
                        server_hostname=place.host if tls is not None else None,
                    )
            except ssl.SSLError:
                raise
            except OSError as error:  # a time-out too
                failed = error
        raise Refused(_of_network(failed or OSError("no address")))

    def _why_not(self, address: str, place: Place) -> str:
        return why_not(address, place, self._targets, own=is_own(address))

    async def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = await asyncio.to_thread(self._make_tls)
        return self._tls


class _AnswerHead:
    """What of an answer was read: its status, what we look at of its headers, some of its body."""

    def __init__(self) -> None:
        self.status = 0
        self.retry_after = ""
        self.body = bytearray()
        self.address = ""
        self._parser = httptools.HttpResponseParser(self)
        self._bytes = 0
        self._ended = False

    async def read(self, reader: asyncio.StreamReader) -> None:
        """Until the status is known. Raises EOFError, HttpParserError or OSError."""
        while not self.status:
            chunk = await reader.read(CHUNK_BYTES)
            self._bytes += len(chunk)
            if not chunk:
                raise EOFError
            if self._bytes > HEAD_BYTES_MAX:
                raise httptools.HttpParserError("the head of its answer is too long")
            self._parser.feed_data(chunk)

    async def read_body(self, reader: asyncio.StreamReader) -> None:
        """What there is of the body, up to what is shown."""
        while not self._ended and len(self.body) < ANSWER_BYTES_MAX:
            chunk = await reader.read(CHUNK_BYTES)
            if not chunk:
                return
            self._parser.feed_data(chunk)

    # What the parser calls.

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"retry-after":
            self.retry_after = value.decode("latin-1").strip()

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200:  # not the ones that announce another, like 100
            self.status = status

    def on_body(self, body: bytes) -> None:
        room = ANSWER_BYTES_MAX - len(self.body)
        if self.status and room > 0:
            self.body += body[:room]

    def on_message_complete(self) -> None:
        self._ended = bool(self.status)


class Names:
    """Looks names up, each on a thread of its own: a resolver that hangs keeps no other waiting."""

    def __init__(self) -> None:
        self._under_way = 0

    async def look_up(self, host: str, port: int) -> Sequence[str]:
        """The addresses of a name. Raises OSError."""
        if self._under_way >= LOOKUPS_MAX:
            raise OSError("too many names are being looked up already")
        loop = asyncio.get_running_loop()
        found: asyncio.Future[Sequence[str]] = loop.create_future()
        self._under_way += 1

        def work() -> None:
            try:
                infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                addresses = [str(info[4][0]) for info in infos]
                answer = partial(self._answer, found, addresses, None)
            except OSError as error:
                answer = partial(self._answer, found, (), error)
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(answer)

        threading.Thread(target=work, name="webhook-name", daemon=True).start()
        return await found

    def _answer(
        self,
        found: asyncio.Future[Sequence[str]],
        addresses: Sequence[str],
        error: OSError | None,
    ) -> None:
        self._under_way -= 1
        if found.done():
            return  # the request was given up
        if error is not None:
            found.set_exception(error)
        else:
            found.set_result(addresses)


def is_own(address: str) -> bool:
    """Whether an address is one of this machine: the kernel would send from it to itself."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as asked:
            asked.connect((address, 9))  # nothing is sent
            return str(asked.getsockname()[0]).partition("%")[0] == address.partition("%")[0]
    except OSError:
        return False  # there is no way to it; the connection will say so


def _head(place: Place, headers: Iterable[tuple[str, str]], body: bytes) -> bytes:
    lines = [
        f"POST {place.path} HTTP/1.1",
        f"Host: {place.authority}",
        f"User-Agent: {USER_AGENT}",
        "Accept: */*",
        "Connection: close",
        f"Content-Length: {len(body)}",
        *(f"{name}: {value}" for name, value in headers),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")


def _retry_after_ms(text: str, now_ms: int) -> int | None:
    """What Retry-After asks for: seconds, or a date; None for what cannot be read."""
    if text.isascii() and text.isdigit():
        return int(text[:9]) * SECOND_MS
    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return max(0, round(at.timestamp() * SECOND_MS) - now_ms)


def _of_tls(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    return error.reason or str(error)


def _of_network(error: Exception) -> str:
    if isinstance(error, EOFError):
        return "the connection was closed without an answer"
    if isinstance(error, httptools.HttpParserError):
        return "its answer is not HTTP"
    if isinstance(error, TimeoutError):
        return f"no connection within {CONNECT_LIMIT_S:g} s"
    return f"no connection: {getattr(error, 'strerror', None) or error}"
