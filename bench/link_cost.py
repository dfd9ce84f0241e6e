"""What a change costs control for each host and scope, now and before: `--base REV`.

Both sides run as they were at their revision: control, hosts and what drives them. They run one
after the other, by turns, so whatever else the machine does hits both alike. The figure is the
median of the orders of one side against that of the other; a time alone would say more of the
machine than of us. Exits with 0 only if it is at most `--most`. `make bench` compares with BASE.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import structlog

from bench import hot_path, link
from bench.controls import Control, control
from bench.figures import Figure
from bench.processes import Failed, cpu_s, raise_open_files, take_client_core

HOSTS = 200
# Control of the revision before takes no more than 64 unfinished handshakes of one address, so its
# hosts, which share one, begin to follow one after the other. Those of today do so by themselves.
BEGIN_EVERY_S = 0.02
ORDERS = 5
PAIRS = 2
SETTLED_S = 5.0
LIMIT_S = 300.0
RATIO_MAX = 0.6
BASE = "3bfe36a"  # the last revision whose link carried the values of core
_HERE = Path(__file__).resolve().parent.parent


async def _orders_us(folder: Path, running: Control, count: int) -> list[float]:
    """CPU microseconds of control for each host and scope of an order that is taken back."""
    told = 2 * link.HOSTS * link.WIDE_SCOPES
    costs_us = []
    async with link._joined(folder, running) as hosts:  # noqa: SLF001 - of its own revision
        await asyncio.sleep(SETTLED_S)
        for number in range(count):
            order: tuple[str, Any] = (
                f"/v1/hosts/host-{number:03d}/maintain",
                {"event_type": "Freeze"},
            )
            before_s = cpu_s(running.pid)
            await link._round(running, hosts, link.WIDE, order)  # noqa: SLF001 - as above
            costs_us.append((cpu_s(running.pid) - before_s) / told * 1e6)
    return costs_us


def _begin_one_after_the_other() -> None:
    """Have the hosts of the revision before begin to follow one after the other."""
    follower = getattr(link, "Follower", None)
    if follower is None:
        return
    begins_at_once, turn = follower.run, count()

    async def run(self: object) -> None:
        await asyncio.sleep(next(turn) * BEGIN_EVERY_S)
        await begins_at_once(self)

    follower.run = run


def _one_side(hosts: int, orders: int) -> None:
    """Measure the sources that this process runs on, and print what was found."""
    _begin_one_after_the_other()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    link.HOSTS = hosts
    link.ALONE = tuple(f"vm-{number:03d}-{link.WIDE_SCOPES:02d}" for number in range(hosts))
    with tempfile.TemporaryDirectory(prefix="forewarn-link-cost-") as name:
        folder = Path(name)
        with control(folder / "control") as running:
            print(json.dumps(asyncio.run(_orders_us(folder, running, orders))))


def _measured(root: Path, *, hosts: int) -> list[float]:
    """What the sources in this folder cost; in a process of its own, which is made of them."""
    command = [sys.executable, "-P", __file__, "--hosts", str(hosts), "--this-side"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)])}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    if done.returncode:
        raise Failed(f"{root} could not be measured: {done.stderr[-500:]}")
    return [float(cost) for cost in json.loads(done.stdout.splitlines()[-1])]


@dataclass(frozen=True, slots=True)
class Costs:
    """CPU microseconds of control for each host and scope of each order, now and before."""

    now_us: list[float]
    before_us: list[float]

    @property
    def ratio(self) -> float:
        return median(self.now_us) / median(self.before_us)

    def __str__(self) -> str:
        return (
            f"{median(self.now_us):.1f} against {median(self.before_us):.1f} us,"
            f" {len(self.now_us)} orders each"
        )


def _compared(base: str, *, hosts: int, pairs: int) -> Costs:
    """Measure both sides by turns. Raises Failed."""
    costs = Costs([], [])
    with hot_path.sources(base, "bench") as source:
        for number in range(pairs):
            for now in (number % 2 == 0, number % 2 == 1):
                root, found = (_HERE, costs.now_us) if now else (source.parent, costs.before_us)
                found += _measured(root, hosts=hosts)
    return costs


def of_a_change(folder: Path) -> Iterator[Figure]:  # noqa: ARG001 - every side has its own
    """The figure of `make bench`. Without the history of the sources nothing is measured."""
    name = f"Control's CPU per host and scope of a change, against {BASE}"
    if not hot_path.is_here(BASE):
        yield Figure(name=name, measured=None, unit="x", at_most=RATIO_MAX, note=hot_path.NOT_HERE)
        return
    costs = _compared(BASE, hosts=HOSTS, pairs=PAIRS)
    yield Figure(
        name=name,
        measured=costs.ratio,
        unit="x",
        at_most=RATIO_MAX,
        note=f"{costs}; {HOSTS} hosts, {link.WIDE_SCOPES} scopes, both sides by turns",
        raw={"now_us": costs.now_us, "before_us": costs.before_us},
    )


def main() -> int:
    """Compare; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.link_cost", description=__doc__)
    parser.add_argument("--base", help="the revision before the change")
    parser.add_argument("--hosts", type=int, default=HOSTS)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--most", type=float, default=RATIO_MAX, help="the ratio to reach")
    parser.add_argument("--this-side", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    raise_open_files()
    take_client_core()
    if asked.this_side:
        _one_side(asked.hosts, ORDERS)
        return 0
    if not asked.base:
        parser.error("--base is needed: the revision before the change")
    costs = _compared(asked.base, hosts=asked.hosts, pairs=asked.pairs)
    print(
        f"Control's CPU per host and scope of a change: {costs.ratio:.2f} x before"
        f" ({costs}; {asked.hosts} hosts)"
    )
    return 0 if costs.ratio <= asked.most else 1


if __name__ == "__main__":
    sys.exit(main())
