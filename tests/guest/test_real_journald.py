"""The step `log` against a real journald, in a place of its own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forewarn_guest.steps.system_log import MESSAGE_ID
from support.guest_private_place import journald
from support.guest_steps_world import EVENT, run_step
from support.waiting import wait_until


@pytest.fixture
def inside(tmp_path: Path) -> Iterator[list[str]]:
    with journald(tmp_path / "log") as command:
        yield command


def lines(inside: list[str]) -> list[dict[str, Any]]:
    """The journal's entries of this kind, with their fields."""
    command = ["journalctl", "--directory=/run/log/journal", "--output=json", "--no-pager"]
    done = subprocess.run(
        [*inside, *command, f"MESSAGE_ID={MESSAGE_ID}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_journald_keeps_the_facts_as_fields(inside: list[str]) -> None:
    code, _out, problems = run_step("log", {"priority": "warning"}, inside=inside)
    assert (code, problems) == (0, "")
    wait_until(lambda: len(lines(inside)) == 1, "journald keeps a line")
    (kept,) = lines(inside)
    assert kept["MESSAGE"].startswith("Reboot of web-0 web-1 (Platform) is scheduled")
    assert kept["PRIORITY"] == "4"
    assert kept["SYSLOG_IDENTIFIER"] == "forewarn-guest"
    assert kept["_TRANSPORT"] == "journal"
    assert kept["FOREWARN_EVENT_ID"] == EVENT["EventId"]
    assert kept["FOREWARN_EVENT_RESOURCES"] == "web-0 web-1"
    assert kept["FOREWARN_EVENT_DESCRIPTION"] == EVENT["Description"]
    assert kept["FOREWARN_VM"] == "web-0"
    assert kept["FOREWARN_EVENT_SECONDS_LEFT"] == "20.0"


def said(kept: dict[str, str]) -> set[str]:
    """The fields that the step has sent. Of those of its own (`_EXE`) journald adds what it still
    finds out: the step may have ended by then.
    """
    return {name for name in kept if not name.startswith("_")}


def test_a_hostile_or_a_long_event_is_one_entry_with_the_same_fields(inside: list[str]) -> None:
    hostile = "x\nPRIORITY=0\n_PID=1\nFOREWARN_EVENT_ID\n\x05\x00\x00\x00\x00\x00\x00\x00hello\n"
    event = {**EVENT, "Description": hostile, "EventType": hostile, "Resources": [hostile]}
    long = {**EVENT, "Description": "\u20ac" * 100_000}
    assert run_step("log", {}, inside=inside)[0] == 0
    assert run_step("log", {}, inside=inside, event=event)[0] == 0
    assert run_step("log", {}, inside=inside, event=long)[0] == 0
    wait_until(lambda: len(lines(inside)) == 3, "there is one entry for each step")
    plain, *others = lines(inside)
    for kept in others:
        assert said(kept) == said(plain)
        assert kept["PRIORITY"] == "5"
        assert kept["FOREWARN_EVENT_ID"] == EVENT["EventId"]
