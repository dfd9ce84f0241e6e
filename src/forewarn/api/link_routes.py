"""What hosts ask of control: one function for each question of `wire.host_json`.

Who asks is a member, found before anything here is called. What a host may speak for is decided
in `control.own_vms` and `control.dispatch`, inside the transaction that would change it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from forewarn.control import own_vms, sightings
from forewarn.control.control import Control
from forewarn.control.membership import Membership
from forewarn.control.observed import NOT_YET
from forewarn.control.sightings import Sightings
from forewarn.control.views import EncodedChanges, Views
from forewarn.core.errors import Invalid
from forewarn.core.membership import Member
from forewarn.wire import host_json as wire

QUESTION_BYTES_MAX = 1_024 * 1_024
JOIN_BYTES_MAX = 64 * 1_024
HOLDING_MAX = 10_000
EVENT_IDS_MAX = 1_000
FIRST_READS_MAX = 5_000
TRACES_MAX = 10_000
DETAIL_CHARS_MAX = 4_096
BOOT_ID_CHARS_MAX = 256


@dataclass(frozen=True, slots=True)
class Asking:
    """One kind of question: what it looks like, how long it may be, and who answers it.

    `read_long` reads a long one, on a thread, so that others get their turn meanwhile.
    """

    kind: type[msgspec.Struct]
    answer: Callable[[Member, Any], Coroutine[Any, Any, msgspec.Struct]]
    bytes_max: int = QUESTION_BYTES_MAX
    read_long: Callable[[bytes], msgspec.Struct] | None = None

    def read(self, body: bytes) -> msgspec.Struct:
        return msgspec.json.decode(body, type=self.kind)


class LinkRoutes:
    """The functions behind `/link/*`, and what they share."""

    def __init__(
        self, control: Control, *, views: Views, membership: Membership, sightings: Sightings
    ) -> None:
        self._control = control
        self._sightings = sightings
        self._views = views
        self._membership = membership

    def table(self) -> Mapping[str, Asking]:
        """Every question that a member may ask, by its name in the path."""
        return {
            "renew": Asking(wire.Renew, self.renew),
            "changes": Asking(wire.AskChanges, self.changes),
            "heartbeat": Asking(wire.Heartbeat, self.heartbeat),
            "claim": Asking(wire.Claim, self.claim),
            "holds": Asking(wire.Holds, self.holds),
            "report": Asking(wire.Report, self.report),
            "confirm": Asking(wire.Confirm, self.confirm),
            "approve": Asking(wire.Approve, self.approve),
            "enable": Asking(wire.Enable, self.enable),
            "traces": Asking(wire.Traces, self.traces),
            "sight": Asking(
                wire.Sighting, self.sight, wire.BODY_BYTES_MAX, read_long=wire.read_sighting
            ),
            "blind": Asking(wire.Blind, self.blind),
            "adopted": Asking(wire.Adopted, self.adopted),
            "targets": Asking(wire.AskTargets, self.targets),
            "definition": Asking(wire.AskDefinition, self.definition),
        }

    async def join(self, asked: wire.Join) -> wire.Joined:
        certificate = await self._membership.join(asked.name, asked.token, asked.request)
        return wire.Joined(certificate=certificate, authority=self._membership.authority_pem)

    async def renew(self, member: Member, asked: wire.Renew) -> wire.Joined:
        certificate = await self._membership.renew(member, asked.request)
        return wire.Joined(certificate=certificate, authority=self._membership.authority_pem)

    async def changes(self, member: Member, asked: wire.AskChanges) -> EncodedChanges:
        return await self._views.changes(member.name, asked.since, asked.wait_s)

    async def heartbeat(self, member: Member, asked: wire.Heartbeat) -> wire.Done:
        _at_most(len(asked.holding), HOLDING_MAX, "claims in one heartbeat")
        refuses = asked.refuses[:DETAIL_CHARS_MAX]
        if not refuses and not self._follows(asked.epoch):
            refuses = NOT_YET
        await self._control.heartbeats.take(member.name, asked.holding, refuses)
        return wire.Done()

    def _follows(self, epoch: str | None) -> bool:
        """Whether the host has looked at what this control shows, and so may obey it."""
        return epoch is None or epoch == self._views.epoch

    async def claim(self, member: Member, asked: wire.Claim) -> wire.Claimed:
        _at_most(len(asked.boot_id), BOOT_ID_CHARS_MAX, "characters of a boot id")
        _at_most(len(asked.daemon), BOOT_ID_CHARS_MAX, "characters of a daemon's name")
        if not self._follows(asked.epoch):
            return wire.Claimed(actions=())
        dispatch = self._control.dispatch
        taken = await self._control.submit(
            dispatch.claim(member.name, asked.boot_id, daemon=asked.daemon)
        )
        return wire.Claimed(actions=tuple(taken))

    async def holds(self, member: Member, asked: wire.Holds) -> wire.Held:
        held = await self._control.submit(
            self._control.dispatch.holds(member.name, asked.action_id, asked.epoch)
        )
        return wire.Held(holds=held)

    async def report(self, member: Member, asked: wire.Report) -> wire.Done:
        await self._control.submit(
            self._control.dispatch.report(
                member.name,
                asked.action_id,
                epoch=asked.epoch,
                outcome=asked.outcome,
                detail=asked.detail[:DETAIL_CHARS_MAX],
            )
        )
        return wire.Done()

    async def confirm(self, member: Member, asked: wire.Confirm) -> wire.Done:
        await self._control.submit(own_vms.confirm(member.name, asked.scope, asked.incarnation))
        return wire.Done()

    async def approve(self, member: Member, asked: wire.Approve) -> wire.Done:
        _at_most(len(asked.event_ids), EVENT_IDS_MAX, "event ids in one approval")
        ids = tuple(event_id.upper() for event_id in asked.event_ids)
        await self._control.submit(own_vms.approve(member.name, asked.vm, ids))
        return wire.Done()

    async def enable(self, member: Member, asked: wire.Enable) -> wire.Done:
        await self._control.submit(own_vms.enable(member.name, asked.scope, asked.vm))
        return wire.Done()

    async def traces(self, member: Member, asked: wire.Traces) -> wire.Done:
        _at_most(len(asked.first_reads), FIRST_READS_MAX, "first reads in one question")
        _at_most(len(asked.polls), TRACES_MAX, "polls in one question")
        _at_most(len(asked.returned), TRACES_MAX, "returned VMs in one question")
        await self._control.submit(own_vms.keep_traces(member.name, asked))
        return wire.Done()

    async def sight(self, member: Member, asked: wire.Sighting) -> wire.Sighted:
        problems = await self._sightings.take(
            self._control, member.name, asked.vms, check=lambda: self._membership.need_still(member)
        )
        return wire.Sighted(problems=dict(problems))

    async def blind(self, member: Member, asked: wire.Blind) -> wire.Done:
        why = asked.why[:DETAIL_CHARS_MAX]
        self._control.fleet.need_host(member.name)
        self._control.observed.is_blind(member.name, why)
        return wire.Done()

    async def adopted(self, member: Member, asked: wire.Adopted) -> wire.Done:
        self._sightings.adopted(member.name, asked.adoption_id, asked.problem[:DETAIL_CHARS_MAX])
        return wire.Done()

    async def targets(self, member: Member, asked: wire.AskTargets) -> wire.Targets:
        _at_most(len(asked.vms), TRACES_MAX, "VMs in one question")
        found = sightings.targets(self._control.fleet.look(), member.name, asked.vms)
        return wire.Targets(targets=found)

    async def definition(self, member: Member, asked: wire.AskDefinition) -> wire.Definition:
        if not sightings.is_coming(self._control.fleet.look(), member.name, asked.vm):
            return wire.Definition(definition=None)
        kept = await self._control.read(lambda store: store.definition(asked.vm))
        return wire.Definition(definition=kept.text if kept and kept.text else None)


def _at_most(count: int, limit: int, what: str) -> None:
    if count > limit:
        raise Invalid(f"{count} {what} are too many.", f"At most {limit} are accepted.")
