"""The schema on PostgreSQL: the text of SQLite's migrations, where that defines tables.

A new database has no rows to convert, so of the migrations that were there before PostgreSQL only
what defines something is run. Each later one is run whole; where it says what only SQLite
understands, a file of the same number in `sql/` here says it for PostgreSQL.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module

from forewarn.text.packaged import packaged_names, packaged_text

BEFORE_POSTGRES = 20  # the last migration that was there before
_SHARED = "forewarn.adapters.sqlite"
_OWN = "forewarn.adapters.postgres"
_NUMBERED = re.compile(r"(\d{4})_\w+\.sql")
_DEFINES = re.compile(r"(CREATE|ALTER|DROP)\b", re.IGNORECASE)


def newest_version() -> int:
    """The number of the last migration of this program."""
    return max(_files())


def migration(number: int) -> str:
    """The text that brings a schema from the version before to this one."""
    package, name = _files()[number]
    text = packaged_text(package, f"sql/{name}")
    if number <= BEFORE_POSTGRES:
        text = ";\n".join(one for one in _statements(text) if _DEFINES.match(one)) + ";"
    return in_order_of_bytes(text)


def first_rows() -> str:
    """What a new database has beside the tables of the store, once those are there."""
    return in_order_of_bytes(packaged_text(_OWN, "sql/leadership.sql"))


def in_order_of_bytes(text: str) -> str:
    """Texts are compared byte by byte, as SQLite does, whatever the language of the database."""
    return re.sub(r"\bTEXT\b", 'TEXT COLLATE "C"', text)


def _files() -> dict[int, tuple[str, str]]:
    found: dict[int, tuple[str, str]] = {}
    for package in (_SHARED, _OWN):
        import_module(package)
        for name in packaged_names(package, "sql"):
            numbered = _NUMBERED.fullmatch(name)
            if numbered is not None:
                found[int(numbered[1])] = (package, name)
    return found


def _statements(text: str) -> Iterator[str]:
    plain = re.sub(r"--[^\n]*", "", text)
    yield from (one.strip() for one in plain.split(";") if one.strip())
