"""Takes the reports of hosts, and the adoptions that wait for them. For the event loop.

Says when which part of a report is taken; `report_commands` decides what it changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from msgspec.structs import replace

from forewarn.control.commands import (
    BeginReport,
    Command,
    EndReport,
    GoOnReport,
    NoteAdoption,
    ReportTaken,
    TakeReport,
)
from forewarn.control.control import Control
from forewarn.control.fleet_reader import FleetReader
from forewarn.control.hosts import report_slices, reported_vms
from forewarn.control.hosts.adoptions import Adoptions
from forewarn.control.hosts.report_slices import Report
from forewarn.control.volatile import Volatile
from forewarn.control.writer import CommandWithClock
from forewarn.core.errors import Conflict, NotFound, Unavailable
from forewarn.core.inventory.host_report import Power, SeenVm, Traits
from forewarn.core.principal import Principal, the_host
from forewarn.core.suggestions import meant
from forewarn.ports import Clock
from forewarn.wire.link import Adoption

T = TypeVar("T")

# A report that says nothing new is looked at all the same after so long: nothing that a look
# could find stays unfound.
LOOK_AGAIN_MS = 300_000

# A report that took so long to look at is followed by a rest of so many times that: no host, by
# showing ever other thousands of VMs, keeps approvals of all the others waiting.
LONG_LOOK_MS = 500
READ_AT_ONCE_VMS_MAX = 256
RESTS = 4


class ReportIntake:
    """What hosts have shown since control was started, and who waits for them."""

    def __init__(
        self,
        clock: Clock,
        volatile: Volatile,
        *,
        ring: Callable[[str], None] = lambda _: None,
        slice_vms: int = report_slices.SLICE_VMS_MAX,
    ) -> None:
        """`ring` is called with the name of a host that has a new adoption to write.

        `volatile` is the writer's, with what hosts have shown.
        """
        self.volatile = volatile
        self._clock = clock
        self._slice_vms = slice_vms
        self._turn = asyncio.Lock()  # one slice of all hosts is with the writer
        self._reports = 0
        self._rests_until: dict[str, int] = {}
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
        reported_vms.refuse_too_many(host, vms)
        if self.volatile.files.reading:
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
        problems: Mapping[str, str] = {}
        spent_ms = 0
        try:
            for command in self._steps(report):
                async with self._turn:
                    check()
                    timed = CommandWithClock(command, self._clock)
                    try:
                        taken = await control.submit(timed)
                    finally:
                        spent_ms += timed.ms
                    problems = taken.problems
                    control.observed.sees(report.host)
        finally:
            if spent_ms >= LONG_LOOK_MS:
                rests_ms = RESTS * spent_ms
                self._rests_until[report.host] = self._clock.monotonic_ms() + rests_ms
        return problems

    def settled(
        self, fleet: FleetReader, host: str, told: tuple[SeenVm, ...], boot_id: str = ""
    ) -> Mapping[str, str] | None:
        """The answer to a (digested) report that says nothing new while nothing waits; else None.

        `fleet` is the published one.
        """
        last = self.volatile.looks.get(host)
        if last is None or last.looked.waiting or fleet.hypervisor_unreachable(host):
            return None
        if boot_id and fleet.need_host(host).boot_id != boot_id:
            return None
        if self._clock.monotonic_ms() - last.at_ms >= LOOK_AGAIN_MS:
            return None
        twice = self.volatile.twice_since.keys()
        if last.inventory is not fleet.inventory or any(name in twice for name in last.usable):
            return None
        known = fleet.scope_of_vm
        left = any(n not in known and n not in last.problems for n in last.usable)
        if any(_counts_as_down(fleet, host, seen) for seen in last.usable.values()):
            return None  # since that look: the host may have asked for work in a new boot
        return last.problems if not left and told == last.told else None

    def steps(
        self, host: str, vms: Sequence[SeenVm], boot_id: str = ""
    ) -> Sequence[Command[ReportTaken]]:
        """What it takes to take a report, in this order; the last one answers it."""
        report = report_slices.read(host, vms, report_slices.digested(host, vms), boot_id)
        return self._steps(report)

    def _steps(self, report: Report) -> Sequence[Command[ReportTaken]]:
        self._reports += 1
        by, host, number = the_host(report.host), report.host, self._reports
        first, *others = report_slices.slices(report, vms_max=self._slice_vms)
        if not others:
            return [TakeReport(by=by, report=report, number=number)]
        return [
            BeginReport(by=by, report=report, number=number, part=first),
            *(GoOnReport(by=by, host=host, number=number, part=part) for part in others),
            EndReport(by=by, host=host, number=number),
        ]

    # Adoptions.

    async def adopt(self, control: Control, vm: str, traits: Traits, *, by: Principal) -> str:
        """Have traits written to a VM's domain, and wait until its host shows them.

        Returns what is still in their way, in words, or an empty text. Raises Invalid, NotFound,
        Conflict with the host's words, or Unavailable if the host is silent. Unless the host says
        that it has not written them, who wanted it is in the journal before this ends.
        """
        traits = reported_vms.read_traits(traits)
        self._refuse_listed(vm, traits)
        host = self._host_showing(vm)
        self._adoptions.need_room()
        note = NoteAdoption(by=by, host=host, vm=vm, traits=traits)
        try:
            problem = await self._adoptions.adopt(host, vm, traits)
        except (NotFound, Unavailable):  # it may be written
            await control.submit(note)
            raise
        await control.submit(note)
        return problem

    def _refuse_listed(self, vm: str, wanted: Traits) -> None:
        """Raise Conflict if a file says of the VM what its metadata would say without effect."""
        if vm not in self.volatile.files.looked_at.vms:
            return
        now = self.traits_of(vm)
        policy = replace(
            now,
            freeze_by_move=wanted.freeze_by_move,
            when_host_goes_down=wanted.when_host_goes_down,
        )
        if policy != wanted:
            raise Conflict(
                f"VM {vm} is listed in the inventory file, which sets its attributes.",
                "Change the file and apply it, or take the VM out of it; only `vm adopt` sets "
                "freeze_by_move and when_host_goes_down.",
            )

    def traits_of(self, vm: str) -> Traits:
        """What is said of a VM now, as its host showed it last. Raises NotFound."""
        return self.volatile.looks[self._host_showing(vm)].usable[vm].traits

    def adoptions_for(self, host: str) -> tuple[Adoption, ...]:
        """What the host has still to write, oldest first. Writing one twice does no harm."""
        return self._adoptions.queued(host)

    def adopted(self, host: str, adoption_id: str, problem: str) -> None:
        """The host has written the traits, or says why not. Answers that come late say nothing."""
        self._adoptions.answered(host, adoption_id, problem)

    def _host_showing(self, vm: str) -> str:
        """The host that has the VM; the fleet may not have it, and adopting is the remedy."""
        looks = list(self.volatile.looks.items())
        placed = self.volatile.placed.get(vm)
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


def _counts_as_down(fleet: FleetReader, host: str, seen: SeenVm) -> bool:
    """Whether a VM that its host shows running is off, or went down, as far as the fleet knows."""
    vm = fleet.vm(seen.name) if seen.power is Power.RUNNING else None
    return vm is not None and vm.host == host and (vm.off or vm.went_down)


# What a host asks while it acts.
