"""What a poll costs now and before a change: `python -m bench.hot_path --base REV`.

Both services run on the server's core at once and are asked by turns, so whatever else the machine
does hits both alike: a round of one poll on each of 64 connections, then one of the other service.
The figure is the median, over pairs of many such rounds, of the CPU time per request, now against
before. With `--wrk` a pair is two runs of wrk instead: more like a real load, and less steady.
Exits with 0 only if the median is at most `--most`. `make bench` compares with BASE.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles

from bench import load
from bench.figures import Figure
from bench.fleets import fleet
from bench.guests import Line, Operator, enable, lines, poll_request
from bench.processes import (
    Failed,
    Forewarn,
    cpu_s,
    forewarn,
    program,
    raise_open_files,
    take_client_core,
)

PAIRS = 40
ROUNDS = 40
WARM_UP_S = 2
RATIO_MAX = 1.05
BASE = "5c78235"  # the last revision in which `serve` had a path of its own to the documents
_HERE = Path(__file__).resolve().parent.parent


def is_here(revision: str) -> bool:
    """Whether git has a revision of these sources."""
    git = program("git")
    if git is None:
        return False
    command = [git, "-C", str(_HERE), "cat-file", "-e", f"{revision}^{{commit}}"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


NOT_HERE = "git, or the history of these sources, is not here"


@contextmanager
def sources(revision: str, *beside: str) -> Iterator[Path]:
    """The sources as they were at a revision, and folders beside them, in a folder of their own."""
    git = program("git")
    if git is None:
        raise Failed("git is not installed")
    archived = subprocess.run(
        [git, "-C", str(_HERE), "archive", revision, "src", *beside],
        capture_output=True,
        check=False,
    )
    if archived.returncode:
        raise Failed(archived.stderr.decode(errors="replace").strip())
    with tempfile.TemporaryDirectory(prefix="forewarn-base-") as folder:
        with tarfile.open(fileobj=io.BytesIO(archived.stdout)) as tar:
            tar.extractall(folder, filter="data")
        yield Path(folder) / "src"


@contextmanager
def _served(folder: Path, source: Path) -> Iterator[Forewarn]:
    """A service out of these sources, with a document that has an event."""
    small = fleet(scopes=3, vms_per_scope=3, hosts=3, domains=3)
    with forewarn(folder, small.inventory(), settings={"PYTHONPATH": str(source)}) as service:
        enable(service.guest_port, [small.vms[0].address])
        Operator(service).restart_all([small.vms[0].name])
        yield service


def _pairs_of_rounds(now: Forewarn, before: Forewarn, *, count: int) -> list[tuple[float, float]]:
    """CPU microseconds per request of each pair: now, before. The first pair only warms up."""
    sources_of = ["127.0.0.1"] * load.CONNECTIONS
    with lines(now.guest_port, sources_of) as mine, lines(before.guest_port, sources_of) as theirs:
        pairs = []
        for _ in range(count + 1):
            used_s = {now: 0.0, before: 0.0}
            for number in range(ROUNDS):
                both = ((now, mine), (before, theirs))
                for server, opened in both if number % 2 else both[::-1]:
                    used_s[server] += _round_s(server, opened)
            requests = ROUNDS * load.CONNECTIONS
            pairs.append((used_s[now] / requests * 1e6, used_s[before] / requests * 1e6))
    return pairs[1:]


def _round_s(server: Forewarn, opened: Sequence[Line]) -> float:
    """CPU time of a server for one poll on each connection, all under way at once."""
    request = poll_request()
    before_s = cpu_s(server.pid)
    for line in opened:
        line.send(request)
    if any(line.receive().status != 200 for line in opened):
        raise Failed("a poll was not answered 200")
    return cpu_s(server.pid) - before_s


def _pairs_of_runs(
    now: Forewarn, before: Forewarn, *, count: int, seconds: int, new_connection_each: bool
) -> list[tuple[float, float]]:
    """CPU microseconds per request of each pair of runs: now, before."""

    def cost_us(server: Forewarn, run_s: int) -> float:
        run = load.run(server, seconds=run_s, new_connection_each=new_connection_each)
        return run.cpu_us_per_request

    for server in (now, before):
        cost_us(server, WARM_UP_S)
    pairs = []
    for number in range(count):
        if number % 2:
            mine = cost_us(now, seconds)
            pairs.append((mine, cost_us(before, seconds)))
        else:
            theirs = cost_us(before, seconds)
            pairs.append((cost_us(now, seconds), theirs))
    return pairs


def _tell(pairs: list[tuple[float, float]]) -> float:
    """Say what was found; the median of the ratios."""
    ratios = [mine / theirs for mine, theirs in pairs]
    low, _, high = quantiles(ratios, n=4)
    print(
        f"CPU per request: median {median(ratios):.4f} x before"
        f" (half of the pairs {low:.3f} to {high:.3f}, all {min(ratios):.3f} to {max(ratios):.3f});"
        f" {median(mine for mine, _ in pairs):.2f} against"
        f" {median(theirs for _, theirs in pairs):.2f} us; {len(pairs)} pairs"
    )
    return median(ratios)


@contextmanager
def _both(folder: Path, base: str) -> Iterator[tuple[Forewarn, Forewarn]]:
    """A service of now, and one of the revision before."""
    with (
        sources(base) as source,
        _served(folder / "now", _HERE / "src") as now,
        _served(folder / "before", source) as before,
    ):
        yield now, before


def of_a_poll(folder: Path) -> Iterator[Figure]:
    """The figure of `make bench`. Without the history of the sources nothing is measured."""
    name = f"CPU per GET of a document, against {BASE}"
    if not is_here(BASE):
        yield Figure(name=name, measured=None, unit="x", at_most=RATIO_MAX, note=NOT_HERE)
        return
    with _both(folder, BASE) as (now, before):
        pairs = _pairs_of_rounds(now, before, count=PAIRS)
    ratios = [mine / theirs for mine, theirs in pairs]
    mine_us, theirs_us = (median(one) for one in zip(*pairs, strict=True))
    yield Figure(
        name=name,
        measured=median(ratios),
        unit="x",
        at_most=RATIO_MAX,
        note=f"median of {PAIRS} pairs by turns; {mine_us:.2f} against {theirs_us:.2f} us",
        raw={"ratios": ratios},
    )


def main() -> int:
    """Compare; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.hot_path", description=__doc__)
    parser.add_argument("--base", required=True, help="the revision before the change")
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--wrk", type=int, metavar="SECONDS", help="of each run of wrk")
    parser.add_argument("--most", type=float, default=RATIO_MAX, help="the ratio to reach")
    parser.add_argument("--new-connection-each", action="store_true", help="with --wrk only")
    asked = parser.parse_args()
    if asked.wrk and not load.present():
        print("wrk is not installed.", file=sys.stderr)
        return 2
    raise_open_files()
    take_client_core()
    with (
        tempfile.TemporaryDirectory(prefix="forewarn-hot-path-") as folder,
        _both(Path(folder), asked.base) as (now, before),
    ):
        pairs = (
            _pairs_of_runs(
                now,
                before,
                count=asked.pairs,
                seconds=asked.wrk,
                new_connection_each=asked.new_connection_each,
            )
            if asked.wrk
            else _pairs_of_rounds(now, before, count=asked.pairs)
        )
        ratio = _tell(pairs)
    return 0 if ratio <= asked.most else 1


if __name__ == "__main__":
    sys.exit(main())
