"""Backups: of a data folder in use, the last one of a control that moves, and restoring one.

All leave a whole file or none: they write under another name, sync, and rename.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

from msgspec import Struct

from forewarn.adapters.file_format_versions import this_program
from forewarn.adapters.private_files import (
    leave_to_owner,
    sync_file,
    sync_folder,
    write_private,
)
from forewarn.adapters.restored_members import LinkPlan, carry_out, files_to_keep, plan_link
from forewarn.adapters.secret_files import LINK_FOLDER
from forewarn.adapters.sqlite.backup_file import (
    BackupNote,
    KeptFiles,
    put_files,
    read_files,
    seal,
    sealed,
    take_out_files,
)
from forewarn.adapters.sqlite.data_folder import (
    BROKEN_FILE_ERRORS,
    DATABASE_FILES,
    DATABASE_NAME,
    LOCK_NAME,
    MOVED_NAME,
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
    refuse_wal,
)
from forewarn.adapters.sqlite.database import Database, connect
from forewarn.adapters.sqlite.database_mark import DatabaseMark, Progress, write_mark
from forewarn.adapters.sqlite.opening import new_progress
from forewarn.adapters.sqlite.restored_tokens import (
    TokensRestored,
    TokensThere,
    settle_tokens,
    tokens_there,
)
from forewarn.adapters.sqlite.writing import statements
from forewarn.adapters.system import SystemClock
from forewarn.core.facts import RestoredDetail
from forewarn.core.model import SECOND_MS, Fact, FactKind, Scope
from forewarn.ports import Clock, Generation, StoreFailed
from forewarn.tables.statements import named_queries
from forewarn.tables.table_specs import FACTS, GENERATIONS, SCOPES

INCARNATION_AFTER_RESTORE = 1_000_000  # added: more than any document can have moved since
INCARNATION_MAX = 2**53 - 1  # what guests that read JSON numbers as floats can tell apart
PARTIAL_SUFFIX = ".partial"
KEPT_ASIDE_PREFIX = "before-restore-"


class RestoreResult(Struct, frozen=True, kw_only=True):
    """What a restore did. `kept_aside` is the folder with the database that was there before.

    `unread` says why the incarnations of that database could not be read; empty if they were, or
    if there was none. `link` says what became of the members, `tokens` of the tokens.
    """

    database: Path
    kept_aside: Path | None
    scopes: int
    link: LinkPlan
    tokens: TokensRestored
    unread: str = ""


class _Replaced(Struct, frozen=True):
    """The scopes of what a restore replaces, as far as they could be read.

    `generation` is the highest one of its journal; `tokens` are those of its databases, the latest
    last.
    """

    scopes: tuple[Scope, ...] = ()
    unread: str = ""
    generation: int = 0
    tokens: tuple[TokensThere, ...] = ()


class _RestoredStore(Struct, frozen=True):
    """How many scopes the restored database has, its tokens, and the mark that belongs beside."""

    scopes: int
    mark: DatabaseMark
    tokens: TokensRestored


def write_backup(
    database: Database,
    target: Path,
    *,
    overwrite: bool,
    files: Callable[[], Mapping[str, bytes]] = dict,
) -> None:
    """Copy what is committed to `target`, durably. See `SqliteStore.backup`."""
    _write(database.copy_to, target, overwrite=overwrite, files=files, moved=False)


def move_out(data_dir: Path, target: Path) -> None:
    """Write the last backup of a data folder that no process has open, and let it start no more.

    Raises a DatabaseRefused, StoreFailed or OSError, and then the folder can be started as before.
    """
    lock = FolderLock(data_dir)
    try:
        leave_to_owner(data_dir / LOCK_NAME)
        database = data_dir / DATABASE_NAME
        _refuse_source(database, with_wal=True)
        refuse_wal(data_dir)

        def copy_to(copy: sqlite3.Connection) -> None:
            with closing(_read_only(database, with_wal=True)) as there:
                there.backup(copy)

        _write(copy_to, target, overwrite=False, files=lambda: files_to_keep(data_dir), moved=True)
        write_private(data_dir / MOVED_NAME, f"{target.absolute()}\n".encode())
    finally:
        lock.release()


def _write(
    copy_to: Callable[[sqlite3.Connection], None],
    target: Path,
    *,
    overwrite: bool,
    files: Callable[[], Mapping[str, bytes]],
    moved: bool,
) -> None:
    """The copy, then the files: what the list of members says after the copy holds at a start."""
    if target.exists() and not overwrite:
        raise FileExists(f"{target} exists.", "Name a file that does not, or allow overwriting.")
    partial = target.with_name(target.name + PARTIAL_SUFFIX)
    note = BackupNote(made_ms=SystemClock().now_ms(), written_by=this_program(), moved=moved)
    try:
        partial.unlink(missing_ok=True)
        make_private(partial)
        with closing(connect(partial.absolute().as_uri())) as copy:
            copy_to(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, also for read-only media
            put_files(copy, files(), note)
        seal(partial)
        sync_file(partial)
        partial.replace(target)
        sync_folder(target.absolute().parent)
    except (sqlite3.Error, OSError) as error:
        partial.unlink(missing_ok=True)
        raise StoreFailed(f"writing the backup {target}: {error}", fatal=False) from error


def restore(
    source: Path,
    data_dir: Path,
    *,
    force: bool = False,
    revoke: Collection[str] = (),
    clock: Clock | None = None,
) -> RestoreResult:
    """Make a data folder from a backup, or raise and leave the folder as it was.

    Every incarnation grows by INCARNATION_AFTER_RESTORE, from the higher one of the backup and of
    the database that is replaced: guests may have seen documents that the backup does not know,
    and an incarnation never goes back. A database that is already there is refused unless
    `force`, and then kept aside; it need not be sound. The source may be that database itself,
    which is how to go on with one that a start refuses as another or older. Members, authority and
    token follow `restored_members`; the hosts in `revoke` are no members afterwards. Root may
    restore for the owner of the folder. Raises a DatabaseRefused, StoreFailed or OSError.
    """
    database = data_dir / DATABASE_NAME
    own = database.exists() and source.exists() and source.samefile(database)
    kept = KeptFiles() if own else _refuse_source(source)
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
        link = plan_link(data_dir, kept, source=source, revoke=revoke, now_ms=now_ms)
        restoring = data_dir / RESTORING_NAME
        replaced = _replaced(database, restoring)
        made = _copy_and_raise(source, restoring, replaced, now_ms, with_wal=own)
        aside = (*DATABASE_FILES, *((LINK_FOLDER,) if link.aside else ()))
        kept_aside = keep_aside(data_dir, f"{KEPT_ASIDE_PREFIX}{now_ms}", aside)
        carry_out(data_dir, link)
        # Before the name: a kill in between leaves a restore that is refused as half done, and
        # never a database beside the mark of another.
        write_mark(data_dir, made.mark)
        restoring.rename(database)
        (data_dir / MOVED_NAME).unlink(missing_ok=True)
        sync_folder(data_dir)
        return RestoreResult(
            database=database,
            kept_aside=kept_aside,
            scopes=made.scopes,
            link=link,
            tokens=made.tokens,
            unread=replaced.unread,
        )
    finally:
        lock.release()


def _refuse_source(source: Path, *, with_wal: bool = False) -> KeptFiles:
    """The files in a backup. Raise a DatabaseRefused unless it is a sound one of ours.

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
            kept = read_files(connection, source)
    except BROKEN_FILE_ERRORS as error:
        refuse_damaged(error, source)
        raise StoreFailed(f"reading {source}: {error}", fatal=False) from error
    if empty:
        raise ForeignDatabase(f"{source} is empty.", "Name a file made by `forewarn backup`.")
    found = None if with_wal else sealed(source)
    if found is not None and not found.holds(source):
        raise damaged(source, "it is not what was written")
    return kept


def _read_only(path: Path, *, with_wal: bool) -> sqlite3.Connection:
    """A connection that changes nothing; without the WAL it needs no other file either."""
    return connect(f"{path.absolute().as_uri()}?mode=ro{'' if with_wal else '&immutable=1'}")


def _replaced(database: Path, restoring: Path) -> _Replaced:
    """What guests may have read from the data folder until now.

    A restore that stopped after it had put the old database aside left its own copy, whose
    incarnations are above those of the old one. If that copy is not whole, the old one is there.
    """
    begun = _scopes_of(restoring) if restoring.exists() else _Replaced()
    there = _scopes_of(database) if database.exists() else _Replaced()
    return _Replaced(
        (*begun.scopes, *there.scopes),
        there.unread,
        max(begun.generation, there.generation),
        (*begun.tokens, *there.tokens),
    )


def _scopes_of(path: Path) -> _Replaced:
    """The scopes of a database that may be damaged or not ours; reading changes nothing in it."""
    try:
        refuse_file(path)
        # Not immutable: what a killed service committed last is in the WAL.
        with closing(connect(f"{path.absolute().as_uri()}?mode=ro")) as connection:
            rows = connection.execute(named_queries()["scopes"]).fetchall()
            generation = _generation_of(connection)
            tokens = tokens_there(connection)
        scopes = tuple(SCOPES.value(row, vms=(), events=()) for row in rows)
    except ForeignDatabase as error:
        return _Replaced(unread=error.refused.rstrip("."))
    except (sqlite3.Error, OSError) as error:
        return _Replaced(unread=str(error))
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        return _Replaced(unread=f"a scope in {path} makes no sense ({error})")
    if not all(map(_is_number, (*(scope.incarnation for scope in scopes), generation))):
        return _Replaced(unread=f"an incarnation or generation in {path} makes no sense")
    return _Replaced(scopes, generation=generation, tokens=(tokens,))


def _generation_of(connection: sqlite3.Connection) -> int:
    """The highest generation of a journal; 1 in a database of an earlier version."""
    known = "SELECT 1 FROM sqlite_master WHERE name = 'journal_generation'"
    if connection.execute(known).fetchone() is None:
        return 1
    found = connection.execute(named_queries()["generations"])
    return max((row["generation"] for row in found), default=1)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and 1 <= value <= INCARNATION_MAX


def _copy_and_raise(
    source: Path, restoring: Path, replaced: _Replaced, now_ms: int, *, with_wal: bool
) -> _RestoredStore:
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
            found_seal = sealed(making)
            if found_seal is not None:
                os.truncate(making, found_seal.page_bytes)
        with closing(connect(making.absolute().as_uri())) as copy:
            copy.execute("PRAGMA journal_mode = DELETE")
            copy.execute("PRAGMA synchronous = FULL")
            refuse_database(copy, making)  # the copy too: a disk may fail while it is made
            take_out_files(copy)
            migrate(copy)
            copy.execute("BEGIN IMMEDIATE")
            scopes = _raise_incarnations(copy, source, replaced, now_ms)
            tokens = settle_tokens(copy, replaced.tokens, now_ms)
            found = _begin_another(copy)
            copy.execute("COMMIT")
        sync_file(making)
        making.replace(restoring)
    except (*BROKEN_FILE_ERRORS, DamagedDatabase, OSError) as error:
        making.unlink(missing_ok=True)
        raise StoreFailed(f"writing {making}: {error}", fatal=False) from error
    sync_folder(restoring.parent)
    mark = DatabaseMark(database=found.database, commits=found.commits, settled=found.commits)
    return _RestoredStore(scopes, mark, tokens)


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
        copy.execute(statements("scope").insert, SCOPES.cells(scope, shown_commit=0))
        seen = {"name": scope.name, "incarnation": scope.incarnation}
        copy.execute(named_queries()["lift_incarnation"], seen)
    added = {"added": INCARNATION_AFTER_RESTORE}
    scopes = copy.execute(named_queries()["raise_incarnations"], added).rowcount
    number = copy.execute(named_queries()["journal_end"]).fetchone()["number"] + 1
    generation = _begin_generation(copy, replaced, number, now_ms)
    detail = RestoredDetail(
        source=str(source), scopes=scopes, **added, unread=replaced.unread, generation=generation
    )
    fact = Fact(kind=FactKind.RESTORED, at_ms=now_ms, detail=detail)
    copy.execute(statements("journal").insert, FACTS.cells(fact, number=number))
    return scopes


def _begin_generation(
    copy: sqlite3.Connection, replaced: _Replaced, number: int, now_ms: int
) -> int:
    """Begin a generation of the journal with this line, and say which.

    Its number is the time in seconds: so it is new even if the same backup was restored before, and
    what came of that is lost.
    """
    known = max(_generation_of(copy), replaced.generation)
    begun = Generation(max(known + 1, now_ms // SECOND_MS), number)
    copy.execute(named_queries()["insert_generation"], GENERATIONS.cells(begun))
    return begun.generation


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
