"""Fixtures: `cloud` and `make_cloud` for one test, `session_cloud` and `reset_cloud` for many.

The marker `cloud` says what fleet a test needs; `cloud_arguments` says it for the whole session.

Loaded by every pytest that finds Forewarn installed: nothing of it is imported before a test asks.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Unpack

import pytest

if TYPE_CHECKING:
    from forewarn.testing import Cloud, CloudArguments

HTML_SETTING = "forewarn_html"
FILE_CHARS_MAX = 150  # of the name of a test in the name of its page
_MADE: pytest.StashKey[list[Cloud]] = pytest.StashKey()  # what `make_cloud` has started

MARKER = (
    "cloud(vms=, scopes=, inventory=, seed=, start=, clock=, ...): what the fixture `cloud`"
    ' emulates, like scopes=["web:3"]; forewarn.testing.CloudWords has every word'
)


class MakeCloud(Protocol):
    """What the fixture `make_cloud` is: each call starts one more cloud."""

    def __call__(self, **words: Unpack[CloudArguments]) -> Cloud: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option and the setting that say where reports of failed tests go."""
    said = "a page for each failed test that has a cloud: timeline, documents, journal"
    parser.getgroup("forewarn").addoption("--forewarn-html", metavar="DIR", help=f"Write {said}.")
    parser.addini(HTML_SETTING, f"A folder with {said}; relative to the root of the tests.")


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", MARKER)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Write the story of each cloud of a test that has failed, while they are still there."""
    report = yield
    folder = _html_folder(item.config)
    if report.failed and folder is not None:
        for number, cloud in enumerate(_clouds_of(item)):
            report.sections.append(("forewarn", _written(cloud, item, report, folder, number)))
    return report


def _html_folder(config: pytest.Config) -> Path | None:
    said = config.getoption("--forewarn-html")
    if said:
        return config.invocation_params.dir / str(said)
    set_to = str(config.getini(HTML_SETTING))
    return config.rootpath / set_to if set_to else None


def _clouds_of(item: pytest.Item) -> list[Cloud]:
    """Those that its fixtures have made or given it, each once, and none that has ended."""
    if "forewarn.testing" not in sys.modules:
        return []
    from forewarn.testing import Cloud  # noqa: PLC0415 - not before a test asks

    given = [one for one in getattr(item, "funcargs", {}).values() if isinstance(one, Cloud)]
    found = {id(one): one for one in [*given, *item.stash.get(_MADE, [])]}
    return [one for one in found.values() if not one.closed]


def _written(
    cloud: Cloud, item: pytest.Item, report: pytest.TestReport, folder: Path, number: int
) -> str:
    """Write one page; what the terminal says of it."""
    from forewarn.testing import EmulatorBroke, Refusal  # noqa: PLC0415 - not before a test asks

    name = re.sub(r"[^\w.\-]+", "_", item.nodeid).strip("_")[:FILE_CHARS_MAX]
    more = f"-{number + 1}" if number else ""
    mark = hashlib.sha256(item.nodeid.encode()).hexdigest()[:8]  # two names may be cut to one
    target = folder / f"{name}-{mark}{more}.html"
    try:
        cloud.report(target, title=item.nodeid, failure=report.longreprtext)
    except (EmulatorBroke, Refusal, OSError) as why:
        return f"The story of {cloud!r} could not be written: {why}"
    return f"What the cloud saw is in {target}"


@pytest.fixture
def cloud(request: pytest.FixtureRequest) -> Iterator[Cloud]:
    """A cloud in the background of this test: one VM, vm0, or what the marker `cloud` says."""
    marker = request.node.get_closest_marker("cloud")
    if marker is not None and marker.args:
        pytest.fail(
            f"The marker cloud takes words with names, not {marker.args[0]!r}."
            ' Write it like @pytest.mark.cloud(scopes=["web:3"]).',
            pytrace=False,
        )
    from forewarn.testing import Refusal  # noqa: PLC0415 - not before a test asks

    try:
        made = _made(request, {} if marker is None else marker.kwargs)
    except Refusal as why:
        refused = str(why)
    else:
        refused = ""
    if refused:  # outside of the handler, or pytest would show both
        pytest.fail(f"The marker cloud is refused. {refused}", pytrace=False)
    with made:
        yield made


@pytest.fixture
def make_cloud(request: pytest.FixtureRequest) -> Iterator[MakeCloud]:
    """Start clouds by hand: `make_cloud(scopes=["web:3"])`. All of them end with the test."""
    with contextlib.ExitStack() as clouds:

        def make(**words: Unpack[CloudArguments]) -> Cloud:
            __tracebackhide__ = True
            made = clouds.enter_context(_made(request, words))
            request.node.stash.setdefault(_MADE, []).append(made)
            return made

        yield make


@pytest.fixture(scope="session")
def cloud_arguments() -> CloudArguments:
    """What `session_cloud` emulates: one VM, vm0. Override it in a conftest.py."""
    return {}


@pytest.fixture(scope="session")
def session_cloud(
    request: pytest.FixtureRequest, cloud_arguments: CloudArguments
) -> Iterator[Cloud]:
    """One cloud for the whole session, for apps that are started once. See `reset_cloud`."""
    with _made(request, cloud_arguments) as cloud:
        yield cloud


@pytest.fixture
def reset_cloud(request: pytest.FixtureRequest, session_cloud: Cloud) -> Cloud:
    """The cloud of the session, as new for this test: `session_cloud.reset()` was called."""
    if request.node.get_closest_marker("cloud") is not None:
        pytest.fail(
            "The marker cloud is for a cloud of one test; reset_cloud is the cloud of the session."
            " Say what it emulates by a session fixture `cloud_arguments`, or use `cloud`.",
            pytrace=False,
        )
    session_cloud.reset()
    return session_cloud


@pytest.fixture(scope="session")
def make_session_cloud(request: pytest.FixtureRequest) -> Iterator[MakeCloud]:
    """Start clouds by hand that end with the session: `make_session_cloud(scopes=["web:3"])`."""
    with contextlib.ExitStack() as clouds:

        def make(**words: Unpack[CloudArguments]) -> Cloud:
            __tracebackhide__ = True
            return clouds.enter_context(_made(request, words))

        yield make


def _made(request: pytest.FixtureRequest, words: Any) -> Cloud:
    """A new cloud. The path of an inventory is relative to the file of the test, and for a cloud
    of the session to the root of the tests.
    """
    __tracebackhide__ = True
    from forewarn.testing import Cloud  # noqa: PLC0415 - not before a test asks
    from forewarn.testing.arguments import is_path  # noqa: PLC0415

    if is_path(words.get("inventory")):
        of_session = request.scope == "session"
        folder = request.config.rootpath if of_session else request.path.parent
        words = {**words, "inventory": folder / words["inventory"]}
    return Cloud(**words)
