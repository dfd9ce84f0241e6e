"""The units of control and host: accepted by systemd, walled in, each grant with its reason."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn.adapters.sqlite.data_folder import (
    DamagedMark,
    FolderInUse,
    FolderUnusable,
    LostDatabase,
    unusable,
)
from forewarn.cli.client import EXIT_USAGE
from forewarn.core.errors import BadInventory, Conflict, NotInvited, Unavailable
from forewarn.host.listeners import ListenFailed
from forewarn.ports import StoreFailed
from forewarn.wiring.process import EXIT_CANNOT_START, EXIT_CONFIG, NotJoined, exit_status
from programs import program
from support.cli_runner import forewarn

PACKAGING = Path(__file__).parent.parent.parent / "packaging"
UNITS = {
    "forewarn-control.service": 1.4,  # without PrivateUsers, so that the journal can name users
    "forewarn-host.service": 2.0,
}  # with the exposure that systemd may find at most, of 10
LIMIT_S = 60

# Directives that give something, or take less than could be taken. An empty value gives nothing.
GRANTS = frozenset(
    {"SupplementaryGroups", "CapabilityBoundingSet", "AmbientCapabilities", "ReadWritePaths"}
    | {"RestrictAddressFamilies", "StateDirectory", "KillMode", "SystemCallFilter"}
    | {"RestartPreventExitStatus", "LimitNOFILE", "RuntimeDirectory", "RuntimeDirectoryMode"}
)
# How far below its reason a directive may stand: the lines of a pair.
BELOW_MAX = 2


def directives(text: str) -> Iterator[tuple[str, str, str, int]]:
    """Key, value, the comment above it, and how many directives stand between."""
    comment: list[str] = []
    below = 0
    for line in text.splitlines():
        if line.startswith("#"):
            comment = [*comment, line[1:].strip()] if below == 0 else [line[1:].strip()]
            below = 0
        elif "=" in line:
            key, _, value = line.partition("=")
            yield key, value, " ".join(comment), below
            below += 1
        else:
            comment, below = [], 0


def text_of(unit: str) -> str:
    return (PACKAGING / "systemd" / unit).read_text(encoding="utf-8")


def run(*command: str) -> subprocess.CompletedProcess[str]:
    told = {**os.environ, "SYSTEMD_COLORS": "0", "LC_ALL": "C.UTF-8"}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT_S, check=False, env=told
    )


@pytest.mark.parametrize("unit", UNITS)
def test_systemd_accepts_the_unit_and_calls_its_exposure_ok(unit: str, tmp_path: Path) -> None:
    analyze = program("systemd-analyze")
    # The program is where whoever installs it has put it; here stands one that is there.
    there = text_of(unit).replace("/opt/forewarn/bin/forewarn", shutil.which("true") or "/bin/true")
    (tmp_path / unit).write_text(there, encoding="utf-8")
    verified = run(analyze, "verify", "--man=no", str(tmp_path / unit))
    ours = [line for line in verified.stderr.splitlines() if "forewarn" in line]
    assert (verified.returncode, ours) == (0, [])
    security = run(analyze, "security", "--offline=true", str(tmp_path / unit))
    if "unrecognized option" in security.stderr:
        pytest.skip("this systemd-analyze judges only units of a running systemd")
    level = re.search(r"Overall exposure level for [^:]+: ([0-9.]+)", security.stdout)
    assert level, security.stdout + security.stderr
    assert float(level[1]) <= UNITS[unit]


@pytest.mark.parametrize("unit", UNITS)
def test_everything_that_a_unit_grants_has_its_reason_above_it(unit: str) -> None:
    bare = [
        f"{key}={value}"
        for key, value, comment, below in directives(text_of(unit))
        if key in GRANTS and value and (len(comment.split()) < 5 or below > BELOW_MAX)
    ]
    assert bare == []


@pytest.mark.parametrize("unit", UNITS)
def test_every_capability_and_every_odd_kind_of_socket_is_explained_by_name(unit: str) -> None:
    for key, value, comment, _ in directives(text_of(unit)):
        if key == "CapabilityBoundingSet":
            assert [cap for cap in value.split() if f"{cap}:" not in comment] == []
        if key == "RestrictAddressFamilies":
            odd = set(value.split()) - {"AF_INET", "AF_INET6"}
            assert [family for family in odd if family not in comment] == []


@pytest.mark.parametrize("unit", UNITS)
def test_no_unit_runs_as_root_or_lets_its_processes_become_anybody_else(unit: str) -> None:
    said = {key: value for key, value, _, _ in directives(text_of(unit))}
    assert said["User"].startswith("forewarn")
    assert said["NoNewPrivileges"] == "yes"
    assert said["ProtectSystem"] == "strict"
    assert said["StateDirectoryMode"] == "0700"
    assert "WatchdogSec" not in said  # neither daemon tells systemd that it goes round


def test_control_has_no_capability_and_the_host_only_those_of_the_network() -> None:
    kept = {
        unit: {value for key, value, _, _ in directives(text_of(unit)) if "Capabilit" in key}
        for unit in UNITS
    }
    assert kept == {
        "forewarn-control.service": {""},
        "forewarn-host.service": {"CAP_NET_ADMIN CAP_NET_BIND_SERVICE"},
    }


def test_stopping_the_host_daemon_leaves_the_thaw_guard_alone() -> None:
    assert "\nKillMode=process\n" in text_of("forewarn-host.service")
    assert "KillMode" not in text_of("forewarn-control.service")


def test_the_host_daemon_ends_before_libvirt_guests_switches_vms_off() -> None:
    """Units stop in the opposite order of their start; what is not shown is not seen off."""
    lines = text_of("forewarn-host.service").splitlines()
    (after,) = [line for line in lines if line.startswith("After=")]
    assert "libvirt-guests.service" in after.split()


@pytest.mark.parametrize("unit", UNITS)
def test_the_command_of_a_unit_is_one_that_the_program_knows(unit: str) -> None:
    command = next(v for k, v, _, _ in directives(text_of(unit)) if k == "ExecStart").split()
    assert command[0] == "/opt/forewarn/bin/forewarn"
    options = [word for word in command[2:] if word.startswith("--")]
    helped = forewarn(command[1], "--help")
    assert helped.code == 0
    assert options
    assert [option for option in options if option not in helped.out] == []


def test_systemd_sysusers_makes_both_users_and_lets_one_use_libvirt(tmp_path: Path) -> None:
    sysusers = program("systemd-sysusers")
    if os.geteuid() != 0:
        pytest.skip("systemd-sysusers wants root")
    folder = tmp_path / "usr/lib/sysusers.d"
    folder.mkdir(parents=True)
    shutil.copy(PACKAGING / "sysusers.conf", folder / "forewarn.conf")
    (tmp_path / "etc").mkdir()
    made = run(sysusers, f"--root={tmp_path}")
    assert made.returncode == 0, made.stderr
    passwd = (tmp_path / "etc/passwd").read_text(encoding="utf-8")
    assert re.findall(r"(?m)^forewarn[^:]*", passwd) == ["forewarn", "forewarn-host"]
    assert re.search(r"(?m)^libvirt:.*:forewarn-host$", (tmp_path / "etc/group").read_text())


ASKS = """
let rule;
const polkit = {addRule: (f) => { rule = f; }, Result: {YES: "yes", NOT_HANDLED: "not handled"}};
RULES
const asked = JSON.parse(process.argv[1]);
console.log(JSON.stringify(asked.map(([id, user]) => rule({id: id}, {user: user}))));
"""


def test_polkit_lets_the_host_daemon_reboot_its_machine_and_nothing_else() -> None:
    engine = program("node")
    rules = (PACKAGING / "polkit" / "50-forewarn-host.rules").read_text(encoding="utf-8")
    login = "org.freedesktop.login1."
    asked = [
        (f"{login}reboot", "forewarn-host"),
        (f"{login}reboot-multiple-sessions", "forewarn-host"),
        (f"{login}power-off", "forewarn-host"),
        ("org.freedesktop.systemd1.manage-units", "forewarn-host"),
        (f"{login}reboot", "somebody"),
    ]
    done = run(engine, "-e", ASKS.replace("RULES", rules), json.dumps(asked))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["yes", "yes", *["not handled"] * 3]


# Refused starts.


@pytest.mark.parametrize("unit", UNITS)
def test_units_do_not_start_again_what_a_person_has_to_mend(unit: str) -> None:
    values = {key: value for key, value, _, _ in directives(text_of(unit))}
    assert values["Restart"] == "always"
    assert values["RestartPreventExitStatus"].split() == [str(EXIT_USAGE), str(EXIT_CONFIG)]


LASTING = (
    LostDatabase("It is missing.", "Put it back."),
    DamagedMark("It is damaged.", "Remove it."),
    FolderUnusable("Others may write to it.", "chmod go-w"),
    BadInventory("Line 1 is wrong.", "Mend it."),
    NotInvited("The token is used.", "Invite it again."),
    Conflict("It has joined as another.", "Start it with that name."),
)
PASSING = (
    FolderInUse("Process 7 has it.", "Stop it first."),
    unusable(Path("data"), OSError(errno.ENOSPC, "No space left on device")),
    ListenFailed("The port is in use."),
    StoreFailed("the disk is full", fatal=False),
    Unavailable("Control cannot be reached."),
    NotJoined("It has not joined.", "Join."),
)


def test_what_a_restart_may_mend_has_another_exit_status() -> None:
    assert {exit_status(why) for why in LASTING} == {EXIT_CONFIG}
    assert {exit_status(why) for why in PASSING} == {EXIT_CANNOT_START}
    assert EXIT_CONFIG == os.EX_CONFIG
