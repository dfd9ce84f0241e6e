"""The seeded simulation: every promise, in many worlds that go wrong at random."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import forewarn
from simulation.planted import PLANTED, Planted, plant
from simulation.run import run_seed

SEEDS = int(os.environ.get("FOREWARN_TEST_SEEDS", "200"))
SEEDS_PER_TEST = 10
PLANTED_SEEDS_MAX = 200
TESTS = Path(__file__).parent.parent


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_every_invariant_holds_in_every_world(first: int) -> None:
    """I1 to I9 hold after every step; a breach names its seed."""
    for seed in range(first, min(first + SEEDS_PER_TEST, SEEDS)):
        assert run_seed(seed).judge.stats, f"nothing happened in seed {seed}"


def test_a_seed_replays_the_same_run() -> None:
    """The same seed gives the same story, line for line, and the same journal."""
    first, again = run_seed(7), run_seed(7)
    assert first.trace == again.trace
    journals = [
        world.store.journal(after=0, limit=100_000, scope=None, event_id=None)
        for world in (first, again)
    ]
    assert journals[0] == journals[1]
    assert journals[0]


def test_the_worlds_are_rich_enough() -> None:
    """A few dozen worlds together see every event type, started and really hitting a VM."""
    seen: dict[str, int] = {}
    for seed in range(40):
        for what, count in run_seed(seed).judge.stats.items():
            seen[what] = seen.get(what, 0) + count
    for wanted in (
        "published Freeze",
        "published Reboot",
        "published Redeploy",
        "published Preempt",
        "published Terminate",
        "started Freeze",
        "started Reboot",
        "started Redeploy",
        "started Preempt",
        "started Terminate",
        "hit Freeze",
        "hit Reboot",
        "hit Redeploy",
        "crashes",
    ):
        assert seen.get(wanted, 0) > 0, f"no world has {wanted}: {seen}"


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.what)
def test_a_planted_bug_is_found(bug: Planted, tmp_path: Path) -> None:
    """Each bug in `planted` is found, as a breach of its invariant, within 200 seeds."""
    plant(bug, Path(forewarn.__file__).parent, tmp_path / "forewarn")
    found = subprocess.run(
        [sys.executable, "-m", "simulation.run", "0", str(PLANTED_SEEDS_MAX)],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{TESTS}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert found.returncode == 1, f"{bug.what} was not found\n{found.stderr[-2000:]}"
    breach = next(
        line
        for line in found.stdout.splitlines()
        if line.startswith("seed ") and not line.endswith("}")
    )
    assert f": {bug.invariant}: " in breach, breach
