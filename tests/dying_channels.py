"""A host daemon that serves, stops, or dies by SIGKILL at the n-th change of the kernel.

    python dying_channels.py STEP WHEN MAC TAP [MAC TAP ...]

STEP counts changes (rules, addresses, the setting), WHEN is `before` or `after` it; STEP 0 never
dies and serves. With VMs that come first and go then, every kind of change is passed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import uvloop

from forewarn.adapters.iproute2 import LinkAddresses
from forewarn.adapters.nftables import NftRules
from forewarn.core.inventory.host_report import Nic, Power, SeenVm
from forewarn.endpoint.endpoint import Endpoint
from forewarn.host.channels.channel_setup import Channels
from forewarn.host.identity import Identity
from forewarn.wire.instance import ResourceLocation
from support.endpoint_world import NOW_MS, FakeService


class Death:
    """Counts changes; kills the process at one of them."""

    def __init__(self, step: int, when: str) -> None:
        self._left = step
        self._when = when

    def passes(self, when: str) -> None:
        self._left -= when == "before"
        if self._left == 0 and when == self._when:
            os.kill(os.getpid(), signal.SIGKILL)


class DyingInterfaces(LinkAddresses):
    def __init__(self, death: Death) -> None:
        self._death = death

    async def add_address(self, interface: str, address: str) -> None:
        self._death.passes("before")
        await super().add_address(interface, address)
        self._death.passes("after")

    async def remove_address(self, interface: str, address: str) -> None:
        self._death.passes("before")
        await super().remove_address(interface, address)
        self._death.passes("after")

    def inherit_marks(self, *, on: bool) -> None:
        self._death.passes("before")
        super().inherit_marks(on=on)
        self._death.passes("after")


class DyingRules(NftRules):
    def __init__(self, death: Death) -> None:
        self._death = death

    async def apply(self, text: str) -> None:
        self._death.passes("before")
        await super().apply(text)
        self._death.passes("after")


async def main() -> None:
    step, when, named = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    identity, death = Identity(), Death(step, when)
    place = ResourceLocation("here", "group", "subscription")
    endpoint = Endpoint(FakeService(), now_ms=lambda: NOW_MS, place=place)
    interfaces, rules = DyingInterfaces(death), DyingRules(death)
    channels = Channels(endpoint, identity, interfaces=interfaces, rules=rules)
    vms = [
        SeenVm(name=f"vm{n}", vm_id=str(n), power=Power.RUNNING, nics=(Nic(mac=mac, tap=tap),))
        for n, (mac, tap) in enumerate(zip(named[::2], named[1::2], strict=True))
    ]
    for problem in await channels.arrange(vms):
        sys.stdout.write(f"{problem}\n")
    sys.stdout.write("serving\n")
    sys.stdout.flush()
    if step == 0:
        await asyncio.Event().wait()
    await channels.arrange(vms[:1])
    await channels.close()


if __name__ == "__main__":
    uvloop.run(main())
