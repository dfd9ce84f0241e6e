"""One walk over a text of TOML: where it is, and the texts and numbers that stand there.

What keys, lines and tables make of them is `toml_parser`.
"""

from __future__ import annotations

import re
from bisect import bisect_left

from forewarn_guest.errors import NotToml

_INTEGER_MAX = 2**63
_DIGITS_MAX = 400  # longer than any integer of 64 bits, with its underscores

BLANK = re.compile(r"[ \t]*")
BLANK_LINES = re.compile(r"[ \t\n]*")
_BASIC = re.compile(r'[^"\\\x00-\x08\x0a-\x1f\x7f]*')
_BASIC_LINES = re.compile(r'[^"\\\x00-\x08\x0b-\x1f\x7f]*')
_LITERAL = re.compile(r"[^'\x00-\x08\x0a-\x1f\x7f]*")
_LITERAL_LINES = re.compile(r"[^'\x00-\x08\x0b-\x1f\x7f]*")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}|[0-9]{2}:[0-9]{2}")
_BASED = re.compile(
    r"0x[0-9A-Fa-f](?:_?[0-9A-Fa-f])*|0o[0-7](?:_?[0-7])*|0b[01](?:_?[01])*",
)
_DECIMAL = re.compile(
    r"[+-]?(?:0|[1-9](?:_?[0-9])*)"
    r"(?P<fraction>(?:\.[0-9](?:_?[0-9])*)?(?:[eE][+-]?[0-9](?:_?[0-9])*)?)"
)
_NO_NUMBER = re.compile(r"[+-]?(?:inf|nan)")
_WORD = re.compile(r"[^\s,\]}#=]{1,40}")
_ESCAPES = {
    "b": "\b",
    "t": "\t",
    "n": "\n",
    "f": "\f",
    "r": "\r",
    '"': '"',
    "\\": "\\",
}
_UNICODE_DIGITS = {"u": 4, "U": 8}
_HEX = re.compile(r"[0-9A-Fa-f]*")


class Scanner:
    """Goes from left to right; `at` is the next character."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.line_ends = [found.start() for found in re.finditer("\n", text)]

    # -- where we are

    def line(self, at: int | None = None) -> int:
        return bisect_left(self.line_ends, self.at if at is None else at) + 1

    def refused(self, message: str, remedy: str = "", *, at: int | None = None) -> NotToml:
        return NotToml(message, remedy, line=self.line(at))

    def next_is(self, text: str) -> bool:
        return self.text.startswith(text, self.at)

    def take(self, pattern: re.Pattern[str]) -> str:
        """What the pattern matches here, perhaps nothing; goes behind it."""
        found = pattern.match(self.text, self.at)
        if found is None:
            return ""
        self.at = found.end()
        return found.group()

    def here(self) -> str:
        """What stands here, for a refusal."""
        if self.at >= len(self.text):
            return "the end of the text"
        found = _WORD.match(self.text, self.at)
        if found is not None:
            return repr(found.group())
        return "the end of the line" if self.next_is("\n") else repr(self.text[self.at])

    # -- numbers

    def number(self) -> int | float:
        if _DATE.match(self.text, self.at):
            raise self.refused(f"{self.here()}: dates and times of day are not taken.")
        begin = self.at
        based = self.take(_BASED)
        if based:
            return self.integer(int(based[:_DIGITS_MAX].replace("_", ""), 0), based, begin)
        found = _DECIMAL.match(self.text, self.at)
        if found is None:
            word = self.take(_NO_NUMBER)
            if word:
                return float(word)
            raise self.refused(
                f"A value is expected here, not {self.here()}.",
                'Texts stand in quotes, like "text"; there are numbers, true, false,'
                " [lists] and {tables} beside.",
            )
        self.at = found.end()
        if found.group("fraction"):
            return float(found.group())
        digits = found.group()[:_DIGITS_MAX].replace("_", "")
        return self.integer(int(digits), found.group(), begin)

    def integer(self, value: int, text: str, at: int) -> int:
        if len(text) >= _DIGITS_MAX or not -_INTEGER_MAX <= value < _INTEGER_MAX:
            raise self.refused(f"The number {text[:40]} is beyond 64 bits.", at=at)
        return value

    # -- texts

    def basic(self) -> str:
        begin = self.at
        self.at += 1
        parts = []
        while True:
            parts.append(self.take(_BASIC))
            if self.next_is('"'):
                self.at += 1
                return "".join(parts)
            parts.append(self.escaped(begin, lines=False))

    def basic_lines(self) -> str:
        begin = self.at
        self.at += 3
        self.skip_newline()
        parts = []
        while True:
            parts.append(self.take(_BASIC_LINES))
            if self.next_is('"""'):
                return "".join(parts) + self.closing_quotes('"')
            if self.next_is('"'):
                self.at += 1
                parts.append('"')
                continue
            parts.append(self.escaped(begin, lines=True))

    def literal(self) -> str:
        begin = self.at
        self.at += 1
        text = self.take(_LITERAL)
        if not self.next_is("'"):
            raise self.not_closed("'", begin)
        self.at += 1
        return text

    def literal_lines(self) -> str:
        begin = self.at
        self.at += 3
        self.skip_newline()
        parts = []
        while True:
            parts.append(self.take(_LITERAL_LINES))
            if self.next_is("'''"):
                return "".join(parts) + self.closing_quotes("'")
            if not self.next_is("'"):
                raise self.not_closed("'''", begin)
            self.at += 1
            parts.append("'")

    def skip_newline(self) -> None:
        if self.next_is("\n"):
            self.at += 1

    def closing_quotes(self, quote: str) -> str:
        """Four or five quotes at the end: the first one or two belong to the text."""
        self.at += 3
        more = 0
        while more < 2 and self.next_is(quote):
            self.at += 1
            more += 1
        return quote * more

    def not_closed(self, quote: str, begin: int) -> NotToml:
        if self.at < len(self.text) and not self.next_is("\n"):
            return self.refused(
                f"The character {self.text[self.at]!r} must not stand in a text as it is."
            )
        return self.refused(f"The text that began here is not closed with {quote}.", at=begin)

    def escaped(self, begin: int, *, lines: bool) -> str:
        if not self.next_is("\\"):
            raise self.not_closed('"""' if lines else '"', begin)
        letter = self.text[self.at + 1 : self.at + 2]
        if letter in _ESCAPES:
            self.at += 2
            return _ESCAPES[letter]
        if letter in _UNICODE_DIGITS:
            return self.unicode(_UNICODE_DIGITS[letter])
        if lines and letter in (" ", "\t", "\n"):
            return self.joined_lines()
        raise self.refused(
            f"\\{letter} means nothing in a text in double quotes.",
            "Write \\\\ for a backslash, or put the text in 'single quotes'.",
        )

    def joined_lines(self) -> str:
        """A backslash at the end of a line: what follows goes on where it stands."""
        self.at += 1
        self.take(BLANK)
        if self.at < len(self.text) and not self.next_is("\n"):
            raise self.refused("Nothing may follow a backslash at the end of a line.")
        self.take(BLANK_LINES)
        return ""

    def unicode(self, digits: int) -> str:
        text = self.text[self.at + 2 : self.at + 2 + digits]
        found = _HEX.match(text)
        if found is None or len(found.group()) != digits:
            raise self.refused(f"{digits} hexadecimal digits are expected after \\u or \\U.")
        number = int(text, 16)
        if number > 0x10FFFF or 0xD800 <= number <= 0xDFFF:
            raise self.refused(f"There is no character {text}.")
        self.at += 2 + digits
        return chr(number)
