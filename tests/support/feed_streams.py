"""A reader of the feed as a stream, as a program or a browser is one. No test lives here."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from support.operator_world import TOKEN, OperatorWorld

PATIENCE_S = 60  # only ends a hang


class Frame(msgspec.Struct, frozen=True):
    """One frame of a stream: its fields, and what stands in comments."""

    id: str = ""
    data: str = ""
    retry: str = ""
    comment: str = ""

    @property
    def event(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.data)
        return found


class FeedStream:
    """An open stream."""

    def __init__(self, connection: http.client.HTTPConnection, answer: Any) -> None:
        self._connection = connection
        self.answer = answer

    @property
    def socket(self) -> socket.socket:
        return self._connection.sock

    def frame(self) -> Frame | None:
        """The next frame; None if the stream has ended."""
        fields: dict[str, str] = {}
        while True:
            try:
                line = self.answer.readline().decode()
            except http.client.IncompleteRead:
                return None
            if not line:
                return None
            if line == "\n":
                return Frame(**fields)
            name, _, value = line.rstrip("\n").partition(":")
            fields[name or "comment"] = value.removeprefix(" ")

    def frames(self) -> Iterator[Frame]:
        while (found := self.frame()) is not None:
            yield found

    def take(self, count: int) -> list[Frame]:
        """The next frames that have data."""
        found: list[Frame] = []
        while len(found) < count:
            one = self.frame()
            assert one is not None, f"the stream has ended after {len(found)} lines"
            if one.data:
                found.append(one)
        return found


@contextmanager
def streaming(
    world: OperatorWorld,
    path: str = "/v1/feed",
    *,
    last_id: str = "",
    receive_bytes: int | None = None,
    token: str = TOKEN,
) -> Iterator[FeedStream]:
    """A stream, cut at the end of the block."""
    connection = http.client.HTTPConnection("127.0.0.1", world.port, timeout=PATIENCE_S)
    if receive_bytes is not None:
        connection.sock = sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        sock.settimeout(PATIENCE_S)
        sock.connect(("127.0.0.1", world.port))
    headers = {"Authorization": f"Bearer {token}", "Accept": "text/event-stream"}
    if last_id:
        headers["Last-Event-ID"] = last_id
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield FeedStream(connection, answer)
    finally:
        connection.close()
