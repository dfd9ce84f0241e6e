"""Whether the WAL of an SQLite database lost something in its middle. Reads bytes, opens nothing.

SQLite takes a WAL up to the first frame that is not whole and drops the rest without a word. At
its end that is right: no caller was promised a transaction that was being written when the power
went. In its middle it is a loss: SQLite begins to write a transaction only after the one before
it was synced (synchronous = FULL), so a whole transaction behind a broken one says that the broken
one was durable, and answered.

The format (https://www.sqlite.org/fileformat2.html#walformat): a header of 32 bytes, then frames of
24 bytes and one page each. A frame holds the number of its page, the size of the database if it is
the last frame of its transaction and else 0, the two salts of the header, and a checksum that goes
on from that of the frame before. The salts are not part of the checksum. When the WAL has been
moved into the database it is written from its beginning again, with other salts; what stands behind
the end is of earlier turns and has the salts of those.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from sys import byteorder
from typing import BinaryIO, Final, Literal

from msgspec import Struct

HEADER_BYTES: Final = 32
FRAME_HEADER_BYTES: Final = 24
PAGE_BYTES_MIN: Final = 512
PAGE_BYTES_MAX: Final = 65_536

_MAGIC: Final = 0x377F0682  # checksums read words as little-endian; one more: as big-endian
_WORD: Final = 0xFFFFFFFF

Order = Literal["little", "big"]
Sum = tuple[int, int]


class Damage(Struct, frozen=True):
    """`frame` of `frames` is broken (from 1; 0 is the header), and what follows it is not."""

    frame: int
    frames: int


class _Header(Struct, frozen=True):
    order: Order | None  # None: the magic number is broken
    page_bytes: int
    salts: bytes
    kept_sum: Sum
    summed: bytes

    @property
    def sound(self) -> bool:
        """Whether SQLite believes it."""
        if self.order is None or not _is_page_size(self.page_bytes):
            return False
        return checksum(self.summed, (0, 0), self.order) == self.kept_sum


class _Frame(Struct, frozen=True):
    page: int
    ends_transaction: bool
    salts: bytes
    kept_sum: Sum
    summed: bytes


def find_damage(file: BinaryIO, *, size: int, page_bytes: int) -> Damage | None:
    """The first broken place of a WAL if a whole transaction follows it that SQLite would drop.

    `size` is that of the file, `page_bytes` the page size of the database, for a WAL whose header
    cannot be believed. Reads the file once, a frame at a time; twice if its header is broken.
    """
    head = file.read(HEADER_BYTES)
    if len(head) < HEADER_BYTES:
        return None
    header = _header(head)
    if header.sound:
        page_bytes = header.page_bytes
    if not _is_page_size(page_bytes):
        return None  # nor can SQLite read it; the database is refused for that
    frames = (size - HEADER_BYTES) // (FRAME_HEADER_BYTES + page_bytes)
    orders: tuple[Order, ...] = ("little", "big")
    for order in (header.order,) if header.sound and header.order else orders:
        file.seek(HEADER_BYTES)
        found = _broken(_frames(file, frames, page_bytes), header, order)
        if found is not None:
            return Damage(found, frames)
    return None


def _broken(frames: Iterator[_Frame], header: _Header, order: Order) -> int | None:
    """The number of the broken frame that a whole transaction follows, if there is one.

    Behind the broken frame each frame is judged by the checksum that its predecessor keeps. Only a
    transaction that follows the known end of another is whole: what the broken frame belongs to
    may be the last one, half written, and behind it may be the rest of one that was cut off in an
    earlier life; neither was ever promised.
    """
    broken = None if header.sound else 0
    salts = header.salts if header.sound else None  # None: as the first frame has them
    goes_on_from: tuple[Sum, ...] = (header.kept_sum,)
    if broken == 0:
        goes_on_from += (checksum(header.summed, (0, 0), order),)
    whole = True  # every frame since the end of a transaction, or the header, fits
    for number, frame in enumerate(frames, 1):
        salts = salts or frame.salts
        ours = frame.salts == salts
        if broken is not None and not ours:
            whole, goes_on_from = False, (frame.kept_sum,)
            continue
        sums = [checksum(frame.summed, start, order) for start in goes_on_from]
        summed_right = frame.kept_sum in sums and frame.page > 0
        goes_on_from = (frame.kept_sum,)
        if broken is None:
            if ours and summed_right:
                continue
            # Its checksum may be what is broken; then the next one goes on from the right one.
            broken, goes_on_from = number, (frame.kept_sum, sums[0])
            whole = frame.ends_transaction and (ours or summed_right)
        elif not summed_right:
            whole = False
        elif frame.ends_transaction:
            if whole:
                return broken
            whole = True
    return None


def checksum(content: bytes, start: Sum, order: Order) -> Sum:
    """The checksum of SQLite over whole pairs of words of 32 bits, going on from another."""
    words = array("I", content)
    if order != byteorder:
        words.byteswap()
    first, second = start
    pairs = iter(words)
    for one, other in zip(pairs, pairs, strict=True):
        first = (first + one + second) & _WORD
        second = (second + other + first) & _WORD
    return first, second


def _header(head: bytes) -> _Header:
    magic, _, page_bytes, _, salts, first, second = struct.unpack(">IIII8sII", head)
    orders: dict[int, Order] = {_MAGIC: "little", _MAGIC + 1: "big"}
    return _Header(
        order=orders.get(magic),
        page_bytes=page_bytes,
        salts=salts,
        kept_sum=(first, second),
        summed=head[:24],
    )


def _frames(file: BinaryIO, frames: int, page_bytes: int) -> Iterator[_Frame]:
    """The whole frames of a WAL, in their order."""
    for _ in range(frames):
        head, content = file.read(FRAME_HEADER_BYTES), file.read(page_bytes)
        if len(content) < page_bytes:
            return
        page, pages_after, salts, first, second = struct.unpack(">II8sII", head)
        yield _Frame(
            page=page,
            ends_transaction=pages_after > 0,
            salts=salts,
            kept_sum=(first, second),
            summed=head[:8] + content,
        )


def _is_page_size(value: int) -> bool:
    return PAGE_BYTES_MIN <= value <= PAGE_BYTES_MAX and value & (value - 1) == 0
