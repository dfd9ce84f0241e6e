"""Text for people at a terminal. What comes from a document is shown without anything that could
move a cursor or ring a bell.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from forewarn_guest.document import Document, Event
from forewarn_guest.facts import event_json

CELL_CHARS_MAX = 120
RESOURCES_SHOWN_MAX = 10


def say(*lines: str) -> None:
    """Write lines to standard output, at once."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def say_json(value: Any, *, indent: int | None = 1) -> None:
    """Write a value to standard output as JSON, at once."""
    say(json.dumps(value, indent=indent))


def warn(text: str) -> None:
    """Write a line to standard error."""
    sys.stderr.write(f"{plain(text, 10_000)}\n")


def plain(text: str, most: int = CELL_CHARS_MAX) -> str:
    """The text on one line, cut short, with a ? for everything that is not printed."""
    shown = "".join(letter if letter.isprintable() else "?" for letter in text[:most])
    return shown + ("..." if len(text) > most else "")


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines with columns under each other."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows
    ]


def counted(number: int, what: str) -> str:
    """So many of something: 1 rule, 2 rules."""
    return f"{number} {what}" + ("" if number == 1 else "s")


def instant(at: datetime | None) -> str:
    """A time in UTC, to the second."""
    return "-" if at is None else at.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ")


def names(event: Event) -> str:
    """The resources of an event, the first few of many."""
    shown = [plain(name) for name in event.resources[:RESOURCES_SHOWN_MAX]]
    more = len(event.resources) - len(shown)
    return " ".join(shown) + (f" and {more} more" if more else "")


def event_shown(event: Event, document: Document, vm: str) -> dict[str, Any]:
    """An event as `--json` has it."""
    return {
        **event_json(event),
        "names_this_vm": bool(vm) and event.names(vm),
        "seconds_left": document.seconds_left(event),
    }
