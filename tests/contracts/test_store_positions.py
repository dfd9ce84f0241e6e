"""What every Store keeps of feed positions: numbers of commits, and the lives that made them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from importlib import resources
from pathlib import Path

import pytest
from msgspec.structs import replace

from forewarn.adapters.sqlite.data_folder import DATABASE_NAME, MIGRATIONS, migrate
from forewarn.adapters.sqlite.store import SqliteStore
from forewarn.core.model import Scope, ScopeKind
from forewarn.ports import Change, Epoch, StaleRevision, Store, Unstorable
from forewarn.tables.folding import Folding, RowNumbers
from support.batches import keep

WEB = Scope(name="web", kind=ScopeKind.STANDALONE)
DB = Scope(name="db", kind=ScopeKind.STANDALONE)


def written(before: Scope) -> Scope:
    return replace(before, revision=before.revision + 1)


def test_every_commit_has_the_next_number(store: Store) -> None:
    assert (store.position(), store.load().position) == (0, 0)
    keep(store, Change(heartbeat_ms=1), Change(heartbeat_ms=2))
    assert (store.position(), store.load().position) == (1, 1)
    with pytest.raises(StaleRevision):
        keep(store, Change(heartbeat_ms=3, removed_hosts=("none",)))
    assert store.position() == 1, "what is not kept has no number"
    keep(store, Change(heartbeat_ms=3))
    assert store.load().position == 2


def test_a_scope_knows_the_commit_that_last_changed_what_hosts_are_shown_of_it(
    store: Store,
) -> None:
    keep(store, Change(scopes=((None, WEB),)), Change(scopes=((None, DB),)))
    assert store.load().shown == {"web": 1, "db": 1}
    keep(store, Change(scopes=((WEB, written(WEB)),)))
    assert store.load().shown == {"web": 1, "db": 1}
    keep(store, Change(scopes=((DB, written(DB)),), shown=("db",)))
    assert store.load().shown == {"web": 1, "db": 3}
    keep(store, Change(removed_scopes=("web",)))
    assert store.load().shown == {"db": 3}


def test_a_change_that_was_made_for_another_commit_is_a_bug_and_is_not_saved(
    store: Store,
) -> None:
    folding = Folding(RowNumbers.after(store.load()))
    for number in (2, 7, -1):
        with pytest.raises(Unstorable, match=f"commit {number} is in commit 1"):
            folding.add(Change(commit=number, heartbeat_ms=1))
    folding.add(Change(commit=1, heartbeat_ms=2))
    store.commit(folding.batch())
    assert store.load().heartbeat_ms == 2


def test_a_life_of_control_is_known_by_its_first_commit(store: Store) -> None:
    keep(store, Change(heartbeat_ms=1))
    store.begin_epoch("first")
    assert store.load().epochs == ()
    with pytest.raises(StaleRevision):
        keep(store, Change(heartbeat_ms=2, removed_hosts=("none",)))
    assert store.load().epochs == ()
    keep(store, Change(heartbeat_ms=2))
    keep(store, Change(heartbeat_ms=3))
    assert store.load().epochs == (Epoch("first", 2),)
    store.begin_epoch("never commits")
    store.begin_epoch("second")
    keep(store, Change(heartbeat_ms=4))
    assert store.load().epochs == (Epoch("first", 2), Epoch("second", 4))


def test_numbers_and_lives_are_there_after_the_store_was_opened_anew(tmp_path: Path) -> None:
    with closing(SqliteStore.in_folder(tmp_path)) as store:
        store.begin_epoch("first")
        keep(store, Change(scopes=((None, WEB),)))
        keep(store, Change(heartbeat_ms=1))
    with closing(SqliteStore.in_folder(tmp_path)) as store:
        snapshot = store.load()
        assert (store.position(), snapshot.position) == (2, 2)
        assert (snapshot.shown, snapshot.epochs) == ({"web": 1}, (Epoch("first", 1),))
        keep(store, Change(heartbeat_ms=2))
        assert store.load().position == 3


def test_scopes_of_an_older_database_have_changed_before_any_number(tmp_path: Path) -> None:
    sql = resources.files("forewarn.adapters.sqlite").joinpath("sql")
    before = MIGRATIONS[: MIGRATIONS.index("0010_positions.sql")]
    with closing(sqlite3.connect(tmp_path / DATABASE_NAME, isolation_level=None)) as connection:
        migrate(connection, [sql.joinpath(name).read_text("utf-8") for name in before])
        connection.execute("INSERT INTO lineage VALUES ('an older one', 41)")
        connection.execute(
            "INSERT INTO scope (name, kind, revision, incarnation, terminate_notice_ms,"
            " auto_approve, enabled, recoveries, deleted)"
            " VALUES ('web', 'standalone', 0, 7, 0, '[]', 1, '[]', '[]')"
        )
    with closing(SqliteStore.in_folder(tmp_path)) as store:
        snapshot = store.load()
        assert (snapshot.position, snapshot.shown, snapshot.epochs) == (41, {"web": 0}, ())
        [web] = snapshot.scopes
        keep(store, Change(scopes=((web, written(web)),), shown=("web",)))
        assert store.load().shown == {"web": 42}
