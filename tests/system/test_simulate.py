"""`forewarn simulate` as a person meets it: started without a file, driven from another shell."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from forewarn.wiring.simulate import LINK_LOCAL_ADDRESS
from programs import missing, needs
from support.simulate_process import FREE_PORTS, Simulation, environment_of, forewarn, simulating
from support.system_world import API_VERSION, EXIT_LIMIT_S, FOREWARN, running
from support.waiting import wait_until

PATH = f"/metadata/scheduledevents?api-version={API_VERSION}"

in_a_namespace_of_our_own = pytest.mark.skipif(
    os.geteuid() != 0 or bool(missing("unshare", "ip")),
    reason=missing("unshare", "ip") or "only root can make a network namespace",
)


def test_without_options_a_user_reboot_is_played_from_end_to_end(tmp_path: Path) -> None:
    with simulating(tmp_path) as simulation:
        guest = simulation.guest("vm0")
        assert guest.document()["Events"] == []
        said = simulation.said("vm", "restart", "vm0")
        assert "in 15m" in said
        assert [event["EventStatus"] for event in guest.events().values()] == ["Scheduled"]
        assert "Reboot of vm0 may start" in simulation.said("clock", "next")
        assert [event["EventStatus"] for event in guest.events().values()] == ["Started"]
        simulation.said("clock", "advance", "5s")
        assert guest.document() == {"DocumentIncarnation": 4, "Events": []}
        assert "nothing is due" in simulation.said("clock", "show")
        nowhere = simulation.cli("clock", "next")
        assert nowhere.returncode == 1
        assert "Nothing is due" in nowhere.stderr
        assert simulation.stop() == 0
        assert simulation.err() == ""


def test_it_leaves_no_port_and_no_address_behind(tmp_path: Path) -> None:
    with simulating(tmp_path, "--scope", "web:2") as simulation:
        ports = [*simulation.where["vm_urls"].values(), simulation.where["operator_url"]]
        left = Path(simulation.where["data"])
        assert (left / "operator.url").exists()
        assert simulation.stop() == 0
        assert not (left / "operator.url").exists()
        for url in ports:
            port = int(url.rpartition(":")[2])
            with socket.socket() as probe:
                assert probe.connect_ex(("127.0.0.1", port)) != 0
    late = forewarn(tmp_path, "clock", "show")
    assert late.returncode == 3
    assert "forewarn simulate" in late.stderr


@needs("curl")
def test_a_person_is_told_where_everything_is_in_lines_that_work(tmp_path: Path) -> None:
    with simulating(tmp_path):  # so that the folder is taken: this one gets its own
        env = environment_of(tmp_path)
        command = [str(FOREWARN), "simulate", "--scope", "web:2", "--data", str(tmp_path / "own")]
        process = subprocess.Popen(
            [*command, *FREE_PORTS], stdout=subprocess.PIPE, text=True, env=env
        )
        try:
            assert process.stdout is not None
            lines: list[str] = []
            while not lines or not lines[-1].strip().endswith("clock next"):
                lines.append(process.stdout.readline())
                assert lines[-1], lines
            for line in (line.strip() for line in lines):
                if line.startswith(("curl", str(FOREWARN))):
                    ran = subprocess.run(
                        ["sh", "-c", line], capture_output=True, text=True, check=False, env=env
                    )
                    assert ran.returncode == 0, ran
            assert "web_1" in "".join(lines)
        finally:
            process.terminate()
            assert process.wait(EXIT_LIMIT_S) == 0
            if process.stdout is not None:
                process.stdout.close()


def test_a_second_emulator_in_the_same_folder_is_refused_with_a_remedy(tmp_path: Path) -> None:
    with simulating(tmp_path):
        ran = forewarn(tmp_path, "simulate", *FREE_PORTS)
        assert ran.returncode == 1
        assert "in use by process" in ran.stderr
        assert "another data folder" in ran.stderr


def test_a_port_that_is_taken_is_refused_with_the_option_that_says_another(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        guest = forewarn(tmp_path, "simulate", "--guest", where, "--operator", "127.0.0.1:0")
        operator = forewarn(tmp_path, "simulate", "--guest", "127.0.0.1:0", "--operator", where)
    for ran, option in ((guest, "--guest"), (operator, "--operator")):
        assert ran.returncode == 1
        assert f"on {where}: Address already in use. Choose a free address" in ran.stderr
        assert option in ran.stderr
        assert "with port 0 any is taken" in ran.stderr


def test_the_clock_does_not_go_back(tmp_path: Path) -> None:
    with simulating(tmp_path) as simulation:
        ran = simulation.cli("clock", "advance", "-15m")
        assert ran.returncode == 1
        assert 'The duration "-15m" is less than nothing.' in ran.stderr


def test_a_service_and_an_emulator_at_once_are_never_confused(tmp_path: Path) -> None:
    data = tmp_path / ".local" / "state" / "forewarn"
    data.parent.mkdir(parents=True)
    with running(tmp_path) as service:
        (service.data).rename(data)  # as if it had been started without --data
        with simulating(tmp_path) as simulation:
            ran = simulation.cli("vm", "list")
            assert ran.returncode == 2
            assert "More than one service or emulator is running here." in ran.stderr
            assert str(data) in ran.stderr
            named = simulation.cli("--data", simulation.where["data"], "vm", "list")
            assert named.returncode == 0, named
            assert "vm0" in named.stdout


def test_the_token_can_come_from_the_environment(tmp_path: Path) -> None:
    with simulating(
        tmp_path, environment={"FOREWARN_TOKEN": "known-before-the-start"}
    ) as simulation:
        file = Path(simulation.where["operator_token_file"])
        assert file.read_text(encoding="utf-8").strip() == "known-before-the-start"
        assert file.stat().st_mode & 0o077 == 0
        assert simulation.cli("vm", "list").returncode == 0


def test_a_fast_clock_plays_a_scenario_by_itself(tmp_path: Path) -> None:
    with simulating(tmp_path, "--clock", "x3600") as simulation:
        guest = simulation.guest("vm0")
        simulation.said("scenario", "run", "user-reboot")
        over = {"DocumentIncarnation": 4, "Events": []}
        wait_until(lambda: guest.document() == over, "the restart is over")
        journal = json.loads(simulation.said("journal", "--json"))["items"]
        at = {line["kind"]: datetime.fromisoformat(line["at"]) for line in journal}
        assert at["started"] - at["scheduled"] >= timedelta(minutes=15)
        assert at["completed"] - at["started"] >= timedelta(minutes=10)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--clock", "fast"), "virtual, real, or x2"),
        (("--clock", "x9999"), "virtual, real, or x2"),
        (("--scope", "web"), "like web:3"),
        (("--start", "yesterday"), "yesterday"),
        (("--vm", "a b"), "refused"),
        (("--enablement", "sometimes"), "always"),
        (("--inventory", "nowhere.toml"), "nowhere.toml"),
    ],
)
def test_what_cannot_be_is_refused_with_what_would_be_accepted(
    tmp_path: Path, options: tuple[str, ...], sentence: str
) -> None:
    ran = forewarn(tmp_path, "simulate", *FREE_PORTS, *options)
    assert ran.returncode in (1, 2)
    assert sentence in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_fleet_is_a_file_or_words_and_not_both(tmp_path: Path) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text('[[host]]\nname = "h"\n', encoding="utf-8")
    ran = forewarn(tmp_path, "simulate", "--inventory", str(file), "--vm", "a")
    assert ran.returncode == 2
    assert "whole fleet" in ran.stderr


def test_serve_has_neither_a_clock_nor_faults_nor_scenarios(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        for path in ("clock", "faults", "scenarios"):
            assert service.ask("GET", path).status == 404


@in_a_namespace_of_our_own
def test_where_it_is_permitted_vm_0_is_at_the_link_local_address(tmp_path: Path) -> None:
    setup = f'ip link set lo up && ip address add {LINK_LOCAL_ADDRESS}/32 dev lo && exec "$@"'
    under = ("unshare", "--net", "sh", "-c", setup, "sh")
    with simulating(tmp_path, "--listen-link-local", under=under) as simulation:
        assert simulation.where["vm_urls"]["vm0"] == f"http://{LINK_LOCAL_ADDRESS}:80"
        assert b'"Events":[]' in _inside(simulation, "vm0")


@in_a_namespace_of_our_own
@pytest.mark.parametrize(("address", "missing"), [(False, "ip address add"), (True, "")])
def test_where_it_is_not_permitted_it_says_what_is_missing(
    tmp_path: Path, missing: str, *, address: bool
) -> None:
    add = f"ip address add {LINK_LOCAL_ADDRESS}/32 dev lo &&" if address else ""
    user = "setpriv --bounding-set=-net_bind_service --inh-caps=-net_bind_service"
    # Port 80 is for whoever may bind it: so it is by default, unless somebody has opened it.
    first = "echo 1024 > /proc/sys/net/ipv4/ip_unprivileged_port_start; ip link set lo up &&"
    script = f"{first} {add} exec {user} {FOREWARN} simulate --listen-link-local"
    ran = subprocess.run(
        ["unshare", "--net", "sh", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=EXIT_LIMIT_S,
        env=environment_of(tmp_path),
    )
    assert ran.returncode == 1, ran
    assert missing in ran.stderr
    assert "CAP_NET_BIND_SERVICE" in ran.stderr
    assert ("ip address add" in ran.stderr) == (not address)


def _inside(simulation: Simulation, vm: str) -> bytes:
    """What a program in the same network namespace reads."""
    url = simulation.where["vm_urls"][vm] + PATH
    read = f"import urllib.request as r; q = r.Request({url!r}, headers={{'Metadata': 'true'}})"
    read += "; print(r.build_opener(r.ProxyHandler({})).open(q, timeout=60).read().decode())"
    ran = subprocess.run(
        ["nsenter", "--net", f"--target={simulation.process.pid}", "python3", "-c", read],
        capture_output=True,
        check=True,
        timeout=EXIT_LIMIT_S,
    )
    return ran.stdout
