"""What every command shares: which service it asks, and how it prints."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from msgspec import Struct, field
from rich.console import Console, RenderableType
from rich.text import Text

from forewarn.cli.client import Client, Reply, data_folder, find_service


def flag(name: str, *, help: str) -> Any:  # noqa: A002 - as typer has it
    """An option that takes no value; its help does not name one either."""
    return typer.Option(name, metavar="", help=help)


# The option of every command. It may stand anywhere; `main` puts it where it belongs.
AsJson = Annotated[
    bool, flag("--json", help="Print the JSON of the operator API. May stand anywhere.")
]

FILTERED = "Filtered: only what belongs to your scopes is shown."  # to owners

Render = Callable[[Any, datetime], RenderableType]


def new_console(*, stderr: bool = False) -> Console:
    """A console that prints names as they are: nothing in them is markup."""
    return Console(stderr=stderr, markup=False, highlight=False, emoji=False)


def plain(text: str) -> str:
    """The text as it is, but nothing in it that a terminal would obey; lines stay lines."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


class Session(Struct, frozen=True):
    """One run of the command line."""

    data: Path | None = None
    settings: Path | None = None
    console: Console = field(default_factory=new_console)

    def client(self) -> Client:
        """The way to the service. Raises Stop if its address is not known."""
        return Client(find_service(self.data, self.settings))

    def data_folder(self) -> Path:
        return data_folder(self.data, self.settings)

    def show(self, reply: Reply, render: Render, *, as_json: bool) -> None:
        """Print an answer: its JSON, or what `render` makes of it."""
        if as_json:
            self.show_json(reply.content)
        else:
            shown = render(reply.content, reply.now)
            self.print(shown) if isinstance(shown, str | Text) else self.console.print(shown)
            if isinstance(reply.content, dict) and reply.content.get("filtered"):
                self.print(Text(FILTERED, style="dim"))

    def print(self, text: str | Text) -> None:
        """Print text. Its lines stay whole for a reader like grep, to whom no width is known; on a
        terminal they are wrapped between words, so that no id is.
        """
        self.console.print(text, soft_wrap=not self.console.is_terminal)

    @staticmethod
    def show_json(content: object) -> None:
        """Print one JSON document."""
        sys.stdout.write(json.dumps(content, indent=2, ensure_ascii=False) + "\n")

    @staticmethod
    def show_json_line(content: object) -> None:
        """Print one JSON document on a line of its own, at once."""
        sys.stdout.write(json.dumps(content, ensure_ascii=False) + "\n")
        sys.stdout.flush()


def session_of(context: typer.Context) -> Session:
    """The session that the root of the command line has begun."""
    found = context.find_object(Session)
    return found if found is not None else Session()
