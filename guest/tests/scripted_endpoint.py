"""An endpoint for tests: answers as it is told to, byte by byte, and keeps what it was asked."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Callable, Union

from forewarn_guest.client import Client

PATIENCE_S = 60.0


@dataclass(frozen=True)
class Asked:
    """One request as it came. Header names are in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    connection: int


@dataclass(frozen=True)
class Reply:
    """What to answer. `raw` goes out as it is; `hold` is waited for before; None never answers."""

    status: int = 200
    body: bytes | None = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    hold: threading.Event | None = None
    hold_s: float = PATIENCE_S
    close: bool = False
    reset: bool = False
    trickle: bytes = b""  # one byte each 0.1 s after all else, until the guest goes away


Script = Union[Reply, Callable[[Asked], Reply]]


def document(
    incarnation: object = 1, *events: Mapping[str, Any], etag: str = "", **more: str
) -> Reply:
    """A 200 with a document. Without an `etag` the answer has none."""
    content = {"DocumentIncarnation": incarnation, "Events": list(events)}
    headers = {"Content-Type": "application/json", **({"ETag": etag} if etag else {}), **more}
    return Reply(body=json.dumps(content).encode(), headers=headers)


def event(event_id: str = "A1", status: str = "Scheduled", **fields: Any) -> dict[str, Any]:
    """An event as the wire has it."""
    return {
        "EventId": event_id,
        "EventStatus": status,
        "EventType": "Reboot",
        "ResourceType": "VirtualMachine",
        "Resources": ["vm0"],
        "NotBefore": "Tue, 03 Mar 2026 10:15:00 GMT" if status == "Scheduled" else "",
        "Description": "",
        "EventSource": "User",
        "DurationInSeconds": -1,
        **fields,
    }


class ScriptedEndpoint:
    """Answers requests in the order of its script; the last reply stands for all that follow."""

    def __init__(self, *script: Script, port: int = 0) -> None:
        self.asked: list[Asked] = []
        self._script: Sequence[Script] = script
        self._changed = threading.Condition()
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._closing = threading.Event()
        self._connections = 0

    def __enter__(self) -> ScriptedEndpoint:
        self._begin(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._changed:
            for connection in self._open:
                with contextlib.suppress(OSError):  # the client may have closed it just now
                    connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()

    def await_asked(self, count: int) -> list[Asked]:
        """The requests so far, once there are so many."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.asked) >= count, PATIENCE_S)
            return list(self.asked)

    def drop_connections(self) -> None:
        """Closes every connection, as a server does with idle ones."""
        with self._changed:
            for connection in self._open:
                with contextlib.suppress(OSError):  # the client may have closed it just now
                    connection.shutdown(socket.SHUT_RDWR)
            assert self._changed.wait_for(lambda: not self._open, PATIENCE_S)

    def _begin(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # closed by the end of the test
            with self._changed:
                self._open.add(connection)
                self._connections += 1
                number = self._connections
            self._begin(self._serve, connection, number)

    def _serve(self, connection: socket.socket, number: int) -> None:
        try:
            with connection.makefile("rb") as file:
                while self._answer(connection, file, number):
                    pass
        except OSError:
            return  # the guest went away, as it may
        finally:
            with self._changed:
                self._open.discard(connection)
                connection.close()
                self._changed.notify_all()

    def _answer(self, connection: socket.socket, file: Any, number: int) -> bool:
        line = file.readline().decode().split()
        if not line:
            return False
        headers: dict[str, str] = {}
        for raw in iter(file.readline, b"\r\n"):
            name, _, value = raw.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        body = file.read(int(headers.get("content-length", "0")))
        asked = Asked(line[0], line[1], headers, body, number)
        with self._changed:
            at = len(self.asked)
            self.asked.append(asked)
            self._changed.notify_all()
        scripted = self._script[min(at, len(self._script) - 1)]
        reply = scripted if isinstance(scripted, Reply) else scripted(asked)
        return self._send(connection, reply)

    def _send(self, connection: socket.socket, reply: Reply) -> bool:
        if reply.hold is not None:
            reply.hold.wait(reply.hold_s)
        if reply.reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False
        if reply.body is None:
            self._closing.wait(PATIENCE_S)
            return False
        connection.sendall(encoded(reply) if reply.raw is None else reply.raw)
        for one in reply.trickle:
            if self._closing.wait(0.1):
                return False
            connection.sendall(bytes([one]))
        return not reply.close


@contextmanager
def serving(*script: Script, **options: Any) -> Iterator[tuple[ScriptedEndpoint, Client]]:
    """An endpoint with such a script, and a client of it."""
    with ScriptedEndpoint(*script) as endpoint, Client(endpoint.url, **options) as client:
        yield endpoint, client


def encoded(reply: Reply) -> bytes:
    """The bytes of a reply."""
    body = reply.body or b""
    headers = dict(reply.headers)
    if reply.status not in (204, 304):
        headers.setdefault("Content-Length", str(len(body)))
    if reply.close:
        headers["Connection"] = "close"
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {reply.status} Said\r\n{head}\r\n".encode("latin-1") + body
