"""The operator's word on who may be a host: look, invite, revoke. Only a control has these routes.

A service that has its hosts in its own process has no link, and no host could join it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from forewarn.api.access import access_of
from forewarn.api.order_bodies import BODY_BYTES_MAX, EmptyRequest, words
from forewarn.api.requests import NoQuery, read_body, read_query
from forewarn.api.route_table import RouteSpec
from forewarn.control import commands
from forewarn.control.control import Control
from forewarn.control.hosts.membership import TOKEN_VALID_MS, Membership
from forewarn.core.access import Right
from forewarn.core.membership import VALID_MS_MAX, VALID_MS_MIN
from forewarn.core.model import SECOND_MS
from forewarn.wire.instants import time_text

VALID_SECONDS_MIN = VALID_MS_MIN // SECOND_MS
VALID_SECONDS_MAX = VALID_MS_MAX // SECOND_MS


class InviteRequest(msgspec.Struct, forbid_unknown_fields=True):
    """How long the token is valid; `replace`: the host takes the name from the one that has it."""

    valid_seconds: Annotated[int, Meta(ge=VALID_SECONDS_MIN, le=VALID_SECONDS_MAX)] = (
        TOKEN_VALID_MS // SECOND_MS
    )
    replace: bool = False


class HostInvited(msgspec.Struct):
    """A one-time token for one host, and the command that reads it. The token is shown once."""

    name: str
    token: str
    valid_seconds: int
    command: str


class HostRevoked(msgspec.Struct):
    """The host that is out. `stays`: it is still in the fleet, without new VMs.

    That is so while VMs, events or operations are on it, or an inventory file lists it.
    """

    name: str
    stays: bool


class MemberShown(msgspec.Struct):
    """A host that has joined. `heard_seconds` is how long ago its last heartbeat was, if any."""

    name: str
    joined: str
    alive: bool
    heard_seconds: float | None


class MemberPage(msgspec.Struct):
    """All hosts that have joined, by name."""

    items: list[MemberShown]
    more: bool


class MemberRoutes:
    """The functions behind the routes. `command` is what to say on the machine that joins."""

    def __init__(
        self, control: Control, membership: Membership, *, command: Callable[[str], str]
    ) -> None:
        self._control = control
        self._membership = membership
        self._command = command

    def table(self) -> list[RouteSpec]:
        """The routes, for `create_app(more=...)`."""
        return [
            RouteSpec(
                method="GET",
                path="/v1/members",
                name="list-members",
                summary="The hosts that have joined, by name.",
                handler=self.list_members,
                answer=MemberPage,
                right=Right.ADMINISTER,
            ),
            RouteSpec(
                method="POST",
                path="/v1/hosts/{name}/invite",
                name="host-invite",
                summary="Make a one-time token with which a host may join under that name.",
                handler=self.invite,
                answer=HostInvited,
                right=Right.ADMINISTER,
                body=InviteRequest,
                keyed=False,
            ),
            RouteSpec(
                method="POST",
                path="/v1/hosts/{name}/revoke",
                name="host-revoke",
                summary="Shut a host out: its certificate is worth nothing from now on.",
                handler=self.revoke,
                answer=HostRevoked,
                right=Right.ADMINISTER,
                body=EmptyRequest,
                keyed=False,
                command=commands.HostsLeft,
            ),
        ]

    async def list_members(self, request: Request) -> Response:
        read_query(request, NoQuery)
        observed = self._control.observed
        shown = [
            MemberShown(
                name=member.name,
                joined=time_text(member.since_ms) or "",
                alive=observed.alive(member.name),
                heard_seconds=(
                    observed.silent_ms(member.name) / SECOND_MS
                    if observed.was_heard(member.name)
                    else None
                ),
            )
            for member in self._membership.members()
        ]
        return _json(MemberPage(items=shown, more=False))

    async def invite(self, request: Request) -> Response:
        read_query(request, NoQuery)
        said = words(await read_body(request, bytes_max=BODY_BYTES_MAX), InviteRequest)
        name = str(request.path_params["name"])
        token = await self._membership.invite(
            name, valid_ms=said.valid_seconds * SECOND_MS, replaces=said.replace
        )
        return _json(
            HostInvited(
                name=name,
                token=token,
                valid_seconds=said.valid_seconds,
                command=self._command(name),
            )
        )

    async def revoke(self, request: Request) -> Response:
        read_query(request, NoQuery)
        words(await read_body(request, bytes_max=BODY_BYTES_MAX), EmptyRequest)
        name = str(request.path_params["name"])
        await self._membership.revoke(name, by=access_of(request).principal)
        stays = self._control.fleet.host(name) is not None
        return _json(HostRevoked(name=name, stays=stays))


def _json(content: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(content), media_type="application/json")
