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
    return tuple(map(_content, visible(scope)))


def changed(before: Scope, after: Scope) -> bool:
    """Whether `content` is another one. Events that are the same value are not looked into."""
    if before.events is after.events:
        return False
    if len(before.events) == len(after.events):
        both = zip(before.events, after.events, strict=True)
        moved = [(old, new) for old, new in both if old is not new]
        if all(old.event_id == new.event_id for old, new in moved):
            return any(_shown(old) != _shown(new) for old, new in moved)
    return content(before) != content(after)


def _shown(event: ScheduledEvent) -> Content | None:
    return _content(event) if event.visible else None


def _content(event: ScheduledEvent) -> Content:
    started = event.phase is Phase.STARTED
    return (
        event.event_id,
        event.event_type,
        event.event_source,
        started,
        event.resources,
        0 if started else event.not_before_ms,
        event.description,
        event.duration_s,
    )


def joined(before: Scope, after: Scope) -> frozenset[str]:
    """Names of VMs that read this scope's document from now on and did not before.

    A VM that has the name of another one by now is not that one.
    """
    if before.vms is after.vms:
        return frozenset()
    known = {(vm.name, vm.vm_id) for vm in before.vms}
    return frozenset(vm.name for vm in after.vms if (vm.name, vm.vm_id) not in known)
