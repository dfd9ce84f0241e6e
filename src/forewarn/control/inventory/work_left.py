"""What is left to do of a decided inventory, and when each part of it is worth a try.

A part that something forbids is tried again when a commit touched what it has to do with, and
otherwise later each time: a commit that is missed makes it slower, never wrong. What breaks is
tried again later each time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct, field

from forewarn.control.retries import Retries
from forewarn.core.inventory import slicing
from forewarn.ports import Change

WAITS_MS_MAX = 60_000  # for another try of what has to wait, though no commit touched it
THE_END: slicing.Slice = ()  # what is tried after the last slice: hosts that go

Key = tuple[str, str]  # "scope" or "host", and its name


class InventoryWork(Struct):
    """A decided file and the slices of it that are left. `passed` is set after the next pass."""

    text: str
    wanted: slicing.ByScope
    left: deque[slicing.Slice]
    passed: asyncio.Future[tuple[str, ...]]
    told: set[str] = field(default_factory=set)
    broke_now: int = 0  # parts that broke in this pass, and did not before
    broken: Retries = field(default_factory=Retries)
    waiting: Retries = field(default_factory=lambda: Retries(WAITS_MS_MAX))
    touching: dict[Key, set[slicing.Slice]] = field(default_factory=dict)

    def first(self) -> slicing.Slice:
        """The next to try. Whatever comes of it, another is the first of the next pass."""
        self.left.rotate(-1)
        return self.left[-1]

    def halve(self, part: slicing.Slice) -> int:
        """Have the halves of the last that was tried tried next: how many there are."""
        halves = slicing.halves(part)
        self.left.pop()
        self.left.extendleft(reversed(halves))
        return len(halves)

    def applied(self) -> None:
        """The last that was tried is not left any more, which the end may have waited for."""
        self.left.pop()
        self.waiting.mended(THE_END)

    def due(self, part: slicing.Slice, now_ms: int) -> bool:
        """False if it broke, or had to wait, a short while ago."""
        return self.broken.due(part, now_ms) and self.waiting.due(part, now_ms)

    def any_due(self, now_ms: int) -> bool:
        return any(self.due(part, now_ms) for part in (*self.left, THE_END))

    def said(self, part: slicing.Slice) -> tuple[str, ...]:
        """Why it was not applied when it was last tried."""
        return self.broken.said(part) or self.waiting.said(part)

    def waits(
        self, part: slicing.Slice, words: Sequence[str], hosts: Iterable[str], now_ms: int
    ) -> None:
        """A part has to wait. The end waits because of these hosts."""
        self.waiting.broke(part, tuple(words), now_ms)
        for key in (*_keys(self.wanted, part), *(("host", name) for name in hosts)):
            self.touching.setdefault(key, set()).add(part)

    def saw(self, changes: Iterable[Change]) -> None:
        """What was committed: what had to wait because of that may not have to any more."""
        if not self.touching:
            return
        for key in {key for change in changes for key in _touched(change)}:
            for part in self.touching.pop(key, ()):
                self.waiting.mended(part)

    def next_pass(self) -> asyncio.Future[tuple[str, ...]]:
        """What the next pass comes to: what the last came to may not be true any more.

        It tries all that has to wait.
        """
        self.waiting = Retries(WAITS_MS_MAX)
        if self.passed.done():
            self.passed = asyncio.get_running_loop().create_future()
        return self.passed


def begin(text: str, wanted: slicing.ByScope, slices: Iterable[slicing.Slice]) -> InventoryWork:
    return InventoryWork(text, wanted, deque(slices), asyncio.get_running_loop().create_future())


def _keys(wanted: slicing.ByScope, part: slicing.Slice) -> Iterator[Key]:
    """What may forbid a part: events in its scopes, and what is on the hosts of its VMs."""
    for name in slicing.names_of(part):
        yield "scope", name
        for entry in wanted.members.get(name, ()):
            yield "host", entry.host


def _touched(change: Change) -> Iterator[Key]:
    for before, after in change.scopes:
        yield "scope", after.name
        there = {(vm.name, vm.host) for vm in after.vms}
        for vm in before.vms if before is not None else ():
            if (vm.name, vm.host) not in there:
                yield "host", vm.host
    for name in change.removed_scopes:
        yield "scope", name
    for _, host in change.hosts:
        yield "host", host.name
    for _, operation in change.operations:
        yield "host", operation.host
