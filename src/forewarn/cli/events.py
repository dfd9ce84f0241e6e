"""`forewarn event` and `forewarn operation`: what is going to happen, and why not yet."""

from __future__ import annotations

from typing import Annotated

import typer

from forewarn.cli import details, tables
from forewarn.cli.session import AsJson, flag, session_of

event = typer.Typer(no_args_is_help=True, help="Look at events, approve and cancel them.")
operation = typer.Typer(
    no_args_is_help=True, help="Look at the operations of hosts, and cancel them."
)

LIST_ITEMS_MAX = 1_000  # the most that the API gives at once

Id = Annotated[
    str, typer.Argument(metavar="ID", help="Its id, or at least the first 6 characters of it.")
]
Ended = Annotated[bool, flag("--all", help="Those that have ended too.")]
Limit = Annotated[
    int, typer.Option("--limit", min=1, max=LIST_ITEMS_MAX, help="At most so many, newest first.")
]


@event.command("list")
def list_events(
    context: typer.Context,
    *,
    ended: Ended = False,
    scope: Annotated[str, typer.Option(help="Only events of this scope.")] = "",
    limit: Limit = 100,
    as_json: AsJson = False,
) -> None:
    """List open events, newest first."""
    session = session_of(context)
    asked: dict[str, str | int] = {"scope": scope, "limit": limit, "all": "true" if ended else ""}
    reply = session.client().get("events", query=asked)
    session.show(reply, lambda page, now: tables.events(page["items"], now), as_json=as_json)
    if reply.content["more"] and not as_json:
        session.console.print(f"There are more than {limit}; --limit shows more.")


@event.command("show")
def show_event(context: typer.Context, *, identity: Id, as_json: AsJson = False) -> None:
    """Show an event and its receipt."""
    session = session_of(context)
    session.show(session.client().get("events", identity), details.event, as_json=as_json)


@event.command("approve")
def approve_event(context: typer.Context, *, identity: Id, as_json: AsJson = False) -> None:
    """Say go ahead in the name of the event's scope."""
    session = session_of(context)
    reply = session.client().order("events", identity, "approve")
    session.show(reply, details.ordered_event, as_json=as_json)


@event.command("cancel")
def cancel_event(context: typer.Context, *, identity: Id, as_json: AsJson = False) -> None:
    """Cancel a scheduled event; if it belongs to an operation, all of that."""
    session = session_of(context)
    reply = session.client().order("events", identity, "cancel")
    session.show(reply, details.ordered_event, as_json=as_json)


@event.command("explain")
def explain_event(context: typer.Context, *, identity: Id, as_json: AsJson = False) -> None:
    """Say what an event waits for, until when, and what would free it."""
    session = session_of(context)
    reply = session.client().get("events", identity, "explain")
    session.show(reply, details.explanation, as_json=as_json)


@operation.command("list")
def list_operations(
    context: typer.Context, *, ended: Ended = False, limit: Limit = 100, as_json: AsJson = False
) -> None:
    """List open operations, newest first."""
    session = session_of(context)
    asked = {"limit": limit, "all": "true" if ended else ""}
    reply = session.client().get("operations", query=asked)
    session.show(reply, lambda page, now: tables.operations(page["items"], now), as_json=as_json)
    if reply.content["more"] and not as_json:
        session.console.print(f"There are more than {limit}; --limit shows more.")


@operation.command("show")
def show_operation(context: typer.Context, *, identity: Id, as_json: AsJson = False) -> None:
    """Show an operation and its events."""
    session = session_of(context)
    session.show(session.client().get("operations", identity), details.operation, as_json=as_json)


@operation.command("cancel")
def cancel_operation(context: typer.Context, *, identity: Id, as_json: AsJson = False) -> None:
    """Cancel what of an operation has not started; what has goes on to its end."""
    session = session_of(context)
    reply = session.client().order("operations", identity, "cancel")
    session.show(reply, details.operation, as_json=as_json)


@operation.command("explain")
def explain_operation(context: typer.Context, *, identity: Id, as_json: AsJson = False) -> None:
    """Say what an operation waits for, until when, and what would free it."""
    session = session_of(context)
    reply = session.client().get("operations", identity, "explain")
    session.show(reply, details.explanation, as_json=as_json)
