"""Backups of a store in use, and data folders made from them."""

from __future__ import annotations

import os
import sqlite3
import threading
import zlib
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from forewarn.adapters.restored_members import MembersFrom
from forewarn.adapters.sqlite.backup import INCARNATION_AFTER_RESTORE, restore
from forewarn.adapters.sqlite.backup_file import SEAL_BYTES, SEAL_OF_BEFORE, sealed
from forewarn.adapters.sqlite.data_folder import (
    DATABASE_NAME,
    RESTORING_NAME,
    DamagedDatabase,
    FileExists,
    FolderInUse,
    ForeignDatabase,
    NewerDatabase,
)
from forewarn.adapters.sqlite.database_mark import MARK_NAME
from forewarn.adapters.sqlite.store import SqliteStore
from forewarn.core.model import Fact, FactKind, Scope, ScopeKind
from forewarn.ports import EVERYTHING, Change, StoreFailed
from support.batches import keep
from support.clock import ManualClock
from support.journal import lines_of, said
from support.store_values import Values

NOW_MS = 1_700_000_000_000


def filled(folder: Path) -> tuple[SqliteStore, tuple[Scope, ...]]:
    """A store in use, with some of everything in it."""
    values = Values(1)
    scopes = tuple(values.scope() for _ in range(5))
    store = SqliteStore.in_folder(folder)
    hosts, operation = tuple((None, values.host()) for _ in range(3)), values.operation()
    keep(store, Change(scopes=tuple((None, scope) for scope in scopes), hosts=hosts))
    lines = lines_of([values.fact()])
    keep(store, Change(operations=((None, operation),), heartbeat_ms=7, lines=lines))
    return store, scopes


def backup_of(folder: Path, target: Path) -> Path:
    store, _ = filled(folder)
    store.backup(target)
    store.close()
    return target


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_a_backup_holds_everything_committed_and_is_one_private_file(
    tmp_path: Path, kind: str
) -> None:
    in_file = kind == "file"
    store = SqliteStore.in_folder(tmp_path / "a") if in_file else SqliteStore.in_memory()
    values = Values(2)
    keep(store, Change(scopes=((None, values.scope()),), heartbeat_ms=5))
    (tmp_path / "backups").mkdir()
    target = tmp_path / "backups" / "b.db"
    store.backup(target)
    assert [path.name for path in target.parent.iterdir()] == ["b.db"]
    assert target.stat().st_mode & 0o777 == 0o600
    restore(target, tmp_path / "c", clock=ManualClock(wall=NOW_MS))
    restored = SqliteStore.in_folder(tmp_path / "c")
    assert restored.load().heartbeat_ms == 5
    assert [s.name for s in restored.load().scopes] == [s.name for s in store.load().scopes]
    restored.close()
    store.close()


def test_a_backup_does_not_hold_what_is_not_committed(tmp_path: Path) -> None:
    store, _ = filled(tmp_path / "a")
    with store._database.transaction():
        store._database.write_all("UPDATE meta SET value = '99'", [{}])
        store.backup(tmp_path / "b.db")
    store.close()
    restore(tmp_path / "b.db", tmp_path / "c")
    restored = SqliteStore.in_folder(tmp_path / "c")
    assert restored.load().heartbeat_ms == 7
    restored.close()


def test_a_backup_taken_while_another_thread_writes_is_of_one_instant(tmp_path: Path) -> None:
    """Each commit writes a heartbeat and as many facts in all; a torn copy would differ."""
    store = SqliteStore.in_folder(tmp_path / "a")
    keep(store, Change(inventory="x" * 2_000_000))  # so that a copy takes a while
    stop = threading.Event()
    begun = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            fact = Fact(kind=FactKind.DOWNTIME, at_ms=number)
            lines = lines_of([fact], after=number - 1)
            keep(store, Change(heartbeat_ms=number, lines=lines))
            begun.set()

    writing = threading.Thread(target=write)
    writing.start()
    begun.wait()
    targets = [tmp_path / f"{number}.db" for number in range(5)]
    for target in targets:
        store.backup(target)
    stop.set()
    writing.join()
    store.close()
    for target in targets:
        with closing(sqlite3.connect(target)) as copy:
            heartbeat = copy.execute("SELECT value FROM meta WHERE name = 'heartbeat_ms'")
            facts = copy.execute("SELECT count(*) FROM journal")
            assert int(heartbeat.fetchone()[0]) == facts.fetchone()[0]


def test_a_bit_inside_a_value_of_a_backup_is_seen_before_it_is_restored(tmp_path: Path) -> None:
    backup = backup_of(tmp_path / "a", tmp_path / "b.db")
    with closing(sqlite3.connect(backup)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        name = connection.execute("SELECT name FROM host").fetchone()[0].encode()
    content = backup.read_bytes()
    backup.write_bytes(content.replace(name, name.swapcase()))
    assert backup.read_bytes() != content
    with pytest.raises(DamagedDatabase, match="not what was written"):
        restore(backup, tmp_path / "c")
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("sums", [True, False])
def test_a_bare_database_that_an_earlier_version_saved_is_restored(
    tmp_path: Path, *, sums: bool
) -> None:
    backup = backup_of(tmp_path / "a", tmp_path / "b.db")
    backup.write_bytes(backup.read_bytes()[:-SEAL_BYTES])
    with closing(sqlite3.connect(backup)) as connection:
        connection.execute("DROP TABLE kept_file")
    if sums:
        backup.write_bytes(backup.read_bytes() + SEAL_OF_BEFORE % zlib.crc32(backup.read_bytes()))
        found = sealed(backup)
        assert found is not None
        assert found.holds(backup)

    done = restore(backup, tmp_path / "c")

    assert done.scopes == 5
    assert done.link.members_from is MembersFrom.NOWHERE
    assert not (tmp_path / "c" / "link").exists()


def test_an_existing_file_is_not_overwritten_unless_asked(tmp_path: Path) -> None:
    store, _ = filled(tmp_path / "a")
    target = tmp_path / "b.db"
    target.write_text("precious")
    with pytest.raises(FileExists, match="overwriting"):
        store.backup(target)
    assert target.read_text() == "precious"
    store.backup(target, overwrite=True)
    store.close()
    restore(target, tmp_path / "c")


def test_a_backup_that_cannot_be_written_leaves_nothing_and_the_store_goes_on(
    tmp_path: Path,
) -> None:
    store, _ = filled(tmp_path / "a")
    with pytest.raises(StoreFailed) as failed:
        store.backup(tmp_path / "no such folder" / "b.db")
    assert not failed.value.fatal
    keep(store, Change(heartbeat_ms=8))
    store.close()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_restore_adds_to_every_incarnation_and_says_so_in_the_journal(tmp_path: Path) -> None:
    store, scopes = filled(tmp_path / "a")
    store.backup(tmp_path / "b.db")
    before = store.load()
    store.close()
    done = restore(tmp_path / "b.db", tmp_path / "c", clock=ManualClock(wall=NOW_MS))
    assert (done.kept_aside, done.scopes) == (None, len(scopes))
    restored = SqliteStore.in_folder(tmp_path / "c")
    after = restored.load()
    raised = tuple(
        replace(s, incarnation=s.incarnation + INCARNATION_AFTER_RESTORE, revision=s.revision + 1)
        for s in before.scopes
    )
    anew = dict.fromkeys(before.shown, 0)
    journal = replace(after.journal, generations=before.journal.generations, end=1)
    assert journal == before.journal  # of the same installation
    assert after == replace(before, scopes=raised, position=0, shown=anew, journal=after.journal)
    lines = restored.journal(EVERYTHING, after=0, limit=10)
    restored.close()
    assert lines[-1].fact.kind is FactKind.RESTORED
    assert lines[-1].fact.at_ms == NOW_MS
    assert said(lines[-1].fact)["added"] == INCARNATION_AFTER_RESTORE
    names = {path.name for path in (tmp_path / "c").iterdir()}
    assert names == {DATABASE_NAME, "forewarn.lock", MARK_NAME}


def generations(folder: Path) -> list[tuple[int, int]]:
    store = SqliteStore.in_folder(folder)
    found = [(one.generation, one.first_number) for one in store.load().journal.generations]
    store.close()
    return found


def test_a_restore_begins_a_generation_of_the_journal_with_its_own_line(tmp_path: Path) -> None:
    backup = backup_of(tmp_path / "a", tmp_path / "b.db")
    assert generations(tmp_path / "a") == [(1, 1)]
    restore(backup, tmp_path / "c", clock=ManualClock(wall=NOW_MS))
    assert generations(tmp_path / "c") == [(1, 1), (NOW_MS // 1_000, 2)]
    store = SqliteStore.in_folder(tmp_path / "c")
    (line,) = store.journal(EVERYTHING, after=1, limit=10)
    journal = store.load().journal
    store.close()
    assert (line.fact.kind, said(line.fact)["generation"]) == (FactKind.RESTORED, NOW_MS // 1_000)
    assert [journal.generation_of(number) for number in (1, 2, 900)] == [1, *[NOW_MS // 1_000] * 2]


def test_no_generation_comes_again_though_the_same_backup_is_restored_again(
    tmp_path: Path,
) -> None:
    backup = backup_of(tmp_path / "a", tmp_path / "b.db")
    clock = ManualClock(wall=5_000)  # a machine that does not know the time
    seen = [generations(tmp_path / "a")[-1]]
    for _ in range(3):
        clock.wall += 1  # the folder that is kept aside has it in its name
        restore(backup, tmp_path / "a", force=True, clock=clock)
        seen.append(generations(tmp_path / "a")[-1])
    assert [number for number, _ in seen] == [1, 5, 6, 7]
    # What came of the last restore is lost with its machine, and the backup is restored elsewhere.
    clock.wall += 9_000
    restore(backup, tmp_path / "elsewhere", clock=clock)
    assert generations(tmp_path / "elsewhere")[-1] == (14, 2)


def test_a_restore_that_is_run_again_after_a_kill_begins_another_generation(tmp_path: Path) -> None:
    backup = backup_of(tmp_path / "a", tmp_path / "b.db")
    clock = ManualClock(wall=NOW_MS)
    restore(backup, tmp_path / "c", clock=clock)
    begun = generations(tmp_path / "c")[-1]
    (tmp_path / "c" / DATABASE_NAME).rename(tmp_path / "c" / RESTORING_NAME)
    restore(backup, tmp_path / "c", clock=clock)
    assert generations(tmp_path / "c")[-1] == (begun[0] + 1, begun[1])


def test_a_folder_in_use_is_not_restored_over(tmp_path: Path) -> None:
    backup = backup_of(tmp_path / "a", tmp_path / "b.db")
    store = SqliteStore.in_folder(tmp_path / "a")
    with pytest.raises(FolderInUse):
        restore(backup, tmp_path / "a", force=True)
    assert store.load().heartbeat_ms == 7
    store.close()


def test_an_existing_database_is_refused_or_kept_aside(tmp_path: Path) -> None:
    backup = backup_of(tmp_path / "a", tmp_path / "b.db")
    store = SqliteStore.in_folder(tmp_path / "a")
    keep(store, Change(heartbeat_ms=8))
    store.close()
    with pytest.raises(FileExists, match="say --force; the old one is then kept aside"):
        restore(backup, tmp_path / "a")
    done = restore(backup, tmp_path / "a", force=True, clock=ManualClock(wall=NOW_MS))
    assert done.kept_aside == tmp_path / "a" / f"before-restore-{NOW_MS}"
    for folder, heartbeat in ((tmp_path / "a", 7), (done.kept_aside, 8)):
        opened = SqliteStore.in_folder(folder)
        assert opened.load().heartbeat_ms == heartbeat
        opened.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_what_root_restores_belongs_to_the_owner_of_the_folder(tmp_path: Path) -> None:
    backup = backup_of(tmp_path / "a", tmp_path / "b.db")
    folder = tmp_path / "of-a-service"
    folder.mkdir()
    os.chown(folder, 65534, 65534)
    restore(backup, folder)
    restore(backup, folder, force=True)
    owners = {path.name: path.stat().st_uid for path in folder.rglob("*")}
    assert len(owners) >= 3  # the database, the lock, and what was kept aside
    assert set(owners.values()) == {65534}


def test_a_damaged_database_can_be_restored_over_with_its_wal(tmp_path: Path) -> None:
    """An old WAL beside a new database would be played into it."""
    backup = backup_of(tmp_path / "a", tmp_path / "b.db")
    database = tmp_path / "a" / DATABASE_NAME
    database.write_bytes(os.urandom(8_192))
    wal = tmp_path / "a" / f"{DATABASE_NAME}-wal"
    wal.write_bytes(os.urandom(8_192))
    done = restore(backup, tmp_path / "a", force=True)
    assert done.kept_aside is not None
    assert {path.name for path in done.kept_aside.iterdir()} == {database.name, wal.name}
    assert not wal.exists()
    SqliteStore.in_folder(tmp_path / "a").close()


def incarnations(folder: Path) -> dict[str, int]:
    store = SqliteStore.in_folder(folder)
    found = {scope.name: scope.incarnation for scope in store.load().scopes}
    store.close()
    return found


def with_more(folder: Path) -> dict[str, int]:
    """Let the service go on after its backup: one document moves far, one scope is new."""
    store = SqliteStore.in_folder(folder)
    moved = store.load().scopes[0]
    further = replace(moved, revision=moved.revision + 1, incarnation=moved.incarnation + 40)
    new = Scope(name="new", kind=ScopeKind.STANDALONE, incarnation=7)
    keep(store, Change(scopes=((moved, further), (None, new))))
    store.close()
    return incarnations(folder)


def test_a_backup_restored_again_and_again_never_lowers_an_incarnation(tmp_path: Path) -> None:
    backup = backup_of(tmp_path / "a", tmp_path / "b.db")
    before = with_more(tmp_path / "a")
    for number in range(3):
        clock = ManualClock(wall=NOW_MS + number)
        done = restore(backup, tmp_path / "a", force=True, clock=clock)
        assert (done.scopes, done.unread) == (len(before), "")
        after = incarnations(tmp_path / "a")
        assert after == {n: seen + INCARNATION_AFTER_RESTORE for n, seen in before.items()}
        before = after


def test_what_a_killed_service_had_only_in_its_wal_counts_in_a_restore(tmp_path: Path) -> None:
    backup = backup_of(tmp_path / "a", tmp_path / "b.db")
    store = SqliteStore.in_folder(tmp_path / "a")
    moved = store.load().scopes[0]
    further = replace(moved, revision=moved.revision + 1, incarnation=moved.incarnation + 40)
    keep(store, Change(scopes=((moved, further),)))
    (tmp_path / "killed").mkdir()
    for name in (DATABASE_NAME, f"{DATABASE_NAME}-wal"):
        content = (tmp_path / "a" / name).read_bytes()
        assert content
        (tmp_path / "killed" / name).write_bytes(content)
    store.close()
    done = restore(backup, tmp_path / "killed", force=True)
    assert done.unread == ""
    after = incarnations(tmp_path / "killed")
    assert after[moved.name] == moved.incarnation + 40 + INCARNATION_AFTER_RESTORE


def test_a_scope_that_only_the_replaced_database_has_is_kept_without_vms(tmp_path: Path) -> None:
    backup = backup_of(tmp_path / "a", tmp_path / "b.db")
    with_more(tmp_path / "a")
    restore(backup, tmp_path / "a", force=True)
    store = SqliteStore.in_folder(tmp_path / "a")
    (kept,) = [scope for scope in store.load().scopes if scope.name == "new"]
    store.close()
    assert (kept.incarnation, kept.vms, kept.events) == (7 + INCARNATION_AFTER_RESTORE, (), ())


@pytest.mark.parametrize("damage", ["no database", "broken pages", "no tables", "nonsense"])
def test_a_replaced_database_that_cannot_be_read_stops_no_restore_and_is_named(
    tmp_path: Path, damage: str
) -> None:
    backup = backup_of(tmp_path / "a", tmp_path / "b.db")
    restore(backup, tmp_path / "sound")
    database = tmp_path / "a" / DATABASE_NAME
    content = database.read_bytes()
    if damage == "no database":
        database.write_bytes(os.urandom(8_192))
    elif damage == "broken pages":
        database.write_bytes(content[:100] + os.urandom(len(content) - 100))
    else:
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("PRAGMA ignore_check_constraints = ON")
            if damage == "nonsense":
                connection.execute("UPDATE scope SET incarnation = 9223372036854775807")
            else:
                connection.execute("PRAGMA foreign_keys = OFF")
                connection.execute("DROP TABLE scope")
            connection.commit()
    done = restore(backup, tmp_path / "a", force=True)
    assert done.unread
    assert incarnations(tmp_path / "a") == incarnations(tmp_path / "sound")
    store = SqliteStore.in_folder(tmp_path / "a")
    lines = store.journal(EVERYTHING, after=0, limit=10)
    store.close()
    assert said(lines[-1].fact)["unread"] == done.unread


def test_a_restore_that_stopped_after_putting_the_old_database_aside_forgets_no_incarnation(
    tmp_path: Path,
) -> None:
    backup = backup_of(tmp_path / "a", tmp_path / "b.db")
    with_more(tmp_path / "a")
    restore(backup, tmp_path / "a", force=True)
    seen = incarnations(tmp_path / "a")
    for leftover in (f"{DATABASE_NAME}-wal", f"{DATABASE_NAME}-shm"):
        (tmp_path / "a" / leftover).unlink(missing_ok=True)
    (tmp_path / "a" / DATABASE_NAME).rename(tmp_path / "a" / RESTORING_NAME)
    restore(backup, tmp_path / "a")
    after = incarnations(tmp_path / "a")
    assert after == {name: one + INCARNATION_AFTER_RESTORE for name, one in seen.items()}


def test_a_restore_that_stopped_half_way_can_be_run_again(tmp_path: Path) -> None:
    backup = backup_of(tmp_path / "a", tmp_path / "b.db")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / RESTORING_NAME).write_text("half")
    restore(backup, tmp_path / "c")
    assert not (tmp_path / "c" / RESTORING_NAME).exists()
    SqliteStore.in_folder(tmp_path / "c").close()


def test_only_sound_backups_of_ours_are_restored(tmp_path: Path) -> None:
    good = backup_of(tmp_path / "a", tmp_path / "good.db")
    content = good.read_bytes()
    (tmp_path / "text.db").write_text("these are my notes, and they are long enough")
    (tmp_path / "empty.db").touch()
    (tmp_path / "damaged.db").write_bytes(content[:8192] + os.urandom(4096) + content[12288:])
    with closing(sqlite3.connect(tmp_path / "foreign.db")) as foreign:
        foreign.execute("CREATE TABLE scope (name TEXT)")
    (tmp_path / "newer.db").write_bytes(content)
    with closing(sqlite3.connect(tmp_path / "newer.db")) as newer:
        newer.execute("PRAGMA user_version = 99")
    (tmp_path / "live.db").write_bytes(content)
    (tmp_path / "live.db-wal").write_text("the rest of it")
    refused = {
        "missing.db": ForeignDatabase,
        "text.db": ForeignDatabase,
        "empty.db": ForeignDatabase,
        "foreign.db": ForeignDatabase,
        "live.db": ForeignDatabase,
        "damaged.db": DamagedDatabase,
        "newer.db": NewerDatabase,
    }
    for name, error in refused.items():
        with pytest.raises(error, match=name) as why:
            restore(tmp_path / name, tmp_path / "c")
        assert "Move it away" not in str(why.value)  # which helps where a database belongs
    assert not (tmp_path / "c").exists()
