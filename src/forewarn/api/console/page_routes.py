"""Every route of the console names the right that it needs; one without cannot be made.

Orders need a second one, that of the route of the operator API which they are given by
(`order_pages`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from forewarn.api.access import access_of
from forewarn.core.access import Right

Handler = Callable[[Request], Awaitable[Response]]


class PageRoute(Route):
    """A route for people who have its right: everywhere, or `by_scope` in some scope."""

    def __init__(
        self,
        path: str,
        handler: Handler,
        *,
        right: Right = Right.VIEW,
        by_scope: bool,
        methods: Sequence[str] = ("GET",),
    ) -> None:
        self.right = right
        self.by_scope = by_scope
        what = f"for {path}"

        async def checked(request: Request) -> Response:
            access = access_of(request)
            access.need(right, what=what)
            if not by_scope:
                access.need_everywhere(right, what=what)
            return await handler(request)

        super().__init__(path, checked, methods=list(methods))
