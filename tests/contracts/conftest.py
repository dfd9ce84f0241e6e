"""The stores that every contract of `ports.Store` is kept by."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from forewarn.adapters.sqlite.store import SqliteStore
from forewarn.ports import Store
from support.postgres_server import leading_store


@pytest.fixture(params=["file", "memory", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store of each kind."""
    if request.param == "postgres":
        with leading_store(request.getfixturevalue("postgres")) as made:
            yield made
        return
    in_file = request.param == "file"
    with closing(
        SqliteStore.in_folder(tmp_path / "data") if in_file else SqliteStore.in_memory()
    ) as store:
        yield store
