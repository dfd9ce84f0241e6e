"""What is refused, with which status, and that a refusal changes nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from forewarn.endpoint.limits import Limits
from forewarn.endpoint.registry import NotYet
from forewarn.endpoint.routes import RequestRules
from support.endpoint_world import APPROVAL, EVENT_ID, POLL, URL, EndpointWorld, get, post, running

PATH = "/metadata/scheduledevents"
META = "Metadata: true"


@pytest.fixture(scope="module")
def world() -> Iterator[EndpointWorld]:
    with running() as world:
        yield world


@pytest.mark.parametrize(
    ("url", "status"),
    [
        (PATH, 400),
        (f"{PATH}?api-version=", 400),
        (f"{PATH}?api-version", 400),
        (f"{PATH}?api-version=latest", 404),
        (f"{PATH}?api-version=2024-07-09", 404),
        (f"{PATH}?api-version=2020-07-01x", 404),
        (f"{PATH}?api-version=2020-07-01&api-version=2020-07-01", 400),
        (f"{PATH}?api-version=2020-07-01&API-Version=2019-08-01", 400),
        (f"{PATH}?api-version=2020-07-01&a=1&a=2", 400),
        ("/", 404),
        ("/metadata", 404),
        ("/metadata/", 404),
        ("//metadata/scheduledevents?api-version=2020-07-01", 404),
        ("/metadata/scheduledevents/more?api-version=2020-07-01", 404),
        ("/metadata/../metadata/scheduledevents?api-version=2020-07-01", 404),
        ("/scheduledevents?api-version=2020-07-01", 404),
        ("/metadata/latest/scheduledevents", 404),
        ("/latest/dynamic/instance-identity/document", 404),
        ("/latest/meta-data/", 404),
        ("/metadata/v1.json", 404),
        ("/v1.json", 404),
        ("/computeMetadata/v1/", 404),
        ("/metadata/identity/oauth2/token?api-version=2018-02-01&resource=x", 404),
        ("/metadata/instance?api-version=2020-07-01", 404),
        ("/metadata/instance", 400),
        ("/metadata/instance/compute/name?api-version=2021-02-01", 400),
        ("/metadata/instance/compute/nothing?api-version=2021-02-01", 404),
        ("/metadata/instance/compute?api-version=2021-02-01&format=text", 400),
        ("/metadata/instance/%FF%00?api-version=2021-02-01", 404),
    ],
)
def test_a_url_that_makes_no_sense_is_refused(world: EndpointWorld, url: str, status: int) -> None:
    answer = world.get(url)
    assert answer.status == status
    assert json.loads(answer.body)["error"]
    assert answer.headers["content-type"].startswith("application/json")


@pytest.mark.parametrize("query", ["", "?api-version=latest", "?api-version=2024-07-09"])
def test_a_version_error_names_the_three_newest(world: EndpointWorld, query: str) -> None:
    answer = world.get(PATH + query)
    newest = json.loads(answer.body)["newest-versions"]
    assert newest == ["2020-07-01", "2019-08-01", "2019-04-01"]


@pytest.mark.parametrize(
    "url",
    [
        f"{PATH}?api-version=2020-07-01",
        f"{PATH}/?api-version=2020-07-01",
        "/Metadata/ScheduledEvents?api-version=2020-07-01",
        f"{PATH}?format=json&api-version=2020-07-01",
        f"{PATH}?API-VERSION=2020-07-01&x",
        "http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01",
        "/metadata/%73cheduledevents?api-version=2020%2D07%2D01",
        f"{PATH}?api-version=2020-07-01#part",
    ],
)
def test_every_spelling_of_the_url_that_clients_use_is_answered(
    world: EndpointWorld, url: str
) -> None:
    assert world.get(url).status == 200


@pytest.mark.parametrize("method", ["PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE"])
def test_a_wrong_verb_is_told_the_right_ones(world: EndpointWorld, method: str) -> None:
    client = world.client()
    client.send(get(URL, META, method=method))
    answer = client.answer(to_head=method == "HEAD")
    assert (answer.status, answer.headers["allow"]) == (405, "GET, POST")
    assert client.ask(POLL).status == 200


def test_posting_to_what_can_only_be_read_is_refused(world: EndpointWorld) -> None:
    answer = world.client().ask(post(b"{}", "/metadata/versions"))
    assert (answer.status, answer.headers["allow"]) == (405, "GET")


def test_other_clouds_token_request_is_refused_at_once(world: EndpointWorld) -> None:
    ttl = "X-aws-ec2-metadata-token-ttl-seconds: 21600"
    request = get("/latest/api/token", ttl, "Content-Length: 0", method="PUT")
    assert world.client().ask(request).status == 404


@pytest.mark.parametrize("header", [(), ("Metadata: false",), ("Metadata:",), ("Metadata: 1",)])
def test_without_metadata_true_a_request_is_refused(
    world: EndpointWorld, header: tuple[str, ...]
) -> None:
    client = world.client()
    for url in (URL, "/metadata/versions", "/metadata/instance?api-version=2021-02-01"):
        answer = client.ask(get(url, *header))
        assert answer.status == 400
        assert b"Required metadata header not specified" in answer.body


@pytest.mark.parametrize(
    "headers",
    [
        ("Metadata: true",),
        ("metadata: True",),
        ("METADATA:TRUE",),
        ("Metadata: true,true",),
        ("Metadata: true", "Metadata: true"),
    ],
)
def test_metadata_true_counts_in_any_spelling(
    world: EndpointWorld, headers: tuple[str, ...]
) -> None:
    assert world.client().ask(get(URL, *headers)).status == 200


def test_the_oldest_version_does_not_enforce_the_metadata_header(world: EndpointWorld) -> None:
    assert world.client().ask(get(f"{PATH}?api-version=2017-03-01")).status == 200


def test_the_metadata_header_can_be_enforced_for_every_version() -> None:
    with running(rules=RequestRules(metadata_header="always")) as world:
        client = world.client()
        assert client.ask(get(f"{PATH}?api-version=2017-03-01")).status == 400
        assert client.ask(get(f"{PATH}?api-version=2017-03-01", META)).status == 200


def test_a_forwarded_request_is_refused_before_anything_else(world: EndpointWorld) -> None:
    for url in (URL, "/", PATH):
        answer = world.client().ask(get(url, META, "X-Forwarded-For: 10.0.0.1"))
        assert answer.status == 400
        assert b"X-Forwarded-For" in answer.body


@pytest.mark.parametrize(
    "request_bytes",
    [POLL, get("/"), get(PATH), post(APPROVAL), get("/metadata/versions", META)],
)
def test_nobody_learns_nothing(world: EndpointWorld, request_bytes: bytes) -> None:
    client = world.client("127.0.0.99")
    answer = client.ask(request_bytes)
    assert (answer.status, json.loads(answer.body)) == (403, {"error": "Forbidden"})
    assert answer.headers["connection"] == "close"
    assert client.is_closed()


def test_nobody_is_refused_also_when_a_guest_has_just_sent_the_same_bytes(
    world: EndpointWorld,
) -> None:
    assert world.client().ask(POLL).status == 200
    assert world.client().ask(POLL).status == 200
    assert world.client("127.0.0.99").ask(POLL).status == 403


@pytest.mark.parametrize("request_bytes", [POLL, get("/"), post(APPROVAL)])
def test_who_is_not_known_yet_is_told_to_ask_again_and_nothing_else(
    world: EndpointWorld, request_bytes: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    guest = world.identity.by_address("127.0.0.1")
    assert guest is not None

    def early(_address: str) -> None:
        raise NotYet(guest)

    monkeypatch.setattr(world.identity, "by_address", early)
    had = set(guest.connections)
    client = world.client()
    world.until(lambda: len(guest.connections - had) == 1)  # it is no stranger
    answer = client.ask(request_bytes)
    assert answer.status == 503
    assert int(answer.headers["retry-after"]) > 0
    assert answer.headers["connection"] == "close"
    assert client.is_closed()
    world.until(lambda: not guest.connections - had)
    monkeypatch.undo()
    assert world.client().ask(POLL).status == 200


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b'"x"',
        b"{}",
        b"7",
        b"{",
        b"\xff\xfe",
        b'{"StartRequests":"x"}',
        b'{"StartRequests":null}',
        b'{"StartRequests":{}}',
        b'{"StartRequests":[]}',
        b"[{}]",
        b'{"StartRequests":[{}]}',
        b'{"StartRequests":[null]}',
        b'{"StartRequests":["x"]}',
        b'{"StartRequests":[{"EventId":7}]}',
        b'{"StartRequests":[{"EventId":null}]}',
        b'{"StartRequests":[{"EventId":["x"]}]}',
        b'{"StartRequests":[{"EventId":"\\ud800"}]}',
        b"[" * 30_000,
        b'{"StartRequests":' + b"[" * 30_000,
        b"EventId=x&y=z",
    ],
    ids=lambda body: body[:32].decode("latin-1"),
)
def test_a_malformed_approval_is_refused_and_the_connection_lives(
    world: EndpointWorld, body: bytes
) -> None:
    before = list(world.service.approved)
    client = world.client()
    answer = client.ask(post(body))
    assert answer.status == 400
    assert json.loads(answer.body)["error"]
    assert client.ask(POLL).status == 200
    assert world.service.approved == before


def test_unknown_ids_are_refused_also_beside_a_known_one(world: EndpointWorld) -> None:
    before = list(world.service.approved)
    body = b'{"StartRequests":[{"EventId":"%b"},{"EventId":"nope"}]}' % EVENT_ID.encode()
    answer = world.client().ask(post(body))
    assert answer.status == 400
    assert world.service.approved == before


def test_a_thousand_unknown_ids_get_a_small_refusal(world: EndpointWorld) -> None:
    ids = b",".join(b'{"EventId":"%036d"}' % number for number in range(1_000))
    answer = world.client().ask(post(b'{"StartRequests":[%b]}' % ids))
    assert answer.status == 400
    assert len(answer.body) < 1_000


def test_an_oversized_body_is_refused_before_it_is_sent(world: EndpointWorld) -> None:
    client = world.client()
    answer = client.ask(get(URL, META, "Content-Length: 65537", method="POST"))
    assert (answer.status, answer.headers["connection"]) == (413, "close")
    assert client.is_closed()


def test_a_client_that_sends_an_oversized_body_can_still_read_why(world: EndpointWorld) -> None:
    client = world.client()
    answer = client.ask(post(b"x" * 300_000))
    assert answer.status == 413


def test_an_oversized_chunked_body_is_refused(world: EndpointWorld) -> None:
    client = world.client()
    client.send(get(URL, META, "Transfer-Encoding: chunked", method="POST"))
    client.send(b"8000\r\n" + b"x" * 0x8000 + b"\r\n")
    client.send(b"8010\r\n" + b"x" * 0x8010 + b"\r\n")
    answer = client.answer()
    assert (answer.status, answer.headers["connection"]) == (413, "close")


def test_a_chunked_body_cannot_hide_its_length_in_tiny_chunks() -> None:
    with running(limits=Limits(chunked_bytes=10_000)) as world:
        client = world.client()
        client.send(get(URL, META, "Transfer-Encoding: chunked", method="POST"))
        client.send(b"1;extension=" + b"x" * 10_000 + b"\r\nx\r\n")
        assert client.answer().status == 413


@pytest.mark.parametrize(
    "headers",
    [(f"X: {'x' * 17_000}",), tuple(f"X-{n}: y" for n in range(101))],
    ids=["long", "many"],
)
def test_an_oversized_head_is_refused(world: EndpointWorld, headers: tuple[str, ...]) -> None:
    client = world.client()
    answer = client.ask(get(URL, META, *headers))
    assert (answer.status, answer.headers["connection"]) == (431, "close")
    assert client.is_closed()


def test_a_head_without_an_end_is_refused_at_its_limit(world: EndpointWorld) -> None:
    client = world.client()
    client.send(b"GET / HTTP/1.1\r\nX: " + b"x" * 17_000)
    assert client.answer().status == 431


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"hello\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/1.1\nHost: x\n\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/2.0\r\n\r\n",
        b"GET / HTTP/0.9\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"CONNECT example.org:80 HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\nA: b\r\n folded\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nnot hex\r\n",
        b"GET /\x00 HTTP/1.1\r\n\r\n",
    ],
)
def test_broken_http_is_refused_and_closed(world: EndpointWorld, garbage: bytes) -> None:
    client = world.client()
    answer = client.ask(garbage)
    assert (answer.status, answer.headers["connection"]) == (400, "close")
    assert client.is_closed()


def test_an_expectation_we_do_not_know_is_refused(world: EndpointWorld) -> None:
    answer = world.client().ask(post(APPROVAL, URL, "Expect: more"))
    assert answer.status == 417


def test_refusals_are_counted_by_reason() -> None:
    with running() as world:
        world.get("/nowhere")
        world.get(PATH)
        counters = world.endpoint.counters
        assert counters.refusals == {"unknown-path": 1, "no-api-version": 1}
        assert counters.answers() == {200: 0, 304: 0, 400: 1, 404: 1}
