"""The page about the service names everything that there is to be seen."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from forewarn_guest.metrics import AgentNumbers, text_of

PAGE = Path(__file__).parents[2] / "docs" / "guest-service.md"


def test_every_metric_is_on_the_page_and_no_other() -> None:
    measured = AgentNumbers(
        version="0",
        began_s=1.0,
        written_s=2.0,
        answered_s=1.5,
        errors={"files": 1},
        pauses={"gap": 1},
        pause_seconds={"gap": 1.0},
        last_pause_s=1.0,
    )
    made = set(re.findall(r"^# TYPE (\w+)", text_of(measured), re.MULTILINE))
    assert set(re.findall(r"forewarn_guest_\w+", PAGE.read_text(encoding="utf-8"))) == made


def test_every_command_and_every_exit_code_is_on_the_page() -> None:
    told = subprocess.run(
        [sys.executable, "-m", "forewarn_guest", "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    page = PAGE.read_text(encoding="utf-8")
    commands = re.findall(r"^    ([a-z]+)\b", told, re.MULTILINE)
    assert len(commands) >= 10
    assert [name for name in commands if not re.search(rf"(forewarn-guest |`){name}\b", page)] == []
    codes = re.findall(r"^  (\d)  ", told, re.MULTILINE)
    assert [code for code in codes if f"| {code} |" not in page] == []
