"""The draw of functions: it shows what they do and not where; a seed draws the same again."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.draw_functions import LINES_MIN, draw, functions

ROOT = Path(__file__).parents[2]
SOURCE = '''"""A module."""

def short():
    """Too short."""

class Thing:
    """A thing."""

    def __init__(self):
        """
        Long enough, and
        found with its class.
        """
        self.a = 1

    def said(self):
        """Say what it does,
        in one sentence.

        And more.
        """
        return self.a

def unsaid(a):
    if a:
        return unsaid(a - 1)
    b = a
    c = b
    return c
'''


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "src/forewarn/core").mkdir(parents=True)
    (tmp_path / "src/forewarn/core/thing.py").write_text(SOURCE)
    return tmp_path


def test_functions_with_lines_enough_are_found_with_what_they_do(tree: Path) -> None:
    found = {one.name: one for one in functions(tree)}
    assert set(found) == {"said", "unsaid"}
    assert found["said"].path == "src/forewarn/core/thing.py"
    assert found["said"].does == "[A thing.] Say what it does, in one sentence."


def test_a_function_without_a_docstring_shows_its_body_and_not_its_name(tree: Path) -> None:
    (unsaid,) = (one for one in functions(tree) if one.name == "unsaid")
    assert "return ___(a - 1)" in unsaid.does
    assert "unsaid" not in unsaid.does


def test_the_same_seed_draws_the_same_and_another_seed_others() -> None:
    everything = functions(ROOT)
    assert len(everything) > 1000
    assert LINES_MIN > 1
    drawn = draw(everything, "a", 24)
    assert drawn == draw(everything, "a", 24)
    assert len(set(drawn)) == 24
    assert drawn != draw(everything, "b", 24)
