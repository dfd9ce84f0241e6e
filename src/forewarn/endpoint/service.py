"""What the endpoint asks of the service behind it, and what it counts.

Only the Protocol and the counters live here. Who implements the Protocol is not known here.
"""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from forewarn.wire.problems import RATE_LIMIT


class Service(Protocol):
    """What a poll or an approval may cause. Called on the event loop's thread only."""

    async def approve(self, vm: str, event_ids: tuple[str, ...]) -> None:
        """Durable when it returns. UnknownEventIds or Unavailable otherwise: nothing was done."""
        ...

    async def enable(self, scope: str, vm: str) -> None:
        """The scope is durably enabled when it returns; Unavailable otherwise."""
        ...

    def first_read(self, vm: str, scope: str, event_ids: frozenset[str]) -> None:
        """The VM was sent a document with these events for the first time. Cheap, never raises."""
        ...

    def returned(self, vm: str) -> None:
        """A VM that was expected back has polled. Cheap, never raises."""
        ...


class Counters:
    """Plain numbers for /metrics. They only grow, except the two that say how many there are now.

    Polls and what is over the rate are counted apart, because there are many of them: `answers` and
    `refused` add everything up.
    """

    __slots__ = (
        "approvals",
        "connections",
        "failures",
        "first_reads",
        "others",
        "parked",
        "polls_200",
        "polls_304",
        "refusals",
        "throttled",
        "waits",
    )

    def __init__(self) -> None:
        self.polls_200 = 0
        self.polls_304 = 0
        self.waits = 0  # polls that were parked, ever
        self.parked = 0  # polls that are parked now
        self.connections = 0  # open now
        self.approvals = 0  # POSTs answered 200
        self.first_reads = 0  # pairs of VM and event
        self.failures = 0  # errors of ours, each of them logged
        self.others: Counter[int] = Counter()  # answers that are no polls, by status
        self.refusals: Counter[str] = Counter()  # by the reason of the problem
        self.throttled = 0  # requests of VMs over their rate, answered 429

    def answers(self) -> dict[int, int]:
        """Every answer given so far, by status."""
        total = Counter(self.others)
        if self.throttled:
            total[429] += self.throttled
        total[200] += self.polls_200
        total[304] += self.polls_304
        return dict(total)

    def refused(self) -> dict[str, int]:
        """Every refusal so far, by its reason."""
        total = Counter(self.refusals)
        if self.throttled:
            total[RATE_LIMIT] += self.throttled
        return dict(total)
