"""Reading the journal from its newest line backwards, by a filter, for pages and for files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, TypeVar
from urllib.parse import urlencode

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from forewarn.api.requests import Name
from forewarn.core import owner_explain
from forewarn.core.errors import Invalid
from forewarn.core.model import Cause, EventType, FactKind
from forewarn.core.suggestions import shown
from forewarn.ports import JournalLine, ListFilter, Store
from forewarn.wire.instants import parse_past

LINES_DEFAULT = 60
LINES_MAX = 500
_FIRST_WINDOW = 512
_GROWS = 8
LAST_NUMBER = 2**53


class JournalAsked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What of the journal a page shows. Everything that is empty lets all lines through."""

    scope: Name = ""
    host: Name = ""
    vm: Name = ""
    event: Name = ""
    kind: Name = ""
    type: Name = ""
    cause: Name = ""
    by: Name = ""
    since: Name = ""
    until: Name = ""
    below: Annotated[int, Meta(ge=1, le=LAST_NUMBER)] | None = None
    line: Annotated[int, Meta(ge=1, le=LAST_NUMBER)] | None = None
    count: Annotated[int, Meta(ge=1, le=LINES_MAX)] = LINES_DEFAULT

    @property
    def query(self) -> str:
        """The same as a query; what is empty is left out."""
        given = ((name, getattr(self, name)) for name in self.__struct_fields__ if name != "count")
        return urlencode({name: str(value) for name, value in given if value not in ("", None)})

    @property
    def filtered(self) -> bool:
        return replace(self, below=None, line=None) != JournalAsked()

    def where(self, now_ms: int) -> ListFilter:
        """The lines that are meant. Raises Invalid for a word that has no meaning."""
        return ListFilter(
            scope=self.scope or None,
            host=self.host or None,
            vm=self.vm or None,
            event_id=self.event.upper() or None,
            kind=_one_of(FactKind, self.kind, "kind"),
            event_type=_one_of(EventType, self.type, "type"),
            cause=_one_of(Cause, self.cause, "cause"),
            by=self.by or None,
            since_ms=parse_past(self.since, now_ms=now_ms) if self.since else None,
            until_ms=parse_past(self.until, now_ms=now_ms) if self.until else None,
        )


def read_asked(given: Mapping[str, str]) -> JournalAsked:
    """What a query asks for. Raises Invalid."""
    said = {name: value for name, value in given.items() if value}
    try:
        return msgspec.convert(said, JournalAsked, strict=False)
    except msgspec.ValidationError as error:
        accepted = ", ".join(JournalAsked.__struct_fields__)
        raise Invalid(
            f"The query was not understood: {error}.", f"Accepted here: {accepted}."
        ) from None


W = TypeVar("W", bound=StrEnum)


def _one_of(words: type[W], given: str, what: str) -> W | None:
    if not given:
        return None
    try:
        return words(given)
    except ValueError:
        accepted = ", ".join(word.value for word in words)
        raise Invalid(f"There is no {what} {shown(given)}.", f"Accepted: {accepted}.") from None


def newest_lines(
    store: Store, where: ListFilter, count: int, *, below: int | None = None
) -> Sequence[JournalLine]:
    """The newest lines, or those before one, in the order in which they were written.

    The store lists from the oldest on, so it is asked for a part of the end, and for more of it
    until that holds enough.
    """
    end = store.journal_end() + 1 if below is None else below
    window = max(_FIRST_WINDOW, 2 * count)
    while True:
        after = max(0, end - 1 - window)
        # Numbers are unique, so no more lines than numbers can be found.
        found = store.journal(where, after=after, limit=window + 1)
        before = [one for one in found if one.number < end]
        if len(before) >= count or after == 0:
            return before[-count:]
        window *= _GROWS


def told(line: JournalLine, scopes: Sequence[str]) -> JournalLine:
    """The line as an owner of these scopes reads it."""
    return replace(line, fact=owner_explain.fact(line.fact, scopes))


def newest_of_scopes(
    store: Store,
    scopes: Sequence[str] | None,
    where: ListFilter,
    count: int,
    *,
    below: int | None = None,
) -> Sequence[JournalLine]:
    """As `newest_lines`, of lines about these scopes only; None for all lines."""
    if scopes is None:
        return newest_lines(store, where, count, below=below)
    found: dict[int, JournalLine] = {}
    for scope in scopes:
        if where.scope in (None, scope):
            own = newest_lines(store, replace(where, scope=scope), count, below=below)
            found |= {one.number: told(one, scopes) for one in own}
    return [found[number] for number in sorted(found)][-count:]
