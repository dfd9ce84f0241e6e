"""Writes the table of routes and roles of docs/access.md from the route tables.

`cd tests && PYTHONPATH=. ../.venv/bin/python -m access_reference` rewrites the page's block;
tests/test_access_reference.py fails while the block is stale.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from forewarn.api.console.page_routes import PageRoute
from forewarn.api.route_table import RouteSpec
from forewarn.core.access import Role
from support import every_route

PAGE = Path(__file__).parent.parent / "docs" / "access.md"
OPENING = "<!-- rights -->"
CLOSING = "<!-- /rights -->"
REGENERATE = "cd tests && PYTHONPATH=. ../.venv/bin/python -m access_reference"
HEAD = (
    "| " + " | ".join(("route", "right", *(role.value for role in Role))) + " |",
    "|---" * 6 + "|",
)


def block() -> str:
    forms = set(every_route.forms())
    parts: tuple[tuple[str, Iterator[str]], ...] = (
        ("Every service:", _routes(every_route.of_every_service(), forms)),
        ("`forewarn control`:", _routes(every_route.of_a_control(), forms)),
        ("`forewarn simulate`:", _routes(every_route.of_an_emulator(), forms)),
        ("Pages of the console:", _pages(every_route.pages())),
    )
    return "\n\n".join("\n".join((title, "", *HEAD, *rows)) for title, rows in parts)


def _routes(specs: Iterable[RouteSpec], forms: set[str]) -> Iterator[str]:
    for spec in specs:
        button = " (and a form of the console)" if spec.name in forms else ""
        marks = " | ".join(every_route.may(spec, role) for role in Role)
        yield f"| {spec.method} `{spec.path}`{button} | `{spec.right.value}` | {marks} |"


def _pages(pages: Iterable[PageRoute]) -> Iterator[str]:
    for page in pages:
        method = "POST" if page.methods == {"POST"} else "GET"
        marks = " | ".join(every_route.may(page, role) for role in Role)
        yield f"| {method} `{page.path}` | `{page.right.value}` | {marks} |"


def refreshed(page: str) -> str:
    """The page with its block as the code has it."""
    before, opening, rest = page.partition(OPENING)
    _, closing, after = rest.partition(CLOSING)
    assert opening, f"{PAGE} has no block for the table"
    assert closing, f"{PAGE} has a block that does not end"
    return f"{before}{OPENING}\n{block()}\n{CLOSING}{after}"


if __name__ == "__main__":
    PAGE.write_text(refreshed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
