"""Copies of the database: a backup of one in use, and a data folder made from a backup.

Both leave a whole file or none: they write under another name, sync, and rename.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

from msgspec import Struct

from forewarn.adapters.private_files import leave_to_owner, sync_file, sync_folder
from forewarn.adapters.sqlite.data_folder import (
    BROKEN_FILE_ERRORS,
    DATABASE_NAME,
    LOCK_NAME,
    RESTORING_NAME,
    DamagedDatabase,
    FileExists,
    FolderLock,
    ForeignDatabase,
    damaged,
    is_empty,
    keep_aside,
    make_private,
    migrate,
    refuse_damaged,
    refuse_database,
    refuse_file,
)
from forewarn.adapters.sqlite.database import Database, connect
from forewarn.adapters.sqlite.database_mark import DatabaseMark, Progress, file_sum, write_mark
from forewarn.adapters.sqlite.opening import new_progress
from forewarn.adapters.sqlite.rows import FACTS, SCOPES
from forewarn.adapters.sqlite.statements import named_queries
from forewarn.adapters.system import SystemClock
from forewarn.core.model import Fact, FactKind, Scope
from forewarn.ports import Clock, StoreFailed

INCARNATION_AFTER_RESTORE = 1_000_000  # added: more than any document can have moved since
INCARNATION_MAX = 2**53 - 1  # what guests that read JSON numbers as floats can tell apart
PARTIAL_SUFFIX = ".partial"
KEPT_ASIDE_PREFIX = "before-restore-"
SEAL = b"forewarn-backup-sum:%08x\n"  # the last bytes of a backup, behind the pages of SQLite
SEAL_BYTES = len(SEAL % 0)
_SEAL = re.compile(rb"forewarn-backup-sum:([0-9a-f]{8})\n")


class RestoreResult(Struct, frozen=True, kw_only=True):
    """What a restore did. `kept_aside` is the folder with the database that was there before.

    `unread` says why the incarnations of that database could not be read; empty if they were, or
    if there was none.
    """

    database: Path
    kept_aside: Path | None
    scopes: int
    unread: str = ""


class _Replaced(Struct, frozen=True):
    """The scopes of what a restore replaces, as far as they could be read."""

    scopes: tuple[Scope, ...] = ()
    unread: str = ""


class _Made(Struct, frozen=True):
    """How many scopes the restored database has, and the mark that belongs beside it."""

    scopes: int
    mark: DatabaseMark


def write_backup(database: Database, target: Path, *, overwrite: bool) -> None:
    """Copy what is committed to `target`, durably. See `SqliteStore.backup`."""
    if target.exists() and not overwrite:
        raise FileExists(f"{target} exists.", "Name a file that does not, or allow overwriting.")
    partial = target.with_name(target.name + PARTIAL_SUFFIX)
    try:
        partial.unlink(missing_ok=True)
        make_private(partial)
        with closing(connect(partial.absolute().as_uri())) as copy:
            database.copy_to(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, also for read-only media
        _seal(partial)
        sync_file(partial)
        partial.replace(target)
        sync_folder(target.absolute().parent)
    except (sqlite3.Error, OSError) as error:
        partial.unlink(missing_ok=True)
        raise StoreFailed(f"writing the backup {target}: {error}", fatal=False) from error


def _seal(file: Path) -> None:
    """Put a checksum behind the last page, where SQLite does not look. Pages have none."""
    found = file_sum(file)
    with file.open("ab") as opened:
        opened.write(SEAL % found)


class _Sealed(Struct, frozen=True):
    """So many bytes of a backup are pages, and that is their checksum."""

    page_bytes: int
    kept_sum: int


def _sealed(file: Path) -> _Sealed | None:
    """The seal of a backup. One of an earlier version has none; nor has one that was cut off."""
    page_bytes = max(0, file.stat().st_size - SEAL_BYTES)
    with file.open("rb") as opened:
        opened.seek(page_bytes)
        seal = _SEAL.fullmatch(opened.read(SEAL_BYTES))
    return None if seal is None else _Sealed(page_bytes, int(seal[1], 16))


def restore(
    source: Path, data_dir: Path, *, force: bool = False, clock: Clock | None = None
) -> RestoreResult:
    """Make the database of a data folder from a backup, or raise and leave the folder as it was.

    Every incarnation grows by INCARNATION_AFTER_RESTORE, from the higher one of the backup and of
    the database that is replaced: guests may have seen documents that the backup does not know,
    and an incarnation never goes back. A database that is already there is refused unless
    `force`, and then kept aside; it need not be sound. The source may be that database itself,
    which is how to go on with one that a start refuses as another or older. Root may restore for
    the owner of the folder. Raises a DatabaseRefused, StoreFailed or OSError.
    """
    database = data_dir / DATABASE_NAME
    own = database.exists() and source.exists() and source.samefile(database)
    if not own:
        _refuse_source(source)
    lock = FolderLock(data_dir)
    try:
        leave_to_owner(data_dir / LOCK_NAME)
        if database.exists() and not force:
            raise FileExists(
                f"{database} exists.",
                "Name an empty data folder, or say --force; the old one is then kept aside.",
            )
        if own:
            _refuse_source(source, with_wal=True)
        now_ms = (clock or SystemClock()).now_ms()
        restoring = data_dir / RESTORING_NAME
        replaced = _replaced(database, restoring)
        made = _copy_and_raise(source, restoring, replaced, now_ms, with_wal=own)
        kept_aside = keep_aside(data_dir, f"{KEPT_ASIDE_PREFIX}{now_ms}")
        # Before the name: a kill in between leaves a restore that is refused as half done, and
        # never a database beside the mark of another.
        write_mark(data_dir, made.mark)
        restoring.rename(database)
        sync_folder(data_dir)
        return RestoreResult(
            database=database, kept_aside=kept_aside, scopes=made.scopes, unread=replaced.unread
        )
    finally:
        lock.release()


def _refuse_source(source: Path, *, with_wal: bool = False) -> None:
    """Raise a DatabaseRefused unless the source is a sound backup of ours.

    `with_wal`: it is the database of the data folder itself, which no process has open.
    """
    if not source.is_file():
        raise ForeignDatabase(f"{source} is not a file.", "Name a file made by `forewarn backup`.")
    wal = source.with_name(source.name + "-wal")
    if not with_wal and wal.exists() and wal.stat().st_size > 0:
        raise ForeignDatabase(
            f"{source} is a live database, part of which is in {wal.name}.",
            "Name a file made by `forewarn backup`.",
        )
    refuse_file(source)
    try:
        with closing(_read_only(source, with_wal=with_wal)) as connection:
            refuse_database(connection, source)
            empty = is_empty(connection)
    except BROKEN_FILE_ERRORS as error:
        refuse_damaged(error, source)
        raise StoreFailed(f"reading {source}: {error}", fatal=False) from error
    if empty:
        raise ForeignDatabase(f"{source} is empty.", "Name a file made by `forewarn backup`.")
    sealed = _sealed(source)
    if sealed is not None and sealed.kept_sum != file_sum(source, bytes_max=sealed.page_bytes):
        raise damaged(source, "it is not what was written")


def _read_only(path: Path, *, with_wal: bool) -> sqlite3.Connection:
    """A connection that changes nothing; without the WAL it needs no other file either."""
    return connect(f"{path.absolute().as_uri()}?mode=ro{'' if with_wal else '&immutable=1'}")


def _replaced(database: Path, restoring: Path) -> _Replaced:
    """What guests may have read from the data folder until now.

    A restore that stopped after it had put the old database aside left its own copy, whose
    incarnations are above those of the old one. If that copy is not whole, the old one is there.
    """
    scopes: list[Scope] = []
    unread = ""
    if restoring.exists():
        scopes.extend(_scopes_of(restoring).scopes)
    if database.exists():
        found = _scopes_of(database)
        scopes.extend(found.scopes)
        unread = found.unread
    return _Replaced(tuple(scopes), unread)


def _scopes_of(path: Path) -> _Replaced:
    """The scopes of a database that may be damaged or not ours; reading changes nothing in it."""
    try:
        refuse_file(path)
        # Not immutable: what a killed service committed last is in the WAL.
        with closing(connect(f"{path.absolute().as_uri()}?mode=ro")) as connection:
            rows = connection.execute(named_queries()["scopes"]).fetchall()
        scopes = tuple(SCOPES.value(row, vms=(), events=()) for row in rows)
    except ForeignDatabase as error:
        return _Replaced(unread=error.refused.rstrip("."))
    except (sqlite3.Error, OSError) as error:
        return _Replaced(unread=str(error))
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        return _Replaced(unread=f"a scope in {path} makes no sense ({error})")
    if not all(_is_incarnation(scope.incarnation) for scope in scopes):
        return _Replaced(unread=f"an incarnation in {path} makes no sense")
    return _Replaced(scopes)


def _is_incarnation(value: object) -> bool:
    return isinstance(value, int) and 1 <= value <= INCARNATION_MAX


def _copy_and_raise(
    source: Path, restoring: Path, replaced: _Replaced, now_ms: int, *, with_wal: bool
) -> _Made:
    """Copy the backup, bring its schema up to date and raise its incarnations. Durable.

    Under another name until it is whole: what an earlier restore has left under this one may be
    all that is left of the incarnations that guests have read.
    """
    making = restoring.with_name(f"{restoring.name}.making")
    for leftover in (making, making.with_name(f"{making.name}-journal")):
        leftover.unlink(missing_ok=True)
    make_private(making)
    leave_to_owner(making)
    try:
        if with_wal:
            _copy_with_wal(source, making)
        else:
            shutil.copyfile(source, making)
            sealed = _sealed(making)
            if sealed is not None:
                os.truncate(making, sealed.page_bytes)
        with closing(connect(making.absolute().as_uri())) as copy:
            copy.execute("PRAGMA journal_mode = DELETE")
            copy.execute("PRAGMA synchronous = FULL")
            refuse_database(copy, making)  # the copy too: a disk may fail while it is made
            migrate(copy)
            copy.execute("BEGIN IMMEDIATE")
            scopes = _raise_incarnations(copy, source, replaced, now_ms)
            found = _begin_another(copy)
            copy.execute("COMMIT")
        sync_file(making)
        making.replace(restoring)
    except (*BROKEN_FILE_ERRORS, DamagedDatabase, OSError) as error:
        making.unlink(missing_ok=True)
        raise StoreFailed(f"writing {making}: {error}", fatal=False) from error
    sync_folder(restoring.parent)
    mark = DatabaseMark(database=found.database, commits=found.commits, settled=found.commits)
    return _Made(scopes, mark)


def _begin_another(copy: sqlite3.Connection) -> Progress:
    """Make the copy another database: its commits are counted anew, and are no earlier life's."""
    found = new_progress()
    for name in ("delete_lineage", "delete_epochs", "reset_shown_commits"):
        copy.execute(named_queries()[name])
    cells = {"database_id": found.database, "commits": found.commits}
    copy.execute(named_queries()["insert_lineage"], cells)
    return found


def _copy_with_wal(source: Path, target: Path) -> None:
    with (
        closing(_read_only(source, with_wal=True)) as there,
        closing(connect(target.absolute().as_uri())) as copy,
    ):
        there.backup(copy)


def _raise_incarnations(
    copy: sqlite3.Connection, source: Path, replaced: _Replaced, now_ms: int
) -> int:
    """Lift every scope above what guests may have read, and say so. Returns how many there are."""
    for scope in _emptied(replaced.scopes):
        copy.execute(named_queries()["insert_scope"], SCOPES.cells(scope, shown_commit=0))
        seen = {"name": scope.name, "incarnation": scope.incarnation}
        copy.execute(named_queries()["lift_incarnation"], seen)
    added = {"added": INCARNATION_AFTER_RESTORE}
    scopes = copy.execute(named_queries()["raise_incarnations"], added).rowcount
    detail = {"source": str(source), "scopes": scopes, **added}
    if replaced.unread:
        detail["unread"] = replaced.unread
    fact = Fact(kind=FactKind.RESTORED, at_ms=now_ms, detail=detail)
    copy.execute(named_queries()["insert_fact"], FACTS.cells(fact))
    return scopes


def _emptied(scopes: Iterable[Scope]) -> Iterator[Scope]:
    """The scopes as those are kept that no inventory lists: for their incarnation alone."""
    for scope in scopes:
        yield Scope(
            name=scope.name,
            kind=scope.kind,
            incarnation=scope.incarnation,
            terminate_notice_ms=scope.terminate_notice_ms,
            auto_approve=scope.auto_approve,
        )
