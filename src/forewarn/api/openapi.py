"""The OpenAPI document: paths from the route table; orders, queries and answers from their types.

A test holds it against real answers, key by key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from forewarn.api.route_table import RouteSpec
from forewarn.control.idempotency import KEY_CHARS_MAX
from forewarn.wire.operator_answers import Problem

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}

_TEMPLATE = "#/components/schemas/{name}"


def _ref(name: str) -> Schema:
    return {"$ref": _TEMPLATE.format(name=name)}


def document(table: Iterable[RouteSpec], *, version: str) -> bytes:
    """The whole document as JSON."""
    paths: dict[str, Schema] = {}
    _, parts = msgspec.json.schema_components([Problem], ref_template=_TEMPLATE)
    bodies: dict[str, Schema] = dict(parts)
    for spec in table:
        paths.setdefault(spec.path, {})[spec.method.lower()] = _operation(spec, bodies)
    content = {
        "openapi": "3.1.0",
        "info": {"title": "Forewarn operator API", "version": version},
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": bodies,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }
    return msgspec.json.encode(content)


def _operation(spec: RouteSpec, bodies: dict[str, Schema]) -> Schema:
    media, shape = _answer(spec, bodies)
    found: Schema = {
        "operationId": spec.name,
        "summary": spec.summary,
        "x-forewarn-right": spec.right.value,
        "parameters": _parameters(spec, bodies),
        "responses": {
            "200": {"description": "Done.", "content": {media: {"schema": shape}}},
            "default": {
                "description": "Refused; detail says what, remedy what would be accepted.",
                "content": {"application/problem+json": {"schema": _ref("Problem")}},
            },
        },
    }
    if isinstance(spec.body, str):
        found["requestBody"] = {"required": True, "content": {spec.body: {"schema": TEXT}}}
    elif spec.body is not None:
        _, parts = msgspec.json.schema_components([spec.body], ref_template=_TEMPLATE)
        bodies.update(parts)
        shape = _ref(spec.body.__name__)
        found["requestBody"] = {"content": {"application/json": {"schema": shape}}}
    return found


def _answer(spec: RouteSpec, bodies: dict[str, Schema]) -> tuple[str, Schema]:
    """The media type and the shape of an answer."""
    if not isinstance(spec.answer, str):
        kinds = [spec.answer, *([spec.to_owner] if spec.to_owner else [])]
        shapes, parts = msgspec.json.schema_components(kinds, ref_template=_TEMPLATE)
        bodies.update(parts)
        found = [dict(shape) for shape in shapes]
        return "application/json", found[0] if len(found) == 1 else {"oneOf": found}
    return spec.answer, {"type": "object"} if spec.answer == "application/json" else TEXT


def _parameters(spec: RouteSpec, bodies: dict[str, Schema]) -> list[Schema]:
    found: list[Schema] = [
        {"name": name, "in": "path", "required": True, "schema": TEXT}
        for name in re.findall(r"{(\w+)}", spec.path)
    ]
    _, parts = msgspec.json.schema_components([spec.query], ref_template=_TEMPLATE)
    query = parts.pop(spec.query.__name__)
    bodies.update(parts)
    found.extend(
        {"name": name, "in": "query", "schema": schema}
        for name, schema in query.get("properties", {}).items()
    )
    if spec.method == "POST" and spec.keyed:
        schema = {"type": "string", "minLength": 1, "maxLength": KEY_CHARS_MAX}
        found.append({"name": "Idempotency-Key", "in": "header", "schema": schema})
    return found
