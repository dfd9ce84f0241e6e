"""An emulator on a thread of its own, with an event loop of its own.

Everything of the emulator happens on that loop; callers of any thread hand in coroutines and wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

from forewarn.core.errors import Conflict
from forewarn.wiring.simulate import Emulator, Plan

T = TypeVar("T")

# Longer than anything but the real waits that callers bound themselves; then something is broken.
CALL_TIMEOUT_S = 60.0


class Background:
    """Starts at once, ends with `close`. Safe to use from any thread but its own.

    Raises what the emulator's start raises, with nothing left behind.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._loop = _new_loop()
        self._thread = threading.Thread(target=self._run, name="forewarn-emulator", daemon=True)
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._emulator: Emulator | None = None
        self._stop = asyncio.Event()
        self._open = contextlib.AsyncExitStack()
        self._operator: tuple[str, str] | None = None
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    @property
    def emulator(self) -> Emulator:
        """The emulator; touch it only in coroutines given to `call`."""
        if self._emulator is None or not self._thread.is_alive():
            raise Conflict("The cloud is closed.", "Use it inside its block or test.")
        return self._emulator

    def call(
        self, work: Callable[[Emulator], Awaitable[T]], *, timeout_s: float = CALL_TIMEOUT_S
    ) -> T:
        """Run `work` on the emulator's loop and return what it returns, or raise what it raises."""
        emulator = self.emulator
        if threading.current_thread() is self._thread:
            raise Conflict("The cloud was called from its own thread.", "Call it from the test's.")

        async def working() -> T:
            return await work(emulator)

        return asyncio.run_coroutine_threadsafe(working(), self._loop).result(timeout_s)

    def operator(self) -> tuple[str, str]:
        """The URL and the token of the operator API, which is opened by the first call."""
        if self._operator is None:
            token = secrets.token_urlsafe(16)
            url = self.call(
                lambda emulator: self._open.enter_async_context(emulator.operator(token=token))
            )
            self._operator = (url, token)
        return self._operator

    def close(self) -> None:
        """End everything: no port, thread or task is left. A second time is without effect."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._live())
        finally:
            self._loop.close()
            self._ready.set()

    async def _live(self) -> None:
        async with self._open:
            try:
                emulator = Emulator(self._plan)
                self._open.push_async_callback(emulator.close)
                await emulator.start()
            except BaseException as failure:  # noqa: BLE001 - raised again where it is waited for
                self._failure = failure
                return
            self._emulator = emulator
            self._ready.set()
            await self._stop.wait()


def _new_loop() -> asyncio.AbstractEventLoop:
    if sys.platform == "win32":
        return asyncio.new_event_loop()
    import uvloop  # noqa: PLC0415 - there is none on Windows

    return uvloop.new_event_loop()
