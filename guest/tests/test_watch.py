"""Following a document: when the next request begins, what counts as news, what trouble does."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace
from datetime import datetime, timezone
from itertools import islice

import pytest

from forewarn_guest.changes import What, changes
from forewarn_guest.client import Client
from forewarn_guest.document import Document, Event
from forewarn_guest.errors import BadAnswer, Busy, EndpointError, Refused, Unreachable
from forewarn_guest.following import Following
from forewarn_guest.http1 import Stop
from forewarn_guest.retry_policy import RETRY_AFTER_MAX_S
from scripted_endpoint import (
    PATIENCE_S,
    Asked,
    Reply,
    ScriptedEndpoint,
    document,
    event,
    serving,
)

UNCHANGED = Reply(status=304, headers={"ETag": "1"})


def take(client: Client, count: int) -> list[Document]:
    return list(islice(client.documents(), count))


def gaps(client: Client, count: int) -> list[float]:
    """Seconds from the beginning of each request to that of the next, until so many documents."""
    asked: list[float] = []  # at the beginning of a request, and before the pause after it

    def clock() -> float:
        asked.append(time.monotonic())
        return asked[-1]

    list(islice(Following(client, None, clock=clock).documents(), count))
    begun = asked[::2]
    return [later - earlier for earlier, later in zip(begun, begun[1:])]


def scheduled(event_id: str = "A", **fields: object) -> Event:
    whole = Event(event_id=event_id, event_type="Reboot", status="Scheduled", resources=("vm0",))
    return replace(whole, **fields)  # type: ignore[arg-type]


def whats(before: Document | None, after: Document) -> list[tuple[str, str]]:
    return [(change.what.value, change.event.event_id) for change in changes(before, after)]


# Changes between two documents.


def test_events_of_the_first_document_have_appeared() -> None:
    assert whats(None, Document("1", (scheduled("A"), scheduled("B")))) == [
        ("appeared", "A"),
        ("appeared", "B"),
    ]


def test_an_event_first_seen_as_started_has_appeared_and_started() -> None:
    failure = Document("2", (scheduled(status="Started"),))
    assert whats(Document("1", ()), failure) == [("appeared", "A"), ("started", "A")]


def test_a_start_is_a_start_and_no_other_change_though_not_before_goes() -> None:
    now = scheduled(status="Started")
    before = replace(now, status="Scheduled", not_before=datetime(2026, 3, 3, tzinfo=timezone.utc))
    assert whats(Document("1", (before,)), Document("2", (now,))) == [("started", "A")]
    moved = replace(now, resources=("vm0", "vm1"))
    assert whats(Document("1", (before,)), Document("2", (moved,))) == [
        ("started", "A"),
        ("changed", "A"),
    ]


def test_a_change_tells_of_the_event_before_and_after() -> None:
    before, after = scheduled(), scheduled(resources=("vm1",))
    (change,) = changes(Document("1", (before,)), Document("2", (after,)))
    assert (change.what, change.event, change.before) == (What.CHANGED, after, before)
    assert change.what == "changed"


def test_an_event_that_is_gone_is_told_as_it_was_last() -> None:
    (change,) = changes(Document("1", (scheduled(),)), Document("2", ()))
    assert (change.what, change.event, change.before) == (What.GONE, scheduled(), scheduled())


def test_ids_are_compared_without_case() -> None:
    before = Document("1", (scheduled("ab"),))
    assert whats(before, Document("1", (scheduled("AB"),))) == [("changed", "AB")]


def test_the_same_events_under_another_incarnation_are_no_change() -> None:
    assert whats(Document("1", (scheduled(),)), Document("9", (scheduled(),))) == []


# Requests.


def test_the_tag_goes_back_as_it_came_and_a_wait_is_asked_for() -> None:
    script = [document(1, etag="7"), document(2, etag='W/"8"'), document(3, etag='"9"')]
    with serving(*script) as (endpoint, client):
        assert [one.incarnation for one in take(client, 3)] == ["1", "2", "3"]
    first, second, third = (asked.headers for asked in endpoint.asked)
    assert "if-none-match" not in first
    assert "prefer" not in first
    assert (second["if-none-match"], second["prefer"]) == ("7", "wait=60")
    assert third["if-none-match"] == 'W/"8"'
    assert len({asked.connection for asked in endpoint.asked}) == 1


def test_a_server_that_does_not_hold_is_polled_each_second() -> None:
    news = [document(number, etag=str(number)) for number in range(4)]
    with serving(*news, UNCHANGED, UNCHANGED, UNCHANGED, document(4, etag="4")) as (_, client):
        between = gaps(client, 5)
    # The shortest: a busy machine may be late now and then.
    assert min(between[:4]) < 0.9  # after news it is asked again at once
    assert 0.95 <= min(between[4:]) < 1.5


def test_a_server_that_holds_is_asked_again_as_soon_as_it_answers() -> None:
    never = threading.Event()
    held = replace(UNCHANGED, hold=never, hold_s=1.2)
    script = [document(1, etag="1"), held, held, held, document(2, etag="2")]
    with serving(*script) as (_, client):
        between = gaps(client, 2)
    assert 1.15 <= min(between[1:]) < 1.9


def test_a_server_without_tags_is_polled_and_only_news_comes() -> None:
    script = [document(1), document(1), document(2, event("A")), document(2, event("B"))]
    with serving(*script) as (endpoint, client):
        read = take(client, 3)
    assert [[one.event_id for one in each.events] for each in read] == [[], ["A"], ["B"]]
    assert "if-none-match" not in endpoint.asked[-1].headers


def test_an_incarnation_that_goes_back_is_news() -> None:
    with serving(document(9), document(2)) as (_endpoint, client):
        assert [one.incarnation for one in take(client, 2)] == ["9", "2"]


def test_an_empty_200_keeps_what_is_known() -> None:
    script = [document(1, event("A"), etag="1"), Reply(body=b""), document(2, etag="2")]
    began_s = time.monotonic()
    with serving(*script) as (endpoint, client):
        told = [(one.what.value, one.event.event_id) for one in islice(client.watch(), 2)]
    assert told == [("appeared", "A"), ("gone", "A")]
    assert endpoint.asked[2].headers["if-none-match"] == "1"
    assert time.monotonic() - began_s >= 0.95  # it is asked again, and not at once


def test_a_server_that_always_has_news_is_not_asked_more_than_five_times_a_second() -> None:
    counter = iter(range(1000))

    def lying(_: Asked) -> Reply:
        return document(next(counter), etag="x")

    with serving(lying) as (_, client):
        assert min(gaps(client, 6)) >= 0.19


# Trouble.


def test_trouble_is_told_each_time_and_survived() -> None:
    troubles: list[EndpointError] = []
    script = [
        Reply(status=404),
        Reply(body=b"<html>"),
        Reply(reset=True),
        Reply(reset=True),  # also on the connection that replaces the broken one
        Reply(status=429, headers={"Retry-After": "1"}),
        document(1),
    ]
    with serving(*script) as (_endpoint, client):
        (read,) = islice(client.documents(on_trouble=troubles.append), 1)
    assert read.incarnation == "1"
    assert [type(one) for one in troubles] == [Refused, BadAnswer, Unreachable, Busy]


def test_a_410_is_quiet_for_as_long_as_it_may_last() -> None:
    troubles: list[EndpointError] = []
    script = [Reply(status=410), Reply(status=410), document(1)]
    with serving(*script) as (endpoint, client):
        list(islice(client.documents(on_trouble=troubles.append), 1))
    assert len(endpoint.asked) == 3
    assert troubles == []


def test_a_410_that_lasts_longer_than_it_may_is_trouble() -> None:
    now = [1000.0]
    troubles: list[EndpointError] = []
    following = Following(Client("http://h"), troubles.append, clock=lambda: now[0])
    gone = Busy("", status=410)
    for now[0] in (1000.0, 1001.5, 1069.9):
        assert 1.0 <= following._failed(gone) <= 2.0
    assert troubles == []
    now[0] = 1070.0
    following._failed(gone)
    assert troubles == [gone]


def test_an_endpoint_that_was_found_and_is_lost_is_looked_for_again() -> None:
    now = [0.0]
    with ScriptedEndpoint(document(1)) as first, ScriptedEndpoint(document(2)) as second:
        environment = {"SCHEDULEDEVENTSIP": first.url}
        client = Client(environment=environment)
        assert client.document().incarnation == "1"
        environment["SCHEDULEDEVENTSIP"] = second.url
        following = Following(client, lambda _: None, clock=lambda: now[0])
        for now[0] in (0.0, 59.0):
            following._failed(Unreachable(""))
            assert client.url == first.url
        now[0] = 60.0
        following._failed(Unreachable(""))
        assert client.url == second.url
        assert client.document().incarnation == "2"
        client.close()


def test_an_endpoint_that_was_told_is_never_exchanged_for_another() -> None:
    with serving(document(1)) as (endpoint, client):
        client.document()
        client.look_again()
        assert client.url == endpoint.url


@pytest.mark.parametrize(
    ("reply", "error"), [(Reply(status=404), Refused), (Reply(body=b"<html>"), BadAnswer)]
)
def test_a_wrong_address_is_raised_to_who_does_not_listen_for_trouble(
    reply: Reply, error: type[EndpointError]
) -> None:
    with serving(reply) as (_endpoint, client), pytest.raises(error):
        next(iter(client.documents()))


def test_an_outage_is_logged_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    script = [document(1, etag="1"), Reply(status=404), Reply(status=400), document(2, etag="2")]
    with caplog.at_level(logging.WARNING), serving(*script) as (_, client):
        assert len(take(client, 2)) == 2
    said = [record.getMessage() for record in caplog.records]
    assert [line.partition(",")[0] for line in said] == [
        "the endpoint does not answer as it should",
        "the endpoint answers again",
    ]


# The end.


@pytest.mark.parametrize("by", ["stop", "close"])
def test_following_ends_promptly_from_another_thread(by: str) -> None:
    stop = Stop()
    ended = threading.Event()

    def follow() -> None:
        for _ in client.documents(stop):
            pass
        ended.set()

    script = [document(1, etag="1"), Reply(body=None)]
    with serving(*script, wait_s=600) as (endpoint, client):
        thread = threading.Thread(target=follow)
        thread.start()
        endpoint.await_asked(2)
        if by == "stop":
            stop.set()
        else:
            client.close()
        assert ended.wait(PATIENCE_S)
        thread.join()


def test_a_stop_ends_the_search_for_the_endpoint() -> None:
    stop = Stop()
    with ScriptedEndpoint(Reply(body=None)) as endpoint:
        client = Client(environment={"SCHEDULEDEVENTSIP": f"127.0.0.1:{endpoint.port}"})
        thread = threading.Thread(target=lambda: list(client.documents(stop)))
        thread.start()
        endpoint.await_asked(1)
        stop.set()
        thread.join(PATIENCE_S)  # the search itself may take two minutes
        assert not thread.is_alive()
        client.close()


def test_a_stop_that_was_said_before_asks_nobody() -> None:
    stop = Stop()
    stop.set()
    with serving(document(1)) as (endpoint, client):
        assert list(client.documents(stop)) == []
    assert endpoint.asked == []


def test_a_stop_ends_a_pause_between_two_polls() -> None:
    stop = Stop()
    ended = threading.Event()

    def follow() -> None:
        for _ in client.documents(stop, on_trouble=lambda _: None):
            pass
        ended.set()

    busy = Reply(status=429, headers={"Retry-After": "10"})
    with serving(busy) as (endpoint, client):
        thread = threading.Thread(target=follow)
        thread.start()
        endpoint.await_asked(1)
        stop.set()
        assert ended.wait(RETRY_AFTER_MAX_S - 1)  # the pause would be over a second later
        thread.join()


def test_approving_while_another_thread_waits_for_news() -> None:
    told: list[str] = []
    script = [document(1, event("A"), etag="1"), Reply(body=None), Reply()]
    with serving(*script) as (endpoint, client):

        def follow() -> None:
            told.extend(change.event.event_id for change in client.watch())

        thread = threading.Thread(target=follow)
        thread.start()
        endpoint.await_asked(2)
        client.approve("A")
        client.close()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert told == ["A"]
    assert endpoint.asked[2].method == "POST"
