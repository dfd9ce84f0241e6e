"""What the VMs that a host shows mean for the fleet: VMs that come, change, move and vanish.

Whoever made or touched a VM, the fleet follows, but never faster than its promises: what a visible
event depends on waits until that event has ended, and what an action is doing to a VM is for that
action's report to say. Hosts show everything again and again, so waiting is doing nothing now.

A host that is silent or has failed proves nothing about its VMs.

A report is looked at as a whole (`step`), or in slices (`look`, then `conclude`): a slice says what
the VMs in it mean, and only the end, when all were looked at, says what is missing.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from forewarn.core import belonging, edits, grouping, whereabouts
from forewarn.core.facts import vm_fact
from forewarn.core.fleet import Fleet
from forewarn.core.inventory import ScopeEntry, VmEntry, event_words
from forewarn.core.machines import Power, SeenVm, Traits
from forewarn.core.model import (
    SECOND_MS,
    Decision,
    Fact,
    FactKind,
    Health,
    OperationPhase,
    Priority,
    Scope,
    Vm,
)
from forewarn.core.reconciling import vm_of
from forewarn.core.whereabouts import acted_on

# For how long a VM must be missing before it counts as gone, and for how long it must run in two
# places before that is said: reports of two hosts are never of the same moment.
GRACE_MS = 30 * SECOND_MS

# Where a VM is: where it runs, else where it is paused, else where it is at all.
_RANKS = {Power.RUNNING: 2, Power.PAUSED: 1, Power.OFF: 0, Power.CRASHED: 0}
_NOT_THERE = -1
_NOBODY_KNOWS = 0  # its host cannot be asked: only one that runs elsewhere is surely there

Report = Mapping[str, SeenVm]  # by name


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What else is known when a host shows its VMs.

    `reports` is what each host showed last, with that of this host; `before` is what this host
    showed the time before. `ever_shown` are VMs that any host has shown. `settling` are VMs that
    left, or changed their host, since anybody looked: a report may be older than that. Times are
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """The fleet as it is while a report is looked at."""

    scopes: Mapping[str, Scope]
    scope_of_vm: Mapping[str, str]
    fleet: Fleet
    now_ms: int


def step(host: str, known: Known, now: Now) -> Looked:
    """What must change because of what the host shows, and what of it cannot be used."""
    if not _counts_at_all(host, now):
        return Looked(waiting=True, empty_scopes=known.empty_scopes)
    work = _Work(host, known, now)
    for name in sorted(work.report):
        work.look_at(work.report[name])
    work.look_for_absent()
    work.settle_scopes(work.report)
    return work.finish()


def look(
    host: str, known: Known, now: Now, *, names: Collection[str], unsettled: Container[str] = ()
) -> Looked:
    """What must change because of these VMs of the report. No VM is missing because of it.

    `unsettled` are scopes that VMs of the report belong to which are not looked at yet.
    """
    if not _counts_at_all(host, now):
        return Looked(waiting=True, empty_scopes=known.empty_scopes)
    work = _Work(host, known, now)
    for name in sorted(names):
        work.look_at(work.report[name])
    work.settle_scopes(names, unsettled)
    return work.finish()


def conclude(host: str, known: Known, now: Now) -> Looked:
    """What must change because of what the host does not show, once all it shows was looked at."""
    if not _counts_at_all(host, now):
        return Looked(waiting=True, empty_scopes=known.empty_scopes)
    work = _Work(host, known, now)
    work.look_for_absent()
    work.settle_scopes(())
    return work.finish()


def _counts_at_all(host: str, now: Now) -> bool:
    there = now.fleet.host(host)
    return there is not None and there.health is not Health.FAILED


def described(seen: SeenVm, host: str) -> Vm:
    """The VM that the metadata of a domain describes."""
    said = seen.traits
    return Vm(
        name=seen.name,
        vm_id=seen.vm_id,
        update_domain=said.update_domain or 0,
        host=host,
        priority=said.priority or Priority.REGULAR,
        address=said.address,
        tags=said.tags,
        fault_domain=said.fault_domain or 0,
        zone=said.zone,
    )


class _Work:
    """The next values while they are being worked out. One use, one report."""

    def __init__(self, host: str, known: Known, now: Now) -> None:
        self.host = host
        self.known = known
        self.report = known.reports[host]
        self.scope_of_vm = now.scope_of_vm
        self.fleet = now.fleet
        self.now_ms = now.now_ms
        self.groups = grouping.Groups(now.scopes, file_scopes=known.file_scopes)
        self.facts: list[Fact] = []
        self.problems: dict[str, str] = {}
        self.absent: set[str] = set()
        self.twice: set[str] = set()
        self.busy: set[str] = set()
        self.waiting = False
        self._folded: dict[str, str] | None = None

    # VMs that are shown.

    def look_at(self, seen: SeenVm) -> None:
        if seen.problem:
            self.problems[seen.name] = seen.problem
        scope = self._scope_of(seen.name)
        vm = self.groups.vm(scope, seen.name) if scope else None
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
        return self.groups.scope(name) if name is not None else None

    def _scope_of_own(self, name: str) -> Scope | None:
        scope = self._scope_of(name)
        vm = self.groups.vm(scope, name) if scope else None
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
                f"a VM {taken} is there already, and a difference in case is none. Rename one of "
                f"them while it is off: `virsh domrename {name} NEW`.",
            )
            return
        entry = self.known.file_vms.get(name)
        wanted = entry.scope if entry else seen.traits.scope or name
        into = self.groups.into(wanted, name, seen.traits, listed_vm=entry is not None)
        if isinstance(into, str):
            self._problem(name, into)
            return
        vm = vm_of(entry, vm_id=seen.vm_id, host=self.host) if entry else described(seen, self.host)
        if name in into.deleted:
            into = replace(into, deleted=tuple(one for one in into.deleted if one != name))
        alone = self.groups.scope(name)  # kept since it was here before, in no group
        if alone is not None and alone.name != into.name:
            own = self.groups.incarnation_before(into.name)
            into = belonging.ahead_of(alone, into, own=own)
        self.groups.put_vm(into, vm)
        if self._folded is not None:  # made once a report: a fleet has many thousand names
            self._folded[name.casefold()] = name
        detail = {"vm_id": vm.vm_id, "power": seen.power.value}
        self._fact(FactKind.VM_SEEN, into.name, vm, detail)

    def _taken(self, name: str) -> str | None:
        """A VM whose name differs from this one in case only (C10)."""
        if self._folded is None:
            self._folded = {other.casefold(): other for other in self.scope_of_vm}
            for scope in self.groups.changed():
                self._folded.update((vm.name.casefold(), vm.name) for vm in scope.vms)
        return self._folded.get(name.casefold())

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
        if left and not self._counts(vm.host):
            return  # by a move: its other host may run it and cannot be asked
        first = vm.name not in self.known.ever_shown  # until now only a file knew it
        best = self.host if first else self._best(vm)
        if best == self.host:
            self._at_home(*self._moved(scope, vm, best), seen)
        elif self._runs_at(vm, vm.host) and seen.power is Power.RUNNING:
            self._runs_twice(scope, vm, other=vm.host)
        elif best == vm.host and _RANKS[seen.power] == 0:
            self.problems[vm.name] = (
                f"it is on host {vm.host}; this copy of it is {seen.power.value} and gets nothing. "
                f"Remove it if it is not needed: `virsh undefine {vm.name}`."
            )

    def _replaced(self, scope: Scope, vm: Vm, seen: SeenVm) -> None:
        """Another VM has taken the name and the host: it was made anew."""
        if self._is_busy(scope, vm):
            self.waiting = True
            return
        scope, left = edits.vm_leaves(
            scope,
            vm.name,
            because="another VM has its name now",
            now_ms=self.now_ms,
            except_event="",
        )
        self.facts.extend(left)
        detail = {"because": "another VM has its name now", "vm_id": vm.vm_id}
        self._fact(FactKind.VM_GONE, scope.name, vm, detail)
        after = replace(vm, vm_id=seen.vm_id, may_run_on=None, off=False, went_down=False)
        detail = {"vm_id": seen.vm_id, "power": seen.power.value}
        self._fact(FactKind.VM_SEEN, scope.name, after, detail)
        self._at_home(self.groups.put_vm(scope, after), after, seen)

    def _at_home(self, scope: Scope, vm: Vm, seen: SeenVm) -> None:
        self._note_power(scope, vm, seen)
        if vm.name in self.known.twice_ms and seen.power is Power.RUNNING:
            other = next((h for h in self._others(vm) if self._runs_at(vm, h)), None)
            if other is not None:
                self._runs_twice(scope, vm, other=other)
        entry = self.known.file_vms.get(vm.name)
        if entry is None and seen.problem and seen.traits == Traits():
            return  # its metadata cannot be read: it stays what it was
        after = vm_of(entry, vm_id=seen.vm_id, host=vm.host) if entry else described(seen, vm.host)
        after = edits.as_known(after, vm)
        if not acted_on(scope, vm.name) and (seen.power is Power.RUNNING or self._not_there(vm)):
            after = replace(after, may_run_on=None)  # it is here, and surely nowhere else
        wanted = entry.scope if entry else seen.traits.scope or vm.name
        self._become(scope, vm, after, wanted=wanted)

    def _note_power(self, scope: Scope, vm: Vm, seen: SeenVm) -> None:
        """Write down what other hands did; what we do ourselves is in the journal already."""
        if self._is_busy(scope, vm):
            self.busy.add(vm.name)
            self.waiting = True
            return
        before = self.known.before.get(vm.name)
        if before is None or before.vm_id != seen.vm_id or before.power is seen.power:
            return
        if vm.name not in self.known.busy_before:
            detail = {"before": before.power.value, "after": seen.power.value}
            self._fact(FactKind.VM_POWER, scope.name, vm, detail)

    def _become(self, scope: Scope, vm: Vm, after: Vm, *, wanted: str) -> None:
        """Take over what is said of a VM now, unless an event depends on what it was."""
        if after == vm and wanted == scope.name:
            return
        bound = list(belonging.bound_changes(scope, vm, scope_after=wanted, after=after))
        if bound:
            what, event = bound[0]
            self._problem(
                vm.name,
                f"its new {what} waits until {event_words(event)} has ended. Nothing need be done.",
            )
            return
        if wanted == scope.name:
            self.groups.put_vm(scope, after)
        else:
            said, listed = self.report[vm.name].traits, vm.name in self.known.file_vms
            into = self.groups.into(wanted, vm.name, said, listed_vm=listed)
            if isinstance(into, str):
                self._problem(vm.name, into)
                return
            left, facts = belonging.without_vm(
                scope, vm.name, because=f"now in scope {wanted}", now_ms=self.now_ms
            )
            self.groups.put(left)
            self.facts.extend(facts)
            own = self.groups.incarnation_before(wanted)
            self.groups.put_vm(belonging.ahead_of(scope, into, own=own), after)
        changed = [key for key in _KEYS if getattr(vm, key) != getattr(after, key)]
        if not changed and wanted == scope.name:
            return  # it is surely here now: nothing of what it is has changed
        detail: dict[str, object] = {"changed": changed}
        if wanted != scope.name:
            detail["from_scope"] = scope.name
        self._fact(FactKind.VM_CHANGED, wanted, after, detail)

    # Where a VM is.

    def _others(self, vm: Vm) -> Iterator[str]:
        """Other hosts that show this very VM and whose word counts."""
        for host, report in self.known.reports.items():
            seen = report.get(vm.name)
            if host == vm.host or seen is None or seen.vm_id != vm.vm_id:
                continue
            if self._counts(host):
                yield host

    def _counts(self, host: str) -> bool:
        there = self.fleet.host(host)
        if there is None or there.health is Health.FAILED:
            return False
        return host == self.host or self.fleet.alive(host)

    def _not_there(self, vm: Vm) -> bool:
        """True if the other host that may run the VM shows what it has, and not that VM."""
        other = vm.may_run_on or ""
        report = self.known.reports.get(other)
        return report is not None and vm.name not in report and self._counts(other)

    def _runs_at(self, vm: Vm, host: str) -> bool:
        seen = self.known.reports.get(host, {}).get(vm.name)
        return seen is not None and seen.power is Power.RUNNING and self._counts(host)

    def _best(self, vm: Vm) -> str:
        """The host where the VM is: its own unless another has a better claim."""
        best = vm.host
        if not self._counts(vm.host):
            rank = _NOBODY_KNOWS
        elif vm.host not in self.known.reports:
            return best  # it is there and will say so
        else:
            seen = self.known.reports[vm.host].get(vm.name)
            rank = _RANKS[seen.power] if seen and seen.vm_id == vm.vm_id else _NOT_THERE
            if rank != _NOT_THERE and self._operating(vm.host):
                return best  # paused or off by order: nobody can claim it until it is gone there
        for host in sorted(self._others(vm)):
            claim = _RANKS[self.known.reports[host][vm.name].power]
            if claim > rank:
                best, rank = host, claim
        return best

    def _moved(self, scope: Scope, vm: Vm, to: str) -> tuple[Scope, Vm]:
        """The VM is on another host now, by other hands or by an operation of its host."""
        seen = self.known.reports[to][vm.name]
        after = replace(vm, host=to, vm_id=seen.vm_id, may_run_on=None)
        scope, left = edits.vm_leaves(
            scope, vm.name, because=f"moved to {to}", now_ms=self.now_ms, except_event=""
        )
        self.facts.extend(left)
        operations = self.fleet.operations_on(vm.host)
        operation = next((o for o in operations if o.phase is OperationPhase.STARTED), None)
        detail: dict[str, object] = {"from": vm.host, "power": seen.power.value}
        fact = vm_fact(FactKind.MOVED, scope.name, after, self.now_ms, detail=detail)
        if operation is not None:
            fact = replace(fact, operation_id=operation.operation_id)
        self.facts.append(fact)
        return self.groups.put_vm(scope, after), after

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
            self._fact(FactKind.VM_TWICE, scope.name, vm, {"hosts": sorted({other, self.host})})

    # VMs that are not shown.

    def look_for_absent(self) -> None:
        ids = {seen.vm_id: seen.name for seen in self.report.values()}
        for before in self.fleet.scopes_on(self.host):
            for vm in before.vms:
                if vm.host != self.host or vm.name in self.report:
                    continue
                if vm.name in self.known.ever_shown:
                    self._is_absent(self.groups.scope(before.name) or before, vm, ids)

    def _is_absent(self, scope: Scope, vm: Vm, ids: Mapping[str, str]) -> None:
        self.waiting = True
        if acted_on(scope, vm.name):
            self.busy.add(vm.name)
            return
        if vm.name in self.known.settling:
            return  # it has come since anybody looked; the report may be older than that
        best = self._best(vm)
        if best != self.host:
            self._moved(scope, vm, best)
        elif self._is_busy(scope, vm):
            self.busy.add(vm.name)
        elif vm.vm_id in ids:
            self._leaves(scope, vm, because=f"renamed to {ids[vm.vm_id]}")
        elif self.known.absent_ms.get(vm.name, 0) < GRACE_MS:
            self.absent.add(vm.name)
        elif (other := whereabouts.other_host(vm, self.fleet)) and not self._counts(other):
            after, facts = whereabouts.counted_on(scope, vm, other, other=None, now_ms=self.now_ms)
            self.groups.put(after)
            self.facts.extend(facts)
        else:
            self._leaves(scope, vm, because=f"host {self.host} does not have it any more")

    def _leaves(self, scope: Scope, vm: Vm, *, because: str) -> None:
        after, facts = belonging.without_vm(scope, vm.name, because=because, now_ms=self.now_ms)
        if vm.name in self.known.file_vms:  # else applying the same file would make it again
            after = replace(after, deleted=(*after.deleted, vm.name))
        self.groups.put(after)
        detail = {"because": because, "vm_id": vm.vm_id}
        self._fact(FactKind.VM_GONE, scope.name, vm, detail)
        self.facts.extend(facts)

    def _is_busy(self, scope: Scope, vm: Vm) -> bool:
        """True while something that was ordered is being done to the VM or to its host."""
        return acted_on(scope, vm.name) or self._operating(vm.host)

    def _operating(self, host: str) -> bool:
        return any(
            operation.action is not None and not operation.action.ended
            for operation in self.fleet.operations_on(host)
        )

    # The end.

    def settle_scopes(self, vms: Iterable[str], unsettled: Container[str] = ()) -> None:
        """Give the scopes of these VMs the kind, notice and approvals that VMs say.

        So too the scopes that changed; only those in `unsettled` are left as they are, and those
        of which no VM is this host's: what it shows of another's VM says nothing of its scope.
        """
        names = {scope.name for name in vms if (scope := self._scope_of_own(name)) is not None}
        names.update(scope.name for scope in self.groups.changed())
        for name in sorted(names - self.known.file_scopes.keys()):
            if name in unsettled:
                continue
            for vm, words in self.groups.settle(name, self.known.reports):
                if vm in self.report:
                    self._problem(vm, words)

    def finish(self) -> Looked:
        scopes, removed, empty = self.groups.finish(self.known.empty_scopes)
        return Looked(
            decision=Decision(scopes=scopes, facts=tuple(self.facts)),
            removed_scopes=removed,
            problems=self.problems,
            absent=frozenset(self.absent),
            twice=frozenset(self.twice),
            busy=frozenset(self.busy),
            empty_scopes=empty,
            waiting=self.waiting,
        )

    def _problem(self, vm: str, words: str) -> None:
        """Something that a later look may find solved, said after what its host says."""
        said = self.problems.get(vm)
        self.problems[vm] = f"{said} {words}" if said else words
        self.waiting = True

    def _fact(self, kind: FactKind, scope: str, vm: Vm, detail: Mapping[str, object]) -> None:
        self.facts.append(vm_fact(kind, scope, vm, self.now_ms, detail=detail))


# What of a VM its owner says, in the order in which a fact names it.
_KEYS = (
    "vm_id",
    "update_domain",
    "priority",
    "address",
    "listen",
    "tags",
    "fault_domain",
    "zone",
    "os_type",
    "computer_name",
)
