"""`forewarn event` and `forewarn operation`: what is going to happen, and why not yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.console import RenderableType

from forewarn.cli import details, lists, tables
from forewarn.cli.session import AsJson, session_of
from forewarn.cli.tables import Items
from forewarn.core.model import OperationPhase, Phase

event = typer.Typer(no_args_is_help=True, help="Look at events, approve, postpone and cancel them.")
operation = typer.Typer(
    no_args_is_help=True, help="Look at the operations of hosts, and cancel them."
)

Id = Annotated[
    str, typer.Argument(metavar="ID", help="Its id, or at least the first 6 characters of it.")
]


@event.command("list")
def list_events(
    context: typer.Context,
    *,
    ended: lists.Ended = False,
    scope: lists.OfScope = "",
    host: lists.OfHost = "",
    vm: lists.OfVm = "",
    tag: lists.OfTag = "",
    event_type: lists.OfType = None,
    phase: Annotated[
        Phase | None, typer.Option("--phase", help="Only in this phase, ended or not.")
    ] = None,
    cause: lists.OfCause = None,
    by: lists.By = "",
    since: lists.Since = "",
    until: lists.Until = "",
    limit: lists.Limit = None,
    as_json: AsJson = False,
) -> None:
    """List open events, newest first."""
    asked = {
        "all": "true" if ended else "",
        "scope": scope,
        "host": host,
        "vm": vm,
        "tag": tag,
        "type": event_type or "",
        "phase": phase or "",
        "cause": cause or "",
        "by": by,
        "since": since,
        "until": until,
    }
    _show_list(context, "events", asked, tables.events, limit=limit, as_json=as_json)


def _show_list(
    context: typer.Context,
    what: str,
    asked: Mapping[str, str],
    table: Callable[[Items, datetime], RenderableType],
    *,
    limit: int | None,
    as_json: bool,
) -> None:
    session = session_of(context)
    reply = lists.pages(session.client(), what, query=asked, limit=limit)
    filtered = any(value for name, value in asked.items() if name != "all")

    def render(page: dict[str, Any], now: datetime) -> RenderableType:
        if page["items"] or not filtered:
            return table(page["items"], now)
        of = "" if asked["all"] or asked["phase"] else "open "
        more = " --all looks among the ended ones too." if of else ""
        return f"There are no such {of}{what}.{more}"

    session.show(reply, render, as_json=as_json)
    if reply.content["more"] and not as_json:
        session.console.print(f"There are more than {limit}; --limit shows more.")


@event.command("show")
def show_event(context: typer.Context, *, identity: Id, as_json: AsJson = False) -> None:
    """Show an event and its receipt."""
    session = session_of(context)
    session.show(session.client().get("events", identity), details.event, as_json=as_json)


@event.command("approve")
def approve_event(
    context: typer.Context,
    *,
    identity: Id,
    reason: Annotated[
        str,
        typer.Option(
            "--reason",
            metavar="TEXT",
            help="Why its VMs are overridden; the receipt has it. An owner needs none.",
        ),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Say go ahead: as the owner of its scope; or in place of a VM, which overrides its notice."""
    session = session_of(context)
    reply = session.client().order("events", identity, "approve", body={"reason": reason})
    session.show(reply, details.ordered_event, as_json=as_json)


@event.command("cancel")
def cancel_event(context: typer.Context, *, identity: Id, as_json: AsJson = False) -> None:
    """Cancel a scheduled event; if it belongs to an operation, all of that."""
    session = session_of(context)
    reply = session.client().order("events", identity, "cancel")
    session.show(reply, details.ordered_event, as_json=as_json)


@event.command("postpone")
def postpone_event(
    context: typer.Context,
    *,
    identity: Id,
    until: Annotated[
        str,
        typer.Option(
            "--until",
            metavar="TIME",
            help="The earliest start without approval: +2h, or a time with its zone.",
        ),
    ],
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Why; the journal has it.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Withdraw a scheduled event and announce it anew, later.

    All events of a Freeze or Reboot of a host move together. The new event has an id and a
    notice of its own, and no approval.
    """
    session = session_of(context)
    body = {"until": until, "reason": reason}
    reply = session.client().order("events", identity, "postpone", body=body)
    session.show(reply, details.ordered_event, as_json=as_json)


@event.command("explain")
def explain_event(context: typer.Context, *, identity: Id, as_json: AsJson = False) -> None:
    """Say what an event waits for, until when, and what would free it."""
    session = session_of(context)
    reply = session.client().get("events", identity, "explain")
    session.show(reply, details.explanation, as_json=as_json)


@operation.command("list")
def list_operations(
    context: typer.Context,
    *,
    ended: lists.Ended = False,
    scope: lists.OfScope = "",
    host: lists.OfHost = "",
    vm: lists.OfVm = "",
    tag: lists.OfTag = "",
    event_type: lists.OfType = None,
    phase: Annotated[
        OperationPhase | None, typer.Option("--phase", help="Only in this phase, ended or not.")
    ] = None,
    cause: lists.OfCause = None,
    by: lists.By = "",
    since: lists.Since = "",
    until: lists.Until = "",
    limit: lists.Limit = None,
    as_json: AsJson = False,
) -> None:
    """List open operations, newest first."""
    asked = {
        "all": "true" if ended else "",
        "scope": scope,
        "host": host,
        "vm": vm,
        "tag": tag,
        "type": event_type or "",
        "phase": phase or "",
        "cause": cause or "",
        "by": by,
        "since": since,
        "until": until,
    }
    _show_list(context, "operations", asked, tables.operations, limit=limit, as_json=as_json)


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
