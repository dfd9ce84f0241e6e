"""One request over a kept connection: what breaks, what is slow, what is told to stop."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from forewarn_guest.errors import BadAnswer, NotFound, Unreachable
from forewarn_guest.http1 import (
    BODY_BYTES_MAX,
    REST_S,
    Address,
    Answer,
    Bell,
    Connection,
    Request,
    Stop,
    Stopped,
    bell_of,
)
from scripted_endpoint import PATIENCE_S, Reply, ScriptedEndpoint

READ_S = 5.0
OK = Reply(body=b"{}")


@pytest.fixture
def bell() -> Iterator[Bell]:
    with bell_of() as made:
        yield made


def ask(endpoint: ScriptedEndpoint, bell: Bell, **given: object) -> Answer:
    connection = Connection(Address.of(endpoint.url))
    try:
        return connection.ask(Request("/x", **given), read_s=READ_S, bell=bell)  # type: ignore[arg-type]
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://169.254.169.254", "http://169.254.169.254"),
        ("http://127.0.0.1:8254/", "http://127.0.0.1:8254"),
        ("168.63.129.16", "http://168.63.129.16"),
        ("localhost:8254", "http://localhost:8254"),
        ("http://h/metadata/scheduledevents?api-version=2020-07-01", "http://h"),
        ("http://h:81/pre/fix/metadata/scheduledevents", "http://h:81/pre/fix"),
        ("http://[fe80::1]:8254", "http://[fe80::1]:8254"),
        ("HTTP://H:80", "http://h"),
    ],
)
def test_an_address_is_read_from_what_people_paste(text: str, url: str) -> None:
    assert Address.of(text).url == url


@pytest.mark.parametrize(
    "text", ["", "https://169.254.169.254", "http://", "http://h:port", "ftp://h", "http://h:99999",
             "http://h/a b\r\nX: y", "/metadata"]
)  # fmt: skip
def test_what_is_no_address_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(NotFound, match="It is like http://"):
        Address.of(text)


def test_a_request_says_metadata_true_and_nothing_of_who_asks(bell: Bell) -> None:
    with ScriptedEndpoint(OK) as endpoint:
        answer = ask(endpoint, bell, method="POST", body=b"{1}")
    (asked,) = endpoint.asked
    assert (answer.status, answer.body) == (200, b"{}")
    assert (asked.method, asked.target, asked.body) == ("POST", "/x", b"{1}")
    assert asked.headers == {
        "host": f"127.0.0.1:{endpoint.port}",
        "metadata": "true",
        "accept-encoding": "identity",
        "content-type": "application/json",
        "content-length": "3",
    }


def test_a_header_from_a_hostile_answer_cannot_add_another_request(bell: Bell) -> None:
    with ScriptedEndpoint(OK) as endpoint:
        ask(endpoint, bell, headers={"If-None-Match": '"1"\r\nX-Forwarded-For: me', "A": "b"})
    (asked,) = endpoint.asked
    assert "x-forwarded-for" not in asked.headers
    assert "if-none-match" not in asked.headers
    assert asked.headers["a"] == "b"


def test_proxies_of_the_environment_are_never_used(
    bell: Bell, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ScriptedEndpoint(Reply(status=504)) as proxy, ScriptedEndpoint(OK) as endpoint:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        assert ask(endpoint, bell).status == 200
        assert proxy.asked == []


def test_a_redirect_is_an_answer_and_not_followed(bell: Bell) -> None:
    with ScriptedEndpoint(OK) as other:
        with ScriptedEndpoint(Reply(status=302, headers={"Location": other.url})) as endpoint:
            assert ask(endpoint, bell).status == 302
        assert other.asked == []


def test_a_connection_is_kept_for_the_next_request(bell: Bell) -> None:
    with ScriptedEndpoint(OK) as endpoint:
        connection = Connection(Address.of(endpoint.url))
        for _ in range(3):
            connection.ask(Request("/x"), read_s=READ_S, bell=bell)
        connection.close()
    assert [asked.connection for asked in endpoint.asked] == [1, 1, 1]


def test_a_connection_that_the_server_ends_with_its_answer_is_not_used_again(bell: Bell) -> None:
    with ScriptedEndpoint(Reply(body=b"1", close=True), OK) as endpoint:
        connection = Connection(Address.of(endpoint.url))
        assert connection.ask(Request("/x"), read_s=READ_S, bell=bell).body == b"1"
        assert connection.ask(Request("/x"), read_s=READ_S, bell=bell).body == b"{}"
        connection.close()
    assert [asked.connection for asked in endpoint.asked] == [1, 2]


def test_an_idle_connection_that_the_server_dropped_costs_nothing(bell: Bell) -> None:
    with ScriptedEndpoint(OK) as endpoint:
        connection = Connection(Address.of(endpoint.url))
        connection.ask(Request("/x"), read_s=READ_S, bell=bell)
        endpoint.drop_connections()
        assert connection.ask(Request("/x"), read_s=READ_S, bell=bell).status == 200
        connection.close()
    assert [asked.connection for asked in endpoint.asked] == [1, 2]


@pytest.mark.parametrize("stale", [Reply(reset=True), Reply(raw=b"", close=True)])
def test_a_kept_connection_that_breaks_is_replaced_and_asked_once_more(
    bell: Bell, stale: Reply
) -> None:
    with ScriptedEndpoint(OK, stale, OK) as endpoint:
        connection = Connection(Address.of(endpoint.url))
        connection.ask(Request("/x"), read_s=READ_S, bell=bell)
        assert connection.ask(Request("/x"), read_s=READ_S, bell=bell).status == 200
        connection.close()
    assert [asked.connection for asked in endpoint.asked] == [1, 1, 2]


@pytest.mark.parametrize(
    "broken",
    [
        Reply(reset=True),
        Reply(raw=b"", close=True),
        Reply(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort", close=True),
        Reply(raw=b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", close=True),
    ],
)
def test_a_new_connection_that_breaks_is_unreachable(bell: Bell, broken: Reply) -> None:
    with ScriptedEndpoint(broken) as endpoint, pytest.raises(Unreachable, match=endpoint.url):
        ask(endpoint, bell)
    assert len(endpoint.asked) == 1


@pytest.mark.parametrize(
    "raw",
    [b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/9.9 200 OK\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n",
     b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n",
     b"HTTP/1.1 200 " + b"x" * 70_000 + b"\r\n"],
)  # fmt: skip
def test_what_is_no_http_is_a_bad_answer(bell: Bell, raw: bytes) -> None:
    with ScriptedEndpoint(Reply(raw=raw, close=True)) as endpoint, pytest.raises(BadAnswer):
        ask(endpoint, bell)


@pytest.mark.parametrize(
    "reply",
    [
        Reply(raw=f"HTTP/1.1 200 OK\r\nContent-Length: {BODY_BYTES_MAX + 1}\r\n\r\n".encode()),
        Reply(raw=b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (BODY_BYTES_MAX + 1), close=True),
        Reply(
            raw=b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
             b"100000\r\n" + b"x" * 0x100000 + b"\r\n" + b"2\r\nxx\r\n0\r\n\r\n"
        ),
    ],
)  # fmt: skip
def test_an_answer_of_megabytes_is_refused_at_a_limit(bell: Bell, reply: Reply) -> None:
    with ScriptedEndpoint(reply) as endpoint, pytest.raises(BadAnswer, match="1048576 bytes"):
        ask(endpoint, bell)


def test_an_answer_in_chunks_or_without_a_length_is_read(bell: Bell) -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
    endless = b"HTTP/1.0 200 OK\r\n\r\nabc"
    with ScriptedEndpoint(Reply(raw=chunked), Reply(raw=endless, close=True)) as endpoint:
        assert ask(endpoint, bell).body == b"abc"
        assert ask(endpoint, bell).body == b"abc"


def test_nobody_listening_is_unreachable_at_once(bell: Bell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with pytest.raises(Unreachable, match="connection refused"):
        Connection(Address("127.0.0.1", port)).ask(Request("/x"), read_s=READ_S, bell=bell)


def test_an_answer_that_does_not_come_is_unreachable_after_the_time_out(bell: Bell) -> None:
    with ScriptedEndpoint(Reply(body=None)) as endpoint:
        connection = Connection(Address.of(endpoint.url))
        began = time.monotonic()
        with pytest.raises(Unreachable, match="did not come in time"):
            connection.ask(Request("/x"), read_s=0.3, bell=bell)
        assert time.monotonic() - began > 0.25
        assert len(endpoint.asked) == 1  # a time-out of ours is no reason to ask again


def test_an_answer_that_trickles_ends_with_the_time_out_and_not_with_each_byte(bell: Bell) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n"
    with ScriptedEndpoint(Reply(raw=head, trickle=b"x" * 5000)) as endpoint:
        connection = Connection(Address.of(endpoint.url))
        with pytest.raises(Unreachable):
            connection.ask(Request("/x"), read_s=1.0, bell=bell)


def test_an_answer_that_has_begun_must_be_whole_soon_however_long_a_wait_may_be(bell: Bell) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n"
    with ScriptedEndpoint(Reply(raw=head, trickle=b"x" * 5000)) as endpoint:
        connection = Connection(Address.of(endpoint.url))
        began = time.monotonic()
        with pytest.raises(Unreachable):
            connection.ask(Request("/x"), read_s=600.0, bell=bell)
        assert time.monotonic() - began > REST_S - 0.5


def test_a_wait_ends_as_soon_as_another_thread_says_stop() -> None:
    stop = Stop()
    ended = threading.Event()

    def wait() -> None:
        connection = Connection(Address.of(endpoint.url))
        with bell_of(stop) as bell, pytest.raises(Stopped):
            connection.ask(Request("/x"), read_s=600.0, bell=bell)
        ended.set()

    with ScriptedEndpoint(Reply(body=None)) as endpoint:
        thread = threading.Thread(target=wait)
        thread.start()
        endpoint.await_asked(1)
        stop.set()
        assert ended.wait(PATIENCE_S)
        thread.join()


def test_a_stop_stays_said_and_ends_waits_that_begin_later() -> None:
    stop = Stop()
    assert not stop.is_set()
    assert not stop.wait(0.0)
    stop.set()
    assert stop.is_set()
    assert stop.wait(60.0)
    with bell_of(Stop(), stop) as bell:
        assert bell.wait(60.0)
        with ScriptedEndpoint(Reply(body=None)) as endpoint, pytest.raises(Stopped):
            ask(endpoint, bell)


def test_a_bell_that_is_gone_can_still_be_rung() -> None:
    with bell_of() as bell:
        pass
    bell.ring()


def test_the_kernel_is_told_to_notice_a_vanished_endpoint(bell: Bell) -> None:
    if not hasattr(socket, "TCP_USER_TIMEOUT"):
        pytest.skip("this system has no TCP_USER_TIMEOUT")
    with ScriptedEndpoint(OK) as endpoint:
        connection = Connection(Address.of(endpoint.url))
        connection.ask(Request("/x"), read_s=READ_S, bell=bell)
        opened = connection._socket
        assert opened is not None
        assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 2
        assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 4000
        connection.close()
