"""HTTP as bytes: one TCP connection to the endpoint, and the answers that come back on it.

Every byte of a request is the caller's, no proxy is ever asked, every wait has an end and every
answer a limit. Whatever the other side does instead of answering is a Broken, with a sentence.
"""

from __future__ import annotations

import json
import socket
import time
from dataclasses import dataclass
from typing import Any

from forewarn.verify.check import shown

HEAD_BYTES_MAX = 64 * 1_024
BODY_BYTES_MAX = 8 * 1_024 * 1_024
HEADERS_MAX = 200
READ_BYTES = 65_536
INTERIM_ANSWERS_MAX = 10


class Broken(Exception):  # noqa: N818 - says what is the case
    """There was no whole HTTP answer; the text says what there was."""


class Silent(Broken):
    """Nothing, or not all of it, came in time."""


class Unfinished(Silent):
    """Something came, so a server is there, but not all of the answer in time."""


class Unreachable(Exception):  # noqa: N818 - says what is the case
    """No connection could be made; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer. `took_s` is the time from the beginning of the wait to its last byte."""

    protocol: str
    status: int
    reason: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    took_s: float
    by_length: bool  # the body was as long as Content-Length said, as far as can be seen

    def header(self, name: str) -> str | None:
        """The value of a header, None if it is not there."""
        return next((v for n, v in self.headers if n.lower() == name.lower()), None)

    @property
    def closes(self) -> bool:
        """The answer says that the connection ends with it."""
        options = (self.header("Connection") or "").lower().split(",")
        return "close" in (option.strip() for option in options)

    @property
    def json(self) -> Any:
        """The body as JSON; None if it is none (a body of `null` does not occur in the wild).

        In UTF-8 and without a mark at its beginning (RFC 8259, 8.1): that is all clients must read.
        """
        try:
            return json.loads(self.body.decode("utf-8"))
        except (ValueError, RecursionError):
            return None

    def __str__(self) -> str:
        return shown(f"{self.status} {self.reason} {self.body.decode('utf-8', 'replace')}".strip())


class Connection:
    """One connection. Use it as a context manager; it is closed at the end of the block."""

    def __init__(self, host: str, port: int, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._buffer = b""
        self._ended = False
        self._heard = False
        try:
            self._socket = socket.create_connection((host, port), timeout=timeout_s)
        except (OSError, UnicodeError) as error:
            raise Unreachable(f"{host} port {port}: {_reason(error)}") from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Send all of it. A side that has closed already may still have answered: no error."""
        self._socket.settimeout(self._timeout_s)
        try:
            self._socket.sendall(data)
        except TimeoutError:
            raise Silent(f"it did not take the request within {self._timeout_s:g} s") from None
        except OSError:
            return

    def answer(self, *, to_head: bool = False, within_s: float | None = None) -> Answer:
        """The next answer that is not an interim one; `to_head` if the request was a HEAD."""
        for _ in range(INTERIM_ANSWERS_MAX):
            answer = self.next_answer(to_head=to_head, within_s=within_s)
            if answer.status >= 200:
                return answer
        raise Broken(f"more than {INTERIM_ANSWERS_MAX} interim answers")

    def next_answer(self, *, to_head: bool = False, within_s: float | None = None) -> Answer:
        """The next answer, `100 Continue` included."""
        began_s = time.monotonic()
        until_s = began_s + (self._timeout_s if within_s is None else within_s)
        protocol, status, reason, headers = _head(self._read_head(until_s))
        fields = {name.lower(): value for name, value in headers}
        by_length = True
        if to_head or status in (204, 304) or status < 200:
            body = b""
        elif "chunked" in fields.get("transfer-encoding", "").lower():
            body, by_length = self._read_chunks(until_s), False
        elif "content-length" in fields:
            body = self._read_body(_length(fields["content-length"]), until_s)
        else:
            body, by_length = self._read_to_end(until_s), False
        return Answer(
            protocol=protocol,
            status=status,
            reason=reason,
            headers=headers,
            body=body,
            took_s=time.monotonic() - began_s,
            by_length=by_length,
        )

    def quiet_for(self, seconds: float) -> bool:
        """True if nothing is there and nothing comes for so long; the end of it is nothing."""
        until_s = time.monotonic() + seconds
        while not self._buffer and not self._ended and time.monotonic() < until_s:
            try:
                self._more(until_s)
            except Silent:
                break
        return not self._buffer

    def ends(self, within_s: float) -> bool:
        """True if the endpoint closes the connection by then, whatever it sends before."""
        until_s = time.monotonic() + within_s
        while not self._ended and len(self._buffer) <= BODY_BYTES_MAX:
            try:
                self._more(until_s)
            except Silent:
                return False
        return self._ended

    def _read_head(self, until_s: float) -> bytes:
        while b"\r\n\r\n" not in self._buffer:
            if len(self._buffer) > HEAD_BYTES_MAX:
                raise Broken(f"no end of the head within {HEAD_BYTES_MAX} bytes")
            self._need_more(until_s)
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        return head

    def _read_body(self, length: int, until_s: float) -> bytes:
        if length > BODY_BYTES_MAX:
            raise Broken(f"a body of {length} bytes; at most {BODY_BYTES_MAX} are read")
        while len(self._buffer) < length:
            self._need_more(until_s)
        body, self._buffer = self._buffer[:length], self._buffer[length:]
        return body

    def _read_to_end(self, until_s: float) -> bytes:
        while not self._ended:
            if len(self._buffer) > BODY_BYTES_MAX:
                raise Broken(f"no end of the body within {BODY_BYTES_MAX} bytes")
            self._more(until_s)
        body, self._buffer = self._buffer, b""
        return body

    def _read_chunks(self, until_s: float) -> bytes:
        parts: list[bytes] = []
        size, total = -1, 0
        while size:
            while b"\r\n" not in self._buffer:
                self._need_more(until_s)
            line, _, self._buffer = self._buffer.partition(b"\r\n")
            try:
                size = int(line.partition(b";")[0], 16)
            except ValueError:
                raise Broken(f"a chunk of the length {shown(line)}") from None
            total += size
            if not 0 <= total <= BODY_BYTES_MAX or size < 0:
                raise Broken(f"chunks beyond {BODY_BYTES_MAX} bytes")
            parts.append(self._read_body(size + 2, until_s)[:size])
        return b"".join(parts)

    def _need_more(self, until_s: float) -> None:
        if self._ended:
            what = f"after {shown(self._buffer[:80])}" if self._buffer else "without an answer"
            raise Broken(f"the connection ended {what}")
        self._more(until_s)

    def _more(self, until_s: float) -> None:
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            raise self._silence()
        self._socket.settimeout(left_s)
        try:
            data = self._socket.recv(READ_BYTES)
        except TimeoutError:
            raise self._silence() from None
        except OSError:
            data = b""  # a reset ends a connection as well
        self._ended = not data
        self._heard = self._heard or bool(data)
        self._buffer += data

    def _silence(self) -> Silent:
        if not self._heard:
            return Silent("no answer in time")
        return Unfinished(f"an answer that was not whole in time: {shown(self._buffer[:80])}")


def _head(head: bytes) -> tuple[str, int, str, tuple[tuple[str, str], ...]]:
    lines = head.decode("latin-1").split("\r\n")
    protocol, _, rest = lines[0].partition(" ")
    code, _, reason = rest.partition(" ")
    digits = code.isascii() and code.isdigit() and len(code) == 3
    if not protocol.startswith("HTTP/") or not digits:
        raise Broken(f"something that is not HTTP: {shown(lines[0][:80])}")
    if len(lines) > HEADERS_MAX:
        raise Broken(f"more than {HEADERS_MAX} header lines")
    headers = []
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise Broken(f"a line that is not a header: {shown(line[:80])}")
        headers.append((name, value.strip()))
    return protocol, int(code), reason, tuple(headers)


def _length(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise Broken(f"Content-Length: {shown(text)}")
    return int(text)


def _reason(error: OSError | UnicodeError) -> str:
    if isinstance(error, TimeoutError):
        return "no connection in time"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
