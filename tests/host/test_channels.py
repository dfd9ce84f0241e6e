"""Guests reach the endpoint by their own way, on bridges and taps of a real kernel."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from forewarn.adapters.iproute2 import LinkAddresses
from forewarn.adapters.nftables import NftRules
from forewarn.core.inventory.host_report import Nic, Power, SeenVm
from forewarn.endpoint.registry import NotYet
from forewarn.host.channels.channel_setup import take_down
from forewarn.host.channels.plan import Mode
from support.channels_world import (
    ENDPOINT,
    ENDPOINT6,
    NOBODY,
    NOT_YET,
    SILENCE,
    HostNet,
    a_host,
    answered,
    connected,
    needs_namespaces,
    request,
    who,
    who_at_once,
)
from support.endpoint_world import PATIENCE_S

pytestmark = needs_namespaces

STEPS_MAX = 40


def words(problems: object) -> str:
    return " | ".join(str(problem) for problem in problems)  # type: ignore[attr-defined]


def test_each_vm_of_a_bridge_is_known_by_its_tap() -> None:
    with a_host() as host:
        alpha = host.guest("alpha", number=1)
        beta = host.guest("beta", number=2)
        assert host.arrange() == ()
        assert (alpha.who(), beta.who()) == ("alpha", "beta")
        assert who(alpha.ns, v6="eth0") == "alpha"
        assert who(beta.ns, v6="eth0") == "beta"


def test_vms_with_one_address_are_told_apart_on_one_bridge() -> None:
    with a_host() as host:
        alpha = host.guest("alpha", number=1, address="192.0.2.9")
        beta = host.guest("beta", number=2, address="192.0.2.9")
        host.arrange()
        assert [guest.who() for guest in (alpha, beta, alpha, beta)] == ["alpha", "beta"] * 2


def test_two_bridges_are_served_each_with_the_same_address() -> None:
    with a_host() as host:
        host.bridge("br1")
        alpha = host.guest("alpha", number=1)
        beta = host.guest("beta", number=2, bridge="br1", address="192.0.2.11")
        assert host.arrange() == ()
        assert (alpha.who(), beta.who()) == ("alpha", "beta")
        host.guests.pop("alpha")
        assert host.arrange() == ()
        assert beta.who() == "beta"
        assert host.left_behind()[-2:] == [f"{ENDPOINT} on br1", f"{ENDPOINT6} on br1"]


def test_close_leaves_nothing_and_arranging_twice_changes_nothing() -> None:
    with a_host() as host:
        before = host.ns.run("sysctl", "net.ipv4.tcp_fwmark_accept")
        alpha = host.guest("alpha", number=1)
        host.arrange()
        once = host.ns.run("nft", "list", "ruleset")
        with connected(alpha.ns) as kept:
            assert answered(kept, request())[1] == b"alpha"
            host.arrange()
            assert answered(kept, request())[1] == b"alpha"
        rules = [line for line in once.splitlines() if "counter" not in line]
        again = host.ns.run("nft", "list", "ruleset").splitlines()
        assert [line for line in again if "counter" not in line] == rules
        host.wait_for(host.channels.close())
        assert host.left_behind() == []
        assert host.ns.run("sysctl", "net.ipv4.tcp_fwmark_accept") == before


def test_a_guest_may_send_to_whatever_mac_it_remembers() -> None:
    """After a live migration the guest still knows the bridge of the host that it left."""
    with a_host() as host:
        alpha = host.guest("alpha", number=1)
        host.arrange()
        alpha.ns.ip(f"neigh replace {ENDPOINT} lladdr 52:54:00:aa:bb:cc dev eth0 nud permanent")
        assert alpha.who() == "alpha"


def test_a_bridge_that_changes_its_mac_loses_no_guest() -> None:
    """A bridge has the lowest MAC of its ports unless it was given one: every VM may change it."""
    with a_host() as host:
        alpha = host.guest("alpha", number=1)
        host.arrange()
        assert alpha.who() == "alpha"
        host.ns.ip("link set br0 address 02:00:00:00:00:77")
        assert alpha.who() == "alpha"


def test_a_guest_may_ask_by_way_of_its_gateway() -> None:
    with a_host() as host:
        alpha = host.guest("alpha", number=1)
        gateway = host.space()
        host.plug(gateway, "gw", bridge="br0", mac="52:54:00:00:00:fe")
        gateway.ip("address add 192.0.2.1/24 dev eth0")
        alpha.ns.ip(f"route del {ENDPOINT}/32")
        alpha.ns.ip("route add default via 192.0.2.1")
        host.arrange()
        assert alpha.who() == "alpha"


def test_a_vm_that_control_has_not_told_of_is_nobody() -> None:
    with a_host() as host:
        alpha = host.guest("alpha", number=1)
        host.call(host.documents.drop, "alpha")
        host.arrange()
        assert alpha.who() == NOBODY


@pytest.mark.parametrize(("mode", "bridge"), [(Mode.BRIDGE, "br0"), (Mode.TAP, None)])
def test_a_vm_that_has_just_come_is_told_to_ask_again(
    mode: Mode, bridge: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_host(mode) as host:
        alpha = host.guest("alpha", number=1, bridge=bridge)
        host.arrange()
        guest = host.identity.by_name("alpha")
        assert guest is not None

        def early(_vm: str) -> None:
            raise NotYet(guest)

        monkeypatch.setattr(host.identity, "by_channel", early)
        assert alpha.who() == NOT_YET
        monkeypatch.undo()
        assert alpha.who() == "alpha"


def test_taps_without_a_bridge_are_served_also_with_one_address() -> None:
    with a_host(Mode.TAP) as host:
        alpha = host.guest("alpha", number=1, bridge=None, address="192.0.2.9")
        beta = host.guest("beta", number=2, bridge=None, address="192.0.2.9")
        host.ns.ip("route add 192.0.2.9/32 dev tap1")  # of two it can only be one
        assert host.arrange() == ()
        assert [guest.who() for guest in (alpha, beta, alpha, beta)] == ["alpha", "beta"] * 2
        assert (who(alpha.ns, v6="eth0"), who(beta.ns, v6="eth0")) == ("alpha", "beta")
        host.guests.pop("alpha")
        host.arrange()
        assert (alpha.who_at_once(), beta.who()) == (SILENCE, "beta")
        host.wait_for(host.channels.close())
        assert host.left_behind() == []


TESTS = Path(__file__).parent.parent


def daemon(host: HostNet, *arguments: str) -> subprocess.Popen[str]:
    """See dying_channels.py."""
    script = str(TESTS / "dying_channels.py")
    return subprocess.Popen(
        ["nsenter", "-t", str(host.ns.pid), "-n", sys.executable, script, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{TESTS.parent / 'src'}:{TESTS}"},
    )


def killed_daemon(host: HostNet, *named: str) -> str:
    """What a daemon said before it served; it is killed then."""
    process = daemon(host, "0", "never", *named)
    assert process.stdout is not None
    said = ""
    try:
        for line in process.stdout:
            if line.strip() == "serving":
                break
            said += line
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE_S)
    return said


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_daemon_killed_at_any_change_leaves_nothing_that_the_next_does_not_mend(
    when: str,
) -> None:
    with a_host() as host:
        host.bridge("br1")
        alpha = host.guest("alpha", number=1)
        beta = host.guest("beta", number=2, bridge="br1")
        for step in range(1, STEPS_MAX):
            process = daemon(host, str(step), when, alpha.mac, alpha.tap, beta.mac, beta.tap)
            process.communicate(timeout=PATIENCE_S)
            assert host.arrange() == ()
            assert (alpha.who(), beta.who()) == ("alpha", "beta")
            host.wait_for(host.channels.close())
            assert host.left_behind() == []
            assert host.ns.run("sysctl", "-n", "net.ipv4.tcp_fwmark_accept").strip() == "0"
            if process.returncode == 0:
                break  # it lived through all of its changes
        assert step > 12
        assert process.returncode == 0


def test_a_daemon_after_kill_9_finds_and_replaces_what_was_left() -> None:
    with a_host() as host:
        host.bridge("br1")
        alpha = host.guest("alpha", number=1)
        beta = host.guest("beta", number=2, bridge="br1")
        assert killed_daemon(host, alpha.mac, alpha.tap, beta.mac, beta.tap) == ""
        assert f"{ENDPOINT} on br1" in host.left_behind()
        host.guests.pop("beta")
        assert host.arrange() == ()
        assert alpha.who() == "alpha"
        assert f"{ENDPOINT} on br1" not in host.left_behind()
        host.wait_for(host.channels.close())
        assert host.left_behind() == []
        assert host.ns.run("sysctl", "-n", "net.ipv4.tcp_fwmark_accept").strip() == "0"


def test_what_a_killed_daemon_left_can_be_taken_down_without_one() -> None:
    with a_host() as host:
        alpha = host.guest("alpha", number=1)
        killed_daemon(host, alpha.mac, alpha.tap)
        host.wait_for(take_down(LinkAddresses(), NftRules()))
        assert host.left_behind() == []
        host.wait_for(take_down(LinkAddresses(), NftRules()))  # without effect


def test_the_command_clears_the_network_but_not_under_a_daemon_that_serves() -> None:
    command = str(Path(sys.executable).with_name("forewarn"))
    with a_host() as host:
        alpha = host.guest("alpha", number=1)
        host.arrange()
        refused = subprocess.run(
            ["nsenter", "-t", str(host.ns.pid), "-n", command, "host", "clear-network"],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        assert refused.returncode == 1
        assert "Another host daemon serves guests on this machine already." in refused.stderr
        assert alpha.who() == "alpha"
        host.wait_for(host.channels.close())
        killed_daemon(host, alpha.mac, alpha.tap)
        assert host.left_behind() != []
        assert "Nothing of Forewarn is left" in host.ns.run(command, "host", "clear-network")
        assert host.left_behind() == []


def test_rules_that_somebody_flushed_come_back_and_nobody_is_served_without_them() -> None:
    with a_host() as host:
        alpha = host.guest("alpha", number=1)
        host.arrange()
        assert alpha.who() == "alpha"
        host.ns.run("nft", "flush", "ruleset")
        assert alpha.who_at_once() in (NOBODY, SILENCE)
        assert host.arrange() == ()
        assert alpha.who() == "alpha"


def test_a_second_daemon_is_refused_while_one_serves() -> None:
    with a_host() as host:
        alpha = host.guest("alpha", number=1)
        host.arrange()
        assert "Another host daemon serves guests" in killed_daemon(host, alpha.mac, alpha.tap)
        assert alpha.who() == "alpha"


def test_an_address_of_somebody_else_is_left_alone_and_the_other_bridges_go_on() -> None:
    with a_host() as host:
        host.bridge("br1")
        host.ns.ip(f"address add {ENDPOINT}/16 dev br1")
        host.ns.ip("route add 192.0.2.0/24 dev br1")
        alpha = host.guest("alpha", number=1)
        beta = host.guest("beta", number=2, bridge="br1")
        problems = host.arrange()
        assert "br1 has the address 169.254.169.254 already" in words(problems)
        assert alpha.who() == "alpha"
        with host.ns.within(lambda: socket.create_server((ENDPOINT, 8080))) as other:
            other.settimeout(PATIENCE_S)
            with beta.ns.within(lambda: socket.create_connection((ENDPOINT, 8080), PATIENCE_S)):
                other.accept()[0].close()
        host.wait_for(host.channels.close())
        assert host.left_behind() == [f"{ENDPOINT} on br1"]


def test_port_80_in_use_is_named_and_taken_when_it_is_free() -> None:
    with a_host() as host:
        alpha = host.guest("alpha", number=1)
        with host.ns.within(lambda: socket.create_server(("0.0.0.0", 80))):
            problems = words(host.arrange())
            assert "Cannot listen on 169.254.169.254:80 of br0" in problems
            assert "have it listen on addresses of its own" in problems
            assert who(alpha.ns, v6="eth0") == "alpha"
        assert host.arrange() == ()
        assert alpha.who() == "alpha"


def test_a_bridge_that_is_not_there_is_named_and_served_when_it_is() -> None:
    with a_host(only=("br0", "br7")) as host:
        alpha = host.guest("alpha", number=1)
        assert "br7: There is no interface br7." in words(host.arrange())
        assert alpha.who() == "alpha"
        host.bridge("br7")
        beta = host.guest("beta", number=2, bridge="br7")
        assert host.arrange() == ()
        assert beta.who() == "beta"


def test_a_bridge_made_anew_under_its_name_is_served_again() -> None:
    with a_host() as host:
        alpha = host.guest("alpha", number=1)
        host.arrange()
        host.ns.ip("link del br0")
        host.arrange()
        assert alpha.who_at_once() == SILENCE
        host.bridge()
        host.ns.ip("link set tap1 master br0")
        assert host.arrange() == ()
        assert alpha.who() == "alpha"


def test_a_bridge_without_ipv6_serves_ipv4_and_is_no_problem() -> None:
    with a_host() as host:
        host.ns.run("sysctl", "-w", "net.ipv6.conf.br0.disable_ipv6=1")
        alpha = host.guest("alpha", number=1)
        assert host.arrange() == ()
        assert alpha.who() == "alpha"


def test_an_rp_filter_without_a_way_back_is_named_with_its_remedy() -> None:
    with a_host() as host:
        alpha = host.guest("alpha", number=1)
        host.plug(host.space(), "uplink", bridge=None, mac="52:54:00:00:01:01")
        for way, filtered in (("default", 1), ("default", 2), ("192.0.2.0/24", 1), ("", 2)):
            host.ns.run("sysctl", "-w", f"net.ipv4.conf.all.rp_filter={filtered}")
            device = "br0" if way.startswith("192") else "uplink"
            host.ns.ip("route flush table main")
            if way:
                host.ns.ip(f"route add {way} dev {device}")
            problems = host.arrange()
            answer = alpha.who_at_once()
            assert (problems == ()) == (answer == "alpha"), (way, filtered)
            if problems:
                assert "sysctl -w net.ipv4.conf.br0.rp_filter=2" in words(problems)


def test_a_vm_without_a_nic_or_tap_is_named_and_the_others_are_served() -> None:
    with a_host() as host:
        alpha = host.guest("alpha", number=1)
        bare = SeenVm(name="bare", vm_id="1", power=Power.RUNNING)
        off = replace(bare, name="off", power=Power.OFF)
        ghost = replace(bare, name="ghost", nics=(Nic(mac="52:54:00:00:00:77", tap="vnet77"),))
        said = words(host.arrange([alpha.vm, bare, off, ghost]))
        assert "bare: It has no network interface" in said
        assert "ghost: Its interface vnet77 is not there." in said
        assert "off" not in said
        assert alpha.who() == "alpha"


def test_other_ports_of_the_address_are_closed_to_guests() -> None:
    """The host's own services must not become reachable by an address that we add."""
    with a_host() as host:
        alpha = host.guest("alpha", number=1)
        host.arrange()
        with host.ns.within(lambda: socket.create_server(("0.0.0.0", 22))):

            def knock() -> str:
                with socket.socket() as made:
                    made.settimeout(0.5)
                    try:
                        made.connect((ENDPOINT, 22))
                    except OSError as error:
                        return type(error).__name__
                return "open"

            assert alpha.ns.within(knock) == "TimeoutError"
        assert alpha.who() == "alpha"


def test_nobody_outside_the_host_reaches_the_endpoint() -> None:
    with a_host() as host:
        alpha = host.guest("alpha", number=1)
        outside = host.space()
        host.plug(outside, "uplink", bridge=None, mac="52:54:00:00:01:01")
        host.ns.ip("address add 198.51.100.1/24 dev uplink")
        host.ns.run("sysctl", "-w", "net.ipv4.ip_forward=1")
        outside.ip("address add 198.51.100.9/24 dev eth0")
        outside.ip(f"route add {ENDPOINT}/32 via 198.51.100.1")
        port = host.space()
        host.plug(port, "port", bridge="br0", mac="52:54:00:00:01:02")
        port.ip("address add 192.0.2.200/24 dev eth0")
        port.ip(f"route add {ENDPOINT}/32 dev eth0")
        host.arrange()
        assert alpha.who() == "alpha"
        assert [who_at_once(ns) for ns in (outside, port)] == [SILENCE, SILENCE]
        assert who_at_once(port, v6="eth0") == SILENCE
        outside.ip(f"route replace {ENDPOINT}/32 dev eth0")  # by ARP on the outside wire
        assert who_at_once(outside) == SILENCE
        neighbours = outside.ip(f"neigh show {ENDPOINT}") + port.ip(f"neigh show {ENDPOINT}")
        assert "lladdr" not in neighbours
        assert host.ns.within(who_is_local) == "refused"


def who_is_local() -> str:
    with socket.socket() as made:
        made.settimeout(0.5)
        try:
            made.connect((ENDPOINT, 80))
        except OSError:
            return "refused"
    return "open"


def test_the_rules_are_in_the_words_of_the_kernel() -> None:
    with a_host() as host:
        host.guest("alpha", number=1, known=True)
        host.arrange()
        listed = json.loads(host.ns.run("nft", "-j", "list", "ruleset"))["nftables"]
        tables = {(item["table"]["family"]) for item in listed if "table" in item}
        assert tables == {"bridge", "netdev", "inet", "arp"}
