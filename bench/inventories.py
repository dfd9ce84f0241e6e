"""An inventory of 200,000 VMs that is posted to a running service: who waits for it, and how long.

Once to `serve`, whose guests are asked for meanwhile, and once to `control`, where another host
beats, fifty times a second, over the link. The peak of memory is that of the service together with
the process that reads the file.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from bench.attacks import histogram
from bench.controls import Control, control
from bench.figures import Figure
from bench.fleets import fleet
from bench.guests import Line, Operator, Ordered, poll_request
from bench.processes import CORES, Failed, children, cpu_s, forewarn, resident_mib
from forewarn.adapters import joining
from forewarn.adapters.control_link import ControlLink
from forewarn.adapters.system import SystemClock
from forewarn.wire.link import Turn

SCOPES = 20_000
VMS_PER_SCOPE = 10
HOSTS = 2_000
WAIT_MS_MAX = 500.0
ASK_EVERY_S = 0.02
LOOK_EVERY_S = 0.1
APPLY_LIMIT_S = 900.0
OBSERVER = "host-beats"
TAGS = (
    'tags = { owner = "team-payments", environment = "production", cost-center = "cc-4711",'
    ' service = "checkout-api", backup = "daily", contact = "payments@shop.example" }\n'
)
FIRST = '[[host]]\nname = "host-0000"\n[[vm]]\nname = "first"\nhost = "host-0000"\n'
FIRST_ADDRESS = 'address = "127.0.0.1"\n'


def of_any_size(folder: Path) -> Iterator[Figure]:
    """The figures of one large inventory, applied by `serve` and by `control`."""
    text = inventory(SCOPES)
    yield from _by_serve(folder / "serve", text)
    yield from _by_control(folder / "control", text)


def inventory(scopes: int) -> str:
    """A fleet with tags, and the VM and host that are there before."""
    large = fleet(scopes=scopes, vms_per_scope=VMS_PER_SCOPE, hosts=HOSTS, domains=5)
    vms = large.inventory().replace('address = "127.0.0.1"', 'address = "127.250.0.1"')
    return FIRST + FIRST_ADDRESS + vms.replace("update_domain", f"{TAGS}update_domain")


@dataclass(slots=True)
class _Applied:
    """What was seen while an inventory was applied."""

    seconds: float = 0.0
    cpu_s: float = 0.0
    peak_mib: float = 0.0
    answers_ms: list[float] = field(default_factory=list)


def _post(service: Ordered, text: str) -> None:
    line = Line(service.operator_port)
    line.sock.settimeout(APPLY_LIMIT_S)
    body = text.encode()
    try:
        head = (
            "POST /v1/inventory HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/toml\r\n"
            f"Authorization: Bearer {service.token}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        answer = line.ask(head.encode() + body)
    finally:
        line.close()
    if answer.status != 200:
        raise Failed(f"the inventory was answered {answer.status}: {answer.body[:500]!r}")
    added = len(json.loads(answer.body)["vms"]["added"])
    if added < SCOPES * VMS_PER_SCOPE:
        raise Failed(f"{added} VMs were added")


@contextmanager
def _applying(
    service: Ordered, pid: int, text: str, seen: _Applied
) -> Iterator[Callable[[], bool]]:
    """Have the inventory applied meanwhile; what is yielded says whether it still is."""
    failed: list[BaseException] = []
    ended = threading.Event()

    def apply() -> None:
        began_s, before_s = time.perf_counter(), cpu_s(pid)
        try:
            _post(service, text)
        except BaseException as error:  # noqa: BLE001 - raised below, in the thread that waits
            failed.append(error)
        seen.seconds = time.perf_counter() - began_s
        seen.cpu_s = cpu_s(pid) - before_s
        ended.set()

    def look() -> None:
        while not ended.wait(LOOK_EVERY_S):
            seen.peak_mib = max(seen.peak_mib, _memory_mib(pid))

    threads = [threading.Thread(target=one) for one in (apply, look)]
    for thread in threads:
        thread.start()
    try:
        yield lambda: not ended.is_set()
    finally:
        for thread in threads:
            thread.join()
    if failed:
        raise failed[0]


def _memory_mib(pid: int) -> float:
    total = 0.0
    for one in (pid, *children(pid)):
        try:
            total += resident_mib(one)
        except (OSError, Failed):
            continue  # the child has ended
    return total


def _on_every_core(pid: int) -> None:
    """The service may use what the machine has: its child is not to take turns with it."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), set(CORES))


def _by_serve(folder: Path, text: str) -> Iterator[Figure]:
    seen = _Applied()
    with forewarn(folder, FIRST + FIRST_ADDRESS) as service:
        _on_every_core(service.pid)
        operator, guest = Operator(service), Line(service.guest_port)
        before = histogram(operator.metrics(), "forewarn_loop_lateness_seconds")
        beats = histogram(operator.metrics(), "forewarn_heartbeat_seconds")
        with _applying(service, service.pid, text, seen) as goes_on:
            while goes_on():
                began_s = time.perf_counter()
                if guest.ask(poll_request()).status != 200:
                    raise Failed("a guest was not answered")
                seen.answers_ms.append((time.perf_counter() - began_s) * 1_000)
                time.sleep(ASK_EVERY_S)
        guest.close()
        after = operator.metrics()
        late = histogram(after, "forewarn_loop_lateness_seconds").since(before)
        beat = histogram(after, "forewarn_heartbeat_seconds").since(beats)
        memory_mib = resident_mib(service.pid)
    what = f"{SCOPES * VMS_PER_SCOPE:,} VMs in {SCOPES:,} scopes on {HOSTS:,} hosts posted to serve"
    yield Figure(
        name=f"{what}: another VM's GET, longest",
        measured=max(seen.answers_ms),
        unit="ms",
        at_most=WAIT_MS_MAX,
        note=f"{len(seen.answers_ms)} GETs; loop late by less than {late.share_ms(1.0):.0f} ms, "
        f"heartbeats by less than {beat.share_ms(1.0):.0f} ms",
        raw={"loop_late_ms": late.share_ms(1.0), "heartbeat_ms": beat.share_ms(1.0)},
    )
    yield _cost(what, seen, text, memory_mib)


def _by_control(folder: Path, text: str) -> Iterator[Figure]:
    seen = _Applied()
    with control(folder) as to:
        _on_every_core(to.pid)
        (folder / OBSERVER).mkdir()
        uvloop.run(_beat(folder / OBSERVER, to, text, seen))
        memory_mib = resident_mib(to.pid)
    what = f"{SCOPES * VMS_PER_SCOPE:,} VMs in {SCOPES:,} scopes posted to control"
    yield Figure(
        name=f"{what}: a host's heartbeat, longest",
        measured=max(seen.answers_ms),
        unit="ms",
        at_most=WAIT_MS_MAX,
        note=f"{len(seen.answers_ms)} heartbeats over the link",
        raw={"heartbeats": len(seen.answers_ms)},
    )
    yield _cost(what, seen, text, memory_mib)


async def _beat(folder: Path, to: Control, text: str, seen: _Applied) -> None:
    url, token, pid = to.hosts_url, to.invite(OBSERVER), to.pid
    kept = await joining.join(folder, control=url, name=OBSERVER, token=token)
    link = ControlLink(url, kept.context(), monotonic_ms=SystemClock().monotonic_ms)
    try:
        with _applying(to, pid, text, seen) as goes_on:
            while goes_on():
                began_s = time.perf_counter()
                await link.turn(Turn())
                seen.answers_ms.append((time.perf_counter() - began_s) * 1_000)
                await asyncio.sleep(ASK_EVERY_S)
    finally:
        await link.close()


def _cost(what: str, seen: _Applied, text: str, memory_mib: float) -> Figure:
    return Figure(
        name=f"{what}: applied",
        measured=seen.seconds,
        unit="s",
        note=f"{len(text) / 2**20:.0f} MiB; {seen.cpu_s:.0f} s of CPU in the service; memory "
        f"{seen.peak_mib:.0f} MiB at most with the reader, {memory_mib:.0f} MiB afterwards",
        raw={"cpu_s": seen.cpu_s, "peak_mib": seen.peak_mib, "memory_mib": memory_mib},
    )
