"""The OpenAPI document: paths from the route table, orders and queries from their types.

The shapes of answers are written down here; a test holds them against real answers, key by key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from forewarn.api.route_table import RouteSpec
from forewarn.control.idempotency import KEY_CHARS_MAX
from forewarn.core.machines import Power, WhenHostGoesDown
from forewarn.core.model import (
    ActionKind,
    ActionPhase,
    Cause,
    EventSource,
    EventType,
    FactKind,
    Health,
    OperationPhase,
    Outcome,
    Phase,
    Priority,
    ScopeKind,
)
from forewarn.core.starting import HoldReason

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
TEXT_OR_NULL: Schema = {"type": ["string", "null"]}
WHOLE: Schema = {"type": "integer"}
WHOLE_OR_NULL: Schema = {"type": ["integer", "null"]}
NUMBER: Schema = {"type": "number"}
NUMBER_OR_NULL: Schema = {"type": ["number", "null"]}
YES_NO: Schema = {"type": "boolean"}
TIME: Schema = {"type": "string", "format": "date-time"}
TIME_OR_NULL: Schema = {"type": ["string", "null"], "format": "date-time"}
NAMES: Schema = {"type": "array", "items": TEXT}


_TEMPLATE = "#/components/schemas/{name}"


def _ref(name: str) -> Schema:
    return {"$ref": _TEMPLATE.format(name=name)}


def _list(name: str) -> Schema:
    return {"type": "array", "items": _ref(name)}


def _one_of(kind: Iterable[str]) -> Schema:
    return {"type": "string", "enum": [str(value) for value in kind]}


def _object(**properties: Schema) -> Schema:
    """An object that has all of these keys and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _with_optional(of: Schema, **properties: Schema) -> Schema:
    """The same object, which may have these keys too."""
    return {**of, "properties": {**of["properties"], **properties}}


def _page(of: str, **more: Schema) -> Schema:
    return _object(items=_list(of), more=YES_NO, **more)


_ACTION = {
    "action_id": TEXT,
    "kind": _one_of(ActionKind),
    "host": TEXT_OR_NULL,
    "vm": TEXT_OR_NULL,
    "target_host": TEXT_OR_NULL,
    "duration_seconds": WHOLE,
    "phase": _one_of(ActionPhase),
    "epoch": WHOLE,
    "outcome": {"enum": [*(str(value) for value in Outcome), None]},
    "detail": TEXT,
}
_EVENT = {
    "event_id": TEXT,
    "event_type": _one_of(EventType),
    "event_source": _one_of(EventSource),
    "phase": _one_of(Phase),
    "not_before": TIME,
    "resources": NAMES,
    "scope": TEXT,
    "update_domain": WHOLE,
    "host": TEXT,
    "cause": _one_of(Cause),
    "silent": YES_NO,
    "description": TEXT,
    "duration_seconds": WHOLE,
    "minimum_notice_seconds": NUMBER,
    "scheduled": TIME,
    "ordered_not_before": TIME_OR_NULL,
    "ordered_by": TEXT,
    "operation_id": TEXT_OR_NULL,
    "breaks_domains": YES_NO,
    "shown": TIME_OR_NULL,
    "unreadable_seconds": NUMBER,
    "approved": TIME_OR_NULL,
    "approved_by": TEXT_OR_NULL,
    "started": TIME_OR_NULL,
    "deadline": TIME_OR_NULL,
    "ended": TIME_OR_NULL,
    "outcome": TEXT,
    "actions": _list("Action"),
}
_VM = {
    "name": TEXT,
    "vm_id": TEXT,
    "scope": TEXT,
    "update_domain": WHOLE,
    "host": TEXT,
    "priority": _one_of(Priority),
    "address": TEXT_OR_NULL,
    "listen": TEXT_OR_NULL,
    "tags": {"type": "object", "additionalProperties": TEXT},
    "fault_domain": WHOLE,
    "zone": TEXT,
    "os_type": TEXT,
    "computer_name": TEXT,
    "may_run_on": TEXT_OR_NULL,
    "off": YES_NO,
    "went_down": YES_NO,
}
_VM_ITEM = {
    **_VM,
    "power": {"enum": [*(str(value) for value in Power), None]},
    "problem": TEXT,
    "freeze_by_move": {"type": ["boolean", "null"]},
    "when_host_goes_down": {"enum": [*(str(value) for value in WhenHostGoesDown), None]},
    "enabled": YES_NO,
    "open_events": WHOLE,
}
_HOST = {
    "name": TEXT,
    "capacity": WHOLE_OR_NULL,
    "closed": YES_NO,
    "health": _one_of(Health),
    "fenced": YES_NO,
    "listed": YES_NO,
    "joined": YES_NO,
    "boot_id": TEXT_OR_NULL,
    "revision": WHOLE,
    "alive": YES_NO,
    "silent_seconds": WHOLE,
    "blind": TEXT,
    "refuses": TEXT,
    "placement": TEXT,
    "vm_count": WHOLE,
    "open_operations": WHOLE,
}
_SCOPE = {
    "name": TEXT,
    "kind": _one_of(ScopeKind),
    "incarnation": WHOLE,
    "revision": WHOLE,
    "enabled": YES_NO,
    "polled": TIME_OR_NULL,
    "terminate_notice_seconds": NUMBER,
    "auto_approve": NAMES,
    "hold": {"anyOf": [_ref("ScopeHold"), {"type": "null"}]},
    "vm_count": WHOLE,
    "open_events": WHOLE,
}
_OPERATION = {
    "operation_id": TEXT,
    "host": TEXT,
    "event_type": _one_of(EventType),
    "cause": _one_of(Cause),
    "phase": _one_of(OperationPhase),
    "ordered": TIME,
    "ordered_by": TEXT,
    "ordered_not_before": TIME_OR_NULL,
    "duration_seconds": WHOLE_OR_NULL,
    "description": TEXT_OR_NULL,
    "broke_domains_by": TEXT_OR_NULL,
    "members": _list("OperationMember"),
    "action": {"anyOf": [_ref("Action"), {"type": "null"}]},
    "started": TIME_OR_NULL,
    "deadline": TIME_OR_NULL,
    "ended": TIME_OR_NULL,
    "outcome": TEXT,
    "revision": WHOLE,
}
_EXPLAINED = {"outcome": TEXT, "phase": TEXT, "holds": _list("Hold"), "until": TIME_OR_NULL}

SCHEMAS: dict[str, Schema] = {
    "Action": _object(**_ACTION),
    "Event": _object(**_EVENT),
    "EventAnswer": _object(**_EVENT, silent_scopes=NAMES),
    "EventCanceled": _object(**_EVENT, silent_scopes=NAMES, canceled=NAMES),
    "EventShown": _object(**_EVENT, receipt=_ref("Receipt")),
    "EventExplained": _object(event_id=TEXT, **_EXPLAINED),
    "EventPage": _page("Event"),
    "Receipt": _object(
        scheduled=TIME,
        appeared=TIME_OR_NULL,
        shown=TIME_OR_NULL,
        first_reads=_list("FirstRead"),
        approved=TIME_OR_NULL,
        approved_by=TEXT_OR_NULL,
        started=TIME_OR_NULL,
        ended=TIME_OR_NULL,
        notice_promised_seconds=NUMBER,
        notice_given_seconds=NUMBER,
        kept={"type": "string", "enum": ["yes", "no", "not-yet", "not-applicable"]},
        why=TEXT,
    ),
    "FirstRead": _object(vm=TEXT, read=TIME_OR_NULL, notice_seconds=NUMBER_OR_NULL),
    "Hold": _object(
        reason=_one_of(HoldReason),
        what=TEXT,
        since=TIME_OR_NULL,
        until=TIME_OR_NULL,
        remedy=TEXT,
    ),
    "Vm": _object(**_VM),
    "VmItem": _object(**_VM_ITEM),
    "VmShown": _object(**_VM_ITEM, polled=TIME_OR_NULL, events=_list("Event")),
    "VmPage": _page("VmItem"),
    "Host": _object(**_HOST),
    "HostShown": _object(
        **_HOST,
        vms=_list("VmItem"),
        operations=_list("Operation"),
        problems=_list("VmProblem"),
    ),
    "VmProblem": _object(vm=TEXT, power=_one_of(Power), problem=TEXT),
    "HostFailed": _object(**_HOST, events=_list("Event"), silent_scopes=NAMES),
    "HostPage": _page("Host"),
    "Scope": _object(**_SCOPE),
    "ScopeShown": _object(
        **_SCOPE,
        recoveries=_list("Recovery"),
        vms=_list("Vm"),
        events=_list("Event"),
        deleted=NAMES,
    ),
    "ScopePage": _page("Scope"),
    "ScopeHold": _object(since=TIME, event_id=TEXT, reason=TEXT),
    "Recovery": _object(update_domain=WHOLE, since=TIME, until=TIME, waiting_for=NAMES),
    "Operation": _object(**_OPERATION),
    "OperationMember": _object(scope=TEXT, event_id=TEXT),
    "OperationShown": _object(**_OPERATION, events=_list("Event"), silent_scopes=NAMES),
    "OperationExplained": _object(operation_id=TEXT, **_EXPLAINED),
    "OperationPage": _page("Operation"),
    "Fact": _object(
        number=WHOLE,
        kind=_one_of(FactKind),
        at=TIME,
        scope=TEXT_OR_NULL,
        event_id=TEXT_OR_NULL,
        operation_id=TEXT_OR_NULL,
        host=TEXT_OR_NULL,
        vm=TEXT_OR_NULL,
        by=TEXT_OR_NULL,
        detail={"type": "object"},
    ),
    "Changes": _object(added=NAMES, changed=NAMES, removed=NAMES),
    "InventoryApplied": _with_optional(
        _object(
            differs=YES_NO,
            hosts=_ref("Changes"),
            scopes=_ref("Changes"),
            vms=_ref("Changes"),
            still_deleted=NAMES,
        ),
        waiting=NAMES,  # in words: what has to wait for something that began meanwhile, or broke
        replaced=YES_NO,  # true if it is sent again and another was applied since
        note=TEXT,  # what that means; with `replaced`
    ),
    "JournalPage": _page("Fact", end=WHOLE),
    "Health": _object(
        status=TEXT,
        version=TEXT,
        now=TIME,
        vms=WHOLE,
        hosts=WHOLE,
        hosts_silent=NAMES,
        inventory_waits=NAMES,  # in words, as `waiting` of the last inventory
    ),
    "Problem": _object(type=TEXT, title=TEXT, status=WHOLE, detail=TEXT, code=TEXT, remedy=TEXT),
    "OpenApi": {"type": "object"},
}


def document(table: Iterable[RouteSpec], *, version: str) -> bytes:
    """The whole document as JSON."""
    paths: dict[str, Schema] = {}
    bodies: dict[str, Schema] = {}
    for spec in table:
        paths.setdefault(spec.path, {})[spec.method.lower()] = _operation(spec, bodies)
    content = {
        "openapi": "3.1.0",
        "info": {"title": "Forewarn operator API", "version": version},
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": {**SCHEMAS, **bodies},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }
    return msgspec.json.encode(content)


def _operation(spec: RouteSpec, bodies: dict[str, Schema]) -> Schema:
    media, shape = _answer(spec, bodies)
    found: Schema = {
        "operationId": spec.name,
        "summary": spec.summary,
        "parameters": _parameters(spec),
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
        shape, parts = msgspec.json.schema_components([spec.answer], ref_template=_TEMPLATE)
        bodies.update(parts)
        return "application/json", dict(shape[0])
    if "/" in spec.answer:
        return spec.answer, TEXT
    return "application/json", _ref(spec.answer)


def _parameters(spec: RouteSpec) -> list[Schema]:
    found: list[Schema] = [
        {"name": name, "in": "path", "required": True, "schema": TEXT}
        for name in re.findall(r"{(\w+)}", spec.path)
    ]
    properties: dict[str, Schema] = _struct_schema(spec.query).get("properties", {})
    found.extend(
        {"name": name, "in": "query", "schema": schema} for name, schema in properties.items()
    )
    if spec.method == "POST" and spec.keyed:
        schema = {"type": "string", "minLength": 1, "maxLength": KEY_CHARS_MAX}
        found.append({"name": "Idempotency-Key", "in": "header", "schema": schema})
    return found


def _struct_schema(kind: type[msgspec.Struct]) -> Schema:
    schema = msgspec.json.schema(kind)
    found: Schema = schema["$defs"][kind.__name__]
    return found
