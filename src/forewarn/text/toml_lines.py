"""Reading TOML text from any author, and on which line of it a table or key stands.

`read` refuses with the line what is not TOML, and what would take tomllib minutes or make it fail
without one. `TomlLines` is for text that was read; it finds places and judges nothing.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from collections.abc import Generator, Iterator
from typing import Any

Path = tuple[str | int, ...]

# Of a dotted key. tomllib takes a time that grows with their square and more; three are enough.
KEY_PARTS_MAX = 8
# Of a number or bare key. From 640 digits on Python may refuse to read or write a whole number,
# with an error that names no line.
WORD_CHARS_MAX = 512

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
_WORD = r"[A-Za-z0-9_+-]++"
_PART = re.compile(rf"""{_WORD}|"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"|'[^'\n]*+'""")
# Text from one place to the next that matters, each in one step, so that all of it takes linear
# time: comments, openings of strings of several lines, dotted keys (and strings, and numbers).
_STEP = re.compile(
    rf"""#[^\n]*+|\"{{3}}|'{{3}}|(?P<key>(?:{_PART.pattern})"""
    rf"""(?:[ \t]*+\.[ \t]*+(?:{_PART.pattern}))*+)|[^#"'A-Za-z0-9_+-]++"""
)
# Without one of these nothing is unreasonable: a word that is too long, a line of many dots. Most
# texts have neither, and need not be walked through.
_MAY_BE_UNREASONABLE = re.compile(
    rf"(?<![A-Za-z0-9_+-])[A-Za-z0-9_+-]{{{WORD_CHARS_MAX + 1}}}|(?:\.[^.\n]*+){{{KEY_PARTS_MAX}}}"
)
_END_OF_STRING = {
    '"""': re.compile(r"""[^"\\]*+(?:(?:\\.|"(?!""))[^"\\]*+)*+"{3,5}""", re.DOTALL),
    "'''": re.compile(r"[^']*+(?:'(?!'')[^']*+)*+'{3,5}"),
}
_LINE_IN_ERROR = re.compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)")


class NotToml(Exception):  # noqa: N818 - says what is the case
    """The text cannot be read. `words` say why, `line` where; 0 if it is not known."""

    def __init__(self, line: int, words: str) -> None:
        super().__init__(words)
        self.line = line
        self.words = words


def read(text: str) -> dict[str, Any]:
    """The tables of a text, or NotToml. Takes a time that grows with the length of the text."""
    _refuse_unreasonable(text)
    try:
        return tomllib.loads(text.removeprefix("\ufeff"))
    except tomllib.TOMLDecodeError as error:
        raise _not_toml(text, error) from None
    except RecursionError:
        raise NotToml(0, "values are nested too deeply") from None


def _not_toml(text: str, error: tomllib.TOMLDecodeError) -> NotToml:
    """Where and why tomllib gave up."""
    message = str(error)
    found = _LINE_IN_ERROR.search(message)
    words = f"this is not TOML: {_LINE_IN_ERROR.sub('', message)}"
    if found is None or found[1] is None:
        return NotToml(text.rstrip("\n").count("\n") + 1, f"{words}, at the end of the file")
    return NotToml(int(found[1]), f"{words}, at column {found[2]}")


def _refuse_unreasonable(text: str) -> None:
    """Raise NotToml for the first key of too many parts or word that is too long.

    Strings and comments hide both. Where the text stops being TOML this stops too: tomllib gets
    no further either, and says why.
    """
    if _MAY_BE_UNREASONABLE.search(text) is None:
        return
    position = 0
    while step := _STEP.match(text, position):
        position = step.end()
        end_of_string = _END_OF_STRING.get(step[0])
        if end_of_string is not None:
            end = end_of_string.match(text, position)
            if end is None:
                return
            position = end.end()
        elif step["key"] is not None and len(step[0]) > KEY_PARTS_MAX:
            words = _unreasonable(step[0])
            if words:
                raise NotToml(text.count("\n", 0, step.start()) + 1, words)


def _unreasonable(key: str) -> str:
    """What is too much about a dotted key or number, in words; empty if nothing is."""
    parts = _PART.findall(key)
    if len(parts) > KEY_PARTS_MAX:
        return f"a key has {len(parts)} parts; up to {KEY_PARTS_MAX} would be accepted"
    longest = max((len(part) for part in parts if part[0] not in "\"'"), default=0)
    if longest > WORD_CHARS_MAX:
        return (
            f"a number or bare key has {longest} characters; "
            f"up to {WORD_CHARS_MAX} would be accepted"
        )
    return ""


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
