"""When an update domain recovers: from an impact until each of its VMs has polled again."""

from __future__ import annotations

from msgspec.structs import replace

from forewarn.core.facts import RecoveredDetail, RecoveringDetail
from forewarn.core.model import Fact, FactKind, Recovery, Scope


def begin_recovery(
    scope: Scope, update_domain: int, vm_names: tuple[str, ...], now_ms: int, recovery_ms: int
) -> tuple[Scope, tuple[Fact, ...]]:
    """Mark a domain as recovering until each of its VMs has polled again, or for `recovery_ms`."""
    present = tuple(name for name in vm_names if scope.vm(name) is not None)
    if recovery_ms <= 0 or not present:
        return scope, ()
    kept = tuple(r for r in scope.recoveries if r.update_domain != update_domain)
    earlier = next((r for r in scope.recoveries if r.update_domain == update_domain), None)
    waiting = tuple(dict.fromkeys((*(earlier.waiting_for if earlier else ()), *present)))
    recovery = Recovery(
        update_domain=update_domain,
        since_ms=earlier.since_ms if earlier else now_ms,
        until_ms=now_ms + recovery_ms,
        waiting_for=waiting,
    )
    fact = Fact(
        kind=FactKind.RECOVERING,
        at_ms=now_ms,
        scope=scope.name,
        detail=RecoveringDetail(update_domain=update_domain, waiting_for=waiting),
    )
    return replace(scope, recoveries=(*kept, recovery)), (fact,)


def vm_returned(scope: Scope, vm_name: str, now_ms: int) -> tuple[Scope, tuple[Fact, ...]]:
    """Stop waiting for a VM: it polled again, or it is gone."""
    facts: list[Fact] = []
    recoveries: list[Recovery] = []
    for recovery in scope.recoveries:
        waiting = tuple(name for name in recovery.waiting_for if name != vm_name)
        if waiting:
            recoveries.append(replace(recovery, waiting_for=waiting))
        else:
            facts.append(recovered_fact(scope, recovery, now_ms, "every VM has polled again"))
    return replace(scope, recoveries=tuple(recoveries)), tuple(facts)


def recovered_fact(scope: Scope, recovery: Recovery, now_ms: int, because: str) -> Fact:
    return Fact(
        kind=FactKind.RECOVERED,
        at_ms=now_ms,
        scope=scope.name,
        detail=RecoveredDetail(update_domain=recovery.update_domain, because=because),
    )
