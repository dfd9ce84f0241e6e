"""The ways by which guests reach the endpoint: set up, kept right and taken down by the daemon.

`Channels` is for real VMs: an address on their bridges (or taps), rules that mark what each tap
sends, and listeners that turn the mark into a guest. What is in the kernel carries a note, so that
a daemon that is started after one that was killed finds it, replaces it, and leaves nothing. The
whole picture is in docs/host/reference.md.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Collection, Sequence
from typing import Protocol

from msgspec.structs import replace

from forewarn.core.inventory.host_report import SeenVm
from forewarn.endpoint.endpoint import Endpoint
from forewarn.endpoint.protocol import Identify
from forewarn.endpoint.registry import Guest
from forewarn.host.channels.filter_rules import (
    MARK_PREFIX,
    MARKS_MAX,
    TABLE,
    Note,
    read_note,
    removal,
    rules,
)
from forewarn.host.channels.plan import (
    ADDRESSES,
    ENDPOINT_V4,
    ENDPOINT_V6,
    EVERYWHERE,
    Channel,
    ChannelPlan,
    ChannelProblem,
    Mode,
    has_address,
    make_plan,
)
from forewarn.host.channels.sockets import InterfaceListener
from forewarn.host.identity import Identity
from forewarn.logs import Log
from forewarn.ports import Interface, Interfaces, NetworkFailed, PacketRules

log = Log(__name__)

# Interfaces come and go between a look at them and the rules that name them.
ATTEMPTS = 3
# A name that one process of a network namespace can have; it goes with the process.
_LOCK = "\0forewarn-host-channels"


class GuestChannels(Protocol):
    """What the host daemon asks of the ways by which its guests reach it."""

    @property
    def problems(self) -> Sequence[ChannelProblem]:
        """What keeps which guests from being served, as of the last `arrange`."""
        ...

    async def arrange(self, seen: Sequence[SeenVm]) -> Sequence[ChannelProblem]:
        """Serve exactly these VMs from now on, as far as that can be; returns `problems`.

        Call it on every change and every half minute: it also repairs what another program has
        taken away (a firewall that was reloaded, a bridge that was made anew).
        """
        ...

    async def close(self) -> None:
        """Serve no VM any more and leave nothing behind."""
        ...


class NoChannels:
    """Serves no guest: `listen = "none"`, for hosts whose guests ask another server."""

    problems: tuple[ChannelProblem, ...] = ()

    async def arrange(self, seen: object) -> tuple[ChannelProblem, ...]:  # noqa: ARG002
        return ()

    async def close(self) -> None:
        return


class Channels:
    """See the module. Made once; every method belongs to the event loop's thread."""

    def __init__(
        self,
        endpoint: Endpoint,
        identity: Identity,
        *,
        interfaces: Interfaces,
        rules: PacketRules,
        mode: Mode = Mode.BRIDGE,
        only: Collection[str] = (),
    ) -> None:
        self._endpoint = endpoint
        self._identity = identity
        self._interfaces = interfaces
        self._rules = rules
        self._mode = mode
        self._only = tuple(only)
        self._busy = asyncio.Lock()
        self._held: socket.socket | None = None
        self._note: Note | None = None
        self._channels: dict[int, Channel] = {}
        self._listeners: dict[str, InterfaceListener] = {}
        self._without_ipv6: set[str] = set()
        # A connection that an earlier daemon marked belongs to no guest here.
        self._mark = secrets.randbelow(MARKS_MAX // 2)
        self.problems: tuple[ChannelProblem, ...] = ()

    @property
    def channels(self) -> tuple[Channel, ...]:
        """Whom a request can come from now, and by which way."""
        return tuple(self._channels.values())

    async def arrange(self, seen: Sequence[SeenVm]) -> Sequence[ChannelProblem]:
        async with self._busy:
            try:
                problems = await self._arrange(seen)
            except NetworkFailed as failed:
                problems = [_of_host(failed)]
            for problem in problems:
                if problem not in self.problems:
                    log.warning("guests_not_served", where=problem.where, why=str(problem))
            self.problems = tuple(problems)
        return self.problems

    async def close(self) -> None:
        async with self._busy:
            self._retire(())
            for listener in self._listeners.values():
                listener.close()
            self._listeners.clear()
            if self._held is None:
                return
            await asyncio.sleep(0)  # the loop closes the sockets in its next turn
            try:
                if self._note is not None:
                    await _take_down(self._interfaces, self._rules, self._note)
            except NetworkFailed as failed:
                log.warning("channels_left_behind", why=str(failed))
            self._held.close()
            self._held = self._note = None
            self.problems = ()

    async def _arrange(self, seen: Sequence[SeenVm]) -> list[ChannelProblem]:
        if self._held is None:
            self._held = _hold()
        if self._note is None:
            self._note = await _found_note(self._interfaces, self._rules)
        plan = await self._ruled(seen, self._note)
        self._retire(plan.channels)
        problems = [*plan.problems]
        for name, listener in list(self._listeners.items()):
            if plan.listeners.get(name, listener.interface).ifindex != listener.interface.ifindex:
                del self._listeners[name]  # another interface by that name
                listener.close()
            elif name not in plan.listeners:
                del self._listeners[name]
                listener.close()
        problems += await self._left(plan)
        try:
            if plan.mode is Mode.BRIDGE and plan.listeners:
                self._interfaces.inherit_marks(on=True)
        except NetworkFailed as failed:
            return [*problems, _of_host(failed)]
        for interface in plan.listeners.values():
            problems += await self._served(interface)
        return problems + await self._strict(plan)

    async def _ruled(self, seen: Sequence[SeenVm], note: Note) -> ChannelPlan:
        """A plan whose rules are in force. Rules come before addresses and listeners."""
        failed: NetworkFailed | None = None
        for _ in range(ATTEMPTS):
            found = await self._interfaces.interfaces()
            plan = make_plan(
                self._mode,
                seen,
                found,
                only=self._only,
                ours=note.interfaces,
                before=tuple(self._channels.values()),
                next_mark=self._next_mark,
            )
            addressed = {one.name for one in found if has_address(one, ENDPOINT_V4)}
            note = replace(
                note, interfaces=frozenset(plan.listeners) | (note.interfaces & addressed)
            )
            # Known before the kernel marks anything with it: no guest's first request is refused.
            self._channels.update({channel.mark: channel for channel in plan.channels})
            self._note = note  # whatever comes next, these addresses are ours
            try:
                await self._rules.apply(rules(plan, note))
            except NetworkFailed as why:
                failed = why
                continue
            return plan
        self._retire(plan.channels)
        raise failed or NetworkFailed("No rules were made.", "It is tried again.")

    def _next_mark(self) -> int:
        self._mark += 1
        if self._mark > MARKS_MAX:
            raise NetworkFailed(
                "Every mark has been used once.", "Start the daemon again; guests lose nothing."
            )
        return MARK_PREFIX + self._mark

    def _retire(self, channels: Sequence[Channel]) -> None:
        """From now on only these channels mean a guest; cut the guests of all other channels."""
        kept = {channel.mark: channel for channel in channels}
        gone = [self._channels[mark] for mark in self._channels.keys() - kept.keys()]
        self._channels = kept
        for channel in gone:
            guest = self._identity.guest(channel.vm)
            if guest is not None:
                guest.cut()

    async def _left(self, plan: ChannelPlan) -> list[ChannelProblem]:
        """Take our addresses from interfaces that are not served any more."""
        problems: list[ChannelProblem] = []
        note = self._note or Note()
        for name in sorted(note.interfaces - plan.listeners.keys()):
            try:
                for address in ADDRESSES:
                    await self._interfaces.remove_address(name, address)
            except NetworkFailed as failed:
                problems.append(_of(name, failed))
        return problems

    async def _served(self, interface: Interface) -> list[ChannelProblem]:
        """Have addresses and listeners on it; what keeps guests there from being served."""
        name = interface.name
        problems: list[ChannelProblem] = []
        if not interface.up:
            problems.append(
                ChannelProblem(
                    where=name, words=f"{name} is down.", remedy=f"ip link set {name} up"
                )
            )
        listener = self._listeners.setdefault(name, InterfaceListener(interface))
        for family, address in zip((socket.AF_INET, socket.AF_INET6), ADDRESSES, strict=True):
            try:
                if not has_address(interface, address):
                    await self._interfaces.add_address(name, address)
            except NetworkFailed as failed:
                if ":" in address:
                    self._say_no_ipv6(name, failed)
                else:
                    problems.append(_of(name, failed))
                continue
            if family in listener.lacks():
                problem = await listener.open(family, self._endpoint, self._identify(name))
                if problem is not None:
                    problems.append(problem)
        return problems

    def _say_no_ipv6(self, name: str, failed: NetworkFailed) -> None:
        """Said once and no problem: most bridges of libvirt have no IPv6, and no guest asks it."""
        if name not in self._without_ipv6:
            self._without_ipv6.add(name)
            log.info("served_by_ipv4_only", interface=name, why=failed.message)

    def _identify(self, name: str) -> Identify:
        if self._mode is Mode.TAP:
            return lambda _transport: self._at_tap(name)
        return lambda transport: self._by_mark(name, transport)

    def _by_mark(self, bridge: str, transport: asyncio.BaseTransport) -> Guest | None:
        """The guest whose mark the connection carries; None if it came by another bridge."""
        accepted = transport.get_extra_info("socket")
        try:
            mark = accepted.getsockopt(socket.SOL_SOCKET, socket.SO_MARK)
        except OSError:  # it is gone already
            return None
        channel = self._channels.get(mark)
        if channel is None or channel.listener != bridge:
            return None
        return self._identity.by_channel(channel.vm)

    def _at_tap(self, tap: str) -> Guest | None:
        for channel in self._channels.values():
            if channel.listener == tap:
                return self._identity.by_channel(channel.vm)
        return None

    async def _strict(self, plan: ChannelPlan) -> list[ChannelProblem]:
        return [
            ChannelProblem(
                where=name,
                words=f"The kernel drops what comes by {name} from addresses that it has no route"
                " to (rp_filter), so guests there may get no answer.",
                remedy=f"Give it a route to its guests (ip route add NETWORK dev {name}); where the"
                " host has a default route, this does as well:"
                f" sysctl -w net.ipv4.conf.{name.replace('.', '/')}.rp_filter=2",
            )
            for name in sorted(await self._interfaces.strict(plan.listeners.keys()))
        ]


async def take_down(interfaces: Interfaces, rules: PacketRules) -> None:
    """Remove what a daemon that is no longer there has left. NetworkFailed if one is there."""
    with _hold():
        await _take_down(interfaces, rules, await _found_note(interfaces, rules))


async def _take_down(interfaces: Interfaces, rules: PacketRules, note: Note) -> None:
    """Addresses first, rules last: any machine could ask at an address without rules."""
    for name in sorted(note.interfaces):
        for address in ADDRESSES:
            await interfaces.remove_address(name, address)
    if not note.inherited:
        interfaces.inherit_marks(on=False)
    await rules.apply(removal())


async def _found_note(interfaces: Interfaces, rules: PacketRules) -> Note:
    """The note of the daemon that ran here before; without one, how everything is now.

    Rules can be lost (`nft flush ruleset`) while addresses stay. A bridge with both addresses is
    taken for ours: no other program uses the second.
    """
    sets = await rules.sets(TABLE)
    found = Note(inherited=interfaces.marks_are_inherited()) if sets is None else read_note(sets)
    both = {
        one.name
        for one in await interfaces.interfaces()
        if has_address(one, ENDPOINT_V4) and has_address(one, ENDPOINT_V6)
    }
    return replace(found, interfaces=found.interfaces | both)


def _hold() -> socket.socket:
    """Be the only one who serves guests in this network namespace, for as long as it is open."""
    held = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        held.bind(_LOCK)
    except OSError:
        held.close()
        raise NetworkFailed(
            "Another host daemon serves guests on this machine already.",
            "Stop it, or run this one in a network namespace of its own.",
        ) from None
    return held


def _of(where: str, failed: NetworkFailed) -> ChannelProblem:
    return ChannelProblem(where=where, words=failed.message, remedy=failed.remedy)


def _of_host(failed: NetworkFailed) -> ChannelProblem:
    return _of(EVERYWHERE, failed)
