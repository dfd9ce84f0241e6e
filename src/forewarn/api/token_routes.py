"""`/v1/tokens`: who may come in by a token; and `/v1/whoami`: what the caller may do.

A secret is made here, shown once in the answer, and kept nowhere: the command that makes a token
carries its hash, and the answer that is remembered under an idempotency key has no secret.
"""

from __future__ import annotations

import asyncio
import base64
import secrets
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from forewarn.api.access import access_of
from forewarn.api.operator_routes import Keyed, OperatorRoutes
from forewarn.api.order_bodies import EmptyRequest, words
from forewarn.api.requests import NAME_CHARS_MAX, NoQuery, read_query
from forewarn.api.route_table import RouteSpec, get_route
from forewarn.control import commands
from forewarn.control.commands import Answer
from forewarn.control.control import Control
from forewarn.core import tokens
from forewarn.core.access import RIGHTS, Right, Role
from forewarn.core.model import SECOND_MS
from forewarn.core.principal import Principal
from forewarn.core.tokens import SECRET_BYTES, VALID_MS_DEFAULT, VALID_MS_MAX, VALID_MS_MIN
from forewarn.wire.operator_answers import AccessJson, TokenJson, TokenPage, TokenShown
from forewarn.wire.operator_json import token_json

_ID_BYTES = 10
SHOWN_BEFORE = (
    "This order was carried out before, and the secret was shown then; it is kept nowhere."
    " `forewarn token rotate {}` makes another one."
)

ValidSeconds = Annotated[int, Meta(ge=VALID_MS_MIN // SECOND_MS, le=VALID_MS_MAX // SECOND_MS)]
TokenName = Annotated[str, Meta(max_length=NAME_CHARS_MAX)]


class MakeTokenRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Whom the token is for, and what it gives.

    `scopes` are those of an owner; with `later` they need not be there yet.
    """

    name: TokenName
    role: Role
    scopes: Annotated[list[TokenName], Meta(max_length=tokens.SCOPES_MAX)] = []
    valid_seconds: ValidSeconds = VALID_MS_DEFAULT // SECOND_MS
    later: bool = False


class RotateTokenRequest(msgspec.Struct, forbid_unknown_fields=True):
    """How long the new secret is valid."""

    valid_seconds: ValidSeconds = VALID_MS_DEFAULT // SECOND_MS


def new_id() -> str:
    """The public part of a new token."""
    return _base32(_ID_BYTES)[: tokens.ID_CHARS]


def new_secret() -> str:
    """The secret part: 200 random bits."""
    return _base32(SECRET_BYTES)


def _base32(size: int) -> str:
    return base64.b32encode(secrets.token_bytes(size)).decode().rstrip("=").lower()


class TokenRoutes:
    """The functions behind the routes."""

    def __init__(self, control: Control, routes: OperatorRoutes) -> None:
        self._control = control
        self._routes = routes

    def table(self) -> list[RouteSpec]:
        """The routes, in the order of the documentation."""
        at, one, admin = "/v1/tokens", "/v1/tokens/{name}", Right.ADMINISTER
        return [
            get_route(at, "list-tokens", "Tokens by name.", self.list, TokenPage, right=admin),
            RouteSpec(
                method="POST",
                path=at,
                name="token-make",
                summary="Make a token, and show its secret this once.",
                handler=self._routes.taking("token-make", self._make),
                answer=TokenShown,
                body=MakeTokenRequest,
                command=commands.MakeToken,
                make=_token_to_make,
                right=Right.ADMINISTER,
            ),
            get_route(
                one, "show-token", "A token, by name or id.", self.show, TokenJson, right=admin
            ),
            RouteSpec(
                method="POST",
                path=f"{one}/rotate",
                name="token-rotate",
                summary="Give a token another secret, and show that this once.",
                handler=self._routes.taking("token-rotate", self._rotate),
                answer=TokenShown,
                body=RotateTokenRequest,
                command=commands.RotateToken,
                make=_token_to_rotate,
                right=Right.ADMINISTER,
            ),
            RouteSpec(
                method="POST",
                path=f"{one}/revoke",
                name="token-revoke",
                summary="End a token: it lets no caller in any more.",
                handler=self._routes.taking("token-revoke", self._revoke),
                answer=TokenJson,
                body=EmptyRequest,
                command=commands.RevokeToken,
                make=_token_to_revoke,
                right=Right.ADMINISTER,
            ),
            RouteSpec(
                method="GET",
                path="/v1/whoami",
                name="whoami",
                summary="Who asks, and what they may do.",
                handler=self.whoami,
                answer=AccessJson,
                right=Right.VIEW,
                by_scope=True,
            ),
        ]

    async def whoami(self, request: Request) -> Response:
        read_query(request, NoQuery)
        access = access_of(request)
        shown = AccessJson(
            name=access.principal.name,
            kind=access.principal.kind,
            id=access.principal.id,
            role=access.role,
            rights=tuple(right for right in Right if right in RIGHTS[access.role]),
            scopes=access.scopes,
        )
        return _json(shown)

    async def list(self, request: Request) -> Response:
        read_query(request, NoQuery)
        now_ms = self._control.clock.now_ms()
        found = tokens.in_order(self._control.fleet.tokens.values())
        items = tuple(token_json(one, now_ms) for one in found)
        return _json(TokenPage(items=items, more=False))

    async def show(self, request: Request) -> Response:
        read_query(request, NoQuery)
        token = tokens.find(self._control.fleet.tokens, _name(request))
        return _json(token_json(token, self._control.clock.now_ms()))

    async def _make(self, _: Request, body: bytes, keyed: Keyed) -> Answer:
        said = await asyncio.to_thread(words, body, MakeTokenRequest)
        text = tokens.token_text(token_id := new_id(), new_secret())
        order = commands.MakeToken(
            by=keyed.access.principal,
            token_id=token_id,
            name=said.name,
            role=said.role,
            scopes=tuple(said.scopes),
            secret_hash=tokens.hash_of(text),
            valid_ms=said.valid_seconds * SECOND_MS,
            later=said.later,
        )
        return _shown(await self._control.submit(keyed.once(order)), text)

    async def _rotate(self, request: Request, body: bytes, keyed: Keyed) -> Answer:
        said = await asyncio.to_thread(words, body, RotateTokenRequest)
        token = tokens.find(self._control.fleet.tokens, _name(request))
        text = tokens.token_text(token.token_id, new_secret())
        order = commands.RotateToken(
            by=keyed.access.principal,
            token_id=token.token_id,
            secret_hash=tokens.hash_of(text),
            valid_ms=said.valid_seconds * SECOND_MS,
        )
        return _shown(await self._control.submit(keyed.once(order)), text)

    async def _revoke(self, request: Request, body: bytes, keyed: Keyed) -> Answer:
        await asyncio.to_thread(words, body, EmptyRequest)
        token = tokens.find(self._control.fleet.tokens, _name(request))
        order = commands.RevokeToken(by=keyed.access.principal, token_id=token.token_id)
        return await self._control.submit(keyed.once(order))


# The same orders without a secret, for a look at what they would do.


def _token_to_make(by: Principal, _: Request, body: bytes) -> commands.MakeToken:
    said = words(body, MakeTokenRequest)
    return commands.MakeToken(
        by=by,
        token_id="",
        name=said.name,
        role=said.role,
        scopes=tuple(said.scopes),
        secret_hash="",
        valid_ms=said.valid_seconds * SECOND_MS,
        later=said.later,
    )


def _token_to_rotate(by: Principal, request: Request, body: bytes) -> commands.RotateToken:
    valid_ms = words(body, RotateTokenRequest).valid_seconds * SECOND_MS
    return commands.RotateToken(by=by, token_id=_name(request), secret_hash="", valid_ms=valid_ms)


def _token_to_revoke(by: Principal, request: Request, body: bytes) -> commands.RevokeToken:
    words(body, EmptyRequest)
    return commands.RevokeToken(by=by, token_id=_name(request))


def _shown(answer: Answer, text: str) -> Answer:
    """The answer with the secret that was just made; without one if it was made before."""
    made = msgspec.json.decode(answer.text, type=TokenJson)
    shown = TokenShown(
        **msgspec.structs.asdict(made),
        token=None if answer.repeated else text,
        note=SHOWN_BEFORE.format(made.token_id) if answer.repeated else "",
    )
    return Answer(text=msgspec.json.encode(shown).decode(), repeated=answer.repeated)


def _name(request: Request) -> str:
    return str(request.path_params["name"])


def _json(content: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(content), media_type="application/json")
