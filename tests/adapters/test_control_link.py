"""The host's side of the link against a server that answers, hangs, lies and refuses."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpcore
import msgspec
import pytest

from forewarn.adapters import control_link, host_credentials
from forewarn.adapters.certificate_authority import Authority
from forewarn.adapters.control_link import ControlLink, Lane, NotAdmitted
from forewarn.adapters.one_tls_record import GATHERED_BYTES_MAX, Gathering
from forewarn.core import errors
from forewarn.core.errors import NotFound, StaleReport, Unavailable, UnknownEventIds
from forewarn.wire import link as wire
from forewarn.wire.problems import problem_json, status_of
from support.clock import START_MS
from support.host_world import a_vm
from support.shown_scopes import sighting

NOW_MS = START_MS


@dataclass
class Reply:
    """What the server sends; `raw` sends exactly these bytes instead."""

    body: bytes = b"{}"
    status: int = 200
    now: str | None = str(NOW_MS)
    raw: bytes | None = None
    hang: bool = False


@dataclass
class Server:
    """A TLS server for one test. Answers each question with the next reply, or the last one."""

    port: int = 0
    replies: list[Reply] = field(default_factory=lambda: [Reply()])
    asked: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    connections: int = 0

    def answer(self, content: msgspec.Struct) -> None:
        self.replies = [Reply(body=msgspec.json.encode(content))]

    def refuse(self, refusal: errors.Refusal | Unavailable) -> None:
        status = status_of(refusal)
        body = msgspec.json.encode(problem_json(refusal, status))
        self.replies = [Reply(body=body, status=status)]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while await self._one(reader, writer):
                pass
        writer.transport.abort()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.asked.append((first.split()[1], headers, body))
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if reply.hang:
            await reader.read()
            return False
        if reply.raw is not None:
            writer.write(reply.raw)
            writer.close()
            await writer.wait_closed()
            return False
        now = "" if reply.now is None else f"{wire.NOW_HEADER}: {reply.now}\r\n"
        writer.write(
            f"HTTP/1.1 {reply.status} X\r\n{now}Content-Length: {len(reply.body)}\r\n\r\n".encode()
            + reply.body
        )
        await writer.drain()
        return True


@contextlib.asynccontextmanager
async def serving(context: ssl.SSLContext) -> AsyncIterator[Server]:
    served = Server()
    listening = await asyncio.start_server(served.serve, "127.0.0.1", 0, ssl=context)
    served.port = listening.sockets[0].getsockname()[1]
    try:
        yield served
    finally:
        listening.close()
        await asyncio.sleep(0)


Test = Callable[[Server, ControlLink], Coroutine[Any, Any, None]]


def run(folder: Path, test: Test, *, names: tuple[str, ...] = ("127.0.0.1",)) -> None:
    """Run a test with a server of the authority that the link believes."""

    async def main() -> None:
        authority = Authority(folder / "authority")
        async with serving(authority.server_context(names)) as server:
            heard: list[tuple[int, int, int]] = []
            async with ControlLink(
                f"https://127.0.0.1:{server.port}",
                host_credentials.trusting(authority.pem),
                monotonic_ms=lambda: 5,
                heard=lambda *times: heard.append(times),
            ) as link:
                await asyncio.wait_for(test(server, link), 100)

    asyncio.run(main())


def asked(server: Server, kind: type[Any]) -> tuple[str, Any]:
    path, _, body = server.asked[-1]
    return path, msgspec.json.decode(body, type=kind)


ACTION = wire.Work(
    action_id="E1/web_0", kind="reboot-vm", host="h1", vm="web_0", epoch=3, left_ms=5_000
)
TAKEN = wire.TurnTaken(lost=("A",), refused_ended={"B": wire.NotTaken("stale-report", "no")})
JOINED = wire.Joined("cert", "authority")

Question = tuple[str, Callable[[ControlLink], Any], msgspec.Struct, msgspec.Struct, Any]

QUESTIONS: list[Question] = [
    (
        "turn",
        lambda k: k.turn(wire.Turn({"A": 2}, "it would go back")),
        wire.Turn({"A": 2}, "it would go back", daemon="d1"),
        TAKEN,
        TAKEN,
    ),
    (
        "claim",
        lambda k: k.claim("b1"),
        wire.Claim("b1", "d1"),
        wire.Claimed((ACTION,)),
        (ACTION,),
    ),
    ("holds", lambda k: k.holds("A", 2), wire.Holds("A", 2), wire.Held(holds=True), True),
    (
        "targets",
        lambda k: k.targets(["web_0"]),
        wire.AskTargets(("web_0",)),
        wire.Targets({"web_0": None}),
        {"web_0": None},
    ),
    (
        "definition",
        lambda k: k.definition("web_0"),
        wire.AskDefinition("web_0"),
        wire.Definition("<domain/>"),
        "<domain/>",
    ),
    (
        "changes",
        lambda k: k.changes(wire.Since("e", 4), 1),
        wire.AskChanges(wire.Since("e", 4), 1),
        wire.Changes("e", 5, (), (), work=True),
        wire.Changes("e", 5, (), (), work=True),
    ),
    (
        "sight",
        lambda k: k.sight([a_vm("web_0")]),
        sighting((a_vm("web_0"),)),
        wire.Sighted({"web_0": "no"}),
        {"web_0": "no"},
    ),
    ("adopted", lambda k: k.adopted("a1", "no"), wire.Adopted("a1", "no"), wire.Done(), None),
    ("renew", lambda k: k.renew("csr"), wire.Renew("csr"), JOINED, JOINED),
    ("approve", lambda k: k.approve("v", ("E",)), wire.Approve("v", ("E",)), wire.Done(), None),
    ("enable", lambda k: k.enable("web", "v"), wire.Enable("web", "v"), wire.Done(), None),
]


@pytest.mark.parametrize("one", QUESTIONS, ids=[q[0] for q in QUESTIONS])
def test_every_question_is_asked_as_the_wire_says(tmp_path: Path, one: Question) -> None:
    name, ask, question, answer, value = one

    async def test(server: Server, link: ControlLink) -> None:
        server.answer(answer)
        link.daemon = "d1"
        assert await ask(link) == value
        assert asked(server, type(question)) == (f"/link/{name}", question)
        headers = server.asked[-1][1]
        assert headers[wire.VERSION_HEADER] == wire.LINK_VERSION

    run(tmp_path, test)


@pytest.mark.parametrize(
    "refusal",
    [NotFound("no VM"), StaleReport("too late"), UnknownEventIds("no id"), errors.NotYours("no")],
)
def test_a_refusal_of_a_rule_comes_as_what_it_is(tmp_path: Path, refusal: errors.Refusal) -> None:
    async def test(server: Server, link: ControlLink) -> None:
        server.refuse(refusal)
        with pytest.raises(type(refusal)) as raised:
            await link.approve("web_0", ("E1",))
        assert raised.value.refused == refusal.refused

    run(tmp_path, test)


@pytest.mark.parametrize(
    "refusal",
    [
        Unavailable("the disk is full"),
        errors.NotMember("Host h1 was revoked.", "Invite it again."),
        errors.Invalid("The host speaks version 2.", "Upgrade control first."),
        errors.UnknownQuestion("This control does not know 'turn'.", "Upgrade control first."),
    ],
)
def test_what_is_no_answer_to_the_question_is_unavailable(
    tmp_path: Path, refusal: errors.Refusal | Unavailable
) -> None:
    async def test(server: Server, link: ControlLink) -> None:
        server.refuse(refusal)
        with pytest.raises(Unavailable) as raised:
            await link.turn(wire.Turn(ended=(wire.Ended("A", 1, "done"),)))
        assert str(refusal) in str(raised.value)

    run(tmp_path, test)


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Reply(now=None), "does not answer as a control"),
        (Reply(now="-5"), "does not answer as a control"),
        (Reply(now="9" * 40), "does not answer as a control"),
        (Reply(body=b"null"), "that this host cannot read"),
        (Reply(body=b"<html>"), "that this host cannot read"),
        (Reply(body=b'{"actions": 5}'), "that this host cannot read"),
        (Reply(status=500, body=b"\xff"), "Control answered 500"),
        (Reply(status=418, body=b"{}"), "Control answered 418"),
        (Reply(status=404, body=b'{"code": 5, "detail": null}'), "Control answered 404"),
        (Reply(raw=b"SSH-2.0-OpenSSH\r\n"), "cannot be reached"),
        (Reply(raw=b""), "cannot be reached"),
        (
            Reply(raw=b"HTTP/1.1 200 X\r\nforewarn-now-ms: 5\r\nContent-Length: 9\r\n\r\n{"),
            "cannot be reached",
        ),
    ],
)
def test_a_server_that_answers_nonsense_is_unavailable_in_words(
    tmp_path: Path, reply: Reply, words: str
) -> None:
    async def test(server: Server, link: ControlLink) -> None:
        server.replies = [reply]
        with pytest.raises(Unavailable) as raised:
            await link.claim("b1")
        assert words in str(raised.value)

    run(tmp_path, test)


def test_an_answer_that_says_that_it_is_too_large_is_not_read(tmp_path: Path) -> None:
    async def test(server: Server, link: ControlLink) -> None:
        huge = wire.BODY_BYTES_MAX + 1
        head = f"HTTP/1.1 200 X\r\n{wire.NOW_HEADER}: 5\r\nContent-Length: {huge}\r\n\r\n"
        server.replies = [Reply(raw=head.encode())]  # nothing follows to be read
        with pytest.raises(NotAdmitted) as raised:
            await link.claim("b1")
        assert "larger than any may be" in str(raised.value)
        assert len(server.asked) == 1

    run(tmp_path, test)


def test_an_answer_without_end_is_cut_off(tmp_path: Path) -> None:
    async def test(server: Server, link: ControlLink) -> None:
        head = f"HTTP/1.1 200 X\r\n{wire.NOW_HEADER}: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
        chunk = b"1000\r\n" + b" " * 0x1000 + b"\r\n"
        server.replies = [Reply(raw=head.encode() + chunk * 17)]
        lane = Lane(
            f"https://127.0.0.1:{server.port}",
            host_credentials.trusting(Authority(tmp_path / "authority").pem),
            monotonic_ms=lambda: 5,
            heard=lambda *_: None,
            answer_bytes_max=16 * 0x1000,
        )
        with pytest.raises(NotAdmitted) as raised:
            await lane.ask("claim", wire.Claim("b"), wire.Claimed, limit_s=60)
        assert "larger than any may be" in str(raised.value)
        await lane.close()

    run(tmp_path, test)


def test_a_server_that_hangs_costs_its_time_limit_and_no_more(tmp_path: Path) -> None:
    async def test(server: Server, link: ControlLink) -> None:
        server.replies = [Reply(hang=True)]
        lane = link._lanes[0]
        with pytest.raises(Unavailable) as raised:
            await lane.ask("claim", wire.Claim("b"), wire.Claimed, limit_s=0.2)
        assert "did not answer within 0.2 s" in str(raised.value)

    run(tmp_path, test)


def test_a_connection_that_was_closed_meanwhile_is_opened_again(tmp_path: Path) -> None:
    async def test(server: Server, link: ControlLink) -> None:
        good = Reply(body=msgspec.json.encode(wire.Done()))
        closing = Reply(
            raw=f"HTTP/1.1 200 X\r\n{wire.NOW_HEADER}: 5\r\nContent-Length: 2\r\n\r\n{{}}".encode()
        )
        server.replies = [closing, good]
        await link.turn(wire.Turn(confirms={"web": 1}))
        await link.turn(wire.Turn(confirms={"web": 2}))
        assert len(server.asked) == 2

    run(tmp_path, test)


def test_connections_are_kept_and_used_again(tmp_path: Path) -> None:
    async def test(server: Server, link: ControlLink) -> None:
        for incarnation in range(5):
            await link.turn(wire.Turn(confirms={"web": incarnation}))
        assert server.connections == 1

    run(tmp_path, test)


@dataclass
class Wiretap:
    """Stands before a server and keeps what is sent to it."""

    port: int = 0
    sent: bytearray = field(default_factory=bytearray)

    def records(self) -> list[int]:
        """The sizes of the TLS records with data that were sent so far."""
        sizes, at = [], 0
        while at < len(self.sent):
            size = int.from_bytes(self.sent[at + 3 : at + 5], "big")
            if self.sent[at] == TLS_DATA:
                sizes.append(size)
            at += TLS_HEAD_BYTES + size
        return sizes


TLS_DATA = 23
TLS_HEAD_BYTES = 5


@contextlib.asynccontextmanager
async def tapping(port: int) -> AsyncIterator[Wiretap]:
    tap = Wiretap()

    async def copy(source: asyncio.StreamReader, to: asyncio.StreamWriter, kept: bytearray) -> None:
        while some := await source.read(65_536):
            kept += some
            to.write(some)
        to.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(copy(reader, ours, tap.sent), copy(theirs, writer, bytearray()))

    listening = await asyncio.start_server(relay, "127.0.0.1", 0)
    tap.port = listening.sockets[0].getsockname()[1]
    try:
        yield tap
    finally:
        listening.close()
        await asyncio.sleep(0)


def test_a_question_is_one_tls_record_so_that_control_is_woken_once(tmp_path: Path) -> None:
    async def test(server: Server, link: ControlLink) -> None:
        async with tapping(server.port) as tap:
            lane = Lane(
                f"https://127.0.0.1:{tap.port}",
                host_credentials.trusting(Authority(tmp_path / "authority").pem),
                monotonic_ms=lambda: 5,
                heard=lambda *_: None,
            )
            await lane.ask("turn", wire.Turn(), wire.TurnTaken, limit_s=60)
            before = len(tap.records())  # with the handshake
            for incarnation in range(3):
                turn = wire.Turn(confirms={"web": incarnation})
                await lane.ask("turn", turn, wire.TurnTaken, limit_s=60)
                assert len(tap.records()) == before + incarnation + 1
            # What is larger than a record is not gathered in memory.
            why = "x" * 3 * GATHERED_BYTES_MAX
            await lane.ask("blind", wire.Blind(why), wire.Done, limit_s=60)
            assert server.asked[-1][2] == msgspec.json.encode(wire.Blind(why))
            assert server.connections == 1
            await lane.close()

    run(tmp_path, test)


class Deaf(httpcore.AsyncMockStream):
    """A peer that takes nothing; what it is made with it has said."""

    async def write(self, *_: object, **__: object) -> None:
        raise httpcore.WriteError


def test_who_does_not_take_a_question_is_read_all_the_same() -> None:
    async def main() -> None:
        stream = Gathering(Deaf([b"HTTP/1.1 503 X\r\n"]))
        await stream.write(b"POST /link/turn HTTP/1.1\r\n")
        assert (await stream.read(65_536)).startswith(b"HTTP/1.1 503")

    asyncio.run(main())


def test_guests_that_wait_do_not_keep_the_host_from_its_heartbeat(tmp_path: Path) -> None:
    async def test(server: Server, link: ControlLink) -> None:
        server.replies = [*[Reply(hang=True)] * control_link.CONNECTIONS_PER_LANE, Reply()]
        waiting = [
            asyncio.ensure_future(link.approve("web_0", ("E1",)))
            for _ in range(control_link.CONNECTIONS_PER_LANE)
        ]
        while len(server.asked) < control_link.CONNECTIONS_PER_LANE:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await link.turn(wire.Turn())
        assert not any(one.done() for one in waiting)
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    run(tmp_path, test)


def test_a_server_of_another_authority_is_told_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
        async with (
            serving(theirs.server_context(["127.0.0.1"])) as server,
            ControlLink(
                f"https://127.0.0.1:{server.port}",
                host_credentials.trusting(ours.pem),
                monotonic_ms=lambda: 5,
            ) as link,
        ):
            with pytest.raises(Unavailable) as raised:
                await link.turn(wire.Turn())
            assert "not by the authority that this host has joined" in str(raised.value)
            assert server.asked == []

    asyncio.run(main())


def test_a_server_of_another_name_is_told_nothing(tmp_path: Path) -> None:
    async def test(server: Server, link: ControlLink) -> None:
        with pytest.raises(Unavailable) as raised:
            await link.turn(wire.Turn())
        assert "hosts_url" in str(raised.value)
        assert server.asked == []

    run(tmp_path, test, names=("ctl.example",))


def test_a_host_whose_clock_is_years_off_reaches_control_all_the_same(tmp_path: Path) -> None:
    async def main() -> None:
        long_ago = datetime.now(UTC) - timedelta(days=10 * 365)
        authority = Authority(tmp_path / "authority", now=long_ago)
        context = authority.server_context(["127.0.0.1"], now=long_ago)  # expired for nine years
        async with (
            serving(context) as server,
            ControlLink(
                f"https://127.0.0.1:{server.port}",
                host_credentials.trusting(authority.pem),
                monotonic_ms=lambda: 5,
            ) as link,
        ):
            await link.turn(wire.Turn())
            assert len(server.asked) == 1

    asyncio.run(main())


def test_control_that_is_not_there_is_said_in_the_words_of_the_system(tmp_path: Path) -> None:
    async def main() -> None:
        trusted = host_credentials.trusting(Authority(tmp_path / "authority").pem)
        async with ControlLink("https://127.0.0.1:1", trusted, monotonic_ms=lambda: 5) as link:
            with pytest.raises(Unavailable) as raised:
                await link.turn(wire.Turn())
        assert "Connection refused" in str(raised.value)

    asyncio.run(main())


def test_a_handshake_that_is_given_up_leaves_no_descriptor_open() -> None:
    async def main() -> None:
        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        listening = await asyncio.start_server(silent, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        unverified = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        unverified.check_hostname = False
        unverified.verify_mode = ssl.CERT_NONE
        lane = Lane(
            f"https://127.0.0.1:{port}",
            unverified,
            monotonic_ms=lambda: 5,
            heard=lambda *_: None,
        )
        before = _descriptors()
        for _ in range(5):
            with pytest.raises(Unavailable):
                await lane.send("GET", "/link/authority", limit_s=0.05)
        async with asyncio.timeout(60):
            while _descriptors() > before:  # noqa: ASYNC110 - the server notices in its own time
                await asyncio.sleep(0)
        await lane.close()
        listening.close()

    asyncio.run(main())


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - counted, not read


def test_the_time_of_control_is_heard_with_every_answer(tmp_path: Path) -> None:
    async def main() -> None:
        authority = Authority(tmp_path / "authority")
        heard: list[tuple[int, int, int]] = []
        ticks = iter(range(100, 200))
        async with (
            serving(authority.server_context(["127.0.0.1"])) as server,
            ControlLink(
                f"https://127.0.0.1:{server.port}",
                host_credentials.trusting(authority.pem),
                monotonic_ms=lambda: next(ticks),
                heard=lambda *times: heard.append(times),
            ) as link,
        ):
            await link.turn(wire.Turn())
            server.refuse(NotFound("no"))
            with pytest.raises(NotFound):
                await link.turn(wire.Turn(confirms={"web": 1}))
        assert heard == [(NOW_MS, 100, 101), (NOW_MS, 102, 103)]

    asyncio.run(main())


def test_every_refusal_has_a_name_of_its_own() -> None:
    known = control_link.refusals_by_code()

    assert known["stale-report"] is StaleReport
    assert known["unknown-event-ids"] is UnknownEventIds
    assert len(known) == len(set(known.values()))
