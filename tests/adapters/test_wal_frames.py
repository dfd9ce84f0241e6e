"""A WAL that SQLite would cut in its middle, told from one that ends where a crash has left it.

WALs of SQLite itself are used where it can write them; those of the other byte order are rewritten
from them. What SQLite makes of each is asked of SQLite.
"""

from __future__ import annotations

import io
import random
import shutil
import sqlite3
import struct
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from forewarn.adapters.sqlite.wal_frames import (
    FRAME_HEADER_BYTES,
    HEADER_BYTES,
    Damage,
    Order,
    checksum,
    find_damage,
)

TRANSACTIONS = 8
PAGES_EACH = 3  # at least: a row that fills some pages
KINDS = {"page number": 0, "database size": 4, "salt": 8, "checksum": 16, "page": 24}


@dataclass(frozen=True)
class Wal:
    """A WAL, its page size, and the number of the last frame of each transaction."""

    content: bytes
    page_bytes: int
    ends: tuple[int, ...]

    @property
    def frame_bytes(self) -> int:
        return FRAME_HEADER_BYTES + self.page_bytes

    def offset(self, frame: int) -> int:
        """Where a frame begins; frames count from 1."""
        return HEADER_BYTES + (frame - 1) * self.frame_bytes

    def damage(self, content: bytes | bytearray) -> Damage | None:
        return find_damage(io.BytesIO(content), size=len(content), page_bytes=self.page_bytes)

    def flipped(self, offset: int, bit: int = 0) -> bytearray:
        content = bytearray(self.content)
        content[offset] ^= 1 << bit
        return content


def ends_of(content: bytes, page_bytes: int) -> tuple[int, ...]:
    """The frames that end a transaction, as they say themselves."""
    size = FRAME_HEADER_BYTES + page_bytes
    starts = range(HEADER_BYTES, len(content) - size + 1, size)
    return tuple(
        number
        for number, start in enumerate(starts, 1)
        if struct.unpack(">I", content[start + 4 : start + 8])[0]
    )


def commit(connection: sqlite3.Connection, number: int, page_bytes: int) -> None:
    connection.execute("BEGIN")
    connection.execute("INSERT INTO t VALUES (?, ?)", (number, "x" * page_bytes * PAGES_EACH))
    connection.execute("COMMIT")


def open_database(path: Path, page_bytes: int) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"PRAGMA page_size = {page_bytes}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    return connection


@cache
def written(page_bytes: int = 4_096, order: Order = "little") -> Wal:
    """A WAL with several transactions, as SQLite has left it when its process was killed."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a.db"
        with closing(open_database(path, page_bytes)) as connection:
            connection.execute("CREATE TABLE t (a, b)")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            for number in range(TRANSACTIONS):
                commit(connection, number, page_bytes)
            content = path.with_name("a.db-wal").read_bytes()
    if order == "big":
        content = in_big_endian(content, page_bytes)
    return Wal(content, page_bytes, ends_of(content, page_bytes))


def in_big_endian(content: bytes, page_bytes: int) -> bytes:
    """The same WAL as a machine of the other byte order writes it: only checksums differ."""
    head = struct.pack(">I", 0x377F0683) + content[4:24]
    kept = checksum(head, (0, 0), "big")
    made = head + struct.pack(">II", *kept)
    size = FRAME_HEADER_BYTES + page_bytes
    for start in range(HEADER_BYTES, len(content), size):
        frame = content[start : start + size]
        kept = checksum(frame[:8] + frame[24:], kept, "big")
        made += frame[:16] + struct.pack(">II", *kept) + frame[24:]
    return made


FORMS: tuple[tuple[int, Order], ...] = (
    (512, "little"),
    (512, "big"),
    (4_096, "little"),
    (4_096, "big"),
)
every_form = pytest.mark.parametrize(
    "wal", [written(*form) for form in FORMS], ids=[f"{size}-{order}" for size, order in FORMS]
)


def test_pages_may_have_the_largest_size() -> None:
    wal = written(65_536)
    assert wal.damage(wal.content) is None
    frame = wal.ends[1]
    assert wal.damage(wal.flipped(wal.offset(frame) + 30)) == Damage(frame, wal.ends[-1])


@every_form
def test_a_whole_wal_has_no_damage(wal: Wal) -> None:
    assert len(wal.ends) == TRANSACTIONS
    assert wal.damage(wal.content) is None


@every_form
@pytest.mark.parametrize("field", KINDS)
def test_a_flipped_bit_in_the_middle_is_found_wherever_it_is_in_its_frame(
    wal: Wal, field: str
) -> None:
    frame = wal.ends[2] + 2  # in the middle of a transaction
    offset = wal.offset(frame) + KINDS[field]
    for bit in (0, 7):
        assert wal.damage(wal.flipped(offset, bit)) == Damage(frame, wal.ends[-1])


@pytest.mark.parametrize("field", KINDS)
def test_so_is_one_in_the_frame_that_ends_a_transaction_if_only_one_more_follows(
    field: str,
) -> None:
    wal = written()
    frame = wal.ends[-2]
    offset = wal.offset(frame) + KINDS[field] + 1
    assert wal.damage(wal.flipped(offset)) == Damage(frame, wal.ends[-1])


@every_form
@pytest.mark.parametrize("offset", [0, 3, 5, 10, 13, 17, 21, 25, 29])
def test_a_flipped_bit_in_the_header_is_found(wal: Wal, offset: int) -> None:
    """SQLite takes such a WAL for an empty one."""
    assert wal.damage(wal.flipped(offset)) == Damage(0, wal.ends[-1])


def test_pages_of_zeros_in_the_middle_are_found() -> None:
    wal = written()
    content = bytearray(wal.content)
    start = wal.offset(wal.ends[1] + 1)
    content[start : start + 2 * wal.frame_bytes] = bytes(2 * wal.frame_bytes)
    assert wal.damage(content) == Damage(wal.ends[1] + 1, wal.ends[-1])


@every_form
def test_wherever_a_wal_is_cut_off_its_tail_is_torn_and_not_damaged(wal: Wal) -> None:
    chance = random.Random(wal.page_bytes)
    cuts = [chance.randrange(len(wal.content)) for _ in range(20)]
    for cut in [0, 1, 31, 32, 33, wal.offset(2), wal.offset(2) + 23, *cuts]:
        assert wal.damage(wal.content[:cut]) is None


@pytest.mark.parametrize("behind", ["nothing", "an earlier turn"])
def test_a_last_transaction_that_reached_the_disk_in_any_part_is_a_torn_tail(behind: str) -> None:
    """The power goes before the sync: of what was written since, any sectors are there."""
    sector = 512
    wal = written() if behind == "nothing" else written_again()
    chance = random.Random(3)
    start, end = wal.offset(wal.ends[-2] + 1), wal.offset(wal.ends[-1] + 1)
    old = bytes(end) if behind == "nothing" else earlier_turn()
    for _ in range(200):
        content = bytearray(wal.content)
        for place in range(start // sector * sector, end, sector):
            if chance.random() < 0.3:
                lost = slice(max(place, start), min(place + sector, end))
                content[lost] = old[lost]
        assert wal.damage(content) is None


@cache
def written_again() -> Wal:
    """A WAL that was moved into its database and written from its beginning again, in part."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a.db"
        with closing(open_database(path, 4_096)) as connection:
            connection.execute("CREATE TABLE t (a, b)")
            for number in range(TRANSACTIONS):
                commit(connection, number, 4_096)
            before = path.with_name("a.db-wal").read_bytes()
            connection.execute("PRAGMA wal_checkpoint(RESTART)")
            for number in range(3):
                commit(connection, number, 4_096)
            content = path.with_name("a.db-wal").read_bytes()
    _EARLIER.append(before)
    ends = ends_of(content, 4_096)
    return Wal(content, 4_096, ends[:3])


_EARLIER: list[bytes] = []


def earlier_turn() -> bytes:
    written_again()
    return _EARLIER[0]


def test_frames_of_an_earlier_turn_behind_the_end_are_normal() -> None:
    wal = written_again()
    assert len(wal.content) > wal.offset(wal.ends[-1] + 1)  # there is something behind the end
    assert wal.damage(wal.content) is None


def test_damage_before_frames_of_an_earlier_turn_is_found() -> None:
    wal = written_again()
    frames = (len(wal.content) - HEADER_BYTES) // wal.frame_bytes
    content = wal.flipped(wal.offset(wal.ends[0]) + 100)
    assert wal.damage(content) == Damage(wal.ends[0], frames)
    # The last transaction of this turn may have been torn.
    assert wal.damage(wal.flipped(wal.offset(wal.ends[2]) + 100)) is None


def test_what_is_left_of_a_torn_tail_behind_a_shorter_transaction_is_normal() -> None:
    """After a crash SQLite writes over the torn tail, with the same salts."""
    wal = written()
    cut = wal.ends[-3]  # the transactions behind it are taken for a torn tail and written over
    order: Order = "little"
    start = wal.offset(cut)
    kept = struct.unpack(">II", wal.content[start + 16 : start + 24])
    frame = wal.content[wal.offset(cut + 1) : wal.offset(cut + 2)]
    page = b"y" * wal.page_bytes
    head = frame[:4] + struct.pack(">I", 99)
    sums = checksum(head + page, kept, order)
    shorter = head + frame[8:16] + struct.pack(">II", *sums) + page
    content = wal.content[: wal.offset(cut + 1)] + shorter
    rest = wal.content[wal.offset(cut + 2) : wal.offset(wal.ends[-2] + 1)]
    assert wal.damage(content + rest) is None


def test_a_spilled_transaction_that_was_rolled_back_is_normal() -> None:
    """Its frames stay behind the end until they are written over; none of them ends anything."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a.db"
        with closing(open_database(path, 4_096)) as connection:
            connection.execute("CREATE TABLE t (a, b)")
            connection.execute("PRAGMA cache_size = 2")
            connection.execute("BEGIN")
            for number in range(50):
                connection.execute("INSERT INTO t VALUES (?, ?)", (number, "x" * 9_000))
            connection.execute("ROLLBACK")
            commit(connection, 1, 4_096)
            content = path.with_name("a.db-wal").read_bytes()
    wal = Wal(content, 4_096, ends_of(content, 4_096))
    assert len(content) > 2 * wal.offset(wal.ends[-1])
    assert wal.damage(content) is None


def test_a_database_that_sqlite_cuts_without_a_word_is_found_and_only_that(tmp_path: Path) -> None:
    """For every kind of flipped bit: if SQLite loses what is followed by more, it is damage."""
    path = tmp_path / "a.db"
    with closing(open_database(path, 4_096)) as connection:
        connection.execute("CREATE TABLE t (a, b)")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        for number in range(TRANSACTIONS):
            commit(connection, number, 4_096)
        file, content = path.read_bytes(), path.with_name("a.db-wal").read_bytes()
    wal = Wal(content, 4_096, ends_of(content, 4_096))
    chance = random.Random(5)
    found = 0
    for number in range(60):
        flipped = wal.flipped(chance.randrange(len(content)), chance.randrange(8))
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "a.db").write_bytes(file)
        (folder / "a.db-wal").write_bytes(flipped)
        with closing(sqlite3.connect(folder / "a.db")) as copy:
            left = copy.execute("SELECT count(*) FROM t").fetchone()[0]
        shutil.rmtree(folder)
        damage = wal.damage(flipped)
        found += damage is not None
        assert (damage is not None) == (left < TRANSACTIONS - 1), (number, left, damage)
    assert found > 20
