"""One command of the command line: what it costs in CPU time, with warm bytecode."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from bench.figures import Figure
from bench.fleets import fleet
from bench.processes import Failed, clean_environment, forewarn, forewarn_program

RUNS = 20
CPU_S_MAX = 0.3
COMMANDS = (("vm", "list"), ("event", "list"), ("--version",))


def of_operators(folder: Path) -> Iterator[Figure]:
    """The dearest of a few everyday commands against a service, each by its median."""
    small = fleet(scopes=3, vms_per_scope=3, hosts=3, domains=3)
    with forewarn(folder / "commands", small.inventory()):
        data = folder / "commands" / "data"
        spent_s = {" ".join(one): _cpu_s(data, one) for one in COMMANDS}
    medians = {name: median(found) for name, found in spent_s.items()}
    dearest = max(medians, key=lambda name: medians[name])
    yield Figure(
        name="One command, CPU",
        measured=medians[dearest],
        unit="s",
        at_most=CPU_S_MAX,
        note=f"`forewarn {dearest}`, the dearest of {len(COMMANDS)}; median of {RUNS} runs",
        raw={"cpu_s": spent_s},
    )


def _cpu_s(data: Path, arguments: Sequence[str]) -> list[float]:
    """CPU time of each run; the one before them has written the bytecode."""
    command = [forewarn_program(), "--data", str(data), *arguments]
    return [_run_s(command) for _ in range(RUNS + 1)][1:]


def _run_s(command: Sequence[str]) -> float:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=clean_environment())
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise Failed(f"{' '.join(command)} ended with {process.returncode}")
    return used.ru_utime + used.ru_stime
