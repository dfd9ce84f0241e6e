"""Who is at the other end of a Unix socket, as the kernel says it, and who is let in by that.

Nothing that the peer sends is looked at: its user and groups are those of the process that
connected, at the moment it did.
"""

from __future__ import annotations

import grp
import os
import pwd
import socket
import struct
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Protocol

from msgspec import Struct, field

from forewarn.core.access import Access, Role, SocketGroup
from forewarn.core.errors import Invalid
from forewarn.core.principal import (
    OPERATOR_NAME_CHARS_MAX,
    Principal,
    PrincipalKind,
    refuse_name,
)
from forewarn.logs import Log

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

log = Log(__name__)


class _Socket(Protocol):
    """What is needed of a socket; event loops hand out stand-ins for real ones."""

    def getsockopt(self, level: int, option: int, size: int, /) -> bytes: ...


class Peer(Struct, frozen=True):
    """The user and all groups of the process at the other end."""

    uid: int
    gids: frozenset[int]


UNKNOWN = Peer(-1, frozenset())  # who is never admitted
_RANKS = (Role.VIEWER, Role.OWNER, Role.OPERATOR, Role.ADMIN)


class GroupRole(Struct, frozen=True, kw_only=True):
    """What members of a group may do; an owner in these scopes."""

    role: Role
    scopes: tuple[str, ...] = ()


_ADMIN = GroupRole(role=Role.ADMIN)


class Admission(Struct, frozen=True, kw_only=True):
    """Who may use the operator API by its socket, and as what.

    Root and one user are admins. So are the members of one group, unless `groups` says otherwise
    of it; members of others are what `groups` says.
    """

    uid: int
    gid: int
    groups: Mapping[int, GroupRole] = field(default_factory=dict)

    def role_of(self, peer: Peer) -> GroupRole | None:
        """What the peer is: of several roles the highest counts. None for a stranger."""
        if peer.uid in (ROOT, self.uid):
            return _ADMIN
        roles = {self.gid: _ADMIN, **self.groups}
        found = [roles[gid] for gid in sorted(peer.gids) if gid in roles]
        if not found:
            return None
        highest = max((one.role for one in found), key=_RANKS.index)
        scopes = {scope for one in found if one.role is highest for scope in one.scopes}
        return GroupRole(role=highest, scopes=tuple(sorted(scopes)))

    def access(self, peer: Peer, name: str) -> Access | None:
        """What a peer of that name may do; None for a stranger."""
        found = self.role_of(peer)
        if found is None:
            return None
        kind = PrincipalKind.OWNER if found.role is Role.OWNER else PrincipalKind.OPERATOR
        principal = Principal(kind=kind, id=f"socket:{peer.uid}", name=name)
        return Access(principal=principal, role=found.role, scopes=found.scopes)


def of_this_process(groups: Iterable[SocketGroup] = ()) -> Admission:
    """Root, the user who runs this process, the group that it runs with, and these groups.

    A group that this machine does not have is left out, and said in the log.
    """
    found: dict[int, GroupRole] = {}
    for one in groups:
        gid = _gid_of(one.group)
        if gid is None:
            log.warning("socket_group_unknown", group=one.group, role=one.role.value)
            continue
        before = found.get(gid)
        scopes = (one.scope,) if one.scope is not None else ()
        if before is None or _RANKS.index(one.role) > _RANKS.index(before.role):
            found[gid] = GroupRole(role=one.role, scopes=scopes)
        elif one.role is before.role:
            found[gid] = GroupRole(role=one.role, scopes=(*before.scopes, *scopes))
    return Admission(uid=os.geteuid(), gid=os.getegid(), groups=found)


def _gid_of(group: str) -> int | None:
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        return int(group) if group.isdecimal() else None


def local_name(uid: int) -> str:
    """What the user is called on this machine. It may have to ask a directory: it can take long."""
    try:
        name = pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return f"uid {uid}"
    try:
        refuse_name(name, "an operator")
    except Invalid:
        return f"user {ascii(name)[1:-1][: OPERATOR_NAME_CHARS_MAX - len('user ')]}"
    return name


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
