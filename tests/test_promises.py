"""`docs/promises.md` numbers what is promised; each promise names tests, and they exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "promises.md"
# A promise is a bullet or a row of a table that begins with its number.
BEGINS = re.compile(r"^(?:[-*] +|\| *)\**P(\d+)\b")
TEST_ID = re.compile(r"((?:guest/|rig/)?tests/[\w/]+\.py)::(test_\w+)")


def promises(page: str) -> dict[int, str]:
    """The promises by number, each with all lines of its bullet or row."""
    found: dict[int, str] = {}
    number: int | None = None
    for line in page.splitlines():
        begins = BEGINS.match(line)
        if begins is not None:
            number = int(begins[1])
            assert number not in found, f"P{number} is promised twice"
            found[number] = line
        elif not line.startswith("  "):
            number = None
        elif number is not None:
            found[number] += f"\n{line}"
    return found


@cache
def functions_of(file: str) -> frozenset[str]:
    """The functions of a file; none if there is no such file."""
    path = ROOT / file
    if not path.is_file():
        return frozenset()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, kinds))


def untested(page: str) -> list[int]:
    """Promises that name no test."""
    return [number for number, text in promises(page).items() if not TEST_ID.search(text)]


def missing(page: str) -> list[str]:
    """Tests that the page names and nobody wrote."""
    return [
        f"{file}::{name}" for file, name in TEST_ID.findall(page) if name not in functions_of(file)
    ]


def test_every_promise_names_a_test_and_every_test_it_names_exists() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert promises(page)
    assert untested(page) == []
    assert missing(page) == []
    # Whatever looks like a test and is not named in full would never be checked.
    assert re.findall(r"\btest_\w+\b(?!\.py`)", TEST_ID.sub("", page)) == []


def test_a_promise_without_a_test_and_a_test_that_is_not_there_are_found() -> None:
    here = "tests/test_promises.py::test_every_promise_names_a_test_and_every_test_it_names_exists"
    page = f"- **P1** kept\n  `{here}`\n- **P2** empty\n\n| P3 | row | tests/no.py::test_x |\n"

    assert list(promises(page)) == [1, 2, 3]
    assert untested(page) == [2]
    assert missing(page) == ["tests/no.py::test_x"]
    assert missing("`guest/tests/no.py::test_x`") == ["guest/tests/no.py::test_x"]


def test_a_number_is_promised_once() -> None:
    with pytest.raises(AssertionError, match="P1 is promised twice"):
        promises("- P1 one\n- P1 other\n")
