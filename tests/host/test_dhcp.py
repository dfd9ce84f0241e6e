"""The DHCP settings of docs/host/guide.md, as they stand there: real dnsmasq, real DHCP clients."""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from forewarn_guest import leases
from programs import needs
from support.channels_world import ENDPOINT, GuestNet, HostNet, a_host, needs_namespaces
from support.endpoint_world import PATIENCE_S
from support.waiting import wait_until

PAGE = Path(__file__).parent.parent.parent / "docs" / "host" / "guide.md"
OPTIONS = "{http://libvirt.org/schemas/network/dnsmasq/1.0}option"

pytestmark = [needs_namespaces, needs("dnsmasq", "udhcpc", "dhclient")]


def snippet(name: str) -> str:
    found = re.search(rf"<!-- {name} -->\n```\w*\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


def of_libvirt() -> str:
    """The configuration that libvirt makes of the network on the page, as far as DHCP goes."""
    network = ET.fromstring(snippet("libvirt network"))
    bridge, address = network.find("bridge"), network.find("ip")
    reach = network.find("ip/dhcp/range")
    assert bridge is not None
    assert address is not None
    assert reach is not None
    lines = [
        f"interface={bridge.get('name')}",
        "bind-interfaces",
        f"dhcp-range={reach.get('start')},{reach.get('end')},{address.get('netmask')}",
        *(str(option.get("value")) for option in network.iter(OPTIONS)),
    ]
    return "\n".join(lines) + "\n"


@contextmanager
def dnsmasq(host: HostNet, configuration: str, folder: Path) -> Iterator[None]:
    """A DHCP server on br0, which is the gateway of the page."""
    host.ns.ip("address add 192.0.2.1/24 dev br0")
    file = folder / "dnsmasq.conf"
    file.write_text(configuration, encoding="utf-8")
    log = folder / "dnsmasq.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [
                *("nsenter", "-t", str(host.ns.pid), "-n", "dnsmasq", "--keep-in-foreground"),
                *(f"--conf-file={file}", "--port=0", "--user=root", "--pid-file="),
                *(f"--dhcp-leasefile={folder / 'leases'}", "--log-facility=-", "--no-ping"),
            ],
            stdout=output,
            stderr=output,
        )
        try:
            wait_until(lambda: "DHCP, " in log.read_text("utf-8") or server.poll() is not None)
            assert server.poll() is None, log.read_text("utf-8")
            yield
        finally:
            server.terminate()
            server.wait(PATIENCE_S)


# What a script of a DHCP client does, without touching any file of this machine.
UDHCPC = """#!/bin/sh
[ "$1" = bound ] || exit 0
env | grep -E '^(opt245|staticroutes|msstaticroutes|ip)=' > "{out}"
ip address add "$ip/24" dev "$interface"
ip route add 169.254.169.254/32 dev "$interface"
"""


# What distributions have in theirs, so that it asks for routes.
DHCLIENT = """
option rfc3442-classless-static-routes code 121 = array of unsigned integer 8;
request subnet-mask, routers, rfc3442-classless-static-routes;
"""


def without_address(host: HostNet) -> GuestNet:
    guest = host.guest("alpha", number=1)
    guest.ns.ip("address flush dev eth0 scope global")
    host.arrange()
    return guest


@pytest.mark.parametrize("form", ["dnsmasq", "libvirt network"])
def test_udhcpc_gets_the_address_and_the_routes_and_then_reaches_the_endpoint(
    form: str, tmp_path: Path
) -> None:
    configuration = snippet("dnsmasq") if form == "dnsmasq" else of_libvirt()
    with a_host() as host:
        guest = without_address(host)
        out, script = tmp_path / "told", tmp_path / "script"
        script.write_text(UDHCPC.format(out=out), encoding="utf-8")
        script.chmod(0o755)
        with dnsmasq(host, configuration, tmp_path):
            asked = [f"-O{option}" for option in ("245", "staticroutes", "msstaticroutes")]
            guest.ns.run("udhcpc", "-i", "eth0", "-s", str(script), "-n", "-q", "-f", *asked)
        told = dict(line.split("=", 1) for line in out.read_text("utf-8").splitlines())
        routes = "169.254.169.254/32 0.0.0.0 0.0.0.0/0 192.0.2.1"
        assert told["staticroutes"] == routes
        assert told["msstaticroutes"] == routes
        assert leases.address_in(out.read_text("utf-8")) == ENDPOINT
        assert guest.who() == "alpha"


def test_dhclient_keeps_option_245_where_the_guest_package_finds_it(tmp_path: Path) -> None:
    with a_host() as host:
        guest = without_address(host)
        lease, settings = tmp_path / "dhclient.leases", tmp_path / "dhclient.conf"
        settings.write_text(DHCLIENT, encoding="utf-8")
        with dnsmasq(host, snippet("dnsmasq"), tmp_path):
            client = subprocess.Popen(
                [
                    *("nsenter", "-t", str(guest.ns.pid), "-n", "dhclient", "-d", "-1"),
                    *("-cf", str(settings), "-sf", "/bin/true", "-lf", str(lease)),
                    *("-pf", str(tmp_path / "pid"), "eth0"),
                ],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            try:
                wait_until(lambda: lease.exists() and "unknown-245" in lease.read_text("utf-8"))
            finally:
                client.terminate()
                client.wait(PATIENCE_S)
        text = lease.read_text("utf-8")
        assert leases.address_in(text) == ENDPOINT
        assert re.search(r"classless-static-routes 32,169,254,169,254,0,0,0,0,0,192,0,2,1;", text)


DISCOVER = """
import secrets, sys
from forewarn_guest import dhcp, discovery, http1
with http1.bell_of() as bell:
    for heard in dhcp.ask(dhcp.interfaces(), secrets.token_bytes(4), bell):
        print("dhcp", heard.interface, heard.address or heard.why)
print("url", discovery.discover(environment={}).url)
"""


def test_the_guest_package_finds_the_endpoint_by_asking_dhcp_and_at_its_address(
    tmp_path: Path,
) -> None:
    with a_host() as host:
        guest = host.guest("alpha", number=1)
        host.arrange()
        with dnsmasq(host, snippet("dnsmasq"), tmp_path):
            source = str(PAGE.parent.parent / "guest" / "src")
            said = guest.ns.run(
                "env", f"PYTHONPATH={source}", sys.executable, "-c", DISCOVER, given=""
            )
        assert said.splitlines() == [f"dhcp eth0 {ENDPOINT}", f"url http://{ENDPOINT}"]
