"""A fleet with a past and something to do, for the pictures of the console.

An emulator: the same seed and the same steps give the same fleet, whatever the day.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from forewarn.testing import Cloud

START = "2026-03-03T08:00:00Z"
QUERY = "/metadata/scheduledevents?api-version=2020-07-01"
RACKS, HOSTS_IN_RACK, CAPACITY = 3, 16, 10

# name: (VMs, update domains, kind, owner)
SCOPES = {
    "shop-web": (20, 5, "placement-group", "shop"),
    "shop-api": (10, 5, "placement-group", "shop"),
    "checkout": (6, 3, "availability-set", "payments"),
    "search": (8, 4, "placement-group", "search"),
    "postgres": (3, 3, "availability-set", "data"),
    "redis": (3, 3, "availability-set", "data"),
    "kafka": (5, 5, "placement-group", "data"),
    "build": (8, 4, "cloud-service", "tools"),
    "legacy-crm": (4, 2, "availability-set", "sales"),
    "ml-train": (4, 2, "placement-group", "research"),
}
SILENT = ("legacy-crm", "ml-train")
ALONE = ("mail", "vpn", "wiki", "monitor")


def hosts() -> list[str]:
    racks, numbers = range(1, RACKS + 1), range(1, HOSTS_IN_RACK + 1)
    return [f"r{rack}-h{number:02d}" for rack in racks for number in numbers]


def inventory() -> str:
    """The fleet as a file: the VMs of one domain share a rack where they can."""
    names = hosts()
    lines = [f'[[host]]\nname = "{name}"\ncapacity = {CAPACITY}' for name in names]
    place = 0
    for scope, (count, domains, kind, owner) in SCOPES.items():
        lines.append(f'[[scope]]\nname = "{scope}"\nkind = "{kind}"')
        for number in range(count):
            domain = number % domains
            host = names[(place + number * 7) % len(names)]
            lines.append(_vm(f"{scope}-{number}", host, owner, scope=scope, domain=domain))
        place += 11
    for number, name in enumerate(ALONE):
        lines.append(_vm(name, names[number * 12 + 2], "it"))
    return "\n".join(lines) + "\n"


def _vm(name: str, host: str, owner: str, *, scope: str = "", domain: int = 0) -> str:
    of = f'scope = "{scope}"\nupdate_domain = {domain}\n' if scope else ""
    head = f'[[vm]]\nname = "{name}"\nhost = "{host}"\nlisten = "127.0.0.1:0"\n'
    return f'{head}{of}tags = {{ owner = "{owner}" }}'


class Fleet:
    """The fleet, its guests and its operator."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.scope_of = {vm.name: vm.scope for vm in cloud.vms}

    def order(self, path: str, **said: object) -> Any:
        """What an operator orders, by the API."""
        request = urllib.request.Request(
            f"{self.cloud.operator_url}/v1/{path}",
            data=json.dumps(said).encode(),
            headers={"Authorization": f"Bearer {self.cloud.operator_token}"},
            method="POST",
        )
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def reads(self, vm: str) -> Any:
        """A VM reads its document."""
        url = f"{self.cloud.vm(vm).url}{QUERY}"
        request = urllib.request.Request(url, headers={"Metadata": "true"})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def approves(self, vm: str) -> None:
        """A VM says go ahead to all that names it."""
        ids = [one["EventId"] for one in self.reads(vm)["Events"] if vm in one["Resources"]]
        body = json.dumps({"StartRequests": [{"EventId": one} for one in ids]}).encode()
        url = f"{self.cloud.vm(vm).url}{QUERY}"
        request = urllib.request.Request(url, data=body, headers={"Metadata": "true"})
        urllib.request.urlopen(request).close()

    def all_poll(self) -> None:
        """Every VM that listens polls."""
        for vm, scope in self.scope_of.items():
            if scope not in SILENT:
                self.reads(vm)

    def vms_on(self, host: str) -> Sequence[str]:
        return [vm.name for vm in self.cloud.vms if vm.host == host]


@contextmanager
def running() -> Iterator[Fleet]:
    """The fleet with its past, for the length of the block."""
    with Cloud(
        inventory=inventory(),
        seed=15,
        start=START,
        enablement="first-poll",
        domain_recovery_seconds=0,
        reboot_seconds=90,
        operator_name="ops",
    ) as cloud:
        fleet = Fleet(cloud)
        fleet.all_poll()
        _past(fleet)
        _present(fleet)
        yield fleet


def _past(fleet: Fleet) -> None:
    """Six days with some maintenance: most of it read, some approved, one without a reader."""
    done = ("r1-h01", "r1-h02", "r2-h01", "r2-h02", "r3-h01", "r1-h09")
    for number, host in enumerate(done):
        fleet.order(f"hosts/{host}/maintain", event_type="Reboot" if number % 3 else "Freeze")
        for vm in fleet.vms_on(host):
            if fleet.scope_of[vm] in SILENT:
                continue
            fleet.reads(vm)
            if number % 2:
                fleet.approves(vm)
        if number == 2:
            fleet.order("vms/wiki/restart")
        fleet.cloud.clock.advance(minutes=20)
        fleet.cloud.clock.advance(hours=20)
        fleet.all_poll()
    fleet.order("vms/mail/redeploy")
    fleet.cloud.clock.advance(minutes=30)
    fleet.all_poll()


def _present(fleet: Fleet) -> None:
    """What a page of today shows."""
    fleet.cloud.faults.add("action-fails", vm="checkout-2", count=1)
    failing = fleet.order("vms/checkout-2/restart")
    fleet.approves("checkout-2")
    fleet.cloud.clock.advance(minutes=3)
    assert failing
    fleet.order("hosts/r2-h10/close")
    fleet.order("hosts/r3-h05/degrade")
    fleet.order("hosts/r3-h12/fail")
    slow = fleet.order("hosts/r1-h03/maintain", event_type="Reboot")
    for vm in fleet.vms_on("r1-h03"):
        if fleet.scope_of[vm] not in SILENT:
            fleet.approves(vm)
    assert slow
    fleet.order("hosts/r1-h04/maintain", event_type="Reboot")
    fleet.cloud.clock.advance(seconds=40)
    first, *_ = [vm for vm in fleet.vms_on("r1-h04") if fleet.scope_of[vm] not in SILENT]
    fleet.approves(first)
    fleet.order(
        "hosts/r2-h07/maintain", event_type="Redeploy", window={"start": "+2h", "end": "+5h"}
    )
    fleet.order("hosts/r2-h03/maintain", event_type="Freeze", not_before="+45m")
    fleet.order("vms/vpn/restart")
    fleet.reads("vpn")
    fleet.cloud.clock.advance(seconds=10)
