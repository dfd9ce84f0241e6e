"""Attempts to be taken for another VM, from guests and from outside, on a real kernel.

Mallory and alpha are VMs on one bridge (or two taps). Whatever is tried: nobody but alpha reads
alpha's document, nobody but alpha approves its event, and alpha is served all the while. The table
of attempts and what came of them is printed by

    PYTHONPATH=src:tests .venv/bin/python tests/host/test_spoofing.py
"""

from __future__ import annotations

import socket
import struct
import sys
from contextlib import suppress

import pytest
from msgspec.structs import replace

from forewarn.core.inventory.host_report import Nic
from forewarn.host.channels.plan import Mode
from support import frames
from support.channels_world import (
    ASK_S,
    ENDPOINT,
    ENDPOINT6,
    answered,
    approval,
    connected,
    event_of,
    needs_namespaces,
    on_the_wire,
    request,
)
from support.spoofing_world import (
    CLOSED,
    DOCUMENT,
    LATER,
    NOTHING,
    OWN,
    ROWS,
    TAKEN,
    Field,
    Row,
    address_of,
    changes_while,
    claims,
    next_of_alpha,
    outcome_of,
    outside_of,
    raw_opening,
    tries,
)
from support.waiting import wait_until

pytestmark = needs_namespaces


# What a guest says of itself.


@tries("another's IP", "mallory takes alpha's IP address and asks from it", expected=OWN)
def another_ip(at: Field) -> str:
    at.mallory.ns.ip(f"address add {address_of(at.alpha)}/32 dev eth0")
    return at.asks(at.mallory.ns, source=address_of(at.alpha))


@tries("another's IP, known", "the same, where alpha's address is in its metadata", known=True)
def another_known_ip(at: Field) -> str:
    return another_ip(at)


@tries("another's MAC", "mallory gives its NIC alpha's MAC address")
def another_mac(at: Field) -> str:
    at.mallory.ns.ip(f"link set eth0 address {at.alpha.mac}")
    return at.asks(at.mallory.ns)


@tries("another's MAC and IP", "both at once, over IPv4 and IPv6")
def another_mac_and_ip(at: Field) -> str:
    another_mac(at)
    at.mallory.ns.ip(f"address add {address_of(at.alpha)}/32 dev eth0")
    outcomes = {at.asks(at.mallory.ns, source=address_of(at.alpha))}
    outcomes.add(at.asks(at.mallory.ns, v6="eth0"))
    return ", ".join(sorted(outcomes))


@tries(
    "X-Forwarded-For", "a header that proxies use says alpha's address", expected="refused (400)"
)
def forwarded(at: Field) -> str:
    return at.asks(at.mallory.ns, f"X-Forwarded-For: {address_of(at.alpha)}")


@tries("other proxies", "Forwarded, X-Real-IP and Via say alpha", expected="refused (400)")
def forwarded_otherwise(at: Field) -> str:
    said = address_of(at.alpha)
    headers = (f"Forwarded: for={said};host=alpha", f"X-Real-IP: {said}", "Via: 1.1 alpha")
    return ", ".join({at.asks(at.mallory.ns, header) for header in headers})


@tries("other headers", "X-Client-IP and more say alpha", expected=OWN)
def headers(at: Field) -> str:
    said = address_of(at.alpha)
    return at.asks(
        at.mallory.ns,
        f"X-Client-IP: {said}",
        "X-Forwarded-Host: alpha",
        "X-VM: alpha",
    )


# What a guest says to the wire.


@tries(
    "ARP: another's IP",
    "mallory tells the host that alpha's IP is at mallory's MAC",
    expected=NOTHING,
)
def arp_for_a_vm(at: Field) -> str:
    at.alpha_is_served()
    with at.listening(at.mallory.ns):
        claims(at, (address_of(at.alpha), at.mallory.mac), to=("192.0.2.1", at.bridge_mac))
        at.alpha_is_served()
    return NOTHING


@tries(
    "ARP: another's known IP",
    "the same, where alpha's address is known",
    known=True,
    expected="dropped; the host does not believe it",
)
def arp_for_a_known_vm(at: Field) -> str:
    arp_for_a_vm(at)
    told = at.host.ns.ip(f"neigh show {address_of(at.alpha)} dev br0")
    assert at.mallory.mac not in told
    return "dropped; the host does not believe it"


@tries(
    "ARP: the endpoint",
    "mallory tells alpha, and all, that 169.254.169.254 is at its MAC",
    expected="dropped; alpha does not hear it",
)
def arp_for_the_endpoint(at: Field) -> str:
    at.alpha_is_served()
    with at.listening(at.mallory.ns):
        claims(at, (ENDPOINT, at.mallory.mac), to=(address_of(at.alpha), at.alpha.mac))
        at.alpha_is_served()
    assert at.mallory.mac not in at.alpha.ns.ip(f"neigh show {ENDPOINT}")
    return "dropped; alpha does not hear it"


@tries(
    "IPv6 neighbors",
    "mallory advertises alpha's link-local address and fe80::a9fe:a9fe",
    expected=NOTHING,
)
def neighbours(at: Field) -> str:
    at.alpha_is_served(v6=True)
    alphas = "fe80::5054:ff:fe00:1"
    with at.listening(at.mallory.ns):
        with on_the_wire(at.mallory.ns) as raw:
            for claimed in (alphas, ENDPOINT6):
                for tags in (0, 1, 2):
                    for to, mac in (("ff02::1", "33:33:00:00:00:01"), (ENDPOINT6, at.bridge_mac)):
                        said = frames.advert(claimed, at.mallory.mac, to)
                        frame = frames.ethernet(at.mallory.mac, mac, frames.IPV6, said, tags=tags)
                        raw.send(frame)
        at.alpha_is_served(v6=True)
    assert at.mallory.mac not in at.alpha.ns.ip(f"-6 neigh show {ENDPOINT6}")
    return NOTHING


@tries(
    "being the endpoint",
    "mallory has 169.254.169.254 itself and serves a document there",
    expected="alpha's requests go to the host",
)
def being_the_endpoint(at: Field) -> str:
    at.mallory.ns.ip(f"route del {ENDPOINT}/32")
    at.mallory.ns.ip(f"address add {ENDPOINT}/32 dev eth0")
    with at.mallory.ns.within(lambda: socket.create_server((ENDPOINT, 80))) as server:
        claims(at, (ENDPOINT, at.mallory.mac), to=(address_of(at.alpha), at.alpha.mac))
        at.alpha.ns.ip(
            f"neigh replace {ENDPOINT} lladdr {at.mallory.mac} dev eth0 nud permanent"
        )  # even if alpha believed it
        at.alpha_is_served()
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()
    return "alpha's requests go to the host"


@tries(
    "the bridge's memory",
    "while alpha waits for a change, mallory sends LLDP frames from alpha's MAC",
    expected=NOTHING,
)
def taught_by_lldp(at: Field) -> str:
    def forge(raw: socket.socket) -> None:
        for _ in range(20):
            raw.send(frames.ethernet(at.alpha.mac, "01:80:c2:00:00:0e", 0x88CC, b"\0" * 46))
            raw.send(frames.ethernet(at.alpha.mac, frames.BROADCAST, 0x88B5, b"\0" * 46))

    changes_while(at, at.mallory.ns, forge)
    return NOTHING


@tries(
    "the bridge's memory, outside",
    "the same from a physical port of the bridge, with frames of any kind",
    expected=NOTHING,
)
def taught_from_outside(at: Field) -> str:
    port = at.host.space()
    at.host.plug(port, "port", bridge="br0", mac="52:54:00:00:01:02")

    def forge(raw: socket.socket) -> None:
        def believed() -> bool:
            for _ in range(20):
                raw.send(frames.ethernet(at.alpha.mac, frames.BROADCAST, 0x88B5, b"\0" * 46))
            return at.alpha.mac in at.host.ns.run("bridge", "fdb", "show", "dev", "port")

        wait_until(
            believed
        )  # the bridge itself; a frame of alpha's own meanwhile teaches it better

    changes_while(at, port, forge)
    return NOTHING


@tries(
    "into an open connection",
    "mallory writes an approval with alpha's IP, ports, numbers",
    expected=TAKEN,
)
def injection(at: Field) -> str:
    with connected(at.alpha.ns, wait_s=5) as made:
        segment = next_of_alpha(at, made)
        target = at.host.ns.interface(at.alpha.tap if at.alpha.vm.nics[0].bridge is None else "br0")
        with on_the_wire(at.mallory.ns) as raw:
            for source, tags in ((at.mallory.mac, 0), (at.alpha.mac, 0), (at.mallory.mac, 1)):
                said = segment.packet()
                raw.send(frames.ethernet(source, target["address"], frames.IPV4, said, tags=tags))
        at.alpha_is_served()
        assert at.host.service.approved == []
        # The segment is right: from alpha's own wire it is an approval.
        with on_the_wire(at.alpha.ns) as raw:
            said = segment.packet()
            raw.send(frames.ethernet(at.alpha.mac, target["address"], frames.IPV4, said))
        wait_until(lambda: len(at.host.service.approved) == 1)
        at.host.service.approved.clear()
    return TAKEN


@tries(
    "into another tap's connection",
    "the same between taps without a bridge",
    mode=Mode.TAP,
    expected=TAKEN,
)
def injection_between_taps(at: Field) -> str:
    return injection(at)


@tries("impossible sources", "openings from 127.0.0.1, 0.0.0.0 and 169.254.169.254 itself")
def martians(at: Field) -> str:
    sources = ("127.0.0.1", "0.0.0.0", ENDPOINT)
    made = [frames.Segment((source, 4000), (ENDPOINT, 80)) for source in sources]
    own = frames.Segment((address_of(at.mallory), 4000), (ENDPOINT, 80))
    assert raw_opening(at, at.mallory.ns, at.mallory.mac, at.bridge_mac, own) == "answered"
    return raw_opening(at, at.mallory.ns, at.mallory.mac, at.bridge_mac, *made)


def source_routed(source: str, by: str) -> frames.Segment:
    route = struct.pack("!BBB", frames.LOOSE_ROUTE, 7, 4) + socket.inet_aton(ENDPOINT) + b"\0"
    return frames.Segment((source, 4001), (by, 80), options=route)


@tries("source routes", "openings by way of the host's addresses, where it takes such routes")
def source_routes(at: Field) -> str:
    outside = outside_of(at)
    for which in ("all", "br0", "uplink"):
        at.host.ns.run("sysctl", "-w", f"net.ipv4.conf.{which}.accept_source_route=1")
    at.host.ns.ip("address add 192.0.2.1/24 dev br0")
    inside = raw_opening(
        at,
        at.mallory.ns,
        at.mallory.mac,
        at.bridge_mac,
        source_routed(address_of(at.mallory), "192.0.2.1"),
    )
    uplink = at.host.ns.interface("uplink")["address"]
    routed = source_routed("198.51.100.9", "198.51.100.1")
    outer = raw_opening(at, outside, "52:54:00:00:01:01", uplink, routed)
    return ", ".join(sorted({inside, outer}))


# Where it comes from.


@tries("outside", "a machine outside with a route by the host's outside address, and by ARP")
def from_outside(at: Field) -> str:
    outside = outside_of(at)
    outside.ip(f"route add {ENDPOINT}/32 via 198.51.100.1")
    outcomes = {at.asks(outside)}
    outside.ip(f"address add {address_of(at.alpha)}/32 dev eth0")
    outcomes.add(at.asks(outside, source=address_of(at.alpha)))
    outside.ip(f"route replace {ENDPOINT}/32 dev eth0")
    outcomes.add(at.asks(outside))
    outcomes.add(at.asks(outside, v6="eth0"))
    return ", ".join(sorted(outcomes))


@tries("the physical port", "a machine behind a port of the bridge, with alpha's IP and MAC")
def from_a_port(at: Field) -> str:
    port = at.host.space()
    at.host.plug(port, "port", bridge="br0", mac="52:54:00:00:01:02")
    port.ip(f"address add {address_of(at.alpha)}/24 dev eth0")
    port.ip(f"route add {ENDPOINT}/32 dev eth0")
    outcomes = {at.asks(port), at.asks(port, v6="eth0")}
    port.ip(f"link set eth0 address {at.alpha.mac}")
    outcomes.add(at.asks(port))
    at.host.ns.ip("link del port")  # the bridge has learnt alpha's MAC there; alpha takes it back
    return ", ".join(sorted(outcomes))


@tries(
    "same IP on another tap",
    "two taps without a bridge have one IP address",
    mode=Mode.TAP,
    expected=OWN,
)
def same_ip(at: Field) -> str:
    at.mallory.ns.ip(f"address add {address_of(at.alpha)}/32 dev eth0")
    return at.asks(at.mallory.ns, source=address_of(at.alpha))


@tries("another's MAC on a tap", "mallory gives its NIC alpha's MAC address", mode=Mode.TAP)
def mac_on_a_tap(at: Field) -> str:
    return another_mac(at)


# What was somebody's before.


def recycled(at: Field, mac: str) -> str:
    """Alpha's tap goes; mallory's next one gets its name, before and after anybody has looked."""
    bridge = at.alpha.vm.nics[0].bridge
    with connected(at.alpha.ns, wait_s=5) as kept:
        assert answered(kept, request())[1] == b"alpha"
        at.host.ns.ip(f"link del {at.alpha.tap}")
        late = at.host.space()
        at.host.plug(late, at.alpha.tap, bridge=bridge, mac=mac)
        late.ip(f"address add {address_of(at.alpha)}/24 dev eth0")
        late.ip(f"route add {ENDPOINT}/32 dev eth0")
        before = at.asks(late)
        moved = replace(at.mallory.vm, nics=(Nic(mac=mac, tap=at.alpha.tap, bridge=bridge),))
        at.host.arrange([moved])
        after = at.asks(late)
        kept.settimeout(ASK_S)
        assert answered(kept, request()) == (0, b"")
    # Alpha comes back by a tap of another name.
    at.host.plug(at.alpha.ns, "tap9", bridge=bridge, mac=at.alpha.mac)
    at.alpha.ns.ip(f"address add {address_of(at.alpha)}/24 dev eth0")
    at.alpha.ns.ip(f"route add {ENDPOINT}/32 dev eth0")
    nics = (Nic(mac=at.alpha.mac, tap="tap9", bridge=bridge),)
    at.host.arrange([moved, replace(at.alpha.vm, nics=nics)])
    return f"{before}; once it is known: {after}"


@tries("recycled tap", "a new tap of mallory has the name that alpha's had", expected=LATER)
def recycled_tap(at: Field) -> str:
    return recycled(at, at.mallory.mac)


@tries("recycled tap and MAC", "the same, with alpha's MAC and IP", expected=LATER)
def recycled_tap_and_mac(at: Field) -> str:
    return recycled(at, at.alpha.mac)


@tries(
    "recycled tap, no bridge", "the same for a tap without a bridge", mode=Mode.TAP, expected=LATER
)
def recycled_lone_tap(at: Field) -> str:
    return recycled(at, at.alpha.mac)


@tries(
    "moved to another bridge",
    "mallory's tap is plugged into a bridge nobody knows it on",
    expected=LATER,
)
def moved(at: Field) -> str:
    at.host.bridge("br1")
    at.host.ns.ip(f"link set {at.mallory.tap} master br1")
    before = at.asks(at.mallory.ns)
    at.host.arrange()
    return f"{before}; once it is known: {at.asks(at.mallory.ns)}"


def becomes_mallory(at: Field) -> None:
    """From now on alpha's interface is mallory's; alpha has none."""
    at.host.arrange([replace(at.mallory.vm, nics=at.alpha.vm.nics)])


@tries(
    "connection kept open",
    "alpha's interface becomes mallory's while a connection is open",
    expected=CLOSED,
)
def kept_open(at: Field) -> str:
    with connected(at.alpha.ns, wait_s=5) as kept:
        assert answered(kept, request())[1] == b"alpha"
        becomes_mallory(at)
        outcome = at.asks_by(kept)
    at.host.arrange()
    return f"{outcome} (the connection is closed)"


@tries(
    "connection kept open, no bridge",
    "the same for a tap without a bridge",
    mode=Mode.TAP,
    expected=CLOSED,
)
def kept_open_at_a_tap(at: Field) -> str:
    return kept_open(at)


@tries(
    "pipelining",
    "requests and half a request wait in the connection when that happens",
    expected=CLOSED,
)
def pipelined(at: Field) -> str:
    with connected(at.alpha.ns, wait_s=5) as kept:
        assert answered(kept, request())[1] == b"alpha"
        rest = approval(event_of("alpha"))
        kept.sendall(rest[:40])
        becomes_mallory(at)
        with suppress(OSError):
            kept.sendall(rest[40:] + request(DOCUMENT) * 3)
            while piece := kept.recv(65536):
                at.loot += piece
    at.host.arrange()
    return CLOSED


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_nobody_is_served_or_approves_as_another(row: Row) -> None:
    outcome = outcome_of(row)
    print(f"{row.name} | {row.attempt} | {outcome}")  # noqa: T201 - the row of the table
    assert outcome == row.expected


if __name__ == "__main__":
    print("| name | attempt | outcome |\n|---|---|---|")  # noqa: T201
    for one in ROWS:
        print(f"| {one.name} | {one.attempt} | {outcome_of(one)} |")  # noqa: T201
    sys.exit(0)
