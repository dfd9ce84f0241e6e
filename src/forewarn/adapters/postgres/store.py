"""`ports.Store` on PostgreSQL, for one of several controls.

One session writes, and it lives as long as the leadership that it was made under (`lead`): it is
never made anew under the same epoch. Others read. How a batch is written is in `writing`, what
errors mean in `session`, what is read back in `tables.query_reader`.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from forewarn.adapters.postgres import schema
from forewarn.adapters.postgres.session import DatabaseSession, NotAsExpected, Statement
from forewarn.adapters.postgres.writing import FENCE, revisions, statements
from forewarn.logs import Log
from forewarn.ports import (
    Batch,
    Cell,
    Fence,
    LeadershipLost,
    Snapshot,
    StaleRevision,
    StoreFailed,
)
from forewarn.tables.query_reader import TablesRead, snapshot
from forewarn.tables.steps import WriteStep, does_not_fit, steps

READERS_MAX = 4  # reading sessions; further readers wait for one of them
READER_WAIT_LIMIT_S = 30
MIGRATING = 0x666F7265  # the lock that one migration takes at a time
OLDEST_SERVER = 130_000  # version 13

log = Log(__name__)


class UnsafeServer(Exception):  # noqa: N818 - says what is the case
    """The server would lose what it has confirmed, or cannot be written to. Says the remedy."""


class PostgresStore(TablesRead):
    """Made by `open`; `close` it. Commits under a fence that `lead` gave, and under no other."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._writer: DatabaseSession | None = None
        self._fence: Fence | None = None
        self._commits = 0
        self._epoch_id: str | None = None
        self._idle: queue.LifoQueue[DatabaseSession] = queue.LifoQueue()
        self._readers = 0
        self._closed = False

    @classmethod
    def open(cls, address: str) -> PostgresStore:
        """The store of a database, whose schema is made or brought to that of this program.

        `address` is a connection string of libpq. Raises StoreFailed, or UnsafeServer.
        """
        session = DatabaseSession(address, doing="opens")
        try:
            _refuse_unsafe(session)
            migrate(session)
        finally:
            session.close()
        return cls(address)

    # Leading.

    def lead(self, holder: str, address: str) -> Fence:
        """Take the leadership, from the session that has it. From then on this store commits.

        The session of the leader before is ended first: one that stands still in the middle of a
        batch would keep the row locked, and go on when it wakes.
        """
        session = DatabaseSession(self._address, doing="leads")
        try:
            with session.transaction():
                row = _leadership(session)
                if row["backend_pid"] is not None:
                    end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = %s"
                    its = " AND application_name = 'forewarn leads' AND pid <> pg_backend_pid()"
                    session.asked(Statement(end + its, (row["backend_pid"],)))
                taken = session.asked(
                    Statement(
                        "UPDATE leadership SET epoch = epoch + 1, holder = %s, address = %s,"
                        " backend_pid = pg_backend_pid(),"
                        " renewed_ms = (EXTRACT(EPOCH FROM clock_timestamp()) * 1000)::bigint"
                        " WHERE id = 1 AND epoch = %s RETURNING epoch, batch",
                        (holder, address, row["epoch"]),
                    )
                )
            if not taken:
                raise LeadershipLost("another control has taken the leadership just now")
        except BaseException:
            session.close()
            raise
        self._end_leadership()
        self._writer, self._commits = session, int(taken[0]["batch"])
        self._fence = Fence(int(taken[0]["epoch"]))
        return self._fence

    def position(self) -> int:
        """The number of the last commit that this store knows of."""
        return self._commits

    def begin_epoch(self, epoch: str) -> None:
        """A life of control begins: the next commit is the first one of this epoch."""
        self._epoch_id = epoch

    def commit(self, batch: Batch, fence: Fence | None = None) -> None:
        """Write a batch whole, in one round trip. It is durable when this returns.

        LeadershipLost if this is no leader, or if it cannot be known whether the batch is durable:
        then no caller may be told that it is, and this store commits no more until it leads anew.
        """
        if self._closed:
            raise StoreFailed("the store is closed", fatal=False)
        if self._writer is None or fence is None or fence != self._fence:
            raise LeadershipLost("this control does not lead")
        if batch.commit != self._commits + 1:
            raise StaleRevision(f"batch {batch.commit} does not follow commit {self._commits}")
        wanted = list(steps(batch))
        try:
            self._writer.commit(statements(batch, wanted, fence, self._epoch_id))
        except NotAsExpected as found:
            if found.step == FENCE:
                self._end_leadership()
                raise LeadershipLost("another control leads") from None
            raise self._why(wanted[int(found.step)]) from None
        except LeadershipLost:
            self._end_leadership()
            raise
        self._commits, self._epoch_id = batch.commit, None

    def _end_leadership(self) -> None:
        writer, self._writer, self._fence = self._writer, None, None
        if writer is not None:
            writer.close()

    def _why(self, step: WriteStep) -> Exception:
        """Why not every row of a step could be written, by what is there now."""
        spec, found = step.spec, dict[tuple[Cell, ...], int]()
        if "revision" in spec.columns:
            with self.reading() as reading:
                for row in reading.asked(revisions(step)):
                    found[tuple(row[key] for key in spec.key)] = int(row["revision"])
        return does_not_fit(step, found)

    # Reading.

    def load(self) -> Snapshot:
        """Everything that is open: scopes and hosts by name, operations oldest first."""
        try:
            with self.reading() as reading:
                loaded = snapshot(reading, 0)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise StoreFailed(f"a row makes no sense: {error}", fatal=True) from error
        return loaded

    @contextmanager
    def reading(self) -> Iterator[DatabaseSession]:
        """What is committed, as of one instant. Any thread."""
        session = self._reader()
        try:
            with session.reading():
                yield session
        finally:
            if session.lost or self._closed:
                session.close()
                self._readers -= 1
            else:
                self._idle.put(session)

    def _reader(self) -> DatabaseSession:
        if self._closed:
            raise StoreFailed("the store is closed", fatal=False)
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            if self._readers < READERS_MAX:
                self._readers += 1
                try:
                    return DatabaseSession(self._address, doing="reads")
                except BaseException:
                    self._readers -= 1
                    raise
        try:
            return self._idle.get(timeout=READER_WAIT_LIMIT_S)
        except queue.Empty:
            words = f"no reading session was free for {READER_WAIT_LIMIT_S} s"
            raise StoreFailed(words, fatal=False) from None

    def backup(self, target: Path, *, files: Callable[[], Mapping[str, bytes]] = dict) -> None:  # noqa: ARG002 - of the port
        """Refused: copies of a database on PostgreSQL are made with its own tools."""
        raise StoreFailed(
            f"{target} was not written: the database is on PostgreSQL, and is copied with"
            " pg_basebackup or pg_dump",
            fatal=False,
        )

    def close(self) -> None:
        """End it. Everything committed stays. A second call does nothing."""
        self._closed = True
        self._end_leadership()
        while True:
            try:
                self._idle.get_nowait().close()
            except queue.Empty:
                return


def _leadership(session: DatabaseSession) -> Mapping[str, int]:
    [row] = session.asked(
        Statement("SELECT epoch, batch, backend_pid FROM leadership WHERE id = 1")
    )
    return row


def _refuse_unsafe(session: DatabaseSession) -> None:
    """Refuse a server that may lose a commit that it has confirmed, or takes none."""
    [row] = session.asked(
        Statement(
            "SELECT current_setting('server_version_num')::bigint AS version,"
            " pg_is_in_recovery() AS in_recovery,"
            " current_setting('fsync') AS fsync,"
            " current_setting('full_page_writes') AS full_page_writes,"
            " current_setting('synchronous_commit') AS synchronous_commit"
        )
    )
    if row["version"] < OLDEST_SERVER:
        raise UnsafeServer("This PostgreSQL is too old. Version 13 or later would be accepted.")
    if row["in_recovery"]:
        raise UnsafeServer(
            "This PostgreSQL is a standby and takes no writes. Name the primary, or all servers"
            " with target_session_attrs=read-write."
        )
    for name, unsafe in (
        ("fsync", ("off",)),
        ("full_page_writes", ("off",)),
        ("synchronous_commit", ("off", "local")),
    ):
        if row[name] in unsafe:
            raise UnsafeServer(
                f"{name} is {row[name]} on this PostgreSQL, which may lose what it has confirmed."
                f" Set {name} = on."
            )


def migrate(session: DatabaseSession) -> None:
    """Make the schema, or bring it to the newest version: all steps in one transaction, or none."""
    with session.transaction():
        session.asked(Statement("SELECT pg_advisory_xact_lock(%s)", (MIGRATING,)))
        [found] = session.asked(
            Statement("SELECT to_regclass('schema_version') IS NOT NULL AS made")
        )
        version = 0
        if found["made"]:
            [row] = session.asked(Statement("SELECT version FROM schema_version"))
            version = row["version"]
        if version > schema.newest_version():
            raise StoreFailed(
                f"the database has schema {version}, and this program knows"
                f" {schema.newest_version()}; install a newer Forewarn",
                fatal=False,
            )
        for number in range(version + 1, schema.newest_version() + 1):
            session.script(schema.migration(number))
            if number == schema.BEFORE_POSTGRES:
                session.script(schema.first_rows())
        session.asked(
            Statement(
                "INSERT INTO schema_version (only_one, version) VALUES (1, %s)"
                " ON CONFLICT (only_one) DO UPDATE SET version = excluded.version",
                (schema.newest_version(),),
            )
        )
