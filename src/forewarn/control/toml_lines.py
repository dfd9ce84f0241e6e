"""On which line of a TOML file a table or key stands. tomllib says so for broken files only.

The scanner is for text that tomllib has accepted; it finds places and judges nothing.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from collections.abc import Generator, Iterator

Path = tuple[str | int, ...]

# Everything that must be seen to find the end of a value: strings and comments hide brackets.
_IN_VALUE = re.compile(
    r'"""(?:[^\\]|\\.)*?"""+'
    r"|'''.*?'''+"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'"
    r"|#[^\n]*"
    r"|[\[\]{}]"
    r"|\n",
    re.DOTALL,
)
_BETWEEN_STATEMENTS = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_KEY_PART = re.compile(
    r"""[ \t]*([A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')[ \t]*(\.|=|\]\]?)"""
)
_LINE_IN_ERROR = re.compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)")


def syntax_mistake(text: str, error: tomllib.TOMLDecodeError) -> tuple[int, str]:
    """Where and why tomllib gave up: (line, words)."""
    message = str(error)
    found = _LINE_IN_ERROR.search(message)
    words = _LINE_IN_ERROR.sub("", message)
    if found is None or found[1] is None:
        return text.rstrip("\n").count("\n") + 1, f"{words}, at the end of the file"
    return int(found[1]), f"{words}, at column {found[2]}"


class TomlLines:
    """The lines of every table, array element and key of one text, counted from 1."""

    def __init__(self, text: str) -> None:
        self._text = text.removeprefix("\ufeff")
        self._newlines = [match.start() for match in re.finditer("\n", self._text)]
        self._lines: dict[Path, int] = {}
        self._lengths: dict[Path, int] = {}  # of arrays of tables, as far as they were read
        for path, offset in self._scan():
            self._lines.setdefault(path, bisect_right(self._newlines, offset - 1) + 1)

    def line_of(self, *path: str | int) -> int:
        """The line of the longest part of the path that is written down; 1 if none is."""
        for length in range(len(path), 0, -1):
            line = self._lines.get(path[:length])
            if line is not None:
                return line
        return 1

    def _scan(self) -> Iterator[tuple[Path, int]]:
        table: Path = ()
        position = 0
        while True:
            between = _BETWEEN_STATEMENTS.match(self._text, position)
            start = between.end() if between else position
            if start >= len(self._text):
                return
            opened = 2 if self._text.startswith("[[", start) else int(self._text[start] == "[")
            keys, position = self._keys(start + opened)
            if not keys:
                return  # nothing tomllib would accept
            if opened:
                table = path = self._enter(keys, repeated=opened == 2)
            else:
                path = (*table, *keys)
            for length in range(1, len(path) + 1):
                yield path[:length], start
            if not opened:
                position = yield from self._value(path, position)

    def _keys(self, position: int) -> tuple[tuple[str, ...], int]:
        """A dotted key up to its `=` or closing bracket, and where it ends."""
        parts: list[str] = []
        while True:
            part = _KEY_PART.match(self._text, position)
            if part is None:
                return (), position
            quoted = part[1][0] in "\"'"
            parts.append(str(tomllib.loads(f"k = {part[1]}")["k"]) if quoted else part[1])
            position = part.end()
            if part[2] != ".":
                return tuple(parts), position

    def _enter(self, keys: tuple[str, ...], *, repeated: bool) -> Path:
        """The path of a table header: keys of arrays are followed by the number of the element."""
        path: Path = ()
        for number, key in enumerate(keys):
            path = (*path, key)
            if repeated and number == len(keys) - 1:
                self._lengths[path] = self._lengths.get(path, 0) + 1
            if path in self._lengths:
                path = (*path, self._lengths[path] - 1)
        return path

    def _value(self, path: Path, position: int) -> Generator[tuple[Path, int], None, int]:
        """Skip a value; yields the tables of an array that is written in line."""
        open_brackets: list[str] = []
        elements = 0
        for token in _IN_VALUE.finditer(self._text, position):
            position = token.end()
            if token[0] == "\n" and not open_brackets:
                return position
            if token[0] in "[{":
                if token[0] == "{" and open_brackets == ["["]:
                    yield (*path, elements), token.start()
                    elements += 1
                open_brackets.append(token[0])
            elif token[0] in "]}" and open_brackets:
                open_brackets.pop()
        return len(self._text)
