"""The columns of the store are the fields of values, and the schema has exactly those."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from forewarn.adapters.sqlite.data_folder import migrate
from forewarn.adapters.sqlite.writing import statements_of
from forewarn.core.model import Scope, ScopeHold, ScopeKind, Vm
from forewarn.core.vm_profile import VmProfile
from forewarn.tables import table_specs
from forewarn.tables.columns import StoreTable, flat
from forewarn.tables.table_specs import SPECS, spec_of

TABLES = [table for table in vars(table_specs).values() if isinstance(table, StoreTable)]


@dataclass(frozen=True)
class Part:
    size: int = 0


@dataclass(frozen=True)
class Thing:
    name: str
    part: Part
    ready: bool = False
    words: tuple[str, ...] = ()


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.row_factory = sqlite3.Row
        migrate(connection)
        yield connection


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_table_has_the_columns_of_its_value_and_no_other(
    table: StoreTable[object], database: sqlite3.Connection
) -> None:
    found = {row["name"] for row in database.execute(f"PRAGMA table_info({table.name})")}
    spec = SPECS.get(table.name)
    assert {*table.columns, *(spec.columns if spec is not None else ())} == found


def test_a_value_in_a_value_is_columns_of_the_same_row() -> None:
    vm = Vm(name="a", vm_id="1", update_domain=0, host="h", profile=VmProfile(zone="2"))
    cells = table_specs.VMS.cells(vm, scope="web", position=1)
    assert (cells["zone"], cells["tags"], cells["scope"]) == ("2", "[]", "web")
    assert "profile" not in cells


def test_a_value_that_may_be_missing_is_null_in_each_of_its_columns() -> None:
    scope = Scope(name="web", kind=ScopeKind.STANDALONE)
    cells = table_specs.SCOPES.cells(scope, shown_commit=None)
    assert [cells[f"hold_{key}"] for key in ("since_ms", "event_id", "reason")] == [None] * 3
    held = replace(scope, hold=ScopeHold(since_ms=1, event_id="E", reason="it failed"))
    assert table_specs.SCOPES.cells(held, shown_commit=None)["hold_reason"] == "it failed"


def test_a_field_that_is_added_to_a_value_is_written_without_another_word() -> None:
    table = StoreTable("thing", Thing, parts=(flat("part", Part),))
    assert table.columns == ("name", "size", "ready", "words")
    written = statements_of(spec_of(table, "name"))
    assert ":size" in written.insert
    assert "size = :size" in written.update
    thing = Thing("a", Part(3), ready=True, words=("x",))
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.row_factory = sqlite3.Row
        connection.execute("CREATE TABLE thing (name TEXT, size BIGINT, ready BIGINT, words TEXT)")
        connection.execute(written.insert, table.cells(thing))
        assert table.value(connection.execute("SELECT * FROM thing").fetchone()) == thing
