"""`python -m bundle` writes `dist/forewarn-VERSION-ABI.pyz`: one file to download and run.

A Python with the right ABI is all it needs: no installer, no network. It is a zip application that
unpacks itself once (`start/forewarn_unpack.py`), since uvloop, httptools and msgspec are native and
cannot be imported from inside a zip. It carries compiled code, so that the first start is as quick
as any. The same sources and packages give the same file, to the byte.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import sys
import sysconfig
import zipfile
from pathlib import Path

from bundle import contents

START = Path(__file__).parent / "start"
SHEBANG = b"#!/usr/bin/env python3\n"
NO_TIME = (1980, 1, 1, 0, 0, 0)  # the first that a zip can say; the real one would differ each time
READABLE = 0o644 << 16
EXECUTABLE = 0o755


def build(folder: Path) -> Path:
    """Write the file into the folder; where it is. Raises contents.NotInstalled."""
    files = dict(sorted(contents.files()))
    files |= contents.compiled(files)
    version, _ = contents.project()
    abi = str(sysconfig.get_config_var("SOABI"))
    about = {
        "version": version,
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "abi": abi,
        "machine": platform.machine(),
        "content": f"{version}-{_mark(files, abi)}",
    }
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"forewarn-{version}-{_platform(abi)}.pyz"
    unfinished = target.with_suffix(".unfinished")
    with unfinished.open("wb") as opened:
        opened.write(SHEBANG)
        with zipfile.ZipFile(opened, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in ("__main__.py", "forewarn_unpack.py"):
                _add(archive, name, (START / name).read_bytes())
            _add(archive, "build.json", json.dumps(about, indent=2).encode())
            for name, data in files.items():
                _add(archive, f"site/{name}", data)
    unfinished.chmod(EXECUTABLE)
    return unfinished.replace(target)


def _platform(abi: str) -> str:
    """The ABI, which names Python, machine and C library; on a Mac it leaves out the machine."""
    machine = platform.machine()
    return abi if machine in abi else f"{abi}-{machine}"


def _mark(files: dict[str, bytes], abi: str) -> str:
    """A name for exactly these files."""
    digest = hashlib.sha256(abi.encode())
    for name, data in files.items():
        digest.update(f"\n{name} {len(data)}\n".encode())
        digest.update(data)
    return digest.hexdigest()[:32]


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    entry = zipfile.ZipInfo(name, NO_TIME)
    entry.external_attr = READABLE
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, data)


def main() -> None:
    """Build it, and say where it is."""
    parser = argparse.ArgumentParser(prog="python -m bundle", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=contents.ROOT / "dist", metavar="DIR")
    try:
        target = build(parser.parse_args().out)
    except contents.NotInstalled as why:
        raise SystemExit(f"bundle: {why}") from None
    sys.stdout.write(f"{target} ({target.stat().st_size / 1_048_576:.1f} MiB)\n")


if __name__ == "__main__":
    main()
