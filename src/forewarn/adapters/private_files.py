"""Files that only their owner may read, replaced whole or not at all, and durable when written."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def write_private(path: Path, content: bytes) -> None:
    """Replace a file that only its owner may read. Durable when it returns. Raises OSError.

    A kill at any moment leaves the old file or the new one, never half of either. What root
    writes belongs to the owner of the folder.
    """
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        # A new file: never one that another user put there to read it, nor the target of a link.
        scratch.unlink(missing_ok=True)
        made = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(made, "wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
        leave_to_owner(scratch)
        scratch.replace(path)
        sync_folder(path.parent)
    except OSError:
        with suppress(OSError):  # what cannot be removed is not ours
            scratch.unlink()
        raise


def leave_to_owner(path: Path) -> None:
    """Give what root has made in a folder to the owner of the folder, whose service must use it."""
    if os.geteuid() == 0:
        folder = path.parent.stat()
        os.chown(path, folder.st_uid, folder.st_gid, follow_symlinks=False)


def sync_file(path: Path) -> None:
    """Have the content of a file survive the loss of power."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def sync_folder(folder: Path) -> None:
    """Have the names in a folder survive the loss of power."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def make_private_folder(folder: Path) -> None:
    """Have a folder that only its owner may enter. Raises OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    sync_folder(folder.parent)
