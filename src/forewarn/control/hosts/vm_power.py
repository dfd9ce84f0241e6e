"""Which VMs are off by their owners' wish, from what hosts show of them.

A VM counts as off once it was seen off for a minute, on a host that was heard all the time and has
not failed, while nothing of ours was under way there. One that a boot of its host may have taken
down does not count: its owner did not switch it off. How long it was seen off is kept in memory
only; that it counts as off, and that it went down with its host, is durable.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec.structs import replace

from forewarn.control.transaction import Transaction
from forewarn.core import hosts as host_rules
from forewarn.core import scheduling, vm_power
from forewarn.core.inventory.host_report import Power
from forewarn.core.model import SECOND_MS, Decision, Health, Scope
from forewarn.core.unfinished_moves import acted_on

# Hosts show their VMs every thirty seconds; after a longer pause the time between is not known.
UNBROKEN_MS = 75 * SECOND_MS


def seen(tx: Transaction, host: str, powers: Mapping[str, Power]) -> bool:
    """Take over which VMs run on a host. True while one is off that may count as off later."""
    now_ms, known = tx.monotonic_ms, tx.volatile
    broken = now_ms - known.seen_ms.get(host, now_ms) > UNBROKEN_MS
    tx.put(known.seen_ms, host, now_ms)
    _end_doubts(tx, host, powers)
    _switch_on_arrived(tx, host, powers)
    quiet = _quiet(tx, host) and not broken
    waits = False
    before = known.off_since.get(host, {})
    still: dict[str, tuple[int, int]] = {}  # of VMs that are not here any more nothing is kept
    for scope in tx.scopes_on(host):
        on: list[str] = []
        off: list[str] = []
        for vm in scope.vms:
            shown = powers.get(vm.name)
            if vm.host != host or shown is None:
                continue
            if shown is not Power.OFF:
                if vm.off or vm.went_down:
                    on.append(vm.name)
            elif vm.off or vm.went_down:
                continue
            elif not quiet or acted_on(scope, vm.name):
                waits = True  # a report that says the same again must not pass for settled
            else:
                still[vm.vm_id] = _off_since(before.get(vm.vm_id), now_ms, tx.silences(host))
                if now_ms - still[vm.vm_id][0] >= vm_power.OFF_AFTER_MS:
                    off.append(vm.name)
                else:
                    waits = True
        _take_over(tx, scope, on, off)
    tx.put(known.off_since, host, still or None)
    return waits


def _off_since(then: tuple[int, int] | None, now_ms: int, silences: int) -> tuple[int, int]:
    """Since when a VM has been off while its host was not silent, and the silences till now."""
    return then if then is not None and then[1] == silences else (now_ms, silences)


def _take_over(tx: Transaction, scope: Scope, on: Collection[str], off: Collection[str]) -> None:
    """Those VMs of a scope count as on from now, and those as off."""
    enabled = scheduling.is_enabled(scope, tx.policy)
    tx.apply(vm_power.switched_on(scope, on, enabled=enabled, now_ms=tx.now_ms))
    tx.apply(vm_power.switched_off(tx.need_scope(scope.name), off, tx.now_ms))


def _end_doubts(tx: Transaction, host: str, powers: Mapping[str, Power]) -> None:
    """A VM that might run on the host and is shown to run there need not be started any more."""
    for scope in tx.scopes_on(host):
        for vm in scope.vms:
            if vm.may_run_on == host and powers.get(vm.name) is Power.RUNNING:
                now = tx.need_scope(scope.name)
                tx.apply(host_rules.found(now, vm.name, host, now_ms=tx.now_ms, policy=tx.policy))


def _switch_on_arrived(tx: Transaction, host: str, powers: Mapping[str, Power]) -> None:
    """A VM that was off and is being brought to the host runs there: its owner switched it on.

    It may take long until a host reports its arrival; if the host fails first, it is started again.
    """
    for scope, vm in tx.arriving(host):
        if vm.off and powers.get(vm.name) is Power.RUNNING:
            _take_over(tx, tx.need_scope(scope), (vm.name,), ())


def _quiet(tx: Transaction, host: str) -> bool:
    """True if what happens on the host is not our doing, and it is well."""
    found = tx.host(host)
    if found is None or found.health is Health.FAILED or not tx.alive(host):
        return False
    return not any(
        operation.action is not None and not operation.action.ended
        for operation in tx.operations_on(host)
    )


def booted(tx: Transaction, host: str, boot_id: str) -> None:
    """A host works, or shows its VMs, in this boot. If it is a new one, they may have gone down."""
    found = tx.need_host(host)
    if found.boot_id == boot_id:
        return
    tx.apply(Decision(hosts=(replace(found, boot_id=boot_id),)))
    for scope in tx.scopes_on(host) if found.boot_id is not None else ():
        tx.apply(vm_power.host_booted(scope, host))
