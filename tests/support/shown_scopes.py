"""Scopes of the core as hosts show them, for tests of hosts and of what guests read."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from forewarn.control.hosts.own_vms import ScopeByHost, vm_as_shown
from forewarn.core.inventory.host_report import SeenVm
from forewarn.core.model import Scope, Vm
from forewarn.wire import documents, instance
from forewarn.wire.api_versions import ApiVersion
from forewarn.wire.instance import ResourceLocation, Tree
from forewarn.wire.link import ShownScope, Sighting
from forewarn.wire.link_values import vm_seen


def as_shown(scope: Scope, *, to_confirm: bool | None = None) -> ShownScope:
    """The scope as a host that has all of its VMs shows it.

    It has to confirm that, unless a test says otherwise, if nobody has of some event.
    """
    found = ScopeByHost(scope).to("")
    waits = any(event.visible and event.shown_ms is None for event in scope.events)
    return msgspec.structs.replace(
        found,
        vms=tuple(vm_as_shown(vm) for vm in scope.vms),
        to_confirm=waits if to_confirm is None else to_confirm,
    )


def render(scope: Scope, version: ApiVersion) -> bytes:
    return documents.render(as_shown(scope), version)


def shown_event_ids(scope: Scope, version: ApiVersion) -> frozenset[str]:
    return documents.shown_event_ids(as_shown(scope), version)


def instance_tree(vm: Vm, scope: Scope, place: ResourceLocation, version: str) -> dict[str, Tree]:
    return instance.instance_tree(vm_as_shown(vm), as_shown(scope), place, version)


def sighting(vms: Iterable[SeenVm], boot_id: str = "") -> Sighting:
    """What a host says of its VMs."""
    return Sighting(tuple(map(vm_seen, vms)), boot_id)
