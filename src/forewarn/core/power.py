"""A VM that its owner switched off stays off, whatever happens to its host, and is waited for by
nobody. What hosts show decides whether it counts as off (`control.powers`); what follows is here.
"""

from __future__ import annotations

from dataclasses import replace

from forewarn.core import consent, edits
from forewarn.core.facts import vm_fact
from forewarn.core.model import SECOND_MS, Decision, Fact, FactKind, Phase, Scope

# So long a VM must be off before that counts as its owner's wish: a shutdown before the host goes
# down, or one that is followed by a start, is over by then.
OFF_AFTER_MS = 60 * SECOND_MS


def switched_off(scope: Scope, vm_name: str, now_ms: int) -> Decision:
    """The VM counts as off. What was announced to it keeps its time; nothing new waits for it."""
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
