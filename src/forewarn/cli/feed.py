"""`forewarn feed`: the journal as other systems read it, once or for as long as it grows."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from forewarn.cli import tables
from forewarn.cli.client import EXIT_REFUSED, EXIT_UNREACHABLE, EXIT_USAGE, Client, Reply, Stop
from forewarn.cli.session import AsJson, Session, flag, new_console, plain, session_of

PAGE_LINES = 500
FOLLOW_WAIT_S = 20
AGAIN_AFTER_S = (1.0, 2.0, 5.0, 10.0)  # the last one for as long as it takes
NEWEST = "end"
CURSOR_BYTES_MAX = 64
NOT_NOW = 503  # the service stops, or has too many readers

_PLACE = re.compile(r"(?:[0-9]{1,16}-)?[0-9]{1,16}", re.ASCII)
_WORDS = ("scope", "event_id", "operation_id", "host", "vm", "by")


def feed(
    context: typer.Context,
    *,
    follow: Annotated[bool, flag("--follow", help="Print new lines as they are written.")] = False,
    after: Annotated[
        str,
        typer.Option(
            metavar="ID",
            help="Begin after this line: its id or number, a file that has one, or `end`.",
        ),
    ] = "",
    cursor: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Keep in FILE how far it has come, and go on from there."
        ),
    ] = None,
    scope: Annotated[
        str, typer.Option(metavar="NAMES", help="Only of these scopes, divided by commas.")
    ] = "",
    kind: Annotated[
        str, typer.Option(metavar="KINDS", help="Only of these kinds, like completed,canceled.")
    ] = "",
    as_text: Annotated[
        bool, flag("--text", help="What people want to know, a sentence each, for chat and mail.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print the feed, oldest line first. With --json, a CloudEvent on each line."""
    if as_text and as_json:
        raise Stop(EXIT_USAGE, "--text and --json were both said.", "Say one of them.")
    session = session_of(context)
    place = _kept(cursor) or _place(after)
    asked: dict[str, str | int] = {"scope": scope, "kind": kind, "limit": PAGE_LINES}
    reading = _FeedReading(session.client(), asked, place)
    any_line = False
    try:
        for page in reading.pages(follow=follow):
            for event in page.content["items"]:
                any_line = True
                if as_text:
                    _tell(event)
                else:
                    _show(session, event, page, as_json=as_json)
            if cursor is not None:
                _keep(cursor, page.content["next"])
    except KeyboardInterrupt:
        return
    except Stop as stop:
        raise _with_file(stop, cursor) from None
    if not (any_line or as_json or as_text):
        session.console.print("The feed has no line like that.")


def _with_file(stop: Stop, cursor: Path | None) -> Stop:
    """What a person does where the place in the file is gone."""
    begin = stop.problem.get("begin") if isinstance(stop.problem, dict) else None
    if cursor is None or begin is None:
        return stop
    remedy = f"{stop.remedy} To do so, say `echo {begin} > {cursor}`."
    return Stop(stop.exit_code, stop.sentence, remedy, problem=stop.problem)


def _show(session: Session, event: dict[str, Any], page: Reply, *, as_json: bool) -> None:
    if as_json:
        session.show_json_line(event)
    else:
        session.print(tables.fact_line(_fact(event), page.now))


def _tell(event: dict[str, Any]) -> None:
    """The line in words, at once; most lines have none."""
    # With the first line: what makes texts reads whole CloudEvents.
    from forewarn.wire.cloud_events import CloudEvent  # noqa: PLC0415 - see above
    from forewarn.wire.feed_texts import text_of  # noqa: PLC0415 - see above

    try:
        text = text_of(msgspec.convert(event, CloudEvent))
    except msgspec.ValidationError:
        return  # of a kind that only a later version knows
    if text is not None:
        sys.stdout.write(f"{' '.join(text.split())}\n")
        sys.stdout.flush()


def _fact(event: dict[str, Any]) -> dict[str, Any]:
    """A CloudEvent as the line of the journal that it is of."""
    data = event["data"]
    by = data.get("by", {})
    return {
        **{word: data.get(word) for word in _WORDS},
        "number": data["number"],
        "at": event["time"],
        "kind": data["kind"],
        "by": by.get("name"),
        "by_kind": by.get("kind"),
        "detail": data["detail"],
    }


class _FeedReading:
    """Reads page after page. While it follows, it comes again whatever happens to the service."""

    def __init__(
        self,
        client: Client,
        asked: dict[str, str | int],
        place: str,
        *,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self._client = client
        self._asked = asked
        self._place = place
        self._say = say or _say
        self._filtered = False

    def pages(self, *, follow: bool) -> Iterator[Reply]:
        """Those that are there, then with `follow` those that come, for ever."""
        more = True
        while more or follow:
            wait_s = 0 if more else FOLLOW_WAIT_S
            page = self._patiently(wait_s=wait_s) if follow else self._page(wait_s=0)
            more = page.content["more"]
            self._place = page.content["next"]
            if page.content["filtered"] and not self._filtered:
                self._filtered = True
                self._say("Only lines of your scopes are shown.")
            yield page

    def _page(self, *, wait_s: int) -> Reply:
        asked = {**self._asked, "after": self._place, "wait": wait_s or ""}
        return self._client.get("feed", query=asked, wait_s=wait_s)

    def _patiently(self, *, wait_s: int) -> Reply:
        """The next page, however long it takes until the service answers."""
        tried = 0
        while True:
            try:
                page = self._page(wait_s=wait_s)
            except Stop as stop:
                if not _may_pass(stop):
                    raise
                if not tried:
                    self._say(f"{stop.sentence} Trying again until it answers.")
                time.sleep(AGAIN_AFTER_S[min(tried, len(AGAIN_AFTER_S) - 1)])
                tried += 1
            else:
                if tried:
                    self._say(f"It answers again; going on after {self._place or 'nothing'}.")
                return page


def _may_pass(stop: Stop) -> bool:
    """Whether it may work later, though no person mends anything."""
    status = stop.problem.get("status") if isinstance(stop.problem, dict) else None
    return stop.exit_code == EXIT_UNREACHABLE or (
        stop.exit_code == EXIT_REFUSED and status == NOT_NOW
    )


def _say(sentence: str) -> None:
    Session(console=new_console(stderr=True)).print(plain(f"forewarn: {sentence}"))


# How far it has come.


def _place(after: str) -> str:
    """The place that is meant: as it is said, or as a file says it."""
    if after in ("", NEWEST) or _PLACE.fullmatch(after):
        return after
    found = _kept(Path(after))
    if not found:
        raise Stop(
            EXIT_USAGE,
            f"{after!r} is no place in the feed, and no file that has one.",
            "Give the id of a line (1-503), its number (503), a file with either, or `end`.",
        )
    return found


def _kept(file: Path | None) -> str:
    """What a file says of how far a reader has come; empty without one."""
    if file is None:
        return ""
    try:
        with file.open("rb") as opened:
            text = opened.read(CURSOR_BYTES_MAX + 1).decode("ascii", "replace").strip()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise Stop(EXIT_USAGE, f"{file} cannot be read: {error.strerror}.") from None
    if not _PLACE.fullmatch(text):
        raise Stop(
            EXIT_USAGE,
            f"{file} has no place in the feed: {text[:CURSOR_BYTES_MAX]!r}.",
            "Remove it to begin with the oldest line, or write the id of a line into it.",
        )
    return text


def _keep(file: Path, place: str) -> None:
    """Have the file say this, whole and on the disk, or as it was."""
    beside = file.with_name(f"{file.name}.new")
    try:
        with beside.open("w", encoding="ascii") as opened:
            opened.write(f"{place}\n")
            opened.flush()
            os.fsync(opened.fileno())
        beside.replace(file)
        folder = os.open(file.absolute().parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise Stop(
            EXIT_USAGE,
            f"How far it has come cannot be kept in {file}: {error.strerror}.",
            f"What was printed last is {place}.",
        ) from None
