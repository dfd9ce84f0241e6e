"""Endpoints that do anything but answer: the kit ends in time and says what it saw."""

from __future__ import annotations

import json
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from forewarn.verify import NothingAnswers, Options, Report, Verdict, run
from forewarn.verify.connection import BODY_BYTES_MAX, HEAD_BYTES_MAX

TIMEOUT_S = 0.2
LIMIT_S = 100.0
PATIENCE_S = 60.0
OPTIONS = Options(pace_per_s=0, timeout_s=TIMEOUT_S, approve=True, burst=True)

Behave = Callable[[socket.socket], None]


@contextmanager
def endpoint(behave: Behave) -> Iterator[str]:
    """A server that behaves so with every connection, until the block ends."""
    ended = threading.Event()
    threads: list[threading.Thread] = []

    def one(client: socket.socket) -> None:
        with client:
            client.settimeout(PATIENCE_S)
            try:
                behave(client)
            except OSError:
                return  # the kit has gone

    def accept() -> None:
        while not ended.is_set():
            try:
                client, _ = listener.accept()
            except TimeoutError:
                continue
            thread = threading.Thread(target=one, args=(client,))
            thread.start()
            threads.append(thread)

    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        listener.settimeout(0.05)
        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            ended.set()
            accepting.join(PATIENCE_S)
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def until_gone(client: socket.socket) -> None:
    while client.recv(65_536):
        pass


def answering(data: bytes) -> Behave:
    def behave(client: socket.socket) -> None:
        client.recv(65_536)
        client.sendall(data)

    return behave


def garbage(client: socket.socket) -> None:
    client.recv(65_536)
    client.sendall(random.Random(1).randbytes(1_000) + b"\r\n\r\n")


def reset(client: socket.socket) -> None:
    client.recv(65_536)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def endless(beginning: bytes, more: bytes) -> Behave:
    def behave(client: socket.socket) -> None:
        client.recv(65_536)
        client.sendall(beginning)
        while True:
            client.sendall(more)

    return behave


def trickle(client: socket.socket) -> None:
    client.recv(65_536)
    client.settimeout(0.02)
    for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b" " * 1_000:
        client.sendall(bytes([byte]))
        try:
            if not client.recv(1):
                return
        except TimeoutError:
            continue


OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
ENDLESS_BODY = endless(OK + b"\r\n", b"[" * 65_536)
HOSTILE: dict[str, Behave] = {
    "garbage": garbage,
    "reset": reset,
    "closes at once": lambda _: None,
    "closes after the request": answering(b""),
    "endless head": endless(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 1_000),
    "endless line": endless(b"HTTP/1.1 200 ", b"O" * 65_536),
    "endless body": ENDLESS_BODY,
    "endless chunks": endless(OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n" * 999),
    "endless interim answers": endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
    "a chunk without a length": answering(OK + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n"),
    "a body cut off": answering(OK + b"Content-Length: 100\r\n\r\n{"),
    "a body beyond reason": answering(OK + b"Content-Length: 99999999999\r\n\r\n"),
    "a length that is none": answering(OK + b"Content-Length: -5\r\n\r\n"),
    "a header that is none": answering(b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n"),
    "a status that is none": answering(b"HTTP/1.1 2OO OK\r\n\r\n"),
    "deep JSON": answering(OK + b"Content-Length: 90000\r\n\r\n" + b"[" * 90_000),
    "an empty 200": answering(OK + b"Content-Length: 0\r\n\r\n"),
    "trickle": trickle,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_whatever_an_endpoint_does_the_run_ends_with_a_report(name: str) -> None:
    began_s = time.monotonic()
    with endpoint(HOSTILE[name]) as url:
        report = run(url, OPTIONS)
    assert time.monotonic() - began_s < LIMIT_S
    failed = {outcome.check.id: outcome for outcome in report.with_verdict(Verdict.FAIL)}
    assert "get-200" in failed
    assert failed["get-200"].seen
    assert not report.good


def test_silence_is_nobody_and_ends_after_twelve_timeouts() -> None:
    began_s = time.monotonic()
    with endpoint(until_gone) as url, pytest.raises(NothingAnswers, match="no answer in time"):
        run(url, OPTIONS)
    assert TIMEOUT_S * 11 < time.monotonic() - began_s < LIMIT_S


def test_a_port_without_a_listener_is_nobody() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(NothingAnswers, match="refused"):
        run(f"http://127.0.0.1:{port}", OPTIONS)


def test_an_endpoint_that_falls_silent_is_given_up_soon() -> None:
    body = b'{"DocumentIncarnation":1,"Events":[]}'
    whole = OK + b"Content-Length: %d\r\n\r\n" % len(body) + body
    left = iter(range(20))

    def behave(client: socket.socket) -> None:
        client.recv(65_536)
        if next(left, None) is not None:
            client.sendall(whole)
        until_gone(client)

    began_s = time.monotonic()
    with endpoint(behave) as url:
        report = run(url, OPTIONS)
    assert time.monotonic() - began_s < LIMIT_S
    skipped = [outcome.why for outcome in report.with_verdict(Verdict.SKIPPED)]
    assert "the endpoint has stopped answering" in skipped


def test_no_more_is_kept_of_an_endless_answer_than_the_limit() -> None:
    sent = 0

    def behave(client: socket.socket) -> None:
        nonlocal sent
        client.recv(65_536)
        client.sendall(OK + b"\r\n")
        while True:
            client.sendall(b" " * 65_536)
            sent += 65_536

    with endpoint(behave) as url:
        report = run(url, Options(pace_per_s=0, timeout_s=60.0, only=("get-200",)))
    (outcome,) = report.outcomes
    assert outcome.seen == f"no end of the body within {BODY_BYTES_MAX} bytes"
    assert sent < 4 * (BODY_BYTES_MAX + HEAD_BYTES_MAX)  # two requests and what buffers hold


ODD_VALUES: tuple[object, ...] = (None, True, -1, 1e308, "", "x" * 999, [], {}, [[]], "\ud800", 0)


def odd_document(seed: int) -> bytes:
    """A document that is right in shape and odd in everything else."""
    chance = random.Random(seed)
    names = ("EventId", "EventStatus", "EventType", "Resources", "NotBefore", "Description")
    events = [
        {name: chance.choice(ODD_VALUES) for name in chance.sample(names, k=4)} for _ in range(3)
    ]
    events[0]["EventStatus"] = "Scheduled"
    content = {"DocumentIncarnation": chance.choice(ODD_VALUES), "Events": events}
    return json.dumps(content).encode()


def answers_oddly(seed: int) -> Report:
    body = odd_document(seed)
    whole = OK + b"Date: x\r\nETag: y\r\nContent-Length: %d\r\n\r\n" % len(body) + body

    def behave(client: socket.socket) -> None:
        while client.recv(65_536):
            client.sendall(whole)

    def schedule(_: str, __: str) -> None:
        """Nothing comes of it."""

    with endpoint(behave) as url:
        options = Options(
            pace_per_s=0,
            timeout_s=TIMEOUT_S,
            operator=schedule,
            cancel=lambda _: None,
            advance=lambda _: None,
            vm="vm0",
            skip=("wait-held", "rate"),
        )
        return run(url, options)


@pytest.mark.parametrize("seed", range(6))
def test_odd_documents_fail_checks_and_break_nothing(seed: int) -> None:
    report = answers_oddly(seed)
    failed = {outcome.check.id for outcome in report.with_verdict(Verdict.FAIL)}
    assert "get-200" not in failed
    assert len(failed) > 10
    assert all(outcome.seen.isprintable() for outcome in report.with_verdict(Verdict.FAIL))
