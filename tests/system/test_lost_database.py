"""A database that is gone, emptied or put back from a copy, as an operator meets it."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from forewarn.wiring.process import EXIT_CONFIG
from support.system_world import Service, service_in
from support.waiting import wait_until

JUMP = 1_000_000


def refused(service: Service) -> str:
    """Start it: it ends by itself, with one sentence and without a traceback."""
    service.launch()
    assert service.exit_code() == EXIT_CONFIG
    said = service.err()
    assert "Traceback" not in said
    assert "cannot start." in said
    return " ".join(said.split())


def marked_up_to_date(service: Service) -> None:
    """Wait until the mark says what the database has."""

    def look() -> bool:
        file = service.data / "forewarn.db"
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
            commits: int = connection.execute("SELECT commits FROM lineage").fetchone()[0]
        marked: int = json.loads((service.data / "forewarn.mark").read_text())["commits"]
        return marked >= commits

    wait_until(look, "the mark follows")


@contextmanager
def killed_after_orders(folder: Path) -> Iterator[tuple[Service, int]]:
    """A service that was killed some orders after its backup, and the incarnation of vm0."""
    with service_in(folder) as service:
        service.start()
        service.guest("vm0").document()
        done = service.cli("backup", str(folder / "saved.db"))
        assert done.returncode == 0, done.stderr
        for _ in range(3):
            event_id = service.order("vms/vm0/restart")["event_id"]
            service.order(f"events/{event_id}/cancel")
        incarnation = service.guest("vm0").incarnation()
        marked_up_to_date(service)
        service.kill()
        yield service, incarnation


def test_a_backup_put_over_the_database_by_hand_is_refused_and_the_way_out_works(
    tmp_path: Path,
) -> None:
    with killed_after_orders(tmp_path / "one") as (service, incarnation):
        database = service.data / "forewarn.db"
        shutil.copyfile(tmp_path / "one" / "saved.db", database)
        for name in ("forewarn.db-wal", "forewarn.db-shm"):
            (service.data / name).unlink()
        said = refused(service)
        assert "is older than it was" in said
        assert f"restore {database} --force" in said
        restored = service.cli("restore", str(database), "--force")
        assert restored.returncode == 0, restored.stderr
        service.start()
        assert service.guest("vm0").incarnation() == 1 + JUMP > incarnation


def test_an_emptied_and_a_missing_database_are_not_taken_for_new_ones(tmp_path: Path) -> None:
    with killed_after_orders(tmp_path / "one") as (service, incarnation):
        database = service.data / "forewarn.db"
        for name in ("forewarn.db-wal", "forewarn.db-shm"):
            (service.data / name).unlink()
        database.write_bytes(b"")
        assert "is empty, but forewarn.mark says" in refused(service)
        database.unlink()
        said = refused(service)
        assert "is not there, but forewarn.mark says" in said
        assert "--new" in said
        assert not database.exists()
        restored = service.cli("restore", str(tmp_path / "one" / "saved.db"))
        assert restored.returncode == 0, restored.stderr
        service.start()
        assert service.guest("vm0").incarnation() > incarnation


def test_new_begins_with_a_new_database_once_and_on_purpose(tmp_path: Path) -> None:
    with killed_after_orders(tmp_path / "one") as (service, _):
        (service.data / "forewarn.db").unlink()
        refused(service)
        service.start("--new")
        assert service.guest("vm0").incarnation() == 1
        assert "begun_with_a_new_database" in service.err()
        assert service.stop() == 0
        service.launch("--new")
        assert service.exit_code() == EXIT_CONFIG
        assert "Start without --new" in " ".join(service.err().split())
        service.start()


def test_a_backup_that_a_kill_has_cut_off_is_removed(tmp_path: Path) -> None:
    with service_in(tmp_path / "one") as service:
        service.start()
        service.kill()
        half = service.data / "forewarn-backup-abc123"
        half.mkdir()
        (half / "backup.db.partial").write_bytes(bytes(4_096))
        # Of the command itself, where it was to be saved; the second is of another backup.
        left = tmp_path / "saved.db.partial-0123abcd"
        left.write_bytes(bytes(4_096))
        other = tmp_path / "else.db.partial-0123abcd"
        other.write_bytes(b"of another")
        service.start()
        assert not half.exists()
        done = service.cli("backup", str(tmp_path / "saved.db"))
        assert done.returncode == 0, done.stderr
        assert not left.exists()
        assert other.exists()
        assert (tmp_path / "saved.db").exists()
