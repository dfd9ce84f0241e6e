"""When to try again what could not be done: later each time. It costs little and is not forgotten.

Pure: it is told the time. The caller decides what a key is and what is said of it.
"""

from __future__ import annotations

from collections.abc import Hashable

from msgspec import Struct

AGAIN_MS_MIN = 2_000
AGAIN_MS_MAX = 600_000


class _Broken(Struct, frozen=True):
    words: tuple[str, ...]
    wait_ms: int
    again_ms: int


class Retries:
    """What broke, or had to wait, and when each may be tried again. Times are monotonic."""

    def __init__(self, again_ms_max: int = AGAIN_MS_MAX) -> None:
        self._broken: dict[Hashable, _Broken] = {}
        self._again_ms_max = again_ms_max

    def due(self, key: Hashable, now_ms: int) -> bool:
        """True unless it broke a short while ago."""
        broken = self._broken.get(key)
        return broken is None or now_ms >= broken.again_ms

    def broke(self, key: Hashable, words: tuple[str, ...], now_ms: int) -> bool:
        """It broke. True if that is news: it did not break before, or in other words."""
        before = self._broken.get(key)
        wait_ms = AGAIN_MS_MIN if before is None else min(2 * before.wait_ms, self._again_ms_max)
        self._broken[key] = _Broken(words, wait_ms, now_ms + wait_ms)
        return before is None or before.words != words

    def mended(self, key: Hashable) -> None:
        """It worked, is not wanted any more, or is worth another look at once."""
        self._broken.pop(key, None)

    def said(self, key: Hashable) -> tuple[str, ...]:
        """What was said of it when it broke; empty if it did not."""
        broken = self._broken.get(key)
        return () if broken is None else broken.words
