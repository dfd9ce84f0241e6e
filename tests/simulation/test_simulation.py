"""The seeded simulation: every promise, in many worlds that go wrong at random."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import forewarn
from forewarn.ports import EVERYTHING
from simulation import seeds
from simulation.find_planted import look_for
from simulation.judge import Broken
from simulation.planted import PLANTED
from simulation.planting import Planted, plant
from simulation.run import breach, run_seed
from simulation.wire_link import Fate

FIXED = seeds.fixed(seeds.count())
DRAWN = seeds.drawn(seeds.count(), seeds.draw())
SEEDS_PER_TEST = 10
PLANTED_SEEDS_MAX = 200
RICH_WORLDS_MAX = 40
HANGS_S = 500  # only ends a hang
TESTS = Path(__file__).parent.parent


def in_parts(played: tuple[int, ...]) -> range:
    """Where each test begins. Numbers of parts, so that a test has the same name in every run."""
    return range(0, len(played), SEEDS_PER_TEST)


def play(played: tuple[int, ...], first: int) -> None:
    for seed in played[first : first + SEEDS_PER_TEST]:
        assert run_seed(seed).judge.stats, f"nothing happened in seed {seed}"


@pytest.mark.parametrize("first", in_parts(FIXED))
def test_every_invariant_holds_in_every_world(first: int) -> None:
    """I1 to I9 hold after every step; a breach names its seed."""
    play(FIXED, first)


@pytest.mark.parametrize("first", in_parts(DRAWN))
def test_every_invariant_holds_in_worlds_that_nobody_saw_before(first: int) -> None:
    """As above, in seeds that are drawn anew at each run and printed at its end."""
    play(DRAWN, first)


def test_a_run_plays_worlds_that_ever_broke_and_as_many_new_ones_as_old_ones() -> None:
    assert seeds.fixed(200)[:100] == tuple(range(100))
    assert set(seeds.BROKE) <= set(seeds.fixed(0))
    assert len(set(seeds.drawn(200, "1"))) == 100
    assert not set(seeds.drawn(200, "1")) & set(seeds.drawn(200, "2"))
    assert seeds.drawn(200, "1") == seeds.drawn(200, "1")


def test_the_seeds_that_were_drawn_are_printed_and_can_be_drawn_again(tmp_path: Path) -> None:
    """Two processes of one run draw the same, and a person reads which, also when all is well."""
    (tmp_path / "test_simulation.py").write_text(
        "from simulation import seeds\n"
        "import pytest\n"
        "@pytest.mark.parametrize('part', range(4))\n"
        "def test_it(part): print('PLAYED', seeds.drawn(6, seeds.draw()))\n"
    )
    place = tmp_path / "simulation"
    place.mkdir()
    (tmp_path / "test_simulation.py").rename(place / "test_simulation.py")
    (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text())

    def run(**draw: str) -> str:
        env = {key: value for key, value in os.environ.items() if key != seeds.DRAW}
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", "-n", "2", "-rP", "-p", "no:cacheprovider", "."],
            cwd=tmp_path,
            env={**env, "PYTHONPATH": str(TESTS), seeds.COUNT: "6", **draw},
            capture_output=True,
            text=True,
            check=False,
            timeout=HANGS_S,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    first = run()
    told = re.search(rf"seeds drawn by {seeds.DRAW}=(\d+): (\d+) (\d+) (\d+)$", first, re.MULTILINE)
    assert told is not None, first
    drawn = ", ".join(told.groups()[1:])
    assert first.count(f"PLAYED ({drawn})") == 4
    assert f"PLAYED ({drawn})" in run(**{seeds.DRAW: told[1]})
    assert f"PLAYED ({drawn})" not in run()


def test_a_breach_says_how_its_world_is_played_again() -> None:
    """The command that it names plays that very seed."""
    told = str(breach(7, Broken("I1: on purpose"), ["the end"]))
    assert told.startswith("seed 7: I1: on purpose\n")
    assert told.endswith("the end")
    command = next(line for line in told.splitlines() if "simulation.run" in line)
    words = command.partition("../.venv/bin/python ")[2].split()
    played = subprocess.run(
        [sys.executable, *words],
        cwd=TESTS,
        env={**os.environ, "PYTHONPATH": "."},
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS_S,
    )
    assert played.returncode == 0, played.stdout + played.stderr
    assert re.search(r"^seed 7: \{", played.stdout, re.MULTILINE)


def test_a_seed_replays_the_same_run() -> None:
    """The same seed gives the same story, line for line, and the same journal."""
    first, again = run_seed(7), run_seed(7)
    assert first.trace == again.trace
    journals = [world.store.journal(EVERYTHING, after=0, limit=100_000) for world in (first, again)]
    assert journals[0] == journals[1]
    assert journals[0]


def test_a_seed_replays_the_same_run_in_every_process(tmp_path: Path) -> None:
    """Nothing depends on the order of sets, which is another in each process."""
    telling = tmp_path / "telling.py"
    telling.write_text(
        "import sys\n"
        "from simulation.run import run_seed\n"
        "with open(sys.argv[1], 'w') as story:\n"
        "    for seed in (9, 9_000_092):\n"
        "        story.write('\\n'.join(run_seed(seed).trace))\n"
    )
    for number in ("1", "2", "3"):
        subprocess.run(
            [sys.executable, str(telling), str(tmp_path / number)],
            env={**os.environ, "PYTHONPATH": str(TESTS), "PYTHONHASHSEED": number},
            stdout=subprocess.DEVNULL,
            check=True,
            timeout=HANGS_S,
        )
    stories = [(tmp_path / number).read_text() for number in ("1", "2", "3")]
    assert "healing" in stories[0]
    assert stories == [stories[0]] * 3


def test_the_worlds_are_rich_enough() -> None:
    """A few dozen worlds together see every event type, started and really hitting a VM, and all
    that can go wrong between hosts and control.
    """
    missing = {
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
        "host crashes",
        "inventories",
        "postponed",
        "inventories in slices",
        "slices",
        "hosts shut out",
        "lie: it shows what never was",
        "lie: another's action has ended",
        "lie: another's VM approves",
        "lie: another's VM is here and running",
        "lie: what it claimed once has ended",
        *(fate.name for fate in Fate),
    }
    for seed in range(RICH_WORLDS_MAX):
        world = run_seed(seed)
        seen = world.judge.stats | world.wire.fates
        missing -= {what for what, count in seen.items() if count > 0}
        if not missing:
            return
    pytest.fail(f"no world has {sorted(missing)}")


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.what)
def test_a_planted_bug_is_found(bug: Planted, tmp_path: Path) -> None:
    """Each bug in `planted` is found, as a breach of its invariant, within 200 fixed seeds."""
    plant(bug, Path(forewarn.__file__).parent, tmp_path / "forewarn")
    found = subprocess.run(
        [sys.executable, "-m", "simulation.run", str(bug.first), str(PLANTED_SEEDS_MAX)],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{TESTS}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS_S,
    )
    assert found.returncode == 1, f"{bug.what} was not found\n{found.stderr[-2000:]}"
    breach = next(
        line
        for line in found.stdout.splitlines()
        if line.startswith("seed ") and not line.endswith("}")
    )
    assert bug.shown_by(breach), breach


def test_the_search_for_a_planted_bug_names_worlds_that_show_it() -> None:
    """What is said of a bug is how many worlds show it, and which."""
    bug = next(bug for bug in PLANTED if bug.what.startswith("an event changes its EventId"))
    told = look_for(bug, first=bug.first, worlds=5, enough=1)
    assert re.fullmatch(
        rf"{bug.what}\n  1 of [1-5] worlds from 0 on, \d+ s: [0-4] \(.* s\)\n", told
    )
