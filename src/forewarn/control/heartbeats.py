"""Heartbeats of hosts, taken on the event loop. Few of them have to be written down."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from forewarn.control.commands import Renew
from forewarn.core import notice
from forewarn.core.principal import the_host

if TYPE_CHECKING:
    from forewarn.control.control import Control


class Heartbeats:
    """Takes heartbeats of all hosts. Belongs to the event loop."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def take(self, host: str, holding: Mapping[str, int], refuses: str = "") -> None:
        """The host is there, and still works on the claims in `holding` (action id, epoch).

        `refuses` says why it obeys nothing of this control: then nothing starts there. The writer
        is asked only if a silence has ended, which costs notices time, or if leases are to be
        renewed. Raises NotFound, and Unavailable if a silence could not be written down: then it
        is not forgotten.
        """
        async with self._turns[host]:
            control = self._control
            control.fleet.need_host(host)
            at_ms = control.lease_clock.monotonic_ms()
            late = control.observed.silent_ms(host) > notice.HEARTBEAT_LATE_MS
            if late or holding or control.fleet.acts(host):
                await control.submit(
                    Renew(by=the_host(host), host=host, holding=dict(holding), refuses=refuses)
                )
            control.observed.heard(host, at_ms=at_ms, refuses=refuses)
