"""The ports of control: silent connections are counted from accept on, and keep nobody out."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from forewarn.api.connection_limits import PendingHandshakes, PortLimits, source_of
from forewarn.api.guarded_protocol import CONNECTIONS_MAX, GuardedProtocol
from forewarn.api.guarded_server import ACCEPT_AGAIN_S, GuardedServer
from forewarn.api.link.protocol import (
    HANDSHAKES_MAX,
    KEPT_FREE,
    LINK_CONNECTIONS_MAX,
    LINK_DESCRIPTORS_MIN,
    link_limits,
)
from forewarn.wire import link as wire
from support.link_world import LIMIT_S, ControlWorld, control_running
from support.waiting import until

LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]
LONG_S = 600.0
SHORT_S = 0.3
OF_SOURCE = 5
ALL = 12
SILENT = PortLimits(
    connections_max=40,
    handshakes_max=ALL,
    handshakes_of_source_max=OF_SOURCE,
    handshake_timeout_s=LONG_S,
)
HALF_A_HELLO = b"\x16\x03\x01\x02\x00\x01"


# What is counted.


def unfinished(*, most: int, of_source: int) -> PendingHandshakes[str]:
    return PendingHandshakes(
        PortLimits(
            connections_max=1,
            handshakes_max=most,
            handshakes_of_source_max=of_source,
            handshake_timeout_s=1,
        )
    )


def test_of_a_source_with_too_many_unfinished_handshakes_its_oldest_goes() -> None:
    crowd = unfinished(most=100, of_source=2)
    assert [crowd.begin(f"a{n}", "a") for n in range(2)] == [None, None]
    assert crowd.begin("b0", "b") is None
    assert crowd.begin("a2", "a") == "a0"
    crowd.end("a0")
    assert crowd.begin("a3", "a") == "a1"


def test_of_too_many_in_all_the_oldest_of_the_source_that_has_most_goes() -> None:
    crowd = unfinished(most=4, of_source=10)
    for who in ("b0", "a0", "a1", "a2"):
        assert crowd.begin(who, who[0]) is None
    assert crowd.begin("c0", "c") == "a0"


def test_a_finished_handshake_is_counted_no_more() -> None:
    crowd = unfinished(most=100, of_source=1)
    for number in range(50):
        assert crowd.begin(f"a{number}", "a") is None
        crowd.end(f"a{number}")
        crowd.end(f"a{number}")
    assert len(crowd) == 0
    assert crowd.oldest() is None


def test_a_machine_with_many_ipv6_addresses_is_one_source() -> None:
    assert (
        source_of("2001:db8::1") == source_of("2001:db8::ffff:2%eth0") != source_of("2001:db9::1")
    )
    assert source_of("::ffff:192.0.2.1") == source_of("192.0.2.1") != source_of("192.0.2.2")


@pytest.mark.parametrize("descriptors", [768, 1_024, 4_096, 65_536, 1_000_000])
def test_the_link_leaves_descriptors_for_every_operator(descriptors: int) -> None:
    limits = link_limits(descriptors)
    taken = limits.connections_max + limits.handshakes_max
    assert taken + CONNECTIONS_MAX < descriptors
    assert taken <= LINK_CONNECTIONS_MAX + HANDSHAKES_MAX
    assert limits.connections_max > limits.handshakes_max > 0


def test_a_process_with_hardly_any_descriptors_still_has_a_link() -> None:
    limits = link_limits(64)
    assert limits.connections_max + limits.handshakes_max == LINK_DESCRIPTORS_MIN < KEPT_FREE


# Real sockets.


def told(
    story: Callable[[], Awaitable[None]], new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def main() -> None:
        async with asyncio.timeout(3 * LIMIT_S):
            await story()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())


class Silent:
    """Connections to a port that send nothing, or half of what begins TLS."""

    def __init__(self, where: tuple[str, int]) -> None:
        self.where = where
        self._all: list[socket.socket] = []

    async def come(self, number: int, *, source: str = "127.0.0.1", says: bytes = b"") -> None:
        loop = asyncio.get_running_loop()
        for _ in range(number):
            one = socket.socket()
            self._all.append(one)
            one.settimeout(0)
            one.bind((source, 0))
            await loop.sock_connect(one, self.where)
            if says:
                with suppress(ConnectionError):
                    await loop.sock_sendall(one, says)

    def still_there(self) -> int:
        return sum(_is_open(one) for one in self._all)

    def gone(self) -> list[int]:
        """The numbers of those that were cut, in the order of their coming."""
        return [number for number, one in enumerate(self._all) if not _is_open(one)]

    def __enter__(self) -> Silent:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._all:
            one.close()


def _is_open(one: socket.socket) -> bool:
    try:
        return one.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


def hosts_port(world: ControlWorld) -> tuple[str, int]:
    address, _, port = world.where.hosts_listen.rpartition(":")
    return address, int(port)


@pytest.mark.parametrize("says", [b"", HALF_A_HELLO])
@pytest.mark.parametrize("new_loop", LOOPS)
def test_connections_that_never_finish_tls_keep_neither_hosts_nor_operators_out(
    tmp_path: Path, new_loop: Callable[[], asyncio.AbstractEventLoop], says: bytes
) -> None:
    async def story() -> None:
        async with control_running(tmp_path, limits=SILENT) as world:
            host = await world.joined("h1")
            with Silent(hosts_port(world)) as crowd:
                for source in range(2, 7):
                    await crowd.come(3 * OF_SOURCE, source=f"127.0.0.{source}", says=says)
                await crowd.come(3 * OF_SOURCE, says=says)  # from where the host is as well
                await until(lambda: crowd.still_there() <= ALL, "the crowd is cut")
                assert crowd.still_there() > 0
                assert await host.ask("turn", wire.Turn(), wire.TurnTaken) == wire.TurnTaken(
                    work=False
                )
                assert (await world.operator("GET", "/v1/health")).status_code == 200
                await until(lambda: crowd.still_there() <= ALL, "nobody came back")

    told(story, new_loop)


@pytest.mark.parametrize("new_loop", LOOPS)
def test_of_one_source_only_so_many_handshakes_are_unfinished(
    tmp_path: Path, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def story() -> None:
        async with control_running(tmp_path, limits=SILENT) as world:
            with Silent(hosts_port(world)) as crowd:
                await crowd.come(3 * OF_SOURCE)
                await until(lambda: crowd.still_there() <= OF_SOURCE, "the oldest are cut")
                assert crowd.still_there() == OF_SOURCE

    told(story, new_loop)


@pytest.mark.parametrize("says", [b"", HALF_A_HELLO])
@pytest.mark.parametrize("new_loop", LOOPS)
def test_a_handshake_that_does_not_end_in_time_ends_the_connection(
    tmp_path: Path, new_loop: Callable[[], asyncio.AbstractEventLoop], says: bytes
) -> None:
    limits = PortLimits(connections_max=40, handshake_timeout_s=SHORT_S)

    async def story() -> None:
        async with control_running(tmp_path, limits=limits) as world:
            host = await world.joined("h1")
            with Silent(hosts_port(world)) as crowd:
                await crowd.come(4, says=says)
                await until(lambda: crowd.still_there() == 0, "the silent ones are cut")
            # They alone: the port is open, and who shows itself is heard.
            assert await host.ask("turn", wire.Turn(), wire.TurnTaken) == wire.TurnTaken(work=False)

    told(story, new_loop)


@pytest.mark.parametrize("new_loop", LOOPS)
def test_many_hosts_behind_one_address_are_all_heard(
    tmp_path: Path, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def story() -> None:
        async with control_running(tmp_path, limits=SILENT) as world:
            host = await world.joined("h1")
            address, port = hosts_port(world)
            context = host.trusting(shown=True)
            made: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
            try:
                while len(made) < 2 * ALL:  # more than may be unfinished, of one address
                    made.append(await asyncio.open_connection(address, port, ssl=context))
                head = b"POST /link/turn HTTP/1.1\r\nHost: c\r\nforewarn-link: 1\r\n"
                for reader, writer in made:
                    writer.write(head + b'Content-Length: 14\r\n\r\n{"holding":{}}')
                    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            finally:
                for _, writer in made:
                    writer.transport.abort()
                await asyncio.sleep(0)

    told(story, new_loop)


@pytest.mark.parametrize("new_loop", LOOPS)
def test_the_service_stops_while_handshakes_are_unfinished(
    tmp_path: Path, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def story() -> None:
        async with control_running(tmp_path, limits=SILENT) as world:
            crowd = Silent(hosts_port(world))
            await crowd.come(3)
            assert crowd.still_there() == 3
        with crowd:
            await until(lambda: crowd.still_there() == 0, "they are cut")
            assert crowd.still_there() == 0  # by the stop: of themselves they last for LONG_S

    told(story, new_loop)


# Descriptors that run out.


class NoDescriptors(socket.socket):
    """A listening socket that accepts nothing while the process has no descriptor left."""

    left = False
    asked = 0

    def accept(self) -> tuple[socket.socket, object]:
        self.asked += 1
        if not self.left:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return super().accept()


async def hello(_: Request) -> PlainTextResponse:
    return PlainTextResponse("hello")


@pytest.mark.parametrize("new_loop", LOOPS)
def test_without_a_descriptor_it_looks_away_and_serves_who_waited_once_there_is_one(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    config = uvicorn.Config(
        Starlette(routes=[Route("/", hello)]),
        http=GuardedProtocol,
        log_config=None,
        lifespan="off",
        timeout_graceful_shutdown=1,
    )

    async def story() -> None:
        loop = asyncio.get_running_loop()
        server = GuardedServer(config)
        with NoDescriptors() as listening, socket.socket() as client:
            listening.bind(("127.0.0.1", 0))
            serving = asyncio.ensure_future(server.serve(sockets=[listening]))
            await until(lambda: server.started, "the port is open")
            client.settimeout(0)
            await loop.sock_connect(client, listening.getsockname())
            began_s = loop.time()
            await until(lambda: listening.asked >= 4, "it tries again")
            assert listening.asked <= 1 + (loop.time() - began_s) / ACCEPT_AGAIN_S + 1
            listening.left = True
            await loop.sock_sendall(client, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await loop.sock_recv(client, 100)).startswith(b"HTTP/1.1 200")
            server.should_exit = True
            await serving

    told(story, new_loop)


@pytest.mark.parametrize("new_loop", LOOPS)
def test_without_a_descriptor_the_oldest_unfinished_handshake_gives_up_its_own(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    config = uvicorn.Config(Starlette(), http=GuardedProtocol, log_config=None, lifespan="off")
    config.load()
    config.ssl = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # nobody gets as far as its certificate

    async def story() -> None:
        server = GuardedServer(config, SILENT)
        with NoDescriptors() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.left = True
            serving = asyncio.ensure_future(server.serve(sockets=[listening]))
            await until(lambda: server.started, "the port is open")
            with Silent(listening.getsockname()) as crowd:
                await crowd.come(2)
                await until(lambda: server.unfinished() == 2, "both are counted")
                listening.left = False
                await crowd.come(1)
                await until(crowd.gone, "one gives up its descriptor")
                assert crowd.gone()[0] == 0
                server.should_exit = True
                await serving

    told(story, new_loop)


@pytest.mark.parametrize("new_loop", LOOPS)
def test_a_unix_socket_is_served_as_well(
    tmp_path: Path, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    config = uvicorn.Config(
        Starlette(routes=[Route("/", hello)]),
        http=GuardedProtocol,
        log_config=None,
        lifespan="off",
        timeout_graceful_shutdown=1,
    )

    async def story() -> None:
        loop = asyncio.get_running_loop()
        server = GuardedServer(config)
        with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as client:
            listening.bind(str(tmp_path / "s"))
            serving = asyncio.ensure_future(server.serve(sockets=[listening]))
            await until(lambda: server.started, "the socket is open")
            client.settimeout(0)
            await loop.sock_connect(client, str(tmp_path / "s"))
            await loop.sock_sendall(client, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await loop.sock_recv(client, 100)).startswith(b"HTTP/1.1 200")
            server.should_exit = True
            await serving

    told(story, new_loop)
