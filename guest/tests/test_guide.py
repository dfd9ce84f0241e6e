"""docs/guest.md names what people meet: log lines, facts, variables, kinds of steps."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn_guest import cli, facts
from forewarn_guest.cli_run import NO_RELOAD
from forewarn_guest.configuration import Part, Step
from forewarn_guest.document import Event
from forewarn_guest.errors import (
    BadAnswer,
    Busy,
    EndpointError,
    NotFound,
    Refused,
    Unreachable,
)
from forewarn_guest.status_writer import _kind
from forewarn_guest.step_input import StepInput
from forewarn_guest.steps import KINDS

ROOT = Path(__file__).resolve().parent.parent.parent
GUIDE = (ROOT / "docs" / "guest.md").read_text(encoding="utf-8")
PACKAGE = ROOT / "guest" / "src" / "forewarn_guest"
COMMANDS = [one for one in re.findall(r"`(forewarn-guest [^`\n]+)`", GUIDE) if "|" not in one]
# What is said, and in which argument; `once` and `over` name the subject first.
SAYS = {"info": 0, "warning": 0, "error": 0, "once": 1, "over": 1}


def section(title: str) -> str:
    """The text under a heading, to the next of the same depth."""
    found = re.search(
        rf"^(#+) {re.escape(title)}\n(.*?)(?=^\1 |\Z)", GUIDE, re.MULTILINE | re.DOTALL
    )
    assert found is not None, f"the guide has no section {title}"
    return found[2]


def log_lines() -> Iterator[str]:
    """The constant beginnings of everything that the agent's log says."""
    for path in sorted(PACKAGE.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            place = SAYS.get(node.func.attr)
            if place is None or "log" not in ast.dump(node.func.value) or len(node.args) <= place:
                continue
            said = node.args[place]
            if isinstance(said, ast.Constant) and path.name != "following.py":
                yield str(said.value).partition(" %s")[0]


def test_every_line_of_the_log_is_explained() -> None:
    said = [*log_lines(), NO_RELOAD.partition(":")[0]]
    explained = section("At 3 a.m.")
    assert len(said) > 15
    assert [line for line in said if f"`{line}" not in explained] == []


def test_every_kind_of_trouble_is_explained() -> None:
    errors: list[EndpointError] = [NotFound(""), Unreachable(""), BadAnswer("")]
    errors += [Refused("", status=400), Busy("", status=429)]
    assert {type(error) for error in errors} == set(EndpointError.__subclasses__())
    for kind in (*map(_kind, errors), "no-event", "name", "approval", "files"):
        assert f"`trouble kind={kind}`" in section("At 3 a.m.")


def test_every_fact_is_named() -> None:
    assert [
        kind.value for kind in facts.FactKind if f"`{kind.value}`" not in section("Files")
    ] == []


def test_every_variable_and_every_key_that_a_step_is_told_is_named_and_no_other() -> None:
    event = Event("A", "Reboot", "Scheduled", ("vm0",))
    step = Step("drain", "run", ("true",), 1.0)
    occasion = StepInput(event, "vm0", Part.PREPARE, step, first_named=True, left_s=1.0)
    text = section("What a step is told")
    told = {name for name in occasion.environment() if name.startswith("FOREWARN_")}
    told -= os.environ.keys()  # what the tests themselves were told
    assert set(re.findall(r"`(FOREWARN_\w+)`", text)) == told
    keys = set(re.findall(r'"(\w+)": ', occasion.given(1.0).decode()))
    first_cells = re.findall(r"^\| (`[a-z_`, ]+) \|", text, re.MULTILINE)
    assert {name for cell in first_cells for name in re.findall(r"`(\w+)`", cell)} == keys


def test_every_kind_of_step_is_described() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", section("Built-in steps"), re.MULTILINE)
    assert rows == list(KINDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_line_on_the_page_is_understood(command: str) -> None:
    words = command.split()[1:]
    cli._parser().parse_args(words)


def test_the_program_of_the_guide_is_the_example() -> None:
    (shown,) = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    example = (ROOT / "examples" / "guest-sdk" / "plain_program.py").read_text(encoding="utf-8")
    assert example.endswith(f"\n{shown}")


def test_the_ten_lines_are_the_same_on_every_page() -> None:
    pages = ("docs/guest.md", "guest/README.md", "README.md")
    texts = [(ROOT / page).read_text(encoding="utf-8") for page in pages]
    shown = {
        re.findall(r"^```toml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[0] for text in texts
    }
    assert len(shown) == 1


def test_every_module_is_on_the_map() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    modules = [path.stem for path in PACKAGE.glob("*.py") if not path.stem.startswith("__")]
    assert [name for name in modules if f"`{name}`" not in text] == []
