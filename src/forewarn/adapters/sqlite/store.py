"""`ports.Store` on SQLite: how a batch is written.

What is read back, and by which queries, is in `tables.query_reader`; connections and
failures are in `database`, the statements that write rows in `writing`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from forewarn.adapters.sqlite.data_folder import damaged, refuse_damaged
from forewarn.adapters.sqlite.database import Database, SqliteQueries
from forewarn.adapters.sqlite.opening import open_database
from forewarn.adapters.sqlite.writing import statements
from forewarn.ports import Batch, Fence, Snapshot, StaleRevision, StoreFailed
from forewarn.tables.query_reader import TablesRead, snapshot
from forewarn.tables.steps import does_not_fit, last_queries, steps


class SqliteStore(TablesRead):
    """`ports.Store`. Made by `in_folder` or `in_memory`; `close` it.

    Any thread may commit, one at a time. In memory reads wait for a commit to end.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    def in_folder(cls, data_dir: Path, *, new: bool = False) -> SqliteStore:
        """The store of a data folder, made if it is not there. Only one process can have it.

        Raises a `data_folder.DatabaseRefused` that says what is wrong with the folder and what to
        do, or StoreFailed. `new`: what would be refused as lost, damaged or another database is
        kept aside for a new one.
        """
        return cls(open_database(data_dir, new=new))

    @classmethod
    def in_memory(cls) -> SqliteStore:
        """A new, empty store that ends with the process."""
        return cls(Database.in_memory())

    def reading(self) -> AbstractContextManager[SqliteQueries]:
        """What is committed, as of one instant. Any thread."""
        return self._database.reading()

    def position(self) -> int:
        """The number of the last commit; the next one has the number that follows."""
        return self._database.commits

    def begin_epoch(self, epoch: str) -> None:
        """A life of control begins: the next commit is the first one of this epoch."""
        self._database.begin_epoch(epoch)

    def commit(self, batch: Batch, fence: Fence | None = None) -> None:  # noqa: ARG002 - of the port
        """Write a batch whole. It is durable when this returns; else nothing of it was written.

        The lock of the data folder is the fence: there is no other leader.
        """
        if batch.commit != self._database.commits + 1:
            raise StaleRevision(
                f"batch {batch.commit} does not follow commit {self._database.commits}"
            )
        with self._database.transaction():
            _write(self._database, batch)

    def load(self) -> Snapshot:
        """Everything that is open: scopes and hosts by name, operations oldest first.

        Raises StoreFailed, or DamagedDatabase if a row cannot have been written by us.
        """
        path = self._database.path
        try:
            with self.reading() as reading:
                return snapshot(reading, self._database.commits)
        except StoreFailed as failed:
            if path is not None and isinstance(failed.__cause__, sqlite3.Error):
                refuse_damaged(failed.__cause__, path)
            raise
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            if path is None:
                raise
            raise damaged(path, f"a row makes no sense: {error}") from error

    def sizes(self) -> Mapping[str, int]:
        """The bytes of the database file and of its WAL; 0 of what is not there."""
        path = self._database.path
        if path is None:
            return {"database": 0, "wal": 0}
        files = {"database": path, "wal": path.with_name(f"{path.name}-wal")}
        return {name: _bytes_of(file) for name, file in files.items()}

    def backup(
        self,
        target: Path,
        *,
        overwrite: bool = False,
        files: Callable[[], Mapping[str, bytes]] = dict,
    ) -> None:
        """Write a consistent copy of what is committed while the store is in use, and `files`.

        The target is whole and on the disk when this returns, else it is as it was. Raises
        `data_folder.FileExists` if it exists and `overwrite` was not asked for, and StoreFailed
        (never a fatal one) if it cannot be written.
        """
        # With the first backup: an emulator makes none.
        from forewarn.adapters.sqlite.backup import write_backup  # noqa: PLC0415 - see above

        write_backup(self._database, target, overwrite=overwrite, files=files)

    def close(self) -> None:
        """End it. Everything committed stays. A second call does nothing."""
        self._database.close()


def _write(database: Database, batch: Batch) -> None:
    for step in steps(batch):
        found = database.write_all(getattr(statements(step.spec.name), step.way), step.rows)
        if step.whole and found != len(step.rows):
            raise does_not_fit(step, database.revisions(step))
    for name, parameters in last_queries(batch):
        database.write(name, parameters)


def _bytes_of(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0
