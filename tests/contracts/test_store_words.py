"""Public words that have changed are those of today in a database of an older version."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from importlib import resources
from pathlib import Path

from forewarn.adapters.sqlite.data_folder import DATABASE_NAME, MIGRATIONS, migrate
from forewarn.adapters.sqlite.store import SqliteStore
from forewarn.core.model import FactKind
from forewarn.ports import EVERYTHING, Questions

REFUSAL = 'host "h1" said: {"blind":"x"}'


def older(folder: Path, answer: dict[str, object]) -> None:
    """A database from before the words, with a line of the journal and a remembered answer."""
    sql = resources.files("forewarn.adapters.sqlite").joinpath("sql")
    before = MIGRATIONS[: MIGRATIONS.index("0011_words.sql")]
    with closing(sqlite3.connect(folder / DATABASE_NAME, isolation_level=None)) as connection:
        migrate(connection, [sql.joinpath(name).read_text("utf-8") for name in before])
        connection.execute("INSERT INTO lineage VALUES ('an older one', 41)")
        connection.execute(
            "INSERT INTO journal (number, kind, at_ms, vm, detail)"
            """ VALUES (1, 'vm-twice', 5, 'a', '{"hosts":["h1","h2"]}'),"""
            " (2, 'vm-gone', 6, 'a', '{}')"
        )
        connection.execute(
            "INSERT INTO remembered VALUES ('key', 'print', ?, 7)",
            (json.dumps(answer, separators=(",", ":")),),
        )


def test_facts_and_remembered_answers_of_an_older_database_have_the_words_of_today(
    tmp_path: Path,
) -> None:
    older(tmp_path, {"name": "h1", "blind": "no libvirt", "placement": "blind", "why": REFUSAL})

    with closing(SqliteStore.in_folder(tmp_path)) as store:
        lines = store.journal(EVERYTHING, after=0, limit=10)
        remembered = store.recall(Questions(keys=frozenset({"key"}))).remembered.get("key")

    assert [line.fact.kind for line in lines] == [FactKind.VM_ON_TWO_HOSTS, FactKind.VM_GONE]
    assert remembered is not None
    assert json.loads(remembered.answer) == {
        "name": "h1",
        "hypervisor_unreachable": "no libvirt",
        "placement": "hypervisor-unreachable",
        "why": REFUSAL,
    }


def test_a_remembered_answer_with_an_empty_value_has_the_word_of_today_too(tmp_path: Path) -> None:
    older(tmp_path, {"name": "h1", "blind": ""})

    with closing(SqliteStore.in_folder(tmp_path)) as store:
        remembered = store.recall(Questions(keys=frozenset({"key"}))).remembered.get("key")

    assert remembered is not None
    assert json.loads(remembered.answer) == {"name": "h1", "hypervisor_unreachable": ""}
