"""One thing said in a turn, for tests that speak as a host. No test lives here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from forewarn.adapters.control_link import refusals_by_code
from forewarn.core.model import Outcome
from forewarn.ports import HostLink
from forewarn.wire.link import Ended, NotTaken, Turn, TurnTaken, Work


def raise_refused(refused: Mapping[str, NotTaken]) -> None:
    """What a part of a turn is refused with, raised."""
    for why in refused.values():
        raise refusals_by_code()[why.code](why.detail, why.remedy)


class Saying:
    """A link, and each part of a turn as a question of its own. What is refused is raised."""

    def __init__(self, link: HostLink) -> None:
        self.link = link

    def __getattr__(self, name: str) -> Any:
        """Every other question is that of the link."""
        return getattr(self.link, name)

    async def turn(self, said: Turn) -> TurnTaken:
        return await self.link.turn(said)

    async def claim(self, boot_id: str) -> Sequence[Work]:
        return await self.link.claim(boot_id)

    async def holds(self, action_id: str, epoch: int) -> bool:
        return await self.link.holds(action_id, epoch)

    async def heartbeat(self, holding: Mapping[str, int] | None = None) -> TurnTaken:
        return await self.link.turn(Turn(holding=dict(holding or {})))

    async def confirm(self, scope: str, incarnation: int) -> None:
        raise_refused((await self.link.turn(Turn(confirms={scope: incarnation}))).refused_confirms)

    async def report(self, action_id: str, *, epoch: int, outcome: Outcome, detail: str) -> None:
        ended = Turn(ended=(Ended(action_id, epoch, outcome.value, detail),))
        raise_refused((await self.link.turn(ended)).refused_ended)
