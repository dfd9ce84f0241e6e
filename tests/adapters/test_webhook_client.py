"""One request to a receiver: where it may go, what of an answer counts, and where it ends."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from forewarn.adapters.webhook_client import Names, WebhookClient, is_own
from forewarn.core.webhook_retries import ANSWER_BYTES_MAX, ReceiverAnswer
from forewarn.core.webhook_targets import targets_of
from support.certificates import TestAuthority, strict
from support.webhook_world import LOOPBACK, Receiver, Script, receiving, says

HEADERS = (("Content-Type", "application/json"),)
NAME = "hooks.example.com"


def looked_up(*answers: Sequence[str]) -> Callable[[str, int], Awaitable[Sequence[str]]]:
    """Names have these addresses: those of the first look, of the second, and so on."""
    left = list(answers)

    async def look_up(_: str, __: int) -> Sequence[str]:
        return left.pop(0) if len(left) > 1 else left[0]

    return look_up


async def posted(url: str, body: bytes = b"{}", **how: Any) -> ReceiverAnswer:
    listed = how.pop("listed", LOOPBACK)
    return await WebhookClient(targets_of(listed), **how).post(url, HEADERS, body)


def answered(script: Script, **how: Any) -> tuple[ReceiverAnswer, Receiver]:
    """What comes back from a receiver that answers so."""

    async def work() -> tuple[ReceiverAnswer, Receiver]:
        async with receiving() as receiver:
            receiver.then = script
            return await posted(receiver.url, **how), receiver

    return asyncio.run(work())


def test_what_comes_back_is_shown_with_where_it_came_from() -> None:
    answer, receiver = answered(says(201, body="well done"))
    assert (answer.status, answer.body, answer.address) == (201, b"well done", "127.0.0.1")
    (sent,) = receiver.received
    assert sent.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert sent.headers["connection"] == "close"
    assert sent.body == b"{}"


def test_of_a_huge_answer_the_beginning_is_read() -> None:
    async def endless(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"400\r\n" + b"x" * 1_024 + b"\r\n")
            await writer.drain()

    answer, _ = answered(endless)
    assert answer.taken
    assert answer.body == b"x" * ANSWER_BYTES_MAX


def test_a_body_that_hangs_does_not_take_back_the_status() -> None:
    async def half(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
        await writer.drain()
        await asyncio.Event().wait()

    answer, _ = answered(half, limit_s=0.3)
    assert (answer.status, answer.body) == (200, b"half")


def test_a_receiver_that_hangs_is_left_after_the_limit() -> None:
    async def hang(_: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    answer, _ = answered(hang, limit_s=0.1)
    assert answer.words == "no answer within 0.1 s"


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        (b"", "the connection was closed without an answer"),
        (b"HTTP/1.1 2", "the connection was closed without an answer"),
        (b"220 mail.example.com\r\n", "its answer is not HTTP"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 40_000, "its answer is not HTTP"),
    ],
)
def test_what_is_no_answer_is_a_failure_in_words(script: bytes, problem: str) -> None:
    answer, _ = answered(script)
    assert (answer.status, answer.problem) == (0, problem)


def test_an_announcement_of_an_answer_is_not_the_answer() -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n"
    answer, _ = answered(early + says(503, "Retry-After: 7"))
    assert (answer.status, answer.retry_after_ms) == (503, 7_000)


@pytest.mark.parametrize("said", ["soon", "-5", "", "Wed, 99 Foo 2026"])
def test_a_wait_that_cannot_be_read_is_none(said: str) -> None:
    answer, _ = answered(says(429, f"Retry-After: {said}"))
    assert answer.retry_after_ms is None


def test_a_date_to_come_again_that_has_passed_is_no_wait() -> None:
    answer, _ = answered(says(429, "Retry-After: Mon, 19 Sep 2016 18:29:47 GMT"))
    assert answer.retry_after_ms == 0


def test_where_none_listens_it_is_said() -> None:
    async def work() -> ReceiverAnswer:
        async with receiving() as receiver:
            pass
        return await posted(receiver.url)

    assert asyncio.run(work()).problem.startswith("no connection: ")


# Where it may go.


def test_this_machine_is_sent_nothing_unless_it_is_listed() -> None:
    async def work() -> None:
        async with receiving() as receiver:
            answer = await posted(receiver.url, listed=["10.0.0.0/8"])
            assert not answer.status
            assert receiver.received == []

    asyncio.run(work())


@pytest.mark.parametrize("address", ["127.0.0.1", "::ffff:127.0.0.1", "169.254.169.254"])
def test_a_name_that_turns_to_this_machine_is_sent_nothing(address: str) -> None:
    async def work() -> None:
        async with receiving() as receiver:
            url = f"http://{NAME}:{receiver.port}/"
            for found in ([address], ["8.8.8.8", address]):
                answer = await posted(url, listed=[NAME], look_up=looked_up(found))
                assert answer.problem.startswith(f"nothing is sent to {NAME}: ")
            assert receiver.received == []

    asyncio.run(work())


def test_the_address_that_was_judged_is_the_one_that_is_connected_to() -> None:
    """A second look at the name would find another one: there is none."""

    async def work() -> None:
        async with receiving() as receiver:
            url = f"http://{NAME}:{receiver.port}/"
            look_up = looked_up(["127.0.0.1"], ["192.0.2.1"])
            listed = [NAME, "127.0.0.0/8"]
            answer = await posted(url, listed=listed, look_up=look_up)
            assert (answer.status, answer.address) == (200, "127.0.0.1")
            assert receiver.received[0].headers["host"] == f"{NAME}:{receiver.port}"

    asyncio.run(work())


def test_each_try_looks_the_name_up_anew() -> None:
    async def work() -> None:
        async with receiving() as receiver:
            url = f"http://{NAME}:{receiver.port}/"
            client = WebhookClient(
                targets_of([NAME, "127.0.0.0/8"]),
                look_up=looked_up(["127.0.0.1"], ["169.254.169.254"], ["127.0.0.1"]),
            )
            taken = [(await client.post(url, HEADERS, b"")).taken for _ in range(3)]
            assert taken == [True, False, True]

    asyncio.run(work())


def test_a_name_that_has_no_address_is_said_to_have_none() -> None:
    async def missing(_: str, __: int) -> Sequence[str]:
        raise OSError("Name or service not known")

    answer = asyncio.run(posted(f"https://{NAME}/", look_up=missing))
    assert answer.problem == f"{NAME} has no address: Name or service not known"


def test_addresses_of_this_machine_are_known_as_such() -> None:
    assert is_own("127.0.0.1")
    assert not is_own("192.0.2.1")


def test_names_are_looked_up_beside_the_event_loop() -> None:
    assert "127.0.0.1" in asyncio.run(Names().look_up("localhost", 80))


def test_no_proxy_of_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    answer, receiver = answered(says(200))
    assert answer.taken
    assert receiver.received[0].target == "/hook?x=1"


def test_over_tls_the_certificate_has_to_be_for_the_name(tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path)
    certificate, key = authority.pair(NAME)
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    served.load_cert_chain(certificate, key)

    async def work() -> None:
        async with receiving(served) as receiver:

            async def to(name: str, trusted: Path | None) -> ReceiverAnswer:
                return await posted(
                    f"https://{name}:{receiver.port}/",
                    look_up=looked_up(["127.0.0.1"]),
                    tls=lambda: strict(trusted),
                )

            assert (await to(NAME, authority.file)).taken
            other = await to("other.example.com", authority.file)
            assert "other.example.com" in other.problem
            stranger = await to(NAME, None)
            assert stranger.problem
            assert len(receiver.received) == 1

    asyncio.run(work())
