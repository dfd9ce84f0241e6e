"""Keeps the simulated world's own record and judges the invariants on it.

The judge knows what guests could read and when, which VM really was hit and when, and what was
answered to whom. It never looks at our rows except where a promise is about them (I5).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from forewarn.core.inventory.host_report import SeenVm
from forewarn.core.model import (
    ActionKind,
    Cause,
    EventType,
    Phase,
    Policy,
    ScheduledEvent,
    Scope,
)
from forewarn.core.principal import PrincipalKind
from forewarn.ports import JournalLine, WorkOrder
from forewarn.wire import link as wire
from simulation.sim_clock import SimClock

# Steps of the wall clock up to two seconds are not noticed, by design (section 1).
NOTICE_TOLERANCE_MS = 2_000

NOTICE_MS = {
    "Freeze": 900_000,
    "Reboot": 900_000,
    "Redeploy": 600_000,
    "Preempt": 30_000,
    "Terminate": 300_000,
}
# VMs of a failed host are brought back within a day, or the operator is told that they were not.
FAILURE_DEADLINE_MS = 24 * 3_600_000
# A VM that was off for a minute stays so; hosts are heard, and documents committed, a while later.
OFF_COUNTS_AFTER_MS = 150_000
# A host that acts has been told, a moment ago at most, that what it claimed is still its own.
HOLDS_FOR_MS = 10_000
# The lines that end an event, by the phase in which it then is.
ENDS = ("completed", "failed", "canceled")
RULED = {"Freeze", "Reboot", "Redeploy"}
WHOLE_HOST = (EventType.FREEZE, EventType.REBOOT)
TYPE_OF_ACTION = {
    ActionKind.FREEZE_HOST: {"Freeze"},
    ActionKind.REBOOT_HOST: {"Reboot"},
    ActionKind.REBOOT_VM: {"Reboot"},
    ActionKind.MOVE_VM: {"Redeploy"},
    ActionKind.DELETE_VM: {"Preempt", "Terminate"},
}


class Broken(BaseException):
    """An invariant does not hold in this world.

    Nothing of the product that goes on after an error goes on after this one.
    """


@dataclass
class Published:
    """An event as guests came to know it."""

    event_id: str
    scope: str
    event_type: str
    not_before_ms: int
    resources: set[str]
    status: str = "Scheduled"
    readable_ms: dict[str, int] = field(default_factory=dict)
    approved: bool = False
    gone: bool = False
    failure: bool = False
    quiet: bool = False  # all its VMs were off when it started


@dataclass
class Impact:
    """Something that is happening to a VM now.

    An eviction or deletion may begin after a ruled event has started and really happen before
    it, so physical impacts of those are no proof against the service; documents are.
    """

    scope: str
    update_domain: int
    event_type: str
    exempt: bool


def parse_not_before(text: str) -> int:
    return int(parsedate_to_datetime(text).timestamp() * 1000)


class Judge:
    """Told everything that happens in the world; raises Broken at the first wrong thing."""

    def __init__(self, clock: SimClock, vms: Iterable[SeenVm]) -> None:
        self._clock = clock
        self.domains: dict[str, tuple[str, int]] = {}  # vm -> (scope, update domain), for good
        self.events: dict[str, Published] = {}
        self.documents: dict[str, tuple[int, str]] = {}  # scope -> newest committed
        self._vms_of: dict[str, set[str]] = {}
        self.seen: dict[str, tuple[int, str]] = {}  # vm -> last (incarnation, content)
        self.impacts: dict[str, Impact] = {}
        self.answered: set[str] = set()
        self.maybe_approved: set[str] = set()
        self.broke_domains: set[str] = set()  # hosts forced by an operator
        self.broken_scopes: set[str] = set()  # scopes with VMs on such a host
        self.terminate_ms: dict[str, int] = {}  # what the owner of each scope asked for
        self.members: dict[str, str | None] = {}  # host -> the key that it has joined with
        self._holds_ms: dict[tuple[str, str, int], int] = {}  # when a host was told that it may act
        self.told_scopes: set[str] = set()  # scopes a guest of which polls
        self.auto_approving: set[str] = set()  # scopes whose owners approve their own reboots
        self.polled_scopes: set[str] = set()
        # By VM and type: how often that was ordered while nobody listened, and has not hit it yet.
        self.silent_orders: Counter[tuple[str, str]] = Counter()
        self._hit_silently: set[tuple[str, str]] = set()  # VM and action, for good
        self.down_since: dict[str, int] = {}  # VMs that went off with a host of which this was said
        self.off_since: dict[str, int] = {}  # VMs that their owners switched off, and left so
        self.quiet_ms: dict[str, int] = {}  # since when nothing was wrong with such a VM
        self.surely_off: set[str] = set()  # those that must stay off
        self.on_unheard: set[str] = set()  # switched on, and no host has shown it yet
        self.unsure_off: set[str] = set()  # perhaps the service is still at work on it
        self.given_up: set[str] = set()  # a hypervisor has refused to start it
        # By the id of an event or operation: the window that it was ordered with, as wall time.
        self.windows: dict[str, tuple[int, int]] = {}
        self.withdrawn: set[str] = set()  # events that another was announced in place of
        self._operation_of: dict[str, str | None] = {}
        # By operation, or by event of its own: how often it was postponed, and by how much in all.
        self._postponed: dict[str, tuple[int, int]] = {}
        self._postpones: tuple[PrincipalKind | None, Policy] = (None, Policy())
        self.stats: dict[str, int] = {}
        for seen in vms:
            self.meets(seen)

    def meets(self, seen: SeenVm) -> None:
        """There is such a VM from now on."""
        said = seen.traits
        self.domains[seen.name] = (said.scope, said.update_domain or 0)
        self.terminate_ms[said.scope] = said.terminate_notice_ms or NOTICE_MS["Terminate"]
        if said.auto_approve:
            self.auto_approving.add(said.scope)

    def count(self, what: str) -> None:
        self.stats[what] = self.stats.get(what, 0) + 1

    # What the service committed.

    def committed(self, scope: str, text: str, wall_ms: int, *, vm_ids: set[str]) -> None:
        """A new document of a scope is durable, and these are its VMs.

        If one of them is new it may have read another number, and the incarnation may go on above
        that though the content is the same.
        """
        document = json.loads(text)
        incarnation = document["DocumentIncarnation"]
        content = text.partition(",")[2]
        before = self.documents.get(scope)
        vm_comes = not vm_ids <= self._vms_of.get(scope, set())
        self._vms_of[scope] = vm_ids
        if before is not None:
            if incarnation < before[0]:
                raise Broken(f"I4: incarnation of {scope} went back: {before[0]} {incarnation}")
            same = content == before[1]
            if (incarnation == before[0]) != same and not (same and vm_comes):
                raise Broken(f"I4: incarnation {incarnation} of {scope} does not match its content")
        self.documents[scope] = (incarnation, content)
        self._judge_started_domains(scope, document)
        present = {event["EventId"] for event in document["Events"]}
        for event in document["Events"]:
            self._event_committed(scope, event, wall_ms)
        for known in self.events.values():
            if known.scope == scope and not known.gone and known.event_id not in present:
                known.gone = True

    def _judge_started_domains(self, scope: str, document: dict[str, Any]) -> None:
        """I2 as guests see it: no ruled event turns Started beside another domain's."""
        domains: dict[str, set[int]] = {"already": set(), "newly": set()}
        for event in document["Events"]:
            known = self.events.get(event["EventId"])
            started = event["EventStatus"] == "Started" and event["Resources"]
            if known is None or not started or self._is_quiet(known, event["Resources"]):
                continue
            domain = self.domains[event["Resources"][0]][1]
            if known.status == "Started":
                domains["already"].add(domain)
            elif known.event_type in RULED:
                domains["newly"].add(domain)
        if scope in self.broken_scopes:
            return
        if len(domains["newly"]) > 1:
            raise Broken(f"I2: two domains of {scope} started at once")
        for domain in domains["newly"]:
            if domains["already"] - {domain}:
                raise Broken(f"I2: domain {domain} of {scope} started beside another")

    def _is_quiet(self, known: Published, resources: list[str]) -> bool:
        """True if it began with nobody but VMs that are off: it impacts nobody."""
        if known.status != "Started":
            known.quiet = all(name in self.off_since for name in resources)
        return known.quiet

    def _event_committed(self, scope: str, event: dict[str, Any], wall_ms: int) -> None:
        known = self.events.get(event["EventId"])
        started = event["EventStatus"] == "Started"
        if known is None:
            known = Published(
                event_id=event["EventId"],
                scope=scope,
                event_type=event["EventType"],
                not_before_ms=0 if started else parse_not_before(event["NotBefore"]),
                resources=set(event["Resources"]),
                failure=event["Description"] == "Virtual machine has encountered a failure.",
                approved=event["EventId"] in self.maybe_approved
                or self._auto_approved(scope, event),
            )
            if started and not known.failure and not self._auto_approved(scope, event):
                raise Broken(f"I3: {known.event_id} was never Scheduled and is Started")
            self.events[event["EventId"]] = known
            self.count(f"published {known.event_type}")
        elif known.gone:
            raise Broken(f"I3: {known.event_id} came back")
        if known.scope != scope or known.event_type != event["EventType"]:
            raise Broken(f"I3: {known.event_id} became another event")
        if known.status == "Started" and not started:
            raise Broken(f"I3: {known.event_id} went back to Scheduled")
        if not started and parse_not_before(event["NotBefore"]) != known.not_before_ms:
            raise Broken(f"NotBefore of {known.event_id} changed")
        foreign = [n for n in event["Resources"] if self.domains[n][0] != scope]
        if foreign:
            raise Broken(f"I8: the document of {scope} names {foreign}")
        if started and known.status == "Scheduled":
            self._starts(known, wall_ms)
        known.status = event["EventStatus"]
        known.resources = set(event["Resources"])

    def _auto_approved(self, scope: str, event: dict[str, Any]) -> bool:
        user_reboot = event["EventSource"] == "User" and event["EventType"] == "Reboot"
        return user_reboot and scope in self.auto_approving

    def _starts(self, event: Published, wall_ms: int) -> None:
        self.count(f"started {event.event_type}")
        if event.failure or event.not_before_ms == 0:
            return
        down = self.off_since.keys() | self.on_unheard | self.given_up
        if event.event_type in RULED and event.resources <= down:
            return  # nobody is asked; who was just switched on must not be hit
        if not event.approved and wall_ms < event.not_before_ms:
            raise Broken(f"I1: {event.event_id} started before its NotBefore")

    def begins(self, event: ScheduledEvent, wall_ms: int) -> None:
        """An event has started, told or silent; by which order it exists is all that is asked."""
        if event.event_id in self.withdrawn:
            raise Broken(f"postponing: {event.event_id} was withdrawn and starts")
        window = self.windows.get(event.operation_id or event.event_id)
        if window is None or event.cause is Cause.FAILURE:
            return
        self.count("started in a window")
        if not window[0] <= wall_ms < window[1]:
            raise Broken(f"I14: {event.event_id} started outside of the window of its order")

    # What is postponed.

    def postpones(self, kind: PrincipalKind | None, policy: Policy) -> None:
        """An owner or an operator is about to ask for it; with None the answer was heard."""
        self._postpones = kind, policy

    def answered_postponed(self, withdrawn: Sequence[str], announced: Sequence[str]) -> None:
        """What was answered has happened."""
        self.count("postponed")
        unknown = [old for old in withdrawn if old not in self.withdrawn]
        if unknown or len(withdrawn) != len(announced):
            raise Broken(f"postponing: {unknown} is said to be withdrawn, for {list(announced)}")

    def announced_anew(self, changed: Sequence[tuple[Scope | None, Scope]], wall_ms: int) -> None:
        """A commit is durable: what in it is announced in place of what."""
        pairs: list[tuple[ScheduledEvent, ScheduledEvent]] = []
        for before, after in changed:
            for event in after.events:
                is_new = event.event_id not in self._operation_of
                self._operation_of[event.event_id] = event.operation_id
                if is_new and event.postponed_from is not None and before is not None:
                    old = before.event(event.postponed_from)
                    if old is None or old.phase is not Phase.SCHEDULED:
                        raise Broken(f"postponing: {event.event_id} has nothing to take over")
                    pairs.append((old, event))
        if pairs:
            self.withdrawn.update(old.event_id for old, _ in pairs)
            self._judge_anew(pairs, wall_ms)
            self._judge_limits(pairs, wall_ms)

    def _judge_anew(
        self, pairs: Sequence[tuple[ScheduledEvent, ScheduledEvent]], wall_ms: int
    ) -> None:
        """No guest reads the old one any more, and the new one promises what any event does."""
        anew = {new.event_id for _, new in pairs}
        for old, new in pairs:
            known, told = self.events.get(old.event_id), self.events.get(new.event_id)
            if known is not None and not known.gone:
                raise Broken(f"postponing: {old.event_id} was withdrawn and is still announced")
            if new.not_before_ms <= old.not_before_ms:
                raise Broken(f"postponing: {new.event_id} is not later than {old.event_id}")
            if told is not None and told.not_before_ms < wall_ms + self._notice_ms(told):
                raise Broken(f"I6: {new.event_id} is announced for less than its notice")
            window = self.windows.get(new.operation_id or "")
            if window is not None and new.not_before_ms >= window[1]:
                raise Broken(f"I14: {new.event_id} is postponed beyond its window")
            for event_id, operation_id in self._operation_of.items():
                other = self.events.get(event_id)
                waits = other is not None and not other.gone and other.status == "Scheduled"
                left = waits and operation_id == new.operation_id and event_id not in anew
                if left and new.event_type in WHOLE_HOST:
                    raise Broken(f"postponing: {event_id} does not move with its operation")

    def _judge_limits(
        self, pairs: Sequence[tuple[ScheduledEvent, ScheduledEvent]], wall_ms: int
    ) -> None:
        """Owners are bound; what an operator postpones counts for them too."""
        old, new = pairs[0]
        whole = new.event_type in WHOLE_HOST and new.operation_id is not None
        times, in_all_ms = self._postponed.get((whole and new.operation_id) or old.event_id, (0, 0))
        from_ms = max(wall_ms, *(one.not_before_ms for one, _ in pairs))
        found = times + 1, in_all_ms + new.not_before_ms - from_ms
        self._postponed[(whole and new.operation_id) or new.event_id] = found
        kind, policy = self._postpones
        most = policy.postponements_max, policy.postpone_ms_max
        if kind is None or new.cause is not Cause.MAINTENANCE:
            raise Broken(f"postponing: {old.event_id} is postponed, and no one may ask for that")
        if kind is PrincipalKind.OWNER and (found[0] > most[0] or found[1] > most[1]):
            raise Broken(f"postponing: {old.event_id} is postponed {found}, at most {most} allowed")

    # What guests read and say.

    def read(self, vm: str, incarnation: int, content: str, document: dict[str, Any]) -> None:
        """A guest got a document."""
        self.polled_scopes.add(self.domains[vm][0])
        before = self.seen.get(vm)
        if before is not None:
            if incarnation < before[0]:
                raise Broken(f"I4: {vm} read {incarnation} after {before[0]}")
            if incarnation == before[0] and content != before[1]:
                raise Broken(f"I4: {vm} read two contents under {incarnation}")
        self.seen[vm] = (incarnation, content)
        scope = self.domains[vm][0]
        for event in document["Events"]:
            if any(self.domains[name][0] != scope for name in event["Resources"]):
                raise Broken(f"I8: {vm} reads events of another scope")

    def readable(self, vm: str, event_id: str, ms: int) -> None:
        """For this long the VM could have read the event, had it asked."""
        event = self.events.get(event_id)
        if event is not None:
            event.readable_ms[vm] = event.readable_ms.get(vm, 0) + ms

    def approved(self, event_id: str) -> None:
        """An approval was answered 200."""
        self.answered.add(event_id)
        self.may_be_approved(event_id)

    def may_be_approved(self, event_id: str) -> None:
        """An approval was sent and may have been kept, though the answer never came."""
        self.maybe_approved.add(event_id)
        if event_id in self.events:
            self.events[event_id].approved = True

    def intruded(self, vm: str, event_id: str) -> None:
        """A VM of another scope was answered 200."""
        raise Broken(f"I8: {vm} approved {event_id} of another scope")

    def check_approvals(self, event: Callable[[str], ScheduledEvent | None]) -> None:
        """Every approval that was answered is in the store, by which an event is found."""
        for event_id in sorted(self.answered):
            found = event(event_id)
            if found is None:
                raise Broken(f"I5: the approved event {event_id} is gone from the store")
            if found.phase is Phase.SCHEDULED and found.approved_ms is None:
                raise Broken(f"I5: the approval of {event_id} was answered and lost")

    @staticmethod
    def check_journal(events: Iterable[ScheduledEvent], lines: Sequence[JournalLine]) -> None:
        """The numbers of lines have no gap, and each event that has ended has one line for it."""
        if [line.number for line in lines] != list(range(1, len(lines) + 1)):
            raise Broken("journal: its numbers have a gap, or come twice")
        ends = Counter((line.fact.event_id, line.fact.kind.value) for line in lines)
        for event in events:
            found = {phase: ends[event.event_id, phase] for phase in (*ENDS, "postponed")}
            ended = "postponed" if event.postponed_to else event.phase.value
            if found != {phase: int(ended == phase) for phase in found}:
                raise Broken(f"journal: {event.event_id} is {event.phase.value}, and has {found}")

    # What hosts are answered and do.

    def answered_host(
        self, host: str, certificate: bytes, name: str, question: Any, answer: bytes
    ) -> None:
        """Control has answered a question of a host."""
        key = certificate.decode().partition(" ")[2]
        if self.members.get(host) != key:
            raise Broken(f"membership: {host} with {key} is answered {name} and is no member")
        if name == "claim":
            for action in msgspec.json.decode(answer, type=wire.Claimed).work:
                if action.host != host:
                    raise Broken(f"claims: {host} is given {action.action_id} of {action.host}")
                self._holds_ms[host, action.action_id, action.epoch] = self._clock.real_ms
        elif name == "turn":
            lost = msgspec.json.decode(answer, type=wire.TurnTaken).lost
            for action_id, epoch in question.holding.items():
                if action_id not in lost:
                    self._holds_ms[host, action_id, epoch] = self._clock.real_ms
        elif name == "holds" and msgspec.json.decode(answer, type=wire.Held).holds:
            self._holds_ms[host, question.action_id, question.epoch] = self._clock.real_ms

    def host_begins(self, host: str, action: WorkOrder) -> None:
        """A host is about to act."""
        if action.host != host:
            raise Broken(f"claims: {host} begins {action.action_id} of {action.host}")
        told_ms = self._holds_ms.get((host, action.action_id, action.epoch))
        if told_ms is None or self._clock.real_ms - told_ms > HOLDS_FOR_MS:
            raise Broken(f"claims: {host} begins {action.action_id} and was not told that it may")

    def lied(
        self, host: str, lie: str, before: Mapping[str, Any], after: Mapping[str, Any]
    ) -> None:
        """A host has said what is not so. Nothing of the fleet may be otherwise because of it."""
        self.count(f"lie: {lie}")
        changed = sorted(k for k in before.keys() | after.keys() if before.get(k) != after.get(k))
        if changed:
            raise Broken(f"a lie: {host} says {lie}, and {changed} change")

    def end_of_documents(
        self, host: str, *, shown: Mapping[str, bytes], committed: Mapping[str, bytes]
    ) -> None:
        """Everything is healed: what each VM of a host could read, and what it should."""
        if shown.keys() != committed.keys():
            raise Broken(f"documents: {host} answers {sorted(shown)}, not {sorted(committed)}")
        for vm, text in sorted(committed.items()):
            if shown[vm] != text:
                raise Broken(f"documents: {vm} on {host} reads {shown[vm]!r}, not {text!r}")

    # What really happens.

    def impact_begins(self, action: WorkOrder, hit: list[str]) -> None:
        """A hypervisor begins to act."""
        if action.kind in (ActionKind.START_VM, ActionKind.DEFINE_VM):
            return  # the failure itself was the impact
        types = TYPE_OF_ACTION[action.kind]
        for vm in hit:
            self.count(f"hit {min(types)}")
            self._judge_notice(vm, types, action.action_id)
        for vm in hit:
            self._judge_domains(vm, action, min(types))

    def _judge_notice(self, vm: str, types: set[str], action_id: str) -> None:
        scope = self.domains[vm][0]
        told = [
            event
            for event in self.events.values()
            if vm in event.resources and event.event_type in types and not event.gone
        ]
        if not told:
            if not self._excused_once(vm, types, action_id) and scope in self.told_scopes:
                raise Broken(f"I6: {vm} is hit by {sorted(types)} and was never told")
            return
        for event in told:
            enough = self._notice_ms(event) - NOTICE_TOLERANCE_MS
            if event.approved or event.failure or event.readable_ms.get(vm, 0) >= enough:
                return
        if self._excused_once(vm, types, action_id):
            return
        raise Broken(
            f"I6: {vm} is hit by {told[0].event_type} {told[0].event_id} after "
            f"{told[0].readable_ms.get(vm, 0)} ms of readable notice"
        )

    def _excused_once(self, vm: str, types: set[str], action_id: str) -> bool:
        """True for one hit by each order from before anybody of the scope polled: it stays silent.

        An action that is begun again, because its daemon died, is the same hit.
        """
        if (vm, action_id) in self._hit_silently:
            return True
        for event_type in sorted(types):
            if self.silent_orders[vm, event_type]:
                self.silent_orders[vm, event_type] -= 1
                self._hit_silently.add((vm, action_id))
                return True
        return False

    def _notice_ms(self, event: Published) -> int:
        if event.event_type == "Terminate":
            return self.terminate_ms[event.scope]
        return NOTICE_MS[event.event_type]

    def started_somewhere(self, vm: str, host: str, running_on: set[str]) -> None:
        """A VM is being started on a host; `running_on` is where it runs or is about to."""
        self.count("restarts")
        others = sorted(running_on - {host})
        if others:
            raise Broken(f"a VM runs twice: {vm} starts on {host} and runs on {others[0]}")

    def switched(self, vm: str, *, on: bool) -> None:
        """Its owner has switched a VM on or off."""
        self.count(f"switched {'on' if on else 'off'}")
        for known in (self.off_since, self.quiet_ms):
            known.pop(vm, None)
        self.surely_off.discard(vm)
        if on:
            self.on_unheard.add(vm)
        else:
            self.off_since[vm] = self._clock.real_ms

    def is_off(self, vm: str, *, quiet: bool, runs: bool) -> None:
        """How a VM is that its owner switched off: for long enough, it must not run again."""
        if runs and vm in self.surely_off:
            raise Broken(f"power: {vm} was switched off by its owner and runs")
        if runs:  # it was off too shortly for anybody to know that it was meant
            self.switched(vm, on=True)
            return
        real_ms = self._clock.real_ms
        if not quiet or vm in self.unsure_off:
            self.quiet_ms.pop(vm, None)
        elif real_ms - self.quiet_ms.setdefault(vm, real_ms) >= OFF_COUNTS_AFTER_MS:
            self.surely_off.add(vm)

    def went_down(self, vms: list[str]) -> None:
        """A host is off with these VMs, and the service was told so: it must bring them back."""
        for vm in vms:
            if vm not in self.given_up:
                self.down_since.setdefault(vm, self._clock.real_ms)

    def excused(self, vm: str) -> None:
        """A hypervisor has refused to start the VM: the operator was told, and has to see to it."""
        self.down_since.pop(vm, None)
        self.given_up.add(vm)

    def end_of_vms(self, running: set[str], gone: set[str]) -> None:
        """Everything is healed: who runs, and who was deleted."""
        for vm, since_ms in sorted(self.down_since.items()):
            given_up = self._clock.real_ms - since_ms >= FAILURE_DEADLINE_MS
            if vm not in running and vm not in gone and not given_up:
                raise Broken(f"a VM is lost: {vm} went down with its host and was not brought back")

    def _judge_domains(self, vm: str, action: WorkOrder, event_type: str) -> None:
        scope, domain = self.domains[vm]
        forced = action.vm is None and (action.host or "") in self.broke_domains
        if event_type in RULED and not forced:
            others = {
                other
                for other, impact in self.impacts.items()
                if impact.scope == scope
                and impact.update_domain != domain
                and impact.event_type in RULED
            }
            if others:
                raise Broken(f"I2: {vm} is hit while {sorted(others)} of {scope} are")
        self.impacts[vm] = Impact(scope, domain, event_type, forced)

    def impact_ends(self, vms: list[str]) -> None:
        for vm in vms:
            self.impacts.pop(vm, None)

    def ordered(self, vms: list[str], event_type: str) -> None:
        """An order that touches these VMs is about to be given."""
        for vm in vms:
            if self.domains[vm][0] not in self.polled_scopes:
                self.silent_orders[vm, event_type] += 1

    def end_of_events(self, open_ids: list[str]) -> None:
        """Everything is healed and had all the time in the world."""
        if open_ids:
            raise Broken(f"I7: events never ended: {open_ids}")


assert set(NOTICE_MS) == {t.value for t in EventType}
