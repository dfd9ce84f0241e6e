"""Approvals: what a POST does, and what it answers when the service cannot."""

from __future__ import annotations

import json

import pytest

from forewarn.core.errors import Conflict, NotFound, Unavailable, UnknownEventIds
from forewarn.endpoint import routes
from forewarn.endpoint.limits import Timeouts
from forewarn.endpoint.routes import REFUSAL_CHARS_MAX
from support.endpoint_world import APPROVAL, EVENT_ID, OTHER_ID, POLL, URL, get, post, running


def test_an_approval_is_answered_with_an_empty_200_once_it_is_durable() -> None:
    with running() as world:
        world.hold()
        client = world.client()
        client.send(post(APPROVAL))
        assert client.is_silent(0.05)
        world.release()
        answer = client.answer()
        assert (answer.status, answer.body, answer.headers["content-length"]) == (200, b"", "0")
        assert world.service.approved == [("web_0", (EVENT_ID,))]
        assert world.endpoint.counters.approvals == 1


def test_the_vm_that_approves_is_the_one_of_the_channel() -> None:
    with running() as world:
        for source in ("127.0.0.2", "127.0.0.1"):
            assert world.client(source).ask(post(APPROVAL)).status == 200
        assert [vm for vm, _ in world.service.approved] == ["web_1", "web_0"]


def test_ids_count_in_any_case_and_once() -> None:
    with running() as world:
        ids = f'{{"EventId":"{EVENT_ID.lower()}"}},{{"EventId":"{EVENT_ID}"}}'
        body = f'{{"StartRequests":[{ids},{{"EventId":"{OTHER_ID}","More":1}}],"X":null}}'
        assert world.client().ask(post(body.encode())).status == 200
        assert world.service.approved == [("web_0", (EVENT_ID, OTHER_ID))]


@pytest.mark.parametrize(
    "content_type",
    ["", "application/json", "application/x-www-form-urlencoded", "text/plain", "nonsense"],
)
def test_the_content_type_does_not_matter(content_type: str) -> None:
    with running() as world:
        request = post(APPROVAL, URL, *([f"Content-Type: {content_type}"] if content_type else []))
        assert world.client().ask(request).status == 200


def test_a_thousand_known_ids_are_approved_together() -> None:
    with running() as world:
        world.service.known = {f"{number:036d}" for number in range(1_000)}
        ids = ",".join(f'{{"EventId":"{known}"}}' for known in sorted(world.service.known))
        answer = world.client().ask(post(f'{{"StartRequests":[{ids}]}}'.encode()))
        assert answer.status == 200
        assert len(world.service.approved[0][1]) == 1_000


@pytest.mark.parametrize(
    ("failure", "status", "failures"),
    [
        (Unavailable("disk full"), 503, 0),
        (TimeoutError(), 503, 0),
        (RuntimeError("a bug"), 503, 1),
        (NotFound("no such VM"), 403, 0),
        (Conflict("not now"), 409, 0),
    ],
)
def test_what_the_service_cannot_do_has_its_status(
    failure: Exception, status: int, failures: int
) -> None:
    with running() as world:
        world.service.fails_with = failure
        client = world.client()
        answer = client.ask(post(APPROVAL))
        assert answer.status == status
        if status == 503:
            assert int(answer.headers["retry-after"]) > 0
        assert client.ask(POLL).status == 200
        world.failures_expected = failures


def test_an_approval_that_takes_too_long_is_answered_503() -> None:
    with running(timeouts=Timeouts(approval_s=0.05, sweep_s=0.01)) as world:
        world.hold()
        assert world.client().ask(post(APPROVAL)).status == 503


def test_an_approval_goes_on_when_its_client_leaves() -> None:
    with running() as world:
        world.hold()
        client = world.client()
        client.send(post(APPROVAL))
        world.until(lambda: len(world.endpoint.connections) == 1)
        assert client.is_silent(0.05)
        client.socket.close()
        world.release()
        world.until(lambda: world.service.approved == [("web_0", (EVENT_ID,))])
        world.until(lambda: not world.endpoint.connections)


def test_an_approval_is_no_poll() -> None:
    with running() as world:
        world.client().ask(post(APPROVAL))
        assert world.call(world.documents.polled) == {}
        assert world.service.read == []


def test_a_post_with_if_none_match_is_an_approval() -> None:
    with running() as world:
        request = post(APPROVAL, URL, 'If-None-Match: "2"', "Prefer: wait=60")
        assert world.client().ask(request).status == 200


def test_a_get_with_a_body_is_a_poll() -> None:
    with running() as world:
        length = f"Content-Length: {len(APPROVAL)}"
        client = world.client()
        client.send(get(URL, "Metadata: true", length) + APPROVAL + POLL)
        assert [client.answer().status, client.answer().status] == [200, 200]
        assert world.service.approved == []


@pytest.mark.parametrize("text", ["\x00\r\n", "雪" * 1_000, "X" * 60_000], ids=range(3))
def test_an_id_that_is_quoted_in_a_refusal_does_not_flood_the_answer(text: str) -> None:
    problem = routes.refused(UnknownEventIds(f"Unknown EventId: {text}.", "Send your own."))
    assert (problem.status, problem.reason) == (400, "unknown-event-ids")
    assert json.loads(problem.body)["error"].startswith("Bad request. Unknown EventId: ")
    assert len(json.loads(problem.body)["error"]) <= REFUSAL_CHARS_MAX
