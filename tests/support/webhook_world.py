"""Webhooks with a receiver on loopback: a fleet without threads, and a clock that a test turns.

The receiver is a small HTTP server of its own, which shares nothing with what it judges. No test
lives here.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from forewarn.adapters.sqlite.store import SqliteStore
from forewarn.adapters.webhook_client import WebhookClient
from forewarn.control.commands import OrderWebhook
from forewarn.control.feed import Feed
from forewarn.control.hosts.liveness import Observed
from forewarn.control.webhook_sender import WebhookSender
from forewarn.core.model import (
    AnyWebhookOrder,
    Fact,
    FactKind,
    NewWebhook,
    Policy,
    Webhook,
    WebhookTerms,
)
from forewarn.core.principal import OPERATOR
from forewarn.core.webhook_targets import targets_of
from forewarn.ports import Store
from forewarn.wire.instance import ResourceLocation
from forewarn.wire.standard_webhooks import secret_text
from support.clock import ManualClock
from support.control import ControlParts, InlineFleet
from support.ids import CountedIds

LOOPBACK = ("127.0.0.0/8", "::1/128", "localhost")
SECRET = secret_text(b"0123456789abcdefghijklmnopqrstuv")
PLACE = ResourceLocation(location="local", resource_group="rg", subscription_id="sub")
LOOK_EVERY_S = 0.005
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


def says(status: int, *headers: str, body: str = "") -> bytes:
    """An answer of a receiver."""
    lines = [f"HTTP/1.1 {status} As-Told", f"Content-Length: {len(body)}", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()


async def no_names(_: str, __: int) -> Sequence[str]:
    """Nothing of a test leaves this machine, not even the question for a name."""
    raise OSError("no name has an address in a test")


@dataclass
class Received:
    """One request, as it came."""

    target: str
    headers: Mapping[str, str]  # by their names in lower case
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def signed_with(self, secret: str) -> bool:
        """Whether one of its signatures is by this secret, as Standard Webhooks 1.0.0 says."""
        sent = self.headers
        content = f"{sent['webhook-id']}.{sent['webhook-timestamp']}.".encode() + self.body
        key = base64.b64decode(secret.partition("_")[2])
        right = base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
        return f"v1,{right}" in sent["webhook-signature"].split(" ")


Script = bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Receiver:
    """What it was sent, and how it answers: each request by the next of `script`, then `then`."""

    port: int = 0
    received: list[Received] = field(default_factory=list)
    script: list[Script] = field(default_factory=list)
    then: Script = OK
    at_once: int = 0  # requests that are under way
    at_once_max: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook?x=1"

    @property
    def numbers(self) -> list[int]:
        """The numbers of the lines that came, in their order."""
        found: list[int] = []
        for one in self.received:
            items = one.json if isinstance(one.json, list) else [one.json]
            found += [item["data"]["number"] for item in items]
        return found

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.at_once += 1
        self.at_once_max = max(self.at_once_max, self.at_once)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            pairs = (line.partition(":") for line in head[1:] if line)
            headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
            body = await reader.readexactly(int(headers["content-length"]))
            self.received.append(Received(head[0].split(" ")[1], headers, body))
            said = self.script.pop(0) if self.script else self.then
            if isinstance(said, bytes):
                writer.write(said)
                await writer.drain()
            else:
                await said(writer)
        except (OSError, asyncio.IncompleteReadError):
            return  # the sender has gone
        finally:
            self.at_once -= 1
            writer.close()


@asynccontextmanager
async def receiving(tls: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
    """A receiver on a loopback port for this block."""
    made = Receiver()
    server = await asyncio.start_server(made.answer, "127.0.0.1", 0, ssl=tls)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()


class WebhookWorld(InlineFleet):
    """A control with webhooks, and who sends. Made inside an event loop."""

    def __init__(self, store: Store | None = None, *, clock: ManualClock | None = None) -> None:
        super().__init__()
        self.clock = clock or ManualClock()
        self.store = store or SqliteStore.in_memory()
        parts = ControlParts(
            self.store,
            clock=self.clock,
            observed=Observed(self.clock),
            policy=Policy(),
            ids=CountedIds(spread=True),
        )
        self._begin(parts)
        self.feed = Feed(self.control)
        self.limit_s = 20.0

    @asynccontextmanager
    async def sending(self) -> AsyncIterator[WebhookSender]:
        """Send for this block, as a service does while it runs."""
        client = WebhookClient(targets_of(LOOPBACK), limit_s=self.limit_s)
        sender = WebhookSender(
            self.control,
            self.feed,
            post=client.post,
            clock=self.clock,
            place=PLACE,
            look_every_s=LOOK_EVERY_S,
            chance=lambda: 0.5,
        )
        task = asyncio.create_task(sender.run())
        try:
            yield sender
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def add(self, url: str, name: str = "ops", *, number: int | None = None, **more: Any) -> str:
        """One more webhook; its id."""
        terms = WebhookTerms(name=name, url=url, **more)
        return self.order(
            f"wh-{name}", NewWebhook(terms=terms, secret=SECRET, number=number, later=True)
        ).webhook_id

    def order(self, webhook_id: str, do: AnyWebhookOrder) -> Webhook:
        return self.run(OrderWebhook(by=OPERATOR, webhook_id=webhook_id, do=do))

    def webhook(self, webhook_id: str = "wh-ops") -> Webhook:
        return self.published.webhooks[webhook_id]

    def says(self, *hosts: str) -> None:
        """One line of the journal for each."""
        for host in hosts:
            fact = Fact(kind=FactKind.HOST_CLOSED, at_ms=self.clock.now_ms(), host=host)
            self.run(lambda tx, fact=fact: tx.note(fact))  # type: ignore[misc]

    def lines(self, kind: FactKind) -> list[Fact]:
        return [line.fact for line in self.journal() if line.fact.kind is kind]
