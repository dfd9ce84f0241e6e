"""What holds when the process is killed, the disk is full, or the disk fails: real processes.

Faults are injected into system calls with strace, on the files of the database only.
"""

from __future__ import annotations

import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from forewarn.adapters.sqlite.data_folder import DATABASE_NAME
from forewarn.adapters.sqlite.database_mark import MARK_NAME
from forewarn.adapters.sqlite.store import SqliteStore
from forewarn.ports import EVERYTHING, Epoch
from programs import needs

CHILD = Path(__file__).parent.parent / "store_child.py"
CHILD_LIMIT_S = 60
LIFE = "child"  # of `store_child.count`

needs_strace = needs("strace")


def make_folder(tmp_path: Path) -> Path:
    """A data folder with an empty database, so that a child does not have to make it.

    Without its mark: a mark with a checksum of the file puts the first checkpoint off until a
    thread has forgotten it, and faults are counted by system calls.
    """
    folder = tmp_path / "data"
    SqliteStore.in_folder(folder).close()
    (folder / MARK_NAME).unlink()
    return folder


def numbers_said(output: str) -> list[int]:
    return [int(number) for number in re.findall(r"^committed (\d+)$", output, re.MULTILINE)]


def numbers_kept(folder: Path) -> list[int]:
    """Which commits are in the database now; heartbeat, count and life must be those of them."""
    store = SqliteStore.in_folder(folder)
    lines = store.journal(EVERYTHING, after=0, limit=100_000)
    numbers = [line.fact.at_ms for line in lines]
    found = store.load()
    assert found.heartbeat_ms == (numbers[-1] if numbers else None)
    assert found.position == len(numbers)
    assert found.epochs == ((Epoch(LIFE, 1),) if numbers else ())
    store.close()
    return numbers


@pytest.mark.parametrize("seed", range(4))
def test_whatever_was_committed_survives_kill_9(tmp_path: Path, seed: int) -> None:
    folder = make_folder(tmp_path)
    command = [sys.executable, str(CHILD), "count", str(folder), "1000000"]
    stop_after = random.Random(seed).randrange(1, 1_500)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        said = []
        for line in child.stdout:
            said += numbers_said(line)
            if len(said) >= stop_after:
                break
        child.send_signal(signal.SIGKILL)
        said += numbers_said(child.stdout.read())
    kept = numbers_kept(folder)
    assert kept[: len(said)] == said
    assert len(kept) in (len(said), len(said) + 1)  # one may be durable and not yet said


def run_traced(folder: Path, rounds: int, *options: str) -> tuple[str, list[str]]:
    """Run the child under strace. Returns what it said, and the system calls that were traced."""
    trace = folder.parent / "trace"
    command = ["strace", "-f", "-y", "-o", str(trace), *options]
    command += [sys.executable, str(CHILD), "count", str(folder), str(rounds)]
    ended = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=CHILD_LIMIT_S
    )
    if "not permitted" in ended.stderr and "ptrace" in ended.stderr.lower():
        pytest.skip("strace may not trace here")
    assert ended.returncode == 0, ended.stderr
    return ended.stdout, trace.read_text().splitlines()


def run_faulty(folder: Path, rounds: int, calls: str, fault: str) -> tuple[str, list[str]]:
    """Run the child with a fault in the calls on the database's files; no others are traced."""
    names = (DATABASE_NAME, f"{DATABASE_NAME}-wal")
    files = [f"--trace-path={folder / name}" for name in names]
    return run_traced(folder, rounds, *files, "-e", f"trace={calls}", *fault.split())


@needs_strace
def test_every_commit_is_synced_before_it_is_said(tmp_path: Path) -> None:
    calls = "trace=pwrite64,fdatasync,fsync,write"
    _, traced = run_traced(make_folder(tmp_path), 20, "-e", calls)
    unsynced = True
    synced_says = 0
    for call in traced:
        if f"{DATABASE_NAME}-wal>" in call:
            unsynced = "pwrite64(" in call
        if '"committed ' in call:
            assert not unsynced, call
            unsynced = True  # the next one needs a sync of its own
            synced_says += 1
    assert synced_says == 20


@needs_strace
@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
def test_after_a_failed_sync_of_the_wal_nothing_is_said_or_written_any_more(
    tmp_path: Path, error: str
) -> None:
    folder = make_folder(tmp_path)
    fault = f"-e inject=fdatasync:error={error}:when=5+"
    said, calls = run_faulty(folder, 8, "fdatasync,pwrite64,unlink", fault)
    committed = numbers_said(said)
    assert committed
    after = said.split(f"committed {committed[-1]}\n")[1]
    assert "failed fatal" in after
    assert "failed mild" not in after
    first = next(number for number, call in enumerate(calls) if "INJECTED" in call)
    assert not [call for call in calls[first + 1 :] if "pwrite64(" in call or "unlink(" in call]
    assert numbers_kept(folder)[: len(committed)] == committed


@needs_strace
def test_a_failed_sync_of_the_database_file_is_fatal_and_keeps_the_wal(tmp_path: Path) -> None:
    """SQLite alone would ignore it, try again, believe the kernel and drop the WAL."""
    database, rounds = f"{DATABASE_NAME}>", 600
    _, calls = run_faulty(make_folder(tmp_path / "calm"), rounds, "fdatasync", "")
    syncs = [call for call in calls if "fdatasync(" in call]
    place = next(number for number, call in enumerate(syncs, 1) if database in call)
    folder = make_folder(tmp_path / "faulty")
    fault = f"-e inject=fdatasync:error=EIO:when={place}"
    said, calls = run_faulty(folder, rounds, "fdatasync,pwrite64,unlink", fault)
    committed = numbers_said(said)
    assert 0 < len(committed) < rounds
    assert said.count("failed fatal") == rounds - len(committed)
    first = next(number for number, call in enumerate(calls) if "INJECTED" in call)
    assert database in calls[first]
    assert not [call for call in calls[first + 1 :] if "pwrite64(" in call or "unlink(" in call]
    assert (folder / f"{DATABASE_NAME}-wal").stat().st_size > 0
    assert numbers_kept(folder)[: len(committed)] == committed


@needs_strace
def test_a_failed_write_is_fatal(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    said, _ = run_faulty(folder, 6, "pwrite64", "-e inject=pwrite64:error=EIO:when=60")
    committed = numbers_said(said)
    assert committed
    assert said.count("failed fatal") == 6 - len(committed)
    assert numbers_kept(folder) == committed


@needs_strace
def test_a_full_disk_is_not_fatal_and_later_commits_hold(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    said, _ = run_faulty(folder, 9, "pwrite64", "-e inject=pwrite64:error=ENOSPC:when=20..22")
    committed = numbers_said(said)
    assert "failed fatal" not in said
    assert said.count("failed mild") == 9 - len(committed) > 0
    assert committed[-1] == 9
    assert numbers_kept(folder) == committed


@needs("unshare")
def test_on_a_really_full_file_system_commits_fail_mildly_until_there_is_room(
    tmp_path: Path,
) -> None:
    script = 'mount -t tmpfs -o size=1m tmpfs "$1" && exec "$2" "$3" fill "$1/data"'
    small = tmp_path / "small"
    small.mkdir()
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", script, "sh"]
    command += [str(small), sys.executable, str(CHILD)]
    ended = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=CHILD_LIMIT_S
    )
    if "unshare" in ended.stderr or "mount" in ended.stderr:
        pytest.skip(f"no file system of our own here: {ended.stderr.strip()}")
    assert ended.returncode == 0, ended.stderr
    committed = numbers_said(ended.stdout)
    assert "failed fatal" not in ended.stdout
    assert ended.stdout.count("failed mild") == 1
    last = committed[-1]
    assert committed[-2] == last - 2  # the one between found no room
    assert f"heartbeat {last}, journal {len(committed)}" in ended.stdout
    assert list(small.iterdir()) == []
