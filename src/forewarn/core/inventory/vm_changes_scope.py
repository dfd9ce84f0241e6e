"""Which scope a VM belongs to: what may change while events name it, and what follows.

An inventory file and what hosts show both change this, by the same rules.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from forewarn.core import avoiding, recovering
from forewarn.core.model import Fact, Phase, ScheduledEvent, Scope, Vm


def open_events(scope: Scope, vm: str) -> Iterator[ScheduledEvent]:
    """Events that name the VM and have not ended."""
    return (e for e in scope.events if vm in e.resources and not e.phase.ended)


def binding(scope: Scope, vm: str) -> Iterator[ScheduledEvent]:
    """Events that guests can see, or that are being carried out unseen."""
    return (e for e in open_events(scope, vm) if e.visible or e.phase is Phase.STARTED)


def bound_changes(
    scope: Scope, vm: Vm, *, scope_after: str, after: Vm
) -> Iterator[tuple[str, ScheduledEvent]]:
    """What changes of the VM although an event depends on it, and that event.

    An event is of one scope and update domain, so a silent one binds these two as well.
    """
    open_event = next(open_events(scope, vm.name), None)
    bound = next(binding(scope, vm.name), None)
    if open_event is not None:
        if scope_after != scope.name:
            yield "scope", open_event
        if after.update_domain != vm.update_domain:
            yield "update_domain", open_event
    if bound is not None:
        if after.profile.address != vm.profile.address:
            yield "address", bound
        if after.profile.listen != vm.profile.listen:
            yield "listen", bound


def left_by(scope: Scope, vm: str, *, because: str, now_ms: int) -> tuple[Scope, tuple[Fact, ...]]:
    """The scope without the VM in its recoveries, and in the events that were scheduled for it."""
    facts: list[Fact] = []
    if any(vm in recovery.waiting_for for recovery in scope.recoveries):
        scope, back = recovering.vm_returned(scope, vm, now_ms)
        facts.extend(back)
    scope, left = avoiding.vm_leaves(scope, vm, because=because, now_ms=now_ms, except_event="")
    return scope, (*facts, *left)


def ahead_of(left: Scope, into: Scope, *, own: int) -> Scope:
    """Let a scope go on above what its new VM may have read in the scope it left.

    Else a tag from there could be one of here, and the answer 304 for another document. A
    document that never changed was empty, and says the same at incarnation 1 everywhere. `own` is
    the incarnation that the scope has in the store, 1 if it is new.
    """
    if left.incarnation == 1:
        return into
    ahead = max(own, left.incarnation) + 1
    return replace(into, incarnation=max(into.incarnation, ahead))


def above_what_was_read(scope: Scope, read: int) -> Scope:
    """A scope that a VM comes back to which left the fleet and had read so far: it goes on above.

    Its host knows what it read, and would refuse to show it less, or something else by that number.
    """
    return scope if scope.incarnation > read else replace(scope, incarnation=read + 1)


def emptied(scope: Scope) -> Scope:
    """A scope without VMs, as it is kept for its incarnation alone."""
    return replace(scope, enabled=False, polled_ms=None, hold=None, recoveries=())
