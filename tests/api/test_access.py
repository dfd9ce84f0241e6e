"""Who gets in, and what errors look like: token, problems, limits."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Iterator, MutableMapping
from typing import Any, TypeVar

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request

from forewarn.api.app import create_app
from forewarn.api.order_bodies import BODY_BYTES_MAX
from forewarn.api.requests import read_body
from forewarn.control.control import Control
from forewarn.control.metrics import ControlMetrics
from forewarn.control.writer import Wanted
from support.operator_world import TOKEN, OperatorWorld, running

T = TypeVar("T")

PATHS = ("/v1/vms", "/v1/health", "/v1/openapi.json", "/v1/backup", "/metrics", "/v1/nothing")


@pytest.fixture(scope="module")
def world() -> Iterator[OperatorWorld]:
    with running() as world:
        yield world


@pytest.mark.parametrize("path", PATHS)
def test_every_path_wants_the_token_also_on_loopback(world: OperatorWorld, path: str) -> None:
    answer = world.call("GET", path, token=None)

    assert answer.status == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json["code"] == "no-token"


@pytest.mark.parametrize("token", ["", "x", TOKEN + "x", TOKEN[:-1], TOKEN.upper(), "\xfc"])
def test_a_wrong_token_is_refused(world: OperatorWorld, token: str) -> None:
    assert world.call("GET", "/v1/vms", token=token).status == 401


@pytest.mark.parametrize("tokens", [("wrong", TOKEN), (TOKEN, "wrong")])
def test_two_tokens_are_refused_even_if_one_is_right(
    world: OperatorWorld, tokens: tuple[str, str]
) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", world.port, timeout=60)
    connection.putrequest("GET", "/v1/vms")
    for token in tokens:
        connection.putheader("Authorization", f"Bearer {token}")
    connection.endheaders()

    assert connection.getresponse().status == 401
    connection.close()


def test_an_order_without_the_token_changes_nothing(world: OperatorWorld) -> None:
    assert world.call("POST", "/v1/vms/lonely/restart", token="wrong").status == 401

    assert world.get("/v1/events?all=true&scope=lonely")["items"] == []


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/nothing", 404, "unknown-path"),
        ("GET", "/", 404, "unknown-path"),
        ("GET", "/v1/vms/", 404, "unknown-path"),
        ("POST", "/v1/vms", 405, "wrong-verb"),
        ("GET", "/v1/vms/lonely/restart", 405, "wrong-verb"),
        ("GET", "/v1/vms/nobody", 404, "not-found"),
        ("GET", "/v1/hosts/nobody", 404, "not-found"),
        ("GET", "/v1/scopes/nobody", 404, "not-found"),
        ("GET", "/v1/vms?scope=nobody", 404, "not-found"),
        ("GET", "/v1/events/00000000-0000-4000-8000-FFFFFFFFFFFF", 404, "not-found"),
        ("GET", "/v1/events/0000", 400, "invalid"),
        ("GET", "/v1/operations/abcdef", 404, "not-found"),
        ("POST", "/v1/vms/nobody/restart", 404, "not-found"),
        ("POST", "/v1/vms/lonely/evict", 409, "not-spot"),
        ("POST", "/v1/scopes/web/release", 404, "not-found"),
        ("POST", "/v1/events/abcdef/approve", 404, "not-found"),
        ("GET", "/v1/vms?limit=0", 400, "invalid"),
        ("GET", "/v1/vms?limit=1001", 400, "invalid"),
        ("GET", "/v1/vms?limit=x", 400, "invalid"),
        ("GET", "/v1/vms?colour=red", 400, "invalid"),
        ("GET", "/v1/vms?limit=1&limit=2", 400, "invalid"),
        ("GET", "/v1/journal?wait=31", 400, "invalid"),
        ("GET", "/v1/journal?after=-1", 400, "invalid"),
        ("POST", "/v1/vms/lonely/restart?now=1", 400, "invalid"),
    ],
)
def test_every_error_is_a_problem_with_what_would_be_accepted(
    world: OperatorWorld, method: str, path: str, status: int, code: str
) -> None:
    answer = world.call(method, path)

    assert (answer.status, answer.json["code"]) == (status, code)
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json["status"] == status
    assert answer.json["detail"]
    assert answer.json["remedy"]


def test_a_wrong_verb_is_told_which_are_right(world: OperatorWorld) -> None:
    answer = world.call("DELETE", "/v1/vms/lonely")

    assert answer.status == 405
    assert "GET" in answer.headers["allow"]


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"null",
        b'"x"',
        b"{",
        b"{}",
        b"\xff",
        b'{"event_type":"Preempt"}',
        b'{"event_type":"Reboot","colour":1}',
        b'{"event_type":"Reboot","not_before":"tomorrow"}',
        b'{"event_type":"Reboot","not_before":"2001-01-01T00:00:00Z"}',
        b'{"event_type":"Reboot","break_domains":"yes"}',
    ],
)
def test_an_order_that_makes_no_sense_is_refused_and_nothing_changes(
    world: OperatorWorld, body: bytes
) -> None:
    answer = world.call("POST", "/v1/hosts/h2/maintain", body)

    assert (answer.status, answer.json["code"]) == (400, "invalid")
    assert world.get("/v1/operations?all=true")["items"] == []


def test_an_order_that_its_path_says_whole_takes_no_words(world: OperatorWorld) -> None:
    assert world.call("POST", "/v1/hosts/h2/close", b'{"sure":true}').status == 400
    assert world.get("/v1/hosts/h2")["closed"] is False


def test_a_body_beyond_the_limit_is_refused(world: OperatorWorld) -> None:
    answer = world.call("POST", "/v1/hosts/h2/maintain", b" " * (BODY_BYTES_MAX + 1))

    assert (answer.status, answer.json["code"]) == (413, "body-too-large")


def test_a_chunked_body_beyond_the_limit_is_refused(world: OperatorWorld) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", world.port, timeout=60)
    chunks = iter([b" " * 1_024] * (BODY_BYTES_MAX // 1_024 + 1))
    connection.request(
        "POST", "/v1/hosts/h2/maintain", chunks, {"Authorization": f"Bearer {TOKEN}"}
    )

    assert connection.getresponse().status == 413
    connection.close()


def test_a_body_that_does_not_arrive_in_time_is_refused() -> None:
    async def nothing_comes() -> MutableMapping[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    request = Request({"type": "http", "headers": []}, nothing_comes)

    with pytest.raises(HTTPException) as refused:
        asyncio.run(read_body(request, bytes_max=10, timeout_s=0.01))

    assert refused.value.status_code == 408


class BrokenControl(Control):
    """A control plane with a bug in it."""

    async def submit(self, command: Wanted[T]) -> T:  # noqa: ARG002
        raise RuntimeError("the secret of the house")


def test_an_error_of_ours_says_nothing_internal_and_is_counted(world: OperatorWorld) -> None:
    measures = ControlMetrics()
    control = BrokenControl(
        writer=None,  # type: ignore[arg-type]  # it breaks before it needs one
        store=None,  # type: ignore[arg-type]
        clock=world.clock,
        lease_clock=world.clock,
        fleet=world.control.fleet,
        observed=world.control.observed,
    )
    app = create_app(control, token=TOKEN, measures=measures)
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/v1/health",
        "query_string": b"",
        "headers": [(b"authorization", f"Bearer {TOKEN}".encode())],
    }
    asyncio.run(app(scope, receive, send))

    assert sent[0]["status"] == 500
    assert json.loads(sent[1]["body"])["code"] == "internal"
    assert b"secret" not in sent[1]["body"]
    assert b"forewarn_operator_errors_total 1.0" in measures.exposition()


def test_every_answer_tells_the_time_of_the_clock_that_decides(world: OperatorWorld) -> None:
    assert world.call("GET", "/v1/vms").headers["forewarn-now"] == "2026-03-03T10:00:00.000Z"
    assert world.get("/v1/health")["now"] == "2026-03-03T10:00:00.000Z"
