"""Who is at the other end of the operator's socket, and who is let in by that."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from forewarn.api.peer_credentials import (
    UNKNOWN,
    Admission,
    Peer,
    of_this_process,
    peer_of_xucred,
    read_peer,
)

SERVICE = Admission(uid=990, gid=991)
NOBODY = 65_534
CONNECT_AS = """
import os, socket, sys
path, uid, gid, groups = sys.argv[1:]
os.setgroups([int(one) for one in groups.split(",") if one])
os.setgid(int(gid))
os.setuid(int(uid))
connection = socket.socket(socket.AF_UNIX)
connection.connect(path)
connection.recv(1)
"""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")


@pytest.mark.parametrize(
    ("peer", "admitted"),
    [
        (Peer(0, frozenset({0})), True),
        (Peer(990, frozenset({5})), True),
        (Peer(1_000, frozenset({1_000, 991})), True),
        (Peer(1_000, frozenset({991})), True),
        (Peer(1_000, frozenset({1_000})), False),
        (Peer(991, frozenset({990})), False),
        (Peer(NOBODY, frozenset({NOBODY})), False),
        (Peer(1_000, frozenset({0})), False),
        (Peer(1_000, frozenset()), False),
        (UNKNOWN, False),
    ],
)
def test_root_the_services_user_and_its_group_are_admitted_and_nobody_else(
    peer: Peer, *, admitted: bool
) -> None:
    assert (SERVICE.role_of(peer) is not None) is admitted


def test_the_service_admits_its_own_user_and_group() -> None:
    assert of_this_process() == Admission(uid=os.geteuid(), gid=os.getegid())


def test_the_kernel_says_who_connected() -> None:
    here, there = socket.socketpair(socket.AF_UNIX)
    with here, there:
        peer = read_peer(here)
    assert peer.uid == os.geteuid()
    assert peer.gids == {os.getegid(), *os.getgroups()}


@needs_root
def test_all_groups_of_another_user_are_known() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,  # that others can reach, unlike those of pytest
        socket.socket(socket.AF_UNIX) as listener,
    ):
        path = Path(folder) / "s"
        listener.bind(str(path))
        path.parent.chmod(0o755)
        path.chmod(0o666)
        listener.listen()
        words = [sys.executable, "-c", CONNECT_AS, str(path), "65534", "65533", "4201,4202"]
        with subprocess.Popen(words) as other:
            try:
                listener.settimeout(20)
                connected, _ = listener.accept()
                with connected:
                    peer = read_peer(connected)
            finally:
                other.kill()
    assert peer == Peer(65_534, frozenset({65_533, 4_201, 4_202}))


class Told:
    """A socket whose kernel gives these answers, in order of their option."""

    def __init__(self, answers: dict[int, bytes | OSError]) -> None:
        self._answers = answers

    def getsockopt(self, _level: int, option: int, size: int, /) -> bytes:
        answer = self._answers[option]
        if isinstance(answer, OSError):
            raise answer
        return answer[:size]


@pytest.mark.skipif(sys.platform != "linux", reason="the options are those of Linux")
def test_where_the_kernel_does_not_list_groups_the_user_database_does() -> None:
    credentials = struct.pack("iII", 1, os.geteuid(), os.getegid())
    told = Told({socket.SO_PEERCRED: credentials, 59: OSError(92, "Protocol not available")})
    assert os.getegid() in read_peer(told).gids
    nobody = struct.pack("iII", 1, 4_000_000_001, 4_000_000_002)
    told = Told({socket.SO_PEERCRED: nobody, 59: OSError(34, "Numerical result out of range")})
    assert read_peer(told) == Peer(4_000_000_001, frozenset({4_000_000_002}))


def test_macos_says_it_in_a_structure_of_its_own() -> None:
    groups = [20, 12, 61, *[0] * 13]
    assert peer_of_xucred(struct.pack("IIh2x16I", 0, 501, 3, *groups)) == Peer(
        501, frozenset({20, 12, 61})
    )
    with pytest.raises(OSError, match="does not say"):
        peer_of_xucred(b"short")
