"""The data folder: who may use it, whether the database in it is ours and sound, and its schema.

Only whole files and the schema are dealt with here; rows are `store`'s. Everything that stops a
start is a DatabaseRefused, with the file and the remedy in its words:

    DatabaseRefused
    +-- FolderUnusable       the folder cannot be made, read or written
    +-- FolderInUse          another process has the folder open
    +-- ForeignDatabase      the file is not one of ours
    +-- NewerDatabase        a newer program wrote it
    +-- DamagedDatabase      the check found broken pages
    +-- InterruptedRestore   a restore stopped half way
    +-- FileExists           a backup or restore would overwrite something
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import structlog

from forewarn.adapters.system import SystemClock

DATABASE_NAME = "forewarn.db"
LOCK_NAME = "forewarn.lock"
RESTORING_NAME = "forewarn.db.restoring"
APPLICATION_ID = 0x4657524E  # "FWRN"; where `file` and SQLite look for whose file it is
# In order; the number of the last one is the schema's version.
MIGRATIONS = ("schema.sql", "operation_words.sql", "sightings.sql", "whereabouts.sql")
SCHEMA_VERSION = len(MIGRATIONS)
PID_BYTES_MAX = 20  # of the lock file, which says who holds the lock
CHECK_LIMIT_MS = 10_000  # a database too large to check in this time is opened unchecked
CHECK_STEPS_BETWEEN_LOOKS = 100_000  # virtual machine steps of SQLite between looks at the clock

_SQLITE_MAGIC = b"SQLite format 3\x00"
_REMEDY = "Stop the service and run `forewarn restore FILE` with a backup."

log = structlog.get_logger(__name__)


class DatabaseRefused(Exception):  # noqa: N818 - a refusal is an answer, not an error
    """Nothing was opened or changed. Says which file, what is wrong and what would be accepted."""

    def __init__(self, refused: str, accepted: str) -> None:
        super().__init__(f"{refused} {accepted}")
        self.refused = refused
        self.accepted = accepted


class FolderUnusable(DatabaseRefused):
    """The data folder cannot be made, read or written."""


class FolderInUse(DatabaseRefused):
    """Another process has the data folder open."""


class ForeignDatabase(DatabaseRefused):
    """The file is not a database of this program."""


class NewerDatabase(DatabaseRefused):
    """The database was written by a newer program."""


class DamagedDatabase(DatabaseRefused):
    """The database has broken pages."""


class InterruptedRestore(DatabaseRefused):
    """A restore stopped half way; starting now would begin with an empty database."""


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
            pid = os.pread(self._file, PID_BYTES_MAX, 0).decode("ascii", "replace").strip()
            os.close(self._file)
            raise FolderInUse(
                f"{data_dir} is in use by process {pid or '(unknown)'}.",
                "Stop it first, or name another data folder with --data DIR.",
            ) from None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode("ascii"), 0)

    def release(self) -> None:
        """Let others in. The lock file stays: removing it would let two processes in."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def unusable(data_dir: Path, error: OSError) -> FolderUnusable:
    """What an error of the file system means for a data folder."""
    file = f" ({Path(error.filename).name})" if error.filename else ""
    return FolderUnusable(
        f"{data_dir} cannot be used as a data folder: {error.strerror or error}{file}.",
        "Name a folder that the user of this process may write to and that has room.",
    )


def _open_lock(data_dir: Path) -> int:
    if not data_dir.exists():
        data_dir.mkdir(mode=0o700, parents=True)
        sync_folder(data_dir.parent)
    return os.open(data_dir / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def refuse_file(path: Path) -> None:
    """Raise ForeignDatabase if a file is there and cannot be a database at all."""
    with path.open("rb") as file:
        head = file.read(len(_SQLITE_MAGIC))
    if head and head != _SQLITE_MAGIC:
        raise ForeignDatabase(
            f"{path} is not a database.",
            f"Move it away, or, if it was one of ours: {_REMEDY}",
        )


def refuse_interrupted_restore(data_dir: Path) -> None:
    """Raise InterruptedRestore if only the half of a restore is there."""
    if (data_dir / RESTORING_NAME).exists() and not (data_dir / DATABASE_NAME).exists():
        raise InterruptedRestore(
            f"A restore of {data_dir} stopped half way; it has no {DATABASE_NAME} yet.",
            "Run `forewarn restore FILE` again.",
        )


def refuse_database(connection: sqlite3.Connection, path: Path) -> None:
    """Raise a DatabaseRefused unless the open database is empty, or ours, known and sound."""
    try:
        application_id = _pragma(connection, "application_id")
        version = _pragma(connection, "user_version")
        empty = is_empty(connection)
    except sqlite3.DatabaseError as error:
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


def refuse_damaged(error: sqlite3.Error, path: Path) -> None:
    """Raise DamagedDatabase if the error says that the file is broken."""
    primary = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        raise DamagedDatabase(f"{path} is damaged ({error}).", _REMEDY) from error


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


def leave_to_owner(path: Path) -> None:
    """Give what root has made in a folder to the owner of the folder, whose service must use it."""
    if os.geteuid() == 0:
        folder = path.parent.stat()
        os.chown(path, folder.st_uid, folder.st_gid, follow_symlinks=False)


def sync_file(path: Path) -> None:
    """Return when the file's content is on the disk."""
    _sync(path, os.O_RDONLY)


def sync_folder(path: Path) -> None:
    """Return when the names in the folder are on the disk."""
    _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    file = os.open(path, flags)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _check(connection: sqlite3.Connection, path: Path) -> None:
    """Look for broken pages, for a while."""
    clock = SystemClock()
    until_ms = clock.monotonic_ms() + CHECK_LIMIT_MS
    connection.set_progress_handler(
        lambda: clock.monotonic_ms() >= until_ms, CHECK_STEPS_BETWEEN_LOOKS
    )
    try:
        found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
            log.warning("the database was not checked to its end", path=str(path))
            return
        refuse_damaged(error, path)
        raise
    finally:
        connection.set_progress_handler(None, 0)
    if found != "ok":
        raise DamagedDatabase(f"{path} is damaged ({found}).", _REMEDY)


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    value: int = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return value


def _script(name: str) -> str:
    return resources.files("forewarn.adapters").joinpath("sql", name).read_text("utf-8")


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
