"""One command of the command line imports what it needs, and not the service."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator

import pytest

from support.cli_runner import at
from support.operator_world import OperatorWorld, running

LIMIT_S = 60  # only ends a hang

# Runs the command, then says on the last line of its errors which modules it has imported.
TOLD = """
import sys
from forewarn.cli.main import main
try:
    main(sys.argv[1:])
finally:
    sys.stderr.write("\\n" + " ".join(sys.modules))
"""

# Whole rooms, and libraries, that no question to a service needs.
FORBIDDEN = (
    *("forewarn.control", "forewarn.api", "forewarn.host", "forewarn.adapters", "forewarn.wiring"),
    *("forewarn.endpoint", "forewarn.settings", "forewarn.settings_loader", "forewarn.verify"),
    *("starlette", "uvicorn", "uvloop", "httptools", "structlog", "prometheus_client"),
    *("cryptography", "httpcore", "jwt", "asyncio", "sqlite3", "libvirt", "xml"),
)
# Of ours: 17 to 23 today for what asks about the fleet. Each costs a millisecond.
OWN_MODULES_MAX = 30


def imported(world: OperatorWorld, *arguments: str) -> list[str]:
    ran = subprocess.run(
        [sys.executable, "-c", TOLD, *arguments],
        env=at(world),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stderr.rsplit("\n", 1)[1].split()


def is_within(module: str, rooms: Iterable[str]) -> bool:
    """Whether it is one of them or in one, and does not only begin like one."""
    return any(module == one or module.startswith(f"{one}.") for one in rooms)


@pytest.fixture(scope="module")
def world() -> Iterator[OperatorWorld]:
    with running() as world:
        yield world


@pytest.mark.parametrize(
    "arguments",
    [
        ("vm", "list"),
        ("vm", "list", "--json"),
        ("vm", "restart", "web-1"),
        ("host", "list"),
        ("event", "list"),
        ("operation", "list"),
        ("scope", "list"),
        ("journal",),
        ("watch", "--help"),
        ("clock", "--help"),
        ("--version",),
    ],
    ids=" ".join,
)
def test_a_command_imports_none_of_the_service(
    world: OperatorWorld, arguments: tuple[str, ...]
) -> None:
    modules = imported(world, *arguments)
    assert [one for one in modules if is_within(one, FORBIDDEN)] == []
    own = [one for one in modules if one.split(".")[0] == "forewarn"]
    assert len(own) <= OWN_MODULES_MAX, own


@pytest.mark.parametrize("arguments", [("scenario", "list"), ("fault", "--help")], ids=" ".join)
def test_commands_of_the_emulator_import_none_of_control(
    world: OperatorWorld, arguments: tuple[str, ...]
) -> None:
    modules = imported(world, *arguments)
    heavy = ("forewarn.control.control", "forewarn.control.writer", "forewarn.adapters", "asyncio")
    assert [one for one in modules if is_within(one, heavy)] == []
