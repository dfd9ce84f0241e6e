"""The step `haproxy` against a real haproxy."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from programs import program
from support.guest_steps_world import end_of, run_step, running, start_step
from support.waiting import wait_until

CONFIGURATION = """
global
  stats socket {folder}/admin.sock mode 600 level admin
  stats socket {folder}/user.sock mode 600 level user
  stats socket fd@{control} level admin
defaults
  mode tcp
  timeout connect 5s
  timeout client 60s
  timeout server 60s
frontend in
  bind fd@{front}
  default_backend web
backend web
  balance roundrobin
  server a {origin_a}
  server b {origin_b}
"""


@dataclass(frozen=True)
class Balancer:
    """A haproxy with the servers web/a and web/b."""

    folder: Path
    front: tuple[str, int]
    control: tuple[str, int]
    origins: tuple[socket.socket, socket.socket]

    @property
    def admin(self) -> str:
        return str(self.folder / "admin.sock")

    def ask(self, command: str) -> str:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
            channel.settimeout(60)
            channel.connect(self.admin)
            channel.sendall(f"{command}\n".encode())
            with channel.makefile() as answer:
                return answer.read()

    def answers(self) -> bool:
        """True once it listens; its socket is there a moment before."""
        try:
            return "web" in self.ask("show servers state")
        except (FileNotFoundError, ConnectionRefusedError):
            return False

    def admin_bits(self, server: str) -> int:
        rows = [line.split() for line in self.ask("show servers state").splitlines()]
        return next(int(row[6]) for row in rows if len(row) > 6 and row[3] == server)

    def step(self, action: str, *servers: str, **more: Any) -> tuple[int, str, str]:
        options = {"action": action, "servers": list(servers), "sockets": self.admin}
        return run_step("haproxy", {**options, **more})


def listener() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


@pytest.fixture
def balancer(tmp_path: Path) -> Iterator[Balancer]:
    haproxy = program("haproxy")
    with contextlib.ExitStack() as stack:
        front, control = (stack.enter_context(listener()) for _each in range(2))
        a, b = (stack.enter_context(listener()) for _each in range(2))
        text = CONFIGURATION.format(
            folder=tmp_path,
            front=front.fileno(),
            control=control.fileno(),
            origin_a=f"127.0.0.1:{a.getsockname()[1]}",
            origin_b=f"127.0.0.1:{b.getsockname()[1]}",
        )
        (tmp_path / "haproxy.cfg").write_text(text)
        fds = (front.fileno(), control.fileno())
        log = stack.enter_context((tmp_path / "log").open("wb"))
        command = [haproxy, "-db", "-f", str(tmp_path / "haproxy.cfg")]
        stack.enter_context(running(command, pass_fds=fds, stdout=log, stderr=log))
        here = Balancer(tmp_path, front.getsockname(), control.getsockname(), (a, b))
        wait_until(here.answers, "haproxy answers")
        yield here


def test_a_server_is_drained_twice_and_made_ready_twice(balancer: Balancer) -> None:
    for action, bits in (("drain", 8), ("maint", 1), ("drain", 8), ("ready", 0)):
        for _time in range(2):
            code, _out, problems = balancer.step(action, "web/a")
            assert (code, problems) == (0, "")
            assert balancer.admin_bits("a") == bits
            assert balancer.admin_bits("b") == 0


def test_all_servers_are_set_and_over_tcp_too(balancer: Balancer) -> None:
    host, port = balancer.control
    code, _out, problems = balancer.step("drain", "web/a", "web/b", sockets=f"{host}:{port}")
    assert (code, problems) == (0, "")
    assert balancer.admin_bits("a") == balancer.admin_bits("b") == 8


@pytest.mark.parametrize("server", ["web/typo", "typo/a"])
def test_what_haproxy_does_not_know_fails_the_step(balancer: Balancer, server: str) -> None:
    code, _out, problems = balancer.step("drain", server)
    assert code == 1
    assert f"refused to set {server} to drain: No such " in problems


def test_a_socket_without_the_right_says_which_right(balancer: Balancer) -> None:
    code, _out, problems = balancer.step(
        "drain", "web/a", sockets=str(balancer.folder / "user.sock")
    )
    assert code == 1
    assert "level admin" in problems
    assert balancer.admin_bits("a") == 0


def held(balancer: Balancer) -> tuple[socket.socket, socket.socket]:
    """A session on web/a: the client's end and the server's."""
    balancer.ask("set server web/b state maint")
    client = socket.create_connection(balancer.front, 10)
    origin = balancer.origins[0]
    origin.settimeout(60)
    return client, origin.accept()[0]


def test_a_drain_waits_for_the_last_session(balancer: Balancer) -> None:
    client, server = held(balancer)
    with client, server:
        options = {"action": "drain", "servers": "web/a", "sockets": balancer.admin, "wait": True}
        process = start_step("haproxy", options)
        wait_until(lambda: balancer.admin_bits("a") == 8, "the server is drained")
        assert process.poll() is None
    code, out, problems = end_of(process)
    assert (code, problems) == (0, "")
    assert "no sessions left" in out


def test_a_session_that_stays_fails_the_drain_in_time(balancer: Balancer) -> None:
    client, server = held(balancer)
    with client, server:
        code, _out, problems = balancer.step("drain", "web/a", wait=True, limit=2)
    assert code == 1
    assert "web/a had 1" in problems
