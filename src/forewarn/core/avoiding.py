"""What follows for the other events of a VM that leaves: they avoid it, and the journal says so."""

from __future__ import annotations

from msgspec.structs import replace

from forewarn.core import scope_edits
from forewarn.core.facts import AvoidedDetail, CanceledDetail, event_fact
from forewarn.core.model import Fact, FactKind, Phase, ScheduledEvent, Scope


def vm_leaves(
    scope: Scope, vm_name: str, *, because: str, now_ms: int, except_event: str
) -> tuple[Scope, tuple[Fact, ...]]:
    """Take a VM that was deleted, evicted or moved out of its other scheduled events.

    An event left without names is canceled; the operation it may belong to goes on without it.
    """
    facts: list[Fact] = []
    for event in scope.events:
        if event.phase is not Phase.SCHEDULED or event.event_id == except_event:
            continue
        if vm_name not in event.resources:
            continue
        names = tuple(name for name in event.resources if name != vm_name)
        remaining = (
            replace(event, resources=names)
            if names
            else scope_edits.cancel_event(event, now_ms, f"avoided: {because}")
        )
        scope = scope_edits.with_event(scope, remaining)
        detail = AvoidedDetail(because=because, event_canceled=not names)
        facts.append(event_fact(FactKind.AVOIDED, event, now_ms, vm=vm_name, detail=detail))
        if not names:
            facts.append(_hits_no_vm(event, now_ms, because))
    return scope, tuple(facts)


def avoided(
    event: ScheduledEvent, now_ms: int, *, because: str
) -> tuple[ScheduledEvent, tuple[Fact, ...]]:
    """The event as canceled: it is done to none of its VMs."""
    detail = AvoidedDetail(because=because, event_canceled=True)
    facts = [
        event_fact(FactKind.AVOIDED, event, now_ms, vm=name, detail=detail)
        for name in event.resources
    ]
    canceled = scope_edits.cancel_event(event, now_ms, f"avoided: {because}")
    return canceled, (*facts, _hits_no_vm(event, now_ms, because))


def _hits_no_vm(event: ScheduledEvent, now_ms: int, because: str) -> Fact:
    """The line that ends an event which is done to none of its VMs: every end has one."""
    detail = CanceledDetail(reason=f"avoided: {because}")
    return event_fact(FactKind.CANCELED, event, now_ms, detail=detail)
