"""A table of the store as the fields of a value: its cells, and the value again.

Columns come from the fields of a struct and their types, so a field is named once, in its value,
and once in the schema. What no query looks into (tuples, sets, mappings) is JSON text. Nothing here
runs a statement or knows a table.
"""

from __future__ import annotations

import operator
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Generic, TypeVar

import msgspec

from forewarn.ports import Cell

T = TypeVar("T")

Cells = dict[str, Cell]

_encoder = msgspec.json.Encoder()


class Row(typing.Protocol):
    """A row of a table, by the names of its columns."""

    def __getitem__(self, column: str, /) -> Any: ...


Write = Callable[[Any], Cell]
Read = Callable[[Any], Any]


class Column(msgspec.Struct, frozen=True):
    """One column: where its value is (`profile.zone`), and what makes the cell of that.

    Without `write` the value is the cell. The cell is a number if it is `integer`, else a text.
    """

    name: str
    path: str
    write: Write | None = None
    integer: bool = False


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
        own = [column for field in fields for column in field.columns]
        self.columns = (*(column.name for column in own), *beside)
        self.integers = frozenset(column.name for column in own if column.integer)

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
    return StoredField(name, (Column(column, name, write, _is_integer(hint)),), read)


def _is_integer(hint: Any) -> bool:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return any(map(_is_integer, typing.get_args(hint)))
    return hint in (int, bool)


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
