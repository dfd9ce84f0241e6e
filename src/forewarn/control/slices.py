"""Long walks on the event loop, cut into slices: between two of them guests are answered.

A walk is a generator that yields where it may be interrupted. What it looks at may have changed
when it goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")
Walk = Generator[None, None, T]


def at_once(walk: Walk[T]) -> T:
    """Walk without a pause: what it finds."""
    while True:
        try:
            next(walk)
        except StopIteration as end:
            found: T = end.value
            return found


async def in_slices(walk: Walk[T]) -> T:
    """Walk, and let the event loop turn at each pause: what it finds."""
    while True:
        try:
            next(walk)
        except StopIteration as end:
            found: T = end.value
            return found
        await asyncio.sleep(0)
