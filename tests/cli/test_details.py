"""What is shown of one thing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from forewarn.cli import details

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
