"""Draws core.lifecycle.TRANSITIONS for docs/architecture.md.

`python tests/lifecycle_diagram.py` (with the project's interpreter) rewrites the page's block;
tests/core/test_lifecycle_diagram.py fails while the block is stale.
"""

from __future__ import annotations

from pathlib import Path

from forewarn.core.lifecycle import TRANSITIONS
from forewarn.core.model import Phase

PAGE = Path(__file__).parent.parent / "docs" / "architecture.md"
OPENING = "<!-- lifecycle -->"
CLOSING = "<!-- /lifecycle -->"
REGENERATE = "python tests/lifecycle_diagram.py"


def diagram() -> str:
    """The table as a Mermaid state diagram; `[*]` is before an event's life and after it."""
    lines = ["```mermaid", "stateDiagram-v2"]
    for (phase, wanted), to in TRANSITIONS.items():
        lines.append(f"    {'[*]' if phase is None else phase.value} --> {to.value}: {wanted}")
    lines.extend(f"    {phase.value} --> [*]" for phase in Phase if phase.ended)
    return "\n".join((*lines, "```"))


def refreshed(page: str) -> str:
    """The page with the block between the marks as it should be."""
    before, opened, rest = page.partition(OPENING)
    _, closed, after = rest.partition(CLOSING)
    if not opened or not closed:
        raise ValueError(f"{PAGE.name} has no {OPENING} ... {CLOSING} block.")
    return f"{before}{OPENING}\n{diagram()}\n{CLOSING}{after}"


if __name__ == "__main__":
    PAGE.write_text(refreshed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
