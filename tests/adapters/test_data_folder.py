"""Whether a data folder may be opened: the lock, whose database it is, its version, its health."""

from __future__ import annotations

import errno
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from importlib import resources
from pathlib import Path

import pytest

from forewarn.adapters.sqlite.data_folder import (
    APPLICATION_ID,
    DATABASE_NAME,
    LOCK_NAME,
    MIGRATIONS,
    RESTORING_NAME,
    SCHEMA_VERSION,
    DamagedDatabase,
    FolderInUse,
    FolderLock,
    FolderUnusable,
    ForeignDatabase,
    InterruptedRestore,
    NewerDatabase,
    lock_holder,
    migrate,
    migrations_in,
    started_at,
    unusable,
)
from forewarn.adapters.sqlite.store import SqliteStore
from forewarn.core.model import ActionKind
from forewarn.ports import Change
from support.batches import keep
from support.journal import lines_of, worded


def make(folder: Path) -> Path:
    """A database with something in it, closed. Returns its file."""
    store = SqliteStore.in_folder(folder)
    keep(store, Change(heartbeat_ms=1, lines=lines_of(worded(n, "y" * 500) for n in range(99))))
    store.close()
    return folder / DATABASE_NAME


def test_a_folder_in_use_is_refused_with_the_pid_of_its_user(tmp_path: Path) -> None:
    store = SqliteStore.in_folder(tmp_path)
    with pytest.raises(FolderInUse, match=str(os.getpid())):
        SqliteStore.in_folder(tmp_path)
    store.close()
    SqliteStore.in_folder(tmp_path).close()


def test_another_process_cannot_open_a_folder_in_use(tmp_path: Path) -> None:
    child = Path(__file__).parent.parent / "store_child.py"
    store = SqliteStore.in_folder(tmp_path)
    command = [sys.executable, str(child), "count", str(tmp_path), "1"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    store.close()
    assert ended.returncode != 0
    assert f"in use by process {os.getpid()}" in ended.stderr


def test_a_lock_ends_with_its_process_and_not_with_its_file(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path)
    lock.release()
    lock.release()
    assert any(tmp_path.iterdir()), "the file stays; it is the process that holds it"
    FolderLock(tmp_path).release()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FolderUnusable, match="may write to"):
        SqliteStore.in_folder(tmp_path / "file")


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / DATABASE_NAME
    file.write_text("these are my notes")
    with pytest.raises(ForeignDatabase, match=DATABASE_NAME):
        SqliteStore.in_folder(tmp_path)
    assert file.read_text() == "these are my notes"


def test_a_database_of_another_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / DATABASE_NAME
    with closing(sqlite3.connect(file)) as foreign:
        foreign.execute("CREATE TABLE scope (name TEXT)")
    before = file.read_bytes()
    with pytest.raises(ForeignDatabase, match="another program"):
        SqliteStore.in_folder(tmp_path)
    assert file.read_bytes() == before


def test_a_newer_database_is_refused_with_both_versions_and_the_remedy(tmp_path: Path) -> None:
    file = make(tmp_path)
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 6}")
    with pytest.raises(NewerDatabase) as refused:
        SqliteStore.in_folder(tmp_path)
    assert f"version {SCHEMA_VERSION + 6}" in refused.value.refused
    assert f"up to {SCHEMA_VERSION}" in refused.value.refused
    assert "newer program" in refused.value.accepted


@pytest.mark.parametrize("where", ["first page", "middle", "cut off"])
def test_a_damaged_database_is_refused_with_its_file_and_the_remedy(
    tmp_path: Path, where: str
) -> None:
    file = make(tmp_path)
    content = bytearray(file.read_bytes())
    if where == "first page":
        content[100:4096] = os.urandom(3996)
    elif where == "middle":
        middle = len(content) // 8192 * 4096
        content[middle : middle + 4096] = os.urandom(4096)
    else:
        del content[-3 * 4096 :]
    file.write_bytes(content)
    with pytest.raises(DamagedDatabase) as refused:
        SqliteStore.in_folder(tmp_path)
    assert str(file) in refused.value.refused
    assert f"`forewarn --data {tmp_path} restore FILE --force`" in refused.value.accepted


def test_a_refused_folder_is_free_for_others(tmp_path: Path) -> None:
    (tmp_path / DATABASE_NAME).write_text("these are my notes")
    with pytest.raises(ForeignDatabase):
        SqliteStore.in_folder(tmp_path)
    FolderLock(tmp_path).release()


def test_an_interrupted_restore_is_not_taken_for_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / RESTORING_NAME).touch()
    with pytest.raises(InterruptedRestore, match="again"):
        SqliteStore.in_folder(tmp_path)


def test_an_empty_file_is_taken_for_a_new_database(tmp_path: Path) -> None:
    (tmp_path / DATABASE_NAME).touch()
    with closing(SqliteStore.in_folder(tmp_path)) as store:
        assert store.load().scopes == ()


def test_migrations_run_from_where_the_database_stands() -> None:
    steps = [
        "CREATE TABLE one (a TEXT);",
        "CREATE TABLE two (a TEXT);\nINSERT INTO one VALUES ('x');",
    ]
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection, steps[:1])
        migrate(connection, steps)
        migrate(connection, steps)
        assert connection.execute("SELECT a FROM one").fetchall() == [("x",)]
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)
        assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)


def test_a_migration_that_fails_changes_nothing() -> None:
    steps = [
        "CREATE TABLE one (a TEXT);",
        "CREATE TABLE two (a TEXT);\nINSERT INTO none VALUES (1);",
    ]
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection, steps[:1])
        with pytest.raises(sqlite3.OperationalError, match="none"):
            migrate(connection, steps)
        tables = connection.execute("SELECT name FROM sqlite_master").fetchall()
        assert tables == [("one",)]
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)


def test_the_migrations_are_the_numbered_files_and_each_number_is_there_once() -> None:
    files = ["queries.sql", "0002_two.sql", "0001_one.sql", "0002_two.sql~", "__pycache__"]
    assert migrations_in(files) == ("0001_one.sql", "0002_two.sql")
    with pytest.raises(RuntimeError, match=r"0002_other\.sql and 0002_two\.sql"):
        migrations_in([*files, "0002_other.sql"])


def test_no_number_of_a_migration_is_left_out() -> None:
    assert MIGRATIONS[0] == "0001_schema.sql"
    assert [int(name[:4]) for name in MIGRATIONS] == [*range(1, SCHEMA_VERSION + 1)]


def test_operations_of_an_older_database_are_loaded_as_they_were(tmp_path: Path) -> None:
    first = (
        resources.files("forewarn.adapters.sqlite")
        .joinpath("sql", MIGRATIONS[0])
        .read_text("utf-8")
    )
    with closing(sqlite3.connect(tmp_path / DATABASE_NAME, isolation_level=None)) as connection:
        migrate(connection, [first])
        connection.execute(
            "INSERT INTO operation VALUES ('o-1', 1, 0, 'h1', 'Freeze', 'maintenance', 'waiting',"
            " 0, 'operator', NULL, NULL, '[]', NULL, NULL, NULL, '')"
        )
    with closing(SqliteStore.in_folder(tmp_path)) as store:
        [operation] = store.load().operations
    assert (operation.operation_id, operation.host) == ("o-1", "h1")
    assert (operation.duration_s, operation.description) == (None, None)


def test_actions_of_an_older_database_are_kept_when_they_get_a_new_kind(tmp_path: Path) -> None:
    folder = resources.files("forewarn.adapters.sqlite").joinpath("sql")
    older = [folder.joinpath(name).read_text("utf-8") for name in MIGRATIONS[:3]]
    with closing(sqlite3.connect(tmp_path / DATABASE_NAME, isolation_level=None)) as connection:
        migrate(connection, older)
        connection.execute(
            "INSERT INTO operation VALUES ('o-1', 1, 0, 'h1', 'Freeze', 'maintenance', 'started',"
            " 0, 'operator', NULL, NULL, '[]', 1, 2, NULL, '', NULL, NULL)"
        )
        connection.execute(
            "INSERT INTO action VALUES ('o-1', NULL, 'o-1', 0, 'freeze-host', 'h1', NULL, NULL, 5,"
            " 'claimed', 3, 'boot', NULL, 'words')"
        )
    with closing(SqliteStore.in_folder(tmp_path)) as store:
        [operation] = store.load().operations
    action = operation.action
    assert action is not None
    assert (action.kind, action.epoch, action.boot_id) == (ActionKind.FREEZE_HOST, 3, "boot")
    with closing(sqlite3.connect(tmp_path / DATABASE_NAME, isolation_level=None)) as connection:
        connection.execute("UPDATE action SET kind = 'find-vm'")
        names = connection.execute("SELECT name FROM sqlite_master WHERE tbl_name = 'action'")
        assert {"action_of_event", "action_of_operation"} <= {name for (name,) in names}


# Who has it.


def test_a_folder_that_no_process_has_is_nobodys(tmp_path: Path) -> None:
    lock = tmp_path / LOCK_NAME
    assert lock_holder(tmp_path) is None
    for text in ("", "x", "-1\n", "0\n", "999999999\n", "x y\n", "\u00b2\n"):
        lock.write_text(text)
        assert lock_holder(tmp_path) is None
    lock.write_text(f"{os.getpid()}\n")  # as earlier versions wrote it
    assert lock_holder(tmp_path) == os.getpid()


def test_who_takes_the_lock_is_known_by_number_and_beginning(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path)
    assert lock_holder(tmp_path) == os.getpid()
    with pytest.raises(FolderInUse, match=f"in use by process {os.getpid()}\\."):
        FolderLock(tmp_path)
    lock.release()


def test_another_process_that_has_got_the_number_since_is_not_the_holder(tmp_path: Path) -> None:
    FolderLock(tmp_path).release()
    held = (tmp_path / LOCK_NAME).read_text().split()
    assert held == [str(os.getpid()), started_at(os.getpid())]
    (tmp_path / LOCK_NAME).write_text(f"{held[0]} {int(held[1]) - 1}\n")
    assert lock_holder(tmp_path) is None


def test_what_begins_later_began_at_a_later_time() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as later:
        began = started_at(later.pid)
        assert began is not None
        assert int(began) >= int(started_at(os.getpid()) or 0)
        later.communicate(b"\n")
    assert started_at(later.pid) is None


@pytest.mark.parametrize(
    ("number", "passes"),
    [(errno.ENOSPC, True), (errno.EIO, True), (errno.EACCES, False), (errno.EROFS, False)],
)
def test_a_folder_without_room_may_have_some_at_the_next_start(
    tmp_path: Path, number: int, *, passes: bool
) -> None:
    assert unusable(tmp_path, OSError(number, os.strerror(number))).may_pass is passes
