"""What hosts see, and what they ask because of it: reports, targets, definitions, adoptions.

What a report changes is decided in `core.sighting`. Kept here, in memory, is what the next report
is compared with; after a restart hosts show everything again. `take` and adoptions are for the
event loop; commands run on the writer's thread like all others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from forewarn.control import report_slices, seen_vms
from forewarn.control.adoptions import Adoptions
from forewarn.control.control import Control
from forewarn.control.fleet_reader import FleetLook, FleetReader
from forewarn.control.inventory_file import ReadFiles
from forewarn.control.observed import ReportedVm
from forewarn.control.powers import Powers, booted
from forewarn.control.report_slices import Report, Slice
from forewarn.control.transaction import Transaction
from forewarn.core import edits, planning, sighting
from forewarn.core.errors import BadInventory, Conflict, NotFound, Unavailable
from forewarn.core.inventory import ScopeEntry, VmEntry
from forewarn.core.machines import Power, SeenVm, Traits
from forewarn.core.model import ActionKind, Phase, Scope
from forewarn.core.spelling import meant
from forewarn.logs import Log
from forewarn.ports import Clock, Definition
from forewarn.wire.host_json import Adoption

T = TypeVar("T")

# A report that says nothing new is looked at all the same after so long: nothing that a look
# could find stays unfound.
LOOK_AGAIN_MS = 300_000

# A report that took so long to look at is followed by a rest of so many times that: no host, by
# showing ever other thousands of VMs, keeps approvals of all the others waiting.
LONG_LOOK_MS = 500
READ_AT_ONCE_VMS_MAX = 256
RESTS = 4

log = Log(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """A report as it came (texts replaced by their digests), and what was made of it."""

    told: tuple[SeenVm, ...] = ()
    usable: Mapping[str, SeenVm] = field(default_factory=dict)
    looked: sighting.Looked = field(default_factory=sighting.Looked)
    problems: Mapping[str, str] = field(default_factory=dict)
    inventory: str | None = None
    at_monotonic_ms: int = 0


@dataclass(slots=True, kw_only=True)
class _Taking:
    """A report while it is being taken, slice by slice. Changed on the writer's thread alone."""

    report: Report
    number: int
    problems: dict[str, str]
    busy: set[str] = field(default_factory=set)
    waiting: bool = False
    begun: bool = False
    inventory: str | None = None
    spent_ms: int = 0
    reported: Mapping[str, ReportedVm] = field(default_factory=dict)

    def add(self, looked: sighting.Looked, names: Container[str]) -> None:
        """Keep what one look has found. Of VMs that are not in `names` more is said now."""
        for name, words in looked.problems.items():
            said = "" if name in names else self.problems.get(name, "")
            self.problems[name] = f"{said} {words}".strip()
        self.busy |= looked.busy
        self.waiting = self.waiting or looked.waiting


@dataclass(frozen=True, slots=True)
class ReportStep:
    """One command, which answers what of the report cannot be used, in words, by VM.

    Once it was carried out, `reported` is what the host has reported.
    """

    command: Callable[[Transaction], Mapping[str, str]]
    reported: Callable[[], Mapping[str, ReportedVm]]


@dataclass(frozen=True, slots=True)
class _File:
    """What the applied inventory file says, by name."""

    text: str | None = None
    scopes: Mapping[str, ScopeEntry] = field(default_factory=dict)
    vms: Mapping[str, VmEntry] = field(default_factory=dict)


_BRINGING = (ActionKind.START_VM, ActionKind.DEFINE_VM, ActionKind.MOVE_VM)


class Sightings:
    """What hosts have shown since control was started, and who waits for them."""

    def __init__(
        self,
        clock: Clock,
        *,
        ring: Callable[[str], None] = lambda _: None,
        slice_vms: int = report_slices.SLICE_VMS_MAX,
        files: ReadFiles | None = None,
    ) -> None:
        """`ring` is called with the name of a host that has a new adoption to write.

        `files` has the inventory files that were read already.
        """
        self._files = files or ReadFiles()
        self._clock = clock
        self._slice_vms = slice_vms
        self._turn = asyncio.Lock()  # one slice of all hosts is with the writer
        self._reports = 0
        self._last_report: dict[str, int] = {}  # by host: reports before it do not count any more
        self._looks: dict[str, _Look] = {}
        self._rests_until: dict[str, int] = {}
        self._file = _File()
        self._placed: dict[str, str] = {}  # where each VM was when somebody last looked
        self._absent_since: dict[str, int] = {}
        self._twice_since: dict[str, int] = {}
        self._empty_scopes: frozenset[str] | None = None
        self._powers = Powers(clock)
        self._adoptions = Adoptions(str(clock.now_ms()), ring)

    def on_adoption(self, ring: Callable[[str], None]) -> None:
        """Call `ring` with the name of a host that has a new adoption to write."""
        self._adoptions.ring = ring

    # Reports.

    async def take(
        self,
        control: Control,
        host: str,
        vms: Sequence[SeenVm],
        *,
        boot_id: str = "",
        check: Callable[[], object] = lambda: None,
    ) -> Mapping[str, str]:
        """Take what a host shows; what of it cannot be used, in words, by VM.

        A report that says nothing new costs no transaction. A long one is taken in slices, each a
        command of its own, and only one slice of all hosts waits for the writer at a time: what
        others ask goes between. Until the last slice was taken, no VM is missing. Should a host
        report again meanwhile, the last report counts and the one before is left where it is.

        `boot_id` is the boot of the host in which it saw them; empty if it does not say. `check` is
        called before each slice; what it raises ends the taking. Raises Invalid for a report that
        no host would make, NotFound for a host that is not in the fleet, and Unavailable.
        """
        seen_vms.refuse_too_many(host, vms)
        if self._files.reading:
            raise Unavailable("The inventory file is being read. Report again in a moment.")
        told = await _aside(vms, report_slices.digested, host, vms)
        problems = self.settled(control.fleet, host, told, boot_id)
        if problems is None:
            if self._clock.monotonic_ms() < self._rests_until.get(host, 0):
                raise Unavailable(f"The last report of host {host} took long; this one waits.")
            report = await _aside(vms, report_slices.read, host, vms, told, boot_id)
            problems = await self._take_slices(control, report, check)
        self._adoptions.shown(host, vms, problems)
        return problems

    async def _take_slices(
        self, control: Control, report: Report, check: Callable[[], object]
    ) -> Mapping[str, str]:
        taking = self._begin(report)
        problems: Mapping[str, str] = {}
        try:
            for step in self._steps(taking):
                async with self._turn:
                    check()
                    problems = await control.submit(self._timed(taking, step.command))
                    control.observed.report(report.host, step.reported())
        finally:
            if taking.spent_ms >= LONG_LOOK_MS:
                rests_ms = RESTS * taking.spent_ms
                self._rests_until[report.host] = self._clock.monotonic_ms() + rests_ms
        return problems

    def _begin(self, report: Report) -> _Taking:
        """From now on this is the report of its host, and any before it is not."""
        self._reports += 1
        self._last_report[report.host] = self._reports
        return _Taking(report=report, number=self._reports, problems=dict(report.unusable))

    def _timed(
        self, taking: _Taking, command: Callable[[Transaction], T]
    ) -> Callable[[Transaction], T]:
        def timed(tx: Transaction) -> T:
            began_ms = self._clock.monotonic_ms()
            try:
                return command(tx)
            finally:
                taking.spent_ms += self._clock.monotonic_ms() - began_ms

        return timed

    def settled(
        self, fleet: FleetReader, host: str, told: tuple[SeenVm, ...], boot_id: str = ""
    ) -> Mapping[str, str] | None:
        """The answer to a (digested) report that says nothing new while nothing waits; else None.

        `fleet` is the published one.
        """
        last = self._looks.get(host)
        if last is None or last.looked.waiting or fleet.blind(host):
            return None
        if boot_id and fleet.need_host(host).boot_id != boot_id:
            return None
        if self._clock.monotonic_ms() - last.at_monotonic_ms >= LOOK_AGAIN_MS:
            return None
        twice = self._twice_since.keys()
        if last.inventory is not fleet.inventory or any(name in twice for name in last.usable):
            return None
        known = fleet.scope_of_vm
        left = any(n not in known and n not in last.problems for n in last.usable)
        if any(_counts_as_down(fleet, host, seen) for seen in last.usable.values()):
            return None  # since that look: the host may have asked for work in a new boot
        return last.problems if not left and told == last.told else None

    def steps(self, host: str, vms: Sequence[SeenVm], boot_id: str = "") -> list[ReportStep]:
        """What it takes to take a report, in this order; the last one answers it."""
        report = report_slices.read(host, vms, report_slices.digested(host, vms), boot_id)
        return self._steps(self._begin(report))

    def _steps(self, taking: _Taking) -> list[ReportStep]:
        parts = report_slices.slices(taking.report, vms_max=self._slice_vms)
        if len(parts) == 1:
            commands = [self._whole(taking)]
        else:
            commands = [*(self._slice(taking, part) for part in parts), self._end(taking)]
        return [ReportStep(command, lambda: taking.reported) for command in commands]

    def _whole(self, taking: _Taking) -> Callable[[Transaction], Mapping[str, str]]:
        report = taking.report

        def command(tx: Transaction) -> Mapping[str, str]:
            last = self._open(tx, taking)
            here = _names_on(tx, report.host)
            known = self._known(tx, report, last, here.union(report.usable))
            looked = sighting.step(report.host, known, _now(tx))
            self._apply(tx, looked)
            looked = self._look_at_powers(tx, report, looked)
            self._define(tx, report, report.usable)
            taking.add(looked, report.usable)
            self._close(tx, taking)
            here.update(_names_on(tx, report.host), report.usable, last.usable if last else ())
            self._keep_times(tx, here, looked)
            return taking.problems

        return command

    def _slice(self, taking: _Taking, part: Slice) -> Callable[[Transaction], Mapping[str, str]]:
        """Look at some VMs of a report. To everybody else the rest is as it was told before."""
        report, names = taking.report, frozenset(part.names)

        def command(tx: Transaction) -> Mapping[str, str]:
            last = self._open(tx, taking)
            known = self._known(tx, report, last, names)
            looked = sighting.look(
                report.host,
                replace(known, empty_scopes=frozenset()),
                _now(tx),
                names=names,
                unsettled=part.unsettled,
            )
            self._apply(tx, looked)
            self._define(tx, report, names)
            taking.add(looked, names)
            self._keep_partly(tx, taking, last, names)
            empty = (self._empty_scopes or frozenset()) | looked.empty_scopes
            self._keep_times(tx, set(names), replace(looked, empty_scopes=empty))
            return taking.problems

        return command

    def _end(self, taking: _Taking) -> Callable[[Transaction], Mapping[str, str]]:
        """All VMs of a report were looked at: look for those that are not in it."""
        report = taking.report

        def command(tx: Transaction) -> Mapping[str, str]:
            last = self._open(tx, taking)
            here = _names_on(tx, report.host).difference(report.usable)
            known = self._known(tx, report, last, here)
            looked = sighting.conclude(report.host, known, _now(tx))
            self._apply(tx, looked)
            looked = self._look_at_powers(tx, report, looked)
            taking.add(looked, ())
            self._close(tx, taking)
            here.update(last.usable if last else ())
            here.difference_update(report.usable)
            self._keep_times(tx, here, looked)
            return taking.problems

        return command

    def _look_at_powers(
        self, tx: Transaction, report: Report, looked: sighting.Looked
    ) -> sighting.Looked:
        """Take over which VMs of the whole report are off; look again while one is about to be.

        A new boot of the host comes first: what runs in it did not go down with the one before.
        """
        if report.boot_id:
            booted(tx, report.host, report.boot_id)
        waits = self._powers.seen(tx, report.host, _powers(tx, report.usable))
        return replace(looked, waiting=True) if waits else looked

    def _open(self, tx: Transaction, taking: _Taking) -> _Look | None:
        """What is known of the host before this command. Raises if the report does not count."""
        host = taking.report.host
        tx.need_host(host)
        if self._last_report.get(host) != taking.number:
            raise Conflict(f"Host {host} has reported again since.", "The last report counts.")
        if not taking.begun:
            taking.begun, taking.inventory = True, tx.inventory
        for gone in [name for name in self._looks if tx.host(name) is None]:
            del self._looks[gone]
        last = self._looks.get(host)
        tx.on_take_back(partial(self._forget, host, last))
        return last

    @staticmethod
    def _apply(tx: Transaction, looked: sighting.Looked) -> None:
        tx.apply(looked.decision)
        for name in looked.removed_scopes:
            tx.remove_scope(name)

    def _close(self, tx: Transaction, taking: _Taking) -> None:
        """The whole report was looked at: it is what the host shows."""
        report = taking.report
        again = taking.inventory is not tx.inventory  # some of it was compared with another
        self._looks[report.host] = _Look(
            told=report.told,
            usable=report.usable,
            looked=sighting.Looked(busy=frozenset(taking.busy), waiting=taking.waiting or again),
            problems=taking.problems,
            inventory=tx.inventory,
            at_monotonic_ms=self._clock.monotonic_ms(),
        )
        taking.reported = _reported(report.told, taking.problems)

    def _keep_partly(
        self, tx: Transaction, taking: _Taking, last: _Look | None, names: frozenset[str]
    ) -> None:
        """Some VMs are as this report shows them, the others as the host showed them before."""
        report = taking.report
        before = last or _Look()
        problems = {n: words for n, words in before.problems.items() if n not in names}
        problems |= {n: words for n, words in taking.problems.items() if n in names}
        self._looks[report.host] = _Look(
            usable={**before.usable, **{name: report.usable[name] for name in names}},
            looked=sighting.Looked(
                busy=before.looked.busy.difference(names).union(taking.busy & names), waiting=True
            ),
            problems=problems,
            at_monotonic_ms=self._clock.monotonic_ms(),
        )
        told = (report.usable[name] for name in names)
        known = tx.reported(report.host)
        taking.reported = {**known, **_reported(told, taking.problems)}

    def _known(
        self, tx: Transaction, report: Report, last: _Look | None, names: Collection[str]
    ) -> sighting.Known:
        """What else is known while these VMs are judged."""
        now = self._clock.monotonic_ms()
        file = self._read_file(tx.inventory)
        if self._empty_scopes is None:
            self._empty_scopes = frozenset(s.name for s in tx.scopes.values() if not s.vms)
        shown = {name: look.usable for name, look in self._looks.items()}
        return sighting.Known(
            reports={**shown, report.host: report.usable},
            before=last.usable if last else {},
            file_scopes=file.scopes,
            file_vms=file.vms,
            ever_shown=tx.digests,
            settling=self._settling(tx, names),
            busy_before=last.looked.busy if last else (),
            absent_ms={name: now - since for name, since in self._absent_since.items()},
            twice_ms={name: now - since for name, since in self._twice_since.items()},
            problems_before=last.problems if last else {},
            empty_scopes=self._empty_scopes,
        )

    def _settling(self, tx: Transaction, vms: Collection[str]) -> frozenset[str]:
        """The VMs that an order has moved or deleted since anybody looked."""
        hosts = _hosts_of(tx, vms)
        return frozenset(
            name for name in vms if self._placed.get(name) not in (None, hosts.get(name))
        )

    def _read_file(self, text: str | None) -> _File:
        if text is self._file.text:
            return self._file
        try:
            inventory = self._files.read(text) if text is not None else None
        except BadInventory as refused:
            # Written under older rules; what it meant then is in the fleet.
            log.warning("inventory_not_understood", reason=str(refused))
            inventory = None
        self._file = _File(
            text=text,
            scopes={entry.name: entry for entry in inventory.scopes} if inventory else {},
            vms={entry.name: entry for entry in inventory.vms} if inventory else {},
        )
        return self._file

    @staticmethod
    def _define(tx: Transaction, report: Report, names: Collection[str]) -> None:
        """Keep the definitions that are new, of those of the VMs that are on this host now."""
        host, texts = report.host, report.texts
        hosts = _hosts_of(tx, names)
        for name in names:
            seen = report.usable[name]
            known = tx.digests.get(name)
            if known == seen.definition or hosts.get(name) != host:
                continue
            if known is not None and not texts[name]:
                continue  # a host that cannot say what a VM is now does not unsay what it was
            tx.define(
                Definition(
                    vm=name,
                    host=host,
                    text=texts[name],
                    digest=seen.definition,
                    seen_ms=tx.now_ms,
                )
            )

    def _keep_times(self, tx: Transaction, vms: set[str], looked: sighting.Looked) -> None:
        """Remember, of the VMs that the look was about, since when they are as they are."""
        now = self._clock.monotonic_ms()
        for names, since in (
            (looked.absent, self._absent_since),
            (looked.twice, self._twice_since),
        ):
            for name in vms - names:
                since.pop(name, None)
            for name in names:
                since.setdefault(name, now)
        hosts = _hosts_of(tx, vms)
        for name in vms - hosts.keys():
            self._placed.pop(name, None)
        self._placed.update(hosts)
        self._empty_scopes = looked.empty_scopes

    def _forget(self, host: str, last: _Look | None) -> None:
        """What could not be written down is looked at anew."""
        self._looks.pop(host, None)
        if last is not None:
            self._looks[host] = replace(last, told=(), looked=replace(last.looked, waiting=True))
        self._empty_scopes = None

    # Adoptions.

    async def adopt(self, vm: str, traits: Traits) -> str:
        """Have traits written to a VM's domain, and wait until its host shows them.

        Returns what is still in their way, in words, or an empty text. Raises Invalid, NotFound,
        Conflict with the host's words, or Unavailable if the host is silent.
        """
        traits = seen_vms.read_traits(traits)
        self._refuse_listed(vm, traits)
        return await self._adoptions.adopt(self._host_showing(vm), vm, traits)

    def _refuse_listed(self, vm: str, wanted: Traits) -> None:
        """Raise Conflict if a file says of the VM what its metadata would say without effect."""
        if vm not in self._file.vms:
            return
        now = self.traits_of(vm)
        policy = replace(
            now,
            freeze_by_move=wanted.freeze_by_move,
            when_host_goes_down=wanted.when_host_goes_down,
        )
        if policy != wanted:
            raise Conflict(
                f"VM {vm} is listed in the inventory file, and what the file says of it counts.",
                "Change the file and apply it, or take the VM out of it; only freeze_by_move and "
                "when_host_goes_down are said by adopting alone.",
            )

    def traits_of(self, vm: str) -> Traits:
        """What is said of a VM now, as its host showed it last. Raises NotFound."""
        return self._looks[self._host_showing(vm)].usable[vm].traits

    def adoptions_for(self, host: str) -> tuple[Adoption, ...]:
        """What the host has still to write, oldest first. Writing one twice does no harm."""
        return self._adoptions.queued(host)

    def adopted(self, host: str, adoption_id: str, problem: str) -> None:
        """The host has written the traits, or says why not. Answers that come late say nothing."""
        self._adoptions.answered(host, adoption_id, problem)

    def _host_showing(self, vm: str) -> str:
        """The host that has the VM; the fleet may not have it, and adopting is the remedy."""
        looks = list(self._looks.items())
        placed = self._placed.get(vm)
        hosts = [host for host, look in looks if vm in look.usable]
        if placed in hosts:
            return placed
        if not hosts:
            names = {name for _, look in looks for name in look.usable}
            raise NotFound(
                f"No host shows a VM {vm}.",
                f"{meant(vm, names)} `virsh list --all` on the host says what it has.",
            )
        return hosts[0]


async def _aside(vms: Sequence[SeenVm], read: Callable[..., T], *given: object) -> T:
    """Read a report; a long one on a thread, so that the event loop goes on meanwhile."""
    if len(vms) <= READ_AT_ONCE_VMS_MAX:
        return read(*given)
    return await asyncio.to_thread(read, *given)


def _now(tx: Transaction) -> sighting.Now:
    return sighting.Now(
        scopes=tx.scopes,
        scope_of_vm=tx.scope_of_vm,
        fleet=tx,
        now_ms=tx.now_ms,
    )


def _reported(told: Iterable[SeenVm], problems: Mapping[str, str]) -> dict[str, ReportedVm]:
    return {
        seen.name: ReportedVm(
            seen.power,
            problems.get(seen.name, ""),
            freeze_by_move=seen.traits.freeze_by_move,
            when_host_goes_down=seen.traits.when_host_goes_down,
        )
        for seen in told
    }


def _powers(tx: Transaction, usable: Mapping[str, SeenVm]) -> dict[str, Power]:
    """Which of the VMs of the fleet run, as a host shows them; another of its name is not one."""
    known = ((seen, tx.vm(name)) for name, seen in usable.items())
    return {vm.name: seen.power for seen, vm in known if vm and vm.vm_id == seen.vm_id}


def _counts_as_down(fleet: FleetReader, host: str, seen: SeenVm) -> bool:
    """Whether a VM that its host shows running is off, or went down, as far as the fleet knows."""
    vm = fleet.vm(seen.name) if seen.power is Power.RUNNING else None
    return vm is not None and vm.host == host and (vm.off or vm.went_down)


def _names_on(tx: Transaction, host: str) -> set[str]:
    return {vm.name for scope in tx.scopes_on(host) for vm in scope.vms if vm.host == host}


def _hosts_of(tx: Transaction, vms: Collection[str]) -> dict[str, str]:
    """Where those of the VMs are that are in the fleet."""
    found = (tx.vm(name) for name in vms)
    return {vm.name: vm.host for vm in found if vm is not None}


# What a host asks while it acts.


def targets(fleet: FleetLook, host: str, vms: Sequence[str]) -> dict[str, str | None]:
    """Where these VMs should go now. None for a VM without a place, or of another host.

    What the same answer plans already is counted, and no two update domains of a scope are sent to
    one host.
    """
    planned: dict[str, int] = {}
    scopes: dict[str, Scope] = {}  # with the VMs where they are to go
    found: dict[str, str | None] = {}
    for name in vms:
        scope_name, vm = fleet.scope_of_vm.get(name, ""), fleet.vm(name)
        scope = scopes.get(scope_name) or fleet.scope(scope_name)
        found[name] = None
        if scope is None or vm is None or vm.host != host:
            continue
        target = planning.choose_target(scope, vm, fleet, planned)
        if target is not None and target != host:
            found[name] = target
            planned[target] = planned.get(target, 0) + 1
            scopes[scope_name] = edits.with_vm(scope, replace(vm, host=target))
    return found


def is_coming(fleet: FleetLook, host: str, vm: str) -> bool:
    """True if an open action brings the VM to the host, which then needs its definition."""
    scope = fleet.scope(fleet.scope_of_vm.get(vm, ""))
    return scope is not None and any(
        action.kind in _BRINGING
        and (action.vm, action.target_host, action.ended) == (vm, host, False)
        for event in scope.events
        if event.phase is Phase.STARTED
        for action in event.actions
    )
