"""Where the endpoint is looked for, in which order, what counts as one, and what is remembered."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn_guest.discovery import (
    LINK_LOCAL,
    PROBE_CONNECT_S,
    PROBE_READ_S,
    Try,
    discover,
    probed,
    read_cache,
)
from forewarn_guest.errors import EndpointError, NotFound, Unreachable
from forewarn_guest.http1 import bell_of
from scripted_endpoint import Reply, ScriptedEndpoint, document


class Network:
    """What answers and what does not, instead of a network."""

    def __init__(self, *answering: str) -> None:
        self.answering = answering
        self.probed: list[str] = []

    def __call__(self, url: str) -> str:
        self.probed.append(url)
        if url in self.answering:
            return "answers"
        raise Unreachable("nobody there")


def options(*found: tuple[str, str]) -> Iterator[tuple[str, str]]:
    yield from found


LEASE = ("lease /run/systemd/netif/leases/2", "168.63.129.16")
NO_DHCP = ("dhcp eth0", "asking a DHCP server is not permitted; root may")


@pytest.mark.parametrize("source", ["argument", "FOREWARN_ENDPOINT"])
def test_who_is_told_an_address_asks_nobody_else(source: str) -> None:
    network = Network(LINK_LOCAL)
    told = "http://127.0.0.1:8254/metadata/scheduledevents"
    if source == "argument":
        found = discover(told, environment={"FOREWARN_ENDPOINT": "http://other"}, probe=network)
    else:
        found = discover(environment={"FOREWARN_ENDPOINT": told}, probe=network)
    assert found.tries == (Try(source, "http://127.0.0.1:8254", "is used as told", good=True),)
    assert found.url == "http://127.0.0.1:8254"
    assert found.told
    assert network.probed == []


def test_a_wrong_address_that_was_told_is_said_and_nothing_else_is_tried() -> None:
    found = discover("https://x", environment={}, probe=Network(LINK_LOCAL))
    with pytest.raises(NotFound, match="https://x"):
        _ = found.url


def test_the_first_that_answers_ends_the_search() -> None:
    network = Network(LINK_LOCAL, "http://168.63.129.16")
    found = discover(environment={}, probe=network, options=lambda: options(LEASE))
    assert found.url == LINK_LOCAL
    assert not found.told
    assert network.probed == [LINK_LOCAL]


def test_the_order_is_stored_cache_link_local_leases_dhcp(tmp_path: Path) -> None:
    cache = tmp_path / "endpoint.json"
    cache.write_text('{"url": "http://10.0.0.9"}')
    found = discover(
        environment={"SCHEDULEDEVENTSIP": "10.0.0.8"},
        cache=cache,
        probe=Network(),
        options=lambda: options(LEASE, ("dhcp eth0", "168.63.129.16"), ("dhcp eth1", "10.0.0.7")),
    )
    assert [(one.source, one.url) for one in found.tries] == [
        ("SCHEDULEDEVENTSIP", "http://10.0.0.8"),
        ("cache", "http://10.0.0.9"),
        ("link-local", LINK_LOCAL),
        ("lease /run/systemd/netif/leases/2", "http://168.63.129.16"),
        ("lease /run/systemd/netif/leases/2", "http://168.63.129.16:8080"),
        ("dhcp eth1", "http://10.0.0.7"),  # what eth0 said was tried already
        ("dhcp eth1", "http://10.0.0.7:8080"),
    ]


def test_nothing_found_says_everything_that_was_tried_and_what_helps() -> None:
    found = discover(environment={}, probe=Network(), options=lambda: options(LEASE, NO_DHCP))
    with pytest.raises(NotFound) as caught:
        _ = found.url
    said = str(caught.value)
    for part in (LINK_LOCAL, "nobody there", "168.63.129.16:8080", "root may", "FOREWARN_ENDPOINT"):
        assert part in said


def test_a_later_candidate_is_not_looked_for_before_the_earlier_have_failed() -> None:
    def forbidden() -> Iterator[tuple[str, str]]:
        pytest.fail("asked without need")
        yield LEASE

    assert discover(environment={}, probe=Network(LINK_LOCAL), options=forbidden).url == LINK_LOCAL


def test_the_answer_is_kept_and_probed_again_before_it_is_used(tmp_path: Path) -> None:
    cache = tmp_path / "endpoint.json"
    far = "http://168.63.129.16"
    discover(environment={}, cache=cache, probe=Network(far), options=lambda: options(LEASE))
    assert read_cache(cache) == far
    again = Network(far)
    found = discover(environment={}, cache=cache, probe=again, options=options)
    assert (found.url, again.probed) == (far, [far])
    moved = Network(LINK_LOCAL)
    found = discover(environment={}, cache=cache, probe=moved, options=options)
    assert (found.url, moved.probed) == (LINK_LOCAL, [far, LINK_LOCAL])
    assert read_cache(cache) == LINK_LOCAL
    assert list(tmp_path.iterdir()) == [cache]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"url": 7}', '{"url": "https://x"}', "\0", "[" * 5000, "\udcff"]
)
def test_a_cache_that_makes_no_sense_is_as_if_there_were_none(tmp_path: Path, text: str) -> None:
    cache = tmp_path / "endpoint.json"
    cache.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert read_cache(cache) == ""
    found = discover(environment={}, cache=cache, probe=Network(LINK_LOCAL))
    assert (found.tries[0].source, found.tries[0].outcome) == ("cache", "holds no address")
    assert found.url == LINK_LOCAL


def test_a_cache_that_cannot_be_written_is_said_and_does_not_matter(tmp_path: Path) -> None:
    cache = tmp_path / "missing" / "endpoint.json"
    found = discover(environment={}, cache=cache, probe=Network(LINK_LOCAL))
    assert found.url == LINK_LOCAL
    assert any("could not be written" in one.outcome for one in found.tries)


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (document(1), "answers"),
        (Reply(body=b""), "answers, with nothing yet"),
        (Reply(status=410), "is there and busy (410)"),
        (Reply(status=503), "is there and busy (503)"),
        (
            Reply(status=404, body=b'{"newest-versions":["2019-08-01"]}'),
            "answers, and knows other versions than 2020-07-01",
        ),
    ],
)
def test_what_speaks_like_the_service_is_an_endpoint(reply: Reply, said: str) -> None:
    with ScriptedEndpoint(reply) as endpoint, bell_of() as bell:
        assert probed(endpoint.url, bell=bell) == said
    assert endpoint.asked[0].target == "/metadata/scheduledevents?api-version=2020-07-01"


@pytest.mark.parametrize(
    "reply",
    [
        Reply(body=b"<html>"),
        Reply(body=b"{}"),
        Reply(status=404),  # another cloud's metadata service
        Reply(status=400, body=b"<?xml version='1.0'?>"),  # the wire server (E7)
        Reply(status=302, headers={"Location": "http://127.0.0.1"}),
        Reply(reset=True),
        Reply(raw=b"SSH-2.0-x\r\n", close=True),
    ],
)
def test_what_does_not_is_none(reply: Reply) -> None:
    with ScriptedEndpoint(reply) as endpoint, bell_of() as bell, pytest.raises(EndpointError):
        probed(endpoint.url, bell=bell)


def test_the_real_probe_is_what_discovery_uses(tmp_path: Path) -> None:
    cache = tmp_path / "endpoint.json"
    with ScriptedEndpoint(document(1)) as endpoint:
        cache.write_text(json.dumps({"url": endpoint.url}))
        assert discover(environment={}, cache=cache).url == endpoint.url
        stored = {"SCHEDULEDEVENTSIP": f"127.0.0.1:{endpoint.port}"}
        assert discover(environment=stored).url == endpoint.url
    assert len(endpoint.asked) == 2


def test_a_place_where_nobody_answers_costs_as_long_as_a_connection_may_take() -> None:
    """And not until the kernel gives up, after two minutes, with words of its own."""
    with socket.socket() as listening, socket.socket() as first:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)  # one connection waits to be accepted, and what comes then is dropped
        first.connect(listening.getsockname())
        began_s = time.monotonic()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with bell_of() as bell, pytest.raises(Unreachable, match="not accepted in time"):
            probed(url, bell=bell)
    assert PROBE_CONNECT_S <= time.monotonic() - began_s < PROBE_READ_S / 2  # a minute ends a hang
