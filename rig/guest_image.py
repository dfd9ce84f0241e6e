"""What guests boot: the kernel of a Debian package and an initramfs made on the spot.

The initramfs holds busybox, `guest_init.sh` and a few modules, as an archive in the kernel's own
format (newc).
"""

from __future__ import annotations

import lzma
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from rig import guest_python
from rig.needs import CannotBuild, kernel, program

# A network card, and the power button. What they need is loaded before them.
MODULES = ("virtio_pci", "virtio_net", "button", "evdev")


@dataclass(frozen=True, slots=True)
class GuestImage:
    """Files that every hypervisor can read."""

    kernel: Path
    initramfs: Path
    with_agent: Path  # an initramfs with a Python and the guest agent besides


def build(folder: Path) -> GuestImage:
    """Write kernel and initramfs into the folder. CannotBuild if a piece of it is missing."""
    vmlinuz, modules = kernel()
    image = GuestImage(folder / "vmlinuz", folder / "initramfs", folder / "initramfs-agent")
    image.kernel.write_bytes(vmlinuz.read_bytes())
    image.initramfs.write_bytes(_basic(modules).whole())
    archive = _basic(modules)
    for name, content in guest_python.files().items():
        archive.folders_above(name)
        archive.file(name, content, 0o755)
    image.with_agent.write_bytes(archive.whole())
    return image


def _basic(modules: Path) -> _Archive:
    archive = _Archive()
    archive.folder("bin")
    archive.file("bin/busybox", Path(program("busybox")).read_bytes(), 0o755)
    archive.link("bin/sh", "busybox")
    archive.folder("dev")
    archive.console("dev/console")
    archive.file("init", Path(__file__).with_name("guest_init.sh").read_bytes(), 0o755)
    archive.folder("modules")
    order = load_order(modules, MODULES)
    for file in order:
        archive.file(f"modules/{_plain(file)}", _content(modules / file), 0o644)
    names = "".join(f"{_plain(file)}\n" for file in order)
    archive.file("modules/order", names.encode(), 0o644)
    return archive


def load_order(folder: Path, wanted: Sequence[str]) -> list[str]:
    """The files of these modules and of all that they need, each after what it needs.

    Which module needs which differs between kernels of the same version: `modules.dep` of the
    folder says it. What is part of the kernel itself is left out. Raises CannotBuild.
    """
    needs: dict[str, list[str]] = {}
    for line in (folder / "modules.dep").read_text(encoding="utf-8").splitlines():
        file, _, others = line.partition(":")
        needs[file] = others.split()
    files = {_plain(file): file for file in needs}
    built_in = (folder / "modules.builtin").read_text(encoding="utf-8")
    order: dict[str, None] = {}
    for name in wanted:
        found = files.get(f"{name}.ko")
        if found is not None:
            # modprobe loads them so: the last of the list first.
            order.update(dict.fromkeys([*reversed(needs[found]), found]))
        elif f"/{name}.ko" not in built_in:
            raise CannotBuild(
                f"The kernel of {folder} has no module {name}; use a Debian cloud kernel."
            )
    return list(order)


def _plain(file: str) -> str:
    """The name of a module's file, unpacked."""
    return Path(file).name.removesuffix(".xz")


def _content(file: Path) -> bytes:
    content = file.read_bytes()
    return lzma.decompress(content) if file.suffix == ".xz" else content


class _Archive:
    """A cpio archive in the format newc."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._folders: set[str] = set()
        self._count = 0

    def folder(self, name: str) -> None:
        self._folders.add(name)
        self._add(name, stat.S_IFDIR | 0o755, b"")

    def folders_above(self, name: str) -> None:
        """The folders that a file needs and that are not there yet, the outermost first."""
        for above in reversed(PurePosixPath(name).parents[:-1]):
            if str(above) not in self._folders:
                self.folder(str(above))

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
