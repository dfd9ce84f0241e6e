"""Polls: tags, waiting, first reads, enabling a scope, coming back."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from forewarn.core.errors import Unavailable
from forewarn.core.model import EventType
from forewarn.endpoint.limits import Limits, Timeouts
from support.endpoint_world import (
    DB,
    EVENT_ID,
    NOW_MS,
    OTHER_ID,
    POLL,
    URL,
    WEB,
    EndpointWorld,
    an_event,
    get,
    running,
)

META = "Metadata: true"
WAIT = get(URL, META, 'If-None-Match: "2"', "Prefer: wait=60")
OLD = get("/metadata/scheduledevents?api-version=2017-08-01", META)
CHANGED = replace(WEB, incarnation=3, events=(*WEB.events, an_event(OTHER_ID)))


@pytest.fixture(scope="module")
def world() -> Iterator[EndpointWorld]:
    with running() as world:
        yield world


def test_a_guest_reads_its_own_scope_and_no_other(world: EndpointWorld) -> None:
    assert json.loads(world.get().body)["Events"][0]["EventId"] == EVENT_ID
    assert json.loads(world.get(source="127.0.0.2").body)["DocumentIncarnation"] == 2
    assert world.get(source="127.0.0.3").body == b'{"DocumentIncarnation":7,"Events":[]}'


def test_the_document_is_json_with_a_quoted_tag(world: EndpointWorld) -> None:
    answer = world.get()
    assert answer.headers["etag"] == '"2"'
    assert answer.headers["content-type"] == "application/json; charset=utf-8"
    assert int(answer.headers["content-length"]) == len(answer.body)


@pytest.mark.parametrize("tag", ['"2"', "2", 'W/"2"', '"1", "2"', '1,W/"2"', "*", ' "2" '])
def test_a_guest_that_has_the_document_gets_no_body(world: EndpointWorld, tag: str) -> None:
    client = world.client()
    answer = client.ask(get(URL, META, f"If-None-Match: {tag}"))
    assert (answer.status, answer.body, answer.headers["etag"]) == (304, b"", '"2"')
    assert client.ask(POLL).status == 200


@pytest.mark.parametrize("tag", ['"1"', "0", "null", "", '""', '"22"', '"', ","])
def test_another_tag_gets_the_document(world: EndpointWorld, tag: str) -> None:
    assert world.get(URL, f"If-None-Match: {tag}").status == 200


def test_the_tag_is_the_same_for_every_version(world: EndpointWorld) -> None:
    for version in ("2017-03-01", "2019-01-01", "2020-07-01"):
        url = f"/metadata/scheduledevents?api-version={version}"
        assert world.get(url, 'If-None-Match: "2"').status == 304


def test_a_client_that_does_not_ask_to_wait_never_waits(world: EndpointWorld) -> None:
    for prefer in ("Prefer: respond-async", "Prefer: wait=0", "Prefer: wait=x", "Prefer: wait"):
        assert world.get(URL, 'If-None-Match: "2"', prefer).status == 304


def test_a_wait_without_a_tag_is_answered_at_once(world: EndpointWorld) -> None:
    assert world.get(URL, "Prefer: wait=60").status == 200
    assert world.get(URL, 'If-None-Match: "1"', "Prefer: wait=60").status == 200


@pytest.mark.parametrize("prefer", ["wait=60", "respond-async, wait=60", 'WAIT="60"; x=y'])
def test_a_waiting_poll_is_answered_when_the_document_changes(prefer: str) -> None:
    with running() as world:
        client = world.client()
        client.send(get(URL, META, 'If-None-Match: "2"', f"Prefer: {prefer}"))
        world.until(lambda: world.endpoint.counters.parked == 1)
        world.show(CHANGED)
        answer = client.answer()
        assert (answer.status, answer.headers["etag"]) == (200, '"3"')
        assert client.ask(POLL).status == 200


def test_a_waiting_poll_is_answered_304_when_its_time_is_over() -> None:
    with running(timeouts=Timeouts(wait_s=0.05, sweep_s=0.01)) as world:
        client = world.client()
        assert client.ask(WAIT).status == 304
        assert client.ask(POLL).status == 200
        assert world.endpoint.counters.waits == 1


def test_a_poll_waiting_with_any_tag_gets_the_next_document() -> None:
    request = get(URL, META, "If-None-Match: *", "Prefer: wait=60")
    with running(timeouts=Timeouts(wait_s=0.05, sweep_s=0.01)) as world:
        assert world.client().ask(request).status == 304
    with running() as world:
        client = world.client()
        client.send(request)
        world.until(lambda: world.endpoint.counters.parked == 1)
        world.client().ask(POLL)
        world.show(CHANGED)
        assert client.answer().status == 200


def test_showing_the_same_document_again_wakes_nobody() -> None:
    with running() as world:
        client = world.client()
        client.send(WAIT)
        world.until(lambda: world.endpoint.counters.parked == 1)
        world.show(replace(WEB, revision=9))
        world.show(replace(WEB, enabled=False))
        assert client.is_silent(0.05)


def test_a_change_of_another_scope_wakes_nobody() -> None:
    with running() as world:
        client = world.client()
        client.send(WAIT)
        world.until(lambda: world.endpoint.counters.parked == 1)
        world.show(replace(DB, incarnation=8))
        assert client.is_silent(0.05)


def test_a_waiting_client_that_leaves_is_forgotten() -> None:
    with running() as world:
        client = world.client()
        client.send(WAIT)
        world.until(lambda: world.endpoint.counters.parked == 1)
        client.close()
        world.until(lambda: world.endpoint.counters.parked == 0)
        page = world.documents.page("web")
        assert page is not None
        assert not page.waiters
        world.show(CHANGED)
        assert world.get().status == 200


def test_one_guest_can_park_only_so_many_polls() -> None:
    with running(limits=Limits(parked_per_guest=2)) as world:
        parked = [world.client() for _ in range(2)]
        for client in parked:
            client.send(WAIT)
        world.until(lambda: world.endpoint.counters.parked == 2)
        assert world.client().ask(WAIT).status == 429
        other = world.client("127.0.0.2")
        other.send(WAIT)
        world.until(lambda: world.endpoint.counters.parked == 3)
        world.show(CHANGED)
        assert [client.answer().status for client in (*parked, other)] == [200] * 3


def test_a_thousand_parked_polls_are_all_answered_by_one_change() -> None:
    limits = Limits(connections_per_guest=2_000, parked_per_guest=2_000)
    with running(limits=limits) as world:
        clients = [world.client() for _ in range(1_000)]
        for client in clients:
            client.send(WAIT)
        world.until(lambda: world.endpoint.counters.parked == 1_000)
        world.show(CHANGED)
        assert {client.answer().headers["etag"] for client in clients} == {'"3"'}


def test_a_first_read_is_reported_once_per_vm_and_event() -> None:
    with running() as world:
        for _ in range(3):
            world.get()
        world.get(source="127.0.0.2")
        assert world.service.read == [
            ("web_0", "web", frozenset({EVENT_ID})),
            ("web_1", "web", frozenset({EVENT_ID})),
        ]
        world.show(CHANGED)
        for _ in range(3):
            world.get()
        assert world.service.read[2:] == [("web_0", "web", frozenset({OTHER_ID}))]


def test_an_event_that_a_version_hides_is_not_read_by_it() -> None:
    preempt = an_event(OTHER_ID, event_type=EventType.PREEMPT)
    with running(replace(WEB, events=(*WEB.events, preempt))) as world:
        client = world.client()
        for request in (OLD, POLL, OLD, POLL):
            client.ask(request)
        assert [ids for _, _, ids in world.service.read] == [
            frozenset({EVENT_ID}),
            frozenset({OTHER_ID}),
        ]


def test_who_has_the_tag_but_was_never_sent_the_document_has_not_read_it() -> None:
    with running() as world:
        client = world.client()
        assert client.ask(get(URL, META, 'If-None-Match: "2"')).status == 304
        assert world.service.read == []
        assert client.ask(POLL).status == 200
        assert len(world.service.read) == 1


def test_a_parked_poll_that_is_answered_with_a_document_has_read_it() -> None:
    with running() as world:
        client = world.client()
        client.send(WAIT)
        world.until(lambda: world.endpoint.counters.parked == 1)
        world.show(CHANGED)
        client.answer()
        assert world.service.read == [("web_0", "web", frozenset({EVENT_ID, OTHER_ID}))]


def test_the_first_poll_enables_the_scope_before_it_is_answered() -> None:
    with running(replace(WEB, enabled=False)) as world:
        world.hold()
        client = world.client()
        client.send(POLL)
        assert client.is_silent(0.05)
        assert world.service.enabled == [("web", "web_0")]
        world.release()
        assert client.answer().status == 200
        client.ask(POLL)
        assert world.service.enabled == [("web", "web_0")]


def test_many_first_polls_at_once_enable_the_scope_once() -> None:
    with running(replace(WEB, enabled=False)) as world:
        world.hold()
        clients = [world.client(f"127.0.0.{1 + number % 2}") for number in range(10)]
        for client in clients:
            client.send(POLL)
        world.until(lambda: world.endpoint.counters.connections == 10)
        assert clients[-1].is_silent(0.05)
        world.release()
        assert {client.answer().status for client in clients} == {200}
        assert len(world.service.enabled) == 1


def test_what_enabling_makes_visible_is_in_the_same_answer() -> None:
    with running(replace(WEB, enabled=False)) as world:
        world.hold()
        client = world.client()
        client.send(POLL)
        world.until(lambda: len(world.service.enabled) == 1)
        world.show(replace(CHANGED, enabled=True))
        world.release()
        assert client.answer().headers["etag"] == '"3"'


def test_a_poll_that_only_asks_for_changes_enables_the_scope_too() -> None:
    with running(replace(WEB, enabled=False)) as world:
        assert world.get(URL, 'If-None-Match: "2"').status == 304
        assert len(world.service.enabled) == 1
    with running(replace(WEB, enabled=False)) as world:
        world.client().send(WAIT)
        world.until(lambda: world.endpoint.counters.parked == 1)
        assert len(world.service.enabled) == 1


def test_a_scope_that_fell_silent_is_enabled_again_by_the_next_poll() -> None:
    with running() as world:
        world.get()
        world.show(replace(WEB, enabled=False))
        world.get()
        assert world.service.enabled == [("web", "web_0")]


@pytest.mark.parametrize("failure", [Unavailable("disk full"), RuntimeError("a bug")])
def test_a_first_poll_that_cannot_be_kept_is_told_so(failure: Exception) -> None:
    with running(replace(WEB, enabled=False)) as world:
        world.service.fails_with = failure
        answer = world.get()
        assert (answer.status, "retry-after" in answer.headers) == (503, True)
        world.service.fails_with = None
        assert world.get().status == 200
        assert len(world.service.enabled) == 2, "the next poll tries again"
        world.failures_expected = 1 if isinstance(failure, RuntimeError) else 0


def test_a_vm_that_is_expected_back_is_reported_once_when_it_polls() -> None:
    with running() as world:
        world.get()
        world.call(world.documents.expect, "web_0")
        world.get(source="127.0.0.2")
        assert world.service.back == []
        world.get(URL, 'If-None-Match: "2"')
        world.get()
        assert world.service.back == ["web_0"]


def test_answering_a_parked_poll_is_not_a_sign_of_life() -> None:
    with running() as world:
        client = world.client()
        client.send(WAIT)
        world.until(lambda: world.endpoint.counters.parked == 1)
        world.call(world.documents.expect, "web_0")
        world.show(CHANGED)
        client.answer()
        assert world.service.back == []
        world.get()
        assert world.service.back == ["web_0"], "its next poll is one"


def test_a_scope_that_fell_silent_is_enabled_again_although_a_parked_poll_was_answered() -> None:
    with running() as world:
        client = world.client()
        client.send(WAIT)
        world.until(lambda: world.endpoint.counters.parked == 1)
        world.show(replace(CHANGED, enabled=False))
        client.answer()
        assert world.service.enabled == []
        client.ask(POLL)
        assert world.service.enabled == [("web", "web_0")]


def test_polls_are_remembered_for_the_saver_and_refusals_are_not() -> None:
    with running() as world:
        world.get("/nowhere")
        assert world.call(world.documents.polled) == {}
        world.get()
        assert world.call(world.documents.polled) == {"web": NOW_MS}
        assert world.call(world.documents.polled) == {}
        world.now_ms += 5_000
        world.get(URL, 'If-None-Match: "2"', source="127.0.0.2")
        assert world.call(world.documents.polled) == {"web": NOW_MS + 5_000}


def test_a_removed_vm_is_cut_off_also_while_it_waits() -> None:
    with running() as world:
        idle, waiting = world.client(), world.client()
        idle.ask(POLL)
        waiting.send(WAIT)
        world.until(lambda: world.endpoint.counters.parked == 1)
        world.show(replace(WEB, vms=WEB.vms[1:]))
        assert idle.is_closed()
        assert waiting.is_closed()
        assert world.client().ask(POLL).status == 403
        assert world.client("127.0.0.2").ask(POLL).status == 200


def test_polls_and_changes_at_the_same_time_never_show_an_older_document() -> None:
    with running() as world:
        seen: list[int] = []

        def poll() -> None:
            client = world.client()
            seen.extend(int(client.ask(POLL).headers["etag"].strip('"')) for _ in range(500))

        thread = threading.Thread(target=poll)
        thread.start()
        for incarnation in range(3, 60):
            world.show(replace(WEB, incarnation=incarnation))
        thread.join()
        assert seen == sorted(seen)


def test_the_counters_add_up() -> None:
    with running() as world:
        client = world.client()
        for _ in range(3):
            client.ask(POLL)
        client.ask(get(URL, META, 'If-None-Match: "2"'))
        counters = world.endpoint.counters
        assert (counters.polls_200, counters.polls_304, counters.first_reads) == (3, 1, 1)
        assert counters.answers() == {200: 3, 304: 1}
