"""`forewarn journal`: the record of all that happened, printed once or as it grows."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from itertools import chain
from typing import Annotated, Any

import typer

from forewarn.cli import lists, tables
from forewarn.cli.client import Client
from forewarn.cli.session import FILTERED, AsJson, Session, flag, session_of
from forewarn.core.model import Phase

FOLLOW_WAIT_S = 20

Line = tuple[dict[str, Any], datetime]  # a fact, and what time it was at the service


def journal(
    context: typer.Context,
    *,
    scope: lists.OfScope = "",
    event: Annotated[str, typer.Option(metavar="ID", help="Only lines of this event.")] = "",
    host: lists.OfHost = "",
    vm: lists.OfVm = "",
    tag: lists.OfTag = "",
    event_type: lists.OfType = None,
    phase: Annotated[
        Phase | None, typer.Option("--phase", help="Only of events that are in this phase now.")
    ] = None,
    cause: lists.OfCause = None,
    kind: Annotated[
        str, typer.Option(metavar="KIND", help="Only lines of this kind, like started.")
    ] = "",
    by: lists.By = "",
    since: lists.Since = "",
    until: lists.Until = "",
    last: Annotated[int | None, typer.Option(min=0, help="Only so many of the newest.")] = None,
    follow: Annotated[bool, flag("--follow", help="Print new lines as they are written.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the journal, oldest line first."""
    session = session_of(context)
    client = session.client()
    asked = {
        "scope": scope,
        "event": event,
        "host": host,
        "vm": vm,
        "tag": tag,
        "type": event_type or "",
        "phase": phase or "",
        "cause": cause or "",
        "kind": kind,
        "by": by,
        "since": since,
        "until": until,
    }
    reading = _Reading(client, {**asked, "limit": lists.PAGE_ITEMS})
    present: Iterable[Line] = reading.present()
    if last is not None:
        present = deque(present, maxlen=last)
    if as_json and not follow:
        items = [fact for fact, _ in present]
        shown = {"items": items, "more": False, "end": reading.end, "filtered": reading.filtered}
        session.show_json(shown)
        return
    _print_lines(session, chain(present, reading.coming() if follow else ()), as_json=as_json)
    if reading.filtered and not as_json:
        session.print(FILTERED)


def _print_lines(session: Session, lines: Iterable[Line], *, as_json: bool) -> None:
    """Print lines as they come, until Ctrl-C."""
    any_line = False
    with suppress(KeyboardInterrupt):
        for fact, now in lines:
            any_line = True
            if as_json:
                session.show_json_line(fact)
            else:
                session.print(tables.fact_line(fact, now))
        if not any_line:
            session.console.print("The journal has no line like that.")


class _Reading:
    """Reads the journal once, from its beginning. `end` is how far it has come."""

    def __init__(self, client: Client, asked: Mapping[str, str | int]) -> None:
        self._client = client
        self._asked = asked
        self.end = 0
        self.filtered = False

    def present(self) -> Iterator[Line]:
        """The lines that are there."""
        more = True
        while more:
            reply = self._client.get("journal", query={**self._asked, "after": self.end})
            self.end = reply.content["end"]
            self.filtered = bool(reply.content.get("filtered"))
            more = reply.content["more"]
            yield from ((fact, reply.now) for fact in reply.content["items"])

    def coming(self) -> Iterator[Line]:
        """Lines as they are added, for ever."""
        while True:
            asked = {**self._asked, "after": self.end, "wait": FOLLOW_WAIT_S}
            reply = self._client.get("journal", query=asked, wait_s=FOLLOW_WAIT_S)
            self.end = reply.content["end"]
            yield from ((fact, reply.now) for fact in reply.content["items"])
