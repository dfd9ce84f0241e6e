"""A bare server with the traffic of the link: what control's stack itself costs at rest.

TLS, event loop, parser and HTTP server are those of control; the application answers every question
with what control said to it once, and nothing else. The hosts that ask control ask it as well, the
same questions as often. The server is a process: `python -m bench.link_peer PORT FOLDER`.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from ssl import SSLContext
from typing import Any

import msgspec
import uvicorn
import uvloop

from bench.processes import Failed, clean_environment, free_port, running, wait
from forewarn.adapters.certificate_authority import Authority
from forewarn.adapters.control_link import ControlLink
from forewarn.adapters.system import SystemClock
from forewarn.host.daemon import HEARTBEAT_EVERY_S
from forewarn.host.feed_reader import WAIT_S
from forewarn.wire import link as wire
from forewarn.wiring.control import KEEP_ALIVE_S

ADDRESS = "127.0.0.1"
AUTHORITY, ANSWERS = "authority", "answers.json"

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class Answers(msgspec.Struct, frozen=True):
    """What control has said to the questions of a host at rest."""

    turn: wire.TurnTaken
    changes: wire.Changes


# The server.


class _App:
    """Answers as control did. A question for changes waits as long as one at control does."""

    def __init__(self, answers: Answers) -> None:
        self._clock = SystemClock()
        self._turn = msgspec.json.encode(answers.turn)
        self._changes = msgspec.json.encode(answers.changes)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        body = self._turn
        if scope["path"] == "/link/changes":
            await asyncio.sleep(WAIT_S)
            body = self._changes
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (wire.VERSION_HEADER.encode(), wire.LINK_VERSION.encode()),
            (wire.NOW_HEADER.encode(), str(self._clock.now_ms()).encode()),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _serve(port: int, folder: Path) -> None:
    answers = msgspec.json.decode((folder / ANSWERS).read_bytes(), type=Answers)
    config = uvicorn.Config(
        _App(answers),
        host=ADDRESS,
        port=port,
        http="httptools",
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_keep_alive=KEEP_ALIVE_S,
    )
    config.load()
    config.ssl = Authority(folder / AUTHORITY).server_context([ADDRESS])
    uvloop.run(uvicorn.Server(config).serve())


# Who starts and asks it.


@contextmanager
def bare_server(folder: Path, authority: Path, answers: Answers) -> Iterator[tuple[int, str]]:
    """The server as a process on the server's core; its pid and URL. Hosts trust it as control."""
    folder.mkdir()
    shutil.copytree(authority, folder / AUTHORITY)
    (folder / ANSWERS).write_bytes(msgspec.json.encode(answers))
    port, log = free_port(), folder / "peer.log"
    command = [sys.executable, "-m", "bench.link_peer", str(port), str(folder)]
    environment = {**clean_environment(), "PYTHONPATH": str(Path(__file__).parent.parent)}
    with running(command, log, environment) as process:
        wait(process, log, lambda: _listens(port))
        yield process.pid, f"https://{ADDRESS}:{port}"


def _listens(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex((ADDRESS, port)) == 0


@asynccontextmanager
async def asked_by_all(url: str, contexts: Sequence[SSLContext]) -> AsyncIterator[None]:
    """The server is asked by as many hosts as there are contexts, each as a host at rest asks."""
    clock = SystemClock()
    links = [ControlLink(url, one, monotonic_ms=clock.monotonic_ms) for one in contexts]
    asking = [
        asyncio.ensure_future(loop(link, HEARTBEAT_EVERY_S * number / len(links)))
        for number, link in enumerate(links)
        for loop in (_beats, _follows)
    ]
    try:
        await asyncio.sleep(HEARTBEAT_EVERY_S)  # then all have begun
        yield
        for one in asking:
            if one.done():
                raise Failed(f"the bare server did not answer: {one.exception()}")
    finally:
        for one in asking:
            one.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        await asyncio.gather(*(link.close() for link in links))


async def _beats(link: ControlLink, after_s: float) -> None:
    await asyncio.sleep(after_s)
    while True:
        await link.turn(wire.Turn())
        await asyncio.sleep(HEARTBEAT_EVERY_S)


async def _follows(link: ControlLink, after_s: float) -> None:
    await asyncio.sleep(after_s)
    since: wire.Since | None = None
    while True:
        told = await link.changes(since, WAIT_S)
        since = wire.Since(told.epoch, told.position)


if __name__ == "__main__":
    _serve(int(sys.argv[1]), Path(sys.argv[2]))
