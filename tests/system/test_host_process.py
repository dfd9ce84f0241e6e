"""kill -9 of a host daemon, and of control, at every durable step of an action: once, and ended.

Control is the real command, hosts are real processes over the real link; their machines are a
file, so that what was begun goes on whoever dies. The judge reads that file and the journal.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.host_processes import (
    END_LIMIT_S,
    START_LIMIT_S,
    Cloud,
    approves,
    enabled,
    judge,
    ordered,
)
from support.system_world import FOREWARN, copy_folder
from support.waiting import wait_until

STEPS = [
    f"{when}:{step}"
    for step in ("sight", "confirm", "approve", "claim", "holds", "begin", "report")
    for when in ("before", "after")
]


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Cloud]:
    made = Cloud(tmp_path)
    try:
        made.start_control()
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("dies", STEPS)
def test_a_host_that_is_killed_at_any_step_does_what_was_begun_once(
    there: Cloud, dies: str
) -> None:
    enabled(there)
    there.kill_host()
    event_id = ordered(there)
    there.launch_host(dies)
    wait_until(
        lambda: there.host_died() or approves(there, event_id),
        "it is approved, or nobody is there to hear it",
        limit_s=END_LIMIT_S,
    )
    wait_until(there.host_died, f"it dies {dies}", limit_s=END_LIMIT_S)

    there.start_host()
    wait_until(lambda: approves(there, event_id), "it is approved (again)", limit_s=END_LIMIT_S)
    judge(there, event_id)


@pytest.mark.parametrize("after", ["scheduled", "confirmed", "approved", "started", "claimed"])
def test_a_control_that_is_killed_after_any_fact_goes_on_from_it(there: Cloud, after: str) -> None:
    enabled(there)
    event_id = ordered(there)
    if after not in ("scheduled", "confirmed"):
        wait_until(lambda: approves(there, event_id), "it is approved", limit_s=END_LIMIT_S)
    wait_until(lambda: after in there.journal(event_id), after, limit_s=END_LIMIT_S)
    there.kill_control()
    before = there.try_(lambda guest: guest.incarnation())
    assert before is not None

    there.start_control()
    wait_until(lambda: approves(there, event_id), "it is approved (again)", limit_s=END_LIMIT_S)
    judge(there, event_id)
    after_all = wait_until(
        lambda: there.try_(lambda guest: not guest.events() and guest.incarnation()),
        "the event leaves the document",
        limit_s=END_LIMIT_S,
    )
    assert after_all > before


def test_a_daemon_that_is_started_twice_refuses_the_second_time(there: Cloud) -> None:
    there.start_host()
    second = subprocess.run(
        [str(FOREWARN), "host", "--data", str(there.folder / "h1"), "--metrics", ""],
        capture_output=True,
        text=True,
        timeout=START_LIMIT_S,
        env={"PATH": os.environ.get("PATH", os.defpath), "HOME": str(there.folder)},
        check=False,
    )

    assert second.returncode == 1
    assert "is in use by process" in second.stderr


def test_a_daemon_that_waits_for_control_stops_when_it_is_told(there: Cloud) -> None:
    there.start_host()
    there.kill_host()
    there.kill_control()
    there.launch_host()
    wait_until(lambda: "control_lost" in there.host_log(), "it says that control is away")

    assert there.stop_host() == 0
    assert there.host_log().count("control_lost") == 1


# Nothing older, whatever dies and whoever control is.


@pytest.mark.parametrize("dies", ["before:mark", "after:mark"])
def test_a_daemon_killed_around_marking_what_it_is_about_to_show_shows_nothing_older(
    there: Cloud, dies: str
) -> None:
    enabled(there)
    first = ordered(there)
    reading(there, {first})
    before = incarnation(there)
    there.kill_host()
    second = str(there.ask("POST", "vms/solo/redeploy")["event_id"])
    there.launch_host(dies)
    wait_until(there.host_died, f"it dies {dies}", limit_s=END_LIMIT_S)
    there.kill_control()

    # With control away nobody can read what was marked and not shown, nor anything older than
    # what was read; when control is back, everybody reads the newest.
    there.launch_host()
    wait_until(lambda: "control_lost" in there.host_log(), "it finds that control is away")
    assert there.try_(lambda guest: guest.incarnation()) in (None, before)
    there.start_control()
    reading(there, {first, second})
    assert incarnation(there) > before


def test_a_daemon_that_is_killed_and_joined_to_an_old_control_lets_no_guest_read_less(
    there: Cloud,
) -> None:
    enabled(there)
    there.kill_control()
    copy_folder(there.folder / "control", there.folder / "old")
    there.start_control()
    event_id = ordered(there)
    reading(there, {event_id})
    there.ask("POST", f"events/{event_id}/cancel")
    reading(there, set())
    before = incarnation(there)

    there.kill_control()
    (there.folder / "control").rename(there.folder / "right")
    (there.folder / "old").rename(there.folder / "control")
    there.start_control()
    seen = [incarnation(there)]
    # What is shown is kept for the next daemon at most a second later; a kill may come before.
    wait_until(lambda: before in kept_incarnations(there), "the daemon keeps what it shows")
    for restart in (there.kill_host, there.stop_host):
        restart()
        there.start_host()
        wait_until(lambda: there.ask("GET", "hosts/h1")["refuses"], "control is told")
        seen.append(incarnation(there))
    there.join_again()
    there.kill_host()
    there.start_host()
    wait_until(lambda: there.ask("GET", "hosts/h1")["refuses"], "control is told")
    seen.append(incarnation(there))
    assert seen == [before] * 4

    accepted = subprocess.run(
        [str(FOREWARN), "--data", str(there.folder / "h1"), "host", "accept-control", "--yes"],
        capture_output=True,
        text=True,
        timeout=START_LIMIT_S,
        env={"PATH": os.environ.get("PATH", os.defpath), "HOME": str(there.folder)},
        check=False,
    )
    assert (accepted.returncode, accepted.stderr) == (0, "")
    assert "Host h1 has forgotten it" in accepted.stdout
    wait_until(lambda: not there.ask("GET", "hosts/h1")["refuses"], "it obeys")
    assert incarnation(there) < before


def reading(there: Cloud, event_ids: set[str]) -> None:
    """Wait until the VM reads exactly these events."""
    wait_until(
        lambda: there.try_(lambda guest: set(guest.events()) == event_ids),
        f"the VM reads {event_ids or 'nothing'}",
        limit_s=END_LIMIT_S,
    )


def kept_incarnations(there: Cloud) -> list[int]:
    """Of the scopes that the next daemon would show while control is away."""
    kept = there.folder / "h1" / "documents.json"
    if not kept.exists():
        return []
    return [scope["incarnation"] for scope in json.loads(kept.read_bytes())["scopes"]]


def incarnation(there: Cloud) -> int:
    found = wait_until(
        lambda: there.try_(lambda guest: guest.incarnation()), "the VM reads", limit_s=END_LIMIT_S
    )
    return int(found)
