"""`/v1/console/links`: a link that opens the console once, for who may ask the operator API."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from forewarn.api.access import access_of
from forewarn.api.console.mount import ConsoleSetup, path_of
from forewarn.api.console.sessions import CODE_S
from forewarn.api.order_bodies import BODY_BYTES_MAX, EmptyRequest, words
from forewarn.api.peer_credentials import PEER_KEY
from forewarn.api.requests import NoQuery, read_body, read_query
from forewarn.api.route_table import RouteSpec
from forewarn.core.access import Right
from forewarn.wire.operator_answers import ConsoleLinkJson


class ConsoleRoutes:
    """The function behind the route."""

    def __init__(self, setup: ConsoleSetup) -> None:
        self._setup = setup

    def table(self) -> list[RouteSpec]:
        return [
            RouteSpec(
                method="POST",
                path="/v1/console/links",
                name="console-link",
                summary="A link that opens the console, once and within a minute, as the caller.",
                handler=self.link,
                answer=ConsoleLinkJson,
                right=Right.VIEW,
                by_scope=True,
                body=EmptyRequest,
                keyed=False,  # each is good once
            )
        ]

    async def link(self, request: Request) -> Response:
        """Its path and code; where the console is, the service knows less well than who asks."""
        read_query(request, NoQuery)
        words(await read_body(request, bytes_max=BODY_BYTES_MAX), EmptyRequest)
        way = "the socket" if PEER_KEY in request.scope else "a link by the API"
        code = self._setup.sessions.make_code(access_of(request), way)
        answer = ConsoleLinkJson(
            url=self._setup.link(code), path=path_of(code), valid_seconds=int(CODE_S)
        )
        return Response(msgspec.json.encode(answer), media_type="application/json")
