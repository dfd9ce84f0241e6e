"""The stores that every contract of `ports.Store` is kept by."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn.adapters.sqlite.store import SqliteStore
from forewarn.ports import Store


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store of each kind."""
    made = (
        SqliteStore.in_folder(tmp_path / "data")
        if request.param == "file"
        else SqliteStore.in_memory()
    )
    yield made
    made.close()
