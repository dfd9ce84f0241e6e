"""`forewarn simulate --on-impact CMD`: the caller's command is told what happens to a VM."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from support.simulate_process import forewarn, simulating
from support.waiting import wait_until

ROOT = Path(__file__).parent.parent.parent
NOTE = """
printf '%s %s %s %s\\n' "$1" "$2" "$3" "$4" >> notes
"""


def script(folder: Path, text: str = NOTE) -> str:
    file = folder / "impact.sh"
    file.write_text(f"cd {shlex.quote(str(folder))}\n{text}", encoding="utf-8")
    return f"sh {file}"


def notes(folder: Path) -> list[list[str]]:
    return [line.split() for line in (folder / "notes").read_text(encoding="utf-8").splitlines()]


def test_the_command_is_told_of_every_impact_when_it_happens(tmp_path: Path) -> None:
    with simulating(tmp_path, "--on-impact", script(tmp_path)) as emulator:
        emulator.said("vm", "restart", "vm0")
        (event,) = emulator.guest("vm0").document()["Events"]
        emulator.said("clock", "advance", "15m")
        assert notes(tmp_path) == [["kill", "vm0", "Reboot", event["EventId"]]]
        passed = emulator.said("clock", "next")
        assert "start of what runs in vm0" in passed
        emulator.said("host", "maintain", "host0", "--type", "Freeze")
        emulator.said("clock", "advance", "16m")
        told = [(impact, vm, kind) for impact, vm, kind, _ in notes(tmp_path)]
        assert told == [
            ("kill", "vm0", "Reboot"),
            ("start", "vm0", "Reboot"),
            ("freeze", "vm0", "Freeze"),
            ("thaw", "vm0", "Freeze"),
        ]


def test_a_command_that_fails_is_told_and_nothing_else_breaks(tmp_path: Path) -> None:
    command = script(tmp_path, "echo printed; exit 3")
    with simulating(tmp_path, "--on-impact", command) as emulator:
        emulator.said("vm", "restart", "vm0")
        emulator.said("clock", "advance", "15m")
        assert "ended with 3" in emulator.said("clock", "next")
        wait_until(lambda: "impact_failed" in emulator.err(), "the log says so")
        assert "printed" in emulator.err()
        assert emulator.guest("vm0").document()["Events"] == []


def test_the_example_freezes_kills_and_starts_an_app(tmp_path: Path) -> None:
    file = tmp_path / "app.pid"
    app = subprocess.Popen(["sleep", "600"])
    file.write_text(f"{app.pid}\n", encoding="utf-8")
    mine = {"APP": "sleep 601", "APP_PID": str(file)}
    under = ("env", "-C", str(tmp_path))
    command = f"sh {ROOT}/examples/shell/impact.sh"
    again = 0
    with simulating(tmp_path, "--on-impact", command, environment=mine, under=under) as emulator:
        try:
            emulator.said("host", "maintain", "host0", "--type", "Freeze")
            emulator.said("clock", "advance", "15m")
            wait_until(lambda: _state(app.pid) == "T", "it stands still")
            emulator.said("clock", "next")
            wait_until(lambda: _state(app.pid) == "S", "it goes on")
            emulator.said("vm", "restart", "vm0")
            emulator.said("clock", "advance", "15m")
            assert app.wait(60) == -signal.SIGKILL
            emulator.said("clock", "next")
            again = int(file.read_text(encoding="utf-8"))
            assert again != app.pid
            assert _state(again) == "S"
        finally:
            app.kill()
            app.wait()
            if again:
                os.kill(again, signal.SIGKILL)


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(") ")[2][0]


@pytest.mark.parametrize(
    ("command", "said"), [("", "--on-impact is empty"), ("'", "No closing quotation")]
)
def test_a_command_that_is_none_is_refused(tmp_path: Path, command: str, said: str) -> None:
    ran = forewarn(tmp_path, "simulate", "--on-impact", command)
    assert ran.returncode == 2
    assert said in ran.stderr
    assert "sh impact.sh" in ran.stderr
