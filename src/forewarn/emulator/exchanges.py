"""What guests asked and were told, and what happened to their apps: the record of one emulator.

For the report of a test that failed. Kept in memory, within limits; nothing here decides anything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from msgspec import Struct

from forewarn.endpoint.http_parser import Message

EXCHANGES_MAX = 5_000  # the oldest are forgotten
BODY_BYTES_MAX = 64 * 1024  # of an answer that is kept; documents are far below
BYTES_MAX = 16 * 1024 * 1024  # of all bodies; the oldest exchanges are forgotten


class Exchange(Struct, kw_only=True):
    """A request of a VM with its answer, or (`method` empty) something else that it has felt.

    `facts` is how many lines the journal had by then: both can be told in one order. `times` counts
    those that came one after the other with the same answer; `last_ms` is the last of them.
    """

    at_ms: int
    last_ms: int
    facts: int
    vm: str
    method: str
    target: str
    sent: bytes
    status: int
    body: bytes
    note: str = ""
    times: int = 1

    @property
    def size(self) -> int:
        """The bytes that it takes, but for a little that each takes."""
        return len(self.sent) + len(self.body) + len(self.target)

    def same(self, other: Exchange) -> bool:
        """Whether the other is this one once more."""
        return (
            self.method == other.method
            and self.target == other.target
            and self.sent == other.sent
            and self.status == other.status
            and self.body == other.body
            and self.note == other.note
        )


class ExchangeRecord:
    """Belongs to the event loop. `facts` says how many lines the journal has."""

    def __init__(self, now_ms: Callable[[], int], facts: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._facts = facts
        self._exchanges: deque[Exchange] = deque()
        self._bytes = 0
        self._last: dict[str, Exchange] = {}
        self.dropped = 0

    def answered(self, vm: str, asked: Message, answer: bytes, note: str) -> None:
        """A VM was answered with these bytes, spoilt as `note` says."""
        head, _, body = answer.partition(b"\r\n\r\n")
        self._add(
            Exchange(
                at_ms=self._now_ms(),
                last_ms=self._now_ms(),
                facts=self._facts(),
                vm=vm,
                method=asked.head.method,
                target=asked.head.target,
                sent=asked.body[:BODY_BYTES_MAX],
                status=int(head[9:12]) if head[9:12].isdigit() else 0,
                body=body[:BODY_BYTES_MAX],
                note=note,
            )
        )

    def felt(self, vm: str, what: str) -> None:
        """Something happened to what runs in a VM."""
        now_ms = self._now_ms()
        self._add(
            Exchange(
                at_ms=now_ms,
                last_ms=now_ms,
                facts=self._facts(),
                vm=vm,
                method="",
                target="",
                sent=b"",
                status=0,
                body=b"",
                note=what,
            )
        )

    def all(self) -> tuple[Exchange, ...]:
        """All that are still known, oldest first."""
        return tuple(self._exchanges)

    def _add(self, new: Exchange) -> None:
        last = self._last.get(new.vm)
        if last is not None and last.same(new):
            last.times += 1
            last.last_ms = new.at_ms
            return
        self._exchanges.append(new)
        self._last[new.vm] = new
        self._bytes += new.size
        while len(self._exchanges) > EXCHANGES_MAX or self._bytes > BYTES_MAX:
            self._bytes -= self._exchanges.popleft().size
            self.dropped += 1
