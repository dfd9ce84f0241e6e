"""Waiting for a ring: something may be new, look again."""

from __future__ import annotations

import asyncio


async def rung(ring: asyncio.Event, seconds: float | None) -> None:
    """Wait for a ring, at most this long; None has no limit.

    The ring stays: the caller clears it before it looks.
    """
    try:
        async with asyncio.timeout(seconds):
            await ring.wait()
    except TimeoutError:
        return
