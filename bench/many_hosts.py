"""What hosts at rest cost one control, by how many there are: what docs/scale.md says of a fleet.

Each host has its own certificate and its own connections. It has its turn every 2 s, as hosts have
that know several controls, and one question that waits for changes. There is a VM on none of them:
what is at rest costs the same with and without.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from ssl import SSLContext
from typing import TypeVar

import uvloop

from bench.controls import Control, control
from bench.figures import Figure
from bench.processes import Failed, cpu_s, resident_mib
from forewarn.adapters import joining
from forewarn.adapters.control_link import ControlLink
from forewarn.adapters.system import SystemClock
from forewarn.core.errors import Unavailable
from forewarn.host.daemon import HEARTBEAT_EVERY_S
from forewarn.host.feed_reader import WAIT_S
from forewarn.wire.link import Since, Turn

SIZES = (500, 1_000, 2_000, 3_000)
TURN_EVERY_S = 2.0  # of a host that knows several controls
JOIN_AT_ONCE = 8
MEASURED_S = 25.0  # every host's question for changes ends once, and is asked anew
PERCENT_OF_1000_MAX = 25.0
BEGIN_PER_S = 100
ASK_AGAIN_S = 0.5

T = TypeVar("T")


def of_one_control(folder: Path) -> Iterator[Figure]:
    """A line for each size of the fleet, and one for turns as rare as with a single control."""
    folder.mkdir(parents=True)
    with control(folder / "control") as running:
        yield from uvloop.run(_measured(folder, running))


async def _measured(folder: Path, running: Control) -> list[Figure]:
    hosts: list[SSLContext] = []
    found: list[Figure] = []
    for size in SIZES:
        hosts += await _join(folder, running, range(len(hosts), size))
        if size == 1_000:
            found.append(await _at_rest(running, hosts, HEARTBEAT_EVERY_S))
        found.append(await _at_rest(running, hosts, TURN_EVERY_S))
    return found


async def _join(folder: Path, running: Control, numbers: range) -> list[SSLContext]:
    """What hosts with these numbers speak with, once they have joined."""
    slots = asyncio.Semaphore(JOIN_AT_ONCE)

    async def join(number: int) -> SSLContext:
        name = f"host-{number:04d}"
        async with slots:
            token = await asyncio.to_thread(running.invite, name)
            own = folder / name
            own.mkdir()
            kept = await joining.join(own, control=running.hosts_url, name=name, token=token)
        return kept.context()

    return list(await asyncio.gather(*map(join, numbers)))


class _Asking:
    """Hosts at rest that ask control. One that has no answer asks again, as hosts do."""

    def __init__(self, url: str, hosts: Sequence[SSLContext], turn_every_s: float) -> None:
        clock = SystemClock()
        self._links = [ControlLink(url, one, monotonic_ms=clock.monotonic_ms) for one in hosts]
        self._turn_every_s = turn_every_s
        # Each begins with two handshakes, and control cuts too many at once of one address.
        self._begin_within_s = max(turn_every_s, len(hosts) / BEGIN_PER_S)
        self.answers = 0
        self.failures = 0

    @asynccontextmanager
    async def all(self) -> AsyncIterator[None]:
        """Every host has begun, until the end of the block."""
        asking = [
            asyncio.ensure_future(loop(link, self._begin_within_s * number / len(self._links)))
            for number, link in enumerate(self._links)
            for loop in (self._turns, self._follows)
        ]
        try:
            await asyncio.sleep(self._begin_within_s + WAIT_S)
            yield
        finally:
            for one in asking:
                one.cancel()
            ended = await asyncio.gather(*asking, return_exceptions=True)
            await asyncio.gather(*(link.close() for link in self._links))
        for why in ended:
            if not isinstance(why, asyncio.CancelledError):
                raise Failed(f"a host ended: {why!r}")

    async def _turns(self, link: ControlLink, after_s: float) -> None:
        await asyncio.sleep(after_s)
        while True:
            await self._answered(link.turn(Turn()))
            await asyncio.sleep(self._turn_every_s)

    async def _follows(self, link: ControlLink, after_s: float) -> None:
        await asyncio.sleep(after_s)
        since: Since | None = None
        while True:
            told = await self._answered(link.changes(since, WAIT_S))
            since = since if told is None else Since(told.epoch, told.position)

    async def _answered(self, asked: Coroutine[None, None, T]) -> T | None:
        try:
            answer = await asked
        except Unavailable:
            self.failures += 1
            await asyncio.sleep(ASK_AGAIN_S)
            return None
        self.answers += 1
        return answer


async def _at_rest(running: Control, hosts: list[SSLContext], turn_every_s: float) -> Figure:
    asking = _Asking(running.hosts_url, hosts, turn_every_s)
    async with asking.all():
        asking.answers = asking.failures = 0
        before_s, began_s = cpu_s(running.pid), time.perf_counter()
        await asyncio.sleep(MEASURED_S)
        took_s = time.perf_counter() - began_s
        percent = (cpu_s(running.pid) - before_s) / took_s * 100
        resident = resident_mib(running.pid)
        per_s, failures = asking.answers / took_s, asking.failures
    most = len(hosts) == 1_000 and turn_every_s == TURN_EVERY_S
    return Figure(
        name=f"Control with {len(hosts):,} hosts at rest, turns every {turn_every_s:g} s, CPU",
        measured=percent,
        unit="% of a core",
        at_most=PERCENT_OF_1000_MAX if most else None,
        note=f"{per_s:.0f} answers/s, {failures} questions asked again; {resident:.0f} MiB",
        raw={"resident_mib": resident, "answers_per_s": per_s, "failures": failures},
    )
