"""`forewarn fault`: have the emulator's endpoint misbehave, and have it stop."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from forewarn.cli import tables, times
from forewarn.cli.client import EXIT_USAGE, Stop
from forewarn.cli.session import AsJson, flag, session_of
from forewarn.emulator.faults.kinds import BY_STATUS, KINDS, KindOfFault
from forewarn.emulator.faults.orders import WORDS
from forewarn.text.durations import duration_text

fault = typer.Typer(
    no_args_is_help=True, help="Have the emulator's endpoint misbehave. Only for `simulate`."
)

_WORD = re.compile(f"`({'|'.join(WORDS)})`")
_STATUS_OF = {kind: status for status, kind in BY_STATUS.items()}


def _row(row: KindOfFault) -> str:
    """A kind as the help shows it, with words as options: `stall: ... for --seconds (30 s ...`."""
    names = ", ".join(filter(None, (row.kind.value, _STATUS_OF.get(row.kind))))
    sentence = _WORD.sub(lambda word: f"--{word[1].replace('_', '-')}", row.sentence)
    return f"{names}: {sentence}"


_ADD_HELP = [
    "Add a fault: from now on it hits every request that its options select.",
    "The oldest that hits a request decides it; unquoted-etag and those of changes hold beside it.",
    *map(_row, KINDS.values()),
]


@fault.command("add", help="\n\n".join(_ADD_HELP))
def add_fault(
    context: typer.Context,
    *,
    kind: Annotated[str, typer.Argument(metavar="KIND", help="Its kind, or its status.")],
    vm: Annotated[str, typer.Option(metavar="NAME", help="Only this VM.")] = "",
    method: Annotated[str, typer.Option(metavar="GET|POST", help="Only this method.")] = "",
    count: Annotated[str, typer.Option(metavar="N", help="Ends after this many hits.")] = "",
    share: Annotated[
        str, typer.Option(metavar="0..1", help="Hits this share, chosen by the emulator's seed.")
    ] = "",
    for_: Annotated[
        str, typer.Option("--for", metavar="TIME", help="Ends after this emulated time: 70s.")
    ] = "",
    seconds: Annotated[
        str, typer.Option(metavar="TIME", help="How long it takes; the kind says on which clock.")
    ] = "",
    retry_after: Annotated[
        str, typer.Option(metavar="TIME", help="Say Retry-After with a 429 or 503.")
    ] = "",
    by: Annotated[str, typer.Option(metavar="N", help="Skip this many incarnations.")] = "",
    per_second: Annotated[str, typer.Option(metavar="N", help="Requests allowed per VM.")] = "",
    document: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The document that `replay` answers with.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    said = {"kind": kind, "vm": vm, "method": method, "count": count, "share": share}
    said |= {"for": for_, "seconds": seconds, "retry_after": retry_after}
    said |= {"by": by, "per_second": per_second, "document": _text(document)}
    session = session_of(context)
    body: dict[str, object] = {word: value for word, value in said.items() if value}
    reply = session.client().order("faults", body=body)
    session.show(reply, lambda one, now: _table([one], now), as_json=as_json)


@fault.command("list")
def list_faults(
    context: typer.Context,
    *,
    over: Annotated[bool, flag("--all", help="Those that are over too.")] = False,
    as_json: AsJson = False,
) -> None:
    """List faults, oldest first, with how often each has hit."""
    session = session_of(context)
    reply = session.client().get("faults", query={"all": "true" if over else ""})
    session.show(reply, lambda page, now: _listed(page["items"], now), as_json=as_json)


@fault.command("clear")
def clear_faults(
    context: typer.Context,
    *,
    identity: Annotated[
        str, typer.Argument(metavar="[ID]", help="Its id, like f1. All without one.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """End one fault, or all of them."""
    session = session_of(context)
    path = ("faults", identity) if identity else ("faults",)
    reply = session.client().delete(*path)
    session.show(reply, lambda page, _: _cleared(page["items"]), as_json=as_json)


def _text(file: Path | None) -> str:
    if file is None:
        return ""
    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise Stop(EXIT_USAGE, f"--document {file} cannot be read: {error}.") from None


def _listed(items: tables.Items, now: datetime) -> RenderableType:
    if not items:
        return "There are no faults. `forewarn fault add KIND` adds one."
    return _table(items, now)


def _cleared(items: tables.Items) -> str:
    names = ", ".join(item["fault_id"] for item in items)
    return f"Cleared: {names}." if names else "There was nothing to clear."


def _table(items: tables.Items, now: datetime) -> Table:
    table = tables.new_table("FAULT", "KIND", "VM", "HITS", "SELECTS", "UNTIL", numbers=("HITS",))
    for item in items:
        table.add_row(
            item["fault_id"],
            item["kind"],
            item["vm"] or "all",
            str(item["hits"]),
            _details(item),
            Text("over", style="dim") if item["over"] else _until(item, now),
        )
    return table


def _until(item: dict[str, Any], now: datetime) -> str:
    """What ends a fault by itself, whichever comes first."""
    hits = "" if item["count"] is None else tables.count(item["count"], "hit")
    ends = [end for end in (hits, times.away(item["until"], now)) if end]
    return " or ".join(ends) or "cleared"


def _details(item: dict[str, Any]) -> str:
    """What narrows a fault, and what is its kind's own, in words."""
    words = []
    if item["method"]:
        words.append(item["method"])
    if item["share"] is not None:
        words.append(f"a share of {item['share']:g}")
    if item["seconds"] is not None:
        words.append(f"takes {duration_text(round(item['seconds'] * 1_000))}")
    if item["retry_after"] is not None:
        words.append(f"retry after {item['retry_after']}s")
    if item["by"] is not None:
        words.append(f"skips {item['by']}")
    if item["per_second"] is not None:
        words.append(f"{item['per_second']:g} per second")
    if item["document"] is not None:
        words.append(f"a document of {len(item['document'])} characters")
    return ", ".join(words) or "everything"
