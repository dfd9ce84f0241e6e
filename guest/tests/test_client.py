"""The client's calls: what is retried, for how long, what is refused, what is asked of whom."""

from __future__ import annotations

import json
import threading
import time

import pytest

from forewarn_guest.client import API_VERSIONS, Client, problem
from forewarn_guest.errors import BadAnswer, Busy, EndpointError, NotFound, Refused, Unreachable
from forewarn_guest.http1 import Answer
from forewarn_guest.retry_policy import RETRY_AFTER_MAX_S, delay_after, patience_with
from scripted_endpoint import Asked, Reply, ScriptedEndpoint, document, event, serving

EMPTY = document(1)
NAMES = b'{"error":"Not found.","newest-versions":["2099-01-01","2019-04-01","2019-08-01"]}'


def test_the_document_is_asked_for_in_the_newest_version_without_tag_or_wait() -> None:
    with serving(document(3, event("A"))) as (endpoint, client):
        read = client.document()
    assert (read.incarnation, [one.event_id for one in read.events]) == ("3", ["A"])
    (asked,) = endpoint.asked
    assert asked.target == "/metadata/scheduledevents?api-version=2020-07-01"
    assert "if-none-match" not in asked.headers
    assert "prefer" not in asked.headers


def test_approving_sends_the_ids_as_they_are_over_the_same_connection() -> None:
    with serving(EMPTY, Reply()) as (endpoint, client):
        client.document()
        client.approve("A1", 'b"2')
    asked = endpoint.asked[1]
    assert (asked.method, asked.connection) == ("POST", 1)
    assert json.loads(asked.body) == {"StartRequests": [{"EventId": "A1"}, {"EventId": 'b"2'}]}


def test_approving_nothing_asks_nobody() -> None:
    with serving(Reply()) as (endpoint, client):
        client.approve()
    assert endpoint.asked == []


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405])
def test_a_refusal_is_raised_at_once_with_what_the_endpoint_says(status: int) -> None:
    reply = Reply(status=status, body=b'{"error":"Bad request. No such event"}')
    with serving(reply) as (endpoint, client), pytest.raises(Refused) as caught:
        client.approve("A")
    assert f"{status}: Bad request. No such event" in str(caught.value)
    assert caught.value.status == status
    assert len(endpoint.asked) == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308, 304])
def test_a_redirect_is_refused_and_not_followed(status: int) -> None:
    with ScriptedEndpoint(EMPTY) as other:
        moved = Reply(status=status, headers={"Location": other.url})
        with serving(moved) as (_endpoint, client), pytest.raises(Refused):
            client.document()
        assert other.asked == []


@pytest.mark.parametrize("reply", [Reply(body=b"<html>"), Reply(body=b"[]"), Reply(status=204)])
def test_what_is_no_document_is_a_bad_answer(reply: Reply) -> None:
    with serving(reply) as (_endpoint, client), pytest.raises(BadAnswer):
        client.document()


@pytest.mark.parametrize("status", [410, 429, 500, 503])
def test_a_busy_endpoint_is_asked_again_until_it_answers(status: int) -> None:
    began_s = time.monotonic()
    with serving(Reply(status=status), EMPTY) as (endpoint, client):
        assert client.document().incarnation == "1"
    assert len(endpoint.asked) == 2
    assert time.monotonic() - began_s >= 0.95


def test_an_approval_is_retried_like_a_read() -> None:
    with serving(Reply(status=503), Reply()) as (endpoint, client):
        client.approve("A")
    assert [asked.method for asked in endpoint.asked] == ["POST", "POST"]


def test_a_call_can_be_told_not_to_be_patient() -> None:
    with serving(Reply(status=410)) as (endpoint, client):
        with pytest.raises(Busy) as caught:
            client.document(within_s=0)
        with pytest.raises(Busy):
            client.approve("A", within_s=0)
    assert caught.value.status == 410
    assert len(endpoint.asked) == 2


def test_patience_ends_within_what_was_given() -> None:
    with serving(Reply(status=410)) as (endpoint, client), pytest.raises(Busy):
        client.document(within_s=5)
    assert 2 <= len(endpoint.asked) <= 6  # at least a second apart; its own patience is 70 s


def test_retry_after_is_obeyed_within_a_limit() -> None:
    def busy(after: str) -> EndpointError:
        return problem(Answer(429, {"retry-after": after}, b"", 0.0))

    assert delay_after(busy("3"), 1) == 3.0
    assert delay_after(busy("0"), 1) == 1.0
    assert delay_after(busy("86400"), 1) == RETRY_AFTER_MAX_S
    date = {"date": "Mon, 19 Sep 2016 18:29:40 GMT"}
    then = {"retry-after": "Mon, 19 Sep 2016 18:29:47 GMT"}
    assert delay_after(problem(Answer(503, {**date, **then}, b"", 0.0)), 1) == 7.0
    for nonsense in ("", "soon", "-1", "1" * 50, "Mon, 19 Sep 2016 18:29:47 GMT", "²"):
        assert 1.0 <= delay_after(busy(nonsense), 1) <= 2.0


def test_a_410_is_given_seventy_seconds_and_the_others_thirty() -> None:
    assert patience_with(Busy("", status=410)) == 70.0
    assert patience_with(Busy("", status=429)) == patience_with(Busy("", status=503)) == 30.0


def test_pauses_grow_with_jitter_to_a_limit_and_a_410_is_not_backed_off() -> None:
    busy, gone = Busy("", status=503), Busy("", status=410)
    for attempt, most in ((1, 2.0), (2, 4.0), (3, 8.0), (4, 8.0), (10_000, 8.0)):
        delays = {delay_after(busy, attempt) for _ in range(50)}
        assert len(delays) > 1
        assert all(most / 2 <= delay <= most for delay in delays)
    assert all(1.0 <= delay_after(gone, 50) <= 2.0 for _ in range(50))


def test_an_empty_200_is_asked_again_at_first_and_then_the_last_document_stands() -> None:
    empty = Reply(body=b"")
    with serving(empty, document(4), empty) as (endpoint, client):
        assert client.document().incarnation == "4"
        assert client.document().incarnation == "4"
    assert len(endpoint.asked) == 3


def test_an_endpoint_that_only_ever_says_nothing_is_busy_and_has_no_events() -> None:
    with serving(Reply(body=b"")) as (_endpoint, client), pytest.raises(Busy) as caught:
        client.document(within_s=0)
    assert caught.value.status == 200


def test_the_first_call_is_given_longer_than_the_others() -> None:
    slow = threading.Event()
    held = Reply(body=EMPTY.body, hold=slow, hold_s=0.8)
    with serving(held, timeout_s=0.3, first_timeout_s=5.0) as (_, client):
        client.document()
        with pytest.raises(Unreachable):
            client.document()


def test_a_version_that_is_refused_gives_way_to_the_newest_that_both_know() -> None:
    def by_version(asked: Asked) -> Reply:
        known = asked.target.endswith(("2019-08-01", "2019-04-01"))
        return EMPTY if known else Reply(status=404, body=NAMES)

    with serving(by_version) as (endpoint, client):
        client.document()
        assert client.api_version == "2019-08-01"
        client.approve("A")
    versions = [asked.target.partition("=")[2] for asked in endpoint.asked]
    assert versions == ["2020-07-01", "2019-08-01", "2019-08-01"]


def test_a_refusal_that_names_no_other_version_stays_a_refusal() -> None:
    replies = [Reply(status=404, body=b'{"error":"x","newest-versions":["2099-01-01"]}'),
               Reply(status=400, body=b"BAD REQUEST"),
               Reply(status=400, body=b'{"newest-versions":["2020-07-01"]}')]  # fmt: skip
    with serving(*replies) as (endpoint, client):
        for _ in replies:
            with pytest.raises(Refused):
                client.document()
    assert len(endpoint.asked) == 3


def test_an_endpoint_that_names_versions_and_refuses_them_all_is_not_asked_for_ever() -> None:
    body = json.dumps({"error": "x", "newest-versions": list(API_VERSIONS)}).encode()
    with serving(Reply(status=400, body=body)) as (endpoint, client), pytest.raises(Refused):
        client.document()
    assert len(endpoint.asked) == len(API_VERSIONS)


def test_the_name_of_the_vm_is_asked_for_once() -> None:
    with (
        ScriptedEndpoint(Reply(body=b'{"name":"web_0"}')) as endpoint,
        Client(endpoint.url) as client,
    ):
        assert client.me() == client.me() == "web_0"
    (asked,) = endpoint.asked
    assert asked.target == "/metadata/instance/compute?api-version=2019-08-01"


@pytest.mark.parametrize("reply", [Reply(status=404), Reply(body=b"{}"), Reply(body=b"<html>")])
def test_the_name_falls_back_to_what_was_configured(reply: Reply) -> None:
    with ScriptedEndpoint(reply) as endpoint:
        with Client(endpoint.url, vm="mine") as client:
            assert client.me() == "mine"
        with Client(endpoint.url) as client, pytest.raises(EndpointError):
            client.me()


def test_an_unreachable_endpoint_is_said_at_once() -> None:
    with ScriptedEndpoint(EMPTY) as endpoint:
        pass
    with Client(endpoint.url) as client, pytest.raises(Unreachable):
        client.document()


def test_a_wrong_address_is_said_at_the_first_call() -> None:
    with Client("https://169.254.169.254") as client, pytest.raises(NotFound):
        client.document()


def test_the_address_of_the_environment_is_used_without_another() -> None:
    with ScriptedEndpoint(EMPTY) as endpoint:
        client = Client(environment={"FOREWARN_ENDPOINT": endpoint.url})
        client.document()
        assert client.url == endpoint.url
        client.close()
    assert len(endpoint.asked) == 1


def test_a_call_does_not_wait_for_a_slow_one_of_another_thread() -> None:
    release = threading.Event()
    slow = Reply(body=EMPTY.body, hold=release)
    read: list[str] = []
    with serving(slow, Reply()) as (endpoint, client):
        thread = threading.Thread(target=lambda: read.append(client.document().incarnation))
        thread.start()
        endpoint.await_asked(1)
        client.approve("A")
        assert read == []
        release.set()
        thread.join(60.0)
    assert read == ["1"]


def test_closing_ends_a_call_of_another_thread() -> None:
    said: list[str] = []

    def call() -> None:
        with pytest.raises(Unreachable) as caught:
            client.document()
        said.append(str(caught.value))

    with ScriptedEndpoint(Reply(body=None)) as endpoint:
        client = Client(endpoint.url)
        thread = threading.Thread(target=call)
        thread.start()
        endpoint.await_asked(1)
        client.close()
        thread.join(60.0)
        assert said == ["The client was closed."]
        with pytest.raises(Unreachable, match="closed"):
            client.document()
