"""At the upgrade to the order of today a scope gets the next incarnation only if it changes."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from importlib import resources
from pathlib import Path

import pytest

from forewarn.adapters.sqlite.data_folder import DATABASE_NAME, MIGRATIONS, migrate
from forewarn.adapters.sqlite.store import SqliteStore

# Phase, NotBefore, and whether it is silent; as they were scheduled.
Row = tuple[str, int, int]


def older(folder: Path, rows: list[Row]) -> None:
    """A database from before the order, with one scope and these events."""
    sql = resources.files("forewarn.adapters.sqlite").joinpath("sql")
    before = MIGRATIONS[: MIGRATIONS.index("0012_document_order.sql")]
    with closing(sqlite3.connect(folder / DATABASE_NAME, isolation_level=None)) as connection:
        migrate(connection, [sql.joinpath(name).read_text("utf-8") for name in before])
        connection.execute("INSERT INTO lineage VALUES ('an older one', 41)")
        connection.execute("INSERT INTO epoch VALUES ('a life', 1)")
        for name in ("web", "other"):
            put(connection, "scope", name=name, kind="standalone", revision=3, incarnation=7)
        for number, (phase, not_before_ms, silent) in enumerate(rows):
            put(
                connection,
                "scheduled_event",
                event_id=f"E{number}",
                sequence=number + 1,
                scope="web",
                event_type="Reboot",
                event_source="User",
                cause="order",
                phase=phase,
                resources='["a"]',
                not_before_ms=not_before_ms,
                silent=silent,
                ended_ms=None if phase in ("scheduled", "started") else 5,
            )


def put(connection: sqlite3.Connection, table: str, **said: object) -> None:
    """A row with what is said; every other column that must have a value is nothing, or empty."""
    values = dict(said)
    for _, name, kind, needed, default, _ in connection.execute(f"PRAGMA table_info({table})"):
        if needed and default is None and name not in values:
            values[name] = "" if kind == "TEXT" else 0
    columns = ", ".join(values)
    marks = ", ".join("?" * len(values))
    connection.execute(f"INSERT INTO {table} ({columns}) VALUES ({marks})", tuple(values.values()))


SOON, LATER = 1_000, 2_000


@pytest.mark.parametrize(
    ("rows", "raised"),
    [
        ([("scheduled", LATER, 0), ("scheduled", SOON, 0)], 1),
        ([("scheduled", SOON, 0), ("started", LATER, 0)], 1),
        ([("scheduled", SOON, 0), ("scheduled", SOON, 0)], 0),
        ([("scheduled", SOON, 0), ("scheduled", LATER, 0)], 0),
        ([("started", LATER, 0), ("scheduled", SOON, 0)], 0),
        ([("started", LATER, 0), ("started", SOON, 0)], 0),
        ([("scheduled", LATER, 1), ("scheduled", SOON, 0)], 0),
        ([("canceled", LATER, 0), ("scheduled", SOON, 0)], 0),
        ([("scheduled", LATER, 0), ("completed", SOON, 0)], 0),
        ([], 0),
    ],
)
def test_the_incarnation_is_raised_only_where_the_order_changes(
    tmp_path: Path, rows: list[Row], raised: int
) -> None:
    older(tmp_path, rows)
    SqliteStore.in_folder(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / DATABASE_NAME)) as connection:
        found = dict(connection.execute("SELECT name, incarnation FROM scope"))
        lives = connection.execute("SELECT count(*) FROM epoch").fetchone()
    assert found == {"web": 7 + raised, "other": 7}
    assert lives == (0,)  # hosts are told everything once
