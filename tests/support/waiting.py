"""How tests wait: they look again and again, and a limit ends only a hang. No test lives here."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")

WAIT_S = 60.0
LOOK_EVERY_S = 0.01
LOOK_ON_LOOP_EVERY_S = 0.005  # what one process does by itself passes sooner

What = str | Callable[[], str]


async def until(look: Callable[[], Any], what: What = "", *, limit_s: float = WAIT_S) -> Any:
    """Let everything else go on until `look`, or what it awaits, finds something; return that."""
    loop = asyncio.get_running_loop()
    give_up_s = loop.time() + limit_s
    while True:
        seen = look()
        found = await seen if isinstance(seen, Awaitable) else seen
        if found:
            return found
        assert loop.time() < give_up_s, _in_vain(look, what, limit_s)
        await asyncio.sleep(LOOK_ON_LOOP_EVERY_S)


def wait_until(look: Callable[[], T | None], what: What = "", *, limit_s: float = WAIT_S) -> T:
    """Look until there is something to see, and return it."""
    give_up_s = time.monotonic() + limit_s
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < give_up_s, _in_vain(look, what, limit_s)
        time.sleep(LOOK_EVERY_S)


def _in_vain(look: Callable[[], Any], what: What, limit_s: float) -> str:
    """What was waited for: in the words of the test, or as the test has written its condition."""
    words = what() if callable(what) else what
    return f"waited {limit_s:g} s in vain: {words or _source(look)}"


def _source(look: Callable[[], Any]) -> str:
    try:
        return inspect.getsource(look).strip()
    except (OSError, TypeError):
        return repr(look)
