"""Every statement of the store by name: those of `sql/queries.sql`, and those made from columns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from forewarn.adapters.sqlite.rows import WRITES
from forewarn.text.packaged import packaged_text


@cache
def named_queries() -> Mapping[str, str]:
    """The statements by name. In the file each has a sentence of its own."""
    text = packaged_text("forewarn.adapters.sqlite", "sql/queries.sql")
    found = dict(WRITES)
    for block in re.split(r"^-- name: ", text, flags=re.MULTILINE)[1:]:
        name, sentence, statement = block.split("\n", 2)
        if not sentence.startswith("-- ") or name in found:
            raise ValueError(f"queries.sql: {name} needs a sentence of its own, and one place")
        found[name.strip()] = statement.strip()
    return found
