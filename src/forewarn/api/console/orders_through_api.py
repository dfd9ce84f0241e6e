"""Orders of the console go the way of the operator API: the same table, rights, keys and handlers.

A form becomes the request that a program would have sent. So an order by a button and one by a
program cannot differ in what they need or do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.types import Message

from forewarn.api.access import ACCESS_KEY, needing
from forewarn.api.operator_routes import EFFECT_KEY
from forewarn.api.route_table import RouteSpec
from forewarn.control import commands
from forewarn.core.access import Access
from forewarn.core.errors import Invalid

Json = Mapping[str, Any]


def parameter_of(spec: RouteSpec) -> str:
    """What a path of the table calls its target."""
    return "id" if "{id}" in spec.path else "name"


def request_of(
    spec: RouteSpec,
    target: str,
    content: Json,
    access: Access,
    *,
    key: str = "",
    effect: str = "",
) -> Request:
    """The request of a program that gives the order."""
    parameter = parameter_of(spec)
    body = msgspec.json.encode(content) if content else b""
    path = spec.path.replace(f"{{{parameter}}}", quote(target, safe=""))
    headers = [(b"host", b"console"), (b"content-length", str(len(body)).encode())]
    if key:
        headers.append((b"idempotency-key", key.encode("latin-1", "replace")))

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    scope = {
        "type": "http",
        "method": spec.method,
        "scheme": "http",
        "path": path,
        "root_path": "",
        "query_string": b"",
        "headers": headers,
        "path_params": {parameter: target},
        ACCESS_KEY: access,
        EFFECT_KEY: effect,
    }
    return Request(scope, receive)


def order_of(spec: RouteSpec, target: str, content: Json, access: Access) -> commands.Order:
    """The order that the request means, without giving it. Raises what the words are refused by."""
    if spec.make is None:
        raise Invalid(f"{spec.name} is no order.")
    body = msgspec.json.encode(content) if content else b""
    return spec.make(access.principal, request_of(spec, target, content, access), body)


async def give(
    spec: RouteSpec, target: str, content: Json, access: Access, *, key: str, effect: str
) -> Json:
    """Give the order: what a program would have been answered. Raises its Refusal."""
    request = request_of(spec, target, content, access, key=key, effect=effect)
    answer = await needing(spec)(request)
    found: Json = msgspec.json.decode(bytes(answer.body))
    return found
