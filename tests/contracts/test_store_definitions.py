"""What `ports.Store` keeps of VMs that hosts show, so that another host can start them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from importlib import resources
from pathlib import Path

import pytest
from msgspec.structs import replace

from forewarn.adapters.sqlite.backup import restore
from forewarn.adapters.sqlite.data_folder import DATABASE_NAME, MIGRATIONS, migrate
from forewarn.adapters.sqlite.store import SqliteStore
from forewarn.core.model import Host
from forewarn.ports import Change, DepartedVm, StaleRevision, Store, VmDefinition
from forewarn.wire.packed import pack
from support.batches import keep

FIRST = VmDefinition(vm="web-0", host="h1", text="<domain/>", digest="d1", seen_ms=1)


def test_a_definition_is_replaced_kept_and_removed(store: Store) -> None:
    other = VmDefinition(vm="web-1", host="h1", text="x" * 262_144, digest="d2", seen_ms=2)
    keep(store, Change(definitions=(FIRST, other)))
    assert (store.definition("web-0"), store.definition("web-1")) == (FIRST, other)
    assert store.load().digests == {"web-0": "d1", "web-1": "d2"}
    second = replace(FIRST, host="h2", text="<domain>2</domain>", digest="d3", seen_ms=3)
    keep(store, Change(definitions=(second,)))
    assert store.definition("web-0") == second
    keep(store, Change(removed_definitions=("web-0", "never-there")))
    assert store.definition("web-0") is None
    assert store.load().digests == {"web-1": "d2"}


def test_a_definition_of_a_failed_batch_is_not_there(store: Store) -> None:
    with pytest.raises(StaleRevision):
        keep(store, Change(definitions=(FIRST,), removed_hosts=("none",)))
    assert store.definition("web-0") is None


def test_how_far_vms_had_read_that_left_is_kept_raised_and_forgotten(store: Store) -> None:
    web = DepartedVm(key=("web-0", "id-0"), incarnation=7, left_ms=20)
    other = DepartedVm(key=("web-0", "id-1"), incarnation=3, left_ms=10)
    keep(store, Change(departed_vms=(web, other)))
    assert store.load().departed_vms == (other, web)
    again = replace(other, incarnation=9, left_ms=30)
    keep(store, Change(departed_vms=(again,), forgotten_vms=(web.key, ("never", "there"))))
    assert store.load().departed_vms == (again,)


def test_a_backup_carries_definitions_and_joined_hosts(tmp_path: Path) -> None:
    with closing(SqliteStore.in_folder(tmp_path / "a")) as store:
        host = Host(name="h1", joined=True)
        keep(store, Change(definitions=(FIRST,), hosts=((None, host),)))
        store.backup(tmp_path / "b.db")
    restore(tmp_path / "b.db", tmp_path / "c")
    with closing(SqliteStore.in_folder(tmp_path / "c")) as restored:
        assert restored.definition("web-0") == FIRST
        assert restored.load().hosts == (host,)


def test_hosts_of_an_older_database_have_not_joined_and_nothing_was_shown(tmp_path: Path) -> None:
    folder = resources.files("forewarn.adapters.sqlite").joinpath("sql")
    older = [folder.joinpath(name).read_text("utf-8") for name in MIGRATIONS[:2]]
    with closing(sqlite3.connect(tmp_path / DATABASE_NAME, isolation_level=None)) as connection:
        migrate(connection, older)
        connection.execute("INSERT INTO host VALUES ('h1', 3, NULL, 0, 'ok', 0, 1)")
    with closing(SqliteStore.in_folder(tmp_path)) as store:
        snapshot = store.load()
        keep(store, Change(definitions=(FIRST,)))
    assert snapshot.hosts == (Host(name="h1", revision=3),)
    assert snapshot.digests == {}


def test_what_is_noted_of_an_unfinished_inventory_is_kept_until_it_is_finished(
    store: Store,
) -> None:
    assert store.load().unfinished == ""
    keep(store, Change(inventory="first", unfinished='{"by": "a"}'))
    assert (store.load().inventory, store.load().unfinished) == ("first", '{"by": "a"}')
    keep(store, Change(inventory="second", unfinished='{"by": "b"}'))
    keep(store, Change(heartbeat_ms=1))
    assert (store.load().inventory, store.load().unfinished) == ("second", '{"by": "b"}')
    keep(store, Change(unfinished=""))
    assert (store.load().inventory, store.load().unfinished) == ("second", "")


def test_an_inventory_of_any_length_is_kept_also_if_it_was_packed_beforehand(
    store: Store,
) -> None:
    for text in ("short", "# long \u20ac\n" * 100_000):
        keep(store, Change(inventory=text))
        assert store.load().inventory == text
        other = text + "#"
        keep(store, Change(inventory=other, inventory_packed=pack(other)))
        assert store.load().inventory == other
