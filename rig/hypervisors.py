"""A hypervisor of the rig: a cell with a libvirtd of its own and a bridge for its VMs."""

from __future__ import annotations

import uuid
from pathlib import Path

from rig.cells import Cell, CommandFailed, Daemon
from rig.needs import program
from rig.waiting import wait_for
from rig.wire import ADDRESSES, Wire

VM_BRIDGE = "br0"
VM_GATEWAY = "198.51.100.1/24"
START_LIMIT_S = 30.0
_MIGRATIONS = ("ipproto", "tcp", "dport", "49152-49215", "prohibit")  # where libvirt sends them

_LIBVIRTD = """\
host_uuid = "{host_uuid}"
listen_tls = 0
listen_tcp = 1
listen_addr = "{address}"
auth_tcp = "none"
auth_unix_rw = "none"
log_outputs = "2:stderr"
"""
# No security drivers, control groups or helper daemons: the cell is the fence.
_QEMU = """\
security_driver = "none"
user = "root"
group = "root"
dynamic_ownership = 0
remember_owner = 0
cgroup_controllers = []
namespaces = []
stdio_handler = "file"
migration_host = "{address}"
keepalive_interval = 2
keepalive_count = 3
"""


class HypervisorCell:
    """One hypervisor. Its definitions outlive a power failure, as on a disk; its VMs do not."""

    def __init__(self, name: str, folder: Path, wire: Wire) -> None:
        self.name = name
        self.folder = folder
        self._wire = wire
        self.libvirtd: Daemon | None = None
        self.boot_id_file = folder / "boot_id"
        private = {
            folder / "etc": "/etc/libvirt",
            folder / "lib": "/var/lib/libvirt",
            folder / "cache": "/var/cache/libvirt",
            folder / "log": "/var/log/libvirt",
            folder / "hosts": "/etc/hosts",
        }
        self.cell = Cell(name, folder, private)
        for source in private:
            if source.name != "hosts":
                source.mkdir(parents=True)
        self._write_configuration()

    def _write_configuration(self) -> None:
        address = ADDRESSES[self.name]
        etc, host_uuid = self.folder / "etc", uuid.uuid4()
        (etc / "libvirtd.conf").write_text(_LIBVIRTD.format(address=address, host_uuid=host_uuid))
        (etc / "qemu.conf").write_text(_QEMU.format(address=address))
        lines = [f"{at} {name}" for name, at in ADDRESSES.items()]
        (self.folder / "hosts").write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))

    def power_on(self) -> None:
        """Boot: a new boot id, the network, libvirtd. VMs that were running are off."""
        self.boot_id_file.write_text(f"{uuid.uuid4()}\n")
        self.cell.power_on()
        self._wire.plug(self.cell)
        self.cell.run("ip", "link", "add", VM_BRIDGE, "type", "bridge")
        self.cell.run("ip", "address", "add", VM_GATEWAY, "dev", VM_BRIDGE)
        self.cell.run("ip", "link", "set", VM_BRIDGE, "up")
        self.start_libvirtd()

    def power_off(self) -> None:
        """Pull the plug."""
        self.cell.power_off()
        self.libvirtd = None

    def start_libvirtd(self) -> None:
        """Start libvirtd and wait until it answers."""
        daemon = self.cell.start(
            "libvirtd", [program("libvirtd"), "--listen"], log=self.folder / "libvirtd.log"
        )
        self.libvirtd = daemon

        def answers() -> bool:
            if not daemon.alive:
                raise CommandFailed(f"libvirtd of {self.name} has ended:\n{daemon.tail()}")
            try:
                self.virsh("uri", limit_s=5)
            except CommandFailed:
                return False
            return True

        wait_for(f"libvirtd of {self.name} answers", answers, within_s=START_LIMIT_S)

    def forbid_migrations(self) -> None:
        """No VM leaves: the ports where migrations come in are not reached from here."""
        self.cell.run("ip", "rule", "add", "priority", "1", *_MIGRATIONS)

    def allow_migrations(self) -> None:
        """VMs may leave again."""
        self.cell.run("ip", "rule", "delete", "priority", "1", *_MIGRATIONS, check=False)

    def virsh(self, *words: str, given: str = "", limit_s: float = 30.0) -> str:
        """What virsh says, without the newline at its end. CommandFailed with its words."""
        command = (program("virsh"), "--quiet", "--connect", "qemu:///system", *words)
        return self.cell.run(*command, given=given, limit_s=limit_s).strip()

    def define(self, definition: str, *, start: bool) -> None:
        """Make a VM of it."""
        self.virsh("define", "/dev/stdin", given=definition)
        if start:
            name = definition.partition("<name>")[2].partition("</name>")[0]
            self.virsh("start", name)

    def power_of(self, vm: str) -> str:
        """`running`, `paused`, `shut off` ..., or `absent`."""
        try:
            return self.virsh("domstate", vm)
        except CommandFailed as why:
            if "failed to get domain" in str(why):
                return "absent"
            raise

    def vms(self) -> dict[str, str]:
        """Every VM that is defined or running here, with its power."""
        names = self.virsh("list", "--all", "--name").split()
        return {name: self.power_of(name) for name in names}
