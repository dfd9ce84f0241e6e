"""A link that nobody is to ask anything; tests override what their story needs. No test here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from forewarn.core.inventory.host_report import SeenVm
from forewarn.wire.link import Changes, Since, Turn, TurnTaken, Work


class UnaskedLink:
    """`ports.HostLink`: every question is a mistake."""

    async def changes(self, since: Since | None, wait_s: int) -> Changes:
        raise AssertionError(("changes", since, wait_s))

    async def turn(self, said: Turn) -> TurnTaken:
        raise AssertionError(("turn", said))

    async def claim(self, boot_id: str) -> Sequence[Work]:
        raise AssertionError(("claim", boot_id))

    async def holds(self, action_id: str, epoch: int) -> bool:
        raise AssertionError(("holds", action_id, epoch))

    async def targets(self, vms: Sequence[str]) -> Mapping[str, str | None]:
        raise AssertionError(("targets", vms))

    async def definition(self, vm: str) -> str | None:
        raise AssertionError(("definition", vm))

    async def sight(self, vms: Sequence[SeenVm], boot_id: str = "") -> Mapping[str, str]:
        raise AssertionError(("sight", vms, boot_id))

    async def blind(self, why: str) -> None:
        raise AssertionError(("blind", why))

    async def adopted(self, adoption_id: str, problem: str) -> None:
        raise AssertionError(("adopted", adoption_id, problem))

    async def approve(self, vm: str, event_ids: tuple[str, ...]) -> None:
        raise AssertionError(("approve", vm, event_ids))

    async def enable(self, scope: str, vm: str) -> None:
        raise AssertionError(("enable", scope, vm))
