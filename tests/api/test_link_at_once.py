"""Turns that control answers without a task: on one connection, in order, refused in words."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import load_pem_x509_certificate
from structlog.testing import capture_logs

from forewarn.adapters.system import SystemClock
from forewarn.api.link.at_once import AT_ONCE_BYTES_MAX, AskedAtOnce, AtOnce
from forewarn.api.link.metrics import LinkMetrics
from forewarn.api.link.protocol import AT_ONCE_PER_READ_MAX, HELD_S
from forewarn.api.link.routes import Asking
from forewarn.wire import link as wire
from support.link_world import ControlWorld, Machine, control_running, run

NOTHING = {"work": False}


class Connection:
    """One connection of a host, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def answer(self) -> tuple[int, dict[str, str], Any]:
        status = int((await self._reader.readline()).split()[1])
        headers = {}
        while (line := await self._reader.readline()) != b"\r\n":
            name, _, value = line.decode().partition(":")
            headers[name.strip().lower()] = value.strip()
        body = await self._reader.readexactly(int(headers["content-length"]))
        return status, headers, msgspec.json.decode(body)

    async def ended(self) -> bool:
        return await self._reader.read(1) == b""

    async def is_silent(self, for_s: float = 0.02) -> None:
        """Nothing is answered to half a question."""
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(for_s):
                await self.ended()


def asking(
    body: bytes = b"{}", *more: str, name: str = "turn", version: str = wire.LINK_VERSION
) -> bytes:
    lines = [f"POST /link/{name} HTTP/1.1", "Host: control", f"forewarn-link: {version}", *more]
    if not any(one.lower().startswith("transfer-encoding") for one in more):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


@asynccontextmanager
async def connected(world: ControlWorld, machine: Machine) -> AsyncIterator[Connection]:
    address, _, port = world.where.hosts_listen.rpartition(":")
    tls = machine.trusting(shown=True)
    reader, writer = await asyncio.open_connection(address, int(port), ssl=tls)
    try:
        yield Connection(reader, writer)
    finally:
        writer.transport.abort()


def while_connected(
    folder: Path, story: Callable[[ControlWorld, Connection], Awaitable[None]]
) -> None:
    async def whole() -> None:
        async with control_running(folder) as world:
            machine = await world.joined("h1")
            async with connected(world, machine) as line:
                await story(world, line)

    run(whole)


def test_turns_of_one_connection_are_answered_in_order_whatever_comes_between(
    tmp_path: Path,
) -> None:
    async def story(_world: ControlWorld, line: Connection) -> None:
        changes = msgspec.json.encode(wire.AskChanges(None, 0))
        body = msgspec.json.encode(wire.Turn(confirms={"web": 1}))
        await line.send(
            asking() + asking(changes, name="changes") + asking() + asking(body) + asking(b"null")
        )
        answers = [await line.answer() for _ in range(5)]
        assert [status for status, _, _ in answers] == [200, 200, 200, 200, 400]
        assert answers[0][2] == answers[2][2] == NOTHING
        assert "names" in answers[1][2]
        for _, headers, _ in answers:
            assert headers["content-type"].startswith("application/")
            assert headers["forewarn-link"] == wire.LINK_VERSION
            assert headers["forewarn-now-ms"].isdigit()
            assert "date" in headers

    while_connected(tmp_path, story)


@pytest.mark.parametrize(
    "question",
    [
        pytest.param(asking(b"2\r\n{}\r\n0\r\n\r\n", "Transfer-Encoding: chunked"), id="chunked"),
        pytest.param(asking(b"{}" + b" " * AT_ONCE_BYTES_MAX), id="long"),
        pytest.param(asking(b'{"unknown": [1]}'), id="newer"),
    ],
)
def test_a_turn_in_any_form_is_answered_and_the_next_one_too(
    tmp_path: Path, question: bytes
) -> None:
    async def story(_world: ControlWorld, line: Connection) -> None:
        for said in (question, asking(), question):
            await line.send(said)
            status, _, told = await line.answer()
            assert (status, told) == (200, NOTHING)

    while_connected(tmp_path, story)


def test_a_turn_that_is_said_again_to_the_byte_is_not_parsed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hundreds of hosts at rest say nothing else."""
    parsed: list[bytes] = []
    read = AtOnce.read

    def reading(
        self: AtOnce, path: bytes, headers: list[tuple[bytes, bytes]], body: bytes
    ) -> AskedAtOnce | None:
        parsed.append(body)
        return read(self, path, headers, body)

    monkeypatch.setattr(AtOnce, "read", reading)
    one, other = asking(b'{"daemon":"d"}'), asking(b'{"daemon":"d"} ')

    async def story(world: ControlWorld, line: Connection) -> None:
        for _ in range(5):
            await line.send(one)
            assert (await line.answer())[::2] == (200, NOTHING)
        assert len(parsed) == 1
        for said in (other, one, other):
            await line.send(said)
            assert (await line.answer())[::2] == (200, NOTHING)
        assert len(parsed) == 4
        # Cut in two, or with more behind it, it is not the same read.
        for first, answers, rest in (
            (other[:9], 0, other[9:]),
            (other + one[:9], 1, one[9:]),
        ):
            await line.send(first)
            for _ in range(answers):
                assert (await line.answer())[::2] == (200, NOTHING)
            await line.is_silent()
            await line.send(rest)
            assert (await line.answer())[::2] == (200, NOTHING)
        # Inside the body of another question it is that body.
        await line.send(other)
        assert (await line.answer())[::2] == (200, NOTHING)
        await line.send(asking(other)[: -len(other)])
        await line.is_silent()
        await line.send(other)
        assert (await line.answer())[0] == 400
        # And who is no member any more is not answered for what it said before.
        await line.send(one)
        assert (await line.answer())[::2] == (200, NOTHING)
        answer = await world.operator("POST", "/v1/hosts/h1/revoke")
        assert answer.status_code == 200, answer.text
        await line.send(one)
        status, _, problem = await line.answer()
        assert (status, problem["code"]) == (403, "not-member")

    while_connected(tmp_path, story)


def test_a_turn_whose_body_comes_late_is_answered(tmp_path: Path) -> None:
    async def story(_world: ControlWorld, line: Connection) -> None:
        whole = asking(b'{"daemon":"d"}')
        for late_s in (0.001, 2 * HELD_S):  # then it is held no more, but goes the ordinary way
            for piece in (whole[:20], whole[20:-14], whole[-14:-7]):
                await line.send(piece)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(late_s):
                    assert not await line.ended()
            await line.send(whole[-7:])
            assert (await line.answer())[::2] == (200, NOTHING)

    while_connected(tmp_path, story)


def test_what_is_refused_is_refused_in_words_on_a_connection_that_was_answered(
    tmp_path: Path,
) -> None:
    async def story(world: ControlWorld, line: Connection) -> None:
        await line.send(asking() + asking(version="2.0") + asking(b"[]"))
        assert (await line.answer())[0] == 200
        for _ in range(2):
            status, _, problem = await line.answer()
            assert (status, problem["code"]) == (400, "invalid")
        answer = await world.operator("POST", "/v1/hosts/h1/revoke")
        assert answer.status_code == 200, answer.text
        await line.send(asking())
        status, _, problem = await line.answer()
        assert (status, problem["code"]) == (403, "not-member")

    while_connected(tmp_path, story)


def test_who_wants_the_connection_closed_has_it_closed_after_the_answer(tmp_path: Path) -> None:
    async def story(_world: ControlWorld, line: Connection) -> None:
        await line.send(asking(b"{}", "Connection: close"))
        assert (await line.answer())[::2] == (200, NOTHING)
        assert await line.ended()

    while_connected(tmp_path, story)


def test_two_daemons_that_speak_as_one_host_are_told_so_though_there_is_nothing_to_do(
    tmp_path: Path,
) -> None:
    """Neither has anything to claim; but the answer to its turn has it ask."""

    async def story(_world: ControlWorld, line: Connection) -> None:
        async def says(daemon: str) -> Any:
            await line.send(asking(msgspec.json.encode(wire.Turn(daemon=daemon))))
            return (await line.answer())[2]

        assert [await says("true"), await says("copy")] == [NOTHING, NOTHING]
        # Their times are counted in milliseconds: if both began in the same one, either may
        # be the first to be told.
        while {"work": True} not in [await says("true"), await says("copy")]:
            pass
        claim = msgspec.json.encode(wire.Claim("boot", "true"))
        await line.send(asking(claim, name="claim"))
        status, _, problem = await line.answer()
        assert (status, problem["code"]) == (409, "conflict")
        assert "Two daemons speak as host h1" in problem["detail"]

    while_connected(tmp_path, story)


def test_of_many_turns_in_one_read_all_are_answered_in_order(tmp_path: Path) -> None:
    async def story(_world: ControlWorld, line: Connection) -> None:
        many = 5 * AT_ONCE_PER_READ_MAX  # most of them go the ordinary way
        await line.send(asking() * many + asking(b"null") + asking())
        statuses = [(await line.answer())[0] for _ in range(many + 2)]
        assert statuses == [200] * many + [400, 200]

    while_connected(tmp_path, story)


# What breaks by a fault of ours.


def test_a_turn_that_breaks_is_answered_500_with_a_log_line_and_the_connection_goes_on(
    tmp_path: Path,
) -> None:
    async def story(world: ControlWorld, line: Connection) -> None:
        await line.send(asking())
        assert (await line.answer())[::2] == (200, NOTHING)
        heard: dict[str, Any] = world.service.parts.observed.hosts
        well = heard["h1"]
        heard["h1"] = None  # what a fault of ours leaves behind
        with capture_logs() as logs:
            await line.send(asking() + asking())
            for _ in range(2):
                status, headers, problem = await line.answer()
                assert (status, problem["code"]) == (500, "internal")
                assert headers["content-type"] == "application/problem+json"
        heard["h1"] = well
        failed = [one["path"] for one in logs if one["event"] == "link_request_failed"]
        assert failed == ["/link/turn"] * 2
        await line.send(asking())
        assert (await line.answer())[::2] == (200, NOTHING)

    while_connected(tmp_path, story)


def test_what_breaks_only_at_once_is_logged_once_and_goes_the_ordinary_way(tmp_path: Path) -> None:
    async def story() -> None:
        async with control_running(tmp_path) as world:
            machine = await world.joined("h1")
            shown = (machine.folder / "host.pem").read_bytes()
            certificate = load_pem_x509_certificate(shown).public_bytes(Encoding.DER)
            told: list[Any] = [ZeroDivisionError("a bug of ours"), object(), wire.Done()]

            def at_once(_: object, __: object) -> Any:
                answer = told[0]
                if isinstance(answer, Exception):
                    raise answer
                return answer

            asked = {"turn": Asking(wire.Turn, _never, at_once=at_once)}
            measures = LinkMetrics(
                members=list,
                silent_ms=lambda _: 0,
                refuses=lambda _: False,
                two_daemons=lambda _: False,
                waiting=lambda: 0,
                handshakes=lambda: 0,
            )
            membership = world.service.membership
            quick = AtOnce(asked, membership, clock=SystemClock(), measures=measures)
            version = [(wire.VERSION_HEADER.encode(), wire.LINK_VERSION.encode())]
            turn = quick.read(b"/link/turn", version, b"{}")
            assert turn is not None
            with capture_logs() as logs:
                for _ in range(3):
                    assert quick.answer(turn, certificate) is None
                told.pop(0)
                assert quick.answer(turn, certificate) is None
                told.pop(0)
                assert quick.answer(turn, certificate) is not None
            assert [one["why"].partition(":")[0] for one in logs] == ["turn", "turn"]
            assert logs[0]["why"] == "turn: ZeroDivisionError: a bug of ours"
            assert {one["event"] for one in logs} == {"link_answer_at_once_broke"}

    run(story)


async def _never(*_: object) -> Any:
    raise AssertionError("the ordinary way is another's")
