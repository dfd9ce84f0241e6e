"""What guests of a scope can see: which events, and what of them.

`content` is what the incarnation counts: it moves if and only if this changes (invariant I4), and
when VMs join that come from a scope whose incarnation they may have read.
How it looks on the wire, per api-version, is `wire.documents`.
"""

from __future__ import annotations

from forewarn.core.model import EventSource, EventType, Phase, ScheduledEvent, Scope

# Everything of an event that the newest api-version shows, in no particular order.
Content = tuple[str, EventType, EventSource, bool, tuple[str, ...], int, str, int]


def visible(scope: Scope) -> tuple[ScheduledEvent, ...]:
    """The events in the scope's document, in the order they were scheduled."""
    return tuple(event for event in scope.events if event.visible)


def content(scope: Scope) -> tuple[Content, ...]:
    """The visible content of the scope as a value that can be compared."""
    return tuple(
        (
            event.event_id,
            event.event_type,
            event.event_source,
            event.phase is Phase.STARTED,
            event.resources,
            0 if event.phase is Phase.STARTED else event.not_before_ms,
            event.description,
            event.duration_s,
        )
        for event in visible(scope)
    )


def joined(before: Scope, after: Scope) -> frozenset[str]:
    """Names of VMs that read this scope's document from now on and did not before.

    A VM that has the name of another one by now is not that one.
    """
    if before.vms is after.vms:
        return frozenset()
    known = {(vm.name, vm.vm_id) for vm in before.vms}
    return frozenset(vm.name for vm in after.vms if (vm.name, vm.vm_id) not in known)
