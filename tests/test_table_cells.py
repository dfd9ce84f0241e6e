"""A table cell holds one sentence; what needs more words stands below the table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "guest/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
# Two columns of that many characters are what a wide terminal has for a row, wrapped once.
CELL_CHARS_MAX = 160
# Cells that are left as they are, and how many at most: a row of words is not a row of a guide.
LEFT = {"docs/glossary.md": 4}
FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
CELLS = re.compile(r"(?<!\\)\|")
TARGET = re.compile(r"\]\([^)]*\)")
CODE = re.compile(r"`[^`]*`")
ENDS = re.compile(r"(?<=[\w)\]\"])[.!?]\)?\s+\S")


def cells(text: str) -> Iterator[str]:
    """Every cell of every table, as a reader sees it: without where its links lead."""
    for line in FENCE.sub("", text).splitlines():
        if line.startswith("|"):
            for cell in CELLS.split(line.strip().strip("|")):
                yield TARGET.sub("]", cell.strip())


def too_much(text: str) -> list[str]:
    """The cells with more than one sentence or too many characters."""
    return [
        cell
        for cell in cells(text)
        if len(cell) > CELL_CHARS_MAX or ENDS.search(CODE.sub("code", cell))
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_table_cell_holds_one_sentence(page: Path) -> None:
    found = too_much(page.read_text(encoding="utf-8"))
    assert found[LEFT.get(page.relative_to(ROOT).as_posix(), 0) :] == []


def test_a_cell_with_two_sentences_and_one_that_is_too_long_are_found() -> None:
    assert too_much("| a | One sentence. Another one |\n") == ["One sentence. Another one"]
    assert too_much("| a | Look at `it`. Then mend it |\n") == ["Look at `it`. Then mend it"]
    assert too_much(f"| {'long ' * 40} |\n") != []


def test_code_links_patterns_and_what_is_no_table_are_left_alone() -> None:
    fine = (
        "| `one. Two. Three.` | ends with a stop. |\n"
        f"| [a link](https://example.net/{'a' * 200}) | letters, _, . and - |\n"
        "```\n| a. B. C |\n```\n"
        "A text. With sentences | and a bar.\n"
    )
    assert too_much(fine) == []
