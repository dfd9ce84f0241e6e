"""The reference pages of scenarios, faults and checks are made from the code, and not stale."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator_reference import (
    DOCS,
    LEVELS,
    NARROWS,
    ORDERS,
    PAGES,
    REGENERATE,
    checks_page,
    emulator_page,
    emulator_routes,
)
from forewarn.emulator.faults.kinds import KINDS
from forewarn.emulator.faults.orders import SELECTORS
from forewarn.emulator.scenarios import library
from forewarn.emulator.scenarios.keys import KEYS
from forewarn.emulator.scenarios.values import Verb
from forewarn.verify.check import Level
from forewarn.verify.table import CHECKS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_page_says_what_the_code_says(page: Path) -> None:
    assert page.read_text(encoding="utf-8") == PAGES[page](), (
        f"docs/{page.name} is stale; run `{REGENERATE}`."
    )


def test_every_scenario_key_fault_and_route_is_on_the_page() -> None:
    text = emulator_page()
    for name in library.names():
        assert f"\n### {name}\n" in text
    for word in (*KEYS, *KINDS, *SELECTORS):
        assert f"| `{word}` |" in text
    for route in emulator_routes():
        assert f"| {route.method} | `{route.path}` |" in text


def test_every_check_is_on_the_page_once() -> None:
    text = checks_page()
    assert [text.count(f"| `{check.id}` |") for check in CHECKS] == [1] * len(CHECKS)


def test_every_word_of_the_code_is_explained() -> None:
    assert set(ORDERS) == set(Verb)
    assert set(NARROWS) == set(SELECTORS)
    assert set(LEVELS) == set(Level)


def test_the_page_of_the_operator_api_leads_to_the_routes_of_the_emulator() -> None:
    page = (DOCS / "operator-api.md").read_text(encoding="utf-8")
    for route in emulator_routes():
        assert f"`{route.path}`" in page, f"docs/operator-api.md does not name {route.path}."
