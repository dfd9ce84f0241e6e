"""Unix sockets by their path, however long the path is. Only finding and connecting live here."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PATH_BYTES_MAX = 100  # the kernel takes 107 on Linux and 103 on macOS
LOOK_TIMEOUT_S = 2.0  # how long `why_not` waits for a service that does not accept
_DESCRIPTORS = Path("/proc/self/fd")


@contextmanager
def short_path(path: Path) -> Iterator[str]:
    """A path to the same socket that the kernel takes, for this block. Raises OSError.

    Where the path is too long, it leads through a descriptor of its folder; macOS has no such way.
    """
    if len(os.fsencode(path)) <= PATH_BYTES_MAX:
        yield str(path)
        return
    if not _DESCRIPTORS.is_dir():
        raise OSError(
            errno.ENAMETOOLONG, f"the path has more than {PATH_BYTES_MAX} bytes", str(path)
        )
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"{_DESCRIPTORS}/{folder}/{path.name}"
    finally:
        os.close(folder)


def connect(path: Path, *, timeout_s: float | None) -> socket.socket:
    """A connection to the socket. Raises OSError."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        with short_path(path) as short:
            connection.connect(short)
    except BaseException:
        connection.close()
        raise
    return connection


def why_not(path: Path) -> OSError | None:
    """Why this user cannot connect to the socket; None if a process listens there and lets in."""
    try:
        connect(path, timeout_s=LOOK_TIMEOUT_S).close()
    except OSError as error:
        return error
    return None
