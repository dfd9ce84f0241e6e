"""`forewarn clock`: the time of an emulator, and turning it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import typer
from rich.text import Text

from forewarn.cli import times
from forewarn.cli.session import AsJson, session_of

clock = typer.Typer(
    no_args_is_help=True, help="The emulator's time, and turning it. Only for `simulate`."
)

_STANDING = "standing still until it is turned"


@clock.command("show")
def show_clock(context: typer.Context, *, as_json: AsJson = False) -> None:
    """Say what time it is in the emulator, and what is due next."""
    session = session_of(context)
    session.show(session.client().get("clock"), _shown, as_json=as_json)


# So that -15m is refused as a time, and not as an unknown option.
@clock.command("advance", context_settings={"ignore_unknown_options": True})
def advance_clock(
    context: typer.Context,
    *,
    by: Annotated[str, typer.Argument(metavar="TIME", help="By how much: 90s, 15m, 1h30m, 2d.")],
    as_json: AsJson = False,
) -> None:
    """Turn the clock ahead, through everything that is due on the way. It never goes back."""
    session = session_of(context)
    reply = session.client().order("clock", "advance", body={"by": by})
    session.show(reply, _moved, as_json=as_json)


@clock.command("next")
def next_due(context: typer.Context, *, as_json: AsJson = False) -> None:
    """Turn the clock to the next instant at which something is due."""
    session = session_of(context)
    session.show(session.client().order("clock", "next"), _moved, as_json=as_json)


def _moved(content: dict[str, Any], now: datetime) -> Text:
    lines = [f"{times.clock(due['at'], now)}  {due['what']}" for due in content["passed"]]
    return Text("\n").join([*map(Text, lines), _shown(content, now)])


def _shown(content: dict[str, Any], now: datetime) -> Text:
    speed = content["speed"]
    pace = _STANDING if speed == 0 else "real time" if speed == 1 else f"{speed} times as fast"
    due = content["next"]
    following = f"{due['what']} at {times.both(due['at'], now)}" if due else "nothing is due"
    at = times.parse(content["now"])
    return Text(f"It is {at:%Y-%m-%d %H:%M:%S} UTC, {pace}.\nNext: {following}.")
