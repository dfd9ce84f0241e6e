"""A real control with real host daemons in one event loop, over real TLS; only VMs are simulated.

Between hosts and control stands a proxy that can be cut. Guests and the operator speak HTTP. No
test lives here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from forewarn.adapters.simulated.hypervisor import SimulatedHypervisor
from forewarn.adapters.system import SystemClock
from forewarn.core.inventory.host_report import Power, SeenVm, Traits
from forewarn.host_settings import HostSettings
from forewarn.ports import Clock, HostLink
from forewarn.settings import OPERATOR_TOKEN_FILE, Settings
from forewarn.wiring.control import ControlService, ControlWhere, open_control
from forewarn.wiring.host import HostService, HostWhere, Machinery, membership
from loopback_channels import LoopbackChannels
from support.simulated_machines import SimulatedWorld
from support.waiting import WAIT_S, until

DOCUMENT = "/metadata/scheduledevents?api-version=2020-07-01"


def a_vm(name: str, *, scope: str = "", update_domain: int | None = None) -> SeenVm:
    number = sum(name.encode()) % 0xFFFF
    return SeenVm(
        name=name,
        vm_id=f"00000000-0000-4000-8000-{number:012x}",
        power=Power.RUNNING,
        traits=Traits(scope=scope, update_domain=update_domain),
        definition=f"<domain><name>{name}</name></domain>",
    )


WEB = {
    "h1": [a_vm("web_0", scope="web", update_domain=0)],
    "h2": [a_vm("web_1", scope="web", update_domain=1)],
}


def run(test: Coroutine[Any, Any, None]) -> None:
    """Run one test to its end, in a loop of its own."""
    asyncio.run(asyncio.wait_for(test, 200))


async def _first(some: list[asyncio.Future[Any]]) -> None:
    await asyncio.wait(some, return_when=asyncio.FIRST_COMPLETED, timeout=WAIT_S)


class Proxy:
    """Stands before control. While it is cut nothing passes and nobody is let in."""

    def __init__(self) -> None:
        self.target = ("127.0.0.1", 0)
        self.cut = False
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()

    async def open(self) -> int:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    def drop(self) -> None:
        """Cut everything off at once, as if the cable were pulled and the peer had reset."""
        self.cut = True
        for writer in tuple(self._open):
            writer.transport.abort()

    def mend(self) -> None:
        self.cut = False

    async def close(self) -> None:
        self.drop()
        if self._server is not None:
            self._server.close()
        for pump in tuple(self._pumps):
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.cut:
            writer.transport.abort()
            return
        self._begin(self._serve(reader, writer))

    def _begin(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._pumps.add(task)
        task.add_done_callback(self._pumps.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            there, thither = await asyncio.open_connection(*self.target)
        except OSError:
            writer.transport.abort()
            self._open.discard(writer)
            return
        self._open.add(thither)
        if self.cut:  # while it was on its way
            self.drop()
        try:
            await asyncio.gather(self._pump(reader, thither), self._pump(there, writer))
        finally:
            for one in (writer, thither):
                one.transport.abort()
                self._open.discard(one)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while some := await reader.read(65_536):
                writer.write(some)
                await writer.drain()
            writer.close()


class Cloud:
    """One control and its hosts. Made by `cloud`."""

    def __init__(self, folder: Path, clock: Clock | None) -> None:
        self.folder = folder
        self._clock = clock
        self.proxy = Proxy()
        self.world = SimulatedWorld(SimulatedHypervisor(SystemClock()))
        self.control: ControlService
        self.where: ControlWhere
        self.hosts: dict[str, HostService] = {}
        self._url = ""
        self._control_runs: asyncio.Task[None] | None = None
        self._host_runs: dict[str, tuple[asyncio.Event, asyncio.Task[None]]] = {}
        self.client = httpx.AsyncClient(trust_env=False, timeout=WAIT_S)

    # Control.

    async def open(self) -> None:
        port = await self.proxy.open()
        self._url = f"https://127.0.0.1:{port}"
        await self.start_control()

    async def start_control(self) -> None:
        settings = Settings(
            data=self.folder / "control",
            operator="127.0.0.1:0",
            hosts="127.0.0.1:0",
            hosts_url=self._url,
            domain_recovery_seconds=0,
            reboot_seconds=0,
            redeploy_seconds=0,
            delete_seconds=0,
            freeze_seconds=0,
        )
        self.control = open_control(settings, clock=self._clock)
        told: asyncio.Future[ControlWhere] = asyncio.get_running_loop().create_future()
        run = self._control_runs = asyncio.ensure_future(self.control.run(told.set_result))
        await _first([told, run])
        if run.done():
            run.result()
        self.where = told.result()
        address, _, port = self.where.hosts_listen.rpartition(":")
        self.proxy.target = (address, int(port))

    async def stop_control(self) -> None:
        if self._control_runs is not None:
            self.control.stop()
            await self._control_runs
            self._control_runs = None

    # Hosts.

    def host_settings(self, name: str) -> HostSettings:
        return HostSettings(
            data=self.folder / name,
            name=name,
            control=self._url,
            metrics="127.0.0.1:0",
            guest_requests_per_second=0,
            guest_names=("Metadata.Example",),
        )

    async def token(self, name: str) -> str:
        reply = await self.operator("POST", f"hosts/{name}/invite", {"replace": True})
        return str(reply["token"])

    async def start_host(
        self, name: str, *, clock: Clock | None = None, token: str | None = None
    ) -> HostService:
        settings = self.host_settings(name)
        if token is None and not (settings.data / "host.pem").exists():
            token = await self.token(name)
        credentials = await membership(settings, token)

        def build(host: str, link: HostLink) -> Machinery:
            return Machinery(
                machines=self.world.on(host),
                hypervisor=self.world.hypervisor,
                channels=LoopbackChannels,
            )

        service = HostService(settings, credentials, build=build, clock=clock)
        told: asyncio.Future[HostWhere] = asyncio.get_running_loop().create_future()
        stop = asyncio.Event()
        run = asyncio.ensure_future(service.serve(stop, told.set_result))
        self.hosts[name] = service
        self._host_runs[name] = (stop, run)
        await _first([told, run])
        if run.done():
            run.result()
        return service

    async def stop_host(self, name: str) -> None:
        stop, run = self._host_runs.pop(name)
        stop.set()
        await asyncio.wait([run], timeout=WAIT_S)
        run.result()
        del self.hosts[name]

    async def close(self) -> None:
        for name in tuple(self._host_runs):
            await self.stop_host(name)
        await self.stop_control()
        await self.proxy.close()
        await self.client.aclose()

    # The operator.

    async def operator(self, method: str, path: str, body: Any = None) -> Any:
        token = (self.folder / "control" / OPERATOR_TOKEN_FILE).read_text().strip()
        reply = await self.client.request(
            method,
            f"{self.where.operator_url}/v1/{path}",
            json=body,
            headers={"Authorization": f"Bearer {token}"},
        )
        assert reply.status_code < 300, reply.text
        return reply.json()

    async def vm(self, name: str) -> Any:
        """What the operator sees of a VM; None if there is none."""
        found = await self.operator("GET", "vms")
        return next((vm for vm in found["items"] if vm["name"] == name), None)

    async def vms_known(self, *names: str) -> None:
        for name in names:
            await until(partial(self.vm, name), f"VM {name} is in the fleet")
            await until(partial(self.guest, name), f"VM {name} is served")

    # Guests.

    def guest(self, vm: str) -> tuple[str, int] | None:
        """Where a VM asks now: the host that serves it under that name."""
        for service in self.hosts.values():
            channels = service.channels
            assert isinstance(channels, LoopbackChannels)
            where = channels.addresses().get(vm)
            if where is not None and service.identity.by_name(vm) is not None:
                return where
        return None

    async def poll(self, vm: str, **headers: str) -> httpx.Response:
        where = self.guest(vm)
        assert where is not None, f"nobody serves {vm}"
        return await self.client.get(
            f"http://{where[0]}:{where[1]}{DOCUMENT}", headers={"Metadata": "true", **headers}
        )

    async def document(self, vm: str) -> Any:
        reply = await self.poll(vm)
        assert reply.status_code == 200, reply.text
        return reply.json()

    async def events(self, vm: str) -> Any:
        return (await self.document(vm))["Events"]

    async def approve(self, vm: str, event_id: str) -> httpx.Response:
        where = self.guest(vm)
        assert where is not None, f"nobody serves {vm}"
        return await self.client.post(
            f"http://{where[0]}:{where[1]}{DOCUMENT}",
            json={"StartRequests": [{"EventId": event_id}]},
            headers={"Metadata": "true"},
        )


@contextlib.asynccontextmanager
async def cloud(
    folder: Path,
    vms: Mapping[str, Iterable[SeenVm]],
    *,
    clock: Clock | None = None,
) -> AsyncIterator[Cloud]:
    """A control with these hosts and their VMs, all known and served."""
    made = Cloud(folder, clock)
    try:
        await made.open()
        for host, theirs in vms.items():
            made.world.put(host, theirs)
            await made.start_host(host)
        await made.vms_known(*(vm.name for theirs in vms.values() for vm in theirs))
        yield made
    finally:
        await made.close()


async def scheduled(there: Cloud, vm: str, verb: str = "restart") -> str:
    """Order something for a VM that polls; the event's id once the VM can read it."""
    await there.document(vm)
    await there.operator("POST", f"vms/{vm}/{verb}", {})
    events = await until(lambda: there.events(vm), f"{vm} reads its event")
    return str(events[0]["EventId"])
