"""Carries out what was written down: claim, look, act. One executor per host.

It keeps nothing that matters. If it dies, its claims lapse, and the next one looks at what has
really happened before it acts again.
"""

from __future__ import annotations

from collections.abc import Callable

from forewarn.core import deadlines
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
from forewarn.wire.link import ENDED_CHARS_MAX, ENDED_MAX, HOLDING_MAX, Ended, Turn, TurnTaken, Work

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

    While `obeys` says no, nothing is claimed and nothing is begun; what was begun is finished.
    `ended` is for control to be told, until `told` says that it was; `now_ms` is monotonic.
    """

    def __init__(
        self,
        host: str,
        *,
        link: HostLink,
        hypervisor: Hypervisor,
        now_ms: Callable[[], int],
        obeys: Callable[[], bool] = lambda: True,
    ) -> None:
        self.host = host
        self.now_ms = now_ms
        self._obeys = obeys
        self._link = link
        self._hypervisor = hypervisor
        self._held: dict[str, WorkOrder] = {}
        self._held_ms: dict[str, int] = {}  # when control was asked that last said so
        self._deadline_ms: dict[str, int] = {}  # of what is held; control may have put it off
        self._ended: dict[str, Ended] = {}
        self._unseen: set[str] = set()
        self._unreachable = False
        self._claimed_in = ""  # the boot id

    @property
    def busy(self) -> bool:
        """True while the host holds claims: it wants its next step soon, or has still to say how
        they ended.
        """
        return bool(self._held or self._ended)

    @property
    def holding(self) -> dict[str, int]:
        """The claims it works on, or has still to say how they ended: (action id, epoch)."""
        held = {action.action_id: action.epoch for action in self._held.values()}
        ended = {one.action_id: one.epoch for one in self._ended.values()}
        return dict(list((held | ended).items())[:HOLDING_MAX])

    @property
    def ended(self) -> tuple[Ended, ...]:
        """What control has not been told yet, or has not taken."""
        return tuple(self._ended.values())[:ENDED_MAX]

    def told(self, said: Turn, taken: TurnTaken, *, at_ms: int) -> None:
        """Control has taken a turn, which was said at that time."""
        for one in said.ended:
            why = taken.refused_ended.get(one.action_id)
            if why is not None:
                # The claim is no longer ours; the daemon that holds it now looks for itself.
                action, words = one.action_id, f"{why.detail} {why.remedy}".strip()
                log.warning("report_refused", host=self.host, action=action, why=words)
            if self._ended.get(one.action_id) is one:
                del self._ended[one.action_id]
        for action_id, epoch in said.holding.items():
            held = self._held.get(action_id)
            if held is None or held.epoch != epoch:
                continue
            if action_id in taken.lost:
                self._held_ms.pop(action_id, None)  # nothing is begun before control was asked
            else:
                self._held_ms[action_id] = at_ms

    @property
    def held(self) -> int:
        """How many claims the host holds."""
        return len(self._held)

    async def step(self, *, claim: bool = True, work: bool = True) -> bool:
        """Claim what is there, then look at everything held: begin it, or note its end.

        Without `claim` only what is held already is looked at, unless the host has booted since it
        last claimed, which is how it says so; without `work` nothing is looked at. True if control
        was asked for what there is, and has answered.
        """
        asked = False
        try:
            boot_id = await self._hypervisor.boot_id(self.host)
        except HypervisorFailed as failed:
            if not self._unreachable:
                log.warning("hypervisor_unreachable", host=self.host, reason=str(failed))
            self._unreachable = True
            return asked
        self._unreachable = False
        if (claim or boot_id != self._claimed_in) and self._obeys():
            asked_ms = self.now_ms()
            for one in await self._link.claim(boot_id):
                self._hold(one, asked_ms)
            self._claimed_in = boot_id
            asked = True
        for action in list(self._held.values()) if work else ():
            await self._work_on(action)
        return asked

    def _hold(self, work: Work, asked_ms: int) -> None:
        """Hold a claim. What a newer control wants and this host cannot do has failed."""
        self._ended.pop(work.action_id, None)  # of an earlier claim: it is looked at anew
        if work.kind not in _KINDS:
            log.error("work_not_known", host=self.host, action=work.action_id, kind=work.kind)
            why = f"this host does not know how to {work.kind}; upgrade its daemon"
            self._end(work.action_id, work.epoch, Outcome.FAILED, why)
            return
        self._held_ms[work.action_id] = asked_ms
        if work.left_ms is not None:
            self._deadline_ms[work.action_id] = asked_ms + work.left_ms
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
            lose_disk=work.lose_disk,
            about=work.about,
            left_ms=work.left_ms,
        )

    async def _work_on(self, action: WorkOrder) -> None:
        try:
            sight = await self._hypervisor.look(self.host, action)
        except HypervisorFailed as failed:
            # What has happened is not known; the next step looks again, up to the deadline.
            if action.action_id not in self._unseen:
                log.warning("look_failed", host=self.host, action=action.action_id, why=str(failed))
            self._unseen.add(action.action_id)
            return
        self._unseen.discard(action.action_id)
        if sight.kind is SightKind.NOT_BEGUN:
            if not await self._may_begin(action):
                self._drop(action.action_id)
                return
            try:
                await self._hypervisor.begin(self.host, action)
            except HypervisorFailed as failed:
                sight = Sight(failed.kind, str(failed))
            else:
                return
        if sight.kind is SightKind.UNDER_WAY:
            return
        self._end(action.action_id, action.epoch, _OUTCOMES[sight.kind], sight.detail)

    def _end(self, action_id: str, epoch: int, outcome: Outcome, detail: str) -> None:
        self._drop(action_id)
        self._ended[action_id] = Ended(action_id, epoch, outcome.value, detail[:ENDED_CHARS_MAX])

    def _drop(self, action_id: str) -> None:
        self._held.pop(action_id, None)
        self._held_ms.pop(action_id, None)
        self._deadline_ms.pop(action_id, None)

    async def _may_begin(self, action: WorkOrder) -> bool:
        """Whether to begin what was claimed; if not, the claim lapses.

        It may have lapsed, or its event have ended, while this host was away. What was right to do
        then would hit a VM without notice now. And control may have shown meanwhile, in documents
        that are refused, that its word does not count.
        """
        if not self._fresh(action) and not await self._link.holds(action.action_id, action.epoch):
            log.warning("claim_dropped", host=self.host, action=action.action_id)
            return False
        if not self._obeys():
            log.warning("claim_not_obeyed", host=self.host, action=action.action_id)
            return False
        return True

    def _fresh(self, action: WorkOrder) -> bool:
        """Whether control has said just now that the claim is held, and what it is for goes on."""
        asked_ms = self._held_ms.get(action.action_id)
        if asked_ms is None:
            return False
        until_ms = asked_ms + deadlines.CLAIM_FRESH_MS
        return self.now_ms() < min(until_ms, self._deadline_ms.get(action.action_id, until_ms))
