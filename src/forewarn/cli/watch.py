"""`forewarn watch`: a live view of what is open, with countdowns that tick every second."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Annotated, Any

import typer
from msgspec import Struct
from msgspec.structs import replace
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from forewarn.cli import tables
from forewarn.cli.client import EXIT_UNREACHABLE, Client, Stop
from forewarn.cli.session import AsJson, Session, session_of

LOOK_EVERY_S = 2.0
REDRAW_EVERY_S = 1.0
EVENTS_SHOWN_MAX = 100
LINES_SHOWN = 8
PAGE_LINES = 1_000  # the most that the API gives at once

_SHOWN = {"limit": EVENTS_SHOWN_MAX}

Json = dict[str, Any]


class Picture(Struct, frozen=True):
    """What the service said last, and when by our own stopwatch."""

    events: list[Json]
    more: bool
    operations: list[Json]
    lines: list[Json]
    end: int
    now: datetime
    seen_s: float
    trouble: str = ""

    def time_now(self, stopwatch_s: float) -> datetime:
        """What time it is at the service: what it said, and what has passed since."""
        return self.now + timedelta(seconds=stopwatch_s - self.seen_s)


def watch(
    context: typer.Context,
    *,
    seconds: Annotated[
        float | None, typer.Option("--for", min=0, help="Stop after so many seconds.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Watch open events and operations live. With --json, a line whenever they have changed.

    Where the output is no terminal, the view is printed once.
    """
    session = session_of(context)
    client = session.client()
    began_s = time.monotonic()

    def over() -> bool:
        return seconds is not None and time.monotonic() - began_s >= seconds

    try:
        if as_json:
            _print_changes(session, client, over)
        elif session.console.is_terminal:
            _draw(session, client, over)
        else:
            session.console.print(_render(_look(client, None), time.monotonic()))
    except KeyboardInterrupt:
        return


def _print_changes(session: Session, client: Client, over: Callable[[], bool]) -> None:
    shown: Json | None = None
    while True:
        events = client.get("events", query=_SHOWN).content
        operations = client.get("operations", query=_SHOWN).content
        found = {"events": events["items"], "operations": operations["items"]}
        if found != shown:
            session.show_json_line(found)
            shown = found
        if over():
            return
        time.sleep(LOOK_EVERY_S)


def _draw(session: Session, client: Client, over: Callable[[], bool]) -> None:
    picture = _look(client, None)
    with Live(
        _render(picture, time.monotonic()),
        console=session.console,
        auto_refresh=False,
        screen=True,
        vertical_overflow="crop",
    ) as live:
        while not over():
            time.sleep(REDRAW_EVERY_S)
            if time.monotonic() - picture.seen_s >= LOOK_EVERY_S:
                picture = _look_again(client, picture)
            live.update(_render(picture, time.monotonic()), refresh=True)
    session.console.print(_render(picture, time.monotonic()))


def _look_again(client: Client, before: Picture) -> Picture:
    """The next picture; while the service is away, the last one with the reason."""
    try:
        return _look(client, before)
    except Stop as stop:
        if stop.exit_code != EXIT_UNREACHABLE:
            raise
        return replace(before, trouble=stop.sentence)


def _look(client: Client, before: Picture | None) -> Picture:
    events = client.get("events", query=_SHOWN)
    operations = client.get("operations", query=_SHOWN)
    after = 0 if before is None else before.end
    lines = [] if before is None else before.lines
    while True:
        page = client.get("journal", query={"after": after, "limit": PAGE_LINES}).content
        lines = [*lines, *page["items"]][-LINES_SHOWN:]
        after = page["end"]
        if not page["more"]:
            break
    return Picture(
        events=events.content["items"],
        more=events.content["more"],
        operations=operations.content["items"],
        lines=lines,
        end=after,
        now=events.now,
        seen_s=time.monotonic(),
    )


def _render(picture: Picture, stopwatch_s: float) -> RenderableType:
    now = picture.time_now(stopwatch_s)
    head = Text(f"Forewarn  {now:%Y-%m-%d %H:%M:%S} UTC", style="bold")
    head.append(f"  {tables.count(len(picture.events), 'open event')}", style="not bold")
    head.append("  Ctrl-C ends", style="not bold dim")
    parts: list[RenderableType] = [head]
    if picture.trouble:
        parts.append(Text(f"As of {picture.now:%H:%M:%S}. {picture.trouble}", style="bold red"))
    parts.extend([Text(), tables.events(picture.events, now)])
    if picture.more:
        parts.append(Text(f"... and more than {EVENTS_SHOWN_MAX} in all", style="dim"))
    if picture.operations:
        parts.extend([Text(), tables.operations(picture.operations, now)])
    if picture.lines:
        parts.append(Text())
        for fact in picture.lines:
            line = tables.fact_line(fact, now)
            line.no_wrap, line.overflow = True, "ellipsis"  # `forewarn journal` has them whole
            parts.append(line)
    return Group(*parts)
