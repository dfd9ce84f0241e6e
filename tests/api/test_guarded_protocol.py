"""Connections to the operator API that send half a head, nothing, or are too many."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from forewarn.api.guarded_protocol import HEAD_BYTES_MAX, KNOWN_KEY, GuardedProtocol

SHORT_S = 0.3
LONG_S = 60.0
WAIT_S = 50.0
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
WITH_TOKEN = b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer t\r\n\r\n"


LONG_BYTES = 32 * 1_024 * 1_024  # more than the kernel takes for a client that reads nothing


def protocol(timeout_s: float, most: int, write_s: float) -> type[GuardedProtocol]:
    class Limited(GuardedProtocol):
        head_timeout_s = timeout_s
        write_timeout_s = write_s
        connections_max = most

    return Limited


async def hello(request: Request) -> PlainTextResponse:
    body = await request.body()
    if "authorization" in request.headers:
        request.scope[KNOWN_KEY]()
    return PlainTextResponse(f"hello {len(body)}")


async def long(_: Request) -> PlainTextResponse:
    return PlainTextResponse("x" * LONG_BYTES)


@contextmanager
def serving(
    *, head_timeout_s: float = LONG_S, most: int = 100, write_timeout_s: float = LONG_S
) -> Iterator[tuple[str, int]]:
    routes = [Route("/", hello, methods=["GET", "POST"]), Route("/long", long)]
    config = uvicorn.Config(
        Starlette(routes=routes),
        http=protocol(head_timeout_s, most, write_timeout_s),
        log_config=None,
        lifespan="off",
        timeout_keep_alive=int(LONG_S),
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield listening.getsockname()
        finally:
            server.should_exit = True
            thread.join()


def connect(where: tuple[str, int]) -> socket.socket:
    return socket.create_connection(where, timeout=WAIT_S)


def answer(client: socket.socket, ending: bytes = b"hello 0") -> bytes:
    """What comes until the answer is whole."""
    read = b""
    while not read.endswith(ending):
        some = client.recv(65_536)
        assert some, read
        read += some
    return read


def cut(client: socket.socket) -> bool:
    """True once the service has ended the connection, without a word."""
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


HALF_HEADS = (b"\r\n", b"GE", b"GET / HTTP/1.1\r\nHost: x\r\nX: ", REQUEST[:-1])


@pytest.mark.parametrize(
    ("earlier", "beginning"), [(0, b""), *((n, half) for n in (0, 1) for half in HALF_HEADS)]
)
def test_a_head_that_does_not_end_in_time_ends_the_connection(
    earlier: int, beginning: bytes
) -> None:
    with serving(head_timeout_s=SHORT_S) as where, connect(where) as client:
        for _ in range(earlier):
            client.sendall(REQUEST)
            answer(client)
        client.sendall(beginning)
        assert cut(client)


def cut_while_sending(client: socket.socket, pieces: int) -> bool:
    """Send a byte, look, and so on; True once the service has ended the connection."""
    for _ in range(pieces):
        try:
            client.sendall(b"a")
            return client.recv(1) == b""
        except TimeoutError:
            continue
        except ConnectionError:
            return True
    return False


def test_a_head_that_comes_byte_by_byte_gets_no_more_time() -> None:
    with serving(head_timeout_s=SHORT_S) as where, connect(where) as client:
        client.settimeout(SHORT_S / 10)
        client.sendall(REQUEST[:-2] + b"X: ")
        assert cut_while_sending(client, pieces=500)


def test_a_body_and_the_pause_after_an_answer_are_no_head() -> None:
    with serving(head_timeout_s=SHORT_S) as where, connect(where) as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nab")
        with connect(where) as other:
            assert cut(other)  # longer than a head may take
        client.sendall(b"cd")
        assert answer(client, b"hello 4").startswith(b"HTTP/1.1 200")
        with connect(where) as other:
            assert cut(other)
        client.sendall(REQUEST)
        assert answer(client).startswith(b"HTTP/1.1 200")


def test_who_has_shown_a_token_is_served_on_and_a_newcomer_beyond_the_most_is_closed() -> None:
    with serving(most=3) as where, ExitStack() as clients:
        kept = [clients.enter_context(connect(where)) for _ in range(3)]
        for client in kept:
            client.sendall(WITH_TOKEN)
            answer(client)
        with connect(where) as one_more:
            assert cut(one_more)
        for client in kept:
            client.sendall(REQUEST)
            assert answer(client).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("silent", [b"", b"GET / HTTP/1.1\r\nHost: x\r\nX: ", REQUEST])
def test_beyond_the_most_the_oldest_without_a_token_is_cut_and_the_newest_served(
    silent: bytes,
) -> None:
    with serving(most=3) as where, ExitStack() as clients:
        known = clients.enter_context(connect(where))
        known.sendall(WITH_TOKEN)
        answer(known)
        crowd = [clients.enter_context(connect(where)) for _ in range(2)]
        for client in crowd:
            client.sendall(silent)
            if silent == REQUEST:
                answer(client)  # that of a caller without a token is known by nobody
        operator = clients.enter_context(connect(where))
        assert cut(crowd[0])
        for client in (operator, known):
            client.sendall(WITH_TOKEN)
            assert answer(client).startswith(b"HTTP/1.1 200")


def test_a_connection_that_ends_makes_room_for_another() -> None:
    with serving(head_timeout_s=SHORT_S, most=1) as where:
        with connect(where) as half:
            half.sendall(b"GET / HTTP/1.1\r\n")
            assert cut(half)
        with connect(where) as client:
            client.sendall(REQUEST)
            assert answer(client).startswith(b"HTTP/1.1 200")


def test_who_does_not_take_an_answer_is_cut_off() -> None:
    asked = b"GET /long HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with (
        serving(write_timeout_s=SHORT_S, head_timeout_s=4 * SHORT_S) as where,
        connect(where) as client,
    ):
        client.sendall(asked)
        assert client.recv(4) == b"HTTP"
        with connect(where) as silent:
            assert cut(silent)  # later than the one that reads no more
        assert len(until_the_end(client)) < LONG_BYTES


def test_who_takes_an_answer_gets_all_of_it() -> None:
    with serving() as where, connect(where) as client:
        client.sendall(b"GET /long HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert len(until_the_end(client)) > LONG_BYTES


def until_the_end(client: socket.socket) -> bytes:
    read = bytearray()
    with suppress(ConnectionError):
        while some := client.recv(1_024 * 1_024):
            read += some
    return bytes(read)


def test_a_head_without_end_is_cut_and_a_long_body_is_not() -> None:
    with serving() as where:
        with connect(where) as client, suppress(ConnectionError):
            client.sendall(b"GET / HTTP/1.1\r\n")
            for number in range(HEAD_BYTES_MAX // 100 + 2):
                client.sendall(f"X-{number}: {'x' * 100}\r\n".encode())
            assert client.recv(1) == b""
        with connect(where) as client:
            body = b"x" * (4 * HEAD_BYTES_MAX)
            head = f"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
            client.sendall(head.encode() + body)
            answer(client, f"hello {len(body)}".encode())
