"""The store on PostgreSQL: who may write, and what failures of a session come to."""

from __future__ import annotations

import re
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from forewarn.adapters.postgres import schema
from forewarn.adapters.postgres.session import OWN_WORDS, DatabaseSession, Statement, in_own_words
from forewarn.adapters.postgres.store import PostgresStore, UnsafeServer
from forewarn.adapters.postgres.writing import text_of
from forewarn.adapters.sqlite import data_folder
from forewarn.core.model import Host, Scope, ScopeKind
from forewarn.ports import (
    Change,
    Fence,
    LeadershipLost,
    RememberedAnswer,
    StaleRevision,
    StoreFailed,
    Unstorable,
)
from forewarn.tables.statements import named_queries
from support import postgres_server
from support.batches import folded, keep, ways_of_tables
from support.cutting_proxy import HANGS_S, Cut, CuttingProxy
from support.postgres_server import LeadingStore, PostgresServer, leading_store
from support.waiting import wait_until


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[str]:
    with postgres.database() as name:
        yield name


@pytest.fixture
def store(postgres: PostgresServer) -> Iterator[LeadingStore]:
    with leading_store(postgres) as made:
        yield made


def leading(postgres: PostgresServer, database: str) -> LeadingStore:
    return LeadingStore(postgres.address(database))


def host(name: str) -> Change:
    return Change(hosts=((None, Host(name=name)),))


def names(store: PostgresStore) -> list[str]:
    return [one.name for one in store.load().hosts]


# The schema and the statements.


def test_the_tables_have_the_columns_that_they_have_on_sqlite(
    postgres: PostgresServer, database: str
) -> None:
    found = set(
        postgres.ask(
            "SELECT table_name, column_name, upper(data_type), is_nullable = 'NO'"
            " FROM information_schema.columns WHERE table_schema = 'public'",
            database,
        )
    )
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as lite:
        data_folder.migrate(lite)
        tables = [name for (name,) in lite.execute("SELECT name FROM sqlite_schema WHERE sql > ''")]
        columns = {
            (table, name, kind, bool(required))
            for table in tables
            for _, name, kind, required, _, _ in lite.execute(f"PRAGMA table_info({table})")
        }
        indexes = {
            name
            for (name,) in lite.execute(
                "SELECT name FROM sqlite_schema WHERE type = 'index' AND sql > ''"
            )
        }
    own = {"leadership", "schema_version"}
    assert {one for one in found if one[0] not in own} == columns
    there = postgres.ask("SELECT indexname FROM pg_indexes WHERE schemaname = 'public'", database)
    assert indexes <= {name for (name,) in there}


def test_texts_are_sorted_byte_by_byte_whatever_the_language(store: LeadingStore) -> None:
    some = ("a-b", "ab", "B", "a_c", "é", "Z", "a")
    keep(store, *map(host, some))
    assert names(store) == sorted(some)


def test_every_statement_is_one_that_the_schema_can_run(
    postgres: PostgresServer, database: str
) -> None:
    written = {
        f"{name} {way}": text_of(name, way).replace("%s", "NULL") for name, way in ways_of_tables()
    }
    queries = {
        name: re.sub(r"%\((\w+)\)s", "NULL", in_own_words(statement))
        for name, statement in named_queries(OWN_WORDS).items()
    }
    with closing(DatabaseSession(postgres.address(database), doing="explains")) as session:
        for name, text in {**written, **queries}.items():
            assert session.asked(Statement(f"EXPLAIN {text}")), name


def test_opening_makes_the_schema_once_and_keeps_what_is_there(safe_server: PostgresServer) -> None:
    address = safe_server.address("postgres")
    for number in range(2):
        with closing(PostgresStore.open(address)) as store:
            fence = store.lead("test", "")
            store.commit(folded(store, host(f"h{number}")), fence)
            assert names(store) == [f"h{n}" for n in range(number + 1)]
    [(version,)] = safe_server.ask("SELECT version FROM schema_version")
    assert version == schema.newest_version()
    safe_server.ask("UPDATE schema_version SET version = version + 1")
    with pytest.raises(StoreFailed, match="install a newer Forewarn"):
        PostgresStore.open(address)


# Servers and addresses that cannot be used.


@pytest.fixture
def safe_server() -> Iterator[PostgresServer]:
    """A server of its own that syncs what it commits, as it is installed."""
    with tempfile.TemporaryDirectory(prefix="forewarn-pg-", ignore_cleanup_errors=True) as folder:
        port = postgres_server.free_port()
        process = postgres_server.start(Path(folder), port)
        server = PostgresServer(Path(folder), port)
        try:
            postgres_server.wait_for(server)
            yield server
        finally:
            postgres_server.end(process.pid)


def test_a_server_that_may_lose_what_it_confirmed_is_refused_with_the_remedy(
    postgres: PostgresServer, safe_server: PostgresServer
) -> None:
    with pytest.raises(UnsafeServer, match=r"fsync is off.*Set fsync = on"):
        PostgresStore.open(postgres.address("postgres"))
    for setting in ("off", "local"):
        safe_server.ask(f"ALTER DATABASE postgres SET synchronous_commit = {setting}")
        with pytest.raises(UnsafeServer, match="Set synchronous_commit = on"):
            PostgresStore.open(safe_server.address("postgres"))


def test_an_address_that_leads_nowhere_is_said_in_words(postgres: PostgresServer) -> None:
    with pytest.raises(StoreFailed, match='database "nowhere" does not exist') as failed:
        PostgresStore.open(postgres.address("nowhere"))
    assert not failed.value.fatal
    with pytest.raises(StoreFailed, match="no session on PostgreSQL"):
        PostgresStore.open(postgres.address("postgres", port=postgres_server.free_port()))


def test_a_role_without_rights_is_told_so_and_nothing_is_written(
    postgres: PostgresServer, database: str, store: LeadingStore
) -> None:
    postgres.ask("CREATE ROLE nobody_special LOGIN")
    try:
        address = postgres.address(database, user="nobody_special")
        with (
            closing(PostgresStore(address)) as poor,
            pytest.raises(StoreFailed, match="permission"),
        ):
            poor.lead("test", "")
    finally:
        postgres.ask("DROP ROLE nobody_special")


# Leading.


def test_only_a_store_that_leads_writes_and_every_store_reads(
    postgres: PostgresServer, database: str
) -> None:
    with closing(leading(postgres, database)) as leader:
        keep(leader, host("h1"))
        with closing(PostgresStore(postgres.address(database))) as follower:
            assert names(follower) == ["h1"]
            with pytest.raises(LeadershipLost):
                follower.commit(folded(follower, host("h2")), leader.fence)
        keep(leader, host("h3"))
        assert names(leader) == ["h1", "h3"]


def test_a_deposed_leader_writes_nothing_and_the_next_goes_on_where_it_was(
    postgres: PostgresServer, database: str
) -> None:
    with closing(leading(postgres, database)) as first:
        keep(first, host("h1"))
        late = folded(first, host("late"))
        with closing(leading(postgres, database)) as second:
            assert (second.fence.epoch, second.position()) == (first.fence.epoch + 1, 1)
            with pytest.raises(LeadershipLost) as lost:
                first.commit(late)
            assert lost.value.fatal
            with pytest.raises(LeadershipLost):
                first.commit(late)
            keep(second, host("h2"))
            assert names(second) == ["h1", "h2"]


def test_the_fence_stops_a_leader_whose_session_still_lives(
    postgres: PostgresServer, database: str
) -> None:
    """The session alone must not be what protects: it may not have been ended."""
    with closing(leading(postgres, database)) as first:
        keep(first, host("h1"))
        postgres.ask("UPDATE leadership SET epoch = epoch + 1", database)
        with pytest.raises(LeadershipLost, match="another control leads"):
            keep(first, host("late"))
        assert names(first) == ["h1"]


def test_a_batch_under_another_fence_is_not_sent(store: LeadingStore) -> None:
    batch = folded(store, host("h1"))
    with pytest.raises(LeadershipLost):
        store.commit(batch, Fence(store.fence.epoch - 1))
    store.commit(batch)
    assert names(store) == ["h1"]


def test_a_leader_that_stands_still_in_the_middle_of_a_batch_is_replaced(
    postgres: PostgresServer, database: str
) -> None:
    with closing(leading(postgres, database)) as first:
        assert first._writer is not None
        first._writer.script("BEGIN")
        first._writer.script("UPDATE leadership SET batch = batch + 1")
        late = folded(first, host("late"))
        with closing(leading(postgres, database)) as second:
            keep(second, host("h1"))
            with pytest.raises(LeadershipLost):
                first.commit(late)
            assert (names(second), second.position()) == (["h1"], 1)


def test_each_commit_rings_with_its_number(postgres: PostgresServer, database: str) -> None:
    with (
        closing(psycopg.connect(postgres.address(database), autocommit=True)) as listener,
        closing(leading(postgres, database)) as store,
    ):
        listener.execute("LISTEN forewarn")
        keep(store, host("h1"))
        keep(store, host("h2"))
        heard = [one.payload for one in listener.notifies(timeout=HANGS_S, stop_after=2)]
        assert heard == ["1", "2"]


# What is not a success.


@pytest.mark.parametrize("cut", list(Cut))
def test_a_commit_without_an_answer_ends_the_leadership_and_the_next_knows_what_came_of_it(
    postgres: PostgresServer, database: str, cut: Cut
) -> None:
    with CuttingProxy(postgres.port) as proxy:
        address = postgres.address(database, host="127.0.0.1", port=proxy.port)
        with closing(LeadingStore(address)) as first:
            keep(first, host("h1"))
            batch = folded(first, host("h2"))
            proxy.arm(cut, b"COMMIT")
            with pytest.raises(LeadershipLost):
                first.commit(batch)
            assert proxy.met.is_set()
            with pytest.raises(LeadershipLost, match="does not lead"):
                first.commit(batch)
        there = cut is Cut.AFTER_IT_WAS_DONE
        wait_until(lambda: (commits(postgres, database) == 2) is there)
        with closing(leading(postgres, database)) as second:
            assert second.position() == (2 if there else 1)
            assert names(second) == (["h1", "h2"] if there else ["h1"])


def commits(postgres: PostgresServer, database: str) -> int:
    [(found,)] = postgres.ask("SELECT batch FROM leadership", database)
    return int(found)


def test_a_commit_that_warns_is_no_success(postgres: PostgresServer, database: str) -> None:
    postgres.ask(
        "CREATE FUNCTION warns() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE WARNING 'not so sure'; RETURN NEW; END $$;"
        "CREATE TRIGGER warns BEFORE INSERT ON host FOR EACH ROW EXECUTE FUNCTION warns()",
        database,
    )
    with closing(leading(postgres, database)) as store:
        keep(store, Change(heartbeat_ms=1))
        with pytest.raises(LeadershipLost, match="not so sure"):
            keep(store, host("h1"))
        with pytest.raises(LeadershipLost):
            keep(store, Change(heartbeat_ms=2))


def test_a_commit_that_no_longer_waits_for_its_standby_is_no_success(
    safe_server: PostgresServer,
) -> None:
    """Cancelled during the wait, the server says success, and only warns."""
    with closing(PostgresStore.open(safe_server.address("postgres"))) as store:
        fence = store.lead("test", "")
        store.commit(folded(store, host("h1")), fence)
        batch = folded(store, host("h2"))
        safe_server.ask("ALTER SYSTEM SET synchronous_standby_names = 'nowhere'")
        safe_server.ask("SELECT pg_reload_conf()")
        waits = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        found: list[BaseException] = []

        def commit() -> None:
            try:
                store.commit(batch, fence)
            except LeadershipLost as lost:
                found.append(lost)

        committing = threading.Thread(target=commit)
        committing.start()
        [(pid,)] = wait_until(lambda: safe_server.ask(waits))
        safe_server.ask(f"SELECT pg_cancel_backend({pid})")
        committing.join(HANGS_S)
        assert [type(one) for one in found] == [LeadershipLost]


# What undoes a batch, and nothing else.


def test_an_error_of_the_server_undoes_the_batch_and_the_next_is_written(
    postgres: PostgresServer, database: str
) -> None:
    postgres.ask(
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF NEW.name = 'big' THEN RAISE EXCEPTION USING ERRCODE = 'disk_full', MESSAGE ="
        " 'No space left on device'; END IF; RETURN NEW; END $$;"
        "CREATE TRIGGER full_disk BEFORE INSERT ON host FOR EACH ROW EXECUTE FUNCTION full_disk()",
        database,
    )
    with closing(leading(postgres, database)) as store:
        before = store.load()
        with pytest.raises(StoreFailed, match="No space left") as failed:
            keep(store, host("h1"), host("big"), Change(heartbeat_ms=1))
        assert (failed.value.fatal, isinstance(failed.value, LeadershipLost)) == (False, False)
        assert store.load() == before
        keep(store, host("h2"))
        assert (names(store), store.position()) == (["h2"], 1)


@pytest.mark.parametrize("text", ["nul \0", "half \ud800"])
def test_text_that_postgresql_cannot_hold_is_a_bug_and_undoes_only_its_batch(
    store: LeadingStore, text: str
) -> None:
    answer = RememberedAnswer(key="k", fingerprint="f", answer=text, at_ms=1)
    with pytest.raises(Unstorable):
        keep(store, host("h1"), Change(remembered=answer))
    keep(store, host("h2"))
    assert names(store) == ["h2"]


def test_one_row_that_is_not_as_it_was_undoes_all_and_is_named(
    postgres: PostgresServer, database: str
) -> None:
    scope = Scope(name="s", kind=ScopeKind.STANDALONE, revision=4)
    with closing(leading(postgres, database)) as store:
        keep(store, Change(scopes=((None, scope),)))
        postgres.ask("UPDATE scope SET revision = 9", database)
        changed = Change(scopes=((scope, Scope(name="s", kind=ScopeKind.STANDALONE, revision=5)),))
        with pytest.raises(StaleRevision, match="scope s is no longer at revision 4"):
            keep(store, host("h1"), changed)
        assert (names(store), store.position()) == ([], 1)


def test_a_reader_whose_session_was_ended_fails_once_and_the_next_has_a_new_one(
    postgres: PostgresServer, store: LeadingStore
) -> None:
    keep(store, host("h1"))
    ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s"
    with closing(DatabaseSession(store._address, doing="ends")) as session:
        session.asked(Statement(ended + " AND datname = current_database()", ("forewarn reads",)))
    with pytest.raises(StoreFailed) as failed:
        store.load()
    assert not failed.value.fatal
    assert names(store) == ["h1"]
    keep(store, host("h2"))
