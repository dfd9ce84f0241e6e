"""Every kind of fault as a guest meets it: over HTTP, from outside."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from emulator.faulty_world import FaultyWorld, faulty
from forewarn.emulator.faults.kinds import KINDS, FaultKind
from forewarn.testing import Cloud
from support.cloud_guest import approve
from support.endpoint_world import APPROVAL, EVENT_ID, POLL, URL, WEB, an_event, get, post
from support.endpoint_world import running as plain_world

META = "Metadata: true"
VERSIONS = get("/metadata/versions", META)
INSTANCE = get("/metadata/instance?api-version=2021-02-01", META)
HAVE_IT = get(URL, META, 'If-None-Match: "2"')
WAIT = get(URL, META, 'If-None-Match: "2"', "Prefer: wait=60")
APPROVE = post(APPROVAL)


@pytest.fixture
def world() -> Iterator[FaultyWorld]:
    with faulty() as world:
        yield world


# Statuses.

STATUSES = [("gone", 410), ("throttled", 429), ("error", 500), ("unavailable", 503)]


@pytest.mark.parametrize(("kind", "status"), STATUSES)
@pytest.mark.parametrize("request_bytes", [POLL, INSTANCE, VERSIONS, APPROVE])
def test_a_status_is_answered_on_every_path_and_the_connection_is_kept(
    world: FaultyWorld, kind: str, status: int, request_bytes: bytes
) -> None:
    world.fault(kind, count=2)
    client = world.client()
    for _ in range(2):
        answer = client.ask(request_bytes)
        assert answer.status == status
        assert "error" in json.loads(answer.body)
        assert "connection" not in answer.headers
        assert "retry-after" not in answer.headers
    assert client.ask(request_bytes).status == 200


@pytest.mark.parametrize("kind", [kind for kind, _ in STATUSES])
def test_what_is_answered_with_a_status_was_not_carried_out(world: FaultyWorld, kind: str) -> None:
    world.fault(kind, count=2)
    assert world.statuses(1, APPROVE) != [200]
    assert world.statuses(1, POLL) != [200]
    assert world.service.approved == []
    assert world.service.read == []
    assert world.statuses(1, APPROVE) == [200]
    assert world.service.approved == [("web_0", (EVENT_ID,))]


@pytest.mark.parametrize("kind", ["throttled", "unavailable"])
def test_retry_after_is_said_if_it_was_ordered(world: FaultyWorld, kind: str) -> None:
    world.fault(kind, retry_after="2m")
    assert world.get().headers["retry-after"] == "120"


def test_a_status_to_head_has_no_body_and_one_to_http_1_0_closes(world: FaultyWorld) -> None:
    world.fault("error")
    client = world.client()
    client.send(get(URL, META, method="HEAD") + POLL)
    head = client.answer(to_head=True)
    assert head.status == 500
    assert int(head.headers["content-length"]) > 0
    assert client.answer().status == 500
    sent, end = world.everything(get(URL, META, version="1.0"))
    assert b"Connection: close" in sent
    assert end == "closed"


def test_a_poll_that_would_wait_is_answered_with_the_status_at_once(world: FaultyWorld) -> None:
    world.fault("503", count=1)
    client = world.client()
    assert client.ask(WAIT).status == 503
    client.send(WAIT)
    world.until(lambda: world.endpoint.counters.parked == 1)


# Bodies that are not what they should be.


@pytest.mark.parametrize("request_bytes", [POLL, HAVE_IT, WAIT, INSTANCE])
def test_an_empty_answer_is_200_and_was_not_carried_out(
    world: FaultyWorld, request_bytes: bytes
) -> None:
    world.fault("empty", count=1)
    client = world.client()
    answer = client.ask(request_bytes)
    assert answer.status == 200
    assert answer.headers["content-length"] == "0"
    assert "etag" not in answer.headers
    assert world.service.read == []
    assert client.ask(APPROVE).status == 200
    assert client.ask(POLL).body


def test_a_cut_answer_promises_more_than_it_sends(world: FaultyWorld) -> None:
    whole = world.get()
    world.fault("cut", count=1)
    sent, end = world.everything(POLL)
    head, _, body = sent.partition(b"\r\n\r\n")
    assert head == whole.raw_head
    assert 0 < len(body) < len(whole.body)
    assert whole.body.startswith(body)
    assert end == "closed"
    assert world.get().status == 200


@pytest.mark.parametrize("request_bytes", [HAVE_IT, APPROVE])
def test_an_answer_without_a_body_is_cut_in_its_head(
    world: FaultyWorld, request_bytes: bytes
) -> None:
    world.fault("cut", count=1)
    sent, end = world.everything(request_bytes)
    assert sent.startswith(b"HTTP/1.1 ")
    assert b"\r\n\r\n" not in sent
    assert end == "closed"


def test_a_reset_is_a_real_one_and_nothing_is_sent(world: FaultyWorld) -> None:
    world.fault("reset", count=2)
    for request_bytes in (POLL, APPROVE):
        assert world.everything(request_bytes) == (b"", "reset")
    assert world.get().status == 200


@pytest.mark.parametrize("kind", ["cut", "reset"])
def test_an_approval_whose_answer_is_lost_was_applied(world: FaultyWorld, kind: str) -> None:
    world.fault(kind, count=1, method="POST")
    world.everything(APPROVE)
    assert world.service.approved == [("web_0", (EVENT_ID,))]


def test_who_approves_its_own_end_meets_the_fault_with_that_answer() -> None:
    with Cloud(delete_seconds=0) as cloud:
        vm = cloud.vm("vm0")
        event = cloud.delete(vm)
        fault = cloud.faults.add("reset", method="POST")
        with pytest.raises(ConnectionResetError):
            approve(vm, event.event_id)
        cloud.expect_gone(event)
        cloud.expect_met(fault, times=1)


@pytest.mark.parametrize("kind", ["cut", "reset"])
def test_a_parked_poll_is_cut_or_reset_when_its_answer_comes(world: FaultyWorld, kind: str) -> None:
    world.fault(kind, count=1)
    client = world.client()
    client.send(WAIT)
    world.until(lambda: world.endpoint.counters.parked == 1)
    assert client.is_silent(0.05)
    world.show(replace(WEB, incarnation=3))
    world.until(lambda: not world.endpoint.connections)


@pytest.mark.parametrize("kind", ["cut", "reset"])
def test_what_was_pipelined_behind_a_cut_is_not_carried_out(world: FaultyWorld, kind: str) -> None:
    world.fault(kind, count=1)
    world.client().send(POLL + APPROVE)
    world.until(lambda: not world.endpoint.connections)
    assert world.service.approved == []


# ETags, incarnations, rates.


def test_an_unquoted_etag_is_on_200_and_304_and_nothing_else_changes(world: FaultyWorld) -> None:
    quoted = world.get()
    world.fault("unquoted-etag")
    client = world.client()
    bare = client.ask(POLL)
    assert bare.headers == {**quoted.headers, "etag": "2"}
    assert bare.body == quoted.body
    same = client.ask(get(URL, META, "If-None-Match: 2"))
    assert (same.status, same.headers["etag"]) == (304, "2")
    assert client.ask(VERSIONS).status == 200
    world.clear()
    assert client.ask(POLL).headers["etag"] == '"2"'


def test_an_unquoted_etag_counts_only_answers_that_have_one(world: FaultyWorld) -> None:
    world.fault("unquoted-etag", count=1)
    client = world.client()
    assert client.ask(VERSIONS).status == 200
    assert client.ask(POLL).headers["etag"] == "2"
    assert client.ask(POLL).headers["etag"] == '"2"'


def test_an_unquoted_etag_stands_beside_other_faults(world: FaultyWorld) -> None:
    world.fault("unquoted-etag")
    world.fault("503", count=1)
    client = world.client()
    assert client.ask(POLL).status == 503
    assert client.ask(POLL).headers["etag"] == "2"
    client.send(WAIT)
    world.until(lambda: world.endpoint.counters.parked == 1)
    world.show(replace(WEB, incarnation=3))
    assert client.answer().headers["etag"] == "3"


def shown(world: FaultyWorld, source: str = "127.0.0.1") -> int:
    answer = world.get(source=source)
    incarnation = int(json.loads(answer.body)["DocumentIncarnation"])
    assert answer.headers["etag"] == f'"{incarnation}"'
    return incarnation


def test_skipped_incarnations_are_skipped_with_every_further_change(world: FaultyWorld) -> None:
    world.fault("skip", vm="web_1", by=3)
    assert shown(world) == 2  # nothing has changed yet
    world.show(replace(WEB, incarnation=3))
    assert (shown(world), shown(world, "127.0.0.2"), shown(world, "127.0.0.3")) == (6, 6, 7)
    world.show(replace(WEB, incarnation=3, revision=9))
    assert shown(world) == 6  # no change that a guest could see
    world.show(replace(WEB, incarnation=5))
    assert shown(world) == 14


def test_skipped_incarnations_never_come_back(world: FaultyWorld) -> None:
    world.fault("skip", by=10, count=1)
    world.show(replace(WEB, incarnation=3))
    assert shown(world) == 13
    world.clear()
    assert shown(world) == 13
    world.show(replace(WEB, incarnation=4, events=()))
    assert shown(world) == 14


def test_a_parked_poll_wakes_to_the_skipped_incarnation(world: FaultyWorld) -> None:
    world.fault("skip", by=14)
    client = world.client()
    client.send(WAIT)
    world.until(lambda: world.endpoint.counters.parked == 1)
    world.show(replace(WEB, incarnation=3, events=(an_event(),)))
    assert client.answer().headers["etag"] == '"17"'


def test_a_rate_limit_is_the_real_one_and_each_vm_has_its_own(world: FaultyWorld) -> None:
    fault = world.fault("rate-limit", per_second=0.01)
    assert world.statuses(7, POLL) == [200] * 5 + [429] * 2
    assert world.statuses(6, APPROVE, "127.0.0.2") == [200] * 5 + [429]
    answer = world.get()
    assert answer.status == 429
    assert int(answer.headers["retry-after"]) > 1
    assert world.call(world.book.get, fault.fault_id).hits == 4
    world.clear()
    assert world.statuses(20, POLL) == [200] * 20


def test_a_new_rate_limit_counts_anew(world: FaultyWorld) -> None:
    world.fault("rate-limit", per_second=0.01)
    assert world.statuses(6, POLL) == [200] * 5 + [429]
    world.clear()
    world.fault("rate-limit", per_second=0.01)
    assert world.statuses(6, POLL) == [200] * 5 + [429]


def test_a_rate_limit_of_one_vm_leaves_the_others_alone(world: FaultyWorld) -> None:
    world.fault("rate-limit", vm="web_0", per_second=0.01)
    for _ in range(3):
        assert world.statuses(5, POLL, "127.0.0.2") == [200] * 5
        world.get()
    assert world.statuses(3, POLL) == [200, 200, 429]


# The order of events.


def test_a_shuffled_document_has_the_same_events_under_the_same_tag() -> None:
    orders = []
    for seed in (7, 7, 8):
        with Cloud(scopes=["web:4"], seed=seed) as cloud:
            for number in range(4):
                cloud.restart(f"web_{number}")
            url = cloud.vm("web_0").document_url
            plain = read_document(url)
            fault = cloud.faults.add("shuffle", vm="web_0", count=20)
            drawn = [read_document(url) for _ in range(20)]
            cloud.expect_met(fault)
            assert read_document(url) == plain
            assert read_document(cloud.vm("web_1").document_url) == plain
        names = [tuple(event["Resources"][0] for event in one["Events"]) for one, _ in drawn]
        orders.append(names)
        assert all(tag == plain[1] for _, tag in drawn)
        assert {len(set(one)) for one in names} == {4}
        assert len(set(names)) > 5
    assert orders[0] == orders[1] != orders[2]


def read_document(url: str) -> tuple[Any, str]:
    """The document that a guest reads, and its ETag."""
    request = urllib.request.Request(url, headers={"Metadata": "true"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer), answer.headers["ETag"]


# The plain endpoint.


def test_nothing_is_ever_hit_in_a_plain_endpoint() -> None:
    with plain_world() as world:
        client = world.client()
        answers = [client.ask(POLL) for _ in range(50)]
    assert {answer.status for answer in answers} == {200}
    assert not hasattr(world.endpoint, "faults")


def test_strangers_are_refused_as_ever(world: FaultyWorld) -> None:
    fault = world.fault("500")
    assert world.client("127.0.0.9").ask(POLL).status == 403
    assert world.call(world.book.get, fault.fault_id).hits == 0


def test_without_a_fault_the_endpoint_answers_as_the_plain_one(world: FaultyWorld) -> None:
    requests = (POLL, POLL, HAVE_IT, INSTANCE, VERSIONS, get("/nowhere"), get(URL), APPROVE, POLL)
    client = world.client()
    found = [client.ask(request) for request in requests]
    with plain_world() as plain:
        other = plain.client()
        assert [other.ask(request) for request in requests] == found


def test_every_kind_has_one_row_and_one_sentence() -> None:
    assert set(KINDS) == set(FaultKind)
    assert all(row.sentence.endswith((".", ")")) for row in KINDS.values())
