"""The mark beside a database: which database it is, and how far it had come.

`forewarn.mark` is written behind the commits, never ahead of them, by a thread of its own: at most
one small file a second, nothing on the way of a commit. At a start it tells a database that is
missing, another one, or older than it was from the one that belongs here (decision 22).

What a mark means for what was found is decided by functions over values; files are read and
written at the end.
"""

from __future__ import annotations

import threading
import zlib
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from forewarn.adapters.private_files import write_private
from forewarn.adapters.sqlite.data_folder import (
    DATABASE_NAME,
    WAL_NAME,
    DamagedMark,
    LostDatabase,
    NewerDatabase,
    OtherDatabase,
    restore_command,
)
from forewarn.adapters.system import SystemClock
from forewarn.logs import Log

MARK_NAME = "forewarn.mark"
MARK_FORM = 1
MARK_BYTES_MAX = 4_096
MARK_EVERY_S = 1.0  # at most one is written in this time, so it is at most so late
# The file of a larger database has no checksum: computing it would hold up the stop, or take too
# much of a processor while the database is in use.
SUMMED_BYTES_MAX = 1 << 30
SUMMED_IN_USE_BYTES_MAX = 128 << 20
SUM_AFTER_MS = 60_000  # without a change of the file, in use
_CHUNK_BYTES = 1 << 20

log = Log(__name__)


class DatabaseMark(Struct, frozen=True, kw_only=True):
    """What is known of a database without opening it.

    `commits` it has at least; `settled` of them are in its file, without the WAL. `file_sum` is the
    checksum of the file; None if the file may have changed since it was last summed.
    """

    database: str
    commits: int
    settled: int
    file_sum: int | None = None


class Progress(Struct, frozen=True):
    """What an open database says of itself: its id, and how many commits it has."""

    database: str
    commits: int


class _MarkForm(msgspec.Struct, forbid_unknown_fields=True):
    """What is in the file. `form` tells later forms from this one, `check` covers the rest."""

    form: int
    database: str
    commits: int
    settled: int
    file_sum: int | None
    check: int


class _Form(msgspec.Struct):
    """What every form has, so that a newer one is told from a damaged one."""

    form: int


def encode(mark: DatabaseMark) -> bytes:
    """The mark as it is kept."""
    kept = _MarkForm(
        form=MARK_FORM,
        database=mark.database,
        commits=mark.commits,
        settled=mark.settled,
        file_sum=mark.file_sum,
        check=_check(mark),
    )
    return msgspec.json.encode(kept) + b"\n"


def decode(content: bytes, data_dir: Path) -> DatabaseMark:
    """The mark that was kept. Raises DamagedMark or NewerDatabase."""
    path = data_dir / MARK_NAME
    try:
        form = msgspec.json.decode(content, type=_Form).form
        kept = msgspec.json.decode(content, type=_MarkForm) if form == MARK_FORM else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise damaged_mark(data_dir) from None
    if kept is None:
        raise NewerDatabase(
            f"{path} was written by a newer program (form {form}).",
            "Run the newer program that wrote it, or restore a backup from before.",
        )
    mark = DatabaseMark(
        database=kept.database,
        commits=kept.commits,
        settled=kept.settled,
        file_sum=kept.file_sum,
    )
    if kept.check != _check(mark):
        raise damaged_mark(data_dir)
    return mark


def _check(mark: DatabaseMark) -> int:
    words = (MARK_FORM, mark.database, mark.commits, mark.settled, mark.file_sum)
    return zlib.crc32(" ".join(map(str, words)).encode())


def damaged_mark(data_dir: Path) -> DamagedMark:
    """What is said when the mark is there and says nothing."""
    restore = restore_command(data_dir, force=(data_dir / DATABASE_NAME).exists())
    return DamagedMark(
        f"{data_dir / MARK_NAME} is damaged, so {DATABASE_NAME} may be older than it was.",
        f"If it was neither put there by hand nor taken from a copy, remove {MARK_NAME} and start"
        f" again; else run {restore}.",
    )


def refuse_lost(
    mark: DatabaseMark | None, data_dir: Path, *, empty: bool, by_other_file: str = ""
) -> None:
    """Raise LostDatabase if the missing or empty database was one.

    Its mark says so, or another file that would not be there without it.
    """
    if mark is None and not by_other_file:
        return
    known_by = f"{by_other_file} is there"
    if mark is not None:
        known_by = f"{MARK_NAME} says that it had {_count(mark.commits)}"
    raise LostDatabase(
        f"{data_dir / DATABASE_NAME} is {'empty' if empty else 'not there'}, but {known_by}.",
        f"Put it back, or run {restore_command(data_dir, force=empty)}."
        " To begin with a new database on purpose, start once with --new.",
    )


def refuse_replaced(mark: DatabaseMark | None, in_file: Progress | None, data_dir: Path) -> None:
    """Raise OtherDatabase if the file under a WAL is another database, or an older one.

    SQLite would play the WAL into it and make a mixture that looks like the newest database.
    `in_file` is None if the file alone cannot be read.
    """
    if mark is None or in_file is None or mark.settled == 0:
        return
    same = in_file.database == mark.database
    if same and in_file.commits >= mark.settled:
        return
    found = _count(in_file.commits) if same else "another database in it"
    raise OtherDatabase(
        f"{data_dir / DATABASE_NAME} and {WAL_NAME} do not belong together: the one alone has"
        f" {found}, and {MARK_NAME} says {mark.settled}.",
        f"Put both back as they were, or run {restore_command(data_dir, force=True)}.",
    )


def refuse_other(mark: DatabaseMark | None, found: Progress | None, data_dir: Path) -> None:
    """Raise OtherDatabase unless this is the database of its mark, and has come as far.

    `found` is None if it is of a time before there were marks.
    """
    path = data_dir / DATABASE_NAME
    if mark is None:
        return
    if found is None or found.database != mark.database:
        raise OtherDatabase(
            f"{path} is another database than the one that {MARK_NAME} was written for.",
            _way_out(data_dir),
        )
    if found.commits < mark.commits:
        raise OtherDatabase(
            f"{path} is older than it was: it has {_count(found.commits)}, and {MARK_NAME} says"
            f" {mark.commits}.",
            _way_out(data_dir),
        )


def refuse_changed(mark: DatabaseMark | None, in_file: Progress | None, data_dir: Path) -> None:
    """Raise OtherDatabase if a bit of the file is not as it was. Reads all of the file.

    If the file has more commits than the mark says, some process has moved the WAL into it since,
    and the checksum is of the file before.
    """
    if mark is None or mark.file_sum is None or in_file is None or in_file.commits > mark.settled:
        return
    path = data_dir / DATABASE_NAME
    if file_sum(path) != mark.file_sum:
        raise OtherDatabase(
            f"{path} is not as it was left: a fault of the disk, or another program changed it.",
            _way_out(data_dir),
        )


def _way_out(data_dir: Path) -> str:
    own = restore_command(data_dir, data_dir / DATABASE_NAME, force=True)
    return (
        f"Put the right one back, or run {restore_command(data_dir, force=True)}. To go on with"
        f" this one all the same, run {own}: each of its incarnations grows by 1,000,000. To begin"
        " with a new one, start once with --new: this one is kept aside."
    )


def _count(commits: int) -> str:
    return f"{commits} commit" if commits == 1 else f"{commits} commits"


def sum_if_readable(data_dir: Path, bytes_max: int) -> int | None:
    """The checksum of the database file, None if it is too large or cannot be read."""
    path = data_dir / DATABASE_NAME
    try:
        return None if path.stat().st_size > bytes_max else file_sum(path)
    except OSError as error:
        log.warning("the database file was not summed", path=str(path), reason=str(error))
        return None


def file_sum(path: Path, *, bytes_max: int | None = None) -> int:
    """The checksum of a file, or of so many bytes at its beginning. Raises OSError."""
    found, left = 0, path.stat().st_size if bytes_max is None else bytes_max
    with path.open("rb") as file:
        while chunk := file.read(min(left, _CHUNK_BYTES)):
            found = zlib.crc32(chunk, found)
            left -= len(chunk)
    return found


def read_mark(data_dir: Path) -> DatabaseMark | None:
    """The mark of a data folder, None if it has none. Raises DatabaseRefused or OSError."""
    try:
        with (data_dir / MARK_NAME).open("rb") as file:
            content = file.read(MARK_BYTES_MAX)
    except FileNotFoundError:
        return None
    return decode(content, data_dir)


def write_mark(data_dir: Path, mark: DatabaseMark) -> None:
    """Replace the mark, whole or not at all. Durable when it returns. Raises OSError."""
    write_private(data_dir / MARK_NAME, encode(mark))


class Marker:
    """Writes the mark of a database in use, on a thread of its own, until it is closed.

    What cannot be written is logged, once for each reason, and tried again with the next commit: a
    mark that is behind protects less, and stops nothing.
    """

    def __init__(
        self, data_dir: Path, mark: DatabaseMark, *, sum_after_ms: int = SUM_AFTER_MS
    ) -> None:
        """Write the first mark at once. Raises OSError."""
        self._data_dir = data_dir
        self._sum_after_ms = sum_after_ms
        self._clock = SystemClock()
        self._guard = threading.Lock()  # of the next four
        self._newest = mark
        self._forgetting = False  # the file is to change, and the mark on the disk has its checksum
        self._changes = 0  # of the file
        self._changed_ms = self._clock.monotonic_ms()
        self._said = ""
        self._rung = threading.Event()
        self._closing = threading.Event()
        write_mark(data_dir, mark)
        self._thread = threading.Thread(target=self._work, name="mark", daemon=True)
        self._thread.start()

    def committed(self, commits: int) -> None:
        """So many commits are durable. The caller waits for nothing."""
        with self._guard:
            self._newest = replace(self._newest, commits=commits)
        if not self._rung.is_set():
            self._rung.set()

    def may_change_file(self) -> bool:
        """Ask before the WAL is moved into the file. False: not yet, ask again after a commit.

        A move that is cut off must not leave a file beside the checksum of another.
        """
        with self._guard:
            self._changed_ms = self._clock.monotonic_ms()
            if self._newest.file_sum is None and not self._forgetting:
                self._changes += 1
                return True
            self._newest = replace(self._newest, file_sum=None)
            self._forgetting = True
        self._rung.set()
        return False

    def settled(self, commits: int) -> None:
        """The file alone has so many commits."""
        with self._guard:
            self._newest = replace(self._newest, settled=commits)

    def stop(self) -> bool:
        """End the thread and forget the checksum of the file, which is about to change.

        False if it must not: the mark on the disk still has its checksum and cannot be replaced.
        """
        self._closing.set()
        self._rung.set()
        self._thread.join()
        without = self._newest.file_sum is None and not self._forgetting
        self._newest = replace(self._newest, file_sum=None)
        return self._write(self._newest) or without

    def close(self, *, file_sum: int | None) -> None:
        """Write the last mark, with the checksum of the closed file if it is known."""
        self._write(replace(self._newest, file_sum=file_sum))

    def _work(self) -> None:
        while not self._closing.is_set():
            self._rung.wait()
            self._rung.clear()
            if self._closing.is_set():
                return
            self._sum_if_quiet()
            with self._guard:
                mark = self._newest
            if self._write(mark) and mark.file_sum is None:
                with self._guard:
                    self._forgetting = False
            self._closing.wait(MARK_EVERY_S)

    def _sum_if_quiet(self) -> None:
        """Sum the file once nothing was moved into it for a while."""
        with self._guard:
            changes, known = self._changes, self._newest.file_sum is not None
            quiet_ms = self._clock.monotonic_ms() - self._changed_ms
            if known or self._forgetting or quiet_ms < self._sum_after_ms:
                return
        found = sum_if_readable(self._data_dir, SUMMED_IN_USE_BYTES_MAX)
        with self._guard:
            if changes == self._changes and not self._forgetting:
                self._newest = replace(self._newest, file_sum=found)

    def _write(self, mark: DatabaseMark) -> bool:
        """Write the mark; whether that worked."""
        try:
            write_mark(self._data_dir, mark)
        except OSError as error:
            if str(error) != self._said:
                log.warning("mark_not_written", folder=str(self._data_dir), why=str(error))
            self._said = str(error)
            return False
        self._said = ""
        return True
