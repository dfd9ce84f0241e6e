"""A control plane without threads: what is submitted is carried out before the call returns.

For harnesses that turn their own clock; no test lives here.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from forewarn.control.control import Control
from forewarn.control.writer import Wanted
from forewarn.ports import Store

T = TypeVar("T")


def run_now(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never really waits."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    raise AssertionError("a call that must not wait tried to wait")


class Inline:
    """Takes commands like a writer's thread, at once; `run` carries one out or raises."""

    def __init__(self, run: Callable[[Wanted[Any]], Any]) -> None:
        self._run = run

    async def submit(self, command: Wanted[T]) -> T:
        found: T = self._run(command)
        return found


class InlineControl(Control):
    """`Control` that reads the store on the caller's thread."""

    async def read(self, query: Callable[[Store], T]) -> T:
        return query(self.store)
