"""`forewarn control` of another minor version of the link: `PEER=newer` or `PEER=older`.

A newer one answers more than hosts know, and hands out one thing to do that no host knows, until a
host has said how it ended; its log says what that was. An older one answers less, and does not know
the question `blind`. Everything else is the product.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forewarn.api.link.app import create_link_app
from forewarn.api.link.routes import Asking, LinkRoutes
from forewarn.cli.main import main
from forewarn.logs import Log
from forewarn.wire import link as wire
from forewarn.wiring import control
from support.link_peers import (
    LATER_QUESTION,
    MORE,
    NEWER,
    NO_WORK,
    OLDER,
    VERSIONS,
    as_said_by,
)

PEER = os.environ["PEER"]
OK = 200
WORK = wire.Work(action_id="work-of-a-newer-one", kind=NO_WORK, host="h1", epoch=1)

log = Log(__name__)


class PeerApp:
    """ASGI: the link, with every answer said as that version says it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._told = PEER != NEWER

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        name = str(scope["path"]).removeprefix("/link/")
        question = self._heard(name, await _whole(receive))
        unread = [{"type": "http.request", "body": question, "more_body": False}]

        async def receive_again() -> Message:
            return unread.pop() if unread else await receive()

        start: Message = {}
        parts: list[bytes] = []

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                start.update(message)
                return
            parts.append(message.get("body", b""))
            if not message.get("more_body"):
                body = self._said(name, start, b"".join(parts))
                await send({**start, "headers": _headers(start["headers"], body)})
                await send({"type": "http.response.body", "body": body})

        asked = {**scope, "headers": _headers(scope["headers"], question)}
        await self._app(asked, receive_again, answer)

    def _heard(self, name: str, body: bytes) -> bytes:
        """A question, without what only this version understands."""
        if name != "turn":
            return body
        turn = msgspec.json.decode(body, type=dict[str, Any])
        ended = turn.get("ended", [])
        for one in ended:
            if one["action_id"] == WORK.action_id:
                log.warning("newer_work_ended", outcome=one["outcome"], detail=one.get("detail"))
                self._told = True
        turn["ended"] = [one for one in ended if one["action_id"] != WORK.action_id]
        return msgspec.json.encode(turn)

    def _said(self, name: str, start: Message, body: bytes) -> bytes:
        if start["status"] != OK:
            return body if PEER == OLDER else _problem(body)
        if name == "claim" and not self._told:
            claimed = msgspec.json.decode(body, type=wire.Claimed)
            body = msgspec.json.encode(wire.Claimed(work=(*claimed.work, WORK)))
        return as_said_by(PEER, name, body, answer=True)


async def _whole(receive: Receive) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return body


def _headers(headers: list[tuple[bytes, bytes]], body: bytes) -> list[tuple[bytes, bytes]]:
    kept = [(key, value) for key, value in headers if key.lower() != b"content-length"]
    return [*kept, (b"content-length", str(len(body)).encode())]


def _problem(body: bytes) -> bytes:
    return msgspec.json.encode({**msgspec.json.decode(body, type=dict[str, Any]), **MORE})


def peer_app(*arguments: Any, **named: Any) -> PeerApp:
    return PeerApp(create_link_app(*arguments, **named))


known = LinkRoutes.table


def table_before(routes: LinkRoutes) -> Mapping[str, Asking]:
    """The questions of an older control."""
    return {name: asking for name, asking in known(routes).items() if name != LATER_QUESTION}


if __name__ == "__main__":
    vars(control)["create_link_app"] = peer_app
    wire.LINK_VERSION = VERSIONS[PEER]
    if PEER == OLDER:
        LinkRoutes.table = table_before  # type: ignore[method-assign, assignment]
    main()
