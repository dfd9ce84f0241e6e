"""What this machine must have for the rig, and the words when it has not."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from pathlib import Path

# Programs, and the Debian package that has each.
PROGRAMS = {
    "busybox": "busybox-static",  # everything inside a guest
    "ip": "iproute2",  # the wire, bridges and addresses
    "ldd": "libc-bin",  # what the Python of a guest is loaded with
    "libvirtd": "libvirt-daemon-system",
    "nft": "nftables",  # cuts the wire; the host daemon's rules
    "nsenter": "util-linux",
    "python3": "python3-minimal",  # of the guest with the agent
    "qemu-system-x86_64": "qemu-system-x86",
    "setpriv": "util-linux",
    "unshare": "util-linux",
    "virsh": "libvirt-clients",
}
KERNEL_PACKAGE = "linux-image-cloud-amd64"
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class CannotBuild(Exception):  # noqa: N818 - says what is the case
    """The rig cannot be built here. The message says why and what to do."""


def program(name: str) -> str:
    """Where a program is. CannotBuild if it is not installed."""
    found = shutil.which(name, path=SEARCH_PATH)
    if found is None:
        raise CannotBuild(_install({PROGRAMS.get(name, name)}))
    return found


def kernel() -> tuple[Path, Path]:
    """A kernel that guests can boot and the folder with its modules, the newest cloud one first."""
    found = [
        (path, Path("/lib/modules") / path.name.removeprefix("vmlinuz-"))
        for path in Path("/boot").glob("vmlinuz-*")
    ]
    usable = [(path, modules) for path, modules in found if (modules / "modules.dep").is_file()]
    if not usable:
        raise CannotBuild(_install({KERNEL_PACKAGE}))
    return max(usable, key=lambda pair: ("cloud" in pair[0].name, _numbers(pair[0].name)))


def _numbers(name: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", name)]


def _install(packages: set[str]) -> str:
    names = " ".join(sorted(packages))
    return f"The rig needs Debian packages that are not here. Install them: apt-get install {names}"


def check() -> None:
    """Raises CannotBuild, with everything that is missing at once, if the rig cannot work here."""
    if os.geteuid() != 0:
        raise CannotBuild(
            "The rig makes network and mount namespaces and needs root; run it with sudo."
        )
    missing = {package for name, package in PROGRAMS.items() if not _installed(name)}
    try:
        kernel()
    except CannotBuild:
        missing.add(KERNEL_PACKAGE)
    if missing:
        raise CannotBuild(_install(missing))
    if importlib.util.find_spec("libvirt") is None:
        raise CannotBuild(
            "This .venv has no libvirt-python: it was made before libvirt's headers were here. "
            "Build it again: make clean install"
        )
    if not Path("/dev/net/tun").exists():
        raise CannotBuild(
            "There is no /dev/net/tun, which guests are plugged in with: modprobe tun"
        )


def _installed(name: str) -> bool:
    return shutil.which(name, path=SEARCH_PATH) is not None
