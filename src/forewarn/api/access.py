"""The access of a request: what the gate found out of who asks, and where handlers find it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from starlette.requests import Request

from forewarn.core.access import Access

if TYPE_CHECKING:
    from starlette.responses import Response

    from forewarn.api.operator_routes import Handler
    from forewarn.api.route_table import RouteSpec

ACCESS_KEY = "forewarn.access"  # in the scope of every request that passed the gate
HOLDS_KEY = "forewarn.access.holds"  # there too: raises TokenEnded once the access has ended
ROUTE_KEY = "forewarn.route"  # and in that of every request that has a route: its name

# What the bearer of an issuer's token may do. Raises BadToken, Forbidden or Unavailable.
AccessFor = Callable[[str], Awaitable[Access]]


def access_of(request: Request) -> Access:
    """Who asks, and what they may do. Only requests that passed the gate have it."""
    access = request.scope[ACCESS_KEY]
    if not isinstance(access, Access):
        raise TypeError("a request without an access got past the gate")
    return access


def need_still(request: Request) -> None:
    """Raises TokenEnded if the token of a request that waits was revoked or has expired since."""
    request.scope[HOLDS_KEY]()


def needing(spec: RouteSpec) -> Handler:
    """The handler of a route, for callers who have its right: everywhere, or in some scope.

    The one place where the right of a route is asked for.
    """
    right, handler, by_scope = spec.right, spec.handler, spec.by_scope
    what = f"for {spec.method} {spec.path} ({spec.name})"

    async def checked(request: Request) -> Response:
        request.scope[ROUTE_KEY] = spec.name
        access = access_of(request)
        access.need(right, what=what)
        if not by_scope:
            access.need_everywhere(right, what=what)
        return await handler(request)

    return checked
