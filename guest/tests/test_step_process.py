"""A built-in step as a process: its codes, its one line, its time, and what it leaves behind."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from forewarn_guest.errors import StepError
from forewarn_guest.steps.retries import Again, until_done
from forewarn_guest.steps.step_context import (
    INPUT_MAX,
    LIMIT_DEFAULT_S,
    Deadline,
    allowed,
    one_line,
)
from steps_world import HOSTILE, PATIENCE_S, environment, is_one_line, run, serving, start, told


@pytest.mark.parametrize(
    "given",
    [
        b"",
        b"not json",
        b"[]",
        b"{}",
        b'{"event": [], "step": {}}',
        b'{"event": {}, "step": 5}',
        b'{"event": {}, "step": {"colour": "red"}}',
        b"[" * 100_000,
        b"\xff\xfe",
        b" " * (INPUT_MAX + 1),
    ],
    ids=lambda given: given[:20],
)
def test_what_is_no_occasion_is_misuse_with_one_line(given: bytes) -> None:
    code, out, problems = run("log", given)
    assert (code, out) == (2, "")
    assert is_one_line(problems)


def test_an_unknown_kind_is_misuse_and_the_kinds_are_named() -> None:
    code, _out, problems = run("dance", b"{}")
    assert code == 2
    assert is_one_line(problems)
    assert "haproxy" in problems


def test_a_step_without_time_fails_at_once_and_says_so() -> None:
    code, out, problems = run("webhook", told({"url": "http://127.0.0.1:1/"}, seconds_left=0))
    assert (code, out) == (1, "")
    assert is_one_line(problems)
    assert "0.0 s" in problems


def test_the_time_of_a_step_is_the_least_that_binds_it_less_a_little_to_tell() -> None:
    assert allowed(20.0, None) == 19.5
    assert allowed(20.0, 10.0) == 9.5
    assert allowed(5.0, 10.0) == 4.5
    assert allowed(1.0, None) == 0.75
    assert allowed(-3.0, 10.0) == 0.0
    assert allowed(None, None) == LIMIT_DEFAULT_S - 0.5


def test_an_answer_that_trickles_does_not_keep_a_step_beyond_its_time() -> None:
    def trickle(channel: socket.socket) -> None:
        channel.recv(65536)
        channel.sendall(b"HTTP/1.1 200 OK\r\n")
        channel.settimeout(0.05)
        while True:
            channel.sendall(b"X-A: b\r\n")
            try:
                if not channel.recv(65536):
                    return
            except socket.timeout:
                continue

    with serving(trickle) as (host, port):
        url = f"http://{host}:{port}/"
        code, _out, problems = run("webhook", told({"url": url}, seconds_left=2))
    assert code == 1
    assert is_one_line(problems)


def test_the_time_to_the_start_binds_no_step_of_an_event_that_has_started(tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as here:
        here.bind(path)
        given = {"to": "syslog", "socket": path}
        for part in ("started", "recover", "canceled"):
            code, _out, problems = run("log", told(given, part=part, seconds_left=-60))
            assert (code, problems) == (0, "")
        assert run("log", told(given, seconds_left=-60))[0] == 1


def test_what_the_agent_allows_binds_the_step() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/"
    given = told({"url": url, "limit": 300}, part="recover", limit_seconds=1)
    code, _out, problems = run("webhook", given)  # it would try for five minutes
    assert code == 1
    assert "no time is left" in problems


def program(folder: Path, name: str, body: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def is_alive(pid: int) -> bool:
    """True for a process that runs; one that waits to be collected does not."""
    try:
        line = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return line.rpartition(")")[2].split()[0] not in ("Z", "X")


def wait_until_gone(pids: list[int]) -> None:
    end = time.monotonic() + PATIENCE_S
    while any(is_alive(pid) for pid in pids):
        assert time.monotonic() < end, "a child outlived its step"
        LOOK_AGAIN.wait(0.02)


def pids_in(path: Path, count: int) -> list[int]:
    end = time.monotonic() + PATIENCE_S
    while True:
        found = [int(line) for line in path.read_text().split()] if path.exists() else []
        if len(found) == count:
            return found
        assert time.monotonic() < end, "the program did not start"
        LOOK_AGAIN.wait(0.02)


LOOK_AGAIN = threading.Event()  # never set: a pause between two looks
HANGING = "sleep 300 & echo $! >> {pids}; echo $$ >> {pids}; exec sleep 300"


def test_no_child_and_no_grandchild_outlives_the_time_of_a_step(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    kubectl = program(tmp_path, "kubectl", HANGING.format(pids=pids))
    options = {"action": "cordon", "node": "a", "program": str(kubectl)}
    code, _out, problems = run("kubernetes", told(options, seconds_left=2))
    assert code == 1
    assert is_one_line(problems)
    assert "cordon a" in problems
    wait_until_gone(pids_in(pids, 2))


def test_a_step_that_is_told_to_end_ends_what_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    kubectl = program(tmp_path, "kubectl", HANGING.format(pids=pids))
    options = {"action": "cordon", "node": "a", "program": str(kubectl)}
    with start("kubernetes") as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(told(options))
        process.stdin.close()
        started = pids_in(pids, 2)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 1
        assert is_one_line(process.stderr.read().decode())
    wait_until_gone(started)


def test_a_program_that_begins_in_the_moment_of_the_end_ends_too() -> None:
    """A signal can come between the start of a program and its being noted."""
    story = (
        "import subprocess, sys\n"
        "from forewarn_guest.steps import children\n"
        "begun = subprocess.Popen(['sleep', '300'])\n"
        "children.end_children()\n"
        f"print(begun.wait({PATIENCE_S / 2}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", story],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert done.stdout.strip() == str(-signal.SIGKILL)


def test_a_line_is_bounded_and_has_no_character_that_ends_it() -> None:
    shown = one_line(HOSTILE * 1000, 500)
    assert len(shown) == 500
    assert shown.isprintable()


def test_trying_again_ends_with_the_time_and_says_what_the_matter_was() -> None:
    moments = iter([0.0, 0.0, 1000.0])
    deadline = Deadline(5, lambda: next(moments))

    def attempt() -> str:
        raise Again("The wall is hard")

    deadline.left()
    with pytest.raises(StepError, match="The wall is hard, and no time is left"):
        until_done(attempt, deadline)


def test_what_the_other_side_asks_to_wait_is_not_waited_for_beyond_the_time() -> None:
    def attempt() -> str:
        raise Again("Busy", after_s=60_000)

    with pytest.raises(StepError, match="no time is left"):
        until_done(attempt, Deadline(5_000))


def test_a_broken_time_left_binds_nothing_but_the_limit_does() -> None:
    options = json.dumps({"to": "syslog", "socket": "/nowhere", "limit": 0.2})
    for broken in ('"soon"', "null", "true", "NaN", "[]"):
        given = f'{{"event": {{}}, "step": {options}, "seconds_left": {broken}}}'
        code, _out, problems = run("log", given.encode())
        assert code == 1
        assert is_one_line(problems)
