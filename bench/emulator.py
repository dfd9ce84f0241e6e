"""The emulator in tests: how soon a cloud is there, and how long one whole lifecycle takes."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from bench.figures import Figure
from bench.processes import Failed
from forewarn.testing import Cloud

LIFECYCLES = 50
LIFECYCLE_MS_MAX = 10.0
TURNS_MAX = 27  # of the writer, in one lifecycle, when every read was one
STARTS = 9
FIRST_START_CPU_MS_MAX = 250.0
MODULES_MAX = 498
FURTHER_START_MS_MAX = 12.0
VMS_MANY = 1_000
MANY_START_MS_MAX = 500.0

NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
PATH = "/metadata/scheduledevents?api-version=2020-07-01"

# What the fixture costs the first test of a run: the interpreter, the imports, and a cloud that has
# been asked. CPU time, user and system; modules.
FIRST = """
import sys, resource
from forewarn.testing import Cloud
with Cloud() as cloud:
    cloud.vm("vm0")
    used = resource.getrusage(resource.RUSAGE_SELF)
    print((used.ru_utime + used.ru_stime) * 1000, len(sys.modules))
"""


def in_tests(folder: Path) -> Iterator[Figure]:
    """The figures of the fixture."""
    yield from _lifecycles()
    yield from _first_starts(folder)
    yield from _further_starts()


def _lifecycles() -> Iterator[Figure]:
    with Cloud() as cloud:
        lifecycles_ms = [_lifecycle_ms(cloud) for _ in range(LIFECYCLES)]
        before = _turns(cloud)
        _lifecycle_ms(cloud)
        turns = _turns(cloud) - before
    yield Figure(
        name="Emulator, a user reboot from order to gone",
        measured=median(lifecycles_ms),
        unit="ms",
        at_most=LIFECYCLE_MS_MAX,
        note=f"order, GET, POST, started, clock, gone over HTTP; at most {max(lifecycles_ms):.1f}"
        f" ms in {LIFECYCLES}",
        raw={"lifecycles_ms": lifecycles_ms},
    )
    yield Figure(
        name="Emulator, turns of the writer in that reboot",
        measured=turns,
        unit="",
        at_most=TURNS_MAX,
        note="batches of commands; what is only read takes none",
    )


def _turns(cloud: Cloud) -> float:
    """How many turns the writer has taken so far."""
    headers = {"Authorization": f"Bearer {cloud.operator_token}"}
    operator = http.client.HTTPConnection(urlsplit(cloud.operator_url).netloc, timeout=10)
    try:
        operator.request("GET", "/metrics", headers=headers)
        lines = operator.getresponse().read().decode().splitlines()
    finally:
        operator.close()
    [line] = [line for line in lines if line.startswith("forewarn_writer_turns_total ")]
    return float(line.rpartition(" ")[2])


def _first_starts(folder: Path) -> Iterator[Figure]:
    """In processes of their own. The first only makes the bytecode."""
    seen = [_first_start(folder) for _ in range(STARTS + 1)][1:]
    cpu_ms = [one[0] for one in seen]
    yield Figure(
        name="Emulator, CPU of the fixture's first start in a process",
        measured=median(cpu_ms),
        unit="ms",
        at_most=FIRST_START_CPU_MS_MAX,
        note=f"interpreter and imports included, bytecode made; at most {max(cpu_ms):.0f} ms in"
        f" {STARTS}",
        raw={"cpu_ms": cpu_ms},
    )
    yield Figure(
        name="Emulator, modules that are loaded then",
        measured=median(one[1] for one in seen),
        unit="",
        at_most=MODULES_MAX,
        note="those of the standard library included",
    )


def _first_start(folder: Path) -> tuple[float, int]:
    environment = {name: value for name, value in os.environ.items() if name != NO_BYTECODE}
    environment["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
    ended = subprocess.run(
        [sys.executable, "-c", FIRST],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=environment,
    )
    if ended.returncode:
        raise Failed(f"the cloud did not start: {ended.stderr[-500:]}")
    cpu_ms, modules = ended.stdout.split()
    return float(cpu_ms), int(modules)


def _further_starts() -> Iterator[Figure]:
    further_ms = [_start_ms(1) for _ in range(STARTS)]
    yield Figure(
        name="Emulator, each further start",
        measured=median(further_ms),
        unit="ms",
        at_most=FURTHER_START_MS_MAX,
        note=f"at most {max(further_ms):.0f} ms in {STARTS}",
        raw={"further_ms": further_ms},
    )
    many_ms = [_start_ms(VMS_MANY) for _ in range(STARTS)]
    yield Figure(
        name=f"Emulator, a start with {VMS_MANY:,} VMs",
        measured=median(many_ms),
        unit="ms",
        at_most=MANY_START_MS_MAX,
        note=f"each with a host and a listener of its own; at most {max(many_ms):.0f} ms in"
        f" {STARTS}",
        raw={"many_ms": many_ms},
    )


def _lifecycle_ms(cloud: Cloud) -> float:
    vm = cloud.vm("vm0")
    began_s = time.perf_counter()
    event = cloud.restart(vm)
    guest = http.client.HTTPConnection(urlsplit(vm.url).netloc, timeout=10)
    try:
        if _asked(guest, "GET")["Events"][0]["EventStatus"] != "Scheduled":
            raise Failed("the event was not shown as Scheduled")
        _asked(guest, "POST", json.dumps({"StartRequests": [{"EventId": event.event_id}]}))
        if _asked(guest, "GET")["Events"][0]["EventStatus"] != "Started":
            raise Failed("the approved event had not started")
        cloud.clock.next()
        if _asked(guest, "GET")["Events"]:
            raise Failed("the event was not gone")
    finally:
        guest.close()
    return (time.perf_counter() - began_s) * 1_000


def _asked(guest: http.client.HTTPConnection, method: str, body: str | None = None) -> Any:
    guest.request(method, PATH, body=body, headers={"Metadata": "true"})
    answer = guest.getresponse()
    content = answer.read()
    if answer.status != 200:
        raise Failed(f"{method} was answered {answer.status}")
    return json.loads(content) if content else {}


def _start_ms(vms: int) -> float:
    began_s = time.perf_counter()
    with Cloud(vms=[f"vm{number}" for number in range(vms)]) as cloud:
        cloud.vm("vm0")
        return (time.perf_counter() - began_s) * 1_000
