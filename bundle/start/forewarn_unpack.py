"""Unpacks the file once, because native modules cannot be imported from inside a zip.

The folder is called after its content, belongs to the user alone, and appears whole or not at all:
two that start at once make the same folder, and the second one uses what the first one made.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PACKED = "site/"
UNFINISHED = ".unpacking-"
UNFINISHED_KEPT_S = 3_600  # long enough for a process that still unpacks


class CannotUnpack(Exception):  # noqa: N818 - says what is the case
    """There is no folder that this user alone can write to."""


def unpacked(archive: str, content: str) -> str:
    """The folder with the modules of the archive, unpacked if it is not there yet.

    Raises CannotUnpack, with a sentence, where nothing can be written.
    """
    refused = []
    for cache in _caches():
        whole = cache / content
        try:
            _own(cache)
            if not whole.is_dir():
                _unpack(Path(archive), whole)
            return str(whole / PACKED.rstrip("/"))
        except OSError as error:
            refused.append(f"{cache} ({error.strerror or error})")
    raise CannotUnpack(
        f"it must unpack itself once, and cannot write to {' nor '.join(refused)}; set"
        " XDG_CACHE_HOME to a folder that only you can write to."
    )


def _caches() -> Iterator[Path]:
    """Where it may be unpacked, best first."""
    said = os.environ.get("XDG_CACHE_HOME", "")
    with suppress(RuntimeError):  # no home at all, as for a number without a name in a container
        yield (Path(said) if Path(said).is_absolute() else Path.home() / ".cache") / "forewarn"
    yield Path(tempfile.gettempdir()) / f"forewarn-{os.geteuid()}"


def _own(cache: Path) -> None:
    """Have the folder. Raises OSError unless it is the user's own and no other user can write
    there: one who could, would decide what runs.
    """
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = cache.lstat()
    others = stat.S_IWGRP | stat.S_IWOTH
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & others:
        raise PermissionError(f"it is not a folder that only user {os.geteuid()} can write to")


def _unpack(archive: Path, whole: Path) -> None:
    _clear_unfinished(whole.parent)
    parts = Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=whole.parent))
    try:
        with zipfile.ZipFile(archive) as opened:
            names = [name for name in opened.namelist() if name.startswith(PACKED)]
            opened.extractall(parts, names)
        try:
            parts.rename(whole)
        except OSError:
            if not whole.is_dir():  # else another process was faster, with the same content
                raise
    finally:
        shutil.rmtree(parts, ignore_errors=True)


def _clear_unfinished(cache: Path) -> None:
    """Remove what a process began that was killed over it."""
    for left in cache.glob(f"{UNFINISHED}*"):
        with suppress(FileNotFoundError):
            if time.time() - left.stat().st_mtime > UNFINISHED_KEPT_S:
                shutil.rmtree(left, ignore_errors=True)
