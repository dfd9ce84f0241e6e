"""Applying an inventory file in one command, whole or not at all. Large ones: `inventories`.

What a file may say is `inventory_file`, what it changes is `core.inventory.apply_file`. The last
applied text is kept with everything else, so a file is compared with it after a restart too.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping

import msgspec

from forewarn.control.commands import ApplyInventory, NothingToApply
from forewarn.control.inventory.file_reader import Mistake, ReadFiles, in_words, parse
from forewarn.control.transaction import Transaction
from forewarn.core.errors import BadInventory, InventoryConflict
from forewarn.core.facts import InventoryAppliedDetail, by_whom
from forewarn.core.inventory import apply_file
from forewarn.core.inventory.clashes import Clash
from forewarn.core.inventory.entries import (
    Applied,
    HostEntry,
    Inventory,
    NameChanges,
    ScopeEntry,
    VmEntry,
)
from forewarn.core.model import Fact, FactKind
from forewarn.core.principal import Principal, Who
from forewarn.text.toml_lines import Path

__all__ = ["Applied", "NameChanges", "Inventory", "apply", "parse"]

NAMES_PER_FACT_MAX = 50


def apply(
    text: str,
    *,
    by: Principal,
    needs_channels: bool = True,
    cannot_listen: Callable[[str], str | None] = lambda _: None,
    files: ReadFiles | None = None,
) -> ApplyInventory:
    """The order to make the fleet what the file says. Raises BadInventory, with every mistake.

    `cannot_listen` says why nothing can listen on an address now, None if something can; it is
    asked here. Parsing thousands of VMs takes a while: call this on a thread where that matters.
    With `files` the writer finds there what was read here, and need not read it again.
    """
    wanted = parse(text, needs_channels=needs_channels)
    if files is not None:
        files.keep(text, wanted)
    return ApplyInventory(by=by, text=text, deaf=unheard(wanted, cannot_listen))


def unheard(wanted: Inventory, cannot_listen: Callable[[str], str | None]) -> dict[str, str]:
    """Of the addresses that VMs are to listen on: those where nothing can listen, and why."""
    return {
        entry.profile.listen: why
        for entry in wanted.vms
        if entry.profile.listen is not None
        and (why := cannot_listen(entry.profile.listen)) is not None
    }


def apply_inventory(tx: Transaction, command: ApplyInventory) -> Applied:
    text, wanted = command.text, tx.volatile.files.read(command.text)
    if not tx.unfinished and _same(tx, text, wanted):
        return Applied()
    step = apply_file.step(
        wanted,
        scopes=tx.scopes,
        hosts=tx.hosts_by_name,
        shown=tx.digests,
        bound=tx,
        new_id=tx.new_id,
        now_ms=tx.now_ms,
    )
    found = mistakes(step.clashes)
    if command.deaf:
        ours = {vm.profile.listen for scope in tx.scopes.values() for vm in scope.vms}
        found.extend(not_heard(wanted, command.deaf, ours))
    if found:
        raise InventoryConflict(*in_words(text, found))
    take_over(tx, step)
    for name in step.removed_hosts:
        tx.remove_host(name)
    note_cut_short(tx)
    tx.applied_inventory(text)
    tx.note(applied_fact(step.applied, by=command.by, now_ms=tx.now_ms))
    return step.applied


def nothing_to_apply(_: Transaction, __: NothingToApply) -> Applied:
    return Applied()


def take_over(tx: Transaction, step: apply_file.FileDecision) -> None:
    """Have scopes and hosts as a step has them, but for hosts that go."""
    tx.apply(step.decision)
    for name in step.removed_scopes:
        tx.remove_scope(name)


def mistakes(clashes: Iterable[Clash]) -> list[Mistake]:
    """Clashes as mistakes of the file, each with its place in it."""
    return [Mistake(_path(clash.where), f"{clash.refused} {clash.accepted}") for clash in clashes]


def not_heard(
    wanted: Inventory, deaf: Mapping[str, str], ours: Container[str | None]
) -> Iterator[Mistake]:
    """VMs whose new listener could not be opened: a VM that cannot ask would get no notice.

    `ours` is where VMs listen already.
    """
    if not deaf:
        return
    for entry in wanted.vms:
        listen = entry.profile.listen
        why = deaf.get(listen or "")
        if why is not None and listen not in ours:
            yield Mistake(
                _path(entry),
                f"nothing can listen on {listen} for VM {entry.name}: {why}. "
                "Choose a free address and port.",
            )


def _same(tx: Transaction, text: str, wanted: Inventory) -> bool:
    last = tx.inventory
    if last is None or last == text:
        return last == text
    try:
        return tx.volatile.files.read(last) == wanted
    except BadInventory:
        return False  # written under older rules; what it meant then is in the fleet


def _path(where: HostEntry | ScopeEntry | VmEntry | None) -> Path:
    match where:
        case HostEntry():
            return ("host", where.number)
        case ScopeEntry():
            return ("scope", where.number)
        case VmEntry():
            return ("vm", where.number)
        case None:
            return ()


def applied_fact(applied: Applied, *, by: Who, now_ms: int) -> Fact:
    """What the journal says of an inventory that was applied."""
    return _inventory_fact(applied_detail(applied), by=by, now_ms=now_ms)


def applied_detail(applied: Applied) -> InventoryAppliedDetail:
    """What an inventory has changed, by names; of many the first."""
    return InventoryAppliedDetail(
        hosts_added=_names(applied.hosts.added),
        hosts_changed=_names(applied.hosts.changed),
        hosts_removed=_names(applied.hosts.removed),
        scopes_added=_names(applied.scopes.added),
        scopes_changed=_names(applied.scopes.changed),
        scopes_removed=_names(applied.scopes.removed),
        vms_added=_names(applied.vms.added),
        vms_changed=_names(applied.vms.changed),
        vms_removed=_names(applied.vms.removed),
        vms_still_deleted=_names(applied.still_deleted),
    )


def _inventory_fact(detail: InventoryAppliedDetail, *, by: Who, now_ms: int) -> Fact:
    said = None if detail == InventoryAppliedDetail() else detail
    return by_whom(Fact(kind=FactKind.INVENTORY_APPLIED, at_ms=now_ms, detail=said), by)


class UnfinishedNote(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of an inventory that was decided, until its slices have ended.

    An earlier version noted the name of who decided it alone.
    """

    by: str
    principal: Principal | None = None
    detail: InventoryAppliedDetail


def unfinished_fact(tx: Transaction, *, applied: str = "") -> Fact:
    """What the journal says of an inventory that was decided, when its slices end."""
    about = msgspec.json.decode(tx.unfinished, type=UnfinishedNote)
    detail = msgspec.structs.replace(about.detail, applied=applied)
    return _inventory_fact(detail, by=about.principal or about.by, now_ms=tx.now_ms)


def note_cut_short(tx: Transaction) -> None:
    """Another file takes the place of one that is not applied whole: the journal keeps that one."""
    if tx.unfinished:
        tx.note(unfinished_fact(tx, applied="in part, then another took its place"))


def _names(names: tuple[str, ...]) -> tuple[str, ...]:
    more = len(names) - NAMES_PER_FACT_MAX
    return (*names[:NAMES_PER_FACT_MAX], *((f"and {more} more",) if more > 0 else ()))
