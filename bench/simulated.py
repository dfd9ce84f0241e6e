"""What the seeded worlds of tests/simulation cost: too dear, and nobody plays many of them."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.figures import Figure
from bench.processes import Failed

SEEDS = 200
CPU_S_MAX = 150.0
_TESTS = Path(__file__).resolve().parent.parent / "tests"


def worlds(folder: Path) -> Iterator[Figure]:
    """CPU time of the first 200 seeds, played one after the other in one process."""
    folder.mkdir(parents=True)
    before_s = _children_s()
    log = folder / "log"
    with log.open("wb") as said:
        played = subprocess.run(
            [sys.executable, "-m", "simulation.run", "0", str(SEEDS)],
            cwd=_TESTS,
            env={**os.environ, "PYTHONPATH": str(_TESTS)},
            stdout=said,
            stderr=subprocess.DEVNULL,
            check=False,
        )
    if played.returncode:
        raise Failed(f"a world broke: {log.read_text(encoding='utf-8', errors='replace')[-500:]}")
    yield Figure(
        name=f"{SEEDS} seeds of the simulation, CPU",
        measured=_children_s() - before_s,
        unit="s",
        at_most=CPU_S_MAX,
        note="one process, one seed after the other",
    )


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
