"""The bytes of every answer but the document's own, and the Date that each of them carries.

Nothing here decides what to answer. `wire.problems` knows the status of each refusal.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from forewarn.core.model import SECOND_MS
from forewarn.wire import problems
from forewarn.wire.documents import http_date
from forewarn.wire.problems import GuestProblem

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
JSON = b"application/json; charset=utf-8"
TEXT = b"text/plain; charset=utf-8"

_STATUS_LINES = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode())
    for status in HTTPStatus
}


class Dates:
    """The wall clock as guests see it: asked for every answer, written out once per second."""

    __slots__ = ("_from_ms", "_now_ms", "_until_ms", "line")

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self.line = b""
        self._from_ms = 0
        self._until_ms = 0

    def now_ms(self) -> int:
        """The wall time. Afterwards `line` is its Date, the same object all through a second."""
        now_ms = self._now_ms()
        if not self._from_ms <= now_ms < self._until_ms:
            seconds = now_ms // SECOND_MS
            self.line = http_date(seconds).encode()
            self._from_ms = seconds * SECOND_MS
            self._until_ms = self._from_ms + SECOND_MS
        return now_ms


def plain(
    status: int,
    *,
    date: bytes,
    content_type: bytes = JSON,
    body: bytes = b"",
    headers: tuple[tuple[str, str], ...] = (),
    close: bool,
    without_body: bool = False,
) -> bytes:
    """One whole answer. `without_body` is for HEAD: the length is said, the body is not sent."""
    parts = [_STATUS_LINES[status]]
    if body:
        parts.append(b"Content-Type: %b\r\n" % content_type)
    parts.extend(b"%b: %b\r\n" % (name.encode(), value.encode()) for name, value in headers)
    parts.append(b"Content-Length: %d\r\nDate: %b\r\n" % (len(body), date))
    # Said whenever we close: a client that is not told loses its next request (contract 10).
    parts.append(b"Connection: close\r\n\r\n" if close else b"\r\n")
    if not without_body:
        parts.append(body)
    return b"".join(parts)


def refusal(problem: GuestProblem, *, date: bytes, close: bool, without_body: bool) -> bytes:
    """A refusal as bytes."""
    return plain(
        problem.status,
        date=date,
        body=problem.body,
        headers=problem.headers,
        close=close,
        without_body=without_body,
    )


class Throttling:
    """The 429 of a VM over its rate. It is said often, so its bytes are made once per second."""

    __slots__ = ("_by_retry_s", "_date")

    def __init__(self) -> None:
        self._date = b""
        self._by_retry_s: dict[int, bytes] = {}

    def answer(self, retry_s: int, date: bytes) -> bytes:
        """The refusal that says to ask again in so many seconds."""
        if date is not self._date:
            self._date = date
            self._by_retry_s.clear()
        answer = self._by_retry_s.get(retry_s)
        if answer is None:
            problem = problems.too_many_requests(retry_s)
            answer = refusal(problem, date=date, close=False, without_body=False)
            self._by_retry_s[retry_s] = answer
        return answer


def closing(answer: bytes) -> bytes:
    """The same answer with `Connection: close` said."""
    head, separator, body = answer.partition(b"\r\n\r\n")
    return b"%b\r\nConnection: close%b%b" % (head, separator, body)
