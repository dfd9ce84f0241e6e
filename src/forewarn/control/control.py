"""The front door of the control plane: submit a command, read what is committed.

Everything above (operator API, endpoint wiring, in-process hosts) holds one of these.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from forewarn.control.dispatch import Dispatch
from forewarn.control.memory import Transaction
from forewarn.control.writer import Command, WriterThread
from forewarn.ports import Clock, Store

T = TypeVar("T")


class Control:
    """Asynchronous access to the one writer and to the committed state."""

    def __init__(
        self, *, writer: WriterThread, store: Store, clock: Clock, dispatch: Dispatch
    ) -> None:
        self._writer = writer
        self._store = store
        self.clock = clock
        self.dispatch = dispatch

    async def submit(self, command: Command[T]) -> T:
        """Run a command; its value comes back once everything it changed is durable.

        Raises the command's Refusal, or Unavailable when nothing can be kept now.
        """
        return await self._writer.submit(command)

    async def ask(self, question: Callable[[Transaction], T]) -> T:
        """Look at what is open. The same as `submit`; the name says that nothing changes."""
        return await self._writer.submit(question)

    async def read(self, query: Callable[[Store], T]) -> T:
        """Read what is committed, ended things included, without stopping the event loop."""
        return await asyncio.to_thread(query, self._store)
