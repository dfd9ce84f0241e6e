"""A large fleet at rest: what `serve` costs while nothing happens, and what it costs to start."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from bench.figures import Figure
from bench.fleets import fleet
from bench.guests import Operator
from bench.processes import cpu_s, forewarn, resident_mib

REST_S = 30.0
SETTLE_S = 10.0  # after the start, until every loop has had its first turns
AT_REST_MAX = {500: 3.0, 5_000: 8.4}  # per cent of a core, by hosts
STARTED_AGAIN_CPU_S_MAX = 6.0
PAGES = 200


def at_rest(folder: Path) -> Iterator[Figure]:
    """100,000 VMs in 10,000 scopes, on 500 hosts and on 5,000."""
    for hosts, at_most in AT_REST_MAX.items():
        large = fleet(scopes=10_000, vms_per_scope=10, hosts=hosts, domains=5)
        inventory = large.inventory()
        place = folder / str(hosts)
        with forewarn(place, inventory) as service:
            first_cpu_s = cpu_s(service.pid)
        with forewarn(place, inventory) as service:
            again_cpu_s = cpu_s(service.pid)
            time.sleep(SETTLE_S)
            began_s, before_s = time.perf_counter(), cpu_s(service.pid)
            time.sleep(REST_S)
            share = (cpu_s(service.pid) - before_s) / (time.perf_counter() - began_s) * 100
            memory_mib = resident_mib(service.pid)
            page_us = _page_us(Operator(service), service.pid)
        what = f"100,000 VMs in 10,000 scopes on {hosts:,} hosts"
        yield Figure(
            name=f"{what}: at rest",
            measured=share,
            unit="% of a core",
            at_most=at_most,
            note=f"{REST_S:.0f} s; {memory_mib:.0f} MiB; a page of 50 VMs {page_us:.0f} us of CPU",
            raw={"memory_mib": memory_mib, "page_us": page_us},
        )
        yield Figure(
            name=f"{what}: started again",
            measured=again_cpu_s,
            unit="s of CPU",
            at_most=STARTED_AGAIN_CPU_S_MAX if hosts == min(AT_REST_MAX) else None,
            note=f"to the first answer and to all listeners; first start {first_cpu_s:.1f} s",
            raw={"first_cpu_s": first_cpu_s},
        )


def _page_us(operator: Operator, pid: int) -> float:
    """CPU time of one page of 50 VMs out of the middle of all."""
    operator.ask("GET", "/v1/vms?limit=50&after=vm-50000")
    before_s = cpu_s(pid)
    for _ in range(PAGES):
        operator.ask("GET", "/v1/vms?limit=50&after=vm-50000")
    return (cpu_s(pid) - before_s) / PAGES * 1e6
