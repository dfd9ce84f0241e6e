"""What guests boot: the kernel of a Debian package and an initramfs made on the spot.

The initramfs holds busybox, `guest_init.sh` and a few modules, as an archive in the kernel's own
format (newc).
"""

from __future__ import annotations

import lzma
import stat
from dataclasses import dataclass
from pathlib import Path

from rig.needs import CannotBuild, kernel, program

# In the order they are loaded. A network card, and the power button.
MODULES = (
    *("virtio", "virtio_ring", "virtio_pci_modern_dev", "virtio_pci_legacy_dev", "virtio_pci"),
    *("failover", "net_failover", "virtio_net", "button", "evdev"),
)


@dataclass(frozen=True, slots=True)
class GuestImage:
    """Files that every hypervisor can read."""

    kernel: Path
    initramfs: Path


def build(folder: Path) -> GuestImage:
    """Write kernel and initramfs into the folder. CannotBuild if a piece of it is missing."""
    vmlinuz, modules = kernel()
    archive = _Archive()
    archive.folder("bin")
    archive.file("bin/busybox", Path(program("busybox")).read_bytes(), 0o755)
    archive.link("bin/sh", "busybox")
    archive.folder("dev")
    archive.console("dev/console")
    archive.file("init", Path(__file__).with_name("guest_init.sh").read_bytes(), 0o755)
    archive.folder("modules")
    loaded = [(f"{name}.ko", _module(modules, name)) for name in MODULES]
    present = [(name, content) for name, content in loaded if content is not None]
    for name, content in present:
        archive.file(f"modules/{name}", content, 0o644)
    archive.file("modules/order", "\n".join(name for name, _ in present).encode() + b"\n", 0o644)
    image = GuestImage(folder / "vmlinuz", folder / "initramfs")
    image.kernel.write_bytes(vmlinuz.read_bytes())
    image.initramfs.write_bytes(archive.whole())
    return image


def _module(folder: Path, name: str) -> bytes | None:
    """A module's file; None if it is part of this kernel itself."""
    found = sorted((folder / "kernel").rglob(f"{name}.ko*"))
    if not found:
        built_in = (folder / "modules.builtin").read_text(encoding="utf-8")
        if f"/{name}.ko" in built_in:
            return None
        raise CannotBuild(
            f"The kernel of {folder} has no module {name}; use a Debian cloud kernel."
        )
    content = found[0].read_bytes()
    return lzma.decompress(content) if found[0].suffix == ".xz" else content


class _Archive:
    """A cpio archive in the format newc."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._count = 0

    def folder(self, name: str) -> None:
        self._add(name, stat.S_IFDIR | 0o755, b"")

    def file(self, name: str, content: bytes, mode: int) -> None:
        self._add(name, stat.S_IFREG | mode, content)

    def link(self, name: str, to: str) -> None:
        self._add(name, stat.S_IFLNK | 0o777, to.encode())

    def console(self, name: str) -> None:
        self._add(name, stat.S_IFCHR | 0o600, b"", device=(5, 1))

    def whole(self) -> bytes:
        self._add("TRAILER!!!", 0, b"")
        return b"".join(self._parts)

    def _add(
        self, name: str, mode: int, content: bytes, *, device: tuple[int, int] = (0, 0)
    ) -> None:
        self._count += 1
        encoded = name.encode() + b"\0"
        fields = [self._count, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(encoded), 0]
        head = b"070701" + b"".join(b"%08X" % field for field in fields) + encoded
        self._parts += [_padded(head), _padded(content)]


def _padded(content: bytes) -> bytes:
    return content + b"\0" * (-len(content) % 4)
