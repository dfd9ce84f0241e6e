"""DHCP option 245 (D2) as DHCP clients leave it behind in files. Nothing here sends anything.

dhclient writes `option unknown-245 a8:3f:81:10;` into each lease (`option-245` on BSD), or a
string of four characters where all of them can be printed; the last lease is the newest.
systemd-networkd, and NetworkManager with its own client until 1.20, write `OPTION_245=a83f8110`.
udhcpc writes no file: its script is given `opt245=a83f8110`, and scripts that keep a lease keep the
names. cloud-init keeps what hooks of dhclient and NetworkManager were given, as JSON.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LEASE_BYTES_MAX = 1024 * 1024
FILES_MAX = 64

# Below the root of the file system. Only folders that root alone may write to.
LEASE_FILES = (
    "run/systemd/netif/leases/*",
    "var/lib/NetworkManager/*.lease",
    "var/lib/dhcp/dhclient*.lease*",
    "var/lib/dhclient/dhclient*.lease*",
    "var/lib/dhcp3/dhclient*.lease*",
    "var/db/dhclient.leases.*",
    "run/udhcpc*",
    "run/udhcpc/*",
    "var/lib/udhcpc/*",
    "var/cache/udhcpc*.lease",
    "run/cloud-init/dhclient.hooks/*.json",
)
NAMES = ("OPTION_245", "opt245", "unknown_245", "private_245", "unknown-245", "option-245")

_DHCLIENT = re.compile(
    r'^\s*option\s+(?:unknown|option)-245\s+("(?:[^"\\]|\\.)*"|[^;\n]+);', re.MULTILINE
)
_ASSIGNED = re.compile(
    rf"^\s*(?:export\s+)?(?:DHCP4_)?(?:{'|'.join(NAMES)})\s*=\s*(\S.*?)\s*$",
    re.MULTILINE | re.IGNORECASE,
)
_PAIRS = re.compile(r"[0-9a-f]{1,2}(?::[0-9a-f]{1,2}){3}|[0-9a-f]{8}", re.IGNORECASE)
_ESCAPED = re.compile(r"\\([0-7]{3}|.)", re.DOTALL)


@dataclass(frozen=True)
class Lease:
    """One file and the address that its newest lease has in option 245, or empty."""

    path: Path
    address: str


def leases(root: Path = Path("/")) -> Iterator[Lease]:
    """Every file of a DHCP client that can be read, the last written first, at most FILES_MAX."""
    found: list[tuple[float, Path]] = []
    for pattern in LEASE_FILES:
        for path in root.glob(pattern):
            try:
                written = path.stat().st_mtime
            except OSError:  # gone in this instant, or in a folder of another user
                continue
            if path.is_file():
                found.append((written, path))
    for _, path in sorted(found, reverse=True)[:FILES_MAX]:
        try:
            text = _tail(path)
        except OSError:  # may be read by root only; there are other ways to find the endpoint
            continue
        yield Lease(path, address_in(text))


def address_in(text: str) -> str:
    """The address in option 245 of the last lease in a text of any of these forms, or empty."""
    values = [match[1] for match in _DHCLIENT.finditer(text)]
    values += [match[1] for match in _ASSIGNED.finditer(text)]
    if text.lstrip().startswith("{"):
        values += _in_json(text)
    for value in reversed(values):
        address = read_address(value)
        if address:
            return address
    return ""


def read_address(value: str) -> str:
    """`a8:3f:81:10`, `a83f8110`, `168.63.129.16`, or four characters in quotes; else empty."""
    bare = value.strip()
    quoted = len(bare) >= 2 and bare[0] == bare[-1] and bare[0] in "\"'"
    if quoted:
        bare = bare[1:-1]
    if _PAIRS.fullmatch(bare):
        pairs = bare.split(":") if ":" in bare else re.findall("..", bare)
        return usable(bytes(int(pair, 16) for pair in pairs))
    try:
        return usable(ipaddress.IPv4Address(bare).packed)
    except ValueError:
        pass
    if not quoted:
        return ""
    raw = _ESCAPED.sub(_unescaped, bare)
    return usable(raw.encode("latin-1", "replace")) if len(raw) == 4 else ""


def usable(packed: bytes) -> str:
    """Four bytes as an address that can be asked, or empty."""
    if len(packed) != 4:
        return ""
    address = ipaddress.IPv4Address(packed)
    if address.is_unspecified or address.is_multicast or address.is_reserved:
        return ""
    return str(address)


def _unescaped(match: re.Match[str]) -> str:
    said = match[1]
    return chr(int(said, 8) & 0xFF) if len(said) == 3 else said


def _in_json(text: str) -> list[str]:
    try:
        content: Any = json.loads(text)
    except (ValueError, RecursionError):
        return []
    if not isinstance(content, dict):
        return []
    wanted = {name.lower() for name in NAMES}
    return [
        value
        for name, value in content.items()
        if name.lower().removeprefix("dhcp4_").removeprefix("new_") in wanted
        and isinstance(value, str)
    ]


def _tail(path: Path) -> str:
    """The end of a file: a lease file grows, and the newest lease is the last."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(size - LEASE_BYTES_MAX, 0))
        return file.read(LEASE_BYTES_MAX).decode("latin-1")
