"""Backup while the service works, and restore: everything is there, and incarnations jump."""

from __future__ import annotations

import json
import threading
from pathlib import Path

from support.system_world import Service, running, service_in

JUMP = 1_000_000


def backup(service: Service, file: Path) -> None:
    done = service.cli("backup", str(file))
    assert done.returncode == 0, done.stderr


def test_a_backup_made_while_it_works_restores_events_and_raises_every_incarnation(
    tmp_path: Path,
) -> None:
    file = tmp_path / "saved.db"
    enough = threading.Event()
    with running(tmp_path / "old") as old:
        old.guest("vm0").document()
        event_id = old.order("vms/vm0/restart")["event_id"]
        before = old.guest("vm0").document()

        def work() -> None:
            while not enough.is_set():
                for verb in ("close", "open"):
                    old.order(f"hosts/h3/{verb}")

        working = threading.Thread(target=work)
        working.start()
        try:
            backup(old, file)
        finally:
            enough.set()
            working.join()
        # What came after the backup is not in it.
        assert old.guest("vm0").approve(event_id).status == 200

    with service_in(tmp_path / "new") as new:
        restored = new.cli("restore", str(file), "--json")
        assert restored.returncode == 0, restored.stderr
        assert json.loads(restored.stdout)["scopes"] == 3
        new.start()

        after = new.guest("vm0").document()
        assert after["DocumentIncarnation"] == before["DocumentIncarnation"] + JUMP
        assert after["Events"] == before["Events"]
        assert new.guest("web_0").incarnation() == 1 + JUMP
        assert "restored" in [line["kind"] for line in new.journal()]
        assert new.guest("vm0").approve(event_id).status == 200
        new.wait_for_phase(event_id, "completed")


def test_restore_is_refused_under_a_running_service_and_over_a_database_unless_forced(
    tmp_path: Path,
) -> None:
    file = tmp_path / "saved.db"
    with running(tmp_path / "one") as service:
        service.guest("vm0").document()
        backup(service, file)
        event_id = service.order("vms/vm0/restart")["event_id"]
        running_one = service.cli("restore", str(file), "--force")
        assert running_one.returncode == 1
        assert "in use by process" in running_one.stderr
        assert service.stop() == 0

        there = service.cli("restore", str(file))
        assert there.returncode == 1
        assert "exists" in there.stderr
        forced = service.cli("restore", str(file), "--force", "--json")
        assert forced.returncode == 0, forced.stderr
        assert (Path(json.loads(forced.stdout)["kept_aside"]) / "forewarn.db").is_file()
        service.start()

        # The order moved the database that was replaced, and guests may have read that.
        assert service.guest("vm0").document() == {"DocumentIncarnation": 2 + JUMP, "Events": []}
        assert service.ask("GET", f"events/{event_id}").status == 404


def test_a_backup_never_overwrites_and_a_file_that_is_none_is_not_restored(tmp_path: Path) -> None:
    letter = tmp_path / "letter"
    letter.write_text("Dear diary")
    with running(tmp_path / "one") as service:
        taken = service.cli("backup", str(letter))
        assert taken.returncode == 1
        assert "exists" in taken.stderr
        assert service.stop() == 0

        foreign = service.cli("restore", str(letter), "--force")

        assert foreign.returncode == 1
        assert "is not a database" in foreign.stderr
        assert letter.read_text() == "Dear diary"
        service.start()
        assert service.guest("vm0").incarnation() == 1
