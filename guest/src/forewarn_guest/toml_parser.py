"""TOML 1.0 with the line of every key, as far as a configuration needs it; no file is opened here.

Python 3.9 has no TOML reader, and the later one forgets the lines. What this one takes, it takes
as the standard library does. It does not take dates, nor integers beyond 64 bits.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from forewarn_guest.errors import NotToml
from forewarn_guest.toml_scan import BLANK, BLANK_LINES, Scanner

TEXT_CHARS_MAX = 262_144
DEPTH_MAX = 32  # arrays and inline tables within each other
KEY_PARTS_MAX = 32

_COMMENT = re.compile(r"#[^\x00-\x08\x0a-\x1f\x7f]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


@dataclass
class Table:
    """A table: what its keys have, and the line on which each was written.

    A value is a str, int, float, bool, a list of such, or a Table. `line` is where the table
    begins: its header, or the first key that speaks of it.
    """

    line: int
    values: dict[str, object] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)

    def plain(self) -> dict[str, object]:
        """The same as dictionaries and lists, without lines."""
        return {key: _plain(value) for key, value in self.values.items()}


def _plain(value: object) -> object:
    if isinstance(value, Table):
        return value.plain()
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


def read(text: str) -> Table:
    """The whole text as a table. Raises NotToml, with the line, for what is not TOML."""
    if len(text) > TEXT_CHARS_MAX:
        raise NotToml(
            f"The text is {len(text):,} characters long.",
            f"At most {TEXT_CHARS_MAX:,} are read.",
            line=1,
        )
    return _Reader(text.replace("\r\n", "\n")).document()


@dataclass
class _Grown(Table):
    """A table while it is read: what may still be added to it.

    `declared`: it had a header or dotted keys of its own, so no other header may open it.
    `closed`: it was written inline. `growing`: its keys that are arrays made of [[headers]].
    """

    declared: bool = False
    closed: bool = False
    growing: set[str] = field(default_factory=set)


class _Reader(Scanner):
    """What the lines of a text say, put into tables."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.depth = 0
        self.root = _Grown(line=1)
        self.dotted: list[_Grown] = []  # opened by dotted keys since the last header

    # -- lines

    def document(self) -> Table:
        table = self.root
        while True:
            self.take(BLANK_LINES)
            if self.at >= len(self.text):
                return self.root
            if self.next_is("[["):
                table = self.array_header()
            elif self.next_is("["):
                table = self.header()
            elif not self.next_is("#"):
                self.pair(table)
            self.end_of_line()

    def end_of_line(self) -> None:
        self.take(BLANK)
        self.take(_COMMENT)
        if self.at < len(self.text) and not self.next_is("\n"):
            raise self.refused(
                f"{self.here()} is not expected here.", "One key or one [header] stands on a line."
            )

    def header(self) -> _Grown:
        line = self.line()
        key = self.header_key("[", "]")
        parent = self.parent_of(key, line)
        name = key[-1]
        if name not in parent.values:
            return self.added(parent, name, line, declared=True)
        table = parent.values[name]
        if not isinstance(table, _Grown) or table.closed or table.declared:
            raise NotToml(
                f"[{'.'.join(key)}] is there already, since line {parent.lines[name]}.",
                "Every table is written once; [[double brackets]] make a list of tables.",
                line=line,
            )
        table.declared = True
        table.line = line
        return table

    def array_header(self) -> _Grown:
        line = self.line()
        key = self.header_key("[[", "]]")
        parent = self.parent_of(key, line)
        name = key[-1]
        if name not in parent.values:
            parent.values[name] = []
            parent.lines[name] = line
            parent.growing.add(name)
        tables = parent.values[name]
        if name not in parent.growing or not isinstance(tables, list):
            raise NotToml(
                f"[[{'.'.join(key)}]] cannot be a list of tables: {name!r} is something else"
                f" since line {parent.lines[name]}.",
                line=line,
            )
        table = _Grown(line=line, declared=True)
        tables.append(table)
        return table

    def header_key(self, begin: str, end: str) -> list[str]:
        self.at += len(begin)
        for table in self.dotted:
            table.declared = True
        self.dotted.clear()
        self.take(BLANK)
        key = self.key()
        self.take(BLANK)
        if not self.next_is(end):
            raise self.refused(f"{end} is expected here, not {self.here()}.")
        self.at += len(end)
        return key

    def parent_of(self, key: list[str], line: int) -> _Grown:
        """The table that the last part of a header's key is in; made if it is not there."""
        table = self.root
        for depth, name in enumerate(key[:-1], 1):
            if name not in table.values:
                self.added(table, name, line)
            inner = table.values[name]
            if name in table.growing and isinstance(inner, list):
                inner = inner[-1]
            if not isinstance(inner, _Grown) or inner.closed:
                raise NotToml(
                    f"{'.'.join(key[:depth])} is no table to add to: it has a value since line"
                    f" {table.lines[name]}.",
                    line=line,
                )
            table = inner
        return table

    def added(self, parent: _Grown, name: str, line: int, *, declared: bool = False) -> _Grown:
        table = _Grown(line=line, declared=declared)
        parent.values[name] = table
        parent.lines[name] = line
        return table

    # -- keys

    def pair(self, table: _Grown) -> None:
        """`key = value`, into the table of the last header or an inline one."""
        begin = self.at
        key = self.key()
        self.take(BLANK)
        if not self.next_is("="):
            raise self.refused(
                f"A = is expected after the key {'.'.join(key)!r}, not {self.here()}."
            )
        self.at += 1
        self.take(BLANK)
        value = self.value()
        self.put(table, key, value, self.line(begin))

    def put(self, table: _Grown, key: list[str], value: object, line: int) -> None:
        for depth, name in enumerate(key[:-1], 1):
            if name not in table.values:
                self.added(table, name, line)
            inner = table.values[name]
            if not isinstance(inner, _Grown) or inner.closed or inner.declared:
                raise NotToml(
                    f"{'.'.join(key[:depth])} is there already, since line {table.lines[name]}.",
                    "Write all of it in one place.",
                    line=line,
                )
            self.dotted.append(inner)
            table = inner
        if key[-1] in table.values:
            raise NotToml(
                f"The key {'.'.join(key)!r} is there already, since line {table.lines[key[-1]]}.",
                "Every key is written once.",
                line=line,
            )
        table.values[key[-1]] = value
        table.lines[key[-1]] = line

    def key(self) -> list[str]:
        """The parts of a key: bare, quoted, and with dots between them."""
        parts = [self.key_part()]
        self.take(BLANK)
        while self.next_is("."):
            self.at += 1
            self.take(BLANK)
            parts.append(self.key_part())
            self.take(BLANK)
            if len(parts) > KEY_PARTS_MAX:
                raise self.refused(f"The key has more than {KEY_PARTS_MAX} parts.")
        return parts

    def key_part(self) -> str:
        if self.next_is('"'):
            return self.basic()
        if self.next_is("'"):
            return self.literal()
        part = self.take(_BARE_KEY)
        if not part:
            raise self.refused(
                f"A key is expected here, not {self.here()}.",
                "Keys are made of letters, digits, _ and -; anything else is quoted.",
            )
        return part

    # -- values

    def value(self) -> object:
        if self.next_is('"'):
            return self.basic_lines() if self.next_is('"""') else self.basic()
        if self.next_is("'"):
            return self.literal_lines() if self.next_is("'''") else self.literal()
        if self.next_is("[") or self.next_is("{"):
            return self.nested()
        for word, value in (("true", True), ("false", False)):
            if self.next_is(word):
                self.at += len(word)
                return value
        return self.number()

    def nested(self) -> object:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise self.refused(f"More than {DEPTH_MAX} lists and tables are within each other.")
        value = self.array() if self.next_is("[") else self.inline_table()
        self.depth -= 1
        return value

    def array(self) -> list[object]:
        begin = self.at
        self.at += 1
        items: list[object] = []
        while True:
            self.blank_or_comments()
            if self.next_is("]"):
                break
            items.append(self.value())
            self.blank_or_comments()
            if self.next_is(","):
                self.at += 1
            elif not self.next_is("]"):
                raise self.refused(
                    f"A comma or ] is expected here, not {self.here()}:"
                    f" the list began on line {self.line(begin)}."
                )
        self.at += 1
        return items

    def blank_or_comments(self) -> None:
        self.take(BLANK_LINES)
        while self.next_is("#"):
            self.take(_COMMENT)
            if self.at < len(self.text) and not self.next_is("\n"):
                raise self.refused(f"{self.here()} is not expected in a comment.")
            self.take(BLANK_LINES)

    def inline_table(self) -> Table:
        table = _Grown(line=self.line())
        self.at += 1
        self.take(BLANK)
        while not self.next_is("}"):
            self.inline_pair(table)
            self.take(BLANK)
            if self.next_is("}"):
                break
            if not self.next_is(","):
                raise self.refused(
                    f"A comma or }} is expected here, not {self.here()}.",
                    "A table in braces stands on one line.",
                )
            self.at += 1
            self.take(BLANK)
            if self.next_is("}"):
                raise self.refused("A table in braces has no comma before its }.")
        self.at += 1
        _close(table)
        return table

    def inline_pair(self, table: _Grown) -> None:
        outer, self.dotted = self.dotted, []  # dotted keys in braces open nothing outside of them
        self.pair(table)
        self.dotted = outer


def _close(table: _Grown) -> None:
    """Nothing can be added to what was written in braces, nor to what dotted keys made in it."""
    table.closed = True
    for value in table.values.values():
        if isinstance(value, _Grown) and not value.closed:
            _close(value)
