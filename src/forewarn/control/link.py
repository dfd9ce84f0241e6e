"""The link between hosts and control when both live in one process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from forewarn.control import metadata
from forewarn.control.control import Control
from forewarn.core.model import Action, Outcome


class LocalLink:
    """`ports.HostLink` by plain calls."""

    def __init__(self, control: Control) -> None:
        self._control = control

    async def heartbeat(self, host: str, holding: Mapping[str, int], refuses: str = "") -> None:
        await self._control.heartbeats.take(host, holding, refuses)

    async def claim(self, host: str, boot_id: str) -> Sequence[Action]:
        return await self._control.submit(self._control.dispatch.claim(host, boot_id))

    async def holds(self, host: str, action_id: str, epoch: int) -> bool:
        return await self._control.submit(self._control.dispatch.holds(host, action_id, epoch))

    async def report(
        self, host: str, action_id: str, *, epoch: int, outcome: Outcome, detail: str
    ) -> None:
        await self._control.submit(
            self._control.dispatch.report(
                host, action_id, epoch=epoch, outcome=outcome, detail=detail
            )
        )

    async def confirm(self, host: str, scope: str, incarnation: int) -> None:
        await self._control.submit(metadata.confirm(host, scope, incarnation))
