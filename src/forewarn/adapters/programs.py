"""Running other programs with a time limit. One that takes too long, or is given up, is killed.

What it has started is killed with it: a child that holds its output would hold our end too.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import suppress

from msgspec import Struct

KILL_S_MAX = 2.0


class ProgramResult(Struct, frozen=True):
    """How a program ended, and what it wrote to its output and to its error output."""

    code: int
    output: str
    errors: str


async def run_program(words: Sequence[str], *, seconds: float, given: str = "") -> ProgramResult:
    """Run a program to its end. Raises OSError if it cannot start, TimeoutError if it is slow."""
    process = await _start(words, takes_input=bool(given))
    try:
        async with asyncio.timeout(seconds):
            output, errors = await process.communicate(given.encode() if given else None)
    finally:
        if process.returncode is None:
            await _kill(process)
    return ProgramResult(
        process.returncode or 0, output.decode(errors="replace"), errors.decode(errors="replace")
    )


async def _start(words: Sequence[str], *, takes_input: bool) -> asyncio.subprocess.Process:
    """Start a program. A cancel waits until it has started: asyncio may hang if it does not."""
    starting = asyncio.create_task(
        asyncio.create_subprocess_exec(
            *words,
            # Only where there is something to say: a program that ends at once closes it under us.
            stdin=asyncio.subprocess.PIPE if takes_input else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        with suppress(OSError):
            await _kill(await starting)
        raise


async def _kill(process: asyncio.subprocess.Process) -> None:
    """Kill it, and read what it had still said: asyncio waits for its pipes to be empty."""
    with suppress(ProcessLookupError):  # it has ended meanwhile
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(TimeoutError):
        async with asyncio.timeout(KILL_S_MAX):
            await process.communicate()
