"""`/metadata/instance`: a VM finds itself, every leaf is a string, versions hide what they lack."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

import pytest
from msgspec.structs import replace

from forewarn.core.model import Scope, ScopeKind, Vm
from forewarn.core.vm_profile import Priority
from forewarn.wire.api_versions import INSTANCE_VERSIONS
from forewarn.wire.instance import COMPUTE_SINCE, Tree, select
from forewarn.wire.problems import GuestProblem
from support.shown_scopes import instance_tree
from support.wire_samples import PLACE, scope, vm

NEWEST = INSTANCE_VERSIONS[-1]
GROUP = scope(kind=ScopeKind.PLACEMENT_GROUP)
VM_IDS = (
    "/subscriptions/00000000-0000-4000-8000-000000000001/resourceGroups/rg-one"
    "/providers/Microsoft.Compute"
)


def compute(
    of: Vm | None = None, in_scope: Scope = GROUP, version: str = NEWEST
) -> dict[str, Tree]:
    tree = instance_tree(of or vm(), in_scope, PLACE, version)["compute"]
    assert isinstance(tree, dict)
    return tree


def leaves(tree: Tree) -> Iterator[object]:
    if isinstance(tree, dict):
        for child in tree.values():
            yield from leaves(child)
    elif isinstance(tree, list):
        for child in tree:
            yield from leaves(child)
    else:
        yield tree


def refused(tree: Tree, path: Sequence[str], *, text: bool) -> GuestProblem:
    with pytest.raises(GuestProblem) as caught:
        select(tree, path, text=text)
    return caught.value


@pytest.mark.parametrize("version", INSTANCE_VERSIONS)
def test_every_version_names_the_vm_as_resources_does_and_every_leaf_is_a_string(
    version: str,
) -> None:
    tree = instance_tree(vm(tags=(("a", "b"),)), GROUP, PLACE, version)
    assert tree.keys() == {"compute", "network"}
    assert compute(version=version)["name"] == "web_0"
    assert all(isinstance(leaf, str) for leaf in leaves(tree))


@pytest.mark.parametrize("name", COMPUTE_SINCE)
def test_a_field_appears_with_the_version_that_introduced_it(name: str) -> None:
    with_it = [version for version in INSTANCE_VERSIONS if name in compute(version=version)]
    since = INSTANCE_VERSIONS.index(COMPUTE_SINCE[name])
    assert with_it == list(INSTANCE_VERSIONS[since:])


def test_the_newest_tree_of_a_numbered_vm_in_a_placement_group() -> None:
    tagged = vm(tags=(("role", "db"), ("team", "a")), zone="2", computer_name="web000000")
    assert compute(tagged) == {
        "azEnvironment": "",
        "evictionPolicy": "",
        "location": "testland",
        "name": "web_0",
        "osProfile": {"computerName": "web000000"},
        "osType": "Linux",
        "placementGroupId": "web",
        "platformFaultDomain": "1",
        "platformUpdateDomain": "2",
        "priority": "Regular",
        "provider": "Microsoft.Compute",
        "resourceGroupName": "rg-one",
        "resourceId": f"{VM_IDS}/virtualMachineScaleSets/web/virtualMachines/0",
        "subscriptionId": "00000000-0000-4000-8000-000000000001",
        "tags": "role:db;team:a",
        "tagsList": [{"name": "role", "value": "db"}, {"name": "team", "value": "a"}],
        "vmId": "02aab8a4-74ef-476e-8182-f6d2ba4166a6",
        "vmScaleSetName": "web",
        "zone": "2",
    }


@pytest.mark.parametrize("name", ["web_a1b2c3d4", "web", "web_", "web_\u0663"])
def test_a_vm_of_a_placement_group_without_a_number_is_a_resource_of_its_own(name: str) -> None:
    assert compute(vm(name))["resourceId"] == f"{VM_IDS}/virtualMachines/{name}"


@pytest.mark.parametrize("kind", [kind for kind in ScopeKind if kind != "placement-group"])
def test_a_vm_outside_a_placement_group_has_no_scale_set(kind: ScopeKind) -> None:
    shown = compute(in_scope=scope(kind=kind))
    assert shown["vmScaleSetName"] == shown["placementGroupId"] == ""
    assert shown["resourceId"] == f"{VM_IDS}/virtualMachines/web_0"


def test_a_spot_vm_says_so_and_that_eviction_deletes_it() -> None:
    shown = compute(vm(priority=Priority.SPOT))
    assert (shown["priority"], shown["evictionPolicy"]) == ("Spot", "Delete")


def test_a_vm_without_tags_or_computer_name_has_empty_tags_and_its_own_name() -> None:
    shown = compute()
    assert (shown["tags"], shown["tagsList"]) == ("", [])
    assert shown["osProfile"] == {"computerName": "web_0"}


@pytest.mark.parametrize(
    ("address", "v4", "v6"),
    [
        ("10.0.0.4", [{"privateIpAddress": "10.0.0.4", "publicIpAddress": ""}], []),
        (None, [{"privateIpAddress": "", "publicIpAddress": ""}], []),
        ("fd00::4", [], [{"privateIpAddress": "fd00::4"}]),
    ],
)
def test_the_interface_shows_the_address_under_its_family(
    address: str | None, v4: object, v6: object
) -> None:
    tree = instance_tree(vm(address=address), GROUP, PLACE, NEWEST)
    interface = json.loads(select(tree, ["network", "interface", "0"], text=False))
    assert interface.keys() == {"ipv4", "ipv6", "macAddress"}
    assert interface["ipv4"] == {"ipAddress": v4, "subnet": [{"address": "", "prefix": ""}]}
    assert interface["ipv6"] == {"ipAddress": v6}


def test_the_mac_address_is_the_vms_own_and_always_the_same() -> None:
    path = ["network", "interface", "0", "macAddress"]
    one, again, other = (
        select(instance_tree(each, GROUP, PLACE, NEWEST), path, text=True).decode()
        for each in (vm(), vm("renamed"), replace(vm(), vm_id="another"))
    )
    assert re.fullmatch(r"[0-9A-F]{12}", one)
    assert int(one[:2], 16) & 0b11 == 0b10, "unicast, locally administered"
    assert one == again != other


TREE = instance_tree(vm(tags=(("role", "db"),)), GROUP, PLACE, NEWEST)


@pytest.mark.parametrize("path", [[], [""]])
def test_no_path_or_a_slash_alone_is_the_whole_tree(path: list[str]) -> None:
    assert json.loads(select(TREE, path, text=False)) == TREE


@pytest.mark.parametrize(
    "path", [["compute"], ["compute", ""], ["COMPUTE"], ["network", "interface"], ["Network", ""]]
)
def test_a_branch_is_compact_json_whatever_the_case_or_trailing_slash(path: list[str]) -> None:
    answer = select(TREE, path, text=False)
    assert answer == json.dumps(json.loads(answer), separators=(",", ":")).encode()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["compute", "name"], b"web_0"),
        (["compute", "NAME", ""], b"web_0"),
        (["compute", "tagsList", "0", "value"], b"db"),
        (["compute", "osProfile", "computername"], b"web_0"),
        (["compute", "zone"], b""),
        (["network", "interface", "0", "ipv4", "ipAddress", "0", "privateIpAddress"], b"10.0.0.4"),
    ],
)
def test_a_leaf_as_text_is_its_bare_value(path: list[str], value: bytes) -> None:
    assert select(TREE, path, text=True) == value


def test_a_leaf_without_text_is_refused_and_told_why() -> None:
    problem = refused(TREE, ["compute", "name"], text=False)
    assert problem.status == 400
    assert b"format=text" in problem.body


@pytest.mark.parametrize("path", [[], ["compute"], ["network", "interface"]])
def test_a_branch_as_text_is_refused_and_told_what_would_be_accepted(path: list[str]) -> None:
    problem = refused(TREE, path, text=True)
    assert problem.status == 400
    assert b"format=json" in problem.body


@pytest.mark.parametrize("text", [True, False])
@pytest.mark.parametrize(
    "path",
    [
        ["color"],
        ["", "compute"],
        ["compute", "", "name"],
        ["compute", "name", "x"],
        ["network", "interface", "1"],
        ["network", "interface", "-1"],
        ["network", "interface", "00"],
        ["network", "interface", "\u0660"],
        ["network", "interface", "9" * 5_000],
        ["network", "interface", "x"],
        ["\ud800"],
    ],
    ids=lambda path: ascii("/".join(path))[:40],
)
def test_an_unknown_element_is_not_found(path: list[str], *, text: bool) -> None:
    assert refused(TREE, path, text=text).status == 404


def test_an_element_newer_than_the_version_is_not_found() -> None:
    old = instance_tree(vm(), GROUP, PLACE, "2017-08-01")
    assert refused(old, ["compute", "resourceId"], text=True).status == 404


@pytest.mark.parametrize(
    ("listen", "address"),
    [
        ("127.0.0.1:18210", b"127.0.0.1"),
        ("localhost:18210", b"127.0.0.1"),
        ("169.254.169.254:80", b""),  # the endpoint's, and no VM's
        ("0.0.0.0:8301", b""),
    ],
)
def test_a_vm_known_by_its_listener_has_the_address_it_is_asked_at_unless_it_is_the_endpoints(
    listen: str, address: bytes
) -> None:
    asked = vm("web_0", address=None, listen=listen)
    tree = instance_tree(asked, scope(), PLACE, INSTANCE_VERSIONS[-1])
    path = ("network", "interface", "0", "ipv4", "ipAddress", "0", "privateIpAddress")
    assert select(tree, path, text=True) == address
