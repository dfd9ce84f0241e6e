"""Every route of the operator API in one table.

The OpenAPI document is made from the same table (`openapi`), so it cannot miss a route.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import Request

from forewarn.api import order_bodies
from forewarn.api.operator_routes import Handler, MakeOrder, OperatorRoutes
from forewarn.api.order_bodies import (
    ApproveRequest,
    DegradeRequest,
    EmptyRequest,
    FailRequest,
    MaintainRequest,
    PostponeRequest,
    RedeployRequest,
    RepairRequest,
    StartRequest,
    VmOrderRequest,
    words,
)
from forewarn.api.requests import (
    EventsQuery,
    JournalQuery,
    NamesQuery,
    NoQuery,
    OperationsQuery,
    VmsQuery,
)
from forewarn.control import commands
from forewarn.core.access import Right
from forewarn.wire import operator_answers as answers

OfVm = commands.RestartVm | commands.RedeployVm | commands.DeleteVm | commands.EvictVm
OfHost = commands.CloseHost | commands.OpenHost


class RouteSpec(Struct, frozen=True, kw_only=True):
    """One route: where, what it is for, what it takes and what it answers.

    `command` is what an order asks of control, None if control changes nothing of the fleet by it:
    an invitation is no host yet, and what is said of a VM counts once its host has reported it.

    `answer` is the type of the answer, or a media type for what has none; `to_owner` that of the
    answer to an owner, where it is another. `keyed` orders take an
    idempotency key. `right` is what the caller needs to get to the handler at all; a route without
    one cannot be made. `by_scope`: the handler knows what belongs to which scope, and gives an
    owner his part; any other route is refused to who has its right in some scopes only.
    """

    method: str
    path: str
    name: str
    summary: str
    handler: Handler
    answer: str | type[msgspec.Struct]
    right: Right
    by_scope: bool = False
    to_owner: type[msgspec.Struct] | None = None
    query: type[msgspec.Struct] = NoQuery
    body: type[msgspec.Struct] | str | None = None
    keyed: bool = True
    command: Any = None
    make: MakeOrder | None = None  # of a request that gives an order: the order


def table(routes: OperatorRoutes) -> list[RouteSpec]:
    """All routes, in the order of the documentation."""
    return [
        *_vm_routes(routes),
        *_host_routes(routes),
        *_event_routes(routes),
        *_operation_routes(routes),
        *_scope_routes(routes),
        *_service_routes(routes),
    ]


def _vm_routes(routes: OperatorRoutes) -> list[RouteSpec]:
    verbs = (
        ("restart", commands.RestartVm, Right.ORDER_VM, "Restart a VM, as its owner: Reboot."),
        (
            "redeploy",
            commands.RedeployVm,
            Right.ORDER_VM,
            "Move a VM to another host, as its owner: Redeploy.",
        ),
        ("delete", commands.DeleteVm, Right.OPERATE, "Delete a VM, as its owner: Terminate."),
        ("evict", commands.EvictVm, Right.OPERATE, "Evict a spot VM, as the platform: Preempt."),
    )
    listed = _view(
        "/v1/vms", "list-vms", "VMs by name.", routes.list_vms, answers.VmPage, query=VmsQuery
    )
    shown = _view(
        "/v1/vms/{name}", "show-vm", "A VM with its open events.", routes.show_vm, answers.VmDetail
    )
    ordered = [
        _order(
            routes,
            f"/v1/vms/{{name}}/{verb}",
            f"vm-{verb}",
            summary,
            _vm(kind),
            command=kind,
            answer=answers.EventAnswer,
            body=RedeployRequest if verb == "redeploy" else VmOrderRequest,
            right=right,
            by_scope=right is Right.ORDER_VM,
        )
        for verb, kind, right, summary in verbs
    ]
    started = _order(
        routes,
        "/v1/vms/{name}/start",
        "vm-start",
        "Start a VM of a failed host on the named host.",
        lambda by, request, body: order_bodies.start_vm(
            _name(request), words(body, StartRequest), by
        ),
        command=commands.StartVm,
        answer=answers.EventAnswer,
        body=StartRequest,
    )
    return [listed, shown, *ordered, started]


def _host_routes(routes: OperatorRoutes) -> list[RouteSpec]:
    at = "/v1/hosts/{name}"
    return [
        _view(
            "/v1/hosts",
            "list-hosts",
            "Hosts by name.",
            routes.list_hosts,
            answers.HostPage,
            query=NamesQuery,
            to_owner=answers.HostBriefPage,
        ),
        _view(
            at,
            "show-host",
            "A host, its VMs and operations.",
            routes.show_host,
            answers.HostDetail,
            to_owner=answers.HostBriefDetail,
        ),
        _order(
            routes,
            f"{at}/close",
            "host-close",
            "Stop placing VMs on the host.",
            _host(commands.CloseHost),
            command=commands.CloseHost,
            answer=answers.HostJson,
        ),
        _order(
            routes,
            f"{at}/open",
            "host-open",
            "Place VMs on the host again.",
            _host(commands.OpenHost),
            command=commands.OpenHost,
            answer=answers.HostJson,
        ),
        *_host_judgements(routes, at),
        _order(
            routes,
            f"{at}/maintain",
            "host-maintain",
            "Freeze or reboot the host, or move its VMs away.",
            lambda by, request, body: order_bodies.maintain_host(
                _name(request), words(body, MaintainRequest), by
            ),
            command=commands.MaintainHost,
            answer=answers.OperationDetail,
            body=MaintainRequest,
        ),
    ]


def _host_judgements(routes: OperatorRoutes, at: str) -> list[RouteSpec]:
    """What an operator says of a host's hardware."""
    return [
        _order(
            routes,
            f"{at}/degrade",
            "host-degrade",
            "Say that the host is expected to fail; its VMs are moved.",
            lambda by, request, body: order_bodies.degrade_host(
                _name(request), words(body, DegradeRequest), by
            ),
            command=commands.DegradeHost,
            answer=answers.OperationDetail,
            body=DegradeRequest,
        ),
        _order(
            routes,
            f"{at}/fail",
            "host-fail",
            "Say that the host has failed; its VMs are down.",
            lambda by, request, body: order_bodies.fail_host(
                _name(request), words(body, FailRequest), by
            ),
            command=commands.FailHost,
            answer=answers.HostFailedJson,
            body=FailRequest,
        ),
        _order(
            routes,
            f"{at}/repair",
            "host-repair",
            "Say that the host is well again.",
            lambda by, request, body: order_bodies.repair_host(
                _name(request), words(body, RepairRequest), by
            ),
            command=commands.RepairHost,
            answer=answers.HostJson,
            body=RepairRequest,
        ),
    ]


def _event_routes(routes: OperatorRoutes) -> list[RouteSpec]:
    at = "/v1/events/{id}"
    return [
        _view(
            "/v1/events",
            "list-events",
            "Events, newest first.",
            routes.list_events,
            answers.EventPage,
            query=EventsQuery,
        ),
        _view(
            at, "show-event", "An event with its receipt.", routes.show_event, answers.EventDetail
        ),
        _view(
            f"{at}/explain",
            "explain-event",
            "What the event waits for.",
            routes.explain_event,
            answers.EventExplanationJson,
        ),
        _order(
            routes,
            f"{at}/approve",
            "event-approve",
            "Say go ahead in place of a VM, for a reason.",
            lambda by, request, body: commands.ApproveEvent(
                by=by, event_id=_id(request), reason=words(body, ApproveRequest).reason
            ),
            command=commands.ApproveEvent,
            right=Right.CONSENT,
            by_scope=True,
            answer=answers.EventAnswer,
            body=ApproveRequest,
        ),
        _order(
            routes,
            f"{at}/cancel",
            "event-cancel",
            "Cancel a scheduled event, with its whole operation if it has one.",
            lambda by, request, body: _plain(
                body, commands.CancelEvent(by=by, event_id=_id(request))
            ),
            command=commands.CancelEvent,
            answer=answers.EventCanceledJson,
        ),
        _postpone_route(routes, at),
    ]


def _postpone_route(routes: OperatorRoutes, at: str) -> RouteSpec:
    return _order(
        routes,
        f"{at}/postpone",
        "event-postpone",
        "Withdraw a scheduled event and announce it anew, later; a whole operation together.",
        lambda by, request, body: order_bodies.postpone_event(
            _id(request), words(body, PostponeRequest), by
        ),
        command=commands.PostponeEvent,
        right=Right.ORDER_VM,
        by_scope=True,
        answer=answers.EventPostponedJson,
        body=PostponeRequest,
    )


def _operation_routes(routes: OperatorRoutes) -> list[RouteSpec]:
    at = "/v1/operations/{id}"
    return [
        _view(
            "/v1/operations",
            "list-operations",
            "Operations, newest first.",
            routes.list_operations,
            answers.OperationPage,
            query=OperationsQuery,
        ),
        _view(
            at,
            "show-operation",
            "An operation with its events.",
            routes.show_operation,
            answers.OperationDetail,
        ),
        _view(
            f"{at}/explain",
            "explain-operation",
            "What the operation waits for.",
            routes.explain_operation,
            answers.OperationExplanationJson,
        ),
        _order(
            routes,
            f"{at}/cancel",
            "operation-cancel",
            "Cancel what of an operation has not started.",
            lambda by, request, body: _plain(
                body, commands.CancelOperation(by=by, operation_id=_id(request))
            ),
            command=commands.CancelOperation,
            answer=answers.OperationDetail,
        ),
    ]


def _scope_routes(routes: OperatorRoutes) -> list[RouteSpec]:
    at = "/v1/scopes/{name}"
    return [
        _view(
            "/v1/scopes",
            "list-scopes",
            "Scopes by name.",
            routes.list_scopes,
            answers.ScopePage,
            query=NamesQuery,
        ),
        _view(
            at, "show-scope", "A scope, its VMs and events.", routes.show_scope, answers.ScopeDetail
        ),
        _order(
            routes,
            f"{at}/release",
            "scope-release",
            "Let platform events go on after one has failed.",
            lambda by, request, body: _plain(
                body, commands.ReleaseScope(by=by, scope=_name(request))
            ),
            command=commands.ReleaseScope,
            answer=answers.ScopeDetail,
        ),
    ]


def _service_routes(routes: OperatorRoutes) -> list[RouteSpec]:
    return [
        _view(
            "/v1/journal",
            "journal",
            "Lines of the journal, oldest first.",
            routes.journal,
            answers.JournalPage,
            query=JournalQuery,
        ),
        RouteSpec(
            method="POST",
            path="/v1/inventory",
            name="inventory-apply",
            summary="Make the fleet what an inventory file says, whole or not at all.",
            handler=routes.applying_inventories("inventory-apply"),
            answer=answers.InventoryApplied,
            body="application/toml",
            command=commands.InventoryOrder,
            right=Right.ADMINISTER,
        ),
        get_route(
            "/v1/backup",
            "backup",
            "A backup, as a file: a copy of the database, the members, their authority, the token.",
            routes.backup,
            "application/vnd.sqlite3",
            right=Right.ADMINISTER,
        ),
        _view(
            "/v1/health",
            "health",
            "Whether orders can be kept.",
            routes.health,
            answers.HealthJson,
        ),
        _view("/v1/openapi.json", "openapi", "This document.", routes.openapi, "application/json"),
        get_route("/metrics", "metrics", "Numbers for Prometheus.", routes.metrics, "text/plain"),
    ]


def _order(
    routes: OperatorRoutes,
    path: str,
    name: str,
    summary: str,
    order: MakeOrder,
    *,
    command: type[commands.Command[Any]],
    answer: type[msgspec.Struct],
    body: type[msgspec.Struct] = EmptyRequest,
    right: Right = Right.OPERATE,
    by_scope: bool = False,
) -> RouteSpec:
    return RouteSpec(
        method="POST",
        path=path,
        name=name,
        summary=summary,
        handler=routes.carrying_out(name, order),
        answer=answer,
        body=body,
        command=command,
        right=right,
        make=order,
        by_scope=by_scope,
    )


def _view(
    path: str,
    name: str,
    summary: str,
    handler: Handler,
    answer: str | type[msgspec.Struct],
    *,
    query: type[msgspec.Struct] = NoQuery,
    to_owner: type[msgspec.Struct] | None = None,
) -> RouteSpec:
    """What may be looked at, and of which an owner gets his part."""
    found = get_route(path, name, summary, handler, answer, query=query)
    return replace(found, by_scope=True, to_owner=to_owner)


def get_route(
    path: str,
    name: str,
    summary: str,
    handler: Handler,
    answer: str | type[msgspec.Struct],
    *,
    query: type[msgspec.Struct] = NoQuery,
    right: Right = Right.VIEW,
) -> RouteSpec:
    """What may be looked at, by who has the right for the whole fleet."""
    return RouteSpec(
        method="GET",
        path=path,
        name=name,
        summary=summary,
        handler=handler,
        answer=answer,
        query=query,
        right=right,
    )


def _name(request: Request) -> str:
    return str(request.path_params["name"])


def _id(request: Request) -> str:
    return str(request.path_params["id"])


def _vm(kind: type[OfVm]) -> MakeOrder:
    if kind is commands.RedeployVm:
        return lambda by, request, body: order_bodies.redeploy_vm(
            _name(request), words(body, RedeployRequest), by
        )
    return lambda by, request, body: kind(
        by=by, vm=_name(request), window=order_bodies.window(words(body, VmOrderRequest).window)
    )


def _host(kind: type[OfHost]) -> MakeOrder:
    return lambda by, request, body: _plain(body, kind(by=by, host=_name(request)))


def _plain(body: bytes, order: commands.Order) -> commands.Order:
    """The order, if the body says nothing beyond the path."""
    words(body, EmptyRequest)
    return order
