"""The operator API on a TCP port, and the file that says which: `operator.url`."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import uvicorn
from starlette.applications import Starlette

from forewarn.adapters.private_files import write_private
from forewarn.adapters.sqlite.data_folder import unusable
from forewarn.api.guarded_protocol import GuardedProtocol
from forewarn.api.guarded_server import GuardedServer
from forewarn.core.addresses import listen_text, read_listen
from forewarn.host.listeners import ListenFailed
from forewarn.settings import OPERATOR_URL_FILE, Settings
from forewarn.wire.problems import PROBLEM_CONTENT_TYPE, asked_in_plain_http

if TYPE_CHECKING:
    from forewarn.wiring.operator_tls import OperatorTls

STOP_GRACE_S = 5
STARTED_LOOK_EVERY_S = 0.005


def operator_tls(settings: Settings) -> OperatorTls | None:
    """What the operator API speaks TLS with; None if it speaks plain HTTP. Raises CannotStart."""
    if not settings.operator_has_tls:
        return None
    from forewarn.wiring.operator_tls import OperatorTls  # noqa: PLC0415 - few have it

    return OperatorTls(settings)


@asynccontextmanager
async def serving(
    app: Starlette, listen: str, *, tls: OperatorTls | None = None
) -> AsyncIterator[str]:
    """Serve the operator API on `listen`; yields its URL. Raises ListenFailed."""
    config = operator_config(app, GuardedProtocol)
    what, option = "the operator API", "--operator"
    if tls is None:
        async with listening(GuardedServer(config), listen, what=what, option=option) as where:
            yield f"http://{listen_text(*where)}"
        return
    config.load()
    config.ssl = tls.context
    server = GuardedServer(config, to_plain=_to_plain())
    async with (
        listening(server, listen, what=what, option=option) as where,
        tls.followed(server),
    ):
        yield tls.url(where[1])


def _to_plain() -> bytes:
    """What a caller is told who speaks HTTP to a port with TLS."""
    body = msgspec.json.encode(asked_in_plain_http())
    head = (
        f"HTTP/1.1 400 Bad Request\r\nContent-Type: {PROBLEM_CONTENT_TYPE}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


def operator_config(app: Starlette, protocol: type[asyncio.Protocol]) -> uvicorn.Config:
    """How the operator API is served, on whatever it listens."""
    return uvicorn.Config(
        app,
        http=protocol,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=STOP_GRACE_S,
    )


@asynccontextmanager
async def listening(
    server: uvicorn.Server, listen: str, *, what: str, option: str
) -> AsyncIterator[tuple[str, int]]:
    """Run a server on `listen` for the length of the block; yields where it really is.

    Raises ListenFailed, which names what was to be opened and the option that says where.
    """
    address, port = read_listen(listen)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    # Named, or asyncio takes it for no TCP and each answer waits 40 ms for an acknowledgement.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address, port))
    except OSError as error:
        sock.close()
        raise ListenFailed(
            f"Cannot open {what} on {listen}: {error.strerror or error}. "
            f"Choose a free address and port with {option}; with port 0 any is taken."
        ) from error
    async with running(server, sock):
        where = sock.getsockname()
        yield str(where[0]), int(where[1])


@asynccontextmanager
async def running(server: uvicorn.Server, sock: socket.socket) -> AsyncIterator[None]:
    """Run a server on a bound socket for the length of the block, and close the socket."""
    serving = asyncio.get_running_loop().create_task(_serve(server, sock))
    try:
        while not server.started:
            if serving.done():
                serving.result()
            await asyncio.sleep(STARTED_LOOK_EVERY_S)
        yield
    finally:
        server.should_exit = True
        await serving
        sock.close()


async def _serve(server: uvicorn.Server, sock: socket.socket) -> None:
    """uvicorn without its own signal handlers: the service stops it."""
    server.capture_signals = nullcontext  # type: ignore[method-assign,assignment]
    await server.serve(sockets=[sock])


class Announcement:
    """The operator URL in a folder, there for the length of the block and no longer.

    Where it is, a service runs, or one was killed and another program may have the port.
    """

    def __init__(self, data: Path, url: str) -> None:
        self._path = data / OPERATOR_URL_FILE
        self._text = f"{url}\n"

    def __enter__(self) -> None:
        try:
            write_private(self._path, self._text.encode())
        except OSError as error:
            raise unusable(self._path.parent, error) from error

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # another process's by now, or gone with its folder
            if self._path.read_text(encoding="utf-8") == self._text:
                self._path.unlink()
