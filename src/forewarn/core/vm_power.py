"""A VM that its owner switched off stays off, whatever happens to its host, and nothing waits for
it. What hosts show decides whether it counts as off (`control.hosts.vm_power`); here is what
follows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec.structs import replace

from forewarn.core import (
    placement,
    polls_and_approvals,
    scheduling,
    scope_edits,
    unfinished_moves,
    windows,
)
from forewarn.core.facts import VmPowerDetail, vm_fact
from forewarn.core.model import (
    SECOND_MS,
    Decision,
    Fact,
    FactKind,
    Operation,
    Phase,
    Policy,
    ScheduledEvent,
    Scope,
    Vm,
)

# So long a VM must be off before that counts as its owner's wish: a shutdown before the host goes
# down, or one that is followed by a start, is over by then.
OFF_AFTER_MS = 60 * SECOND_MS


def switched_off(scope: Scope, names: Collection[str], now_ms: int) -> Decision:
    """Those VMs count as off. What was announced stays announced; nothing waits for them."""
    off = [vm for vm in scope.vms if vm.name in names and not vm.off]
    if not off:
        return Decision()
    after = {vm.name: replace(vm, off=True) for vm in off}
    return Decision(
        scopes=(_with_vms(scope, after),),
        facts=tuple(_fact(scope, vm, now_ms, counts_as="off") for vm in after.values()),
    )


def rebooted(scope: Scope, names: Collection[str], now_ms: int) -> Decision:
    """Those VMs were rebooted by others: the journal says so, unless work of ours is under way."""
    facts = [
        vm_fact(FactKind.VM_POWER, scope.name, vm, now_ms, detail=VmPowerDetail(rebooted=True))
        for vm in scope.vms
        if vm.name in names and not unfinished_moves.acted_on(scope, vm.name)
    ]
    return Decision(facts=tuple(facts))


def host_booted(scope: Scope, host: str) -> Decision:
    """A host of the scope has booted: its VMs may be down, though no owner switched them off."""
    vms = tuple(
        replace(vm, went_down=True) if vm.host == host and not vm.off else vm for vm in scope.vms
    )
    return Decision(scopes=(replace(scope, vms=vms),)) if vms != scope.vms else Decision()


def switched_on(scope: Scope, names: Collection[str], *, enabled: bool, now_ms: int) -> Decision:
    """Those VMs do not count as off any more: what would hit them gets its full notice from now.

    `enabled` says whether the guests of the scope are told at all.
    """
    down = [vm for vm in scope.vms if vm.name in names and (vm.off or vm.went_down)]
    if not down:
        return Decision()
    after = {vm.name: replace(vm, off=False, went_down=False) for vm in down}
    on = {vm.name for vm in down if vm.off}
    scope = _with_vms(scope, after)
    facts = [_fact(scope, vm, now_ms, counts_as="on") for vm in after.values() if vm.name in on]
    for event in scope.events if enabled else ():
        waits = event.silent and event.phase is Phase.SCHEDULED
        if waits and not on.isdisjoint(event.resources):
            shown, fact = polls_and_approvals.appears(event, now_ms)
            scope = scope_edits.with_event(scope, shown)
            facts.append(fact)
    return Decision(scopes=(scope,), facts=tuple(facts))


def spared(
    scope: Scope,
    event: ScheduledEvent,
    vm_name: str,
    *,
    operation: Operation | None,
    event_id: str,
    now_ms: int,
    policy: Policy,
) -> Decision:
    """Nothing was done to a VM because it runs, though it counted as off: it is told, from now.

    Its operation, unless canceled, tells it like a VM that has come to the host. An order of its
    owner becomes an event anew.
    """
    enabled = scheduling.is_enabled(scope, policy)
    on = switched_on(scope, (vm_name,), enabled=enabled, now_ms=now_ms)
    scope = on.scopes[0] if on.scopes else scope
    vm = scope.vm(vm_name)
    if vm is None:
        return on
    if event.operation_id is not None:
        named = tuple(name for name in operation.named if name != vm_name) if operation else ()
        again = (replace(operation, named=named),) if operation else ()
        return replace(on, operations=again)
    order = scheduling.Order(
        event_type=event.event_type,
        cause=event.cause,
        by=scheduling.who_ordered(event),
        not_before_ms=event.ordered_not_before_ms,
        window=event.window,
        description=event.description,
        lose_disk=event.lose_disk,
    )
    group = placement.Group(
        scope=scope.name, update_domain=vm.update_domain, host=vm.host, vm_names=(vm_name,)
    )
    told = scheduling.new_event(
        scope, order, group, event_id=event_id, now_ms=now_ms, policy=policy
    )
    if not windows.is_open(told.window, told.not_before_ms):
        return on  # its window closes before a notice from now has ended
    scope, facts = scheduling.put(scope, told)
    return Decision(scopes=(scope,), facts=(*on.facts, *facts))


def _with_vms(scope: Scope, after: Mapping[str, Vm]) -> Scope:
    return replace(scope, vms=tuple(after.get(vm.name, vm) for vm in scope.vms))


def _fact(scope: Scope, vm: Vm, now_ms: int, *, counts_as: str) -> Fact:
    detail = VmPowerDetail(counts_as=counts_as)
    return vm_fact(FactKind.VM_POWER, scope.name, vm, now_ms, detail=detail)
