"""How the command line finds the service, and how it ends when it cannot do what was asked."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from forewarn import unix_sockets
from forewarn.cli.client import Client, ServiceAddress, Stop
from forewarn.unix_sockets import short_path
from support.cli_runner import ask, at, forewarn
from support.operator_world import TOKEN, OperatorWorld, running


@pytest.fixture(scope="module")
def world() -> Iterator[OperatorWorld]:
    with running() as world:
        yield world


def test_the_token_of_a_data_folder_is_sent_to_no_port(
    world: OperatorWorld, tmp_path: Path
) -> None:
    """What a killed service left behind names a port that may be another program's by now."""
    (tmp_path / "operator.url").write_text(f"{world.url}\n")
    (tmp_path / "operator.token").write_text(f"{TOKEN}\n")

    ran = forewarn("--data", str(tmp_path), "vm", "list", "--json")

    assert (ran.code, ran.out) == (3, "")


def test_url_and_token_of_the_environment_win_over_the_data_folder(
    world: OperatorWorld, tmp_path: Path
) -> None:
    (tmp_path / "operator.url").write_text("http://127.0.0.1:1\n")
    (tmp_path / "operator.token").write_text("old\n")

    ran = forewarn("--data", str(tmp_path), "vm", "list", environment=at(world))

    assert ran.code == 0


def test_without_a_service_it_says_where_it_looked_and_what_to_do(tmp_path: Path) -> None:
    ran = forewarn("--data", str(tmp_path), "vm", "list")

    assert (ran.code, ran.out) == (3, "")
    assert f"there is no {tmp_path / 'run' / 'operator.sock'}" in ran.err
    assert "forewarn serve" in ran.err


def test_a_socket_on_which_nobody_listens_is_said_in_words(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with socket.socket(socket.AF_UNIX) as killed, short_path(tmp_path / "run/operator.sock") as at_:
        killed.bind(at_)

    ran = forewarn("--data", str(tmp_path), "vm", "list")

    assert (ran.code, ran.out) == (3, "")
    assert f"No service listens on {tmp_path / 'run' / 'operator.sock'}" in ran.err
    assert "it was killed" in ran.err


@pytest.mark.parametrize(
    ("there", "named", "others"),
    [
        ("link/", "`forewarn control`", ("serve", "simulate")),
        ("forewarn.db", "`forewarn serve`", ("control", "simulate")),
        ("", "`forewarn serve`, `forewarn control` or `forewarn simulate`", ()),
    ],
)
def test_a_service_that_is_away_is_named_by_the_command_that_runs_there(
    tmp_path: Path, there: str, named: str, others: tuple[str, ...]
) -> None:
    if there.endswith("/"):
        (tmp_path / there).mkdir()
        (tmp_path / "forewarn.db").touch()
    elif there:
        (tmp_path / there).touch()

    ran = forewarn("--data", str(tmp_path), "vm", "list")

    assert (ran.code, ran.out) == (3, "")
    assert named in ran.err
    assert not any(f"`forewarn {one}`" in ran.err for one in others)


def test_a_data_folder_that_cannot_be_read_is_no_usage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of the unit is its user's alone; who may not use the socket is told that instead."""
    monkeypatch.setattr(os, "access", lambda *_args, **_more: False)  # as it is for other users

    ran = forewarn("--data", str(tmp_path), "vm", "list")

    assert ran.code == 3
    assert f"there is no {tmp_path / 'run' / 'operator.sock'}" in ran.err


def test_who_may_not_use_a_socket_is_told_what_lets_a_group_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(_path: Path, *, timeout_s: float | None) -> socket.socket:
        raise PermissionError(timeout_s)

    monkeypatch.setattr(unix_sockets, "connect", closed)
    ran = forewarn("--data", str(tmp_path), "vm", "list")

    assert (ran.code, ran.out) == (3, "")
    assert f"This user may not use {tmp_path / 'run' / 'operator.sock'}" in ran.err
    assert "the setting `socket`" in ran.err


def test_a_socket_is_named_by_the_environment_and_the_data_option_wins(tmp_path: Path) -> None:
    environment = {"FOREWARN_SOCKET": str(tmp_path / "one.sock"), "HOME": str(tmp_path)}

    assert f"there is no {tmp_path}/one.sock" in forewarn("vm", "list", environment=environment).err
    named = forewarn("--data", str(tmp_path), "vm", "list", environment=environment)
    assert f"there is no {tmp_path}/run/operator.sock" in named.err


def test_a_service_that_is_away_is_named_and_the_exit_code_is_3() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refuses
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        ran = forewarn("vm", "list", environment={"FOREWARN_URL": url, "FOREWARN_TOKEN": "x"})

    assert (ran.code, ran.out) == (3, "")
    assert url in ran.err
    assert "forewarn serve" in ran.err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("vm", "show", "nobody"), 1, ("There is no VM nobody.", "forewarn vm list")),
        (("vm", "evict", "lonely"), 1, ("not a spot VM", "forewarn vm delete")),
        (("event", "show", "abc"), 1, ("too short", "6 characters")),
        (("host", "maintain", "h1", "--type", "Preempt"), 2, ("Freeze",)),
        (("host", "maintain", "h1"), 2, ("--type",)),
        (("host", "maintain", "h1", "--type", "Reboot", "--not-before", "soon"), 1, ("+30m",)),
        (("vm", "dance", "lonely"), 2, ("dance",)),
        (("vm", "list", "--colour"), 2, ("--colour",)),
        (("inventory", "apply", "/nonexistent.toml"), 2, ("/nonexistent.toml",)),
    ],
)
def test_what_is_refused_is_said_on_stderr_with_the_remedy_and_an_exit_code(
    world: OperatorWorld, arguments: tuple[str, ...], code: int, words: tuple[str, ...]
) -> None:
    ran = ask(world, *arguments)

    assert (ran.code, ran.out) == (code, "")
    for word in words:
        assert word in ran.err


def test_what_a_terminal_would_obey_is_said_in_words(world: OperatorWorld, tmp_path: Path) -> None:
    script = tmp_path / "odd\x1b[31m\x9b31m.toml"
    script.write_text("nothing")
    for ran in (ask(world, "vm", "restart", "\x1b[31m"), forewarn("scenario", "show", str(script))):
        assert ran.code
        assert r"\x1b[31m" in ran.err
        assert ran.err.replace("\n", "").isprintable()


def test_a_wrong_token_is_refused_with_where_the_right_one_is(world: OperatorWorld) -> None:
    ran = forewarn("vm", "list", environment={**at(world), "FOREWARN_TOKEN": "wrong"})

    assert ran.code == 1
    assert "operator.token" in ran.err


@pytest.mark.parametrize("url", ["here", "ftp://h", "http://", "http://h:99999", "http://[::1"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    ran = forewarn("vm", "list", environment={"FOREWARN_URL": url, "FOREWARN_TOKEN": "x"})

    assert ran.code == 2
    assert "https://HOST:PORT" in ran.err


@pytest.mark.parametrize("token", ["t\xf6ken", "two\nlines", "\u2603"])
def test_a_token_that_cannot_be_one_is_refused(world: OperatorWorld, token: str) -> None:
    ran = forewarn("vm", "list", environment={**at(world), "FOREWARN_TOKEN": token})

    assert (ran.code, ran.out) == (2, "")
    assert "operator.token" in ran.err


def test_proxies_of_the_environment_are_never_used(world: OperatorWorld) -> None:
    proxy = {"http_proxy": "http://127.0.0.1:1", "HTTP_PROXY": "http://127.0.0.1:1"}

    assert forewarn("vm", "list", environment={**at(world), **proxy}).code == 0


class Listener:
    """A server that answers connections one after the other as it is told, and keeps requests."""

    def __init__(self, *answers: bytes) -> None:
        self.requests: list[bytes] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._answers = answers
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> Listener:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(60)
        self._socket.close()

    def environment(self) -> dict[str, str]:
        url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        return {"FOREWARN_URL": url, "FOREWARN_TOKEN": "x"}

    def _work(self) -> None:
        self._socket.settimeout(60)
        for answer in self._answers:
            connection, _ = self._socket.accept()
            with connection:
                connection.settimeout(60)
                received = b""
                while not _whole(received):
                    received += connection.recv(65_536)
                self.requests.append(received)
                connection.sendall(answer)


def _whole(received: bytes) -> bool:
    head, separator, body = received.partition(b"\r\n\r\n")
    lengths = [
        int(line.split(b":")[1])
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"content-length:")
    ]
    return bool(separator) and len(body) >= sum(lengths)


def _key(request: bytes) -> bytes:
    return next(
        line for line in request.split(b"\r\n") if line.lower().startswith(b"idempotency-key")
    )


def test_an_order_whose_connection_is_lost_is_sent_once_more_under_the_same_key() -> None:
    host = json.dumps({"name": "h1", "closed": True}).encode()
    good = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(host), host)
    with Listener(b"", good) as listener:
        ran = forewarn("host", "close", "h1", "--json", environment=listener.environment())

    assert ran.json == {"name": "h1", "closed": True}
    first, second = listener.requests
    assert first == second
    assert _key(first)


def test_two_orders_have_two_keys() -> None:
    good = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
    with Listener(good, good) as listener:
        for _ in range(2):
            forewarn("host", "close", "h1", "--json", environment=listener.environment())

    assert _key(listener.requests[0]) != _key(listener.requests[1])


def test_an_order_that_is_lost_twice_ends_with_exit_code_3() -> None:
    with Listener(b"", b"") as listener:
        ran = forewarn("host", "close", "h1", environment=listener.environment())

    assert ran.code == 3
    assert len(listener.requests) == 2


def test_an_answer_of_somebody_else_is_quoted_and_not_believed() -> None:
    with Listener(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 5\r\n\r\nwhoa!") as listener:
        ran = forewarn("vm", "list", environment=listener.environment())

    assert ran.code == 1
    assert "502" in ran.err
    assert "whoa!" in ran.err


def test_an_answer_that_is_no_json_is_quoted() -> None:
    with Listener(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>") as listener:
        ran = forewarn("vm", "list", environment=listener.environment())

    assert ran.code == 1
    assert "<html>" in ran.err


def test_a_backup_is_cut_off_and_leaves_no_file(tmp_path: Path) -> None:
    cut = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf of it"
    with Listener(cut) as listener:
        ran = forewarn("backup", str(tmp_path / "b.db"), environment=listener.environment())

    assert ran.code == 3
    assert list(tmp_path.iterdir()) == []


def test_a_backup_replaces_no_file(world: OperatorWorld, tmp_path: Path) -> None:
    there = tmp_path / "b.db"
    there.write_text("mine")

    ran = ask(world, "backup", str(there))

    assert ran.code == 1
    assert there.read_text() == "mine"


def test_a_backup_where_nobody_may_write_is_refused(world: OperatorWorld, tmp_path: Path) -> None:
    ran = ask(world, "backup", str(tmp_path / "no" / "such" / "folder.db"))

    assert ran.code == 1
    assert "cannot be written" in ran.err


def test_a_backup_can_be_restored_into_an_empty_folder(
    world: OperatorWorld, tmp_path: Path
) -> None:
    file, folder = tmp_path / "b.db", tmp_path / "new"

    saved = ask(world, "backup", str(file), "--json").json
    restored = forewarn("--data", str(folder), "restore", str(file), "--json").json

    assert saved == {"file": str(file), "bytes": file.stat().st_size}
    assert file.stat().st_mode & 0o077 == 0
    assert restored["scopes"] == 3
    with running(folder, fleet="") as again:
        assert [vm["name"] for vm in again.get("/v1/vms")["items"]] == [
            vm["name"] for vm in world.get("/v1/vms")["items"]
        ]
        assert again.get("/v1/scopes/web")["incarnation"] > 1_000_000


def test_a_restore_over_a_database_is_refused_unless_forced(
    world: OperatorWorld, tmp_path: Path
) -> None:
    file, folder = tmp_path / "b.db", tmp_path / "new"
    ask(world, "backup", str(file))
    restore = ("--data", str(folder), "restore", str(file))
    forewarn(*restore)

    refused = forewarn(*restore)
    forced = forewarn(*restore, "--force", "--json")

    assert refused.code == 1
    assert "exists" in refused.err
    assert Path(forced.json["kept_aside"]).is_dir()


def test_a_restore_of_what_is_no_backup_is_refused(tmp_path: Path) -> None:
    (tmp_path / "b.db").write_text("poems")

    ran = forewarn("--data", str(tmp_path / "new"), "restore", str(tmp_path / "b.db"))

    assert (ran.code, ran.out) == (1, "")
    assert "b.db" in ran.err


def test_check_store_looks_at_a_backup_and_at_a_folder_and_its_exit_says_what_it_found(
    world: OperatorWorld, tmp_path: Path
) -> None:
    file, folder = tmp_path / "b.db", tmp_path / "new"
    ask(world, "backup", str(file))
    forewarn("--data", str(folder), "restore", str(file))

    sound = forewarn("--data", str(folder), "check-store")
    assert (sound.code, sound.err) == (0, "")
    assert "ok     its pages: all" in sound.out
    assert forewarn("check-store", str(file), "--json").json["ok"] is True

    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    broken = forewarn("check-store", str(file))
    assert broken.code == 1
    assert "WRONG  the digest: the file is not what was written" in broken.out
    assert forewarn("check-store", str(tmp_path / "none")).code == 1


def _process(world: OperatorWorld, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "forewarn.cli.main", *arguments],
        env={**os.environ, **at(world), "COLUMNS": "80"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_following_the_journal_prints_one_json_line_for_each_fact_as_it_happens(
    world: OperatorWorld,
) -> None:
    end = world.get("/v1/journal?limit=1000")["end"]
    with _process(world, "journal", "--follow", "--last", "1", "--json") as following:
        assert following.stdout is not None
        assert following.stderr is not None
        try:
            first = json.loads(following.stdout.readline())
            world.order("/v1/hosts/h2/close")
            second = json.loads(following.stdout.readline())
        finally:
            following.terminate()

    assert first["number"] == end
    assert (second["number"], second["kind"]) == (end + 1, "host-closed")


def test_a_reader_that_goes_away_is_no_traceback(world: OperatorWorld) -> None:
    with _process(world, "journal") as printing:
        assert printing.stdout is not None
        assert printing.stderr is not None
        printing.stdout.close()
        printing.wait(60)

        assert "Traceback" not in printing.stderr.read()


def test_a_refusal_is_json_too_when_json_is_asked_for() -> None:
    with running() as world:
        ran = forewarn("vm", "evict", "web-0", "--json", environment=at(world))
        assert ran.code == 1
        assert (ran.json["code"], ran.json["status"]) == ("not-spot", 409)
        assert "not a spot VM" in ran.err


def test_an_address_without_its_token_is_said_in_a_sentence(tmp_path: Path) -> None:
    url = {"FOREWARN_URL": "http://127.0.0.1:9"}
    ran = forewarn("--data", str(tmp_path), "vm", "list", environment=url)
    assert (ran.code, ran.out) == (2, "")
    assert "FOREWARN_TOKEN is not" in ran.err


def test_the_help_names_no_value_for_what_takes_none_and_says_where_things_are() -> None:
    said = forewarn("simulate", "--help").out
    flags = [line for line in said.splitlines() if "--json" in line or "--listen-" in line]
    assert flags
    assert not [line for line in flags if "<bool>" in line]
    assert "127.0.0.1:8254" in said


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"])
@pytest.mark.parametrize("ask_for", ["list", "order", "download"])
def test_a_service_that_does_not_answer_in_time_is_said_in_a_sentence(
    tmp_path: Path, sent: bytes, ask_for: str
) -> None:
    with says_and_waits(sent) as url:
        client = Client(ServiceAddress(url=url, token="t" * 20), answer_timeout_s=0.2)
        asks: dict[str, Callable[[], object]] = {
            "list": lambda: client.get("vms"),
            "order": lambda: client.order("vms", "web-0", "restart"),
            "download": lambda: client.download("backup", to=tmp_path / "backup"),
        }
        with pytest.raises(Stop) as stopped:
            asks[ask_for]()

    assert stopped.value.exit_code == 3
    assert stopped.value.sentence.endswith("did not answer within 0.2 seconds.")
    assert list(tmp_path.iterdir()) == []


@contextmanager
def says_and_waits(sent: bytes) -> Iterator[str]:
    """A server that takes every connection, says this, and then nothing more; its address."""
    server = socket.create_server(("127.0.0.1", 0))
    taken: list[socket.socket] = []

    def take() -> None:
        with suppress(OSError):  # closed: the end of the test
            while True:
                taken.append(server.accept()[0])
                taken[-1].sendall(sent)

    thread = threading.Thread(target=take)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()
        for one in taken:
            one.close()
