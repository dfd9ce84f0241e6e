"""A front that passes everything on to an endpoint and tampers with one thing on the way.

It reads whole requests, hands each to a Tampering, sends on what that says, and hands the answer to
it as well. Without a Tampering it is transparent: the kit must not notice it.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

PATIENCE_S = 60.0
END = b"\r\n\r\n"
DOCUMENT_PATH = "/metadata/scheduledevents"

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Asked:
    """A request as it came."""

    method: str
    target: str
    protocol: str
    headers: Headers
    body: bytes = b""

    def header(self, name: str) -> str | None:
        return next((v for n, v in self.headers if n.lower() == name.lower()), None)

    def without(self, name: str) -> Asked:
        return replace(self, headers=tuple(h for h in self.headers if h[0].lower() != name.lower()))

    def having(self, name: str, value: str) -> Asked:
        return replace(self.without(name), headers=(*self.without(name).headers, (name, value)))

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def version(self) -> str | None:
        values = parse_qs(urlsplit(self.target).query).get("api-version")
        return values[0] if values else None

    @property
    def event_ids(self) -> list[str]:
        """The ids that a POST approves."""
        try:
            ids = [request["EventId"] for request in json.loads(self.body)["StartRequests"]]
        except (ValueError, KeyError, TypeError):
            return []
        return ids if all(isinstance(event_id, str) for event_id in ids) else []

    def is_document(self, version: str | None = None) -> bool:
        """A GET of the document at a version, or at any."""
        plain = self.method == "GET" and self.path == DOCUMENT_PATH
        return plain and self.version is not None and version in (None, self.version)

    def is_post(self, version: str | None = None) -> bool:
        return self.method == "POST" and version in (None, self.version)

    def bytes(self) -> bytes:
        lines = [f"{self.method} {self.target} {self.protocol}"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + self.body


@dataclass(frozen=True)
class Given:
    """An answer. `delay_s` holds it back, `then_close` ends the connection after it."""

    status: int
    headers: Headers = ()
    body: bytes = b""
    protocol: str = "HTTP/1.1"
    delay_s: float = 0.0
    then_close: bool = False
    tail: bytes = b""

    def header(self, name: str) -> str | None:
        return next((v for n, v in self.headers if n.lower() == name.lower()), None)

    def without(self, name: str) -> Given:
        return replace(self, headers=tuple(h for h in self.headers if h[0].lower() != name.lower()))

    def having(self, name: str, value: str) -> Given:
        return replace(self, headers=(*self.without(name).headers, (name, value)))

    def saying(self, body: bytes) -> Given:
        return replace(self, body=body).having("Content-Length", str(len(body)))

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def with_json(self, content: Any) -> Given:
        return self.saying(json.dumps(content).encode())

    def bytes(self) -> bytes:
        lines = [f"{self.protocol} {self.status} Whatever"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + self.body + self.tail


def refusal(status: int) -> Given:
    """A refusal as an endpoint would send it."""
    return Given(status, (("Content-Type", "application/json"),)).with_json({"error": "tampered"})


class Tampering:
    """Changes nothing. Subclasses or the functions given change one thing."""

    halves_block = False  # a client that has sent half a request keeps all others waiting
    halves_refused = False  # a request has to arrive in one piece
    swaps_pipelined = False  # of requests sent at once, the second is answered first

    def __init__(
        self,
        ask: Callable[[Asked], Asked | Given] = lambda asked: asked,
        give: Callable[[Asked, Given], Given] = lambda _, given: given,
    ) -> None:
        self.ask = ask
        self.give = give


class Front:
    """The front on a thread and loop of its own."""

    def __init__(self, backend: str, tampering: Tampering) -> None:
        parts = urlsplit(backend)
        self._backend = (parts.hostname or "", parts.port or 80)
        self._tampering = tampering
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._tasks: dict[asyncio.Task[None], _Side] = {}
        self._turn = asyncio.Lock()
        self.url = ""

    def start(self) -> None:
        self._thread.start()
        server = asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(PATIENCE_S)
        self._server = server
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(PATIENCE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()

    async def _open(self) -> asyncio.Server:
        return await asyncio.start_server(self._accepted, "127.0.0.1", 0)

    async def _close(self) -> None:
        self._server.close()
        await asyncio.sleep(0)  # a connection that was just accepted gets its task
        left = dict(self._tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        for client in left.values():
            client.close()  # also of a task that never had its turn
        await asyncio.sleep(0)  # closing takes a turn of the loop
        await self._server.wait_closed()

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = _Side(reader, writer)
        task = self._loop.create_task(self._serve(client))
        self._tasks[task] = client
        task.add_done_callback(self._tasks.pop)

    async def _serve(self, client: _Side) -> None:
        back: _Side | None = None
        try:
            back = _Side(*await asyncio.open_connection(*self._backend))
            await self._exchange(client, back)
        except (OSError, EOFError):
            pass  # one side has gone, so the other may go as well
        finally:
            client.close()
            if back is not None:
                back.close()

    async def _exchange(self, client: _Side, back: _Side) -> None:
        held: list[bytes] = []
        while True:
            asked = await self._request(client)
            if asked is None:
                await client.send(refusal(400).bytes())
                return
            given = await self._answer(asked, client, back)
            if given.delay_s:
                held_back: asyncio.Future[None] = self._loop.create_future()
                self._loop.call_later(given.delay_s, held_back.set_result, None)
                await held_back
            if self._tampering.swaps_pipelined and client.buffer and not held:
                held.append(given.bytes())
                continue
            await client.send(given.bytes() + b"".join(held))
            held.clear()
            said = (given.header("Connection") or "").lower() == "close"
            if given.then_close or said or asked.protocol == "HTTP/1.0":
                return

    async def _request(self, client: _Side) -> Asked | None:
        if not client.buffer:
            await client.more()
        if END not in client.buffer and self._tampering.halves_refused:
            return None
        if END not in client.buffer and self._tampering.halves_block:
            async with self._turn:
                head = await client.head()
        else:
            async with self._turn if self._tampering.halves_block else nullcontext():
                head = await client.head()
        lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
        words = lines[0].split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return Asked("", lines[0], "", ())
        headers = tuple(_pair(line) for line in lines[1:])
        asked = Asked(words[0], words[1], words[2], headers)
        if asked.header("Expect") is None:
            asked = replace(asked, body=await client.exactly(_length(asked.headers)))
        return asked

    async def _answer(self, asked: Asked, client: _Side, back: _Side) -> Given:
        if asked.method == "":
            changed = self._tampering.ask(asked)
            if isinstance(changed, Given):
                return changed
            await back.send(asked.target.encode("latin-1") + END)
            return self._tampering.give(asked, replace(await back.answer("GET"), then_close=True))
        changed = self._tampering.ask(asked)
        if isinstance(changed, Given):
            return changed
        await back.send(changed.bytes())
        given = await back.answer(asked.method)
        if given.status == 100:
            await client.send(given.bytes())
            await back.send(await client.exactly(_length(asked.headers)))
            given = await back.answer(asked.method)
        return self._tampering.give(asked, given)


class _Side:
    """One side of the front, with what was read and not used yet."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.buffer = b""

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def close(self) -> None:
        self._writer.close()

    async def more(self) -> None:
        data = await self._reader.read(65_536)
        if not data:
            raise EOFError
        self.buffer += data

    async def head(self) -> bytes:
        while END not in self.buffer:
            await self.more()
        head, _, self.buffer = self.buffer.partition(END)
        return head + END

    async def exactly(self, length: int) -> bytes:
        while len(self.buffer) < length:
            await self.more()
        data, self.buffer = self.buffer[:length], self.buffer[length:]
        return data

    async def answer(self, method: str) -> Given:
        lines = (await self.head()).decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
        headers = tuple(_pair(line) for line in lines[1:])
        status = int(lines[0].split(" ")[1])
        bodyless = method == "HEAD" or status in (100, 304)
        body = b"" if bodyless else await self.exactly(_length(headers))
        return Given(status, headers, body)


def _pair(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name, value.strip()


def _length(headers: Headers) -> int:
    return int(next((v for n, v in headers if n.lower() == "content-length"), "0"))


@contextmanager
def front_of(backend: str, tampering: Tampering | None = None) -> Iterator[Front]:
    """A front before an endpoint, until the block ends."""
    front = Front(backend, tampering or Tampering())
    front.start()
    try:
        yield front
    finally:
        front.stop()
