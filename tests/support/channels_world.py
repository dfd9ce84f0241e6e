"""A host with bridges, taps and guests, made of network namespaces that vanish with the test.

A namespace lives as long as a process that reads from a pipe of ours: if the test dies in whatever
way, the pipe closes, the process ends, and the kernel takes the namespace and everything in it.
A veth pair stands in for a tap: its one end is a port of the bridge, the other one the guest's.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from forewarn.adapters.iproute2 import LinkAddresses
from forewarn.adapters.nftables import NftRules
from forewarn.core.errors import UnknownEventIds
from forewarn.core.inventory.host_report import Nic, Power, SeenVm
from forewarn.core.model import Scope, ScopeKind
from forewarn.endpoint.limits import Limits, Timeouts
from forewarn.endpoint.routes import RequestRules
from forewarn.host.channels.channel_setup import Channels
from forewarn.host.channels.plan import ChannelProblem, Mode
from forewarn.ports import Interfaces, PacketRules
from programs import missing
from support import profiles
from support.endpoint_world import PATIENCE_S, EndpointWorld, FakeService, a_vm, an_event
from support.waiting import wait_until

T = TypeVar("T")

ENDPOINT = "169.254.169.254"
ENDPOINT6 = "fe80::a9fe:a9fe"
NOBODY = "nobody"  # refused as a stranger
NOT_YET = "not yet"  # told to ask again
SILENCE = "silence"  # no answer at all
ASK_S = 0.7  # how long a guest waits for one answer
ATTEMPTS = 8  # how often it asks where an answer is expected
_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)
# Duplicate address detection would take a second of every test.
_HOLD = (
    "ip link set lo up && echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad && echo && exec cat"
)


def _why_not() -> str:
    if os.geteuid() != 0:
        return "needs root for network namespaces"
    absent = missing("ip", "nft", "unshare", "nsenter")
    if absent:
        return absent
    tried = subprocess.run(
        ["unshare", "-n", "nft", "add", "table", "bridge", "tried"],
        capture_output=True,
        check=False,
        timeout=PATIENCE_S,
    )
    return "" if tried.returncode == 0 else "needs nft for bridges in network namespaces"


needs_namespaces = pytest.mark.skipif(bool(_why_not()), reason=_why_not() or "has them")


class Namespace:
    """A network namespace of its own, with loopback up."""

    def __init__(self) -> None:
        self._holder = subprocess.Popen(
            ["unshare", "-n", "sh", "-c", _HOLD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._holder.stdout is not None
        self._holder.stdout.readline()
        self.pid = self._holder.pid

    def close(self) -> None:
        self._holder.kill()
        self._holder.communicate()

    def run(self, *words: str, check: bool = True, given: str = "") -> str:
        """What a command in the namespace says."""
        ran = subprocess.run(
            ["nsenter", "-t", str(self.pid), "-n", *words],
            capture_output=True,
            text=True,
            check=False,
            input=given,
            timeout=PATIENCE_S,
        )
        assert not check or ran.returncode == 0, f"{words}: {ran.stderr}"
        return ran.stdout

    def ip(self, command: str, *, check: bool = True) -> str:
        return self.run("ip", *command.split(), check=check)

    def enter(self) -> None:
        """Put the calling thread, and what it starts, into the namespace."""
        with Path(f"/proc/{self.pid}/ns/net").open("rb") as file:
            if _libc.setns(file.fileno(), _CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")

    def within(self, function: Callable[[], T]) -> T:
        """Call it on a thread inside the namespace. Sockets that it makes stay there."""
        came: list[T] = []
        failed: list[BaseException] = []

        def run() -> None:
            try:
                self.enter()
                came.append(function())
            except BaseException as error:  # noqa: BLE001 - raised again where it was called
                failed.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join(PATIENCE_S * 2)
        if failed:
            raise failed[0]
        return came[0]

    def interface(self, name: str) -> dict[str, Any]:
        listed = json.loads(self.ip(f"-j -d address show dev {name}"))
        found: dict[str, Any] = listed[0]
        return found


def connected(ns: Namespace, *, source: str = "", v6: str = "", wait_s: float = ASK_S) -> Any:
    """A connection to the endpoint from inside a namespace; OSError if there is none."""

    def connect() -> socket.socket:
        if v6:
            made = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
        else:
            made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        made.settimeout(wait_s)
        try:
            if v6:
                made.connect((ENDPOINT6, 80, 0, socket.if_nametoindex(v6)))
            else:
                if source:
                    made.bind((source, 0))
                made.connect((ENDPOINT, 80))
        except OSError:
            made.close()
            raise
        return made

    return ns.within(connect)


NAME = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"


def request(url: str = NAME, *headers: str) -> bytes:
    lines = [f"GET {url} HTTP/1.1", f"Host: {ENDPOINT}", "Metadata: true", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def approval(event_id: str, *headers: str) -> bytes:
    body = json.dumps({"StartRequests": [{"EventId": event_id}]}).encode()
    lines = [
        "POST /metadata/scheduledevents?api-version=2020-07-01 HTTP/1.1",
        f"Host: {ENDPOINT}",
        "Metadata: true",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


def answered(made: socket.socket, said: bytes) -> tuple[int, bytes]:
    """Status and body of the answer; (0, b"") if the connection ended or nothing came."""
    try:
        made.sendall(said)
        got = b""
        while b"\r\n\r\n" not in got:
            piece = made.recv(65536)
            if not piece:
                return 0, b""
            got += piece
        head, _, body = got.partition(b"\r\n\r\n")
        length = next(
            (
                int(line.split(b":")[1])
                for line in head.split(b"\r\n")
                if line.lower().startswith(b"content-length:")
            ),
            0,
        )
        while len(body) < length:
            piece = made.recv(65536)
            if not piece:
                break
            body += piece
    except OSError:
        return 0, b""
    return int(head.split()[1]), body


def who(ns: Namespace, *headers: str, source: str = "", v6: str = "") -> str:
    """Whom the endpoint takes the namespace for. Asks again while nothing comes, up to a limit."""
    for _ in range(ATTEMPTS):
        answer = who_at_once(ns, *headers, source=source, v6=v6)
        if answer != SILENCE:
            return answer
    return SILENCE


def who_at_once(ns: Namespace, *headers: str, source: str = "", v6: str = "") -> str:
    """Whom the endpoint takes the namespace for: a VM, NOBODY, NOT_YET or SILENCE."""
    try:
        with connected(ns, source=source, v6=v6) as made:
            status, body = answered(made, request(NAME, *headers))
    except OSError:
        return SILENCE
    if status == 200:
        return body.decode()
    return {403: NOBODY, 503: NOT_YET}.get(status, SILENCE)


@dataclass(frozen=True)
class GuestNet:
    """A guest: its namespace, with eth0 in it, and the tap at the host."""

    ns: Namespace
    vm: SeenVm

    @property
    def tap(self) -> str:
        tap = self.vm.nics[0].tap
        assert tap is not None
        return tap

    @property
    def mac(self) -> str:
        return self.vm.nics[0].mac

    def who(self, *headers: str, source: str = "") -> str:
        return who(self.ns, *headers, source=source)

    def who_at_once(self, *headers: str, source: str = "") -> str:
        return who_at_once(self.ns, *headers, source=source)


def event_of(vm: str) -> str:
    """The EventId in the document of a VM of these tests."""
    return f"0F1E2D3C-4B5A-6978-8796-{int.from_bytes(vm.encode()[:6], 'big'):012X}"


def scope_of(vm: str) -> Scope:
    event = an_event(event_of(vm), scope=vm, resources=(vm,))
    return Scope(
        name=vm,
        kind=ScopeKind.STANDALONE,
        incarnation=2,
        enabled=True,
        vms=(a_vm(vm, None),),
        events=(event,),
    )


class OwnEvents(FakeService):
    """A service in which each VM can approve the event of its own document and no other."""

    async def approve(self, vm: str, event_ids: tuple[str, ...]) -> None:
        if set(event_ids) != {event_of(vm)}:
            raise UnknownEventIds("Unknown EventId.", "Send ids of your own document.")
        self.approved.append((vm, event_ids))


class HostNet(EndpointWorld):
    """An endpoint with channels, inside a namespace that plays the host."""

    def __init__(
        self,
        ns: Namespace,
        mode: Mode = Mode.BRIDGE,
        only: Sequence[str] = (),
        *,
        interfaces: Interfaces | None = None,
        rules: PacketRules | None = None,
    ) -> None:
        super().__init__(
            requests_per_s=0,
            rules=RequestRules(),
            limits=Limits(),
            timeouts=Timeouts(sweep_s=0.01),
        )
        self.ns = ns
        self.spaces = [ns]
        self.guests: dict[str, GuestNet] = {}
        self._thread.daemon = True  # what went wrong is to be told, not waited for
        self._thread.start()
        self.call(ns.enter)
        self.channels = self.call(
            Channels,
            self.endpoint,
            self.identity,
            interfaces=interfaces or LinkAddresses(),
            rules=rules or NftRules(),
            mode=mode,
            only=only,
        )
        self.service = self.endpoint.service = OwnEvents()

    def space(self) -> Namespace:
        """One more namespace, closed with the world."""
        made = Namespace()
        self.spaces.append(made)
        return made

    def bridge(self, name: str = "br0") -> None:
        self.ns.ip(f"link add {name} type bridge")
        self.ns.ip(f"link set {name} up")

    def plug(self, ns: Namespace, tap: str, *, bridge: str | None, mac: str) -> None:
        """A veth pair: `tap` at the host, eth0 in the namespace."""
        self.ns.ip(f"link add {tap} type veth peer name eth0 address {mac} netns {ns.pid}")
        if bridge:
            self.ns.ip(f"link set {tap} master {bridge}")
        self.ns.ip(f"link set {tap} up")
        ns.ip("link set eth0 up")
        # The kernel gives the link-local address when it has noticed the carrier.
        wait_until(lambda: "fe80::" in ns.ip("-6 address show dev eth0 scope link -tentative"))

    def guest(
        self,
        name: str,
        *,
        number: int,
        bridge: str | None = "br0",
        address: str | None = None,
        known: bool = False,
    ) -> GuestNet:
        """A VM with a document of its own, plugged in, with an address and the host route."""
        ns, tap, mac = self.space(), f"tap{number}", f"52:54:00:00:00:{number:02x}"
        self.plug(ns, tap, bridge=bridge, mac=mac)
        address = address or f"192.0.2.{10 + number}"
        ns.ip(f"address add {address}/24 dev eth0")
        ns.ip(f"route add {ENDPOINT}/32 dev eth0")
        vm = SeenVm(
            name=name,
            vm_id=f"id-{name}",
            power=Power.RUNNING,
            traits=profiles.traits(address=address if known else None),
            nics=(Nic(mac=mac, tap=tap, bridge=bridge),),
        )
        made = self.guests[name] = GuestNet(ns, vm)
        self.show(scope_of(name))
        return made

    def arrange(self, seen: Sequence[SeenVm] | None = None) -> Sequence[ChannelProblem]:
        given = [guest.vm for guest in self.guests.values()] if seen is None else seen
        problems: Sequence[ChannelProblem] = self.wait_for(self.channels.arrange(given))
        return problems

    def left_behind(self) -> list[str]:
        """What of ours is in the host's namespace."""
        left = [line for line in self.ns.run("nft", "list", "tables").splitlines() if line]
        for item in json.loads(self.ns.ip("-j address show")):
            left += [
                f"{one['local']} on {item['ifname']}"
                for one in item.get("addr_info", [])
                if one.get("local") in (ENDPOINT, ENDPOINT6)
            ]
        return left

    def stop(self) -> None:
        try:
            self.wait_for(self.channels.close())
            super().stop()
        finally:
            for space in self.spaces:
                space.close()


@contextmanager
def a_host(
    mode: Mode = Mode.BRIDGE,
    *,
    only: Sequence[str] = (),
    interfaces: Interfaces | None = None,
    rules: PacketRules | None = None,
) -> Iterator[HostNet]:
    """A host without anything but a bridge br0 (none in tap mode)."""
    world = HostNet(Namespace(), mode, only, interfaces=interfaces, rules=rules)
    try:
        if mode is Mode.BRIDGE:
            world.bridge()
        yield world
    finally:
        world.stop()


@contextmanager
def on_the_wire(ns: Namespace, interface: str = "eth0") -> Iterator[socket.socket]:
    """A socket that sends and receives whole frames in a namespace."""

    def make() -> socket.socket:
        raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0003))
        raw.bind((interface, 0))
        raw.settimeout(ASK_S)
        return raw

    raw = ns.within(make)
    try:
        yield raw
    finally:
        with suppress(OSError):
            raw.close()
