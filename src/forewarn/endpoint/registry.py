"""What the endpoint knows: the documents of each scope and the guests that may read them.

Mutable, and touched by the event loop's thread only. Nothing here parses or awaits. `Page` is one
scope, `Guest` one VM, `Document` one rendering, shared by every api-version with equal content.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import count
from typing import Protocol

from forewarn.endpoint.limits import Bucket, Refusals
from forewarn.wire.link import ShownScope, ShownVm

# How many parked polls are answered before others get their turn.
WOKEN_AT_ONCE = 256

_serials = count(1)


class Waiter(Protocol):
    """A parked poll."""

    def wake(self) -> None:
        """Answer now, from the document of now. Without effect if it is no longer parked."""
        ...


class GuestConnection(Protocol):
    """An open connection of a guest."""

    def cut(self) -> None:
        """Close it: the caller at the other end is no longer the guest that it was."""
        ...


class Document:
    """One rendered document, with its answers ready to send.

    `serial` is unique and grows with every document made, in whatever scope: a guest that keeps
    the serial it last read knows by one comparison that there is nothing new.
    """

    __slots__ = (
        "answer",
        "body",
        "date",
        "event_ids",
        "incarnation",
        "serial",
        "tag",
        "unchanged",
    )

    def __init__(self, *, incarnation: int, body: bytes, event_ids: frozenset[str]) -> None:
        self.serial = next(_serials)
        self.incarnation = incarnation
        self.tag = str(incarnation)
        self.body = body
        self.event_ids = event_ids
        self.answer = b""
        self.unchanged = b""
        self.date = b""

    def dress(self, date: bytes) -> None:
        """Make `answer` (200) and `unchanged` (304) carry this date; `date` says which it is."""
        self.date = date
        # The tag is quoted, unlike the real service's: strict clients fail otherwise.
        self.unchanged = b'HTTP/1.1 304 Not Modified\r\nETag: "%d"\r\nDate: %b\r\n\r\n' % (
            self.incarnation,
            date,
        )
        self.answer = (
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json; charset=utf-8\r\n"
            b'ETag: "%d"\r\nContent-Length: %d\r\nDate: %b\r\n\r\n%b'
            % (self.incarnation, len(self.body), date, self.body)
        )


class Page:
    """One scope as its guests see it.

    `documents` holds one document per name of an api-version. `polled_ms` is the wall time of the
    last poll by any of its guests, as far as it was collected from them.
    """

    __slots__ = (
        "documents",
        "enabled",
        "enabling",
        "event_ids",
        "incarnation",
        "polled_ms",
        "scope",
        "waiters",
    )

    def __init__(self, scope: ShownScope) -> None:
        self.scope = scope
        self.enabled = False
        self.enabling: asyncio.Future[None] | None = None
        self.documents: Mapping[str, Document] = {}
        self.event_ids: frozenset[str] = frozenset()
        self.incarnation = 0
        self.polled_ms = 0
        self.waiters: dict[Waiter, None] = {}

    @property
    def name(self) -> str:
        return self.scope.name

    def publish(
        self, scope: ShownScope, documents: Mapping[str, Document], *, enabled: bool
    ) -> None:
        """Show these documents from now on, and answer who waits for another incarnation."""
        changed = scope.incarnation != self.incarnation
        self.scope = scope
        if documents is not self.documents:
            self.documents = documents
            self.event_ids = frozenset().union(*(d.event_ids for d in documents.values()))
        self.enabled = enabled
        self.incarnation = scope.incarnation
        if changed and self.waiters:
            self._wake()

    def _wake(self) -> None:
        woken = list(self.waiters)
        self.waiters.clear()
        loop = asyncio.get_running_loop()
        for start in range(0, len(woken), WOKEN_AT_ONCE):
            loop.call_soon(_wake_some, woken[start : start + WOKEN_AT_ONCE])


def _wake_some(waiters: list[Waiter]) -> None:
    for waiter in waiters:
        waiter.wake()


class Guest:
    """One VM as the endpoint knows it: what it may read, what it has read, how often it may ask.

    `read_serial` is the document it was last sent, `polled_serial` the one it last asked for; -1
    makes its next poll look at everything rare (enabling, first reads, being expected back).
    `document` is what `asked`, the request it repeats, gets while nothing changes: a poll that
    finds it touches neither the page nor its documents, which matters when there are thousands.
    `polled_ms` is the wall time of its last poll; `host.served_documents` hands it on to the page.
    """

    __slots__ = (
        "asked",
        "bucket",
        "connections",
        "connects",
        "document",
        "expected",
        "gone",
        "page",
        "parked",
        "polled_ms",
        "polled_serial",
        "read_ids",
        "read_serial",
        "refusals",
        "vm",
    )

    def __init__(
        self, vm: ShownVm, page: Page, bucket: Bucket, connects: Bucket | None = None
    ) -> None:
        self.vm = vm
        self.page = page
        self.bucket = bucket
        self.connects = connects or Bucket(0)
        self.refusals = Refusals()
        self.asked: object = None
        self.document: Document | None = None
        self.polled_ms = 0
        self.read_serial = -1
        self.polled_serial = -1
        self.read_ids: frozenset[str] = frozenset()
        self.expected = False
        self.gone = False
        self.parked = 0
        self.connections: set[GuestConnection] = set()

    @property
    def name(self) -> str:
        return self.vm.name

    def look_again(self) -> None:
        """Make the next poll take the slow path."""
        self.document = None
        self.read_serial = -1
        self.polled_serial = -1

    def read(self, document: Document) -> frozenset[str]:
        """Note that the guest is sent this document; return the events that are new to it.

        `read_serial` is for the caller to set: only a poll that has looked at everything rare may.
        """
        new = document.event_ids - self.read_ids
        if new or not self.read_ids <= self.page.event_ids:
            read = (self.read_ids | document.event_ids) & self.page.event_ids
            # Most guests of a scope have read the same: let them share one set.
            self.read_ids = document.event_ids if read == document.event_ids else read
        return new

    def cut(self) -> None:
        """Close its connections: the guest is gone, or is another one now."""
        for connection in tuple(self.connections):
            connection.cut()


class NotYet(Exception):  # noqa: N818 - says what is the case
    """It is known who asks, and not yet what it is to be told: it is to ask again soon."""

    def __init__(self, guest: Guest) -> None:
        super().__init__(f"control has not said yet what VM {guest.name} is to read here")
        self.guest = guest
