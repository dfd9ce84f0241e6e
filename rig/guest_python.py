"""A Python and the guest agent, as files of an image: what the agent imports, and no more.

The Python is the system's own. Modules go in compiled, because compiling them takes a guest under
TCG longer than it takes to boot. Nothing here knows of archives.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rig.needs import CannotBuild, program

AGENT = Path(__file__).resolve().parents[1] / "guest" / "src"
COMMAND = "usr/bin/python3"
LIBRARY = "usr/lib/forewarn-guest"
LIMIT_S = 120

# Run by the Python that goes into the image, which knows where its own modules are. Prints the
# modules and the shared objects that the agent can import, and compiles the first into a folder.
_FIND = """
import json, modulefinder, pathlib, py_compile, sys, sysconfig

agent, folder = map(pathlib.Path, sys.argv[1:])
sys.path.insert(0, str(agent))
finder = modulefinder.ModuleFinder(excludes=["test", "tkinter", "unittest", "pydoc", "doctest"])
for file in sorted((agent / "forewarn_guest").rglob("*.py")):
    words = file.relative_to(agent).with_suffix("").parts
    finder.import_hook(".".join(words[:-1] if words[-1] == "__init__" else words))
for name in ("utf_8", "ascii", "latin_1", "idna"):
    finder.import_hook(f"encodings.{name}")
for name in ("site", "runpy"):
    finder.import_hook(name)
stdlib = pathlib.Path(sysconfig.get_path("stdlib"))
as_is = py_compile.PycInvalidationMode.UNCHECKED_HASH
shared = []
for name, module in finder.modules.items():
    if name == "__main__" or not module.__file__:
        continue
    file = pathlib.Path(module.__file__)
    if file.suffix != ".py":
        shared.append(str(file))
        continue
    below = file.relative_to(agent if agent in file.parents else stdlib)
    kept = folder / (("agent/" if agent in file.parents else "stdlib/") + str(below) + "c")
    kept.parent.mkdir(parents=True, exist_ok=True)
    py_compile.compile(str(file), str(kept), str(below), doraise=True, invalidation_mode=as_is)
print(json.dumps({"stdlib": str(stdlib), "shared": sorted(shared)}))
"""


def files() -> dict[str, bytes]:
    """Everything by its path in the image, without a leading slash. Raises CannotBuild.

    `COMMAND` runs the agent's Python there, with the folder LIBRARY on its PYTHONPATH.
    """
    python = Path(program("python3")).resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words = [str(python), "-I", "-c", _FIND, str(AGENT), str(folder)]
        found = json.loads(_said(words))
        stdlib = found["stdlib"].lstrip("/")
        kept = {
            f"{LIBRARY}/{file.relative_to(folder / 'agent')}": file.read_bytes()
            for file in sorted((folder / "agent").rglob("*.pyc"))
        } | {
            f"{stdlib}/{file.relative_to(folder / 'stdlib')}": file.read_bytes()
            for file in sorted((folder / "stdlib").rglob("*.pyc"))
        }
    kept[COMMAND] = python.read_bytes()
    shared = [Path(one) for one in found["shared"]]
    kept |= {_place(one): one.read_bytes() for one in shared}
    for one in dict.fromkeys(needed for file in [python, *shared] for needed in _needs(file)):
        kept[_place(one)] = one.read_bytes()
    return kept


def _needs(file: Path) -> Iterator[Path]:
    """The shared libraries that a file is loaded with, and what loads them."""
    for found in re.finditer(r"(/\S+) \(0x", _said([program("ldd"), str(file)])):
        yield Path(found[1])


def _place(file: Path) -> str:
    return str(file).lstrip("/")


def _said(words: list[str]) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode:
        raise CannotBuild(f"{words[0]} says of the guest's Python: {done.stderr.strip()}")
    return done.stdout
