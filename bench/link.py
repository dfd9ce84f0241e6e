"""One control and 200 hosts: how long after an order the last host can show what changed.

Control is a process of its own; the hosts share another, but each has its own certificate, its own
connections, and the parts of the daemon that follow, show, confirm, claim and beat. What is
measured is from the order being sent to the operator API until the new document is on show at a
host: a GET of a guest there would be answered with it from then on.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from ssl import SSLContext
from typing import Any

import structlog
import uvloop

from bench.controls import Control, control
from bench.figures import Figure
from bench.guests import Operator
from bench.link_peer import Answers, asked_by_all, bare_server
from bench.processes import Failed, cpu_s, resident_mib
from forewarn.adapters import joining
from forewarn.adapters.control_link import ControlLink
from forewarn.adapters.simulated.hypervisor import SimulatedHypervisor
from forewarn.adapters.system import SystemClock
from forewarn.core.inventory.host_report import Nic, Power, SeenVm, Traits
from forewarn.core.model import ScopeKind
from forewarn.host.daemon import HEARTBEAT_EVERY_S, Hosts
from forewarn.host.feed_reader import WAIT_S, FeedReader
from forewarn.host.identity import Identity
from forewarn.host.served_documents import Documents
from forewarn.wire.link import Changes, Since, Turn

HOSTS = 200
WIDE_SCOPES = 49  # with one VM on each host; the fiftieth VM of a host is alone
DOMAINS = 20
ROUNDS_ALL = 20
ROUNDS_ONE = 100
ROUNDS_EVERYTHING = 5
P99_MS_MAX = 500.0
LIMIT_S = 60.0
JOIN_AT_ONCE = 8
SIGHT_AT_ONCE = 4
LOOK_EVERY_S = 0.02
IDLE_S = float(WAIT_S)  # every host's question for changes ends once, and is asked anew
AT_REST_PERCENT_MAX = 1.5
AT_REST_RATIO_MAX = 1.25
REST_S = 0.5

WIDE = tuple(f"wide-{number:02d}" for number in range(WIDE_SCOPES))
ALONE = tuple(f"vm-{number:03d}-{WIDE_SCOPES:02d}" for number in range(HOSTS))


def of_many(folder: Path) -> Iterator[Figure]:
    """The figures of one control with 200 hosts."""
    folder.mkdir(parents=True)
    # Two hundred daemons in one process would tell two hundred times that they follow.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    with control(folder / "control") as running:
        yield from uvloop.run(_measure(folder, running))


class TimedLink(ControlLink):
    """The link of a host; when which scopes came over it last."""

    arrived_s: dict[str, float]

    async def changes(self, since: Since | None, wait_s: int) -> Changes:
        told = await super().changes(since, wait_s)
        now_s = time.perf_counter()
        self.arrived_s.update((scope.name, now_s) for scope in told.scopes)
        return told


class Shown:
    """When which documents were put on show at one host, by scope."""

    def __init__(self, documents: Documents, number: int) -> None:
        self._documents = documents
        self._scopes = (*WIDE, ALONE[number])
        self.incarnations: dict[str, int] = {}
        self.at_s: dict[str, float] = {}

    def look(self) -> None:
        """Note what is new; the follower has just taken something over."""
        now_s = time.perf_counter()
        for name in self._scopes:
            page = self._documents.page(name)
            if page is not None and self.incarnations.get(name) != page.incarnation:
                self.incarnations[name] = page.incarnation
                self.at_s[name] = now_s


@dataclass(frozen=True, slots=True)
class BenchHost:
    """One simulated host."""

    name: str
    context: SSLContext
    link: TimedLink
    feed_reader: FeedReader
    hosts: Hosts
    shown: Shown


def _made(
    number: int, name: str, context: SSLContext, url: str, hypervisor: SimulatedHypervisor
) -> BenchHost:
    link = TimedLink(url, context, monotonic_ms=SystemClock().monotonic_ms)
    link.arrived_s = {}
    documents = Documents(Identity(), requests_per_s=5.0)
    hosts = Hosts(
        [name],
        links=lambda _: link,
        hypervisor=hypervisor,
        documents=documents,
        monotonic_ms=SystemClock().monotonic_ms,
    )
    shown = Shown(documents, number)
    feed_reader = FeedReader(
        name,
        link=link,
        documents=documents,
        hosts=hosts,
        monotonic_ms=SystemClock().monotonic_ms,
        took_over=shown.look,
    )
    return BenchHost(name, context, link, feed_reader, hosts, shown)


def _vms(number: int) -> tuple[SeenVm, ...]:
    """What a host shows: a VM in each of the wide scopes, and one that is alone."""
    wide = [
        Traits(
            scope=scope,
            update_domain=number % DOMAINS,
            scope_kind=ScopeKind.PLACEMENT_GROUP,
        )
        for scope in WIDE
    ]
    return tuple(
        SeenVm(
            name=f"vm-{number:03d}-{index:02d}",
            vm_id=str(uuid.UUID(int=number * 1_000 + index + 1)),
            power=Power.RUNNING,
            traits=traits,
            nics=(Nic(mac=f"52:54:00:00:{number:02x}:{index:02x}", tap=f"t{index}", bridge="br0"),),
            definition="<domain/>",
        )
        for index, traits in enumerate([*wide, Traits()])
    )


@asynccontextmanager
async def _joined(folder: Path, running: Control) -> AsyncIterator[list[BenchHost]]:
    """200 hosts that have joined, have shown their VMs, and follow."""
    hypervisor = SimulatedHypervisor(SystemClock())
    slots = asyncio.Semaphore(JOIN_AT_ONCE)

    async def join(number: int) -> BenchHost:
        name = f"host-{number:03d}"
        async with slots:
            token = await asyncio.to_thread(running.invite, name)
            own = folder / name
            own.mkdir()
            kept = await joining.join(own, control=running.hosts_url, name=name, token=token)
            host = _made(number, name, kept.context(), running.hosts_url, hypervisor)
            # One after the other: they all come from one address, and of one address control has
            # only so many in the middle of their handshake.
            await host.feed_reader.once()
        loops.append(asyncio.ensure_future(host.feed_reader.run()))
        loops.append(asyncio.ensure_future(_work(number, host)))
        return host

    loops: list[asyncio.Future[None]] = []
    hosts = await asyncio.gather(*(join(number) for number in range(HOSTS)))
    try:
        await _sight(hosts)
        yield hosts
    finally:
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)
        await asyncio.gather(*(host.link.close() for host in hosts))


async def _work(number: int, host: BenchHost) -> None:
    """Beat, confirm and claim. Hosts of a real fleet do not beat all at the same instant."""
    await asyncio.sleep(HEARTBEAT_EVERY_S * number / HOSTS)
    await host.hosts.run()


async def _sight(hosts: list[BenchHost]) -> None:
    slots = asyncio.Semaphore(SIGHT_AT_ONCE)

    async def sight(number: int, host: BenchHost) -> None:
        async with slots:
            problems = await host.link.sight(_vms(number))
        if problems:
            raise Failed(f"control has problems with VMs of {host.name}: {problems}")

    await asyncio.gather(*(sight(number, host) for number, host in enumerate(hosts)))
    await _until(hosts, lambda h: len(h.shown.incarnations) <= WIDE_SCOPES, "every scope")


async def _until(
    hosts: Sequence[BenchHost], missing: Callable[[BenchHost], bool], what: str
) -> None:
    """Wait until nothing is missing at any host; who has it all is not looked at again."""
    until_s = time.perf_counter() + LIMIT_S
    waited_for = list(hosts)
    while waited_for := [host for host in waited_for if missing(host)]:
        if time.perf_counter() > until_s:
            raise Failed(f"{len(waited_for)} hosts did not show {what} within {LIMIT_S:.0f} s")
        await asyncio.sleep(LOOK_EVERY_S)


async def _order(running: Control, path: str, words: object = None) -> Any:
    answer = await asyncio.to_thread(Operator(running).ask, "POST", path, words)
    if answer.status != 200:
        raise Failed(f"{path} was answered {answer.status}: {answer.body!r}")
    return json.loads(answer.body)


@dataclass(frozen=True, slots=True)
class Round:
    """ms until each host showed all that one order has changed there, and until the answer.

    `arrived_ms` is until the last message about it had arrived at each host. `cpu_s` is what it and
    taking it back cost control.
    """

    shown_ms: list[float]
    arrived_ms: list[float]
    answered_ms: float
    cpu_s: float


async def _round(
    running: Control,
    hosts: Sequence[BenchHost],
    scopes: Sequence[str],
    order: tuple[str, object],
) -> Round:
    """Give an order that changes these scopes at these hosts, and take it back."""
    before = {(h.name, scope): h.shown.incarnations[scope] for h in hosts for scope in scopes}

    def missing(by: int) -> Callable[[BenchHost], bool]:
        return lambda h: any(
            h.shown.incarnations[scope] < before[h.name, scope] + by for scope in scopes
        )

    began_s, cpu_before_s = time.perf_counter(), cpu_s(running.pid)
    ordered = await _order(running, *order)
    answered_ms = (time.perf_counter() - began_s) * 1_000
    await _until(hosts, missing(1), "what was ordered")
    last_s = [max(h.shown.at_s[scope] for scope in scopes) for h in hosts]
    arrived_s = [max(h.link.arrived_s[scope] for scope in scopes) for h in hosts]
    event = ordered["events"][0] if "events" in ordered else ordered
    await _order(running, f"/v1/events/{event['event_id']}/cancel")
    await _until(hosts, missing(2), "that it was taken back")
    # What follows a change (confirmations, the next questions) is over before the next order:
    # two hundred hosts that share a core must not be measured while they still pay for the last.
    await asyncio.sleep(REST_S)
    return Round(
        shown_ms=[(at_s - began_s) * 1_000 for at_s in last_s],
        arrived_ms=[(at_s - began_s) * 1_000 for at_s in arrived_s],
        answered_ms=answered_ms,
        cpu_s=cpu_s(running.pid) - cpu_before_s,
    )


def _p(values: Sequence[float], share: float) -> float:
    return sorted(values)[int(share * (len(values) - 1))]


def _figure(what: str, rounds: Sequence[Round], *, target: float | None = P99_MS_MAX) -> Figure:
    shown_ms = [wait for one in rounds for wait in one.shown_ms]
    answered_ms = [one.answered_ms for one in rounds]
    arrived_ms = [wait for one in rounds for wait in one.arrived_ms]
    return Figure(
        name=f"{HOSTS} hosts, {HOSTS * (WIDE_SCOPES + 1):,} VMs: {what}, p99",
        measured=_p(shown_ms, 0.99),
        unit="ms",
        at_most=target,
        note=f"from the order being sent to all of it on show at a host, {len(rounds)} orders, all "
        f"hosts on one core; median {_p(shown_ms, 0.5):.0f} ms, longest {max(shown_ms):.0f} ms; "
        f"its messages had arrived after {_p(arrived_ms, 0.5):.0f} ms (p99 "
        f"{_p(arrived_ms, 0.99):.0f} ms)",
        raw={
            "p50_ms": _p(shown_ms, 0.5),
            "p99_ms": _p(shown_ms, 0.99),
            "longest_ms": max(shown_ms),
            "arrived_p50_ms": _p(arrived_ms, 0.5),
            "arrived_p99_ms": _p(arrived_ms, 0.99),
            "order_answered_p50_ms": _p(answered_ms, 0.5),
            "order_answered_p99_ms": _p(answered_ms, 0.99),
            "hosts": len(rounds[0].shown_ms),
        },
    )


def _cost(rounds: Sequence[Round]) -> Figure:
    """What control pays for each host and scope of a change, which is told and taken back."""
    told = 2 * HOSTS * WIDE_SCOPES
    costs_us = [one.cpu_s / told * 1e6 for one in rounds]
    return Figure(
        name=f"Control's CPU per host and scope of a change ({HOSTS} hosts, {WIDE_SCOPES} scopes)",
        measured=_p(costs_us, 0.5),
        unit="us",
        note=f"middle of {len(rounds)} orders that are taken back; lowest {min(costs_us):.1f} us; "
        "against an earlier revision: python -m bench.link_cost --base REV",
        raw={"lowest_us": min(costs_us), "highest_us": max(costs_us)},
    )


async def _measure(folder: Path, running: Control) -> list[Figure]:
    async with _joined(folder, running) as hosts:
        everywhere = [
            await _round(
                running, hosts, [WIDE[n]], (f"/v1/vms/vm-{n * 7 % HOSTS:03d}-{n:02d}/restart", None)
            )
            for n in range(ROUNDS_ALL)
        ]
        alone = [
            await _round(running, [hosts[n]], [ALONE[n]], (f"/v1/vms/{ALONE[n]}/restart", None))
            for n in range(ROUNDS_ONE)
        ]
        freeze = {"event_type": "Freeze"}
        everything = [
            await _round(running, hosts, WIDE, (f"/v1/hosts/host-{n:03d}/maintain", freeze))
            for n in range(ROUNDS_EVERYTHING)
        ]
        at_rest = await _at_rest(folder, running, hosts)
    return [
        _figure("a change for every host", everywhere),
        _figure("a change for one host", alone),
        _figure(f"{WIDE_SCOPES} scopes changed at once for every host", everything, target=None),
        _cost(everything),
        *at_rest,
    ]


async def _at_rest(folder: Path, running: Control, hosts: Sequence[BenchHost]) -> list[Figure]:
    """What hosts cost control that have nothing to say, and what that costs a bare server."""
    (alone,) = await _percents(running.pid)
    resident = resident_mib(running.pid)
    link, since = hosts[0].link, hosts[0].feed_reader.since
    answers = Answers(await link.turn(Turn()), await link.changes(since, 0))
    authority = folder / "control" / "data" / "link"
    with bare_server(folder / "peer", authority, answers) as (pid, url):
        async with asked_by_all(url, [host.context for host in hosts]):
            beside, peer = await _percents(running.pid, pid)
    asked_per_s = HOSTS / HEARTBEAT_EVERY_S + HOSTS / WAIT_S
    return [
        Figure(
            name=f"Control with {HOSTS} hosts at rest, CPU",
            measured=alone,
            unit="% of a core",
            at_most=AT_REST_PERCENT_MAX,
            note=f"{asked_per_s:.0f} questions/s, heartbeats and those that wait, over {IDLE_S:.0f}"
            f" s; {resident:.0f} MiB; most of it is waking up and TLS, which depend on the machine",
            raw={"resident_mib": resident},
        ),
        Figure(
            name=f"Control with {HOSTS} hosts at rest, CPU against a bare server",
            measured=beside / peer,
            unit="x",
            at_most=AT_REST_RATIO_MAX,
            note=f"{beside:.2f} against {peer:.2f} % of a core over the same {IDLE_S:.0f} s: stock "
            "uvicorn, same TLS, that says what control says, asked by the same hosts as often",
            raw={"control_percent": beside, "bare_percent": peer},
        ),
    ]


async def _percents(*pids: int) -> list[float]:
    """How much of a core each of the processes takes in the next seconds."""
    before_s, began_s = [cpu_s(pid) for pid in pids], time.perf_counter()
    await asyncio.sleep(IDLE_S)
    took_s = time.perf_counter() - began_s
    return [(cpu_s(pid) - was_s) / took_s * 100 for pid, was_s in zip(pids, before_s, strict=True)]
