"""How the service starts, is refused a start, and ends: exit codes, sentences, no leavings."""

from __future__ import annotations

import socket
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from signal import SIGINT, SIGTERM, Signals

import pytest

from forewarn.wiring.process import EXIT_CONFIG
from support.system_world import FLEET, Service, running, service_in
from support.waiting import wait_until

DATABASE = "forewarn.db"


def refused(service: Service, *options: str, exit_code: int = EXIT_CONFIG) -> str:
    """What a start that is refused says. It says nothing else, and no traceback."""
    service.launch(*options)
    assert service.exit_code() == exit_code, service.err()
    assert service.out() == ""
    assert "Traceback" not in service.err()
    assert service.err().startswith("forewarn: ")
    return service.err()


def is_closed(where: tuple[str, int]) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(where) != 0


@pytest.mark.parametrize("number", [SIGTERM, SIGINT])
def test_told_to_stop_it_ends_with_0_and_leaves_no_port(tmp_path: Path, number: Signals) -> None:
    with running(tmp_path) as service:
        service.guest("vm0").document()
        places = [service.operator_where(), service.guest_where(), service.guest("vm0").where]

        assert service.stop(number) == 0

        assert all(is_closed(place) for place in places)
        assert "Traceback" not in service.err()
        late = service.cli("vm", "list")
        assert late.returncode == 3
        assert "No service was found" in late.stderr


def test_told_to_stop_while_it_starts_it_ends_with_0(tmp_path: Path) -> None:
    """From the moment that it works on its data, being told to stop is no accident."""
    for name in ("operator.token", "operator.url"):
        with service_in(tmp_path / name) as service:
            service.launch()
            wait_until((service.data / name).exists, f"{name} is there")
            assert service.stop() == 0
            assert "Traceback" not in service.err()


def test_told_to_stop_it_lets_nobody_wait_for_it(tmp_path: Path) -> None:
    """Parked polls, idle connections and followers of the journal do not hold it up."""
    with running(tmp_path) as service:
        guest = service.guest("vm0")
        tag = guest.get().headers["etag"]
        end = service.look("journal")["end"]

        def follow() -> None:
            service.ask("GET", f"journal?after={end}&wait=30")

        def park() -> None:
            guest.get(If_None_Match=tag, Prefer="wait=60")

        waiting = [_quietly(follow), _quietly(park)]
        with closing(socket.create_connection(guest.where)):
            wait_until(lambda: service.metric("forewarn_guest_parked") == 1, "the poll is parked")
            assert service.stop() == 0
        for thread in waiting:
            thread.join(60)
            assert not thread.is_alive()


def _quietly(wait: Callable[[], None]) -> threading.Thread:
    """Wait on a thread of its own; how the waiting ends is not the point."""

    def run() -> None:
        try:
            wait()
        except OSError:
            return

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_after_a_stop_it_starts_again_at_the_same_ports_with_the_same_token(
    tmp_path: Path,
) -> None:
    with running(tmp_path) as service:
        operator, guest = service.operator_where(), service.guest_where()
        token = service.token()
        event_id = service.order("vms/vm0/restart")["event_id"]
        service.wait_for_phase(event_id, "completed")  # silent, so it was due at once
        assert service.stop() == 0

        service.start("--operator", "{}:{}".format(*operator), "--guest", "{}:{}".format(*guest))

        assert (service.operator_where(), service.guest_where()) == (operator, guest)
        assert service.token() == token
        assert service.look(f"events/{event_id}")["phase"] == "completed"


def test_started_without_an_inventory_it_goes_on_with_the_one_it_has(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        vms = [vm["name"] for vm in service.look("vms")["items"]]
        assert service.stop() == 0
        service.with_inventory = False
        service.start()
        assert [vm["name"] for vm in service.look("vms")["items"]] == vms


def test_a_second_service_on_the_same_folder_is_refused_and_the_first_goes_on(
    tmp_path: Path,
) -> None:
    with running(tmp_path) as first, service_in(tmp_path / "second") as second:
        second.data = first.data
        words = refused(second, exit_code=1)

        assert f"{first.data} is in use by process {first.process.pid}" in words
        assert "name another data folder" in words
        assert first.guest("vm0").document()["Events"] == []
        assert first.cli("vm", "list").returncode == 0


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--operator", "Cannot open the operator API on {}"),
        ("--guest", "Cannot open the shared guest listener on {}"),
    ],
)
def test_a_port_in_use_is_refused_by_name(tmp_path: Path, option: str, words: str) -> None:
    with service_in(tmp_path) as service, socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"

        said = refused(service, option, where, exit_code=1)

        assert words.format(where) in said
        assert "Choose a free address and port" in said


def test_a_vm_whose_listener_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        fleet = FLEET.replace("127.0.0.1:0", where, 1)
        with service_in(tmp_path, fleet=fleet) as service:
            said = refused(service)
            assert f"nothing can listen on {where} for VM web_0" in said
            assert "line " in said
        assert not is_closed(taken.getsockname())


def with_data(service: Service) -> Path:
    """Let a service make its data folder and end; returns the database."""
    service.start()
    assert service.stop() == 0
    return service.data / DATABASE


def test_a_damaged_database_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    with service_in(tmp_path) as service:
        database = with_data(service)
        content = bytearray(database.read_bytes())
        content[4096:8192] = b"\xff" * 4096
        database.write_bytes(content)

        words = refused(service)

        assert f"{database} is damaged" in words
        assert f"forewarn --data {service.data} restore FILE --force" in words
        assert database.read_bytes() == content


def test_a_newer_database_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    with service_in(tmp_path) as service:
        database = with_data(service)
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("PRAGMA user_version = 999")
        content = database.read_bytes()

        words = refused(service)

        assert "schema version 999" in words
        assert "Run the newer program" in words
        assert database.read_bytes() == content


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    with service_in(tmp_path) as service:
        service.data.mkdir(mode=0o700)
        (service.data / DATABASE).write_text("Dear diary")

        assert "is not a database" in refused(service)
        assert (service.data / DATABASE).read_text() == "Dear diary"


@pytest.mark.parametrize("name", [DATABASE, "operator.token", "operator.url"])
def test_a_folder_whose_files_cannot_be_used_is_refused_in_words(tmp_path: Path, name: str) -> None:
    with service_in(tmp_path) as service:
        (service.data / name).mkdir(parents=True)

        words = refused(service)

        assert f"{service.data} cannot be used as a data folder: Is a directory" in words
        left = {path.name for path in service.data.iterdir() if path.name.startswith(".")}
        assert left == set()


def test_a_file_in_place_of_the_folder_is_refused_in_words(tmp_path: Path) -> None:
    with service_in(tmp_path) as service:
        service.data.write_text("Dear diary")
        assert f"{service.data} cannot be used as a data folder" in refused(service)
        assert service.data.read_text() == "Dear diary"


def test_a_start_that_was_killed_half_way_is_no_hindrance(tmp_path: Path) -> None:
    for name in ("forewarn.lock", DATABASE, f"{DATABASE}-wal", "operator.token"):
        with service_in(tmp_path / name) as service:
            service.launch()
            wait_until((service.data / name).exists, f"{name} is there")
            service.kill()
            service.start()
            assert service.guest("vm0").incarnation() == 1


def test_a_bad_inventory_is_refused_with_its_line_and_the_fleet_stays(tmp_path: Path) -> None:
    with service_in(tmp_path) as service:
        with_data(service)
        line = FLEET[: FLEET.index('host = "h3"')].count("\n") + 1
        service.inventory.write_text(FLEET.replace('host = "h3"', 'host = "h9"'))

        words = refused(service)
        assert f"line {line}" in words
        assert "h9" in words

        service.inventory.write_text(FLEET)
        service.start()
        assert service.look("vms/spot0")["host"] == "h3"


def test_a_file_that_an_event_forbids_for_now_does_not_keep_the_service_down(
    tmp_path: Path,
) -> None:
    with running(tmp_path) as service:
        service.guest("web_1").document()
        service.order("vms/web_1/restart")
        assert service.stop() == 0
        service.inventory.write_text(FLEET.replace("update_domain = 1", "update_domain = 7"))

        service.start()
        assert service.look("vms/web_1")["update_domain"] == 1
        assert "inventory_not_applied" in service.err()
        assert len(service.guest("web_1").events()) == 1


def test_a_bad_inventory_is_refused_while_the_service_runs_and_the_fleet_stays(
    tmp_path: Path,
) -> None:
    with running(tmp_path) as service:
        bad = tmp_path / "bad.toml"
        bad.write_text(FLEET.replace("update_domain = 1", "update_domian = 1"))
        line = FLEET[: FLEET.index("update_domain = 1")].count("\n") + 1

        answer = service.cli("inventory", "apply", str(bad))

        assert answer.returncode == 1
        assert f"line {line}" in answer.stderr
        assert "update_domian" in answer.stderr
        assert service.look("vms/web_1")["update_domain"] == 1
        assert service.guest("web_1").document()["Events"] == []


def test_an_inventory_whose_listener_is_taken_is_refused_and_the_fleet_stays(
    tmp_path: Path,
) -> None:
    with running(tmp_path) as service, socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        more = tmp_path / "more.toml"
        more.write_text(f'{FLEET}\n[[vm]]\nname = "late"\nhost = "h2"\nlisten = "{where}"\n')

        answer = service.cli("inventory", "apply", str(more))

        assert answer.returncode == 1
        assert where in answer.stderr
        assert service.ask("GET", "vms/late").status == 404
        assert service.guest("vm0").document()["Events"] == []


def test_bad_settings_are_refused_all_at_once_with_their_lines(tmp_path: Path) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text('# ours\nreboot_seconds = "5"\nfreeze_secs = 1\n')
    with service_in(tmp_path, settings={"FOREWARN_USER_EVENTS_MAX": "many"}) as service:
        words = refused(service, "--settings", str(settings), exit_code=2)

        assert f"{settings}, line 2: reboot_seconds" in words
        assert f"{settings}, line 3: there is no setting" in words
        assert "FOREWARN_USER_EVENTS_MAX" in words
        assert not service.data.exists()
