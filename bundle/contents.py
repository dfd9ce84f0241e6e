"""Which files go into the file: Forewarn from the sources, and what it needs from this Python.

Nothing is downloaded: `make install` has put the pinned packages where this Python finds them.
"""

from __future__ import annotations

import py_compile
import re
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import cache_from_source
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
OWN = ROOT / "src"

# What only the installer reads, or a compiler; and byte code, which `compiled` makes anew.
_LEFT_OUT = frozenset({"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"})
_SUFFIXES_LEFT_OUT = frozenset({".pyc", ".pyx", ".pxd", ".c", ".h", ".pyi"})


class NotInstalled(Exception):  # noqa: N818 - says what is the case
    """A package that Forewarn needs is not there."""


def project() -> tuple[str, list[str]]:
    """The version, where pyproject.toml says that it is written, and the requirements."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    source = (ROOT / table["tool"]["hatch"]["version"]["path"]).read_text("utf-8")
    (version,) = re.findall(r'^__version__ = "(.+)"$', source, re.MULTILINE)
    return version, [str(one) for one in table["project"]["dependencies"]]


def files() -> Iterator[tuple[str, bytes]]:
    """Every file by its path as Python will import it. Raises NotInstalled."""
    version, requirements = project()
    for path in sorted(OWN.rglob("*")):
        if path.is_file() and not _left_out(path):
            yield path.relative_to(OWN).as_posix(), path.read_bytes()
    about = f"Metadata-Version: 2.1\nName: forewarn\nVersion: {version}\n"
    yield f"forewarn-{version}.dist-info/METADATA", about.encode()
    yield f"forewarn-{version}.dist-info/LICENSE", (ROOT / "LICENSE").read_bytes()
    for found in needed(requirements):
        yield from _files_of(found)


def needed(requirements: Iterable[str]) -> list[Distribution]:
    """The packages that the requirements come to on this Python, by name. Raises NotInstalled."""
    found: dict[str, Distribution] = {}
    left = [Requirement(text) for text in requirements]
    while left:
        wanted = left.pop()
        name = canonicalize_name(wanted.name)
        if name in found or not _meant(wanted):
            continue
        try:
            found[name] = distribution(wanted.name)
        except PackageNotFoundError:
            raise NotInstalled(
                f"{wanted.name} is not installed here; run `make install`."
            ) from None
        left += [Requirement(text) for text in found[name].requires or ()]
    return [found[name] for name in sorted(found)]


def _meant(wanted: Requirement) -> bool:
    """False for what another platform needs, and for extras, of which Forewarn asks for none."""
    return wanted.marker is None or wanted.marker.evaluate({"extra": ""})


def _files_of(found: Distribution) -> Iterator[tuple[str, bytes]]:
    for file in sorted(found.files or ()):
        path = Path(str(found.locate_file(file)))
        if ".." in file.parts or _left_out(path):  # `..` leads to scripts, outside of packages
            continue
        yield file.as_posix(), path.read_bytes()


def _left_out(path: Path) -> bool:
    return (
        "__pycache__" in path.parts or path.suffix in _SUFFIXES_LEFT_OUT or path.name in _LEFT_OUT
    )


def compiled(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The byte code of every module, by the path at which this Python looks for it.

    Python takes it without a look at the source: both come from one file. What does not compile
    (a template, a test of old syntax) goes without.
    """
    found: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "one.pyc"
        for name, data in files.items():
            if not name.endswith(".py"):
                continue
            source = Path(folder) / "one.py"
            source.write_bytes(data)
            try:
                py_compile.compile(
                    str(source),
                    cfile=str(target),
                    dfile=name,
                    doraise=True,
                    invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
                )
            except py_compile.PyCompileError:
                continue
            found[cache_from_source(name)] = target.read_bytes()
    return found
