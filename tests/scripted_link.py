"""A link to a control plane that does what a test says. No test lives here."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from forewarn.core.model import Outcome
from forewarn.wire.link import Work
from unasked_link import UnaskedLink

Report = tuple[str, str, int, Outcome, str]


class ScriptedLink:
    """The links of all hosts: hands out what is in `to_do`, keeps what it is told, fails when told
    to. `of` is the link of one host.
    """

    def __init__(self) -> None:
        self.to_do: dict[str, list[Work]] = {}
        self.heartbeats: list[tuple[str, dict[str, int]]] = []
        self.refusals_told: list[str] = []
        self.claims: list[tuple[str, str]] = []
        self.reports: list[Report] = []
        self.confirmed: list[tuple[str, str, int]] = []
        self.kept_waiting: dict[str, asyncio.Event] = {}  # confirmations of hosts, until it is set
        self.asked_to_confirm: list[str] = []
        self.refusals: dict[str, list[Exception]] = {}
        self.lost_claims: set[tuple[str, str, int]] = set()

    def of(self, host: str) -> ScriptedHostLink:
        """`ports.HostLink` for one host."""
        return ScriptedHostLink(self, host)

    def refuse(self, call: str, *errors: Exception) -> None:
        """Let the next calls of this name raise these, one each."""
        self.refusals.setdefault(call, []).extend(errors)

    def _meets(self, call: str) -> None:
        if self.refusals.get(call):
            raise self.refusals[call].pop(0)

    async def heartbeat(self, host: str, holding: Mapping[str, int], refuses: str = "") -> None:
        self._meets("heartbeat")
        self.refusals_told.append(refuses)
        self.heartbeats.append((host, dict(holding)))

    async def claim(self, host: str, boot_id: str) -> Sequence[Work]:
        self._meets("claim")
        self.claims.append((host, boot_id))
        return self.to_do.pop(host, [])

    async def holds(self, host: str, action_id: str, epoch: int) -> bool:
        self._meets("holds")
        return (host, action_id, epoch) not in self.lost_claims

    async def report(
        self, host: str, action_id: str, *, epoch: int, outcome: Outcome, detail: str
    ) -> None:
        self._meets("report")
        self.reports.append((host, action_id, epoch, outcome, detail))

    async def confirm(self, host: str, scope: str, incarnation: int) -> None:
        self.asked_to_confirm.append(host)
        if host in self.kept_waiting:
            await self.kept_waiting[host].wait()
        self._meets("confirm")
        self.confirmed.append((host, scope, incarnation))


class ScriptedHostLink(UnaskedLink):
    """What one host says."""

    def __init__(self, script: ScriptedLink, host: str) -> None:
        self._script = script
        self._host = host

    async def heartbeat(self, holding: Mapping[str, int], refuses: str = "") -> None:
        await self._script.heartbeat(self._host, holding, refuses)

    async def claim(self, boot_id: str) -> Sequence[Work]:
        return await self._script.claim(self._host, boot_id)

    async def holds(self, action_id: str, epoch: int) -> bool:
        return await self._script.holds(self._host, action_id, epoch)

    async def report(self, action_id: str, *, epoch: int, outcome: Outcome, detail: str) -> None:
        await self._script.report(
            self._host, action_id, epoch=epoch, outcome=outcome, detail=detail
        )

    async def confirm(self, scope: str, incarnation: int) -> None:
        await self._script.confirm(self._host, scope, incarnation)
