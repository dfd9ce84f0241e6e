"""What every process of a test run shares: the number that new worlds of the simulation come from.

The first process draws it before it starts the others, which find it in their environment.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from simulation import seeds

if TYPE_CHECKING:
    from support.postgres_server import PostgresServer


def pytest_configure() -> None:
    seeds.draw()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Play the worlds of the simulation first: they take longest, and would be waited for alone."""
    items.sort(key=lambda item: "simulation/test_simulation.py" not in item.nodeid)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which worlds were new, also when all is well."""
    played = (
        "simulation/test_simulation.py" in getattr(report, "nodeid", "")
        for reports in terminalreporter.stats.values()
        for report in reports
    )
    if any(played):
        terminalreporter.section("simulation")
        terminalreporter.write_line(seeds.told())


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """The PostgreSQL that all workers of this run share."""
    from support.postgres_server import shared_server  # noqa: PLC0415 - few tests need it

    own = tmp_path_factory.getbasetemp()
    with shared_server(own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) as server:
        yield server
