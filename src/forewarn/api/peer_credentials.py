"""Who is at the other end of a Unix socket, as the kernel says it, and who is let in by that.

Nothing that the peer sends is looked at: its user and groups are those of the process that
connected, at the moment it did.
"""

from __future__ import annotations

import os
import pwd
import socket
import struct
import sys
from contextlib import suppress
from typing import Protocol

from msgspec import Struct

PEER_KEY = "forewarn.peer"  # in the scope of a request that came by the socket, and of no other
ROOT = 0
GROUPS_BYTES_MAX = 1_024  # 256 groups, which is what Python reads at most
# Linux: struct ucred (pid, uid, gid), and the supplementary groups as an array.
_UCRED = struct.Struct("iII")
_SO_PEERGROUPS = 59
# macOS: struct xucred (version, uid, number of groups, groups; the first is the effective one).
_XUCRED = struct.Struct("IIh2x16I")
_SOL_LOCAL = 0
_LOCAL_PEERCRED = 1


class _Socket(Protocol):
    """What is needed of a socket; event loops hand out stand-ins for real ones."""

    def getsockopt(self, level: int, option: int, size: int, /) -> bytes: ...


class Peer(Struct, frozen=True):
    """The user and all groups of the process at the other end."""

    uid: int
    gids: frozenset[int]


UNKNOWN = Peer(-1, frozenset())  # who is never admitted


class Admission(Struct, frozen=True, kw_only=True):
    """Who may use the operator API by its socket: root, one user, and one group."""

    uid: int
    gid: int

    def admits(self, peer: Peer) -> bool:
        return peer.uid in (ROOT, self.uid) or self.gid in peer.gids


def of_this_process() -> Admission:
    """Root, the user who runs this process, and the group that it runs with."""
    return Admission(uid=os.geteuid(), gid=os.getegid())


def read_peer(connected: _Socket) -> Peer:
    """Who connected. Raises OSError where the kernel does not say it."""
    if sys.platform == "darwin":
        return peer_of_xucred(
            connected.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED.size),
        )
    _, uid, gid = _UCRED.unpack(
        connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    )
    return Peer(uid, frozenset({gid, *_supplementary(connected, uid, gid)}))


def peer_of_xucred(content: bytes) -> Peer:
    """The peer as macOS describes it. Raises OSError for what is too short."""
    if len(content) < _XUCRED.size:
        raise OSError("the kernel does not say who connected")
    _, uid, count, *groups = _XUCRED.unpack(content[: _XUCRED.size])
    return Peer(uid, frozenset(groups[: max(count, 0)]))


def _supplementary(connected: _Socket, uid: int, gid: int) -> tuple[int, ...]:
    try:
        content = connected.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, GROUPS_BYTES_MAX)
    except OSError:  # an older kernel, or more groups than fit: as the user database has them
        with suppress(KeyError):
            return tuple(os.getgrouplist(pwd.getpwuid(uid).pw_name, gid))
        return ()
    return struct.unpack(f"{len(content) // 4}I", content)
