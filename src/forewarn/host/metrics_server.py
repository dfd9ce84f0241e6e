"""`GET /metrics` and `GET /healthz` of a host daemon: one request per connection, nothing else.

For a scraper on the same machine. A connection that is slow, or one too many, is closed.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from forewarn.core.addresses import read_listen
from forewarn.host.listeners import ListenFailed
from forewarn.metrics import CONTENT_TYPE

REQUEST_BYTES_MAX = 8 * 1_024
REQUEST_TIMEOUT_S = 5.0
CONNECTIONS_MAX = 16

_WORDS = {200: "OK", 404: "Not Found", 405: "Method Not Allowed"}


class MetricsServer:
    """Serves two pages until it is closed. Belongs to the event loop.

    `healthz` is words for a person; the answer is 200 while the daemon runs, also when control is
    away: to restart it then would take the documents from its guests.
    """

    def __init__(self, *, metrics: Callable[[], bytes], healthz: Callable[[], str]) -> None:
        self._metrics = metrics
        self._healthz = healthz
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    async def open(self, listen: str) -> tuple[str, int]:
        """Listen there; returns where it really is. Raises ListenFailed."""
        address, port = read_listen(listen)
        try:
            self._server = await asyncio.start_server(
                self._accepted, address, port, limit=REQUEST_BYTES_MAX
            )
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
            raise ListenFailed(
                f"Cannot open the metrics on {listen}: {reason}. Choose a free address and port"
                ' with `metrics` (--metrics), or "" for none.'
            ) from error
        where = self._server.sockets[0].getsockname()
        return str(where[0]), int(where[1])

    async def close(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in tuple(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= CONNECTIONS_MAX:
            writer.close()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answer(head))
                await writer.drain()
        except (OSError, TimeoutError, EOFError, ValueError, asyncio.LimitOverrunError):
            return  # the client has gone, or never asked
        finally:
            writer.close()

    def _answer(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b"\r\n")[0].partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if path == b"/metrics":
            kind, body = CONTENT_TYPE, self._metrics()
        elif path == b"/healthz":
            kind, body = "text/plain; charset=utf-8", f"{self._healthz()}\n".encode()
        else:
            return _whole(404, "text/plain", b"There are /metrics and /healthz.\n")
        if method not in (b"GET", b"HEAD"):
            return _whole(405, "text/plain", b"Only GET is answered here.\n")
        return _whole(200, kind, body, without_body=method == b"HEAD")


def _whole(status: int, kind: str, body: bytes, *, without_body: bool = False) -> bytes:
    head = (
        f"HTTP/1.1 {status} {_WORDS[status]}\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (b"" if without_body else body)
