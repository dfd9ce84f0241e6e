"""`forewarn watch`: a live view of what is open, with countdowns that tick every second."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Annotated, Any

import typer
from msgspec import Struct
from msgspec.structs import replace
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from forewarn.cli import lists, tables
from forewarn.cli.client import EXIT_UNREACHABLE, Client, Stop
from forewarn.cli.session import AsJson, Session, session_of
from forewarn.cli.tables import Items

LOOK_EVERY_S = 2.0
REDRAW_EVERY_S = 1.0
SHOWN_MAX = 100  # of events and of operations, where there is room for so many
LINES_SHOWN = 8
ROW_LINES_MAX = 8  # of a row, as a rule; a smaller step finds what fits
NO_LIMIT = 1_000_000  # lines of what is no terminal

Json = dict[str, Any]


class Picture(Struct, frozen=True):
    """What the service said last, and when by our own stopwatch."""

    events: list[Json]
    operations: list[Json]
    lines: list[Json]
    end: int
    now: datetime
    seen_s: float
    events_open: int = 0
    operations_open: int = 0
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
            session.console.print(_render(_look(client, None), time.monotonic(), session.console))
    except KeyboardInterrupt:
        return


def _print_changes(session: Session, client: Client, over: Callable[[], bool]) -> None:
    shown: Json | None = None
    while True:
        events = lists.pages(client, "events", query={}, limit=None).content
        operations = lists.pages(client, "operations", query={}, limit=None).content
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
        _render(picture, time.monotonic(), session.console),
        console=session.console,
        auto_refresh=False,
        screen=True,
        vertical_overflow="crop",
    ) as live:
        while not over():
            time.sleep(REDRAW_EVERY_S)
            if time.monotonic() - picture.seen_s >= LOOK_EVERY_S:
                picture = _look_again(client, picture)
            live.update(_render(picture, time.monotonic(), session.console), refresh=True)
    session.console.print(_render(picture, time.monotonic(), session.console))


def _look_again(client: Client, before: Picture) -> Picture:
    """The next picture; while the service is away, the last one with the reason."""
    try:
        return _look(client, before)
    except Stop as stop:
        if stop.exit_code != EXIT_UNREACHABLE:
            raise
        return replace(before, trouble=stop.sentence)


def _look(client: Client, before: Picture | None) -> Picture:
    health = client.get("health")
    events = client.get("events", query={"limit": SHOWN_MAX})
    operations = client.get("operations", query={"limit": SHOWN_MAX})
    after = 0 if before is None else before.end
    lines = [] if before is None else before.lines
    while True:
        page = client.get("journal", query={"after": after, "limit": lists.PAGE_ITEMS}).content
        lines = [*lines, *page["items"]][-LINES_SHOWN:]
        after = page["end"]
        if not page["more"]:
            break
    return Picture(
        events=events.content["items"],
        operations=operations.content["items"],
        # What the lists have is newer than the count, if they have all.
        events_open=_counted(events.content, health.content["open_events"]),
        operations_open=_counted(operations.content, health.content["open_operations"]),
        lines=lines,
        end=after,
        now=events.now,
        seen_s=time.monotonic(),
    )


def _counted(page: Json, counted: int) -> int:
    return counted if page["more"] else len(page["items"])


def _render(picture: Picture, stopwatch_s: float, console: Console) -> RenderableType:
    """The picture, on a terminal no higher than that is: what there is no room for is counted."""
    now = picture.time_now(stopwatch_s)
    head = Text(f"Forewarn  {now:%Y-%m-%d %H:%M:%S} UTC", style="bold")
    head.append(f"  {tables.count(picture.events_open, 'open event')}", style="not bold")
    head.append(f", {tables.count(picture.operations_open, 'operation')}", style="not bold")
    head.append("  Ctrl-C ends", style="not bold dim")
    top: list[RenderableType] = [head]
    if picture.trouble:
        top.append(Text(f"As of {picture.now:%H:%M:%S}. {picture.trouble}", style="bold red"))
    lines = [tables.fact_line(fact, now) for fact in picture.lines]
    for line in lines:
        line.no_wrap, line.overflow = True, "ellipsis"  # `forewarn journal` has them whole
    room = console.height if console.is_terminal else NO_LIMIT
    lines = lines[-max(1, room // 4) :]
    operations = _part(console, tables.operations, picture.operations, picture.operations_open, now)
    lower = operations(room // 4) if picture.operations else []
    bottom: list[RenderableType] = [Text(), *lines] if lines else []
    events = _part(console, tables.events, picture.events, picture.events_open, now)
    # A screen that has no room for all of it goes without the least: operations, then lines.
    for below in ([*lower, *bottom], bottom, []):
        upper = events(room - _height(console, *top, *below))
        found = [*top, *upper, *below]
        if _height(console, *found) <= room:
            break
    return Group(*found)


def _part(
    console: Console,
    table: Callable[[Items, datetime], RenderableType],
    items: list[Json],
    counted: int,
    now: datetime,
) -> Callable[[int], list[RenderableType]]:
    """A table with as many rows as a number of lines has room for, and how many are left out."""

    def fitting(room: int) -> list[RenderableType]:
        shown = len(items)
        while True:
            left_out = counted - shown
            rest = [Text(f"... and {left_out} more", style="dim")] if left_out > 0 else []
            found = [Text(), table(items[:shown], now), *rest]
            over = _height(console, *found) - room
            if over <= 0 or shown <= 1:
                return found
            shown -= max(1, min(shown - 1, over // ROW_LINES_MAX))

    return fitting


def _height(console: Console, *parts: RenderableType) -> int:
    return len(console.render_lines(Group(*parts))) if parts else 0
