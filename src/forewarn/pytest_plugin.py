"""Fixtures: `cloud` and `make_cloud` for one test, `session_cloud` and `reset_cloud` for many.

The marker `cloud` says what fleet a test needs; `cloud_arguments` says it for the whole session.

Loaded by every pytest that finds Forewarn installed: nothing of it is imported before a test asks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol, Unpack

import pytest

if TYPE_CHECKING:
    from forewarn.testing import Cloud, CloudArguments

MARKER = (
    "cloud(vms=, scopes=, inventory=, seed=, start=, clock=, ...): what the fixture `cloud`"
    ' emulates, like scopes=["web:3"]; forewarn.testing.CloudWords has every word'
)


class MakeCloud(Protocol):
    """What the fixture `make_cloud` is: each call starts one more cloud."""

    def __call__(self, **words: Unpack[CloudArguments]) -> Cloud: ...


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", MARKER)


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
            return clouds.enter_context(_made(request, words))

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
