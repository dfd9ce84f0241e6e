"""`forewarn console`: a link on stdout, and nothing else there, so that a script can open it."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator

import pytest

from support.cli_runner import ask, forewarn
from support.operator_world import OperatorWorld, running


@pytest.fixture
def world() -> Iterator[OperatorWorld]:
    with running() as found:
        yield found


def test_it_prints_a_link_that_opens_the_console_where_it_was_asked_for(
    world: OperatorWorld,
) -> None:
    ran = ask(world, "console")
    link = ran.out.strip()
    assert (ran.code, ran.err) == (0, "It opens the console once, within 60 seconds.\n")
    assert link.startswith(f"{world.url}/console/enter?code=")
    with urllib.request.urlopen(link, timeout=60) as answer:
        assert "Go on to the console" in answer.read().decode()
    again = ask(world, "console", "--json").json
    assert again["url"] != link
    assert again["valid_seconds"] == 60


def test_without_a_service_it_says_so_and_prints_no_link() -> None:
    ran = forewarn("console", environment={"FOREWARN_URL": "http://127.0.0.1:9"})
    assert ran.code != 0
    assert ran.out == ""
    assert ran.err.startswith("forewarn: ")
