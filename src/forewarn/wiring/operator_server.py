"""The operator API on a socket, and what a command line needs to find it: its URL and token."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path

import uvicorn
from starlette.applications import Starlette

from forewarn.adapters.data_folder import FolderUnusable, unusable
from forewarn.api.guarded_protocol import GuardedProtocol
from forewarn.api.guarded_server import GuardedServer
from forewarn.core.addresses import listen_text, read_listen
from forewarn.host.listeners import ListenFailed
from forewarn.settings import OPERATOR_TOKEN_FILE, OPERATOR_URL_FILE

STOP_GRACE_S = 5
STARTED_LOOK_EVERY_S = 0.005


@asynccontextmanager
async def serving(app: Starlette, listen: str) -> AsyncIterator[str]:
    """Serve the operator API on `listen`; yields its URL. Raises ListenFailed."""
    config = uvicorn.Config(
        app,
        http=GuardedProtocol,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=STOP_GRACE_S,
    )
    server = GuardedServer(config)
    async with listening(server, listen, what="the operator API", option="--operator") as where:
        yield f"http://{listen_text(*where)}"


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
    serving = asyncio.get_running_loop().create_task(_serve(server, sock))
    try:
        while not server.started:
            if serving.done():
                serving.result()
            await asyncio.sleep(STARTED_LOOK_EVERY_S)
        where = sock.getsockname()
        yield str(where[0]), int(where[1])
    finally:
        server.should_exit = True
        await serving
        sock.close()


async def _serve(server: uvicorn.Server, sock: socket.socket) -> None:
    """uvicorn without its own signal handlers: the service stops it."""
    server.capture_signals = nullcontext  # type: ignore[method-assign,assignment]
    await server.serve(sockets=[sock])


def operator_token(data: Path) -> str:
    """The operator's token of this data folder, made at the first start."""
    path = data / OPERATOR_TOKEN_FILE
    try:
        token = path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        token = ""
    except OSError as error:
        raise unusable(data, error) from error
    except UnicodeDecodeError:
        raise FolderUnusable(
            f"{path} holds no token.", "Remove it; the next start makes a new one."
        ) from None
    if not token:
        token = secrets.token_urlsafe(32)
        _write_private(path, f"{token}\n")
    return token


def given_token(data: Path, token: str) -> str:
    """Make a token from outside the operator's token of this data folder."""
    _write_private(data / OPERATOR_TOKEN_FILE, f"{token}\n")
    return token


class Announcement:
    """The operator URL in a folder, there for the length of the block and no longer.

    Where it is, a service runs, or one was killed: the command line looks for it there.
    """

    def __init__(self, data: Path, url: str) -> None:
        self._path = data / OPERATOR_URL_FILE
        self._text = f"{url}\n"

    def __enter__(self) -> None:
        _write_private(self._path, self._text)

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # somebody else's by now, or gone with its folder
            if self._path.read_text(encoding="utf-8") == self._text:
                self._path.unlink()


def _write_private(path: Path, text: str) -> None:
    """Replace a file that only its owner may read, whole or not at all."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        # A new file, never one that somebody has put there to read it, nor what a link leads to.
        scratch.unlink(missing_ok=True)
        made = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(made, "w", encoding="utf-8") as opened:
            opened.write(text)
        scratch.replace(path)
    except OSError as error:
        with suppress(OSError):  # what cannot be removed is not ours
            scratch.unlink()
        raise unusable(path.parent, error) from error
