"""Tables of fields: every mistake of a table is collected, with its place and a remedy.

`Fields` reads one table. `TomlFormat` reads a TOML text and names all its mistakes at once, each
with its line. A format's own rules stand in its own module, on top of these.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from forewarn.core.errors import Invalid
from forewarn.core.suggestions import first_of, meant, shown
from forewarn.text.fields import Field, Mistake, Wrong
from forewarn.text.toml_lines import NotToml, Path, TomlLines, read


class Table(Struct):
    """One table: what it is called and where it stands, what it says, and its good values."""

    written: Mapping[str, Any]
    label: str = ""
    at: Path = ()
    values: dict[str, Any] = field(default_factory=dict)

    def path(self, *keys: str | int) -> Path:
        return (*self.at, *keys)


class Mistakes:
    """Everything that is wrong with a text."""

    def __init__(self) -> None:
        self.found: list[Mistake] = []

    def add(self, path: Path, words: str, *, earlier: Path = ()) -> None:
        self.found.append(Mistake(path, words, earlier))

    def of(self, table: Table, key: str | Path, words: str, *, earlier: Path = ()) -> None:
        """A mistake of one table, at a key or at a path in it."""
        keys = (key,) if isinstance(key, str) else key
        said = f"{table.label}: {words}" if table.label else words
        self.add(table.path(*keys), said, earlier=earlier)


class Fields(Struct, frozen=True, kw_only=True):
    """The keys of one kind of table, and which of them must be there.

    `unknown` begins the sentence that refuses any other key. One of `elsewhere` is a key of another
    kind of table.
    """

    fields: Mapping[str, Field]
    required: Sequence[str] = ()
    unknown: str = "there is no key"
    elsewhere: Collection[str] = ()

    def read(self, table: Table, mistakes: Mistakes, *, as_text: bool = False) -> None:
        """Put the good values of a table into it, and add every mistake."""
        for key, value in table.written.items():
            one = self.fields.get(key)
            if one is None:
                words = f"it takes no {key}" if key in self.elsewhere else self._unknown(key)
                mistakes.of(table, key, f"{words}. {meant(key, self.fields)}")
                continue
            try:
                table.values[one.to or key] = one.read_text(value) if as_text else one.read(value)
            except Wrong as wrong:
                for mistake in one.refusals(key, value, wrong, as_text=as_text):
                    mistakes.of(table, mistake.path, mistake.words)
        for key in self.required:
            if key not in table.written:
                words = f"{key} is missing. Write {key} = ..., {self.fields[key].accepted}."
                mistakes.of(table, key, words)

    def _unknown(self, key: str) -> str:
        return f"{self.unknown} {shown(key)}"


def table_of(fields: Fields, accepted: str) -> Field:
    """A field that takes a table; its value is a dict of what the fields read."""

    def read_inside(value: object) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Wrong
        table, mistakes = Table(value), Mistakes()
        fields.read(table, mistakes)
        if mistakes.found:
            raise Wrong(inside=mistakes.found)
        return table.values

    return Field(accepted, read_inside)


def tables_of(key: str) -> Field:
    """A field that takes a list of tables, `[[key]]`. They are not read yet."""

    def read_list(value: object) -> list[dict[str, Any]]:
        if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
            raise Wrong
        return value

    return Field(f"a list of tables. Write each as [[{key}]]", read_list)


def with_lines(text: str, found: Iterable[Mistake]) -> list[tuple[int, str]]:
    """Mistakes of a text by their line; 0 is the text as a whole."""
    lines = TomlLines(text)
    placed = []
    for mistake in found:
        words = mistake.words
        if mistake.earlier:
            words = words.replace("{line}", f"line {lines.line_of(*mistake.earlier)}")
        placed.append((lines.line_of(*mistake.path) if mistake.path else 0, words))
    return sorted(placed)


def refusal_of(what: str, mistakes: Sequence[str]) -> str:
    """Words that refuse `what` for one mistake or several."""
    said = first_of(mistakes)
    if len(said) == 1:
        return f"{what} was refused: {said[0]}"
    return "\n".join([f"{what} was refused:", *said])


class TomlFormat(Struct, frozen=True, kw_only=True):
    """A TOML text of one kind: what a refusal calls it, its limit, and what a refusal leaves."""

    what: str
    bytes_max: int
    refuse: type[Invalid]
    outcome: str

    def read(self, text: str) -> dict[str, Any]:
        """The tables of a text. Raises `refuse` if it is too long or not TOML."""
        try:
            size = len(text.encode())
        except UnicodeEncodeError as error:
            place = text.count("\n", 0, error.start) + 1
            raise self.refuse(
                f"{self.what} was refused: line {place}: a character is half of a surrogate pair.",
                "Write it in UTF-8.",
            ) from None
        if size > self.bytes_max:
            raise self.refuse(
                f"{self.what} has {size} bytes.", f"Up to {self.bytes_max} are accepted."
            )
        try:
            return read(text)
        except NotToml as error:
            where = f"line {error.line}: " if error.line else ""
            raise self.refuse(
                f"{self.what} was refused: {where}{error.words}.", self.outcome
            ) from None

    def refusal(self, text: str, found: Iterable[Mistake]) -> tuple[str, str]:
        """The words of a refusal: what was refused, line by line, and what is the case now."""
        said = [f"line {at}: {words}" if at else words for at, words in with_lines(text, found)]
        return refusal_of(self.what, said), self.outcome
