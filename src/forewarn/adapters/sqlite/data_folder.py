"""The data folder: who may use it, whether the database in it is ours and sound, and its schema.

Only whole files and the schema are dealt with here; rows are `store`'s. Everything that stops a
start is a DatabaseRefused, with the file and the remedy in its words:

    DatabaseRefused
    +-- FolderUnusable       the folder cannot be made, read or written
    +-- FolderInUse          another process has the folder open
    +-- ForeignDatabase      the file is not one of ours
    +-- NewerDatabase        a newer program wrote it
    +-- DamagedDatabase      the database or its WAL is broken
    +-- LostDatabase         it is missing or empty, and was not
    +-- OtherDatabase        it is another one, or older than it was
    +-- DamagedMark          which database belongs here is not known
    +-- InterruptedRestore   a restore stopped half way
    +-- MovedAway            the control of this folder went to another machine
    +-- FileExists           a backup or restore would overwrite something
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shlex
import shutil
import signal
import sqlite3
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from forewarn.adapters.private_files import leave_to_owner, sync_folder
from forewarn.adapters.system import SystemClock
from forewarn.logs import Log
from forewarn.ports import BACKUP_SCRATCH_PREFIX
from forewarn.text.packaged import packaged_names, packaged_text

DATABASE_NAME = "forewarn.db"
WAL_NAME = f"{DATABASE_NAME}-wal"
SHM_NAME = f"{DATABASE_NAME}-shm"
JOURNAL_NAME = f"{DATABASE_NAME}-journal"  # there only if the making of a database was cut off
# All that SQLite makes of one database. In this order they are moved: see `keep_aside`.
DATABASE_FILES = (DATABASE_NAME, WAL_NAME, SHM_NAME, JOURNAL_NAME)
LOCK_NAME = "forewarn.lock"
RESTORING_NAME = "forewarn.db.restoring"
MOVED_NAME = "forewarn.moved"  # there once the control of this folder has moved elsewhere
APPLICATION_ID = 0x4657524E  # "FWRN"; where `file` and SQLite look for whose file it is
# What a start reads whole, but for what has ended.
LOADED_TABLES = frozenset(
    {
        "action",
        "departed_vm",
        "epoch",
        "host",
        "journal_extent",
        "journal_generation",
        "lineage",
        "meta",
        "operation",
        "operation_member",
        "scope",
        "token",
        "unfinished_inventory",
        "vm",
    }
)
STOPPED_LOOK_EVERY_S = 0.02
LOCK_BYTES_MAX = 60  # of the lock file, which says who holds the lock
CHECK_LIMIT_MS = 10_000  # a database too large to check in this time is opened unchecked
CHECK_STEPS_BETWEEN_LOOKS = 100_000  # virtual machine steps of SQLite between looks at the clock
WAL_CHECKED_BYTES_MAX = 128 << 20  # of a WAL; a larger one is not looked at before SQLite reads it

_MIGRATION = re.compile(r"[0-9]{4}_[a-z_]+\.sql")
_SQLITE_MAGIC = b"SQLite format 3\x00"
_PAGE_SIZE_AT = slice(16, 18)  # of the database file: big-endian, 1 for 65,536
# What a kill leaves behind: a backup that was being copied, and a file that was being replaced.
_BACKUP_FOLDERS = f"{BACKUP_SCRATCH_PREFIX}*"
_SCRATCH = re.compile(r"\.[a-z]+\.[a-z]+\.[0-9]+")
_SCRATCH_FOLDERS = (".", "link")
# What an error of the file system says that stays until a person mends it.
_LASTING_ERRORS = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ELOOP}
)
_STARTED_AT = 19  # of what follows the name in /proc/PID/stat: field 22
# What comes of statements on a broken file; the latter if SQLite quotes a name that is no text.
BROKEN_FILE_ERRORS = (sqlite3.Error, UnicodeDecodeError)
# What an error of SQLite can say without the file being broken.
_NOT_DAMAGE = frozenset(
    {
        sqlite3.SQLITE_AUTH,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_READONLY,
    }
)

log = Log(__name__)


class DatabaseRefused(Exception):  # noqa: N818 - a refusal is an answer, not an error
    """Nothing was opened or changed. Says which file, what is wrong and what would be accepted.

    `may_pass`: the next start may work though the operator has mended nothing.
    """

    may_pass = False

    def __init__(self, refused: str, accepted: str) -> None:
        super().__init__(f"{refused} {accepted}")
        self.refused = refused
        self.accepted = accepted


class FolderUnusable(DatabaseRefused):
    """The data folder cannot be made, read or written."""


class FolderInUse(DatabaseRefused):
    """Another process has the data folder open."""

    may_pass = True


class ForeignDatabase(DatabaseRefused):
    """The file is not a database of this program."""


class NewerDatabase(DatabaseRefused):
    """The database was written by a newer program."""


class DamagedDatabase(DatabaseRefused):
    """The database has broken pages or rows, or its WAL a broken middle."""


class LostDatabase(DatabaseRefused):
    """The database is missing or empty, and its mark or its WAL says that it was not."""


class OtherDatabase(DatabaseRefused):
    """The database is another one than that of its mark, or is older or otherwise than it was."""


class DamagedMark(DatabaseRefused):
    """The mark is there and says nothing: the database may be older than it was."""


class InterruptedRestore(DatabaseRefused):
    """A restore stopped half way; starting now would begin with an empty database."""


class MovedAway(DatabaseRefused):
    """The control of this folder went to another machine; two of them would give two orders."""


class FileExists(DatabaseRefused):
    """A backup or restore would overwrite what is there."""


class FolderLock:
    """Keeps every other process out of a data folder until `release`, or until this one dies."""

    def __init__(self, data_dir: Path) -> None:
        """Make the folder if it is not there, and take the lock or raise at once."""
        try:
            self._file = _open_lock(data_dir)
        except OSError as error:
            raise unusable(data_dir, error) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            said = os.pread(self._file, LOCK_BYTES_MAX, 0).decode("ascii", "replace").split()
            os.close(self._file)
            raise FolderInUse(
                f"{data_dir} is in use by process {said[0] if said else '(unknown)'}.",
                "Stop it first, or name another data folder with --data DIR.",
            ) from None
        os.ftruncate(self._file, 0)
        pid = os.getpid()
        os.pwrite(self._file, f"{pid} {started_at(pid) or ''}".strip().encode("ascii") + b"\n", 0)

    def release(self) -> None:
        """Let others in. The lock file stays: removing it would let two processes in."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


@contextmanager
def kept_from_starting(data_dir: Path) -> Iterator[bool]:
    """Keep a service from starting on the folder for the length of the block.

    Yields False, and keeps nothing, if one uses the folder already. Raises OSError.
    """
    lock = data_dir / LOCK_NAME
    if not lock.exists():
        yield True  # no service was ever here
        return
    file = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(file)


def lock_holder(data_dir: Path) -> int | None:
    """The process that took the folder's lock last, if it is there still; nothing is locked.

    Its number may be another process's by now: that one began at another time.
    """
    try:
        said = (data_dir / LOCK_NAME).read_text(encoding="ascii").split()
        pid = int(said[0])
    except (OSError, ValueError, IndexError):
        return None
    if pid <= 0:
        return None
    began = started_at(pid)
    same = began is not None and said[1:] in ([], [began])  # [] was written by an earlier version
    return pid if same else None


def stop_service(data_dir: Path, *, limit_s: float) -> None:
    """Have the process that holds the folder end, if there is one, as a signal does.

    Raises FolderInUse if it is there after `limit_s`, FolderUnusable if it is not ours to end.
    """
    clock = SystemClock()
    until_ms = clock.monotonic_ms() + int(limit_s * 1_000)
    told: int | None = None
    while True:
        try:
            return FolderLock(data_dir).release()
        except FolderInUse:
            if clock.monotonic_ms() >= until_ms:
                raise
        pid = lock_holder(data_dir)
        try:
            if pid is not None and pid != told:
                os.kill(pid, signal.SIGTERM)
                told = pid
        except ProcessLookupError:
            pass  # it has ended meanwhile
        except PermissionError:
            raise FolderUnusable(
                f"This user may not end process {pid}, which uses {data_dir}.",
                "Say it as root, or as the user who runs the service.",
            ) from None
        time.sleep(STOPPED_LOOK_EVERY_S)


def started_at(pid: int) -> str | None:
    """When a process began, in clock ticks since the boot; None if there is no such process."""
    try:
        told = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    # The name of the program comes second, in parentheses, and may hold anything.
    return told.rpartition(")")[2].split()[_STARTED_AT]


def unusable(data_dir: Path, error: OSError) -> FolderUnusable:
    """What an error of the file system means for a data folder."""
    file = f" ({Path(error.filename).name})" if error.filename else ""
    refused = FolderUnusable(
        f"{data_dir} cannot be used as a data folder: {error.strerror or error}{file}.",
        "Name a folder that the user of this process may write to and that has room.",
    )
    refused.may_pass = error.errno not in _LASTING_ERRORS
    return refused


def _open_lock(data_dir: Path) -> int:
    if not data_dir.exists():
        data_dir.mkdir(mode=0o700, parents=True)
        sync_folder(data_dir.parent)
    return os.open(data_dir / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def restore_command(data_dir: Path, source: Path | None = None, *, force: bool = False) -> str:
    """The command that makes the database of a data folder from a backup, as it can be pasted."""
    folder = shlex.quote(str(data_dir))
    file = "FILE" if source is None else shlex.quote(str(source))
    with_what = "" if source is not None else " with a backup"
    return f"`forewarn --data {folder} restore {file}{' --force' if force else ''}`{with_what}"


def damaged(path: Path, what: str) -> DamagedDatabase:
    """What is said of a broken database, or of a backup."""
    return DamagedDatabase(f"{path} is damaged ({what}).", _remedy(path))


def _remedy(path: Path) -> str:
    if path.name != DATABASE_NAME:
        return "Name a backup that is whole."
    return f"Stop the service and run {restore_command(path.parent, force=True)}."


def refuse_file(path: Path) -> None:
    """Raise ForeignDatabase if a file is there and cannot be a database at all."""
    with path.open("rb") as file:
        head = file.read(len(_SQLITE_MAGIC))
    if head and head != _SQLITE_MAGIC:
        ours = path.name == DATABASE_NAME  # and not a file that the operator wants to restore
        aside = "Move it away, or, if it was one of ours: " if ours else ""
        raise ForeignDatabase(f"{path} is not a database.", f"{aside}{_remedy(path)}")


def refuse_wal(data_dir: Path) -> None:
    """Raise DamagedDatabase if the WAL is broken where it was whole, before SQLite cuts it there.

    Reads the whole WAL, unless it is larger than WAL_CHECKED_BYTES_MAX. Raises OSError.
    """
    wal = data_dir / WAL_NAME
    if not wal.exists():
        return
    size = wal.stat().st_size
    if size > WAL_CHECKED_BYTES_MAX:
        log.warning("the WAL was not checked", path=str(wal), bytes=size)
        return
    with (data_dir / DATABASE_NAME).open("rb") as file:
        pages = int.from_bytes(file.read(_PAGE_SIZE_AT.stop)[_PAGE_SIZE_AT], "big")
    from forewarn.adapters.sqlite.wal_frames import find_damage  # noqa: PLC0415 - an emulator has no WAL

    with wal.open("rb") as file:
        found = find_damage(file, size=size, page_bytes=65_536 if pages == 1 else pages)
    if found is None:
        return
    own = restore_command(data_dir, data_dir / DATABASE_NAME, force=True)
    raise DamagedDatabase(
        f"{wal} is damaged (frame {found.frame} of {found.frames}), and what was committed after"
        " it would be lost.",
        f"{_remedy(data_dir / DATABASE_NAME)} To go on with what was committed before it, run"
        f" {own}.",
    )


def refuse_interrupted_restore(data_dir: Path) -> None:
    """Raise InterruptedRestore if only the half of a restore is there."""
    if any(data_dir.glob(f"{RESTORING_NAME}*")) and not (data_dir / DATABASE_NAME).exists():
        raise InterruptedRestore(
            f"A restore of {data_dir} stopped half way; it has no {DATABASE_NAME} yet.",
            f"Run {restore_command(data_dir)} again.",
        )


def refuse_moved(data_dir: Path) -> None:
    """Raise MovedAway if the last backup of the folder was made to go on elsewhere."""
    note = data_dir / MOVED_NAME
    if not note.exists():
        return
    target = Path(note.read_text(encoding="utf-8", errors="replace").strip())
    raise MovedAway(
        f"The control of {data_dir} was moved: {target} was made to go on with on another machine.",
        f"Start it there. To go on here, with the other one stopped for good, run"
        f" {restore_command(data_dir, target, force=True)}; if it was never restored anywhere,"
        f" removing {note} is enough.",
    )


def refuse_database(connection: sqlite3.Connection, path: Path) -> None:
    """Raise a DatabaseRefused unless the open database is empty, or ours, known and sound."""
    try:
        application_id = _pragma(connection, "application_id")
        version = _pragma(connection, "user_version")
        empty = is_empty(connection)
    except BROKEN_FILE_ERRORS as error:
        refuse_damaged(error, path)
        raise
    if empty and application_id == 0 and version == 0:
        return
    if application_id != APPLICATION_ID:
        raise ForeignDatabase(
            f"{path} is a database of another program.", "Name another data folder."
        )
    if version > SCHEMA_VERSION:
        raise NewerDatabase(
            f"{path} has schema version {version}; this program knows up to {SCHEMA_VERSION}.",
            "Run the newer program that wrote it, or restore a backup from before.",
        )
    _check(connection, path)


def refuse_damaged(error: Exception, path: Path) -> None:
    """Raise DamagedDatabase if an error while opening says that the file is broken.

    Our statements fit our schema, so whatever SQLite makes of them here is the file's fault, but
    for what the system around it can cause.
    """
    primary = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    unwritable = primary == sqlite3.SQLITE_READONLY and os.access(path, os.W_OK)
    if primary not in _NOT_DAMAGE or unwritable:
        raise damaged(path, str(error)) from error


def migrations_in(names: Sequence[str]) -> tuple[str, ...]:
    """The migrations among the files of the sql folder, in the order of their numbers.

    Two with one number (of an older installation, of two branches) stop the start: a database that
    went through both would be like no other.
    """
    found = sorted(name for name in names if _MIGRATION.fullmatch(name))
    for one, other in pairwise(found):
        if one[:4] == other[:4]:
            raise RuntimeError(
                f"Two migrations of this program have one number: {one} and {other}. Install"
                " Forewarn anew; in a working tree give the later one the next number."
            )
    return tuple(found)


def is_empty(connection: sqlite3.Connection) -> bool:
    """True if nothing was ever made in the database."""
    tables: int = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    return tables == 0


def migrate(connection: sqlite3.Connection, steps: Sequence[str] | None = None) -> None:
    """Bring the schema to the newest version, in one transaction: all steps or none."""
    scripts = [_script(name) for name in MIGRATIONS] if steps is None else steps
    version = _pragma(connection, "user_version")
    if version >= len(scripts):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for script in scripts[version:]:
            for statement in _statements(script):
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(scripts)}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def make_private(path: Path) -> None:
    """Make an empty file that only its owner may read. SQLite gives its WAL the same mode."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def keep_aside(data_dir: Path, folder: str, names: Sequence[str] = DATABASE_FILES) -> Path | None:
    """Move the database and all that belongs to it, if any, into a folder of their own.

    The database goes first. If we die before the WAL has followed, the folder has no database,
    and opening it is refused: an old WAL never meets a new database.
    """
    there = [data_dir / name for name in names if (data_dir / name).exists()]
    if not there:
        return None
    aside = data_dir / folder
    aside.mkdir(mode=0o700)
    leave_to_owner(aside)
    for path in there:
        path.rename(aside / path.name)
        sync_folder(aside)
        sync_folder(data_dir)
    return aside


def remove_leftovers(data_dir: Path) -> None:
    """Remove what a kill left half made: backups, restores and files that were being replaced.

    Call it while the folder is locked and its database is there. What cannot be removed is said,
    and stops nothing.
    """
    for path in list(_leftovers(data_dir)):
        try:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
            log.info("leftover removed", path=str(path))
        except OSError as error:
            log.warning("leftover not removed", path=str(path), reason=str(error))


def _leftovers(data_dir: Path) -> Iterator[Path]:
    yield from data_dir.glob(_BACKUP_FOLDERS)
    yield from data_dir.glob(f"{RESTORING_NAME}*")
    for name in _SCRATCH_FOLDERS:
        folder = data_dir / name
        if folder.is_dir():
            yield from (path for path in folder.iterdir() if _SCRATCH.fullmatch(path.name))


def _check(connection: sqlite3.Connection, path: Path) -> None:
    """Look for broken pages, for a while."""
    clock = SystemClock()
    until_ms = clock.monotonic_ms() + CHECK_LIMIT_MS
    connection.set_progress_handler(
        lambda: clock.monotonic_ms() >= until_ms, CHECK_STEPS_BETWEEN_LOOKS
    )
    try:
        found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found == "ok":
            found = odd_cell(connection, LOADED_TABLES)
    except BROKEN_FILE_ERRORS as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
            log.warning("the database was not checked to its end", path=str(path))
            return
        refuse_damaged(error, path)
        raise
    finally:
        connection.set_progress_handler(None, 0)
    if found != "ok":
        raise damaged(path, found)


def odd_cell(connection: sqlite3.Connection, among: Collection[str]) -> str:
    """ "ok", or which of these tables has a cell of a type that its column does not have.

    SQLite itself lets any column hold anything, and would hand us bytes where we wrote a name. A
    start looks only at the tables that it reads: the others grow without end.
    """
    kinds = {"TEXT": "text", "BIGINT": "integer"}
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    for table in sorted({name for (name,) in tables} & set(among)):
        columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
        odd = " OR ".join(
            f"typeof({column[1]}) NOT IN ('{kinds.get(column[2], 'null')}', 'null')"
            for column in columns
        )
        look = f"SELECT 1 FROM {table} WHERE {odd} LIMIT 1"  # noqa: S608 - names from the schema
        if connection.execute(look).fetchone():
            return f"a value in table {table} is of another type"
    return "ok"


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    value: int = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return value


def _script(name: str) -> str:
    return packaged_text("forewarn.adapters.sqlite", f"sql/{name}")


# The number of the last one is the version of the schema: a test sees that none is left out.
MIGRATIONS = migrations_in(packaged_names("forewarn.adapters.sqlite", "sql"))
SCHEMA_VERSION = len(MIGRATIONS)


def _statements(script: str) -> list[str]:
    """Cut a script into statements; executescript would commit before it runs."""
    found: list[str] = []
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            found.append(pending)
            pending = ""
    return found
