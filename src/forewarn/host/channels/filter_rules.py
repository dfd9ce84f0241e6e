"""The rules that tell guests apart and keep all others out, as text for nft.

Pure: a plan in, text out. The text replaces all tables of ours in one transaction, so that there
is no moment without them. docs/host/reference.md says what each rule is for.

Marks are MARK_PREFIX and 24 bits of a count. `iif` is the index of an interface, not its name:
an index is not given again, so that a rule never means another tap than the one it was written
for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address

from msgspec import Struct

from forewarn.host.channels.plan import ENDPOINT_V4, ENDPOINT_V6, Channel, ChannelPlan, Mode

TABLE = "forewarn"
FAMILIES = ("bridge", "netdev", "inet", "arp")
MARK_PREFIX = 0x46000000  # an F; see docs/host/reference.md for who else may not use it
MARKS_MAX = 0x00FFFFFF
MARK_MASK = "0xff000000"
PORT = 80
DEVICES_MAX = 200  # of one chain; the kernel takes 256

NOTE_INTERFACES = "addressed"
NOTE_INHERITED = "tcp_fwmark_accept_was"

_V4, _V6 = ENDPOINT_V4, ENDPOINT_V6
# The address that a neighbor message speaks of. nft of Debian 12 has no name for the field.
_TARGET = f"@th,64,128 {int(IPv6Address(ENDPOINT_V6)):#034x}"
# `meta protocol` sees through a priority tag (VLAN 0), as the kernel and guests do; without it nft
# looks at the type in the frame, and a guest could hide what it sends behind such a tag.
_ARP = "meta protocol arp"
_ICMP6 = "meta protocol ip6 icmpv6 type"
_ND = f"{_ICMP6} {{ nd-neighbor-solicit, nd-neighbor-advert }}"
_PRIORITY_TAG = "@ll,96,16 { 0x8100, 0x88a8 } @ll,112,16 & 0x0fff == 0"
_ADVERT = f"{_ICMP6} nd-neighbor-advert"


class Note(Struct, frozen=True, kw_only=True):
    """What a daemon writes into the kernel, with its rules, for the one that comes after it.

    `interfaces` are those on which it puts the endpoint's addresses; `inherited` is how
    net.ipv4.tcp_fwmark_accept was before it came.
    """

    interfaces: frozenset[str] = frozenset()
    inherited: bool = False


def read_note(sets: Mapping[str, Sequence[object]]) -> Note:
    """The note in the sets of the inet table."""
    names = sets.get(NOTE_INTERFACES, ())
    return Note(
        interfaces=frozenset(name for name in names if isinstance(name, str)),
        inherited=1 in sets.get(NOTE_INHERITED, ()),
    )


def removal() -> str:
    """Text that takes away every table of ours, those that are there and those that are not."""
    return "".join(f"add table {f} {TABLE}\ndelete table {f} {TABLE}\n" for f in FAMILIES)


def rules(plan: ChannelPlan, note: Note) -> str:
    """Text that puts these rules in the place of whatever rules of ours there are."""
    tables = [_inet(plan, note), _arp(plan)]
    if plan.mode is Mode.BRIDGE:
        tables += [_bridge(plan), _egress(plan)]
    else:
        tables += [_ingress(plan)]
    return removal() + "".join(tables)


def _set(name: str, kind: str, elements: Iterable[str]) -> str:
    listed = ", ".join(elements)
    inside = f" elements = {{ {listed} }};" if listed else ""
    return f"  set {name} {{ type {kind};{inside} }}\n"


def _map(name: str, kind: str, elements: Iterable[str]) -> str:
    return _set(name, kind, elements).replace("  set ", "  map ", 1)


def _indexes(values: Iterable[int]) -> list[str]:
    return [str(value) for value in sorted(set(values))]


def _mark(channel: Channel) -> str:
    return f"{channel.mark:#010x}"


def _chain(name: str, hook: str, *lines: str) -> str:
    base = [f"type filter hook {hook}; policy accept;"] if hook else []
    inside = "".join(f"    {line}\n" for line in (*base, *lines))
    return f"  chain {name} {{\n{inside}  }}\n"


def _table(family: str, *parts: str) -> str:
    return f"table {family} {TABLE} {{\n{''.join(parts)}}}\n"


def _known(plan: ChannelPlan) -> tuple[list[str], list[str]]:
    """The IPv4 addresses that VMs are known to have, and whose they are, by interface."""
    known: set[str] = set()
    own: list[str] = []
    for channel in plan.channels:
        if channel.address and isinstance(ip_address(channel.address), IPv4Address):
            known.add(channel.address)
            own.append(f"{channel.ifindex} . {channel.address}")
    return sorted(known), own


def _tap_sets(plan: ChannelPlan) -> str:
    known, own = _known(plan)
    homes = [f"{channel.ifindex} : {channel.home}" for channel in plan.channels]
    macs = [f"{channel.ifindex} . {channel.mac}" for channel in plan.channels]
    return (
        _set("taps", "iface_index", _indexes(c.ifindex for c in plan.channels))
        + _set("macs", "iface_index . ether_addr", macs)
        + _map("homes", "iface_index : ether_addr", homes)
        + _set("known", "ipv4_addr", known)
        + _set("own", "iface_index . ipv4_addr", own)
    )


def _guest_chains(mark: str) -> str:
    """What may come from a tap of ours. `mark` is the statement that says whose it is."""
    home = "ether daddr set iif map @homes meta pkttype set host accept"
    return (
        _chain(
            "guest",
            "",
            "iif . ether saddr != @macs counter drop",
            # Two tags: the kernel takes off both, and no rule would see what is inside.
            f"{_PRIORITY_TAG} meta protocol {{ 8021q, 8021ad }} counter drop",
            f"{_ARP} goto guest_arp",
            f"ip saddr {_V4} counter drop",
            f"ip6 saddr {_V6} counter drop",
            f"{_ADVERT} {_TARGET} counter drop",
            f"ip daddr {_V4} goto asks",
            f"ip6 daddr {_V6} goto asks6",
        )
        + _chain(
            "guest_arp",
            "",
            f"{_ARP} iif . arp saddr ether != @macs counter drop",
            f"{_ARP} arp saddr ip {_V4} counter drop",
            f"{_ARP} arp saddr ip @known iif . arp saddr ip != @own counter drop",
        )
        + _chain(
            "asks",
            "",
            "ip frag-off & 0x3fff != 0 counter drop",
            "meta l4proto != tcp counter drop",
            f"tcp dport != {PORT} counter drop",
            "ip saddr @known iif . ip saddr != @own counter drop",
            f"{mark}{home}",
        )
        + _chain(
            "asks6",
            "",
            f"{_ND} {home}",
            "meta protocol ip6 exthdr frag exists counter drop",
            "meta l4proto != tcp counter drop",
            f"tcp dport != {PORT} counter drop",
            f"{mark}{home}",
        )
    )


# Packets about the endpoint's address: dropped where they come from, or would go to, others.
_ABOUT_ENDPOINT = (
    f"{_ARP} arp daddr ip {_V4} counter drop",
    f"{_ARP} arp saddr ip {_V4} counter drop",
    f"ip daddr {_V4} counter drop",
    f"ip saddr {_V4} counter drop",
    f"ip6 daddr {_V6} counter drop",
    f"ip6 saddr {_V6} counter drop",
    f"{_ND} {_TARGET} counter drop",
)


def _bridge(plan: ChannelPlan) -> str:
    ways = [f"{_mark(channel)} . {channel.ifindex}" for channel in plan.channels]
    marked = f"meta mark & {MARK_MASK} == {MARK_PREFIX:#010x} meta mark . oif != @ways counter drop"
    return _table(
        "bridge",
        _tap_sets(plan),
        _map("marks", "iface_index : mark", [f"{c.ifindex} : {_mark(c)}" for c in plan.channels]),
        _set("ways", "mark . iface_index", ways),
        _set("elsewhere", "iface_index", _indexes(plan.elsewhere)),
        _guest_chains("meta mark set iif map @marks "),
        _chain(
            "prerouting",
            "prerouting priority -350",
            "iif @elsewhere accept",
            "iif @taps goto guest",
            *_ABOUT_ENDPOINT,
        ),
        _chain("forward", "forward priority -350", "iif @elsewhere accept", *_ABOUT_ENDPOINT),
        _chain(
            "output",
            "output priority -350",
            "oif @elsewhere accept",
            f"ip saddr {_V4} {marked}",
            f"ip6 saddr {_V6} {marked}",
            "oif @taps accept",
            f"{_ARP} arp saddr ip {_V4} counter drop",
            f"ip saddr {_V4} counter drop",
            f"ip6 saddr {_V6} counter drop",
            f"{_ADVERT} {_TARGET} counter drop",
        ),
    )


def _devices(names: Collection[str]) -> str:
    return "devices = { " + ", ".join(f'"{name}"' for name in names) + " }"


def _in_chains(names: Iterable[str], prefix: str, hook: str, *lines: str) -> str:
    """The same chain for all of these devices, in as many as the kernel wants."""
    listed = sorted(names)
    parts = [listed[at : at + DEVICES_MAX] for at in range(0, len(listed), DEVICES_MAX)]
    return "".join(
        _chain(f"{prefix}_{number}", f"{hook} {_devices(part)} priority -350", *lines)
        for number, part in enumerate(parts)
    )


def _egress(plan: ChannelPlan) -> str:
    """An answer goes to the MAC of the VM that asked, whatever the neighbor table has been told."""
    macs = [f"{_mark(channel)} : {channel.mac}" for channel in plan.channels]
    rewritten = "ether daddr set meta mark map @macs"
    return _table(
        "netdev",
        _map("macs", "mark : ether_addr", macs),
        _in_chains(
            plan.listeners,
            "answers",
            "egress",
            f"ip saddr {_V4} {rewritten}",
            f"ip6 saddr {_V6} {rewritten}",
        ),
    )


def _ingress(plan: ChannelPlan) -> str:
    """Taps without a bridge: what comes by each is checked before anything else sees it."""
    return _table(
        "netdev",
        _tap_sets(plan),
        _guest_chains(""),
        _in_chains(plan.listeners, "taps", "ingress", "goto guest"),
    )


def _inet(plan: ChannelPlan, note: Note) -> str:
    """The endpoint's address is for guests alone, and for port 80 alone."""
    marks = [_mark(channel) for channel in plan.channels]
    # A packet of one guest never reaches the connection of another, whatever addresses, ports
    # and sequence numbers it forges. 0 is the mark of the listening socket.
    pairs = [pair for mark in marks for pair in (f"{mark} . {mark}", f"{mark} . 0x00000000")]
    ours = _indexes(found.ifindex for found in plan.listeners.values())
    by_mark = (
        ("meta mark != @marks counter drop", "meta mark . socket mark != @pairs counter drop")
        if plan.mode is Mode.BRIDGE
        else ()
    )
    asked = ("meta l4proto != tcp counter drop", f"tcp dport != {PORT} counter drop", *by_mark)
    kept_in = () if plan.foreign else (f"ip saddr {_V4} oif != @ours counter drop",)
    return _table(
        "inet",
        _set(NOTE_INTERFACES, "ifname", [f'"{name}"' for name in sorted(note.interfaces)]),
        _set(NOTE_INHERITED, "mark", ["1" if note.inherited else "0"]),
        _set("ours", "iface_index", ours),
        _set("foreign", "iface_index", _indexes([*plan.foreign, 1] if plan.foreign else [])),
        _set("marks", "mark", marks),
        _set("pairs", "mark . mark", pairs),
        _chain("endpoint", "", "iif != @ours counter drop", *asked),
        _chain("endpoint6", "", "iif != @ours counter drop", f"{_ND} accept", *asked),
        _chain(
            "input",
            "input priority -150",
            "iif @foreign accept",
            f"ip daddr {_V4} goto endpoint",
            f"ip6 daddr {_V6} goto endpoint6",
        ),
        _chain("output", "output priority -150", *kept_in),
    )


def _arp(plan: ChannelPlan) -> str:
    """No machine outside learns that this host has the address: every host has it."""
    ours = _indexes(found.ifindex for found in plan.listeners.values())
    return _table(
        "arp",
        _set("ours", "iface_index", [*ours, *_indexes(plan.foreign)]),
        _chain("input", "input priority -150", f"arp daddr ip {_V4} iif != @ours counter drop"),
        _chain("output", "output priority -150", f"arp saddr ip {_V4} oif != @ours counter drop"),
    )
