"""The step `haproxy` with a runtime socket that says what real ones say, and what none should."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from steps_world import is_one_line, run, serving, told

COLUMNS = "# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight"
BITS = {"drain": 8, "maint": 1, "ready": 0}


class Runtime:
    """A haproxy of two servers, by its runtime socket only."""

    def __init__(self) -> None:
        self.bits = {"web/a": 0, "web/b": 0}
        self.sessions = {"web/a": [0], "web/b": [0]}  # at each look; the last one stays
        self.said: dict[str, str] = {}  # answers in place of the right ones
        self.commands: list[str] = []

    def answer(self, command: str) -> str:
        self.commands.append(command)
        for begin, said in self.said.items():
            if command.startswith(begin):
                return said
        if command.startswith("set server "):
            server, _state, action = command[len("set server ") :].split()
            if server not in self.bits:
                return "No such server.\n\n"
            self.bits[server] = BITS[action]
            return "\n"
        if command == "show servers state":
            rows = [f"1 {name.replace('/', ' 1 ')} - 2 {b} 1" for name, b in self.bits.items()]
            return "\n".join(["1", COLUMNS, *rows, "", ""])
        assert command == "show stat -1 4 -1"
        rows = []
        for name, counts in self.sessions.items():
            count = counts.pop(0) if len(counts) > 1 else counts[0]
            rows.append(f"{name.replace('/', ',')},0,0,{count},9,")
        return "\n".join(["# pxname,svname,qcur,qmax,scur,smax,", *rows, "", ""])

    def talk(self, channel: socket.socket) -> None:
        heard = b""
        while b"\n" not in heard:
            heard += channel.recv(4096)
        channel.sendall(self.answer(heard.decode().strip()).encode())


@contextlib.contextmanager
def runtime(path: Path) -> Iterator[Runtime]:
    here = Runtime()
    with serving(here.talk, str(path / "admin.sock")):
        yield here


def step(path: Path, action: str, *servers: str, left: float = 10, **more: Any) -> Any:
    options = {"action": action, "servers": list(servers), "sockets": str(path / "admin.sock")}
    return run("haproxy", told({**options, **more}, seconds_left=left))


@pytest.mark.parametrize("action", ["drain", "maint", "ready"])
def test_servers_are_set_and_looked_up_and_again_is_as_good(tmp_path: Path, action: str) -> None:
    with runtime(tmp_path) as here:
        for _time in range(2):
            code, out, problems = step(tmp_path, action, "web/a", "web/b")
            assert (code, problems) == (0, "")
            assert action in out
        assert here.bits == {"web/a": BITS[action], "web/b": BITS[action]}


def test_every_socket_is_told_also_over_tcp(tmp_path: Path) -> None:
    other = Runtime()
    with runtime(tmp_path) as here, serving(other.talk) as (host, port):
        sockets = [str(tmp_path / "admin.sock"), f"{host}:{port}"]
        code, _out, _problems = step(tmp_path, "drain", "web/a", sockets=sockets)
        assert code == 0
        assert here.bits["web/a"] == other.bits["web/a"] == 8


def test_a_drain_waits_until_no_session_is_left(tmp_path: Path) -> None:
    with runtime(tmp_path) as here:
        here.sessions["web/a"] = [3, 1, 0]
        code, out, _problems = step(tmp_path, "drain", "web/a", wait=True)
        assert code == 0
        assert "no sessions left" in out
        assert here.commands.count("show stat -1 4 -1") == 3


def test_sessions_that_stay_fail_the_step_in_time_with_their_number(tmp_path: Path) -> None:
    with runtime(tmp_path) as here:
        here.sessions["web/a"] = [2]
        code, _out, problems = step(tmp_path, "drain", "web/a", left=2, wait=True)
        assert code == 1
        assert is_one_line(problems)
        assert "web/a had 2" in problems
        assert here.bits["web/a"] == 8  # no new sessions came


def test_an_unknown_server_fails_and_is_named(tmp_path: Path) -> None:
    with runtime(tmp_path):
        code, _out, problems = step(tmp_path, "drain", "web/typo")
    assert code == 1
    assert is_one_line(problems)
    assert "web/typo" in problems
    assert "No such server" in problems


@pytest.mark.parametrize(
    ("begin", "said", "expected"),
    [
        ("set server", "Permission denied\n\n", "level admin"),
        ("show servers state", "Unknown command.\n", "Unknown command"),
        ("show servers state", f"1\n{COLUMNS}\n1 web 1 a - 2 0 1\n", "not drain"),
        ("show servers state", f"1\n{COLUMNS}\n", "does not list web/a"),
        ("show stat", "<html>\x1b[31m", "did not list sessions"),
    ],
)
def test_what_haproxy_says_against_it_is_a_failure(
    tmp_path: Path, begin: str, said: str, expected: str
) -> None:
    with runtime(tmp_path) as here:
        here.said[begin] = said
        code, _out, problems = step(tmp_path, "drain", "web/a", wait=True)
    assert code == 1
    assert is_one_line(problems)
    assert expected in problems
    assert "\x1b" not in problems


def test_no_haproxy_and_a_silent_one_fail_in_time(tmp_path: Path) -> None:
    code, _out, problems = step(tmp_path, "drain", "web/a")
    assert code == 1
    assert "Is haproxy running" in problems

    def say_nothing(channel: socket.socket) -> None:
        while channel.recv(4096):
            pass

    with serving(say_nothing, str(tmp_path / "admin.sock")):
        code, _out, problems = step(tmp_path, "drain", "web/a", left=1)
    assert code == 1
    assert is_one_line(problems)
    assert "had not set web/a" in problems


def test_an_endless_answer_is_not_read_to_its_end(tmp_path: Path) -> None:
    def flood(channel: socket.socket) -> None:
        channel.recv(4096)
        for _number in range(200):
            channel.sendall(b"x" * 65536)

    with serving(flood, str(tmp_path / "admin.sock")):
        code, _out, problems = step(tmp_path, "drain", "web/a")
    assert code == 1
    assert is_one_line(problems)
    assert len(problems) < 1100
