"""`forewarn journal`, `inventory`, `backup` and `restore`: the service as a whole."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from forewarn.cli import details, lists, tables
from forewarn.cli.client import EXIT_REFUSED, EXIT_USAGE, Client, Stop
from forewarn.cli.session import AsJson, flag, session_of
from forewarn.core.errors import BadInventory
from forewarn.core.model import Phase

INVENTORY_ANSWER_S = 1_800.0  # one of 200,000 VMs is answered when it was applied

inventory = typer.Typer(no_args_is_help=True, help="The file that says what the fleet is.")

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
    follow: Annotated[bool, flag("--follow", help="Go on as lines are added.")] = False,
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
        session.show_json({"items": items, "more": False, "end": reading.end})
        return
    any_line = False
    try:
        for fact, now in chain(present, reading.coming() if follow else ()):
            any_line = True
            if as_json:
                session.show_json_line(fact)
            else:
                session.print(tables.fact_line(fact, now))
    except KeyboardInterrupt:
        return
    if not any_line:
        session.console.print("The journal has no such line.")


class _Reading:
    """Reads the journal once, from its beginning. `end` is how far it has come."""

    def __init__(self, client: Client, asked: Mapping[str, str | int]) -> None:
        self._client = client
        self._asked = asked
        self.end = 0

    def present(self) -> Iterator[Line]:
        """The lines that are there."""
        more = True
        while more:
            reply = self._client.get("journal", query={**self._asked, "after": self.end})
            self.end = reply.content["end"]
            more = reply.content["more"]
            yield from ((fact, reply.now) for fact in reply.content["items"])

    def coming(self) -> Iterator[Line]:
        """Lines as they are added, for ever."""
        while True:
            asked = {**self._asked, "after": self.end, "wait": FOLLOW_WAIT_S}
            reply = self._client.get("journal", query=asked, wait_s=FOLLOW_WAIT_S)
            self.end = reply.content["end"]
            yield from ((fact, reply.now) for fact in reply.content["items"])


@inventory.command("apply")
def apply_inventory(
    context: typer.Context,
    *,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A TOML file.")],
    as_json: AsJson = False,
) -> None:
    """Make the fleet what the file says, whole or not at all."""
    session = session_of(context)
    from forewarn.settings import read_inventory  # noqa: PLC0415 - it imports half of the service

    try:
        text = read_inventory(file)
    except BadInventory as bad:
        raise Stop(EXIT_USAGE, bad.refused, bad.accepted) from None
    reply = session.client().order("inventory", body=text.encode(), timeout_s=INVENTORY_ANSWER_S)
    session.show(reply, lambda answer, _: details.applied(answer), as_json=as_json)


def backup(
    context: typer.Context,
    *,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that does not exist yet.")],
    as_json: AsJson = False,
) -> None:
    """Save a consistent copy of the running service's database in a file."""
    session = session_of(context)
    if file.exists():
        raise Stop(EXIT_REFUSED, f"{file} exists.", "Name a file that does not.")
    client = session.client()
    try:
        size = client.download("backup", to=file)
    except OSError as error:
        raise Stop(
            EXIT_REFUSED,
            f"{file} cannot be written: {error.strerror or error}.",
            "Name a file in a folder that you may write to and that has room.",
        ) from None
    if as_json:
        session.show_json({"file": str(file), "bytes": size})
    else:
        session.print(f"Saved {size} bytes in {file}.")


def restore(
    context: typer.Context,
    *,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file made by `forewarn backup`.")],
    force: Annotated[
        bool, flag("--force", help="Replace the database that is there; it is kept aside.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make the database of a data folder from a backup, while no service runs on it."""
    session = session_of(context)
    folder = session.data_folder()
    # These import the whole service.
    from forewarn.adapters.sqlite.data_folder import DatabaseRefused  # noqa: PLC0415
    from forewarn.ports import StoreFailed  # noqa: PLC0415
    from forewarn.wiring.serve import restore as restored  # noqa: PLC0415

    try:
        done = restored(file, folder, force=force)
    except DatabaseRefused as refused:
        raise Stop(EXIT_REFUSED, refused.refused, refused.accepted) from None
    except (StoreFailed, OSError) as error:
        raise Stop(
            EXIT_REFUSED,
            f"The restore failed, and the folder is as it was: {error}.",
            "See that the folder can be written to and has room.",
        ) from None
    aside = None if done.kept_aside is None else str(done.kept_aside)
    answer = {
        "database": str(done.database),
        "kept_aside": aside,
        "scopes": done.scopes,
        "unread": done.unread,
    }
    if as_json:
        session.show_json(answer)
        return
    text = f"Restored {done.database} with {tables.count(done.scopes, 'scope')}."
    if aside:
        text += f"\nThe database that was there is kept in {aside}."
    if done.unread:
        text += (
            f"\nIts incarnations could not be read: {done.unread}. Those of the backup were raised."
        )
    session.print(Text(text))
