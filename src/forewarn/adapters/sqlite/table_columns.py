"""A table of the store as the fields of a value: its cells, the value again, and what writes it.

Columns come from the fields of a struct and their types, so a field is named once, in its value,
and once in the schema. What no query looks into (tuples, sets, mappings) is JSON text. Nothing here
runs a statement or knows a table.
"""

from __future__ import annotations

import operator
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from sqlite3 import Row
from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")

Cell = str | int | None
Cells = dict[str, Cell]

_encoder = msgspec.json.Encoder()


Write = Callable[[Any], Cell]
Read = Callable[[Any], Any]


class Column(msgspec.Struct, frozen=True):
    """One column: where its value is (`profile.zone`), and what makes the cell of that.

    Without `write` the value is the cell.
    """

    name: str
    path: str
    write: Write | None = None


class StoredField(msgspec.Struct, frozen=True):
    """One field of a value: its columns, and how it is read from a row.

    It is `made` of the row, or else what `read` makes of the cell of its one column, or else that
    cell. The columns of an `optional` field that has no value are NULL.
    """

    name: str
    columns: tuple[Column, ...]
    read: Read | None = None
    made: Callable[[Row], Any] | None = None
    optional: bool = False


class CellWriter:
    """The cells of some columns of a value. Every write of the store passes here."""

    def __init__(self, columns: Sequence[Column]) -> None:
        paths = [column.path for column in columns]
        self._names = tuple(column.name for column in columns)
        self.nulls: Cells = dict.fromkeys(self._names)
        self._writes = tuple((c.name, c.write) for c in columns if c.write is not None)
        one = operator.attrgetter(*paths)
        self._values = one if len(paths) > 1 else lambda value: (one(value),)

    def cells(self, value: object) -> Cells:
        found: Cells = dict(zip(self._names, self._values(value), strict=True))
        for name, write in self._writes:
            found[name] = write(found[name])
        return found


class RowReader:
    """The fields of a value from a row."""

    def __init__(self, fields: Sequence[StoredField]) -> None:
        single = [(f.name, f.columns[0].name, f.read) for f in fields if f.made is None]
        self._plain = tuple((name, column) for name, column, read in single if read is None)
        self._read = tuple((name, column, read) for name, column, read in single if read)
        self._made = tuple((f.name, f.made) for f in fields if f.made is not None)

    def fields(self, row: Row) -> dict[str, Any]:
        found = {name: row[column] for name, column in self._plain}
        for name, column, read in self._read:
            found[name] = read(row[column])
        for name, made in self._made:
            found[name] = made(row)
        return found


class StoreTable(Generic[T]):
    """The rows of one kind of value.

    `elsewhere` are fields that other tables hold, and `value` is given. `beside` are columns that
    the value does not know, and `cells` is given. `columns` renames the column of a field; `parts`
    are fields that have several columns of their own.
    """

    def __init__(
        self,
        name: str,
        kind: type[T],
        *,
        elsewhere: Sequence[str] = (),
        beside: Sequence[str] = (),
        columns: Mapping[str, str] | None = None,
        parts: Sequence[StoredField] = (),
    ) -> None:
        self.name = name
        self._kind = kind
        split = {part.name: part for part in parts}
        renamed = columns or {}
        hints = typing.get_type_hints(kind)
        fields = tuple(
            split[field] if field in split else plain_field(field, renamed.get(field, field), hint)
            for field, hint in hints.items()
            if field not in elsewhere
        )
        self._reader = RowReader(fields)
        self._writer = CellWriter(
            [c for field in fields if not field.optional for c in field.columns]
        )
        self._optional = tuple(
            (field.name, CellWriter(field.columns)) for field in fields if field.optional
        )
        self.columns = (*(column.name for field in fields for column in field.columns), *beside)

    def cells(self, value: T, **beside: Cell) -> Cells:
        """The row of a value."""
        found = self._writer.cells(value)
        for name, writer in self._optional:
            found.update(writer.nulls if getattr(value, name) is None else writer.cells(value))
        found.update(beside)
        return found

    def value(self, row: Row, **elsewhere: Any) -> T:
        """The value of a row."""
        return self._kind(**self._reader.fields(row), **elsewhere)

    # What writes rows. A condition is what must hold of the row that is there.

    def insert(self, *, conflict: str = "", made: Mapping[str, str] | None = None) -> str:
        """Adds a row; `made` are columns that the statement makes itself, `conflict` the key."""
        own = made or {}
        names = ", ".join((*self.columns, *own))
        values = ", ".join((*(f":{name}" for name in self.columns), *own.values()))
        kept = f"\nON CONFLICT ({conflict}) DO NOTHING" if conflict else ""
        return f"INSERT INTO {self.name} ({names})\nVALUES ({values}){kept}"

    def update(self, *, key: Sequence[str], where: str, made: Mapping[str, str]) -> str:
        """Writes every column but those of the key; `made` are columns with a way of their own."""
        sets = (
            f"{name} = {made.get(name, f':{name}')}" for name in self.columns if name not in key
        )
        return f"UPDATE {self.name}\n   SET {', '.join(sets)}\n WHERE {where}"  # noqa: S608 - ours

    def upsert(self, *, key: Sequence[str], keeps: Iterable[str] = (), where: str = "") -> str:
        """Adds a row or writes the one that is there, but for the columns that it `keeps`."""
        stays = {*key, *keeps}
        sets = (f"{name} = excluded.{name}" for name in self.columns if name not in stays)
        condition = f"\n WHERE {where}" if where else ""
        return (
            f"{self.insert()}\nON CONFLICT ({', '.join(key)}) DO UPDATE\n"
            f"   SET {', '.join(sets)}{condition}"
        )


def flat(name: str, kind: type[Any], *, prefix: str = "", optional: bool = False) -> StoredField:
    """A field that is a value of its own, with a column for each of its fields.

    An `optional` one is None where its first column is.
    """
    hints = typing.get_type_hints(kind)
    inner = tuple(plain_field(field, prefix + field, hint) for field, hint in hints.items())
    first = inner[0].columns[0].name
    reader = RowReader(inner)

    def made(row: Row) -> Any:
        return None if optional and row[first] is None else kind(**reader.fields(row))

    columns = tuple(
        msgspec.structs.replace(column, path=f"{name}.{column.path}")
        for field in inner
        for column in field.columns
    )
    return StoredField(name, columns, made=made, optional=optional)


def pair(name: str, first: str, second: str) -> StoredField:
    """A field of two texts."""
    return StoredField(
        name,
        (
            Column(first, name, operator.itemgetter(0)),
            Column(second, name, operator.itemgetter(1)),
        ),
        made=lambda row: (row[first], row[second]),
    )


def plain_field(name: str, column: str, hint: Any) -> StoredField:
    """A field that is one column; its type says how."""
    write, read = _codec(hint)
    return StoredField(name, (Column(column, name, write),), read)


def _codec(hint: Any) -> tuple[Write, Read] | tuple[None, None]:
    """How a field of that type is written and read; nothing where the cell is the value."""
    if hint in (str, int):
        return None, None
    if hint is bool:
        return int, bool
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return str.__str__, hint
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return _optional(hint)
    if typing.get_origin(hint) is frozenset:
        return (lambda value: json_text(sorted(value))), msgspec.json.Decoder(hint).decode
    return json_text, msgspec.json.Decoder(_readable(hint)).decode


def _optional(hint: Any) -> tuple[Write, Read] | tuple[None, None]:
    (inner,) = (one for one in typing.get_args(hint) if one is not types.NoneType)
    write, read = _codec(inner)
    if write is None or read is None:
        return None, None
    return (
        lambda value: None if value is None else write(value),
        lambda cell: None if cell is None else read(cell),
    )


def _readable(hint: Any) -> Any:
    """JSON gives a plain dict for a mapping."""
    is_mapping = typing.get_origin(hint) is Mapping
    return dict[typing.get_args(hint)] if is_mapping else hint  # type: ignore[misc]


def json_text(value: object) -> str:
    return _encoder.encode(value).decode()
