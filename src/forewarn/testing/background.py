"""An emulator on a thread of its own, with an event loop of its own.

Everything of the emulator happens on that loop; callers of any thread hand in coroutines and wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from forewarn.core.errors import Conflict, Refusal
from forewarn.testing.tracebacks import cut, for_refusals
from forewarn.wire.instants import time_text
from forewarn.wiring.simulate import NOTHING_KEPT, EmulationPlan, Emulator, Kept

T = TypeVar("T")
Work = Callable[[Emulator], Awaitable[T]]

# Longer than anything but the real waits that callers bound themselves; then something is broken.
CALL_TIMEOUT_S = 60.0
TOKEN_BYTES = 16
__tracebackhide__ = for_refusals


class EmulatorBroke(Exception):  # noqa: N818 - says what is the case
    """Something inside the emulator broke, which is a bug of Forewarn. Its cause is the first."""


class Background:
    """Starts at once, ends with `close`. Safe to use from any thread but its own.

    Raises what the emulator's start raises, with nothing left behind.
    """

    def __init__(self, plan: EmulationPlan) -> None:
        self._plan = plan
        self._stop = asyncio.Event()
        self._open = contextlib.AsyncExitStack()
        self._at_end: list[Callable[[], None]] = []
        self._operator: tuple[str, str] | None = None
        self._emulator: Emulator | None = None
        self._closed = False
        self._told = False
        self._process = os.getpid()
        # One at a time: `close` and the opening of the operator API may be called by two threads.
        self._lock = threading.Lock()
        self._loop = _new_loop()
        self._thread = threading.Thread(target=self._run, name="forewarn-emulator", daemon=True)
        self._thread.start()
        try:
            self._emulator = self._begin(self._start()).result(CALL_TIMEOUT_S)
        except Refusal as refusal:
            self._end()
            raise cut(refusal) from None
        except BaseException:
            self._end()
            raise

    @property
    def emulator(self) -> Emulator:
        """The emulator; what is done to it belongs into work that is given to `call`."""
        return self._usable()

    @property
    def closed(self) -> bool:
        return self._closed

    def call(self, work: Work[T], *, timeout_s: float = CALL_TIMEOUT_S) -> T:
        """Run `work` on the emulator's loop and return what it returns, or raise what it raises.

        Raises Conflict once the cloud is closed, and EmulatorBroke if the emulator has broken.
        """
        emulator = self._usable()
        future = self._begin(_working(work, emulator))
        try:
            found = future.result(timeout_s)
        except Refusal as refusal:
            raise cut(refusal) from None
        except CancelledError:  # another thread has closed the cloud meanwhile
            raise _closed() from None
        except BaseException:
            late = not future.done()
            future.cancel()
            if late and isinstance(sys.exception(), TimeoutError):
                said = f"The emulator was not done within {timeout_s:g} s."
                raise EmulatorBroke(said) from None
            raise
        self._raise_broken(emulator)
        return found

    async def call_async(self, work: Work[T]) -> T:
        """As `call`, for a coroutine of another event loop, which goes on meanwhile."""
        emulator = self._usable()
        future = self._begin(_working(work, emulator))
        try:
            found = await asyncio.wrap_future(future)
        except Refusal as refusal:
            raise cut(refusal) from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._closed and not (task and task.cancelling()):
                raise _closed() from None
            raise
        self._raise_broken(emulator)
        return found

    def summary(self) -> str:
        """What a failing test shows of the cloud. Never raises, and does not wait."""
        if self._closed or self._emulator is None:
            return "closed"
        return f"at {time_text(self._emulator.clock.now_ms())}"

    def operator(self) -> tuple[str, str]:
        """The URL and the token of the operator API, which is opened by the first call."""
        with self._lock:
            if self._operator is None:
                token = secrets.token_urlsafe(TOKEN_BYTES)
                url = self.call(lambda e: self._open.enter_async_context(e.operator(token=token)))
                self._operator = (url, token)
            return self._operator

    def reset(self) -> None:
        """Put a new emulator in the place of this one: VMs and the operator stay where they are.

        Raises what the emulator's start raises; then the cloud is closed.
        """
        self._usable()
        with self._lock:
            self._undo()
            try:
                self._emulator = self._begin(self._follow()).result(CALL_TIMEOUT_S)
            except BaseException:
                self._end()
                raise
            self._told = False

    def at_end(self, undo: Callable[[], None]) -> None:
        """Call `undo` when everything has ended, last first."""
        self._at_end.append(undo)

    def close(self) -> None:
        """End everything: no port, thread or task is left. A second time is without effect.

        Raises EmulatorBroke if the emulator has broken and no caller was told yet.
        """
        if self._forked():
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
            try:
                self._begin(self._open.aclose()).result(CALL_TIMEOUT_S)
            finally:
                self._end()
                self._undo()
        if self._emulator is not None:
            self._raise_broken(self._emulator)

    def abandon(self) -> None:
        """End everything soon, without waiting for it: for finalizers, which run on any thread."""
        if self._forked():
            return
        self._closed = True
        self._undo()
        ending = self._begin(self._open.aclose())
        ending.add_done_callback(lambda _: self._loop.call_soon_threadsafe(self._stop.set))

    def _undo(self) -> None:
        while self._at_end:
            self._at_end.pop()()

    def _usable(self) -> Emulator:
        if threading.current_thread() is self._thread:
            raise Conflict("The cloud was called from its own thread.", "Call it from the test's.")
        if self._forked():
            raise Conflict(
                "The cloud belongs to the process that started it.",
                "Give other processes the URLs of its VMs; they are good in all of them.",
            )
        if self._closed or self._emulator is None:
            raise _closed()
        self._raise_broken(self._emulator)
        return self._emulator

    def _forked(self) -> bool:
        """In a process that was forked off: the emulator's thread is not there, it is no copy."""
        return os.getpid() != self._process

    def _raise_broken(self, emulator: Emulator) -> None:
        """Tell the first caller who can be told."""
        errors = emulator.errors()
        if errors and not self._told:
            self._told = True
            more = f", and {len(errors) - 1} more" if len(errors) > 1 else ""
            raise EmulatorBroke(f"The emulator broke: {errors[0]!r}{more}.") from errors[0]

    def _begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _end(self) -> None:
        self._closed = True
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    # On the thread of its own.

    def _run(self) -> None:
        # The runner also ends what tasks, generators and threads of `to_thread` are left.
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._until_stopped())

    async def _until_stopped(self) -> None:
        await self._stop.wait()

    async def _follow(self) -> Emulator:
        before = self._emulator
        if before is None:
            raise _closed()
        kept = before.hand_over()
        await self._open.aclose()
        self._open = contextlib.AsyncExitStack()
        emulator = await self._start(kept)
        if self._operator is not None:
            url, token = self._operator
            listen = url.removeprefix("http://")
            await self._open.enter_async_context(emulator.operator(token=token, listen=listen))
        return emulator

    async def _start(self, kept: Kept = NOTHING_KEPT) -> Emulator:
        emulator = Emulator(self._plan, kept)
        self._loop.set_exception_handler(
            lambda _, context: emulator.broke(
                context.get("exception") or RuntimeError(context["message"])
            )
        )
        try:
            await emulator.start()
        except BaseException:
            await emulator.close()
            raise
        self._open.push_async_callback(emulator.close)
        if self._plan.speed:
            pacing = self._loop.create_task(emulator.wait())
            pacing.add_done_callback(lambda task: _tell(task, emulator))
        return emulator


def _closed() -> Conflict:
    return Conflict("The cloud is closed.", "Use it inside its `with` block, or inside the test.")


async def _working(work: Work[T], emulator: Emulator) -> T:
    return await work(emulator)


def _tell(task: asyncio.Task[None], emulator: Emulator) -> None:
    """The clock's own work has ended: by being canceled, or because it broke."""
    error = None if task.cancelled() else task.exception()
    if error is not None:
        emulator.broke(error)


def _new_loop() -> asyncio.AbstractEventLoop:
    if sys.platform == "win32":
        return asyncio.new_event_loop()
    import uvloop  # noqa: PLC0415 - there is none on Windows

    return uvloop.new_event_loop()
