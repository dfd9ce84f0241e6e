"""Which worlds show each planted bug: what `first` is chosen by.

`python -m simulation.find_planted [WORDS]` (from tests/) plays worlds with each bug whose
description holds WORDS, from its `first` on, until ENOUGH of them have shown it. It prints those
worlds, with the CPU seconds until the breach, and the share of worlds that show it: a bug that one
world in many shows is lost sight of as soon as a change of the product moves what happens in it.
The worlds of a bug move with every such change; nothing is wrong while the search of the test ends
soon.

  --from SEED     begin there, not at `first`
  --worlds COUNT  play at most so many for each bug
  --enough COUNT  stop when so many have shown it
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import forewarn
from simulation.judge import Broken
from simulation.planted import PLANTED
from simulation.planting import Planted, plant
from simulation.run import run_seed

WORLDS = 200
ENOUGH = 3
TESTS = Path(__file__).parent.parent


def played(bug: Planted, first: int, count: int) -> Iterator[tuple[int, float, bool]]:
    """The worlds from `first` on, in a process that has the bug: CPU seconds, and if it shows."""
    with tempfile.TemporaryDirectory() as place:
        plant(bug, Path(forewarn.__file__).parent, Path(place) / "forewarn")
        with subprocess.Popen(
            [sys.executable, "-m", "simulation.find_planted", "--play", str(first), str(count)],
            env={**os.environ, "PYTHONPATH": f"{place}{os.pathsep}{TESTS}"},
            stdout=subprocess.PIPE,
            text=True,
        ) as playing:
            try:
                for line in playing.stdout or ():
                    seed, seconds, told = line.rstrip("\n").split(" ", 2)
                    yield int(seed), float(seconds), bug.shown_by(told)
            finally:
                playing.kill()


def play(first: int, count: int) -> None:
    """Inside of the process that has the bug: one line for each world."""
    for seed in range(first, first + count):
        before_s, told = time.process_time(), ""
        try:
            run_seed(seed)
        except Broken as broken:
            told = str(broken).splitlines()[0]
        sys.stdout.write(f"{seed} {time.process_time() - before_s:.2f} {told}\n")
        sys.stdout.flush()


def look_for(bug: Planted, *, first: int, worlds: int, enough: int) -> str:
    """What a person reads of one bug."""
    shown: list[tuple[int, float]] = []
    count, total_s = 0, 0.0
    for seed, seconds, shows in played(bug, first, worlds):
        count, total_s = count + 1, total_s + seconds
        if shows:
            shown.append((seed, seconds))
        if len(shown) == enough:
            break
    where = ", ".join(f"{seed} ({seconds:.1f} s)" for seed, seconds in shown) or "none"
    return (
        f"{bug.what}\n  {len(shown)} of {count} worlds from {first} on, {total_s:.0f} s: {where}\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m simulation.find_planted")
    parser.add_argument("words", nargs="*", help="of the bug's description; none: every bug")
    parser.add_argument("--from", dest="first", type=int, default=None)
    parser.add_argument("--worlds", type=int, default=WORLDS)
    parser.add_argument("--enough", type=int, default=ENOUGH)
    parser.add_argument("--play", type=int, nargs=2, default=None, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.play is not None:
        play(*asked.play)
        return
    for bug in PLANTED:
        if " ".join(asked.words) in bug.what:
            first = bug.first if asked.first is None else asked.first
            sys.stdout.write(look_for(bug, first=first, worlds=asked.worlds, enough=asked.enough))
            sys.stdout.flush()


if __name__ == "__main__":
    main()
