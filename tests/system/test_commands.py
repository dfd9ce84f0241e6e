"""Every command of the command line against a real service, with and without `--json` last."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.cli_runner import forewarn
from support.events import KEYS_OF_AN_EVENT
from support.system_world import FLEET, QUICK, Service, running
from support.waiting import wait_until


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with running(tmp_path) as service:
        for vm in ("web_0", "vm0", "spot0"):
            service.guest(vm).document()
        yield service


def said(service: Service, *arguments: str) -> str:
    """What a command prints for people."""
    done = service.cli(*arguments)
    assert done.returncode == 0, f"{arguments}: {done.stderr}"
    assert done.stderr == ""
    return done.stdout


def told(service: Service, *arguments: str) -> Any:
    """What a command prints for programs: one JSON document and nothing else."""
    return json.loads(said(service, *arguments, "--json"))


def both(service: Service, *arguments: str) -> tuple[str, Any]:
    """The same command for people, then for programs."""
    return said(service, *arguments), told(service, *arguments)


def test_every_view_is_a_table_for_people_and_json_for_programs(service: Service) -> None:
    event_id = service.order("vms/vm0/restart")["event_id"]
    operation = service.order("hosts/h2/maintain", {"event_type": "Freeze", "not_before": "+2h"})
    host_feed = {
        ("vm", "list"): "web_1",
        ("vm", "show", "vm0"): event_id,
        ("host", "list"): "h3",
        ("host", "show", "h2"): "web_1",
        ("event", "list"): event_id,
        ("event", "show", event_id): "vm0",
        ("event", "explain", event_id): "approve",
        ("operation", "list"): operation["operation_id"],
        ("operation", "show", operation["operation_id"]): "Freeze",
        ("operation", "explain", operation["operation_id"]): "web",
        ("scope", "list"): "web",
        ("scope", "show", "web"): "web_1",
        ("journal",): event_id,
        ("journal", "--scope", "vm0"): event_id,
    }

    for view, word in host_feed.items():
        # In this process: to start Python so often takes minutes on a busy machine.
        people, programs = (
            forewarn("--data", str(service.data), *view, *more) for more in ((), ("--json",))
        )
        assert (people.code, people.err, programs.code, programs.err) == (0, "", 0, ""), view
        assert word[:8] in people.out, f"{view}: {people.out}"
        assert word in json.dumps(programs.json), f"{view}: {programs.out}"
        assert isinstance(programs.json, dict)


@pytest.mark.parametrize(
    ("verb", "vm", "event_type", "source"),
    [
        ("restart", "vm0", "Reboot", "User"),
        ("redeploy", "web_0", "Redeploy", "User"),
        ("delete", "vm0", "Terminate", "User"),
        ("evict", "spot0", "Preempt", "Platform"),
    ],
)
def test_an_order_for_a_vm_shows_its_event_and_repeated_the_same_one(
    service: Service, verb: str, vm: str, event_type: str, source: str
) -> None:
    text, event = both(service, "vm", verb, vm)

    assert event.keys() >= KEYS_OF_AN_EVENT
    assert event["event_id"] in text
    assert (event["event_type"], event["event_source"]) == (event_type, source)
    assert (event["phase"], event["resources"]) == ("scheduled", [vm])
    [seen] = service.guest(vm).events().values()
    assert (seen["EventId"], seen["EventType"]) == (event["event_id"], event_type)


def test_only_spot_vms_can_be_evicted(service: Service) -> None:
    refused = service.cli("vm", "evict", "vm0")
    assert refused.returncode == 1
    assert "spot" in refused.stderr
    assert refused.stdout == ""


def test_the_orders_of_an_event_approve_cancel(service: Service) -> None:
    approved = told(service, "vm", "restart", "vm0")["event_id"]
    assert approved in said(service, "event", "approve", approved, "--reason", "a test")
    service.wait_for_phase(approved, "completed")
    canceled = told(service, "vm", "restart", "vm0")["event_id"]
    assert told(service, "event", "cancel", canceled[:8])["phase"] == "canceled"
    assert service.guest("vm0").events() == {}
    assert told(service, "event", "list")["items"] == []
    listed = told(service, "event", "list", "--all")["items"]
    assert {event["event_id"] for event in listed} == {approved, canceled}


def test_the_orders_of_a_host_close_open_degrade_repair_fail(service: Service) -> None:
    assert told(service, "host", "close", "h1")["closed"] is True
    assert "h1" in said(service, "host", "open", "h1")
    assert told(service, "host", "show", "h1")["closed"] is False

    degraded = told(service, "host", "degrade", "h1")
    assert {event["event_type"] for event in degraded["events"]} == {"Redeploy"}
    assert "h1" in said(service, "host", "repair", "h1")

    failed = told(service, "host", "fail", "h3")
    assert [event["phase"] for event in failed["events"]] == ["started"]
    [seen] = service.guest("spot0").events().values()
    assert (seen["EventStatus"], seen["EventType"]) == ("Started", "Reboot")
    assert "h3" in said(service, "host", "repair", "h3")
    wait_until(lambda: not service.guest("spot0").events(), "the VM is back")


@pytest.mark.parametrize("event_type", ["Freeze", "Reboot", "Redeploy"])
def test_maintaining_a_host_tells_every_scope_on_it(service: Service, event_type: str) -> None:
    operation = told(service, "host", "maintain", "h1", "--type", event_type)

    assert {event["scope"] for event in operation["events"]} == {"web", "vm0"}
    for event in operation["events"]:
        assert event.keys() >= KEYS_OF_AN_EVENT
        [vm] = event["resources"]
        [seen] = service.guest(vm).events().values()
        assert (seen["EventType"], seen["EventSource"]) == (event_type, "Platform")


def test_a_host_with_two_domains_needs_break_domains(tmp_path: Path) -> None:
    with running(tmp_path, fleet=FLEET.replace('host = "h2"', 'host = "h1"')) as service:
        order = ("host", "maintain", "h1", "--type", "Reboot", "--not-before", "+3h")

        refused = service.cli(*order)
        assert refused.returncode == 1
        assert "domain" in refused.stderr

        assert "h1" in said(service, *order, "--break-domains", "--reason", "it cannot wait")


def test_a_scope_is_held_after_a_failed_event_until_it_is_released(tmp_path: Path) -> None:
    with running(tmp_path, settings={**QUICK, "FOREWARN_REBOOT_SECONDS": "5"}) as service:
        service.guest("web_0").document()
        early = service.cli("scope", "release", "web")
        assert early.returncode == 1
        assert "is not held" in early.stderr
        failing = service.order("hosts/h2/maintain", {"event_type": "Reboot"})["events"][0]
        service.order(f"events/{failing['event_id']}/approve", {"reason": "a test"})
        service.wait_for_phase(failing["event_id"], "started")
        service.order("hosts/h2/fail")  # in the middle of its reboot
        service.order("hosts/h2/repair")
        wait_until(lambda: not service.guest("web_1").events(), "the VM of the host is back")

        next_one = told(service, "host", "maintain", "h1", "--type", "Freeze")["events"]
        for event in next_one:
            said(service, "event", "approve", event["event_id"], "--reason", "a test")
        [webs] = [event["event_id"] for event in next_one if event["scope"] == "web"]
        assert "scope release web" in said(service, "event", "explain", webs)
        assert service.look("scopes/web")["hold"]["event_id"] == failing["event_id"]
        assert service.look(f"events/{webs}")["phase"] == "scheduled"

        assert told(service, "scope", "release", "web")["hold"] is None
        service.wait_for_phase(webs, "completed")


def test_the_journal_can_be_followed(service: Service) -> None:
    command = ["forewarn", "--data", str(service.data), "journal", "--follow", "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=service.environment
    ) as following:
        assert following.stdout is not None
        try:
            first = json.loads(following.stdout.readline())
            assert first["number"] == 1
            event_id = service.order("vms/vm0/restart")["event_id"]
            for line in following.stdout:
                if json.loads(line)["event_id"] == event_id:
                    break
        finally:
            following.kill()


def test_an_inventory_can_be_applied_while_it_runs(service: Service, tmp_path: Path) -> None:
    more = tmp_path / "more.toml"
    more.write_text(f'{FLEET}\n[[vm]]\nname = "late"\nhost = "h2"\nlisten = "127.0.0.1:0"\n')

    answer = told(service, "inventory", "apply", str(more))

    assert "late" in json.dumps(answer)
    assert service.look("vms/late")["host"] == "h2"
    again = said(service, "inventory", "apply", str(more))
    assert "late" not in again


def test_backup_and_restore_say_what_they_did(service: Service, tmp_path: Path) -> None:
    first, second = tmp_path / "first.db", tmp_path / "second.db"
    assert str(first) in said(service, "backup", str(first))
    assert told(service, "backup", str(second))["bytes"] == second.stat().st_size
    assert service.stop() == 0

    assert "3 scopes" in said(service, "restore", str(first), "--force")
    assert told(service, "restore", str(second), "--force")["scopes"] == 3


def test_what_does_not_exist_is_refused_by_name_and_misuse_is_another_exit_code(
    service: Service,
) -> None:
    missing = service.cli("vm", "show", "nemo")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert "nemo" in missing.stderr
    assert service.cli("vm", "paint", "vm0").returncode == 2
    assert service.cli("host", "maintain", "h1", "--type", "Dance").returncode == 2
