"""What a failing test shows of a refusal: its own line and the words, not the way they took."""

from __future__ import annotations

from typing import Any

from forewarn.core.errors import Refusal


def for_refusals(excinfo: Any) -> bool:
    """Whether pytest is about to show a refusal.

    As `__tracebackhide__` of a module it hides the lines of that module then, and only then: an
    error of ours keeps all of them. `pytest --full-trace` shows everything.
    """
    return isinstance(excinfo.value, Refusal)


def cut(refusal: Refusal) -> Refusal:
    """The refusal without where it was made, for code that raises it to a test."""
    return refusal.with_traceback(None)
