"""What the VMs that a host shows mean for the fleet: VMs that come, change, move and vanish.

The fleet follows what happens to a VM outside of Forewarn, but never faster than its promises: what
a visible event depends on waits until that event has ended, and what an action is doing to a VM is
for that action's report to say. Hosts show everything again and again, so waiting is doing nothing
now. Where a VM is, is `location`; how a change becomes a Decision is `fleet_change`.

A report is looked at as a whole (`step`), or in slices (`look`, then `conclude`): a slice says what
the VMs in it mean, and only the end, when all were looked at, says what is missing.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from forewarn.core import avoiding, scope_edits, unfinished_moves
from forewarn.core.facts import (
    MovedDetail,
    VmChangedDetail,
    VmGoneDetail,
    VmOnTwoHostsDetail,
    VmPowerDetail,
    VmSeenDetail,
    vm_fact,
)
from forewarn.core.fleet import Fleet
from forewarn.core.inventory.clashes import event_words
from forewarn.core.inventory.desired import desired, vm_of
from forewarn.core.inventory.entries import ScopeEntry, Source, VmEntry
from forewarn.core.inventory.fleet_change import FleetChange, may_go
from forewarn.core.inventory.host_report import Power, SeenVm, Traits
from forewarn.core.inventory.location import Locations, Report, only_lies_there
from forewarn.core.inventory.names import KnownNames, in_case_only
from forewarn.core.inventory.scopes_from_metadata import ReportedScopes
from forewarn.core.model import (
    SECOND_MS,
    Decision,
    Detail,
    FactKind,
    Health,
    OperationPhase,
    Scope,
    Vm,
)
from forewarn.core.unfinished_moves import acted_on
from forewarn.core.vm_profile import ATTRIBUTES

# For how long a VM must be missing before it counts as gone, and for how long it must run in two
# places before that is said: reports of two hosts are never of the same moment.
GRACE_MS = 30 * SECOND_MS


class ReportContext(Struct, frozen=True, kw_only=True):
    """What else is known when a host shows its VMs.

    `reports` is what each host showed last, with that of this host; `before` is what this host
    showed the time before. `ever_shown` are VMs that any host has shown. `settling` are VMs that
    left, or changed their host, since the last look: a report may be older than that. Times are
    for how long VMs have been `absent_ms` or have run in two places (`twice_ms`).
    """

    reports: Mapping[str, Report]
    before: Report = field(default_factory=dict)
    file_scopes: Mapping[str, ScopeEntry] = field(default_factory=dict)
    file_vms: Mapping[str, VmEntry] = field(default_factory=dict)
    ever_shown: Container[str] = ()
    settling: Container[str] = ()
    busy_before: Container[str] = ()
    absent_ms: Mapping[str, int] = field(default_factory=dict)
    twice_ms: Mapping[str, int] = field(default_factory=dict)
    problems_before: Mapping[str, str] = field(default_factory=dict)
    empty_scopes: frozenset[str] = frozenset()


class ReportDecision(Struct, frozen=True, kw_only=True):
    """What one report changes. `waiting`: something of it can only be decided later.

    `problems` are words for the operator, by VM. `absent`, `twice` and `busy` are the VMs whose
    times go on, and those that something was being done to. `empty_scopes` may be removed the
    next time: a VM that has just left one still needs its row.
    """

    decision: Decision = field(default_factory=Decision)
    removed_scopes: tuple[str, ...] = ()
    problems: Mapping[str, str] = field(default_factory=dict)
    absent: frozenset[str] = frozenset()
    twice: frozenset[str] = frozenset()
    busy: frozenset[str] = frozenset()
    empty_scopes: frozenset[str] = frozenset()
    waiting: bool = False


class FleetNow(Struct, frozen=True, kw_only=True):
    """The fleet as it is while a report is looked at."""

    scopes: Mapping[str, Scope]
    scope_of_vm: Mapping[str, str]
    fleet: Fleet
    now_ms: int


def step(host: str, known: ReportContext, now: FleetNow) -> ReportDecision:
    """What must change because of what the host shows, and what of it cannot be used."""
    if not _counts_at_all(host, now):
        return ReportDecision(waiting=True, empty_scopes=known.empty_scopes)
    work = _Work(host, known, now)
    for name in sorted(work.report):
        work.look_at(work.report[name])
    work.look_for_absent()
    work.settle_scopes(work.report)
    return work.finish()


def look(
    host: str,
    known: ReportContext,
    now: FleetNow,
    *,
    names: Collection[str],
    unsettled: Container[str] = (),
) -> ReportDecision:
    """What must change because of these VMs of the report. No VM is missing because of it.

    `unsettled` are scopes that VMs of the report belong to which are not looked at yet.
    """
    if not _counts_at_all(host, now):
        return ReportDecision(waiting=True, empty_scopes=known.empty_scopes)
    work = _Work(host, known, now)
    for name in sorted(names):
        work.look_at(work.report[name])
    work.settle_scopes(names, unsettled)
    return work.finish()


def conclude(host: str, known: ReportContext, now: FleetNow) -> ReportDecision:
    """What must change because of what the host does not show, once all it shows was looked at."""
    if not _counts_at_all(host, now):
        return ReportDecision(waiting=True, empty_scopes=known.empty_scopes)
    work = _Work(host, known, now)
    work.look_for_absent()
    work.settle_scopes(())
    return work.finish()


def _counts_at_all(host: str, now: FleetNow) -> bool:
    there = now.fleet.host(host)
    return there is not None and there.health is not Health.FAILED


class _Work:
    """The next values while they are being worked out. One use, one report."""

    def __init__(self, host: str, known: ReportContext, now: FleetNow) -> None:
        self.host = host
        self.known = known
        self.report = known.reports[host]
        self.scope_of_vm = now.scope_of_vm
        self.fleet = now.fleet
        self.now_ms = now.now_ms
        self.locations = Locations(host, known.reports, now.fleet)
        self.change = FleetChange(now.scopes, now_ms=now.now_ms)
        self.reported = ReportedScopes(self.change, file_scopes=known.file_scopes)
        self.facts = self.change.facts
        self.problems: dict[str, str] = {}
        self.absent: set[str] = set()
        self.twice: set[str] = set()
        self.busy: set[str] = set()
        self.waiting = False
        self._names: KnownNames | None = None  # a fleet has many thousand

    # VMs that are shown.

    def look_at(self, seen: SeenVm) -> None:
        if seen.problem:
            self.problems[seen.name] = seen.problem
        scope = self._scope_of(seen.name)
        vm = self.change.vm(scope.name, seen.name) if scope else None
        if scope is None or vm is None:
            self._appears(seen)
            return
        another = vm.vm_id != seen.vm_id and vm.name in self.known.ever_shown
        if vm.host != self.host:
            self._elsewhere(scope, vm, seen, another=another)
        elif another:
            self._replaced(scope, vm, seen)
        else:
            self._at_home(scope, vm, seen)

    def _scope_of(self, vm: str) -> Scope | None:
        name = self.scope_of_vm.get(vm)
        return self.change.scope(name) if name is not None else None

    def _scope_of_own(self, name: str) -> Scope | None:
        scope = self._scope_of(name)
        vm = self.change.vm(scope.name, name) if scope else None
        return scope if vm is not None and vm.host == self.host else None

    def _appears(self, seen: SeenVm) -> None:
        name = seen.name
        before = self.known.before.get(name)
        if name in self.known.settling and before is not None and before.vm_id == seen.vm_id:
            self.waiting = True  # it was deleted since; what is shown may be from before
            return
        taken = self._taken(name)
        if taken is not None:
            self._problem(
                name,
                f"{in_case_only('VM', taken)} Rename one of them while it is off: "
                f"`virsh domrename {name} NEW`.",
            )
            return
        wanted = self._desired(seen)
        into = self._into(wanted, seen)
        if into is None:
            return
        vm = vm_of(wanted, vm_id=seen.vm_id, host=self.host)
        if name in into.deleted:
            into = replace(into, deleted=tuple(one for one in into.deleted if one != name))
        self.change.put_around(into)
        self.change.join(into.name, vm)
        if self._names is not None:
            self._names.add(name)
        detail = VmSeenDetail(vm_id=vm.vm_id, power=seen.power)
        self._fact(FactKind.VM_SEEN, into.name, vm, detail)

    def _desired(self, seen: SeenVm) -> VmEntry:
        return desired(seen, self.host, file_vms=self.known.file_vms)

    def _into(self, wanted: VmEntry, seen: SeenVm) -> Scope | None:
        """The scope that a VM can join as it is wanted, or None; then the problem is said."""
        listed = wanted.source is Source.FILE
        into = self.reported.into(wanted.scope, seen.name, seen.traits, listed_vm=listed)
        if isinstance(into, Scope):
            return into
        self._problem(seen.name, into)
        return None

    def _taken(self, name: str) -> str | None:
        """A VM whose name differs from this one in case only."""
        if self._names is None:
            came = (vm.name for scope in self.change.changed() for vm in scope.vms)
            self._names = KnownNames((*self.scope_of_vm, *came))
        return self._names.taken_by(name)

    def _elsewhere(self, scope: Scope, vm: Vm, seen: SeenVm, *, another: bool) -> None:
        """The fleet has the VM on another host."""
        self.waiting = True
        if vm.name in self.known.settling or acted_on(scope, vm.name):
            return  # for the report of its action to say, or for the next look
        if another:
            self.problems[vm.name] = (
                f"host {vm.host} has a VM of that name already; this one, {seen.vm_id}, gets no "
                "document and no notice. Rename one of them while it is off: "
                f"`virsh domrename {vm.name} NEW`."
            )
            return
        left = vm.may_run_on == self.host and seen.power is not Power.RUNNING
        if left and not self.locations.counts(vm.host):
            return  # by a move: its other host may run it and cannot be asked
        first = vm.name not in self.known.ever_shown  # until now only a file knew it
        best = self.host if first else self.locations.best(vm)
        if best == self.host:
            self._at_home(*self._moved(scope, vm, best), seen)
        elif self.locations.runs_at(vm, vm.host) and seen.power is Power.RUNNING:
            self._runs_twice(scope, vm, other=vm.host)
        elif best == vm.host and only_lies_there(seen):
            self.problems[vm.name] = (
                f"it is on host {vm.host}; control ignores this copy, which is {seen.power.value}. "
                f"Remove it if it is not needed: `virsh undefine {vm.name}`."
            )

    def _replaced(self, scope: Scope, vm: Vm, seen: SeenVm) -> None:
        """Another VM has taken the name and the host: it was made anew."""
        if self._is_busy(scope, vm):
            self.waiting = True
            return
        scope, left = avoiding.vm_leaves(
            scope,
            vm.name,
            because="another VM has its name now",
            now_ms=self.now_ms,
            except_event="",
        )
        self.facts.extend(left)
        gone = VmGoneDetail(because="another VM has its name now", vm_id=vm.vm_id)
        self._fact(FactKind.VM_GONE, scope.name, vm, gone)
        after = replace(
            vm,
            vm_id=seen.vm_id,
            may_run_on=None,
            off=False,
            went_down=False,
            has_polled=False,
        )
        detail = VmSeenDetail(vm_id=seen.vm_id, power=seen.power)
        self._fact(FactKind.VM_SEEN, scope.name, after, detail)
        self._at_home(self._put(scope, after), after, seen)

    def _at_home(self, scope: Scope, vm: Vm, seen: SeenVm) -> None:
        self._note_power(scope, vm, seen)
        if vm.name in self.known.twice_ms and seen.power is Power.RUNNING:
            other = next(
                (h for h in self.locations.others(vm) if self.locations.runs_at(vm, h)), None
            )
            if other is not None:
                self._runs_twice(scope, vm, other=other)
        wanted = self._desired(seen)
        if wanted.source is Source.HOST and seen.problem and seen.traits == Traits():
            return  # its metadata cannot be read: it stays what it was
        after = scope_edits.as_known(vm_of(wanted, vm_id=seen.vm_id, host=vm.host), vm)
        if not acted_on(scope, vm.name) and (
            seen.power is Power.RUNNING or self.locations.not_on_other_host(vm)
        ):
            after = replace(after, may_run_on=None)  # it is here, and surely nowhere else
        self._become(scope, vm, after, wanted=wanted)

    def _note_power(self, scope: Scope, vm: Vm, seen: SeenVm) -> None:
        """Write down what was done outside of Forewarn; actions are in the journal already."""
        if self._is_busy(scope, vm):
            self.busy.add(vm.name)
            self.waiting = True
            return
        before = self.known.before.get(vm.name)
        if before is None or before.vm_id != seen.vm_id or before.power is seen.power:
            return
        if vm.name not in self.known.busy_before:
            detail = VmPowerDetail(before=before.power, after=seen.power)
            self._fact(FactKind.VM_POWER, scope.name, vm, detail)

    def _become(self, scope: Scope, vm: Vm, after: Vm, *, wanted: VmEntry) -> None:
        """Have a VM as it is wanted, unless an event depends on what it was."""
        if after == vm and wanted.scope == scope.name:
            return
        bound = self.change.bound(scope.name, vm, after, wanted=wanted.scope)
        if bound:
            what, event = bound[0]
            self._problem(
                vm.name,
                f"its new {what} waits until {event_words(event)} has ended. Nothing need be done.",
            )
            return
        if wanted.scope != scope.name:
            into = self._into(wanted, self.report[vm.name])
            if into is None:
                return
            self.change.put_around(into)
        self.change.become(scope.name, after, wanted=wanted.scope)
        changed = _changed(vm, after)
        if not changed and wanted.scope == scope.name:
            return  # it is surely here now: nothing of what it is has changed
        left = scope.name if wanted.scope != scope.name else ""
        detail = VmChangedDetail(changed=tuple(changed), from_scope=left)
        self._fact(FactKind.VM_CHANGED, wanted.scope, after, detail)

    def _put(self, scope: Scope, vm: Vm) -> Scope:
        """Take over a scope and a VM of it; the scope with that VM."""
        self.change.put_around(scope)
        self.change.put_vm(scope.name, vm)
        return self.change.scope(scope.name) or scope

    # Where a VM is.

    def _moved(self, scope: Scope, vm: Vm, to: str) -> tuple[Scope, Vm]:
        """The VM is on another host now, by an operation of its host or from outside."""
        seen = self.known.reports[to][vm.name]
        after = replace(vm, host=to, vm_id=seen.vm_id, may_run_on=None)
        scope, left = avoiding.vm_leaves(
            scope, vm.name, because=f"moved to {to}", now_ms=self.now_ms, except_event=""
        )
        self.facts.extend(left)
        operations = self.fleet.operations_on(vm.host)
        operation = next((o for o in operations if o.phase is OperationPhase.STARTED), None)
        detail = MovedDetail(from_host=vm.host, power=seen.power)
        fact = vm_fact(FactKind.MOVED, scope.name, after, self.now_ms, detail=detail)
        if operation is not None:
            fact = replace(fact, operation_id=operation.operation_id)
        self.facts.append(fact)
        return self._put(scope, after), after

    def _runs_twice(self, scope: Scope, vm: Vm, *, other: str) -> None:
        self.twice.add(vm.name)
        self.waiting = True
        if self.known.twice_ms.get(vm.name, 0) < GRACE_MS:
            return  # two reports are never of the same moment
        words = (
            f"it runs on host {other} too, and both write to its disks. Stop one of them now: "
            f"`virsh destroy {vm.name}` on the host where it should not run."
        )
        self.problems[vm.name] = words
        if vm.host != self.host and self.known.problems_before.get(vm.name) != words:
            hosts = VmOnTwoHostsDetail(hosts=tuple(sorted({other, self.host})))
            self._fact(FactKind.VM_ON_TWO_HOSTS, scope.name, vm, hosts)

    # VMs that are not shown.

    def look_for_absent(self) -> None:
        ids = {seen.vm_id: seen.name for seen in self.report.values()}
        for before in self.fleet.scopes_on(self.host):
            for vm in before.vms:
                if vm.host != self.host or vm.name in self.report:
                    continue
                if vm.name in self.known.ever_shown:
                    self._is_absent(self.change.scope(before.name) or before, vm, ids)

    def _is_absent(self, scope: Scope, vm: Vm, ids: Mapping[str, str]) -> None:
        self.waiting = True
        if acted_on(scope, vm.name):
            self.busy.add(vm.name)
            return
        if vm.name in self.known.settling:
            return  # it has come since the last look; the report may be older than that
        best = self.locations.best(vm)
        if best != self.host:
            self._moved(scope, vm, best)
        elif self._is_busy(scope, vm):
            self.busy.add(vm.name)
        elif vm.vm_id in ids:
            self._leaves(scope, vm, because=f"renamed to {ids[vm.vm_id]}")
        elif self.known.absent_ms.get(vm.name, 0) < GRACE_MS:
            self.absent.add(vm.name)
        elif (other := unfinished_moves.other_host(vm, self.fleet)) and not self.locations.counts(
            other
        ):
            after, facts = unfinished_moves.counted_on(
                scope, vm, other, other=None, now_ms=self.now_ms
            )
            self.change.put(after)
            self.facts.extend(facts)
        else:
            self._leaves(scope, vm, because=f"host {self.host} does not have it any more")

    def _leaves(self, scope: Scope, vm: Vm, *, because: str) -> None:
        detail = VmGoneDetail(because=because, vm_id=vm.vm_id)
        self._fact(FactKind.VM_GONE, scope.name, vm, detail)
        if vm.name in self.known.file_vms:  # else applying the same file would make it again
            self.change.put_around(replace(scope, deleted=(*scope.deleted, vm.name)))
        self.change.leave(scope.name, vm.name, because=because)

    def _is_busy(self, scope: Scope, vm: Vm) -> bool:
        """True while something that was ordered is being done to the VM or to its host."""
        return acted_on(scope, vm.name) or self.locations.operating(vm.host)

    # The end.

    def settle_scopes(self, vms: Iterable[str], unsettled: Container[str] = ()) -> None:
        """Give the scopes of these VMs the kind, notice and approvals that VMs say.

        So too the scopes that changed; only those in `unsettled` are left as they are, and those
        of which no VM is this host's: what it shows of another's VM says nothing of its scope.
        """
        names = {scope.name for name in vms if (scope := self._scope_of_own(name)) is not None}
        names.update(scope.name for scope in self.change.changed())
        for name in sorted(names - self.known.file_scopes.keys()):
            if name in unsettled:
                continue
            for vm, words in self.reported.settle(name, self.known.reports):
                if vm in self.report:
                    self._problem(vm, words)

    def finish(self) -> ReportDecision:
        changed = {scope.name for scope in self.change.changed()}
        removed = self._empty_since().difference(changed)
        _, empty = self.change.drop_empty(changed - self.known.file_scopes.keys(), at_once=False)
        return ReportDecision(
            decision=Decision(scopes=self.change.to_save(), facts=tuple(self.facts)),
            removed_scopes=tuple(sorted(removed)),
            problems=self.problems,
            absent=frozenset(self.absent),
            twice=frozenset(self.twice),
            busy=frozenset(self.busy),
            empty_scopes=frozenset(empty),
            waiting=self.waiting,
        )

    def _empty_since(self) -> set[str]:
        """Scopes that were empty at the last look and still are, and need no row any more."""
        found = (self.change.scope(name) for name in self.known.empty_scopes)
        empty = (scope for scope in found if scope is not None and not scope.vms)
        return {s.name for s in empty if may_go(s)}.difference(self.known.file_scopes)

    def _problem(self, vm: str, words: str) -> None:
        """Something that a later look may find solved, said after what its host says."""
        said = self.problems.get(vm)
        self.problems[vm] = f"{said} {words}" if said else words
        self.waiting = True

    def _fact(self, kind: FactKind, scope: str, vm: Vm, detail: Detail) -> None:
        self.facts.append(vm_fact(kind, scope, vm, self.now_ms, detail=detail))


def _changed(before: Vm, after: Vm) -> list[str]:
    """What of a VM its owner says otherwise now, in the order in which a fact names it."""
    own = [key for key in ("vm_id", "update_domain") if getattr(before, key) != getattr(after, key)]
    was, now = before.profile, after.profile
    return own + [key for key in ATTRIBUTES if getattr(was, key) != getattr(now, key)]
