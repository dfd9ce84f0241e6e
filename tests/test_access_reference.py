"""docs/access.md has every route with what each role may do there, as the code has it."""

from __future__ import annotations

from access_reference import PAGE, REGENERATE, refreshed


def test_the_table_of_routes_and_roles_says_what_the_code_says() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == refreshed(page), f"docs/access.md is stale; run `{REGENERATE}`."
