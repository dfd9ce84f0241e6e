"""What a host says in its turn: that it is there, what it shows, what guests did, what has ended.

Most turns say no more than that the host is there. They are taken on the event loop, and nothing of
them has to be written down. A turn that breaks a rule of ours is taken apart, and so is a claim: a
bug of control in one part must not silence the host, nor cost it the others.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import msgspec

from forewarn.control.commands import (
    ClaimActions,
    ClaimResult,
    Command,
    HandedOut,
    RefusedPart,
    TakeTurn,
    TurnResult,
)
from forewarn.control.hosts import action_claims
from forewarn.control.hosts.turn_parts import Part, parts_of, says_more, turn_of, without_parts
from forewarn.control.writer import LoggedByCaller
from forewarn.core import notice
from forewarn.core.errors import Refusal, Unavailable
from forewarn.logs import Log
from forewarn.ports import Change

if TYPE_CHECKING:
    from forewarn.control.control import Control

log = Log(__name__)
T = TypeVar("T")

_NOTHING_TO_SAY = TurnResult()
BROKEN = RefusedPart(
    "internal",
    "Control failed on this part and changed nothing.",
    "The log of control says what broke; it is a fault of Forewarn.",
)
BROKEN_REMEDY = (
    "the host is heard, and the rest of its turn is taken; this is a fault of Forewarn: report it"
    " with this line"
)
CLAIM_BROKEN_REMEDY = (
    "the host is given everything else that it has to do; this is a fault of Forewarn: report it"
    " with this line"
)
LIVES_MAX = 16  # of one host's daemon that are remembered
BROKEN_KNOWN_MAX = 1_000  # what was logged is not logged again


class HostTurns:
    """Takes the turns of all hosts, one at a time of each. Belongs to the event loop."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._broken: dict[tuple[str, str], None] = {}  # what was logged, by host, in words
        # By host: the lives of its daemon, in the order in which they were first heard.
        self._lives: defaultdict[str, dict[str, None]] = defaultdict(dict)
        self.failures = 0  # parts of turns and claims that broke, each time that they were said
        control.fleet.on_publish(self._published)

    def take_at_once(self, host: str, daemon: str = "") -> bool:
        """The host is there, says nothing else, and has nothing to do.

        False if that takes a transaction, or is not so. Raises NotFound.
        """
        control = self._control
        control.fleet.need_host(host)
        self._is_newest(host, daemon)
        if self._locks[host].locked() or control.fleet.acts(host):
            return False
        if control.observed.silent_ms(host) > notice.HEARTBEAT_LATE_MS:
            return False
        control.observed.heard(host, at_ms=control.lease_clock.monotonic_ms(), daemon=daemon)
        return not control.observed.two_daemons(host)

    async def take(self, turn: TakeTurn, daemon: str = "") -> TurnResult:
        """The host is there, and says this. Durable when it is answered.

        While it `refuses` to obey this control nothing starts there. That a VM has returned is not
        taken from a `daemon` after the next one has begun: what comes then was said earlier, maybe
        before the VM was hit again, and the next one says it for itself. Raises NotFound, and
        Unavailable if it could not be written down: then the host was not heard.
        """
        try:
            async with self._locks[turn.host]:
                self._control.fleet.need_host(turn.host)
                return await self._taken(turn, daemon)
        finally:
            self._forget(turn.host)

    async def _taken(self, turn: TakeTurn, daemon: str) -> TurnResult:
        host, control = turn.host, self._control
        if not self._is_newest(host, daemon):
            turn = msgspec.structs.replace(turn, returned=())
        at_ms = control.lease_clock.monotonic_ms()
        late = control.observed.silent_ms(host) > notice.HEARTBEAT_LATE_MS
        taken = _NOTHING_TO_SAY
        if late or control.fleet.acts(host) or says_more(turn) or turn.first_polls:
            taken = await self._decided(turn)
        if control.fleet.host(host) is None:
            return taken  # it has left meanwhile
        control.observed.heard(host, at_ms=at_ms, refuses=turn.refuses, daemon=daemon)
        if control.observed.two_daemons(host):
            return msgspec.structs.replace(taken, work=True)  # the claim is told what to do
        return taken

    def _published(self, changes: Sequence[Change]) -> None:
        """Forget hosts that have left the fleet; one that has its turn just now, after that."""
        for change in changes:
            for host in change.removed_hosts:
                self._forget(host)

    def _forget(self, host: str) -> None:
        """Keep nothing of the host if it is in the fleet no more, and is not taking its turn."""
        lock = self._locks.get(host)
        if self._control.fleet.host(host) is None and not (lock and lock.locked()):
            self._locks.pop(host, None)
            self._lives.pop(host, None)

    def hear_polls(self, host: str, ages_ms: Mapping[str, int]) -> tuple[str, ...]:
        """Remember when VMs of the host last polled; those of which that was never heard before."""
        fleet, first = self._control.fleet, []
        for name, age_ms in ages_ms.items():
            vm = fleet.vm(name)
            if vm is None or vm.host != host:
                continue  # it has left, or is another host's to speak of
            self._control.observed.polled(vm, age_ms=age_ms)
            if not vm.has_polled:
                first.append(name)
        return tuple(first)

    def _is_newest(self, host: str, daemon: str) -> bool:
        """Whether no other life of the host's daemon was first heard after this one."""
        if not daemon:
            return True
        lives = self._lives[host]
        if daemon not in lives:
            lives[daemon] = None
            if len(lives) > LIVES_MAX:
                del lives[next(iter(lives))]
        return daemon == next(reversed(lives))

    async def _decided(self, turn: TakeTurn) -> TurnResult:
        """The whole turn in one transaction; one that breaks is decided in parts.

        That the host is there comes first, and alone. If that breaks, the host is not heard: its
        silence, which was no notice, could not be written down.
        """
        parts = parts_of(turn)
        if not parts:
            return await self._control.submit(turn)
        whole = await self._tried(turn)
        if isinstance(whole, TurnResult):
            return whole
        taken, before = await self._control.submit(without_parts(turn)), self.failures
        confirms: dict[str, RefusedPart] = {}
        ended: dict[str, RefusedPart] = {}
        for one in await self._apart(turn, parts):
            confirms |= one.refused_confirms
            ended |= one.refused_ended
        if self.failures == before:  # each part was taken: it was together that they broke
            self._turn_broke(turn.host, "the whole turn", whole)
        return msgspec.structs.replace(taken, refused_confirms=confirms, refused_ended=ended)

    async def _apart(self, turn: TakeTurn, parts: Sequence[Part]) -> list[TurnResult]:
        """Take what can be taken of these parts, and refuse what breaks alone.

        By halves: one that breaks among a thousand costs the others some twenty commits.
        """
        taken = await self._tried(turn_of(turn, parts))
        if isinstance(taken, TurnResult):
            return [taken]
        if len(parts) == 1:
            self._turn_broke(turn.host, f"{parts[0].field} {parts[0].name}", taken)
            return [_refused(parts[0])]
        middle = len(parts) // 2
        first = await self._apart(turn, parts[:middle])
        return first + await self._apart(turn, parts[middle:])

    async def claim(self, command: ClaimActions) -> ClaimResult:
        """What the host is given to do, but for what breaks. Durable when it is answered.

        That it asks, by this daemon and in this boot, comes first if the whole breaks. If that
        breaks alone, so does the claim: VMs that went down with a boot would be taken for running.
        """
        whole = await self._tried(command)
        if isinstance(whole, ClaimResult):
            return whole
        asked = await self._control.submit(msgspec.structs.replace(command, only=()))
        if asked.two_daemons:
            return asked
        left, before = (
            action_claims.open_action_ids(self._control.fleet, command.host),
            self.failures,
        )
        work: list[HandedOut] = []
        while left and (room := action_claims.CLAIMS_PER_CALL_MAX - len(work)) > 0:
            work += await self._claimed_apart(command, left[:room])
            left = left[room:]
        if self.failures == before:  # each was given: it was together that they broke
            self._claim_broke(command.host, "all claims together", whole)
        return ClaimResult(work=tuple(work))

    async def _claimed_apart(self, command: ClaimActions, ids: Sequence[str]) -> list[HandedOut]:
        """Those of these actions that can be claimed, by halves, without what breaks alone."""
        claimed = await self._tried(msgspec.structs.replace(command, only=tuple(ids)))
        if isinstance(claimed, ClaimResult):
            return list(claimed.work)
        if len(ids) == 1:
            self._claim_broke(command.host, ids[0], claimed)
            return []
        middle = len(ids) // 2
        first = await self._claimed_apart(command, ids[:middle])
        return first + await self._claimed_apart(command, ids[middle:])

    async def _tried(self, command: Command[T]) -> T | Exception:
        """What came of it; or how it broke, and then nothing of it was written."""
        try:
            return await self._control.submit(LoggedByCaller(command))
        except (Refusal, Unavailable):
            raise
        except Exception as error:  # noqa: BLE001 - the top of a turn; `_broke` logs it
            return error

    def _turn_broke(self, host: str, what: str, error: Exception) -> None:
        if words := self._broke(host, what, error):
            log.error("turn_part_broke", host=host, why=words, remedy=BROKEN_REMEDY, exc_info=error)

    def _claim_broke(self, host: str, what: str, error: Exception) -> None:
        if words := self._broke(host, f"claim of {what}", error):
            remedy = CLAIM_BROKEN_REMEDY
            log.error("claim_broke", host=host, why=words, remedy=remedy, exc_info=error)

    def _broke(self, host: str, what: str, error: Exception) -> str:
        """Count what broke; the words for the log, once: it may be said every half second."""
        self.failures += 1
        words = f"{what}: {type(error).__name__}: {error}"
        if (host, words) in self._broken:
            return ""
        self._broken[host, words] = None
        if len(self._broken) > BROKEN_KNOWN_MAX:
            del self._broken[next(iter(self._broken))]
        return words


def _refused(part: Part) -> TurnResult:
    """What the host is told of a part that breaks. Of what guests did in passing it is nothing."""
    if part.field == "confirms":
        return TurnResult(refused_confirms={part.name: BROKEN})
    if part.field == "ended":
        return TurnResult(refused_ended={part.name: BROKEN})
    return _NOTHING_TO_SAY
