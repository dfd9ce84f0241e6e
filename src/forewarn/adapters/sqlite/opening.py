"""Opening the database of a data folder, or refusing it: the order in which everything is asked.

A database that is missing, damaged, another one or older than it was is refused in words before
anything of it is changed. The questions themselves are in `data_folder`, `wal_frames` and
`database_mark`.
"""

from __future__ import annotations

import secrets
import sqlite3
from contextlib import closing
from pathlib import Path

from msgspec.structs import replace

from forewarn.adapters.private_files import sync_folder
from forewarn.adapters.sqlite.data_folder import (
    BROKEN_FILE_ERRORS,
    DATABASE_FILES,
    DATABASE_NAME,
    JOURNAL_NAME,
    RESTORING_NAME,
    WAL_NAME,
    DamagedDatabase,
    DamagedMark,
    FileExists,
    FolderLock,
    ForeignDatabase,
    InterruptedRestore,
    LostDatabase,
    OtherDatabase,
    is_empty,
    keep_aside,
    make_private,
    migrate,
    refuse_damaged,
    refuse_database,
    refuse_file,
    refuse_interrupted_restore,
    refuse_moved,
    refuse_wal,
    remove_leftovers,
    unusable,
)
from forewarn.adapters.sqlite.database import Database, connect, failure
from forewarn.adapters.sqlite.database_mark import (
    MARK_NAME,
    DatabaseMark,
    Marker,
    Progress,
    read_mark,
    refuse_changed,
    refuse_lost,
    refuse_other,
    refuse_replaced,
    write_mark,
)
from forewarn.adapters.system import SystemClock
from forewarn.logs import Log
from forewarn.ports import StoreFailed
from forewarn.tables.statements import named_queries

BEFORE_NEW_PREFIX = "before-new-"  # of the folder to which --new moves what was there
DATABASE_ID_BYTES = 16

log = Log(__name__)


def open_database(data_dir: Path, *, new: bool = False) -> Database:
    """Open or make the database of a data folder, and keep every other process out of it.

    Raises one of `data_folder.DatabaseRefused` and then leaves the folder as it was. With `new`, a
    database that would be refused as lost, damaged or another is kept aside and a new one is made;
    one that would be opened is refused.
    """
    lock = FolderLock(data_dir)
    try:
        if new:
            _begin_anew(data_dir)
        writer = _open_file(data_dir)
        try:
            return _opened(writer, data_dir, lock)
        except BaseException:
            _close_unused(writer, data_dir)
            raise
    except OSError as error:
        lock.release()
        raise unusable(data_dir, error) from error
    except BaseException:
        lock.release()
        raise


def _opened(writer: sqlite3.Connection, data_dir: Path, lock: FolderLock) -> Database:
    path = data_dir / DATABASE_NAME
    try:
        mark = _mark_of(writer, path, read_mark(data_dir))
        remove_leftovers(data_dir)
        marker = Marker(data_dir, mark)
        try:
            return Database(writer, path=path, lock=lock, marker=marker, commits=mark.commits)
        except BaseException:
            marker.stop()
            raise
    except BROKEN_FILE_ERRORS as error:
        refuse_damaged(error, path)
        raise failure(error, f"opening {path}", unknown_is_fatal=True) from error


def _begin_anew(data_dir: Path) -> None:
    """Make room for a new database, unless the one that is there would be opened."""
    ours = (*DATABASE_FILES, *(path.name for path in data_dir.glob(f"{RESTORING_NAME}*")))
    if not any((data_dir / name).exists() for name in (*ours, MARK_NAME)):
        return
    try:
        _close_unused(_open_file(data_dir), data_dir)
    except (
        DamagedDatabase,
        DamagedMark,
        ForeignDatabase,
        InterruptedRestore,
        LostDatabase,
        OtherDatabase,
    ) as why:
        aside = keep_aside(data_dir, f"{BEFORE_NEW_PREFIX}{SystemClock().now_ms()}", ours)
        (data_dir / MARK_NAME).unlink(missing_ok=True)
        sync_folder(data_dir)
        kept = None if aside is None else str(aside)
        log.warning("begun_with_a_new_database", instead_of=why.refused, kept_aside=kept)
        return
    raise FileExists(
        f"{data_dir / DATABASE_NAME} is there and can be used, so --new is refused.",
        f"Start without --new. To begin anew all the same, move {DATABASE_NAME} and {MARK_NAME}"
        " away first.",
    )


def _close_unused(writer: sqlite3.Connection, data_dir: Path) -> None:
    """Close what was opened and not used; SQLite may move the WAL into the file as it does."""
    try:
        mark = read_mark(data_dir)
        if mark is not None and mark.file_sum is not None:
            write_mark(data_dir, replace(mark, file_sum=None))
    finally:
        writer.close()


def _open_file(data_dir: Path) -> sqlite3.Connection:
    """The writing connection: WAL, a sync at every commit, checkpoints by our hand only."""
    path = data_dir / DATABASE_NAME
    is_new = not path.exists()
    _refuse_or_make(data_dir)
    writer = connect(path.absolute().as_uri())
    try:
        writer.execute("PRAGMA wal_autocheckpoint = 0")
        writer.execute("PRAGMA synchronous = FULL")
        mode = writer.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise StoreFailed(f"{path}: the file system allows no WAL ({mode})", fatal=True)
        migrate(writer)
        if is_new:
            sync_folder(data_dir)
    except BROKEN_FILE_ERRORS as error:
        writer.close()
        refuse_damaged(error, path)
        raise failure(error, f"opening {path}", unknown_is_fatal=True) from error
    except BaseException:
        writer.close()
        raise
    return writer


def _refuse_or_make(data_dir: Path) -> None:
    """Raise a DatabaseRefused unless the database may be opened for writing; make an empty file.

    Whatever can be known without SQLite is asked before SQLite touches the files: it cuts a WAL
    at the first broken frame, plays any WAL into any database, and takes an empty file for new.
    """
    refuse_interrupted_restore(data_dir)
    refuse_moved(data_dir)
    path = data_dir / DATABASE_NAME
    missing = not path.exists()
    wal = _has_content(data_dir / WAL_NAME)
    try:
        mark = read_mark(data_dir)
    except DamagedMark:
        if not _has_content(path):
            refuse_lost(None, data_dir, empty=not missing, by_other_file=MARK_NAME)
        raise
    if not _has_content(path):
        by_other_file = WAL_NAME if wal else ""
        refuse_lost(mark, data_dir, empty=not missing, by_other_file=by_other_file)
    if missing:
        make_private(path)
        return
    refuse_file(path)
    refuse_wal(data_dir)
    in_file = _progress_in_file(path)
    if wal:
        refuse_replaced(mark, in_file, data_dir)
    _refuse_what_it_says(path, mark)
    refuse_changed(mark, in_file, data_dir)


def refuse_unfit(data_dir: Path) -> None:
    """Raise what a start would raise for the database that is there; makes and changes nothing."""
    if (data_dir / DATABASE_NAME).exists() or (data_dir / MARK_NAME).exists():
        _refuse_or_make(data_dir)


def _refuse_what_it_says(path: Path, mark: DatabaseMark | None) -> None:
    """Raise a DatabaseRefused unless the database is ours, sound, and the one of its mark.

    The connection cannot write: closing it does not move the WAL of what was refused.
    """
    # Only a connection that can write undoes what was cut off before there was a WAL.
    mode = "rw" if (path.parent / JOURNAL_NAME).exists() else "ro"
    try:
        with closing(connect(f"{path.absolute().as_uri()}?mode={mode}")) as connection:
            refuse_database(connection, path)
            if is_empty(connection):
                refuse_lost(mark, path.parent, empty=True)
            else:
                refuse_other(mark, _progress(connection), path.parent)
    except BROKEN_FILE_ERRORS as error:
        refuse_damaged(error, path)
        raise failure(error, f"opening {path}", unknown_is_fatal=True) from error


def _has_content(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _progress(connection: sqlite3.Connection) -> Progress | None:
    """What a database says of itself; None if it is of a time before there were marks."""
    known = "SELECT 1 FROM sqlite_master WHERE name = 'lineage'"
    if connection.execute(known).fetchone() is None:
        return None
    row = connection.execute(named_queries()["lineage"]).fetchone()
    return None if row is None else Progress(row["database_id"], row["commits"])


def _mark_of(writer: sqlite3.Connection, path: Path, before: DatabaseMark | None) -> DatabaseMark:
    """The mark of a database as it is; one that does not know which it is, is told now.

    The checksum of the file is the one that was found right, if the file is still the same.
    """
    found = _progress(writer)
    if found is None:
        found = new_progress()
        cells = {"database_id": found.database, "commits": found.commits}
        writer.execute(named_queries()["insert_lineage"], cells)
    in_file = _progress_in_file(path)
    settled = 0 if in_file is None else in_file.commits
    known_sum = None if before is None or before.settled != settled else before.file_sum
    return DatabaseMark(
        database=found.database, commits=found.commits, settled=settled, file_sum=known_sum
    )


def new_progress(commits: int = 0) -> Progress:
    """What a database is known by that is like no other."""
    return Progress(secrets.token_hex(DATABASE_ID_BYTES), commits)


def _progress_in_file(path: Path) -> Progress | None:
    """What the database file says without its WAL; None if it cannot be read alone.

    That it cannot is no fault: a checkpoint that was cut off leaves it so, and the WAL mends it.
    """
    try:
        with closing(connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1")) as connection:
            return _progress(connection) or Progress("", 0)
    except BROKEN_FILE_ERRORS:
        return None
