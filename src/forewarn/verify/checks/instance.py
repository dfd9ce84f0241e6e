"""Checks of /metadata/instance and /metadata/versions, which clients ask beside the document."""

from __future__ import annotations

import re
from typing import Any

from forewarn.verify.answers import expect_newest, expect_status
from forewarn.verify.check import Failed, Topic, expect
from forewarn.verify.probe import INSTANCE_VERSION, Probe

TOPIC = Topic("neighbours", "/metadata/instance and /metadata/versions")

INSTANCE = "/metadata/instance"
QUERY = f"?api-version={INSTANCE_VERSION}"
DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


def _tree(probe: Probe, path: str = "") -> dict[str, Any]:
    answer = probe.get(f"{INSTANCE}{path}{QUERY}")
    content = answer.json
    if answer.status != 200 or not isinstance(content, dict):
        raise Failed(answer, "200 with a JSON object")
    return content


def _compute(probe: Probe) -> dict[str, Any]:
    compute = _tree(probe).get("compute")
    if not isinstance(compute, dict):
        raise Failed(compute, "compute, an object")
    return compute


@TOPIC.check(
    "versions-listed",
    "/metadata/versions lists the api-versions, ascending.",
    "I3",
    not_checked="The form and the order; whether each api-version of the list is answered is not "
    "tried.",
)
def versions_listed(probe: Probe) -> None:
    answer = probe.get("/metadata/versions")
    content = answer.json if answer.status == 200 else None
    listed = content.get("apiVersions") if isinstance(content, dict) else None
    good = (
        isinstance(listed, list)
        and bool(listed)
        and all(isinstance(version, str) and DATE.match(version) for version in listed)
        and listed == sorted(listed)
    )
    expect(good, answer, '{"apiVersions": [...]}, ascending')


@TOPIC.check(
    "versions-header",
    "/metadata/versions asks for the Metadata header too.",
    "I3",
    not_checked="No header at all; one with a wrong value is not tried.",
)
def versions_header(probe: Probe) -> None:
    expect_status(probe.get("/metadata/versions", metadata=False), 400)


@TOPIC.check(
    "instance-200",
    "/metadata/instance is answered with compute and network.",
    "I1",
    not_checked="At 2021-02-01 alone; the other api-versions of the instance are not tried.",
)
def instance_200(probe: Probe) -> None:
    tree = _tree(probe)
    good = isinstance(tree.get("compute"), dict) and isinstance(tree.get("network"), dict)
    expect(good, sorted(tree), "compute and network")


@TOPIC.check(
    "instance-name",
    "compute.name is the name of the VM.",
    "I7, C6",
    not_checked="Any text passes; that it is this VM's shows only when an event names it.",
    needs=("instance-200",),
)
def instance_name(probe: Probe) -> None:
    name = _compute(probe).get("name")
    expect(isinstance(name, str) and name, name, "a text")


@TOPIC.check(
    "instance-vm-id",
    "compute.vmId is not blank.",
    "contract 10",
    not_checked="Any text passes; its form, and that it stays the same, are not checked.",
    needs=("instance-200",),
)
def instance_vm_id(probe: Probe) -> None:
    vm_id = _compute(probe).get("vmId")
    expect(isinstance(vm_id, str) and vm_id, vm_id, "a text")


@TOPIC.check(
    "instance-strings",
    "Every single value of the instance is a text, numbers included.",
    "I1",
    not_checked="What is there is text; what is missing from the real tree is not noticed.",
    needs=("instance-200",),
)
def instance_strings(probe: Probe) -> None:
    odd = _not_text(_tree(probe), "")
    expect(not odd, odd, "texts only")


def _not_text(root: object, name: str) -> list[str]:
    """Where a tree holds a value that is neither text nor a branch; any depth."""
    odd: list[str] = []
    left = [(root, name)]
    while left:
        part, where = left.pop()
        if isinstance(part, dict):
            left += [(value, f"{where}/{key}") for key, value in part.items()]
        elif isinstance(part, list):
            left += [(value, f"{where}/{index}") for index, value in enumerate(part)]
        elif not isinstance(part, str):
            odd.append(f"{where} is {part!r}")
    return odd


@TOPIC.check(
    "instance-network",
    "network.interface is a list whose elements have a macAddress of 12 hex digits.",
    "I6",
    not_checked="macAddress alone; IP addresses and subnets are not looked at.",
    needs=("instance-200",),
)
def instance_network(probe: Probe) -> None:
    network = _tree(probe).get("network")
    interfaces = network.get("interface") if isinstance(network, dict) else None
    good = (
        isinstance(interfaces, list)
        and bool(interfaces)
        and all(
            isinstance(interface, dict)
            and re.fullmatch(r"[0-9A-Fa-f]{12}", str(interface.get("macAddress")))
            for interface in interfaces
        )
    )
    expect(good, network, '"interface": [{"macAddress": "000D3A000000", ...}]')


@TOPIC.check(
    "instance-part",
    "/metadata/instance/compute is the compute part of the whole.",
    "I4",
    not_checked="compute alone; network, its elements and deeper parts are not compared.",
    needs=("instance-200",),
)
def instance_part(probe: Probe) -> None:
    part = _tree(probe, "/compute")
    expect(part == _compute(probe), part, "the same as compute of /metadata/instance")


@TOPIC.check(
    "instance-text",
    "A single value with format=text is the bare value, as text/plain, without a line end.",
    "I4",
    not_checked="compute/name alone; other values, and those within lists, are not asked for.",
    needs=("instance-name",),
)
def instance_text(probe: Probe) -> None:
    answer = probe.get(f"{INSTANCE}/compute/name{QUERY}&format=text")
    name = _compute(probe).get("name")
    kind = answer.header("Content-Type") or ""
    good = answer.status == 200 and kind.lower().startswith("text/plain")
    expect(good and answer.body == str(name).encode(), f"{kind} {answer}", f"text/plain {name}")


@TOPIC.check(
    "instance-leaf",
    "A single value without format=text is refused with 400.",
    "I4, E6",
    not_checked="The status for compute/name alone; the words of the refusal are not read.",
)
def instance_leaf(probe: Probe) -> None:
    expect_status(probe.get(f"{INSTANCE}/compute/name{QUERY}"), 400)


@TOPIC.check(
    "instance-unknown",
    "An unknown element is refused with 404.",
    "E12",
    not_checked="One name below compute; unknown elements of lists are not asked for.",
)
def instance_unknown(probe: Probe) -> None:
    expect_status(probe.get(f"{INSTANCE}/compute/nothing{QUERY}"), 404)


@TOPIC.check(
    "instance-header",
    "/metadata/instance asks for the Metadata header.",
    "I1, H1",
    not_checked="The whole tree alone; its parts and single values are not asked for without the "
    "header.",
)
def instance_header(probe: Probe) -> None:
    expect_status(probe.get(f"{INSTANCE}{QUERY}", metadata=False), 400)


@TOPIC.check(
    "instance-version",
    "/metadata/instance without api-version is refused with 400, naming the three newest.",
    "E2",
    not_checked="Whether the three named work, and how an unknown api-version is refused, is not "
    "tried.",
)
def instance_version(probe: Probe) -> None:
    answer = probe.get(INSTANCE)
    expect_status(answer, 400)
    expect_newest(answer)
