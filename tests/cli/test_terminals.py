"""What fits a terminal: ids are whole, and the live view is no higher than the screen."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from support.cli_runner import at, forewarn
from support.operator_world import FLEET, OperatorWorld, running

LONG = "a-scope-with-a-name-that-was-thought-about-for-quite-some-time-0"
TERMINAL = {"FORCE_COLOR": "1", "TERM": "dumb"}  # it is one, and obeys nothing


@pytest.fixture
def world() -> Iterator[OperatorWorld]:
    with running() as world:
        yield world


def on_terminal(world: OperatorWorld, columns: int, lines: int, *arguments: str) -> list[str]:
    size = {"COLUMNS": str(columns), "LINES": str(lines)}
    return forewarn(*arguments, environment={**at(world), **TERMINAL, **size}).out.splitlines()


def with_vms(world: OperatorWorld, count: int, name: str = "m") -> None:
    many = "".join(
        f'[[vm]]\nname = "{name}{n}"\nhost = "h3"\naddress = "10.1.{n // 200}.{n % 200}"\n'
        for n in range(count)
    )
    assert world.call("POST", "/v1/inventory", FLEET + many).status == 200


@pytest.mark.parametrize("columns", [50, 60, 80, 132])
def test_an_id_is_on_one_line_and_on_the_terminal(world: OperatorWorld, columns: int) -> None:
    with_vms(world, 1, LONG[:-1])
    operation = world.order("/v1/hosts/h3/maintain", {"event_type": "Reboot"})
    operation_id = operation["operation_id"]
    (event_id,) = [e["event_id"] for e in operation["events"] if e["scope"] != "spotty"]

    for command in (
        ("event", "list"),
        ("operation", "show", operation_id),
        ("journal", "--event", event_id),
        ("watch", "--for", "0"),
        ("event", "explain", event_id),
    ):
        lines = on_terminal(world, columns, 40, *command)
        wanted = operation_id if "operation" in command else event_id
        assert any(wanted[:8] in line[:columns] for line in lines), command
    refusal = forewarn(
        "event", "show", "9" * 36, environment={**at(world), **TERMINAL, "COLUMNS": str(columns)}
    ).err
    assert any("9" * 36 in line[:columns] for line in refusal.splitlines())


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (60, 20), (200, 50), (80, 12)])
def test_the_live_view_counts_all_and_is_no_higher_than_the_screen(
    world: OperatorWorld, columns: int, lines: int
) -> None:
    with_vms(world, 540)
    world.order("/v1/hosts/h3/maintain", {"event_type": "Reboot"})
    world.order("/v1/hosts/h1/maintain", {"event_type": "Freeze"})

    shown = on_terminal(world, columns, lines, "watch", "--for", "0")

    view = shown[max(n for n, line in enumerate(shown) if line.startswith("Forewarn  ")) :]
    assert len(view) <= lines
    assert "543 open events, 2" in view[0]
    end = next((n for n, line in enumerate(view) if line.startswith("OPERATION")), len(view))
    rows = [line for line in view[:end] if re.match(r"[0-9A-F]{8}  (Reboot|Freeze)", line)]
    rest = next(line for line in view[:end] if line.startswith("... and "))
    assert len(rows) >= 1
    assert int(rest.split()[2]) + len(rows) == 543
