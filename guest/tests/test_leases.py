"""Option 245 in what DHCP clients leave behind. The files look as those clients write them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from forewarn_guest.leases import FILES_MAX, LEASE_BYTES_MAX, address_in, leases, read_address

DHCLIENT = """\
default-duid "\\000\\001\\000\\001!\\302\\013\\344\\000\\015:\\022\\064V";
lease {
  interface "eth0";
  fixed-address 10.0.0.4;
  server-name "RD000D3A123456";
  option subnet-mask 255.255.255.0;
  option dhcp-lease-time 4294967295;
  option routers 10.0.0.1;
  option dhcp-message-type 5;
  option dhcp-server-identifier 168.63.129.16;
  option domain-name-servers 168.63.129.16;
  option rfc3442-classless-static-routes 0,10,0,0,1,32,168,63,129,16,10,0,0,1;
  option unknown-245 OLD;
  option domain-name "internal.example";
  renew 6 2026/11/25 01:48:29;
  expire 6 2026/11/25 01:48:29;
}
lease {
  interface "eth0";
  fixed-address 10.0.0.4;
  option unknown-245 NEW;
  renew 2 2154/01/01 08:18:55;
  rebind 2 2154/01/01 08:18:55;
  expire 2 2154/01/01 08:18:55;
}
"""
NETWORKD = """\
# This is private data. Do not parse.
ADDRESS=10.0.0.4
NETMASK=255.255.255.0
ROUTER=10.0.0.1
SERVER_ADDRESS=168.63.129.16
NEXT_SERVER=168.63.129.16
LIFETIME=4294967295
DNS=168.63.129.16
DOMAINNAME=internal.example
CLIENTID=ff0a1b2c3d
OPTION_245=a83f8110
"""
UDHCPC = """\
interface='eth0'
ip='10.0.0.4'
subnet='255.255.255.0'
opt245='a83f8110'
lease='86400'
"""
HOOKS = '{"ip_address": "10.0.0.4", "unknown_245": "a8:3f:81:10", "interface": "eth0"}'
HOST = "168.63.129.16"


def test_dhclient_the_newest_lease_counts() -> None:
    text = DHCLIENT.replace("OLD", "a:b:c:d").replace("NEW", "a8:3f:81:10")
    assert address_in(text) == HOST
    assert (
        address_in(
            DHCLIENT.replace("OLD", "a8:3f:81:10").replace("  option unknown-245 NEW;\n", "")
        )
        == HOST
    )


@pytest.mark.parametrize(
    ("written", "address"),
    [
        ("a8:3f:81:10", HOST),
        ("A8:3F:81:10", HOST),
        ("4:3:2:1", "4.3.2.1"),
        ('"bL6 "', "98.76.54.32"),  # all four can be printed, so dhclient writes them as a string
        ('"dH\\"l"', "100.72.34.108"),
        ('"dH:l"', "100.72.58.108"),
        ('"d;;l"', "100.59.59.108"),
        ('"\\250?\\201\\020"', HOST),
        ("168.63.129.16", HOST),
    ],
)
def test_dhclient_writes_four_bytes_in_more_than_one_way(written: str, address: str) -> None:
    assert address_in(f"lease {{\n  option unknown-245 {written};\n}}\n") == address
    assert address_in(f"lease {{\n  option option-245 {written};\n}}\n") == address


def test_networkd_networkmanager_udhcpc_and_hooks_are_understood() -> None:
    assert address_in(NETWORKD) == HOST
    assert address_in(UDHCPC) == HOST
    assert address_in("export opt245=a83f8110\n") == HOST
    assert address_in(HOOKS) == HOST
    assert address_in('{"DHCP4_PRIVATE_245": "a8:3f:81:10"}') == HOST


@pytest.mark.parametrize(
    "text",
    ["", "ADDRESS=10.0.0.4\n", "OPTION_245=\n", "OPTION_245=zz\n", "OPTION_245=a83f81\n", "{broken",
     "option unknown-245 a8:3f;", "OPTION_2450=a83f8110\n", '{"unknown_245": 7}', "[1]",
     "lease { option unknown-245 ; }", "\0\1\2"],
)  # fmt: skip
def test_a_file_without_such_an_option_has_no_address(text: str) -> None:
    assert address_in(text) == ""


@pytest.mark.parametrize("value", ["00000000", "ffffffff", "e0:0:0:1", "0.0.0.0", "f0000001"])
def test_an_address_that_nobody_can_have_is_none(value: str) -> None:
    assert read_address(value) == ""


def test_every_place_of_a_client_is_looked_at_the_last_written_first(tmp_path: Path) -> None:
    places = {
        "run/systemd/netif/leases/2": "OPTION_245=0a000001\n",
        "var/lib/NetworkManager/internal-9ca56c00-391a-4117-eth0.lease": "OPTION_245=0a000002\n",
        "var/lib/NetworkManager/dhclient-9ca56c00-eth0.lease": "  option unknown-245 a:0:0:3;\n",
        "var/lib/dhcp/dhclient.eth0.leases": "  option unknown-245 a:0:0:4;\n",
        "var/lib/dhclient/dhclient-eth0.leases": "  option unknown-245 a:0:0:5;\n",
        "run/udhcpc.eth0.lease": "opt245=0a000006\n",
        "run/cloud-init/dhclient.hooks/eth0.json": '{"unknown_245": "a:0:0:7"}',
        "var/lib/dhcp/dhcpd.leases": "  option unknown-245 9:9:9:9;\n",  # a server's
    }
    for age, (name, text) in enumerate(places.items()):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (1_000_000 - age, 1_000_000 - age))
    assert [lease.address for lease in leases(tmp_path)] == [f"10.0.0.{n}" for n in range(1, 8)]


def test_a_file_is_read_from_its_end_within_a_limit_and_so_are_files(tmp_path: Path) -> None:
    folder = tmp_path / "run/systemd/netif/leases"
    folder.mkdir(parents=True)
    (folder / "1").write_text(
        "OPTION_245=0a000001\n" + "#" * LEASE_BYTES_MAX + "\nOPTION_245=0a000002\n"
    )
    assert [lease.address for lease in leases(tmp_path)] == ["10.0.0.2"]
    for number in range(FILES_MAX + 5):
        (folder / f"more{number}").write_text("")
    assert len(list(leases(tmp_path))) == FILES_MAX


def test_what_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    folder = tmp_path / "run/systemd/netif/leases"
    folder.mkdir(parents=True)
    (folder / "dangling").symlink_to("nowhere")
    (folder / "folder").mkdir()
    (folder / "2").write_bytes(b"\xff\xfe\0OPTION_245=0a000001\n\nOPTION_245=0a000001\n")
    assert [lease.address for lease in leases(tmp_path)] == ["10.0.0.1"]
