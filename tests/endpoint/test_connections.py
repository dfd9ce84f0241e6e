"""HTTP as clients really speak it: keep-alive, order, chunks, old versions, slow and rude ones."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from forewarn.endpoint.limits import Limits, Timeouts
from support.endpoint_world import (
    APPROVAL,
    EVENT_ID,
    NOW_MS,
    POLL,
    URL,
    WEB,
    EndpointWorld,
    an_event,
    get,
    post,
    running,
)

META = "Metadata: true"
VERSIONS = get("/metadata/versions", META)


@pytest.fixture(scope="module")
def world() -> Iterator[EndpointWorld]:
    with running() as world:
        yield world


def test_a_connection_is_kept_and_every_answer_has_a_date(world: EndpointWorld) -> None:
    client = world.client()
    for request in (POLL, POLL, VERSIONS, get("/nowhere"), post(APPROVAL), POLL):
        answer = client.ask(request)
        assert "connection" not in answer.headers
        assert answer.headers["date"] == "Tue, 03 Mar 2026 10:00:00 GMT"


def test_the_date_follows_the_clock_in_both_directions() -> None:
    with running() as world:
        client = world.client()
        assert client.ask(POLL).headers["date"] == "Tue, 03 Mar 2026 10:00:00 GMT"
        world.now_ms = NOW_MS + 1_000
        assert client.ask(POLL).headers["date"] == "Tue, 03 Mar 2026 10:00:01 GMT"
        world.now_ms = NOW_MS - 60_000
        assert client.ask(POLL).headers["date"] == "Tue, 03 Mar 2026 09:59:00 GMT"


def test_pipelined_requests_are_answered_in_order(world: EndpointWorld) -> None:
    client = world.client()
    client.send(POLL + VERSIONS + get("/nowhere") + post(APPROVAL) + POLL)
    statuses = [client.answer().status for _ in range(5)]
    assert statuses == [200, 200, 404, 200, 200]


def test_answers_behind_a_pending_approval_wait_for_it() -> None:
    with running() as world:
        world.hold()
        client = world.client()
        client.send(POLL + post(APPROVAL) + get("/nowhere") + POLL)
        assert client.answer().status == 200
        assert client.is_silent(0.05)
        world.release()
        assert [client.answer().status for _ in range(3)] == [200, 404, 200]


def test_answers_behind_a_parked_poll_wait_for_it() -> None:
    with running() as world:
        client = world.client()
        client.send(get(URL, META, 'If-None-Match: "2"', "Prefer: wait=60") + get("/nowhere"))
        world.until(lambda: world.endpoint.counters.parked == 1)
        assert client.is_silent(0.05)
        world.show(replace(WEB, incarnation=3))
        assert client.answer().headers["etag"] == '"3"'
        assert client.answer().status == 404


def test_a_client_that_pipelines_without_end_is_read_only_to_the_limit() -> None:
    with running(limits=Limits(pipelined_bytes=10_000)) as world:
        world.hold()
        client = world.client()
        client.send(post(APPROVAL))
        sent = client.flood(VERSIONS)
        assert world.client("127.0.0.2").ask(POLL).status == 200
        world.release()
        assert client.answer().status == 200
        whole, part = divmod(sent, len(VERSIONS))
        for _ in range(whole):
            assert client.answer().status == 200
        if part:
            client.send(VERSIONS[part:])
            assert client.answer().status == 200


def test_a_client_that_does_not_read_is_not_written_to_without_end() -> None:
    big = replace(WEB, events=tuple(an_event(f"{n:036d}") for n in range(500)))
    with running(big, timeouts=Timeouts(write_s=0.2, sweep_s=0.01)) as world:
        client = world.client()
        client.flood(POLL)
        world.until(lambda: not world.endpoint.connections)
        assert world.get().status == 200


def test_a_slow_reader_gets_every_byte() -> None:
    big = replace(WEB, events=tuple(an_event(f"{n:036d}") for n in range(2_000)))
    with running(big) as world:
        client = world.client()
        client.send(POLL * 20)
        for _ in range(20):
            assert len(json.loads(client.answer().body)["Events"]) == 2_000


@pytest.mark.parametrize(
    "chunks",
    [
        b"%x\r\n%b\r\n0\r\n\r\n" % (len(APPROVAL), APPROVAL),
        b"".join(b"1\r\n%c\r\n" % byte for byte in APPROVAL) + b"0\r\n\r\n",
        b"%X;name=value\r\n%b\r\n0\r\nTrailer: x\r\n\r\n" % (len(APPROVAL), APPROVAL),
    ],
)
def test_a_chunked_body_is_read_whole_and_not_beyond(world: EndpointWorld, chunks: bytes) -> None:
    world.service.approved.clear()
    head = get(URL, META, "Transfer-Encoding: chunked", method="POST")
    client = world.client()
    client.send(head + chunks + VERSIONS)
    assert [client.answer().status, client.answer().status] == [200, 200]
    assert world.service.approved == [("web_0", (EVENT_ID,))]


def test_who_waits_for_100_continue_is_told_to_go_on(world: EndpointWorld) -> None:
    client = world.client()
    head = post(APPROVAL, URL, "Expect: 100-continue").removesuffix(APPROVAL)
    assert client.ask(head).status == 100
    assert client.ask(APPROVAL).status == 200


def test_who_does_not_wait_for_100_continue_gets_one_answer(world: EndpointWorld) -> None:
    client = world.client()
    client.send(post(APPROVAL, URL, "Expect: 100-continue") + get("/nowhere"))
    assert client.answer().status == 200
    assert client.answer().status == 404


def test_http_1_0_is_answered_and_closed(world: EndpointWorld) -> None:
    for keep in ((), ("Connection: keep-alive",)):
        client = world.client()
        answer = client.ask(get(URL, META, *keep, version="1.0"))
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert client.is_closed()


@pytest.mark.parametrize(
    "request_bytes",
    [
        get(URL, META, "Connection: close"),
        get(URL, META, 'If-None-Match: "2"', "Connection: close"),
        get("/nowhere", "Connection: close"),
        get("/metadata/versions", META, "Connection: close"),
        post(APPROVAL, URL, "Connection: close"),
        get(URL, META, 'If-None-Match: "2"', "Prefer: wait=1", "Connection: close"),
    ],
)
def test_whenever_we_close_we_say_so(request_bytes: bytes) -> None:
    with running(timeouts=Timeouts(wait_s=0.05, sweep_s=0.01)) as world:
        client = world.client()
        assert client.ask(request_bytes).headers["connection"] == "close"
        assert client.is_closed()


def test_head_gets_a_head_and_no_body(world: EndpointWorld) -> None:
    client = world.client()
    client.send(get(URL, META, method="HEAD") + VERSIONS)
    assert client.answer(to_head=True).status == 405
    assert client.answer().body.startswith(b'{"apiVersions"')


def test_a_client_that_closes_its_side_still_gets_its_answers() -> None:
    with running() as world:
        world.hold()
        client = world.client()
        client.send(post(APPROVAL) + post(APPROVAL))
        client.socket.shutdown(socket.SHUT_WR)
        assert client.is_silent(0.05)
        world.release()
        assert "connection" not in client.answer().headers
        assert client.answer().headers["connection"] == "close"
        assert client.is_closed()


def test_a_poll_followed_by_the_end_of_the_stream_is_answered(world: EndpointWorld) -> None:
    client = world.client()
    client.send(POLL)
    client.socket.shutdown(socket.SHUT_WR)
    assert client.answer().status == 200
    assert client.is_closed()


@pytest.mark.parametrize(
    "headers",
    [
        ("content-length: 0",),
        ("te:",),
        ("Content-Type: application/json",),
        ("Accept: */*", "User-Agent: x", "Accept-Encoding: gzip"),
        ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"),
        ("Transfer-Encoding: chunked",),
    ],
)
def test_harmless_headers_do_no_harm(world: EndpointWorld, headers: tuple[str, ...]) -> None:
    client = world.client()
    request = get(URL, META, *headers)
    if "Transfer-Encoding: chunked" in headers:
        request += b"0\r\n\r\n"
    assert client.ask(request).status == 200
    assert client.ask(POLL).status == 200


def test_an_approval_that_offers_an_upgrade_is_read_with_its_body(world: EndpointWorld) -> None:
    world.service.approved.clear()
    client = world.client()
    upgrade = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk")
    client.send(post(APPROVAL, URL, *upgrade) + POLL)
    assert [client.answer().status, client.answer().status] == [200, 200]
    assert world.service.approved == [("web_0", (EVENT_ID,))]


def test_empty_lines_before_a_request_are_ignored(world: EndpointWorld) -> None:
    client = world.client()
    client.send(b"\r\n\r\n" + POLL + b"\r\n" + POLL)
    assert [client.answer().status, client.answer().status] == [200, 200]


@pytest.mark.parametrize(
    "request_bytes", [POLL, get(URL, META, 'If-None-Match: "2"'), post(APPROVAL), get("/no")]
)
def test_splitting_a_request_anywhere_changes_nothing(
    world: EndpointWorld, request_bytes: bytes
) -> None:
    client = world.client()
    whole = client.ask(request_bytes)
    client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for cut in range(1, len(request_bytes)):
        client.send(request_bytes[:cut])
        if cut % 7 == 0:
            world.call(lambda: None)  # let the endpoint take its turn in between
        assert client.ask(request_bytes[cut:]) == whole


def test_a_slow_head_is_ended_by_its_timeout_and_hurts_nobody() -> None:
    with running(timeouts=Timeouts(head_s=0.1, sweep_s=0.01)) as world:
        slow = [world.client() for _ in range(20)]
        for client in slow:
            client.send(b"GET / HTTP/1.1\r\nX: ")
        assert world.client("127.0.0.2").ask(POLL).status == 200
        for client in slow:
            answer = client.answer()
            assert (answer.status, answer.headers["connection"]) == (408, "close")
            assert client.is_closed()


def test_dripping_bytes_does_not_extend_the_time_for_a_head() -> None:
    with running(timeouts=Timeouts(head_s=0.2, linger_s=0.05, sweep_s=0.01)) as world:
        client = world.client()
        client.send(b"GET / HTTP/1.1\r\nX: ")
        while client.is_silent(0.02):
            client.send(b"x")
        assert client.answer().status == 408
        world.until(lambda: not world.endpoint.connections)


def test_a_slow_body_is_ended_by_its_timeout() -> None:
    with running(timeouts=Timeouts(body_s=0.05, sweep_s=0.01)) as world:
        client = world.client()
        client.send(post(APPROVAL)[:-1])
        assert client.answer().status == 408
        assert client.is_closed()
        assert not world.service.approved


def test_an_idle_connection_is_closed_by_its_timeout() -> None:
    with running(timeouts=Timeouts(idle_s=1.0, sweep_s=0.01)) as world:
        silent = world.client()
        polite = world.client()
        assert polite.ask(POLL).status == 200
        assert silent.is_closed()
        assert polite.is_closed()


def test_one_guest_cannot_take_all_connections() -> None:
    with running(limits=Limits(connections_per_guest=3)) as world:
        mine = [world.client() for _ in range(3)]
        for client in mine:
            assert client.ask(POLL).status == 200
        too_many = world.client()
        answer = too_many.answer()
        assert (answer.status, answer.headers["connection"]) == (429, "close")
        assert too_many.is_closed()
        assert world.client("127.0.0.2").ask(POLL).status == 200
        mine[0].close()
        world.until(lambda: len(world.endpoint.connections) == 3)
        assert world.client().ask(POLL).status == 200


def test_strangers_cannot_take_all_connections() -> None:
    with running(limits=Limits(connections_of_strangers=2)) as world:
        for _ in range(2):
            world.client("127.0.0.99")
        world.until(lambda: len(world.endpoint.strangers) == 2)
        assert world.client("127.0.0.98").answer().status == 403
        assert world.client().ask(POLL).status == 200


def test_the_kept_heads_stay_bounded() -> None:
    with running() as world:
        client = world.client()
        for number in range(1_100):
            client.ask(get(URL, META, f"X-Number: {number}"))
        assert len(world.endpoint.heads) <= 1_024
        assert client.ask(POLL).status == 200


def test_only_polls_are_kept() -> None:
    with running() as world:
        client = world.client()
        for request in (VERSIONS, get("/no"), post(APPROVAL), get(URL, META, "Content-Length: 0")):
            client.ask(request)
        long = get(URL, META, "X: " + "x" * 1_024)
        assert client.ask(long).status == 200
        assert long not in world.endpoint.heads
        assert all(b"scheduledevents" in head for head in world.endpoint.heads)
