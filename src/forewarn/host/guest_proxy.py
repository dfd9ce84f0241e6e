"""What guests cause, told to control over the link (`endpoint.service.Service`).

Approvals and enabling are asked at once: what control has not made durable was not answered. First
reads, polls and returns are gathered for the host's turns, as ages; the queues are bounded, and
what does not fit is counted and dropped.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from itertools import islice
from typing import NamedTuple

from forewarn.core.errors import NotYours, Refusal, Unavailable
from forewarn.doorbell import rung
from forewarn.ports import HostLink
from forewarn.wire.link import FIRST_READS_MAX, POLLS_MAX, RETURNED_MAX, ReadBefore

TRACES_SENT_EVERY_S = 0.5
POLLS_SENT_EVERY_S = 300.0  # by scope: each is a write
VM_POLLS_SENT_EVERY_S = 10.0  # by VM: control only remembers them
FIRST_READS_QUEUED_MAX = 50_000
RETURNED_QUEUED_MAX = 10_000
REBOOT_TOLD_MS = 60_000  # a guest that boots in a loop does not fill the journal


class _Read(NamedTuple):
    scope: str
    event_id: str
    vm: str
    at_monotonic_ms: int


class Traces(NamedTuple):
    """What guests did in passing, as a turn says it; polls and returns also as they were kept."""

    first_reads: tuple[ReadBefore, ...] = ()
    polls: dict[str, int] = {}  # noqa: RUF012 - no code changes it
    returned: tuple[str, ...] = ()
    rebooted: tuple[str, ...] = ()
    polled_ms: Mapping[str, int] = {}
    returns: Mapping[str, int] = {}  # by VM: which of its returns
    vm_polls: dict[str, int] = {}  # noqa: RUF012 - no code changes it
    vm_polled_ms: Mapping[str, int] = {}


NOTHING = Traces()


class GuestProxy:
    """The guests of one host, as control hears of them. Belongs to the event loop.

    `polled` gives the last polls by scope, `vm_polled` by VM, in the time of `now_ms`. `want_turn`
    has the host say soon what is gathered here.
    """

    def __init__(
        self,
        link: HostLink,
        *,
        polled: Callable[[], Mapping[str, int]],
        now_ms: Callable[[], int],
        monotonic_ms: Callable[[], int],
        want_turn: Callable[[], None] = lambda: None,
        vm_polled: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self._link = link
        self._want_turn = want_turn
        self._polled = polled
        self._vm_polled = vm_polled
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms
        self._reads: deque[_Read] = deque()
        self._returned: dict[str, int] = {}  # by VM: the number of its last return
        self._returns = 0
        self._rebooted: dict[str, None] = {}  # an ordered set, by VM
        self._reboot_noted_ms: dict[str, int] = {}
        self._polls: dict[str, int] = {}
        self._vm_polls: dict[str, int] = {}
        self._ring = asyncio.Event()
        self.dropped = 0

    # endpoint.service.Service.

    async def approve(self, vm: str, event_ids: tuple[str, ...]) -> None:
        try:
            await self._link.approve(vm, event_ids)
        except NotYours as why:  # another tool brought it here; control does not know yet
            raise Unavailable(str(why)) from why

    async def enable(self, scope: str, vm: str) -> None:
        try:
            await self._link.enable(scope, vm)
        except Refusal as why:  # the VM has left since: the next poll finds it elsewhere
            raise Unavailable(str(why)) from why

    def first_read(self, vm: str, scope: str, event_ids: frozenset[str]) -> None:
        now_ms = self._monotonic_ms()
        for event_id in sorted(event_ids):
            if len(self._reads) >= FIRST_READS_QUEUED_MAX:
                self.dropped += 1
            else:
                self._reads.append(_Read(scope, event_id, vm, now_ms))
        self._ring.set()

    def returned(self, vm: str) -> None:
        if len(self._returned) >= RETURNED_QUEUED_MAX and vm not in self._returned:
            self.dropped += 1
            return
        self._returns += 1
        self._returned[vm] = self._returns
        self._ring.set()

    def rebooted(self, vm: str) -> None:
        """A VM was rebooted, and not by an action of ours. Of a loop one a minute is told."""
        now_ms = self._monotonic_ms()
        noted = self._reboot_noted_ms
        for name in [name for name, at_ms in noted.items() if now_ms - at_ms >= REBOOT_TOLD_MS]:
            del noted[name]
        if vm in noted:
            return
        if len(noted) >= RETURNED_QUEUED_MAX or len(self._rebooted) >= RETURNED_QUEUED_MAX:
            self.dropped += 1
            return
        noted[vm] = now_ms
        self._rebooted[vm] = None
        self._ring.set()

    # Telling.

    async def run(self) -> None:
        """Have what is gathered told until canceled."""
        loop = asyncio.get_running_loop()
        polls_at_s = loop.time() + POLLS_SENT_EVERY_S
        vm_polls_at_s = loop.time() + VM_POLLS_SENT_EVERY_S
        while True:
            await rung(self._ring, max(0.0, min(polls_at_s, vm_polls_at_s) - loop.time()))
            self._ring.clear()
            if loop.time() >= vm_polls_at_s:
                vm_polls_at_s = loop.time() + VM_POLLS_SENT_EVERY_S
                self.gather_vm_polls()
            if loop.time() >= polls_at_s:
                polls_at_s = loop.time() + POLLS_SENT_EVERY_S
                self.gather_polls()
            self._want_turn()
            await asyncio.sleep(TRACES_SENT_EVERY_S)

    @property
    def waiting(self) -> bool:
        """True while there is something that control has not been told."""
        return self._queued > 0

    @property
    def reads_waiting(self) -> int:
        """First reads that control has not been told."""
        return len(self._reads)

    async def tell_all(self, say: Callable[[], Awaitable[object]]) -> None:
        """Tell everything, by as many turns as it takes, each by `say`."""
        left = self._queued + 1
        while 0 < self._queued < left:  # else control does not listen
            left = self._queued
            await say()

    @property
    def _queued(self) -> int:
        waiting = (self._reads, self._returned, self._rebooted, self._polls, self._vm_polls)
        return sum(map(len, waiting))

    def add_polls(self, polls: Mapping[str, int]) -> None:
        """Have these polls, by scope, told with the next turn."""
        self._polls.update(polls)

    def add_vm_polls(self, polls: Mapping[str, int]) -> None:
        """Have these polls, by VM, told with the next turn."""
        self._vm_polls.update(polls)

    def gather_vm_polls(self) -> None:
        """Have the last polls of VMs told with the next turn."""
        self._vm_polls.update(self._vm_polled())

    def gather_polls(self) -> None:
        """Have the last polls told with the next turn."""
        self._polls.update(self._polled())

    def gathered(self) -> Traces:
        """What there is to tell, as much as a turn holds. It is kept until it was `told`."""
        if not self.waiting:
            return NOTHING
        monotonic_ms, now_ms = self._monotonic_ms(), self._now_ms()
        polled_ms = dict(islice(self._polls.items(), POLLS_MAX))
        vm_polled_ms = dict(islice(self._vm_polls.items(), POLLS_MAX))
        returns = dict(islice(self._returned.items(), RETURNED_MAX))
        return Traces(
            first_reads=tuple(
                ReadBefore(r.scope, r.event_id, r.vm, max(0, monotonic_ms - r.at_monotonic_ms))
                for r in islice(self._reads, FIRST_READS_MAX)
            ),
            polls={scope: max(0, now_ms - at_ms) for scope, at_ms in polled_ms.items()},
            returned=tuple(returns),
            rebooted=tuple(islice(self._rebooted, RETURNED_MAX)),
            polled_ms=polled_ms,
            returns=returns,
            vm_polls={vm: max(0, now_ms - at_ms) for vm, at_ms in vm_polled_ms.items()},
            vm_polled_ms=vm_polled_ms,
        )

    def told(self, traces: Traces) -> None:
        """Control has taken this: it need not be told again.

        A VM that has returned once more since is: control may wait for it anew by then.
        """
        for _ in traces.first_reads:
            self._reads.popleft()
        for vm, number in traces.returns.items():
            if self._returned.get(vm) == number:
                del self._returned[vm]
        for vm in traces.rebooted:
            self._rebooted.pop(vm, None)
        for scope, at_ms in traces.polled_ms.items():
            if self._polls.get(scope) == at_ms:
                del self._polls[scope]
        for vm, at_ms in traces.vm_polled_ms.items():
            if self._vm_polls.get(vm) == at_ms:
                del self._vm_polls[vm]
        if self.waiting:
            self._ring.set()
