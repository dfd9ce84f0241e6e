"""Guests as libvirt is told of them."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from rig.guest_image import GuestImage

MEMORY_MIB = 96
AGENT_MEMORY_MIB = 192
METADATA = "urn:forewarn:vm:1"
# Names become ids and MAC addresses the same way each time.
_NAMES = uuid.UUID("6f0f3c1a-6a54-4c39-9d2b-5a3f2d2f7a10")


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    """One VM of the rig. `number` gives its address; `traits` are attributes of its metadata.

    One with an `agent` has a Python and the guest agent, which prepares, approves and recovers.
    """

    name: str
    number: int
    approves: bool = False
    ignores_acpi: bool = False
    agent: bool = False
    traits: dict[str, str] = field(default_factory=dict)

    @property
    def vm_id(self) -> str:
        return str(uuid.uuid5(_NAMES, self.name))

    @property
    def mac(self) -> str:
        return f"52:54:00:aa:{self.number >> 8:02x}:{self.number & 0xFF:02x}"

    @property
    def address(self) -> str:
        return f"198.51.100.{self.number}"


def definition(guest: Guest, image: GuestImage, console: Path, *, kind: str = "qemu") -> str:
    """The domain's XML. Everything it names is at the same place on every hypervisor."""
    orders = f"fw.name={guest.name} fw.address={guest.address}"
    orders += f" fw.approve={'yes' if guest.approves else 'no'}"
    orders += f" fw.acpi={'ignore' if guest.ignores_acpi else 'react'}"
    orders += f" fw.agent={'yes' if guest.agent else 'no'}"
    traits = " ".join(f"{name}={quoteattr(value)}" for name, value in guest.traits.items())
    metadata = f'<forewarn:vm xmlns:forewarn="{METADATA}" {traits}/>' if traits else ""
    return f"""\
<domain type='{kind}'>
  <name>{escape(guest.name)}</name>
  <uuid>{guest.vm_id}</uuid>
  <metadata>{metadata}</metadata>
  <memory unit='MiB'>{AGENT_MEMORY_MIB if guest.agent else MEMORY_MIB}</memory>
  <vcpu>1</vcpu>
  <os>
    <type arch='x86_64' machine='pc'>hvm</type>
    <kernel>{image.kernel}</kernel>
    <initrd>{image.with_agent if guest.agent else image.initramfs}</initrd>
    <cmdline>console=ttyS0 quiet loglevel=0 panic=1 {orders}</cmdline>
  </os>
  <features><acpi/></features>
  <on_poweroff>destroy</on_poweroff>
  <on_reboot>restart</on_reboot>
  <on_crash>destroy</on_crash>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <controller type='usb' model='none'/>
    <interface type='bridge'>
      <mac address='{guest.mac}'/>
      <source bridge='br0'/>
      <model type='virtio'/>
    </interface>
    <serial type='file'><source path='{console}' append='on'/></serial>
    <memballoon model='none'/>
  </devices>
</domain>
"""
