"""One rig for a whole run of tests; a machine that cannot have one skips them and says why."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from rig.building import Rig
from rig.lifecycles import Lifecycle, Lifecycles, table
from rig.needs import CannotBuild
from rig.service import Service

_DONE = pytest.StashKey[list[Lifecycle]]()
_FAULTS = pytest.StashKey[list[tuple[str, str]]]()


LIFECYCLES_VARIABLE = "FOREWARN_RIG_LIFECYCLES"
LIFECYCLES_DEFAULT = 10
LONG_FROM = 100  # so many lifecycles and more: the long run, with every fault


def lifecycles_wanted() -> int:
    return int(os.environ.get(LIFECYCLES_VARIABLE, str(LIFECYCLES_DEFAULT)))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "long: only in the long run (make test-rig LIFECYCLES=100)")
    config.stash[_DONE] = []
    config.stash[_FAULTS] = []


@pytest.fixture(scope="session")
def rig() -> Iterator[Rig]:
    try:
        whole = Rig()
    except CannotBuild as why:
        pytest.skip(str(why))
    with whole:
        yield whole


@pytest.fixture(scope="session")
def running(rig: Rig) -> Iterator[Service]:
    """Control and both hosts, started once."""
    service = Service(rig)
    try:
        service.start_control()
        for name in rig.hypervisors:
            service.start_host(name)
        yield service
    finally:
        service.close()


@pytest.fixture
def service(running: Service) -> Iterator[Service]:
    """Forewarn as it should be, whatever the test before has done to it; no guests."""
    running.heal()
    running.remove_guests()  # what a test without Forewarn has left is still in its inventory
    yield running
    running.heal()
    running.remove_guests()


@pytest.fixture
def lifecycles(service: Service, request: pytest.FixtureRequest) -> Iterator[Lifecycles]:
    """Orders and their judge. What was done is counted in the table at the end."""
    whole = Lifecycles(service)
    yield whole
    request.config.stash[_DONE].extend(whole.done)


@pytest.fixture
def fault(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """What a fault has led to, in words, for the table at the end."""
    words: list[str] = []
    yield words
    request.config.stash[_FAULTS].append((request.node.name, " ".join(words)))


@pytest.fixture(scope="session")
def wanted() -> int:
    """How many lifecycles are wanted."""
    return lifecycles_wanted()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if lifecycles_wanted() >= LONG_FROM:
        return
    reason = f"part of the long run: make test-rig LIFECYCLES={LONG_FROM}"
    for item in items:
        if item.get_closest_marker("long") is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """A test that fails shows the ends of all logs, which are gone with the rig."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    service = getattr(item, "funcargs", {}).get("service")
    if report.when == "call" and report.failed and isinstance(service, Service):
        report.sections += [(f"the end of {name}", text) for name, text in service.logs().items()]


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    done = config.stash[_DONE]
    if done:
        terminalreporter.write_sep("-", "lifecycles")
        terminalreporter.write_line(table(done))
    if config.stash[_FAULTS]:
        terminalreporter.write_sep("-", "faults")
        terminalreporter.write_line("| fault | what came of it |\n|---|---|")
        for name, words in config.stash[_FAULTS]:
            terminalreporter.write_line(f"| {name} | {words or 'did not get so far'} |")
