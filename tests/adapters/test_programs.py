"""Other programs: what they say, and that none outlives the wait for it."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from forewarn.adapters.libvirt.host_actions import run_command
from forewarn.adapters.programs import ProgramResult, run_program
from support.waiting import until

LONG_S = 60.0


def run(*words: str, seconds: float = LONG_S, given: str = "") -> ProgramResult:
    return asyncio.run(run_program(words, seconds=seconds, given=given))


def test_a_program_gives_its_code_and_both_of_its_outputs() -> None:
    found = run("sh", "-c", "cat; echo no >&2; exit 3", given="said\n")
    assert found == ProgramResult(3, "said\n", "no\n")


def test_a_program_that_is_missing_cannot_start() -> None:
    with pytest.raises(FileNotFoundError):
        run("forewarn-no-such-program")


def test_a_program_that_takes_too_long_is_given_up() -> None:
    with pytest.raises(TimeoutError):
        run("sleep", "1000", seconds=0.1)


def test_a_program_that_is_given_up_is_killed_with_what_it_has_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"sleep 1000 & echo $$ $! > {pids}.new; mv {pids}.new {pids}; wait"

    async def given_up() -> None:
        running = asyncio.create_task(run_program(("sh", "-c", script), seconds=1_000.0))
        await until(pids.exists, "the program runs")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        for pid in pids.read_text("ascii").split():
            await until(partial(ended, pid), f"{pid} has ended")

    asyncio.run(given_up())


@pytest.mark.parametrize("turns", range(8))
def test_a_program_that_is_given_up_while_it_starts_does_not_run_on(
    tmp_path: Path, turns: int
) -> None:
    pid = tmp_path / "pid"
    script = f"echo $$ > {pid}; sleep 1000 & wait"

    async def given_up() -> None:
        starting = asyncio.create_task(run_program(("sh", "-c", script), seconds=1_000.0))
        for _ in range(turns):
            await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

    asyncio.run(given_up())
    assert not pid.exists() or not pid.read_text("ascii") or ended(pid.read_text("ascii").strip())


def ended(pid: str) -> bool:
    """True of a process that has ended, though init may not have reaped it yet."""
    try:
        status = Path(f"/proc/{pid}/status").read_text("ascii", "replace")
    except OSError:
        return True
    return "\nState:\tZ" in status


def test_a_command_of_the_settings_answers_with_a_code_whatever_happens() -> None:
    def answer(*command: str, seconds: float = LONG_S) -> tuple[int, str]:
        return asyncio.run(run_command(command, seconds))

    assert answer("sh", "-c", "echo a; echo b >&2; exit 4") == (4, "a\nb")
    assert answer("sleep", "1000", seconds=0.1) == (124, "it took more than 0.1 s")
    code, said = answer("forewarn-no-such-program")
    assert code == 127
    assert "No such file" in said
