"""What waits for the network while other things happen: coroutines that are gone on with later."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Hashable
from typing import Any


class Tasks:
    """One coroutine for each key, at most. Not an event loop: whoever owns it says who goes on."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, Coroutine[Any, Any, Any]] = {}

    def __contains__(self, key: Hashable) -> bool:
        return key in self._waiting

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, key: Hashable, coroutine: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Run a coroutine up to where it waits, unless one of this key waits already."""
        if key not in self._waiting:
            self._go_on(key, coroutine())

    def resume(self) -> None:
        """Let everything that waits go on, up to where it waits again."""
        for key, coroutine in list(self._waiting.items()):
            if self._waiting.pop(key, None) is not None:
                self._go_on(key, coroutine)

    def drop(self) -> None:
        """Nothing that waits is ever gone on with."""
        waiting, self._waiting = self._waiting, {}
        for coroutine in waiting.values():
            coroutine.close()

    def _go_on(self, key: Hashable, coroutine: Coroutine[Any, Any, Any]) -> None:
        try:
            coroutine.send(None)
        except StopIteration:
            return
        self._waiting[key] = coroutine
