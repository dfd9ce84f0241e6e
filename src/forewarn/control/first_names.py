"""The first names of a set that changes, without sorting it or walking over it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from heapq import heapify, heappop, heappush

_SPARE_MAX = 64  # entries of names that are gone, beside as many as there are names


class FirstNames(Collection[str]):
    """A set of names that knows its first ones, in the order of text."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = set(names)
        self._heap = list(self._names)  # with names that are gone, and some twice
        heapify(self._heap)

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def add(self, name: str) -> None:
        """Without effect if it is there."""
        if name not in self._names:
            self._names.add(name)
            heappush(self._heap, name)
            self._forget_gone()

    def discard(self, name: str) -> None:
        """Without effect if it is not there."""
        self._names.discard(name)

    def first(self, count: int) -> list[str]:
        """The first names, at most so many."""
        found: list[str] = []
        while self._heap and len(found) < count:
            name = heappop(self._heap)
            if name in self._names and (not found or found[-1] != name):
                found.append(name)
        for name in found:
            heappush(self._heap, name)
        return found

    def _forget_gone(self) -> None:
        if len(self._heap) > 2 * len(self._names) + _SPARE_MAX:
            self._heap = list(self._names)
            heapify(self._heap)
