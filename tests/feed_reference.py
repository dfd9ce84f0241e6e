"""Writes the types and fields of docs/feed.md from the code.

`cd tests && PYTHONPATH=. ../.venv/bin/python -m feed_reference` rewrites the page's block;
tests/test_feed_reference.py fails while the block is stale.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from forewarn.core.facts import DETAILS
from forewarn.core.model import Detail, FactKind
from forewarn.wire.cloud_events import OPERATION_TYPES, TYPE_PREFIX, TYPES

PAGE = Path(__file__).parent.parent / "docs" / "feed.md"
OPENING = "<!-- types -->"
CLOSING = "<!-- /types -->"
REGENERATE = "cd tests && PYTHONPATH=. ../.venv/bin/python -m feed_reference"

SUBJECTS = {
    "event": "`scopes/SCOPE/events/EVENTID`",
    "operation": "`operations/ID`",
    "action": "that of its event or operation",
    "vm": "`scopes/SCOPE/vms/VM`",
    "scope": "`scopes/SCOPE`",
    "host": "`hosts/HOST`",
    "service": "none; of a downtime of a host `hosts/HOST`",
    "webhook": "none",
    "access": "none",
}


def block() -> str:
    return "\n".join((*_table(), "", *_bullets()))


def _table() -> Iterator[str]:
    yield "| type | kind of the line | subject |"
    yield "|---|---|---|"
    for kind in FactKind:
        for name in _names(kind):
            subject = SUBJECTS[name.partition(".")[0]]
            yield f"| `{TYPE_PREFIX}{name}` | `{kind.value}` | {subject} |"


def _names(kind: FactKind) -> list[str]:
    return [TYPES[kind], *([OPERATION_TYPES[kind]] if kind in OPERATION_TYPES else [])]


def _bullets() -> Iterator[str]:
    for kind in FactKind:
        detail = DETAILS[kind]
        says = " ".join((detail.__doc__ or "").split())
        yield f"- `{kind.value}`: {says}"
        fields = "; ".join(fields_of(detail)) or "its `detail` is empty"
        yield f"  Fields: {fields}."


def fields_of(detail: type[Detail]) -> Iterator[str]:
    """Each field with what it holds; those that may be missing say so."""
    hints = typing.get_type_hints(detail)
    for field in msgspec.structs.fields(detail):
        holds = _words(hints[field.name], field.encode_name)
        missing = "" if field.required else ", or not there"
        yield f"`{field.encode_name}` ({holds}{missing})"


def _words(hint: Any, name: str) -> str:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        inner = [_words(one, name) for one in arguments if one is not types.NoneType]
        return " or ".join(inner)
    if origin is tuple:
        return f"list of {_words(arguments[0], name)}"
    if origin is Mapping:
        return "object"
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return ", ".join(f"`{member.value}`" for member in hint)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return f"objects with {', '.join(f'`{one}`' for one in hint.__struct_encode_fields__)}"
    plain = {str: "text", int: "number", bool: "true or false"}[hint]
    return "milliseconds" if hint is int and name.endswith("_ms") else plain


def refreshed(page: str) -> str:
    """The page with the block between the marks as it should be."""
    before, opened, rest = page.partition(OPENING)
    _, closed, after = rest.partition(CLOSING)
    if not opened or not closed:
        raise ValueError(f"{PAGE.name} has no {OPENING} ... {CLOSING} block.")
    return f"{before}{OPENING}\n{block()}\n{CLOSING}{after}"


if __name__ == "__main__":
    PAGE.write_text(refreshed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
