"""The emulator in tests: how soon a cloud is there, and how long one whole lifecycle takes."""

from __future__ import annotations

import http.client
import json
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
LIFECYCLE_MS_MAX = 50.0
STARTS = 5
START_MS_MAX = 300.0
VMS_MANY = 1_000

PATH = "/metadata/scheduledevents?api-version=2020-07-01"

# What the fixture costs the first test of a run: the imports, and a cloud that has been asked.
FIRST = """
import time
began_s = time.perf_counter()
from forewarn.testing import Cloud
with Cloud() as cloud:
    cloud.vm("vm0")
    print((time.perf_counter() - began_s) * 1000)
"""


def in_tests(_: Path) -> Iterator[Figure]:
    """The figures of the fixture."""
    with Cloud() as cloud:
        lifecycles_ms = [_lifecycle_ms(cloud) for _ in range(LIFECYCLES)]
    yield Figure(
        name="Emulator, a user reboot from order to gone",
        measured=median(lifecycles_ms),
        unit="ms",
        at_most=LIFECYCLE_MS_MAX,
        note=f"order, GET, POST, started, clock, gone over HTTP; at most {max(lifecycles_ms):.1f}"
        f" ms in {LIFECYCLES}",
        raw={"lifecycles_ms": lifecycles_ms},
    )
    first_ms = [_first_start_ms() for _ in range(STARTS)]
    yield Figure(
        name="Emulator, the fixture's first start in a process",
        measured=median(first_ms),
        unit="ms",
        at_most=START_MS_MAX,
        note=f"imports included; at most {max(first_ms):.0f} ms in {STARTS}",
        raw={"first_ms": first_ms},
    )
    further_ms = [_start_ms(1) for _ in range(STARTS)]
    yield Figure(
        name="Emulator, each further start",
        measured=median(further_ms),
        unit="ms",
        at_most=START_MS_MAX,
        note=f"at most {max(further_ms):.0f} ms in {STARTS}",
        raw={"further_ms": further_ms},
    )
    yield Figure(
        name=f"Emulator, a start with {VMS_MANY:,} VMs",
        measured=_start_ms(VMS_MANY),
        unit="ms",
        note="each with a listener of its own",
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


def _first_start_ms() -> float:
    ended = subprocess.run(
        [sys.executable, "-c", FIRST], capture_output=True, text=True, check=False, timeout=60
    )
    if ended.returncode:
        raise Failed(f"the cloud did not start: {ended.stderr[-500:]}")
    return float(ended.stdout)
