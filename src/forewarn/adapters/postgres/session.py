"""Sessions on PostgreSQL. This file alone knows psycopg, and what its errors mean.

Three kinds of failure of a batch matter. The database refused a statement: the batch was undone,
and nothing else is lost. A row was not as it had to be: the same, and the caller finds out why.
Anything that leaves it open whether the COMMIT happened (no answer, or an answer with a warning)
ends the leadership: what was not answered was not promised, and a new leader reads what is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any

import psycopg
from msgspec import Struct
from psycopg.rows import dict_row

from forewarn.logs import Log
from forewarn.ports import Cell, LeadershipLost, StoreFailed, Unstorable
from forewarn.tables.columns import Row
from forewarn.tables.list_queries import LINES_OF_TAG, ListQuery
from forewarn.tables.statements import named_queries

OWN_WORDS = "forewarn.adapters.postgres"
NOT_AS_EXPECTED = "FW001"  # what `forewarn_expect` raises
CONNECT_LIMIT_S = 3
LOCK_LIMIT_MS = 2_000
# A session whose client is gone or stands still must not hold what it has locked for long.
GUARDS = {
    "idle_in_transaction_session_timeout": "2000",
    "lock_timeout": str(LOCK_LIMIT_MS),
    "client_connection_check_interval": "1000",
}
KEEPALIVES: Mapping[str, Any] = {
    "keepalives_idle": 1,
    "keepalives_interval": 1,
    "keepalives_count": 3,
    "tcp_user_timeout": 3_000,
}

_TAG_LINES = (
    "SELECT journal.number FROM vm"
    " CROSS JOIN LATERAL jsonb_array_elements(vm.tags::jsonb) AS tag(value)"
    " JOIN journal ON journal.vm = vm.name"
    " WHERE vm.tags <> '[]' AND (tag.value ->> 0) || '=' || (tag.value ->> 1) = :tag"
    " AND journal.number > :after"
)

log = Log(__name__)


class Statement(Struct, frozen=True):
    """A statement in PostgreSQL's words, with its parameters."""

    text: str
    parameters: Sequence[object] | Mapping[str, object] = ()


class NotAsExpected(Exception):  # noqa: N818 - says what is the case
    """`forewarn_expect` found another number of rows at a step; the transaction is undone."""

    def __init__(self, step: str) -> None:
        super().__init__(step)
        self.step = step


@lru_cache(maxsize=1_000)
def in_own_words(statement: str) -> str:
    """A statement of the store as psycopg takes it."""
    said = statement.replace(LINES_OF_TAG, _TAG_LINES)
    said = re.sub(r"(?<=[\s(])\+(?=\w+\.)", "", said)  # a hint for SQLite's planner
    said = re.sub(r"CROSS JOIN (\w+(?: AS \w+)?)(?=\s+ON\b)", r"JOIN \1", said)
    return re.sub(r"(?<!:):([a-z_]+)", r"%(\1)s", said.replace("%", "%%"))


class DatabaseSession:
    """One connection. Belongs to one thread at a time."""

    def __init__(self, address: str, *, doing: str) -> None:
        """Raises StoreFailed if there is no session to be had."""
        options = " ".join(f"-c {name}={value}" for name, value in GUARDS.items())
        try:
            self._connection = psycopg.connect(
                address,
                autocommit=True,
                row_factory=dict_row,
                connect_timeout=CONNECT_LIMIT_S,
                options=options,
                application_name=f"forewarn {doing}",
                prepare_threshold=2,
                **KEEPALIVES,
            )
        except (psycopg.Error, UnicodeError) as error:
            raise StoreFailed(f"no session on PostgreSQL: {_words(error)}", fatal=False) from error
        self._warned: list[str] = []
        self._connection.add_notice_handler(self._noticed)

    def _noticed(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.severity_nonlocalized not in ("WARNING", None):
            return
        self._warned.append(notice.message_primary or "a warning without words")

    @property
    def pid(self) -> int:
        """The process of the server that serves it."""
        return self._connection.info.backend_pid

    @property
    def lost(self) -> bool:
        """Whether it has ended."""
        return self._connection.closed

    def close(self) -> None:
        self._connection.close()

    # Reading.

    def rows(self, name: str, parameters: Mapping[str, Cell] | None = None) -> Sequence[Row]:
        """All rows of a named query."""
        return self.asked(Statement(named_in_own_words(name), parameters or {}))

    def row(self, name: str, parameters: Mapping[str, Cell] | None = None) -> Row | None:
        """The first row of a named query, or None."""
        found = self.rows(name, parameters)
        return found[0] if found else None

    def listed(self, query: ListQuery) -> Sequence[Row]:
        """All rows of a list."""
        return self.asked(Statement(in_own_words(query.statement), query.parameters))

    def asked(self, statement: Statement) -> Sequence[dict[str, Any]]:
        """The rows that a statement answers."""
        cursor = self._connection.execute(statement.text, statement.parameters)
        return cursor.fetchall() if cursor.description is not None else []

    def script(self, text: str) -> None:
        """Run statements without parameters."""
        self._connection.execute(text)

    @contextmanager
    def reading(self) -> Iterator[DatabaseSession]:
        """What is committed, as of one instant. Errors are StoreFailed."""
        try:
            self._connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield self
        except psycopg.Error as error:
            raise StoreFailed(f"reading: {_words(error)}", fatal=False) from error
        finally:
            self._undo()

    @contextmanager
    def transaction(self) -> Iterator[DatabaseSession]:
        """Statements that are committed together. Errors are StoreFailed."""
        try:
            self._connection.execute("BEGIN")
            yield self
            self._connection.execute("COMMIT")
        except psycopg.Error as error:
            raise StoreFailed(f"writing: {_words(error)}", fatal=False) from error
        finally:
            self._undo()

    def _undo(self) -> None:
        with suppress(psycopg.Error):
            if self._connection.info.transaction_status.name in ("INTRANS", "INERROR"):
                self._connection.execute("ROLLBACK")

    # Writing.

    def commit(self, statements: Iterable[Statement]) -> None:
        """Send BEGIN, these and COMMIT at once. What they wrote is durable when this returns.

        NotAsExpected, Unstorable or StoreFailed if nothing of it was, and the session goes on.
        LeadershipLost if that cannot be known.
        """
        self._warned.clear()
        said: str | None = None
        failed: Exception | None = None
        try:
            with self._connection.pipeline() as pipeline:
                try:
                    self._connection.execute("BEGIN")
                    for one in statements:
                        self._connection.execute(one.text, one.parameters)
                    ended = self._connection.execute("COMMIT")
                    pipeline.sync()
                    said = ended.statusmessage
                except (psycopg.Error, UnicodeError) as error:
                    failed = error
                    pipeline.sync()  # the session is of use again, if it is there
        except psycopg.Error as error:
            failed = failed or error
        except BaseException:
            self._undo()
            raise
        if failed is not None:
            raise self._refused(failed) from failed
        if said != "COMMIT" or self._warned:
            # A COMMIT that waits for a standby no longer warns of that, and calls it success.
            why = "; ".join(self._warned) or f"COMMIT was answered with {said}"
            self.close()
            raise LeadershipLost(f"it is not known whether the batch is durable: {why}")

    def _refused(self, error: Exception) -> Exception:
        """What an error means for the batch."""
        code = getattr(error, "sqlstate", None)
        gone = self._connection.closed or self._connection.broken
        if gone or (isinstance(error, psycopg.OperationalError) and code is None):
            self.close()
            return LeadershipLost(f"the session ended while it wrote: {_words(error)}")
        if code is not None and code[:2] in ("08", "57"):
            self.close()
            return LeadershipLost(f"the session was ended while it wrote: {_words(error)}")
        self._undo()
        if code == NOT_AS_EXPECTED:
            return NotAsExpected(_words(error))
        if isinstance(error, psycopg.IntegrityError | psycopg.DataError | UnicodeError):
            return Unstorable(f"no row can hold this: {_words(error)}")
        return StoreFailed(f"writing: {_words(error)} ({code})", fatal=False)


@lru_cache(maxsize=1_000)
def named_in_own_words(name: str) -> str:
    """A named statement of the store as psycopg takes it."""
    return in_own_words(named_queries(OWN_WORDS)[name])


def _words(error: Exception) -> str:
    diagnosed = getattr(error, "diag", None)
    said = None if diagnosed is None else diagnosed.message_primary
    return said or " ".join(str(error).split()) or type(error).__name__
