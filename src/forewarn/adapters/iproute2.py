"""The interfaces of this host and their addresses: iproute2 and /proc/sys, with a time limit.

Only the network namespace that the process is in. /sys/class/net is not read: it may show the
interfaces of another one.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from forewarn.adapters.programs import run_program
from forewarn.ports import Interface, NetworkFailed

COMMAND_S_MAX = 10.0
_INHERIT = Path("/proc/sys/net/ipv4/tcp_fwmark_accept")
_CONF = Path("/proc/sys/net/ipv4/conf")
_LOOSE = 2  # of rp_filter; 1 is strict, 0 is off, and the larger of two settings holds


async def run_command(*words: str, given: str = "") -> str:
    """What a command says. NetworkFailed if it is not there, fails or takes too long."""
    try:
        ended = await run_program(words, seconds=COMMAND_S_MAX, given=given)
    except FileNotFoundError:
        raise NetworkFailed(
            f"There is no program {words[0]!r}.",
            "Install it (Debian: iproute2 and nftables) and start the daemon again.",
        ) from None
    except TimeoutError:
        raise NetworkFailed(
            f"`{' '.join(words)}` took longer than {COMMAND_S_MAX:.0f} s.",
            "It is tried again; look at the load of the host.",
        ) from None
    except OSError as error:
        raise NetworkFailed(
            f"{words[0]} cannot be started: {error.strerror}.", "Free memory or processes."
        ) from error
    if ended.code:
        raise _refused(words, ended.errors.strip())
    return ended.output


def _refused(words: Sequence[str], complaint: str) -> NetworkFailed:
    first = complaint.splitlines()[0] if complaint else "no reason was given"
    if "not permitted" in complaint or "Permission denied" in complaint:
        return NetworkFailed(
            f"`{' '.join(words)}` is not permitted ({first}).",
            "Run the daemon as root or with CAP_NET_ADMIN.",
        )
    if "not supported" in complaint:
        return NetworkFailed(
            f"The kernel lacks what `{' '.join(words)}` needs ({first}).",
            "It takes Linux 5.16 or newer with nf_tables for bridges, netdev, inet and arp, and"
            " nft_socket; kernels of Debian 12 and newer have all of them.",
        )
    return NetworkFailed(f"`{' '.join(words)}` failed: {first}.", "It is tried again.")


class LinkAddresses:
    """See `ports.Interfaces`."""

    async def interfaces(self) -> Sequence[Interface]:
        listed = json.loads(await run_command("ip", "-json", "-details", "address", "show"))
        return [_interface(item) for item in listed if "ifindex" in item]

    async def add_address(self, interface: str, address: str) -> None:
        # Link scope, or deprecated: the host itself never chooses it to speak from.
        more = ("nodad", "preferred_lft", "0") if ":" in address else ("scope", "link")
        await run_command("ip", "address", "replace", address, "dev", interface, *more)

    async def remove_address(self, interface: str, address: str) -> None:
        for found in await self.interfaces():
            if found.name == interface and address in found.addresses:
                await run_command("ip", "address", "del", address, "dev", interface)

    async def strict(self, names: Collection[str]) -> Collection[str]:
        checked = {name: _rp_filter(name) for name in names}
        if not any(checked.values()):
            return ()
        said = await run_command("ip", "-json", "-4", "route", "show", "table", "main")
        routes = json.loads(said or "[]")
        # Loosely, any way back is enough; a default route is one for every address.
        enough = _LOOSE if any(route.get("dst") == "default" for route in routes) else 0
        reached = {route.get("dev") for route in routes}
        return {name for name, how in checked.items() if how not in (0, enough)} - reached

    def marks_are_inherited(self) -> bool:
        try:
            return _INHERIT.read_text(encoding="ascii").strip() == "1"
        except OSError as error:
            raise _no_inheriting(error) from error

    def inherit_marks(self, *, on: bool) -> None:
        if self.marks_are_inherited() == on:
            return
        try:
            _INHERIT.write_text("1\n" if on else "0\n", encoding="ascii")
        except OSError as error:
            raise _no_inheriting(error) from error


def _no_inheriting(error: OSError) -> NetworkFailed:
    return NetworkFailed(
        f"net.ipv4.tcp_fwmark_accept cannot be set ({error.strerror}); without it the daemon"
        " cannot tell the VMs of a bridge apart.",
        "Set it yourself (sysctl -w net.ipv4.tcp_fwmark_accept=1), or let the daemon"
        ' (systemd: ProtectKernelTunables=no), or set listen = "tap".',
    )


def _rp_filter(name: str) -> int:
    values = [0]
    for which in ("all", name):
        try:
            values.append(int((_CONF / which / "rp_filter").read_text(encoding="ascii")))
        except (OSError, ValueError):
            continue
    return max(values)


def _interface(item: dict[str, Any]) -> Interface:
    return Interface(
        name=str(item["ifname"]),
        ifindex=int(item["ifindex"]),
        mac=str(item.get("address", "")).lower(),
        kind=str(item.get("linkinfo", {}).get("info_kind", "")),
        master=item.get("master"),
        addresses=tuple(
            f"{one['local']}/{one['prefixlen']}"
            for one in item.get("addr_info", [])
            if "local" in one
        ),
        up="UP" in item.get("flags", []),
    )
