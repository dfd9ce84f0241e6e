"""Carries out what was written down: claim, look, act, report. One executor per host.

It keeps nothing that matters. If it dies, its claims lapse, and the next one looks at what has
really happened before it acts again.
"""

from __future__ import annotations

from collections.abc import Callable

from forewarn.core.errors import Refusal, Unavailable
from forewarn.core.model import ActionKind, Outcome
from forewarn.logs import Log
from forewarn.ports import (
    HostLink,
    Hypervisor,
    HypervisorFailed,
    Sight,
    SightKind,
    WorkOrder,
)
from forewarn.wire.link import Work

log = Log(__name__)

_OUTCOMES = {
    SightKind.DONE: Outcome.DONE,
    SightKind.FAILED: Outcome.FAILED,
    SightKind.UNSURE: Outcome.LOST,
    SightKind.SPARED: Outcome.SPARED,
}


_KINDS = frozenset(kind.value for kind in ActionKind)


class Executor:
    """The hands of one host. `step` does one round and never waits for an action to end.

    While `obeys` says no, nothing is claimed and nothing is begun; what was begun is finished and
    reported. `refuses` has the words for control, in every heartbeat.
    """

    def __init__(
        self,
        host: str,
        *,
        link: HostLink,
        hypervisor: Hypervisor,
        obeys: Callable[[], bool] = lambda: True,
        refuses: Callable[[], str] = lambda: "",
    ) -> None:
        self.host = host
        self._obeys = obeys
        self._refuses = refuses
        self._link = link
        self._hypervisor = hypervisor
        self._held: dict[str, WorkOrder] = {}
        self._unseen: set[str] = set()
        self._unreachable = False
        self._claimed_in = ""  # the boot id

    @property
    def busy(self) -> bool:
        """True while the host holds claims, so that it wants its next step soon."""
        return bool(self._held)

    async def heartbeat(self) -> None:
        """Tell control that the host is there and what it still works on."""
        await self._link.heartbeat(
            {action.action_id: action.epoch for action in self._held.values()},
            self._refuses(),
        )

    @property
    def held(self) -> int:
        """How many claims the host holds."""
        return len(self._held)

    async def step(self, *, claim: bool = True, work: bool = True) -> None:
        """Claim what is there, then look at everything held: begin it, or report its end.

        Without `claim` only what is held already is looked at, unless the host has booted since it
        last claimed, which is how it says so; without `work` nothing is looked at.
        """
        try:
            boot_id = await self._hypervisor.boot_id(self.host)
        except HypervisorFailed as failed:
            if not self._unreachable:
                log.warning("hypervisor_unreachable", host=self.host, reason=str(failed))
            self._unreachable = True
            return
        self._unreachable = False
        if (claim or boot_id != self._claimed_in) and self._obeys():
            for one in await self._link.claim(boot_id):
                await self._hold(one)
            self._claimed_in = boot_id
        for action in list(self._held.values()) if work else ():
            await self._work_on(action)

    async def _hold(self, work: Work) -> None:
        """Hold a claim. What a newer control wants and this host cannot do has failed."""
        if work.kind not in _KINDS:
            log.error("work_not_known", host=self.host, action=work.action_id, kind=work.kind)
            why = f"this host does not know how to {work.kind}; upgrade its daemon"
            await self._link.report(
                work.action_id, epoch=work.epoch, outcome=Outcome.FAILED, detail=why
            )
            return
        self._held[work.action_id] = WorkOrder(
            action_id=work.action_id,
            kind=ActionKind(work.kind),
            host=work.host,
            vm=work.vm,
            target_host=work.target_host,
            duration_s=work.duration_s,
            epoch=work.epoch,
            boot_id=work.boot_id,
            only_off=work.only_off,
            about=work.about,
            left_ms=work.left_ms,
        )

    async def _work_on(self, action: WorkOrder) -> None:
        try:
            sight = await self._hypervisor.look(self.host, action)
        except HypervisorFailed as failed:
            # Nobody knows what has happened; the next step looks again, up to the deadline.
            if action.action_id not in self._unseen:
                log.warning("look_failed", host=self.host, action=action.action_id, why=str(failed))
            self._unseen.add(action.action_id)
            return
        self._unseen.discard(action.action_id)
        if sight.kind is SightKind.NOT_BEGUN:
            if not await self._may_begin(action):
                del self._held[action.action_id]
                return
            try:
                await self._hypervisor.begin(self.host, action)
            except HypervisorFailed as failed:
                sight = Sight(failed.kind, str(failed))
            else:
                return
        if sight.kind is SightKind.UNDER_WAY:
            return
        outcome = _OUTCOMES[sight.kind]
        try:
            await self._link.report(
                action.action_id,
                epoch=action.epoch,
                outcome=outcome,
                detail=sight.detail,
            )
        except Unavailable:
            return  # not kept: the next step looks and reports again
        except Refusal as refusal:
            # The claim is no longer ours; whoever holds it now looks for itself.
            log.warning("report_refused", host=self.host, action=action.action_id, why=str(refusal))
        del self._held[action.action_id]

    async def _may_begin(self, action: WorkOrder) -> bool:
        """Whether to begin what was claimed; if not, the claim lapses.

        It may have lapsed, or its event have ended, while this host was away. What was right to do
        then would hit a VM without notice now. And control may have shown meanwhile, in documents
        that are refused, that its word does not count.
        """
        if not await self._link.holds(action.action_id, action.epoch):
            log.warning("claim_dropped", host=self.host, action=action.action_id)
            return False
        if not self._obeys():
            log.warning("claim_not_obeyed", host=self.host, action=action.action_id)
            return False
        return True
