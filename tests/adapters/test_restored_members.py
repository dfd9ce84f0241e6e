"""What comes back with a backup beside the database: members, their authority and the token."""

from __future__ import annotations

import shutil
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from forewarn.adapters.members_file import MembersFile
from forewarn.adapters.restored_members import MembersFrom, NoSuchMember, files_to_keep
from forewarn.adapters.sqlite.backup import RestoreResult, move_out, restore
from forewarn.adapters.sqlite.data_folder import (
    DamagedDatabase,
    DatabaseRefused,
    MovedAway,
    stop_service,
)
from forewarn.adapters.sqlite.store import SqliteStore
from forewarn.adapters.sqlite.store_check import Finding, check_backup
from forewarn.core import membership
from forewarn.core.membership import Members
from forewarn.ports import Change
from support import batches
from support.clock import ManualClock
from support.killed_at import killed_at_each_step

JOINED_MS = 1_700_000_000_000
NOW_MS = JOINED_MS + 3_600_000
TOKEN = "t" * 40


def members_of(*names: str) -> Members:
    known = Members()
    for name in names:
        known = membership.invite(
            known, digest=f"d-{name}", name=name, valid_ms=60_000, now_ms=JOINED_MS
        )
        known = membership.join(
            known, name=name, key=f"k-{name}", digest=f"d-{name}", now_ms=JOINED_MS
        )
    return known


def keep(folder: Path, members: Members) -> None:
    file = MembersFile(folder / "link")
    file.load()
    file.keep(members)


def control_in(folder: Path, *names: str, authority: str = "ours") -> Path:
    """A data folder of a control that these hosts have joined."""
    store = SqliteStore.in_folder(folder)
    batches.keep(store, Change(heartbeat_ms=7))
    store.close()
    keep(folder, members_of(*names))
    (folder / "link" / "authority.key").write_text(f"the key of {authority}")
    (folder / "link" / "authority.crt").write_text(f"the certificate of {authority}")
    (folder / "operator.token").write_text(TOKEN)
    return folder


def saved(folder: Path, target: Path) -> Path:
    store = SqliteStore.in_folder(folder)
    store.backup(target, files=lambda: files_to_keep(folder))
    store.close()
    return target


def put_back(source: Path, folder: Path, *revoke: str, force: bool = False) -> RestoreResult:
    return restore(source, folder, force=force, revoke=revoke, clock=ManualClock(wall=NOW_MS))


def test_one_private_file_holds_all_that_another_machine_needs(tmp_path: Path) -> None:
    old = control_in(tmp_path / "old", "h1", "h2")
    file = saved(old, tmp_path / "b")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600

    done = put_back(file, tmp_path / "new")

    for name in ("operator.token", "link/authority.key", "link/authority.crt"):
        path = tmp_path / "new" / name
        assert path.read_bytes() == (old / name).read_bytes()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "new" / "link").stat().st_mode) == 0o700
    assert list(MembersFile(tmp_path / "new" / "link").load().members) == ["h1", "h2"]
    assert done.link.members_from is MembersFrom.BACKUP
    assert done.link.until_ms is not None
    SqliteStore.in_folder(tmp_path / "new").close()


def test_what_operators_trust_comes_back_unless_the_machine_has_an_authority_of_its_own(
    tmp_path: Path,
) -> None:
    old = control_in(tmp_path / "old", "h1")
    (old / "operator-tls").mkdir()
    for name in ("authority.key", "authority.crt", "server.key", "server.crt"):
        (old / "operator-tls" / name).write_text(f"{name} of before")
    file = saved(old, tmp_path / "b")

    put_back(file, tmp_path / "new")

    there = tmp_path / "new" / "operator-tls"
    assert stat.S_IMODE(there.stat().st_mode) == 0o700
    assert {path.name: path.read_text() for path in there.iterdir()} == {
        "authority.key": "authority.key of before",
        "authority.crt": "authority.crt of before",
    }
    assert stat.S_IMODE((there / "authority.key").stat().st_mode) == 0o600

    for name in ("authority.key", "authority.crt"):
        (old / "operator-tls" / name).write_text(f"{name} of since")
    put_back(file, old, force=True)
    assert (old / "operator-tls" / "authority.key").read_text() == "authority.key of since"


def test_the_database_that_comes_of_a_backup_holds_no_key(tmp_path: Path) -> None:
    file = saved(control_in(tmp_path / "old", "h1"), tmp_path / "b")
    assert b"the key of ours" in file.read_bytes()

    put_back(file, tmp_path / "new")

    database = tmp_path / "new" / "forewarn.db"
    assert b"the key of ours" not in database.read_bytes()
    with closing(sqlite3.connect(database)) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master").fetchall()
    assert ("kept_file",) not in tables


def test_a_host_that_was_revoked_since_the_backup_is_no_member_after_a_restore(
    tmp_path: Path,
) -> None:
    folder = control_in(tmp_path / "a", "h1", "h2")
    file = saved(folder, tmp_path / "b")
    keep(folder, membership.revoke(members_of("h1", "h2"), "h1", now_ms=NOW_MS))

    done = put_back(file, folder, force=True)

    assert list(MembersFile(folder / "link").load().members) == ["h2"]
    assert done.link.members_from is MembersFrom.BOTH


def test_a_revocation_in_a_folder_that_was_kept_aside_counts_too(tmp_path: Path) -> None:
    folder = control_in(tmp_path / "a", "h1", "h2")
    file = saved(folder, tmp_path / "b")
    keep(folder, membership.revoke(members_of("h1", "h2"), "h1", now_ms=NOW_MS))
    (folder / "before-restore-1").mkdir()
    (folder / "link").rename(folder / "before-restore-1" / "link")

    done = put_back(file, folder, force=True)

    assert list(done.link.members.members) == ["h2"]
    assert done.link.members_from is MembersFrom.BACKUP


def test_a_host_can_be_revoked_as_it_is_restored_and_a_wrong_name_changes_nothing(
    tmp_path: Path,
) -> None:
    file = saved(control_in(tmp_path / "old", "h1", "h2"), tmp_path / "b")

    with pytest.raises(NoSuchMember, match=r"h9 is no member.*The members are: h1, h2"):
        put_back(file, tmp_path / "new", "h9")
    assert not (tmp_path / "new" / "forewarn.db").exists()
    assert not (tmp_path / "new" / "link").exists()

    put_back(file, tmp_path / "new", "h2")
    kept = MembersFile(tmp_path / "new" / "link").load()
    assert list(kept.members) == ["h1"]
    assert [one.name for one in kept.revoked] == ["h2"]


def test_a_host_can_be_revoked_by_a_second_restore_before_the_start(tmp_path: Path) -> None:
    file = saved(control_in(tmp_path / "old", "h1", "h2"), tmp_path / "b")
    put_back(file, tmp_path / "new")
    done = restore(file, tmp_path / "new", force=True, revoke=["h2"])
    assert list(done.link.members.members) == ["h1"]


def test_an_authority_that_hosts_have_joined_here_is_not_replaced_by_an_older_one(
    tmp_path: Path,
) -> None:
    file = saved(control_in(tmp_path / "old", "h1", authority="stolen"), tmp_path / "b")
    folder = control_in(tmp_path / "a", "h2", authority="ours")

    done = put_back(file, folder, force=True)

    assert done.link.members_from is MembersFrom.MACHINE
    assert done.link.left_out
    assert (folder / "link" / "authority.key").read_text() == "the key of ours"
    assert list(MembersFile(folder / "link").load().members) == ["h2"]


def test_an_authority_that_no_host_has_joined_gives_way_and_is_kept_aside(tmp_path: Path) -> None:
    file = saved(control_in(tmp_path / "old", "h1"), tmp_path / "b")
    folder = control_in(tmp_path / "a", authority="a first start")

    done = put_back(file, folder, force=True)

    assert (folder / "link" / "authority.key").read_text() == "the key of ours"
    assert done.kept_aside is not None
    aside = done.kept_aside / "link" / "authority.key"
    assert aside.read_text() == "the key of a first start"


def test_the_token_of_the_machine_stays(tmp_path: Path) -> None:
    file = saved(control_in(tmp_path / "old", "h1"), tmp_path / "b")
    folder = control_in(tmp_path / "a", "h1")
    (folder / "operator.token").write_text("changed-since-because-it-was-known")

    put_back(file, folder, force=True)

    assert (folder / "operator.token").read_text() == "changed-since-because-it-was-known"


def test_a_list_of_the_machine_that_cannot_be_read_is_said_and_kept_aside(tmp_path: Path) -> None:
    folder = control_in(tmp_path / "a", "h1")
    file = saved(folder, tmp_path / "b")
    (folder / "link" / "members.json").write_text("torn")

    done = put_back(file, folder, force=True)

    assert "members.json is damaged" in done.link.unread
    assert done.link.members_from is MembersFrom.BACKUP
    assert done.kept_aside is not None
    assert (done.kept_aside / "link" / "members.json").read_text() == "torn"
    assert list(MembersFile(folder / "link").load().members) == ["h1"]


def test_a_bit_in_a_key_of_a_backup_is_seen_before_it_is_restored(tmp_path: Path) -> None:
    file = saved(control_in(tmp_path / "old", "h1"), tmp_path / "b")
    file.write_bytes(file.read_bytes().replace(b"the key of ours", b"the kEy of ours"))
    with pytest.raises(DamagedDatabase, match="not what was written"):
        put_back(file, tmp_path / "new")
    assert not (tmp_path / "new" / "link").exists()


# Moving.


def test_a_control_that_was_moved_does_not_start_where_it_was(tmp_path: Path) -> None:
    old = control_in(tmp_path / "old", "h1")

    move_out(old, tmp_path / "b")

    with pytest.raises(MovedAway, match=r"was moved.*restore .*b --force"):
        SqliteStore.in_folder(old)
    with pytest.raises(MovedAway):
        SqliteStore.in_folder(old, new=True)
    done = put_back(tmp_path / "b", tmp_path / "new")
    assert list(done.link.members.members) == ["h1"]
    SqliteStore.in_folder(tmp_path / "new").close()
    put_back(tmp_path / "b", old, force=True)  # the way back that the refusal names
    SqliteStore.in_folder(old).close()


def test_a_move_that_fails_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    old = control_in(tmp_path / "old", "h1")
    (tmp_path / "b").write_text("mine")
    with pytest.raises(Exception, match="exists"):
        move_out(old, tmp_path / "b")
    SqliteStore.in_folder(old).close()


def test_there_is_nothing_to_stop_where_no_service_runs(tmp_path: Path) -> None:
    old = control_in(tmp_path / "old", "h1")
    stop_service(old, limit_s=60)
    SqliteStore.in_folder(old).close()


# Killed half way.


def revoked_since(folder: Path) -> None:
    """The authority of the backup, and h1 was revoked after it."""
    keep(folder, membership.revoke(members_of("h1", "h2"), "h1", now_ms=NOW_MS))


def first_start(folder: Path) -> None:
    """An authority that no host has joined, with a revocation all the same."""
    revoked = membership.revoke(members_of("h1"), "h1", now_ms=NOW_MS)
    keep(folder, revoked)
    for name in ("key", "crt"):
        (folder / "link" / f"authority.{name}").write_text("of a first start")


@pytest.mark.parametrize("as_it_is", [revoked_since, first_start])
def test_a_restore_that_is_killed_at_any_step_lets_no_revoked_host_in_when_it_is_run_again(
    tmp_path: Path, as_it_is: Callable[[Path], None]
) -> None:
    before, folder = control_in(tmp_path / "before", "h1", "h2"), tmp_path / "a"
    file = saved(before, tmp_path / "b")
    as_it_is(before)
    shutil.copytree(before, folder)

    for _ in killed_at_each_step(lambda: restore(file, folder, force=True)):
        said = refused(folder)
        assert not said or " restore " in said, said
        done = restore(file, folder, force=True)
        assert list(done.link.members.members) == ["h2"]
        assert list(MembersFile(folder / "link").load().members) == ["h2"]
        assert (folder / "link" / "authority.key").read_text() == "the key of ours"
        assert (folder / "link" / "authority.crt").read_text() == "the certificate of ours"
        assert not refused(folder)
        shutil.rmtree(folder)
        shutil.copytree(before, folder)


def test_a_move_that_is_killed_at_any_step_leaves_a_service_here_or_a_whole_backup(
    tmp_path: Path,
) -> None:
    before, folder = control_in(tmp_path / "before", "h1"), tmp_path / "a"
    file = tmp_path / "b"
    shutil.copytree(before, folder)

    for _ in killed_at_each_step(lambda: move_out(folder, file)):
        try:
            SqliteStore.in_folder(folder).close()
        except MovedAway:
            assert wrong(check_backup(file)) == []
        file.unlink(missing_ok=True)
        shutil.rmtree(folder)
        shutil.copytree(before, folder)


def refused(folder: Path) -> str:
    """Why a start on the folder is refused; empty if it is not."""
    try:
        SqliteStore.in_folder(folder).close()
    except DatabaseRefused as why:
        return str(why)
    return ""


def wrong(found: tuple[Finding, ...]) -> list[str]:
    return [f"{one.what}: {one.wrong}" for one in found if one.wrong]
