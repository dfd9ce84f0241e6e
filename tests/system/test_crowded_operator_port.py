"""Connections that crowd the operator port leave guests and, soon after, operators in peace."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import pytest

from forewarn.api.guarded_protocol import CONNECTIONS_MAX
from support.system_world import running
from support.waiting import wait_until

CROWD = CONNECTIONS_MAX + 144
HALF_A_HEAD = b"GET /v1/health HTTP/1.1\r\nHost: x\r\nX: "
KEPT_MAX = CONNECTIONS_MAX


def still_open(crowd: Iterable[socket.socket]) -> int:
    """How many of these the service has not ended."""
    count = 0
    for client in crowd:
        try:
            count += client.recv(1) != b""
        except BlockingIOError:
            count += 1
        except ConnectionError:
            continue
    return count


def test_half_heads_at_the_operator_port_keep_no_guest_from_reading(tmp_path: Path) -> None:
    with running(tmp_path) as service, ExitStack() as clients:
        where = service.operator_where()
        crowd = []
        for _ in range(CROWD):
            client = clients.enter_context(socket.create_connection(where, timeout=60))
            client.settimeout(0)
            crowd.append(client)
            try:
                client.send(HALF_A_HEAD)
            except ConnectionError:
                continue  # one too many, closed at once
        assert service.guest("vm0").get().status == 200
        wait_until(lambda: still_open(crowd) <= KEPT_MAX or None, "the rest of the crowd is cut")
        assert service.guest("vm0").get().status == 200
        wait_until(lambda: still_open(crowd) == 0 or None, "every half head is cut")
        assert service.look("health")["hosts_silent"] == []
        assert service.guest("vm0").get().status == 200


@pytest.mark.parametrize("says", [b"", HALF_A_HEAD])
def test_the_operator_gets_in_while_silent_connections_crowd_the_port(
    tmp_path: Path, says: bytes
) -> None:
    with running(tmp_path) as service, ExitStack() as clients:
        where = service.operator_where()
        crowd = []
        for _ in range(KEPT_MAX + 10):
            client = clients.enter_context(socket.create_connection(where, timeout=20))
            client.settimeout(0)
            crowd.append(client)
            client.send(says)
        assert service.look("health")["hosts_silent"] == []
        assert still_open(crowd[:5]) == 0  # the oldest went
