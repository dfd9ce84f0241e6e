"""What hosts ask of control: one function for each question of `wire.link`.

Who asks was found before anything here is called: a member, or a host in this process. What a host
may speak for is decided in `control.guest_commands` and `control.hosts.action_claims`, in the
change that would change it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

import msgspec
from msgspec import Struct

from forewarn.control import commands
from forewarn.control.control import Control
from forewarn.control.hosts import move_targets
from forewarn.control.hosts.host_feed import EncodedChanges, HostFeed
from forewarn.control.hosts.liveness import NOT_ASKED, NOT_YET
from forewarn.control.hosts.report_intake import READ_AT_ONCE_VMS_MAX, ReportIntake
from forewarn.control.hosts.turn_parts import says_more
from forewarn.core.errors import Conflict, Invalid, Refusal, Unavailable
from forewarn.core.inventory.host_report import SeenVm
from forewarn.core.model import Outcome
from forewarn.core.principal import the_host, the_vm
from forewarn.core.starting import TWO_DAEMONS_REMEDY
from forewarn.wire import link as wire
from forewarn.wire.link_values import seen_vm

JOIN_BYTES_MAX = 64 * 1_024
EVENT_IDS_MAX = 1_000
TARGETS_MAX = 10_000
BOOT_ID_CHARS_MAX = 256


class Asker(Struct, frozen=True):
    """The host that asks. `need_still` raises once it may not any more.

    A host that is `here`, in the process of control, takes over what is committed before control
    answers.
    """

    name: str
    need_still: Callable[[], object] = lambda: None
    here: bool = False


class Asking(Struct, frozen=True, dict=True):
    """One kind of question: what it looks like, how long it may be, and who answers it.

    `at_once` answers without waiting, or has None if that cannot be. `read_long` reads a long one,
    on a thread, so that others get their turn meanwhile. `not_understood` is told why a question of
    a host cannot be read, before the host is.
    """

    kind: type[msgspec.Struct]
    answer: Callable[[Asker, Any], Coroutine[Any, Any, msgspec.Struct]]
    bytes_max: int = wire.QUESTION_BYTES_MAX
    at_once: Callable[[Asker, Any], msgspec.Struct | None] | None = None
    read_long: Callable[[bytes], msgspec.Struct] | None = None
    not_understood: Callable[[Asker, Invalid], Coroutine[Any, Any, None]] | None = None

    @cached_property
    def read(self) -> Callable[[bytes], msgspec.Struct]:
        return msgspec.json.Decoder(self.kind).decode


class LinkRoutes:
    """The functions behind `/link/*`, and what they share."""

    def __init__(
        self, control: Control, *, host_feed: HostFeed, report_intake: ReportIntake
    ) -> None:
        self._control = control
        self._report_intake = report_intake
        self._host_feed = host_feed

    def table(self) -> Mapping[str, Asking]:
        """Every question that a host may ask, by its name in the path."""
        return {
            "changes": Asking(wire.AskChanges, self.changes),
            "turn": Asking(
                wire.Turn,
                self.turn,
                at_once=self.turn_at_once,
                not_understood=self.turn_not_understood,
            ),
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
        return await self._host_feed.encoded(asker.name, asked.since, asked.wait_s)

    async def changes_as_values(self, asker: Asker, asked: wire.AskChanges) -> wire.Changes:
        """As `changes`, for a host in this process."""
        return await self._host_feed.changes(asker.name, asked.since, asked.wait_s)

    def turn_at_once(self, asker: Asker, asked: wire.Turn) -> wire.TurnTaken | None:
        """The answer to a turn that says no more than that the host is there, as most do."""
        if asked.refuses or self._not_followed(asker, asked.epoch) or says_more(asked):
            return None
        if len(asked.daemon) > BOOT_ID_CHARS_MAX or len(asked.vm_polls) > wire.POLLS_MAX:
            return None
        if self._control.turns.hear_polls(asker.name, asked.vm_polls):
            return None
        at_once = self._control.turns.take_at_once(asker.name, asked.daemon)
        return _TAKEN if at_once else None

    async def turn(self, asker: Asker, asked: wire.Turn) -> wire.TurnTaken:
        _at_most(len(asked.holding), wire.HOLDING_MAX, "claims in one turn")
        _at_most(len(asked.confirms), wire.CONFIRMS_MAX, "confirmations in one turn")
        _at_most(len(asked.first_reads), wire.FIRST_READS_MAX, "first reads in one turn")
        _at_most(len(asked.polls), wire.POLLS_MAX, "polls in one turn")
        _at_most(len(asked.vm_polls), wire.POLLS_MAX, "polls of VMs in one turn")
        _at_most(len(asked.returned), wire.RETURNED_MAX, "returned VMs in one turn")
        _at_most(len(asked.rebooted), wire.RETURNED_MAX, "rebooted VMs in one turn")
        _at_most(len(asked.ended), wire.ENDED_MAX, "ended actions in one turn")
        _at_most(len(asked.daemon), BOOT_ID_CHARS_MAX, "characters of a daemon's name")
        refuses = asked.refuses[: wire.DETAIL_CHARS_MAX]
        refuses = refuses or self._not_followed(asker, asked.epoch)
        command, refused = _turn(asker.name, asked, refuses)
        first_polls = self._control.turns.hear_polls(asker.name, asked.vm_polls)
        command = msgspec.structs.replace(command, first_polls=first_polls)
        taken = await self._control.turns.take(command, asked.daemon)
        refused |= {one: _not_taken(why) for one, why in taken.refused_ended.items()}
        confirms = {scope: _not_taken(why) for scope, why in taken.refused_confirms.items()}
        return wire.TurnTaken(
            lost=taken.lost,
            work=taken.work,
            refused_confirms=confirms,
            refused_ended=refused,
        )

    async def turn_not_understood(self, asker: Asker, why: Invalid) -> None:
        """The host is there, though control can read nothing of what it says.

        A daemon of another version runs VMs as any other does: a host that is refused for what it
        says must not count as silent, or the operator fences one that is on.
        """
        words = f"Control does not understand what it says. {why}"[: wire.DETAIL_CHARS_MAX]
        with suppress(Refusal, Unavailable):  # the host is told why its question is refused
            await self._control.turns.take(
                commands.TakeTurn(by=the_host(asker.name), host=asker.name, refuses=words)
            )

    def _not_followed(self, asker: Asker, epoch: str | None) -> str:
        """Why the host may not obey this control yet, in words: it has to look at what that shows.

        One that does not say what it has looked at has done so once it has asked: from the
        beginning, or from where it can only be because this control told it.
        """
        if epoch is not None:
            return "" if epoch == self._host_feed.epoch else NOT_YET
        return "" if asker.here or self._control.observed.has_asked(asker.name) else NOT_ASKED

    async def claim(self, asker: Asker, asked: wire.Claim) -> wire.Claimed:
        _at_most(len(asked.boot_id), BOOT_ID_CHARS_MAX, "characters of a boot id")
        _at_most(len(asked.daemon), BOOT_ID_CHARS_MAX, "characters of a daemon's name")
        if self._not_followed(asker, asked.epoch):
            return wire.Claimed(work=())
        host = asker.name
        if self._idle(host, asked.boot_id, asked.daemon):
            return _NO_WORK
        claimed = await self._control.turns.claim(
            commands.ClaimActions(
                by=the_host(host), host=host, boot_id=asked.boot_id, daemon=asked.daemon
            )
        )
        if claimed.two_daemons:
            raise Conflict(
                f"Two daemons speak as host {host}, so neither is given anything to do.",
                TWO_DAEMONS_REMEDY,
            )
        return wire.Claimed(work=tuple(map(_work, claimed.work)))

    def claim_at_once(self, asker: Asker, asked: wire.Claim) -> wire.Claimed | None:
        """The answer to a host that would get nothing to do, and says nothing new."""
        if self._not_followed(asker, asked.epoch) or len(asked.daemon) > BOOT_ID_CHARS_MAX:
            return None
        return _NO_WORK if self._idle(asker.name, asked.boot_id, asked.daemon) else None

    def _idle(self, host: str, boot_id: str, daemon: str) -> bool:
        """Whether a host that asks for work would get none, and says nothing new.

        What is committed after this look rings the host.
        """
        known = self._control.fleet.host(host)
        if known is None:
            return False
        if daemon:
            self._control.observed.hears_daemon(host, daemon)
            if self._control.observed.two_daemons(host):
                return False
        return known.boot_id == boot_id and not self._control.fleet.acts(host)

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
        problems = await self._report_intake.take(
            self._control, asker.name, vms, boot_id=asked.boot_id, check=asker.need_still
        )
        return wire.Sighted(problems=dict(problems))

    async def blind(self, asker: Asker, asked: wire.Blind) -> wire.Done:
        why = asked.why[: wire.DETAIL_CHARS_MAX]
        self._control.fleet.need_host(asker.name)
        self._control.observed.hypervisor_lost(asker.name, why)
        return wire.Done()

    async def adopted(self, asker: Asker, asked: wire.Adopted) -> wire.Done:
        self._report_intake.adopted(
            asker.name, asked.adoption_id, asked.problem[: wire.DETAIL_CHARS_MAX]
        )
        return wire.Done()

    async def targets(self, asker: Asker, asked: wire.AskTargets) -> wire.Targets:
        _at_most(len(asked.vms), TARGETS_MAX, "VMs in one question")
        found = move_targets.targets(self._control.fleet.look(), asker.name, asked.vms)
        return wire.Targets(targets=found)

    async def definition(self, asker: Asker, asked: wire.AskDefinition) -> wire.Definition:
        if not move_targets.is_coming(self._control.fleet.look(), asker.name, asked.vm):
            return wire.Definition(definition=None)
        kept = await self._control.read(lambda store: store.definition(asked.vm))
        return wire.Definition(definition=kept.text if kept and kept.text else None)


async def _seen(said: Sequence[wire.VmSeen]) -> tuple[SeenVm, ...]:
    """What a host said of its VMs; of many on a thread, so that others get their turn meanwhile."""
    if len(said) <= READ_AT_ONCE_VMS_MAX:
        return tuple(map(seen_vm, said))
    return await asyncio.to_thread(lambda: tuple(map(seen_vm, said)))


_TAKEN = wire.TurnTaken(work=False)
_NO_WORK = wire.Claimed(work=())


def _turn(
    host: str, asked: wire.Turn, refuses: str
) -> tuple[commands.TakeTurn, dict[str, wire.NotTaken]]:
    """What the host says; and what of it no control can understand."""
    ended, refused = [], {}
    for one in asked.ended:
        try:
            outcome = _outcome(one.outcome)
        except Invalid as why:
            refused[one.action_id] = _not_taken(commands.RefusedPart.of(why))
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
        rebooted=asked.rebooted,
        ended=tuple(ended),
    )
    return turn, refused


def _not_taken(why: commands.RefusedPart) -> wire.NotTaken:
    return wire.NotTaken(why.code, why.refused, why.accepted)


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
        lose_disk=action.lose_disk,
        about=handed_out.about,
        left_ms=handed_out.left_ms,
    )


def _at_most(count: int, limit: int, what: str) -> None:
    if count > limit:
        raise Invalid(f"{count} {what} are too many.", f"At most {limit} are accepted.")
