"""`check-store`: what is broken in a data folder or a backup is found; nothing is changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from forewarn.adapters.members_file import MembersFile
from forewarn.adapters.restored_members import files_to_keep
from forewarn.adapters.sqlite.store import SqliteStore
from forewarn.adapters.sqlite.store_check import Finding, check_backup, check_folder
from forewarn.core.membership import Members
from forewarn.ports import Change, FirstRead
from support.batches import keep
from support.journal import lines_of
from support.store_values import Values


def filled(folder: Path) -> SqliteStore:
    """A store in use, with some of everything in it, and what a control has beside it."""
    values = Values(1)
    store = SqliteStore.in_folder(folder)
    keep(
        store,
        Change(
            scopes=tuple((None, values.scope()) for _ in range(5)),
            hosts=tuple((None, values.host()) for _ in range(3)),
            operations=((None, values.operation()),),
            lines=lines_of(values.fact() for _ in range(10)),
            first_reads=(FirstRead(event_id="E", vm="v", scope="s", read_ms=1),),
        ),
    )
    members = MembersFile(folder / "link")
    members.load()
    members.keep(Members())
    (folder / "link" / "authority.key").write_text("key")
    (folder / "link" / "authority.crt").write_text("certificate")
    return store


def wrong(found: tuple[Finding, ...]) -> list[str]:
    return [f"{one.what}: {one.wrong}" for one in found if one.wrong]


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_is_checked_while_a_service_uses_it_and_afterwards(tmp_path: Path) -> None:
    store = filled(tmp_path)
    assert wrong(check_folder(tmp_path)) == []
    store.close()
    before = files(tmp_path)
    found = check_folder(tmp_path)
    assert wrong(found) == []
    said = {one.what: one.said for one in found}
    assert "10 journal" in said["its rows"]
    assert "5 scope" in said["its rows"]
    assert files(tmp_path) == before


def test_a_sound_backup_has_its_digest_and_names_its_files(tmp_path: Path) -> None:
    store = filled(tmp_path / "a")
    store.backup(tmp_path / "b", files=lambda: files_to_keep(tmp_path / "a"))
    store.close()
    before = (tmp_path / "b").read_bytes()
    found = check_backup(tmp_path / "b")
    assert wrong(found) == []
    said = {one.what: one.said for one in found}
    assert "as when it was written" in said["the digest"]
    assert "link/authority.key" in said["its files"]
    assert (tmp_path / "b").read_bytes() == before


@pytest.mark.parametrize("at", [0.1, 0.5, 0.9, 1.0])
def test_every_bit_of_a_backup_counts(tmp_path: Path, at: float) -> None:
    store = filled(tmp_path / "a")
    store.backup(tmp_path / "b")
    store.close()
    content = bytearray((tmp_path / "b").read_bytes())
    content[int((len(content) - 2) * at)] ^= 1
    (tmp_path / "b").write_bytes(content)
    found = check_backup(tmp_path / "b")
    if at < 1:
        assert "the digest: the file is not what was written, or was cut off" in wrong(found)
    else:  # of the digest itself: there is none to compare with then
        assert [one.said for one in found if "without one" in one.said] or wrong(found)


def an_odd_cell(connection: sqlite3.Connection) -> None:
    connection.execute("UPDATE journal SET at_ms = x'00' WHERE number = 3")


def a_word_that_is_none(connection: sqlite3.Connection) -> None:
    connection.execute("UPDATE journal SET kind = 'invented' WHERE number = 3")


def a_detail_that_is_no_json(connection: sqlite3.Connection) -> None:
    connection.execute("UPDATE journal SET detail = '{' WHERE number = 3")


def a_vm_of_no_scope(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA foreign_keys = OFF")
    connection.execute("UPDATE vm SET scope = 'gone' WHERE rowid = (SELECT min(rowid) FROM vm)")


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (an_odd_cell, "its rows: a value in table journal is of another type"),
        (a_word_that_is_none, "its rows: a row of journal makes no sense"),
        (a_detail_that_is_no_json, "its rows: a row of journal makes no sense"),
        (a_vm_of_no_scope, "its references: a row of vm belongs to no row of scope"),
    ],
)
def test_a_row_that_makes_no_sense_is_found(
    tmp_path: Path, break_it: Callable[[sqlite3.Connection], None], said: str
) -> None:
    filled(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / "forewarn.db", isolation_level=None)) as connection:
        break_it(connection)
    found = wrong(check_folder(tmp_path))
    assert [one for one in found if one.startswith(said)], found


def test_pages_that_were_torn_are_found(tmp_path: Path) -> None:
    filled(tmp_path).close()
    path = tmp_path / "forewarn.db"
    content = bytearray(path.read_bytes())
    for page in range(4, len(content) // 4_096):
        content[page * 4_096 : page * 4_096 + 64] = bytes(64)
    path.write_bytes(content)
    assert wrong(check_folder(tmp_path))


def test_what_a_start_would_refuse_is_said(tmp_path: Path) -> None:
    filled(tmp_path).close()
    (tmp_path / "forewarn.db").unlink()
    (found,) = wrong(check_folder(tmp_path))[:1]
    assert found.startswith("a start: ")
    assert "restore" in found


def test_a_list_of_members_that_is_torn_is_found(tmp_path: Path) -> None:
    filled(tmp_path).close()
    (tmp_path / "link" / "members.json").write_text("{")
    (tmp_path / "link" / "authority.key").unlink()
    found = wrong(check_folder(tmp_path))
    assert any("authority.key is not there" in one for one in found)
    assert any("members.json is damaged" in one for one in found)


def test_what_is_no_backup_is_said(tmp_path: Path) -> None:
    (tmp_path / "letter").write_text("Dear diary")
    assert wrong(check_backup(tmp_path / "letter"))
