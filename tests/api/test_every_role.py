"""Every route and every page, asked by every role: who may, who may not, and what they are told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from forewarn.api.access import ACCESS_KEY
from forewarn.api.console.page_routes import PageRoute
from forewarn.api.route_table import RouteSpec
from forewarn.core.access import Access, Right, Role
from forewarn.core.errors import Forbidden
from forewarn.core.principal import OPERATOR
from support import every_route
from support.callers import Browser, token_of
from support.operator_world import OperatorWorld, running

ROLES = tuple(Role)
# What roles may do beyond looking, said here a second time: a slip in a table of the code fails.
OF_OWNERS = {"vm-restart", "vm-redeploy", "event-approve", "event-postpone"}
OF_ADMINS = {
    "inventory-apply",
    "backup",
    "list-tokens",
    "show-token",
    "token-make",
    "token-rotate",
    "token-revoke",
    "list-members",
    "host-invite",
    "host-revoke",
}
WHOLE_FLEET_ALONE = {"metrics"}  # what is looked at and has no part for an owner


async def _stub(_: Request) -> Response:
    return JSONResponse({})


def _beside() -> list[RouteSpec]:
    """Routes that other services have, without what is behind them."""
    specs = [*every_route.of_a_control(), *every_route.of_an_emulator()]
    return [replace(spec, handler=_stub) for spec in specs]


class RolesWorld:
    """A service with a caller of each role; the owner's scope is web."""

    def __init__(self, world: OperatorWorld) -> None:
        self.world = world
        world.polls("web", "web-0")
        world.polls("lonely", "lonely")
        self.tokens = {
            role: token_of(world, role.value, role.value, *(["web"] if role is Role.OWNER else []))
            for role in ROLES
        }
        answer = world.order("/v1/hosts/h1/maintain", {"event_type": "Reboot"})
        self.operation = answer["operation_id"]
        events = {one["scope"]: one["event_id"] for one in answer["events"]}
        self.own = {"vms": "web-0", "hosts": "h1", "scopes": "web", "events": events["web"]}
        self.others = {
            "vms": "lonely",
            "hosts": "h3",
            "scopes": "lonely",
            "events": events["lonely"],
        }

    def path(self, spec: RouteSpec, targets: Mapping[str, str]) -> str:
        kind = spec.path.split("/")[-1] if spec.path == "/metrics" else spec.path.split("/")[2]
        target = {**targets, "operations": self.operation, "tokens": "viewer"}.get(kind, "x")
        return spec.path.replace("{name}", target).replace("{id}", target)


@pytest.fixture(scope="module")
def roles() -> Iterator[RolesWorld]:
    with running(more=_beside()) as world:
        yield RolesWorld(world)


SPECS = every_route.every_spec()


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("spec", SPECS, ids=[spec.name for spec in SPECS])
def test_every_route_lets_in_who_has_its_right_and_tells_others_which_is_missing(
    roles: RolesWorld, spec: RouteSpec, role: Role
) -> None:
    # A body that is refused after the right was asked for: nothing changes while roles are tried.
    body = b'{"colour": "red"}' if spec.method != "GET" else None
    path = roles.path(spec, roles.own)
    answer = roles.world.call(spec.method, path, body, token=roles.tokens[role])
    told = answer.json if answer.headers["content-type"] == "application/problem+json" else {}
    if every_route.may(spec, role) == "no":
        assert (answer.status, told["code"]) == (403, "forbidden")
        assert f"the right {spec.right.value}" in told["detail"] or (
            f"no right {spec.right.value}" in told["detail"]
        )
        assert spec.name in told["detail"]
        assert "role" in told["remedy"]
    else:
        assert told.get("code") != "forbidden", told
        assert answer.status not in (401, 500), told


@pytest.mark.parametrize("spec", SPECS, ids=[spec.name for spec in SPECS])
def test_without_a_token_no_route_says_anything(roles: RolesWorld, spec: RouteSpec) -> None:
    answer = roles.world.call(spec.method, roles.path(spec, roles.own), token=None)
    assert (answer.status, answer.json["code"]) == (401, "no-token")


SINGLE = ("vms", "hosts", "scopes", "events")
NAMED = [
    spec
    for spec in SPECS
    if spec.by_scope and "{" in spec.path and spec.path.split("/")[2] in SINGLE
]


@pytest.mark.parametrize("spec", NAMED, ids=[spec.name for spec in NAMED])
def test_what_is_of_another_scope_is_to_an_owner_as_what_is_not_there(
    roles: RolesWorld, spec: RouteSpec
) -> None:
    token = roles.tokens[Role.OWNER]
    bodies = {"event-postpone": {"until": "+2h"}}
    missing = dict.fromkeys(roles.others, "x-not-there")
    missing["events"] = "00000000-0000-4000-8000-FFFFFFFFFFFF"
    told = []
    for targets in (roles.others, missing):
        path, body = roles.path(spec, targets), bodies.get(spec.name)
        answer = roles.world.call(spec.method, path, body, token=token)
        assert (answer.status, answer.json["code"]) == (403, "forbidden")
        name = targets[spec.path.split("/")[2]]
        told.append(answer.body.replace(name.encode(), b"X").replace(name[:8].encode(), b"X"))
    assert told[0] == told[1]


def test_what_roles_may_do_is_what_was_decided() -> None:
    orders = {spec.name for spec in SPECS if spec.method != "GET" and spec.name != "console-link"}
    looks = {spec.name for spec in SPECS} - orders - OF_ADMINS
    allowed = {
        role: {spec.name for spec in SPECS if every_route.may(spec, role) != "no"} for role in ROLES
    }
    everything = {spec.name for spec in SPECS}
    assert allowed[Role.VIEWER] == looks
    assert allowed[Role.OPERATOR] == everything - OF_ADMINS
    assert allowed[Role.ADMIN] == everything
    emulators = {spec.name for spec in every_route.of_an_emulator()}
    assert allowed[Role.OWNER] - emulators == (looks - WHOLE_FLEET_ALONE - emulators) | OF_OWNERS


def test_no_two_routes_have_one_name_and_each_has_a_right() -> None:
    names = [spec.name for spec in SPECS]
    assert len(set(names)) == len(names)
    assert all(isinstance(spec.right, Right) for spec in SPECS)


def test_a_route_without_a_right_cannot_be_made() -> None:
    words: dict[str, Any] = {"method": "GET", "path": "/", "name": "x", "summary": "", "answer": ""}
    with pytest.raises(TypeError, match="right"):
        RouteSpec(handler=_stub, **words)
    with pytest.raises(TypeError, match="by_scope"):
        PageRoute("/console/x", _stub)  # type: ignore[call-arg]


# The console.

PAGES = every_route.pages()


def asked(page: PageRoute, role: Role) -> bool:
    """Whether the route lets the role pass; what is behind it is not there in this test."""
    access = Access(principal=OPERATOR, role=role, scopes=("web",) if role is Role.OWNER else ())
    scope = {"type": "http", "method": "GET", "path": page.path, "headers": [], ACCESS_KEY: access}
    try:
        asyncio.run(page.endpoint(Request(scope)))
    except Forbidden:
        return False
    except (AttributeError, KeyError, TypeError):
        return True  # it has passed, and what it would show is not there
    return True


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    "page", PAGES, ids=[f"{min(one.methods or ())} {one.path}" for one in PAGES]
)
def test_every_page_lets_in_who_has_its_right(page: PageRoute, role: Role) -> None:
    assert asked(page, role) == (every_route.may(page, role) != "no")


@pytest.fixture(scope="module")
def browsers(roles: RolesWorld) -> dict[Role, Browser]:
    return {role: Browser(roles.world, roles.tokens[role]) for role in ROLES}


FORM_SPECS = [spec for spec in SPECS if spec.name in every_route.forms()]


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("spec", FORM_SPECS, ids=[spec.name for spec in FORM_SPECS])
def test_every_order_of_the_console_needs_the_right_of_its_route(
    roles: RolesWorld, browsers: dict[Role, Browser], spec: RouteSpec, role: Role
) -> None:
    target = [*roles.path(spec, roles.own).split("/"), "new"][3]
    path = f"/console/orders/{spec.name}/{target}"
    fields = {"key": "00000000-0000-4000-8000-000000000000", "seen": "another"}
    shown, given = browsers[role].get(path), browsers[role].post(path, fields)
    if every_route.may(spec, role) == "no":
        assert (shown.status, given.status) == (403, 403)
        assert f"right {spec.right.value}" in given.body.decode()
    else:
        assert shown.status in (200, 404, 409)  # the scope is not held, so not released
        assert given.status in (200, 400, 404, 409)  # the effect that was seen is another one
    assert roles.world.get("/v1/hosts/h1")["closed"] is False


OWN_FORMS = [spec for spec in FORM_SPECS if spec.by_scope]


@pytest.mark.parametrize("spec", OWN_FORMS, ids=[spec.name for spec in OWN_FORMS])
def test_an_owner_cannot_order_for_another_scope_on_the_console(
    roles: RolesWorld, browsers: dict[Role, Browser], spec: RouteSpec
) -> None:
    target = roles.path(spec, roles.others).split("/")[3]
    path = f"/console/orders/{spec.name}/{target}"
    fields = {"key": "00000000-0000-4000-8000-000000000000", "seen": "another"}
    for answer in (browsers[Role.OWNER].get(path), browsers[Role.OWNER].post(path, fields)):
        assert answer.status == 403
        assert "in web, which is all that owner sees" in answer.body.decode()
