"""TLS of the operator API: served beyond loopback, followed while it is served, said in words."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from structlog.testing import capture_logs

from forewarn import settings
from forewarn.api.guarded_server import OPERATOR_LIMITS
from forewarn.core.errors import Invalid
from forewarn.settings import Settings
from forewarn.wiring.operator_server import operator_tls, serving
from forewarn.wiring.operator_tls import OperatorTls
from support.certificates import TestAuthority, serial_of, shown_serial, strict
from support.link_world import control_running, run
from support.waiting import until

LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]
LIMIT_S = 60.0
OFTEN_S = 0.02
NEVER_S = 3_600.0
OF_SOURCE_MAX = OPERATOR_LIMITS.handshakes_of_source_max
GET = b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer secret\r\n\r\n"


async def hello(_: Request) -> PlainTextResponse:
    return PlainTextResponse("hello")


APP = Starlette(routes=[Route("/", hello)])


def told(
    story: Callable[[], Awaitable[None]], new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def limited() -> None:
        async with asyncio.timeout(LIMIT_S):
            await story()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(limited())


def chosen(folder: Path, **options: str) -> Settings:
    given = {"data": str(folder / "data"), "operator": "127.0.0.1:0", **options}
    return settings.load(file=None, environment={"HOME": str(folder)}, options=given)


def by_files(folder: Path, files: tuple[Path, Path], **options: str) -> Settings:
    named = {"operator_certificate": str(files[0]), "operator_key": str(files[1])}
    return chosen(folder, **named, **options)


@pytest.fixture
def authority(tmp_path: Path) -> TestAuthority:
    return TestAuthority(tmp_path / "pki")


class Port:
    """The operator API with TLS, as callers see it."""

    def __init__(self, tls: OperatorTls, url: str, trusted: ssl.SSLContext) -> None:
        self.tls = tls
        self.url = url
        self.trusted = trusted
        self.number = int(url.rsplit(":", 1)[1])

    async def connect(
        self, trusted: ssl.SSLContext | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context = trusted or self.trusted
        return await asyncio.open_connection("127.0.0.1", self.number, ssl=context)

    async def ask(self, trusted: ssl.SSLContext | None = None) -> tuple[bytes, int, str]:
        """The status line, the serial number of the certificate, and the version of TLS."""
        reader, writer = await self.connect(trusted)
        try:
            writer.write(GET)
            spoken: ssl.SSLObject = writer.get_extra_info("ssl_object")
            return await reader.readline(), shown_serial(spoken), str(spoken.version())
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def serial(self) -> int:
        return (await self.ask())[1]

    async def plain(self, content: bytes) -> bytes:
        """What comes back, up to its end, without TLS."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.number)
        try:
            writer.write(content)
            return await reader.read()
        except ConnectionResetError:
            return b""
        finally:
            writer.close()


@asynccontextmanager
async def port(
    wanted: Settings, trusted: ssl.SSLContext | Callable[[OperatorTls], ssl.SSLContext], **more: Any
) -> AsyncIterator[Port]:
    tls = OperatorTls(wanted, **more)
    context = trusted if isinstance(trusted, ssl.SSLContext) else trusted(tls)
    async with serving(APP, wanted.operator, tls=tls) as url:
        yield Port(tls, url, context)


@pytest.mark.parametrize("new_loop", LOOPS)
def test_it_speaks_tls_and_prefers_the_newest(
    tmp_path: Path, authority: TestAuthority, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    wanted = by_files(tmp_path, authority.pair())

    async def story() -> None:
        async with port(wanted, authority.trusting()) as there:
            assert there.url.startswith("https://127.0.0.1:")
            status, _, version = await there.ask()
            assert (status, version) == (b"HTTP/1.1 200 OK\r\n", "TLSv1.3")
            older = authority.trusting()
            older.maximum_version = ssl.TLSVersion.TLSv1_2
            assert (await there.ask(older))[2] == "TLSv1.2"
            oldest = authority.trusting()
            oldest.minimum_version = ssl.TLSVersion.TLSv1
            oldest.maximum_version = ssl.TLSVersion.TLSv1_1
            oldest.set_ciphers("ALL:@SECLEVEL=0")  # else it would not even ask
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await there.ask(oldest)

    with pytest.warns(DeprecationWarning, match="TLSv1"):
        told(story, new_loop)


@pytest.mark.parametrize("new_loop", LOOPS)
def test_a_new_certificate_is_used_without_a_restart_and_connections_stay(
    tmp_path: Path, authority: TestAuthority, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    files = authority.pair(days=10)
    wanted = by_files(tmp_path, files)

    async def story() -> None:
        async with port(wanted, authority.trusting(), look_every_s=OFTEN_S) as there:
            first = await there.serial()
            assert first == serial_of(files[0].read_bytes())
            reader, writer = await there.connect()
            before = there.tls.expiries_s()["operator"]
            authority.pair(days=20)
            second = serial_of(files[0].read_bytes())

            async def changed() -> bool:
                return await there.serial() == second

            await until(changed, "the new certificate is shown")
            assert there.tls.expiries_s()["operator"] > before
            writer.write(GET)  # on a connection from before
            assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
            writer.close()

    told(story, new_loop)


def test_it_looks_at_once_when_it_is_told_to(tmp_path: Path, authority: TestAuthority) -> None:
    files = authority.pair()
    wanted = by_files(tmp_path, files)

    async def story() -> None:
        async with port(wanted, authority.trusting(), look_every_s=NEVER_S) as there:
            authority.pair()
            second = serial_of(files[0].read_bytes())
            assert await there.serial() != second
            there.tls.look()

            async def changed() -> bool:
                return await there.serial() == second

            await until(changed, "the new certificate is shown")

    told(story, asyncio.new_event_loop)


def test_a_broken_pair_keeps_the_old_one_and_is_logged_once(
    tmp_path: Path, authority: TestAuthority
) -> None:
    files = authority.pair()
    wanted = by_files(tmp_path, files)

    def refused(tls: OperatorTls) -> float:
        return (
            {family.name: family for family in tls.collect()}[
                "forewarn_operator_certificate_refused"
            ]
            .samples[0]
            .value
        )

    async def story() -> None:
        async with port(wanted, authority.trusting(), look_every_s=OFTEN_S) as there:
            first = await there.serial()
            assert refused(there.tls) == 0
            for _ in range(3):
                files[0].write_bytes(b"-----BEGIN CERTIFICATE-----\nhalf")
                await until(lambda: refused(there.tls), "the broken file is noticed")
                assert await there.serial() == first
                there.tls.look()
                await until(lambda: not there.tls._look_now.is_set(), "it looks once more")
            authority.pair()
            await until(lambda: not refused(there.tls), "the good pair is noticed")
            assert await there.serial() != first

    with capture_logs() as lines:
        told(story, asyncio.new_event_loop)
    events = [line["event"] for line in lines if "certificate" in line["event"]]
    assert events == ["operator_certificate_refused", "operator_certificate_loaded"]


@pytest.mark.parametrize("new_loop", LOOPS)
def test_who_speaks_plain_http_is_told_so_and_what_is_neither_is_cut(
    tmp_path: Path, authority: TestAuthority, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    wanted = by_files(tmp_path, authority.pair())

    async def story() -> None:
        async with port(wanted, authority.trusting()) as there:
            for asked in (
                GET,
                b"POST /v1/x HTTP/1.1\r\nContent-Length: 30000\r\n\r\n" + b"x" * 30_000,
            ):
                head, _, body = (await there.plain(asked)).partition(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 400 ")
                problem = json.loads(body)
                assert problem["code"] == "plain-http"
                assert "https://" in problem["remedy"]
                assert b"secret" not in body
            for nonsense in (
                b"\0\0\0\0",
                b"\x80\x2e\x01",
                b"\x16\x03\x01nonsense" * 9,
                b"\xff" * 99,
            ):
                assert not (await there.plain(nonsense)).startswith(b"HTTP")
            assert (await there.ask())[0] == b"HTTP/1.1 200 OK\r\n"

    told(story, new_loop)


@pytest.mark.parametrize("new_loop", LOOPS)
def test_callers_who_never_finish_tls_are_counted_and_keep_no_operator_out(
    tmp_path: Path, authority: TestAuthority, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    wanted = by_files(tmp_path, authority.pair())

    def unfinished(tls: OperatorTls) -> float:
        return (
            {family.name: family for family in tls.collect()}["forewarn_operator_handshakes"]
            .samples[0]
            .value
        )

    async def story() -> None:
        async with port(wanted, authority.trusting()) as there:
            where = ("127.0.0.1", there.number)
            crowd = [socket.create_connection(where) for _ in range(OF_SOURCE_MAX + 5)]
            for one in crowd[10:15]:
                one.send(b"\x16\x03\x01\x02\x00\x01")
            await until(lambda: unfinished(there.tls) == OF_SOURCE_MAX, "they are counted")
            assert (await there.ask())[0] == b"HTTP/1.1 200 OK\r\n"
            for one in crowd:
                one.close()
            await until(lambda: unfinished(there.tls) == 0, "who has left is not counted")

    told(story, new_loop)


def test_a_stop_waits_for_no_idle_connection(tmp_path: Path, authority: TestAuthority) -> None:
    """A peer that neither reads nor says goodbye would hold up a stop that waited for it."""
    wanted = by_files(tmp_path, authority.pair())

    async def story() -> None:
        async with port(wanted, authority.trusting()) as there:
            reader, writer = await there.connect()
            writer.write(GET)
            assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        writer.transport.abort()

    with capture_logs() as lines:
        told(story, uvloop.new_event_loop)
    assert lines == []


# A certificate of our own.


def test_its_own_certificate_is_by_an_authority_that_is_not_that_of_the_link(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        url = "https://ctl.example:8255"
        async with control_running(tmp_path, operator_tls="own", operator_url=url) as world:
            assert world.where.operator_url == "https://ctl.example:8255"
            said = (world.where.data / "operator.url").read_text()
            assert said == "https://ctl.example:8255\n"
            mine = world.where.operator_authority
            assert mine is not None
            assert mine == world.where.data / "operator-tls" / "authority.crt"
            assert mine.read_text() != (world.where.data / "link" / "authority.crt").read_text()
            (trusted,) = ssl.create_default_context(cafile=mine).get_ca_certs()
            assert "forewarn operator authority" in str(trusted["subject"])

    run(story)


def test_its_own_certificate_is_for_the_names_of_the_machine_and_the_one_it_is_told(
    tmp_path: Path,
) -> None:
    wanted = chosen(tmp_path, operator_tls="own", operator_url="https://ctl.example:8255")

    def trusting(tls: OperatorTls) -> ssl.SSLContext:
        return strict(tls.authority_file)

    async def story() -> None:
        tls = OperatorTls(wanted)
        async with serving(APP, wanted.operator, tls=tls) as url:
            assert url == "https://ctl.example:8255"
            assert set(tls.expiries_s()) == {"operator", "operator-authority"}
        plain = chosen(tmp_path, operator_tls="own")
        async with port(plain, trusting) as there:
            _, writer = await there.connect()
            names = {one for _, one in writer.get_extra_info("peercert")["subjectAltName"]}
            assert {"localhost", "127.0.0.1", socket.gethostname().lower()} <= names
            writer.close()

    told(story, asyncio.new_event_loop)
    for file in (tmp_path / "data" / "operator-tls").iterdir():
        assert file.stat().st_mode & 0o777 == 0o600, file


def test_its_own_certificate_is_renewed_and_the_authority_stays(tmp_path: Path) -> None:
    wanted = chosen(tmp_path, operator_tls="own")

    def trusting(tls: OperatorTls) -> ssl.SSLContext:
        return strict(tls.authority_file)

    async def story() -> None:
        often = {"look_every_s": OFTEN_S, "renew_every_s": OFTEN_S}
        async with port(wanted, trusting, **often) as there:
            first = await there.serial()
            # As if it had not long to live: what is no certificate of ours is made anew.
            (tmp_path / "data" / "operator-tls" / "server.crt").unlink()

            async def changed() -> bool:
                return await there.serial() != first

            await until(changed, "a new one by the same authority is shown")
        async with port(wanted, there.trusted) as again:
            assert (await again.ask())[0] == b"HTTP/1.1 200 OK\r\n"

    told(story, asyncio.new_event_loop)


# What stops a start.


def test_a_pair_that_cannot_be_used_stops_the_start_in_words(
    tmp_path: Path, authority: TestAuthority
) -> None:
    certificate, key = authority.pair()
    key.write_bytes(b"no key")

    async def story() -> None:
        with pytest.raises(Invalid, match="cannot be used"):
            operator_tls(by_files(tmp_path, (certificate, key)))
        with pytest.raises(Invalid, match="cannot be read"):
            operator_tls(by_files(tmp_path, (certificate, tmp_path / "none")))
        assert operator_tls(chosen(tmp_path)) is None

    told(story, asyncio.new_event_loop)


def test_metrics_say_when_the_operators_certificate_expires(
    tmp_path: Path, authority: TestAuthority
) -> None:
    files = authority.pair("127.0.0.1", days=20)

    async def story() -> None:
        async with control_running(
            tmp_path, operator_certificate=str(files[0]), operator_key=str(files[1])
        ) as world:
            text = (await world.operator("GET", "/metrics", trusted=authority.trusting())).text
            name = "forewarn_certificate_expiry_timestamp_seconds"
            kinds = [line.split('"')[1] for line in text.splitlines() if line.startswith(name)]
            assert kinds == ["authority", "server", "host", "operator"]
            assert "forewarn_operator_certificate_refused 0.0" in text
            assert "forewarn_operator_handshakes" in text

    run(story)
