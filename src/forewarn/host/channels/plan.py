"""Which VM is at which interface, decided from what the hypervisor says and the kernel shows.

Pure: values in, values out. A channel is one NIC of one VM with the mark that its requests carry;
what cannot be served is a problem with its remedy, and never keeps another VM from being served.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from forewarn.core.errors import Invalid
from forewarn.core.inventory.host_report import Nic, Power, SeenVm
from forewarn.host.identity import plain_address
from forewarn.ports import Interface

ENDPOINT_V4 = "169.254.169.254"
ENDPOINT_V6 = "fe80::a9fe:a9fe"
ADDRESSES = (f"{ENDPOINT_V4}/32", f"{ENDPOINT_V6}/64")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,15}")
CHANNELS_MAX = 4_096  # taps of one host that are served; more than any host has had so far


class Mode(StrEnum):
    """Where guests are listened to."""

    BRIDGE = "bridge"  # one listener per bridge; requests are told apart by marks
    TAP = "tap"  # one listener per tap that is in no bridge


class Channel(Struct, frozen=True, kw_only=True):
    """One way by which one VM asks. Whatever comes by `ifindex` from `mac` is that VM.

    `listener` is the interface that is listened on: the bridge, or the tap itself. `mark` is what
    the kernel puts on its packets; no two channels in the life of a daemon have the same. `home`
    is the MAC of the tap itself, which the kernel takes for the host's own: unlike that of the
    bridge, which may be borrowed from any port, it lasts as long as the channel.
    """

    vm: str
    tap: str
    ifindex: int
    mac: str
    listener: str
    mark: int
    home: str
    address: str | None = None

    @property
    def key(self) -> tuple[str, int, str, str]:
        """What makes it the same channel as before."""
        return self.vm, self.ifindex, self.mac, self.listener


class ChannelProblem(Struct, frozen=True, kw_only=True):
    """Something about one VM or interface (`where`) that keeps guests from being served."""

    where: str
    words: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.where}: {self.words} {self.remedy}"


# Where a problem is that concerns every VM of the host.
EVERYWHERE = "network"


def cut_off(seen: Sequence[SeenVm], problems: Sequence[ChannelProblem]) -> frozenset[str]:
    """The VMs that could ask and are not heard, because of their host and not of themselves.

    A VM without an interface that can be served is its owner's choice; its host is not at fault.
    """
    where = {problem.where for problem in problems}
    return frozenset(
        vm.name
        for vm in seen
        if vm.power in (Power.RUNNING, Power.PAUSED)
        and vm.nics
        and (EVERYWHERE in where or all((nic.bridge or nic.tap) in where for nic in vm.nics))
    )


class ChannelPlan(Struct, frozen=True, kw_only=True):
    """What to serve. `listeners` by name; `elsewhere` are ports of bridges that are not served.

    `foreign` are interfaces that another program gave the endpoint's address.
    """

    mode: Mode
    channels: tuple[Channel, ...] = ()
    listeners: Mapping[str, Interface]
    elsewhere: tuple[int, ...] = ()
    foreign: tuple[int, ...] = ()
    problems: tuple[ChannelProblem, ...] = ()


class _NicWithInterfaces(Struct, frozen=True):
    """A NIC with the interfaces that it really has."""

    vm: SeenVm
    nic: Nic
    tap: Interface
    listener: Interface


def make_plan(
    mode: Mode,
    seen: Sequence[SeenVm],
    interfaces: Sequence[Interface],
    *,
    only: Collection[str] = (),
    ours: Collection[str] = (),
    before: Sequence[Channel] = (),
    next_mark: Callable[[], int],
) -> ChannelPlan:
    """What to serve now. `only` names the bridges (or taps) to listen on; empty is all.

    `ours` are the interfaces to which this daemon, or one before it, gave the endpoint's address.
    Any other interface with that address got it from another program, and is left alone. A channel
    that was there `before` keeps its mark; every other one gets the next.
    """
    by_name = {interface.name: interface for interface in interfaces}
    problems = _only_problems(mode, only, by_name)
    placed: list[_NicWithInterfaces] = []
    for vm in seen:
        if vm.power not in (Power.RUNNING, Power.PAUSED):
            continue
        if not vm.nics:
            problems.append(_no_nic(vm))
        places = [_place(mode, vm, nic, by_name) for nic in vm.nics]
        problems += [place for place in places if isinstance(place, ChannelProblem)]
        found = [place for place in places if isinstance(place, _NicWithInterfaces)]
        chosen = [place for place in found if not only or place.listener.name in only]
        placed += chosen
        if found and not chosen:
            problems.append(_elsewhere(found, only))
    placed, refused = _sorted_out(placed, ours)
    wanted = {one.listener.name: one.listener for one in placed}
    wanted |= {name: by_name[name] for name in only if _may_listen(mode, by_name.get(name))}
    wanted = {name: found for name, found in wanted.items() if not _is_foreign(found, ours)}
    marks = {channel.key: channel.mark for channel in before}
    return ChannelPlan(
        mode=mode,
        channels=tuple(_channel(one, marks, next_mark) for one in placed),
        listeners=dict(sorted(wanted.items())),
        elsewhere=tuple(
            port.ifindex for port in interfaces if port.master and port.master not in wanted
        ),
        foreign=tuple(one.ifindex for one in interfaces if _is_foreign(one, ours)),
        problems=(*problems, *refused, *_foreign_problems(interfaces, ours)),
    )


def _may_listen(mode: Mode, found: Interface | None) -> bool:
    if mode is not Mode.BRIDGE or found is None or found.kind != "bridge":
        return False
    return _NAME.fullmatch(found.name) is not None


def has_address(found: Interface, address: str) -> bool:
    """Whether the interface has the address, with whatever prefix."""
    wanted = address.partition("/")[0]
    return any(one.partition("/")[0] == wanted for one in found.addresses)


def _is_foreign(found: Interface, ours: Collection[str]) -> bool:
    return has_address(found, ENDPOINT_V4) and found.name not in ours


def _place(
    mode: Mode, vm: SeenVm, nic: Nic, by_name: Mapping[str, Interface]
) -> _NicWithInterfaces | ChannelProblem:
    if nic.tap is None:
        return ChannelProblem(
            where=vm.name,
            words=f"Its NIC {nic.mac} has no interface on this host.",
            remedy="Plug it into a bridge of the host, or give it a tap.",
        )
    if not _MAC.fullmatch(nic.mac.lower()) or not _NAME.fullmatch(nic.tap):
        return ChannelProblem(
            where=vm.name,
            words=f"Its NIC {nic.mac!r} at {nic.tap!r} cannot be written into a rule.",
            remedy="Give it a MAC address like 52:54:00:12:34:56 and an interface with a name of"
            " letters, digits, dot, dash and underscore.",
        )
    tap = by_name.get(nic.tap)
    if tap is None:
        return ChannelProblem(
            where=vm.name,
            words=f"Its interface {nic.tap} is not there.",
            remedy="It may just have come or gone; if this stays, look at `ip link` and `virsh"
            f" domiflist {vm.name}`.",
        )
    if tap.kind in ("macvtap", "macvlan", "ipvlan"):
        return ChannelProblem(
            where=vm.name,
            words=f"{tap.name} is a {tap.kind}, whose packets do not pass through this host.",
            remedy="Plug the VM into a bridge (<interface type='bridge'>).",
        )
    if not _made_for(tap, nic):
        return ChannelProblem(
            where=vm.name,
            words=f"{tap.name} was made for another NIC ({tap.mac}) than {nic.mac}.",
            remedy="The name has been given away since the VM was looked at; the next look"
            " settles it.",
        )
    return _listened(mode, vm, nic, tap, by_name)


def _listened(
    mode: Mode, vm: SeenVm, nic: Nic, tap: Interface, by_name: Mapping[str, Interface]
) -> _NicWithInterfaces | ChannelProblem:
    """Where the kernel shows the tap to be, whatever the hypervisor remembers."""
    if mode is Mode.TAP:
        if tap.master is None:
            return _NicWithInterfaces(vm, nic, tap, tap)
        return ChannelProblem(
            where=vm.name,
            words=f"{tap.name} is a port of {tap.master}, and only taps without a bridge are"
            " listened on.",
            remedy='Set listen = "bridge".',
        )
    if tap.master is None:
        return ChannelProblem(
            where=vm.name,
            words=f"{tap.name} is in no bridge, and only bridges are listened on.",
            remedy='Plug it into a bridge, or set listen = "tap".',
        )
    bridge = by_name.get(tap.master)
    if bridge is None or bridge.kind != "bridge" or not _NAME.fullmatch(bridge.name):
        return ChannelProblem(
            where=vm.name,
            words=f"{tap.name} is a port of {tap.master}, which is not a bridge of the kernel.",
            remedy="Only Linux bridges with a plain name can be listened on; plug the VM into one.",
        )
    return _NicWithInterfaces(vm, nic, tap, bridge)


def _made_for(tap: Interface, nic: Nic) -> bool:
    """False if libvirt made the tap for another NIC: it calls a tap fe: and the rest of the MAC.

    This closes the moment between a look at the VMs and a look at the interfaces, in which a name
    can have changed hands.
    """
    if tap.kind != "tun" or not tap.mac.startswith("fe:"):
        return True
    return tap.mac[2:] == nic.mac.lower()[2:]


def _sorted_out(
    placed: Sequence[_NicWithInterfaces], ours: Collection[str]
) -> tuple[list[_NicWithInterfaces], list[ChannelProblem]]:
    """Without those that cannot be: two VMs at one tap, too many, a listener that is foreign."""
    owners: dict[int, set[str]] = {}
    for one in placed:
        owners.setdefault(one.tap.ifindex, set()).add(one.vm.name)
    kept: list[_NicWithInterfaces] = []
    problems: list[ChannelProblem] = []
    for one in placed:
        names = sorted(owners[one.tap.ifindex])
        if len(names) > 1:
            problems.append(
                ChannelProblem(
                    where=one.vm.name,
                    words=f"{one.tap.name} is named by {' and '.join(names)}; none is served.",
                    remedy="Give each VM an interface of its own.",
                )
            )
        elif len(kept) >= CHANNELS_MAX:
            problems.append(
                ChannelProblem(
                    where=one.vm.name,
                    words=f"{CHANNELS_MAX} interfaces are served already.",
                    remedy="Move VMs to another host.",
                )
            )
        elif not _is_foreign(one.listener, ours):
            kept.append(one)
    return kept, problems


def _foreign_problems(
    interfaces: Sequence[Interface], ours: Collection[str]
) -> list[ChannelProblem]:
    return [
        ChannelProblem(
            where=one.name,
            words=f"{one.name} has the address {ENDPOINT_V4} already, and not from us;"
            " its VMs are not served.",
            remedy="Stop whatever put it there, or take it away (ip address del, with the prefix"
            f" that `ip address show {one.name}` shows).",
        )
        for one in interfaces
        if _is_foreign(one, ours)
    ]


def _channel(
    one: _NicWithInterfaces,
    marks: Mapping[tuple[str, int, str, str], int],
    next_mark: Callable[[], int],
) -> Channel:
    mac = one.nic.mac.lower()
    key = (one.vm.name, one.tap.ifindex, mac, one.listener.name)
    return Channel(
        vm=one.vm.name,
        tap=one.tap.name,
        ifindex=one.tap.ifindex,
        mac=mac,
        listener=one.listener.name,
        mark=marks[key] if key in marks else next_mark(),
        home=one.tap.mac,
        address=_plain(one.vm.traits.profile.address),
    )


def _plain(address: str | None) -> str | None:
    """The address if it is one; the inventory has told the operator about any other."""
    try:
        return None if address is None else plain_address(address)
    except Invalid:
        return None


def _only_problems(
    mode: Mode, only: Collection[str], by_name: Mapping[str, Interface]
) -> list[ChannelProblem]:
    """What is wrong with the interfaces that the setting names."""
    return [
        ChannelProblem(
            where=name,
            words=f"{name} is no bridge." if name in by_name else f"There is no interface {name}.",
            remedy="Create it, or correct the names in the setting `bridges`.",
        )
        for name in sorted(set(only))
        if name not in by_name or (mode is Mode.BRIDGE and by_name[name].kind != "bridge")
    ]


def _elsewhere(found: Sequence[_NicWithInterfaces], only: Collection[str]) -> ChannelProblem:
    """A VM that has interfaces, none of them where the setting has it listened."""
    places = ", ".join(sorted({place.listener.name for place in found}))
    return ChannelProblem(
        where=found[0].vm.name,
        words=f"It is on {places}, and only {', '.join(sorted(set(only)))} is listened on.",
        remedy=f"Add {places} to the setting `bridges`, or plug the VM in where it is heard.",
    )


def _no_nic(vm: SeenVm) -> ChannelProblem:
    return ChannelProblem(
        where=vm.name,
        words="It has no network interface, so it can neither read its document nor approve.",
        remedy="Give it one on a bridge; until then nothing is announced to it, unless another VM"
        " of its scope asks.",
    )
