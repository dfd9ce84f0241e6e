"""What hosts see, and what they ask because of it: reports, targets, definitions, adoptions.

What a report changes is decided in `core.sighting`. Kept here, in memory, is what the next report
is compared with; after a restart hosts show everything again. `take` and adoptions are for the
event loop; commands run on the writer's thread like all others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import structlog

from forewarn.control import seen_vms
from forewarn.control.adoptions import Adoptions
from forewarn.control.control import Control
from forewarn.control.inventory_file import parse
from forewarn.control.memory import Memory, Shown, Transaction
from forewarn.control.writer import Command
from forewarn.core import edits, failing, planning, sighting
from forewarn.core.errors import BadInventory, Conflict, NotFound, Unavailable
from forewarn.core.inventory import ScopeEntry, VmEntry
from forewarn.core.machines import Power, SeenVm, Traits
from forewarn.core.model import ActionKind, Phase, Scope
from forewarn.core.spelling import meant
from forewarn.ports import Clock, Definition
from forewarn.wire.host_json import Adoption

T = TypeVar("T")

# A report that says nothing new is looked at all the same after so long: nothing that a look
# could find stays unfound.
LOOK_AGAIN_MS = 300_000

# A report that took so long to look at is followed by a rest of so many times that: no host, by
# showing ever other thousands of VMs, keeps approvals of all the others waiting.
LONG_LOOK_MS = 500
RESTS = 4

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """A report as it came (texts replaced by their digests), and what was made of it."""

    told: tuple[SeenVm, ...]
    usable: Mapping[str, SeenVm]
    looked: sighting.Looked
    problems: Mapping[str, str]
    inventory: str | None
    at_monotonic_ms: int


@dataclass(frozen=True, slots=True)
class _File:
    """What the applied inventory file says, by name."""

    text: str | None = None
    scopes: Mapping[str, ScopeEntry] = field(default_factory=dict)
    vms: Mapping[str, VmEntry] = field(default_factory=dict)


class Sightings:
    """What hosts have shown since control was started, and who waits for them."""

    def __init__(self, clock: Clock, *, ring: Callable[[str], None] = lambda _: None) -> None:
        """`ring` is called with the name of a host that has a new adoption to write."""
        self._clock = clock
        self._looks: dict[str, _Look] = {}
        self._rests_until: dict[str, int] = {}
        self._file = _File()
        self._memory: Memory | None = None  # since the first report
        self._placed: dict[str, str] = {}  # where each VM was when somebody last looked
        self._absent_since: dict[str, int] = {}
        self._twice_since: dict[str, int] = {}
        self._empty_scopes: frozenset[str] | None = None
        self._adoptions = Adoptions(str(clock.now_ms()), ring)

    def on_adoption(self, ring: Callable[[str], None]) -> None:
        """Call `ring` with the name of a host that has a new adoption to write."""
        self._adoptions.ring = ring

    # Reports.

    async def take(self, control: Control, host: str, vms: Sequence[SeenVm]) -> Mapping[str, str]:
        """Take what a host shows; what of it cannot be used, in words, by VM.

        A report that says nothing new costs no transaction. Raises Invalid for one that no host
        would make, NotFound for a host that is not in the fleet, and Unavailable.
        """
        seen_vms.refuse_too_many(host, vms)
        problems = self.settled(host, vms)
        if problems is None:
            if self._clock.monotonic_ms() < self._rests_until.get(host, 0):
                raise Unavailable(f"The last report of host {host} took long; this one waits.")
            problems = await control.submit(self._timed(host, self.sight(host, vms)))
        self._adoptions.shown(host, vms, problems)
        return problems

    def _timed(self, host: str, command: Command[T]) -> Command[T]:
        def timed(tx: Transaction) -> T:
            began_ms = self._clock.monotonic_ms()
            try:
                return command(tx)
            finally:
                ended_ms = self._clock.monotonic_ms()
                took_ms = ended_ms - began_ms
                if took_ms >= LONG_LOOK_MS:
                    self._rests_until[host] = ended_ms + RESTS * took_ms

        return timed

    def settled(self, host: str, vms: Sequence[SeenVm]) -> Mapping[str, str] | None:
        """The answer to a report that says nothing new while nothing waits; else None."""
        last, memory = self._looks.get(host), self._memory
        if last is None or memory is None or last.looked.waiting or host in memory.blind:
            return None
        if self._clock.monotonic_ms() - last.at_monotonic_ms >= LOOK_AGAIN_MS:
            return None
        if last.inventory is not memory.inventory or not self._twice_since.keys().isdisjoint(
            last.usable
        ):
            return None
        # What the writer is doing at this moment may show here, and then costs one more look.
        left = any(n not in memory.scope_of_vm and n not in last.problems for n in last.usable)
        return last.problems if not left and _digested(host, vms) == last.told else None

    def sight(self, host: str, vms: Sequence[SeenVm]) -> Command[Mapping[str, str]]:
        """Make of a report what it means for the fleet; what of it cannot be used, by VM."""
        told = _digested(host, vms)
        texts = {seen.name: seen_vms.kept_text(seen) for seen in reversed(vms)}
        usable, unusable = _read(told)

        def command(tx: Transaction) -> Mapping[str, str]:
            tx.need_host(host)
            self._memory = tx.memory
            tx.memory.blind.pop(host, None)
            for gone in [name for name in self._looks if tx.host(name) is None]:
                del self._looks[gone]
            last = self._looks.get(host)
            here = _names_on(tx, host)
            looked = self._look(tx, host, usable, last)
            tx.apply(looked.decision)
            _end_doubts(tx, host, usable)
            for name in looked.removed_scopes:
                tx.remove_scope(name)
            self._define(tx, host, usable, texts)
            problems = {**unusable, **looked.problems}
            self._looks[host] = _Look(
                told=told,
                usable=usable,
                looked=looked,
                problems=problems,
                inventory=tx.memory.inventory,
                at_monotonic_ms=self._clock.monotonic_ms(),
            )
            tx.on_take_back(partial(self._forget, host, last))
            here.update(_names_on(tx, host), usable, last.usable if last else ())
            self._keep_times(tx, here, looked)
            tx.memory.shown[host] = {
                seen.name: Shown(
                    seen.power,
                    problems.get(seen.name, ""),
                    freeze_by_move=seen.traits.freeze_by_move,
                    when_host_goes_down=seen.traits.when_host_goes_down,
                )
                for seen in told
            }
            return problems

        return command

    def blind(self, host: str, why: str) -> Command[None]:
        """The hypervisor of a host does not answer: it gets no VMs, and the operator reads why."""

        def command(tx: Transaction) -> None:
            tx.need_host(host)
            self._memory = tx.memory
            tx.memory.blind[host] = why or "it does not say why"

        return command

    def _look(
        self, tx: Transaction, host: str, usable: Mapping[str, SeenVm], last: _Look | None
    ) -> sighting.Looked:
        now = self._clock.monotonic_ms()
        memory = tx.memory
        file = self._read_file(memory.inventory)
        if self._empty_scopes is None:
            self._empty_scopes = frozenset(s.name for s in memory.scopes.values() if not s.vms)
        known = sighting.Known(
            reports={**{name: look.usable for name, look in self._looks.items()}, host: usable},
            before=last.usable if last else {},
            file_scopes=file.scopes,
            file_vms=file.vms,
            ever_shown=memory.digests,
            settling=self._settling(tx, usable),
            busy_before=last.looked.busy if last else (),
            absent_ms={name: now - since for name, since in self._absent_since.items()},
            twice_ms={name: now - since for name, since in self._twice_since.items()},
            problems_before=last.problems if last else {},
            empty_scopes=self._empty_scopes,
        )
        return sighting.step(
            host,
            known,
            scopes=memory.scopes,
            scope_of_vm=memory.scope_of_vm,
            fleet=tx,
            now_ms=tx.now_ms,
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
            inventory = parse(text, needs_channels=False) if text is not None else None
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
    def _define(
        tx: Transaction, host: str, usable: Mapping[str, SeenVm], texts: Mapping[str, str]
    ) -> None:
        """Keep the definitions that are new, of the VMs that are on this host now."""
        here = _names_on(tx, host)
        for name, seen in usable.items():
            known = tx.memory.digests.get(name)
            if known == seen.definition or name not in here:
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

    # What a host asks while it acts.

    def targets(self, host: str, vms: Sequence[str]) -> Command[dict[str, str | None]]:
        """Where these VMs should go now. None for a VM without a place, or of another host.

        What the same answer plans already is counted, and no two update domains of a scope are
        sent to one host.
        """

        def command(tx: Transaction) -> dict[str, str | None]:
            planned: dict[str, int] = {}
            scopes: dict[str, Scope] = {}  # with the VMs where they are to go
            found: dict[str, str | None] = {}
            for name in vms:
                scope_name = tx.memory.scope_of_vm.get(name, "")
                scope = scopes.get(scope_name) or tx.memory.scopes.get(scope_name)
                vm = scope.vm(name) if scope else None
                found[name] = None
                if scope is None or vm is None or vm.host != host:
                    continue
                target = planning.choose_target(scope, vm, tx, planned)
                if target is not None and target != host:
                    found[name] = target
                    planned[target] = planned.get(target, 0) + 1
                    scopes[scope_name] = edits.with_vm(scope, replace(vm, host=target))
            return found

        return command

    def definition(self, host: str, vm: str) -> Command[str | None]:
        """What a VM was when it was last shown, for the host that an open action brings it to."""

        def command(tx: Transaction) -> str | None:
            scope = tx.memory.scopes.get(tx.memory.scope_of_vm.get(vm, ""))
            comes = scope is not None and any(
                action.kind in (ActionKind.START_VM, ActionKind.MOVE_VM)
                and (action.vm, action.target_host, action.ended) == (vm, host, False)
                for event in scope.events
                if event.phase is Phase.STARTED
                for action in event.actions
            )
            kept = tx.store.definition(vm) if comes else None
            return kept.text if kept and kept.text else None

        return command

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


def _digested(host: str, vms: Sequence[SeenVm]) -> tuple[SeenVm, ...]:
    """The report without its long texts, by name."""
    found = (seen_vms.digested(host, seen) for seen in vms)
    return tuple(sorted(found, key=lambda seen: seen.name))


def _read(told: Sequence[SeenVm]) -> tuple[dict[str, SeenVm], dict[str, str]]:
    """What of a report can be used, by name, and what is wrong with the rest."""
    usable: dict[str, SeenVm] = {}
    unusable: dict[str, str] = {}
    for seen in told:
        found = seen_vms.read(seen)
        if isinstance(found, str):
            unusable[seen.name] = found
        else:
            usable.setdefault(seen.name, found)
    return usable, unusable


def _end_doubts(tx: Transaction, host: str, usable: Mapping[str, SeenVm]) -> None:
    """A VM that might run on the host and is shown to run there need not be started any more."""
    for scope in tx.scopes_on(host):
        for vm in scope.vms:
            seen = usable.get(vm.name)
            if vm.may_run_on != host or seen is None or seen.vm_id != vm.vm_id:
                continue
            if seen.power is Power.RUNNING:
                now = tx.need_scope(scope.name)
                tx.apply(failing.found(now, vm.name, host, now_ms=tx.now_ms, policy=tx.policy))


def _names_on(tx: Transaction, host: str) -> set[str]:
    return {vm.name for scope in tx.scopes_on(host) for vm in scope.vms if vm.host == host}


def _hosts_of(tx: Transaction, vms: Collection[str]) -> dict[str, str]:
    """Where those of the VMs are that are in the fleet."""
    of_vm = tx.memory.scope_of_vm
    scopes = {of_vm[name] for name in vms if name in of_vm}
    return {
        vm.name: vm.host for name in scopes for vm in tx.memory.scopes[name].vms if vm.name in vms
    }
