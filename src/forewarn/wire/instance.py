"""`/metadata/instance`: what a VM may learn of itself, as a tree, and picking an element of it.

Guests of scheduled events ask it mostly for `compute.name`, to find themselves in `Resources`
(I7). The tree is built from the VM and its scope alone; how a request names an element is the
endpoint's business, what a refusal looks like is `problems`.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from forewarn.core.addresses import read_listen
from forewarn.core.model import ScopeKind
from forewarn.core.vm_profile import Priority
from forewarn.wire import problems
from forewarn.wire.link import ShownScope, ShownVm

# A branch has named or numbered elements; a leaf is always a string (I1).
Tree = str | dict[str, "Tree"] | list["Tree"]

# Clients join this with the ids they build and compare it with the one in resourceId, so it has
# to be this provider of virtual machines, whatever platform runs them.
PROVIDER = "Microsoft.Compute"

# The api-version that introduced each field of `compute` (I5). The documents begin with
# 2017-04-02; 2017-03-01 is answered too (I2) and without these fields it would be empty.
COMPUTE_SINCE: dict[str, str] = {
    "azEnvironment": "2018-10-01",
    "evictionPolicy": "2020-12-01",
    "location": "2017-03-01",
    "name": "2017-03-01",
    "osProfile": "2020-07-15",
    "osType": "2017-03-01",
    "placementGroupId": "2017-08-01",
    "platformFaultDomain": "2017-03-01",
    "platformUpdateDomain": "2017-03-01",
    "priority": "2020-12-01",
    "provider": "2018-10-01",
    "resourceGroupName": "2017-08-01",
    "resourceId": "2019-03-11",
    "subscriptionId": "2017-08-01",
    "tags": "2017-08-01",
    "tagsList": "2019-06-04",
    "vmId": "2017-03-01",
    "vmScaleSetName": "2017-12-01",
    "zone": "2017-12-01",
}


class ResourceLocation(Struct, frozen=True):
    """Where the fleet pretends to be: the words that surround a VM's name in its resource id."""

    location: str
    resource_group: str
    subscription_id: str


def instance_tree(
    vm: ShownVm, scope: ShownScope, place: ResourceLocation, version: str
) -> dict[str, Tree]:
    """What `vm` reads at `/metadata/instance` with that api-version (one of INSTANCE_VERSIONS).

    The same VM, scope and place always give the same tree. `compute.name` is byte for byte the
    name in `Resources`, except for the underscore of 2017-03-01 (S4).
    """
    compute = _compute(vm, scope, place)
    # Dates in this form compare as text.
    known: Tree = {name: compute[name] for name, since in COMPUTE_SINCE.items() if since <= version}
    return {"compute": known, "network": {"interface": [_interface(vm)]}}


def select(tree: Tree, path: Sequence[str], *, text: bool) -> bytes:
    """The element at `path`: a branch as compact JSON, a leaf as its bare value if `text`.

    Names are compared without case, elements of an array are named by their index, and an empty
    last element (a trailing slash) is ignored. Raises GuestProblem for an unknown element, for a
    leaf without `text` and for a branch with it.
    """
    names = list(path[:-1]) if path and not path[-1] else list(path)
    for name in names:
        tree = _child(tree, name)
    if isinstance(tree, str):
        if not text:
            raise problems.leaf_without_text()
        return tree.encode()
    if text:
        raise problems.tree_as_text()
    return msgspec.json.encode(tree)


def _child(tree: Tree, name: str) -> Tree:
    if isinstance(tree, dict):
        wanted = name.casefold()
        for key, child in tree.items():
            if key.casefold() == wanted:
                return child
    elif isinstance(tree, list):
        for index, child in enumerate(tree):
            if str(index) == name:
                return child
    raise problems.unknown_element(name)


def _compute(vm: ShownVm, scope: ShownScope, place: ResourceLocation) -> dict[str, Tree]:
    grouped = scope.kind == ScopeKind.PLACEMENT_GROUP
    spot = vm.priority == Priority.SPOT
    return {
        # Blank is how "missing" looks (I1): this is none of the clouds that have a name there.
        "azEnvironment": "",
        "evictionPolicy": "Delete" if spot else "",  # an eviction here deletes the VM
        "location": place.location,
        "name": vm.name,
        "osProfile": {"computerName": vm.computer_name or vm.name},
        "osType": vm.os_type,
        "placementGroupId": scope.name if grouped else "",
        "platformFaultDomain": str(vm.fault_domain),
        "platformUpdateDomain": str(vm.update_domain),
        "priority": "Spot" if spot else "Regular",
        "provider": PROVIDER,
        "resourceGroupName": place.resource_group,
        "resourceId": _resource_id(vm, scope, place),
        "subscriptionId": place.subscription_id,
        "tags": ";".join(f"{name}:{value}" for name, value in vm.tags),
        "tagsList": [{"name": name, "value": value} for name, value in vm.tags],
        "vmId": vm.vm_id,
        "vmScaleSetName": scope.name if grouped else "",
        "zone": vm.zone,
    }


def _resource_id(vm: ShownVm, scope: ShownScope, place: ResourceLocation) -> str:
    """An id of the form clients take apart.

    A name ending in `_NUMBER` in a placement group is a numbered VM of a scale set; any other
    name is a resource of its own, in a placement group too (C7, contract 6.3).
    """
    provider = (
        f"/subscriptions/{place.subscription_id}/resourceGroups/{place.resource_group}"
        f"/providers/{PROVIDER}"
    )
    number = vm.name.rpartition("_")[2] if "_" in vm.name else ""
    numbered = number.isascii() and number.isdigit()
    if scope.kind == ScopeKind.PLACEMENT_GROUP and numbered:
        return f"{provider}/virtualMachineScaleSets/{scope.name}/virtualMachines/{number}"
    return f"{provider}/virtualMachines/{vm.name}"


def _interface(vm: ShownVm) -> Tree:
    """The VM's one interface (I6). What the fleet does not know is blank.

    A VM that is known by its own listener has the address it is asked at, unless that is the
    endpoint's own or any.
    """
    address = vm.address or (_address_of_listener(vm.listen) if vm.listen else "")
    v6 = ":" in address
    v4_addresses: Tree = [] if v6 else [{"privateIpAddress": address, "publicIpAddress": ""}]
    v6_addresses: Tree = [{"privateIpAddress": address}] if v6 else []
    return {
        "ipv4": {"ipAddress": v4_addresses, "subnet": [{"address": "", "prefix": ""}]},
        "ipv6": {"ipAddress": v6_addresses},
        "macAddress": _mac_address(vm.vm_id),
    }


def _address_of_listener(listen: str) -> str:
    """The address of a listener, or nothing if no VM can have it: 169.254.169.254, or 0.0.0.0."""
    address = read_listen(listen)[0].replace("localhost", "127.0.0.1")
    found = ipaddress.ip_address(address)
    return "" if found.is_link_local or found.is_unspecified else address


def _mac_address(vm_id: str) -> str:
    """Twelve hex digits that are always the same for a VM; the fleet knows no real ones.

    The first byte says unicast and locally administered, so it never is a vendor's address.
    """
    digest = hashlib.sha256(vm_id.encode()).digest()
    first = (digest[0] & 0b1111_1100) | 0b0000_0010
    return bytes((first, *digest[1:6])).hex().upper()
