"""On the rig: from the approval of a real guest to the start of what it has approved.

Measured on the hypervisor, by one clock: from the first packet of the guest's POST on the bridge to
libvirt telling that the host daemon has marked the domain, which is the first thing it does to a
VM. In between: endpoint, link, the decision and its commit, the tick that starts the event and its
commit, the long poll that tells the host, claim and commit, and the look at the domain.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from rig.building import Rig
from rig.domains import Guest
from rig.needs import CannotBuild
from rig.service import ROOT, Service
from rig.waiting import NotInTime, wait_for

from bench.figures import Figure
from bench.processes import Failed, every_core

NAME = "From a guest's approval to the start of the action, on the rig"
HOST = "h1"
GUESTS = tuple(
    Guest(name=f"bench-{number}", number=31 + number, approves=True) for number in range(3)
)
ROUNDS = 8
WAIT_MS_MAX = 250.0
BOOT_LIMIT_S = 90.0
BEGIN_LIMIT_S = 30.0


def from_approval_to_action(folder: Path) -> Iterator[Figure]:
    """The figure, or why there is none: the rig needs root and Debian's packages."""
    folder.mkdir(parents=True)
    try:
        with every_core(), Rig() as rig:
            yield _figure(_measured_ms(rig))
    except CannotBuild as why:
        yield Figure(name=NAME, measured=None, unit="ms", note=str(why).splitlines()[0])
    except NotInTime as why:
        raise Failed(str(why)) from why


def _figure(waits_ms: list[float]) -> Figure:
    in_order = sorted(waits_ms)
    return Figure(
        name=NAME,
        measured=in_order[-1],  # of so few, the longest has to be in time
        unit="ms",
        at_most=WAIT_MS_MAX,
        note=f"{len(in_order)} reboots of {len(GUESTS)} real guests, median "
        f"{median(in_order):.0f} ms, this is the longest; from the first packet of the POST on the "
        "bridge to the mark on the domain",
        raw={"waits_ms": waits_ms},
    )


def _measured_ms(rig: Rig) -> list[float]:
    service = Service(rig)
    try:
        service.start_control()
        service.start_host(HOST)
        cell = rig.hypervisors[HOST].cell
        log = rig.folder / "eavesdrop.log"
        words = [sys.executable, "-m", "bench.eavesdrop"]
        cell.start("eavesdrop", words, log=log, PYTHONPATH=str(ROOT))
        for guest in GUESTS:
            rig.define(guest, HOST)
        return [_one_ms(service, guest, log) for _ in range(ROUNDS) for guest in GUESTS]
    finally:
        service.close()


def _one_ms(service: Service, guest: Guest, log: Path) -> float:
    """Restart a guest that polls; how long its approval took to be acted on."""
    _polls_quietly(service, guest)
    began_s = time.time()
    service.operator.post(f"/v1/vms/{guest.name}/restart")
    post_s = _first(log, "post", lambda line: line["from"] == guest.address, began_s)
    mark_s = _first(log, "mark", lambda line: line["vm"] == guest.name, post_s)
    return (mark_s - post_s) * 1_000


def _polls_quietly(service: Service, guest: Guest) -> None:
    """Wait until the guest has polled from now on, and has no event any more."""
    since_s = time.monotonic()

    def quiet() -> bool:
        poll = service.rig.consoles.last_poll(guest.name)
        return poll is not None and poll.at_s > since_s and poll.answered and not poll.events()

    wait_for(f"{guest.name} polls and has no event", quiet, within_s=BOOT_LIMIT_S)


def _first(log: Path, what: str, which: Callable[[dict[str, str]], bool], since_s: float) -> float:
    """When something was first heard since then; it must be soon."""

    def heard() -> float | None:
        for text in log.read_text(encoding="utf-8").splitlines():
            line = json.loads(text) if text.startswith("{") and text.endswith("}") else {}
            if line.get("what") == what and line["at"] > since_s and which(line):
                return float(line["at"])
        return None

    return wait_for(f"a {what} is heard", heard, within_s=BEGIN_LIMIT_S)
