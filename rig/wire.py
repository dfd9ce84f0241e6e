"""The network between the machines of the rig: a bridge in a cell of its own, which can be cut.

The bridges of VMs are not on it: each hypervisor has its own, and what a guest asks at the endpoint
can only be answered by the host it runs on.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from rig.cells import COMMAND_LIMIT_S, Cell, CommandFailed, environment
from rig.needs import program

ADDRESSES = {"control": "192.0.2.1", "h1": "192.0.2.11", "h2": "192.0.2.12"}
BRIDGE = "wire"
_CUTS = """\
table bridge cuts
delete table bridge cuts
table bridge cuts {{
  chain forward {{
    type filter hook forward priority 0; policy accept;
{rules}
  }}
}}
"""


class Wire:
    """A cable from every machine to one switch."""

    def __init__(self, folder: Path) -> None:
        self.cell = Cell("wire", folder, {})
        self._cuts: set[frozenset[str]] = set()

    def power_on(self) -> None:
        """Start the switch; nothing is plugged in yet."""
        self.cell.power_on()
        self.cell.run("ip", "link", "add", BRIDGE, "type", "bridge")
        self.cell.run("ip", "link", "set", BRIDGE, "up")

    def plug(self, cell: Cell) -> None:
        """Give a machine that was just switched on its interface `eth0` and its address."""
        port = _port(cell.name)
        self.cell.run("ip", "link", "delete", port, check=False)  # of a machine that was cut off
        _run_here(
            *("ip", "link", "add", port, "netns", str(self.cell.pid), "type", "veth"),
            *("peer", "name", "eth0", "netns", str(cell.pid)),
        )
        self.cell.run("ip", "link", "set", port, "master", BRIDGE, "up")
        cell.run("ip", "address", "add", f"{ADDRESSES[cell.name]}/24", "dev", "eth0")
        cell.run("ip", "link", "set", "eth0", "up")

    def cut(self, one: str, other: str) -> None:
        """Nothing passes between two machines any more, until it is mended."""
        self._cuts.add(frozenset((one, other)))
        self._apply()

    def mend(self, one: str, other: str) -> None:
        """The two machines reach each other again."""
        self._cuts.discard(frozenset((one, other)))
        self._apply()

    def mend_all(self) -> None:
        """Nothing is cut any more."""
        if self._cuts:
            self._cuts.clear()
            self._apply()

    def _apply(self) -> None:
        pairs = sorted(tuple(sorted(pair)) for pair in self._cuts)
        rules = [
            f'    iifname "{_port(a)}" oifname "{_port(b)}" drop'
            for one, other in pairs
            for a, b in ((one, other), (other, one))
        ]
        self.cell.run("nft", "-f", "-", given=_CUTS.format(rules="\n".join(rules)))


def _port(machine: str) -> str:
    return f"to-{machine}"


def _run_here(*words: str) -> None:
    done = subprocess.run(
        [program(words[0]), *words[1:]],
        capture_output=True,
        text=True,
        timeout=COMMAND_LIMIT_S,
        check=False,
        env=environment(),
    )
    if done.returncode != 0:
        raise CommandFailed(f"{' '.join(words)}: {done.stderr.strip()}")
