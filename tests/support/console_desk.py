"""A console over a small cloud, without HTTP: its desk, and the hub that draws. No test lives here.

It runs on an event loop whose time stands still until a test moves it, so what a page is made of
can be counted.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

from forewarn.api.console.blocks import View, now_view
from forewarn.api.console.live_updates import DRAW_EVERY_S, Hub, Position
from forewarn.api.console.mount import ConsoleSetup
from forewarn.api.console.page_context import Desk
from forewarn.api.doorbell import Doorbell
from forewarn.control.control import Control
from forewarn.control.metrics import ControlMetrics
from forewarn.core.access import Access, Role
from support.console_views import who
from support.core_fleet import Cloud

T = TypeVar("T")

TURNS = 200  # of the event loop: more than anything takes that waits for no time


class TurnedLoop(asyncio.SelectorEventLoop):
    """An event loop with a clock that a test turns."""

    now_s = 1_000.0

    def time(self) -> float:
        return self.now_s


def on_turned_loop(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine on such a loop."""
    with asyncio.Runner(loop_factory=TurnedLoop) as runner:
        return runner.run(work())


async def turns(count: int = TURNS) -> None:
    """Let everybody have so many turns."""
    for _ in range(count):
        await asyncio.sleep(0)


async def pass_s(seconds: float) -> None:
    """Let time pass, and everybody do what is due by then."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, TurnedLoop)
    await turns()
    loop.now_s += seconds
    await turns()


def access(role: Role, *scopes: str) -> Access:
    return who(role, *scopes).access


OPERATOR = access(Role.OPERATOR)
VIEWER = access(Role.VIEWER)


class Console:
    """The desk and the hub of a cloud. Make it on the loop."""

    def __init__(self, cloud: Cloud, control: Control | None = None) -> None:
        self.cloud = cloud
        self.doorbell = Doorbell()
        self.desk = Desk(
            control=control or cloud.control,
            setup=ConsoleSetup(),
            specs=(),
            measures=ControlMetrics(),
            doorbell=self.doorbell,
            version="1",
            token_access=lambda _id, _secret: None,
        )
        self.hub = Hub(self.desk)

    async def begin(self) -> Console:
        await self.desk.begin()
        return self

    def now(self, by: Access = OPERATOR) -> View:
        return now_view(self.desk, by)

    async def page(self, by: Access = OPERATOR) -> dict[str, str]:
        """The blocks of the Now page, loaded anew."""
        return self.hub.texts(await self.hub.show(self.now(by), by))

    def tab(self, by: Access = OPERATOR, after: Position | None = None) -> AsyncIterator[bytes]:
        """A tab of the Now page that goes on from a position, by default from now."""
        begin = self.hub.position if after is None else after
        return self.hub.stream(self.now(by), by, begin, ended=lambda: False)

    async def draw(self) -> None:
        """Until what has changed so far is drawn."""
        await pass_s(DRAW_EVERY_S)
        await pass_s(DRAW_EVERY_S)


def said(message: bytes) -> Any:
    """What a message says, as the script reads it."""
    found = re.search(rb"^data: (.*)$", message, re.MULTILINE)
    return {} if found is None else json.loads(found[1])
