"""The picture of an event's life in docs/architecture.md is drawn from the transition table."""

from __future__ import annotations

import pytest

from forewarn.core.lifecycle import TRANSITIONS
from forewarn.core.model import Phase
from lifecycle_diagram import CLOSING, OPENING, PAGE, REGENERATE, diagram, refreshed


def test_the_picture_in_the_architecture_page_is_the_table() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert refreshed(page) == page, (
        f"The lifecycle picture in docs/architecture.md is stale; run `{REGENERATE}`."
    )


def test_the_picture_shows_every_move_and_every_end() -> None:
    lines = diagram().splitlines()
    arrows = [line for line in lines if "-->" in line]
    ends = [phase for phase in Phase if phase.ended]
    assert len(arrows) == len(TRANSITIONS) + len(ends)
    assert "    scheduled --> started: start" in lines
    assert "    [*] --> started: declare" in lines


def test_a_stale_picture_is_replaced_and_the_rest_of_the_page_stays() -> None:
    stale = f"# Before\n{OPENING}\nold\n{CLOSING}\nafter\n"
    assert refreshed(stale) == f"# Before\n{OPENING}\n{diagram()}\n{CLOSING}\nafter\n"


def test_a_page_without_the_block_is_refused() -> None:
    with pytest.raises(ValueError, match="block"):
        refreshed("# Nothing here\n")
