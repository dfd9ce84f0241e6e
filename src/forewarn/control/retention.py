"""Prunes what has ended long ago, slice by slice, and writes down what went.

`core.retention` says what may go; the store finds it.
"""

from __future__ import annotations

import asyncio

from forewarn.control.commands import Prune
from forewarn.control.control import Control
from forewarn.control.transaction import Transaction
from forewarn.core.errors import Refusal, Unavailable
from forewarn.core.principal import CLOCK
from forewarn.core.retention import Prunable, prune_before_ms, pruned_fact
from forewarn.logs import Log

PRUNE_FIRST_AFTER_S = 60.0  # after the start: there is enough to do then
PRUNE_EVERY_S = 24 * 3_600.0
SLICES_APART_S = 0.2  # so that guests and operators are answered in between

log = Log(__name__)


def prune(tx: Transaction, command: Prune) -> Prunable:
    """Take one slice away. An empty answer says that nothing is left to take."""
    before_ms = prune_before_ms(tx.now_ms, command.retention_days)
    if before_ms is None:
        return Prunable()
    found = tx.prunable(before_ms)
    if found:
        fact = pruned_fact(found, before_ms=before_ms, now_ms=tx.now_ms, by=command.by)
        tx.prune(found, fact)
    return found


class RetentionLoop:
    """Prunes once a day, for as long as the service runs. Nothing at all with 0 days."""

    def __init__(
        self,
        control: Control,
        retention_days: int,
        *,
        first_after_s: float = PRUNE_FIRST_AFTER_S,
        every_s: float = PRUNE_EVERY_S,
        apart_s: float = SLICES_APART_S,
    ) -> None:
        self._control = control
        self._days = retention_days
        self._first_after_s = first_after_s
        self._every_s = every_s
        self._apart_s = apart_s

    async def run(self) -> None:
        """Until canceled."""
        await asyncio.sleep(self._first_after_s)
        while True:
            await self._prune_all()
            await asyncio.sleep(self._every_s)

    async def _prune_all(self) -> None:
        """Slice after slice until nothing is left; what cannot be written waits for the next."""
        command = Prune(by=CLOCK, retention_days=self._days)
        slices = 0
        try:
            while await self._control.submit(command):
                slices += 1
                await asyncio.sleep(self._apart_s)
        except (Refusal, Unavailable) as why:
            log.warning("pruning_put_off", why=str(why))
        if slices:
            log.info("pruned", slices=slices)
