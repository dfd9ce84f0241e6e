"""The link of a host in the process of control: the handlers of the HTTPS side, not encoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from forewarn.api.link.routes import Asker, LinkRoutes
from forewarn.core.inventory.host_report import SeenVm
from forewarn.wire import link as wire
from forewarn.wire.link_values import vm_seen


class InProcessLink:
    """`ports.HostLink` for one host. What it may say, and what it is refused, is the same.

    It is no member, and has no life of its own apart from control: its key is the process.
    """

    def __init__(self, routes: LinkRoutes, host: str) -> None:
        self._routes = routes
        self._asker = Asker(host, here=True)

    async def changes(self, since: wire.Since | None, wait_s: int) -> wire.Changes:
        return await self._routes.changes_as_values(self._asker, wire.AskChanges(since, wait_s))

    async def turn(self, said: wire.Turn) -> wire.TurnTaken:
        taken = self._routes.turn_at_once(self._asker, said)
        return await self._routes.turn(self._asker, said) if taken is None else taken

    async def claim(self, boot_id: str) -> Sequence[wire.Work]:
        return (await self._routes.claim(self._asker, wire.Claim(boot_id))).work

    async def holds(self, action_id: str, epoch: int) -> bool:
        return (await self._routes.holds(self._asker, wire.Holds(action_id, epoch))).holds

    async def targets(self, vms: Sequence[str]) -> Mapping[str, str | None]:
        return (await self._routes.targets(self._asker, wire.AskTargets(tuple(vms)))).targets

    async def definition(self, vm: str) -> str | None:
        return (await self._routes.definition(self._asker, wire.AskDefinition(vm))).definition

    async def sight(self, vms: Sequence[SeenVm], boot_id: str = "") -> Mapping[str, str]:
        shown = wire.Sighting(tuple(map(vm_seen, vms)), boot_id)
        return (await self._routes.sight(self._asker, shown)).problems

    async def blind(self, why: str) -> None:
        await self._routes.blind(self._asker, wire.Blind(why))

    async def adopted(self, adoption_id: str, problem: str) -> None:
        await self._routes.adopted(self._asker, wire.Adopted(adoption_id, problem))

    async def approve(self, vm: str, event_ids: tuple[str, ...]) -> None:
        await self._routes.approve(self._asker, wire.Approve(vm, event_ids))

    async def enable(self, scope: str, vm: str) -> None:
        await self._routes.enable(self._asker, wire.Enable(scope, vm))
