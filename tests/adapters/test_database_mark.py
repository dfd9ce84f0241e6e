"""The mark beside a database: a start never goes on from less than there was without a word."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
from contextlib import closing
from importlib import resources
from pathlib import Path

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from forewarn.adapters.sqlite.backup import INCARNATION_AFTER_RESTORE, restore
from forewarn.adapters.sqlite.data_folder import (
    DATABASE_NAME,
    MIGRATIONS,
    RESTORING_NAME,
    WAL_NAME,
    DamagedDatabase,
    DamagedMark,
    DatabaseRefused,
    FileExists,
    FolderUnusable,
    InterruptedRestore,
    LostDatabase,
    NewerDatabase,
    OtherDatabase,
    migrate,
)
from forewarn.adapters.sqlite.database import CHECKPOINT_AFTER_ROWS
from forewarn.adapters.sqlite.database_mark import (
    MARK_NAME,
    DatabaseMark,
    Marker,
    read_mark,
    write_mark,
)
from forewarn.adapters.sqlite.store import SqliteStore
from forewarn.core.model import Fact, FactKind, Scope, ScopeKind
from forewarn.ports import BACKUP_SCRATCH_PREFIX, Change
from support.batches import keep
from support.journal import lines_of
from support.killed_at import killed_at_each_step
from support.waiting import wait_until


def move(store: SqliteStore, times: int = 1) -> None:
    """Let the document of the one scope change."""
    for _ in range(times):
        found = store.load().scopes
        if not found:
            scope = Scope(name="s", kind=ScopeKind.STANDALONE)
            keep(store, Change(scopes=((None, scope),)))
            continue
        scope = found[0]
        further = replace(scope, revision=scope.revision + 1, incarnation=scope.incarnation + 1)
        keep(store, Change(scopes=((scope, further),)))


def made(folder: Path, times: int = 5) -> Path:
    """A data folder whose scope was changed some times, closed."""
    with closing(SqliteStore.in_folder(folder)) as store:
        move(store, times)
    return folder


def killed(folder: Path, target: Path) -> Path:
    """What a kill leaves of the data folder of a store in use, once its mark was written."""
    store = SqliteStore.in_folder(folder)
    move(store, 5)
    commits = in_database(folder)
    wait_until(lambda: mark_of(folder).commits == commits)
    shutil.copytree(folder, target)
    store.close()
    return target


def mark_of(folder: Path) -> DatabaseMark:
    mark = read_mark(folder)
    assert mark is not None
    return mark


def in_database(folder: Path) -> int:
    """How many commits the database has, by its own words."""
    with closing(sqlite3.connect(f"file:{folder / DATABASE_NAME}?mode=ro", uri=True)) as connection:
        commits: int = connection.execute("SELECT commits FROM lineage").fetchone()[0]
        return commits


def incarnation(folder: Path, *, new: bool = False) -> int:
    with closing(SqliteStore.in_folder(folder, new=new)) as store:
        scopes = store.load().scopes
        return scopes[0].incarnation if scopes else 0


def content_of(folder: Path) -> dict[str, bytes]:
    """All that a start must leave alone: not the lock, nor an empty WAL and the index of it."""
    return {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if path.is_file()
        and not path.name.endswith((".lock", "-shm"))
        and not (path.name == WAL_NAME and path.stat().st_size == 0)
    }


def refused(folder: Path, kind: type[DatabaseRefused]) -> DatabaseRefused:
    """Start it twice; each time it is refused, and left as it was."""
    before = content_of(folder)
    for _ in range(2):
        with pytest.raises(kind) as found:
            SqliteStore.in_folder(folder)
    assert content_of(folder) == before
    assert found.value.accepted
    return found.value


# Behind the commits


def test_the_mark_follows_the_commits_and_is_never_ahead_of_them(tmp_path: Path) -> None:
    store = SqliteStore.in_folder(tmp_path)
    enough = threading.Event()

    def work() -> None:
        while not enough.is_set():
            move(store)

    working = threading.Thread(target=work)
    working.start()
    seen: set[int] = set()

    def look() -> bool:
        marked = mark_of(tmp_path).commits  # first the mark, then the database
        seen.add(marked)
        assert marked <= in_database(tmp_path)
        return len(seen) > 3

    try:
        wait_until(look)
    finally:
        enough.set()
        working.join()
    last = in_database(tmp_path)
    wait_until(lambda: mark_of(tmp_path).commits == last)
    store.close()
    assert mark_of(tmp_path).commits == last


def test_a_closed_database_has_a_mark_that_knows_its_file(tmp_path: Path) -> None:
    mark = mark_of(made(tmp_path))
    assert (mark.commits, mark.settled) == (5, 5)
    assert mark.file_sum is not None
    assert incarnation(tmp_path) == 5
    assert mark_of(tmp_path) == mark  # opened, not changed, and closed


def test_a_mark_that_cannot_be_written_stops_no_commit(tmp_path: Path) -> None:
    store = SqliteStore.in_folder(tmp_path)
    (tmp_path / MARK_NAME).unlink()
    (tmp_path / MARK_NAME).mkdir()
    move(store, 3)
    assert store.load().scopes[0].incarnation == 3
    store.close()
    with pytest.raises(FolderUnusable, match=MARK_NAME):
        SqliteStore.in_folder(tmp_path)


@pytest.mark.parametrize("known", [True, False], ids=["checksum", "no checksum"])
def test_a_close_moves_no_wal_if_the_mark_with_the_checksum_cannot_be_replaced(
    tmp_path: Path, *, known: bool
) -> None:
    """Cut off in the middle, the next start would find a file beside the checksum of another."""
    made(tmp_path)
    store = SqliteStore.in_folder(tmp_path)
    if not known:
        marker = store._database._marker
        assert marker is not None
        wait_until(marker.may_change_file)
    before = (tmp_path / DATABASE_NAME).read_bytes()
    in_the_way = tmp_path / f".{MARK_NAME}.{os.getpid()}"
    in_the_way.mkdir()
    move(store, 3)
    store.close()
    mark = mark_of(tmp_path)
    assert (mark.file_sum is not None) is known
    if known:
        assert (tmp_path / DATABASE_NAME).read_bytes() == before
        assert (tmp_path / WAL_NAME).stat().st_size > 0
    else:
        assert not (tmp_path / WAL_NAME).exists()
    in_the_way.rmdir()
    assert incarnation(tmp_path) == 8


def test_a_mark_with_a_checksum_is_replaced_before_the_wal_is_moved_and_keeps_no_move_away(
    tmp_path: Path,
) -> None:
    made(tmp_path)
    store = SqliteStore.in_folder(tmp_path)
    assert mark_of(tmp_path).file_sum is not None
    facts = tuple(Fact(kind=FactKind.DOWNTIME, at_ms=1) for _ in range(CHECKPOINT_AFTER_ROWS))
    file = (tmp_path / DATABASE_NAME).read_bytes()
    keep(store, Change(lines=lines_of(facts)))
    assert (tmp_path / DATABASE_NAME).read_bytes() == file

    def moved() -> bool:
        move(store)
        if mark_of(tmp_path).file_sum is not None:
            return False
        return (tmp_path / DATABASE_NAME).read_bytes() != file

    wait_until(moved)
    wait_until(lambda: mark_of(tmp_path).settled > 5)
    store.close()


def test_a_file_that_nothing_was_moved_into_for_a_while_is_summed_again(tmp_path: Path) -> None:
    made(tmp_path)
    whole = mark_of(tmp_path)
    marker = Marker(tmp_path, replace(whole, file_sum=None), sum_after_ms=0)
    marker.committed(whole.commits)
    wait_until(lambda: mark_of(tmp_path) == whole)
    assert not marker.may_change_file()
    wait_until(lambda: mark_of(tmp_path).file_sum is None)
    wait_until(marker.may_change_file)
    marker.stop()


# What is refused


@pytest.mark.parametrize("how", ["missing", "empty", "without tables"])
def test_a_lost_database_is_not_taken_for_a_new_one(tmp_path: Path, how: str) -> None:
    made(tmp_path)
    file = tmp_path / DATABASE_NAME
    file.unlink()
    if how == "empty":
        file.touch()
    elif how == "without tables":
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
    why = refused(tmp_path, LostDatabase)
    assert str(file) in why.refused
    assert "5 commits" in why.refused
    assert "--new" in why.accepted
    assert f"forewarn --data {tmp_path} restore FILE" in why.accepted


def test_a_lost_database_is_known_by_its_wal_too(tmp_path: Path) -> None:
    folder = killed(tmp_path / "a", tmp_path / "b")
    (folder / MARK_NAME).unlink()
    (folder / DATABASE_NAME).unlink()
    assert WAL_NAME in refused(folder, LostDatabase).refused


def test_a_backup_copied_over_the_database_by_hand_is_refused_with_the_way_to_restore_it(
    tmp_path: Path,
) -> None:
    folder = made(tmp_path / "a")
    with closing(SqliteStore.in_folder(folder)) as store:
        store.backup(tmp_path / "b.db")
        move(store, 3)
    shutil.copyfile(tmp_path / "b.db", folder / DATABASE_NAME)
    why = refused(folder, OtherDatabase)
    assert "it has 5 commits, and forewarn.mark says 8" in why.refused
    own = folder / DATABASE_NAME
    assert f"forewarn --data {folder} restore {own} --force" in why.accepted
    restore(own, folder, force=True)
    assert incarnation(folder) == 5 + INCARNATION_AFTER_RESTORE


def test_a_backup_copied_under_the_wal_of_a_killed_service_is_not_mixed_with_it(
    tmp_path: Path,
) -> None:
    with closing(SqliteStore.in_folder(made(tmp_path / "a"))) as store:
        store.backup(tmp_path / "b.db")
        move(store, 3)
    folder = killed(tmp_path / "a", tmp_path / "k")
    assert (folder / WAL_NAME).stat().st_size > 0
    shutil.copyfile(tmp_path / "b.db", folder / DATABASE_NAME)
    assert "do not belong together" in refused(folder, OtherDatabase).refused
    restore(tmp_path / "b.db", folder, force=True)
    assert incarnation(folder) > INCARNATION_AFTER_RESTORE


def test_a_killed_service_without_its_wal_is_refused_and_can_go_on_from_what_is_left(
    tmp_path: Path,
) -> None:
    folder = killed(made(tmp_path / "a"), tmp_path / "k")
    (folder / WAL_NAME).unlink()
    assert "older than it was" in refused(folder, OtherDatabase).refused
    restore(folder / DATABASE_NAME, folder, force=True)
    assert incarnation(folder) == 5 + INCARNATION_AFTER_RESTORE


def test_a_wal_with_a_broken_middle_is_refused_and_what_is_before_it_can_be_kept(
    tmp_path: Path,
) -> None:
    folder = killed(made(tmp_path / "a"), tmp_path / "k")
    wal = bytearray((folder / WAL_NAME).read_bytes())
    wal[5_000] ^= 4
    (folder / WAL_NAME).write_bytes(wal)
    why = refused(folder, DamagedDatabase)
    assert "frame 2 of" in why.refused
    assert f"restore {folder / DATABASE_NAME} --force" in why.accepted
    done = restore(folder / DATABASE_NAME, folder, force=True)
    assert done.kept_aside is not None
    assert (done.kept_aside / WAL_NAME).read_bytes() == wal  # for whoever can read more of it
    assert incarnation(folder) >= 5 + INCARNATION_AFTER_RESTORE


def test_another_database_is_refused(tmp_path: Path) -> None:
    made(tmp_path / "a")
    made(tmp_path / "b", times=90)
    shutil.copyfile(tmp_path / "b" / DATABASE_NAME, tmp_path / "a" / DATABASE_NAME)
    assert "another database" in refused(tmp_path / "a", OtherDatabase).refused


def test_a_database_of_a_time_before_marks_is_another_one_beside_a_mark(tmp_path: Path) -> None:
    made(tmp_path)
    (tmp_path / DATABASE_NAME).unlink()
    old_database(tmp_path)
    assert "another database" in refused(tmp_path, OtherDatabase).refused


def old_database(folder: Path) -> None:
    """A database as a program made it that knew nothing of marks."""
    sql = resources.files("forewarn.adapters.sqlite").joinpath("sql")
    before = MIGRATIONS[: MIGRATIONS.index("0005_lineage.sql")]
    steps = [sql.joinpath(name).read_text("utf-8") for name in before]
    with closing(sqlite3.connect(folder / DATABASE_NAME, isolation_level=None)) as connection:
        migrate(connection, steps)
        connection.execute("INSERT INTO meta VALUES ('heartbeat_ms', '7')")


def test_a_data_folder_of_a_time_before_marks_is_taken_and_gets_one(tmp_path: Path) -> None:
    old_database(tmp_path)
    with closing(SqliteStore.in_folder(tmp_path)) as store:
        assert store.load().heartbeat_ms == 7
        move(store)
    assert mark_of(tmp_path).commits == 1
    (tmp_path / DATABASE_NAME).unlink()
    refused(tmp_path, LostDatabase)


@pytest.mark.parametrize("state", ["closed", "killed"])
def test_a_bit_inside_a_value_of_the_file_is_seen(tmp_path: Path, state: str) -> None:
    """SQLite has no checksum for its pages: it would read another incarnation, or another name."""
    folder = made(tmp_path / "a")
    with closing(SqliteStore.in_folder(folder)) as store:
        keep(store, Change(inventory="the-words-of-the-operator"))
    if state == "killed":
        folder = killed(folder, tmp_path / "k")
    content = (folder / DATABASE_NAME).read_bytes()
    assert b"the-words" in content
    (folder / DATABASE_NAME).write_bytes(content.replace(b"the-words", b"the-wordz"))
    assert "is not as it was left" in refused(folder, OtherDatabase).refused


def test_a_look_with_another_program_after_a_kill_is_no_reason_to_refuse(tmp_path: Path) -> None:
    """Whoever closes a database last moves its WAL into the file."""
    folder = killed(made(tmp_path / "a"), tmp_path / "k")
    before = (folder / DATABASE_NAME).read_bytes()
    with closing(sqlite3.connect(folder / DATABASE_NAME)) as connection:
        assert connection.execute("SELECT count(*) FROM scope").fetchone() == (1,)
    assert (folder / DATABASE_NAME).read_bytes() != before
    assert incarnation(folder) == 10


# The mark itself


@pytest.mark.parametrize("content", ["", "null", "{}", '{"form":1}', "\x00" * 118, "flipped"])
def test_a_damaged_mark_is_said_and_can_be_removed(tmp_path: Path, content: str) -> None:
    made(tmp_path)
    mark = tmp_path / MARK_NAME
    if content == "flipped":
        content = mark.read_text().replace('"commits":5', '"commits":4')
    mark.write_text(content)
    why = refused(tmp_path, DamagedMark)
    assert f"remove {MARK_NAME} and start again" in why.accepted
    assert f"forewarn --data {tmp_path} restore FILE --force" in why.accepted  # one is there
    mark.unlink()
    assert incarnation(tmp_path) == 5
    assert mark_of(tmp_path).commits == 5


def test_a_damaged_mark_beside_no_database_is_no_reason_to_begin_anew(tmp_path: Path) -> None:
    made(tmp_path)
    (tmp_path / MARK_NAME).write_text("{")
    (tmp_path / DATABASE_NAME).unlink()
    assert MARK_NAME in refused(tmp_path, LostDatabase).refused


def test_a_mark_of_a_newer_program_is_left_alone(tmp_path: Path) -> None:
    made(tmp_path)
    (tmp_path / MARK_NAME).write_text('{"form":2,"more":[]}')
    assert "newer program" in refused(tmp_path, NewerDatabase).refused


# Ways out


@pytest.mark.parametrize("lost", ["missing", "empty", "damaged", "foreign", "other", "mark"])
def test_new_begins_anew_where_a_start_is_refused_and_keeps_what_was_there(
    tmp_path: Path, lost: str
) -> None:
    folder = made(tmp_path / "a")
    file = folder / DATABASE_NAME
    if lost == "missing":
        file.unlink()
    elif lost == "other":
        shutil.copyfile(made(tmp_path / "b") / DATABASE_NAME, file)
    elif lost == "mark":
        (folder / MARK_NAME).write_text("{")
    else:
        content = {"empty": b"", "foreign": b"notes", "damaged": file.read_bytes()[:5_000]}
        file.write_bytes(content[lost])
    before = file.read_bytes() if file.exists() else None
    refused(folder, DatabaseRefused)
    assert incarnation(folder, new=True) == 0
    assert incarnation(folder) == 0
    aside = list(folder.glob("before-new-*"))
    assert len(aside) == (0 if before is None else 1)
    assert before is None or (aside[0] / DATABASE_NAME).read_bytes() == before


def test_new_is_refused_while_the_database_can_be_used(tmp_path: Path) -> None:
    """Else a unit in which it was left would throw everything away at each start."""
    folder = killed(made(tmp_path / "a"), tmp_path / "k")
    for _ in range(2):
        with pytest.raises(FileExists, match="Start without --new"):
            SqliteStore.in_folder(folder, new=True)
    assert incarnation(folder) == 10


def test_new_is_fine_in_an_empty_folder_and_after_half_a_restore(tmp_path: Path) -> None:
    assert incarnation(tmp_path / "a", new=True) == 0
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / RESTORING_NAME).touch()
    assert incarnation(tmp_path / "b", new=True) == 0


def test_a_restore_that_is_killed_anywhere_leaves_the_old_database_or_is_refused(
    tmp_path: Path,
) -> None:
    original = made(tmp_path / "a")
    with closing(SqliteStore.in_folder(original)) as store:
        store.backup(tmp_path / "b.db")
        move(store, 4)
    folder = tmp_path / "k"
    ends = set()

    def do() -> None:
        restore(tmp_path / "b.db", folder, force=True)

    shutil.copytree(original, folder)
    for _ in killed_at_each_step(do):
        shutil.copytree(folder, tmp_path / "look")
        try:
            found = incarnation(tmp_path / "look")
            assert found in (9, 9 + INCARNATION_AFTER_RESTORE)
            ends.add(found)
        except InterruptedRestore:
            ends.add(0)
        shutil.rmtree(tmp_path / "look")
        do()  # it can be run again
        assert incarnation(folder) > INCARNATION_AFTER_RESTORE
        shutil.rmtree(folder)
        shutil.copytree(original, folder)
    assert ends >= {0, 9}


def test_a_restore_killed_twice_forgets_no_incarnation(tmp_path: Path) -> None:
    original = made(tmp_path / "a")
    with closing(SqliteStore.in_folder(original)) as store:
        store.backup(tmp_path / "b.db")
        move(store, 4)
    restore(tmp_path / "b.db", original, force=True)
    (original / DATABASE_NAME).rename(original / RESTORING_NAME)  # the first one stopped here
    folder = tmp_path / "k"

    def do() -> None:
        restore(tmp_path / "b.db", folder)

    shutil.copytree(original, folder)
    for _ in killed_at_each_step(do):
        restore(tmp_path / "b.db", folder, force=True)
        assert incarnation(folder) >= 9 + 2 * INCARNATION_AFTER_RESTORE
        shutil.rmtree(folder)
        shutil.copytree(original, folder)


def test_a_beginning_anew_that_is_killed_anywhere_loses_nothing_and_can_be_run_again(
    tmp_path: Path,
) -> None:
    original = made(tmp_path / "a")
    content = (original / DATABASE_NAME).read_bytes()[:-4_096]
    (original / DATABASE_NAME).write_bytes(content)
    folder = tmp_path / "k"

    def do() -> None:
        SqliteStore.in_folder(folder, new=True).close()

    shutil.copytree(original, folder)
    for _ in killed_at_each_step(do):
        kept = [path.read_bytes() for path in folder.rglob(DATABASE_NAME)]
        assert content in kept
        try:
            do()
        except FileExists:  # it was done: the new one is there
            assert incarnation(folder) == 0
        shutil.rmtree(folder)
        shutil.copytree(original, folder)


# What a kill leaves lying about


def test_what_a_kill_has_left_half_made_is_removed_at_the_next_start(tmp_path: Path) -> None:
    made(tmp_path)
    backup = tmp_path / f"{BACKUP_SCRATCH_PREFIX}x1y2"
    backup.mkdir()
    (backup / "backup.db.partial").write_bytes(bytes(1_000))
    (tmp_path / "link").mkdir()
    half = (
        tmp_path / RESTORING_NAME,
        tmp_path / f"{RESTORING_NAME}.making",
        tmp_path / f".{MARK_NAME}.4711",
        tmp_path / "link" / ".members.json.4711",
    )
    for path in half:
        path.touch()
    ours = tmp_path / "saved.db"
    ours.touch()
    assert incarnation(tmp_path) == 5
    assert not backup.exists()
    assert [path for path in half if path.exists()] == []
    assert ours.exists()


def test_a_mark_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    mark = DatabaseMark(database="d", commits=1, settled=0)
    write_mark(tmp_path, mark)
    following = replace(mark, commits=2)
    for _ in killed_at_each_step(lambda: write_mark(tmp_path, following)):
        assert read_mark(tmp_path) in (mark, following)


def test_the_file_may_not_change_while_the_mark_with_its_checksum_cannot_be_replaced(
    tmp_path: Path,
) -> None:
    """A move of the WAL that is cut off would leave a file beside the checksum of another."""
    folder, away = tmp_path / "data", tmp_path / "away"
    folder.mkdir()
    marker = Marker(folder, DatabaseMark(database="d", commits=1, settled=1, file_sum=7))
    with capture_logs() as logs:

        def failures() -> int:
            return sum(line["event"] == "mark_not_written" for line in logs)

        folder.rename(away)
        assert not marker.may_change_file()
        wait_until(lambda: failures() == 1)
        folder.touch()  # another reason, so that the next attempt is seen as well
        marker.committed(2)
        wait_until(lambda: failures() == 2)
        assert not marker.may_change_file()
        folder.unlink()
        away.rename(folder)
        marker.committed(3)
        wait_until(lambda: mark_of(folder).file_sum is None)
        wait_until(marker.may_change_file)
    marker.stop()
    assert mark_of(folder).commits == 3
