"""A host daemon with simulated VMs: `python -m bench.simulated_host FOLDER URL TOKEN VMS`.

Everything of `forewarn host` but libvirt and bridges: each VM asks at a listener of its own on
loopback. Says where on one line of JSON, once guests are served.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path

import structlog
import uvloop

from forewarn.adapters.simulated.hypervisor import SimulatedHypervisor
from forewarn.adapters.system import SystemClock
from forewarn.core.inventory.host_report import Nic, Power, SeenVm, Traits
from forewarn.core.model import ScopeKind
from forewarn.endpoint.endpoint import Endpoint
from forewarn.host.identity import Identity
from forewarn.host_settings import HostSettings
from forewarn.ports import HostLink
from forewarn.wiring.host import Building, HostWhere, Machinery, run_host

sys.path.append(str(Path(__file__).parent.parent / "tests"))

from loopback_channels import LoopbackChannels
from support.simulated_machines import SimulatedWorld

HOST = "host-000"
SCOPES = 10
DOMAINS = 5


def seen(count: int) -> list[SeenVm]:
    """So many VMs, dealt to scopes and update domains."""
    return [
        SeenVm(
            name=f"vm-{number:03d}",
            vm_id=f"00000000-0000-0000-0000-{number:012d}",
            power=Power.RUNNING,
            traits=Traits(
                scope=f"scope-{number % SCOPES}",
                update_domain=number // SCOPES % DOMAINS,
                scope_kind=ScopeKind.PLACEMENT_GROUP,
            ),
            nics=(Nic(mac=f"52:54:00:00:{number >> 8:02x}:{number & 255:02x}"),),
            definition="<domain/>",
        )
        for number in range(count)
    ]


def _building(count: int, made: list[LoopbackChannels]) -> Callable[[HostSettings], Building]:
    def channels(endpoint: Endpoint, identity: Identity) -> LoopbackChannels:
        made.append(LoopbackChannels(endpoint, identity))
        return made[0]

    def build(name: str, link: HostLink) -> Machinery:  # noqa: ARG001 - nothing is moved
        world = SimulatedWorld(SimulatedHypervisor(SystemClock()))
        world.put(name, seen(count))
        return Machinery(machines=world.on(name), hypervisor=world.hypervisor, channels=channels)

    return lambda _: build


def main(folder: str, control: str, token: str, count: str) -> None:
    """Join and run until told to stop."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    settings = HostSettings(data=Path(folder), name=HOST, control=control, metrics="127.0.0.1:0")
    made: list[LoopbackChannels] = []

    def started(where: HostWhere) -> None:
        ports = {vm: port for vm, (_, port) in made[0].addresses().items()}
        metrics = None if where.metrics is None else where.metrics[1]
        print(json.dumps({"metrics": metrics, "ports": ports}), flush=True)

    uvloop.run(run_host(settings, token=token, build=_building(int(count), made), started=started))


if __name__ == "__main__":
    main(*sys.argv[1:])
