"""wrk as the load generator: one thread, a fixed time, and what it counted."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass

from bench.guests import TARGET
from bench.processes import Failed, Server, cpu_s, program

CONNECTIONS = 64
_REQUESTS = re.compile(r"(\d+) requests in ")
_RATE = re.compile(r"Requests/sec:\s+([\d.]+)")
_BAD = re.compile(r"Non-2xx or 3xx responses: (\d+)|Socket errors: (.*)")


@dataclass(frozen=True, slots=True)
class Load:
    """What one run of the load generator brought, and what it cost the server."""

    requests_per_s: float
    cpu_us_per_request: float


def present() -> bool:
    """True if wrk is installed."""
    return program("wrk") is not None


def run(server: Server, *, seconds: int, new_connection_each: bool) -> Load:
    """Load a server for some seconds. Raises Failed if any answer was not 200."""
    url = f"http://127.0.0.1:{server.guest_port}{TARGET}"
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "-H", "Metadata: true"]
    if new_connection_each:
        command += ["-H", "Connection: close"]
    before_s = cpu_s(server.pid)
    ended = subprocess.run([*command, url], capture_output=True, text=True, check=True)
    used_s = cpu_s(server.pid) - before_s
    requests, rate = _REQUESTS.search(ended.stdout), _RATE.search(ended.stdout)
    bad = _BAD.search(ended.stdout)
    if requests is None or rate is None or bad is not None:
        raise Failed(f"wrk saw more than answers of 200:\n{ended.stdout}{ended.stderr}")
    return Load(float(rate.group(1)), used_s / int(requests.group(1)) * 1e6)
