"""The ids of tests: counted, so that a run gives the same ids again. No test lives here."""

from __future__ import annotations


class CountedIds:
    """`ports.Ids` that counts. With `spread`, the ids differ in their first characters too."""

    def __init__(self, *, spread: bool = False) -> None:
        self._spread = spread
        self.count = 0

    def number(self) -> int:
        """A number that this source has not given before."""
        self.count += 1
        return self.count

    def event_id(self) -> str:
        number = self.number()
        beginning = number * 0x1000001 % 2**32 if self._spread else 0
        return f"{beginning:08X}-0000-4000-ABCD-{number:012X}"
