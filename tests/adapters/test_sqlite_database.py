"""The SQL files, the connections, and what failures of SQLite come to."""

from __future__ import annotations

import contextlib
import re
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from enum import StrEnum
from importlib import resources
from pathlib import Path

import pytest
from msgspec.structs import replace

from forewarn.adapters.sqlite.data_folder import DATABASE_NAME, MIGRATIONS, migrate
from forewarn.adapters.sqlite.database import READERS_MAX
from forewarn.adapters.sqlite.store import SqliteStore
from forewarn.adapters.sqlite.writing import statements
from forewarn.core.model import (
    ActionKind,
    ActionPhase,
    Cause,
    EventSource,
    EventType,
    Fact,
    FactKind,
    Health,
    OperationPhase,
    Outcome,
    Phase,
    Scope,
    ScopeKind,
    Vm,
)
from forewarn.core.vm_profile import Priority
from forewarn.ports import Change, Questions, StaleRevision, StoreFailed
from forewarn.tables.folding import RowNumbers, fold
from forewarn.tables.statements import named_queries
from support.batches import Keeper, folded, keep, ways_of_tables
from support.journal import lines_of, worded
from support.store_values import Values

COUNTED = 1  # the row that counts commits


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    made = SqliteStore.in_folder(tmp_path)
    yield made
    made.close()


def writer(store: SqliteStore) -> sqlite3.Connection:
    return store._database._writer


def schema() -> str:
    """Every migration, in order."""
    folder = resources.files("forewarn.adapters.sqlite").joinpath("sql")
    return "\n".join(folder.joinpath(name).read_text("utf-8") for name in MIGRATIONS)


# The SQL files


def test_every_query_is_one_statement_that_the_schema_can_run() -> None:
    written = {f"{name} {way}": getattr(statements(name), way) for name, way in ways_of_tables()}
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection)
        for name, statement in {**named_queries(), **written}.items():
            wanted = dict.fromkeys(re.findall(r":([a-z_]+)", statement))
            assert connection.execute(f"EXPLAIN {statement}", wanted).fetchall(), name


def test_the_schema_knows_no_types_but_text_and_bigint() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection)
        tables = [row[0] for row in connection.execute("SELECT name FROM pragma_table_list")]
        for table in (name for name in tables if not name.startswith("sqlite_")):
            for column in connection.execute(f"PRAGMA table_info({table})"):
                assert column[2] in ("TEXT", "BIGINT"), (table, column[1])
                assert not column[1].endswith("_ms") or column[2] == "BIGINT", (table, column[1])
    assert "PRAGMA" not in schema()


@pytest.mark.parametrize(
    ("table", "column", "kind"),
    [
        ("host", "health", Health),
        ("scope", "kind", ScopeKind),
        ("vm", "priority", Priority),
        ("scheduled_event", "event_type", EventType),
        ("scheduled_event", "event_source", EventSource),
        ("scheduled_event", "cause", Cause),
        ("scheduled_event", "phase", Phase),
        ("operation", "event_type", EventType),
        ("operation", "cause", Cause),
        ("operation", "phase", OperationPhase),
        ("action", "kind", ActionKind),
        ("action", "phase", ActionPhase),
        ("action", "outcome", Outcome),
    ],
)
def test_the_schema_allows_exactly_the_words_of_the_model(
    table: str, column: str, kind: type[StrEnum]
) -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection)
        (body,) = connection.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (table,))
    plain = re.sub(r"--.*", "", body[0])
    allowed = re.search(
        rf"\b{column}\s+TEXT[^,(]*CHECK \({column} IN\s*\((.*?)\)\)", plain, re.DOTALL
    )
    assert allowed is not None
    assert set(re.findall(r"'([^']+)'", allowed[1])) == {member.value for member in kind}


@pytest.mark.parametrize(
    ("query", "index"),
    [
        ("events_open", "scheduled_event_open"),
        ("operations_open", "operation_open"),
        ("actions_of_events", "action_of_event"),
        ("actions_of_operations", "action_of_operation"),
        ("events", "sqlite_autoindex_scheduled_event_1"),
        ("operations", "sqlite_autoindex_operation_1"),
        ("remembered", "sqlite_autoindex_remembered_1"),
        ("members_of_operations", "sqlite_autoindex_operation_member_1"),
    ],
)
def test_queries_that_must_not_slow_down_with_age_use_their_index(query: str, index: str) -> None:
    statement = named_queries()[query]
    wanted = dict.fromkeys(re.findall(r":([a-z_]+)", statement))
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection)
        plan = connection.execute(f"EXPLAIN QUERY PLAN {statement}", wanted).fetchall()
    words = " ".join(str(step[3]) for step in plan)
    assert f"USING INDEX {index}" in words or f"USING COVERING INDEX {index}" in words
    assert "SCAN" not in words.replace("SCAN json_each", "") or query.endswith("_open")


# What is written and how fast


def test_a_poll_of_a_scope_with_a_hundred_vms_writes_one_row(store: SqliteStore) -> None:
    vms = tuple(Vm(name=f"v{n}", vm_id=str(n), update_domain=0, host="h") for n in range(100))
    scope = Scope(name="s", kind=ScopeKind.AVAILABILITY_SET, vms=vms)
    scope = replace(scope, events=(Values(1).event("s", Phase.STARTED),))
    keep(store, Change(scopes=((None, scope),)))
    before = writer(store).total_changes
    keep(store, Change(scopes=((scope, replace(scope, revision=1, polled_ms=5)),)))
    assert writer(store).total_changes - before == 1 + COUNTED


def test_a_vm_that_leaves_or_arrives_costs_one_row(store: SqliteStore) -> None:
    vms = tuple(Vm(name=f"v{n}", vm_id=str(n), update_domain=0, host="h") for n in range(101))
    scope = Scope(name="s", kind=ScopeKind.AVAILABILITY_SET, vms=vms[:100])
    keep(store, Change(scopes=((None, scope),)))
    following = replace(scope, revision=1, vms=vms[1:])
    before = writer(store).total_changes
    keep(store, Change(scopes=((scope, following),)))
    # the scope, the leaving, the arriving
    assert writer(store).total_changes - before == 3 + COUNTED
    assert store.load().scopes == (following,)


def test_ten_thousand_vms_load_with_as_many_statements_as_ten(store: SqliteStore) -> None:
    values = Values(2)
    scopes: list[Scope] = []
    asked: list[str] = []
    statements: list[int] = []
    (reader,) = store._database._readers  # one is open from the start, and used first
    for upto in (1, 1_000):
        added: list[Scope] = []
        for n in range(len(scopes), upto):
            vms = tuple(replace(values.vm(), name=f"v{n}-{m}") for m in range(10))
            event = values.event(f"s{n:04}", Phase.STARTED)
            kind = ScopeKind.PLACEMENT_GROUP
            added.append(Scope(name=f"s{n:04}", kind=kind, vms=vms, events=(event,)))
        keep(store, Change(scopes=tuple((None, scope) for scope in added)))
        scopes += added
        asked.clear()
        reader.set_trace_callback(asked.append)
        assert store.load().scopes == tuple(scopes)
        statements.append(len(asked))
    assert statements[0] == statements[1] > 0


def test_the_file_is_synced_at_every_commit_and_only_its_owner_reads_it(
    store: SqliteStore, tmp_path: Path
) -> None:
    keep(store, Change(heartbeat_ms=1))
    pragmas = {
        name: writer(store).execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("journal_mode", "synchronous", "foreign_keys", "wal_autocheckpoint")
    }
    assert pragmas == {
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "wal_autocheckpoint": 0,
    }
    modes: dict[str, int] = {}
    for path in tmp_path.iterdir():
        with contextlib.suppress(FileNotFoundError):  # a mark that has just taken its place
            modes[path.name] = path.stat().st_mode & 0o777
    assert set(modes.values()) == {0o600}
    assert {DATABASE_NAME, f"{DATABASE_NAME}-wal"} <= modes.keys()


def test_the_wal_is_moved_into_the_database_now_and_then(
    store: SqliteStore, tmp_path: Path
) -> None:
    fact = worded(1, "x" * 2_000)
    for turn in range(30):
        keep(store, Change(lines=lines_of([fact] * 100, after=turn * 100)))
    size = (tmp_path / f"{DATABASE_NAME}-wal").stat().st_size
    assert size < 30 * 100 * 2_000  # it was used over and over, not only added to
    assert store.journal_end() == 3_000


# Readers and writers at once


def test_readers_do_not_wait_for_an_open_transaction(store: SqliteStore) -> None:
    keep(store, Change(heartbeat_ms=1))
    seen = []
    with store._database.transaction():
        store._database.write_all("UPDATE meta SET value = '2'", [{}])
        reader = threading.Thread(target=lambda: seen.append(store.load().heartbeat_ms))
        reader.start()
        reader.join()
        # nor does the writing thread see what is not committed
        seen.append(store.load().heartbeat_ms)
    assert store.load().heartbeat_ms == 2
    assert seen == [1, 1]


def test_more_readers_than_connections_all_get_their_answer(store: SqliteStore) -> None:
    """While a writer commits, every load is of one instant: the fact of its heartbeat is there."""
    answers: list[bool] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            heartbeat = store.load().heartbeat_ms or 0
            answers.append(store.journal_end() >= heartbeat)

    readers = [threading.Thread(target=read) for _ in range(READERS_MAX * 2)]
    keeper = Keeper(store)
    for reader in readers:
        reader.start()
    for number in range(1, 200):
        fact = Fact(kind=FactKind.DOWNTIME, at_ms=number)
        keeper.keep(Change(heartbeat_ms=number, lines=lines_of([fact], after=number - 1)))
    done.set()
    for reader in readers:
        reader.join()
    assert len(answers) >= len(readers)
    assert all(answers)


def test_readers_cannot_write(store: SqliteStore) -> None:
    with store._database.reading() as reading, pytest.raises(sqlite3.OperationalError):
        reading._connection.execute("DELETE FROM meta")


def test_a_second_writing_thread_waits_for_the_first(store: SqliteStore) -> None:
    order: list[str] = []

    def write() -> None:
        with store._database.transaction():
            order.append("second")

    second = threading.Thread(target=write)
    with store._database.transaction():
        second.start()
        order.append("first")
    second.join()
    assert order == ["first", "second"]
    assert store.position() == 2


def test_a_foreign_program_that_holds_the_file_is_not_fatal(
    store: SqliteStore, tmp_path: Path
) -> None:
    writer(store).execute("PRAGMA busy_timeout = 1")
    batch = folded(store, Change(heartbeat_ms=1))
    with closing(sqlite3.connect(tmp_path / DATABASE_NAME, isolation_level=None)) as foreign:
        foreign.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreFailed, match="another program") as failed:
            store.commit(batch)
    assert not failed.value.fatal
    store.commit(batch)
    assert store.load().heartbeat_ms == 1


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = SqliteStore.in_folder(tmp_path)
    batch, keys = folded(store, Change(heartbeat_ms=1)), Questions(keys=frozenset({"k"}))
    store.close()
    for use in (lambda: store.commit(batch), store.load, lambda: store.recall(keys)):
        with pytest.raises(StoreFailed, match="closed"):
            use()


# A full disk, as far as SQLite can be told that it is full


def fill_up(store: SqliteStore) -> None:
    """Allow the database no page more than it has."""
    pages = writer(store).execute("PRAGMA page_count").fetchone()[0]
    writer(store).execute(f"PRAGMA max_page_count = {pages}")


def make_room(store: SqliteStore) -> None:
    writer(store).execute("PRAGMA max_page_count = 1000000")


BIG = "x" * 100_000


@pytest.mark.parametrize(
    "too_big",
    [
        Change(inventory="x", inventory_packed=BIG),
        Change(lines=lines_of([worded(1, BIG)])),
        Change(scopes=((None, Scope(name=BIG, kind=ScopeKind.STANDALONE)),)),
    ],
    ids=["inventory", "fact", "scope"],
)
def test_after_a_full_disk_memory_and_disk_agree_and_the_next_commit_works(
    store: SqliteStore, too_big: Change
) -> None:
    keep(store, Change(heartbeat_ms=1))
    fill_up(store)
    with pytest.raises(StoreFailed, match="full") as failed:
        keep(store, Change(heartbeat_ms=2), too_big)
    assert not failed.value.fatal
    assert (store.load().heartbeat_ms, store.position()) == (1, 1)
    make_room(store)
    keep(store, replace(too_big, heartbeat_ms=3))
    assert store.load().heartbeat_ms == 3


def test_a_transaction_that_sqlite_undid_is_not_committed(store: SqliteStore) -> None:
    keep(store, Change(heartbeat_ms=1))

    def undone() -> None:
        with store._database.transaction():
            store._database.write_all("UPDATE meta SET value = '2'", [{}])
            writer(store).execute("ROLLBACK")  # what SQLite does by itself on some failures

    with pytest.raises(StoreFailed, match="undone"):
        undone()
    assert (store.load().heartbeat_ms, store.position()) == (1, 1)
    keep(store, Change(heartbeat_ms=4))
    assert store.load().heartbeat_ms == 4


def test_a_database_that_another_program_has_written_to_takes_no_commit(
    store: SqliteStore, tmp_path: Path
) -> None:
    keep(store, Change(heartbeat_ms=1))
    with closing(sqlite3.connect(tmp_path / DATABASE_NAME)) as foreign:
        foreign.execute("UPDATE lineage SET commits = 7")
        foreign.commit()
    with pytest.raises(StaleRevision, match="no longer at commit 1"):
        store.commit(fold([Change(heartbeat_ms=2)], RowNumbers(1, 0, 0, 0, {}, {})).batch())
    assert store.load().heartbeat_ms == 1
