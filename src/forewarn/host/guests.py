"""What guests cause, told to control over the link (`endpoint.service.Service`).

Approvals and enabling are asked at once: what control has not made durable was not answered. First
reads, polls and returns are gathered and sent as ages; the queues are bounded, and what does not
fit is counted and dropped.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

from forewarn.core.errors import NotYours, Refusal, Unavailable
from forewarn.host.ringing import rung
from forewarn.logs import Log
from forewarn.ports import HostLink
from forewarn.wire.link import ReadBefore, Traces

log = Log(__name__)

TRACES_SENT_EVERY_S = 0.5
POLLS_SENT_EVERY_S = 300.0
FIRST_READS_QUEUED_MAX = 50_000
FIRST_READS_PER_QUESTION_MAX = 5_000
RETURNED_QUEUED_MAX = 10_000
SEND_AGAIN_S = 2.0


class _Read(NamedTuple):
    scope: str
    event_id: str
    vm: str
    at_monotonic_ms: int


class LinkedGuests:
    """The guests of one host, as control hears of them. Belongs to the event loop.

    `polled` gives the last polls by scope, in the time of `now_ms`.
    """

    def __init__(
        self,
        link: HostLink,
        *,
        polled: Callable[[], Mapping[str, int]],
        now_ms: Callable[[], int],
        monotonic_ms: Callable[[], int],
    ) -> None:
        self._link = link
        self._polled = polled
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms
        self._reads: deque[_Read] = deque()
        self._returned: dict[str, None] = {}
        self._polls: dict[str, int] = {}
        self._ring = asyncio.Event()
        self._why_not = ""
        self.dropped = 0
        self.failures = 0

    # endpoint.service.Service.

    async def approve(self, vm: str, event_ids: tuple[str, ...]) -> None:
        try:
            await self._link.approve(vm, event_ids)
        except NotYours as why:  # it came by other hands, and control has not been told yet
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
        self._returned[vm] = None
        self._ring.set()

    # Sending.

    async def run(self) -> None:
        """Send until canceled."""
        loop = asyncio.get_running_loop()
        polls_at_s = loop.time() + POLLS_SENT_EVERY_S
        while True:
            await rung(self._ring, max(0.0, polls_at_s - loop.time()))
            self._ring.clear()
            if loop.time() >= polls_at_s:
                polls_at_s = loop.time() + POLLS_SENT_EVERY_S
                self.gather_polls()
            sent = await self.send_safely()
            await asyncio.sleep(TRACES_SENT_EVERY_S if sent else SEND_AGAIN_S)
            if not sent:
                self._ring.set()

    async def send_safely(self) -> bool:
        """Send what is queued. False if it was put off, which is logged once for each reason."""
        try:
            await self.send()
        except (Refusal, Unavailable) as why:
            if str(why) != self._why_not:
                log.warning("guest_traces_put_off", why=str(why))
            self._why_not = str(why)
            return False
        except Exception:
            log.exception("guest_traces_failed")
            self.failures += 1
            return False
        self._why_not = ""
        return True

    def add_polls(self, polls: Mapping[str, int]) -> None:
        """Have these polls, by scope, sent with what is sent next."""
        self._polls.update(polls)

    def gather_polls(self) -> None:
        """Have the last polls sent with what is sent next."""
        self._polls.update(self._polled())

    async def send(self) -> None:
        """Send what is queued, and forget it. What control cannot take now stays queued."""
        while self._reads or self._returned or self._polls:
            reads = [self._reads[i] for i in range(self._at_once())]
            polls, returned = dict(self._polls), tuple(self._returned)
            try:
                await self._link.traces(self._as_ages(reads, polls, returned))
            except Refusal as why:  # no later question would be answered better
                self.dropped += len(reads)
                log.warning("guest_traces_refused", why=str(why), first_reads=len(reads))
            for _ in reads:
                self._reads.popleft()
            for vm in returned:
                self._returned.pop(vm, None)
            self._polls = {k: v for k, v in self._polls.items() if polls.get(k) != v}

    def _at_once(self) -> int:
        return min(len(self._reads), FIRST_READS_PER_QUESTION_MAX)

    def _as_ages(
        self, reads: list[_Read], polls: Mapping[str, int], returned: tuple[str, ...]
    ) -> Traces:
        monotonic_ms, now_ms = self._monotonic_ms(), self._now_ms()
        return Traces(
            first_reads=tuple(
                ReadBefore(r.scope, r.event_id, r.vm, max(0, monotonic_ms - r.at_monotonic_ms))
                for r in reads
            ),
            polls={scope: max(0, now_ms - at_ms) for scope, at_ms in polls.items()},
            returned=returned,
        )
