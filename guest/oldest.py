"""Runs the guest's own tests on the oldest Python at hand that the package supports.

The package promises Python 3.9; what the developers have may be newer. The tests need nothing but
pytest and its plugins, in a virtual environment of their own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

OLDEST_MINOR, NEWEST_MINOR = 9, 14
HERE = Path(__file__).resolve().parent
VENV = HERE.parent / ".venv-oldest"
LOOK_LIMIT_S = 20
PACKAGES = ("pytest>=8.3", "pytest-timeout>=2.3", "pytest-xdist>=3.6")
AT_ONCE = 4  # most of these tests wait for processes; two cores carry more of them than two


def candidates() -> Iterator[str]:
    """Pythons by name on the path, and those installed beside the one in use, oldest first."""
    beside = Path(sys.base_prefix).parent
    for minor in range(OLDEST_MINOR, NEWEST_MINOR + 1):
        found = shutil.which(f"python3.{minor}")
        if found:
            yield found
        yield from (str(python) for python in sorted(beside.glob(f"3.{minor}.*/bin/python")))
    yield sys.executable


def version_of(python: str) -> tuple[int, int] | None:
    """Major and minor; None for what does not start, like the shim of a missing Python."""
    ask = "import json, sys, venv, ensurepip; print(json.dumps(sys.version_info[:2]))"
    try:
        ran = subprocess.run(
            [python, "-c", ask], capture_output=True, check=True, timeout=LOOK_LIMIT_S
        )
        major, minor = json.loads(ran.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return int(major), int(minor)


def environment() -> Path:
    """A virtual environment of the oldest Python, made once."""
    known = ((python, version_of(python)) for python in candidates())
    usable = ((python, version) for python, version in known if version)
    python, version = next(found for found in usable if found[1] >= (3, OLDEST_MINOR))
    print(f"The guest's tests on Python {version[0]}.{version[1]}:", flush=True)
    own = VENV / "bin" / "python"
    if not own.exists() or version_of(str(own)) != version:
        subprocess.run([python, "-m", "venv", "--clear", str(VENV)], check=True)
    ready = VENV / ".ready"
    if not ready.exists():
        pip = [str(own), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *PACKAGES], check=True)
        ready.touch()
    return own


def main() -> int:
    """Run the tests; the exit status is pytest's."""
    python = environment()
    command = [str(python), "-m", "pytest", "-q", f"-n{AT_ONCE}", *sys.argv[1:]]
    # The package is not installed there; programs that the tests start must find it all the same.
    found = {**os.environ, "PYTHONPATH": str(HERE / "src")}
    ran = subprocess.run(command, cwd=HERE, env=found, check=False)
    return ran.returncode


if __name__ == "__main__":
    raise SystemExit(main())
