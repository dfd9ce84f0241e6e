"""What a step can rely on while it runs, and what the agent can rely on about it."""

from __future__ import annotations

import os
import random
import signal
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn_guest.run_files import ExitStatus, reserved, write_ended
from forewarn_guest.step_processes import OUTPUT_MAX_B, RUNS_KEPT_MAX, VALUE_MAX_B, Running, Steps
from process_world import ENVIRONMENT, code_of, run, runs, until, written


@pytest.fixture
def steps(tmp_path: Path) -> Iterator[Steps]:
    """Steps that leave no child and no descriptor behind."""
    before = os.listdir("/proc/self/fd")  # noqa: PTH208 - just the names
    yield Steps(tmp_path / "steps")
    until(lambda: children() == [])
    assert os.listdir("/proc/self/fd") == before  # noqa: PTH208 - just the names


def children() -> list[str]:
    mine = Path(f"/proc/self/task/{os.getpid()}/children")
    return mine.read_text(encoding="ascii").split()


# -- what a step gets ---------------------------------------------------------------------------


def test_a_step_gets_its_input_and_says_how_it_ended(steps: Steps) -> None:
    assert run(steps, "cat", given=b'{"event": 1}') == (0, '{"event": 1}')
    assert run(steps, "sh", "-c", "echo out; echo err >&2; exit 3") == (3, "out\nerr\n")
    assert run(steps, "sh", "-c", "kill -9 $$")[0] == 128 + 9
    given = os.urandom(1_000_000)
    assert run(steps, "sh", "-c", "wc -c", given=given) == (0, "1000000\n")


def test_a_step_has_exactly_the_environment_it_was_given(steps: Steps) -> None:
    given = {"PATH": os.defpath, "FOREWARN_EVENT_ID": "a b\n$(id)", "EMPTY": ""}
    running = steps.begin("env", ["env", "-0"], environment=given, given=b"")
    assert code_of(running) == 0
    found = dict(line.split("=", 1) for line in running.said().split("\0") if line)
    found.pop("PWD", None)  # shells add where they are
    found.pop("OLDPWD", None)
    assert found == given


def test_what_no_environment_can_hold_stops_no_step(steps: Steps) -> None:
    given = {**ENVIRONMENT, "A": "x\0y", "B": "\ud800z", "C": "c" * 1_000_000}
    running = steps.begin("env", ["sh", "-c", 'echo "$A $B ${#C}"'], environment=given, given=b"")
    assert code_of(running) == 0
    assert running.said() == f"xy ?z {VALUE_MAX_B}\n"


def test_arguments_are_never_read_by_a_shell(steps: Steps, tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    nasty = [f"$(touch {touched})", f"; touch {touched}", f"`touch {touched}`", "a\nb", "*", "-n"]
    assert run(steps, "printf", "%s|", *nasty) == (0, "".join(f"{one}|" for one in nasty))
    assert not touched.exists()


@pytest.mark.parametrize("name", ["exit", "eval", ".", "exec", "no-such-program"])
def test_a_bare_name_means_a_program_and_never_a_word_of_the_shell(steps: Steps, name: str) -> None:
    with pytest.raises(OSError, match=f"no program {name}"):
        steps.begin("run", [name, "3"], environment={"PATH": "/nowhere"}, given=b"")


def test_a_program_that_cannot_be_run_is_a_failed_step_that_says_why(
    steps: Steps, tmp_path: Path
) -> None:
    plain = tmp_path / "plain"
    plain.write_text("")
    code, said = run(steps, str(plain))
    assert (code, "plain" in said) == (126, True)
    code, said = run(steps, str(tmp_path / "missing"))
    assert (code, "missing" in said) == (127, True)


def test_a_command_that_is_too_long_is_refused_and_leaves_nothing(steps: Steps) -> None:
    with pytest.raises(OSError, match="too long"):
        steps.begin("run", ["true", "x" * 1_000_000], environment=ENVIRONMENT, given=b"")


def test_a_step_gets_default_signals_whatever_the_agent_does_with_its_own(steps: Steps) -> None:
    ignored = [signal.SIGTERM, signal.SIGINT, signal.SIGPIPE, signal.SIGUSR1]
    before = [signal.signal(number, signal.SIG_IGN) for number in ignored]
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP, signal.SIGUSR2])
    try:
        _, said = run(steps, "grep", "-E", "^Sig(Ign|Blk)", "/proc/self/status")
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for number, handler in zip(ignored, before):
            signal.signal(number, handler)
    own_of_the_c_library = 0b11 << 31  # 32 and 33, which no program can set
    masks = [int(line.split()[1], 16) & ~own_of_the_c_library for line in said.splitlines()]
    assert masks == [0, 0]


def test_a_step_has_no_descriptor_but_its_three(steps: Steps) -> None:
    reading, writing = os.pipe()
    os.set_inheritable(reading, True)  # noqa: FBT003 - as os has it
    try:
        looked_at = " ".join(str(number) for number in range(100))
        script = f"for n in {looked_at}; do test -e /proc/$$/fd/$n && echo $n; done; exit 0"
        code, said = run(steps, "sh", "-c", script)
    finally:
        os.close(reading)
        os.close(writing)
    assert (code, said.split()) == (0, ["0", "1", "2"])


def test_an_agent_without_standard_descriptors_can_begin_steps(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from process_world import run\n"
        "from forewarn_guest.step_processes import Steps\n"
        "os.closerange(0, 3)\n"
        "found = run(Steps(Path(sys.argv[1]) / 'inner'), 'cat', given=b'hello')\n"
        "Path(sys.argv[1], 'found').write_text(repr(found))"
    )
    outer = Steps(tmp_path / "outer")
    paths = os.pathsep.join(str(Path(__file__).parent.parent / name) for name in ("src", "tests"))
    running = outer.begin(
        "agent",
        [sys.executable, "-B", "-c", code, str(tmp_path)],
        environment={**ENVIRONMENT, "PYTHONPATH": paths},
        given=b"",
    )
    assert code_of(running) == 0, running.said()
    assert written(tmp_path / "found") == "(0, 'hello')"


def test_only_the_agent_can_read_what_steps_leave(steps: Steps) -> None:
    run(steps, "echo", "secret")
    assert stat.S_IMODE(steps.folder.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in steps.folder.iterdir()}
    assert modes == {"run.run": 0o600, "run.out": 0o600}


def test_to_begin_a_step_costs_the_agent_less_than_10_ms(steps: Steps) -> None:
    took_s = []
    for _ in range(40):
        begun_s = time.process_time()  # of this process: what others take does not count
        running = steps.begin("true", ["true"], environment=ENVIRONMENT, given=b"{}")
        took_s.append(time.process_time() - begun_s)
        assert code_of(running) == 0
    assert min(took_s) < 0.010


# -- what it says -------------------------------------------------------------------------------


def test_a_step_that_says_too_much_ends_well_and_its_beginning_is_kept(steps: Steps) -> None:
    script = "head -c 20000000 /dev/zero | tr '\\0' x; test $? = 0 && exit 7"
    code, said = run(steps, "sh", "-c", script)
    assert code == 7
    assert said.startswith("x" * OUTPUT_MAX_B + "\n(")
    assert (steps.folder / "run.out").stat().st_size == OUTPUT_MAX_B


def test_what_a_step_says_can_be_read_while_it_runs(steps: Steps, tmp_path: Path) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    argv = ["sh", "-c", f"echo one; read x <{go}; echo two"]
    running = steps.begin("talk", argv, environment=ENVIRONMENT, given=b"")
    until(lambda: running.said() == "one\n")
    assert running.poll() is None
    go.write_text("on\n")
    assert code_of(running) == 0
    assert running.said() == "one\ntwo\n"


def test_what_is_no_text_is_shown_as_well_as_can_be(steps: Steps) -> None:
    assert run(steps, "printf", "a\\377b") == (0, "a\ufffdb")


# -- ending it ----------------------------------------------------------------------------------


def begun(steps: Steps, tmp_path: Path, script: str) -> tuple[Running, list[int]]:
    """A step of /bin/sh that has written pids to the file $1, and then that it is ready."""
    pids = tmp_path / "pids"
    argv = ["sh", "-c", script, "sh", str(pids)]
    running = steps.begin("step", argv, environment=ENVIRONMENT, given=b"")
    until(lambda: "ready" in written(pids))
    return running, [int(pid) for pid in written(pids).split()[:-1]]


def test_a_step_that_is_asked_to_end_can_do_so_in_order(steps: Steps, tmp_path: Path) -> None:
    script = "trap 'echo bye; exit 4' TERM; echo $$ ready >>$1; while :; do sleep 0.01; done"
    running, _ = begun(steps, tmp_path, script)
    running.stop(30)
    assert code_of(running) == 4
    assert running.said().endswith("bye\n")
    assert steps.look("step") == ExitStatus(4)


def test_a_step_that_is_asked_to_end_at_any_moment_of_its_beginning_hears_it(steps: Steps) -> None:
    moments = random.Random(1)
    for number in range(200):
        sleeps = ["sleep", "1000"]
        running = steps.begin(f"run-{number}", sleeps, environment=ENVIRONMENT, given=b"")
        time.sleep(moments.uniform(0, 0.004))  # shells begin their command in some milliseconds
        running.stop(30)
        code = code_of(running)
        assert code == 128 + signal.SIGTERM, f"run {number}"  # and not SIGKILL, after the grace


def test_a_command_whose_name_looks_like_an_option_is_run(tmp_path: Path) -> None:
    program = tmp_path / "-c" / "hello"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho hello\n")
    program.chmod(0o700)
    assert run(Steps(tmp_path / "steps", run_in=tmp_path), "-c/hello") == (0, "hello\n")


def test_a_step_that_ignores_being_asked_is_ended_after_the_grace(
    steps: Steps, tmp_path: Path
) -> None:
    script = "trap '' TERM; echo $$ ready >>$1; while :; do sleep 0.01; done"
    running, [pid] = begun(steps, tmp_path, script)
    stopped_s = time.monotonic()
    running.stop(0.2)
    running.stop(60)  # asking again does not give it more time
    assert code_of(running) == 128 + signal.SIGKILL
    assert time.monotonic() - stopped_s >= 0.2
    assert not runs(pid)
    assert steps.look("step") == ExitStatus(128 + signal.SIGKILL)


def test_everything_that_a_step_has_forked_ends_with_it(steps: Steps, tmp_path: Path) -> None:
    script = (
        "sleep 1000 & echo $! >>$1; (trap '' TERM; sleep 1000; sleep 1000) & echo $! >>$1; "
        "echo $$ ready >>$1; wait"
    )
    running, pids = begun(steps, tmp_path, script)
    assert len(pids) == 3
    running.stop(0.1)
    assert code_of(running) == 128 + signal.SIGTERM
    until(lambda: not any(runs(pid) for pid in pids))


def test_a_step_that_stands_still_can_be_stopped(steps: Steps, tmp_path: Path) -> None:
    running, _ = begun(steps, tmp_path, "echo $$ ready >>$1; exec sleep 1000")
    os.killpg(running.pid, signal.SIGSTOP)
    running.stop(30)
    assert code_of(running) == 128 + signal.SIGTERM


def test_what_a_step_leaves_running_is_left_alone_and_holds_nothing_up(
    steps: Steps, tmp_path: Path
) -> None:
    script = "(trap '' HUP; exec sleep 1000) & echo $! ready >>$1; exit 0"
    running, [left] = begun(steps, tmp_path, script)
    try:
        assert code_of(running) == 0
        running.stop(0)
        assert running.poll() == 0
        assert runs(left)
    finally:
        os.kill(left, signal.SIGKILL)


def test_a_step_whose_shell_is_killed_ends_at_once_and_the_next_agent_knows(
    steps: Steps, tmp_path: Path
) -> None:
    script = "echo $$ ready >>$1; while :; do sleep 0.01; done"
    running, [pid] = begun(steps, tmp_path, script)
    os.kill(running.pid, signal.SIGKILL)
    assert code_of(running) == 128 + signal.SIGKILL
    until(lambda: not runs(pid))
    assert steps.look("step") == ExitStatus(128 + signal.SIGKILL)


# -- bad days -----------------------------------------------------------------------------------


def test_a_step_runs_though_nothing_can_be_written_about_it(steps: Steps, tmp_path: Path) -> None:
    steps.folder.rmdir()
    go = tmp_path / "went"
    running = steps.begin("run", ["touch", str(go)], environment=ENVIRONMENT, given=b"")
    assert code_of(running) == 0
    assert go.exists()
    assert running.said() == ""


def test_a_folder_to_run_in_that_is_gone_is_a_failed_step(tmp_path: Path) -> None:
    steps = Steps(tmp_path / "steps", run_in=tmp_path / "gone")
    running = steps.begin("run", ["true"], environment=ENVIRONMENT, given=b"")
    assert code_of(running) == 125
    assert "gone" in running.said()


@pytest.mark.parametrize("name", ["", "../up", ".hidden", "a/b"])
def test_the_name_of_a_run_stays_in_its_folder(steps: Steps, name: str) -> None:
    with pytest.raises(ValueError, match="name of a run"):
        steps.begin(name, ["true"], environment=ENVIRONMENT, given=b"")


def test_files_of_old_runs_are_removed_and_those_of_running_ones_are_not(steps: Steps) -> None:
    old = steps.begin("old", ["sleep", "1000"], environment=ENVIRONMENT, given=b"")
    os.utime(steps.folder / "old.run", (1, 1))
    for number in range(300):
        (steps.folder / f"past-{number}.run").write_text("begun x\nrunning\nended 0\n")
        (steps.folder / f"past-{number}.out").write_text("")
    again = Steps(steps.folder)
    assert run(again, "true") == (0, "")
    assert len(list(steps.folder.iterdir())) < 410
    assert (steps.folder / "old.run").exists()
    old.stop(30)
    assert code_of(old) == 128 + signal.SIGTERM


def test_a_clock_that_was_set_back_ends_no_run_that_is_about_to_begin(steps: Steps) -> None:
    tomorrow = time.time() + 86_400
    for number in range(RUNS_KEPT_MAX):
        steps.reserve(f"old-{number}")
        old = steps.folder / f"old-{number}.run"
        write_ended(old, 0)
        os.utime(old, (tomorrow, tomorrow))
    steps.reserve("next")
    steps._tidy()
    assert reserved(steps.folder / "next.run")
