"""Random bytes, from seeds: never a 5xx, never an unhandled error, and the server lives on.

Broken requests are made from good ones: cut, doubled, spliced, with bytes changed. A failing run is
named by its seed.
"""

from __future__ import annotations

import contextlib
import random
import re
import socket
from collections.abc import Iterator

import pytest

from forewarn.endpoint.limits import Limits, Timeouts
from support.endpoint_world import APPROVAL, POLL, URL, Client, EndpointWorld, get, post, running

REQUESTS_PER_SEED = 150
SEEDS = 8

META = "Metadata: true"
GOOD = (
    POLL,
    get(URL, META, 'If-None-Match: "2"', "Prefer: wait=1"),
    get("/metadata/instance/compute/name?api-version=2021-02-01&format=text", META),
    get("/metadata/versions", META, version="1.0"),
    get(URL, META, method="HEAD"),
    post(APPROVAL),
    post(APPROVAL, URL, "Expect: 100-continue"),
    post(b'{"StartRequests":[{"EventId":"\\u0000\\ud83d\\ude00"}]}'),
    get(URL, META, "Transfer-Encoding: chunked", method="POST")
    + b"%x\r\n%b\r\n0\r\n\r\n" % (len(APPROVAL), APPROVAL),
)
TOKENS = (
    b"\r\n",
    b"\r\n\r\n",
    b"\x00",
    b"\xff\xfe",
    b"Content-Length: 5\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Upgrade: h2c\r\nConnection: Upgrade\r\n",
    b"If-None-Match: ,,W/\r\n",
    b"Prefer: wait=99999999999999999999\r\n",
    b"?api-version=&api-version=",
    b"%00%ff%",
    b"://",
    b"*",
    b"[" * 500,
    b"{",
    b"0\r\n\r\n",
    b"HTTP/1.1",
)
STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")


# Long enough for a busy machine, short enough to wait for in every seed.
SHORT_S = 0.2


@pytest.fixture(scope="module")
def world() -> Iterator[EndpointWorld]:
    timeouts = Timeouts(
        idle_s=SHORT_S, head_s=SHORT_S, body_s=SHORT_S, wait_s=0.05, linger_s=0.05, sweep_s=0.01
    )
    with running(timeouts=timeouts, limits=Limits(connections_per_guest=1_000)) as world:
        yield world


@pytest.fixture(scope="module")
def patient_world() -> Iterator[EndpointWorld]:
    with running() as world:
        yield world


def broken(rng: random.Random) -> bytes:
    data = bytearray(b"".join(rng.choices(GOOD, k=rng.randint(1, 3))))
    for _ in range(rng.randint(0, 6)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(5):
            case 0:
                del data[at : at + rng.randint(1, 20)]
            case 1:
                data[at:at] = rng.choice(TOKENS)
            case 2:
                data[at:at] = rng.randbytes(rng.randint(1, 8))
            case 3:
                data[at:at] = data[: rng.randint(0, 60)]
            case 4 if at < len(data):
                data[at] = rng.randrange(256)
    return bytes(data) or b"\r\n"


def half_close(client: Client) -> None:
    with contextlib.suppress(OSError):  # the server may have closed already
        client.socket.shutdown(socket.SHUT_WR)


def everything(client: Client) -> bytes:
    """All that the server sends until it closes."""
    received = b""
    with contextlib.suppress(ConnectionError):
        while data := client.socket.recv(65_536):
            received += data
    return received


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_bytes_make_the_server_fail(world: EndpointWorld, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(REQUESTS_PER_SEED):
        data = broken(rng)
        client = world.client()
        with contextlib.suppress(ConnectionError):
            cut = rng.randrange(len(data))
            client.send(data[:cut])
            client.send(data[cut:])
            if rng.random() < 0.98:  # the others are ended by a time-out of the server
                half_close(client)
        received = everything(client)
        client.close()
        statuses = [int(status) for status in STATUS.findall(received)]
        assert all(status < 500 for status in statuses), (seed, data, received)
    assert world.errors == []
    assert world.endpoint.counters.failures == 0
    assert world.client().ask(POLL).status == 200
    world.until(lambda: world.endpoint.counters.parked == 0)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_how_the_bytes_are_cut_does_not_change_the_answers(
    patient_world: EndpointWorld, seed: int
) -> None:
    rng = random.Random(1_000 + seed)
    requests = [
        request for request in GOOD if b"HTTP/1.0" not in request and b"wait" not in request
    ]
    requests = [
        request for request in requests if b"HEAD" not in request and b"Expect" not in request
    ]
    for _ in range(20):
        chosen = rng.choices(requests, k=rng.randint(1, 5))
        one_by_one = patient_world.client()
        expected = [one_by_one.ask(request) for request in chosen]
        pieces = patient_world.client()
        data = b"".join(chosen)
        while data:
            size = rng.randint(1, 40)
            pieces.send(data[:size])
            data = data[size:]
        assert [pieces.answer() for _ in chosen] == expected
        one_by_one.close()
        pieces.close()
