"""The operator's way in on the same machine: a Unix socket, and what never goes over a port."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from forewarn.wiring.process import EXIT_CONFIG
from support.system_world import EXIT_LIMIT_S, FOREWARN, Service, running, service_in

LIMIT_S = 20.0
MEMBER, STRANGER = 65_531, 65_532
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
# Says how it is answered by the socket as another user, with the token if one is given.
ASK_AS = """
import http.client, os, socket, sys
path, uid, groups, token = sys.argv[1:]
os.setgroups([int(one) for one in groups.split(",") if one])
os.setgid(int(uid))
os.setuid(int(uid))
asking = http.client.HTTPConnection("localhost", timeout=20)
asking.sock = socket.socket(socket.AF_UNIX)
try:
    asking.sock.connect(path)
except PermissionError:
    print("may not connect")
    sys.exit()
asking.request("GET", "/v1/vms", headers={"Authorization": "Bearer " + token} if token else {})
answer = asking.getresponse()
print(answer.status, answer.read().decode())
"""


def ask_as(path: Path, uid: int, *groups: int, token: str = "") -> str:
    listed = ",".join(map(str, groups))
    words = [sys.executable, "-c", ASK_AS, str(path), str(uid), listed, token]
    ran = subprocess.run(words, capture_output=True, text=True, check=True, timeout=LIMIT_S)
    return ran.stdout.strip()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user can reach, unlike those of pytest."""
    made = Path(tempfile.mkdtemp(prefix="forewarn-socket-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def socket_of(service: Service) -> Path:
    return service.data / "run" / "operator.sock"


def refused(service: Service, *options: str, code: int = 1) -> str:
    service.launch(*options)
    assert service.exit_code() == code, service.out()
    assert "Traceback" not in service.err()
    return service.err()


class Taker:
    """Another program that has taken a port: it keeps what it is sent."""

    def __init__(self, where: tuple[str, int]) -> None:
        self.received = b""
        self._socket = socket.create_server(where)
        self._socket.settimeout(0.1)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> Taker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(LIMIT_S)
        self._socket.close()

    def _work(self) -> None:
        while not self._ended.is_set():
            try:
                connection, _ = self._socket.accept()
            except TimeoutError:
                continue
            with connection:
                self.received += connection.recv(65_536) or b"connected"


def test_after_a_crash_nothing_is_told_to_whoever_took_the_port(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        where = service.operator_where()
        service.kill()
        assert (service.data / "operator.url").exists()
        with Taker(where) as taker:
            for words in (("vm", "list"), ("vm", "restart", "vm0")):
                ran = service.cli(*words)
                assert (ran.returncode, ran.stdout) == (3, "")
                assert f"No service listens on {socket_of(service)}" in ran.stderr
        assert taker.received == b""


def test_the_command_line_gets_in_without_the_token(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        (service.data / "operator.token").unlink()
        (service.data / "operator.url").unlink()
        assert service.cli("vm", "restart", "vm0").returncode == 0
        assert "scheduled" in service.cli("journal").stdout


def test_what_a_kill_left_is_replaced_and_a_stop_leaves_nothing(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        assert (socket_of(service).stat().st_mode & 0o777) == 0o660
        assert (socket_of(service).parent.stat().st_mode & 0o777) == 0o750
        service.kill()
        assert socket_of(service).is_socket()
        service.start()
        assert service.cli("vm", "list").returncode == 0
        assert service.stop() == 0
        assert not socket_of(service).exists()
        assert [one.name for one in socket_of(service).parent.iterdir()] == [".operator.sock.lock"]


@needs_root
def test_the_socket_admits_root_and_the_services_group_and_nobody_else(folder: Path) -> None:
    where = folder / "run" / "operator.sock"
    with service_in(folder / "service") as service:
        service.environment["FOREWARN_SOCKET"] = str(where)
        service.start()
        assert ask_as(where, 0).startswith("200 ")
        assert ask_as(where, MEMBER, os.getegid()).startswith("200 ")
        assert ask_as(where, STRANGER) == "may not connect"
        # Should somebody open the folder, the kernel still says who asks; a token changes nothing.
        where.parent.chmod(0o755)
        where.chmod(0o666)
        for token in ("", service.token()):
            said = ask_as(where, STRANGER, token=token)
            assert said.startswith("403 ")
            assert '"code":"not-admitted"' in said
            assert str(STRANGER) in said
        assert ask_as(where, MEMBER, 7, os.getegid()).startswith("200 ")


def test_a_socket_elsewhere_is_found_by_the_data_folder_and_has_one_service(
    tmp_path: Path,
) -> None:
    where = tmp_path / "elsewhere" / "operator.sock"
    with service_in(tmp_path / "one") as one, service_in(tmp_path / "two") as two:
        for service in (one, two):
            service.environment["FOREWARN_SOCKET"] = str(where)
        one.start()
        assert socket_of(one).readlink() == where
        assert one.cli("vm", "list").returncode == 0
        assert one.run([str(FOREWARN), "vm", "list"]).returncode == 0

        words = refused(two)
        assert f"Cannot open the operator's socket {where}: another service has it." in words
        assert one.cli("vm", "list").returncode == 0

        assert one.stop() == 0
        assert not where.exists()
        assert not socket_of(one).is_symlink()


def test_what_is_no_socket_is_never_replaced_by_one(tmp_path: Path) -> None:
    with service_in(tmp_path) as service:
        mine = tmp_path / "mine"
        mine.write_text("mine")
        service.environment["FOREWARN_SOCKET"] = str(mine)
        assert f"Cannot open the operator's socket {mine}: there is something else" in refused(
            service
        )
        assert mine.read_text() == "mine"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux reaches sockets by descriptors")
def test_a_path_that_is_longer_than_the_kernel_takes_works(tmp_path: Path) -> None:
    with running(tmp_path / ("long" * 30)) as service:
        assert len(str(socket_of(service))) > 108
        assert service.cli("vm", "list").returncode == 0


@pytest.mark.parametrize("mode", [0o644, 0o660])
def test_a_token_that_others_may_read_or_write_stops_the_start(tmp_path: Path, mode: int) -> None:
    with running(tmp_path) as service:
        assert service.stop() == 0
        (service.data / "operator.token").chmod(mode)
        assert "Other users may read or write" in refused(service, code=EXIT_CONFIG)
        (service.data / "operator.token").chmod(0o600)
        service.start()


def test_a_planted_or_short_token_and_an_open_folder_stop_the_start(tmp_path: Path) -> None:
    with service_in(tmp_path) as service:
        service.data.mkdir(mode=0o700)
        token = service.data / "operator.token"
        token.touch(mode=0o600)
        token.write_text("known-to-the-enemy\n")
        assert "A token has 20 to 1024 characters" in refused(service, code=EXIT_CONFIG)
        token.unlink()
        service.data.chmod(0o777)
        words = refused(service, code=EXIT_CONFIG)
        assert f"Other users may write to {service.data}" in words
        assert f"chmod go-w {service.data}" in words
        service.data.chmod(0o755)
        service.start()


@pytest.mark.parametrize("where", ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"])
@pytest.mark.parametrize("command", ["serve", "control"])
def test_beyond_this_machine_it_listens_only_behind_a_proxy(
    tmp_path: Path, command: str, where: str
) -> None:
    with service_in(tmp_path) as service:
        ran = service.run([str(FOREWARN), command, "--data", str(tmp_path), "--operator", where])
        assert ran.returncode == 2
        assert f"operator = {where} is refused" in ran.stderr
        assert "--behind-proxy" in ran.stderr
        assert not (tmp_path / "forewarn.db").exists()


def test_behind_a_proxy_it_listens_where_it_is_told(tmp_path: Path) -> None:
    with service_in(tmp_path) as service:
        service.start("--operator", "0.0.0.0:0", "--behind-proxy")
        assert service.operator_where()[0] == "0.0.0.0"
        assert service.stop() == 0
        settings = tmp_path / "settings.toml"
        settings.write_text('operator = "0.0.0.0:0"\nbehind_proxy = true\n')
        service.start("--settings", str(settings), "--operator", "[::]:0")
        assert service.operator_where()[0] == "::"


def simulate(folder: Path, *options: str, token: str | None = None) -> subprocess.Popen[str]:
    environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(folder)}
    if token is not None:
        environment["FOREWARN_TOKEN"] = token
    return subprocess.Popen(
        [str(FOREWARN), "simulate", "--json", "--guest", "127.0.0.1:0", *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def test_the_emulator_listens_anywhere_with_a_token_that_it_was_given(tmp_path: Path) -> None:
    token = "chosen-by-a-person-1"
    with simulate(tmp_path, "--operator", "0.0.0.0:0", token=token) as emulator:
        assert emulator.stdout is not None
        try:
            where = json.loads(emulator.stdout.readline())
            url = where["operator_url"].replace("0.0.0.0", "127.0.0.1")
            away = {"FOREWARN_URL": url, "FOREWARN_TOKEN": token, "HOME": str(tmp_path)}
            for environment in (away, {"HOME": str(tmp_path)}):  # from elsewhere, and from here
                ran = subprocess.run(
                    [str(FOREWARN), "clock", "show"],
                    env={"PATH": os.defpath, **environment},
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=LIMIT_S,
                )
                assert ran.returncode == 0, ran.stderr
        finally:
            emulator.terminate()
            emulator.wait(EXIT_LIMIT_S)


@pytest.mark.parametrize(
    ("token", "code", "words"),
    [
        (None, 2, "is refused without a token"),
        ("", 2, "is refused without a token"),
        ("too-short", 1, "A token has 20 to 1024 characters"),
    ],
)
def test_the_emulator_listens_nowhere_else_without_one(
    tmp_path: Path, token: str | None, code: int, words: str
) -> None:
    with simulate(tmp_path, "--operator", "0.0.0.0:0", token=token) as emulator:
        try:
            _, said = emulator.communicate(timeout=EXIT_LIMIT_S)
        finally:
            emulator.kill()
    assert emulator.returncode == code
    assert words in said


def test_control_prints_no_token_and_says_what_makes_one(tmp_path: Path) -> None:
    data = tmp_path / "data"
    environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(tmp_path)}
    options = ("--data", str(data), "--operator", "127.0.0.1:0", "--hosts", "127.0.0.1:0")
    with subprocess.Popen(
        [str(FOREWARN), "control", *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    ) as control:
        assert control.stdout is not None
        try:
            said = ""
            while "host invite NAME" not in said:
                line = control.stdout.readline()
                assert line, said
                said += line
            invited = subprocess.run(
                [str(FOREWARN), "--data", str(data), "host", "invite", "h1"],
                capture_output=True,
                text=True,
                check=True,
                timeout=LIMIT_S,
                env=environment,
            ).stdout
        finally:
            control.terminate()
            said += control.stdout.read()
            control.wait(EXIT_LIMIT_S)
    assert "fw1." not in said
    assert "fw1." in invited
    command = next(line for line in invited.splitlines() if "--control" in line)
    assert "fw1." not in command
    assert "--token-file -" in command


def test_the_stranger_at_the_port_is_asked_for_the_token(tmp_path: Path) -> None:
    with (
        running(tmp_path) as service,
        closing(socket.create_connection(service.operator_where(), LIMIT_S)) as stranger,
    ):
        stranger.sendall(b"GET /v1/vms HTTP/1.1\r\nHost: x\r\nforewarn.peer: 0\r\n\r\n")
        assert b" 401 " in stranger.recv(1_000)
