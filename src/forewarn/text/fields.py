"""A field: what one key takes, in words, and the function that reads its value.

Fields of every kind are made here. `field_tables` reads whole tables with them
and collects mistakes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from forewarn.core.addresses import (
    ADDRESS_ACCEPTED,
    LISTEN_ACCEPTED,
    listen_text,
    read_address,
    read_listen,
)
from forewarn.core.errors import Invalid
from forewarn.core.suggestions import shown
from forewarn.text.durations import parse_duration_ms
from forewarn.text.toml_lines import Path

ACCEPTED = " Accepted: "  # what is refused stands before it, the remedy behind it
_DIGITS = re.compile(r"[0-9]{1,18}")


class Mistake(Struct, frozen=True):
    """One thing that is wrong, and where. An empty path is the file as a whole.

    `{line}` in the words stands for the line of `earlier`, which they refer to.
    """

    path: Path
    words: str
    earlier: Path = ()


class Wrong(Exception):  # noqa: N818 - says what is the case
    """The value is refused. The words, if any, say more than the value would.

    `inside` are mistakes of a table that is the value; their paths begin in it, and their words
    say what would be accepted.
    """

    def __init__(self, words: str = "", *, inside: Sequence[Mistake] = ()) -> None:
        super().__init__(words or (inside[0].words if inside else ""))
        self.inside = tuple(inside)


class Field(Struct, frozen=True):
    """What a key takes: in words, and as a function that returns the value or raises Wrong.

    `from_text` makes of the text of a variable, an option or an XML attribute what TOML would
    have. A `bare` value has no quotes in TOML. `to` is the attribute that it becomes, if that has
    another name than the key.
    """

    accepted: str
    read: Callable[[Any], Any]
    from_text: Callable[[str], object] = str
    bare: bool = False
    to: str = ""

    def read_text(self, text: str) -> Any:
        """The value of a text. Raises Wrong."""
        try:
            return self.read(self.from_text(text))
        except ValueError:
            raise Wrong from None

    def then(self, change: Callable[[Any], Any], *, to: str = "") -> Field:
        """The same field, of which `change` makes another value."""
        return replace(self, read=lambda value: change(self.read(value)), to=to or self.to)

    def refusals(
        self, key: str, value: object, wrong: Wrong, *, as_text: bool = False
    ) -> Iterator[Mistake]:
        """The mistakes of a value that was refused: where it stands, and what is accepted."""
        for mistake in wrong.inside:
            yield Mistake((key, *mistake.path), f"{key}: {mistake.words}")
        if not wrong.inside:
            words = f"{key}: {wrong}" if str(wrong) else f"{key} = {shown(value)} is refused."
            quoted = self.bare and isinstance(value, str) and not as_text
            quotes = ", without quotes" if quoted else ""
            yield Mistake((key,), f"{words}{ACCEPTED}{self.accepted}{quotes}.")


def number(low: int, high: int, note: str = "") -> Field:
    """A whole number."""

    def read(value: object) -> int:
        if type(value) is not int or not low <= value <= high:  # True is no number here
            raise Wrong
        return value

    def from_text(text: str) -> object:
        return int(text) if _DIGITS.fullmatch(text) else text

    return Field(f"a whole number from {low} to {high}{note}", read, from_text, bare=True)


def choice(values: Iterable[str] | Mapping[str, object]) -> Field:
    """One of these words; with a mapping, what it stands for."""
    means = values if isinstance(values, Mapping) else {value: value for value in values}

    def read(value: object) -> object:
        if not isinstance(value, str) or value not in means:
            raise Wrong
        return means[value]

    return Field(" or ".join(f'"{value}"' for value in means), read)


def pattern(accepted: str, regex: str | re.Pattern[str]) -> Field:
    """A text of this shape."""
    shape = re.compile(regex)

    def read(value: object) -> str:
        if not isinstance(value, str) or not shape.fullmatch(value):
            raise Wrong
        return value

    return Field(accepted, read)


def line(accepted: str, chars_max: int, *, chars_min: int = 0) -> Field:
    """A text of printable characters."""

    def read(value: object) -> str:
        if not isinstance(value, str) or not chars_min <= len(value) <= chars_max:
            raise Wrong
        if not value.isprintable():
            raise Wrong
        return value

    return Field(accepted, read)


def ruled(accepted: str, rule: Callable[[str], object]) -> Field:
    """A text that a function reads, or refuses with Invalid or ValueError."""

    def read(value: object) -> object:
        if not isinstance(value, str):
            raise Wrong
        try:
            return rule(value)
        except (Invalid, ValueError):
            raise Wrong from None

    return Field(accepted, read)


def several(
    accepted: str, one: Field, *, split: Callable[[str], object], limit: int | None = None
) -> Field:
    """A list of values of one field; `split` takes the text of a variable or option apart."""

    def read(value: object) -> tuple[Any, ...]:
        if not isinstance(value, list) or (limit is not None and len(value) > limit):
            raise Wrong
        try:
            return tuple(one.read(each) for each in value)
        except Wrong:
            raise Wrong from None

    return Field(accepted, read, split)


def duration(
    accepted: str, *, more_than_ms: int = -1, most_ms: int | None = None, unit_ms: int = 1
) -> Field:
    """A length of time in milliseconds, of whole units."""

    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise Wrong
        try:
            ms = parse_duration_ms(value)
        except Invalid as refused:
            raise Wrong(refused.refused) from None
        if ms % unit_ms or ms <= more_than_ms or (most_ms is not None and ms > most_ms):
            raise Wrong
        return ms

    return Field(accepted, read)


def _switch(value: object) -> bool:
    if not isinstance(value, bool):
        raise Wrong
    return value


def _switch_from_text(text: str) -> object:
    return {"true": True, "false": False}.get(text, text)


SWITCH = Field("true or false", _switch, _switch_from_text, bare=True)
ADDRESS = ruled(ADDRESS_ACCEPTED, read_address)
LISTEN = ruled(LISTEN_ACCEPTED, lambda text: listen_text(*read_listen(text)))
