"""Bytes in, whole HTTP messages out. No sockets, no routes, no time.

`MessageReader` gives one message at a time, so that a connection answers in order and can stop in
between. httptools judges what is valid HTTP; this file only decides how much of the buffer it may
see: never past the end of the message it is reading. That works because the head of a message and
a chunked body both end with an empty line, and any other body has a length.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import httptools
from msgspec import Struct

from forewarn.endpoint.limits import CACHED_HEAD_BYTES, CHUNKED_BYTES_AT_ONCE, Limits
from forewarn.wire import problems

T = TypeVar("T")

_END = b"\r\n\r\n"
CHUNKED = -1  # the length of a body that does not say it
_BLANK = re.compile(rb"[\r\n]*")
_UPGRADE_LINE = re.compile(rb"\r\nupgrade[ \t]*:[^\r\n]*", re.IGNORECASE)


class Head(Struct, frozen=True):
    """A request line and its headers: names in lower case, repeated ones joined with commas.

    `hosts` has the value of each Host header by itself: there may be only one.
    """

    method: str
    target: str
    headers: dict[str, str]
    hosts: tuple[str, ...]
    http_1_0: bool
    keep_alive: bool


class Message(Struct, frozen=True):
    """One whole request. `key` is its bytes, if it is short and has no body."""

    head: Head
    body: bytes
    key: bytes | None


class _Parse:
    """What httptools has told us of one message."""

    __slots__ = (
        "body",
        "head",
        "header_count",
        "headers",
        "hosts",
        "most",
        "parser",
        "pieces",
        "target",
        "whole",
    )

    def __init__(self, most: int) -> None:
        self.parser: Any = httptools.HttpRequestParser(self)
        self.most = most  # headers; beyond it the message is refused, and costs nothing more
        self.target = b""
        self.headers: dict[str, str] = {}
        self.hosts: tuple[str, ...] = ()
        self.header_count = 0
        self.head: Head | None = None
        self.body = bytearray()
        self.pieces = 0  # in which the body came
        self.whole = 0

    def show(self, data: bytes) -> bool:
        """Let the parser see this much; True if the message asks for another protocol."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            return True
        except httptools.HttpParserError:
            raise problems.broken_http() from None
        return False

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.header_count += 1
        if self.head is not None or self.header_count > self.most:
            return  # a trailer says nothing we want to know
        key, text = name.decode("latin-1").lower(), value.decode("latin-1").strip()
        self.headers[key] = f"{self.headers[key]},{text}" if key in self.headers else text
        if key == "host":
            self.hosts += (text,)

    def on_headers_complete(self) -> None:
        version = self.parser.get_http_version()
        self.head = Head(
            method=self.parser.get_method().decode("latin-1"),
            target=self.target.decode("latin-1"),
            headers=self.headers,
            hosts=self.hosts,
            http_1_0=version == "1.0",
            # HTTP/1.0 is closed after the answer, also if it asks to be kept alive.
            keep_alive=version == "1.1" and self.parser.should_keep_alive(),
        )
        if version not in ("1.0", "1.1"):
            self.head = None  # llhttp knows more versions than we speak

    def on_body(self, body: bytes) -> None:
        self.body += body
        self.pieces += 1

    def on_message_complete(self) -> None:
        self.whole += 1

    def forget(self) -> None:
        """Let go of the parser, which holds this: else only a collection of garbage would."""
        self.parser = None


class MessageReader:
    """Collects what a client sends. After it raised a GuestProblem it must not be used again."""

    __slots__ = (
        "_body_left",
        "_buffer",
        "_continue",
        "_fed",
        "_limits",
        "_parse",
        "_wire_bytes",
        "blank_bytes",
        "unseen",
    )

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._buffer = bytearray()
        self._fed = 0  # how much of the buffer the parser has seen; only while reading a head
        self._parse: _Parse | None = None
        self._body_left: int | None = None  # None while reading a head; else bytes, or CHUNKED
        self._wire_bytes = 0
        self._continue = False
        self.blank_bytes = 0  # empty lines since the last message
        self.unseen = False  # `next_message` was None, and yet there is more here to look at

    @property
    def unread_bytes(self) -> int:
        """How much is here that no message has been made of yet."""
        return len(self._buffer)

    @property
    def begun(self) -> bool:
        """Part of a message is here."""
        return self._parse is not None or bool(self._buffer)

    @property
    def in_body(self) -> bool:
        """The head is whole, the body is not."""
        return self._body_left is not None

    @property
    def in_chunks(self) -> bool:
        """The same, and the body has no length."""
        return self._body_left == CHUNKED

    def forget(self) -> None:
        """Nothing more is read. Let go of what would otherwise hold itself."""
        if self._parse is not None:
            self._parse.forget()

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def take_continue(self) -> bool:
        """True, once, if the client waits for `100 Continue` before it sends the body."""
        wanted, self._continue = self._continue, False
        return wanted

    def take_known(self, known: Mapping[bytes, T]) -> T | None:
        """If the next message is one of these, byte for byte, take it and say what it means."""
        if self._parse is not None:
            return None
        buffer = self._buffer
        stop = buffer.find(_END, 0, CACHED_HEAD_BYTES) + len(_END)
        found = known.get(bytes(buffer[:stop])) if stop >= len(_END) else None
        if found is not None:
            del buffer[:stop]
            self.blank_bytes = 0
        return found

    def next_message(self) -> Message | None:
        """The next whole message, or None until more is fed. GuestProblem if there is no sense.

        A chunked body is looked at piece by piece: while `unseen`, None only means to ask again.
        """
        self.unseen = False
        if self._parse is not None and self._body_left is not None:
            return self._read_body(self._parse, self._body_left)
        return self._read_head()

    def _read_head(self) -> Message | None:
        buffer = self._buffer
        if self._fed == 0:
            self._skip_blank()
            if not buffer:
                return None
        end = buffer.find(_END, max(0, self._fed - len(_END) + 1))
        stop = len(buffer) if end < 0 else end + len(_END)
        if stop > self._limits.head_bytes:
            raise problems.head_too_large(self._limits.head_bytes)
        parse = self._parse = self._parse or _Parse(self._limits.headers)
        upgrades = parse.show(bytes(buffer[self._fed : stop]))
        self._fed = stop
        if parse.header_count > self._limits.headers:
            raise problems.head_too_large(self._limits.head_bytes)
        if end < 0:
            return None
        head = bytes(buffer[:stop])
        del buffer[:stop]
        if upgrades:
            parse.forget()
            parse = self._parse = _without_upgrade(head, self._limits.headers)
        return self._head_ended(parse, head)

    def _skip_blank(self) -> None:
        """Empty lines before a request are to be ignored (RFC 9112, 2.2), but not without end."""
        blank = _BLANK.match(self._buffer)
        count = 0 if blank is None else blank.end()
        if count:
            self.blank_bytes += count
            if self.blank_bytes > self._limits.blank_bytes:
                raise problems.blank_lines(self._limits.blank_bytes)
            del self._buffer[:count]

    def _head_ended(self, parse: _Parse, whole: bytes) -> Message | None:
        head = parse.head
        if head is None:
            raise problems.broken_http()
        if parse.whole:
            return self._ended(parse, whole if len(whole) <= CACHED_HEAD_BYTES else None)
        expect = head.headers.get("expect", "").lower()
        if expect and expect != "100-continue":
            raise problems.unsupported_expectation()
        chunked = "transfer-encoding" in head.headers
        self._body_left = CHUNKED if chunked else int(head.headers.get("content-length", "0"))
        if self._body_left > self._limits.body_bytes:
            raise problems.body_too_large(self._limits.body_bytes)
        self._wire_bytes = 0
        message = self._read_body(parse, self._body_left)
        self._continue = message is None and bool(expect) and not self._wire_bytes
        return message

    def _read_body(self, parse: _Parse, left: int) -> Message | None:
        """`left` is what is missing of a body with a length."""
        if left == CHUNKED:
            self._read_chunks(parse)
        else:
            stop = min(left, len(self._buffer))
            left -= stop
            self._show_body(parse, stop)
        self._body_left = left
        return self._ended(parse, None) if parse.whole else None

    def _read_chunks(self, parse: _Parse) -> None:
        """Look at some of a chunked body, up to an empty line each time: it may be the last."""
        buffer = self._buffer
        left = CHUNKED_BYTES_AT_ONCE
        while left > 0 and not parse.whole:
            end = buffer.find(_END, 0, left + len(_END) - 1)
            # The last three bytes may begin the empty line that ends the message.
            stop = end + len(_END) if end >= 0 else min(len(buffer) - len(_END) + 1, left)
            if stop <= 0:
                return
            left -= stop
            self._show_body(parse, stop)
        self.unseen = not parse.whole

    def _show_body(self, parse: _Parse, stop: int) -> None:
        if not stop:
            return
        self._wire_bytes += stop
        parse.show(bytes(self._buffer[:stop]))
        del self._buffer[:stop]
        limits = self._limits
        if len(parse.body) > limits.body_bytes or self._wire_bytes > limits.chunked_bytes:
            raise problems.body_too_large(limits.body_bytes)
        if parse.pieces > limits.chunks and self._body_left == CHUNKED:
            raise problems.too_many_chunks(limits.chunks)

    def _ended(self, parse: _Parse, key: bytes | None) -> Message:
        if parse.whole != 1 or parse.head is None:
            raise problems.broken_http()
        parse.forget()
        self._parse = None
        self._fed = self.blank_bytes = 0
        self._body_left = None
        self._continue = False
        return Message(parse.head, bytes(parse.body), key)


def _without_upgrade(head: bytes, headers_max: int) -> _Parse:
    """Read a head again without its Upgrade line.

    A server may ignore it (RFC 9110, 7.8), and must then read the body as usual; the parser
    would not. Java's client asks for h2c like this with every first request.
    """
    parse = _Parse(headers_max)
    if parse.show(_UPGRADE_LINE.sub(b"", head)):
        raise problems.broken_http()  # CONNECT
    return parse
