"""A plugin of pytest that writes down which tests were skipped, one id in a line.

`pytest @FILE` runs them again. It lives here as it needs nothing but pytest, on every Python that
the guest's tests run on.
"""

from __future__ import annotations

from pathlib import Path

import pytest

OPTION = "--skipped-to"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(OPTION, metavar="FILE", help="write the ids of the skipped tests to this file")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption(OPTION)
    if path and not hasattr(config, "workerinput"):  # a worker of xdist reports to its controller
        config.pluginmanager.register(_Skipped(Path(path)))


class _Skipped:
    """Collects the ids; an empty file says that everything ran."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ids: dict[str, None] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report)  # a module that skips itself

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            self._ids[report.nodeid] = None

    def pytest_sessionfinish(self) -> None:
        self._path.write_text("".join(f"{one}\n" for one in self._ids), encoding="utf-8")
