"""Waiting for a ring: something may be new, look again."""

from __future__ import annotations

import asyncio


async def rung(ring: asyncio.Event, seconds: float) -> None:
    """Wait for a ring, at most this long. The ring stays: who looks clears it first."""
    try:
        async with asyncio.timeout(seconds):
            await ring.wait()
    except TimeoutError:
        return
