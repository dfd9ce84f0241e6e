"""A link to a control plane that does what a test says. No test lives here."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from forewarn.core.errors import Refusal
from forewarn.core.model import Outcome
from forewarn.wire.link import NotTaken, Turn, TurnTaken, Work
from support.unasked_link import UnaskedLink

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
        self.work: dict[str, bool] = {}  # by host, what turns are answered; nothing if not in here

    def of(self, host: str) -> ScriptedHostLink:
        """`ports.HostLink` for one host."""
        return ScriptedHostLink(self, host)

    def refuse(self, call: str, *errors: Exception) -> None:
        """Let the next calls of this name raise these, one each."""
        self.refusals.setdefault(call, []).extend(errors)

    def _meets(self, call: str) -> None:
        if self.refusals.get(call):
            raise self.refusals[call].pop(0)

    async def turn(self, host: str, said: Turn) -> TurnTaken:
        """What is to be refused refuses its part, or everything if it is no Refusal."""
        if said.confirms:
            self.asked_to_confirm.append(host)
            if host in self.kept_waiting:
                await self.kept_waiting[host].wait()
        confirms: dict[str, NotTaken] = {}
        ended: dict[str, NotTaken] = {}
        self._meets("turn")
        for scope, incarnation in said.confirms.items():
            if not self._refuses("confirm", confirms, scope):
                self.confirmed.append((host, scope, incarnation))
        for one in said.ended:
            if not self._refuses("report", ended, one.action_id):
                outcome = Outcome(one.outcome)
                self.reports.append((host, one.action_id, one.epoch, outcome, one.detail))
        self.refusals_told.append(said.refuses)
        self.heartbeats.append((host, dict(said.holding)))
        lost = (a for a, epoch in said.holding.items() if (host, a, epoch) in self.lost_claims)
        return TurnTaken(
            lost=tuple(lost),
            work=self.work.get(host),
            refused_confirms=confirms,
            refused_ended=ended,
        )

    def _refuses(self, call: str, refused: dict[str, NotTaken], name: str) -> bool:
        try:
            self._meets(call)
        except Refusal as why:
            refused[name] = NotTaken(why.code, why.refused, why.accepted)
            return True
        return False

    async def claim(self, host: str, boot_id: str) -> Sequence[Work]:
        self._meets("claim")
        self.claims.append((host, boot_id))
        return self.to_do.pop(host, [])

    async def holds(self, host: str, action_id: str, epoch: int) -> bool:
        self._meets("holds")
        return (host, action_id, epoch) not in self.lost_claims


class ScriptedHostLink(UnaskedLink):
    """What one host says."""

    def __init__(self, script: ScriptedLink, host: str) -> None:
        self._script = script
        self._host = host

    async def turn(self, said: Turn) -> TurnTaken:
        return await self._script.turn(self._host, said)

    async def claim(self, boot_id: str) -> Sequence[Work]:
        return await self._script.claim(self._host, boot_id)

    async def holds(self, action_id: str, epoch: int) -> bool:
        return await self._script.holds(self._host, action_id, epoch)
