"""What an agent finds of the steps that the one before it had begun, and never mistakes."""

from __future__ import annotations

import ctypes
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn_guest.configuration import Part
from forewarn_guest.run_files import (
    Alive,
    ExitStatus,
    NotBegun,
    ProcessIdentity,
    Unknown,
    boot_id,
    look,
    start_ticks,
    write_begun,
    write_stopped,
)
from forewarn_guest.step_processes import END_UNKNOWN, RUN_SCRIPT, Running, Steps
from forewarn_guest.tracked_event import Run
from process_world import ENVIRONMENT, code_of, run, runs, until, written
from programs import needs

PATHS = os.pathsep.join(str(Path(__file__).parent.parent / name) for name in ("src", "tests"))
RUN = Run(Part.PREPARE, "step", 1)

# An agent that begins one step, a script of /bin/sh, says its pid and is killed.
AGENT = """
import os, sys
from pathlib import Path
from forewarn_guest.step_processes import Steps
steps = Steps(Path(sys.argv[1]))
argv = ["sh", "-c", sys.argv[2], "sh", *sys.argv[3:]]
running = steps.begin("step", argv, environment=dict(os.environ), given=b"given")
os.write(1, f"{running.pid} {running.start_ticks}".encode())
os.kill(os.getpid(), 9)
"""


def orphan(folder: Path, script: str, *arguments: str) -> ProcessIdentity:
    """A step whose agent was killed right after it had begun it."""
    agent = subprocess.run(
        [sys.executable, "-S", "-B", "-c", AGENT, str(folder), script, *arguments],
        env={**ENVIRONMENT, "PYTHONPATH": PATHS},
        stdout=subprocess.PIPE,
        check=False,
        timeout=60,
    )
    assert agent.returncode == -signal.SIGKILL
    pid, ticks = agent.stdout.split()
    until(lambda: "running" in written(folder / "step.run"))
    return ProcessIdentity(int(pid), int(ticks), boot_id())


PR_SET_CHILD_SUBREAPER = 36  # prctl(2)


@pytest.fixture(autouse=True)
def _orphans() -> Iterator[None]:
    """Processes without a parent come to the test and not to init, which may leave zombies."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    assert prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    yield
    until(buried)
    assert prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) == 0


def buried() -> bool:
    """Reap what has ended; true when nothing is left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False


@pytest.fixture
def steps(tmp_path: Path) -> Iterator[Steps]:
    """Steps of the second agent. What is left of the first one's is ended."""
    found = Steps(tmp_path / "steps")
    yield found
    left = found.look("step")
    if isinstance(left, Alive):
        os.killpg(left.identity.pid, signal.SIGKILL)


def adopted(steps: Steps) -> Running:
    """The step, found running."""
    found = steps.find("step", RUN)
    assert isinstance(found, Running)
    return found


def test_a_step_that_outlived_its_agent_is_found_waited_for_and_heard(
    steps: Steps, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    who = orphan(steps.folder, 'cat; read x <"$1"; echo; echo "$x"; exit 5', str(go))
    running = adopted(steps)
    assert (running.pid, running.start_ticks, running.boot_id) == (
        who.pid,
        who.start_ticks,
        who.boot_id,
    )
    assert 0 <= running.age_s < 60
    assert running.poll() is None
    go.write_text("on\n")
    assert code_of(running) == 5
    until(lambda: running.said() == "given\non\n")
    assert running.poll() == 5


def test_a_step_that_ended_without_an_agent_is_known_by_its_exit_status(steps: Steps) -> None:
    who = orphan(steps.folder, "exit 6")
    until(lambda: not runs(who.pid))
    assert steps.find("step", RUN) == 6
    assert steps.look("step") == ExitStatus(6)


def test_a_step_does_not_wait_or_die_because_nobody_listens(steps: Steps) -> None:
    script = "head -c 5000000 /dev/zero | tr '\\0' x && test $? = 0 && exit 9"
    who = orphan(steps.folder, script)
    until(lambda: not runs(who.pid))
    assert steps.look("step") == ExitStatus(9)


def test_a_step_that_was_found_can_be_stopped(steps: Steps, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    script = "trap 'exit 4' TERM; echo >\"$1\"; while :; do sleep 0.01; done"
    who = orphan(steps.folder, script, str(ready))
    running = adopted(steps)
    until(ready.exists)
    running.stop(600)
    assert code_of(running) == 4
    assert session_of(who.pid) == []


def test_a_step_that_was_found_and_ignores_being_asked_is_ended(
    steps: Steps, tmp_path: Path
) -> None:
    ready = tmp_path / "ready"
    script = "trap '' TERM; echo >\"$1\"; while :; do sleep 0.01; done"
    who = orphan(steps.folder, script, str(ready))
    running = adopted(steps)
    until(ready.exists)
    running.stop(0.1)
    assert code_of(running) == 128 + signal.SIGKILL
    until(lambda: session_of(who.pid) == [])


def test_a_step_whose_shell_was_killed_is_still_running_as_long_as_it_does(
    steps: Steps, tmp_path: Path
) -> None:
    ready = tmp_path / "ready"
    who = orphan(steps.folder, 'echo >"$1"; while :; do sleep 0.01; done', str(ready))
    until(ready.exists)
    os.kill(who.pid, signal.SIGKILL)
    until(lambda: not runs(who.pid))
    running = adopted(steps)
    assert running.poll() is None
    running.stop(0)
    assert code_of(running) in (128 + signal.SIGTERM, 128 + signal.SIGKILL)
    assert session_of(who.pid) == []


def test_the_end_of_a_step_that_was_killed_as_a_whole_is_unknown(
    steps: Steps, tmp_path: Path
) -> None:
    ready = tmp_path / "ready"
    who = orphan(steps.folder, 'echo >"$1"; while :; do sleep 0.01; done', str(ready))
    until(ready.exists)
    running = adopted(steps)
    os.killpg(who.pid, signal.SIGKILL)
    until(lambda: session_of(who.pid) == [])
    assert running.poll() == END_UNKNOWN
    assert steps.find("step", RUN) is None
    assert isinstance(steps.look("step"), Unknown)


def session_of(pid: int) -> list[int]:
    """The living processes of a session."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and runs(int(entry.name)):
            stat = written_stat(int(entry.name))
            if stat and int(stat[3]) == pid:
                found.append(int(entry.name))
    return found


def written_stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:
        return []


# -- never mistaken -----------------------------------------------------------------------------


def test_a_process_is_the_same_only_with_its_start_and_its_boot(tmp_path: Path) -> None:
    nothing = tmp_path / "no.run"
    me = ProcessIdentity(os.getpid(), start_ticks(os.getpid()) or 0, boot_id())
    assert look(nothing, me) == Alive(me)
    others = [
        ProcessIdentity(me.pid, me.start_ticks + 1, me.boot_id),
        ProcessIdentity(me.pid, me.start_ticks, "another"),
        ProcessIdentity(2**22 + 1, me.start_ticks, me.boot_id),
    ]
    for other in others:
        assert isinstance(look(nothing, other), Unknown)
    assert isinstance(look(nothing), Unknown)


def test_a_pid_that_is_used_again_is_never_taken_for_the_step(steps: Steps) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can have a pid used again")
    who = orphan(steps.folder, "kill -9 $PPID; exit 0")
    until(lambda: not runs(who.pid) and session_of(who.pid) == [])
    assert isinstance(steps.look("step", who), Unknown)
    until(buried)
    for _ in range(200):
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(who.pid - 1))
        with subprocess.Popen(["sleep", "1000"], start_new_session=True) as other:
            try:
                if other.pid == who.pid:
                    assert isinstance(steps.look("step", who), Unknown)
                    assert steps.find("step", RUN) is None
                    return
            finally:
                other.kill()
    pytest.skip("other programs took the pid each time")


def test_a_step_of_before_the_boot_is_unknown_unless_it_had_ended(tmp_path: Path) -> None:
    path = tmp_path / "a.run"
    stat = Path("/proc/self/stat").read_text(encoding="ascii").strip()
    path.write_text(f"begun other-boot\nrunning {stat}\n")
    assert isinstance(look(path), Unknown)
    path.write_text(f"begun other-boot\nrunning {stat}\nended 3\n")
    assert look(path) == ExitStatus(3)
    path.write_text("begun other-boot\n")
    assert isinstance(look(path), Unknown)
    assert path.read_text() == "begun other-boot\n"


def test_a_file_cut_at_any_byte_never_says_an_end_that_was_not(tmp_path: Path) -> None:
    path = tmp_path / "a.run"
    dead = "4194304 (sh) S " + " ".join(["7"] * 49)
    whole = f"begun {boot_id()}\nrunning {dead}\nended 127\n".encode("ascii")
    path.write_bytes(whole)
    assert look(path) == ExitStatus(127)
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert isinstance(look(path), (Unknown, NotBegun))
    for garbage in (b"\0" * 100, b"\xff\n" * 9, b"running x\nended y\n", b"x" * 100_000):
        path.write_bytes(garbage)
        assert isinstance(look(path), Unknown)


# -- intended and not begun ---------------------------------------------------------------------


def test_a_step_that_was_intended_and_never_begun_is_known_not_to_have_run(steps: Steps) -> None:
    steps.reserve("step")
    assert steps.look("step") == NotBegun()
    assert steps.look("step") == NotBegun()
    assert steps.find("step", RUN) == NotBegun()
    running = steps.begin("step", ["true"], environment=ENVIRONMENT, given=b"")
    assert code_of(running) == 0
    assert steps.look("step") == ExitStatus(0)


def test_a_step_that_the_journal_knows_to_have_begun_is_not_abandoned(tmp_path: Path) -> None:
    path = tmp_path / "a.run"
    write_begun(path)
    me = ProcessIdentity(os.getpid(), start_ticks(os.getpid()) or 0, boot_id())
    assert look(path, me) == Alive(me)
    assert path.read_text() == f"begun {boot_id()}\n"
    assert look(path, ProcessIdentity(me.pid, me.start_ticks + 1, me.boot_id)) == NotBegun()


def late(path: Path, went: Path) -> int:
    """The exit status of a process that comes late to the file of its run."""
    opened = f'exec "$@" 3>>{shlex.quote(str(path))}'
    script = ["/bin/sh", "-c", RUN_SCRIPT, "late", "yes", "/", "/usr/bin/touch", str(went)]
    run = ["/bin/sh", "-c", opened, "sh", *script]
    return subprocess.run(run, check=False, timeout=60).returncode


def test_a_process_that_finds_itself_abandoned_does_not_run_its_step(tmp_path: Path) -> None:
    path, went = tmp_path / "a.run", tmp_path / "went"
    write_begun(path)
    assert look(path) == NotBegun()
    assert late(path, went) == 125
    assert not went.exists()
    assert look(path) == NotBegun()
    write_begun(path)
    assert late(path, went) == 0  # it is the file that says so
    assert went.exists()


def test_a_process_that_was_asked_to_end_before_it_came_does_not_run_its_step(
    tmp_path: Path,
) -> None:
    path, went = tmp_path / "a.run", tmp_path / "went"
    write_begun(path)
    write_stopped(path)
    assert late(path, went) == 128 + signal.SIGTERM
    assert not went.exists()
    assert look(path) == NotBegun()


def test_a_process_that_is_asked_to_end_before_its_step_begins_does_not_run_it(
    tmp_path: Path,
) -> None:
    path, went = tmp_path / "a.run", tmp_path / "went"
    write_begun(path)
    with path.open("a", encoding="ascii") as file:
        file.write("running 1 (sh) S 1 1\n")
    write_stopped(path)
    assert late(path, went) == 128 + signal.SIGTERM
    assert not went.exists()
    assert look(path) == ExitStatus(128 + signal.SIGTERM)


def test_a_process_that_cannot_say_that_it_runs_does_not_run_its_step(tmp_path: Path) -> None:
    path, went = tmp_path / "no-folder" / "a.run", tmp_path / "went"
    late = ["/bin/sh", "-c", RUN_SCRIPT, "late", str(path), "/", "/usr/bin/touch", str(went)]
    ended = subprocess.run(late, check=False, timeout=60, stderr=subprocess.DEVNULL)
    assert ended.returncode == 125
    assert not went.exists()


# Reserves, says so, begins a step that leaves a line, says so.
LIFE = """
import os, sys
from pathlib import Path
from forewarn_guest.step_processes import Steps
steps = Steps(Path(sys.argv[1]))
steps.reserve("step")
os.write(1, b"reserved ")
argv = ["sh", "-c", 'echo ran >>"$1"', "sh", sys.argv[2]]
steps.begin("step", argv, environment=dict(os.environ), given=b"{}")
os.write(1, b"begun ")
"""


@needs("strace")
@pytest.mark.parametrize("call", ["write", "pipe2", "memfd_create", "/^(vfork|clone3?)$"])
def test_an_agent_killed_at_any_call_of_beginning_leaves_no_doubt(
    tmp_path: Path, call: str
) -> None:
    for when in range(1, 40):
        steps = Steps(tmp_path / f"steps-{when}")
        ran = tmp_path / f"ran-{when}"
        killed = ["-e", f"inject={call}:signal=KILL:when={when}"]
        agent = [sys.executable, "-S", "-B", "-c", LIFE, str(steps.folder), str(ran)]
        life = subprocess.run(
            ["strace", "-qqq", "-o", os.devnull, *killed, *agent],
            env={**ENVIRONMENT, "PYTHONPATH": PATHS},
            stdout=subprocess.PIPE,
            check=False,
            timeout=60,
        )
        if b"reserved" in life.stdout:
            until(lambda: not isinstance(steps.look("step"), Alive))  # noqa: B023 - called at once
            found = steps.look("step")
            assert found in (ExitStatus(0), NotBegun())
            assert written(ran) == ("ran\n" if found == ExitStatus(0) else "")
        if life.returncode == 0:
            assert when > 1
            return
    pytest.fail("the life never came to its end")


def test_a_run_can_be_repeated_under_the_same_name(steps: Steps) -> None:
    assert run(steps, "sh", "-c", "echo one; exit 1") == (1, "one\n")
    assert run(steps, "sh", "-c", "echo two") == (0, "two\n")
    assert steps.look("run") == ExitStatus(0)
