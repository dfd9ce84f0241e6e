"""Both distributions as their users get them: built, and installed where nothing else is.

Nothing is downloaded. What they need is packed into wheels again from what `make install` has put
here, so that pip resolves what the metadata says, in an environment that has nothing but pip.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from importlib.metadata import Distribution
from pathlib import Path

from bundle.contents import needed

from support.shipping_world import ROOT

BUILD_LIMIT_S = 300  # only ends a hang
PROJECTS = (ROOT, ROOT / "guest")


def build(folder: Path) -> list[Path]:
    """The wheel and the sdist of both distributions."""
    for project in PROJECTS:
        command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel"]
        ran([*command, "-d", str(folder)], folder=project)
    return sorted(folder.iterdir())


def pack(requirements: Sequence[str], folder: Path) -> None:
    """What the requirements come to, as wheels."""
    for found in needed(requirements):
        _pack(found, folder)


def _pack(found: Distribution, folder: Path) -> None:
    """The installed files of a distribution as a wheel; scripts are made anew by the installer."""
    about = str(found.read_text("WHEEL"))
    tags = [line.split(": ", 1)[1] for line in about.splitlines() if line.startswith("Tag: ")]
    name = found.metadata["Name"].replace("-", "_").replace(".", "_").lower()
    files = [file for file in found.files or () if ".." not in file.parts and file.suffix != ".pyc"]
    record = next(file for file in files if file.name == "RECORD")
    wheel = folder / f"{name}-{found.version}-{'-'.join(_merged(tags))}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        kept = [file for file in files if file.name not in ("RECORD", "INSTALLER", "REQUESTED")]
        for file in kept:
            archive.write(str(found.locate_file(file)), file.as_posix())
        lines = [f"{file.as_posix()},," for file in kept]
        archive.writestr(record.as_posix(), "\n".join([*lines, f"{record.as_posix()},,", ""]))


def _merged(tags: Sequence[str]) -> list[str]:
    """The three parts of a wheel's name from the tags in it, each with its alternatives."""
    parts = zip(*(tag.split("-") for tag in tags), strict=True)
    return [".".join(dict.fromkeys(part)) for part in parts]


def clean_environment(folder: Path) -> Path:
    """The `bin` of a new virtual environment that has pip and nothing else."""
    ran([sys.executable, "-m", "venv", str(folder)], folder=folder.parent)
    return folder / "bin"


def offline(wheels: Path) -> dict[str, str]:
    """What has pip take these wheels, and ask no other place."""
    return {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheels),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }


def ran(command: Sequence[str], *, folder: Path, **more: str) -> str:
    """What a command printed. It must end well."""
    done = subprocess.run(
        list(command),
        cwd=folder,
        env={**os.environ, **more},
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_LIMIT_S,
    )
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout
