"""A VM whose move or start no host has seen end: which hosts may run it, and how to find out.

Such a VM is on its own host or on the one that it was being brought to (`Vm.may_run_on`). It must
never run twice and must not stay down for ever, so it starts somewhere only when each of the two
is surely off, or is where it starts, or has looked and does not run it. A host that looks answers
only once nothing that it does itself can still take the VM elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from forewarn.core import avoiding, document, scope_edits
from forewarn.core.facts import MovedDetail, vm_fact
from forewarn.core.fleet import Fleet
from forewarn.core.model import (
    Action,
    ActionKind,
    ActionPhase,
    Fact,
    FactKind,
    Health,
    Phase,
    ScheduledEvent,
    Scope,
    Vm,
)

_BRINGING = (ActionKind.MOVE_VM, ActionKind.START_VM, ActionKind.DEFINE_VM)


def carriers(scope: Scope) -> frozenset[str]:
    """Hosts that carry VMs of the scope, or may do so."""
    hosts = {vm.host for vm in scope.vms}
    hosts.update(vm.may_run_on for vm in scope.vms if vm.may_run_on)
    return frozenset(hosts)


def hosts_mentioned(scope: Scope, carrying: frozenset[str] | None = None) -> frozenset[str]:
    """Hosts that carry VMs of the scope or may do so, or that an open event of it is about.

    `carrying` are its carriers, where they are known: a scope has many VMs and few events.
    """
    known = carriers(scope) if carrying is None else carrying
    hosts: set[str] = set()
    for event in scope.events:
        hosts.add(event.host)
        for action in event.actions:
            hosts.update(name for name in (action.host, action.target_host) if name)
    return known if hosts <= known else known | hosts


def mention_the_same(before: Scope, after: Scope) -> bool:
    """True if both surely have the same VMs, and events with the same ids, hosts and actions there.

    An approval, a confirmation or a claim changes none of these, and nothing that is found by them.
    """
    if before.vms is not after.vms:
        return False
    pairs = document.in_place(before.events, after.events)
    if pairs is None:
        return False
    return all(old.host == new.host and _act_alike(old, new) for old, new in pairs)


def _act_alike(old: ScheduledEvent, new: ScheduledEvent) -> bool:
    """Whether the same is done to the same VMs by the same hosts, or goes on being done."""
    if old.actions is new.actions:
        return True
    if len(old.actions) != len(new.actions):
        return False
    return all(
        a.kind is b.kind
        and a.vm == b.vm
        and a.host == b.host
        and a.target_host == b.target_host
        and a.ended is b.ended
        for a, b in zip(old.actions, new.actions, strict=True)
    )


def arrivals(scope: Scope) -> Iterator[tuple[str, Vm]]:
    """(host, VM) for each VM of the scope that a started action is bringing to a host.

    So with each that an action was bringing there, until it is known where it is.
    """
    for vm in scope.vms:
        if vm.may_run_on is not None and vm.may_run_on != vm.host:
            yield vm.may_run_on, vm
    yield from _brought(scope)


def _brought(scope: Scope) -> Iterator[tuple[str, Vm]]:
    for event in scope.events:
        for action in event.actions:
            if action.kind not in _BRINGING or action.ended or action.target_host is None:
                continue
            comes = scope.vm(action.vm or "")
            if comes is not None and action.target_host not in (comes.host, comes.may_run_on):
                yield action.target_host, comes


def arrive_the_same(before: Scope, after: Scope) -> bool:
    """True if both surely have the same VMs and the same arrivals."""
    return before.vms is after.vms and list(_brought(before)) == list(_brought(after))


def hosts_with_actions(scope: Scope) -> set[str]:
    """Hosts that have something of the scope to do, or are doing it."""
    return {
        action.host
        for event in scope.events
        for action in event.actions
        if action.host is not None and not action.ended
    }


def other_host(vm: Vm, fleet: Fleet) -> str | None:
    """The host besides its own that may run the VM; None if there is none that is not off."""
    other = fleet.host(vm.may_run_on) if vm.may_run_on else None
    if other is None or other.name == vm.host or surely_off(other.name, fleet):
        return None
    return other.name


def surely_off(host: str, fleet: Fleet) -> bool:
    """True if the operator has said that the host has failed and is off."""
    found = fleet.host(host)
    return found is not None and found.health is Health.FAILED and found.fenced


def moves_under_way(scope: Scope, host: str) -> Scope:
    """The scope after its host has failed: VMs that it was moving may run at their targets."""
    for event in scope.events:
        if event.phase is not Phase.STARTED:
            continue
        for action in event.actions:
            if action.kind is ActionKind.MOVE_VM and action.host == host:
                scope = unreported(scope, action)
    return scope


def target_failed(scope: Scope, host: str) -> Scope:
    """The scope after a host has failed to which VMs are on their way: who arrived may be down."""
    for event in scope.events:
        marked = event
        for action in event.actions if event.phase is Phase.STARTED else ():
            if action.target_host == host and action.host != host and not action.ended:
                marked = scope_edits.with_action(marked, replace(action, target_failed=True))
        if marked != event:
            scope = scope_edits.with_event(scope, marked)
    return scope


def unreported(scope: Scope, action: Action) -> Scope:
    """The scope after an action is given up: if a host had taken it, its outcome is not known."""
    vm = scope.vm(action.vm or "")
    target = action.target_host
    if vm is None or action.kind not in _BRINGING or action.phase is not ActionPhase.CLAIMED:
        return scope
    if target is None or target == vm.host:
        return scope
    return scope_edits.with_vm(scope, replace(vm, may_run_on=target))


def acted_on(scope: Scope, vm: str) -> bool:
    """True while an action that has not ended is about the VM itself."""
    return any(
        action.vm == vm and not action.ended
        for event in scope.events
        if event.phase is Phase.STARTED
        for action in event.actions
    )


def counted_on(
    scope: Scope, vm: Vm, host: str, *, other: str | None, now_ms: int
) -> tuple[Scope, tuple[Fact, ...]]:
    """The scope with the VM on the other of the two hosts that may run it.

    `other` is the host that may still run it besides: the one that it was counted on so far.
    """
    after = replace(vm, host=host, may_run_on=other)
    scope, left = avoiding.vm_leaves(
        scope_edits.with_vm(scope, after),
        vm.name,
        because=f"it may be on {host}",
        now_ms=now_ms,
        except_event="",
    )
    detail = MovedDetail(from_host=vm.host, sure=False)
    return scope, (vm_fact(FactKind.MOVED, scope.name, after, now_ms, detail=detail), *left)


def unsure(scope: Scope, action: Action, now_ms: int) -> tuple[Scope, tuple[Fact, ...]]:
    """The scope after the source of a move has said that only its target can know how it went.

    The source does not run the VM but may still have it, so it is the place for it if the target
    turns out not to run it either.
    """
    vm, target = scope.vm(action.vm or ""), action.target_host
    if vm is None or action.kind is not ActionKind.MOVE_VM or target in (None, vm.host):
        return scope, ()
    return counted_on(scope, vm, target or vm.host, other=vm.host, now_ms=now_ms)


def strand(scope: Scope, host: str, now_ms: int) -> tuple[Scope, tuple[Fact, ...]]:
    """The scope after a host has failed: VMs that may have run there are counted on it.

    They may be down with it, and then the code that restarts that host's VMs brings them back. A VM
    that an open action is about is left to that action.
    """
    facts: list[Fact] = []
    for vm in scope.vms:
        if vm.may_run_on == host and vm.host != host and not acted_on(scope, vm.name):
            scope, new_facts = counted_on(scope, vm, host, other=vm.host, now_ms=now_ms)
            facts.extend(new_facts)
    return scope, tuple(facts)


def not_on(scope: Scope, host: str) -> Scope:
    """The scope once it is sure that the host runs nothing: it is off."""
    for vm in scope.vms:
        if vm.may_run_on == host:
            scope = scope_edits.with_vm(scope, replace(vm, may_run_on=None))
    return scope


def not_on_target(scope: Scope, vm: Vm, action: Action) -> Scope:
    """The scope once the holder of an action has said that the VM did not come to its target."""
    if vm.may_run_on is None or vm.may_run_on != action.target_host:
        return scope
    return scope_edits.with_vm(scope, replace(vm, may_run_on=None))


def without_host(action: Action) -> Action:
    """The action as one that starts its VM, somewhere, once there is a place for it."""
    return replace(
        action,
        kind=ActionKind.START_VM,
        host=None,
        target_host=None,
        phase=ActionPhase.PENDING,
        epoch=action.epoch + 1,
    )


def looked_for(action: Action, host: str) -> Action:
    """The action as one that looks for its VM on a host."""
    return replace(
        action,
        kind=ActionKind.FIND_VM,
        host=host,
        target_host=host,
        phase=ActionPhase.PENDING,
        epoch=action.epoch + 1,
    )


def not_found(scope: Scope, event: ScheduledEvent, action: Action) -> tuple[Scope, ScheduledEvent]:
    """A host has looked and does not run the VM: the other one looks, then the VM may start."""
    vm = scope.vm(action.vm or "")
    if vm is None:
        return scope, event
    if action.host == vm.host and vm.may_run_on not in (None, vm.host):
        event = scope_edits.with_action(event, looked_for(action, vm.may_run_on))
    else:
        event = scope_edits.with_action(event, without_host(action))
        scope = scope_edits.with_vm(scope, replace(vm, may_run_on=None))
    return scope_edits.with_event(scope, event), event
