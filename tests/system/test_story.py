"""The story of the README, told by real processes: notice, approval, impact, gone, journal."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from programs import needs
from support.system_world import QUICK, Service, running
from support.waiting import wait_until

STORY = ["scheduled", "confirmed", "approved", "started", "claimed", "reported", "completed"]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    folder = tmp_path / "a folder"  # what is printed for pasting must survive a space
    folder.mkdir()
    # Some seconds of impact, so that a guest can see it, on a busy machine too.
    with running(folder, settings={**QUICK, "FOREWARN_REBOOT_SECONDS": "3"}) as service:
        yield service


def pasted(service: Service, part: str) -> str:
    """The line that the service prints for a person to paste."""
    lines = [line.strip() for line in service.out().splitlines()]
    return next(line for line in lines if part in line)


def in_this_order(kinds: Sequence[str], found: Sequence[str]) -> bool:
    rest = iter(found)
    return all(kind in rest for kind in kinds)


def test_a_vm_is_told_approves_is_restarted_and_the_journal_tells_it_all(
    service: Service,
) -> None:
    guest = service.guest("vm0")
    assert guest.document() == {"DocumentIncarnation": 1, "Events": []}

    ordered = service.cli("vm", "restart", "vm0")
    assert ordered.returncode == 0, ordered.stderr
    told = guest.document()
    [event] = told["Events"]
    assert event["EventId"] in ordered.stdout
    assert (event["EventStatus"], event["EventType"]) == ("Scheduled", "Reboot")
    assert (event["EventSource"], event["Resources"]) == ("User", ["vm0"])
    assert told["DocumentIncarnation"] == 2

    approved = guest.approve(event["EventId"])
    assert (approved.status, approved.body) == (200, b"")

    def started() -> Any:
        seen = guest.events().get(event["EventId"])
        return seen if seen and seen["EventStatus"] == "Started" else None

    assert wait_until(started, "the event starts")["NotBefore"] == ""
    wait_until(lambda: not guest.events(), "the event is gone")
    assert guest.incarnation() == 4
    lines = service.journal(event["EventId"])
    assert in_this_order(STORY, [line["kind"] for line in lines])
    assert next(line["by"] for line in lines if line["kind"] == "approved") == "vm0"


def test_an_approved_event_has_a_receipt_that_says_who_read_and_approved_it(
    service: Service,
) -> None:
    guest = service.guest("vm0")
    guest.document()
    event_id = service.order("vms/vm0/restart")["event_id"]
    assert list(guest.events()) == [event_id]
    guest.approve(event_id)
    service.wait_for_phase(event_id, "completed")

    def receipt() -> Any:
        shown = json.loads(service.cli("event", "show", event_id, "--json").stdout)
        return shown["receipt"] if shown["receipt"]["first_reads"][0]["read"] else None

    found = wait_until(receipt, "the first read is saved")

    assert found["approved_by"] == "vm0"
    assert [read["vm"] for read in found["first_reads"]] == ["vm0"]
    times = [found[key] for key in ("scheduled", "approved", "started", "ended")]
    assert times == sorted(times)
    assert found["kept"] == "not-applicable"


@needs("curl")
def test_the_lines_that_serve_prints_work_when_pasted(service: Service) -> None:
    curl = pasted(service, "curl ")
    restart = pasted(service, "forewarn --data ")
    assert Path(restart.split()[0]).name == "forewarn", "the program that is running"
    vm = restart.split()[-1]

    read = service.run(["sh", "-c", curl])
    assert json.loads(read.stdout) == {"DocumentIncarnation": 1, "Events": []}
    ordered = service.run(["sh", "-c", restart])
    assert ordered.returncode == 0, ordered.stderr
    read = service.run(["sh", "-c", curl])
    assert [event["Resources"] for event in json.loads(read.stdout)["Events"]] == [[vm]]


def test_the_command_line_needs_nothing_but_the_data_folder(service: Service) -> None:
    listed = service.cli("vm", "list", "--json")

    assert listed.returncode == 0, listed.stderr
    names = [vm["name"] for vm in json.loads(listed.stdout)["items"]]
    assert names == ["spot0", "vm0", "web_0", "web_1"]


def test_url_and_token_of_the_environment_win_over_the_data_folder(
    service: Service, tmp_path: Path
) -> None:
    address, port = service.operator_where()
    away = {
        "FOREWARN_URL": f"http://{address}:{port}",
        "FOREWARN_TOKEN": service.token(),
        "FOREWARN_DATA": str(tmp_path / "nowhere"),
    }
    command = service.run(["forewarn", "host", "list", "--json"], away)
    assert command.returncode == 0, command.stderr
    assert len(json.loads(command.stdout)["items"]) == 3

    wrong = service.cli("host", "list", environment={**away, "FOREWARN_TOKEN": "wrong"})
    assert wrong.returncode == 1
    assert "token" in wrong.stderr


def test_the_token_is_readable_by_its_owner_only(service: Service) -> None:
    assert (service.data / "operator.token").stat().st_mode & 0o077 == 0
    assert (service.data / "forewarn.db").stat().st_mode & 0o077 == 0
    assert service.data.stat().st_mode & 0o077 == 0


def test_the_last_poll_of_a_vm_is_seen_soon_and_one_that_never_polled_says_never(
    service: Service,
) -> None:
    before = service.look("vms/vm0")
    listed = service.cli("vm", "list").stdout
    service.guest("vm0").document()

    wait_until(lambda: service.look("vms/vm0")["reading"] == "reading", "its poll is known")

    assert (before["reading"], before["polled"]) == ("never", None)
    assert "LAST POLL" in listed
    assert "never" in listed
    assert service.look("vms/vm0")["polled"] is not None
    assert " ago" in service.cli("vm", "list").stdout
