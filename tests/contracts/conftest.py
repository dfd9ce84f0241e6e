"""The stores that every contract of `ports.Store` is kept by."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from forewarn.adapters.sqlite.store import SqliteStore
from forewarn.ports import Store
from support.postgres_server import PostgresServer, leading_store, shared_server


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """The PostgreSQL that all workers of this run share."""
    own = tmp_path_factory.getbasetemp()
    with shared_server(own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) as server:
        yield server


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
