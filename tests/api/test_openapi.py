"""The OpenAPI document says what the API really does: every route, every key of every answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, get_args

import pytest

from forewarn.api import order_bodies
from forewarn.api.console.mount import ConsoleSetup
from forewarn.api.console_routes import ConsoleRoutes
from forewarn.api.doorbell import Doorbell
from forewarn.api.feed_routes import FeedRoutes
from forewarn.api.operator_routes import OperatorRoutes
from forewarn.api.route_table import table
from forewarn.api.token_routes import TokenRoutes
from forewarn.api.webhook_routes import WebhookRoutes, WebhookSetup
from forewarn.control.commands import (
    Answer,
    CloseHost,
    MaintainHost,
    Once,
    Order,
    RestartVm,
)
from forewarn.core.access import Right
from forewarn.core.model import EventType, Outcome
from forewarn.core.principal import OPERATOR
from forewarn.wire.instants import TimeInput
from support.operator_world import FLEET, OperatorWorld, running
from support.ordered import WHY

TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}


@pytest.fixture(scope="module")
def world() -> Iterator[OperatorWorld]:
    with running() as world:
        yield world


@pytest.fixture(scope="module")
def document(world: OperatorWorld) -> dict[str, Any]:
    found: dict[str, Any] = world.get("/v1/openapi.json")
    return found


def mistakes(value: Any, schema: dict[str, Any], document: dict[str, Any], at: str) -> list[str]:
    """Where a value is not what its schema says, as far as our schemas go."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/components/schemas/")
        return mistakes(value, document["components"]["schemas"][name], document, at)
    if "anyOf" in schema:
        tried = [mistakes(value, one, document, at) for one in schema["anyOf"]]
        return [] if [] in tried else tried[0]
    kinds = schema.get("type", list(TYPES))
    names = [kinds] if isinstance(kinds, str) else kinds
    if not any(isinstance(value, TYPES[name]) for name in names):
        return [f"{at}: {value!r} is not {names}"]
    if value not in schema.get("enum", [value]):
        return [f"{at}: {value!r} is not one of {schema['enum']}"]
    if isinstance(value, list):
        return [
            wrong
            for number, one in enumerate(value)
            for wrong in mistakes(one, schema["items"], document, f"{at}[{number}]")
        ]
    return of_object(value, schema, document, at) if "properties" in schema else []


def of_object(value: Any, schema: dict[str, Any], document: dict[str, Any], at: str) -> list[str]:
    properties = schema["properties"]
    found = [f"{at}: {key} is not documented" for key in value.keys() - properties.keys()]
    found += [f"{at}: {key} is missing" for key in set(schema["required"]) - value.keys()]
    for key in value.keys() & properties.keys():
        found += mistakes(value[key], properties[key], document, f"{at}.{key}")
    return found


def test_every_route_is_in_the_document(world: OperatorWorld, document: dict[str, Any]) -> None:
    routes = OperatorRoutes(
        world.control,
        measures=world.measures,
        doorbell=Doorbell(),
        scratch=None,
        version="test",
    )
    setup = ConsoleSetup()
    specs = [
        *table(routes),
        *FeedRoutes(world.feed).table(),
        *ConsoleRoutes(setup).table(),
        *TokenRoutes(world.control, routes).table(),
        *WebhookRoutes(world.control, routes, world.feed, WebhookSetup()).table(),
    ]
    expected = {(spec.method.lower(), spec.path) for spec in specs}

    documented = {(verb, path) for path, verbs in document["paths"].items() for verb in verbs}

    assert documented == expected
    assert document["openapi"].startswith("3.1")


def test_every_route_in_the_document_is_there(
    world: OperatorWorld, document: dict[str, Any]
) -> None:
    for path, verbs in document["paths"].items():
        other = next(verb for verb in ("POST", "GET", "DELETE") if verb.lower() not in verbs)
        answer = world.call(other, path.format(name="nobody", id="nothing"))
        assert answer.status == 405, path


def test_every_route_is_in_the_documentation(document: dict[str, Any]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "operator-api.md").read_text(encoding="utf-8")

    assert [path for path in document["paths"] if f"`{path}`" not in page] == []


def test_every_schema_that_is_referred_to_is_there(document: dict[str, Any]) -> None:
    def references(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            if "$ref" in value:
                yield value["$ref"].removeprefix("#/components/schemas/")
            for one in value.values():
                yield from references(one)
        elif isinstance(value, list):
            for one in value:
                yield from references(one)

    assert set(references(document)) == set(document["components"]["schemas"])


def test_every_order_takes_an_idempotency_key(document: dict[str, Any]) -> None:
    # Each link is good once, and each test of a webhook is another.
    no_orders = {"/v1/console/links", "/v1/webhooks/{name}/test"}
    for path, verbs in document["paths"].items():
        if "post" in verbs and path not in no_orders:
            names = [parameter["name"] for parameter in verbs["post"]["parameters"]]
            assert "Idempotency-Key" in names, path


def of_tokens(order: Callable[..., Any], get: Callable[..., Any]) -> Iterator[Any]:
    yield order("/v1/tokens", {"name": "ci", "role": "owner", "scopes": ["web"]})
    yield order("/v1/tokens/{name}/rotate", name="ci")
    yield order("/v1/tokens/{name}/revoke", name="ci")
    yield get("/v1/tokens/{name}", name="ci")
    yield get("/v1/tokens")
    yield get("/v1/whoami")


def of_webhooks(order: Callable[..., Any], get: Callable[..., Any]) -> Iterator[Any]:
    url = "http://127.0.0.1:9/x"
    yield order("/v1/webhooks", {"name": "ops", "url": url, "scopes": ["web"]})
    yield order("/v1/webhooks/{name}/change", {"kinds": ["started"]}, name="ops")
    yield order("/v1/webhooks/{name}/rotate", name="ops")
    yield order("/v1/webhooks/{name}/replay", {"after": "oldest"}, name="ops")
    yield order("/v1/webhooks/{name}/disable", name="ops")
    yield order("/v1/webhooks/{name}/enable", name="ops")
    yield order("/v1/webhooks/{name}/test", name="ops")
    yield get("/v1/webhooks/{name}", name="ops")
    yield get("/v1/webhooks")
    yield order("/v1/webhooks/{name}/remove", name="ops")


LISTS = (
    ("/v1/feed", "?limit=1000"),
    ("/v1/feed/schemas", ""),
    ("/v1/events", "?all=true"),
    ("/v1/operations", "?all=true"),
)


def answers(world: OperatorWorld) -> Iterator[tuple[str, str, Any]]:
    """(verb, path of the document, answer) of every route that answers JSON, in a busy fleet."""

    def order(path: str, body: dict[str, object] | None = None, **names: str) -> Any:
        return "post", path, world.order(path.format(**names), body)

    def get(path: str, query: str = "", **names: str) -> Any:
        return "get", path, world.get(path.format(**names) + query)

    world.polls("web", "web-0")
    restart = order("/v1/vms/{name}/restart", name="web-0")
    yield restart
    event_id = restart[2]["event_id"]
    world.hosts_beat()
    world.reads("web", event_id, "web-0")
    yield get("/v1/events/{id}/explain", id=event_id)
    yield order("/v1/events/{id}/approve", {"reason": "a test"}, id=event_id)
    world.tick()
    yield get("/v1/vms/{name}", name="web-0")
    world.hosts_work()
    yield get("/v1/events/{id}", id=event_id)
    for verb in ("redeploy", "delete"):
        yield order(f"/v1/vms/{{name}}/{verb}", name="lonely")
    yield order("/v1/vms/{name}/evict", name="spotty")
    maintained = order("/v1/hosts/{name}/maintain", {"event_type": "Reboot"}, name="h2")
    yield maintained
    yield get("/v1/operations/{id}", id=maintained[2]["operation_id"])
    yield get("/v1/operations/{id}/explain", id=maintained[2]["operation_id"])
    yield get("/v1/operations")
    yield get("/v1/hosts/{name}", name="h2")
    postponed = order(
        "/v1/events/{id}/postpone", {"until": "+1h"}, id=maintained[2]["events"][0]["event_id"]
    )
    yield postponed
    yield get("/v1/events/{id}/explain", id=postponed[2]["event_id"])
    yield get("/v1/events/{id}", id=postponed[2]["event_id"])
    yield order("/v1/events/{id}/cancel", id=postponed[2]["event_id"])
    again = world.order("/v1/hosts/h2/maintain", {"event_type": "Reboot"})
    yield order("/v1/operations/{id}/cancel", id=again["operation_id"])
    yield order("/v1/hosts/{name}/fail", {"fenced": True, "force": True, "reason": WHY}, name="h2")
    yield order("/v1/vms/{name}/start", {"on": "h3"}, name="web-1")
    yield order("/v1/hosts/{name}/repair", name="h2")
    yield order("/v1/hosts/{name}/degrade", name="h1")
    yield order("/v1/hosts/{name}/close", name="h2")
    yield order("/v1/hosts/{name}/open", name="h2")
    yield get("/v1/scopes/{name}", name="web")
    world.order("/v1/hosts/h3/maintain", {"event_type": "Redeploy"})
    world.tick()
    world.hosts_work(Outcome.FAILED)
    yield get("/v1/scopes/{name}", name="spotty")
    yield order("/v1/scopes/{name}/release", name="spotty")
    more = f'{FLEET}\n[[host]]\nname = "h4"\n'
    yield "post", "/v1/inventory", world.call("POST", "/v1/inventory", more).json
    yield from chain(of_tokens(order, get), of_webhooks(order, get))
    for path in ("/v1/vms", "/v1/hosts", "/v1/scopes", "/v1/events", "/v1/journal", "/v1/health"):
        yield get(path)
    for path, query in LISTS:
        yield get(path, query)
    yield get("/v1/openapi.json")
    yield order("/v1/console/links")


def test_every_answer_has_the_documented_keys_and_no_others(
    world: OperatorWorld, document: dict[str, Any]
) -> None:
    with running() as busy:
        given = list(answers(busy))

    for verb, path, answer in given:
        content = document["paths"][path][verb]["responses"]["200"]["content"]
        assert mistakes(answer, content["application/json"]["schema"], document, path) == []
    not_json = {
        ("get", "/v1/backup"),
        ("get", "/metrics"),
        ("get", "/v1/feed/schemas/{name}"),
    }
    documented = {(verb, path) for path, verbs in document["paths"].items() for verb in verbs}
    assert {(verb, path) for verb, path, _ in given} == documented - not_json


def test_a_problem_has_the_documented_keys(world: OperatorWorld, document: dict[str, Any]) -> None:
    problem = world.call("GET", "/v1/nothing").json

    schema = {"$ref": "#/components/schemas/Problem"}
    assert mistakes(problem, schema, document, "problem") == []


def test_what_of_an_inventory_has_to_wait_is_in_the_answer_only_then(
    world: OperatorWorld, document: dict[str, Any]
) -> None:
    schema = document["components"]["schemas"]["InventoryApplied"]
    answer = world.call("POST", "/v1/inventory", FLEET).json
    assert "waiting" not in answer
    assert mistakes(answer, schema, document, "answer") == []
    given = Answer(text=json.dumps(answer), repeated=False)
    waits = order_bodies.with_waiting(given, ["VM a is not in the file, but an event names it."])
    said = json.loads(waits.text)
    assert said == {**answer, "waiting": ["VM a is not in the file, but an event names it."]}
    assert mistakes(said, schema, document, "answer") == []
    replaced = json.loads(order_bodies.with_replaced(given).text)
    assert replaced == {**answer, "replaced": True, "note": order_bodies.REPLACED_NOTE}
    assert mistakes(replaced, schema, document, "answer") == []


def test_every_order_names_its_command_and_everything_its_right(world: OperatorWorld) -> None:
    routes = OperatorRoutes(
        world.control, measures=world.measures, doorbell=Doorbell(), scratch=None, version="t"
    )
    specs = [
        *table(routes),
        *TokenRoutes(world.control, routes).table(),
        *WebhookRoutes(world.control, routes, world.feed, WebhookSetup()).table(),
    ]
    assert {spec.right for spec in specs} == set(Right) - {Right.OVERRIDE}
    ordering = {spec.name for spec in specs if spec.command is not None}
    posted = {spec.name for spec in specs if spec.method == "POST"}
    assert ordering == posted - {"webhook-test"}  # which changes nothing
    named = {spec.command for spec in specs if spec.name != "inventory-apply"} - {None}
    assert named == set(get_args(Order))


@pytest.mark.parametrize(
    ("path", "body", "command"),
    [
        ("/v1/vms/web-0/restart", b"", RestartVm(by=OPERATOR, vm="web-0")),
        ("/v1/hosts/h1/close", b"", CloseHost(by=OPERATOR, host="h1")),
        (
            "/v1/hosts/h1/maintain",
            b'{"event_type": "Freeze", "not_before": "+1h", "duration_seconds": 5}',
            MaintainHost(
                by=OPERATOR,
                host="h1",
                event_type=EventType.FREEZE,
                not_before=TimeInput(said="+1h", from_now_ms=3_600_000),
                duration_s=5,
            ),
        ),
    ],
)
def test_a_request_means_the_command_that_the_table_names(
    world: OperatorWorld, monkeypatch: pytest.MonkeyPatch, path: str, body: bytes, command: object
) -> None:
    asked: list[object] = []

    async def submit(wanted: Once) -> Answer:
        asked.append(wanted.order)
        return Answer(text="{}", repeated=False)

    monkeypatch.setattr(world.control, "submit", submit)
    assert world.call("POST", path, body).status == 200
    assert asked == [command]
