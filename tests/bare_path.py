"""Fills a folder with links to the commands that a bare Debian has: a PATH for `make test-bare`.

Bare is what every Debian has (packages of priority "required"), make, git, and a Python with venv:
what the README asks for. dpkg says which commands these are, so this runs on Debian only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

TAKES_FIRST = ("git", "make")
COMMAND_FOLDERS = ("/bin/", "/sbin/", "/usr/bin/", "/usr/sbin/")
# Chosen by Debian's alternatives, so no package lists it.
ALTERNATIVES = ("awk",)
# Every Debian has these, but many machines do not let them make a namespace.
HIDDEN = frozenset({"unshare", "nsenter"})


def required() -> list[str]:
    """The packages that every Debian has."""
    told = subprocess.run(
        ["dpkg-query", "-W", "-f=${Priority} ${binary:Package}\n"],
        capture_output=True,
        text=True,
        check=True,
    )
    pairs = (line.split() for line in told.stdout.splitlines())
    return [package for priority, package in pairs if priority == "required"]


def commands(packages: list[str]) -> list[Path]:
    """The commands of these packages that are here."""
    told = subprocess.run(["dpkg", "-L", *packages], capture_output=True, text=True, check=True)
    listed = (Path(line) for line in told.stdout.splitlines() if line.startswith(COMMAND_FOLDERS))
    return [path for path in listed if path.is_file() and os.access(path, os.X_OK)]


def main(folder: Path) -> None:
    """Make the folder, which must not be there yet."""
    if shutil.which("dpkg-query") is None:
        raise SystemExit("make test-bare needs Debian: dpkg says which commands a bare one has.")
    folder.mkdir(parents=True)
    found = {path.name: path for path in commands([*required(), *TAKES_FIRST])}
    found |= {name: Path(place) for name in ALTERNATIVES if (place := shutil.which(name))}
    found["python3"] = Path(os.path.realpath(sys.executable))
    for name, path in found.items():
        if name not in HIDDEN:
            (folder / name).symlink_to(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
