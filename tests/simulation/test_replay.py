"""A command log of a run replays to the same journal, and to everything else that was committed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path

import msgspec
import pytest

from forewarn.control import command_json
from forewarn.control.command_log import Entry, LoggedBatch, TakenBack
from forewarn.control.commands import MaintainHost, RestartVm
from forewarn.control.hosts.liveness import News
from simulation.fleets import hosts_of
from simulation.replaying import NotTheSame, everything, journal, replay
from simulation.run import run_seed
from simulation.world import new_store

# Few: each is played and decided anew. Of the worlds that go wrong all the time, some of each kind.
SEEDS = (1, 19, 20, 8_000_002, 9_000_000, 9_000_004)
FIRST = 1
SEEDS_MAX = 40
HANGS_S = 500  # only ends a hang
TESTS = Path(__file__).parent.parent


@lru_cache(maxsize=1)
def played(seed: int) -> tuple[tuple[bytes, ...], list[str]]:
    """The command log of a world, and what was committed in it."""
    log: list[bytes] = []
    world = run_seed(seed, log)
    return tuple(log), everything(world.store)


def decided(seed: int, log: Iterable[bytes]) -> list[str]:
    """What is committed once the log was decided anew."""
    store = new_store(hosts_of(seed))
    replay(log, store)
    return everything(store)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_command_log_replays_to_the_same_journal(seed: int) -> None:
    """Byte by byte, and so is every other row: open and ended things, receipts, answers."""
    log, rows = played(seed)
    again = decided(seed, log)
    assert journal(again) == journal(rows)
    assert again == rows
    assert journal(rows)


def test_a_command_log_replays_whatever_went_wrong() -> None:
    """Lives that died before and after a commit, full disks, refused commands: in some world."""
    missing = {"lives", "died", "died after its commit", "taken back", "refused"}
    for seed in range(SEEDS_MAX):
        log, rows = played(seed)
        store = new_store(hosts_of(seed))
        seen = replay(log, store)
        assert everything(store) == rows, f"seed {seed}"
        missing -= {what for what, count in seen.items() if count > (what == "lives")}
        if not missing:
            return
    pytest.fail(f"no world has {sorted(missing)}")


def test_a_command_log_replays_the_same_in_another_process(tmp_path: Path) -> None:
    """Nothing depends on the order of sets, which is another in each process."""
    log, rows = played(FIRST)
    (tmp_path / "log").write_bytes(b"\n".join(log))
    told = subprocess.run(
        [sys.executable, "-m", "simulation.replaying", str(FIRST), str(tmp_path / "log")],
        env={**os.environ, "PYTHONPATH": str(TESTS), "PYTHONHASHSEED": "3"},
        capture_output=True,
        text=True,
        check=True,
        timeout=HANGS_S,
    )
    assert told.stdout == "\n".join(rows)


# A log that was tampered with: what the tests above see, and would not if they compared nothing.


def without_an_order(entries: list[Entry]) -> list[Entry]:
    """The first order of an operator or owner that an id was made for is left out."""
    for place, entry in enumerate(entries):
        if isinstance(entry, LoggedBatch) and entry.ids:
            orders = [c for c in entry.commands if isinstance(c, RestartVm | MaintainHost)]
            if orders:
                left = tuple(c for c in entry.commands if c is not orders[0])
                entries[place] = msgspec.structs.replace(entry, commands=left)
                return entries
    return entries


def without_what_was_heard(entries: list[Entry]) -> list[Entry]:
    return [
        msgspec.structs.replace(entry, heard=News()) if isinstance(entry, LoggedBatch) else entry
        for entry in entries
    ]


def a_moment_later(entries: list[Entry]) -> list[Entry]:
    return [
        msgspec.structs.replace(entry, now_ms=entry.now_ms + 1)
        if isinstance(entry, LoggedBatch)
        else entry
        for entry in entries
    ]


def as_if_nothing_was_taken_back(entries: list[Entry]) -> list[Entry]:
    return [entry for entry in entries if not isinstance(entry, TakenBack)]


def without_its_last_commit(entries: list[Entry]) -> list[Entry]:
    return entries[:-200]


@pytest.mark.parametrize(
    "tamper",
    [
        without_an_order,
        without_what_was_heard,
        a_moment_later,
        as_if_nothing_was_taken_back,
        without_its_last_commit,
    ],
)
def test_a_log_that_was_tampered_with_does_not_replay_to_the_same(
    tamper: Callable[[list[Entry]], list[Entry]],
) -> None:
    """In the first world whose log has what is tampered with."""
    for seed in range(FIRST, SEEDS_MAX):
        log, rows = played(seed)
        entries = [command_json.entry_read(line) for line in log]
        assert [command_json.entry_written(entry) for entry in entries] == list(log)
        tampered = [command_json.entry_written(entry) for entry in tamper(entries)]
        if tampered != list(log):
            break
    else:
        pytest.fail("no world has it")
    try:
        again = decided(seed, tampered)
    except NotTheSame:
        return
    assert again != rows
