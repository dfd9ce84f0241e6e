"""The operator API on a Unix socket: how an operator on the same machine gets in.

The socket lies in a folder that only the service's user may write to and its group may enter, so
no other program can stand in its place, and it is let in by what the kernel says of the caller.
"""

from __future__ import annotations

import fcntl
import os
import socket
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

from starlette.applications import Starlette

from forewarn.adapters.shared_folders import refuse_shared_folder
from forewarn.api.guarded_server import GuardedServer
from forewarn.api.socket_protocol import SocketProtocol
from forewarn.host.listeners import ListenFailed
from forewarn.settings import Settings
from forewarn.unix_sockets import short_path
from forewarn.wiring.operator_server import operator_config, running

FOLDER_MODE = 0o750
SOCKET_MODE = 0o660
# Where the settings let in members of other groups too: the kernel says who connects.
OPEN_FOLDER_MODE = 0o755
OPEN_SOCKET_MODE = 0o666
BACKLOG = 128


@asynccontextmanager
async def serving_socket(app: Starlette, settings: Settings) -> AsyncIterator[Path]:
    """Serve the operator API on the socket of the settings; yields its path.

    Where that is outside of the data folder, a link at the usual place in the data folder leads to
    it. Raises ListenFailed or FolderUnusable. The caller holds the lock of the data folder.
    """
    path, usual = settings.operator_socket, settings.folder().usual_socket
    with _bound(path, is_open=bool(settings.socket_groups)) as sock, _link(usual, to=path):
        async with running(GuardedServer(operator_config(app, SocketProtocol)), sock):
            yield path


@contextmanager
def _bound(path: Path, *, is_open: bool) -> Iterator[socket.socket]:
    """A listening socket at this path, and at the end nothing there. What a kill left is replaced.

    `is_open`: any user may connect, and is let in or not by what the kernel says. The new socket
    comes under another name and is renamed, so that no moment has half of it.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    scratch = path.with_name(f".{path.name}.new")
    lock = -1
    try:
        _make_folder(path.parent, OPEN_FOLDER_MODE if is_open else FOLDER_MODE)
        lock = _lock(path)
        _need_room(path)
        scratch.unlink(missing_ok=True)
        with short_path(scratch) as short:
            sock.bind(short)
        scratch.chmod(OPEN_SOCKET_MODE if is_open else SOCKET_MODE)
        sock.listen(BACKLOG)
        scratch.replace(path)
    except OSError as error:
        with suppress(OSError):  # what cannot be removed is not ours
            scratch.unlink(missing_ok=True)
        _close(sock, lock)
        raise _failed(path, error.strerror or str(error)) from error
    except BaseException:
        _close(sock, lock)
        raise
    try:
        yield sock
    finally:
        with suppress(OSError):  # gone with its folder
            path.unlink()
        _close(sock, lock)


def _make_folder(folder: Path, mode: int = FOLDER_MODE) -> None:
    """Have a folder that the group, or every user, may enter and only its owner may write to."""
    try:
        folder.mkdir(mode=mode)
    except FileExistsError:
        refuse_shared_folder(folder)
    else:
        folder.chmod(mode)  # the umask may have taken the others' rights


def _lock(path: Path) -> int:
    """Keep a service with another data folder from taking the same socket. Raises ListenFailed."""
    lock = os.open(
        path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
    )
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise _failed(path, "another service has it") from None
    return lock


def _need_room(path: Path) -> None:
    """Refuse to put the socket in the place of anything but a socket, or a link to one."""
    with suppress(FileNotFoundError):
        mode = path.lstat().st_mode
        if not stat.S_ISSOCK(mode) and not stat.S_ISLNK(mode):
            raise _failed(path, "there is something else")


def _close(sock: socket.socket, lock: int) -> None:
    sock.close()
    if lock >= 0:
        os.close(lock)


@contextmanager
def _link(usual: Path, *, to: Path) -> Iterator[None]:
    """Have the usual place lead to a socket that is elsewhere."""
    if usual == to:
        yield
        return
    scratch = usual.with_name(f".{usual.name}.new")
    try:
        _make_folder(usual.parent)
        _need_room(usual)
        scratch.unlink(missing_ok=True)
        scratch.symlink_to(to)
        scratch.replace(usual)
    except OSError as error:
        with suppress(OSError):  # what cannot be removed is not ours
            scratch.unlink(missing_ok=True)
        raise _failed(usual, error.strerror or str(error)) from error
    try:
        yield
    finally:
        with suppress(OSError):  # gone with its folder
            usual.unlink()


def _failed(path: Path, why: str) -> ListenFailed:
    return ListenFailed(
        f"Cannot open the operator's socket {path}: {why}. The setting `socket` (FOREWARN_SOCKET)"
        " says where it is; its folder must be one that only the user of this process may write."
    )
