"""The named statements of the store: those of `sql/queries.sql`, and a database's own words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from forewarn.text.packaged import packaged_text


@cache
def named_queries(own: str = "") -> Mapping[str, str]:
    """The statements by name. `own` is a package whose `sql/queries.sql` says some otherwise."""
    common = _read("forewarn.tables")
    if not own:
        return common
    said = _read(own)
    unknown = said.keys() - common.keys()
    if unknown:
        raise ValueError(f"queries.sql of {own}: {min(unknown)} is no query of the store")
    return {**common, **said}


def _read(package: str) -> dict[str, str]:
    """In the file each statement has a sentence of its own."""
    found: dict[str, str] = {}
    text = packaged_text(package, "sql/queries.sql")
    for block in re.split(r"^-- name: ", text, flags=re.MULTILINE)[1:]:
        name, sentence, statement = block.split("\n", 2)
        if not sentence.startswith("-- ") or name in found:
            raise ValueError(f"queries.sql: {name} needs a sentence of its own, and one place")
        found[name.strip()] = statement.strip().removesuffix(";")
    return found
