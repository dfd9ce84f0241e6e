"""What one host says to control: everything there is by now, in one question.

Every turn is a sign of life. What control has not taken is said again in the next one, so all of it
may be said twice.
"""

from __future__ import annotations

from collections.abc import Callable

from forewarn.host.confirmations import Confirmations
from forewarn.host.executor import Executor
from forewarn.host.guest_proxy import NOTHING, GuestProxy
from forewarn.ports import HostLink
from forewarn.wire.link import Turn


class Turns:
    """The turns of one host, one at a time. `guests` are those whose traces it tells.

    `refuses` says why the host obeys nothing of this control, in words with the remedy. `work` is
    told whether control has something for the host to claim, None if it does not say.
    """

    def __init__(
        self,
        host: str,
        *,
        link: HostLink,
        confirming: Confirmations,
        guests: Callable[[], GuestProxy | None],
        refuses: Callable[[], str],
        work: Callable[[bool | None], None] = lambda _: None,
    ) -> None:
        self._host = host
        self._link = link
        self._confirming = confirming
        self._guests = guests
        self._refuses = refuses
        self._work = work

    def waiting(self, executor: Executor) -> bool:
        """True while there is something to say, besides that the host is there."""
        guests = self._guests()
        if executor.ended or (guests is not None and guests.waiting):
            return True
        return not self._refuses() and bool(self._confirming.ready(self._host))

    async def once(self, executor: Executor) -> bool:
        """Say what there is to say. False if some of it has to be said again, and not at once."""
        guests = self._guests()
        refuses = self._refuses()
        # What a host that refuses its control shows is not what that one knows by the number.
        confirms = {} if refuses else self._confirming.ready(self._host)
        traces = NOTHING if guests is None else guests.gathered()
        said = Turn(
            holding=executor.holding,
            refuses=refuses,
            confirms=confirms,
            first_reads=traces.first_reads,
            polls=traces.polls,
            returned=traces.returned,
            ended=executor.ended,
            vm_polls=traces.vm_polls,
            rebooted=traces.rebooted,
        )
        self._confirming.said(self._host, confirms)
        began_ms = executor.now_ms()
        taken = await self._link.turn(said)
        executor.told(said, taken, at_ms=began_ms)
        self._work(taken.work)
        self._confirming.told(self._host, confirms, taken.refused_confirms)
        if guests is not None:
            guests.told(traces)
        return not taken.refused_confirms
