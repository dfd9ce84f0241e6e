"""The text for nft: what must be in it. What the kernel makes of it is in test_spoofing."""

from __future__ import annotations

import re

from forewarn.host.channels.filter_rules import (
    DEVICES_MAX,
    FAMILIES,
    Note,
    read_note,
    removal,
    rules,
)
from forewarn.host.channels.plan import Channel, ChannelPlan, Mode
from forewarn.ports import Interface

BR0 = Interface(name="br0", ifindex=2, mac="52:54:00:aa:00:01", kind="bridge")
ALPHA = Channel(
    vm="alpha",
    tap="vnet0",
    ifindex=14,
    mac="52:54:00:00:00:01",
    listener="br0",
    mark=0x46000001,
    home="fe:54:00:00:00:01",
    address="192.0.2.11",
)


def text(plan: ChannelPlan, note: Note | None = None) -> str:
    return rules(plan, note or Note(interfaces=frozenset({"br0"})))


def elements(said: str, name: str) -> str:
    found = re.search(rf"(?:set|map) {name} {{ type [^;]*;(?: elements = {{ (.*?) }};)? }}", said)
    assert found is not None
    return found[1] or ""


def a_plan(*channels: Channel, mode: Mode = Mode.BRIDGE) -> ChannelPlan:
    return ChannelPlan(mode=mode, channels=channels, listeners={"br0": BR0}, elsewhere=(7, 8))


def test_every_table_is_replaced_in_the_one_text() -> None:
    said = text(a_plan(ALPHA))
    for family in FAMILIES:
        assert f"add table {family} forewarn\ndelete table {family} forewarn\n" in said
        assert f"table {family} forewarn {{" in said
    assert said.startswith(removal())


def test_taps_are_meant_by_index_and_never_by_name() -> None:
    said = text(a_plan(ALPHA))
    assert "vnet0" not in said
    assert elements(said, "taps") == "14"
    assert "map marks { type iface_index : mark; elements = { 14 : 0x46000001 }; }" in said
    assert elements(said, "ways") == "0x46000001 . 14"
    assert elements(said, "homes") == "14 : fe:54:00:00:00:01"
    assert elements(said, "elsewhere") == "7, 8"


def test_only_addresses_of_ipv4_that_are_known_are_kept_for_their_vm() -> None:
    other = Channel(
        vm="b",
        tap="vnet1",
        ifindex=15,
        mac="52:54:00:00:00:02",
        listener="br0",
        mark=0x46000002,
        home="fe:54:00:00:00:02",
        address="2001:db8::7",
    )
    said = text(a_plan(ALPHA, other))
    assert elements(said, "known") == "192.0.2.11"
    assert elements(said, "own") == "14 . 192.0.2.11"


def test_a_packet_reaches_only_a_connection_with_its_mark_or_the_listener() -> None:
    said = text(a_plan(ALPHA))
    assert elements(said, "pairs") == "0x46000001 . 0x46000001, 0x46000001 . 0x00000000"
    assert "meta mark . socket mark != @pairs counter drop" in said


def test_no_rule_about_arp_or_neighbors_can_be_passed_by_a_priority_tag() -> None:
    """nft would look at the type in the frame, which is that of the tag."""
    for mode in Mode:
        bridged = text(a_plan(ALPHA, mode=mode)).split("table arp forewarn {")[1]
        tables = bridged.split("table ", 1)[1]
        assert "ether type" not in tables
        for line in tables.splitlines():
            if "arp s" in line or "arp d" in line:
                assert "meta protocol arp" in line
            if "icmpv6" in line:
                assert "meta protocol ip6" in line


def test_a_host_without_guests_still_keeps_everybody_out() -> None:
    said = text(a_plan())
    assert elements(said, "taps") == ""
    assert "iif != @ours counter drop" in said


def test_many_taps_are_spread_over_chains_that_the_kernel_takes() -> None:
    listeners = {
        f"tap{n}": Interface(name=f"tap{n}", ifindex=n, mac=f"fe:54:00:00:00:{n % 256:02x}")
        for n in range(10, 10 + DEVICES_MAX + 1)
    }
    said = text(ChannelPlan(mode=Mode.TAP, listeners=listeners))
    found = re.findall(r"hook ingress devices = { (.*?) }", said)
    assert [len(devices.split(", ")) for devices in found] == [DEVICES_MAX, 1]


def test_an_address_of_somebody_else_stays_reachable() -> None:
    plan = ChannelPlan(mode=Mode.BRIDGE, listeners={"br0": BR0}, foreign=(3,))
    assert elements(text(plan), "foreign") == "1, 3"


def test_the_note_is_what_the_next_daemon_reads() -> None:
    said = text(a_plan(), Note(interfaces=frozenset({"br1", "br0"}), inherited=True))
    assert elements(said, "addressed") == '"br0", "br1"'
    assert elements(said, "tcp_fwmark_accept_was") == "1"
    read = read_note({"addressed": ["br0", "br1", 7], "tcp_fwmark_accept_was": [1]})
    assert read == Note(interfaces=frozenset({"br0", "br1"}), inherited=True)
    assert read_note({}) == Note()
