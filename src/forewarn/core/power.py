"""A VM that its owner switched off stays off, whatever happens to its host, and is waited for by
nobody. What hosts show decides whether it counts as off (`control.powers`); what follows is here.
"""

from __future__ import annotations

from dataclasses import replace

from forewarn.core import consent, edits, planning, scheduling
from forewarn.core.facts import vm_fact
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
)

# So long a VM must be off before that counts as its owner's wish: a shutdown before the host goes
# down, or one that is followed by a start, is over by then.
OFF_AFTER_MS = 60 * SECOND_MS


def switched_off(scope: Scope, vm_name: str, now_ms: int) -> Decision:
    """The VM counts as off. What was announced to it stays announced, and nobody waits for it."""
    vm = scope.vm(vm_name)
    if vm is None or vm.off:
        return Decision()
    after = replace(vm, off=True)
    fact = vm_fact(FactKind.VM_POWER, scope.name, after, now_ms, detail={"counts_as": "off"})
    return Decision(scopes=(edits.with_vm(scope, after),), facts=(fact,))


def host_booted(scope: Scope, host: str) -> Decision:
    """A host of the scope has booted: what ran there may be down, and nobody switched it off."""
    vms = tuple(
        replace(vm, went_down=True) if vm.host == host and not vm.off else vm for vm in scope.vms
    )
    return Decision(scopes=(replace(scope, vms=vms),)) if vms != scope.vms else Decision()


def switched_on(scope: Scope, vm_name: str, *, enabled: bool, now_ms: int) -> Decision:
    """The VM does not count as off any more: what would hit it gets its full notice from now.

    `enabled` says whether the guests of the scope are told at all.
    """
    vm = scope.vm(vm_name)
    if vm is None or not (vm.off or vm.went_down):
        return Decision()
    after = replace(vm, off=False, went_down=False)
    if not vm.off:
        return Decision(scopes=(edits.with_vm(scope, after),))
    scope = edits.with_vm(scope, after)
    detail = {"counts_as": "on"}
    facts: list[Fact] = [vm_fact(FactKind.VM_POWER, scope.name, after, now_ms, detail=detail)]
    for event in scope.events:
        waits = event.silent and event.phase is Phase.SCHEDULED and vm_name in event.resources
        if enabled and waits:
            shown, fact = consent.appears(event, now_ms)
            scope = edits.with_event(scope, shown)
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
    on = switched_on(scope, vm_name, enabled=enabled, now_ms=now_ms)
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
        by=event.ordered_by,
        not_before_ms=event.ordered_not_before_ms,
        description=event.description,
    )
    group = planning.Group(
        scope=scope.name, update_domain=vm.update_domain, host=vm.host, vm_names=(vm_name,)
    )
    told = scheduling.new_event(
        scope, order, group, event_id=event_id, now_ms=now_ms, policy=policy
    )
    scope, facts = scheduling.put(scope, told)
    return Decision(scopes=(scope,), facts=(*on.facts, *facts))
