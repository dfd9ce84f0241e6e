"""`python -m bench`: measure, print one table, write bench/results.json.

Exits with 0 only if every target that could be compared was reached. With names of measurements
(polls, hot_path, attacks, fleet, scale, inventories, waits, approvals, approvals_before, emulator,
commands, webhooks, guest, link, link_cost, many_hosts, reports, hosts, consoles, feeds, rig,
simulation) only those are made, and the file is left alone.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench import (
    approvals,
    attacks,
    commands,
    consoles,
    emulator,
    feeds,
    figures,
    guest,
    hosts,
    hot_path,
    inventories,
    link,
    link_cost,
    many_hosts,
    polls,
    reports,
    rigged,
    scale,
    simulated,
    startup,
    waits,
    webhooks,
)
from bench.figures import Figure
from bench.processes import Failed, raise_open_files, take_client_core

RESULTS = Path(__file__).with_name("results.json")


def _fleet_then_start(folder: Path) -> Iterator[Figure]:
    """Two in one: what `polls.spread` leaves behind is what `startup` starts on."""
    yield from polls.spread(folder)
    yield from startup.from_folder(folder)


MEASUREMENTS: dict[str, Callable[[Path], Iterator[Figure]]] = {
    "polls": polls.against_nginx,
    "hot_path": hot_path.of_a_poll,
    "attacks": attacks.on_neighbours,
    "fleet": _fleet_then_start,
    "scale": scale.at_rest,
    "inventories": inventories.of_any_size,
    "waits": waits.parked,
    "approvals": approvals.durable,
    "approvals_before": approvals.against_base,
    "emulator": emulator.in_tests,
    "commands": commands.of_operators,
    "webhooks": webhooks.to_webhooks,
    "guest": guest.in_a_vm,
    "link": link.of_many,
    "link_cost": link_cost.of_a_change,
    "many_hosts": many_hosts.of_one_control,
    "reports": reports.of_one_host,
    "hosts": hosts.in_daily_life,
    "consoles": consoles.of_a_large_fleet,
    "feeds": feeds.of_many_facts,
    "rig": rigged.from_approval_to_action,
    "simulation": simulated.worlds,
}


def main() -> int:
    """Run the measurements; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("name", nargs="*", help=f"only these: {', '.join(MEASUREMENTS)}")
    wanted = parser.parse_args().name or list(MEASUREMENTS)
    unknown = [name for name in wanted if name not in MEASUREMENTS]
    if unknown:
        parser.error(f"there is no {unknown[0]}; there are {', '.join(MEASUREMENTS)}")
    about = figures.machine()
    found: list[Figure] = []
    failed = False
    # As Ctrl-C does: leave every `with`, so that nothing that was started stays behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    raise_open_files()
    take_client_core()
    for name in wanted:
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        began_s = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="forewarn-bench-") as folder:
            try:
                found.extend(MEASUREMENTS[name](Path(folder) / name))
            except Failed as why:
                failed = True
                print(f"{name} failed: {why}", file=sys.stderr)
        print(f"  {time.perf_counter() - began_s:.0f} s", file=sys.stderr, flush=True)
    figures.show(found)
    if len(wanted) == len(MEASUREMENTS):
        figures.save(RESULTS, about, found)
        print(f"Everything behind it is in {RESULTS.name}.")
    missed = [figure.name for figure in found if figure.reached is False]
    return 1 if failed or missed else 0


if __name__ == "__main__":
    sys.exit(main())
