"""One host daemon with 200 VMs that each ask five times a second, and what that costs it.

The daemon is a process of its own on a core of its own; control and the guests share the other.
Guests ask by the clock, whether the last answer has come or not: what is measured is from when a
request was due to when its answer was here, so a daemon that stands still for a while cannot hide
it. Meanwhile events come and go, as many documents change, and each VM keeps one connection.
"""

from __future__ import annotations

import heapq
import json
import select
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.controls import Control, control
from bench.figures import Figure
from bench.guests import Line, Operator, poll_request
from bench.processes import (
    CLIENT_CORE,
    Failed,
    clean_environment,
    cpu_s,
    resident_mib,
    running,
    wait,
)
from bench.simulated_host import HOST

VMS = 200
REQUESTS_PER_S = 5
SECONDS = 20.0
ORDER_EVERY_S = 2.0
P99_MS_MAX = 5.0
RESIDENT_MIB_MAX = 100.0
SERVED_LIMIT_S = 30.0
LOOK_EVERY_S = 0.3
LATE_LIMIT_S = 10.0


def in_daily_life(folder: Path) -> Iterator[Figure]:
    """The figures of one host daemon."""
    folder.mkdir(parents=True)
    with (
        control(folder / "control", core=CLIENT_CORE, yielding=True) as running_control,
        daemon_of(folder, running_control, vms=VMS) as daemon,
        ExitStack() as opened,
    ):
        until_served(daemon.ports)
        guests = [Guest(Line(port)) for port in daemon.ports.values()]
        for guest in guests:
            opened.callback(guest.line.close)
        before_s, began_s = cpu_s(daemon.pid), time.perf_counter()
        waits = _ask_all(guests, running_control)
        percent = (cpu_s(daemon.pid) - before_s) / (time.perf_counter() - began_s) * 100
        resident = resident_mib(daemon.pid)
    yield from _figures(waits, percent, resident)


@dataclass(frozen=True, slots=True)
class Daemon:
    """A running host daemon, and where its VMs ask."""

    pid: int
    ports: Mapping[str, int]
    metrics_port: int


@contextmanager
def daemon_of(folder: Path, joined: Control, *, vms: int) -> Iterator[Daemon]:
    """Run a host daemon with so many simulated VMs, joined to a control."""
    log = folder / "host.log"
    command = [sys.executable, "-m", "bench.simulated_host", str(folder / "host")]
    command += [joined.hosts_url, joined.invite(HOST), str(vms)]
    with running(command, log, clean_environment()) as process:
        wait(process, log, lambda: _said(log) is not None)
        said = _said(log) or {}
        yield Daemon(process.pid, dict(said["ports"]), int(said["metrics"]))


def _said(log: Path) -> dict[str, Any] | None:
    """Where the VMs and the metrics are, once the daemon has said so."""
    for line in log.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.startswith("{") and line.endswith("\n"):
            return dict(json.loads(line))
    return None


@dataclass(slots=True)
class Guest:
    """One VM with one connection."""

    line: Line
    due_s: list[float] = field(default_factory=list)  # of requests that are not answered yet


@dataclass(slots=True)
class Waits:
    """How long answers took from when they were due, in ms, and what they were."""

    answers_ms: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    bodies: Counter[bytes] = field(default_factory=Counter)
    sent_late_ms: list[float] = field(default_factory=list)
    orders: int = 0


def until_served(ports: Mapping[str, int]) -> None:
    """Wait until control has made an inventory of the VMs and the daemon serves each of them."""
    until_s = time.perf_counter() + SERVED_LIMIT_S
    waited_for = list(ports.values())
    while waited_for := [port for port in waited_for if not _is_served(port)]:
        if time.perf_counter() > until_s:
            raise Failed(f"{len(waited_for)} VMs were not served within {SERVED_LIMIT_S:.0f} s")
        time.sleep(LOOK_EVERY_S)
    time.sleep(1.0)  # the rate limit of each begins anew


def _is_served(port: int) -> bool:
    line = Line(port)
    try:
        return line.ask(poll_request()).status == 200
    finally:
        line.close()


def _ask_all(guests: list[Guest], ordered: Control) -> Waits:
    """Let every guest ask by the clock, and order something now and then."""
    waits = Waits()
    request = poll_request()
    epoll = select.epoll()
    by_number = {guest.line.sock.fileno(): guest for guest in guests}
    for number in by_number:
        epoll.register(number, select.EPOLLIN)
    operator = Operator(ordered)
    ordering = operator.line()
    epoll.register(ordering.sock.fileno(), select.EPOLLIN)
    orders = _orders(operator)
    began_s = time.perf_counter()
    step_s = 1.0 / REQUESTS_PER_S
    agenda = [
        (began_s + 0.1 + step_s * number / len(guests), number) for number in range(len(guests))
    ]
    next_order_s = began_s + ORDER_EVERY_S
    end_s = began_s + SECONDS
    try:
        while agenda or any(guest.due_s for guest in guests):
            now_s = time.perf_counter()
            if now_s > end_s + LATE_LIMIT_S:
                raise Failed("some guests were without an answer at the end")
            while agenda and agenda[0][0] <= now_s:
                due_s, number = heapq.heappop(agenda)
                waits.sent_late_ms.append((now_s - due_s) * 1_000)
                guests[number].due_s.append(due_s)
                guests[number].line.send(request)
                if due_s + step_s < end_s:
                    heapq.heappush(agenda, (due_s + step_s, number))
            if next_order_s <= now_s < end_s:
                ordering.send(next(orders))
                waits.orders += 1
                next_order_s += ORDER_EVERY_S
            pause_s = max(0.0, agenda[0][0] - now_s) if agenda else 0.05
            for number, _ in epoll.poll(pause_s, len(by_number)):
                if number == ordering.sock.fileno():
                    ordering.receive()
                    continue
                _take(by_number[number], waits)
    finally:
        epoll.close()
        ordering.close()
    return waits


def _take(guest: Guest, waits: Waits) -> None:
    answer = guest.line.receive()
    waits.answers_ms.append((time.perf_counter() - guest.due_s.pop(0)) * 1_000)
    waits.statuses[answer.status] += 1
    waits.bodies[answer.body] += 1


def _orders(operator: Operator) -> Iterator[bytes]:
    """Restarts of one VM of a scope after the other; each changes what twenty VMs read."""
    for number in range(VMS):
        yield operator.request("POST", f"/v1/vms/vm-{number:03d}/restart")


def _figures(waits: Waits, percent: float, resident: float) -> Iterator[Figure]:
    if set(waits.statuses) != {200}:
        raise Failed(f"not every request was answered 200: {dict(waits.statuses)}")
    answers_ms = sorted(waits.answers_ms)
    late_ms = sorted(waits.sent_late_ms)

    def p(values: list[float], share: float) -> float:
        return values[int(share * (len(values) - 1))]

    yield Figure(
        name=f"Host daemon, {VMS} VMs at {REQUESTS_PER_S} requests/s each, p99",
        measured=p(answers_ms, 0.99),
        unit="ms",
        at_most=P99_MS_MAX,
        note=f"{len(answers_ms):,} requests, all answered 200, median {p(answers_ms, 0.5):.2f} ms, "
        f"longest {answers_ms[-1]:.1f} ms; {waits.orders} orders meanwhile",
        raw={
            "p50_ms": p(answers_ms, 0.5),
            "p99_ms": p(answers_ms, 0.99),
            "p999_ms": p(answers_ms, 0.999),
            "longest_ms": answers_ms[-1],
            "sent_late_p99_ms": p(late_ms, 0.99),
            "documents_read": len(waits.bodies),
            "orders": waits.orders,
        },
    )
    yield Figure(
        name=f"Host daemon, {VMS} VMs, resident memory",
        measured=resident,
        unit="MiB",
        at_most=RESIDENT_MIB_MAX,
        note=f"after the load; {percent:.0f} % of a core during it",
        raw={"cpu_percent": percent},
    )
