"""What hosts ask of control: one function for each question of `wire.link`.

Who asks was found before anything here is called: a member, or a host in this process. What a host
may speak for is decided in `control.metadata` and `control.dispatch`, inside the transaction that
would change it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from forewarn.control import commands, sightings
from forewarn.control.control import Control
from forewarn.control.leases import TWO_DAEMONS_MS
from forewarn.control.observed import NOT_YET
from forewarn.control.sightings import READ_AT_ONCE_VMS_MAX, Sightings
from forewarn.control.views import EncodedChanges, Views
from forewarn.core.errors import Conflict, Invalid
from forewarn.core.machines import SeenVm
from forewarn.core.model import Outcome
from forewarn.core.principal import the_host, the_vm
from forewarn.wire import link as wire
from forewarn.wire.link_values import seen_vm

JOIN_BYTES_MAX = 64 * 1_024
EVENT_IDS_MAX = 1_000
# Hosts ask for work every ten seconds. That they did need not be noted each time.
ASKED_LATELY_MS = TWO_DAEMONS_MS // 2
TARGETS_MAX = 10_000
BOOT_ID_CHARS_MAX = 256


@dataclass(frozen=True, slots=True)
class Asker:
    """The host that asks. `need_still` raises once it may not any more."""

    name: str
    need_still: Callable[[], object] = lambda: None


@dataclass(frozen=True)
class Asking:
    """One kind of question: what it looks like, how long it may be, and who answers it.

    `at_once` answers without waiting, or has None if that cannot be. `read_long` reads a long one,
    on a thread, so that others get their turn meanwhile.
    """

    kind: type[msgspec.Struct]
    answer: Callable[[Asker, Any], Coroutine[Any, Any, msgspec.Struct]]
    bytes_max: int = wire.QUESTION_BYTES_MAX
    at_once: Callable[[Asker, Any], msgspec.Struct | None] | None = None
    read_long: Callable[[bytes], msgspec.Struct] | None = None

    @cached_property
    def read(self) -> Callable[[bytes], msgspec.Struct]:
        return msgspec.json.Decoder(self.kind).decode


class LinkRoutes:
    """The functions behind `/link/*`, and what they share."""

    def __init__(self, control: Control, *, views: Views, sightings: Sightings) -> None:
        self._control = control
        self._sightings = sightings
        self._views = views

    def table(self) -> Mapping[str, Asking]:
        """Every question that a host may ask, by its name in the path."""
        return {
            "changes": Asking(wire.AskChanges, self.changes),
            "turn": Asking(wire.Turn, self.turn, at_once=self.turn_at_once),
            "claim": Asking(wire.Claim, self.claim, at_once=self.claim_at_once),
            "holds": Asking(wire.Holds, self.holds),
            "approve": Asking(wire.Approve, self.approve),
            "enable": Asking(wire.Enable, self.enable),
            "sight": Asking(
                wire.Sighting, self.sight, wire.BODY_BYTES_MAX, read_long=wire.read_sighting
            ),
            "blind": Asking(wire.Blind, self.blind),
            "adopted": Asking(wire.Adopted, self.adopted),
            "targets": Asking(wire.AskTargets, self.targets),
            "definition": Asking(wire.AskDefinition, self.definition),
        }

    async def changes(self, asker: Asker, asked: wire.AskChanges) -> EncodedChanges:
        return await self._views.encoded(asker.name, asked.since, asked.wait_s)

    async def changes_as_values(self, asker: Asker, asked: wire.AskChanges) -> wire.Changes:
        """As `changes`, for a host in this process."""
        return await self._views.changes(asker.name, asked.since, asked.wait_s)

    def turn_at_once(self, asker: Asker, asked: wire.Turn) -> wire.TurnTaken | None:
        """The answer to a turn that says no more than that the host is there, as most do."""
        if asked.refuses or not self._follows(asked.epoch) or _says_more(asked):
            return None
        return _TAKEN if self._control.turns.take_at_once(asker.name) else None

    async def turn(self, asker: Asker, asked: wire.Turn) -> wire.TurnTaken:
        _at_most(len(asked.holding), wire.HOLDING_MAX, "claims in one turn")
        _at_most(len(asked.confirms), wire.CONFIRMS_MAX, "confirmations in one turn")
        _at_most(len(asked.first_reads), wire.FIRST_READS_MAX, "first reads in one turn")
        _at_most(len(asked.polls), wire.POLLS_MAX, "polls in one turn")
        _at_most(len(asked.returned), wire.RETURNED_MAX, "returned VMs in one turn")
        _at_most(len(asked.ended), wire.ENDED_MAX, "ended actions in one turn")
        refuses = asked.refuses[: wire.DETAIL_CHARS_MAX]
        if not refuses and not self._follows(asked.epoch):
            refuses = NOT_YET
        command, refused = _turn(asker.name, asked, refuses)
        taken = await self._control.turns.take(command)
        refused |= {one: _refused(why) for one, why in taken.refused_ended.items()}
        confirms = {scope: _refused(why) for scope, why in taken.refused_confirms.items()}
        return wire.TurnTaken(lost=taken.lost, refused_confirms=confirms, refused_ended=refused)

    def _follows(self, epoch: str | None) -> bool:
        """Whether the host has looked at what this control shows, and so may obey it."""
        return epoch is None or epoch == self._views.epoch

    async def claim(self, asker: Asker, asked: wire.Claim) -> wire.Claimed:
        _at_most(len(asked.boot_id), BOOT_ID_CHARS_MAX, "characters of a boot id")
        _at_most(len(asked.daemon), BOOT_ID_CHARS_MAX, "characters of a daemon's name")
        if not self._follows(asked.epoch):
            return wire.Claimed(work=())
        idle = self._idle(asker.name, asked.boot_id)
        if idle and (not asked.daemon or self._asked_lately(asker.name, asked.daemon)):
            return _NO_WORK
        host = asker.name
        claimed = await self._control.submit(
            commands.ClaimActions(
                by=the_host(host), host=host, boot_id=asked.boot_id, daemon=asked.daemon
            )
        )
        if claimed.two_daemons:
            raise Conflict(
                f"Two daemons speak as host {host}, so neither is given anything to do.",
                "Find the machine that has a copy of the other's data folder, stop its daemon, "
                "remove host.pem there and have it join under a name of its own.",
            )
        return wire.Claimed(work=tuple(map(_work, claimed.work)))

    def claim_at_once(self, asker: Asker, asked: wire.Claim) -> wire.Claimed | None:
        """The answer to a host that would get nothing to do, and says nothing new."""
        if not self._follows(asked.epoch) or not self._idle(asker.name, asked.boot_id):
            return None
        return _NO_WORK if self._asked_lately(asker.name, asked.daemon) else None

    def _asked_lately(self, host: str, daemon: str) -> bool:
        """Whether this daemon of the host, and no other, is known to have asked a moment ago."""
        known = self._sightings.volatile.daemons.get(host, {})
        if daemon not in known or len(known) > 1:
            return False
        return self._control.lease_clock.monotonic_ms() - known[daemon].last_ms < ASKED_LATELY_MS

    def _idle(self, host: str, boot_id: str) -> bool:
        """Whether a host that asks for work would get none, and says nothing new.

        What is committed after this look rings the host.
        """
        known = self._control.fleet.host(host)
        return known is not None and known.boot_id == boot_id and not self._control.fleet.acts(host)

    async def holds(self, asker: Asker, asked: wire.Holds) -> wire.Held:
        held = await self._control.submit(
            commands.HoldClaim(
                by=the_host(asker.name),
                host=asker.name,
                action_id=asked.action_id,
                epoch=asked.epoch,
            )
        )
        return wire.Held(holds=held)

    async def approve(self, asker: Asker, asked: wire.Approve) -> wire.Done:
        _at_most(len(asked.event_ids), EVENT_IDS_MAX, "event ids in one approval")
        ids = tuple(event_id.upper() for event_id in asked.event_ids)
        await self._control.submit(
            commands.ApproveEvents(by=the_vm(asked.vm), host=asker.name, vm=asked.vm, event_ids=ids)
        )
        return wire.Done()

    async def enable(self, asker: Asker, asked: wire.Enable) -> wire.Done:
        await self._control.submit(
            commands.EnableScope(
                by=the_vm(asked.vm), host=asker.name, scope=asked.scope, vm=asked.vm
            )
        )
        return wire.Done()

    async def sight(self, asker: Asker, asked: wire.Sighting) -> wire.Sighted:
        _at_most(len(asked.boot_id), BOOT_ID_CHARS_MAX, "characters of a boot id")
        vms = await _seen(asked.vms)
        problems = await self._sightings.take(
            self._control, asker.name, vms, boot_id=asked.boot_id, check=asker.need_still
        )
        return wire.Sighted(problems=dict(problems))

    async def blind(self, asker: Asker, asked: wire.Blind) -> wire.Done:
        why = asked.why[: wire.DETAIL_CHARS_MAX]
        self._control.fleet.need_host(asker.name)
        self._control.observed.is_blind(asker.name, why)
        return wire.Done()

    async def adopted(self, asker: Asker, asked: wire.Adopted) -> wire.Done:
        self._sightings.adopted(
            asker.name, asked.adoption_id, asked.problem[: wire.DETAIL_CHARS_MAX]
        )
        return wire.Done()

    async def targets(self, asker: Asker, asked: wire.AskTargets) -> wire.Targets:
        _at_most(len(asked.vms), TARGETS_MAX, "VMs in one question")
        found = sightings.targets(self._control.fleet.look(), asker.name, asked.vms)
        return wire.Targets(targets=found)

    async def definition(self, asker: Asker, asked: wire.AskDefinition) -> wire.Definition:
        if not sightings.is_coming(self._control.fleet.look(), asker.name, asked.vm):
            return wire.Definition(definition=None)
        kept = await self._control.read(lambda store: store.definition(asked.vm))
        return wire.Definition(definition=kept.text if kept and kept.text else None)


async def _seen(said: Sequence[wire.VmSeen]) -> tuple[SeenVm, ...]:
    """What a host said of its VMs; of many on a thread, so that others get their turn meanwhile."""
    if len(said) <= READ_AT_ONCE_VMS_MAX:
        return tuple(map(seen_vm, said))
    return await asyncio.to_thread(lambda: tuple(map(seen_vm, said)))


_TAKEN = wire.TurnTaken()
_NO_WORK = wire.Claimed(work=())


def _says_more(turn: wire.Turn) -> bool:
    said = turn.holding or turn.confirms or turn.ended
    return bool(said or turn.first_reads or turn.polls or turn.returned)


def _turn(
    host: str, asked: wire.Turn, refuses: str
) -> tuple[commands.TakeTurn, dict[str, wire.Refused]]:
    """What the host says; and what of it no control can understand."""
    ended, refused = [], {}
    for one in asked.ended:
        try:
            outcome = _outcome(one.outcome)
        except Invalid as why:
            refused[one.action_id] = wire.Refused(why.code, why.refused, why.accepted)
            continue
        ended.append(
            commands.EndedAction(
                action_id=one.action_id,
                epoch=one.epoch,
                outcome=outcome,
                detail=one.detail[: wire.DETAIL_CHARS_MAX],
            )
        )
    turn = commands.TakeTurn(
        by=the_host(host),
        host=host,
        holding=asked.holding,
        refuses=refuses,
        confirms=asked.confirms,
        first_reads=tuple(
            commands.ReadAgo(
                vm=read.vm, scope=read.scope, event_id=read.event_id, age_ms=read.age_ms
            )
            for read in asked.first_reads
        ),
        polls=asked.polls,
        returned=asked.returned,
        ended=tuple(ended),
    )
    return turn, refused


def _refused(why: commands.Refused) -> wire.Refused:
    return wire.Refused(why.code, why.refused, why.accepted)


def _outcome(said: str) -> Outcome:
    try:
        return Outcome(said)
    except ValueError:
        known = ", ".join(one.value for one in Outcome)
        raise Invalid(f"No action ends as {said[:64]!r}.", f"Accepted: {known}.") from None


def _work(handed_out: commands.HandedOut) -> wire.Work:
    action = handed_out.action
    return wire.Work(
        action_id=action.action_id,
        kind=action.kind.value,
        host=action.host or "",
        epoch=action.epoch,
        vm=action.vm,
        target_host=action.target_host,
        duration_s=action.duration_s,
        boot_id=action.boot_id,
        only_off=action.only_off,
        about=handed_out.about,
        left_ms=handed_out.left_ms,
    )


def _at_most(count: int, limit: int, what: str) -> None:
    if count > limit:
        raise Invalid(f"{count} {what} are too many.", f"At most {limit} are accepted.")
