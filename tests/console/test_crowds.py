"""Many tabs at once: so many are kept up to date, and the others are told to ask now and then."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from forewarn.api.console.app import CROWD_POLLS_EVERY_S, POLL_EVERY_S, STREAMS_OF_SESSION_MAX
from forewarn.api.console.live_updates import STREAMS_MAX
from forewarn.api.guarded_protocol import CONNECTIONS_MAX
from forewarn.control.feed import FEED_READERS_MAX
from support.operator_world import CALL_TIMEOUT_S, OperatorWorld, running
from support.waiting import wait_until

LEFT_FOR_OTHERS = 64  # connections of operators that no stream takes


@pytest.fixture
def world() -> Iterator[OperatorWorld]:
    with running() as made:
        yield made


def enter(world: OperatorWorld) -> str:
    """Open a session: its cookie."""
    link = world.order("/v1/console/links", {})["path"]
    answer = world.call("GET", link, token=None)
    cookies = [value for name, value in answer.headers.items() if name.lower() == "set-cookie"]
    return cookies[0].partition(";")[0]


def first_lines(world: OperatorWorld, cookie: str, opened: ExitStack) -> str:
    """Open a stream of the Now page: what it says first. It stays open."""
    connection = http.client.HTTPConnection("127.0.0.1", world.port, timeout=CALL_TIMEOUT_S)
    opened.callback(connection.close)
    connection.request("GET", "/console/stream?on=now", headers={"Cookie": cookie})
    answer = connection.getresponse()
    assert answer.status == 200
    opened.callback(answer.close)
    return answer.readline().decode() + answer.readline().decode()


def every_s(said: str) -> int:
    """How often a tab is told to ask."""
    event, _, data = said.partition("\n")
    assert event == "event: poll", said
    seconds: int = json.loads(data.removeprefix("data: "))["every"]
    return seconds


def streams(world: OperatorWorld) -> int:
    text = world.call("GET", "/metrics").body.decode()
    [line] = [one for one in text.splitlines() if one.startswith("forewarn_console_streams ")]
    return int(float(line.rpartition(" ")[2]))


def test_a_tab_too_many_of_a_session_asks_now_and_then(world: OperatorWorld) -> None:
    cookie = enter(world)
    with ExitStack() as opened:
        for _ in range(STREAMS_OF_SESSION_MAX):
            assert first_lines(world, cookie, opened).startswith("retry:")
        assert every_s(first_lines(world, cookie, opened)) == POLL_EVERY_S
        assert streams(world) == STREAMS_OF_SESSION_MAX
    wait_until(lambda: streams(world) == 0, "the tabs are gone")


def test_a_crowd_of_tabs_is_told_to_ask_less_often_and_operators_get_through(
    world: OperatorWorld,
) -> None:
    with ExitStack() as opened:
        for _ in range(STREAMS_MAX // STREAMS_OF_SESSION_MAX):
            cookie = enter(world)
            for _ in range(STREAMS_OF_SESSION_MAX):
                assert first_lines(world, cookie, opened).startswith("retry:")
        assert streams(world) == STREAMS_MAX
        for _ in range(20):
            assert every_s(first_lines(world, enter(world), opened)) == CROWD_POLLS_EVERY_S
        assert world.get("/v1/health")
        assert streams(world) == STREAMS_MAX
    wait_until(lambda: streams(world) == 0, "the tabs are gone")
    assert first_lines(world, enter(world), opened).startswith("retry:")
    opened.close()


def test_streams_leave_connections_for_others() -> None:
    assert FEED_READERS_MAX + STREAMS_MAX + LEFT_FOR_OTHERS <= CONNECTIONS_MAX
