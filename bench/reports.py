"""A host that reports 10,000 VMs: how long another host's heartbeat takes meanwhile.

Control is a process of its own. The host that reports is another (`python -m bench.reports URL
FOLDER TOKEN LAYOUT`), so that what it does to make its reports is not what is measured. The other
host only beats, fifty times a second, and keeps its connection.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import uvloop
from msgspec.structs import replace

from bench.controls import Control, control
from bench.figures import Figure
from bench.processes import Failed, clean_environment, running, wait
from forewarn.adapters import joining
from forewarn.adapters.control_link import ControlLink
from forewarn.adapters.system import SystemClock
from forewarn.core.errors import Unavailable
from forewarn.core.inventory.host_report import Nic, Power, SeenVm, Traits
from forewarn.core.model import ScopeKind
from forewarn.wire.link import CHANGES_WAIT_S_MAX, Since, Turn

VMS = 10_000
SCOPES = {"alone": VMS, "wide": 50, "one": 1}  # what the VMs of a report are in
DOMAINS = 20
DEFINITION = "<domain>" + "<device kind='disk' bus='virtio'/>" * 120 + "</domain>"
BEAT_EVERY_S = 0.02
HEARTBEAT_MS_MAX = 500.0
REST_S = 0.5
LIMIT_S = 240.0
REPORTER, OBSERVER = "host-reports", "host-beats"


def of_one_host(folder: Path) -> Iterator[Figure]:
    """The figures of a host with 10,000 VMs beside another."""
    for layout, scopes in SCOPES.items():
        with control(folder / layout) as to:
            yield _figure(scopes, uvloop.run(_observe(folder / layout, to, layout)))


# The host that reports.


def _vms(layout: str, *, power: Power = Power.RUNNING, edition: int = 0) -> tuple[SeenVm, ...]:
    scopes = SCOPES[layout]
    grouped = Traits(scope_kind=ScopeKind.PLACEMENT_GROUP)
    return tuple(
        SeenVm(
            name=f"vm-{number:05d}",
            vm_id=str(uuid.UUID(int=number + 1)),
            power=power,
            traits=Traits()
            if scopes == VMS
            else replace(grouped, scope=f"s-{number % scopes}", update_domain=number % DOMAINS),
            nics=(Nic(mac=f"52:54:00:00:{number >> 8:02x}:{number & 255:02x}", tap=f"t{number}"),),
            definition=f"{DEFINITION}<!-- {number} {edition} -->",
        )
        for number in range(VMS)
    )


async def _report(url: str, folder: Path, token: str, layout: str) -> None:
    """Report, change everything, report again, lose half of the VMs; say when each was taken."""
    clock = SystemClock()
    kept = await joining.join(folder, control=url, name=REPORTER, token=token)
    link = ControlLink(url, kept.context(), monotonic_ms=clock.monotonic_ms)
    following = asyncio.ensure_future(_follow(link))
    try:
        _say("ready")
        for what, vms in (
            ("all VMs are new", _vms(layout)),
            ("nothing is new", _vms(layout)),
            ("all were switched off and changed", _vms(layout, power=Power.OFF, edition=1)),
            ("half are not there", _vms(layout, power=Power.OFF, edition=1)[: VMS // 2]),
        ):
            await asyncio.sleep(REST_S)
            _say("taken", what=what, s=await _taken(link, vms))
            await asyncio.sleep(REST_S)
        _say("done")
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await link.close()


async def _taken(link: ControlLink, vms: Sequence[SeenVm]) -> float:
    """Seconds until a report was taken. Control lets a host rest after a long one."""
    while True:
        began_s = time.perf_counter()
        try:
            problems = await link.sight(vms)
        except Unavailable:
            await asyncio.sleep(REST_S)
            continue
        if problems:
            raise Failed(f"control has problems: {next(iter(problems.items()))}")
        return time.perf_counter() - began_s


async def _follow(link: ControlLink) -> None:
    """Ask what is new, as a daemon does all the time: after a report that is a great deal."""
    since = None
    while True:
        told = await link.changes(since, CHANGES_WAIT_S_MAX)
        since = Since(told.epoch, told.position)


def _say(event: str, **more: object) -> None:
    print(json.dumps({"event": event, **more}), flush=True)


# The host that beats.


@dataclass(frozen=True, slots=True)
class Beats:
    """How long heartbeats took while reports were taken, and how long these took."""

    during_ms: list[float]
    reports_s: dict[str, float]


async def _observe(folder: Path, to: Control, layout: str) -> Beats:
    own, theirs, log = folder / OBSERVER, folder / REPORTER, folder / "reports.log"
    own.mkdir()
    theirs.mkdir()
    clock = SystemClock()
    kept = await joining.join(own, control=to.hosts_url, name=OBSERVER, token=to.invite(OBSERVER))
    link = ControlLink(to.hosts_url, kept.context(), monotonic_ms=clock.monotonic_ms)
    command = ["nice", "-n", "10", sys.executable, "-m", "bench.reports", to.hosts_url]
    command += [str(theirs), to.invite(REPORTER), layout]
    environment = {**clean_environment(), "PYTHONPATH": str(Path(__file__).parent.parent)}
    took_ms: list[float] = []
    try:
        with running(command, log, environment) as process:
            await asyncio.to_thread(wait, process, log, lambda: "ready" in log.read_text())
            until_s = time.perf_counter() + LIMIT_S
            while '"done"' not in log.read_text():
                if process.poll() not in (None, 0) or time.perf_counter() > until_s:
                    raise Failed(f"the reports were not taken: {log.read_text()[-500:]}")
                began_s = time.perf_counter()
                await link.turn(Turn())
                took_ms.append((time.perf_counter() - began_s) * 1_000)
                await asyncio.sleep(BEAT_EVERY_S)
    finally:
        await link.close()
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    return Beats(took_ms, {one["what"]: one["s"] for one in lines if one["event"] == "taken"})


def _p(values: Sequence[float], share: float) -> float:
    return sorted(values)[int(share * (len(values) - 1))]


def _figure(scopes: int, beats: Beats) -> Figure:
    reports = ", ".join(f"{what} {took_s:.1f} s" for what, took_s in beats.reports_s.items())
    p99_ms = _p(beats.during_ms, 0.99)
    return Figure(
        name=f"A host reports {VMS:,} VMs in {scopes:,} scopes: another's heartbeat, longest",
        measured=max(beats.during_ms),
        unit="ms",
        at_most=HEARTBEAT_MS_MAX,
        note=f"{len(beats.during_ms)} heartbeats, p99 {p99_ms:.0f} ms; {reports}",
        raw={
            "heartbeats": len(beats.during_ms),
            "p50_ms": _p(beats.during_ms, 0.5),
            "p99_ms": p99_ms,
            "reports_s": beats.reports_s,
        },
    )


if __name__ == "__main__":
    uvloop.run(_report(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4]))
