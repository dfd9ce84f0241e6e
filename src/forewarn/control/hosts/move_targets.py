"""Where VMs that leave a host go, and whether a VM is on its way to one. Hosts ask it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from forewarn.control.fleet_reader import FleetLook
from forewarn.core import placement, scope_edits
from forewarn.core.model import ActionKind, Phase, Scope

_BRINGING = (ActionKind.START_VM, ActionKind.DEFINE_VM, ActionKind.MOVE_VM)


def targets(fleet: FleetLook, host: str, vms: Sequence[str]) -> dict[str, str | None]:
    """Where these VMs should go now. None for a VM without a place, or of another host.

    What the same answer plans already is counted, and no two update domains of a scope are sent to
    one host.
    """
    planned: dict[str, int] = {}
    scopes: dict[str, Scope] = {}  # with the VMs where they are to go
    found: dict[str, str | None] = {}
    for name in vms:
        scope_name, vm = fleet.scope_of_vm.get(name, ""), fleet.vm(name)
        scope = scopes.get(scope_name) or fleet.scope(scope_name)
        found[name] = None
        if scope is None or vm is None or vm.host != host:
            continue
        target = placement.choose_target(scope, vm, fleet, planned)
        if target is not None and target != host:
            found[name] = target
            planned[target] = planned.get(target, 0) + 1
            scopes[scope_name] = scope_edits.with_vm(scope, replace(vm, host=target))
    return found


def is_coming(fleet: FleetLook, host: str, vm: str) -> bool:
    """True if an open action brings the VM to the host, which then needs its definition."""
    scope = fleet.scope(fleet.scope_of_vm.get(vm, ""))
    return scope is not None and any(
        action.kind in _BRINGING
        and (action.vm, action.target_host, action.ended) == (vm, host, False)
        for event in scope.events
        if event.phase is Phase.STARTED
        for action in event.actions
    )
