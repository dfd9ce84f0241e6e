"""Lists of events, operations and lines: the options that choose, and all pages as one answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from forewarn.cli.client import Client, Reply
from forewarn.cli.session import flag
from forewarn.core.model import Cause, EventType

PAGE_ITEMS = 1_000  # the most that the API gives at once

Query = Mapping[str, str | int]

OfScope = Annotated[str, typer.Option("--scope", metavar="NAME", help="Only of this scope.")]
OfHost = Annotated[str, typer.Option("--host", metavar="NAME", help="Only of this host.")]
OfVm = Annotated[str, typer.Option("--vm", metavar="NAME", help="Only of this VM.")]
OfTag = Annotated[
    str, typer.Option("--tag", metavar="KEY=VALUE", help="Only of VMs that had this tag.")
]
OfType = Annotated[EventType | None, typer.Option("--type", help="Only of this type.")]
OfCause = Annotated[Cause | None, typer.Option("--cause", help="Only for this reason.")]
By = Annotated[
    str, typer.Option("--by", metavar="NAME", help="Only by this operator, VM or part of control.")
]
Since = Annotated[
    str,
    typer.Option(
        "--since", metavar="T", help="Only from then on: a time with its zone, or ago (-2h)."
    ),
]
Until = Annotated[str, typer.Option("--until", metavar="T", help="Only until then, as --since.")]
Ended = Annotated[bool, flag("--all", help="Those that have ended too.")]
Limit = Annotated[
    int | None,
    typer.Option("--limit", metavar="N", min=1, help="At most so many, newest first; else all."),
]


def pages(client: Client, *path: str, query: Query, limit: int | None) -> Reply:
    """A list that is read page by page as one answer, to its end or up to `limit`."""
    items: list[dict[str, Any]] = []
    after = ""
    while True:
        left = PAGE_ITEMS if limit is None else min(PAGE_ITEMS, limit - len(items))
        reply = client.get(*path, query={**query, "limit": left, "after": after})
        items.extend(reply.content["items"])
        after = reply.content["next"]
        if not reply.content["more"] or len(items) == limit:
            return Reply({**reply.content, "items": items}, reply.now)
