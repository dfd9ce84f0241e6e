"""SQLite as the store uses it: connections, transactions, named queries and what failures mean.

Knows nothing of scopes or events; `store` does. What is done to whole files is elsewhere: the lock,
checks and migrations in `data_folder`, the mark in `database_mark`, whether and how a database is
opened in `opening`, copies in `backup`.

Two kinds of failure matter after a statement (design section 3). When the disk is full, SQLite has
undone what it was doing and we go on: the caller is told that nothing was kept. When the disk
failed to write or to sync, its content is unknown: after a failed fsync the kernel may drop the
pages and report the next fsync as fine. So the writing connection is closed on the spot, without
the checkpoint that closing normally brings, and every later write is refused.
"""

from __future__ import annotations

import queue
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import NoReturn

from forewarn.adapters.sqlite.data_folder import FolderLock, migrate
from forewarn.adapters.sqlite.database_mark import SUMMED_BYTES_MAX, Marker, sum_if_readable
from forewarn.logs import Log
from forewarn.ports import Cell, Cells, StaleRevision, StoreFailed, Unstorable
from forewarn.tables.list_queries import ListQuery
from forewarn.tables.statements import named_queries
from forewarn.tables.steps import WriteStep

BUSY_TIMEOUT_MS = 5_000  # a foreign reader or `sqlite3` shell may hold the file this long
CHECKPOINT_AFTER_ROWS = 1_000  # rows written between two moves of the WAL into the database file
READERS_MAX = 4  # reading connections; further readers wait for one of them
READER_WAIT_LIMIT_S = 30  # for a reading connection to become free
IN_MEMORY = "in-memory"  # the installation that ends with its process
EPOCHS_MAX = 1_000  # lives of controls that a database knows; hosts of older ones hear everything

Parameters = Cells
Rows = list[sqlite3.Row]

log = Log(__name__)


def failure(error: Exception, doing: str, *, unknown_is_fatal: bool) -> StoreFailed:
    """Say what an error of SQLite means for what was promised."""
    code = getattr(error, "sqlite_errorcode", None)
    primary = None if code is None else code & 0xFF
    name = getattr(error, "sqlite_errorname", None) or type(error).__name__
    words = f"{doing}: {error} ({name})"
    if primary == sqlite3.SQLITE_FULL or code == sqlite3.SQLITE_IOERR_SHMSIZE:
        return StoreFailed(f"{words}; free space on the disk", fatal=False)
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreFailed(f"{words}; another program holds the file", fatal=False)
    if primary in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreFailed(f"{words}; what is on the disk is not known", fatal=True)
    return StoreFailed(words, fatal=unknown_is_fatal)


_COPYING = threading.Lock()


@cache
def _empty() -> sqlite3.Connection:
    """A database in memory with the newest schema and nothing in it, to be copied from.

    Making one takes half of an emulator's start, and they are all the same.
    """
    made = connect(":memory:")
    migrate(made)
    made.execute(named_queries()["name_installation"], {"installation_id": IN_MEMORY})
    return made


class Database:
    """One database: a writing connection, which belongs to one thread at a time, and readers.

    In a transaction the calling thread owns the writing connection; others that want it wait. In
    memory everything shares that one connection, so readers wait too.
    """

    def __init__(
        self,
        writer: sqlite3.Connection,
        *,
        path: Path | None = None,
        lock: FolderLock | None = None,
        marker: Marker | None = None,
        commits: int = 0,
    ) -> None:
        self._writer = writer
        self._path = path
        self._lock = lock
        self._marker = marker
        self._commits = commits  # durable ones
        self._epoch: str | None = None  # to be kept with the next commit
        self._owner = threading.RLock()
        self._dead: StoreFailed | None = None  # the fatal failure after which nothing is written
        self._rows_at_checkpoint = 0
        self._closed = False
        self._readers_idle: queue.LifoQueue[sqlite3.Connection] = queue.LifoQueue()
        self._readers: list[sqlite3.Connection] = []
        self._readers_lock = threading.Lock()
        if path is not None:
            # One reader is open from the start: as long as it is, closing the writer after a
            # fatal failure does not checkpoint, and it cannot checkpoint itself.
            self._readers_idle.put(self._open_reader(path))

    @classmethod
    def in_memory(cls) -> Database:
        """A new, empty database that ends with this object."""
        writer = connect(":memory:")
        with _COPYING:
            _empty().backup(writer)
        return cls(writer)

    @property
    def path(self) -> Path | None:
        """The file, None in memory."""
        return self._path

    @property
    def commits(self) -> int:
        """How many commits it has: the number of the last one."""
        return self._commits

    # Writing

    def begin_epoch(self, epoch: str) -> None:
        """Keep with the next commit that it is the first one of this epoch."""
        self._epoch = epoch

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """One commit: what is written inside is durable when this ends, or nothing of it is kept.

        What no row can hold is Unstorable, another error of SQLite StoreFailed. Threads take turns.
        """
        with self._owner:
            self._refuse_if_dead()
            self._run("beginning a transaction", "BEGIN IMMEDIATE", unknown_is_fatal=False)
            try:
                yield
                if not self._writer.in_transaction:
                    raise StoreFailed("SQLite has undone the transaction", fatal=False)
                self._count_commit()
            except (sqlite3.IntegrityError, OverflowError, TypeError, UnicodeEncodeError) as error:
                self._undo_transaction()
                raise Unstorable(f"no row can hold this: {error}") from error
            except sqlite3.Error as error:
                self._undo_transaction()
                self._fail(error, "writing", unknown_is_fatal=False)
            except BaseException:
                self._undo_transaction()
                raise
            self._run("committing", "COMMIT", unknown_is_fatal=True)
            self._commits += 1
            self._epoch = None
            if self._marker is not None:
                self._marker.committed(self._commits)
            try:
                self._checkpoint_if_worthwhile()
            except sqlite3.Error as error:
                self._fail(error, "committing", unknown_is_fatal=True)

    def _run(self, doing: str, statement: str, *, unknown_is_fatal: bool) -> None:
        try:
            self._writer.execute(statement)
        except sqlite3.Error as error:
            self._undo_transaction()
            self._fail(error, doing, unknown_is_fatal=unknown_is_fatal)

    def _count_commit(self) -> None:
        """The last statement of every transaction. Another writer has counted otherwise."""
        if self._path is not None:
            counted = self.write(
                "count_commit", {"commits": self._commits + 1, "commits_before": self._commits}
            )
            if counted != 1:
                raise StaleRevision(f"the database is no longer at commit {self._commits}")
        if self._epoch is not None:
            self._keep_epoch(self._epoch)

    def _keep_epoch(self, epoch: str) -> None:
        self.write("insert_epoch", {"epoch_id": epoch, "first_commit": self._commits + 1})
        self.write("delete_old_epochs", {"kept": EPOCHS_MAX})

    def write(self, name: str, parameters: Parameters) -> int:
        """Run a named statement inside `transaction`. Returns how many rows it wrote."""
        return self._writer.execute(named_queries()[name], parameters).rowcount

    def write_all(self, statement: str, rows: Iterable[Parameters]) -> int:
        """Run a statement for each row inside `transaction`. Returns how many rows it wrote."""
        return self._writer.executemany(statement, rows).rowcount

    def revisions(self, step: WriteStep) -> dict[tuple[Cell, ...], int]:
        """The revisions of the rows of a step that have one, as they are in the transaction."""
        spec, found = step.spec, {}
        if "revision" not in spec.columns:
            return {}
        named = " AND ".join(f"{key} = :{key}" for key in spec.key)
        for cells in step.rows:
            asked = f"SELECT revision FROM {spec.table} WHERE {named}"  # noqa: S608 - ours
            row = self._writer.execute(asked, cells).fetchone()
            if row is not None:
                found[tuple(cells[key] for key in spec.key)] = int(row["revision"])
        return found

    # Reading

    @contextmanager
    def reading(self) -> Iterator[SqliteQueries]:
        """What is committed, as of one instant. Any thread. Errors of SQLite are StoreFailed."""
        if self._path is None:
            with self._owner:
                self._refuse_if_dead()
                try:
                    yield SqliteQueries(self._writer)
                except sqlite3.Error as error:
                    self._fail(error, "reading", unknown_is_fatal=False)
            return
        connection = self._borrow_reader(self._path)
        try:
            connection.execute("BEGIN")
            yield SqliteQueries(connection)
        except sqlite3.Error as error:
            raise failure(error, "reading", unknown_is_fatal=False) from error
        finally:
            self._give_back(connection)

    # Ending

    def close(self) -> None:
        """Close every connection and let go of the data folder. A second call does nothing.

        The WAL is moved into the database file first. If that fails, or the mark with the checksum
        of the file cannot be replaced before, the WAL stays beside it and the next opening reads
        it.
        """
        with self._owner:
            if self._closed:
                return
            self._closed = True
            self._undo_transaction()
            may_change = self._marker is None or self._marker.stop()
            settled = self._dead is None and may_change and self._settle_wal()
            if not settled:
                self._writer.close()  # with a reader still open, this does not checkpoint
            for reader in self._readers:
                reader.close()
            self._writer.close()
            if self._marker is not None and self._path is not None and settled:
                self._marker.settled(self._commits)
                found = sum_if_readable(self._path.parent, SUMMED_BYTES_MAX)
                self._marker.close(file_sum=found)
            if self._lock is not None:
                self._lock.release()

    def copy_to(self, target: sqlite3.Connection) -> None:
        """Copy everything committed into another connection, as of one instant."""
        if self._path is None:
            with self._owner:
                self._writer.backup(target)
            return
        source = connect(f"{self._path.absolute().as_uri()}?mode=ro")
        try:
            source.backup(target)  # in one step: later commits neither show nor restart it
        finally:
            source.close()

    def _refuse_if_dead(self) -> None:
        if self._closed:
            raise StoreFailed("the store is closed", fatal=False)
        if self._dead is not None:
            raise StoreFailed(f"after an earlier failure: {self._dead}", fatal=True)

    def _undo_transaction(self) -> None:
        """Roll back if SQLite has not done so itself. If even that fails, the database is dead."""
        try:
            if self._dead is None and self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
        except sqlite3.Error as error:
            self._die(failure(error, "rolling back", unknown_is_fatal=True))

    def _fail(self, error: sqlite3.Error, doing: str, *, unknown_is_fatal: bool) -> NoReturn:
        failed = failure(error, doing, unknown_is_fatal=unknown_is_fatal)
        if failed.fatal:
            self._die(failed)
        raise failed from error

    def _die(self, failed: StoreFailed) -> None:
        """Write nothing any more. With a reader still open, this close does not checkpoint."""
        self._dead = failed
        log.error("the store has failed", path=str(self._path), reason=str(failed))
        self._writer.close()

    def _checkpoint_if_worthwhile(self) -> None:
        """Move the WAL into the database file now and then.

        SQLite would do this by itself but ignore a failed fsync of the database file, try again
        later and be told that all is well. Ours lets the error out: it is fatal.
        """
        rows = self._writer.total_changes
        if self._marker is None or rows - self._rows_at_checkpoint < CHECKPOINT_AFTER_ROWS:
            return
        if not self._marker.may_change_file():
            return
        self._rows_at_checkpoint = rows
        try:
            busy, in_wal, moved = self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if not busy and in_wal == moved:
                self._marker.settled(self._commits)
        except sqlite3.OperationalError as error:
            if failure(error, "", unknown_is_fatal=True).fatal:
                raise
            # The commit is durable in the WAL; only tidying up has to wait for a free disk.
            log.warning("the checkpoint was put off", path=str(self._path), reason=str(error))

    def _settle_wal(self) -> bool:
        """Move the whole WAL into the database file. False if something kept it from that."""
        if self._path is None:
            return False
        try:
            busy, _, _ = self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.Error as error:
            self._die(failure(error, "closing", unknown_is_fatal=True))
            return False
        return not busy

    def _borrow_reader(self, path: Path) -> sqlite3.Connection:
        if self._closed:
            raise StoreFailed("the store is closed", fatal=False)
        try:
            return self._readers_idle.get_nowait()
        except queue.Empty:
            pass
        with self._readers_lock:
            if len(self._readers) < READERS_MAX:
                try:
                    return self._open_reader(path)
                except sqlite3.Error as error:
                    raise failure(error, "opening a reader", unknown_is_fatal=False) from error
        try:
            return self._readers_idle.get(timeout=READER_WAIT_LIMIT_S)
        except queue.Empty:
            words = f"no reading connection was free for {READER_WAIT_LIMIT_S} s"
            raise StoreFailed(words, fatal=False) from None

    def _give_back(self, reader: sqlite3.Connection) -> None:
        with suppress(sqlite3.Error):  # closed meanwhile; the next borrower is told
            if reader.in_transaction:
                reader.execute("ROLLBACK")
        self._readers_idle.put(reader)

    def _open_reader(self, path: Path) -> sqlite3.Connection:
        reader = connect(f"{path.absolute().as_uri()}?mode=ro")
        reader.execute("SELECT name FROM meta").fetchall()  # takes its part in the WAL now
        self._readers.append(reader)
        return reader


class SqliteQueries:
    """Runs named queries on one connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def rows(self, name: str, parameters: Parameters | None = None) -> Rows:
        """All rows of a named query."""
        return self._connection.execute(named_queries()[name], parameters or {}).fetchall()

    def listed(self, query: ListQuery) -> Rows:
        """All rows of a list."""
        return self._connection.execute(query.statement, query.parameters).fetchall()

    def row(self, name: str, parameters: Parameters | None = None) -> sqlite3.Row | None:
        """The first row of a named query, or None."""
        found = self.rows(name, parameters)
        return found[0] if found else None


def connect(address: str) -> sqlite3.Connection:
    """A connection to a `file:` URI or `:memory:`, in autocommit mode: BEGIN is said by hand."""
    connection = sqlite3.connect(
        address,
        uri=address != ":memory:",
        isolation_level=None,
        check_same_thread=False,  # threads take turns; the locks of Database see to it
        timeout=BUSY_TIMEOUT_MS / 1_000,
    )
    connection.row_factory = sqlite3.Row
    connection.execute("PRAGMA foreign_keys = ON")
    return connection
