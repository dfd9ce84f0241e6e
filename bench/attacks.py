"""What one VM can do to everybody else: attacks on the guest endpoint, and who feels them.

`forewarn serve` has one core; the attacker and those who watch have the other. One VM attacks with
the rate limit as it ships. Meanwhile other VMs ask, on connections that they keep and on new ones,
an operator asks, fifty simulated hosts beat, and the service measures how late its own loop is.
The attacker yields to those who watch: they must not be what is measured. At last a host daemon is
flooded by one of its VMs, whose heartbeats go to a control over TLS.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.controls import control
from bench.figures import Figure
from bench.fleets import fleet
from bench.guests import Line, Operator, enable, poll_request
from bench.hosts import daemon_of, until_served
from bench.processes import CLIENT_CORE, Failed, cpu_s, forewarn, resident_mib, waited_s

SECONDS = 15.0
GIVE_UP_S = 30.0
ASK_EVERY_S = 0.01
OPERATOR_EVERY = 5  # of the guests' questions
SETTLE_S = 2.0
LATENESS_MS_MAX = 20.0
GET_MS_MAX = 100.0
OPERATOR_MS_MAX = 100.0
HEARTBEAT_MS_MAX = 1_000.0
HOST_VMS = 50
STRANGER = "127.9.9.9"

# The name in the table, the kind of `attacker`, and whether a VM does it.
ATTACKS = (
    ("pipelined flood, 1 connection", "flood-1", True),
    ("pipelined flood, 128 connections", "flood-128", True),
    ("slow heads", "slow-heads", True),
    ("half bodies", "half-bodies", True),
    ("bodies of tiny chunks", "chunks", True),
    ("blank lines", "blank-lines", True),
    ("connect storm", "connects", True),
    ("connect storm of a stranger", "connects", False),
)


def on_neighbours(folder: Path) -> Iterator[Figure]:
    """Each attack in turn, on one service."""
    machines = fleet(scopes=20, vms_per_scope=3, hosts=50, domains=3)
    with forewarn(
        folder / "serve", machines.inventory(), settings={"FOREWARN_GUEST_REQUESTS_PER_SECOND": "5"}
    ) as service:
        enable(service.guest_port, [vm.address for vm in machines.vms])
        operator = Operator(service)
        target = Target(
            pid=service.pid,
            port=service.guest_port,
            others=tuple((service.guest_port, vm.address) for vm in machines.vms[3:]),
            metrics=operator.metrics,
            operator=operator,
        )
        _own(target)  # from the first look at it the lateness is measured finely
        yield from _figures("No attack", *_watched(target, None))
        for name, kind, known in ATTACKS:
            source = machines.vms[1].address if known else STRANGER
            yield from _figures(f"One VM: {name}", *_watched(target, (kind, source)))
    yield from _on_a_host(folder)


def _on_a_host(folder: Path) -> Iterator[Figure]:
    """The worst of them on a host daemon."""
    with (
        control(folder / "control", core=CLIENT_CORE, yielding=True) as joined,
        daemon_of(folder, joined, vms=HOST_VMS) as daemon,
    ):
        until_served(daemon.ports)
        first, *others = daemon.ports.values()
        target = Target(
            pid=daemon.pid,
            port=first,
            others=tuple((port, "127.0.0.1") for port in others),
            metrics=lambda: _page(daemon.metrics_port),
        )
        _own(target)
        found = _watched(target, ("flood-128", "127.0.0.1"))
        yield from _figures("One VM of a host: pipelined flood, 128 connections", *found)


def _page(port: int) -> str:
    line = Line(port)
    try:
        return line.ask(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").body.decode()
    finally:
        line.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What is attacked at `port`, and who else asks it: port and source address of each."""

    pid: int
    port: int
    others: tuple[tuple[int, str], ...]
    metrics: Callable[[], str]
    operator: Operator | None = None


@dataclass(slots=True)
class Waits:
    """How long everybody else waited, in ms."""

    kept_ms: list[float] = field(default_factory=list)  # GETs on connections that are kept
    new_ms: list[float] = field(default_factory=list)  # GETs on new ones
    operator_ms: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Histogram:
    """A histogram of /metrics: how many are at most so long, by the limit in seconds."""

    counts: Mapping[float, float]

    def since(self, before: Histogram) -> Histogram:
        return Histogram({at: n - before.counts.get(at, 0.0) for at, n in self.counts.items()})

    @property
    def total(self) -> float:
        return max(self.counts.values(), default=0.0)

    def share_ms(self, share: float) -> float:
        """The limit, in ms, under which at least this share of them lies."""
        if not self.total:
            raise Failed("a histogram of the service is empty")
        return min(at for at, n in self.counts.items() if n >= share * self.total) * 1_000


def histogram(metrics: str, name: str) -> Histogram:
    """One histogram out of the text of /metrics."""
    counts: dict[float, float] = {}
    for line in metrics.splitlines():
        if line.startswith(f"{name}_bucket{{"):
            limit = line.partition('le="')[2].partition('"')[0]
            counts[float(limit)] = float(line.rpartition(" ")[2])
    if not counts:
        raise Failed(f"/metrics has no {name}")
    return Histogram(counts)


@dataclass(frozen=True, slots=True)
class Own:
    """What the service says of itself."""

    lateness: Histogram
    heartbeats: Histogram


def _own(target: Target) -> Own:
    text = target.metrics()
    return Own(
        histogram(text, "forewarn_loop_lateness_seconds"),
        histogram(text, "forewarn_heartbeat_seconds"),
    )


@contextmanager
def attacking(port: int, attack: tuple[str, str] | None) -> Iterator[list[dict[str, Any]]]:
    """Let an attacker run for the length of the block; what it tells is there afterwards."""
    told: list[dict[str, Any]] = []
    if attack is None:
        yield told
        return
    kind, source = attack
    command = [sys.executable, "-m", "bench.attacker", kind, str(port), source, str(SECONDS + 1)]
    process = subprocess.Popen(
        ["nice", "-n", "19", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield told
        out, error = process.communicate(timeout=GIVE_UP_S)
        if process.returncode:
            raise Failed(f"the attacker broke: {error[-500:]}")
        told.append(json.loads(out))
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def _watched(target: Target, attack: tuple[str, str] | None) -> tuple[Waits, Own, dict[str, Any]]:
    """Ask as others would while one attacks; then what they and the service have to tell."""
    time.sleep(SETTLE_S)  # what the last attack has left is over
    pid = target.pid
    with attacking(target.port, attack) as told:
        time.sleep(0.5)  # it is under way
        before, used_s, began_s = _own(target), cpu_s(pid), time.perf_counter()
        waited_before_s = waited_s(pid)
        waits = _ask(target)
        after = _own(target)
        percent = (cpu_s(pid) - used_s) / (time.perf_counter() - began_s) * 100
    own = Own(after.lateness.since(before.lateness), after.heartbeats.since(before.heartbeats))
    about = {
        "cpu_percent": percent,
        "resident_mib": resident_mib(pid),
        # What the rest of the machine did to it meanwhile: none of it is the attack's.
        "waited_for_core_ms": (waited_s(pid) - waited_before_s) * 1_000,
    }
    return waits, own, {**about, **(told[0] if told else {})}


def _ask(target: Target) -> Waits:
    """One GET after the other, each of another VM, by turns on a kept and on a new connection."""
    waits = Waits()
    kept: dict[tuple[int, str], Line] = {}
    end_s = time.perf_counter() + SECONDS
    number = 0
    try:
        while time.perf_counter() < end_s:
            began_s = time.perf_counter()
            other = target.others[number % len(target.others)]
            if number // len(target.others) % 2:
                waits.new_ms.append(_timed_ms(_get_anew, *other))
            else:
                if other not in kept:
                    kept[other] = Line(*other)
                waits.kept_ms.append(_timed_ms(_get, kept[other], poll_request()))
            if number % OPERATOR_EVERY == 0 and target.operator is not None:
                waits.operator_ms.append(_timed_ms(_operate, target.operator))
            number += 1
            time.sleep(max(0.0, ASK_EVERY_S - (time.perf_counter() - began_s)))
    finally:
        for line in kept.values():
            line.close()
    return waits


def _timed_ms(act: Callable[..., None], *args: object) -> float:
    began_s = time.perf_counter()
    act(*args)
    return (time.perf_counter() - began_s) * 1_000


def _get(line: Line, request: bytes) -> None:
    status = line.ask(request).status
    if status != 200:
        raise Failed(f"another VM was answered {status}")


def _get_anew(port: int, source: str) -> None:
    line = Line(port, source)
    try:
        _get(line, poll_request("Connection: close"))
    finally:
        line.close()


def _operate(operator: Operator) -> None:
    status = operator.ask("GET", "/v1/hosts").status
    if status != 200:
        raise Failed(f"the operator was answered {status}")


def _p(values: Sequence[float], share: float) -> float:
    return sorted(values)[int(share * (len(values) - 1))]


def _figures(name: str, waits: Waits, own: Own, about: Mapping[str, Any]) -> Iterator[Figure]:
    gets_ms = [*waits.kept_ms, *waits.new_ms]
    raw = {
        **about,
        "kept_p99_ms": _p(waits.kept_ms, 0.99),
        "new_p99_ms": _p(waits.new_ms, 0.99),
        "lateness_counts": {str(at): n for at, n in own.lateness.counts.items()},
        "heartbeat_counts": {str(at): n for at, n in own.heartbeats.counts.items()},
    }
    answers = ", ".join(f"{n:,} x {s}" for s, n in sorted(about.get("statuses", {}).items()))
    yield Figure(
        name=f"{name}; lateness of the loop, p99.9",
        measured=own.lateness.share_ms(0.999),
        unit="ms",
        at_most=LATENESS_MS_MAX,
        note=f"less than; {own.lateness.total:,.0f} ticks; CPU {about['cpu_percent']:.0f} %, "
        f"{about['resident_mib']:.0f} MiB, waited {about['waited_for_core_ms']:.0f} ms for the "
        f"core; {about.get('connects', 0):,} connects, "
        f"answered {answers or 'nothing'}",
        raw=raw,
    )
    yield Figure(
        name=f"{name}; another VM's GET, p99",
        measured=_p(gets_ms, 0.99),
        unit="ms",
        at_most=GET_MS_MAX,
        note=f"{len(gets_ms):,}, p50 {_p(gets_ms, 0.5):.1f}, longest {max(gets_ms):.0f} ms; p99 on "
        f"a kept connection {_p(waits.kept_ms, 0.99):.1f}, new {_p(waits.new_ms, 0.99):.1f} ms",
    )
    if waits.operator_ms:
        yield Figure(
            name=f"{name}; the operator's call, p99",
            measured=_p(waits.operator_ms, 0.99),
            unit="ms",
            at_most=OPERATOR_MS_MAX,
            note=f"{len(waits.operator_ms):,}, p50 {_p(waits.operator_ms, 0.5):.1f}, "
            f"longest {max(waits.operator_ms):.0f} ms",
        )
    yield Figure(
        name=f"{name}; the slowest heartbeat",
        measured=own.heartbeats.share_ms(1.0),
        unit="ms",
        at_most=HEARTBEAT_MS_MAX,
        note=f"less than; {own.heartbeats.total:,.0f} heartbeats",
    )
