"""What is done to a fleet for a large inventory: the check of the whole, and how commands decide.

When each of it is done is `inventories`; the rules are in `core.inventory`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from forewarn.control.commands import (
    ApplyInventoryAtOnce,
    DecideInventory,
    FinishInventory,
    InventoryTried,
    TakeInventorySlice,
)
from forewarn.control.inventory import apply_at_once
from forewarn.control.inventory.file_reader import InventoryClash, Mistake
from forewarn.control.published_fleet import PublishedFleet
from forewarn.control.transaction import Transaction
from forewarn.core.inventory import apply_file, host_checks, slicing
from forewarn.core.inventory.clashes import Clash
from forewarn.core.inventory.entries import Applied, Inventory
from forewarn.core.model import Decision, Host, Operation, Scope, Vm
from forewarn.core.principal import Principal


class Still(Struct, frozen=True):
    """The fleet at one moment, for a thread. `core.inventory.host_checks.Bound`."""

    scopes: Mapping[str, Scope]
    hosts: Mapping[str, Host]
    shown: frozenset[str]
    operations: Mapping[str, Sequence[Operation]]
    arrivals: Mapping[str, Sequence[tuple[str, Vm]]]
    now_ms: int

    def arriving(self, host: str) -> Sequence[tuple[str, Vm]]:
        return self.arrivals.get(host, ())

    def operations_on(self, host: str) -> Sequence[Operation]:
        return self.operations.get(host, ())


def still(fleet: PublishedFleet) -> Still:
    hosts = dict(fleet.hosts_by_name)
    arrivals = {name: fleet.arriving(name) for name in hosts}
    return Still(
        scopes=dict(fleet.scopes),
        hosts=hosts,
        shown=frozenset(fleet.digests),
        operations={o.host: fleet.operations_on(o.host) for o in fleet.operations.values()},
        arrivals={name: coming for name, coming in arrivals.items() if coming},
        now_ms=fleet.look().now_ms,
    )


class CheckResult(Struct, frozen=True):
    """A file compared with the whole fleet: what it changes, or what is wrong with it."""

    applied: Applied
    touched: frozenset[str]
    slices: Sequence[slicing.Slice]
    mistakes: Sequence[Mistake]


def check(
    wanted: Inventory, still: Still, deaf: Mapping[str, str], *, slice_vms: int
) -> CheckResult:
    """Compare a file with the fleet. Takes seconds for a large one; not for the event loop."""
    step = apply_file.step(
        wanted,
        scopes=still.scopes,
        hosts=still.hosts,
        shown=still.shown,
        bound=still,
        new_id=lambda: "",  # nothing of this is kept
        now_ms=still.now_ms,
    )
    found = apply_at_once.mistakes(step.clashes)
    if deaf:
        ours = {vm.profile.listen for scope in still.scopes.values() for vm in scope.vms}
        found.extend(apply_at_once.not_heard(wanted, deaf, ours))
    cut = slicing.slices(step.touched, step.desired, scopes=still.scopes, vms_max=slice_vms)
    applied, touched, scopes = step.applied, step.touched, list(step.decision.scopes)
    del step
    while scopes:
        scopes.pop()  # one by one: to free all of them at once would stop every thread
    return CheckResult(applied, touched, cut, found)


def _about(applied: Applied, *, by: Principal) -> str:
    """What is noted of a decided inventory: the fact that its end writes into the journal."""
    detail = apply_at_once.applied_detail(applied)
    note = apply_at_once.UnfinishedNote(by=by.name, principal=by, detail=detail)
    return msgspec.json.encode(note).decode()


def decide_inventory(tx: Transaction, command: DecideInventory) -> Applied:
    _take_hosts(tx, tx.volatile.files.by_scope(command.text))
    apply_at_once.note_cut_short(tx)
    about = _about(command.applied, by=command.by)
    tx.decide_inventory(command.text, command.packed, about)
    return command.applied


def _take_hosts(tx: Transaction, wanted: slicing.ByScope) -> None:
    hosts = apply_file.hosts_of_file(wanted.hosts.values(), tx.hosts_by_name)
    tx.apply(Decision(hosts=hosts))


def take_inventory_slice(tx: Transaction, command: TakeInventorySlice) -> InventoryTried:
    text = tx.inventory
    if text is None or tx.volatile.files.digest(text) != command.inventory:
        return InventoryTried(replaced=True)
    clashes = _take_scopes(tx, tx.volatile.files.by_scope(text), command.scopes)
    return InventoryTried(waits=tuple(clash.refused for clash in clashes))


def _take_scopes(
    tx: Transaction, wanted: slicing.ByScope, names: Sequence[str]
) -> tuple[Clash, ...]:
    around = slicing.closed(names, wanted, tx.scope, tx.scope_of_vm)
    part = wanted.part(around)
    scopes = {name: scope for name in sorted(around) if (scope := tx.scope(name)) is not None}
    hosts = {e.name: host for e in part.hosts if (host := tx.host(e.name)) is not None}
    step = apply_file.step(
        part,
        scopes=scopes,
        hosts=hosts,
        shown=tx.digests,
        bound=tx,
        new_id=tx.new_id,
        now_ms=tx.now_ms,
        elsewhere=lambda host: _staying(tx, wanted, host, around),
    )
    if not step.clashes:
        apply_at_once.take_over(tx, step)
    return step.clashes


def _staying(tx: Transaction, wanted: slicing.ByScope, host: str, around: Collection[str]) -> int:
    """How many VMs of other scopes than these are on a host, but for those that the file removes.

    An order may have brought some since the check; what leaves with another slice is not waited
    for, as two slices could wait for each other.
    """
    return sum(
        vm.host == host and (vm.name in wanted.vms or vm.name in tx.digests)
        for scope in tx.scopes_on(host)
        if scope.name not in around
        for vm in scope.vms
    )


def finish_inventory(tx: Transaction, command: FinishInventory) -> InventoryTried:
    text, files = tx.inventory, tx.volatile.files
    if text is None or not tx.unfinished or files.digest(text) != command.inventory:
        return InventoryTried(replaced=True)
    clashes = _drop_hosts(tx, files.by_scope(text))
    if command.all_applied and not clashes:
        tx.note(apply_at_once.unfinished_fact(tx))
        tx.finish_inventory()
    return InventoryTried(waits=tuple(clash.refused for clash in clashes))


def going(hosts: Mapping[str, Host], wanted: slicing.ByScope) -> list[str]:
    """The hosts that the file drops, in name order."""
    return sorted(
        name for name, host in hosts.items() if name not in wanted.hosts and not host.joined
    )


def _drop_hosts(tx: Transaction, wanted: slicing.ByScope) -> tuple[Clash, ...]:
    """Drop the hosts that go and that nothing needs: why the others stay.

    Those take no more VMs: one that Redeploys still bring VMs to would never leave.
    """
    clashes: list[Clash] = []
    for name in going(tx.hosts_by_name, wanted):
        needed = list(host_checks.still_needed({name}, tx.scopes_on(name), tx))
        clashes.extend(needed)
        host = tx.host(name)
        if not needed:
            tx.remove_host(name)
        elif host is not None and host.listed:
            tx.apply(Decision(hosts=(replace(host, listed=False),)))
    return tuple(clashes)


def apply_inventory_at_once(tx: Transaction, command: ApplyInventoryAtOnce) -> Applied:
    wanted = tx.volatile.files.by_scope(command.text)
    _take_hosts(tx, wanted)
    clashes = (*_take_scopes(tx, wanted, command.scopes), *_drop_hosts(tx, wanted))
    if clashes:
        raise InventoryClash.of(apply_at_once.mistakes(clashes))
    apply_at_once.note_cut_short(tx)
    tx.applied_inventory(command.text, command.packed)
    tx.note(apply_at_once.applied_fact(command.applied, by=command.by, now_ms=tx.now_ms))
    return command.applied
