"""How a refusal shows what the caller wrote, and what was probably meant. Words only."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

MISTAKES_NAMED_MAX = 20
SHOWN_CHARS_MAX = 64
NAMES_SHOWN_MAX = 40
NAMES_COMPARED_MAX = 2_000  # more would take a noticeable time


def shown(value: object) -> str:
    """A value of a TOML file or of the environment, in one short line."""
    if isinstance(value, str):
        text = _printable(json.dumps(value[: SHOWN_CHARS_MAX + 1], ensure_ascii=False))
    elif isinstance(value, bool):
        text = str(value).lower()
    else:
        text = repr(value)
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}..."


def _printable(text: str) -> str:
    """What a terminal must not obey is written as its number; JSON leaves some of that as it is."""
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)


def first_of(mistakes: Sequence[str], what: str = " mistakes") -> list[str]:
    """The first MISTAKES_NAMED_MAX of them, and how many more there are."""
    more = len(mistakes) - MISTAKES_NAMED_MAX
    rest = [f"... and {more} more{what}."] if more > 0 else []
    return [*mistakes[:MISTAKES_NAMED_MAX], *rest]


def meant(word: str, known: Iterable[str]) -> str:
    """A sentence that names the closest known word, or, if none is close, what there is."""
    names = list(known)
    close = get_close_matches(word, names, n=1) if len(names) <= NAMES_COMPARED_MAX else []
    if close:
        return f"Did you mean {close[0]}?"
    if not names:
        return "There are none."
    more = len(names) - NAMES_SHOWN_MAX
    rest = f" and {more} more" if more > 0 else ""
    return f"There are: {', '.join(names[:NAMES_SHOWN_MAX])}{rest}."
