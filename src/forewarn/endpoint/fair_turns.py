"""Who goes on when: requests that are here and not handled yet wait for their turn in one ring.

A turn of the event loop handles a bounded number of requests; then everything else that the loop
has to do gets its time. The ring goes from guest to guest, and within one guest from connection to
connection, so neither many requests nor many connections of one VM make another wait for long.
Strangers are one guest. What a turn of a connection does is `protocol`'s.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from forewarn.endpoint.limits import REQUESTS_PER_TURN, REQUESTS_PER_TURN_OF_CONNECTION
from forewarn.endpoint.registry import Guest


class Taker(Protocol):
    """A connection with requests that are not handled yet."""

    def turn(self, most: int) -> int:
        """Handle at most so many requests; how many it were. It may ask for another turn."""
        ...


class FairTurns:
    """The ring. Belongs to the event loop's thread; one call of the loop is pending, or none.

    `broke` is told, from inside the `except`, whose turn raised what must not happen.
    """

    __slots__ = ("_broke", "_pending", "_waiting")

    def __init__(self, broke: Callable[[Taker], None]) -> None:
        self._broke = broke
        # The first is next. A guest is here only while one of its connections waits.
        self._waiting: dict[Guest | None, deque[Taker]] = {}
        self._pending = False

    def __len__(self) -> int:
        """How many connections wait."""
        return sum(len(takers) for takers in self._waiting.values())

    def ask(self, taker: Taker, guest: Guest | None) -> None:
        """Give it a turn soon. Once: who waits already must not ask again."""
        takers = self._waiting.get(guest)
        if takers is None:
            self._waiting[guest] = deque((taker,))
        else:
            takers.append(taker)
        if not self._pending:
            self._pending = True
            asyncio.get_running_loop().call_soon(self._run)

    def leave(self, taker: Taker, guest: Guest | None) -> None:
        """It wants its turn no more. Without effect if it does not wait."""
        takers = self._waiting.get(guest)
        if takers is None or taker not in takers:
            return
        takers.remove(taker)
        if not takers:
            del self._waiting[guest]

    def _run(self) -> None:
        left = REQUESTS_PER_TURN
        waiting = self._waiting
        while waiting and left > 0:
            guest = next(iter(waiting))
            takers = waiting.pop(guest)
            taker = takers.popleft()
            if takers:
                waiting[guest] = takers  # behind every other guest
            try:
                left -= max(1, taker.turn(min(left, REQUESTS_PER_TURN_OF_CONNECTION)))
            except Exception:  # noqa: BLE001 - the top of a loop: the others go on
                self._broke(taker)
        self._pending = bool(waiting)
        if self._pending:
            asyncio.get_running_loop().call_soon(self._run)
