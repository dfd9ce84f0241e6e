"""What is shown of one thing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console, RenderableType

from forewarn.cli import details, tables

NOW = datetime(2026, 1, 1, tzinfo=UTC)
VM: dict[str, Any] = {
    "name": "web-0",
    "scope": "web",
    "update_domain": 0,
    "host": "h1",
    "priority": "regular",
    "address": None,
    "listen": None,
    "tags": {},
    "vm_id": "web-0",
    "power": "running",
    "problem": "",
    "freeze_by_move": False,
    "when_host_goes_down": "restart",
    "enabled": False,
    "polled": None,
    "events": [],
}


def shown(**keys: object) -> str:
    console = Console(width=200, no_color=True)
    with console.capture() as captured:
        console.print(details.vm({**VM, **keys}, NOW))
    return captured.get()


@pytest.mark.parametrize(
    ("freeze_by_move", "when_host_goes_down", "words"),
    [
        (False, "restart", "a Freeze of its host pauses it; a reboot shuts it down and starts it"),
        (True, "restart", "a Freeze of its host moves it, if another host can take it; a reboot s"),
        (False, "move", "pauses it; a reboot moves it, if another host can take it"),
    ],
)
def test_a_vm_says_what_maintenance_of_its_host_does_to_it(
    freeze_by_move: bool,  # noqa: FBT001 - a parameter of the test
    when_host_goes_down: str,
    words: str,
) -> None:
    said = shown(freeze_by_move=freeze_by_move, when_host_goes_down=when_host_goes_down)
    assert words in said


def test_where_no_host_has_shown_the_vm_nothing_is_said_of_it() -> None:
    assert "host down" not in shown(freeze_by_move=None, when_host_goes_down=None)


HOST: dict[str, Any] = {
    "name": "h1",
    "health": "ok",
    "fenced": False,
    "alive": True,
    "silent_seconds": 1,
    "joined": True,
    "placement": "refusing",
    "refuses": "The document of scope web would go back.",
    "two_daemons": "",
    "hypervisor_unreachable": "",
    "capacity": None,
    "vm_count": 1,
    "open_operations": 0,
    "vms": [],
    "problems": [],
    "operations": [],
}


def printed(shown: RenderableType) -> str:
    console = Console(width=80)
    with console.capture() as caught:
        console.print(shown)
    return caught.get()


def test_a_host_that_refuses_control_is_seen_in_the_list_and_says_why_when_it_is_shown() -> None:
    now = datetime(2026, 3, 3, tzinfo=UTC)
    listed = printed(tables.hosts([HOST], now))
    assert "yes, refuses" in listed
    assert "no: refusing" in listed
    assert "The document of scope web would go back." in printed(details.host(HOST, now))

    obeys = {**HOST, "refuses": "", "placement": "open"}
    assert "refus" not in printed(tables.hosts([obeys], now))
    assert "refus" not in printed(details.host(obeys, now))


def test_a_host_as_which_two_daemons_speak_is_seen_in_the_list_and_says_what_to_do() -> None:
    now = datetime(2026, 3, 3, tzinfo=UTC)
    words = "Two daemons speak as host h1: stop one."
    host = {**HOST, "refuses": "", "two_daemons": words, "placement": "two-daemons"}
    listed = printed(tables.hosts([host], now))
    assert "yes, two daemons" in listed
    assert "no: two-daemons" in listed
    assert words in printed(details.host(host, now))
    assert "daemons" not in printed(details.host(HOST, now))
    silent = {**host, "alive": False, "silent_seconds": 20}
    assert "none for 20s" in printed(tables.hosts([silent], now))


def test_a_vm_that_may_be_on_two_hosts_names_both() -> None:
    assert "h1, or h2: its move was not reported" in shown(may_run_on="h2")
    assert "or h2" not in shown(may_run_on=None)


def test_a_vm_that_stays_off_says_so() -> None:
    stays = shown(power="off", off=True)
    assert "off by its owner: it stays off" in stays
    assert "starts it" not in stays  # which a reboot of its host does to others
    assert "stays off" not in shown(power="off", off=False)
    assert "starts it" in shown(power="off", off=False)


def test_a_host_says_which_of_its_vms_stay_off_as_the_list_does() -> None:
    vms = [{**VM, "power": "off", "off": True}, {**VM, "name": "web-1", "power": None}]

    assert "off, stays off" in printed(details.host({**HOST, "vms": vms}, NOW))
    assert "unknown" in printed(details.host({**HOST, "vms": vms}, NOW))
    # Where no host shows any, nobody asks.
    assert "unknown" not in printed(details.host({**HOST, "vms": vms[1:]}, NOW))


def applied(**keys: object) -> str:
    nothing: dict[str, list[str]] = {"added": [], "changed": [], "removed": []}
    answer = {"differs": True, "hosts": nothing, "scopes": nothing, "vms": nothing}
    console = Console(width=200, no_color=True)
    with console.capture() as captured:
        console.print(details.applied({**answer, "still_deleted": [], **keys}))
    return captured.get()


def test_what_of_an_inventory_has_to_wait_is_said() -> None:
    assert "Waits: VM a is not in the file, but an event names it." in applied(
        waiting=["VM a is not in the file, but an event names it."]
    )
    assert "Waits" not in applied()


@pytest.mark.parametrize("differs", [True, False])
def test_an_inventory_that_another_has_replaced_is_said_to_be(*, differs: bool) -> None:
    said = applied(differs=differs, replaced=True, note="Another inventory was applied since.")
    assert said.startswith("Replaced: Another inventory was applied since.")
    assert "applied last" not in said
    assert "Replaced" not in applied()
